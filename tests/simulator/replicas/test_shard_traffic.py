"""Which gathers and reductions of ZeRO-2 and ZeRO-3 does a step wait for, and how often are there any?

Expected times are collectives of `simulator.machine.network`, counted by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.choices import WeightPrefetch
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layers.layer_costs import dense_layer
from simulator.layers.model_ends import embedding, output_layer
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.machine.network import all_gather_s, reduce_scatter_s
from simulator.machine.rank import Rank
from simulator.replicas.replica_sync import ReplicaGroup, ReplicaTraffic
from simulator.step.model_parts import ModelParts
from simulator.step.shard_passes import shards_s
from simulator.step.step import StepTable, simulate_step
from tests.simulator.builders import gpt, job_of, plan_of, table_of, training

NUM_LAYERS = 8
MODEL = gpt(num_layers=NUM_LAYERS, hidden_size=4096, num_heads=32, vocabulary_size=1024)
CORE_SHARE = 0.15
"""Of hidden traffic this shows: the cores that it takes (Calculon, arXiv 2311.02076)."""


def workload(num_micro_batches: int, data: int) -> Workload:
    return training(MODEL, global_batch_size=num_micro_batches * data)


def rank_of(plan: Plan, num_micro_batches: int) -> Rank:
    return Rank.of(job_of(workload(num_micro_batches, plan.data_parallel)), table_of(plan))


def step_of(plan: Plan, num_micro_batches: int) -> StepTable:
    rank = rank_of(plan, num_micro_batches)
    return simulate_step(rank, split_layers(MODEL, rank.plans))


def traffic_of(plan: Plan, num_micro_batches: int) -> ReplicaTraffic:
    rank = rank_of(plan, num_micro_batches)
    chunks = split_layers(MODEL, rank.plans)
    return ReplicaTraffic.of(rank, StepWeights.of(rank.workload, rank.plans, chunks))


def gather_s(weights: float) -> float:
    links = rank_of(plan_of(data=8), 1).links
    return float(
        all_gather_s(num_bytes=2.0 * weights, group_size=8.0, members_per_domain=8.0, links=links)[0]
    )


def scatter_s(weights: float, wire_bytes: float) -> float:
    links, num_bytes = rank_of(plan_of(data=8), 1).links, wire_bytes * weights
    return float(
        reduce_scatter_s(num_bytes=num_bytes, group_size=8.0, members_per_domain=8.0, links=links)[0]
    )


def beside_s(part_s: float, traffic_s: float) -> float:
    return max(CORE_SHARE * min(part_s, traffic_s), traffic_s - part_s)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the model: passes, gather and reduction, seconds."""

    forward_s: float
    backward_s: float
    gather_s: float
    reduce_s: float


def model_parts(rank: Rank, zero: int) -> list[Part]:
    """The embedding, every layer and the output layer on one node of eight ranks that share everything."""
    wire_bytes, gathers = rank.workload.wire_bytes, zero == 3 or rank.workload.regathers_weights
    return [
        Part(
            forward_s=float(times.forward_s[0]),
            backward_s=float(times.backward_s[0]),
            gather_s=gather_s(weights) if gathers else 0.0,
            reduce_s=scatter_s(weights, wire_bytes),
        )
        for times, weights in (
            (embedding(rank), MODEL.embedding_parameters),
            *NUM_LAYERS * [(dense_layer(rank), MODEL.dense_layer_parameters)],
            (output_layer(rank), MODEL.output_parameters),
        )
    ]


