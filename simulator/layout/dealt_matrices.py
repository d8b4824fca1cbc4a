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

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled, inner
from simulator.table import Floats, Integers

MOST_ABOVE_MEAN = 1.3
"""Length up to which a shard takes matrices by cost, over the mean of its bucket (`_NUMEL_EPSILON` of Megatron Core)."""
LEAST_FILLED = 0.9
"""Share of R times its largest matrix that a bucket has before it is closed (`PADDING_FLOOR`)."""
_ROUNDING = 1e-9
"""What is added to a number of matrices in several layers before it is rounded down."""


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
    num_buckets: Floats
    """Buckets, `(u,)`; none where tensors are dealt."""


def packed(
    layers: Integers, per_layer: Floats, sizes: Sizes, ranks: Integers, least_bucket: Floats
) -> Shares:
    """Returns the shares of matrices in buckets; what was packed before is not packed again, as states and times ask for both.

    Args:
        layers: Layers of each of g sorts in model order, `(u, g)`.
        per_layer: Matrices of each kind in a layer of each sort, `(u, g, K)`; fractions are spread over the layers.
        sizes: Sizes of the kinds.
        ranks: Ranks that share out the matrices, `(u,)`.
        least_bucket: Least weights of a bucket, `(u,)`; infinite: there is only one.
    """
    arguments = (layers, per_layer, *sizes, ranks, least_bucket)
    return _packed(*((each.shape, each.dtype.str, each.tobytes()) for each in arguments))


@lru_cache(maxsize=32)
def _packed(*arguments: tuple[tuple[int, ...], str, bytes]) -> Shares:
    layers, per_layer, weights, costs, ranks, least_bucket = (
        np.frombuffer(content, kind).reshape(shape) for shape, kind, content in arguments
    )
    shares = _empty(*weights.shape)
    _pack_all(layers, per_layer, Sizes(weights, costs), ranks, least_bucket, shares)
    for each in shares:
        each.setflags(write=False)
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
        num_buckets=np.zeros(num_layouts),
    )


class _Shards(NamedTuple):
    """Shards of one layout."""

    loads: Floats
    """Cost that each owns, in all buckets."""
    lengths: Floats
    """Weights that each has in the bucket."""
    owned: Floats
    """Matrices of each kind that each owns, `(shards, K)`."""


@compiled
def _pack_all(
    layers: Integers, per_layer: Floats, sizes: Sizes, ranks: Integers, least_bucket: Floats, shares: Shares
) -> None:
    """Packs the matrices of every layout."""
    num_kinds = sizes.weights.shape[1]
    for row in range(len(ranks)):
        weights, costs, num_ranks = sizes.weights[row], sizes.costs[row], ranks[row]
        waiting = np.zeros(num_kinds)
        for sort in range(layers.shape[1]):
            for kind in range(num_kinds):
                waiting[kind] += _among(layers[row, sort], per_layer[row, sort, kind])
        places = max(1, min(num_ranks, int(waiting.sum())))  # more shards than matrices stay empty
        shards = _Shards(np.zeros(places), np.zeros(places), np.zeros((places, num_kinds)))
        if np.isfinite(least_bucket[row]):
            longest, num_buckets = _pack_backwards(
                layers[row], per_layer[row], weights, costs, num_ranks, least_bucket[row], shards
            )
        else:
            longest, num_buckets = _close(waiting, weights, costs, num_ranks, shards), 1
        shares.num_buckets[row] = num_buckets
        shares.buffer_weights[row] = num_ranks * longest
        shares.costliest[row] = shards.owned[np.argmax(shards.loads)]
        for place in range(places):
            shares.most_weights[row] = max(shares.most_weights[row], (shards.owned[place] * weights).sum())


@inner
def _among(num_layers: int, each: float) -> float:
    """Matrices of a kind in the first layers of a sort."""
    return float(np.floor(num_layers * each + _ROUNDING))


