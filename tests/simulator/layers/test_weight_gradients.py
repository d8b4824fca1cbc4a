"""Is the part of a backward pass that nobody waits for the products of its weights, and what does postponing it gain?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable, Recompute, Schedule
from simulator.layers.layer_costs import dense_layer, expert_layer
from simulator.layers.model_ends import output_layer
from simulator.layers.weight_gradients import (
    dense_layer_weight_gradients_s,
    expert_layer_weight_gradients_s,
    output_layer_weight_gradients_s,
)
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.simulate import simulate
from simulator.step.step import StepTable, step_parts
from tests.simulator.builders import changed, gpt, job_of, plan_of, table_of, training

JOB = job_of(training(num_steps=100))


def rank_of(job: Job, plan: Plan) -> Rank:
    return Rank.of(job, table_of(plan))


def step_of(plan: Plan, job: Job = JOB) -> StepTable:
    return simulate(job, PlanTable.from_plans([plan])).steps


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_a_layer_multiplies_every_weight_with_every_token_once(tensor: int) -> None:
    rank = rank_of(JOB, plan_of(tensor=tensor, data=64))
    # 2 FLOP for each weight of a matrix and each token; norms have no products.
    model = JOB.workload.model
    weights = model.hidden_size * (4.0 * model.hidden_size + 2.0 * model.ffn_hidden_size)
    least_s = 2.0 * rank.tokens * weights / tensor / rank.offers.peak_flop_per_s[:, 0]
    found_s = dense_layer_weight_gradients_s(rank)
    assert least_s < found_s
    # The gradient of the inputs is as many FLOP again, and attention and memory-bound operators come on top.
    assert found_s < dense_layer(rank).backward_compute_s / 2.0


def test_the_products_of_experts_and_of_the_output_layer_are_part_of_their_backward() -> None:
    mixture = rank_of(job_of(training("deepseek-v2-lite")), plan_of(data=16, expert=4))
    for weight_s, part in (
        (expert_layer_weight_gradients_s(mixture), expert_layer(mixture)),
        (output_layer_weight_gradients_s(mixture), output_layer(mixture)),
    ):
        assert 0.0 < weight_s < part.backward_compute_s


def test_tensor_parallel_ranks_share_the_tokens_of_a_router() -> None:
    # Next to a router of 16,384 experts everything else is small.
    experts = MixtureOfExperts(num_experts=16_384, experts_per_token=1, expert_ffn_hidden_size=8)
    model = changed(gpt(hidden_size=1024, num_heads=8), experts=experts)
    job = job_of(training(model, sequence_length=8192))
    one_s, eight_s = (
        expert_layer_weight_gradients_s(
            rank_of(job, plan_of(tensor=t, data=16_384, expert=16_384, micro_batch=4))
        )
        for t in (1, 8)
    )
    assert one_s > 6.0 * eight_s


def test_a_power_cap_slows_them_as_much_as_all_products() -> None:
    job = job_of(training("deepseek-v2-lite"))
    free, capped = (rank_of(job, plan_of(data=16, expert=4, cap=cap)) for cap in (1.0, 0.6))
    for part_s in (
        dense_layer_weight_gradients_s,
        expert_layer_weight_gradients_s,
        output_layer_weight_gradients_s,
    ):
        assert part_s(capped) == pytest.approx(capped.compute_slowdown * part_s(free))


@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.GPIPE])
def test_whole_backwards_have_no_part_that_comes_later(schedule: Schedule) -> None:
    plans = table_of(plan_of(pipeline=4, data=16, schedule=schedule))
    parts = step_parts(Rank.of(JOB, plans), split_layers(JOB.workload.model, plans))
    assert not np.any(parts.pipeline["chunk_weight_gradient_s"])


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.SELECTIVE])
def test_zero_bubble_has_a_smaller_bubble_for_the_same_work(recompute: Recompute) -> None:
    # Stages alike: under ZB-V embedding and output layer are both on the first one.
    model = JOB.workload.model.model_copy(update={"vocabulary_size": 8192})
    job = job_of(training(model, num_steps=100))
    usual, late, there_and_back = (
        step_of(plan_of(pipeline=4, data=16, virtual=v, recompute=recompute, schedule=schedule), job)
        for schedule, v in ((Schedule.ONE_F_ONE_B, 1), (Schedule.ZB_H1, 1), (Schedule.ZB_V, 2))
    )
    assert late.compute_s == pytest.approx(usual.compute_s)
    assert there_and_back.compute_s == pytest.approx(usual.compute_s)
    assert there_and_back.pipeline_bubble_s < late.pipeline_bubble_s < usual.pipeline_bubble_s


def test_gpipe_idles_as_long_as_1f1b() -> None:
    # Sends block both in the same way, and the stages are alike but for the ends of the model.
    usual, gpipe = (
        step_of(plan_of(pipeline=4, data=16, schedule=schedule))
        for schedule in (Schedule.ONE_F_ONE_B, Schedule.GPIPE)
    )
    assert gpipe.step_time_s == pytest.approx(usual.step_time_s, rel=0.05)


def test_a_tied_embedding_that_is_on_one_stage_is_not_reduced_between_two() -> None:
    tied = job_of(training(gpt(has_tied_embeddings=True), num_steps=100))
    plans = [
        plan_of(pipeline=4, data=16, virtual=2, micro_batch=2, schedule=schedule)
        for schedule in (Schedule.ONE_F_ONE_B, Schedule.ZB_V)
    ]
    parts = [
        step_parts(Rank.of(tied, table_of(plan)), split_layers(tied.workload.model, table_of(plan)))
        for plan in plans
    ]
    assert parts[0].tied_gradient_s[0] > 0.0
    assert parts[1].tied_gradient_s[0] == 0.0


def test_gradients_that_are_kept_whole_in_16_bits_are_read_to_be_added_to() -> None:
    job = job_of(changed(training(), gradient_bytes=2))
    one, wide = np.ones(1), np.full(1, 8192.0)
    whole_s, sharded_s = (
        replace(rank, kernels=replace(rank.kernels, gemm_ramp_depth=np.zeros(1))).weight_gradient_s(
            one, wide, wide
        )
        - rank.kernels.launch_s
        for rank in (rank_of(job, plan_of(data=8, zero=stage)) for stage in (1, 3))
    )
    # One token: next to no arithmetic, and next to no inputs beside 8,192 x 8,192 values of 2 bytes.
    assert whole_s == pytest.approx(2 * sharded_s, rel=0.01)
