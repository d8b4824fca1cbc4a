"""Do interleaved stages hold what their order makes of chunks with unlike layers? Played event by event, and counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.plan import Plan, PlanTable, Schedule
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.memory.held_chunks import held_at_moments
from simulator.memory.peak import memory_by_stage, peak_memory
from simulator.pipeline.schedule import pipeline_timeline
from simulator.table import Booleans, Floats, Integers
from tests.simulator.builders import gpt, plan_of, table_of, training
from tests.simulator.dealt import dealt_micro_batches

UNLIKE = {
    "more at the start": (8, 8, 8, 8, 2, 2, 2, 2, 2, 2, 2, 2),
    "more at the end": (2, 2, 2, 2, 2, 2, 2, 2, 8, 8, 8, 8),
    "ends with a layer less": (3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3),
    "one without any": (0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 8),
}


def trained(layers: tuple[int, ...], num_sequences: int) -> Workload:
    workload = training(
        gpt(num_layers=sum(layers), vocabulary_size=1024),
        global_batch_size=num_sequences,
        sequence_length=512,
    )
    return workload.model_copy(update={"stage_layers": layers})


def played_layers(plan: Plan, layers: tuple[int, ...], num_micro_batches: int) -> Floats:
    """Returns the most layers, each once for every micro-batch, that each stage holds while the step is played."""
    ones, nothing = np.ones((1, len(layers))), np.zeros((1, len(layers)))
    played = pipeline_timeline(
        schedule=[plan.pipeline_schedule.code],
        num_stages=[plan.pipeline_parallel],
        num_chunks_per_stage=[plan.virtual_pipeline],
        num_micro_batches=[num_micro_batches],
        group_size=[plan.interleaved_group_size or plan.pipeline_parallel],
        chunk_forward_s=ones,
        chunk_backward_s=2.0 * ones,
        chunk_weight_gradient_s=ones,
        send_s=[0.0],
        send_blocks_sender=[False],
        gradient_sync_s=nothing,
        parameter_gather_s=nothing,
        num_overlap_buckets=[0],
    )
    has_weight_gradients = bool(played.is_weight_gradient.any())
    lets_go = played.is_weight_gradient if has_weight_gradients else played.is_backward
    is_forward = ~(played.is_backward | played.is_weight_gradient)
    change = np.array(layers)[played.chunk] * (is_forward.astype(int) - lets_go.astype(int))
    return np.array([_most(change, played.stage == stage) for stage in range(plan.pipeline_parallel)])


def _most(change: Integers, own: Booleans) -> float:
    """Operations of a stage follow each other in the order played."""
    return float(np.cumsum(change[own]).max())


@pytest.mark.parametrize("layers", UNLIKE.values(), ids=UNLIKE.keys())
@pytest.mark.parametrize("num_micro_batches", [4, 8, 32])
@pytest.mark.parametrize(
    "plan",
    [
        plan_of(pipeline=4, virtual=3),
        plan_of(pipeline=2, virtual=6),
        plan_of(pipeline=6, virtual=2, schedule=Schedule.ZB_V),
        plan_of(pipeline=6, virtual=2, schedule=Schedule.DUAL_PIPE_V),
    ],
    ids=["4 x 3", "2 x 6", "to and fro", "in pairs"],
)
def test_a_stage_holds_what_its_order_makes_of_its_chunks(
    plan: Plan, num_micro_batches: int, layers: tuple[int, ...]
) -> None:
    if plan.pipeline_schedule is Schedule.DUAL_PIPE_V:
        num_micro_batches = max(num_micro_batches, 12)
    workload = trained(layers, num_micro_batches)
    one_layer = memory_by_stage(trained((1,), 1), plan_of()).activations_bytes[0]
    found = memory_by_stage(workload, plan).activations_bytes / one_layer
    played = played_layers(plan, layers, num_micro_batches)
    np.testing.assert_allclose(found, played, rtol=1e-12)
    own_layers = held_at_moments(plan, num_micro_batches) * np.array(layers)
    stages = split_layers(workload.model, table_of(plan), layers).stages[0]
    most = [own_layers[:, stages == stage].sum(axis=1).max() for stage in range(plan.pipeline_parallel)]
    assert most == played.tolist()


@given(data=st.data(), cut=st.sampled_from([(2, 6), (3, 4), (4, 3), (6, 2)]))
def test_the_same_in_groups_of_any_size(data: st.DataObject, cut: tuple[int, int]) -> None:
    num_micro_batches, group_size = data.draw(dealt_micro_batches(cut[0]))
    layers = tuple(data.draw(st.lists(st.integers(1, 9), min_size=12, max_size=12)))
    plan = plan_of(pipeline=cut[0], virtual=cut[1], group_size=group_size)
    one_layer = memory_by_stage(trained((1,), 1), plan_of()).activations_bytes[0]
    found = memory_by_stage(trained(layers, num_micro_batches), plan).activations_bytes / one_layer
    played = played_layers(plan, layers, num_micro_batches)
    np.testing.assert_allclose(found, played, rtol=1e-12)
    own_layers = held_at_moments(plan, num_micro_batches) * np.array(layers)
    stages = np.arange(12) % cut[0]
    assert [own_layers[:, stages == stage].sum(axis=1).max() for stage in range(cut[0])] == played.tolist()


@pytest.mark.parametrize("layers", UNLIKE.values(), ids=UNLIKE.keys())
def test_the_peak_is_that_of_the_stage_that_needs_most(layers: tuple[int, ...]) -> None:
    plan, workload = plan_of(pipeline=4, virtual=3), trained(layers, 16)
    table = table_of(plan)
    peak = peak_memory(workload, table, split_layers(workload.model, table, layers)).peak_bytes[0]
    assert peak == memory_by_stage(workload, plan).peak_bytes.max()


def test_chunks_of_interleaved_stages_count_beside_plans_with_one_chunk_on_each() -> None:
    workload = trained((12, 6, 3, 3), 8)
    plans = [plan_of(pipeline=4), plan_of(pipeline=2, virtual=2)]
    table = PlanTable.from_plans(plans)
    together = peak_memory(workload, table, split_layers(workload.model, table, workload.stage_layers))
    assert together.peak_bytes.tolist() == [
        memory_by_stage(workload, each).peak_bytes.max() for each in plans
    ]


def test_layouts_without_a_schedule_are_not_played() -> None:
    # Five micro-batches are neither dealt out in groups of four nor two for each of six stages; one chunk goes not to and fro.
    layers = UNLIKE["more at the start"]
    for plan in (
        plan_of(pipeline=4, virtual=3),
        plan_of(pipeline=12, schedule=Schedule.ZB_V),
        plan_of(pipeline=6, virtual=2, schedule=Schedule.DUAL_PIPE_V),
    ):
        assert np.all(np.isfinite(memory_by_stage(trained(layers, 5), plan).peak_bytes))
