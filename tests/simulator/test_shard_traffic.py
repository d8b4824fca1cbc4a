"""Which gathers and reductions of ZeRO-2 and ZeRO-3 does a step wait for, and how often are there any?

Expected times are collectives of `simulator.network`, counted by hand.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.chunks import split_layers
from simulator.model import WeightPrefetch
from simulator.network import all_gather_s, reduce_scatter_s
from simulator.plan import Plan
from simulator.rank import Rank
from simulator.replica_sync import ReplicaTraffic
from simulator.step import StepTable, simulate_step
from simulator.trained_weights import StepWeights
from simulator.workload import Workload
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


@pytest.mark.parametrize("num_micro_batches", [1, 4])
@pytest.mark.parametrize("zero", [2, 3])
def test_the_ends_of_every_pass_show_and_of_the_rest_the_cores_that_it_takes(
    zero: int, num_micro_batches: int
) -> None:
    wire_bytes = workload(num_micro_batches, 8).wire_bytes
    parts = [
        MODEL.embedding_parameters,
        *NUM_LAYERS * [MODEL.dense_layer_parameters],
        MODEL.output_parameters,
    ]
    first_gather_s, *gathers_s = (gather_s(weights) if zero == 3 else 0.0 for weights in parts)
    last_scatter_s, *scatters_s = (scatter_s(weights, wire_bytes) for weights in parts)
    # Weights are gathered forward and backward; backward the pass before hides the first gather.
    hidden_s = 2 * sum(gathers_s) + first_gather_s + sum(scatters_s)
    found_s = step_of(plan_of(data=8, zero=zero), num_micro_batches).shard_comm_s[0]
    assert found_s == pytest.approx(
        num_micro_batches * (first_gather_s + last_scatter_s + CORE_SHARE * hidden_s)
    )


def test_stages_in_the_middle_of_a_pipeline_wait_for_their_first_layer() -> None:
    # Eight stages of a layer each and as many micro-batches, so that the mean stage has each part once.
    def shown_s(way: WeightPrefetch) -> float:
        chosen = workload(8, 8).model_copy(update={"weight_prefetch": way})
        rank = Rank.of(job_of(chosen), table_of(plan_of(pipeline=8, data=8, zero=3)))
        return float(simulate_step(rank, split_layers(MODEL, rank.plans)).shard_comm_s[0])

    # What prefetching forward hides: the layer behind the embedding on the first stage, the output layer on the last.
    hidden_s = gather_s(MODEL.dense_layer_parameters) + gather_s(MODEL.output_parameters)
    assert shown_s("backward") - shown_s("both") == pytest.approx((1 - CORE_SHARE) * hidden_s)


def test_gradients_of_a_plain_pipeline_are_reduced_once_as_under_zero_1() -> None:
    once, twice = (step_of(plan_of(pipeline=4, data=16, zero=zero), 8) for zero in (1, 2))
    assert twice.step_time_s[0] == once.step_time_s[0]
    assert twice.gradient_sync_s[0] == once.gradient_sync_s[0] > 0.0
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
