"""Do tensor-parallel ranks sum up the gradients of what each holds whole, once per step, and nothing else?"""

from __future__ import annotations

import pytest

from simulator.deep.plans.plan_step import plan_step
from simulator.domain.lora import ATTENTION_PRODUCTS, Lora
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.machine.network import all_reduce_s
from simulator.step.step import step_parts
from simulator.step.whole_gradients import summed_bytes
from tests.simulator.builders import changed, job_of, plan_of, rank_of, step_of, training

V3 = training("deepseek-v3", global_batch_size=64)
EVEN = plan_of(tensor=8, data=8, expert=64)
LABEL = "gradient all-reduce of tensor-parallel ranks"


def summed_s(workload: Workload, plan: Plan) -> float:
    rank = rank_of(workload, plan)
    return float(step_parts(rank, split_layers(workload.model, rank.plans)).whole_gradient_s[0])


def test_routers_and_products_down_to_latents_are_copied_summed_and_copied_back() -> None:
    # 61 products from 7,168 values to latents of 1,536 and 512 and a rotary key of 64; 58 routers of 256 experts.
    num_bytes = 4.0 * 7168 * (61 * (1536 + 512 + 64) + 58 * 256)
    reduced_s = all_reduce_s(
        num_bytes=num_bytes, group_size=8.0, members_per_domain=8.0, links=rank_of(V3, EVEN).links
    )[0]
    copied_s = 4 * num_bytes / (3.35e12 * 0.8122)
    assert summed_s(V3, EVEN) == pytest.approx(reduced_s + copied_s, rel=0.001)


def test_the_stage_with_most_of_them_is_waited_for() -> None:
    # 61 layers on 4 stages: the third has one more, all with experts.
    num_bytes = 4.0 * 7168 * 16 * (1536 + 512 + 64 + 256)
    plan = plan_of(tensor=8, pipeline=4, data=8, expert=64)
    reduced_s = all_reduce_s(
        num_bytes=num_bytes, group_size=8.0, members_per_domain=8.0, links=rank_of(V3, plan).links
    )[0]
    assert summed_s(V3, plan) == pytest.approx(reduced_s + 4 * num_bytes / (3.35e12 * 0.8122), rel=0.002)


def test_gradients_in_16_bits_are_half_as_many_bytes() -> None:
    assert summed_s(changed(V3, gradient_bytes=2), EVEN) == pytest.approx(summed_s(V3, EVEN) / 2, rel=0.05)


def test_ranks_that_share_out_their_gradients_sum_their_shares() -> None:
    assert summed_bytes(rank_of(V3, EVEN), 8e9) == 8 * summed_bytes(
        rank_of(V3, changed(EVEN, zero_stage=2)), 8e9
    )


def test_they_are_part_of_the_step_and_of_its_synchronisation() -> None:
    whole, split = (step_of(each, EVEN) for each in (V3, changed(V3, sync_bytes=1)))
    assert whole.gradient_sync_s[0] > summed_s(V3, EVEN)
    assert whole.step_time_s > split.step_time_s


@pytest.mark.parametrize(
    ("workload", "plan"),
    [
        (V3, plan_of(data=64, expert=64)),
        (changed(V3, has_sequence_parallel=False), EVEN),
        (training("llama-3.1-8b"), plan_of(tensor=8, data=8)),
        (changed(training("mixtral-8x7b"), lora=Lora(rank=8, targets=ATTENTION_PRODUCTS)), EVEN),
    ],
    ids=["one rank", "equal gradients", "nothing whole", "frozen weights"],
)
def test_there_is_nothing_to_sum(workload: Workload, plan: Plan) -> None:
    assert summed_s(workload, plan) == 0.0


def test_the_deep_depth_plays_the_same_sums() -> None:
    plan = plan_of(tensor=8, pipeline=4, data=8, expert=64)
    step = plan_step(job_of(V3), plan)
    rows = [row for row in range(len(step.graph)) if step.graph.label_of(row) == LABEL]
    longest_s = float((step.played.end_s - step.played.start_s)[rows].max())
    assert longest_s == pytest.approx(summed_s(V3, plan), rel=1e-9)
