"""Are the weights and gradients of the working layer those of the layer, whatever is frozen, split or prefetched?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator import catalog
from simulator.domain.lora import Lora
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.layout.stage_content import StageContent
from simulator.memory.weights_at_work import weights_at_work
from tests.simulator.builders import changed, gpt, plan_of, table_of, training
from tests.simulator.sparse import DENSE, LATENTS

SMALL = training(gpt(vocabulary_size=8), global_batch_size=8)
LAYER = 2048 * (4 * 2048 + 2 * 4 * 2048 + 2)
"""Weights of a layer of it: four h x h, two h x 4h, two norms."""
OUTPUT = 8 * 2048


def at_work(workload: Workload, plan: Plan) -> float:
    """Bytes on a rank of the last stage."""
    plans = table_of(plan)
    chunks = split_layers(workload.model, plans)
    stage = StageContent.of(workload, plans, chunks, plans.pipeline_parallel - 1)
    return float(np.squeeze(weights_at_work(workload, plans, stage)))


@pytest.mark.parametrize(
    ("gathers_ahead", "layers"), [("none", 1), ("forward", 1), ("backward", 2), ("both", 2)]
)
def test_a_layer_that_is_gathered_ahead_in_the_backward_pass_is_there_beside_that_at_work(
    gathers_ahead: str, layers: int
) -> None:
    sharded = changed(SMALL, weight_prefetch=gathers_ahead)
    split = at_work(sharded, plan_of(data=8, zero=3))
    # 16-bit weights of the layers and of the output layer, their gradients, and those of the layer as they are reduced.
    gradients = 2 * (LAYER + OUTPUT) + sharded.wire_bytes * LAYER
    assert split == pytest.approx(2 * (layers * LAYER + OUTPUT) + gradients)


def test_a_stage_with_a_single_layer_gathers_no_other_ahead() -> None:
    one_each = plan_of(pipeline=24, data=8, zero=3)
    ahead, alone = (at_work(changed(SMALL, weight_prefetch=way), one_each) for way in ("both", "none"))
    assert ahead == alone


@pytest.mark.parametrize("zero", [0, 3])
def test_frozen_weights_have_no_gradients(zero: int) -> None:
    adapted = changed(SMALL, lora=Lora(rank=16), weight_prefetch="none")
    gathered = 2 * (LAYER + OUTPUT) if zero == 3 else 0
    assert at_work(adapted, plan_of(data=8, zero=zero)) == pytest.approx(gathered)


def test_a_lone_rank_copies_masters_of_its_weights_and_no_frozen_weights() -> None:
    alone, trained = plan_of(zero=3), changed(SMALL, gradient_bytes=4, weight_prefetch="none")
    assert at_work(changed(trained, lora=Lora(rank=16)), alone) == 0.0
    # Masters of 32 bits are cast; nothing is reduced.
    assert at_work(trained, alone) == pytest.approx(2 * (LAYER + OUTPUT) + 2 * (LAYER + OUTPUT))


def test_ranks_that_share_an_expert_have_a_part_of_the_gradient_of_one() -> None:
    workload = training("mixtral-8x7b", global_batch_size=8)
    whole, half = (
        at_work(changed(workload, expert_tensor_parallel=parts), plan_of(tensor=2, data=8))
        for parts in (1, 2)
    )
    assert whole - half == pytest.approx(2 * 3 * 4096 * 14_336 / 2)


def test_the_projection_of_a_module_may_be_the_largest_product() -> None:
    # Blocks as wide as the hidden size, and narrower heads: only the join of two hidden states is wider.
    narrow: dict[str, Any] = {"num_heads": 2, "num_kv_heads": 1, "ffn_hidden_size": 2048}
    model = gpt(vocabulary_size=8).model_copy(update=narrow)
    products = [
        at_work(
            changed(training(each, global_batch_size=8), most_gathered_weights=0.0), plan_of(data=8, zero=3)
        )
        for each in (model, model.model_copy(update={"num_mtp_layers": 1}))
    ]
    # Weights and gradient of the product.
    assert products == pytest.approx([2 * 2 * 2048 * 2048, 2 * 2 * 2048 * 2 * 2048])


def test_a_rank_that_alone_has_its_experts_gathers_none_of_them() -> None:
    # Mixtral 8x7B with a rank for each expert: the other weights of a layer have eight owners.
    workload = changed(
        training("mixtral-8x7b", global_batch_size=8), gradient_bytes=2, weight_prefetch="none"
    )
    others = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 4096  # attention, router, norms
    expert, output = 3 * 4096 * 14_336, 32_000 * 4096
    gradients = 2 * (others + expert + output) + workload.wire_bytes * others
    assert at_work(workload, plan_of(data=8, expert=8, zero=3)) == pytest.approx(
        2 * (others + output) + gradients
    )


def largest_product(model: ModelShape, plan: Plan, **choices: object) -> float:
    """Weights of the largest product of a rank of the last stage, which are gathered, and whose gradient is there."""
    workload = changed(training(model, global_batch_size=8), most_gathered_weights=0.0, **choices)
    return at_work(workload, plan) / (2 * 2)


def test_the_largest_product_of_latent_attention_is_one_of_its_own() -> None:
    model = changed(
        DENSE, ffn_hidden_size=8, vocabulary_size=8, latent_attention=changed(LATENTS, key_value_rank=1024)
    )
    # From the latent to keys without positions and values of all heads; queries have 768 x 16 heads of 192.
    assert largest_product(model, plan_of(data=8, zero=3)) == 1024 * 16 * (128 + 128)


@pytest.mark.parametrize(("parts", "split"), [(1, 1), (8, 8)])
def test_experts_are_split_by_their_own_ranks_alone(parts: int, split: int) -> None:
    model = changed(catalog.model("mixtral-8x7b"), vocabulary_size=8)
    largest = largest_product(model, plan_of(tensor=8, data=8, zero=3), expert_tensor_parallel=parts)
    assert largest == 2 * 4096 * 14_336 / split


def test_experts_that_read_a_latent_have_products_of_its_width() -> None:
    model = catalog.model("mixtral-8x7b")
    assert model.experts is not None
    narrow = changed(model, vocabulary_size=8, experts=changed(model.experts, latent_size=1024))
    assert largest_product(narrow, plan_of(data=8, zero=3)) == 2 * 1024 * 14_336
