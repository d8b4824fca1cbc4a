"""How many bytes do the small operators of a Llama block move, in how many launches, when PyTorch runs each separately?

The counts follow torchtitan's model of March 2025 (`models/norms.py`, `models/llama/model.py`). An operator reads and writes
whole tensors, at 2 bytes a value in 16 bits and 4 in 32:

    norm         to fp32 6, square 8, mean 4, product 8, back 6, weight 4        = 36 for each value of h, each norm; and of
                                                                                      queries and keys, with `qk_norm`
    residual     two reads and a write                                           = 6 for each value of h, each addition
    positions    to fp32 6, complex product 8, back 6                            = 20 for each value of queries and keys
    heads        keys and values, with `copies_shared_heads`                     = 2 (a + g) d each
    activation   SiLU 4, product 6                                               = 10 for each value of f
    gate         sigmoid 4, product 6, with `has_output_gate`                    = 10 for each value of the core

Each operator is a launch, including those on a single value of a token (epsilon and root of the mean): 8 for a norm, 1 for a
residual, 3 each for the positions of queries and of keys, 1 for each of two copies, 2 for the activation, 2 for the gate. The
block has seven matrix products: queries, keys, values, output, gate, into and out of the feed-forward block.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.model import ModelShape
from simulator.layout.kept_inputs import ACTIVATION_BYTES, runs_one_by_one
from simulator.machine.rank import Rank
from simulator.table import Floats

NORM_BYTES = 36.0
RESIDUAL_BYTES = 6.0
ROTARY_BYTES = 20.0
GATED_ACTIVATION_BYTES = 10.0
NORM_KERNELS = 8.0
RESIDUAL_KERNELS = 1.0
ROTARY_KERNELS = 3.0
COPY_KERNELS = 1.0
GATED_ACTIVATION_KERNELS = 2.0
NUM_SEPARATE_PRODUCTS, NUM_SEPARATE_OF_ATTENTION = 7.0, 4.0
"""Matrix products of a layer forward, none of which share a launch, and those of them in attention."""


def num_residual_sums(model: ModelShape) -> float:
    """Returns the additions of a layer to its residual; hyper-connections have none."""
    return 0.0 if model.hyper_connections else model.num_blocks_in_turn


def is_counted(rank: Rank) -> bool:
    """Returns whether operators run one by one in Llama-like blocks."""
    return runs_one_by_one(rank.workload)


def eager_kernels(rank: Rank) -> float:
    """Returns the number of small operators that one layer launches forward."""
    model = rank.workload.model
    blocks = NORM_KERNELS * model.num_layer_norms + RESIDUAL_KERNELS * num_residual_sums(model)
    copies = 2.0 * COPY_KERNELS if _copies_heads(rank) else 0.0
    heads = 2.0 * (ROTARY_KERNELS + (NORM_KERNELS if model.qk_norm else 0.0))
    gate = GATED_ACTIVATION_KERNELS if model.has_output_gate else 0.0
    return blocks + model.attention_share * (heads + copies + gate) + GATED_ACTIVATION_KERNELS


def eager_bytes(rank: Rank, activated: Floats | float) -> Floats:
    """Returns the bytes `(n,)` that the small operators of one layer read and write forward.

    Args:
        rank: Ranks of the designs.
        activated: Values of a token that the activation works on, of all tensor-parallel ranks.
    """
    model, t = rank.workload.model, rank.plans.tensor_parallel
    norms, residuals = NORM_BYTES * model.num_layer_norms, RESIDUAL_BYTES * num_residual_sums(model)
    hidden = (norms + residuals) * model.hidden_size
    values = model.attention_dims[0] * (model.num_heads + model.num_key_heads)
    rotary = (ROTARY_BYTES + (NORM_BYTES if model.qk_norm else 0.0)) * values
    copied = 2.0 * ACTIVATION_BYTES * values if _copies_heads(rank) else 0.0
    gate = GATED_ACTIVATION_BYTES * model.gate_width
    split = model.attention_share * (rotary + copied + gate) + GATED_ACTIVATION_BYTES * activated
    return np.asarray(rank.split_tokens * hidden + rank.tokens * split / t)


def _copies_heads(rank: Rank) -> bool:
    workload = rank.workload
    return workload.copies_shared_heads and workload.model.num_key_heads < workload.model.num_heads
