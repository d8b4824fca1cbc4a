"""Which kernels does a block with linear attention run between its products, and what does each read, write and compute?

Kernels work on chunks of Q tokens: products within a chunk, and a state of d x n values for each head that is passed on from
chunk to chunk. Counts are per token over all heads, 2 bytes a value unless it is kept in 32 bits. Nomenclature as in
`simulator.domain.linear_attention`, and S = v n values of all states.

    Mamba-2          `mamba_split_conv1d_scan_combined` of mamba_ssm (2.2): the backward pass repeats the convolution, C B^T and
                     the states, of which the forward pass keeps nothing
    delta rules      `chunk_gated_delta_rule`, `chunk_kda` of Flash Linear Attention (2026) and what Megatron Core does around
                     it: queries and keys are normalized and copied to all heads; the backward pass repeats W, U and the states

Operations are those of the blocks of a chunk that a mask does not hide whole. Solving the triangular system of a chunk is not
counted, and neither is that states are passed on one chunk after the other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from simulator.domain.linear_attention import LinearAttention


class Kernel(NamedTuple):
    """One kernel, per token over all heads of a block."""

    num_bytes: float
    """Bytes that it reads and writes."""
    flop: float = 0.0
    """Operations in matrix products."""


class ScanKernels(NamedTuple):
    """Kernels between the products of a block."""

    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]


@lru_cache(maxsize=64)
def scan_kernels(linear: LinearAttention) -> ScanKernels:
    """Returns the kernels of a block, from the convolution to the gated norm."""
    return _mamba_2(linear) if linear.kind == "mamba-2" else _delta_rule(linear)


def _mamba_2(linear: LinearAttention) -> ScanKernels:
    v, k, heads, q = linear.value_width, linear.key_width, linear.num_heads, linear.chunk_length
    state, states = float(linear.state_width), linear.state_width / q
    products = float(linear.num_key_heads * q)
    """Values of C B^T, in 32 bits."""
    steps = 8.0 * heads
    """Bytes of dt and its sums, in 32 bits."""
    convolution, sums = Kernel(4.0 * linear.convolved_width), Kernel(2.0 * heads + steps)
    chunk_states = Kernel(2.0 * (v + k) + steps + 4.0 * states, 2.0 * state)
    passing = Kernel(6.0 * states)
    chunk_products = Kernel(4.0 * (k + products), 2.0 * q * k)
    again = (convolution, sums, chunk_products, chunk_states, passing)
    of_pairs = Kernel(4.0 * (v + products), float(q * v))
    of_keys = Kernel(2.0 * v + 6.0 * k + 2.0 * states, 2.0 * state)
    return ScanKernels(
        forward=(
            convolution,
            sums,
            chunk_states,
            passing,
            chunk_products,
            Kernel(4.0 * (v + products) + 2.0 * k + steps + 2.0 * states, 2.0 * state + q * v),
            Kernel(6.0 * v),
        ),
        backward=(
            Kernel(10.0 * v),
            *again,
            Kernel(2.0 * (v + k + states), 2.0 * state),
            Kernel(8.0 * states),
            Kernel(6.0 * v + 2.0 * k + 4.0 * products + 2.0 * states, 2.0 * state + q * v),
            of_keys,
            of_keys,
            of_pairs,
            *2 * (Kernel(8.0 * k + 4.0 * products, 2.0 * q * k),),
            of_pairs,
            Kernel(6.0 * linear.convolved_width),
        ),
    )


def _delta_rule(linear: LinearAttention) -> ScanKernels:
    v, k, heads, q = linear.value_width, linear.key_width, linear.num_heads, linear.chunk_length
    wide = float(heads * linear.key_head_dim)
    """Values of keys that are copied to all heads."""
    state, states, pairs = float(linear.state_width), linear.state_width / q, 2.0 * heads * q
    decays = 4.0 * wide if linear.kind == "kimi-delta" else 4.0 * heads
    """Bytes of decays, in 32 bits."""
    convolution, widths = Kernel(4.0 * linear.convolved_width), wide + v
    copied = (Kernel(8.0 * k), Kernel(4.0 * (k + wide) + 8.0 * v))
    w_and_u = Kernel(4.0 * widths + pairs + decays, 2.0 * q * widths)
    passing = Kernel(4.0 * wide + 4.0 * v + 2.0 * states, 4.0 * state)
    return ScanKernels(
        forward=(
            convolution,  # a copy in the order of the kernels
            convolution,
            *copied,
            Kernel(1.5 * decays),
            Kernel(2.0 * wide + pairs + decays, 2.0 * q * wide),
            w_and_u,
            passing,
            Kernel(4.0 * widths + 2.0 * states + decays, 2.0 * state + 2.0 * q * widths),
            Kernel(6.0 * v),
        ),
        backward=(
            Kernel(10.0 * v),
            w_and_u,
            passing,
            Kernel(4.0 * widths, 2.0 * q * widths),
            Kernel(6.0 * widths + 2.0 * states + decays, 6.0 * state),
            Kernel(
                12.0 * wide + 6.0 * v + 4.0 * states + 2.0 * decays, 6.0 * state + 2.0 * q * (widths + wide)
            ),
            Kernel(6.0 * widths + pairs + 2.0 * decays, 4.0 * q * widths + 2.0 * q * wide),
            Kernel(6.0 * wide),
            Kernel(2.0 * decays),
            Kernel(4.0 * (k + wide)),
            Kernel(12.0 * k),
            Kernel(8.0 * v + 8.0 * k),
            Kernel(6.0 * linear.convolved_width),
        ),
    )
