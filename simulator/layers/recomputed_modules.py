"""How long does selective recomputation of modules take, and which traffic does it repeat?

A module repeats the products and memory-bound operators of its forward pass (`simulator.domain.recompute_modules`). An ordinary
checkpoint of a whole block also repeats its collectives, and for experts the token exchange; low-rank adapters are recomputed
with their products. A checkpoint of the attention core repeats the exchanges of context-parallel ranks
(`_checkpointed_attention_forward` of Megatron Core).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.domain.lora import FEED_FORWARD_PRODUCTS
from simulator.domain.plan import Recompute
from simulator.layers.adapter_costs import adapters_s
from simulator.layers.attention_costs import up_projections_s
from simulator.layers.compressed_costs import norms_again_s
from simulator.layers.connection_costs import connections_again_s
from simulator.layers.moved_operators import (
    activation_bytes,
    activation_kernels,
    dense_values,
    norm_bytes,
    norm_kernels,
    operators_s,
    rotary_again_bytes,
    rotary_kernels,
    routed_values,
    shared_values,
)
from simulator.machine.rank import Rank
from simulator.table import Booleans, Floats, total
from simulator.traffic.layer_collectives import Directions, num_blocks

SHARED_EXPERTS = "shared experts"
"""Name of the operators that may hide expert traffic."""


def modules_s(rank: Rank, core_s: Floats, block: Mapping[str, Directions], *, is_expert: bool) -> Floats:
    """Returns the computation of a layer that its recomputed modules repeat, `(n,)`.

    Args:
        rank: Ranks of the designs.
        core_s: The attention core forward, with the slowdown of a power cap.
        block: Operators of the second block by name, likewise.
        is_expert: Whether the layer has experts.
    """
    products_s = _attention_products_s(rank) * rank.compute_slowdown
    block_s = _block_products_s(rank, block, is_expert=is_expert)
    modules = rank.workload.modules_again
    core_again_s = core_s if "core_attn" in modules else 0.0
    has_block = not is_expert and "mlp" in modules
    adapters_again_s = adapters_s(rank, FEED_FORWARD_PRODUCTS)[0] if has_block else 0.0
    moved_again_s = _moved_again_s(rank, is_expert=is_expert)
    return core_again_s + products_s + block_s + moved_again_s + adapters_again_s


def repeats_block(rank: Rank, *, is_expert: bool) -> Booleans:
    """Returns where recomputed modules repeat the collectives of the second block, `(n,)`."""
    modules = {"moe", "shared_experts"} if is_expert else {"mlp"}
    is_again = not modules.isdisjoint(rank.workload.modules_again)
    return _is_selective(rank) & (is_again and num_blocks(rank, is_expert=is_expert) > 1)


def repeats_core(rank: Rank) -> Booleans:
    """Returns where they repeat the attention core, with the exchanges of context-parallel ranks around it, `(n,)`."""
    return _is_selective(rank) & ("core_attn" in rank.workload.modules_again)


def repeats_exchange(rank: Rank) -> Booleans:
    """Returns where they repeat the token exchange of experts, `(n,)`."""
    return _is_selective(rank) & ("moe" in rank.workload.modules_again)


def _is_selective(rank: Rank) -> Booleans:
    return np.asarray(rank.plans.recompute == Recompute.SELECTIVE.code)


def _attention_products_s(rank: Rank) -> Floats:
    none_s = np.zeros(len(rank.plans))
    if "mla_up_proj" not in rank.workload.modules_again:
        return none_s
    return none_s + rank.workload.model.attention_share * total(
        forward_s for forward_s, _ in up_projections_s(rank)
    )


def _block_products_s(rank: Rank, block: Mapping[str, Directions], *, is_expert: bool) -> Floats:
    modules, none_s = rank.workload.modules_again, np.zeros(len(rank.plans))
    if ("moe" if is_expert else "mlp") in modules:
        return total(forward_s for forward_s, _ in block.values())
    if is_expert and "shared_experts" in modules and SHARED_EXPERTS in block:
        return block[SHARED_EXPERTS][0]
    return none_s


def _moved_again_s(rank: Rank, *, is_expert: bool) -> Floats:
    """Memory-bound operators of a layer that are recomputed, `(n,)`."""
    modules, model = rank.workload.modules_again, rank.workload.model
    repeats_norms = bool({"layernorm", "mhc"} & modules)
    num_norms = float(model.has_separate_norms and repeats_norms) * model.num_mixers
    num_norms += float(repeats_norms if is_expert else "mlp" in modules)
    activated = _activated_again(rank, is_expert=is_expert)
    num_bytes = num_norms * norm_bytes(rank) + activation_bytes(rank, activated)
    num_kernels = num_norms * norm_kernels(rank) + np.any(activated) * activation_kernels(rank)
    if "mla_up_proj" in modules:
        num_bytes = num_bytes + rotary_again_bytes(rank)
        num_kernels = num_kernels + model.attention_share * rotary_kernels(rank)
    of_heads_s = norms_again_s(rank) if model.compressed_attention and "mla_up_proj" in modules else 0.0
    return operators_s(rank, num_bytes, num_kernels) + connections_again_s(rank) + of_heads_s


def _activated_again(rank: Rank, *, is_expert: bool) -> Floats | float:
    """Values per token whose activation function is recomputed."""
    modules = rank.workload.modules_again
    if not is_expert:
        return dense_values(rank) if "mlp" in modules else 0.0
    routed = routed_values(rank) if {"moe", "moe_act"} & modules else 0.0
    return routed + (shared_values(rank) if {"moe", "shared_experts"} & modules else 0.0)
