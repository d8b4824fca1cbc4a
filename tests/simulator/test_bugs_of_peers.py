"""Are the mistakes absent that were found in other models of steps (vTrain, llm-analysis, Calculon, BudEcosystem, mlsysim)?"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.simulate import Outcomes, simulate
from tests.simulator.builders import gpt, job_of, plan_of, rented, table_of, training

EVEN = training(
    gpt(num_layers=32, hidden_size=4096, num_heads=32, vocabulary_size=8),
    sequence_length=2048,
    global_batch_size=32,
)
"""Stages that all take the same time: embedding and output layer are next to nothing."""
LARGE = training("llama-3.1-70b", sequence_length=4096, global_batch_size=64)


def outcomes(workload: Workload, *plans: Plan) -> Outcomes:
    return simulate(job_of(workload), table_of(*plans))


def test_accumulation_goes_on_without_a_pipeline() -> None:
    # vTrain drops the micro-batches of a step where there is one stage.
    short, long = (
        outcomes(training(global_batch_size=size), plan_of(data=8)).steps.compute_s[0] for size in (64, 512)
    )
    assert long == pytest.approx(8.0 * short, rel=1e-9)


def test_tensor_parallelism_beyond_a_node_leaves_nvlink() -> None:
    # vTrain prices it at NVLink's rate, Calculon and mlsysim at that of one card of the eight. Here cards are of 5 GB/s: the
    # rings of 80 x 8 residual streams of 16 sequences take 15/16 of their volume over all eight, and starts of 0.1 ms at most.
    offer = rented()
    slow = offer.model_copy(update={"node": offer.node.model_copy(update={"network_bytes_per_s": 40e9})})
    workload = LARGE.model_copy(update={"overlaps_input_gradients": False})
    steps = simulate(job_of(workload, slow), table_of(plan_of(tensor=16, data=4))).steps
    num_rings = 16 * 80 * 8
    volume_s = num_rings * 15 / 16 * 2 * 4096 * 8192 / 40e9
    assert volume_s < steps.tensor_comm_s[0] < 1.1 * volume_s + num_rings * 1e-4


@pytest.mark.parametrize("virtual", [2, 4])
def test_more_chunks_on_a_stage_never_lengthen_a_step_whose_gradients_are_reduced_once(virtual: int) -> None:
    # time(v) <= time(1): arXiv 2104.04473, section 2.2.2, where sends are free and gradients travel once a step.
    chunked, plain = outcomes(
        EVEN, plan_of(pipeline=8, virtual=virtual, zero=1), plan_of(pipeline=8, zero=1)
    ).steps.step_time_s
    assert chunked <= plain


def test_every_stage_waits_for_its_own_replicas_only() -> None:
    # vTrain lets the gradients of all stages wait for the first one. All but the first stage reduce theirs while the last
    # backwards are still on their way to it, so that a step is longer by the sync of one stage at most.
    even = EVEN.model_copy(update={"overlaps_gradient_sync": False})
    steps = outcomes(even, plan_of(pipeline=4, data=8, zero=0)).steps
    # All-reduce of a quarter of the fp32 gradients over the eight accelerators of a node: 2 x 7/8 of the bytes at 0.9703 of
    # 450 GB/s (NCCL collectives of aiconfigurator-core 0.12).
    ring_s = 2 * 7 / 8 * 4 * even.model.num_parameters / 4 / (450e9 * 0.9703)
    assert steps.gradient_sync_s[0] == pytest.approx(ring_s, rel=0.05)


def test_bubbles_gradients_and_sends_are_all_priced() -> None:
    # llm-analysis has neither bubbles nor the time of gradients and of sends.
    steps = outcomes(LARGE, plan_of(tensor=8, pipeline=4, data=2)).steps
    assert min(steps.pipeline_bubble_s[0], steps.gradient_sync_s[0], steps.pipeline_send_s[0]) > 0.0


def test_recomputation_is_one_more_forward_pass_of_every_layer() -> None:
    # Calculon adds up a running total for each layer. Forward is a third of forward and backward: 4/3 of the products.
    none, full = outcomes(
        EVEN, *(plan_of(recompute=choice) for choice in (Recompute.NONE, Recompute.FULL))
    ).steps.compute_s
    assert 1.25 < full / none < 1.4


def test_latency_grows_with_the_number_of_ranks() -> None:
    # Calculon's latency does not depend on the size of a group: with next to nothing to send only latency is left.
    tiny = training(gpt(num_layers=2, hidden_size=64, num_heads=2, vocabulary_size=8), global_batch_size=1024)
    tiny = tiny.model_copy(update={"overlaps_gradient_sync": False})
    sync_s = outcomes(tiny, *(plan_of(data=data) for data in (16, 128, 1024))).steps.gradient_sync_s
    assert np.all(np.diff(sync_s) > 0.0)


def test_every_split_and_stage_of_zero_lowers_the_memory_of_states() -> None:
    # BudEcosystem does not divide gradients and optimizer states by tensor and pipeline parallelism.
    sizes = [
        outcomes(LARGE, plan).summary.peak_memory_bytes[0]
        for plan in (
            plan_of(data=8, zero=0),
            plan_of(tensor=2, data=8, zero=0),
            plan_of(tensor=2, pipeline=2, data=8, zero=0),
            plan_of(tensor=2, pipeline=2, data=8, zero=1),
            plan_of(tensor=2, pipeline=2, data=8, zero=3),
        )
    ]
    assert all(more > less for more, less in pairwise(sizes))


def test_sharded_weights_travel_more_than_whole_ones() -> None:
    # mlsysim's stage of ZeRO does not change the time of communication.
    whole, sharded = outcomes(LARGE, plan_of(data=64, zero=1), plan_of(data=64, zero=3)).steps.shard_comm_s
    assert whole == 0.0
    assert sharded > 0.0
