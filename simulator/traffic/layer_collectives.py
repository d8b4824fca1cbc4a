"""How long does a layer wait for collectives of tensor parallelism in one micro-batch?

Every result is a pair of times in seconds `(n,)`, forward and backward, that computation does not hide. A block is what
tensor-parallel ranks divide among them: an attention or feed-forward block, the embedding, the output layer. Collectives run
where it is entered and left (f and g of Megatron-LM, arXiv 1909.08053; with sequence parallelism g and g-bar of Korthikanti et
al., arXiv 2205.05198):

                  entering it                          leaving it
                  forward         backward             forward          backward
    plain         -               all-reduce           all-reduce       -
    sequence      all-gather      reduce-scatter       reduce-scatter   all-gather

What is hidden behind the first product of a block in the backward pass, and gathered once more for it, is in
`simulator.layers.input_gradients`. Blocks of layers may gather inputs after the cast to fewer bits
(`Workload.gathers_cast_inputs`); the embedding, the output layer and products with an adapter gather 16 bits. Blocks that read
the same input (`ModelShape.parallel_block`) are left once, since their results are added first. They are also entered once if
one norm makes the input of both. The entry of latent attention is in `simulator.traffic.latent_exchange`, the exchange of
adapters in `simulator.traffic.adapter_exchange`.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.lora import SPLIT_OUTPUTS, AdaptedProduct
from simulator.domain.workload import Workload
from simulator.machine.rank import Rank
from simulator.table import Floats, total
from simulator.traffic.latent_exchange import entering_latents_s

NUM_HEAD_PRODUCTS = 3
"""Products for queries, for keys and for values, where each has its own."""
CORE_SHARE = 0.15
"""Share of the cores that a collective takes from the computation it hides behind (Calculon, arXiv 2311.02076: 0.15
over NVLink)."""

Directions = tuple[Floats, Floats]
"""Forward and backward."""


def entering_s(rank: Rank) -> Directions:
    """Returns the collectives at the start of a block."""
    if rank.workload.has_sequence_parallel:
        return rank.hidden_gather_s, rank.hidden_gather_s
    return np.zeros(len(rank.plans)), rank.hidden_all_reduce_s


def leaving_s(rank: Rank) -> Directions:
    """Returns the collectives at the end of a block: those at its start, in the other direction."""
    forward_s, backward_s = entering_s(rank)
    return backward_s, forward_s


def layer_s(rank: Rank, *, is_expert: bool) -> Directions:
    """Returns the collectives of all blocks of a layer."""
    num_left = num_left_blocks(rank, is_expert=is_expert)
    out_s = _block_leaving_s(rank)
    entered = entered_products(rank, is_expert=is_expert)
    in_s = [entering_latents_s(rank), *(block_entering_s(rank, each) for each in entered)]
    if rank.workload.model.linear_attention:
        in_s = _of_hybrid(rank, in_s, entered)
    return (
        total([*(forward_s for forward_s, _ in in_s), num_left * out_s[0]]),
        total([*(backward_s for _, backward_s in in_s), num_left * out_s[1]]),
    )


def _of_hybrid(
    rank: Rank, in_s: list[Directions], entered: list[tuple[AdaptedProduct, ...]]
) -> list[Directions]:
    """Collectives where blocks are entered, given those of latents and of the products behind each gather: means of a hybrid.

    Linear attention is entered once, through one product.
    """
    model = rank.workload.model
    of_attention = [True, *(AdaptedProduct.QKV in products for products in entered)]
    shares = [model.attention_share if is_attention else 1.0 for is_attention in of_attention]
    linear_s = _once_entering_s(rank, (AdaptedProduct.QKV,))
    pairs = [*zip(shares, in_s, strict=True), (model.linear_share, linear_s)]
    return [(share * forward_s, share * backward_s) for share, (forward_s, backward_s) in pairs]


def repeated_s(rank: Rank) -> Floats:
    """Returns the collectives that recomputing the second block repeats; parallel blocks are left together, behind it."""
    in_s, out_s = block_entering_s(rank, (AdaptedProduct.FC1,)), _block_leaving_s(rank)
    return in_s[0] + out_s[0] if rank.workload.model.num_blocks_in_turn > 1 else in_s[0]


def entered_products(rank: Rank, *, is_expert: bool) -> list[tuple[AdaptedProduct, ...]]:
    """Returns the first products behind each gather of a layer: those of both blocks if one norm makes the input of both.

    Latent attention is entered through its latents (`simulator.traffic.latent_exchange`), which are not included.
    """
    blocks, model = num_blocks(rank, is_expert=is_expert), rank.workload.model
    if model.latent_attention:
        return [(AdaptedProduct.FC1,)] * (blocks - 1)
    if model.num_layer_norms < blocks:
        return [SPLIT_OUTPUTS]
    return [(each,) for each in SPLIT_OUTPUTS[:blocks]]


def block_entering_s(rank: Rank, products: tuple[AdaptedProduct, ...]) -> Directions:
    """Returns the collectives where these products enter a block of a layer; adapters read 16 bits of their input."""
    forward_s, backward_s = _once_entering_s(rank, products)
    number = num_entered(rank.workload, products)
    return number * forward_s, number * backward_s


def num_entered(workload: Workload, products: tuple[AdaptedProduct, ...]) -> int:
    """Returns how many products read the input of a block, each with collectives of its own.

    If one norm makes the input of both blocks, there is one entry for both.
    """
    if workload.separate_first_products == "none" or len(products) != 1:
        return 1
    if AdaptedProduct.FC1 in products:
        return workload.model.num_ffn_matrices - 1
    return NUM_HEAD_PRODUCTS if workload.separate_first_products == "all" else 1


def _once_entering_s(rank: Rank, products: tuple[AdaptedProduct, ...]) -> Directions:
    if not rank.workload.has_sequence_parallel:
        return entering_s(rank)
    if any(map(rank.is_adapted, products)):
        return rank.hidden_gather_s, rank.hidden_gather_s
    return rank.largest_s + rank.block_gather_s[0], rank.hidden_gather_s


def _block_leaving_s(rank: Rank) -> Directions:
    """Collectives where a block is left; only what is gathered may be in 8 or 4 bits."""
    if not rank.workload.has_sequence_parallel:
        return leaving_s(rank)
    return rank.hidden_gather_s, rank.largest_s + rank.block_gather_s[1]


def in_pieces_s(rank: Rank, traffic_s: Floats, cover_s: Floats) -> Floats:
    """Returns the exposed time of the collectives of blocks where software runs them in pieces alongside their products.

    This needs sequence parallelism: gathers and scatters can be cut into pieces, an all-reduce is not.
    """
    if not (rank.workload.overlaps_tensor_comm and rank.workload.has_sequence_parallel):
        return traffic_s
    hidden_s = rank.training.hidden_tensor_fraction * traffic_s
    return np.asarray(traffic_s - hidden_s + exposed_s(hidden_s, cover_s))


def num_blocks(rank: Rank, *, is_expert: bool) -> int:
    """Returns how many blocks of a layer are divided among the tensor-parallel ranks.

    Routed experts are not split by tensor parallelism. With sequence parallelism each rank sends its own tokens to them, so
    nothing is gathered. Without it their results are all-reduced, as after any other block.
    """
    experts = rank.workload.model.experts
    if is_expert and experts and rank.workload.has_sequence_parallel and not experts.shared_ffn_hidden_size:
        return 1
    return 2


def num_left_blocks(rank: Rank, *, is_expert: bool) -> float:
    """Returns how often a layer leaves a tensor-parallel block; in a hybrid, the mean over the layers."""
    model = rank.workload.model
    return min(num_blocks(rank, is_expert=is_expert) - 1 + model.num_mixers, model.num_blocks_in_turn)


def exposed_s(traffic_s: Floats, cover_s: Floats) -> Floats:
    """Returns the cost of communication behind a computation: the cores that it takes, or the time by which it is longer."""
    return np.asarray(np.maximum(CORE_SHARE * np.minimum(traffic_s, cover_s), traffic_s - cover_s))
