"""How long do the memory-bound operators of a layer take? Norms, residuals, rotary positions and activations.

Fused kernels read and write each tensor once. Per value of h, norms move 2 values and residual additions 3; positions move 2
for each value of queries and keys, and so do their norms; the activation moves one for each value that it reads or writes.
Backward, a norm reads its input and a gradient and writes one, gradients of residual stream and norm are added, and a gated
activation reads both inputs and the gradient of its output and writes two gradients. Where PyTorch launches each operator
separately, `simulator.layers.eager_operators` counts. Blocks that read the same input have one residual addition and one sum of
their results. With `checkpoints_norms`, a separate kernel makes a 32-bit copy of each norm's input, and one for its gradient;
norms and the residual additions before them are recomputed in the backward pass. Nomenclature as in `simulator.domain.model`.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import Recompute
from simulator.layers.connection_costs import connections_s
from simulator.layers.eager_operators import (
    GATED_ACTIVATION_BYTES,
    GATED_ACTIVATION_KERNELS,
    NORM_BYTES,
    NORM_KERNELS,
    ROTARY_BYTES,
    ROTARY_KERNELS,
    eager_bytes,
    is_counted,
    num_residual_sums,
)
from simulator.layers.host_time import (
    BACKWARD_RATIO,
    checkpoints_norms,
    num_forward_kernels,
    num_kernels_again,
)
from simulator.layout.expert_ranks import expert_load
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.layer_collectives import Directions, num_blocks

NORM_PASSES, NORM_BACKWARD_PASSES = 2.0, 3.0
"""Reads and writes of a fused norm; backward its input, the gradient of its output and the gradient of its input."""
SUM_PASSES = 3.0
"""Reads and writes of a residual addition, of a sum of two blocks, and backward of gradients of residual stream and norm."""
ROTARY_PASSES = 2.0
"""Reads and writes of rotary positions, in either direction."""
GATE_PASSES = 3.0
"""Reads and writes of a gated attention core: its output, the gate and their product."""
GATED_BACKWARD_PASSES = 5.0
"""Reads and writes of a gated activation backward: both inputs, the gradients of its output and of its inputs; forward 3."""


CAST_BYTES = 6.0
"""Bytes of a cast of one value between 16 and 32 bits."""
WIDER_BYTES = 2.0
"""Additional bytes that a norm reads per value in 32 bits."""


def moved_operators_s(rank: Rank, *, is_expert: bool) -> Directions:
    """Returns the time of a layer's norms, residuals, positions and activations, forward and backward.

    Hyper-connections take the place of residual additions.
    """
    num_kernels = num_forward_kernels(rank)
    forward_bytes = moved_bytes(rank, is_expert=is_expert)
    backward_bytes = moved_backward_bytes(rank, is_expert=is_expert)
    num_backward: Floats | float = BACKWARD_RATIO * num_kernels
    if checkpoints_norms(rank):
        casts, again_bytes = _cast_norm_bytes(rank), _norm_bytes_again(rank)
        forward_bytes, backward_bytes = forward_bytes + casts[0], backward_bytes + casts[1] + again_bytes
        num_backward = num_backward + num_kernels_again(rank)
    of_streams_s = connections_s(rank)
    return (
        operators_s(rank, forward_bytes, num_kernels) + of_streams_s[0],
        operators_s(rank, backward_bytes, num_backward) + of_streams_s[1],
    )


def _cast_norm_bytes(rank: Rank) -> Directions:
    """Additional bytes of norms with 32-bit inputs, forward and backward: their gradient, also in 32 bits, is cast back."""
    values = rank.workload.model.num_layer_norms * rank.split_tokens * rank.workload.model.hidden_size
    return (CAST_BYTES + WIDER_BYTES) * values, (CAST_BYTES + 2.0 * WIDER_BYTES) * values


def _norm_bytes_again(rank: Rank) -> Floats:
    """Bytes to recompute norms and the additions between them, unless the whole layer is recomputed."""
    model = rank.workload.model
    per_value = model.num_layer_norms * (NORM_PASSES * ACTIVATION_BYTES + CAST_BYTES + WIDER_BYTES)
    per_value += (model.num_layer_norms - 1.0) * SUM_PASSES * ACTIVATION_BYTES
    is_part = rank.plans.recompute != Recompute.FULL.code
    return np.asarray(is_part * per_value * rank.split_tokens * model.hidden_size)


def operators_s(rank: Rank, num_bytes: Floats, num_kernels: Floats | float) -> Floats:
    """Returns the time of memory-bound operators that move this number of bytes, `(n,)`."""
    is_plain = rank.workload.has_fused_operators or is_counted(rank)
    ratio = 1.0 if is_plain else rank.training.separate_operators_ratio
    return rank.memory_bound_s(ratio * num_bytes, num_kernels)


def moved_backward_bytes(rank: Rank, *, is_expert: bool) -> Floats:
    """Returns the bytes that these operators read and write backward.

    This is an explicit count for gated blocks of fused operators. Ungated blocks (GPT) have biases and dropout, whose masks and
    sums make backward twice forward. So do 32-bit copies where operators run one by one.
    """
    model = rank.workload.model
    if not _counts_backward(rank):
        return BACKWARD_RATIO * moved_bytes(rank, is_expert=is_expert)
    summed = 0.0 if model.hyper_connections else SUM_PASSES
    hidden = model.num_layer_norms * (NORM_BACKWARD_PASSES + summed) * rank.split_tokens * model.hidden_size
    heads = (ROTARY_PASSES + (NORM_BACKWARD_PASSES if model.qk_norm else 0.0)) * _head_values(rank)
    activated = rank.tokens * _activated_values(rank, is_expert=is_expert) / rank.plans.tensor_parallel
    activated = activated + _gate_values(rank)
    return np.asarray(ACTIVATION_BYTES * (hidden + heads + GATED_BACKWARD_PASSES * activated))


def _counts_backward(rank: Rank) -> bool:
    return rank.workload.has_fused_operators and rank.workload.model.is_gated


def moved_bytes(rank: Rank, *, is_expert: bool) -> Floats:
    """Returns the bytes that these operators read and write forward: norms and residual additions, positions, activations."""
    activated = _activated_values(rank, is_expert=is_expert)
    if is_counted(rank):
        return eager_bytes(rank, activated)
    model = rank.workload.model
    passes = NORM_PASSES * model.num_layer_norms + SUM_PASSES * num_residual_sums(model)
    residual = rank.split_tokens * passes * float(model.hidden_size)
    moved = ACTIVATION_BYTES * residual + rotary_bytes(rank) + activation_bytes(rank, activated)
    moved = moved + GATE_PASSES * ACTIVATION_BYTES * _gate_values(rank) if model.has_output_gate else moved
    return moved + NORM_PASSES * ACTIVATION_BYTES * _head_values(rank) if model.qk_norm else moved


def _activated_values(rank: Rank, *, is_expert: bool) -> Floats | float:
    return routed_values(rank) + shared_values(rank) if is_expert else dense_values(rank)


def block_sums_s(rank: Rank, *, is_expert: bool) -> Directions:
    """Returns the time to add attention and feed-forward block where both read the same input, forward and backward.

    Tensor-parallel ranks hold partial sums and add both results before they exchange them, and likewise the gradients of the
    shared norm's output (GPT-NeoX, `gpt_j_residual`). Experts return whole results where sequences are split.
    """
    is_partial = num_blocks(rank, is_expert=is_expert) > 1
    tokens = rank.tokens if is_partial else rank.split_tokens
    num_bytes = SUM_PASSES * ACTIVATION_BYTES * tokens * rank.workload.model.hidden_size
    sum_s = rank.memory_bound_s(num_bytes, 0.0)
    return sum_s, sum_s if rank.workload.model.num_layer_norms == 1 else np.zeros_like(sum_s)


def norm_bytes(rank: Rank) -> Floats:
    """Returns the bytes that one norm of the residual stream moves."""
    per_value = NORM_BYTES if is_counted(rank) else NORM_PASSES * ACTIVATION_BYTES
    return per_value * rank.split_tokens * rank.workload.model.hidden_size


def norm_backward_bytes(rank: Rank) -> Floats:
    """Returns the bytes that the backward pass of one norm of the residual stream moves."""
    if not _counts_backward(rank):
        return BACKWARD_RATIO * norm_bytes(rank)
    return NORM_BACKWARD_PASSES / NORM_PASSES * norm_bytes(rank)


def rotary_bytes(rank: Rank) -> Floats:
    """Returns the bytes that rotary positions move."""
    return (ROTARY_BYTES if is_counted(rank) else ROTARY_PASSES * ACTIVATION_BYTES) * _head_values(rank)


def rotary_again_bytes(rank: Rank) -> Floats:
    """Returns the bytes of the positions of queries and keys, those of outputs left out."""
    model, num_bytes = rank.workload.model, rotary_bytes(rank)
    if model.compressed_attention:
        return num_bytes * (model.num_heads + 1.0) / (2.0 * model.num_heads + 1.0)
    return num_bytes


def norm_kernels(rank: Rank) -> float:
    """Returns the launches of one norm."""
    return NORM_KERNELS if is_counted(rank) else 1.0


def rotary_kernels(rank: Rank) -> float:
    """Returns the launches of the positions of queries and keys."""
    return 2.0 * (ROTARY_KERNELS if is_counted(rank) else 1.0)


def activation_kernels(rank: Rank) -> float:
    """Returns the launches of an activation function."""
    return GATED_ACTIVATION_KERNELS if is_counted(rank) else 1.0


def _head_values(rank: Rank) -> Floats:
    """Values of queries and keys, mean over the layers of a hybrid.

    Compressed attention rotates a part of each head, of queries, of its key and of its output, in place.
    """
    model = rank.workload.model
    if compressed := model.compressed_attention:
        return rank.tokens * compressed.rope_head_dim * (2.0 * model.num_heads + 1.0)
    values = model.attention_share * model.attention_dims[0] * (model.num_heads + model.num_key_heads)
    return rank.tokens * values / rank.plans.tensor_parallel


def _gate_values(rank: Rank) -> Floats:
    """Values of the gates of the attention core, mean over the layers of a hybrid."""
    model = rank.workload.model
    return rank.tokens * model.attention_share * model.gate_width / rank.plans.tensor_parallel


def activation_bytes(rank: Rank, values: Floats | float) -> Floats:
    """Returns the bytes that an activation function moves for these values per token, over all tensor-parallel ranks."""
    matrices = rank.workload.model.num_ffn_matrices
    per_value = GATED_ACTIVATION_BYTES if is_counted(rank) else ACTIVATION_BYTES * matrices
    return rank.tokens * per_value * values / rank.plans.tensor_parallel


def dense_values(rank: Rank) -> float:
    """Returns the values per token between the products of an ordinary feed-forward block."""
    return float(rank.workload.model.ffn_hidden_size)


def routed_values(rank: Rank) -> Floats:
    """Returns the values per token between the products of all experts that it is routed to."""
    experts = rank.workload.model.experts
    assert experts is not None
    copies = expert_load(rank.workload, rank.plans) * experts.experts_per_token
    return np.asarray(copies * experts.expert_ffn_hidden_size)


def shared_values(rank: Rank) -> float:
    """Returns the values per token between the products of shared experts."""
    experts = rank.workload.model.experts
    assert experts is not None
    return float(experts.shared_ffn_hidden_size)
