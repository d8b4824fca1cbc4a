"""Does a pipelined step take the time that its closed forms, and a slow and independent player, say?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pipeline_kernel import population, step_of
from benchmarks.pipeline_reference import Step, play, play_without_network
from simulator import threads
from simulator.errors import InputError
from simulator.pipeline import schedule
from simulator.pipeline.schedule import PipelineColumns, PipelineTimes, pipeline_timeline, play_pipelines
from simulator.pipeline.state import PipelineBatch
from tests.simulator.dealt import dealt_micro_batches

NAMES = tuple(PipelineTimes.__dataclass_fields__)


def columns_of(steps: list[Step]) -> PipelineColumns:
    """Returns the designs as columns, padded with numbers that must not be read."""
    num_chunks = max(step.last_chunk + 1 for step in steps)

    def padded(name: str) -> npt.NDArray[np.float64]:
        rows = [getattr(step, name)[: step.last_chunk + 1] for step in steps]
        return np.array([row + [1e9] * (num_chunks - len(row)) for row in rows])

    return {
        "num_stages": [step.num_stages for step in steps],
        "num_chunks_per_stage": [step.num_chunks_per_stage for step in steps],
        "num_micro_batches": [step.num_micro_batches for step in steps],
        "chunk_forward_s": padded("forward_s"),
        "chunk_backward_s": padded("backward_s"),
        "send_s": [step.send_s for step in steps],
        "send_blocks_sender": [step.send_blocks_sender for step in steps],
        "gradient_sync_s": padded("sync_s"),
        "parameter_gather_s": padded("gather_s"),
        "num_overlap_buckets": [step.num_overlap_buckets for step in steps],
        "num_gather_buckets": [step.num_gather_buckets for step in steps],
        "group_size": [step.group_size for step in steps],
    }


class Changes(TypedDict, total=False):
    """Fields in which a step is not equal."""

    forward_s: list[float]
    backward_s: list[float]
    sync_s: list[float]
    gather_s: list[float]
    send_s: float
    send_blocks_sender: bool
    num_overlap_buckets: int
    num_gather_buckets: int
    group_size: int


def equal_step(p: int, m: int, v: int = 1, **changes: Unpack[Changes]) -> Step:
    """A step of equal chunks: a stage's forward takes 1 s and its backward 2 s; no network."""
    step = Step(
        num_stages=p,
        num_chunks_per_stage=v,
        num_micro_batches=m,
        forward_s=[1.0 / v] * (p * v),
        backward_s=[2.0 / v] * (p * v),
        sync_s=[0.0] * (p * v),
        gather_s=[0.0] * (p * v),
    )
    return replace(step, **changes)


def played(*steps: Step) -> PipelineTimes:
    return play_pipelines(**columns_of(list(steps)))


@st.composite
def long_steps(draw: st.DrawFn) -> Step:
    """A design with many micro-batches, whose stages are about as slow as each other or not at all."""
    step = draw(random_steps())
    groups = draw(st.integers(10, 80))
    if step.num_chunks_per_stage == 1:
        return replace(step, num_micro_batches=(step.num_stages + 1) * groups)
    return replace(
        step, num_micro_batches=step.num_micro_batches + (step.group_size or step.num_stages) * groups
    )


@st.composite
def random_steps(draw: st.DrawFn, has_network: bool = True) -> Step:
    """Any design that has a schedule, with times of any size including zero."""
    p, v = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    m, group_size = draw(st.integers(1, 12)), 0
    if v > 1:
        m, group_size = draw(dealt_micro_batches(p))
    times = st.lists(st.floats(0.0, 10.0), min_size=p * v, max_size=p * v)
    none = [0.0] * (p * v)
    return Step(
        num_stages=p,
        num_chunks_per_stage=v,
        num_micro_batches=m,
        forward_s=draw(times),
        backward_s=draw(times),
        sync_s=draw(times) if has_network else none,
        gather_s=draw(times) if has_network else none,
        send_s=draw(st.floats(0.0, 3.0)) if has_network else 0.0,
        send_blocks_sender=draw(st.booleans()),
        num_overlap_buckets=draw(st.integers(0, 8)),
        num_gather_buckets=draw(st.integers(0, 8)),
        group_size=group_size,
    )


