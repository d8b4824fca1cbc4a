"""What does a block with linear attention keep for its backward pass, and what does it work with then? Bytes per token.

Tensors are in 16 bits, decays and steps in 32. Mamba-2 keeps what enters the block and the output of its scan, and repeats the
rest (`MambaSplitConv1dScanCombinedFn` of mamba_ssm). Delta rules keep what enters, the input of the convolution in the order of
the kernels, queries and keys before and after their norms, the values, the triangle A of every chunk, and the output
(`ChunkGatedDeltaRuleFunction` of Flash Linear Attention, in `gated_delta_net` of Megatron Core). The product out of the block
keeps the output of the gated norm. Nomenclature as in `simulator.layers.linear_kernels`.
"""

from __future__ import annotations

from functools import lru_cache

from simulator.domain.linear_attention import LinearAttention
from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES


@lru_cache(maxsize=64)
def kept_width(linear: LinearAttention) -> float:
    """Returns the bytes per token over all ranks that a block keeps, without the input of the product out of it."""
    v, k, heads = linear.value_width, linear.key_width, linear.num_heads
    entering = linear.entering_width + 2 * linear.low_rank + linear.raised_width
    if linear.kind == "mamba-2":
        return ACTIVATION_BYTES * (entering + v)
    wide, triangle = heads * linear.key_head_dim, heads * linear.chunk_length
    decays = wide if linear.kind == "kimi-delta" else heads
    in_16_bits = entering + linear.convolved_width + 2 * k + 2 * wide + v + triangle + v + heads
    return ACTIVATION_BYTES * in_16_bits + WIDE_BYTES * decays


@lru_cache(maxsize=64)
def working_width(linear: LinearAttention) -> float:
    """Returns the bytes per token over all ranks that the backward pass of a block needs in addition, at most at once."""
    v, k, heads = linear.value_width, linear.key_width, linear.num_heads
    gradients = linear.entering_width + linear.convolved_width
    states = linear.state_width / linear.chunk_length
    if (
        linear.kind == "mamba-2"
    ):  # the convolution again; states and their gradients; C B^T and its gradient; keys
        products = 2 * linear.num_key_heads * linear.chunk_length
        in_32_bits = states + products + 2 * k + 3 * heads
        return (
            ACTIVATION_BYTES * (gradients + linear.convolved_width + v + 2 * states) + WIDE_BYTES * in_32_bits
        )
    wide = (
        heads * linear.key_head_dim
    )  # W, U, states and values again; gradients of these, of queries, keys and values
    again = wide + 2 * v + states
    return ACTIVATION_BYTES * (gradients + again + 4 * wide + 3 * v + states)
