"""Are waits for nodes right where they take as long as the time between failures?"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import simulator.run.spares as formulas
from benchmarks.run_reference import TIMES, columns
from simulator.run import pool_play, shared_plays
from simulator.run.columns import MAX_NODES_IN_REPAIR, RunColumns, Runs
from simulator.run.course import Course
from simulator.run.events import expected_goodput, expected_ledger, simulate_runs
from simulator.run.pool import replacement_wait_s
from simulator.run.pool_play import Memory, played_waits
from simulator.run.state import STATE, Records, designs_of
from simulator.table import Floats
from simulator.units import DAY, HOUR

NODE_FAULTS = [0.0, 1.0, 0.0, 0.0]
HALF_OF_THEM = [0.5, 0.5, 0.0, 0.0]


def runs_of(**changes: object) -> RunColumns:
    """Runs that fail every half an hour, with a queue of a day, three of repair and no spares."""
    usual: dict[str, object] = {
        "mtbf_s": 0.5 * HOUR,
        "interval_s": 180.0,
        "stall_s": 0.5,
        "commit_s": 0.0,
        "restart_s": 300.0,
        "kind_share": HALF_OF_THEM,
        "kind_nodes": NODE_FAULTS,
        "num_spares": 0,
        "repair_s": 3 * DAY,
        "spare_wait_s": 60.0,
        "queue_wait_s": DAY,
    }
    return columns(**{**usual, **changes})


def waits_s(runs: Runs) -> Floats:
    """Waits after each kind of interruption, `(n, 4)`."""
    return Course.of(runs).waits.mean.total_s


def expected_s(row: RunColumns) -> Floats:
    ledger = expected_ledger(**row)
    return np.asarray(sum(getattr(ledger, name) for name in TIMES))


def error_of_goodput(mtbf_s: float, **changes: object) -> Floats:
    endless, long = (runs_of(mtbf_s=mtbf_s, work_s=work_s, **changes) for work_s in (np.inf, 6000 * mtbf_s))
    found = expected_goodput(**endless)
    runs = simulate_runs(num_replications=8, seed=5, **long)
    return np.asarray(found / (runs.productive_s / runs.wall_s).mean(axis=1) - 1.0)


@pytest.mark.parametrize(
    ("minutes", "within"), [(1.0, 0.13), (10.0, 0.1), (30.0, 0.07), (60.0, 0.07), (180.0, 0.02)]
)
def test_long_runs_have_the_goodput_of_the_event_loop(minutes: float, within: float) -> None:
    # docs/model/run.md, "The way back"
    spares, queue_s = np.meshgrid([0, 2, 10, 40, 160], [2 * HOUR, DAY])
    errors = error_of_goodput(
        mtbf_s=60.0 * minutes,
        interval_s=6.0 * minutes,
        num_spares=spares.ravel(),
        queue_wait_s=queue_s.ravel(),
    )
    assert np.abs(errors).max() < within


def test_the_closed_form_alone_is_wrong_where_waits_are_as_long_as_up_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(formulas, "LEAST_RHYTHM", np.inf)
    assert error_of_goodput(mtbf_s=HOUR) > 1.0


def test_no_fixed_point_is_sought_of_waits_that_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("sought")

    runs = Runs.of(runs_of(work_s=1e7, num_spares=[0, 8, 32, 64], queue_wait_s=2 * HOUR))
    with monkeypatch.context() as patch:
        patch.setattr(formulas, "LEAST_RHYTHM", np.inf)
        patch.setattr(formulas, "_settled", unexpected)
        with pytest.raises(AssertionError, match="sought"):
            waits_s(runs)
    found_s = waits_s(runs)
    monkeypatch.setattr(formulas, "_settled", unexpected)
    assert (waits_s(runs) == found_s).all()


@pytest.mark.short(2)
@pytest.mark.parametrize("num_failures", [50, 1000])
@pytest.mark.parametrize("queue_days", [1.0, 4.0])
def test_runs_are_as_long_as_those_of_the_event_loop(num_failures: int, queue_days: float) -> None:
    hours, spares = (both.ravel() for both in np.meshgrid([0.5, 1.0, 2.0, 5.0, 20.0], [0, 1, 4, 16]))
    row = runs_of(
        work_s=hours * HOUR * num_failures,
        mtbf_s=hours * HOUR,
        interval_s=360.0 * hours,
        num_spares=spares,
        repair_s=7 * DAY,
        queue_wait_s=queue_days * DAY,
    )
    runs, ledger = simulate_runs(num_replications=300, seed=5, **row), expected_ledger(**row)
    expected_s = sum(getattr(ledger, name) for name in TIMES)
    assert expected_s == pytest.approx(runs.wall_s.mean(axis=1), rel=0.05)


@pytest.mark.parametrize("domain_share", [0.02, 0.1, 0.3])
@pytest.mark.parametrize(("queue_s", "repair_s"), [(0.5 * HOUR, DAY), (DAY, DAY), (DAY, DAY / 4)])
def test_nodes_that_fail_alone_and_by_domains_are_told_apart(
    domain_share: float, queue_s: float, repair_s: float
) -> None:
    # Also where repairs alone end waits, for which the closed form holds if as many nodes fail at a time.
    nodes, spares = (both.ravel() for both in np.meshgrid([4.0, 36.0], [0, 2, 9, 36]))
    row = runs_of(
        work_s=300 * 1.1 * HOUR,
        mtbf_s=1.1 * HOUR,
        num_spares=spares,
        queue_wait_s=queue_s,
        repair_s=repair_s,
        kind_share=[0.7 - domain_share, 0.3, domain_share, 0.0],
        kind_nodes=[[0.0, 1.0, num, 0.0] for num in nodes],
    )
    runs, ledger = simulate_runs(num_replications=60, seed=5, **row), expected_ledger(**row)
    expected_s = sum(getattr(ledger, name) for name in TIMES)
    assert expected_s == pytest.approx(runs.wall_s.mean(axis=1), rel=0.03)


@pytest.mark.parametrize(
    ("mtbf_s", "back_s", "num_spares", "repair_s", "share"),
    [
        (1.8 * HOUR, 0.6 * HOUR, 12, DAY, 0.8),
        (0.5 * HOUR, 1.1 * HOUR, 40, 3 * DAY, 1.0),
        (0.5 * HOUR, 48 * HOUR, 2, 3 * DAY, 1.0),
    ],
)
def test_ways_back_as_long_as_up_times_leave_time_for_repairs(
    mtbf_s: float, back_s: float, num_spares: int, repair_s: float, share: float
) -> None:
    # A cluster that can borrow no node.
    row = runs_of(
        work_s=100 * mtbf_s,
        mtbf_s=mtbf_s,
        interval_s=0.02 * mtbf_s,
        restart_s=back_s,
        num_spares=num_spares,
        repair_s=repair_s,
        queue_wait_s=20 * DAY,
        kind_share=[1.0 - share, share, 0.0, 0.0],
    )
    runs = simulate_runs(num_replications=400, seed=5, **row)
    assert expected_s(row) == pytest.approx(runs.wall_s.mean(), rel=0.01)


def test_where_no_node_comes_back_every_failure_waits_for_the_queue() -> None:
    runs = Runs.of(runs_of(work_s=20 * 0.5 * HOUR, repair_s=1e9))
    assert waits_s(runs)[0] == pytest.approx([0.0, DAY, 0.0, 0.0])


def test_failures_that_a_replica_outlasts_shorten_no_wait_of_the_others() -> None:
    row = runs_of(kind_share=NODE_FAULTS, kind_fast_survival=[1.0, 0.5, 1.0, 1.0], repair_s=1e9)
    runs = Runs.of(row | {"work_s": 1e6, "live_lag_s": 5.0, "reduced_capacity_s": 30.0})
    assert played_waits(runs, runs.work_s).mean_s[0, 1] == pytest.approx(DAY)


def test_kinds_that_never_strike_keep_what_was_expected() -> None:
    row = runs_of(work_s=1e7, kind_share=NODE_FAULTS, kind_nodes=[1.0, 1.0, 4.0, 0.0])
    played = played_waits(Runs.of(row), np.array([1e7]))
    assert np.isnan(played.mean_s[0, [0, 2, 3]]).all()
    waits = Course.of(Runs.of(row)).waits.mean
    assert waits.total_s[0, [0, 2, 3]].tolist() == [60.0, 60.0, 0.0]
    assert waits.total_s[0, 1] == played.mean_s[0, 1] > HOUR


def test_the_moments_of_waits_are_those_of_what_was_played() -> None:
    # No node comes back, so that of five failures on average the first finds the spare, and all others wait a day.
    work_s = 5 * HOUR
    runs = Runs.of(runs_of(work_s=work_s, mtbf_s=HOUR, num_spares=1, repair_s=1e9))
    waits = played_waits(runs, np.array([work_s]))
    longer_s = DAY - 60.0
    late_s = [waits.late_s[0, 1], waits.late_s2[0, 1] ** 0.5, waits.late_s3[0, 1] ** (1 / 3)]
    assert late_s == pytest.approx([longer_s] * 3)
    assert waits.mean_s[0, 1] == pytest.approx(60.0 + waits.late_share[0, 1] * longer_s)


@pytest.mark.parametrize("fails_during_restart", [False, True])
def test_a_run_waits_the_same_in_any_company(fails_during_restart: bool) -> None:
    # Runs of 10 to 10,000 up-times, so that they need different numbers of draws and of replications.
    work_s, spares = [1.8e4, 1e5, 1e6, 1.8e7], [0, 3, 9, 27]
    rows = Runs.of(runs_of(work_s=work_s, num_spares=spares, fails_during_restart=fails_during_restart))
    together = waits_s(rows)
    for row in range(4):
        assert (waits_s(rows.take(np.array([row])))[0] == together[row]).all()


def test_a_recovery_that_lasts_for_all_interruptions_has_draws_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first nine failed nodes are replaced; then nodes fail until none comes back.
    memories, make = [], Memory.of

    def remembered(pools: Records) -> Memory:
        memories.append(make(pools))
        return memories[-1]

    monkeypatch.setattr(Memory, "of", remembered)
    monkeypatch.setattr(shared_plays, "_PLAYED", {})
    waits_s(Runs.of(runs_of(num_spares=9, repair_s=1e12, queue_wait_s=1e15, fails_during_restart=True)))
    num_drawn, num_draws = memories[0].num_drawn.max(), memories[0].draws.shape[1]
    assert num_draws // 2 < num_drawn <= num_draws


def test_more_spares_wait_less() -> None:
    found_s = waits_s(Runs.of(runs_of(work_s=1e7, num_spares=[0, 8, 16, 32, 64, 128])))
    assert (np.diff(found_s[:, 1]) < 0.0).all()


@pytest.mark.parametrize("spares", [0, 40, 55, 65, 75, 90])
def test_nodes_that_fail_on_the_way_back_are_waited_for(spares: int) -> None:
    # 65 nodes in repair on average, while none waits
    row = runs_of(
        work_s=3000 * 1780.0,
        mtbf_s=1780.0,
        num_spares=spares,
        queue_wait_s=2 * HOUR,
        fails_during_restart=True,
    )
    runs, ledger = simulate_runs(num_replications=30, seed=5, **row), expected_ledger(**row)
    expected_s = sum(getattr(ledger, name) for name in TIMES)
    assert expected_s == pytest.approx(runs.wall_s.mean(), rel=0.05)


def test_a_repaired_node_stands_in_for_one_that_is_missing() -> None:
    design = designs_of(Runs.of(runs_of(queue_wait_s=1e6, repair_s=1000.0)))[0]
    state, returns_s = np.zeros(1, dtype=STATE)[0], np.zeros(MAX_NODES_IN_REPAIR)
    at_s = [0.0, 10.0, 30.0, 1005.0, 1040.0]
    waits_s = [replacement_wait_s(design, 1.0, now_s, state, returns_s) for now_s in at_s]
    # Each waits for the return of as many nodes as are missing: its own, until the first three are back after 1,030 s.
    assert waits_s == pytest.approx([1060.0, 1060.0, 1060.0, 1060.0, 1060.0])
    state["num_awaited"] = 0.0
    assert replacement_wait_s(design, 1.0, 1100.0, state, returns_s) == pytest.approx(2005.0 + 60.0 - 1100.0)


@pytest.mark.parametrize("num_spares", [0, 1, 3])
@pytest.mark.parametrize("num_others", [0, 1, 2, 5])
def test_nodes_are_taken_from_the_spares_then_lent_and_then_waited_for(
    num_spares: int, num_others: int
) -> None:
    # Every node is followed: on standby, in reserve, on loan or in repair; nothing fails while the run waits.
    spare_s, queue_s, repair_s = 60.0, 7200.0, 50_000.0
    row = runs_of(num_spares=num_spares, max_loans=num_others, queue_wait_s=queue_s, repair_s=repair_s)
    design = designs_of(Runs.of(row))[0]
    state, returns_s = np.zeros(1, dtype=STATE)[0], np.zeros(MAX_NODES_IN_REPAIR)
    state["spares_left"] = num_spares
    standby, reserve, on_loan = num_spares, num_others, 0
    back_at_s: list[float] = []
    kinds_of_wait: set[str] = set()
    rng, now_s = np.random.default_rng(7), 0.0
    for _ in range(2000):
        now_s += rng.exponential(rng.choice([2e3, 2e4]))
        for _ in [each for each in back_at_s if each <= now_s]:
            back_at_s.pop(0)
            if on_loan:
                on_loan, reserve = on_loan - 1, reserve + 1
            else:
                standby += 1
        back_at_s.append(now_s + repair_s)
        repaired_s = back_at_s[0] - now_s + spare_s
        if standby:
            standby, wait_s, kind = standby - 1, spare_s, "standby"
        elif repaired_s < queue_s or not reserve:
            back_at_s.pop(0)
            wait_s, kind = max(repaired_s, 0.0), "repair"
        else:
            reserve, on_loan, wait_s, kind = reserve - 1, on_loan + 1, queue_s, "loan"
        state["num_awaited"] = 0.0
        assert replacement_wait_s(design, 1.0, now_s, state, returns_s) == pytest.approx(wait_s), kind
        kinds_of_wait.add(kind)
        now_s += wait_s
    assert kinds_of_wait == {"repair"} | ({"standby"} if num_spares else set()) | (
        {"loan"} if num_others else set()
    )


@pytest.mark.parametrize("fails_during_restart", [0.0, 1.0])
def test_random_runs_that_can_borrow_few_nodes_are_as_long_as_replays(fails_during_restart: float) -> None:
    rng, num = np.random.default_rng(5), 60
    mtbf_s = 10.0 ** rng.uniform(3.5, 5.5, num)
    row = runs_of(
        work_s=mtbf_s * 10.0 ** rng.uniform(0.5, 2.0, num),
        mtbf_s=mtbf_s,
        interval_s=mtbf_s / 50.0,
        stall_s=mtbf_s / 5000.0,
        restart_s=mtbf_s * 10.0 ** rng.uniform(-3.0, -1.0, num),
        num_spares=rng.integers(0, 6, num),
        max_loans=rng.integers(0, 6, num),
        repair_s=mtbf_s * 10.0 ** rng.uniform(-0.7, 0.5, num),
        queue_wait_s=rng.choice([2 * HOUR, DAY], num),
        fails_during_restart=fails_during_restart,
        kind_share=[0.2, 0.7, 0.1, 0.0],
        kind_nodes=[[0.0, 1.0, size, 0.0] for size in rng.choice([1.0, 4.0], num)],
    )
    waits_s = simulate_runs(num_replications=1000, seed=3, **row)
    error_s = 4.0 * waits_s.replacement_wait_s.std(axis=1) / 1000**0.5
    off_s = np.abs(expected_ledger(**row).replacement_wait_s - waits_s.replacement_wait_s.mean(axis=1))
    assert (off_s < error_s + 0.02 * waits_s.wall_s.mean(axis=1)).all()


def test_nodes_that_are_repaired_at_once_are_waited_for_no_longer_than_that() -> None:
    runs = Runs.of(runs_of(work_s=1e7, repair_s=0.0, fails_during_restart=[0, 1]))
    assert (waits_s(runs)[:, 1] <= 61.0).all()


@pytest.mark.filterwarnings("error")
def test_extremes_give_times_or_never_end() -> None:
    corners = itertools.product(
        [0.5, 1e3, 1e6],  # up-time
        [0, 5000, np.inf],  # spares
        [0.0, 3 * DAY, 1e12],  # repair
        [0.0, 2 * HOUR, 1e15],  # queue
        [0, 1],  # failures on the way back
        [(0, 1, 0, 0), (0, 1, 64, 1), (0, 4096, 4096, 0)],  # nodes
        [0, 3, np.inf],  # nodes that can be lent
    )
    mtbf_s, spares, repair_s, queue_s, fails, nodes, loans = zip(*corners, strict=True)
    row = runs_of(
        work_s=1e6,
        mtbf_s=mtbf_s,
        num_spares=spares,
        repair_s=repair_s,
        queue_wait_s=queue_s,
        max_loans=loans,
        fails_during_restart=fails,
        kind_nodes=nodes,
        kind_share=[0.4, 0.4, 0.1, 0.1],
    )
    ledger = expected_ledger(**row)
    assert all((getattr(ledger, name) >= 0.0).all() for name in TIMES)


def test_work_that_is_done_again_has_failures_of_its_own() -> None:
    # Saves as far apart as failures: the run is up for e - 1 times its work, and has as many failures more.
    row = runs_of(work_s=30 * 5 * HOUR, mtbf_s=5 * HOUR, interval_s=5 * HOUR, num_spares=8, repair_s=7 * DAY)
    assert Course.of(Runs.of(row)).up_time.total_s == pytest.approx(30 * 5 * HOUR * (math.e - 1.0), rel=0.1)
    runs = simulate_runs(num_replications=300, seed=5, **row)
    assert expected_s(row) == pytest.approx(runs.wall_s.mean(), rel=0.03)


@pytest.mark.parametrize("interval_s", [HOUR / 24, HOUR / 6])
def test_stalls_have_failures_of_their_own(interval_s: float) -> None:
    # The run stands still for saves for as long as it works, or for a fourth of that.
    stall_s = HOUR / 24
    row = runs_of(
        work_s=30 * 2 * HOUR,
        mtbf_s=2 * HOUR,
        interval_s=interval_s,
        stall_s=stall_s,
        num_spares=12,
        repair_s=7 * DAY,
        queue_wait_s=2 * HOUR,
    )
    runs = simulate_runs(num_replications=1000, seed=5, **row)
    assert expected_s(row) == pytest.approx(runs.wall_s.mean(), rel=0.01)


def test_where_a_live_replica_goes_on_a_long_interval_is_no_work_that_is_done_again() -> None:
    # Saves twelve up-times apart, which only two in a thousand interruptions go back to.
    row = runs_of(
        work_s=25 * 2 * HOUR,
        mtbf_s=2 * HOUR,
        interval_s=24 * HOUR,
        live_lag_s=3.0,
        kind_fast_survival=[1.0, 0.996, 1.0, 1.0],
        num_spares=[8, 16],
        repair_s=7 * DAY,
        queue_wait_s=2 * HOUR,
    )
    runs = simulate_runs(num_replications=1000, seed=5, **row)
    assert expected_s(row) == pytest.approx(runs.wall_s.mean(axis=1), rel=0.015)


def test_designs_that_differ_in_nothing_that_is_played_share_a_play(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_plays, "_PLAYED", {})
    plays: list[int] = []
    play = pool_play.play_pools

    def counted(designs: Records, pools: Records, memory: Memory) -> None:
        plays.append(len(pools))
        play(designs, pools, memory)

    monkeypatch.setattr(pool_play, "play_pools", counted)
    # Saves, and a thousandth of the up-time, change no pool; a spare or a hundredth of the restart does.
    row = runs_of(
        work_s=1e7,
        stall_s=[0.5, 2.0, 0.5, 0.5, 0.5],
        restart_s=[300.0, 300.0, 300.0, 300.0, 306.0],
        num_spares=[0, 0, 0, 1, 0],
    )
    runs, up_time_s = Runs.of(row), np.array([1e7, 1e7, 1.0001e7, 1e7, 1e7])
    waits = played_waits(runs, up_time_s)
    assert plays == [3]
    assert (waits.mean_s[:3, 1] == waits.mean_s[0, 1]).all()
    assert len({*waits.mean_s[[0, 3, 4], 1].tolist()}) == 3
    again = played_waits(runs.take(np.array([3, 0])), up_time_s[[3, 0]])
    assert plays == [3]
    assert (again.mean_s[:, 1] == waits.mean_s[[3, 0], 1]).all()


def test_plays_that_are_forgotten_are_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_plays, "_PLAYED", {})
    monkeypatch.setattr(shared_plays, "MOST_KEPT", 2)
    runs, up_time_s = Runs.of(runs_of(work_s=1e7, num_spares=[0, 1, 2])), np.full(3, 1e7)
    first, again = (played_waits(runs, up_time_s) for _ in range(2))
    for name, column in first.columns().items():
        np.testing.assert_array_equal(column, again.columns()[name])


def test_a_play_has_recoveries_within_half_a_per_cent_of_the_designs() -> None:
    times_s = np.geomspace(1e-3, 1e9, 10_001)
    found_s = shared_plays.rounded_s(times_s, np.full(len(times_s), 7.0))
    assert np.abs(np.log(found_s / times_s)).max() <= 0.5 * np.log1p(shared_plays.ROUNDING_FRACTION) + 1e-12
    assert shared_plays.rounded_s(np.array([0.0, 7.0]), np.full(2, 7.0)).tolist() == [0.0, 7.0]
