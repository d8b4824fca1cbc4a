"""How long does one optimizer step take, and what is the time spent on?

Layer times become chunk times, the pipeline kernel plays every forward and backward of every stage and
micro-batch, and the optimizer runs behind the slowest stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.chunks import Chunks
from simulator.compute import memory_bound_time_s
from simulator.layer_costs import (
    PartTimes,
    Rank,
    dense_layer,
    embedding,
    expert_layer,
    exposed_s,
    members_in_domain,
    output_layer,
)
from simulator.memory import OPTIMIZER_BYTES, WEIGHT_BYTES, num_micro_batches
from simulator.network import all_gather_s, all_reduce_s, point_to_point_s, reduce_scatter_s
from simulator.pipeline import play_pipelines
from simulator.table import Floats, Table

OPTIMIZER_PASS_BYTES = 4.0 + 4.0 + 2.0 * OPTIMIZER_BYTES + WEIGHT_BYTES
"""Per weight: gradient norm and update read the fp32 gradient, the update reads and writes the states and writes
the 16-bit weight."""
NUM_OPTIMIZER_KERNELS = 50.0
"""Launches of one fused optimizer step with gradient norm and clipping; estimate."""
NUM_OVERLAP_BUCKETS = 8
"""Gradient buckets of one chunk when synchronisation overlaps with the backward pass; estimate (Megatron-LM cuts at
40 million elements or more)."""


@dataclass(frozen=True, kw_only=True)
class StepTable(Table):
    """One step by what the average GPU spends it on, seconds `(n,)`; the parts sum to `step_time_s`."""

    step_time_s: Floats
    compute_s: Floats
    """Matrix products, attention, memory-bound operators and recomputation."""
    tensor_comm_s: Floats
    """Exposed collectives of tensor and context parallelism."""
    expert_comm_s: Floats
    """Exposed all-to-alls of expert parallelism."""
    shard_comm_s: Floats
    """Exposed gathers and reductions of ZeRO-2 and ZeRO-3 in every micro-batch."""
    pipeline_send_s: Floats
    """Time in which sends between stages block."""
    gradient_sync_s: Floats
    """Exposed synchronisation of gradients and parameters between replicas."""
    pipeline_bubble_s: Floats
    """Waiting for other stages."""
    optimizer_s: Floats
    """Optimizer step."""


def simulate_step(rank: Rank, chunks: Chunks) -> StepTable:
    """Returns the step of each design."""
    parts = _Parts.of(rank, chunks)
    sync = _Sync.of(rank, chunks)
    shard_forward_s, shard_backward_s = _shard_collectives(rank, parts)
    layers = chunks.num_layers
    plain_1f1b = rank.plans.virtual_pipeline == 1
    micro_batches = num_micro_batches(rank.workload, rank.plans)
    times = play_pipelines(
        num_stages=rank.plans.pipeline_parallel,
        num_chunks_per_stage=rank.plans.virtual_pipeline,
        num_micro_batches=micro_batches,
        chunk_forward_s=parts.per_chunk("forward_s") + layers * shard_forward_s[:, None],
        chunk_backward_s=parts.per_chunk("backward_s") + layers * shard_backward_s[:, None],
        send_s=_send_s(rank),
        send_blocks_sender=plain_1f1b,
        gradient_sync_s=sync.gradient_s,
        parameter_gather_s=sync.parameter_s,
        num_overlap_buckets=np.full(
            len(rank.plans), NUM_OVERLAP_BUCKETS if rank.workload.overlaps_gradient_sync else 0
        ),
    )
    stages = rank.plans.pipeline_parallel
    per_gpu = micro_batches / stages
    optimizer_s = _optimizer_s(rank, chunks)
    busy_s = times.busy_s.sum(axis=1) / stages
    send_s = times.send_busy_s.sum(axis=1) / stages
    return StepTable(
        step_time_s=times.step_s + optimizer_s,
        compute_s=parts.total("forward_compute_s", "backward_compute_s") * per_gpu,
        tensor_comm_s=parts.total("forward_tensor_comm_s", "backward_tensor_comm_s") * per_gpu,
        expert_comm_s=parts.total("forward_expert_comm_s", "backward_expert_comm_s") * per_gpu,
        shard_comm_s=layers.sum(axis=1) * (shard_forward_s + shard_backward_s) * per_gpu,
        pipeline_send_s=send_s,
        gradient_sync_s=times.exposed_sync_s,
        pipeline_bubble_s=np.maximum(0.0, times.step_s - times.exposed_sync_s - busy_s - send_s),
        optimizer_s=optimizer_s,
    )


@dataclass(frozen=True, kw_only=True)
class _Parts:
    """Times of the model's parts and how often each chunk has them."""

    times: tuple[PartTimes, ...]
    counts: tuple[Floats, ...]

    @classmethod
    def of(cls, rank: Rank, chunks: Chunks) -> _Parts:
        times = [dense_layer(rank), embedding(rank), output_layer(rank)]
        counts = [chunks.num_dense_layers, chunks.is_first.astype(float), chunks.is_last.astype(float)]
        if rank.workload.model.experts:
            times.append(expert_layer(rank))
            counts.append(chunks.num_expert_layers)
        return cls(times=tuple(times), counts=tuple(counts))

    def per_chunk(self, name: str) -> Floats:
        """Sum of one time over the parts of every chunk, `(n, C)`."""
        return np.sum(
            [count * getattr(part, name)[:, None] for count, part in zip(self.counts, self.times, strict=True)],
            axis=0,
        )

    def total(self, *names: str) -> Floats:
        """Sum of some times over the whole model, `(n,)`."""
        return np.sum([self.per_chunk(name).sum(axis=1) for name in names], axis=0)


