"""How long do the adapters of a layer take, forward and backward? Two thin products each, and an addition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.kept_inputs import ACTIVATION_BYTES
from simulator.layer_collectives import Directions
from simulator.lora import AdaptedProduct, Lora, product_sizes
from simulator.rank import Rank
from simulator.table import Floats, total

ADDED_PASSES = 3.0
"""Reads of both results and a write of their sum."""
NUM_ADAPTER_KERNELS = 1.0
"""Launches of the addition, each direction."""
SPLIT_OUTPUTS = (AdaptedProduct.QKV, AdaptedProduct.FC1)
"""Products whose outputs tensor parallelism splits; of the others it splits the inputs (Megatron-LM)."""


def adapters_s(rank: Rank, lora: Lora) -> Directions:
    """Returns what the adapters of a layer add, `(n,)` each: forward, and gradients of inputs and weights backward.

    Every rank computes all of the small side, which is what Megatron Core's gathers amount to.
    """
    times_s = [_adapter_s(rank, lora.rank, product) for product in lora.targets]
    return total(forward_s for forward_s, _ in times_s), total(backward_s for _, backward_s in times_s)


def _adapter_s(rank: Rank, size: int, product: AdaptedProduct) -> Directions:
    inner, output = (
        np.full(len(rank.plans), float(each)) for each in product_sizes(rank.workload.model, product)
    )
    if product in SPLIT_OUTPUTS:
        output = output / rank.plans.tensor_parallel
    else:
        inner = inner / rank.plans.tensor_parallel
    small = np.full_like(inner, float(size))
    trained = replace(rank.in_16_bits, workload=rank.workload.model_copy(update={"lora": None}))
    down_s = trained.gemm_s(rank.tokens, small, inner)
    up_s = trained.gemm_s(rank.tokens, output, small)
    return (
        (down_s[0] + up_s[0]) * rank.compute_slowdown + _added_s(rank, output),
        (down_s[1] + up_s[1]) * rank.compute_slowdown + _added_s(rank, inner),
    )


def _added_s(rank: Rank, width: Floats) -> Floats:
    num_bytes = ADDED_PASSES * ACTIVATION_BYTES * rank.tokens * width
    return rank.memory_bound_s(num_bytes, NUM_ADAPTER_KERNELS)
