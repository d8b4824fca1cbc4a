"""Do GPipe, ZB-H1, ZB-V and DualPipeV have the bubbles and the activations in flight of their papers?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.plan import Schedule
from simulator.errors import InputError
from simulator.pipeline.schedule import PipelineColumns, PipelineTimes, pipeline_timeline, play_pipelines
from simulator.pipeline.shape import DUAL_PIPE_V, GPIPE, ONE_F_ONE_B, ZB_H1, ZB_V

FORWARD, BACKWARD, WEIGHT = 1.0, 1.2, 0.8
"""Seconds of one micro-batch on one stage: forward, gradient of the inputs, gradient of the weights."""
TO_AND_FRO = (ZB_V, DUAL_PIPE_V)
SHAPES = [(2, 4), (4, 8), (4, 12), (8, 16), (8, 32), (3, 7)]
"""Stages and micro-batches; twice as many less one are what the papers ask for."""


def columns_of(
    schedule: int, p: int, m: int, times_s: tuple[float, float, float] = (FORWARD, BACKWARD, WEIGHT)
) -> PipelineColumns:
    """One design of equal stages without network; the times of a stage are shared out over its chunks."""
    v = 2 if schedule in TO_AND_FRO else 1
    forward_s, backward_s, weight_s = (np.full((1, p * v), time_s / v) for time_s in times_s)
    nothing = np.zeros((1, p * v))
    return {
        "schedule": [schedule],
        "num_stages": [p],
        "num_chunks_per_stage": [v],
        "num_micro_batches": [m],
        "chunk_forward_s": forward_s,
        "chunk_backward_s": backward_s + weight_s,
        "chunk_weight_gradient_s": weight_s,
        "send_s": [0.0],
        "send_blocks_sender": [False],
        "gradient_sync_s": nothing,
        "parameter_gather_s": nothing,
        "num_overlap_buckets": [0],
    }


def played(schedule: int, p: int, m: int) -> PipelineTimes:
    return play_pipelines(**columns_of(schedule, p, m))


def bubble_s(schedule: int, p: int, m: int) -> float:
    """What the step is longer than the work of a stage."""
    return float(played(schedule, p, m).step_s[0]) - m * (FORWARD + BACKWARD + WEIGHT)


@pytest.mark.parametrize(("p", "m"), SHAPES)
class TestBubbles:
    @pytest.mark.parametrize("schedule", [ONE_F_ONE_B, GPIPE])
    def test_gpipe_and_1f1b_idle_for_p_minus_1_of_m_micro_batches(
        self, schedule: int, p: int, m: int
    ) -> None:
        # (p - 1)/m of the work: arXiv 1811.06965, section 2.3, and arXiv 2104.04473, section 2.2.1.
        expected_s = (p - 1) * (FORWARD + BACKWARD + WEIGHT)
        assert bubble_s(schedule, p, m) == pytest.approx(expected_s, rel=1e-9)

    def test_zb_h1_fills_its_bubble_with_weight_gradients(self, p: int, m: int) -> None:
        # (p - 1)(T_F + T_B - T_W): arXiv 2401.10241, table 2.
        expected_s = (p - 1) * (FORWARD + BACKWARD - WEIGHT)
        assert bubble_s(ZB_H1, p, m) == pytest.approx(expected_s, rel=1e-9)

    def test_no_stage_of_zb_v_idles_where_all_three_take_as_long(self, p: int, m: int) -> None:
        # arXiv 2401.10241, section 6.
        timeline = pipeline_timeline(**columns_of(ZB_V, p, m, (1.0, 1.0, 1.0)))
        for stage in range(p):
            is_here = timeline.stage == stage
            occupied_s = timeline.end_s[is_here].max() - timeline.start_s[is_here].min()
            assert occupied_s == pytest.approx(3.0 * m, rel=1e-9)

    @pytest.mark.parametrize("hidden_s", [0.0, 0.3])
    def test_dual_pipe_v_has_the_bubble_of_its_report_where_all_three_take_as_long(
        self, p: int, m: int, hidden_s: float
    ) -> None:
        # (PP/2 - 1)(F&B + B - 3 W) of PP = 2 p chunks: arXiv 2412.19437, table 2, and deepseek-ai/DualPipe. B is the whole
        # backward, F&B both as a pair, which hides a part here.
        m = max(m, 2 * p)
        columns = columns_of(DUAL_PIPE_V, p, m, (2.0, 2.0, 2.0))
        columns["chunk_hidden_forward_s"] = columns["chunk_hidden_backward_s"] = np.full((1, 2 * p), hidden_s)
        times = play_pipelines(**columns)
        expected_s = (p - 1) * (3.0 - 2.0 * hidden_s + 2.0 - 3.0)
        bubbles_s = times.step_s[0] - times.busy_s[0]
        assert bubbles_s.max() == pytest.approx(expected_s, rel=1e-9)


@pytest.mark.parametrize(("p", "m"), SHAPES)
class TestActivations:
    def test_gpipe_holds_all_micro_batches(self, p: int, m: int) -> None:
        assert played(GPIPE, p, m).peak_in_flight[0].tolist() == [m] * p

    def test_every_stage_of_zb_h1_holds_what_the_first_of_1f1b_does(self, p: int, m: int) -> None:
        # arXiv 2401.10241, table 2: p M_B at most, as 1F1B.
        assert played(ONE_F_ONE_B, p, m).peak_in_flight[0].tolist() == [p - stage for stage in range(p)]
        assert played(ZB_H1, p, m).peak_in_flight[0].tolist() == [p] * p

    def test_zb_v_holds_as_much_in_halves(self, p: int, m: int) -> None:
        # Same, section 6: at most p M_B, here of 2 p chunks of half a stage.
        assert played(ZB_V, p, m).peak_in_flight[0].tolist() == [2 * p] * p

    def test_dual_pipe_v_holds_one_more(self, p: int, m: int) -> None:
        # arXiv 2412.19437, table 2: PP + 1 of PP = 2 p chunks.
        assert played(DUAL_PIPE_V, p, max(m, 2 * p)).peak_in_flight[0].tolist() == [2 * p + 1] * p


@st.composite
def any_design(draw: st.DrawFn) -> PipelineColumns:
    """Unequal stages, any number of micro-batches, sends."""
    schedule, p = draw(st.sampled_from([GPIPE, ZB_H1, ZB_V, DUAL_PIPE_V])), draw(st.integers(1, 6))
    p, least = (max(p, 2), 2 * max(p, 2)) if schedule == DUAL_PIPE_V else (p, 1)
    columns = columns_of(schedule, p, draw(st.integers(least, least + 13)))
    num_chunks = np.asarray(columns["chunk_forward_s"]).shape[1]
    times = st.lists(st.floats(0.1, 5.0), min_size=num_chunks, max_size=num_chunks)
    forward_s, backward_s, weight_s = (np.array([draw(times)]) for _ in range(3))
    columns["chunk_forward_s"] = forward_s
    columns["chunk_backward_s"] = backward_s + weight_s
    columns["chunk_weight_gradient_s"] = weight_s
    for name, pass_s in (("forward", forward_s), ("backward", backward_s)):
        columns[f"chunk_hidden_{name}_s"] = draw(st.floats(0.0, 0.9)) * pass_s  # type: ignore[literal-required]
    columns["send_s"] = [draw(st.floats(0.0, 1.0))]
    return columns


@given(any_design())
def test_operations_keep_their_order_and_stages_do_one_thing_at_a_time(columns: PipelineColumns) -> None:
    line = pipeline_timeline(**columns)
    m, num_chunks = int(line.micro_batch.max()) + 1, int(line.chunk.max()) + 1
    direction = np.where(line.is_weight_gradient, 2, line.is_backward.astype(int))
    start_s, end_s, leaves_s = np.full((3, 3, num_chunks, m), np.nan)
    start_s[direction, line.chunk, line.micro_batch] = line.start_s
    end_s[direction, line.chunk, line.micro_batch] = line.end_s
    leaves_s[direction, line.chunk, line.micro_batch] = line.leaves_s
    stage = np.zeros(num_chunks, dtype=int)
    stage[line.chunk] = line.stage
    send_s = np.where(np.diff(stage) != 0, columns["send_s"], 0.0)[:, None] - 1e-9
    is_sent = send_s > -1e-9
    assert (start_s[0, 1:] >= np.where(is_sent, leaves_s[0, :-1], end_s[0, :-1]) + send_s).all()
    assert (start_s[1, :-1] >= np.where(is_sent, leaves_s[1, 1:], end_s[1, 1:]) + send_s).all()
    assert (start_s[1, -1] >= end_s[0, -1] - 1e-9).all()
    assert not (start_s[2] < end_s[1] - 1e-9).any()
    for number in range(int(stage.max()) + 1):
        is_here = line.stage == number
        assert (line.start_s[is_here][1:] >= line.end_s[is_here][:-1] - 1e-9).all()
    last_s = np.array([line.end_s[line.stage == number].max() for number in range(int(stage.max()) + 1)])
    assert play_pipelines(**columns).stage_end_s[0].tobytes() == last_s.tobytes()


@given(any_design())
def test_pairs_begin_with_what_both_need_and_their_results_leave_together(columns: PipelineColumns) -> None:
    line = pipeline_timeline(**columns)
    p = int(np.asarray(columns["num_stages"])[0])
    num_paired = 0
    for row in np.flatnonzero(line.is_paired & ~line.is_backward):
        chunk, micro_batch = 2 * p - 1 - line.chunk[row], line.micro_batch[row] - p
        (other,) = np.flatnonzero(
            (line.chunk == chunk) & (line.micro_batch == micro_batch) & line.is_backward
        )
        assert line.is_paired[other]
        assert line.leaves_s[row] == line.leaves_s[other] >= line.end_s[other]
        assert line.start_s[other] == pytest.approx(line.end_s[row])
        (before,) = (
            np.flatnonzero(line.is_backward & (line.chunk == chunk + 1) & (line.micro_batch == micro_batch))
            if chunk + 1 < 2 * p
            else (other,)
        )
        assert before == other or line.start_s[row] >= line.leaves_s[before] - 1e-9
        num_paired += 1
    is_dual = np.asarray(columns["schedule"])[0] == DUAL_PIPE_V
    m = int(line.micro_batch.max()) + 1
    # `dualpipev.py`: m - 2 p + r + 1 rounds of two pairs, but for the first of the last stage, and p - 1 - r rounds of one.
    rounds = sum(2 * (m - 2 * p + stage + 1) + p - 1 - stage for stage in range(p)) - 1
    assert num_paired == (rounds if is_dual else 0)


def test_designs_of_all_schedules_share_a_batch() -> None:
    alone = [columns_of(schedule, 4, 8) for schedule in (ZB_H1, ONE_F_ONE_B, GPIPE)]
    names = alone[0].keys()
    together = {name: np.concatenate([np.asarray(one[name]) for one in alone]) for name in names}  # type: ignore[literal-required]
    expected_s = [play_pipelines(**one).step_s[0] for one in alone]
    assert play_pipelines(**together).step_s.tolist() == expected_s


@pytest.mark.parametrize(("code", "rule"), [(5, "at most 4"), (-1, "at least 0")])
def test_unknown_schedules_are_refused(code: int, rule: str) -> None:
    columns = columns_of(GPIPE, 2, 4)
    columns["schedule"] = [code]
    with pytest.raises(InputError, match=f"schedule = {code}: must be {rule}"):
        play_pipelines(**columns)


def test_the_codes_are_those_of_plans() -> None:
    codes = [Schedule(name).code for name in ("1f1b", "gpipe", "zb_h1", "zb_v", "dual_pipe_v")]
    assert codes == [ONE_F_ONE_B, GPIPE, ZB_H1, ZB_V, DUAL_PIPE_V]


@pytest.mark.parametrize(("p", "m"), [(4, 7), (1, 4)])
def test_dual_pipe_v_needs_several_stages_and_two_micro_batches_for_each(p: int, m: int) -> None:
    assert np.isnan(play_pipelines(**columns_of(DUAL_PIPE_V, p, m)).step_s[0])


@pytest.mark.parametrize("schedule", [GPIPE, ZB_H1, ZB_V, DUAL_PIPE_V])
def test_a_schedule_that_does_not_exist_has_no_times(schedule: int) -> None:
    columns = columns_of(schedule, 2, 4)
    columns["num_chunks_per_stage"] = [3 if schedule in TO_AND_FRO else 2]
    for name in ("chunk_forward_s", "chunk_backward_s", "gradient_sync_s", "parameter_gather_s"):
        columns[name] = np.ones((1, 6))
    columns["chunk_weight_gradient_s"] = np.zeros((1, 6))
    assert np.isnan(play_pipelines(**columns).step_s[0])