@dataclass(frozen=True, kw_only=True)
class _Sync:
    """Traffic between replicas once per step for every chunk, seconds `(n, C)`."""

    gradient_s: Floats
    parameter_s: Floats

    @classmethod
    def of(cls, rank: Rank, chunks: Chunks) -> _Sync:
        shared, routed = _chunk_parameters(rank, chunks)
        gradient_shared_s, parameter_shared_s = _sync_of(rank, shared, *_replica_group(rank))
        if rank.workload.model.experts is None:
            return cls(gradient_s=gradient_shared_s, parameter_s=parameter_shared_s)
        gradient_routed_s, parameter_routed_s = _sync_of(rank, routed, *_expert_replica_group(rank))
        return cls(
            gradient_s=gradient_shared_s + gradient_routed_s,
            parameter_s=parameter_shared_s + parameter_routed_s,
        )


def _chunk_parameters(rank: Rank, chunks: Chunks) -> tuple[Floats, Floats]:
    """Weights of every chunk on one rank: those that every token meets, and those of routed experts; `(n, C)`."""
    model, plans = rank.workload.model, rank.plans
    shared = (
        chunks.num_dense_layers * model.dense_layer_parameters
        + chunks.num_expert_layers * model.expert_layer_shared_parameters
        + chunks.is_first * model.embedding_parameters
        + chunks.is_last * model.output_parameters
    )
    num_experts = model.experts.num_experts if model.experts else 0
    routed = chunks.num_expert_layers * num_experts * model.expert_parameters
    return shared / plans.tensor_parallel[:, None], routed / plans.expert_parallel[:, None]


def _replica_group(rank: Rank) -> tuple[Floats, Floats]:
    """Size of the group that shares gradients, and its members in one link domain."""
    size = rank.plans.data_parallel * rank.plans.context_parallel
    return size, members_in_domain(rank.offers.link_domain_size, rank.plans.tensor_parallel, size)


def _expert_replica_group(rank: Rank) -> tuple[Floats, Floats]:
    """The same for the weights of routed experts, whose replicas are e ranks apart."""
    plans = rank.plans
    size = plans.data_parallel * plans.context_parallel * plans.tensor_parallel // plans.expert_parallel
    return size, members_in_domain(rank.offers.link_domain_size, plans.expert_parallel, size)