SHAPES = [(1, 1), (1, 7), (2, 1), (2, 5), (4, 4), (4, 3), (8, 32), (16, 48)]

GROUPS = [
    (2, 6, 2, 3),
    (2, 5, 2, 3),
    (4, 8, 2, 8),
    (4, 20, 3, 8),
    (4, 22, 3, 9),
    (8, 40, 4, 16),
    (8, 48, 2, 48),
]
"""Stages, micro-batches, chunks per stage, and micro-batches of a group."""


class TestClosedForms:
    @pytest.mark.parametrize(("p", "m"), SHAPES)
    def test_equal_stages_have_the_bubble_of_p_minus_1_micro_batches(self, p: int, m: int) -> None:
        # (m + p - 1)(f + b): arXiv 2104.04473, section 2.2.1.
        assert played(equal_step(p, m)).step_s == pytest.approx((m + p - 1) * 3.0, rel=1e-9)

    @pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 2), (4, 4, 3), (8, 32, 4)])
    def test_interleaving_divides_the_bubble_by_the_chunks(self, p: int, m: int, v: int) -> None:
        # m (f + b) + (p - 1)(f + b)/v: same, section 2.2.2.
        expected_s = m * 3.0 + (p - 1) * 3.0 / v
        assert played(equal_step(p, m, v)).step_s == pytest.approx(expected_s, rel=1e-9)

    @pytest.mark.parametrize(("p", "m", "v", "group_size"), GROUPS)
    def test_the_bubble_is_the_same_in_groups_of_any_size(
        self, p: int, m: int, v: int, group_size: int
    ) -> None:
        # With N = m it is that of breadth-first pipelines, (p - 1)/(m v) of the work: arXiv 2211.05953; Llama 3, section 3.3.2.
        step = equal_step(p, m, v, group_size=group_size)
        assert played(step).step_s == pytest.approx(m * 3.0 + (p - 1) * 3.0 / v, rel=1e-9)

    @pytest.mark.parametrize(("p", "m", "v", "group_size"), GROUPS)
    def test_larger_groups_hold_more_on_every_stage(self, p: int, m: int, v: int, group_size: int) -> None:
        # Warm-up of Megatron Core, `get_pp_rank_microbatches`: 2 (p - r - 1) + (v - 1) N, at most m v, and one more.
        expected = [min(2 * (p - r - 1) + (v - 1) * group_size + 1, m * v) for r in range(p)]
        assert played(equal_step(p, m, v, group_size=group_size)).peak_in_flight[0].tolist() == expected

    def test_sends_hide_behind_passes_that_groups_larger_than_the_pipeline_have(self) -> None:
        # With N = p the first stage waits for every first micro-batch of a group; with N = 2 p sends of p passes are hidden.
        p, m, v, send_s = 4, 32, 2, 0.4

        def waits_s(group_size: int) -> float:
            step = equal_step(p, m, v, send_s=send_s, group_size=group_size)
            return float(played(step).step_s[0]) - (m * 3.0 + (p - 1) * 3.0 / v)

        assert waits_s(p) > 1.5 * waits_s(2 * p)

    @pytest.mark.parametrize("is_blocking", [False, True])
    def test_one_micro_batch_pays_every_send_there_and_back(self, is_blocking: bool) -> None:
        step = equal_step(5, 1, send_s=0.25, send_blocks_sender=is_blocking)
        assert played(step).step_s == pytest.approx(5 * 3.0 + 2 * 4 * 0.25, rel=1e-9)

    def test_a_stage_stands_still_for_all_its_sends_if_they_block(self) -> None:
        times = played(equal_step(3, 8, send_s=0.25, send_blocks_sender=True), equal_step(3, 8, send_s=0.25))
        # Activations leave all stages but the last, gradients all but the first.
        assert times.send_busy_s.tolist() == [[2.0, 4.0, 2.0], [0.0, 0.0, 0.0]]
        assert times.step_s[0] > times.step_s[1]

    def test_a_single_stage_sends_nothing(self) -> None:
        assert played(equal_step(1, 4, v=3, send_s=9.0)).step_s == pytest.approx(12.0)

    @given(random_steps(has_network=False).filter(lambda step: step.num_chunks_per_stage == 1))
    def test_unequal_stages_lie_between_their_bounds(self, step: Step) -> None:
        # For one ratio of backward to forward: where it differs by stage, steps can exceed `highest`.
        step = replace(step, backward_s=[2.0 * forward_s for forward_s in step.forward_s])
        both = np.add(step.forward_s, step.backward_s)
        p, m = step.num_stages, step.num_micro_batches
        highest = both.sum() + (m - 1) * both.max()
        lowest = max(
            both[:k].sum()
            + m * both[k]
            + max(0.0, both[k + 1 :].sum() - min(p - 1 - k, m) * step.forward_s[k])
            for k in range(p)
        )
        assert lowest * (1 - 1e-9) <= played(step).step_s[0] <= highest * (1 + 1e-9)

    def test_a_slowest_last_stage_reaches_both_bounds(self) -> None:
        step = equal_step(4, 8, forward_s=[1.0, 1.0, 1.0, 1.5], backward_s=[2.0, 2.0, 2.0, 3.5])
        assert played(step).step_s == pytest.approx(3 * 3.0 + 5.0 + 7 * 5.0, rel=1e-9)

    @pytest.mark.parametrize(("p", "m"), SHAPES)
    def test_a_stage_holds_no_more_micro_batches_than_stages_follow_it(self, p: int, m: int) -> None:
        assert played(equal_step(p, m)).peak_in_flight[0].tolist() == [min(p - r, m) for r in range(p)]

    def test_interleaving_holds_the_warm_up_and_one_more(self) -> None:
        # Warm-up of Megatron Core: 2(p - r - 1) + (v - 1) p; 16 activations are all there are.
        assert played(equal_step(4, 8, v=2)).peak_in_flight[0].tolist() == [11, 9, 7, 5]
        assert played(equal_step(4, 4, v=4)).peak_in_flight[0].tolist() == [16, 16, 15, 13]

    def test_a_stage_is_busy_with_its_own_chunks(self) -> None:
        step = equal_step(2, 4, v=2, forward_s=[1.0, 2.0, 3.0, 4.0], backward_s=[0.5] * 4)
        assert played(step).busy_s.tolist() == [[4 * 5.0, 4 * 7.0]]


