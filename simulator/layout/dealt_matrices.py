"""Which rank gets which matrices, if each is updated by one rank as a whole? Muon's matrices, dealt to R replicas.

Two ways of Megatron Core (`layer_wise_optimizer.py`):

*Packed* (`reduce_scatter`). Gradients and weights lie in buckets, backwards through the model. A bucket has R equal shards, and
a matrix lies in one of them. Matrices of a bucket are placed from the most costly on, each on the shard with the least cost so
far among those that it would not make longer than 1.3 times the mean; where there is none, on the shortest. All shards of a
bucket are as long as its longest, so a bucket is at least R times as long as its largest matrix. A bucket is closed once it has
its least size and 0.9 R times its largest matrix, and the next matrix would make it longer.

*Dealt* (`all_reduce`). Tensors, from the smallest on, go to the ranks in turn, there and back.

The cost of a matrix is its longer side times the square of its shorter one. Alignment of shards is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled, inner
from simulator.table import Floats, Integers

MOST_ABOVE_MEAN = 1.3
"""Length up to which a shard takes matrices by cost, over the mean of its bucket (`_NUMEL_EPSILON` of Megatron Core)."""
LEAST_FILLED = 0.9
"""Share of R times its largest matrix that a bucket has before it is closed (`PADDING_FLOOR`)."""


class Sizes(NamedTuple):
    """Sizes of K kinds of matrices on a rank, `(u, K)` for u layouts."""

    weights: Floats
    """Weights of one matrix of each kind."""
    costs: Floats
    """Work of an iteration, up to a factor."""


class Shares(NamedTuple):
    """What the ranks own of u layouts."""

    buffer_weights: Floats
    """Weights of all buckets with what pads them, `(u,)`."""
    most_weights: Floats
    """Weights of the rank that owns most, `(u,)`."""
    costliest: Floats
    """Matrices of each kind on the rank with the most work, `(u, K)`."""


def packed(
    layers: Integers, per_layer: Floats, sizes: Sizes, ranks: Integers, least_bucket: Floats
) -> Shares:
    """Returns the shares of matrices in buckets.

    Args:
        layers: Layers of each of g sorts in model order, `(u, g)`.
        per_layer: Matrices of each kind in a layer of each sort, `(u, g, K)`; fractions are spread over the layers.
        sizes: Sizes of the kinds.
        ranks: Ranks that share out the matrices, `(u,)`.
        least_bucket: Least weights of a bucket, `(u,)`; infinite: there is only one.
    """
    shares = _empty(*sizes.weights.shape)
    _pack_all(layers, per_layer, sizes, ranks, least_bucket, shares)
    return shares


def dealt(numbers: Integers, sizes: Sizes, ranks: Integers) -> Shares:
    """Returns the shares of tensors that are dealt one by one.

    Args:
        numbers: Tensors of each kind, `(u, K)`.
        sizes: Sizes of the kinds.
        ranks: Ranks that share them out, `(u,)`.
    """
    shares = _empty(*numbers.shape)
    _deal_all(numbers, sizes, ranks, shares)
    return shares


def _empty(num_layouts: int, num_kinds: int) -> Shares:
    return Shares(
        buffer_weights=np.zeros(num_layouts),
        most_weights=np.zeros(num_layouts),
        costliest=np.zeros((num_layouts, num_kinds)),
    )


@compiled
def _pack_all(
    layers: Integers, per_layer: Floats, sizes: Sizes, ranks: Integers, least_bucket: Floats, shares: Shares
) -> None:
    """Packs the matrices of every layout."""
    num_kinds = sizes.weights.shape[1]
    for row in range(len(ranks)):
        weights, costs, num_ranks = sizes.weights[row], sizes.costs[row], ranks[row]
        order = np.argsort(-costs)
        num_matrices = 0
        for sort in range(layers.shape[1]):
            for kind in range(num_kinds):
                num_matrices += int(np.floor(layers[row, sort] * per_layer[row, sort, kind] + 1e-9))
        places = max(1, min(num_ranks, num_matrices))  # more shards than matrices stay empty
        owned, loads, lengths = np.zeros((places, num_kinds)), np.zeros(places), np.zeros(places)
        waiting, tried = np.zeros(num_kinds), np.zeros(places)
        in_bucket, largest = 0.0, 0.0
        for back in range(layers.shape[1]):
            sort = layers.shape[1] - 1 - back
            for layer in range(layers[row, sort] - 1, -1, -1):
                for turned in range(num_kinds):
                    kind = num_kinds - 1 - turned
                    each = per_layer[row, sort, kind]
                    number = np.floor((layer + 1) * each + 1e-9) - np.floor(layer * each + 1e-9)
                    for _ in range(int(number)):
                        least = max(least_bucket[row], LEAST_FILLED * num_ranks * largest)
                        is_longer = tried.min() + weights[kind] > tried.max()
                        if in_bucket >= least and in_bucket > 0.0 and is_longer:
                            shares.buffer_weights[row] += num_ranks * _close(
                                waiting, order, sizes, row, num_ranks, (owned, loads, lengths)
                            )
                            waiting[:], tried[:], in_bucket, largest = 0.0, 0.0, 0.0, 0.0
                        tried[np.argmin(tried)] += weights[kind]
                        waiting[kind] += 1.0
                        in_bucket += weights[kind]
                        largest = max(largest, weights[kind])
        shares.buffer_weights[row] += num_ranks * _close(
            waiting, order, sizes, row, num_ranks, (owned, loads, lengths)
        )
        shares.costliest[row] = owned[np.argmax(loads)]
        for place in range(places):
            shares.most_weights[row] = max(shares.most_weights[row], (owned[place] * weights).sum())


@inner
def _close(
    waiting: Floats,
    order: Integers,
    sizes: Sizes,
    row: int,
    num_ranks: int,
    shards: tuple[Floats, Floats, Floats],
) -> float:
    """Places the matrices of a bucket, and returns the length of its shards."""
    owned, loads, lengths = shards
    weights, costs = sizes.weights[row], sizes.costs[row]
    most = (waiting * weights).sum() / num_ranks * MOST_ABOVE_MEAN
    lengths[:] = 0.0
    for kind in order:
        for _ in range(int(waiting[kind])):
            chosen = -1
            for place in range(len(loads)):
                fits = lengths[place] + weights[kind] <= most
                if fits and (chosen < 0 or loads[place] < loads[chosen]):
                    chosen = place
            if chosen < 0:
                chosen = int(np.argmin(lengths))
            owned[chosen, kind] += 1.0
            loads[chosen] += costs[kind]
            lengths[chosen] += weights[kind]
    return float(lengths.max())


@compiled
def _deal_all(numbers: Integers, sizes: Sizes, ranks: Integers, shares: Shares) -> None:
    """Deals the tensors of every layout."""
    num_kinds = numbers.shape[1]
    for row in range(len(ranks)):
        num_ranks, turn = ranks[row], 0
        owned = np.zeros((max(1, min(num_ranks, numbers[row].sum())), num_kinds))
        for kind in np.argsort(sizes.weights[row]):
            for _ in range(numbers[row, kind]):
                place = turn % (2 * num_ranks)
                owned[min(place, 2 * num_ranks - 1 - place), kind] += 1.0
                turn += 1
        loads = np.zeros(len(owned))
        for place in range(len(owned)):
            held = (owned[place] * sizes.weights[row]).sum()
            shares.most_weights[row] = max(shares.most_weights[row], held)
            loads[place] = (owned[place] * sizes.costs[row]).sum()
        shares.buffer_weights[row] = (numbers[row] * sizes.weights[row]).sum()
        shares.costliest[row] = owned[np.argmax(loads)]
