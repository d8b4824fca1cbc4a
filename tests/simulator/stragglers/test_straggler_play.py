"""Do played pipelines keep their bounds, the fast forms agree with them, and replayed traces with what was published?"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from benchmarks.pipeline_reference import Step, play
from benchmarks.straggler_traces import JOBS, read_fixture
from simulator.domain.plan import TO_AND_FRO, Schedule
from simulator.domain.straggler_causes import STRAGGLER_PRESETS, Stragglers
from simulator.errors import InputError
from simulator.pipeline.shape import ONE_F_ONE_B
from simulator.stragglers.kernel import play_replicas
from simulator.stragglers.pipeline import Pipelines
from simulator.stragglers.play import WEIGHT_GRADIENT_FRACTION, play_slowdown
from simulator.stragglers.slowdown import StragglerDesigns, expected_slowdown
from simulator.table import Floats
from tests.simulator.dealt import dealt_micro_batches
from tests.simulator.straggler_designs import design_of

PLAIN = (ONE_F_ONE_B, 0.0, 0)
"""1F1B without deferred weight gradients, in groups of as many micro-batches as stages."""
DATA = Path(__file__).parents[3] / "simulator" / "data"


def alike(chunks_s: ArrayLike, num_micro_batches: int) -> Floats:
    """Durations of micro-batches that are all alike, `(1, chunks, num_micro_batches)`, of one replica."""
    return np.repeat(np.array(chunks_s, dtype=np.float64)[None, :, None], num_micro_batches, axis=2)


def played_s(forward_s: Floats, backward_s: Floats, num_micro_batches: int) -> float:
    """Plays one replica whose micro-batches are alike; `(p,)` durations of its stages."""
    forwards_s, backwards_s = (alike(stages_s, num_micro_batches) for stages_s in (forward_s, backward_s))
    return float(play_replicas(len(forward_s), 0.0, forwards_s, backwards_s, *PLAIN).max())


def upper_bound_s(forward_s: Floats, backward_s: Floats, num_micro_batches: int) -> float:
    """All stages once, and the slowest one for every further micro-batch."""
    cycles_s = forward_s + backward_s
    return float(cycles_s.sum() + (num_micro_batches - 1) * cycles_s.max())


def lower_bound_s(forward_s: Floats, backward_s: Floats, num_micro_batches: int) -> float:
    """The longest stage at work from its first forward to its last backward, with what lies around it."""
    cycles_s, last, m = forward_s + backward_s, len(forward_s) - 1, num_micro_batches
    return max(
        float(
            cycles_s[:k].sum()
            + m * cycles_s[k]
            + max(0.0, cycles_s[k + 1 :].sum() - min(last - k, m) * forward_s[k])
        )
        for k in range(last + 1)
    )


stage_factors = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=12)


@given(factors=stage_factors, ratio=st.floats(0.5, 4.0), num_micro_batches=st.integers(1, 40))
def test_unequal_stages_stay_between_the_bounds(
    factors: list[float], ratio: float, num_micro_batches: int
) -> None:
    forward_s = np.array(factors)
    backward_s = ratio * forward_s
    found_s = played_s(forward_s, backward_s, num_micro_batches)
    assert found_s <= upper_bound_s(forward_s, backward_s, num_micro_batches) * (1 + 1e-9)
    assert found_s >= lower_bound_s(forward_s, backward_s, num_micro_batches) * (1 - 1e-9)


def test_the_upper_bound_needs_forwards_and_backwards_in_proportion() -> None:
    # By hand: the middle stage runs its forwards from 1 to 5 and 5 to 9, so that its first backward ends at 10;
    # only then the first stage runs its two backwards of 4.
    forward_s, backward_s = np.array([1.0, 4.0, 1.0]), np.array([4.0, 1.0, 1.0])
    assert played_s(forward_s, backward_s, 2) == 18.0
    assert upper_bound_s(forward_s, backward_s, 2) == 17.0


@given(
    stages=st.integers(1, 12),
    num_micro_batches=st.integers(1, 40),
    forward_s=st.floats(0.1, 10.0),
    backward_s=st.floats(0.1, 10.0),
    factor=st.floats(1.0, 4.0),
)
def test_equal_stages_and_a_slowest_last_one_take_the_closed_form_exactly(
    stages: int, num_micro_batches: int, forward_s: float, backward_s: float, factor: float
) -> None:
    forward, backward = np.full(stages, forward_s), np.full(stages, backward_s)
    forward[-1] *= factor
    backward[-1] *= factor
    expected_s = upper_bound_s(forward, backward, num_micro_batches)
    assert played_s(forward, backward, num_micro_batches) == pytest.approx(expected_s, rel=1e-9)


@given(data=st.data(), stages=st.integers(1, 5), chunks=st.integers(1, 3), send_s=st.floats(0.0, 1.0))
def test_equal_micro_batches_are_played_as_by_the_independent_player(
    data: st.DataObject, stages: int, chunks: int, send_s: float
) -> None:
    num_micro_batches, group_size = data.draw(dealt_micro_batches(stages))
    times = st.lists(st.floats(0.1, 10.0), min_size=stages * chunks, max_size=stages * chunks)
    forward_s, backward_s = data.draw(times), data.draw(times)
    none = [0.0] * len(forward_s)
    step = Step(
        num_stages=stages,
        num_chunks_per_stage=chunks,
        num_micro_batches=num_micro_batches,
        forward_s=forward_s,
        backward_s=backward_s,
        sync_s=none,
        gather_s=none,
        send_s=send_s,
        send_blocks_sender=False,
        num_overlap_buckets=0,
        group_size=group_size,
    )
    forwards_s, backwards_s = (alike(chunks_s, num_micro_batches) for chunks_s in (forward_s, backward_s))
    found_s = float(play_replicas(stages, send_s, forwards_s, backwards_s, *PLAIN[:2], group_size).max())
    assert found_s == pytest.approx(play(step).step_s, rel=1e-12)


@pytest.mark.parametrize("extra", [0.01, 0.1, 1.0])
@pytest.mark.parametrize(("stages", "num_micro_batches"), [(2, 2), (4, 4), (4, 32), (8, 16), (16, 16)])
def test_one_slow_stage_of_a_plain_pipeline_costs_what_the_form_says(
    stages: int, num_micro_batches: int, extra: float
) -> None:
    shape = Pipelines(
        schedule=np.array([Schedule.ONE_F_ONE_B.code]),
        num_stages=np.array([stages]),
        num_chunks_per_stage=np.array([1]),
        num_micro_batches=np.array([num_micro_batches]),
        group_size=np.array([stages]),
        forward_fraction=np.array([1.0 / 3.0]),
        last_cycle=np.array([1.0]),
        other_cycle=np.array([1.0]),
    )
    for slow in range(stages):
        cycle = np.ones(stages)
        cycle[slow] += extra
        longer = played_s(cycle / 3.0, cycle * 2.0 / 3.0, num_micro_batches) - (
            stages + num_micro_batches - 1
        )
        (expected,) = shape.slow_stage(np.array([extra]), float(stages - 1 - slow))
        assert longer == pytest.approx(expected, abs=1e-9)


@given(data=st.data(), stages=st.integers(2, 5), chunks=st.integers(2, 4), extra=st.floats(0.01, 1.0))
def test_one_slow_stage_of_an_interleaved_pipeline_costs_at_least_what_the_form_says(
    data: st.DataObject, stages: int, chunks: int, extra: float
) -> None:
    num_micro_batches, group_size = data.draw(dealt_micro_batches(stages))
    slow = data.draw(st.integers(0, stages - 1))
    shape = Pipelines(
        schedule=np.array([Schedule.ONE_F_ONE_B.code]),
        num_stages=np.array([stages]),
        num_chunks_per_stage=np.array([chunks]),
        num_micro_batches=np.array([num_micro_batches]),
        group_size=np.array([group_size]),
        forward_fraction=np.array([1.0 / 3.0]),
        last_cycle=np.array([1.0]),
        other_cycle=np.array([1.0]),
    )

    def step_s(cycle: float) -> float:
        cycles = np.ones(stages)
        cycles[slow] = cycle
        every = np.repeat(np.tile(cycles / chunks, chunks)[None, :, None], num_micro_batches, axis=2)
        return float(play_replicas(stages, 0.0, every / 3.0, every * 2.0 / 3.0, *PLAIN[:2], group_size).max())

    (expected,) = shape.slow_stage(np.array([extra]), float(stages - 1 - slow))
    longer = step_s(1.0 + extra) - step_s(1.0)
    assert longer >= expected - 1e-9
    if slow == stages - 1:
        assert longer == pytest.approx(num_micro_batches * extra, rel=1e-9)


def stages_played_s(schedule: Schedule, cycles: Floats, num_micro_batches: int) -> float:
    """Plays one replica whose stages take so long for a forward and backward, a third of it forward."""
    p, v = len(cycles), CHUNKS[schedule]
    stage = [*range(p), *range(p - 1, -1, -1)][: v * p]  # ZB-V: to and fro
    chunks = np.repeat((cycles[stage] / v)[None, :, None], num_micro_batches, axis=2)
    ends_s = play_replicas(
        p, 0.0, chunks / 3.0, chunks * 2.0 / 3.0, schedule.code, WEIGHT_GRADIENT_FRACTION, 0
    )
    return float(ends_s.max())


CHUNKS = {
    Schedule.ONE_F_ONE_B: 1,
    Schedule.GPIPE: 1,
    Schedule.ZB_H1: 1,
    Schedule.ZB_V: 2,
    Schedule.DUAL_PIPE_V: 2,
}
SCHEDULES = pytest.mark.parametrize("schedule", CHUNKS)


def shape_of(schedule: Schedule, stages: int, num_micro_batches: int) -> Pipelines:
    return Pipelines(
        schedule=np.array([schedule.code]),
        num_stages=np.array([stages]),
        num_chunks_per_stage=np.array([CHUNKS[schedule]]),
        num_micro_batches=np.array([num_micro_batches]),
        group_size=np.array([stages]),
        forward_fraction=np.array([1.0 / 3.0]),
        last_cycle=np.array([1.0]),
        other_cycle=np.array([1.0]),
    )


@SCHEDULES
@pytest.mark.parametrize("stages", [2, 4, 8, 11])
@pytest.mark.parametrize("num_micro_batches", [1, 3, 8, 12, 40])
def test_an_ideal_step_is_as_many_cycles_as_the_form_says(
    schedule: Schedule, stages: int, num_micro_batches: int
) -> None:
    if schedule is Schedule.DUAL_PIPE_V:
        num_micro_batches = max(num_micro_batches, 2 * stages)
    (fill,) = shape_of(schedule, stages, num_micro_batches).fill
    found_s = stages_played_s(schedule, np.ones(stages), num_micro_batches)
    assert found_s == pytest.approx(num_micro_batches + fill, abs=1e-9)


@pytest.mark.parametrize("schedule", list(Schedule)[1:])
@pytest.mark.parametrize("extra", [0.01, 0.1, 0.5])
@pytest.mark.parametrize(("stages", "num_micro_batches"), [(2, 2), (4, 4), (4, 32), (8, 16), (16, 16)])
def test_one_slow_stage_costs_what_the_form_of_its_schedule_says(
    schedule: Schedule, stages: int, num_micro_batches: int, extra: float
) -> None:
    if schedule is Schedule.DUAL_PIPE_V:
        num_micro_batches = max(num_micro_batches, 2 * stages)
    shape = shape_of(schedule, stages, num_micro_batches)
    ideal_s = stages_played_s(schedule, np.ones(stages), num_micro_batches)
    for slow in range(stages):
        cycles = np.ones(stages)
        cycles[slow] += extra
        longer = stages_played_s(schedule, cycles, num_micro_batches) - ideal_s
        (expected,) = shape.slow_stage(np.array([extra]), float(stages - 1 - slow))
        if schedule in TO_AND_FRO:  # an upper bound from m = 2 p on
            assert longer <= expected * (1.0 + 1e-9) or num_micro_batches < 2 * stages
            if schedule is Schedule.DUAL_PIPE_V and extra == 0.5:
                assert longer == pytest.approx(expected, abs=1e-9)
        else:
            assert longer == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("num_micro_batches", [1, 2, 4])
def test_of_fewer_micro_batches_than_stages_no_more_forwards_hide_than_there_are(
    num_micro_batches: int,
) -> None:
    # Six stages are behind the second of eight, whose forwards all fall into its wait for the first gradient.
    schedule, second = Schedule.ZB_H1, np.array([1.0, 1.5, *np.ones(6)])
    ideal_s, slow_s = (
        stages_played_s(schedule, cycles, num_micro_batches) for cycles in (np.ones(8), second)
    )
    (expected,) = shape_of(schedule, 8, num_micro_batches).slow_stage(np.array([0.5]), 6.0)
    assert slow_s - ideal_s == pytest.approx(expected, abs=1e-9)
    assert expected == pytest.approx(0.5 * num_micro_batches * 2 / 3)


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_interleaving_divides_the_fill_by_the_chunks_of_a_stage(chunks: int) -> None:
    # The bubble is (p - 1)(t_f + t_b) / v: Narayanan et al. 2021, arXiv 2104.04473, section 2.2.
    shape = replace(shape_of(Schedule.ONE_F_ONE_B, 8, 32), num_chunks_per_stage=np.array([chunks]))
    assert shape.fill == pytest.approx(7 / chunks)


@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.GPIPE])
def test_a_single_micro_batch_waits_for_every_stage(schedule: Schedule) -> None:
    shape = shape_of(schedule, 8, 1)
    for num_behind in range(8):
        assert shape.slow_stage(np.array([0.5]), float(num_behind)) == pytest.approx(0.5)


@pytest.mark.parametrize(("stages", "num_micro_batches"), [(2, 4), (8, 8), (8, 12)])
def test_a_short_pause_shows_at_as_many_places_as_the_form_says(stages: int, num_micro_batches: int) -> None:
    # Each of as many replicas as there are forwards pauses in another one, for less time than a backward takes.
    pause_s, places = 0.6, stages * num_micro_batches
    cycles = np.ones((places, stages, num_micro_batches))
    pauses_s = pause_s * np.eye(places).reshape(places, stages, num_micro_batches)
    ends_s = play_replicas(stages, 0.0, cycles / 3.0 + pauses_s, cycles * 2.0 / 3.0, *PLAIN).max(axis=1)
    longer_s = ends_s.mean() - (stages + num_micro_batches - 1)
    model = Stragglers(gc_pause_s=pause_s, gc_every_steps=100.0)
    design = design_of(stages=stages, micro_batches=num_micro_batches)
    found = float(expected_slowdown(model, design)[0])
    assert (found - 1.0) * design.step_time_s[0] == pytest.approx(0.01 * stages * longer_s)


@SCHEDULES
def test_a_stage_that_is_not_there_slows_nothing(schedule: Schedule) -> None:
    (longer,) = shape_of(schedule, 4, 16).slow_stage(np.array([0.5]), 4.0)
    assert longer == 0.0


LAYOUTS = [
    (1, 1, 8),
    (2, 1, 8),
    (4, 1, 4),
    (4, 1, 16),
    (8, 1, 32),
    (16, 1, 32),
    (4, 2, 8),
    (8, 2, 32),
    (8, 4, 8),
]
"""Stages, chunks per stage, micro-batches."""
CALM = {
    "dedicated": STRAGGLER_PRESETS["dedicated"].model_copy(update={"slow_host_fraction": 0.0}),
    "slow ranks": Stragglers(rank_log_deviation=0.02),
    "unlike micro-batches": Stragglers(micro_batch_log_deviation=0.03),
    "untuned": Stragglers(stage_imbalance=1.5, rank_log_deviation=0.004, micro_batch_log_deviation=0.02),
}


@pytest.mark.parametrize("slowest", [1.0, 1.06])
@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), LAYOUTS[1:])
@pytest.mark.parametrize("name", CALM)
def test_the_fast_form_agrees_with_played_replicas(
    name: str, stages: int, chunks: int, micro_batches: int, slowest: float
) -> None:
    design = design_of(
        replicas=32,
        ranks=4,
        stages=stages,
        chunks=chunks,
        micro_batches=micro_batches,
        slowest=slowest,
        compute=0.85,
        rest=0.05,
    )
    played = play_slowdown(CALM[name], design, num_samples=24, seed=1)
    # Aim: 1.5 points of slow-down, and three standard errors of the played mean.
    tolerance = 0.015 + 3.0 * played.std(ddof=1) / np.sqrt(len(played))
    assert float(expected_slowdown(CALM[name], design)[0]) == pytest.approx(played.mean(), abs=tolerance)


@pytest.mark.short(24)
@pytest.mark.parametrize("schedule", list(Schedule)[1:])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 8), (4, 16), (8, 32), (16, 32)])
@pytest.mark.parametrize("name", CALM)
def test_the_fast_form_agrees_with_played_replicas_of_every_schedule(
    name: str, schedule: Schedule, stages: int, micro_batches: int
) -> None:
    design = design_of(
        schedule=schedule,
        replicas=32,
        ranks=4,
        stages=stages,
        chunks=CHUNKS[schedule],
        micro_batches=micro_batches,
        compute=0.85,
        rest=0.05,
    )
    played = play_slowdown(CALM[name], design, num_samples=24, seed=1)
    # As under 1F1B: 1.5 points of slow-down, and three standard errors of the played mean.
    tolerance = 0.015 + 3.0 * played.std(ddof=1) / np.sqrt(len(played))
    assert float(expected_slowdown(CALM[name], design)[0]) == pytest.approx(played.mean(), abs=tolerance)


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), LAYOUTS)
def test_uneven_sequences_agree_with_played_replicas(stages: int, chunks: int, micro_batches: int) -> None:
    design = design_of(replicas=32, stages=stages, chunks=chunks, micro_batches=micro_batches, compute=0.85)
    model = Stragglers(has_uneven_sequences=True)
    played = play_slowdown(model, design, num_samples=60, seed=1)
    # The slow-downs are 1.2 to 1.8; three points are a tenth of what is lost.
    tolerance = 0.03 + 3.0 * played.std(ddof=1) / np.sqrt(len(played))
    assert float(expected_slowdown(model, design)[0]) == pytest.approx(played.mean(), abs=tolerance)


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(1, 1, 8), (4, 1, 16), (8, 2, 16)])
def test_slow_hosts_agree_with_played_replicas(stages: int, chunks: int, micro_batches: int) -> None:
    model = Stragglers(slow_host_fraction=0.02, slow_host_factor=1.1)
    design = design_of(
        replicas=16, ranks=8, stages=stages, chunks=chunks, micro_batches=micro_batches, compute=0.85
    )
    played = play_slowdown(model, design, num_samples=400, seed=1)
    tolerance = 0.01 + 3.0 * played.std(ddof=1) / np.sqrt(len(played))
    assert float(expected_slowdown(model, design)[0]) == pytest.approx(played.mean(), abs=tolerance)


def test_durations_reach_the_kernel_in_the_layout_that_it_is_compiled_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    received: list[Floats] = []

    def watched(stages: int, send_s: float, forward_s: Floats, backward_s: Floats, *others: float) -> Floats:
        received.extend((forward_s, backward_s))
        return play_replicas(stages, send_s, forward_s, backward_s, *others)  # type: ignore[arg-type]

    monkeypatch.setattr("simulator.stragglers.play.play_replicas", watched)
    play_slowdown(
        CALM["untuned"], design_of(stages=4, chunks=2, micro_batches=8, replicas=2), num_samples=2, seed=1
    )
    assert received
    assert all(durations.flags.c_contiguous for durations in received)


def test_a_stage_pauses_once_in_one_of_its_own_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    forwards_s: list[Floats] = []

    def watched(stages: int, send_s: float, forward_s: Floats, *others: object) -> Floats:
        forwards_s.append(forward_s.copy())
        return play_replicas(stages, send_s, forward_s, *others)  # type: ignore[arg-type]

    monkeypatch.setattr("simulator.stragglers.play.play_replicas", watched)
    every_step = Stragglers(gc_pause_s=0.5, gc_every_steps=1.0)
    design = design_of(stages=4, chunks=2, micro_batches=8, replicas=3)
    play_slowdown(every_step, design, num_samples=5, seed=1)
    ideal_s, *steps_s = forwards_s
    for step_s in steps_s:
        of_stages = (step_s - ideal_s).reshape(3, 2, 4, 8).sum(axis=(1, 3))  # chunk c is on stage c mod p
        assert of_stages == pytest.approx(0.5)


def test_any_of_many_ranks_pauses_its_stage_when_played() -> None:
    model = Stragglers(gc_pause_s=0.5, gc_every_steps=2.0)
    played = play_slowdown(model, design_of(ranks=32), num_samples=50, seed=1)
    assert played == pytest.approx(1.0 + 0.5 / 8.0)  # none of 32 would pause in a step of 2**32


def test_the_host_of_a_partly_used_node_can_be_slow() -> None:
    model = Stragglers(slow_host_fraction=0.999, slow_host_factor=1.5)
    played = play_slowdown(model, design_of(replicas=12, gpus_per_node=8), num_samples=5, seed=1)
    assert played == pytest.approx(1.5)


def test_stages_are_played_as_long_as_they_are() -> None:
    # Cycles of 0.8 and 1.2 s, each half as long again with a slow host: 0.8 + 16 x 1.2, 17 x 1.2, 0.8 + 16 x 1.8 and
    # 1.2 + 16 x 1.8 s.
    design = design_of(ranks=8, stages=2, micro_batches=16, slowest=1.2)
    model = Stragglers(slow_host_fraction=0.5, slow_host_factor=1.5)
    played = play_slowdown(model, design, num_samples=40, seed=1)
    longer_s = np.unique(np.round((played - 1.0) * design.step_time_s, 9))
    assert longer_s.tolist() == [0.0, 0.4, 9.6, 10.0]


def test_a_pause_of_all_ranks_is_played_in_whole() -> None:
    every_step = Stragglers(gc_pause_s=0.5, gc_every_steps=1.0, is_gc_synchronized=True)
    played = play_slowdown(every_step, design_of(replicas=2, stages=4), num_samples=3, seed=1)
    assert played == pytest.approx(1.0 + 0.5 / 11.0)


def test_episodes_are_played_for_their_share_of_time() -> None:
    # Twelve in a day and node, of half an hour each: some node of two is in one for 1 - exp(-1/2) of the time.
    model = Stragglers(episodes_per_node_day=12.0, episode_s=1800.0, episode_factor=1.5)
    played = play_slowdown(model, design_of(replicas=16), num_samples=800, seed=1)
    share = 1.0 - np.exp(-0.5)
    error = 3.0 * np.sqrt(share * (1.0 - share) / 800)
    assert (played == 1.5).mean() == pytest.approx(share, abs=error)
    assert set(played.tolist()) == {1.0, 1.5}


@pytest.mark.long
def test_pauses_and_episodes_are_as_frequent_when_played() -> None:
    design = design_of(replicas=8, ranks=2, micro_batches=8)
    model = Stragglers(gc_pause_s=0.5, gc_every_steps=20.0, episodes_per_node_day=2.0, episode_factor=1.3)
    for causes in (model, model.model_copy(update={"is_gc_synchronized": True})):
        played = play_slowdown(causes, design, num_samples=4000, seed=4)
        error = 4.0 * played.std(ddof=1) / np.sqrt(len(played))
        assert float(expected_slowdown(causes, design)[0]) == pytest.approx(played.mean(), abs=error)


def test_without_causes_the_played_step_is_the_ideal_one() -> None:
    design = design_of(replicas=4, ranks=8, stages=4, chunks=2, micro_batches=8, slowest=1.05)
    assert play_slowdown(Stragglers(), design, num_samples=3, seed=1) == pytest.approx(1.0, abs=1e-12)


def test_played_steps_depend_on_the_seed_only() -> None:
    design = design_of(replicas=4, stages=2)
    model = STRAGGLER_PRESETS["long_context"]
    once, again, other = (play_slowdown(model, design, num_samples=5, seed=seed) for seed in (1, 1, 2))
    assert (once == again).all()
    assert (once != other).all()


def test_one_design_is_played_at_a_time() -> None:
    two = StragglerDesigns.concatenate([design_of(), design_of()])
    with pytest.raises(InputError, match="designs = 2 rows: must have one row"):
        play_slowdown(Stragglers(), two, num_samples=1, seed=1)


def test_interleaving_needs_whole_groups_of_micro_batches() -> None:
    design = design_of(stages=4, chunks=2, micro_batches=6)
    with pytest.raises(InputError, match=r"num_micro_batches = 6: must be a multiple of num_stages \(4\)"):
        play_slowdown(Stragglers(), design, num_samples=1, seed=1)


@pytest.mark.parametrize("job", JOBS)
def test_replayed_steps_of_traced_jobs_are_as_slow_as_published(job: str) -> None:
    """Slow worker, uneven sequences, uneven stages: arXiv 2505.05713 and its repository."""
    trace = read_fixture(job)
    # 1.5 %: the authors' own replay differs from the measured steps by 1.3 % in the median.
    assert trace.slowdown == pytest.approx(trace.published_slowdown, rel=0.015)
    assert trace.published_slowdown == pytest.approx({"AR": 1.973, "SE": 1.537, "ST": 1.179}[job], rel=0.005)
    assert trace.step_s() == pytest.approx(trace.published_s, rel=0.1)


def test_played_pipelines_are_tabled_at_consecutive_powers_of_two() -> None:
    with (DATA / "straggler_pipeline.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for kind, schedule in {(row["kind"], row["schedule"]) for row in rows}:
        of_one = [row for row in rows if (row["kind"], row["schedule"]) == (kind, schedule)]
        for name in ("chunks_per_stage", "stages", "micro_batches_per_stage"):
            points = np.log2(sorted({float(row[name]) for row in of_one}))
            np.testing.assert_array_equal(points, points[0] + np.arange(len(points)))


def test_presets_lie_within_the_noise_of_the_traces() -> None:
    with (DATA / "straggler_noise.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    dedicated = STRAGGLER_PRESETS["dedicated"]
    for name, deviation in (
        ("rank", dedicated.rank_log_deviation),
        ("micro_batch", dedicated.micro_batch_log_deviation),
        ("step", dedicated.step_log_deviation),
    ):
        # Replicas of the uneven sequences have other data, so that their ranks and micro-batches differ far more.
        measured = [float(row[name]) for row in rows if row["job"] != "SE"]
        assert 0.8 * min(measured) <= deviation <= 1.25 * max(measured)