class TestExposedNetwork:
    def test_without_overlap_everything_is_exposed(self) -> None:
        times = played(equal_step(1, 4, sync_s=[0.7], gather_s=[0.4]))
        assert times.step_s == pytest.approx(4 * 3.0 + 1.1)
        assert times.exposed_sync_s == pytest.approx(1.1)

    @pytest.mark.parametrize("num_buckets", [1, 4, 100])
    def test_a_short_sync_shows_its_last_piece_only(self, num_buckets: int) -> None:
        times = played(equal_step(1, 4, sync_s=[1.5], num_overlap_buckets=num_buckets))
        assert times.exposed_sync_s == pytest.approx(1.5 / num_buckets)

    @pytest.mark.parametrize("num_buckets", [1, 4, 100])
    def test_a_long_sync_shows_all_but_the_backward_after_its_first_piece(self, num_buckets: int) -> None:
        times = played(equal_step(1, 4, sync_s=[5.0], num_overlap_buckets=num_buckets))
        assert times.exposed_sync_s == pytest.approx(5.0 - (2.0 - 2.0 / num_buckets))

    @pytest.mark.parametrize(("gather_s", "exposed_s"), [(0.8, 0.8 / 4), (3.0, 3.0 - 1.0 + 1.0 / 4)])
    def test_a_gather_hides_behind_the_first_forward(self, gather_s: float, exposed_s: float) -> None:
        times = played(equal_step(1, 4, gather_s=[gather_s], num_gather_buckets=4))
        assert times.exposed_sync_s == pytest.approx(exposed_s)

    def test_the_sync_of_later_chunks_hides_behind_the_backward_of_earlier_ones(self) -> None:
        # The last chunk is one piece behind its backward, and so is the first: 0.1 s of its 1 s is left.
        times = played(equal_step(1, 4, v=2, sync_s=[1.0, 1.0], num_overlap_buckets=10))
        assert times.exposed_sync_s == pytest.approx(0.1)

    def test_early_stages_hide_their_sync_worst(self) -> None:
        # The last stage has done its last backward p - 1 backwards before the first one has.
        times = played(equal_step(4, 8, sync_s=[6.0] * 4))
        assert times.stage_end_s[0].tolist() == pytest.approx([39.0, 37.0, 35.0, 33.0])
        assert played(equal_step(4, 8, sync_s=[0.0, 0.0, 0.0, 6.0])).exposed_sync_s == pytest.approx(0.0)


