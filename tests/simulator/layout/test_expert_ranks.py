"""How many ranks have a share of what? Counted by hand for Mixtral 8x7B: 8 experts in each of 32 layers of 4,096 values."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.chunks import chunk_weights, split_layers, weights_on_stage
from simulator.layout.expert_ranks import (
    expert_ranks,
    expert_replicas,
    is_without_replicas,
    routed_shard_group,
    shares_nothing,
)
from tests.simulator.builders import plan_of, table_of, training

MIXTRAL = training("mixtral-8x7b")


@pytest.mark.parametrize(
    ("plan", "num_ranks"),
    [
        (plan_of(data=64, expert=8), 8),  # 64 ranks hold 8 sets
        (plan_of(tensor=2, data=64, expert=8), 16),  # routed experts are not split by tensor parallelism
        (plan_of(data=64, expert=8, shards=16, zero=3), 2),
        (plan_of(data=64, expert=8, shards=4, zero=3), 1),  # a set spans two groups, and no group has two
    ],
)
def test_ranks_with_the_same_experts_shard_them(plan: Plan, num_ranks: int) -> None:
    assert routed_shard_group(MIXTRAL, table_of(plan)) == num_ranks


@pytest.mark.parametrize(
    ("plan", "is_alone"),
    [
        (plan_of(), True),
        (plan_of(data=8, expert=8), False),  # all have the same attention
        (plan_of(tensor=2), False),  # both have the same experts
        (plan_of(tensor=2, expert=2), True),
    ],
)
def test_a_rank_owns_all_its_weights_alone_if_no_other_has_them(plan: Plan, is_alone: bool) -> None:
    assert shares_nothing(MIXTRAL, table_of(plan)) == is_alone


def test_every_tensor_parallel_rank_has_whole_routers() -> None:
    one, two = (
        chunk_weights(MIXTRAL.model, table_of(plan), split_layers(MIXTRAL.model, table_of(plan)))
        .shared_on_rank(table_of(plan))
        .sum()
        for plan in (plan_of(), plan_of(tensor=2))
    )
    assert 2.0 * two - one == 32 * 8 * 4096


def test_the_router_of_a_module_is_whole_too() -> None:
    with_module = MIXTRAL.model.model_copy(update={"num_mtp_layers": 1})
    wholes = []
    for model in (MIXTRAL.model, with_module):
        one, two = (
            chunk_weights(model, plans, split_layers(model, plans)).shared_on_rank(plans).sum()
            for plans in (table_of(plan_of()), table_of(plan_of(tensor=2)))
        )
        wholes.append(2.0 * two - one)
    assert wholes[1] - wholes[0] == 8 * 4096


def test_parts_of_experts_and_sequences_split_and_repeat_a_set() -> None:
    # 64 ranks: 4 with different experts times 2 with parts of each hold a set, which is there eight times.
    halves = MIXTRAL.model_copy(update={"expert_tensor_parallel": 2})
    plans = table_of(plan_of(tensor=4, context=2, data=8, expert=4))
    assert expert_ranks(halves, plans) == 8
    assert expert_replicas(halves, plans) == 8
    chunks = split_layers(halves.model, plans)
    weights = chunk_weights(halves.model, plans, chunks)
    each = 32 * 8 * 3 * 4096 * 14_336 / 8
    assert weights.routed_on_rank(halves, plans).sum() == each
    on_stage = weights_on_stage(halves, plans, chunks, weights, np.zeros(1, dtype=np.int64))
    assert on_stage[1] == each


@pytest.mark.parametrize(
    ("workload", "plan", "is_single"),
    [
        (MIXTRAL, plan_of(), True),
        (MIXTRAL, plan_of(tensor=2), False),  # both ranks have all experts
        (MIXTRAL, plan_of(tensor=2, expert=2), True),
        (MIXTRAL, plan_of(context=2, expert=2), False),  # both have the same attention
        (training("llama-3.1-8b"), plan_of(tensor=2), True),
        (training("llama-3.1-8b"), plan_of(context=2), False),
    ],
)
def test_a_layout_without_replicas_has_every_weight_once(
    workload: Workload, plan: Plan, is_single: bool
) -> None:
    assert is_without_replicas(workload, table_of(plan)) == is_single
