"""How long does one micro-batch take in each kind of part of a model, and in each chunk?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simulator.compiled import compiled
from simulator.domain.plan import splits_backward
from simulator.layers.encoder_costs import (
    encoder_layer,
    encoder_weight_gradients_s,
    patch_weight_gradients_s,
    patches,
    projector_weight_gradients_s,
    projectors,
)
from simulator.layers.layer_costs import dense_layer, expert_layer, layer_collectives_s
from simulator.layers.model_ends import embedding, embedding_collectives_s, output_collectives_s, output_layer
from simulator.layers.part_times import PartTimes
from simulator.layers.token_prediction import module, module_weight_gradients_s
from simulator.layers.weight_gradients import (
    dense_layer_weight_gradients_s,
    expert_layer_weight_gradients_s,
    output_layer_weight_gradients_s,
)
from simulator.layout.chunks import Chunks
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.replicas.gradient_copies import gradient_copies_s, handles_gradients_apart
from simulator.replicas.replica_sync import ReplicaTraffic
from simulator.replicas.sharded_copies import with_copies
from simulator.row_sums import sum_columns
from simulator.step.parts import (
    VISION,
    Part,
    counts_of_parts,
    has_backward,
    rank_of_part,
    weights_of_parts,
)
from simulator.table import Booleans, Floats, Integers, Table, total
from simulator.traffic.expert_exchange import hides_in_pairs
from simulator.traffic.layer_collectives import Directions


@dataclass(frozen=True, kw_only=True)
class ExposedTimes(Table):
    """Exposed times of one micro-batch in every chunk, one way, `(n, C)`, named as in `StepTable`."""

    tensor_comm_s: Floats
    expert_comm_s: Floats
    shard_comm_s: Floats
    host_copy_s: Floats


@dataclass(frozen=True, kw_only=True)
class ModelParts:
    """The k kinds of parts of the model in its order: their times, how often each chunk has them, and their weights."""

    times: Mapping[Part, PartTimes]
    counts: Mapping[Part, Floats]
    """`(n, C)` for each part."""
    weights: StepWeights
    """`(1, k)`, of all ranks together."""

    @classmethod
    def of(cls, rank: Rank, chunks: Chunks) -> ModelParts:
        """Returns the parts of the model under every design."""
        counts = counts_of_parts(rank.workload, rank.plans, chunks)
        weights = weights_of_parts(rank.workload, counts)
        times = [part_times(rank, part) for part in counts]
        if handles_gradients_apart(rank):
            times = _with_gradient_copies(rank, times, weights)
        times = [
            each if has_backward(rank.workload, part) else each.forward_alone
            for part, each in zip(counts, with_copies(rank, times, weights), strict=True)
        ]
        return cls(
            times=dict(zip(counts, times, strict=True)),
            counts=counts,
            weights=weights,
        )

    def take(self, rows: Integers) -> ModelParts:
        """Returns the parts of the chosen designs."""
        return replace(
            self,
            times={part: times.take(rows) for part, times in self.times.items()},
            counts={part: count[rows] for part, count in self.counts.items()},
        )

    @property
    def kinds(self) -> tuple[Part, ...]:
        """The k kinds, in the order of the model."""
        return tuple(self.counts)

    def traffic(self, rank: Rank) -> ReplicaTraffic:
        """Returns the traffic of the replicas for the weights of every kind, `(n, k)`."""
        return ReplicaTraffic.of(rank, self.weights).passed_backward(self.are_passed_backward(rank))

    def are_passed_backward(self, rank: Rank) -> Booleans:
        """Returns which kinds have a backward pass, `(k,)`."""
        return np.array([has_backward(rank.workload, part) for part in self.kinds])

    def per_chunk(self, name: str) -> Floats:
        """Sum of one time over the parts of every chunk, `(n, C)`."""
        return self.weighted(getattr(times, name) for times in self.times.values())

    def exposed(self, direction: str, shard_comm_s: Floats, host_copy_s: Floats) -> ExposedTimes:
        """Returns exposed times of every chunk, forward or backward, with its shard collectives and host copies `(n, C)`."""
        return ExposedTimes(
            tensor_comm_s=self.per_chunk(f"{direction}_tensor_comm_s"),
            expert_comm_s=self.per_chunk(f"{direction}_expert_comm_s"),
            shard_comm_s=shard_comm_s,
            host_copy_s=host_copy_s,
        )

    def weight_gradients(self, rank: Rank) -> Floats:
        """The part of the backward of every chunk that zero-bubble schedules compute later, `(n, C)`; 0 under others."""
        is_split = splits_backward(rank.plans)
        if not is_split.any():
            return np.zeros_like(self.counts[Part.OUTPUT])
        return self.weighted([_WEIGHT_GRADIENTS_S[part](rank) * is_split for part in self.counts])

    def hidden_in_pairs(self, rank: Rank) -> tuple[Floats, Floats]:
        """How much less a forward and a backward of every chunk take when they run as a pair, `(n, C)` each."""
        if not hides_in_pairs(rank):
            return (np.zeros_like(self.counts[Part.OUTPUT]),) * 2
        return self.per_chunk("forward_hidden_s"), self.per_chunk("backward_hidden_s")

    def total(self, *names: str) -> Floats:
        """Sum of some times over the whole model, `(n,)`."""
        return total(
            number * getattr(times, name)
            for name in names
            for number, times in zip(self._numbers, self.times.values(), strict=True)
        )

    @cached_property
    def _numbers(self) -> tuple[Floats, ...]:
        """How often the whole model has each part, `(n,)`."""
        return tuple(sum_columns(count) for count in self.counts.values())

    def weighted(self, part_times_s: Iterable[Floats]) -> Floats:
        """Sum over the parts of every chunk, `(n, C)`, of a time `(n,)` for each of the k parts."""
        sums_s = np.zeros(self.counts[Part.OUTPUT].shape)
        for count, time_s in zip(self.counts.values(), part_times_s, strict=True):
            _add_weighted(sums_s, np.ascontiguousarray(count), np.ascontiguousarray(time_s))
        return sums_s

    def both_ways(self, ways_s: Directions) -> Directions:
        """Sums over the parts of every chunk, `(n, C)`, of times of the k parts, `(k, n)` a way."""
        return self.weighted(ways_s[0]), self.weighted(ways_s[1])


def _with_gradient_copies(rank: Rank, times: list[PartTimes], weights: StepWeights) -> list[PartTimes]:
    copies_s = gradient_copies_s(rank, weights)
    return [
        replace(part, backward_compute_s=part.backward_compute_s + copy_s)
        for part, copy_s in zip(times, copies_s, strict=True)
    ]


@compiled
def _add_weighted(sums: Floats, counts: Floats, weights: Floats) -> None:
    """Adds counts `(n, C)`, each row with a weight `(n,)`, to sums `(n, C)` in one pass."""
    for row in range(len(sums)):
        for chunk in range(sums.shape[1]):
            sums[row, chunk] += counts[row, chunk] * weights[row]


def part_times(rank: Rank, part: Part) -> PartTimes:
    """Returns the times of one part, without copies and casts of the weights that its passes gather."""
    return _TIMES[part](rank_of_part(rank, part))


def part_collectives_s(rank: Rank, part: Part) -> Directions:
    """Returns the exposed collectives of one part, forward and backward, `(n,)` each."""
    rank = rank_of_part(rank, part)
    if part in VISION:
        times = _TIMES[part](rank)
        return times.collectives_s("forward"), times.collectives_s("backward")
    if part is Part.EMBEDDING:
        return embedding_collectives_s(rank)
    if part is Part.OUTPUT:
        return output_collectives_s(rank)
    if part is Part.MODULE:
        times = module(rank)
        return times.collectives_s("forward"), times.collectives_s("backward")
    tensor_s, expert_s = layer_collectives_s(rank, is_expert=part.has_experts)
    return tensor_s[0] + expert_s[0], tensor_s[1] + expert_s[1]


_TIMES: Mapping[Part, Callable[[Rank], PartTimes]] = {
    Part.PATCHES: patches,
    Part.ENCODER: encoder_layer,
    Part.PROJECTOR: projectors,
    Part.EMBEDDING: embedding,
    Part.DENSE: dense_layer,
    Part.KEPT_DENSE: dense_layer,
    Part.EXPERT: expert_layer,
    Part.KEPT_EXPERT: expert_layer,
    Part.MODULE: module,
    Part.OUTPUT: output_layer,
}


def _embedding_weight_gradients_s(rank: Rank) -> Floats:
    """The whole backward of an embedding: it adds up gradients of its weights."""
    return embedding(rank).backward_compute_s


def _no_weight_gradients_s(rank: Rank) -> Floats:
    """Layers that keep what others recompute never occur in zero-bubble schedules, which recompute nothing."""
    return np.zeros(len(rank.plans))


_WEIGHT_GRADIENTS_S: Mapping[Part, Callable[[Rank], Floats]] = {
    Part.PATCHES: patch_weight_gradients_s,
    Part.ENCODER: encoder_weight_gradients_s,
    Part.PROJECTOR: projector_weight_gradients_s,
    Part.EMBEDDING: _embedding_weight_gradients_s,
    Part.DENSE: dense_layer_weight_gradients_s,
    Part.KEPT_DENSE: _no_weight_gradients_s,
    Part.EXPERT: expert_layer_weight_gradients_s,
    Part.KEPT_EXPERT: _no_weight_gradients_s,
    Part.MODULE: module_weight_gradients_s,
    Part.OUTPUT: output_layer_weight_gradients_s,
}