class TestGroups:
    """Gradients of groups of micro-batches, two stages with two chunks each, in one piece."""

    @staticmethod
    def step_s(sync_s: float, groups_s: float, m: int = 6) -> float:
        columns = columns_of([equal_step(2, m, 2, sync_s=[sync_s] * 4, num_overlap_buckets=1)])
        columns["gradient_groups_s"] = [[groups_s] * 4]
        return float(play_pipelines(**columns).step_s[0])

    def test_what_outlasts_the_passes_is_a_queue_of_its_stage(self) -> None:
        # Four forwards of half a second up to the last chunk, its two backwards of a second with a forward between them, and
        # the second backward of the chunk before complete the first group of the first stage.
        group_s = 4 * 0.5 + 1.0 + 0.5 + 1.0 + 1.0
        # From then on each of its two chunks reduces two groups, and the last one.
        assert self.step_s(10.0, 100.0) == pytest.approx(group_s + 4 * 100.0 + 2 * 10.0)

    def test_what_ends_before_the_last_passes_do_costs_nothing(self) -> None:
        assert self.step_s(0.25, 0.5) == pytest.approx(self.step_s(0.25, 0.0))

    def test_stages_with_one_group_have_nothing_to_queue(self) -> None:
        assert self.step_s(10.0, 100.0, m=2) == pytest.approx(self.step_s(10.0, 0.0, m=2))


class TestAgainstTheReference:
    @given(random_steps())
    def test_random_designs_take_the_times_of_the_slow_player(self, step: Step) -> None:
        times, expected = played(step), play(step)
        # Sums of the same numbers in another order.
        assert times.step_s[0] == pytest.approx(expected.step_s, rel=1e-9, abs=1e-9)
        assert times.stage_end_s[0].tolist() == pytest.approx(expected.stage_end_s, rel=1e-9, abs=1e-9)
        assert times.send_busy_s[0].tolist() == pytest.approx(expected.send_busy_s, rel=1e-9, abs=1e-9)
        assert times.peak_in_flight[0].tolist() == expected.peak_in_flight
        exposed_s = expected.step_s - play_without_network(step).step_s
        assert times.exposed_sync_s[0] == pytest.approx(exposed_s, rel=1e-9, abs=1e-7)

    @given(random_steps())
    def test_a_timeline_has_every_operation_at_its_time(self, step: Step) -> None:
        timeline = pipeline_timeline(**columns_of([step]))
        keys = zip(timeline.is_backward, timeline.chunk, timeline.micro_batch, strict=True)
        ends_s = {
            ("B" if b else "F", int(c), int(j)): end
            for (b, c, j), end in zip(keys, timeline.end_s, strict=True)
        }
        assert ends_s == pytest.approx(play(step).ends_s, rel=1e-9, abs=1e-9)
        assert (timeline.stage == timeline.chunk % step.num_stages).all()

    @given(long_steps())
    def test_times_are_those_of_the_timeline_to_the_last_byte(self, step: Step) -> None:
        # The timeline keeps every end; the times come from lanes in which ends make way for later ones.
        timeline = pipeline_timeline(**columns_of([step]))
        last_s = np.zeros(step.num_stages)
        np.maximum.at(last_s, timeline.stage, timeline.end_s)
        times = played(replace(step, sync_s=[0.0] * len(step.sync_s)))
        assert times.stage_end_s[0].tobytes() == last_s.tobytes()

    @pytest.mark.parametrize("num_designs", [3, 7, 15, 17, 33, 41, 49])
    def test_designs_of_one_shape_take_the_same_time_side_by_side_as_alone(self, num_designs: int) -> None:
        # Every number of lanes that the last designs of a shape may fill; every third design gathers parameters.
        steps = [
            replace(equal_step(4, 8, 1), gather_s=[0.1 * number * (number % 3 == 0)] * 4)
            for number in range(num_designs)
        ]
        together = play_pipelines(**columns_of(steps))
        for row, step in enumerate(steps):
            alone = played(step)
            assert together.step_s[row] == alone.step_s[0]
            assert together.exposed_sync_s[row] == alone.exposed_sync_s[0]

    @pytest.mark.parametrize("v", [1, 3])
    def test_thousands_of_micro_batches_take_the_time_of_their_closed_form(self, v: int) -> None:
        p, m = 8, 8_000
        assert played(equal_step(p, m, v)).step_s[0] == pytest.approx(3.0 * (m + (p - 1) / v), rel=1e-12)

    @given(random_steps())
    def test_a_stage_never_does_two_things_at_once(self, step: Step) -> None:
        timeline = pipeline_timeline(**columns_of([step]))
        assert (timeline.end_s >= timeline.start_s - 1e-9).all()
        for stage in range(step.num_stages):
            is_here = timeline.stage == stage
            assert (timeline.start_s[is_here][1:] >= timeline.end_s[is_here][:-1] - 1e-9).all()


