"""Do levels of saves, live replicas, planned interruptions and spares cost what can be worked out by hand?"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import poisson

from benchmarks.run_reference import TIMES, WAIT, columns, wall_s
from simulator.errors import InputError
from simulator.run.columns import BackPressure, RunColumns, Runs
from simulator.run.course import Course
from simulator.run.events import (
    RunLedger,
    RunReplications,
    expected_ledger,
    expected_ledger_and_delays,
    simulate_runs,
)
from simulator.run.levels import mean_lag_s
from simulator.run.shares import Shares
from simulator.run.way_back import WayBack
from simulator.units import DAY

NO_SAVES: dict[str, Any] = {"stall_s": 0.0, "commit_s": 0.0, "restart_s": 0.0}
NODE_FAULTS = [0.0, 1.0, 0.0, 0.0]
PLANNED = [0.0, 0.0, 0.0, 1.0]


def play(num_replications: int = 200, **changes: object) -> tuple[RunReplications, RunLedger]:
    return both_of(columns(**changes), num_replications)


def both_of(row: RunColumns, num_replications: int = 200) -> tuple[RunReplications, RunLedger]:
    """The runs of a row one by one, and what is expected of them."""
    return simulate_runs(num_replications=num_replications, seed=8, **row), expected_ledger(**row)


of_all_kinds = partial(
    columns,
    fails_during_restart=True,
    kind_restart_s=[20.0, 900.0, 300.0, 2400.0],
    kind_fast_survival=[1.0, 0.7, 0.4, 1.0],
)


def assert_near(runs: RunReplications, ledger: RunLedger, share: float = 0.005) -> None:
    """Every account of the expectation is within a share of the wall time of the mean, and four standard errors."""
    for name in TIMES:
        values = getattr(runs, name)[0]
        error = 4.0 * values.std() / math.sqrt(len(values))
        expected = getattr(ledger, name)[0]
        assert expected == pytest.approx(values.mean(), abs=error + share * runs.wall_s.mean()), name


def stopped_up_time_per_work(interval: float, planned: float) -> float:
    """Up-time per work of a long run whose saves cost nothing, and whose stops put off durable ones.

    A plane over the work w to do and u not durable solves the renewal equation of the up-time: with p stops and b faults in M,
    p + b = 1, and I0 and I1 the integrals of exp(-x) and x exp(-x) up to tau, it is I0/(p A I1 + tau exp(-tau)), where
    A = exp(-tau)/(1 - p I0).
    """
    i0 = -math.expm1(-interval)
    i1 = i0 - interval * math.exp(-interval)
    reached = math.exp(-interval) / (1.0 - planned * i0)
    return i0 / (planned * reached * i1 + interval * math.exp(-interval))


class TestLevels:
    def test_a_fast_level_that_never_survives_leaves_the_saves_of_the_durable_one(self) -> None:
        # Only every fourth save counts, 300 s after its stall: one level with an interval of 4 tau + 3 s and tau for
        # the work in it, whose goodput is W exp(-t1/M) / ((M + R)(1 - exp(-c/M))).
        mtbf_s, tau, s, p = 1e4, 500.0, 5.0, 300.0
        runs, ledger = play(
            work_s=500 * mtbf_s, mtbf_s=mtbf_s, interval_s=tau, stall_s=s, commit_s=100.0, restart_s=400.0,
            kind_fast_survival=[0.0, 1.0, 1.0, 1.0], durable_every=4, durable_commit_s=p,
        )  # fmt: skip
        cycle_s = 4 * (tau + s)
        first_s = cycle_s + p
        closed = 4 * tau * math.exp(-first_s / mtbf_s) / ((mtbf_s + 400) * -math.expm1(-cycle_s / mtbf_s))
        assert runs.productive_s.sum() / runs.wall_s.sum() == pytest.approx(closed, rel=0.002)
        assert ledger.productive_s / wall_s(ledger) == pytest.approx(closed, rel=0.002)

    def test_a_fast_level_that_always_survives_is_the_only_one(self) -> None:
        one, ledger = play()
        two, same = play(durable_every=50, durable_commit_s=1e5)
        assert one.wall_s.tobytes() == two.wall_s.tobytes()
        assert wall_s(ledger).tobytes() == wall_s(same).tobytes()

    @pytest.mark.parametrize("survival", [0.1, 0.5, 0.9])
    @pytest.mark.parametrize("durable_every", [1, 5])
    @pytest.mark.parametrize("durable_commit_s", [120.0, 1500.0])
    def test_nested_renewal_gives_the_mean_of_the_loop(
        self, survival: float, durable_every: int, durable_commit_s: float
    ) -> None:
        runs, ledger = play(
            kind_fast_survival=[survival, 1, 1, 1], durable_every=durable_every, durable_commit_s=durable_commit_s,
            fast_load_s=10.0, durable_load_s=100.0,
        )  # fmt: skip
        # 0.05 % on average over random runs; the most that was found is 0.7 %, with a durable cycle near M.
        assert_near(runs, ledger, share=0.001)

    @pytest.mark.parametrize("durable_every", [1, 10, 40])
    @pytest.mark.parametrize("planned", [0.05, 0.5])
    def test_announced_stops_that_save_durably_spare_later_faults(
        self, durable_every: int, planned: float
    ) -> None:
        # With 40 saves between two that become durable, without these stops a run would lose ten times its work.
        mtbf_s, tau = 4e4, 8e3
        runs, ledger = play(
            work_s=300 * mtbf_s, mtbf_s=mtbf_s, interval_s=tau, stall_s=8.0, commit_s=160.0, restart_s=300.0,
            kind_share=[0.9 - planned, 0.1, 0.0, planned], kind_fast_survival=[1.0, 0.0, 0.0, 0.0],
            durable_every=durable_every, durable_commit_s=0.2 * tau * durable_every,
        )  # fmt: skip
        assert_near(runs, ledger, share=0.005)

    @pytest.mark.parametrize("interval", [0.5, 1.0, 3.0])
    @pytest.mark.parametrize("planned", [0.3, 0.8])
    def test_announced_stops_that_the_fast_level_outlives_put_off_durable_saves(
        self, interval: float, planned: float
    ) -> None:
        per_work = stopped_up_time_per_work(interval, planned)
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "interval_s": interval * 1e4, "kind_share": [0.0, 1.0 - planned, 0.0, planned],
            "kind_fast_survival": [1.0, 0.0, 0.0, 1.0], "durable_commit_s": 1e-6, **NO_SAVES,
        }  # fmt: skip
        long = wall_s(expected_ledger(**columns(work_s=1e9, **run)))
        assert long == pytest.approx(1e9 * per_work, rel=1e-4)
        runs, ledger = play(num_replications=2000, work_s=3e5, **run)
        assert_near(runs, ledger, share=0.02)

    def test_announced_stops_spare_waits_for_slots(self) -> None:
        # A save takes longer than an interval, and a stop saves ahead: with waits as without stops, a sixth more of them.
        runs, ledger = play(
            mtbf_s=5e3, kind_share=[0.4, 0.0, 0.0, 0.6], policy=WAIT, commit_s=900.0, tax_fraction=0.2
        )
        assert_near(runs, ledger, share=0.001)

    @pytest.mark.parametrize("work_s", [700.0, 1e5])
    def test_a_run_without_announced_stops_takes_as_long_alone_as_beside_one_with_them(
        self, work_s: float
    ) -> None:
        none, some = [1.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.5]
        alone, beside = (
            wall_s(expected_ledger(**columns(work_s=work_s, kind_share=shares)))
            for shares in (none, [none, some])
        )
        assert alone[0] == beside[0]

    @pytest.mark.parametrize(("planned", "stall"), [(0.6, 0.5), (0.8, 0.6), (0.8, 0.1)])
    def test_stops_keep_the_work_of_an_up_time_that_stands_still_only_for_the_stall(
        self, planned: float, stall: float
    ) -> None:
        # As above, with (1 - E)/(p A J + tau E), E = exp(-tau - stall), and J the integral of min(x, tau) exp(-x) up to there;
        # p stops per up-time wait for a stall more.
        interval = 1.5
        kept, reached = math.exp(-interval), math.exp(-interval - stall)
        work = 1.0 - kept * (1.0 + interval) + interval * (kept - reached)
        committed = reached / (1.0 - planned * (1.0 - reached))
        per_work = (1.0 - reached) / (planned * committed * work + interval * reached)
        ledger = expected_ledger(
            **columns(
                work_s=1e9, mtbf_s=1e4, interval_s=interval * 1e4, kind_share=[0.0, 1.0 - planned, 0.0, planned],
                kind_fast_survival=[1.0, 0.0, 0.0, 1.0], durable_commit_s=1e-6, **(NO_SAVES | {"stall_s": stall * 1e4}),
            )
        )  # fmt: skip
        assert wall_s(ledger) == pytest.approx(1e9 * per_work * (1.0 + planned * stall), rel=1e-4)

    @pytest.mark.parametrize(
        ("planned", "interval", "work"), [(0.6, 1.5, 2.8), (0.3, 2.0, 3.5), (0.8, 3.0, 5.0), (0.9, 6.0, 11.0)]
    )
    def test_a_run_of_one_durable_save_and_more_has_the_renewal_equation_of_that_save(
        self, planned: float, interval: float, work: float
    ) -> None:
        # In M: saves are at once, and faults alone lose work, so that time is work. The first save comes at tau, with
        # exp(-p tau), or at x later, with p exp(-p tau) per time up to 2 tau; y(w) = (exp(b w) - 1)/b without one, and with one
        # f S = (1 - S)/b + E[exp(-b x) y(w - x)], where 1 - S is how likely a fault comes before save and end.
        p, b, tau, w = planned, 1.0 - planned, interval, work
        none, again = math.exp(-p * tau), math.exp(-b * w)
        saved = none * math.exp(-b * tau) + p * none * (math.exp(-b * tau) - again) / b
        lasts = again + saved - again * none * (1.0 + p * (w - tau))
        later = none * math.exp(-2.0 * b * tau) + p * none * (math.exp(-2.0 * b * tau) - again**2) / (2.0 * b)
        exact = (1.0 - lasts + later / again - saved) / (b * lasts)
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "interval_s": interval * 1e4, "work_s": work * 1e4, "kind_share": [0.0, b, 0.0, p],
            "kind_fast_survival": [1.0, 0.0, 0.0, 1.0], "durable_commit_s": 1e-6, **NO_SAVES,
        }  # fmt: skip
        # The work beyond tau is taken for a gamma law.
        assert wall_s(expected_ledger(**columns(**run))) == pytest.approx(1e4 * exact, rel=0.015)
        runs, _ = play(num_replications=4000, **run)
        error = 4.0 * runs.wall_s.std() / math.sqrt(4000)
        assert runs.wall_s.mean() == pytest.approx(1e4 * exact, abs=error)

    @pytest.mark.short(2)
    @pytest.mark.parametrize("work", [1.2, 1.7, 2.5])
    @pytest.mark.parametrize(("durable_every", "interval"), [(7, 1.4), (15, 1.0)])
    def test_runs_of_a_few_durable_saves_that_need_many_times_their_work_are_as_long_as_in_the_loop(
        self, durable_every: int, interval: float, work: float
    ) -> None:
        # Each durable save comes after k saves, and stops make it late by a random time.
        runs, ledger = play(
            num_replications=4000, work_s=work * durable_every * interval * 1e4, mtbf_s=1e4, interval_s=interval * 1e4,
            kind_share=[0.05, 0.2, 0.0, 0.75], kind_fast_survival=[1.0, 0.0, 0.0, 1.0], durable_every=durable_every,
            durable_commit_s=1e-6, **NO_SAVES,
        )  # fmt: skip
        assert_near(runs, ledger, share=0.02)

    @pytest.mark.parametrize("work", [2.0, 40.0])
    def test_a_save_counts_once_its_long_write_to_the_durable_level_is_over(self, work: float) -> None:
        runs, ledger = play(
            num_replications=3000, work_s=work * 1.5e4, mtbf_s=1e4, interval_s=5e3, stall_s=0.0, commit_s=10.0, restart_s=0.0,
            kind_share=[0.2, 0.3, 0.0, 0.5], kind_fast_survival=[1.0, 0.0, 0.0, 1.0], durable_every=3, durable_commit_s=1.2e4,
        )  # fmt: skip
        assert_near(runs, ledger, share=0.03)

    def test_a_save_is_not_durable_before_it_has_committed(self) -> None:
        with pytest.raises(InputError, match=r"durable_commit_s = 30: must be at least commit_s \(120\)"):
            expected_ledger(**columns(commit_s=[60.0, 120.0], durable_commit_s=[60.0, 30.0]))

    @pytest.mark.parametrize(("process", "work"), [(0.0, 2.0), (0.5, 2.0), (0.5, 0.7)])
    def test_up_to_its_first_save_a_run_with_announced_stops_has_its_renewal_equation(
        self, process: float, work: float
    ) -> None:
        # With T the time without faults of the rate b, y(w) = exp(w) E[exp(-b T)] solves m y' = y (p + a exp(-w)), where
        # m = 1 - a (1 - exp(-w)) and a + p + b = 1 in M.
        planned = 0.2
        durable = 1.0 - process - planned
        clock = math.log((planned + durable) * math.exp(work) + process) / (planned + durable)
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "interval_s": 3e4, "work_s": work * 1e4,
            "kind_share": [process, durable, 0.0, planned], "kind_fast_survival": [1.0, 0.0, 0.0, 1.0],
            "durable_commit_s": 1.0, **NO_SAVES,
        }  # fmt: skip
        exact = 1e4 * math.expm1(durable * clock) / durable
        assert wall_s(expected_ledger(**columns(**run))) == pytest.approx(exact, rel=1e-9)
        runs, ledger = play(num_replications=4000, **run)
        assert_near(runs, ledger, share=0.001)

    @pytest.mark.parametrize(("work", "durable"), [(0.5, 0.3), (2.0, 0.3), (2.0, 0.9), (3.5, 0.6)])
    def test_up_to_its_first_save_a_run_starts_over_whatever_level_is_left(
        self, work: float, durable: float
    ) -> None:
        # No save, so that every interruption undoes all: M (exp(w/M) - 1).
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "interval_s": 4e4, "work_s": work * 1e4, "kind_share": [1.0 - durable, durable, 0.0, 0.0],
            "kind_fast_survival": [1.0, 0.0, 0.0, 1.0], "durable_commit_s": 1e3, "durable_every": 2, **NO_SAVES,
        }  # fmt: skip
        assert wall_s(expected_ledger(**columns(**run))) == pytest.approx(1e4 * math.expm1(work), rel=1e-9)

    def test_a_run_without_a_durable_save_has_the_transform_of_its_fast_ones(self) -> None:
        # With E = exp(-s tau) of s = a + b faults in M, a run of three intervals comes to its end without a fault of the rate b
        # in psi_3 = s E/(b + a E) (s E/(b + a E))^2: nothing takes time to commit, and the rest is one more interval.
        durable, tau = 0.4, 0.8
        lasts = math.exp(-tau)
        reached = (lasts / (durable + (1.0 - durable) * lasts)) ** 3
        run: dict[str, Any] = {
            "mtbf_s": 1e4, "interval_s": tau * 1e4, "work_s": 3 * tau * 1e4,
            "kind_share": [1.0 - durable, durable, 0.0, 0.0], "kind_fast_survival": [1.0, 0.0, 0.0, 1.0],
            "durable_commit_s": 1.0, "durable_every": 10, **NO_SAVES,
        }  # fmt: skip
        assert wall_s(expected_ledger(**columns(**run))) == pytest.approx(
            1e4 * (1 / reached - 1) / durable, rel=1e-9
        )

    def test_loads_are_those_of_the_level_that_is_left(self) -> None:
        runs, _ = play(kind_fast_survival=[0.25, 1, 1, 1], fast_load_s=10.0, durable_load_s=110.0)
        share = (runs.checkpoint_restore_s.sum() / runs.num_failures.sum() - 10.0) / 100.0
        assert share == pytest.approx(0.75, abs=4 * math.sqrt(0.25 * 0.75 / runs.num_failures.sum()))


class TestReplicas:
    def test_a_live_replica_loses_its_lag_and_nothing_else(self) -> None:
        # Up-times X of mean M: E[min(lag, X)] = M (1 - exp(-lag/M)), whatever is saved; here nothing is.
        lag_s, mtbf_s = 300.0, 1000.0
        runs, ledger = play(work_s=1e6, mtbf_s=mtbf_s, interval_s=np.inf, live_lag_s=lag_s, **NO_SAVES)
        lost_s = mtbf_s * -math.expm1(-lag_s / mtbf_s)
        num = runs.num_failures.sum()
        assert runs.lost_work_s.sum() / num == pytest.approx(lost_s, abs=4 * lag_s / math.sqrt(num))
        assert_near(runs, ledger, share=1e-9)

    def test_missing_capacity_is_a_pause_that_can_be_interrupted(self) -> None:
        # A pause C passes in exp(-C/M) of all up-times, so that M (exp(C/M) - 1) of it goes before each work.
        pause_s, mtbf_s = 500.0, 1000.0
        runs, ledger = play(
            work_s=1e6,
            mtbf_s=mtbf_s,
            interval_s=np.inf,
            live_lag_s=0.0,
            reduced_capacity_s=pause_s,
            **NO_SAVES,
        )
        share = math.expm1(pause_s / mtbf_s)
        assert runs.reduced_capacity_s.sum() / runs.productive_s.sum() == pytest.approx(share, rel=0.01)
        assert_near(runs, ledger, share=1e-4)

    def test_without_a_survivor_the_run_goes_back_to_a_save(self) -> None:
        live, _ = play(live_lag_s=0.0, kind_fast_survival=[0.0, 1, 1, 1])
        saved, _ = play(kind_fast_survival=[0.0, 1, 1, 1])
        assert live.lost_work_s == pytest.approx(saved.lost_work_s)
        assert (live.reduced_capacity_s == 0.0).all()

    @pytest.mark.short(4)
    @pytest.mark.parametrize("interval", [0.5, 1.0, 3.0])
    @pytest.mark.parametrize("planned", [0.3, 0.8])
    @pytest.mark.parametrize("missing", [0.0, 1.0])
    def test_announced_stops_save_durably_under_live_replicas(
        self, interval: float, planned: float, missing: float
    ) -> None:
        # As with one level of saves, on a clock that knows only stops and faults that no replica outlives, p + b = 1 in 2 M.
        # Half of all up-times begin without some capacity, for M if nothing interrupts that, and on a clock of training the
        # others are shorter by as much.
        slower = 1.0 / (1.0 + 0.5 * math.expm1(-missing))
        none = math.exp(-interval * slower)
        kept = planned * (1.0 - none) + (1.0 - planned) * interval * slower * none
        per_work = slower * (1.0 - none) / kept
        run: dict[str, Any] = {
            "mtbf_s": 5e3, "interval_s": interval * 1e4, "kind_share": [0.5, 0.5 * (1.0 - planned), 0.0, 0.5 * planned],
            "kind_fast_survival": [1.0, 0.0, 0.0, 1.0], "durable_commit_s": 1e-6, "live_lag_s": 0.0,
            "reduced_capacity_s": missing * 5e3, **NO_SAVES,
        }  # fmt: skip
        long = wall_s(expected_ledger(**columns(work_s=1e9, **run)))
        assert long == pytest.approx(1e9 * per_work, rel=1e-4)
        runs, ledger = play(num_replications=2000, work_s=3e5, **run)
        assert_near(runs, ledger, share=0.02)

    def test_announced_stops_leave_no_fast_level_to_live_replicas_alone(self) -> None:
        # The second run has no replica, and the third saves nothing.
        run = columns(live_lag_s=[0.0, np.inf, 0.0], interval_s=[1e4, 1e4, np.inf])
        runs = Runs.of(run | {"kind_fast_survival": [1.0, 0.5, 0.2, 0.9]})
        assert runs.kind_fast_survival.tolist() == [[1.0, 0.5, 0.2, planned] for planned in (0.0, 0.9, 0.9)]

    def test_announced_stops_spare_saves_of_live_replicas(self) -> None:
        # A stop saves ahead and begins an interval. Stalls as without stops would make this run 8 % too long.
        runs, ledger = play(
            num_replications=1000, work_s=1e6, mtbf_s=1e4, interval_s=1.5e4, stall_s=3e3, commit_s=0.0, restart_s=0.0,
            kind_share=[0.3, 0.0, 0.0, 0.7], live_lag_s=0.0,
        )  # fmt: skip
        assert_near(runs, ledger, share=0.01)

    def test_replicas_and_a_durable_level_together_have_the_expected_mean(self) -> None:
        runs, ledger = play(
            live_lag_s=30.0, reduced_capacity_s=200.0, kind_fast_survival=[0.8, 1, 1, 1], durable_every=4,
            durable_commit_s=300.0, tax_fraction=0.1,
        )  # fmt: skip
        assert_near(runs, ledger, share=0.003)

    @pytest.mark.parametrize("num_spares", [1, 4])
    def test_nodes_that_replicas_go_on_without_are_taken_from_no_pool(self, num_spares: int) -> None:
        # Nothing is ever saved, so that replicas go on at announced stops, too; with so long a queue the pool is played.
        row = columns(
            work_s=6e3, mtbf_s=1000.0, interval_s=np.inf, **NO_SAVES, live_lag_s=1.0, reduced_capacity_s=20.0,
            kind_share=[0.0, 0.3, 0.0, 0.7], kind_fast_survival=[1.0, 0.0, 1.0, 1.0], num_spares=num_spares, repair_s=1e4,
            queue_wait_s=2e3, spare_wait_s=10.0,
        )  # fmt: skip
        taken, spared = (play(20, **row | {"kind_nodes": [0, 1, 0, nodes]}) for nodes in (2, 0))
        assert taken[0].wall_s.tobytes() == spared[0].wall_s.tobytes()
        assert taken[1].replacement_wait_s[0] == spared[1].replacement_wait_s[0]

    @pytest.mark.parametrize(("slots", "interval_s"), [(1, 200.0), (4, 12.5)])
    def test_an_interruption_ends_the_waits_for_slots(self, slots: int, interval_s: float) -> None:
        # Saves queue for a slot; a replica that goes on ends those under way, and the next ones find all slots free. Waits that
        # went on would make these runs 6 and 2 % too long.
        runs, ledger = play(
            work_s=4e4, mtbf_s=2500.0, interval_s=interval_s, stall_s=0.3, commit_s=2.4 * 200.0 if slots == 1 else 160.0,
            slots=slots, policy=BackPressure.WAIT, restart_s=10.0, live_lag_s=1.0, num_replications=500,
        )  # fmt: skip
        assert_near(runs, ledger, share=0.002)


class TestPlannedInterruptions:
    def test_they_save_first_and_lose_nothing(self) -> None:
        runs, ledger = play(kind_share=PLANNED, stall_s=5.0, commit_s=120.0, restart_s=390.0)
        assert (runs.lost_work_s == 0.0).all()
        assert (runs.num_failures == 0.0).all()
        assert runs.restart_s == pytest.approx(390.0 * runs.num_planned)
        assert ledger.lost_work_s == pytest.approx(0.0, abs=1e-6)
        assert_near(runs, ledger, share=1e-4)

    def test_each_costs_a_stall_and_a_commit(self) -> None:
        # No other save is made before the end of the work.
        runs, _ = play(work_s=1e6, interval_s=1e9, stall_s=5.0, commit_s=120.0, kind_share=PLANNED)
        assert runs.checkpoint_stall_s == pytest.approx(125.0 * runs.num_planned)

    def test_without_saves_they_lose_all(self) -> None:
        runs, ledger = play(work_s=1e4, interval_s=np.inf, kind_share=PLANNED, num_replications=2000)
        mean_s = (10_980 + 390) * math.expm1(1e4 / 10_980)
        error = 4 * runs.wall_s.std() / math.sqrt(2000)
        assert runs.wall_s.mean() == pytest.approx(mean_s, abs=error)
        assert wall_s(ledger) == pytest.approx(mean_s)

    @pytest.mark.parametrize("share", [0.1, 0.5])
    def test_a_mixture_has_the_expected_mean(self, share: float) -> None:
        runs, ledger = play(kind_share=[1 - share, 0, 0, share])
        assert_near(runs, ledger, share=1e-4)

    @pytest.mark.parametrize("share", [1e-4, 0.02, 0.3])
    @pytest.mark.parametrize(
        ("work", "interval"), [(3.0, 9.0), (6.0, 5.0), (12.0, 5.0), (40.0, 2.0), (0.8, 0.3)]
    )
    def test_intervals_may_be_as_long_as_an_up_time(self, work: float, interval: float, share: float) -> None:
        # Each stop saves all work and begins an interval; without them nine up-times of work are done in 8,100 tries.
        mtbf_s = 1e4
        runs, ledger = play(
            work_s=work * mtbf_s, mtbf_s=mtbf_s, interval_s=interval * mtbf_s, stall_s=20.0, commit_s=100.0, restart_s=300.0,
            kind_share=[1 - share, 0, 0, share], num_replications=4000,
        )  # fmt: skip
        error_s = 4.0 * runs.wall_s.std() / math.sqrt(4000)
        assert wall_s(ledger)[0] == pytest.approx(runs.wall_s.mean(), abs=error_s + 0.01 * runs.wall_s.mean())

    def test_a_run_without_a_save_has_the_up_time_that_solves_its_renewal_equation(self) -> None:
        # f(F) = ln((p exp(q F) + a) / q) / p with a failures, p stops and q both per second.
        mtbf_s, share, length_s = 1000.0, 0.2, 4000.0
        ledger = expected_ledger(
            **columns(
                work_s=length_s,
                mtbf_s=mtbf_s,
                interval_s=1e5,
                **NO_SAVES,
                kind_share=[1 - share, 0, 0, share],
            )
        )
        up_s = math.log(share * math.exp(length_s / mtbf_s) + 1 - share) / (share / mtbf_s)
        assert wall_s(ledger)[0] == pytest.approx(up_s)

    def test_they_do_not_interrupt_restarts(self) -> None:
        runs, _ = play(kind_share=PLANNED, fails_during_restart=True, restart_s=1e5)
        assert runs.restart_s == pytest.approx(1e5 * runs.num_planned)


class TestLongestOfAWayBack:
    """A failure during a long way back begins that one anew, and makes it no shorter."""

    def test_process_faults_do_not_shorten_a_planned_stop(self) -> None:
        # Only planned stops interrupt training, and only what is over in no time what follows them.
        stop_s, mtbf_s = 1000.0, 1000.0
        runs, ledger = play(
            work_s=4e5, mtbf_s=mtbf_s, interval_s=10.0, stall_s=0.0, commit_s=0.0, num_replications=400,
            fails_during_restart=True, kind_share=[0.5, 0.0, 0.0, 0.5], kind_restart_s=[0.0, 0.0, 0.0, stop_s],
        )  # fmt: skip
        # Failures come every 2,000 s on the way back, and end no stop: M (exp(R/M) - 1) each.
        mean_s = 2.0 * mtbf_s * math.expm1(stop_s / (2.0 * mtbf_s))
        assert runs.restart_s.sum() / runs.num_planned.sum() == pytest.approx(mean_s, rel=0.01)
        assert ledger.restart_s[0] / ledger.num_planned[0] == pytest.approx(mean_s)

    def test_a_mixture_has_the_expected_mean(self) -> None:
        runs, ledger = both_of(of_all_kinds(kind_share=[0.4, 0.3, 0.1, 0.2], mtbf_s=2400.0, work_s=2e6))
        assert_near(runs, ledger)
        for part in ("restart_s", "checkpoint_restore_s", "num_failures"):
            found = getattr(ledger, part)[0]
            assert found == pytest.approx(getattr(runs, part).mean(), rel=0.01), part

    @pytest.mark.parametrize("survival", [1.0, 0.5, 0.0])
    @pytest.mark.parametrize(
        "live", [{}, {"live_lag_s": 1.0}, {"live_lag_s": 1.0, "reduced_capacity_s": 10.0}]
    )
    def test_a_longer_restart_that_begins_during_a_wait_is_the_one_that_follows(
        self, live: dict[str, float], survival: float
    ) -> None:
        # Faults of processes take 0.9 of the up-time to restart, and a seventh of the waits for a node meets one.
        mtbf_s = 1000.0
        runs, ledger = play(
            work_s=40 * mtbf_s, mtbf_s=mtbf_s, interval_s=1.0, stall_s=0.0, commit_s=0.0, fails_during_restart=True,
            kind_share=[0.5, 0.5, 0.0, 0.0], kind_restart_s=[0.9 * mtbf_s, 0.05 * mtbf_s, 0.0, 0.0], kind_nodes=NODE_FAULTS,
            kind_fast_survival=[1.0, survival, 1.0, 1.0], spare_wait_s=0.3 * mtbf_s, num_replications=1000, **live,
        )  # fmt: skip
        for part in ("restart_s", "replacement_wait_s", "num_failures"):
            values = getattr(runs, part)[0]
            error = 4.0 * values.std() / math.sqrt(1000)
            assert getattr(ledger, part)[0] == pytest.approx(
                values.mean(), abs=error + 0.01 * values.mean()
            ), part

    @given(st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4), st.integers(0, 2))
    def test_more_failures_never_shorten_a_run(self, rates: list[float], more: int) -> None:
        walls_s = []
        for factor in (1.0, 1.5):
            rate = np.array(rates)
            rate[more] *= factor
            row = of_all_kinds(mtbf_s=2400.0 / rate.sum(), kind_share=rate / rate.sum(), work_s=2e6)
            walls_s.append(wall_s(expected_ledger(**row))[0])
        assert walls_s[1] > walls_s[0]


class TestSpares:
    def test_enough_spares_make_every_node_fault_wait_for_one(self) -> None:
        nodes = [0.0, 1.0, 4.0, 0.0]
        runs, ledger = play(kind_share=[0.5, 0.5, 0.0, 0.0], kind_nodes=nodes, spare_wait_s=60.0)
        assert runs.replacement_wait_s.sum() / runs.num_failures.sum() == pytest.approx(30.0, rel=0.05)
        assert_near(runs, ledger, share=1e-9)

    def test_without_spares_the_queue_or_the_repaired_node_ends_the_wait(self) -> None:
        long = play(
            kind_share=NODE_FAULTS, kind_nodes=NODE_FAULTS, num_spares=0, repair_s=1e9, queue_wait_s=700.0
        )
        assert long[0].replacement_wait_s == pytest.approx(700.0 * long[0].num_failures)
        assert_near(*long, share=1e-6)
        # The node that failed is the first one back: nothing else is in repair, as nothing fails meanwhile.
        short = play(
            kind_share=NODE_FAULTS, kind_nodes=NODE_FAULTS, num_spares=0, repair_s=500.0, spare_wait_s=20.0,
            queue_wait_s=7200.0,
        )  # fmt: skip
        assert short[0].replacement_wait_s == pytest.approx(520.0 * short[0].num_failures)

    def test_without_spares_a_queue_that_is_faster_than_one_ends_every_wait(self) -> None:
        runs, ledger = play(
            kind_share=NODE_FAULTS, kind_nodes=NODE_FAULTS, num_spares=0, repair_s=1e9, spare_wait_s=700.0,
            queue_wait_s=100.0,
        )  # fmt: skip
        assert runs.replacement_wait_s == pytest.approx(100.0 * runs.num_failures)
        assert_near(runs, ledger, share=1e-6)

    def test_without_spares_the_first_fault_of_a_short_run_waits_as_long_as_any(self) -> None:
        # Faults so far apart that the pool is not played.
        ledger = play(
            kind_share=NODE_FAULTS, kind_nodes=NODE_FAULTS, num_spares=0, repair_s=500.0, spare_wait_s=20.0,
            queue_wait_s=7200.0, work_s=100.0, mtbf_s=1e5,
        )[1]  # fmt: skip
        assert ledger.replacement_wait_s == pytest.approx(520.0 * ledger.num_failures)

    @pytest.mark.parametrize(
        ("loads", "survival"),
        [({"fast_load_s": 200.0}, 1.0), ({"fast_load_s": 50.0, "durable_load_s": 200.0}, 0.0)],
    )
    def test_nodes_come_back_during_loads_as_during_restarts(
        self, loads: dict[str, float], survival: float
    ) -> None:
        loading, restarting = (
            expected_ledger(
                **columns(
                    work_s=1e6, mtbf_s=1000.0, interval_s=10.0, stall_s=0.0, commit_s=0.0, kind_share=NODE_FAULTS,
                    kind_nodes=NODE_FAULTS, kind_fast_survival=[survival] * 4, num_spares=5, repair_s=5000.0,
                    queue_wait_s=1.0, **back,
                )
            )
            for back in ({"restart_s": 300.0, **loads}, {"restart_s": 500.0})
        )  # fmt: skip
        assert loading.replacement_wait_s == pytest.approx(restarting.replacement_wait_s)

    @pytest.mark.parametrize("num_spares", [2, 5, 9])
    def test_the_share_of_faults_without_a_spare_is_poissons(self, num_spares: int) -> None:
        # Restarts are short, so that faults are Poisson: five nodes are in repair on average.
        mtbf_s, wait_s = 1000.0, 1e-3
        row = columns(
            work_s=2e5, mtbf_s=mtbf_s, interval_s=10.0, **NO_SAVES, kind_share=NODE_FAULTS, kind_nodes=NODE_FAULTS,
            num_spares=num_spares, repair_s=5 * mtbf_s, queue_wait_s=wait_s,
        )  # fmt: skip
        runs, ledger = play(num_replications=500, **row)
        none_left = poisson.sf(num_spares - 1, 5.0)
        found = runs.replacement_wait_s.sum() / runs.num_failures.sum() / wait_s
        expected = float((ledger.replacement_wait_s / ledger.num_failures / wait_s)[0])
        assert found == pytest.approx(expected, abs=4 * math.sqrt(6 * none_left / 1e5))
        # The pool is full at first: of 200 up-times five are before the steady state.
        assert 0.97 * none_left < expected < none_left
        steady = Course.of(replace(Runs.of(row), work_s=np.array([np.inf]))).way_back
        assert steady.replacement_wait_s / wait_s == pytest.approx(none_left, rel=1e-4)

    @pytest.mark.parametrize("num_spares", [0, 1, 4])
    def test_in_a_run_shorter_than_a_repair_no_node_comes_back(self, num_spares: int) -> None:
        # Of N failures, Poisson, N - c wait for the queue, and no repaired node ends a wait.
        mtbf_s, queue_s = 1e4, 600.0
        runs, ledger = play(
            work_s=5 * mtbf_s, mtbf_s=mtbf_s, interval_s=10.0, **NO_SAVES, kind_share=NODE_FAULTS,
            kind_nodes=NODE_FAULTS, num_spares=num_spares, repair_s=1e6, queue_wait_s=queue_s, num_replications=5000,
        )  # fmt: skip
        waits = sum(poisson.sf(number, 5.0) for number in range(num_spares, 60))
        assert ledger.replacement_wait_s / queue_s == pytest.approx(waits, rel=0.01)
        error_s = 4 * runs.replacement_wait_s.std() / math.sqrt(5000)
        assert ledger.replacement_wait_s[0] == pytest.approx(runs.replacement_wait_s.mean(), abs=error_s)

    @pytest.mark.parametrize("mtbf_s", [2e3, 1e5])
    @pytest.mark.parametrize("num_spares", [0, 2, 15])
    def test_where_only_repairs_end_a_wait_nodes_in_repair_are_erlangs(
        self, mtbf_s: float, num_spares: int
    ) -> None:
        # A cluster that can borrow no node. Up to 26 nodes would be in repair if the run went on without them.
        repair_s = 1e5
        runs, ledger = play(
            work_s=200 * max(mtbf_s, repair_s / 10), mtbf_s=mtbf_s, interval_s=mtbf_s / 100, **NO_SAVES,
            kind_share=[0.5, 0.5, 0.0, 0.0], kind_nodes=NODE_FAULTS, num_spares=num_spares, repair_s=repair_s,
            spare_wait_s=60.0, queue_wait_s=1e9, num_replications=200,
        )  # fmt: skip
        if num_spares == 0:
            waits = ledger.replacement_wait_s / ledger.num_failures
            assert waits == pytest.approx(0.5 * (60.0 + repair_s))
        assert wall_s(ledger)[0] == pytest.approx(runs.wall_s.mean(), rel=0.01)

    @pytest.mark.parametrize("domain_share", [0.0, 1e-6, 1e-3])
    def test_domains_that_hardly_fail_hardly_change_the_wait_for_a_spare(self, domain_share: float) -> None:
        # Three spares and no queue: P(Y = 4) / (r P(Y <= 3)) on average, Erlang's loss system.
        mtbf_s, repair_s = 50_000.0, 35_000.0
        found = expected_ledger(
            **columns(
                work_s=1e4 * mtbf_s, mtbf_s=mtbf_s, interval_s=1000.0, stall_s=0.0, commit_s=0.0, restart_s=0.0,
                kind_share=[0.0, 1.0 - domain_share, domain_share, 0.0], kind_nodes=[0, 1, 4, 1], num_spares=3,
                repair_s=repair_s, queue_wait_s=1e9,
            )
        )  # fmt: skip
        mean = repair_s / mtbf_s
        wait_s = poisson.pmf(4, mean) / poisson.cdf(3, mean) * mtbf_s
        # A domain takes one node more than stand by, and waits for it: a repair at most.
        most_s = wait_s * (1.0 + 0.03) + domain_share * repair_s
        assert wait_s * 0.97 <= found.replacement_wait_s[0] / found.num_failures[0] <= most_s

    @pytest.mark.parametrize("work", [0.5, 2.0, 20.0])
    @pytest.mark.parametrize("num_spares", [0, 2, 6])
    def test_waits_before_the_steady_state_are_those_of_the_loop(self, work: float, num_spares: int) -> None:
        # Two nodes a repair fail, and the queue takes a thirtieth of a repair.
        repair_s = 1e5
        runs, ledger = play(
            work_s=work * repair_s, mtbf_s=repair_s / 4, interval_s=100.0, **NO_SAVES, kind_share=[0.5, 0.5, 0.0, 0.0],
            kind_nodes=NODE_FAULTS, num_spares=num_spares, repair_s=repair_s, spare_wait_s=60.0,
            queue_wait_s=repair_s / 30, num_replications=4000,
        )  # fmt: skip
        error_s = 4 * runs.replacement_wait_s.std() / math.sqrt(4000)
        found_s = runs.replacement_wait_s.mean()
        assert ledger.replacement_wait_s[0] == pytest.approx(found_s, abs=error_s + 0.03 * found_s)

    def test_a_queue_that_a_repaired_node_can_beat_has_the_expected_wait(self) -> None:
        runs, ledger = play(
            work_s=2e6, mtbf_s=1e4, restart_s=100.0, kind_share=[0.3, 0.5, 0.2, 0.0], kind_nodes=[0, 1, 3, 0],
            num_spares=4, repair_s=3e4, spare_wait_s=50.0, queue_wait_s=1000.0, num_replications=500,
        )  # fmt: skip
        mean_s = runs.replacement_wait_s.sum() / runs.num_failures.sum()
        # A mixture of one and three nodes is taken as one of their mean size: 14 % more wait here.
        expected_s = ledger.replacement_wait_s[0] / ledger.num_failures[0]
        assert expected_s == pytest.approx(mean_s, rel=0.15)
        assert_near(runs, ledger, share=0.005)

    @pytest.mark.parametrize(
        ("mtbf_s", "num_spares", "within"),
        # 16,384 accelerators of the preset `harsh` fail every 1,780 s. With few waits about 60 nodes were in repair, with
        # many 12: neither leads to itself, and so does no whole number of passes from one to the other.
        [(1780.0, 55, 0.06), (2000.0, 55, 0.06), (3000.0, 55, 0.01), (649.0, 55, 0.12), (649.0, 120, 0.12)],
    )
    def test_waits_that_make_failures_rarer_are_those_of_the_loop(
        self, mtbf_s: float, num_spares: int, within: float
    ) -> None:
        runs, ledger = play(
            work_s=2000 * mtbf_s, mtbf_s=mtbf_s, interval_s=100.0, stall_s=0.6, commit_s=3.0, restart_s=300.0,
            kind_share=[0.5, 0.5, 0.0, 0.0], kind_nodes=NODE_FAULTS, num_spares=num_spares, repair_s=3 * DAY,
            spare_wait_s=60.0, queue_wait_s=7200.0, num_replications=20,
        )  # fmt: skip
        assert wall_s(ledger) == pytest.approx(runs.wall_s.mean(), rel=within)

    def test_a_run_that_waits_for_no_node_stands_beside_one_that_does_without_a_warning(self) -> None:
        # Warnings are errors: of no nodes there is no mean number that fail at once. A minute for every node fault.
        rows = columns(
            kind_share=[0.5, 0.5, 0.0, 0.0],
            kind_nodes=[[0.0] * 4, NODE_FAULTS],
            num_spares=50,
            spare_wait_s=60.0,
        )
        assert Course.of(Runs.of(rows)).way_back.replacement_wait_s == pytest.approx([0.0, 30.0], abs=1e-6)

    def test_a_run_of_little_work_that_lasts_for_long_has_nodes_in_repair_for_long(self) -> None:
        # Eleven hours of work that take a week: nodes that were away for as long as the work lasts, or less, would leave
        # spares, and the run would be over in a day.
        runs, ledger = play(
            work_s=39_000.0, mtbf_s=65.0, interval_s=13.0, stall_s=0.6, commit_s=3.0, restart_s=300.0,
            kind_share=[0.5, 0.5, 0.0, 0.0], kind_nodes=NODE_FAULTS, num_spares=120, repair_s=3 * DAY,
            spare_wait_s=60.0, queue_wait_s=7200.0, num_replications=20,
        )  # fmt: skip
        assert 6 * DAY < runs.wall_s.mean() < 9 * DAY
        assert wall_s(ledger) == pytest.approx(runs.wall_s.mean(), rel=0.35)

    def test_more_nodes_in_repair_than_the_loop_remembers_come_back_early(self) -> None:
        runs, _ = play(
            work_s=1e5, mtbf_s=10.0, interval_s=1.0, **NO_SAVES, kind_share=NODE_FAULTS, kind_nodes=NODE_FAULTS,
            num_spares=4097, repair_s=1e12, queue_wait_s=1e3, num_replications=2,
        )  # fmt: skip
        assert (runs.num_failures > 5000).all()
        assert (runs.replacement_wait_s == 0.0).all()


def test_kinds_can_differ_by_design() -> None:
    both = expected_ledger(**columns(kind_share=[[1, 0, 0, 0], PLANNED]))
    assert both.num_planned[0] == 0.0
    assert both.num_failures[1] == 0.0
    unknown = expected_ledger(**columns(kind_restart_s=[[np.nan, 1, 1, 1], [1, 1, 1, 1]]))
    assert np.isnan(wall_s(unknown)).tolist() == [True, False]


@pytest.mark.parametrize("lag_s", [10.0, 60.0, 150.0, 1000.0])
def test_a_lag_undoes_no_more_than_the_work_since_the_newest_durable_save(lag_s: float) -> None:
    # Every second save of 100 s of work is durable 50 s after its stall, so that work since then is uniform from there on.
    row = columns(
        interval_s=100.0,
        stall_s=0.0,
        commit_s=0.0,
        tax_fraction=0.0,
        durable_every=2,
        durable_commit_s=50.0,
        live_lag_s=lag_s,
    )
    runs = Runs.of(row)
    since_s = 50.0 + 200.0 * (np.arange(100_000) + 0.5) / 100_000
    found_s = mean_lag_s(runs, Shares.of(runs, WayBack.with_spares(runs)), np.ones(1))
    assert found_s == pytest.approx(np.minimum(lag_s, since_s).mean(), rel=1e-6)


def test_delays_by_restarts_alone_have_the_moments_of_these() -> None:
    nothing_lost = partial(columns, work_s=1e5, mtbf_s=1e4, stall_s=0.0, commit_s=0.0, live_lag_s=0.0)
    # A lognormal restart of mean 100 s and e^(sigma^2) = 1 + w: variance w, third central moment w^2 (w + 3).
    _, delays = expected_ledger_and_delays(
        **nothing_lost(kind_restart_s=[100.0] * 4, restart_log_deviation=0.5)
    )
    spread = math.expm1(0.25)
    assert delays.mean_s[0, 0] == pytest.approx(100.0)
    assert delays.variance_s2[0, 0] == pytest.approx(100.0**2 * spread)
    assert delays.third_s3[0, 0] == pytest.approx(100.0**3 * spread**2 * (spread + 3.0))
    # Attempts that fail: a geometric number of parts of the mean way back, M (e^(R/M) - 1), is e^(R/M) on average.
    _, delays = expected_ledger_and_delays(
        **nothing_lost(kind_restart_s=[5e3] * 4, fails_during_restart=True)
    )
    back_s = 1e4 * math.expm1(0.5)
    assert delays.mean_s[0, 0] == pytest.approx(back_s)
    assert delays.variance_s2[0, 0] == pytest.approx(-math.expm1(-0.5) * back_s**2)
