"""Which matrices does a rank update with Muon, and how much longer are its buffers for it?

From ZeRO-1 on replicas share out whole matrices (`simulator.layout.dealt_matrices`); without, each updates all. Chunks have
buffers of their own, those of routed experts apart from the others. Only the first chunk of the first stage has several buckets
(`simulator.step.gradient_buckets`). What Adam updates lies in buffers of its own that are split anywhere; where tensors are
dealt, embedding and output layer go to one rank each. Norms and biases take their turns there; what they hold is little, and
counts as spread evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.domain.muon import Muon
from simulator.domain.plan import PlanTable, has_split_ends, shard_group
from simulator.domain.workload import Workload
from simulator.layout.buckets import least_bucket_weights
from simulator.layout.chunks import Chunks
from simulator.layout.dealt_matrices import Shares, Sizes, dealt, packed
from simulator.layout.expert_ranks import expert_parts, routed_shard_group
from simulator.layout.matrices import (
    MODULE_VECTORS,
    Matrix,
    Split,
    dense_matrices,
    end_matrix,
    module_matrices,
    num_expert_vectors,
    num_layer_vectors,
    routed_matrices,
    shared_matrices,
)
from simulator.layout.newton_schulz import iterated
from simulator.table import Booleans, Floats, Integers, first_of_equals, total

GATHERED_WEIGHT_BYTES = 2.0
"""A weight in 16 bits, in which replicas gather it."""


@dataclass(frozen=True, kw_only=True)
class MatrixKinds:
    """K kinds of matrices of a model, on one rank of each design."""

    matrices: tuple[Matrix, ...]
    are_routed: bool
    """Whether these are matrices of routed experts."""
    per_layer: Floats
    """How many a layer has, `(n, 3, K)`: one with an ordinary block, one with experts, a module of multi-token prediction."""
    parts: Integers
    """Ranks that split a matrix, `(n,)`."""
    ranks: Integers
    """Replicas that share matrices out, `(n,)`; 1: each updates all."""
    vectors: Floats
    """Tensors of a layer of each sort that are no matrices, `(n, 3)`."""

    @classmethod
    def shared(cls, workload: Workload, plans: PlanTable) -> Self:
        """Returns those that every token uses."""
        model = workload.model
        # The projection of a module is ahead of its layer.
        of_sorts = module_matrices(model), dense_matrices(model), shared_matrices(model)
        kinds = tuple(each for of_sort in of_sorts for each in of_sort)
        sort = np.repeat([2, 0, 1], [len(of_sort) for of_sort in of_sorts])
        of_module = (1 if model.has_expert_modules else 0, 2)
        in_sort = np.stack([sort == 0, sort == 1, np.isin(sort, of_module)])
        per_layer = in_sort * np.array([each.per_layer for each in kinds])
        return cls(
            matrices=kinds,
            are_routed=False,
            per_layer=np.broadcast_to(per_layer, (len(plans), *per_layer.shape)),
            parts=plans.tensor_parallel,
            ranks=np.where(plans.zero_stage > 0, shard_group(plans), 1),
            vectors=np.broadcast_to(
                num_layer_vectors(model) + np.array([0.0, 0.0, MODULE_VECTORS]), (len(plans), 3)
            ),
        )

    @classmethod
    def routed(cls, workload: Workload, plans: PlanTable) -> Self:
        """Returns those of routed experts, of a model that has any."""
        kinds = routed_matrices(workload.model)
        number = np.array([each.per_layer for each in kinds])
        in_sort = np.array([0.0, 1.0, float(workload.model.has_expert_modules)])
        ranks = np.where(plans.zero_stage > 0, routed_shard_group(workload, plans), 1.0)
        return cls(
            matrices=kinds,
            are_routed=True,
            per_layer=in_sort[:, None] * number / plans.expert_parallel[:, None, None],
            parts=np.full(len(plans), expert_parts(workload)),
            ranks=np.maximum(1, ranks.astype(np.int64)),
            vectors=in_sort * num_expert_vectors(workload.model) / plans.expert_parallel[:, None],
        )

    def sides(self, matrix: Matrix) -> tuple[Floats, Floats]:
        """Returns the rows and columns of a matrix on one rank, `(n,)`."""
        whole = np.ones(len(self.parts))
        return (
            matrix.rows / (self.parts if matrix.split is Split.ROWS else whole),
            matrix.columns / (self.parts if matrix.split is Split.COLUMNS else whole),
        )

    @property
    def sizes(self) -> Sizes:
        """Weights and work of one matrix on a rank, `(n, K)`."""
        sides = [self.sides(each) for each in self.matrices]
        weights = [rows * columns for rows, columns in sides]
        costs = [np.maximum(rows, columns) * np.minimum(rows, columns) ** 2 for rows, columns in sides]
        return Sizes(*(np.stack(each, axis=1) for each in (weights, costs)))

    def numbers_in(self, chunks: Chunks) -> Floats:
        """Returns how many matrices of each kind chunks hold on a rank, `(K, n, C)`."""
        return np.asarray(np.einsum("gnc,ngk->knc", _layers(chunks), self.per_layer))


@dataclass(frozen=True, kw_only=True)
class OwnedMatrices:
    """What replicas own of the matrices of stages, `(n,)`, or `(s, n)` for s stages."""

    kinds: MatrixKinds
    weights: Floats
    """Weights of all matrices on a rank of the stage."""
    state_bytes: Floats
    """Optimizer states of the rank that has most, without those of what Adam updates and is spread evenly."""
    costliest: Floats
    """`(K, n)` or `(K, s, n)` matrices of each kind that the rank with the most work updates."""
    end_weights: Floats
    """Weights of embedding and output layer that are dealt as whole tensors."""

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, chunks: Chunks, stages: Integers) -> tuple[Self, ...]:
        """Returns those that every token uses, and those of routed experts if there are any."""
        are_dealt = deals_tensors(workload, plans, chunks)
        return tuple(
            cls._chosen(workload, plans, chunks, stages, kinds, are_dealt)
            for kinds in kinds_of(workload, plans)
        )

    @classmethod
    def _chosen(
        cls,
        workload: Workload,
        plans: PlanTable,
        chunks: Chunks,
        stages: Integers,
        kinds: MatrixKinds,
        are_dealt: Booleans,
    ) -> Self:
        """Dealt matrices of some designs `(n,)`, and packed ones of the others."""
        if not are_dealt.any():
            return cls._packed(workload, plans, chunks, stages, kinds)
        of_dealt = cls._dealt(workload, plans, chunks, stages, kinds)
        if are_dealt.all():
            return of_dealt
        of_packed = cls._packed(workload, plans, chunks, stages, kinds)
        names = ("weights", "state_bytes", "costliest", "end_weights")
        columns = {
            name: np.where(are_dealt, getattr(of_dealt, name), getattr(of_packed, name)) for name in names
        }
        return cls(kinds=kinds, **columns)

    @classmethod
    def _packed(
        cls, workload: Workload, plans: PlanTable, chunks: Chunks, stages: Integers, kinds: MatrixKinds
    ) -> Self:
        shares = packed_in_chunks(workload, plans, chunks, kinds)
        per_weight = muon_of(workload).state_bytes
        return cls(
            kinds=kinds,
            weights=chunks.on_stage(_weights_in(chunks, kinds), stages),
            state_bytes=per_weight * chunks.on_stage(shares.most_weights, stages),
            costliest=_on_stages(chunks, np.moveaxis(shares.costliest, 2, 0), stages),
            end_weights=np.zeros(stages.shape),
        )

    @classmethod
    def _dealt(
        cls, workload: Workload, plans: PlanTable, chunks: Chunks, stages: Integers, kinds: MatrixKinds
    ) -> Self:
        """Deals all tensors of a stage at once, whatever chunks they are in."""
        numbers = _on_stages(chunks, kinds.numbers_in(chunks), stages)
        ends = np.zeros(stages.shape) if kinds.are_routed else _num_ends(workload, plans, chunks, stages)
        end_weights = end_matrix(workload.model).num_weights / kinds.parts
        vectors = chunks.on_stage(np.einsum("gnc,ng->nc", _layers(chunks), kinds.vectors), stages)
        if not kinds.are_routed:
            vectors = vectors + chunks.on_stage(chunks.is_last, stages)  # the final norm
        all_numbers = np.round(np.concatenate([numbers, ends[None], vectors[None]])).astype(np.int64)
        sizes, nothing = kinds.sizes, np.zeros(len(plans))
        weights = np.column_stack([sizes.weights, end_weights, nothing])
        muon_bytes, adam_bytes = muon_of(workload).state_bytes, workload.optimizer_bytes
        held = np.column_stack([muon_bytes * sizes.weights, adam_bytes * end_weights, nothing])
        work = np.column_stack([sizes.costs, nothing, nothing])
        by_states, by_work = (
            _dealt_once(all_numbers, Sizes(weights, costs), kinds) for costs in (held, work)
        )
        return cls(
            kinds=kinds,
            weights=np.einsum("k...n,nk->...n", numbers, sizes.weights),
            state_bytes=np.einsum("k...n,nk->...n", by_states, held),
            costliest=by_work[:-2],
            end_weights=ends * end_weights,
        )


def kinds_of(workload: Workload, plans: PlanTable) -> list[MatrixKinds]:
    """Returns the matrices that every token uses, and those of routed experts if there are any."""
    shared = [MatrixKinds.shared(workload, plans)]
    return shared if workload.model.experts is None else [*shared, MatrixKinds.routed(workload, plans)]


def muon_of(workload: Workload) -> Muon:
    """Returns how Muon updates the matrices of a workload that has it."""
    assert workload.muon is not None
    return workload.muon


def deals_tensors(workload: Workload, plans: PlanTable, chunks: Chunks) -> Booleans:
    """Returns whether tensors are dealt to ranks that all get the sums of all gradients, `(n,)`; never without Muon and ZeRO.

    Unless the workload says so, where this moves fewer bytes over all chunks than padded buffers do. Biases of experts, which
    Adam updates, cannot be apart from their matrices in such buffers (Megatron Core).
    """
    is_shared = plans.zero_stage > 0
    if workload.muon is None or workload.muon.reduction == "reduce_scatter":
        return np.zeros_like(is_shared)
    if workload.muon.reduction == "all_reduce" or (
        workload.model.experts and workload.model.experts.has_biases
    ):
        return is_shared
    held, padded = np.zeros(len(plans)), np.zeros(len(plans))
    for kinds in kinds_of(workload, plans):
        held += _weights_in(chunks, kinds).sum(axis=1)
        padded += packed_in_chunks(workload, plans, chunks, kinds).buffer_weights.sum(axis=1)
    gradient, weight = float(workload.wire_bytes), GATHERED_WEIGHT_BYTES
    return np.asarray(is_shared & (held * (2.0 * gradient + weight) < padded * (gradient + weight)))


def packed_in_chunks(workload: Workload, plans: PlanTable, chunks: Chunks, kinds: MatrixKinds) -> Shares:
    """Returns the shares of the matrices in the buckets of chunks, `(n, C)` and `(n, C, K)`; equal chunks are packed once."""
    num_designs, num_chunks = chunks.stages.shape
    layers = np.moveaxis(_layers(chunks), 0, 2).astype(np.int64).reshape(num_designs * num_chunks, 3)
    design = np.repeat(np.arange(num_designs), num_chunks)
    is_first = np.tile(np.arange(num_chunks) == 0, num_designs) & workload.overlaps_gradient_sync
    # Replicas that share routed experts may be as many in layouts whose buckets differ.
    least = np.where(is_first, least_bucket_weights(workload, plans)[design], np.inf)
    shared = (kinds.parts, kinds.ranks, plans.expert_parallel)
    first, inverse = first_of_equals([*layers.T, least, *(each[design] for each in shared)])
    chosen = design[first]
    found = packed(
        layers[first],
        kinds.per_layer[chosen],
        Sizes(*(each[chosen] for each in kinds.sizes)),
        kinds.ranks[chosen],
        least[first],
    )
    shape = num_designs, num_chunks
    return Shares(
        buffer_weights=found.buffer_weights[inverse].reshape(shape),
        most_weights=found.most_weights[inverse].reshape(shape),
        costliest=found.costliest[inverse].reshape(*shape, len(kinds.matrices)),
        num_buckets=found.num_buckets[inverse].reshape(shape),
    )


def spread_weights(weights: tuple[Floats, Floats], owned: tuple[OwnedMatrices, ...]) -> Floats:
    """Returns the weights that Adam updates on every rank of stages, those of whole embeddings aside.

    Args:
        weights: Weights that every token uses and routed ones on a rank of the stages.
        owned: What replicas own of these.
    """
    return np.maximum(
        0.0,
        total(
            (held - each.weights - each.end_weights) / each.kinds.ranks
            for held, each in zip(weights, owned, strict=False)  # a dense model has nothing routed
        ),
    )


def work_bytes(workload: Workload, owned: tuple[OwnedMatrices, ...]) -> Floats:
    """Returns what the largest piece of a matrix takes at work on a rank of stages, beside its momentum."""
    mode, most = muon_of(workload).tensor_mode, np.zeros(owned[0].weights.shape)
    for each in owned:
        for number, matrix in zip(each.costliest, each.kinds.matrices, strict=True):
            for piece in iterated(matrix, each.kinds.parts, mode):
                most = np.maximum(most, (number > 0) * piece.work_bytes)
    return most


def gathered_bytes(
    workload: Workload,
    plans: PlanTable,
    chunks: Chunks,
    owned: tuple[OwnedMatrices, ...],
    weights: tuple[Floats, Floats],
) -> Floats:
    """Returns what is gathered next to the weights of a rank behind the update, if tensors are dealt.

    If a gather is behind the next forward pass instead, it uses the buffer of the gradients.

    Args:
        workload: The run.
        plans: Its plans.
        chunks: Their chunks.
        owned: What replicas own on some stages.
        weights: Weights that every token uses and routed ones on a rank of these; one is gathered after the other.
    """
    most = np.zeros(owned[0].weights.shape)
    if workload.hides_parameter_gather:
        return most
    are_dealt = deals_tensors(workload, plans, chunks)
    for held, each in zip(weights, owned, strict=False):  # a dense model has nothing routed
        most = np.maximum(most, GATHERED_WEIGHT_BYTES * held * (are_dealt & (each.kinds.ranks > 1)))
    return most


def padding(workload: Workload, plans: PlanTable, chunks: Chunks) -> tuple[Floats, Floats]:
    """Returns the weights that pad the buffers of matrices on a rank, those that every token uses and routed, `(n, C)` each."""
    shared = routed = np.zeros(chunks.stages.shape)
    if workload.muon:
        is_padded = ~deals_tensors(workload, plans, chunks)[:, None]
        found = [is_padded * _padding(workload, plans, chunks, kinds) for kinds in kinds_of(workload, plans)]
        shared, routed = (*found, routed)[:2]
    return shared, routed


def num_first_buckets(workload: Workload, plans: PlanTable, chunks: Chunks) -> Floats:
    """Returns the padded buckets of the first chunk, `(n,)`: more than there can be where nothing is padded.

    Embeddings, which Adam updates, have a bucket of their own. Buckets of routed experts travel beside the others.
    """
    most = np.zeros(len(plans))
    for kinds in kinds_of(workload, plans):
        found = packed_in_chunks(workload, plans, chunks, kinds).num_buckets[:, 0]
        most = np.maximum(most, found + (not kinds.are_routed))
    is_padded = (plans.zero_stage > 0) & ~deals_tensors(workload, plans, chunks)
    return np.where(is_padded, most, np.inf)


def _padding(workload: Workload, plans: PlanTable, chunks: Chunks, kinds: MatrixKinds) -> Floats:
    buffers = packed_in_chunks(workload, plans, chunks, kinds).buffer_weights
    return np.maximum(0.0, buffers - _weights_in(chunks, kinds))


def _layers(chunks: Chunks) -> Floats:
    """Layers of each sort in chunks, `(3, n, C)`."""
    return np.stack([chunks.num_dense_layers, chunks.num_expert_layers, chunks.num_mtp_layers])


def _weights_in(chunks: Chunks, kinds: MatrixKinds) -> Floats:
    """Weights of the matrices of chunks on a rank, `(n, C)`."""
    return np.asarray(np.einsum("knc,nk->nc", kinds.numbers_in(chunks), kinds.sizes.weights))


def _on_stages(chunks: Chunks, numbers: Floats, stages: Integers) -> Floats:
    """Sums of `(K, n, C)` over the chunks of stages, `(K, s, n)`."""
    return np.stack([chunks.on_stage(each, stages) for each in numbers])


def _num_ends(workload: Workload, plans: PlanTable, chunks: Chunks, stages: Integers) -> Floats:
    """Embedding and output layer of stages, copies of a tied embedding included, `(s, n)`."""
    model = workload.model
    own, copy = int(not model.has_tied_embeddings), int(model.copied_parameters > 0)
    has_output = own + copy * has_split_ends(plans)
    is_first, is_last = (chunks.on_stage(each, stages) for each in (chunks.is_first, chunks.is_last))
    return np.asarray(is_first + is_last * has_output)


def _dealt_once(numbers: Integers, sizes: Sizes, kinds: MatrixKinds) -> Floats:
    """What the costliest rank of stages has of tensors `(K, s, n)`, in the same shape; equal stages are dealt once."""
    num_kinds, num_designs = numbers.shape[0], numbers.shape[-1]
    rows = np.ascontiguousarray(numbers.reshape(num_kinds, -1).T)
    design = np.tile(np.arange(num_designs), len(rows) // max(1, num_designs))
    first, inverse = first_of_equals([*rows.T, kinds.ranks[design], kinds.parts[design]])
    chosen = design[first]
    found = dealt(rows[first], Sizes(*(each[chosen] for each in sizes)), kinds.ranks[chosen])
    return found.costliest[inverse].T.reshape(numbers.shape)