def played_s(
    parts: list[Part], *, gathers_back: bool = True, prefetches_back: bool = True, overlaps: bool = True
) -> float:
    """One micro-batch as FSDP2 issues it: a compute stream, and one communicator that runs what was issued in turn.

    Without `reshard_after_forward` nothing is gathered for the backward pass. Without prefetch a gather is issued behind the
    reduction of the part before; without overlap the computing waits for each reduction.
    """
    computed_s = queue_s = 0.0

    def queued_s(ready_s: float, seconds: float) -> float:
        nonlocal queue_s
        queue_s = max(queue_s, ready_s) + seconds
        return queue_s

    gathered_s = queued_s(0.0, parts[0].gather_s)
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        begin_s = max(computed_s, gathered_s)
        ahead_s = following.gather_s if following else 0.0
        gathered_s = queued_s(begin_s, ahead_s) if following else begin_s
        computed_s = begin_s + part.forward_s + CORE_SHARE * min(part.forward_s, ahead_s)
    reduced_s, before_s = [0.0], 0.0
    for part, following in zip(parts[::-1], [*parts[-2::-1], None], strict=True):
        begin_s = max(computed_s, gathered_s, *reduced_s[:-1])
        next_s = following.gather_s if following and gathers_back else 0.0
        ahead_s = next_s if prefetches_back else 0.0
        gathered_s = queued_s(begin_s, ahead_s) if ahead_s else begin_s
        # what was queued before has passed where the gather behind it was waited for
        beside = 0.0 if not prefetches_back and gathers_back else before_s
        computed_s = begin_s + part.backward_s + CORE_SHARE * min(part.backward_s, beside + ahead_s)
        before_s = part.reduce_s if overlaps else 0.0
        reduced_s.append(queued_s(computed_s, part.reduce_s))
        if not overlaps:
            computed_s = reduced_s[-1]
        if not prefetches_back and next_s:
            gathered_s = queued_s(computed_s, next_s)
    return max(computed_s, *reduced_s)


@pytest.mark.parametrize("num_micro_batches", [1, 4])
@pytest.mark.parametrize(("zero", "regathers"), [(2, False), (2, True), (3, False)])
@pytest.mark.parametrize("sequence", [128, 512, 2048])
def test_passes_take_as_long_as_their_collectives_in_one_queue(
    sequence: int, zero: int, regathers: bool, num_micro_batches: int
) -> None:
    # Traffic outlasts the computing of 128 tokens, and computing the traffic of 2,048.
    plan = plan_of(data=8, zero=zero)
    changes = {"sequence_length": sequence, "regathers_weights": regathers}
    chosen = workload(num_micro_batches, 8).model_copy(update=changes)
    rank = Rank.of(job_of(chosen), table_of(plan))
    parts = model_parts(rank, zero)
    step = simulate_step(rank, split_layers(MODEL, rank.plans))
    alone_s = sum(part.forward_s + part.backward_s for part in parts)
    shown_s = played_s(parts, gathers_back=zero == 3) - alone_s
    assert step.shard_comm_s[0] == pytest.approx(num_micro_batches * shown_s)
    assert (step.gradient_sync_s[0] == 0.0) == (zero == 3 or regathers)


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("sequence", [128, 512, 2048])
@pytest.mark.parametrize(("prefetch", "overlaps"), [("forward", True), ("both", False), ("forward", False)])
def test_reductions_show_where_the_next_part_waits_for_them(
    prefetch: WeightPrefetch, overlaps: bool, sequence: int, zero: int
) -> None:
    changes = {
        "sequence_length": sequence,
        "weight_prefetch": prefetch,
        "overlaps_gradient_sync": overlaps,
        "regathers_weights": False,
    }
    rank = Rank.of(job_of(workload(4, 8).model_copy(update=changes)), table_of(plan_of(data=8, zero=zero)))
    parts = model_parts(rank, zero)
    alone_s = sum(part.forward_s + part.backward_s for part in parts)
    played = played_s(parts, gathers_back=zero == 3, prefetches_back=prefetch == "both", overlaps=overlaps)
    step = simulate_step(rank, split_layers(MODEL, rank.plans))
    assert step.shard_comm_s[0] == pytest.approx(4 * (played - alone_s))


