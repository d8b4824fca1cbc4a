"""Into how many pieces is the replicas' traffic once per step divided, and how long does it take?

Megatron Core cuts the weights of the first chunk of the first stage into buckets of whole tensors with at least max(40 million,
1 million for each replica) weights. The embedding tensor is reduced last and gathered first. Context-parallel ranks count as
replicas, too (`get_model` of Megatron-LM since 2025, `_ddp_wrap` of Megatron-Bridge). All other chunks are one bucket, since
what their stages exchange is seldom waited for (`DistributedDataParallel`). Where a stage has several chunks, the gradients of
each are reduced behind its last backward pass, including those of the first chunk (`align_grad_reduce`, the default, in
`schedules.py`).

Padded buckets of Muon are longer, and so there are fewer of them (`simulator.layout.dealt_matrices`).

Other frameworks fill buckets of a given size (`bucket_weights`; `reduce_bucket_size` of InternEvo, Colossal-AI and DeepSpeed).

From ZeRO-2 on, gradients travel part by part (FSDP2, Megatron-FSDP): on every stage each layer, the embedding and the output
layer are a piece. The first stage has no more pieces than its weights are times the embedding. Under ZeRO-2 each piece has a
start-up and a latency of its own, like what it reduces in passes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.domain.plan import is_interleaved
from simulator.layout.buckets import least_bucket_weights
from simulator.layout.chunks import split_layers
from simulator.layout.owned_matrices import num_first_buckets
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.replicas.replica_sync import ReplicaTraffic
from simulator.step.model_parts import ModelParts
from simulator.step.parts import Part
from simulator.table import Floats, Integers, total
from simulator.traffic.layer_collectives import Directions

FIRST_BY_PARTS = 2
"""ZeRO stage from which on gradients travel part by part."""


class Buckets(NamedTuple):
    """Pieces in which the traffic of every chunk once per step hides behind its passes, `(n, C)`; 0: one piece, not hidden."""

    gradients: Integers
    parameters: Integers

    @classmethod
    def of(cls, rank: Rank, parts: ModelParts, weights: StepWeights) -> Buckets:
        """Returns the pieces of designs with the parts and the weights of their chunks."""
        plans, workload = rank.plans, rank.workload
        ahead = np.ones(parts.counts[Part.OUTPUT].shape, dtype=np.int64)
        behind, first = ahead.copy(), _first_weights(rank, weights)
        ahead[:, 0] = _first_buckets(rank, first)
        behind[:, 0] = np.where(is_interleaved(plans), 1, ahead[:, 0])
        by_parts = plans.zero_stage >= FIRST_BY_PARTS
        if by_parts.any():
            num_parts = np.maximum(1, np.round(total(parts.counts.values()))).astype(np.int64)
            of_embeddings = (first[0] + first[1]) / np.maximum(1.0, _embedding_weights(rank))
            num_parts[:, 0] = np.clip(np.round(of_embeddings), 1, num_parts[:, 0])
            ahead, behind = (np.where(by_parts[:, None], num_parts, each) for each in (ahead, behind))
        return cls(
            gradients=behind * workload.overlaps_gradient_sync,
            parameters=ahead * workload.hides_parameter_gather,
        )


def _first_buckets(rank: Rank, first: tuple[Floats, Floats]) -> Integers:
    """Buckets of the first chunk with its shared and routed weights; those of routed experts travel alongside the others."""
    least = np.maximum(least_bucket_weights(rank.workload, rank.plans), _embedding_weights(rank))
    found = np.maximum(1, np.ceil(np.maximum(*first) / least))
    if rank.workload.muon:
        workload, plans = rank.workload, rank.plans
        chunks = split_layers(workload.model, plans, workload.stage_layers)
        found = np.minimum(found, num_first_buckets(workload, plans, chunks))
    return np.asarray(found, dtype=np.int64)


def _first_weights(rank: Rank, weights: StepWeights) -> tuple[Floats, Floats]:
    """Shared and routed weights of the first chunk on one rank, `(n,)` each."""
    first = weights.trained.of_chunk(0)
    return (
        first.shared_on_rank(rank.plans)[:, 0],
        first.routed_on_rank(rank.workload, rank.plans)[:, 0],
    )


def _embedding_weights(rank: Rank) -> Floats:
    """Trained weights of the embedding on one rank, `(n,)`."""
    is_trained = rank.workload.lora is None
    return is_trained * rank.workload.model.embedding_parameters / rank.plans.tensor_parallel


def once_per_step_s(
    rank: Rank, parts: ModelParts, weights: StepWeights, by_parts: ReplicaTraffic | None
) -> Directions:
    """Returns the times of gradients and weights once per step, `(n, C)` each, before anything hides them.

    Args:
        rank: ranks of the designs.
        parts: the parts of their model.
        weights: those of every chunk.
        by_parts: traffic of every part, `(n, k)`; `None` where no design has a ZeRO stage of 2 or 3. Copies of hybrid sharding
            under ZeRO-3 have one start-up for each chunk.
    """
    traffic = ReplicaTraffic.of(rank, weights)
    if by_parts is None:
        return traffic.gradient_s, traffic.parameter_s
    is_by_parts = rank.plans.zero_stage[:, None] == FIRST_BY_PARTS
    gradient_s, parameter_s = (
        # The copy of a tied embedding, on the last stage, is none of the parts.
        np.where(is_by_parts, np.maximum(whole_s, parts.weighted(each_s.T)), whole_s)
        for whole_s, each_s in (
            (traffic.gradient_s, by_parts.gradient_s),
            (traffic.parameter_s, by_parts.parameter_s),
        )
    )
    return gradient_s, parameter_s
