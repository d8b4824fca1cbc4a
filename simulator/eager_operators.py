"""How much do the small operators of a block of Llama move where PyTorch launches each on its own, in eager mode?

The bytes of torchtitan's model of March 2025 (`models/norms.py`, `models/llama/model.py`), an operator reading and writing
whole tensors, 2 bytes a value in 16 bits and 4 in 32:

    norm         to fp32 6, square 8, mean 4, product 8, back 6, weight 4        = 36 for each value of h, each norm
    residual     two reads and a write                                           = 6 for each value of h, each addition
    positions    to fp32 6, complex product 8, back 6                            = 20 for each value of queries and keys
    heads        keys and values, with `copies_shared_heads`                     = 2 (a + g) d each
    activation   SiLU 4, product 6                                               = 10 for each value of f
"""

from __future__ import annotations

import numpy as np

from simulator.activations import ACTIVATION_BYTES
from simulator.rank import Rank
from simulator.table import Floats

NORM_BYTES = 36.0
RESIDUAL_BYTES = 6.0
ROTARY_BYTES = 20.0
GATED_ACTIVATION_BYTES = 10.0
NUM_GATED_MATRICES = 3
"""Matrices of a feed-forward block like Llama's, whose blocks have norms of root mean squares and rotary positions, too."""


def is_counted(rank: Rank) -> bool:
    """Returns whether the operators run one by one in blocks like those of Llama."""
    model = rank.workload.model
    return not rank.workload.has_fused_operators and model.num_ffn_matrices == NUM_GATED_MATRICES


def eager_bytes(rank: Rank, activated: Floats | float) -> Floats:
    """Returns the bytes `(n,)` that the operators of one layer read and write forward.

    Args:
        rank: Ranks of the designs.
        activated: Values of a token that the activation works on, of all tensor-parallel ranks.
    """
    workload, t = rank.workload, rank.plans.tensor_parallel
    model = workload.model
    norms, residuals = NORM_BYTES * model.num_layer_norms, RESIDUAL_BYTES * model.num_blocks_in_turn
    hidden = (norms + residuals) * model.hidden_size
    heads = model.num_heads + model.num_kv_heads
    rotary = ROTARY_BYTES * model.head_dim * heads
    is_copied = workload.copies_shared_heads and model.num_kv_heads < model.num_heads
    copied = 2.0 * ACTIVATION_BYTES * model.head_dim * heads if is_copied else 0.0
    split = rotary + copied + GATED_ACTIVATION_BYTES * activated
    return np.asarray(rank.split_tokens * hidden + rank.tokens * split / t)