def test_stages_in_the_middle_of_a_pipeline_wait_for_their_first_layer() -> None:
    # Eight stages of a layer each and as many micro-batches, so that the mean stage has each part once.
    def shown_s(way: WeightPrefetch) -> float:
        chosen = workload(8, 8).model_copy(update={"weight_prefetch": way})
        rank = Rank.of(job_of(chosen), table_of(plan_of(pipeline=8, data=8, zero=3)))
        return float(simulate_step(rank, split_layers(MODEL, rank.plans)).shard_comm_s[0])

    # What prefetching forward hides: the layer behind the embedding on the first stage, the output layer on the last.
    layer, output = gather_s(MODEL.dense_layer_parameters), gather_s(MODEL.output_parameters)
    first, second, *_ = model_parts(rank_of(plan_of(data=8, zero=3), 8), 3)
    hidden_s = layer - beside_s(first.forward_s, layer) + output - beside_s(second.forward_s, output)
    assert shown_s("backward") - shown_s("both") == pytest.approx(hidden_s)


@pytest.mark.parametrize("sequence", [128, 2048])
def test_a_forward_pass_hides_the_first_gather_of_the_backward_pass_behind_it(sequence: int) -> None:
    # Two of eight micro-batches make a group: chunks of a stage take turns, and two backward passes in eight follow another.
    chosen = workload(8, 8).model_copy(update={"sequence_length": sequence})
    rank = Rank.of(job_of(chosen), table_of(plan_of(pipeline=2, virtual=4, data=8, zero=3)))
    parts = ModelParts.of(rank, split_layers(MODEL, rank.plans))
    _, backward_s, _ = shards_s(rank, parts, ReplicaTraffic.of(rank, parts.weights), None)
    # Both chunks have one layer; all backward passes of the last chunk of a stage follow a forward pass.
    before_s, last_s = backward_s[0, 5:7]
    layer = gather_s(MODEL.dense_layer_parameters)
    hidden_s = layer - beside_s(float(dense_layer(rank).forward_s[0]), layer)
    assert before_s - last_s == pytest.approx(2 / 8 * hidden_s)


def test_gradients_of_a_plain_pipeline_are_reduced_once_layer_by_layer() -> None:
    once, twice = (step_of(plan_of(pipeline=4, data=16, zero=zero), 8) for zero in (1, 2))
    # As under ZeRO-1, in other pieces and with start-ups of their own.
    assert twice.step_time_s[0] == pytest.approx(once.step_time_s[0], rel=0.02)
    assert twice.gradient_sync_s[0] > once.gradient_sync_s[0] > 0.0
    assert twice.shard_comm_s[0] == 0.0


@given(groups=st.integers(1, 4), stages=st.sampled_from([2, 4]), zero=st.sampled_from([1, 2, 3]))
def test_interleaved_stages_reduce_after_every_group_of_as_many_micro_batches_as_stages(
    groups: int, stages: int, zero: int
) -> None:
    # PyTorch pull request 126166: gradients stay whole while backward passes of one chunk follow each other.
    num_micro_batches = groups * stages
    plan = plan_of(pipeline=stages, virtual=2, data=8, zero=zero)
    traffic, once = (
        traffic_of(plan, num_micro_batches),
        traffic_of(plan_of(pipeline=stages, virtual=2, data=8), 8),
    )
    in_passes_s = num_micro_batches * (traffic.backward_s - traffic.forward_s)
    num_reductions = {1: 1, 2: groups, 3: num_micro_batches}[zero]
    np.testing.assert_allclose(in_passes_s + traffic.gradient_s, num_reductions * once.gradient_s, rtol=1e-12)
    assert np.all((traffic.gradient_s > 0.0) == (zero < 3))


def test_what_has_no_bytes_takes_no_time() -> None:
    # The routed weights of dense parts, and all trained ones of a frozen embedding, over 64 nodes.
    group = ReplicaGroup.of_shared(rank_of(plan_of(data=512, zero=3), 1))
    weights = np.array([[0.0, 1e9]])
    for collective in (group.all_gather_s, group.reduce_scatter_s, group.all_reduce_s):
        assert (collective(weights) > 0.0).tolist() == [[False, True]]
