"""What does a block with linear attention keep for its backward pass, and what does it work with then? Bytes per token.

Tensors are in 16 bits, decays and steps in 32. Nomenclature as in `simulator.layers.linear_kernels`.

    Mamba-2          what enters the block, the output of its scan before the gate (`MambaSplitConv1dScanCombinedFn` of
                     mamba_ssm, which repeats the rest) and behind it, the input of the norm (Megatron Core, `_ssm_training`)
    gated delta net  what enters, of which the convolution keeps a view; queries and keys behind their norms and copied to all
                     heads, values, decays and the triangle A of every chunk (`ChunkGatedDeltaRuleFunction` of Flash Linear
                     Attention); the output, its norm and the gate beside it (`gated_delta_net` of Megatron Core)
    Kimi Delta       what enters; queries and keys behind their norms, values, Q K^T and A of every chunk; what makes the
                     decays, which are computed again (`ChunkKDAFunction`); the output and its gate (`FusedRMSNormGated`)

The product out of the block keeps the output of the gated norm, and products from a low rank, whole on every rank, their input.
"""

from __future__ import annotations

from simulator.domain.linear_attention import LinearAttention
from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES
from simulator.table import Floats


def kept_width(linear: LinearAttention, key_heads: Floats | float) -> Floats | float:
    """Returns the bytes per token over all ranks that a block keeps, beside inputs of products behind the scan or a low rank.

    Args:
        linear: The block.
        key_heads: Heads of keys over all ranks, copies included.
    """
    v, heads, chunk = linear.value_width, linear.num_heads, linear.chunk_length
    k, wide = linear.key_head_dim * key_heads, heads * linear.key_head_dim
    entering = linear.entering_width_with(key_heads)
    match linear.kind:
        case "mamba-2":
            return ACTIVATION_BYTES * (entering + 2 * v)
        case "gated-delta-net":
            in_16_bits = entering + 2.0 * k + 2 * wide + 4 * v + heads * chunk + heads
            return ACTIVATION_BYTES * in_16_bits + WIDE_BYTES * heads
        case "kimi-delta":
            made = linear.raised_width + 2.0 * k + 2 * v + 2 * heads * chunk + heads
            return ACTIVATION_BYTES * (entering + made)


def working_width(linear: LinearAttention, key_heads: Floats | float) -> Floats | float:
    """Returns the bytes per token over all ranks that the backward pass of a block needs in addition, at most at once.

    Args:
        linear: The block.
        key_heads: Heads of keys over all ranks, copies included.
    """
    v, heads, chunk = linear.value_width, linear.num_heads, linear.chunk_length
    k, wide = linear.key_head_dim * key_heads, heads * linear.key_head_dim
    states, pairs = linear.state_width / chunk, heads * chunk
    match linear.kind:
        case "mamba-2":
            # As states are passed back: they and their gradients in 32 bits and in 16, C B^T, steps.
            entering = linear.entering_width_with(key_heads)
            in_16_bits = entering + 2.0 * (v + 2.0 * k) + 2 * v + 2 * states
            in_32_bits = 2 * states + key_heads * chunk + 3 * heads
        case "gated-delta-net":
            # W, U, values and states again; gradients of these, queries, keys, the output and its gate.
            in_16_bits, in_32_bits = 5 * wide + 6 * v + 2 * states, 0.0
        case "kimi-delta":
            # The same; decays; gradients of queries, keys and decays twice, of Q K^T and of A in 32 bits.
            in_16_bits, in_32_bits = 3 * wide + 5 * v + 2 * states, 7 * wide + 2 * pairs
    return ACTIVATION_BYTES * in_16_bits + WIDE_BYTES * in_32_bits
