"""How long does attention to windows and compressed tokens take? Its products, compressors, and the core.

Nomenclature as in `simulator.domain.compressed_attention`; every rank has all heads and whole sequences. Layers are of three
kinds, and times are means over them: all see a window, a share χ chosen tokens (each of r), a share η heavily compressed ones
(each of R). Pairs of a token and one that it sees: m. Products stand as (tokens, output, inner size):

    every layer   (T, q, h), (T, a d, q), (T, d, h); g products (T, o, a d/g) in 16 bits; (T, h, g o)
    compressors   χ two (T, 2 d, h), η two (T, d, h), in 16 bits
    moved         norms of queries and of the key; the key joined with compressed ones; places of what is seen; keys and weights
                  of compressors
    core          4 a d operations for each of m, backward 10 a d; key and value are the same d values; without an indexer m
                  are all places for what is seen, also those of tokens that come later

(Megatron Core, `deepseek_v4_hybrid_attention.py`, `csa.py` and `csa_utils/fused_sparse_attention.py` of its branch `dev`, with
the kernels of FlashMLA and of the cuDNN frontend.) The core runs at the speeds of `simulator.layers.indexer_costs`. Backward it
takes as long as with 175 tokens more than are seen: gradients of queries take their time however few these are.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.compressed_attention import KINDS, OVERLAPPING_SERIES, compressed_of
from simulator.layers.compressed_indexer import (
    NUM_INDEXER_KERNELS,
    compressed_indexer_gradients_s,
)
from simulator.layers.compressed_parts import (
    NUM_COMPRESSOR_BACKWARD_KERNELS,
    NUM_COMPRESSOR_KERNELS,
    compressor_s,
    computed_pairs,
    places_of,
    product_of,
    share_of,
)
from simulator.layers.indexer_costs import COPY_BYTES, NUM_LOSS_KERNELS, SPEED_HEAD_DIM
from simulator.layers.transferred_kernels import best_attention_flop_per_s, kernel_s
from simulator.layout.head_tiles import in_tiles
from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES
from simulator.machine.products import Batch, Product
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats, total
from simulator.traffic.layer_collectives import Directions

OTHER_KEYS = 175.0
"""Tokens whose time a backward kernel takes in addition to those that are seen. On B200, 4,096 tokens with keys of 512 values:
64 heads take 0.560 ms with 128 tokens each and 4.019 with 2,048, 128 heads 1.066 with 128 and 4.303 with 1,024 (cuDNN frontend,
pull request 318), as with 183 and 167 more."""
KNOWN_KEYS = 2048.0
"""Tokens that are seen where the backward speed is known (`simulator.machine.attention_kernels`)."""
NORM_BYTES, NORM_BACKWARD_BYTES = 4.0, 6.0
"""To read a value and write it normed, and to read a value and a gradient and write one, in 16 bits."""
PLACE_BYTES = 32.0
"""To put the place of one token that is seen into the list of a kernel: joined, made global, and packed, in 32 bits."""
NUM_CORE_KERNELS, NUM_CORE_BACKWARD_KERNELS = 12.0, 10.0
"""Launches beside the core: norms of queries and key, positions of outputs, joined keys, and the places of what is seen."""


def projections(rank: Rank) -> list[Product]:
    """Returns the products in the format of the plan: queries into and out of their latent, the key, and the output."""
    model, compressed = rank.workload.model, compressed_of(rank.workload.model)
    return [
        product_of(rank, compressed.query_rank, model.hidden_size),
        product_of(rank, model.num_heads * model.head_dim, compressed.query_rank),
        product_of(rank, model.head_dim, model.hidden_size),
        product_of(rank, model.hidden_size, compressed.output_groups * compressed.output_rank),
    ]


def group_product(rank: Rank) -> tuple[Product, Batch]:
    """Returns the product of one group of heads, which is in 16 bits, and how many groups there are."""
    model, compressed = rank.workload.model, compressed_of(rank.workload.model)
    inner = model.num_heads * model.head_dim / compressed.output_groups
    return product_of(rank, compressed.output_rank, inner), Batch(num_gemms=float(compressed.output_groups))


def compressor_products(rank: Rank) -> list[tuple[float, Product]]:
    """Returns the product of keys of each kind of compressor, and its share of the layers; that of weights is as large."""
    d, h = rank.workload.model.head_dim, rank.workload.model.hidden_size
    return [
        (share_of(rank, "chosen"), product_of(rank, OVERLAPPING_SERIES * d, h)),
        (share_of(rank, "heavy"), product_of(rank, d, h)),
    ]


@once_per_rank
def compressed_projections_s(rank: Rank) -> list[Directions]:
    """Returns the time of each product in front of the core, and at last of those behind it together."""
    *before, leaving = [rank.gemm_s(*product) for product in projections(rank)]
    for share, product in compressor_products(rank):
        forward_s, backward_s = rank.in_16_bits.gemm_s(*product)
        before.append((2.0 * share * forward_s, 2.0 * share * backward_s))
    product, groups = group_product(rank)
    of_groups = rank.in_16_bits.gemm_s(*product, groups)
    return [*before, (of_groups[0] + leaving[0], of_groups[1] + leaving[1])]


def compressed_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the time of the weight gradients of attention and its indexer, `(n,)`."""
    product, groups = group_product(rank)
    return total(
        [
            *(rank.weight_gradient_s(*each) for each in projections(rank)),
            rank.in_16_bits.weight_gradient_s(*product, groups),
            *(
                2.0 * share * rank.in_16_bits.weight_gradient_s(*each)
                for share, each in compressor_products(rank)
            ),
            compressed_indexer_gradients_s(rank),
        ]
    )


