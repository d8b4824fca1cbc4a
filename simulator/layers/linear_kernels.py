"""Which kernels does a block with linear attention run between its products, and what does each read, write and compute?

Kernels work on chunks of Q tokens: products within a chunk, and a state of d x n values for each head that is passed on from
chunk to chunk. Counts are per token over all heads, 2 bytes a value unless it is kept in 32 bits. Nomenclature as in
`simulator.domain.linear_attention`, and S = v n values of all states.

    Mamba-2          `mamba_split_conv1d_scan_combined` of mamba_ssm (2.2) as Megatron Core calls it, with the gate and without
                     the norm behind it: the backward pass repeats the convolution, C B^T and the states, of which the forward
                     pass keeps nothing
    gated delta net  `chunk_gated_delta_rule` of Flash Linear Attention (2026) and what Megatron Core does around it: queries
                     and keys are normalized and copied to all heads; the backward pass repeats W, U and the states
    Kimi Delta       `chunk_kda` of Flash Linear Attention and its layer: queries, keys and values have products of their own,
                     which are not copied; gradients of queries, keys and decays are in 32 bits until the last kernel

Operations are those of the blocks of a chunk that a mask does not hide whole. Solving the triangular system of a chunk is not
counted, and neither is that states are passed on one chunk after the other.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.domain.linear_attention import LinearAttention
from simulator.table import Floats

Count = Floats | float
"""A number for all designs, or one for each, `(n,)`."""
SMALL_BYTES = 6.0
"""What a small kernel moves for each head: a value in 16 bits and one in 32."""
NUM_SMALL_OF_MAMBA_2, NUM_SMALL_OF_GATED_DELTA, NUM_SMALL_OF_KIMI_DELTA = 26, 6, 8
"""Kernels of the backward pass that clear, copy, sum up or order a few values a head: of steps, decays and weights."""


class Kernel(NamedTuple):
    """One kernel, per token over all heads of a block."""

    num_bytes: Count
    """Bytes that it reads and writes."""
    flop: Count = 0.0
    """Operations in matrix products."""


class ScanKernels(NamedTuple):
    """Kernels between the products of a block."""

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    small: Kernel
    """One of those of the backward pass that move a few values a head."""
    num_small: int
    """How many of these there are; autograd launches them without a module of Python each."""


def scan_kernels(linear: LinearAttention, key_heads: Count | None = None) -> ScanKernels:
    """Returns the kernels of a block, from the convolution to the gated norm.

    Args:
        linear: The block.
        key_heads: Heads of keys over all ranks where ranks have copies of the same keys; left out: those of the block.
    """
    groups = float(linear.num_key_heads) if key_heads is None else key_heads
    small = Kernel(SMALL_BYTES * linear.num_heads)
    match linear.kind:
        case "mamba-2":
            return ScanKernels(*_mamba_2(linear, groups), small, NUM_SMALL_OF_MAMBA_2)
        case "gated-delta-net":
            return ScanKernels(*_gated_delta(linear, groups), small, NUM_SMALL_OF_GATED_DELTA)
        case "kimi-delta":
            return ScanKernels(*_kimi_delta(linear, groups), small, NUM_SMALL_OF_KIMI_DELTA)


def transposed_widths(linear: LinearAttention, key_heads: Count) -> tuple[Count, Count]:
    """Returns the values a token that are put in the order of sequences, forward and backward, where there are several.

    Megatron Core orders tokens by their place in the sequence, kernels by their sequence. Mamba-2 copies what enters, the
    output and the gradient of what enters (`_ssm_training`), the gated delta rule the output and that gradient. Flash Linear
    Attention's layers order tokens as their kernels do.
    """
    entering = linear.entering_width_with(key_heads)
    match linear.kind:
        case "mamba-2":
            return entering + linear.value_width, entering
        case "gated-delta-net":
            return float(linear.value_width), entering
        case "kimi-delta":
            return 0.0, 0.0


_Directions = tuple[tuple[Kernel, ...], tuple[Kernel, ...]]


def _mamba_2(linear: LinearAttention, groups: Count) -> _Directions:
    v, heads, q = float(linear.value_width), linear.num_heads, linear.chunk_length
    k = groups * linear.key_head_dim
    state, states = float(linear.state_width), linear.state_width / q
    products = groups * q
    """Values of C B^T, in 32 bits."""
    steps = 8.0 * heads
    """Bytes of dt and its sums, in 32 bits."""
    convolved = v + 2.0 * k
    convolution, sums = Kernel(4.0 * convolved), Kernel(2.0 * heads + steps)
    chunk_states = Kernel(2.0 * (v + k) + steps + 4.0 * states, 2.0 * state)
    chunk_products = Kernel(4.0 * (k + products), 2.0 * q * k)
    of_pairs = Kernel(4.0 * (v + products), q * v)
    of_keys, of_parts = Kernel(2.0 * v + 6.0 * k + 2.0 * states, 2.0 * state), Kernel(8.0 * k)
    from_products = Kernel(8.0 * k + 4.0 * products, 2.0 * q * k)
    forward = (
        convolution,
        sums,
        chunk_states,
        Kernel(6.0 * states),  # passed on, to 16 bits
        chunk_products,
        Kernel(8.0 * v + 4.0 * products + 2.0 * k + steps + 2.0 * states, 2.0 * state + q * v),
        Kernel(4.0 * v),
    )
    backward = (
        Kernel(6.0 * v),
        convolution,
        sums,
        chunk_products,
        chunk_states,
        Kernel(8.0 * states),  # passed on again, in 32 bits
        Kernel(12.0 * v),  # of the gate and of the scan's output
        Kernel(2.0 * (v + k) + 4.0 * states, 2.0 * state),
        Kernel(12.0 * states),
        Kernel(6.0 * v + 2.0 * k + 4.0 * products + 2.0 * states, 2.0 * state + q * v),
        *2 * (of_keys, of_parts),
        of_pairs,
        Kernel(8.0 * products),
        of_pairs,
        *2 * (from_products,),
        Kernel(6.0 * convolved),
    )
    return forward, backward


def _gated_delta(linear: LinearAttention, groups: Count) -> _Directions:
    v, heads, q = float(linear.value_width), linear.num_heads, linear.chunk_length
    k = groups * linear.key_head_dim
    wide = float(heads * linear.key_head_dim)
    """Values of keys that are copied to all heads."""
    state, states, pairs, decays = (
        float(linear.state_width),
        linear.state_width / q,
        2.0 * heads * q,
        4.0 * heads,
    )
    convolved, widths = v + 2.0 * k, wide + v
    convolution, copies = Kernel(4.0 * convolved), Kernel(4.0 * (k + wide))
    w_and_u = Kernel(4.0 * widths + pairs + decays, 2.0 * q * widths)
    passing = Kernel(4.0 * widths + 2.0 * states, 4.0 * state)
    forward = (
        convolution,
        Kernel(8.0 * k),  # queries and keys in one piece
        Kernel(8.0 * k),
        Kernel(copies.num_bytes + 8.0 * v),
        Kernel(10.0 * heads),
        Kernel(2.0 * decays),
        Kernel(pairs),  # A cleared
        Kernel(2.0 * wide + pairs + decays, 2.0 * q * wide),
        w_and_u,
        passing,
        Kernel(4.0 * widths + 2.0 * states + decays, 2.0 * state + 2.0 * q * widths),
        Kernel(4.0 * v),
        Kernel(6.0 * v),
    )
    backward = (
        Kernel(10.0 * v),
        Kernel(6.0 * v),
        w_and_u,
        passing,
        Kernel(4.0 * widths, 2.0 * q * widths),
        Kernel(6.0 * widths + 2.0 * states + decays, 6.0 * state),
        Kernel(10.0 * wide + 6.0 * v + 4.0 * states + 2.0 * decays, 6.0 * state + 2.0 * q * (widths + wide)),
        Kernel(6.0 * widths + pairs + 2.0 * decays, 4.0 * q * widths + 2.0 * q * wide),
        Kernel(6.0 * wide),
        Kernel(2.0 * decays),
        copies,
        Kernel(12.0 * k),
        convolution,  # gradients of queries, keys and values put together
        convolution,
        Kernel(8.0 * convolved),
        Kernel(4.0 * (convolved + v)),  # the same with those of the gate
    )
    return forward, backward


def _kimi_delta(linear: LinearAttention, groups: Count) -> _Directions:
    v, heads, q = float(linear.value_width), linear.num_heads, linear.chunk_length
    k, wide = groups * linear.key_head_dim, float(heads * linear.key_head_dim)
    state, states, pairs, decays = (
        float(linear.state_width),
        linear.state_width / q,
        2.0 * heads * q,
        4.0 * wide,
    )
    convolved, widths = v + 2.0 * k, wide + v
    convolution, gates = Kernel(4.0 * convolved), Kernel(1.5 * decays)
    passing = Kernel(4.0 * widths + 2.0 * states, 4.0 * state)
    forward = (
        convolution,
        Kernel(8.0 * k),
        gates,
        Kernel(4.0 * wide + decays + 0.75 * pairs, q * wide),  # the diagonals of Q K^T and K K^T
        Kernel(pairs),  # A cleared
        Kernel(4.0 * wide + decays + 1.5 * pairs, 2.0 * q * wide),
        Kernel(6.0 * wide + 4.0 * v + pairs + decays, 2.0 * q * widths),
        passing,
        Kernel(2.0 * v),  # the output cleared
        Kernel(2.0 * wide + 4.0 * v + pairs + 2.0 * states + decays, 2.0 * state + 2.0 * q * v),
        Kernel(6.0 * v),
    )
    backward = (
        Kernel(10.0 * v),
        gates,
        Kernel(10.0 * wide + 4.0 * v + pairs + decays, 2.0 * q * widths),
        passing,
        Kernel(6.0 * v + 3.0 * pairs, 4.0 * q * v),
        Kernel(6.0 * widths + 2.0 * states, 6.0 * state),
        Kernel(
            12.0 * wide + 10.0 * v + 3.0 * pairs + 4.0 * states + 2.0 * decays, 6.0 * state + 4.0 * q * widths
        ),
        Kernel(20.0 * wide + 4.0 * pairs + 3.0 * decays, 4.0 * q * wide),
        Kernel(2.0 * decays),
        Kernel(2.5 * decays),
        Kernel(1.5 * decays),
        Kernel(0.5 * decays),
        Kernel(16.0 * k),
        convolution,
        Kernel(8.0 * convolved),
    )
    return forward, backward
