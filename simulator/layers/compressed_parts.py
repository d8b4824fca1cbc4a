"""What do attention to compressed tokens and its indexer have in common? Pairs, shares of the layers, products, compressors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.domain.compressed_attention import LayerKind, compressed_of
from simulator.domain.documents import longest_piece
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.products import Product
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats
from simulator.traffic.layer_collectives import Directions

NUM_COMPRESSOR_KERNELS, NUM_COMPRESSOR_BACKWARD_KERNELS = 5.0, 6.0
"""Launches of a compressor: two products, a sum, a norm and positions; backward the sum's zeroed gradient as well."""


class RankPairs(NamedTuple):
    """Pairs of the tokens of a rank, `(n,)` each; `Pairs` has them for one token."""

    window: Floats
    chosen: Floats
    visible: Floats


@once_per_rank
def pairs_of(rank: Rank) -> RankPairs:
    """Returns the pairs of the replica that has most of each."""
    workload, compressed = rank.workload, compressed_of(rank.workload.model)
    replicas, shapes = (
        rank.plans.data_parallel,
        compressed.pair_shapes(workload.model.num_layers, workload.sequence_length, workload.documents),
    )
    window, chosen, whole = (
        shape.imbalance(replicas, workload.global_batch_size // replicas)
        * rank.tokens
        * shape.mean_span
        / 2.0
        for shape in shapes
    )
    r = compressed.chosen_ratio
    return RankPairs(window, chosen / r, whole / r)


def computed_pairs(rank: Rank, kind: LayerKind) -> Floats:
    """Returns the pairs that a core computes in a kind of layer.

    Behind an indexer kernels are told how many places of a token are used. In other layers they go through all places, whether
    or not they are behind the token (`_forward_fused_no_indexer` of `csa.py`, which gives `csa_sparse_attn` no lengths).
    """
    if kind == "chosen":
        return pairs_of(rank).window + pairs_of(rank).chosen
    return rank.tokens * places_of(rank, kind)


def share_of(rank: Rank, kind: LayerKind) -> float:
    """Returns the layers of a kind over all layers."""
    return compressed_of(rank.workload.model).share(kind, rank.workload.model.num_layers)


def places_of(rank: Rank, kind: LayerKind) -> float:
    """Returns the places for what a token of a kind of layer sees, used or not."""
    longest = longest_piece(rank.workload.sequence_length, rank.workload.documents)
    return compressed_of(rank.workload.model).num_places(kind, longest)


def product_of(rank: Rank, output: float, inner: float) -> Product:
    """Returns a product of all tokens of a rank with this output and inner size."""
    output_size, inner_size = (np.full(len(rank.plans), float(size)) for size in (output, inner))
    return rank.tokens, output_size, inner_size


def compressor_s(rank: Rank, series: int, width: int) -> Directions:
    """Returns the time of the sums of one compressor, forward and backward.

    Keys and weights are read, and backward their gradients written as well; what it makes of them is small.

    Args:
        rank: Ranks of the designs.
        series: Keys and weights that a token makes.
        width: Values of each.
    """
    read = 2.0 * ACTIVATION_BYTES * series * width * rank.tokens
    return (
        rank.memory_bound_s(read, NUM_COMPRESSOR_KERNELS),
        rank.memory_bound_s(2.0 * read, NUM_COMPRESSOR_BACKWARD_KERNELS),
    )