class TestBatches:
    def test_a_batch_gives_the_bytes_that_its_rows_give_alone(self) -> None:
        columns = population(60, seed=3)
        together = play_pipelines(**columns)
        for row in range(60):
            one = cast(PipelineColumns, {name: np.asarray(c)[row : row + 1] for name, c in columns.items()})
            alone = play_pipelines(**one)
            for name in NAMES:
                width = getattr(alone, name).shape[1:]
                full = getattr(together, name)[row][: width[0]] if width else getattr(together, name)[row]
                assert getattr(alone, name)[0].tobytes() == full.tobytes(), name

    def test_the_number_of_threads_changes_no_byte(self, monkeypatch: pytest.MonkeyPatch) -> None:
        columns = population(60, seed=4)
        shared: list[int] = []

        def watched(function: Callable[[object], None], parts: Sequence[object]) -> None:
            shared.append(len(parts))
            threads.on_threads(function, parts)

        single = play_pipelines(**columns)
        monkeypatch.setattr(schedule, "OPERATIONS_PER_THREAD", 1)
        monkeypatch.setattr(schedule, "on_threads", watched)
        for module in (schedule, threads):
            monkeypatch.setattr(module, "get_num_threads", lambda: 3)
        several = play_pipelines(**columns)
        assert shared == [3]
        for name in NAMES:
            assert getattr(several, name).tobytes() == getattr(single, name).tobytes()

    def test_designs_of_any_size_reach_the_kernel_as_arrays_of_one_type(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # For a view that cannot be written, as counts of one chunk were, the kernel would be compiled once more.
        given: list[PipelineBatch] = []
        monkeypatch.setattr(schedule, "play_rows", lambda batch, *_: given.append(batch))
        for step in (equal_step(1, 4), equal_step(4, 8)):
            played(step)
        assert len(given) == 2
        assert all(
            column.flags.c_contiguous and column.flags.writeable for batch in given for column in batch
        )

    def test_the_population_of_the_benchmark_agrees_with_the_reference(self) -> None:
        columns = population(30, seed=5)
        expected = [play(step_of(columns, row)).step_s for row in range(30)]
        assert play_pipelines(**columns).step_s.tolist() == pytest.approx(expected, rel=1e-9)

    def test_no_designs_give_no_times(self) -> None:
        columns = {name: np.asarray(column)[:0] for name, column in population(3, seed=1).items()}
        assert play_pipelines(**cast(PipelineColumns, columns)).step_s.shape == (0,)

    def test_stages_that_a_design_lacks_are_zero(self) -> None:
        times = played(equal_step(1, 2), equal_step(3, 2))
        assert times.busy_s[0].tolist() == [6.0, 0.0, 0.0]
        assert times.peak_in_flight[0].tolist() == [1, 0, 0]

    @pytest.mark.parametrize("num_alike", [1, 2, 3, 5, 9, 17, 33, 70])
    def test_a_design_takes_as_long_beside_any_number_of_its_shape(self, num_alike: int) -> None:
        # Each design is slower than the next one, and every other one gathers parameters, which takes a place more.
        def step(place: int) -> Step:
            forward_s = [float(num_alike - place) + 0.1 * stage for stage in range(4)]
            return equal_step(4, 6, forward_s=forward_s, gather_s=[float(place % 2 * place)] * 4)

        steps = [step(place) for place in range(num_alike)]
        times = played(*steps)
        for place in (0, num_alike // 2, num_alike - 1):
            assert times.step_s[place] == pytest.approx(play(steps[place]).step_s, rel=1e-12)


class TestProblems:
    def test_an_interleaved_schedule_that_does_not_exist_has_no_times(self) -> None:
        times = played(equal_step(4, 6, v=2), equal_step(4, 8, v=2), equal_step(4, 6))
        assert np.isnan(times.step_s).tolist() == [True, False, False]
        assert np.isnan(times.exposed_sync_s[0])
        for name in ("busy_s", "send_busy_s", "stage_end_s"):
            assert np.isnan(getattr(times, name)[0]).all()
        assert times.peak_in_flight[0].tolist() == [0, 0, 0, 0]

    def test_such_a_schedule_has_no_timeline(self) -> None:
        message = r"num_micro_batches = 6: must be a multiple of num_stages \(4\)"
        with pytest.raises(InputError, match=message):
            pipeline_timeline(**columns_of([equal_step(4, 6, v=2)]))

    @pytest.mark.parametrize("group_size", [3, 7, 9, 11])
    def test_groups_that_leave_stages_without_work_are_refused(self, group_size: int) -> None:
        # `forward_backward_pipelining_with_interleaving` of Megatron Core: p <= N <= m, and m mod N 0 or at least p.
        step = equal_step(4, 10, v=2, group_size=group_size)
        assert np.isnan(played(step).step_s[0])
        message = rf"group_size = {group_size}: must be from num_stages \(4\) to num_micro_batches \(10\)"
        with pytest.raises(InputError, match=message):
            pipeline_timeline(**columns_of([step]))

    @pytest.mark.parametrize("group_size", [6, 10])
    def test_groups_that_fit_are_played(self, group_size: int) -> None:
        assert np.isfinite(played(equal_step(4, 10, v=2, group_size=group_size)).step_s[0])

    def test_a_timeline_is_of_one_design(self) -> None:
        with pytest.raises(InputError, match=r"num_stages = shape \(2,\): must have one row"):
            pipeline_timeline(**columns_of([equal_step(2, 2), equal_step(2, 2)]))

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"num_stages": [0]}, r"num_stages = 0: must be at least 1"),
            ({"num_micro_batches": [-2]}, r"num_micro_batches = -2: must be at least 1"),
            ({"group_size": [-4]}, r"group_size = -4: must be at least 0"),
            ({"group_size": [4, 4]}, r"group_size = shape \(2,\): must have 1 rows"),
            ({"num_overlap_buckets": [-1]}, r"num_overlap_buckets = -1: must be at least 0"),
            ({"send_s": [0.0, 0.0]}, r"send_s = shape \(2,\): must have 1 rows"),
            (
                {"gradient_sync_s": [[0.0]]},
                r"gradient_sync_s = shape \(1, 1\): must have at least .* = 2 columns",
            ),
            ({"chunk_forward_s": [1.0, 1.0]}, r"chunk_forward_s = shape \(2,\): must have 1 rows of chunks"),
        ],
    )
    def test_wrong_columns_are_refused_with_the_rule(self, changes: dict[str, object], message: str) -> None:
        columns = cast(PipelineColumns, columns_of([equal_step(2, 4)]) | changes)
        with pytest.raises(InputError, match=message):
            play_pipelines(**columns)