def _sync_of(rank: Rank, weights: Floats, size: Floats, members: Floats) -> tuple[Floats, Floats]:
    """Gradient reduction and parameter gather of weights `(n, C)` in a group, by ZeRO stage.

    0: all-reduce of gradients. 1: reduce-scatter of gradients, gather of weights. 2 and 3 reduce gradients in every
    micro-batch (`_shard_collectives`); 2 still gathers the weights once per step.
    """
    stage = rank.plans.zero_stage[:, None]
    gradient_bytes = weights * rank.workload.wire_bytes
    links = rank.links.take((slice(None), None))
    group = {"group_size": size[:, None], "members_per_domain": members[:, None]}
    reduced_s = all_reduce_s(num_bytes=gradient_bytes, **group, links=links)
    scattered_s = reduce_scatter_s(num_bytes=gradient_bytes, **group, links=links)
    gathered_s = all_gather_s(num_bytes=weights * WEIGHT_BYTES, **group, links=links)
    gradient_s = np.select([stage == 0, stage == 1], [reduced_s, scattered_s], 0.0)
    return gradient_s, np.where((stage == 1) | (stage == 2), gathered_s, 0.0)


def _shard_collectives(rank: Rank, parts: _Parts) -> tuple[Floats, Floats]:
    """Exposed traffic of ZeRO-2 and ZeRO-3 in one layer of one micro-batch, forward and backward.

    Gradients are reduce-scattered behind the layer's backward pass; under ZeRO-3 its weights are gathered behind the
    forward and again behind the backward pass of the neighbouring layer.
    """
    model, plans = rank.workload.model, rank.plans
    layer = parts.times[-1] if model.experts else parts.times[0]
    weights = (model.expert_layer_shared_parameters if model.experts else model.dense_layer_parameters) / (
        plans.tensor_parallel
    )
    gather_s, reduce_s = _layer_traffic(rank, weights, *_replica_group(rank))
    if model.experts:
        routed = model.experts.num_experts * model.expert_parameters / plans.expert_parallel
        expert_gather_s, expert_reduce_s = _layer_traffic(rank, routed, *_expert_replica_group(rank))
        gather_s, reduce_s = gather_s + expert_gather_s, reduce_s + expert_reduce_s
    splits_gradients, splits_weights = plans.zero_stage >= 2, plans.zero_stage >= 3
    forward_traffic_s = np.where(splits_weights, gather_s, 0.0)
    backward_traffic_s = np.where(splits_gradients, reduce_s, 0.0) + forward_traffic_s
    return exposed_s(forward_traffic_s, layer.forward_s), exposed_s(backward_traffic_s, layer.backward_s)


def _layer_traffic(rank: Rank, weights: Floats, size: Floats, members: Floats) -> tuple[Floats, Floats]:
    """Gather of some weights `(n,)` and reduce-scatter of their gradients in a group."""
    gradient_bytes = weights * rank.workload.wire_bytes
    return (
        all_gather_s(num_bytes=weights * WEIGHT_BYTES, group_size=size, members_per_domain=members, links=rank.links),
        reduce_scatter_s(num_bytes=gradient_bytes, group_size=size, members_per_domain=members, links=rank.links),
    )


def _send_s(rank: Rank) -> Floats:
    """One activation from a stage to the next; tensor-parallel ranks send a share each."""
    plans = rank.plans
    stride = plans.tensor_parallel * plans.context_parallel * plans.data_parallel
    sent_bytes = WEIGHT_BYTES * rank.tokens * rank.workload.model.hidden_size / plans.tensor_parallel
    is_inside = stride < rank.offers.link_domain_size
    send_s = point_to_point_s(num_bytes=sent_bytes, is_same_domain=is_inside, links=rank.links)
    return np.where(plans.pipeline_parallel > 1, send_s, 0.0)


def _optimizer_s(rank: Rank, chunks: Chunks) -> Floats:
    """Optimizer over the weights of the fullest chunk set of one rank; sharded from ZeRO-1 on."""
    shared, routed = _chunk_parameters(rank, chunks)
    is_split = rank.plans.zero_stage >= 1
    shared_shards = np.where(is_split, _replica_group(rank)[0], 1)
    routed_shards = np.where(is_split, _expert_replica_group(rank)[0], 1)
    weights = shared / shared_shards[:, None] + routed / routed_shards[:, None]
    per_rank = weights.max(axis=1) * rank.plans.virtual_pipeline
    return memory_bound_time_s(
        num_bytes=OPTIMIZER_PASS_BYTES * per_rank,
        memory_bytes_per_s=rank.offers.memory_bytes_per_s,
        constants=rank.kernels,
        num_kernels=NUM_OPTIMIZER_KERNELS,
    )