@inner
def _pack_backwards(
    layers: Integers,
    per_layer: Floats,
    weights: Floats,
    costs: Floats,
    num_ranks: int,
    least_bucket: float,
    shards: _Shards,
) -> tuple[float, int]:
    """Fills bucket after bucket backwards through the layers; returns the length of all shards of a rank, and the buckets."""
    num_kinds = len(weights)
    waiting, tried = np.zeros(num_kinds), np.zeros(len(shards.loads))
    longest, in_bucket, largest, most_tried, num_buckets = 0.0, 0.0, 0.0, 0.0, 1
    for back in range(len(layers)):
        sort = len(layers) - 1 - back
        for layer in range(layers[sort] - 1, -1, -1):
            for turned in range(num_kinds):
                kind = num_kinds - 1 - turned
                each, weight = per_layer[sort, kind], weights[kind]
                for _ in range(int(_among(layer + 1, each) - _among(layer, each))):
                    least = max(least_bucket, LEAST_FILLED * num_ranks * largest)
                    if in_bucket >= least and in_bucket > 0.0 and tried[0] + weight > most_tried:
                        longest += _close(waiting, weights, costs, num_ranks, shards)
                        num_buckets += 1
                        waiting[:], tried[:], in_bucket, largest, most_tried = 0.0, 0.0, 0.0, 0.0, 0.0
                    most_tried = max(most_tried, tried[0] + weight)
                    _add_to_least(tried, weight)
                    waiting[kind] += 1.0
                    in_bucket += weight
                    largest = max(largest, weight)
    return longest + _close(waiting, weights, costs, num_ranks, shards), num_buckets


@inner
def _add_to_least(heap: Floats, more: float) -> None:
    """Adds to the least value of a heap, which is its first."""
    place, value = 0, heap[0] + more
    while True:
        child = 2 * place + 1
        if child >= len(heap):
            break
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


@inner
def _close(waiting: Floats, weights: Floats, costs: Floats, num_ranks: int, shards: _Shards) -> float:
    """Places the matrices of a bucket, and returns the length of its shards."""
    loads, lengths, owned = shards
    most = (waiting * weights).sum() / num_ranks * MOST_ABOVE_MEAN
    lengths[:] = 0.0
    for kind in np.argsort(-costs):
        left, weight, cost = int(waiting[kind]), weights[kind], costs[kind]
        while left > 0:
            rounds = _rounds(left, weight, cost, most, shards)
            if rounds == 0:
                left -= _give_in_turn(shards, kind, left, weight, cost, most)
                continue
            for place in range(len(loads)):
                owned[place, kind] += rounds
                loads[place] += rounds * cost
                lengths[place] += rounds * weight
            left -= rounds * len(loads)
    return float(lengths.max())


@inner
def _rounds(left: int, weight: float, cost: float, most: float, shards: _Shards) -> int:
    """How often each shard gets one of the matrices that are left before any does once more, as far as that is certain.

    Shards whose loads differ by less than one matrix get the next ones in turn; and likewise those that are all too long for
    another one, if their lengths differ by less than one.
    """
    loads, lengths, rounds = shards.loads, shards.lengths, left // len(shards.loads)
    if rounds == 0:
        return 0
    longest, shortest = lengths.max(), lengths.min()
    if shortest + weight > most:
        return rounds if longest - shortest < weight else 0
    if loads.max() - loads.min() >= cost:
        return 0
    fitting = min(rounds, int((most - longest) / weight))
    return fitting if fitting > 0 and longest + fitting * weight <= most else 0


@inner
def _give_in_turn(shards: _Shards, kind: int, left: int, weight: float, cost: float, most: float) -> int:
    """Gives a matrix to each of the next shards in turn while there are any left, and returns their number.

    These are all shards with the least load of those that a matrix does not make too long, or else all of the shortest ones.
    """
    loads, lengths, owned = shards
    least, shortest = np.inf, lengths.min()
    for place in range(len(loads)):
        if lengths[place] + weight <= most:
            least = min(least, loads[place])
    given = 0
    for place in range(len(loads)):
        if np.isfinite(least):
            is_next = loads[place] == least and lengths[place] + weight <= most
        else:
            is_next = lengths[place] == shortest
        if is_next and given < left:
            owned[place, kind] += 1.0
            loads[place] += cost
            lengths[place] += weight
            given += 1
    return given


@compiled
def _deal_all(numbers: Integers, sizes: Sizes, ranks: Integers, shares: Shares) -> None:
    """Deals the tensors of every layout."""
    num_kinds = numbers.shape[1]
    for row in range(len(ranks)):
        there_and_back, turn = 2 * ranks[row], 0
        owned = np.zeros((max(1, min(ranks[row], numbers[row].sum())), num_kinds))
        for kind in np.argsort(sizes.weights[row]):
            whole, rest = divmod(numbers[row, kind], there_and_back)
            owned[:, kind] += 2.0 * whole
            for _ in range(rest):
                owned[min(turn, there_and_back - 1 - turn), kind] += 1.0
                turn = (turn + 1) % there_and_back
        loads = np.zeros(len(owned))
        for place in range(len(owned)):
            held = (owned[place] * sizes.weights[row]).sum()
            shares.most_weights[row] = max(shares.most_weights[row], held)
            loads[place] = (owned[place] * sizes.costs[row]).sum()
        shares.buffer_weights[row] = (numbers[row] * sizes.weights[row]).sum()
        shares.costliest[row] = owned[np.argmax(loads)]
