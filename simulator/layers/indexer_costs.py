"""How long does attention to chosen tokens take? The indexer, the sparse core, and the loss that trains the indexer.

Heads attend to latents: each query is multiplied by its part of the up-projection, so that all heads share one key of r + p
values, the first r of which are the value. Nomenclature as in `simulator.domain.token_indexer`, and

    a/t  heads of a rank, of which kernels compute whole tiles of 64         r, p  widths of the latent and of the rotary key
    S    tokens of the sequence                                              n  pairs of a token and one that it may see
    m    pairs of a token and a chosen one: at most k for every token
         (both of the context-parallel rank and of the replica with the most)

    products     queries (T, H_I d_I, q), key (T, d_I, h), weights of heads (T, H_I, h), whole on every rank; inputs are
                 detached, so that backward there are those for weights alone
    operators    rotary positions, two copies and a Hadamard transform of queries and key, the norm of the key
    scores       2 H_I d_I operations for each of n; 4 bytes written for each of T S
    choice       the scores that may be seen are read twice; indices of the chosen ones are put in order
    sparse core  2 a/t (2 r + p) operations for each of m, backward 2 a/t (5 r + 3 p)
    copies       queries behind their product and with their rotary part, weights of values in their order; heads in tiles that
                 have room for more; backward queries, outputs and gradients with a row more, and those with tokens to see alone
    loss         the chosen scores of attention again, 2 a/t (r + p) for each of m; softmax and divergence in 32 bits; gradients
                 of queries, key and weights of the indexer, 6 H_I d_I for each of m

(Megatron Core, `dsa_cudnn_kernels.py` and what it calls; where that computes gradients of the loss in the forward pass, they
are counted backward here.) Products of kernels run at the speed of fused attention with heads of 128, backward at the fraction
of it that kernels for chosen tokens reach (`simulator.machine.attention_kernels`). No measured table has them: this is a
transfer. Other attention has none of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.domain.attention_span import SequenceShape
from simulator.domain.blocks import LatentAttention
from simulator.domain.token_indexer import TokenIndexer, latent_and_indexer
from simulator.layers.context_split import slowest_ranks
from simulator.layers.eager_operators import ROTARY_BYTES
from simulator.layers.transferred_kernels import best_attention_flop_per_s, kernel_s
from simulator.layout.head_tiles import in_tiles, tiled_heads
from simulator.layout.kept_inputs import ACTIVATION_BYTES, WIDE_BYTES
from simulator.machine.products import Product
from simulator.machine.rank import Rank, once_per_rank
from simulator.table import Floats, total
from simulator.traffic.layer_collectives import Directions

SPEED_HEAD_DIM = 128.0
"""Width of heads at whose speed these kernels run: fused attention reaches 0.63 of the peak on H100 and 0.56 on B200 with it,
FlashMLA's sparse forward kernel 0.65 on H800 and 0.64 on B200 (640 and 1,450 TFLOP/s, README of FlashMLA)."""
COPY_BYTES, CLEAR_BYTES = 4.0, 2.0
"""To copy, transform or put in place one value, a read and a write in 16 bits; and to clear one."""
NUM_COPIES = 3.0
"""Queries and keys of the indexer: behind their positions, by the Hadamard transform, and in the order of the kernels."""
SCORE_READS = 2.0
"""Reads of a score to choose among them: to count digits, and to take what is above the threshold."""
ORDER_BYTES_OF_A_CHOICE = 90.0
"""To put one chosen index in order: two sorts of the rows with their places, and what is gathered by them."""
LOSS_BYTES_OF_A_CHOICE = 100.0
"""To compare the scores of one choice: ten operators in 32 bits, for two softmaxes, their divergence and its gradient."""
NUM_COPIES_FORWARD, NUM_COPIES_BACKWARD = 3.0, 9.0
"""Kernels that copy around the sparse core: those of queries and weights; theirs again, two for each of queries, outputs and
gradients (`torch.cat` and `index_select` of Megatron Core's `_run_sparse_attention_backward`)."""
NUM_FORWARD_KERNELS, NUM_LOSS_KERNELS, NUM_BACKWARD_KERNELS = 45.0, 30.0, 10.0
"""Launches of the indexer and the choice forward, of loss and gradients of the indexer, and of the backward core."""