def compressed_up_s(rank: Rank) -> list[Directions]:
    """Returns the time of the products that `mla_up_proj` computes again: queries out of their latent, and the key."""
    return [rank.gemm_s(*product) for product in projections(rank)[1:3]]


@once_per_rank
def compressed_core_s(rank: Rank) -> Directions:
    """Returns the time between the products without the indexer: the core, and what is moved around it."""
    model, flop_per_s = rank.workload.model, best_attention_flop_per_s(rank, SPEED_HEAD_DIM)
    backward_flop_per_s = flop_per_s * rank.kernels.attention_backward_fraction
    heads, d = float(in_tiles(model.num_heads)), model.head_dim
    moved = 2.0 * ACTIVATION_BYTES * rank.tokens * model.num_heads * d
    backward_moved = 2.0 * moved + 2.0 * WIDE_BYTES * rank.tokens * _joined_keys(rank) * d
    forward_s, backward_s = _moved_s(rank)
    for kind in KINDS:
        share, pairs = share_of(rank, kind), computed_pairs(rank, kind)
        flop, slower = 4.0 * heads * d * pairs, _few_keys_ratio(rank.tokens, pairs)
        core_s = kernel_s(rank, moved, flop, flop_per_s, slowdown=1.0)
        core_backward_s = kernel_s(
            rank, backward_moved, 2.5 * slower * flop, backward_flop_per_s, slowdown=1.0
        )
        forward_s, backward_s = forward_s + share * core_s, backward_s + share * core_backward_s
    return forward_s, backward_s


def num_compressed_kernels(rank: Rank) -> tuple[float, float]:
    """Returns the launches of a layer beyond those of other attention, forward and backward."""
    if rank.workload.model.compressed_attention is None:
        return 0.0, 0.0
    chosen, heavy = share_of(rank, "chosen"), share_of(rank, "heavy")
    of_loss = NUM_LOSS_KERNELS + NUM_COMPRESSOR_BACKWARD_KERNELS if rank.workload.trains_indexer else 0.0
    return (
        NUM_CORE_KERNELS + (2.0 * chosen + heavy) * NUM_COMPRESSOR_KERNELS + chosen * NUM_INDEXER_KERNELS,
        NUM_CORE_BACKWARD_KERNELS + (chosen + heavy) * NUM_COMPRESSOR_BACKWARD_KERNELS + chosen * of_loss,
    )


def norms_again_s(rank: Rank) -> Floats:
    """Returns the time of the norms of queries and key, which `mla_up_proj` computes again, `(n,)`."""
    return rank.memory_bound_s(NORM_BYTES * rank.tokens * _normed_values(rank), 2.0)


def _few_keys_ratio(tokens: Floats, pairs: Floats) -> Floats:
    """How much longer a backward kernel takes for each pair than where its speed is known."""
    return np.asarray((1.0 + OTHER_KEYS * tokens / pairs) / (1.0 + OTHER_KEYS / KNOWN_KEYS))


def _moved_s(rank: Rank) -> Directions:
    """Norms of queries and key, joined keys, places, and compressors of keys."""
    d, normed = rank.workload.model.head_dim, _normed_values(rank)
    joined = COPY_BYTES * _joined_keys(rank) * d
    places = PLACE_BYTES * sum(share_of(rank, kind) * places_of(rank, kind) for kind in KINDS)
    forward, backward = NORM_BYTES * normed + joined + places, NORM_BACKWARD_BYTES * normed + joined
    chosen_s, heavy_s = compressor_s(rank, OVERLAPPING_SERIES, d), compressor_s(rank, 1, d)
    chosen, heavy = share_of(rank, "chosen"), share_of(rank, "heavy")
    return (
        rank.memory_bound_s(rank.tokens * forward, NUM_CORE_KERNELS)
        + chosen * chosen_s[0]
        + heavy * heavy_s[0],
        rank.memory_bound_s(rank.tokens * backward, NUM_CORE_BACKWARD_KERNELS)
        + chosen * chosen_s[1]
        + heavy * heavy_s[1],
    )


def _normed_values(rank: Rank) -> float:
    """Values per token of queries and of the key."""
    return float((rank.workload.model.num_heads + 1) * rank.workload.model.head_dim)


def _joined_keys(rank: Rank) -> float:
    """Keys per token, compressed ones included; mean over the layers."""
    model = rank.workload.model
    return 1.0 + compressed_of(model).made_per_token(model.num_layers)
