"""How long do the adapters of a layer take, forward and backward? Each has two thin products, a scaling and an addition.

Adapters are split like the products that they adapt (`simulator.traffic.adapter_exchange`). Of A (k x r) and B (r x n) a rank
has

    outputs split     A (k, r/t) and B (r, n/t), whose result is scaled and added up for all T tokens
    inputs split      A (k/t, r) and B (r, n/t), whose result is scaled and added up for the tokens of a rank with sequence
                      parallelism

With several ranks, gathered results arrive rank by rank and are copied into order; an all-to-all needs a copy of its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.domain.lora import SPLIT_OUTPUTS, AdaptedProduct, product_sizes
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.rank import Rank
from simulator.table import Floats, total
from simulator.traffic.adapter_exchange import exchanges
from simulator.traffic.layer_collectives import Directions

SCALE_PASSES = 2.0
"""Reads the result and writes it scaled; backward the same for its gradient (`x * (alpha / dim)` after B)."""
ADDED_PASSES = 3.0
"""Reads both results and writes their sum."""
COPY_PASSES = 2.0
"""A read and a write of what is copied into order."""
NUM_ADAPTER_KERNELS = 2.0
"""Launches of the scaling and the addition, in each direction."""

Copies = tuple[Floats | float, Floats | float]
"""Values of each copy, and how many there are."""
NO_COPIES: tuple[Copies, Copies] = ((0.0, 0.0), (0.0, 0.0))


def adapters_s(rank: Rank, products: tuple[AdaptedProduct, ...] = tuple(AdaptedProduct)) -> Directions:
    """Returns the time of these products' adapters, `(n,)` each; backward with the gradients of inputs and weights."""
    times_s = [_adapter_s(rank, product) for product in products if rank.is_adapted(product)]
    none_s = np.zeros(len(rank.plans))
    return (
        total([none_s, *(forward_s for forward_s, _ in times_s)]),
        total([none_s, *(backward_s for _, backward_s in times_s)]),
    )


def _adapter_s(rank: Rank, product: AdaptedProduct) -> Directions:
    assert rank.workload.lora is not None
    t, size = rank.plans.tensor_parallel, float(rank.workload.lora.rank)
    inner, output = (float(each) for each in product_sizes(rank.workload.model, product))
    is_entering = product in SPLIT_OUTPUTS
    own_inner = np.full(len(t), inner) if is_entering else inner / t
    own_rank = np.maximum(size / t, 1.0) if is_entering else np.full(len(t), size)
    trained = replace(rank.in_16_bits, workload=rank.workload.model_copy(update={"lora": None}))
    down_s = trained.gemm_s(rank.tokens, own_rank, own_inner)
    up_s = trained.gemm_s(rank.tokens, output / t, np.full(len(t), size))
    scaled = rank.tokens * output / t if is_entering else rank.split_tokens * output
    copies = NO_COPIES if is_entering else _copies(rank, output)
    return (
        (down_s[0] + up_s[0]) * rank.compute_slowdown
        + _moved_s(rank, (SCALE_PASSES + ADDED_PASSES) * scaled, copies[0]),
        (down_s[1] + up_s[1]) * rank.compute_slowdown
        + _moved_s(rank, SCALE_PASSES * scaled + ADDED_PASSES * rank.tokens * own_inner, copies[1]),
    )


def _copies(rank: Rank, output: float) -> tuple[Copies, Copies]:
    """What of results is copied around their exchange, forward and backward.

    Forward a gather brings parts of rows, which are copied in order; backward a rank copies its part. An all-to-all has its own
    part copied behind it, backward on either side.
    """
    num = (rank.plans.tensor_parallel > 1).astype(np.float64)
    whole = rank.tokens * output
    part = whole / rank.plans.tensor_parallel
    return ((part, num), (part, 2.0 * num)) if exchanges(rank) else ((whole, num), (part, num))


def _moved_s(rank: Rank, moved: Floats, copies: Copies) -> Floats:
    """Memory-bound operators over so many values, counted once for each read and write, and copies of others."""
    values, num = copies
    num_bytes = ACTIVATION_BYTES * (moved + COPY_PASSES * num * values)
    return rank.memory_bound_s(num_bytes, NUM_ADAPTER_KERNELS + num)