class _Shape(NamedTuple):
    """What attention to chosen tokens computes on a rank, `(n,)` where it differs between designs."""

    latent: LatentAttention
    indexer: TokenIndexer
    own_heads: Floats
    """Heads of a rank."""
    tiled_heads: Floats
    """The same in whole tiles."""
    chosen_pairs: Floats
    """Pairs of a token and a chosen one (m)."""
    visible_pairs: Floats
    """Pairs of a token and one that it may see (n)."""
    flop_per_s: Floats


@once_per_rank
def sparse_core_s(rank: Rank) -> Directions:
    """Returns the time of the sparse core and of the copies around it, forward and backward, without a power cap."""
    shape = _shape(rank)
    width, values = shape.latent.key_width, shape.latent.key_value_rank
    moved = ACTIVATION_BYTES * rank.tokens * shape.own_heads * (width + values)
    summed = 2.0 * WIDE_BYTES * rank.tokens * rank.plans.context_parallel * width
    pairs = 2.0 * shape.tiled_heads * shape.chosen_pairs
    forward_s = kernel_s(rank, moved, pairs * (width + values), shape.flop_per_s, slowdown=1.0)
    backward_s = kernel_s(
        rank,
        2.0 * moved + summed,
        pairs * (3.0 * width + 2.0 * values),
        _backward_flop_per_s(rank, shape),
        slowdown=1.0,
    )
    copied = _copied_bytes(rank, shape)
    return (
        forward_s + rank.memory_bound_s(copied[0], NUM_COPIES_FORWARD),
        backward_s + rank.memory_bound_s(copied[1], NUM_COPIES_BACKWARD),
    )


def _copied_bytes(rank: Rank, shape: _Shape) -> Directions:
    """Copies around the sparse core, forward and backward; heads that do not fill tiles are put into cleared ones."""
    width, values = shape.latent.key_width, shape.latent.key_value_rank
    own, tiled = shape.own_heads, shape.tiled_heads
    has_room = (tiled > own).astype(np.float64)
    joined = COPY_BYTES * (rank.tokens * own * (width + values) + own * shape.latent.value_head_dim * values)
    to_tiles = has_room * (CLEAR_BYTES * tiled + COPY_BYTES * own)
    entering = width + 2.0 * values  # queries, outputs and their gradients
    backward = 2.0 * COPY_BYTES * tiled * entering + (CLEAR_BYTES + COPY_BYTES) * own * width
    backward = backward + to_tiles * entering + has_room * COPY_BYTES * own * width
    return joined + rank.tokens * to_tiles * width, joined + rank.tokens * backward


@once_per_rank
def indexer_s(rank: Rank) -> Directions:
    """Returns the time of a layer's indexer forward, and of its loss and gradients backward; zero without an indexer."""
    none_s = np.zeros(len(rank.plans))
    if rank.workload.model.indexer is None:
        return none_s, none_s
    share, shape = rank.workload.model.indexer_share, _shape(rank)
    moved_s = rank.memory_bound_s(rank.tokens * _moved_bytes(shape), NUM_FORWARD_KERNELS)
    products_s = total(rank.gemm_s(*product)[0] for product in indexer_products(rank))
    forward_s = share * (products_s * rank.compute_slowdown + moved_s + _choice_s(rank, shape))
    if not rank.workload.trains_indexer:
        return forward_s, none_s
    again_s = rank.memory_bound_s(rank.tokens * _moved_bytes(shape), 0.0)
    weights_s = indexer_weight_gradients_s(rank) * rank.compute_slowdown
    return forward_s, share * (_loss_s(rank, shape) + again_s) + weights_s


def indexer_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the time of the weight gradients of a layer's indexer, `(n,)`; zero where none is trained."""
    if not (rank.workload.model.indexer and rank.workload.trains_indexer):
        return np.zeros(len(rank.plans))
    products_s = total(rank.weight_gradient_s(*product) for product in indexer_products(rank))
    return rank.workload.model.indexer_share * products_s


def indexer_products(rank: Rank) -> list[Product]:
    """Returns tokens, output and inner size of the products of an indexer, which every tensor-parallel rank has whole."""
    model, (latent, indexer) = rank.workload.model, latent_and_indexer(rank.workload.model)
    h = np.full(len(rank.plans), float(model.hidden_size))
    queries, key, weights = (
        np.full_like(h, width) for width in (indexer.query_width, indexer.head_dim, indexer.num_heads)
    )
    rank_of_queries = np.full_like(h, latent.query_rank or model.hidden_size)
    return [(rank.tokens, queries, rank_of_queries), (rank.tokens, key, h), (rank.tokens, weights, h)]


