"""What is a model made of, and what does each part of it take? Layers of each kind, embedding and output layer, by chunk.

Modules of multi-token prediction are parts of their own; their logits are those of the output layer, which gives several.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.chunks import Chunks, ChunkWeights
from simulator.compiled import compiled
from simulator.layer_costs import (
    PartTimes,
    dense_layer,
    embedding,
    expert_layer,
    kept_layer_times,
    output_layer,
)
from simulator.lora import adapter_parameters
from simulator.plan import splits_backward
from simulator.rank import Rank
from simulator.recomputed_layers import KeptLayers
from simulator.row_sums import sum_columns
from simulator.sharded_copies import with_copies
from simulator.table import Floats, Integers, Table, total
from simulator.token_prediction import module, module_weight_gradients_s
from simulator.trained_weights import StepWeights
from simulator.weight_gradients import (
    dense_layer_weight_gradients_s,
    expert_layer_weight_gradients_s,
    output_layer_weight_gradients_s,
)
from simulator.workload import Workload

_EMBEDDING, _OUTPUT_LAYER, _NUM_ENDS = 1, 2, 2
"""Places of the two ends of the model among its parts; all others are layers, dense ones before those with experts."""


@dataclass(frozen=True, kw_only=True)
class ExposedTimes(Table):
    """What one micro-batch waits for in every chunk, one way, `(n, C)`, named as in `StepTable`."""

    tensor_comm_s: Floats
    expert_comm_s: Floats
    shard_comm_s: Floats
    host_copy_s: Floats


@dataclass(frozen=True, kw_only=True)
class ModelParts:
    """The k kinds of parts of the model: their times, how often each chunk has them, and their weights."""

    times: tuple[PartTimes, ...]
    counts: tuple[Floats, ...]
    """`(n, C)` for each part."""
    weights: StepWeights
    """`(1, k)`, of all ranks together."""
    has_kept: bool
    """Whether some layers keep what others of their kind compute again, as kinds of their own behind all others."""
    has_modules: bool = False
    """Whether the last part is that of modules of multi-token prediction."""

    @classmethod
    def of(cls, rank: Rank, chunks: Chunks) -> ModelParts:
        """Returns the parts of the model under every design."""
        model = rank.workload.model
        times = [dense_layer(rank), embedding(rank), output_layer(rank)]
        counts = [chunks.num_dense_layers, chunks.is_first.astype(float), chunks.is_last.astype(float)]
        shared = [model.dense_layer_parameters, model.embedding_parameters, model.output_parameters]
        routed, whole = [0, 0, 0], [model.dense_layer_whole_parameters, 0, 0]
        if model.experts:
            times.append(expert_layer(rank))
            counts.append(chunks.num_expert_layers)
            shared.append(model.expert_layer_shared_parameters)
            routed.append(model.experts.num_experts * model.expert_parameters)
            whole.append(model.expert_layer_whole_parameters)
        if kept := KeptLayers.of(rank.workload, rank.plans, chunks):
            is_layer = slice(0, None, 3)  # dense ones, and behind the ends of the model those with experts
            kept_counts = [kept.dense, kept.expert][: len(counts[is_layer])]
            counts[is_layer] = [all_ - own for all_, own in zip(counts[is_layer], kept_counts, strict=True)]
            times += kept_layer_times(rank)[: len(kept_counts)]
            counts += kept_counts
            shared += shared[is_layer]
            routed += routed[is_layer]
            whole += whole[is_layer]
        if model.num_mtp_layers:
            times.append(module(rank))
            counts.append(chunks.num_mtp_layers)
            shared.append(model.mtp_weights.shared)
            routed.append(model.mtp_weights.routed)
            whole.append(model.mtp_weights.whole)
        weights = ChunkWeights(
            shared=np.array([shared], dtype=float),
            routed=np.array([routed], dtype=float),
            whole=np.array([whole], dtype=float) if any(whole) else 0.0,
            never_cast=np.array([[0, *shared[1:3], *[0] * (len(shared) - 3)]], dtype=float),
        )
        split = _split(rank.workload, weights)
        return cls(
            times=with_copies(rank, times, split),
            counts=tuple(counts),
            weights=split,
            has_kept=kept is not None,
            has_modules=model.num_mtp_layers > 0,
        )

    def per_chunk(self, name: str) -> Floats:
        """Sum of one time over the parts of every chunk, `(n, C)`."""
        return self.weighted([getattr(times, name) for times in self.times])

    def exposed(self, direction: str, shard_comm_s: Floats, host_copy_s: Floats) -> ExposedTimes:
        """What every chunk waits for, forward or backward, with its shard collectives and host copies `(n, C)`."""
        return ExposedTimes(
            tensor_comm_s=self.per_chunk(f"{direction}_tensor_comm_s"),
            expert_comm_s=self.per_chunk(f"{direction}_expert_comm_s"),
            shard_comm_s=shard_comm_s,
            host_copy_s=host_copy_s,
        )

    def weight_gradients(self, rank: Rank) -> Floats:
        """What zero-bubble schedules compute later of the backward of every chunk, `(n, C)`; 0 under other schedules.

        All that an embedding does backward is to add up gradients of its weights.
        """
        is_split = splits_backward(rank.plans)
        if not is_split.any():
            return np.zeros_like(self.counts[0])
        times_s = [
            dense_layer_weight_gradients_s(rank),
            embedding(rank).backward_compute_s,
            output_layer_weight_gradients_s(rank),
        ]
        if rank.workload.model.experts:
            times_s.append(expert_layer_weight_gradients_s(rank))
        # Layers that keep what others recompute are never part of zero-bubble schedules, which recompute nothing.
        times_s += [np.zeros(len(rank.plans))] * (self._num_others - len(times_s))
        if self.has_modules:
            times_s.append(module_weight_gradients_s(rank))
        return self.weighted(time_s * is_split for time_s in times_s)

    def total(self, *names: str) -> Floats:
        """Sum of some times over the whole model, `(n,)`."""
        return total(
            number * getattr(times, name)
            for name in names
            for number, times in zip(self._numbers, self.times, strict=True)
        )

    @cached_property
    def _numbers(self) -> tuple[Floats, ...]:
        """How often the whole model has each part, `(n,)`."""
        return tuple(sum_columns(count) for count in self.counts)

    @property
    def _num_others(self) -> int:
        """Parts but that of modules."""
        return len(self.counts) - self.has_modules

    def in_order(self) -> Integers:
        """Returns the places of the k parts in the order of the model: dense layers first, kept ones behind their like."""
        num_kinds = (self._num_others - _NUM_ENDS) // (2 if self.has_kept else 1)
        dense, expert = [0], [_NUM_ENDS + 1] if num_kinds > 1 else []
        if self.has_kept:
            kept = range(self._num_others - num_kinds, self._num_others)
            dense, expert = [0, kept[0]], [*expert, *kept[1:]]
        modules = [self._num_others] if self.has_modules else []
        return np.array([_EMBEDDING, *dense, *expert, *modules, _OUTPUT_LAYER])

    def weighted(self, part_times_s: Iterable[Floats]) -> Floats:
        """Sum over the parts of every chunk, `(n, C)`, of a time `(n,)` for each of the k parts."""
        sums_s = np.zeros(self.counts[0].shape)
        for count, time_s in zip(self.counts, part_times_s, strict=True):
            _add_weighted(sums_s, np.ascontiguousarray(count), np.ascontiguousarray(time_s))
        return sums_s


@compiled
def _add_weighted(sums: Floats, counts: Floats, weights: Floats) -> None:
    """Adds counts `(n, C)`, each row with a weight `(n,)`, to sums `(n, C)` in one pass."""
    for row in range(len(sums)):
        for chunk in range(sums.shape[1]):
            sums[row, chunk] += counts[row, chunk] * weights[row]


def _split(workload: Workload, weights: ChunkWeights) -> StepWeights:
    """Weights of the parts of the model, `(1, k)`; adapters stand in the parts that are layers."""
    if workload.lora is None:
        return StepWeights(trained=weights)
    is_layer = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0][: weights.shared.shape[1]]
    if workload.model.num_mtp_layers:
        is_layer[-1:] = [1.0]
    adapters = np.array([is_layer]) * adapter_parameters(workload.model, workload.lora)
    trained = ChunkWeights(shared=adapters, routed=np.zeros_like(adapters), never_cast=adapters)
    return StepWeights(trained=trained, frozen=weights)
