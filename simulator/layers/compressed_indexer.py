"""How long does the indexer of compressed tokens take? Its products and compressor, scores, the choice, and the loss.

Nomenclature as in `simulator.domain.compressed_attention`; a share χ of the layers has one. n and m_c are the pairs of a token
and a compressed one that it may see, and of those that are chosen. Products stand as (tokens, output, inner size):

    products    (T, H_I d_I, q) in the format of the plan; (T, H_I, h) and two (T, 2 d_I, h) in 16 bits; inputs are detached, so
                that backward there are those for weights alone
    moved       positions, the Hadamard transform and the order of queries; keys and weights of the compressor
    scores      2 H_I d_I operations for each of n; 4 bytes written for each of T s/r
    choice      the scores that may be seen are read twice
    loss        as in `simulator.layers.indexer_costs`, of m_c pairs

(Megatron Core, `csa.py` and `csa_utils/fused_sparse_attention.py` of its branch `dev`.)
"""

from __future__ import annotations

import numpy as np

from simulator.domain.compressed_attention import OVERLAPPING_SERIES, compressed_of
from simulator.layers.compressed_parts import (
    RankPairs,
    compressor_s,
    pairs_of,
    places_of,
    product_of,
    share_of,
)
from simulator.layers.indexer_costs import (
    COPY_BYTES,
    LOSS_BYTES_OF_A_CHOICE,
    SCORE_READS,
    SPEED_HEAD_DIM,
)
from simulator.layers.transferred_kernels import best_attention_flop_per_s, kernel_s
from simulator.layout.head_tiles import in_tiles
from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES
from simulator.machine.products import Product
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats, total
from simulator.traffic.layer_collectives import Directions

NUM_INDEXER_KERNELS = 20.0
"""Launches of an indexer forward beside its compressor: products, positions, transform, scores, and the choice."""


@once_per_rank
def compressed_indexer_s(rank: Rank) -> Directions:
    """Returns the time of a layer's indexer forward, and of its loss and gradients backward."""
    share, pairs, compressed = share_of(rank, "chosen"), pairs_of(rank), compressed_of(rank.workload.model)
    products_s = total(each.gemm_s(*product)[0] for each, product in indexer_products_of(rank))
    moved_s = rank.memory_bound_s(rank.tokens * _moved_bytes(rank), NUM_INDEXER_KERNELS)
    sums_s = compressor_s(rank, OVERLAPPING_SERIES, compressed.indexer_head_dim)
    before_s = products_s * rank.compute_slowdown + moved_s + sums_s[0]
    forward_s = share * (before_s + _choice_s(rank, pairs))
    if not rank.workload.trains_indexer:
        return forward_s, np.zeros(len(rank.plans))
    again_s = rank.memory_bound_s(rank.tokens * _moved_bytes(rank), 0.0)
    weights_s = compressed_indexer_gradients_s(rank) * rank.compute_slowdown
    return forward_s, share * (_loss_s(rank, pairs) + again_s + sums_s[1]) + weights_s


def compressed_indexer_gradients_s(rank: Rank) -> Floats:
    """Returns the time of the weight gradients of a layer's indexer, `(n,)`; zero where none is trained."""
    if not rank.workload.trains_indexer:
        return np.zeros(len(rank.plans))
    products_s = total(each.weight_gradient_s(*product) for each, product in indexer_products_of(rank))
    return share_of(rank, "chosen") * products_s


def indexer_products_of(rank: Rank) -> list[tuple[Rank, Product]]:
    """Returns the products of an indexer, each with the ranks as its format sees them."""
    model, compressed = rank.workload.model, compressed_of(rank.workload.model)
    keys = product_of(rank, OVERLAPPING_SERIES * compressed.indexer_head_dim, model.hidden_size)
    return [
        (rank, product_of(rank, compressed.indexer_width, compressed.query_rank)),
        (rank.in_16_bits, product_of(rank, compressed.indexer_heads, model.hidden_size)),
        (rank.in_16_bits, keys),
        (rank.in_16_bits, keys),
    ]


def _moved_bytes(rank: Rank) -> float:
    """Bytes per token of positions, the Hadamard transform and the order of queries."""
    compressed = compressed_of(rank.workload.model)
    rotated = compressed.indexer_heads * compressed.rope_head_dim
    return COPY_BYTES * (rotated + 2.0 * compressed.indexer_width)


def _choice_s(rank: Rank, pairs: RankPairs) -> Floats:
    """Scores of compressed tokens, and the choice among them."""
    compressed = compressed_of(rank.workload.model)
    scores_s = kernel_s(
        rank,
        WIDE_BYTES * rank.tokens * rank.workload.sequence_length / compressed.chosen_ratio,
        compressed.flop_per_scored_pair() * pairs.visible,
        best_attention_flop_per_s(rank, SPEED_HEAD_DIM),
        slowdown=rank.compute_slowdown,
    )
    return scores_s + rank.memory_bound_s(SCORE_READS * WIDE_BYTES * pairs.visible, 1.0)


def _loss_s(rank: Rank, pairs: RankPairs) -> Floats:
    """The loss over chosen tokens, and the gradients of what the indexer multiplies."""
    model, compressed = rank.workload.model, compressed_of(rank.workload.model)
    flop_per_s, slowdown = best_attention_flop_per_s(rank, SPEED_HEAD_DIM), rank.compute_slowdown
    target_s = kernel_s(
        rank,
        ACTIVATION_BYTES * rank.tokens * model.num_heads * model.head_dim,
        2.0 * float(in_tiles(model.num_heads)) * model.head_dim * pairs.chosen,
        flop_per_s,
        slowdown=slowdown,
    )
    gradients_s = kernel_s(
        rank,
        2.0 * ACTIVATION_BYTES * rank.tokens * compressed.indexer_width,
        6.0 * float(in_tiles(compressed.indexer_heads)) * compressed.indexer_head_dim * pairs.chosen,
        flop_per_s * rank.kernels.attention_backward_fraction,
        slowdown=slowdown,
    )
    places = places_of(rank, "chosen") - places_of(rank, "window")
    return target_s + gradients_s + rank.memory_bound_s(LOSS_BYTES_OF_A_CHOICE * rank.tokens * places, 0.0)