def num_indexer_kernels(rank: Rank) -> tuple[float, float]:
    """Returns the launches of a layer's indexer and of its loss, forward and backward, beyond those of other attention."""
    if rank.workload.model.indexer is None:
        return 0.0, 0.0
    share = rank.workload.model.indexer_share
    of_loss = share * NUM_LOSS_KERNELS if rank.workload.trains_indexer else 0.0
    return share * NUM_FORWARD_KERNELS, NUM_BACKWARD_KERNELS + of_loss


def _shape(rank: Rank) -> _Shape:
    workload, (latent, indexer) = rank.workload, latent_and_indexer(rank.workload.model)
    return _Shape(
        latent=latent,
        indexer=indexer,
        own_heads=workload.model.num_heads / rank.plans.tensor_parallel,
        tiled_heads=tiled_heads(workload.model, rank.plans),
        chosen_pairs=_most_pairs(rank, workload.sequence_shape),
        visible_pairs=_most_pairs(rank, workload.visible_shape),
        flop_per_s=best_attention_flop_per_s(rank, SPEED_HEAD_DIM),
    )


def _most_pairs(rank: Rank, shape: SequenceShape) -> Floats:
    """Pairs of a token and one that it sees, of the context-parallel rank and the replica with the most, `(n,)`."""
    replicas = rank.plans.data_parallel
    imbalance = shape.imbalance(replicas, rank.workload.global_batch_size // replicas)
    seen = total(span.share * span.kernel_tokens for span in slowest_ranks(rank, shape))
    return imbalance * rank.tokens * seen / 2.0


def _backward_flop_per_s(rank: Rank, shape: _Shape) -> Floats:
    return shape.flop_per_s * rank.kernels.attention_backward_fraction


def _moved_bytes(shape: _Shape) -> float:
    """Bytes per token of positions, copies and the norm of the key."""
    values = shape.indexer.query_width + shape.indexer.head_dim
    rotated = (shape.indexer.num_heads + 1.0) * shape.latent.rope_head_dim
    of_norm = COPY_BYTES * shape.indexer.head_dim
    return ROTARY_BYTES * rotated + NUM_COPIES * COPY_BYTES * values + of_norm


def _choice_s(rank: Rank, shape: _Shape) -> Floats:
    """Scores, and the choice among them."""
    scores = rank.tokens * float(rank.workload.sequence_length)
    scores_s = kernel_s(
        rank,
        WIDE_BYTES * scores,
        shape.indexer.flop_per_pair() * shape.visible_pairs,
        shape.flop_per_s,
        slowdown=rank.compute_slowdown,
    )
    read_bytes = SCORE_READS * WIDE_BYTES * shape.visible_pairs
    return scores_s + rank.memory_bound_s(read_bytes + ORDER_BYTES_OF_A_CHOICE * _slots(rank, shape), 1.0)


def _loss_s(rank: Rank, shape: _Shape) -> Floats:
    """The loss over chosen tokens, and the gradients of what the indexer multiplies."""
    width, slowdown = shape.latent.key_width, rank.compute_slowdown
    target_s = kernel_s(
        rank,
        ACTIVATION_BYTES * rank.tokens * shape.own_heads * width,
        2.0 * shape.tiled_heads * width * shape.chosen_pairs,
        shape.flop_per_s,
        slowdown=slowdown,
    )
    gradients_s = kernel_s(
        rank,
        2.0 * ACTIVATION_BYTES * rank.tokens * shape.indexer.query_width,
        6.0 * in_tiles(shape.indexer.num_heads) * shape.indexer.head_dim * shape.chosen_pairs,
        _backward_flop_per_s(rank, shape),
        slowdown=slowdown,
    )
    compared_s = rank.memory_bound_s(LOSS_BYTES_OF_A_CHOICE * _slots(rank, shape), 0.0)
    return target_s + gradients_s + compared_s


def _slots(rank: Rank, shape: _Shape) -> Floats:
    """Places for chosen tokens, used or not."""
    return rank.tokens * float(shape.indexer.num_places(rank.workload.sequence_length))
