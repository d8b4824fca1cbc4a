"""How long does one optimizer step take, and what is the time spent on?

Layer times become chunk times, the pipeline kernel plays every forward and backward of every stage and micro-batch, and the
optimizer runs after the slowest stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.domain.plan import shard_group, splits_backward
from simulator.layout.chunks import Chunks, weights_on_stage
from simulator.layout.expert_ranks import routed_shard_group
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.trained_weights import StepWeights
from simulator.layout.update_bytes import update_bytes
from simulator.machine.compute import memory_bound_time_s
from simulator.machine.rank import Rank
from simulator.pipeline.schedule import PipelineColumns, play_pipelines
from simulator.replicas.replica_sync import ReplicaTraffic, reductions_of_step, tied_gradient_s
from simulator.row_sums import sum_columns
from simulator.step.beside_sends import has_sends_beside, with_sends_beside
from simulator.step.card_time import (
    last_sends_wait_s,
    leaves_domain,
    parts_card_s,
    replicas_leave_domain,
    uses_cards,
)
from simulator.step.gradient_buckets import FIRST_BY_PARTS, Buckets, once_per_step_s
from simulator.step.lent_cores import lent_to_replicas_s, replicas_core_share
from simulator.step.link_waits import OnLink, by_way, half_cards, on_link
from simulator.step.model_parts import ExposedTimes, ModelParts
from simulator.step.muon_update import muon_optimizer_s
from simulator.step.next_chunks import PassesBeside
from simulator.step.offload import gradient_copies_s, host_update_s, part_copies_s
from simulator.step.once_per_step import once_per_step_bytes
from simulator.step.replica_streams import ReplicaStreams, beside_replicas, replicas_share_scale_up
from simulator.step.shard_passes import ShownShards, reduces_in_every_pass, shards_s
from simulator.step.whole_gradients import whole_gradient_s
from simulator.table import Floats, Table, total
from simulator.traffic.layer_collectives import Directions
from simulator.traffic.stage_sends import send_card_s, send_s, sends_block

NUM_OPTIMIZER_KERNELS = 50.0
"""Launches of one fused optimizer step with gradient norm and clipping; estimate."""


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
    host_copy_s: Floats
    """Exposed copies of activations and gradients to main memory and back."""
    pipeline_send_s: Floats
    """Time in which sends between stages block."""
    gradient_sync_s: Floats
    """Exposed synchronisation of gradients and parameters between replicas: by how much it lengthens the step, whichever stage
    it holds up first."""
    pipeline_bubble_s: Floats
    """Waiting for other stages, as it would be without that synchronisation."""
    optimizer_s: Floats
    """Optimizer step."""


STEP_PARTS = tuple(name for name in StepTable.names() if name != "step_time_s")
"""The parts of a step, as columns of `StepTable`."""


def simulate_step(rank: Rank, chunks: Chunks) -> StepTable:
    """Returns the step of each design."""
    made = _Made.of(rank, chunks)
    parts = made.parts
    times = play_pipelines(**made.pipeline)
    stages = rank.plans.pipeline_parallel
    per_gpu = num_micro_batches(rank.workload, rank.plans) / stages
    busy_s, send_s = sum_columns(times.busy_s) / stages, sum_columns(times.send_busy_s) / stages
    # A number format that the accelerator lacks has no busy time; the pipeline would play on without it.
    step_s = np.where(np.isnan(busy_s), np.nan, times.step_s)
    waiting_s = step_s - times.exposed_sync_s - busy_s - send_s
    behind_s = made.lent_s + whole_gradient_s(rank, chunks, made.weights.trained) + tied_gradient_s(rank)
    optimizer_s = _optimizer_s(rank, chunks, made.weights)
    return StepTable(
        step_time_s=step_s + behind_s + optimizer_s,
        compute_s=parts.total("forward_compute_s", "backward_compute_s") * per_gpu,
        tensor_comm_s=parts.total("forward_tensor_comm_s", "backward_tensor_comm_s") * per_gpu,
        expert_comm_s=parts.total("forward_expert_comm_s", "backward_expert_comm_s") * per_gpu
        - times.hidden_s / stages,
        shard_comm_s=sum_columns(total(made.shards_s)) * per_gpu,
        host_copy_s=sum_columns(total(made.copies_s)) * per_gpu,
        pipeline_send_s=send_s,
        gradient_sync_s=times.exposed_sync_s + behind_s,
        pipeline_bubble_s=np.maximum(0.0, waiting_s),  # rounding must not make it negative
        optimizer_s=optimizer_s,
    )


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """What one step is played from, one row for each design: the pipeline, and what follows it."""

    pipeline: PipelineColumns
    """What `simulator.pipeline.schedule` plays."""
    forward: ExposedTimes
    """Shares of `chunk_forward_s`."""
    backward: ExposedTimes
    """Shares of `chunk_backward_s`."""
    lent_s: Floats
    """`(n,)` how much longer the step is because traffic of the replicas takes cores from passes."""
    whole_gradient_s: Floats
    """`(n,)` sums, between tensor-parallel ranks, of the gradients of weights that each of them holds whole."""
    tied_gradient_s: Floats
    """`(n,)` all-reduce of a tied embedding between first and last stage."""
    optimizer_s: Floats
    """`(n,)` optimizer step."""


def step_parts(rank: Rank, chunks: Chunks) -> StepParts:
    """Returns what `simulate_step` needs to play the step of each design."""
    made = _Made.of(rank, chunks)
    forward_shards_s, backward_shards_s = made.shards_s
    forward_copies_s, backward_copies_s = made.copies_s
    return StepParts(
        pipeline=made.pipeline,
        forward=made.parts.exposed("forward", forward_shards_s, forward_copies_s),
        backward=made.parts.exposed("backward", backward_shards_s, backward_copies_s),
        lent_s=made.lent_s,
        whole_gradient_s=whole_gradient_s(rank, chunks, made.weights.trained),
        tied_gradient_s=tied_gradient_s(rank),
        optimizer_s=_optimizer_s(rank, chunks, made.weights),
    )


@dataclass(frozen=True, kw_only=True)
class _Made:
    """The pipelines of designs, and the parts they are made of."""

    parts: ModelParts
    weights: StepWeights
    shards_s: Directions
    """Exposed gathers and reductions of sharded weights, `(n, C)` a way."""
    copies_s: Directions
    """Exposed copies of activations and gradients to main memory and back, `(n, C)` a way."""
    pipeline: PipelineColumns
    lent_s: Floats
    """How much longer the step is because traffic of the replicas takes cores from passes, `(n,)`."""

    @classmethod
    def of(cls, rank: Rank, chunks: Chunks) -> Self:
        parts = ModelParts.of(rank, chunks)
        weights = StepWeights.of(rank.workload, rank.plans, chunks)
        cards = _on_cards(rank, parts) if uses_cards(rank) else None
        parts = with_sends_beside(rank, parts, cards)
        layers_s = parts.per_chunk("forward_s"), parts.per_chunk("backward_s")
        cards_s = parts.both_ways(cards.carried_s) if cards else None
        is_by_parts = bool(np.any(rank.plans.zero_stage >= FIRST_BY_PARTS))
        by_parts = parts.traffic(rank) if is_by_parts else None
        forward_s, backward_s, in_groups_s = _shown_shards_s(rank, parts, by_parts, cards)
        shown_s = forward_s, backward_s
        copies_s = _host_copies_s(rank, parts, *_added(layers_s, shown_s))
        passes_s = *_added(layers_s, shown_s, copies_s), parts.weight_gradients(rank)
        once_s = once_per_step_s(rank, parts, weights, by_parts)
        buckets = Buckets.of(rank, parts, weights)
        beside = PassesBeside.of(rank, buckets)
        streams = ReplicaStreams(
            once_s=once_s,
            passes_s=passes_s[:2],
            buckets=buckets,
            beside=beside,
            shards_s=_shards_beside_copies_s(rank, parts, by_parts),
            covers_s=layers_s[1],
            shown_s=shown_s[1],
        )
        own = beside_replicas(rank, parts, once_s, cards)
        streams_s = streams.beside_s(rank, own.carried_s if own else None)
        pipeline = _columns(rank, parts, buckets, (streams_s, in_groups_s), passes_s, cards_s)
        lent_s = lent_to_replicas_s(
            pipeline,
            beside,
            splits_backward(rank.plans),
            replicas_core_share(rank),
            streams.waits(own.waited_s if own else None),
            copies_s if any(np.any(way_s) for way_s in copies_s) else None,
        )
        return cls(
            parts=parts,
            weights=weights,
            shards_s=shown_s,
            copies_s=copies_s,
            pipeline=pipeline,
            lent_s=lent_s + _last_sends_s(rank, once_s),
        )


def _columns(
    rank: Rank,
    parts: ModelParts,
    buckets: Buckets,
    replicas_s: tuple[Directions, Floats],
    passes_s: tuple[Floats, Floats, Floats],
    cards_s: Directions | None,
) -> PipelineColumns:
    """Returns the pipelines of chunks `(n, C)`; sends of plain 1F1B are not overlapped, as in Megatron-LM.

    The replicas have traffic once per step, and reductions of groups, as means of a micro-batch. Passes are the forward, the
    backward, and the part of the backward that computes gradients of weights later. Collectives inside passes keep the cards
    busy.
    """
    ((gradient_s, parameter_s), in_groups_s), (forward_s, backward_s, later_s) = replicas_s, passes_s
    hidden_s = parts.hidden_in_pairs(rank)
    return {
        "schedule": rank.plans.pipeline_schedule,
        "num_stages": rank.plans.pipeline_parallel,
        "num_chunks_per_stage": rank.plans.virtual_pipeline,
        "num_micro_batches": num_micro_batches(rank.workload, rank.plans),
        "group_size": rank.plans.interleaved_group_size,
        "chunk_forward_s": forward_s,
        "chunk_backward_s": backward_s,
        "chunk_weight_gradient_s": later_s,
        "chunk_hidden_forward_s": hidden_s[0],
        "chunk_hidden_backward_s": hidden_s[1],
        "send_s": _sends_s(rank, (forward_s, backward_s), cards_s),
        "send_blocks_sender": sends_block(rank),
        "gradient_sync_s": gradient_s,
        "gradient_groups_s": in_groups_s / np.maximum(reductions_of_step(rank)[0], np.finfo(np.float64).tiny),
        "parameter_gather_s": parameter_s,
        "num_overlap_buckets": buckets.gradients,
        "num_gather_buckets": buckets.parameters,
    }


def _on_cards(rank: Rank, parts: ModelParts) -> OnLink:
    """The collectives inside passes on network cards, and what passes wait for when traffic of the replicas is there, too."""
    carried_s = by_way(parts_card_s(rank, parts.kinds))
    return on_link(rank, parts, carried_s, half_cards, replicas_leave_domain(rank) | has_sends_beside(rank))


def _last_sends_s(rank: Rank, once_s: Directions) -> Floats:
    """How much longer the step is because gradients share cards with the last sends; 0 for zero-bubble schedules."""
    is_beside = replicas_leave_domain(rank) & ~splits_backward(rank.plans)
    if not (rank.workload.overlaps_gradient_sync and is_beside.any()):
        return np.zeros(len(rank.plans))
    return last_sends_wait_s(once_s[0], is_beside * send_card_s(rank))


def _shards_beside_copies_s(rank: Rank, parts: ModelParts, by_parts: ReplicaTraffic | None) -> Floats | None:
    """Gathers and reductions behind backward passes on links that copies of hybrid sharding use, too, `(n, C)`; `None`: none.

    Reductions of groups are not behind a pass, but in the queue ahead of the copies (`simulator.pipeline.kernel`).
    """
    plans = rank.plans
    if by_parts is None or not plans.shard_ranks.any():
        return None
    is_beside = leaves_domain(rank, plans.tensor_parallel, shard_group(plans)) | replicas_share_scale_up(rank)
    is_beside &= (plans.shard_ranks > 0) & reduces_in_every_pass(plans)
    return is_beside[:, None] * parts.weighted(by_parts.backward_s.T) if is_beside.any() else None


def _sends_s(rank: Rank, passes_s: Directions, cards_s: Directions | None) -> Floats:
    """Sends between stages `(n,)`, slower where passes that run at the same time use the cards."""
    if cards_s is None:
        return send_s(rank)
    pass_s, card_s = (sum_columns(forward_s + backward_s) for forward_s, backward_s in (passes_s, cards_s))
    busy_fraction = np.where(sends_block(rank), 0.0, np.minimum(1.0, card_s / pass_s))
    return np.asarray(send_s(rank) + busy_fraction * send_card_s(rank))


def _shown_shards_s(
    rank: Rank, parts: ModelParts, by_parts: ReplicaTraffic | None, cards: OnLink | None
) -> ShownShards:
    """Exposed traffic of shards behind the passes of every chunk, `(n, C)`.

    Shards that leave a link domain share the cards with the collectives of the pass.
    """
    if cards is not None:
        cards = cards.where(leaves_domain(rank, rank.plans.tensor_parallel, shard_group(rank.plans)))
    return shards_s(rank, parts, by_parts, cards)


def _host_copies_s(rank: Rank, parts: ModelParts, forward_s: Floats, backward_s: Floats) -> Directions:
    """Exposed time of copies of activations and gradients, beyond the passes of a chunk behind which they travel, `(n, C)`.

    They have links of their own, so only what outlasts passes and shards together is exposed. They go through copy engines,
    which take no cores from the passes. Gradients hold up the backward pass if their synchronisation does: DeepSpeed copies on
    the stream of either (`reduce_ipg_grads`).
    """
    workload = rank.workload
    if not (workload.activation_offload_fraction or workload.offloaded_gradient_fraction):
        return np.zeros_like(forward_s), np.zeros_like(backward_s)
    copies_s = parts.weighted(part_copies_s(rank, kind) for kind in parts.kinds)
    gradients_s = parts.weighted(gradient_copies_s(rank, parts.weights.trained).T)
    behind_s, shown_s = copies_s, gradients_s
    if workload.overlaps_gradient_sync:
        behind_s, shown_s = copies_s + gradients_s, np.zeros_like(gradients_s)
    return np.maximum(0.0, copies_s - forward_s), shown_s + np.maximum(0.0, behind_s - backward_s)


def _added(*times_s: Directions) -> Directions:
    """Sums of forward and of backward times."""
    return total(forward_s for forward_s, _ in times_s), total(backward_s for _, backward_s in times_s)


def _optimizer_s(rank: Rank, chunks: Chunks, weights: StepWeights) -> Floats:
    """Time of the optimizer over the weights of the fullest stage; from ZeRO-1 on each replica updates a share of them.

    Accelerators and hosts update their shares at the same time. What a rank does once per step with all of its weights is
    included.
    """
    workload, plans = rank.workload, rank.plans
    if workload.muon:
        return muon_optimizer_s(rank, chunks, weights, NUM_OPTIMIZER_KERNELS)
    is_split, routed_ranks = plans.zero_stage >= 1, routed_shard_group(workload, plans).astype(np.int64)
    stages = chunks.unlike_stages()
    shared, routed = weights_on_stage(workload, plans, chunks, weights.trained, stages)
    updated = shared / np.where(is_split, shard_group(plans), 1) + routed / np.where(
        is_split, routed_ranks, 1
    )
    most = np.max(updated, axis=0)
    on_device = 1.0 - workload.optimizer_offload_fraction
    whole_bytes = once_per_step_bytes(rank, chunks, stages, weights, shared + routed)
    device_s = memory_bound_time_s(
        num_bytes=np.max(update_bytes(workload, plans) * on_device * updated + whole_bytes, axis=0),
        memory_bytes_per_s=rank.offers.memory_bytes_per_s,
        constants=rank.kernels,
        num_kernels=NUM_OPTIMIZER_KERNELS,
    )
    return device_s if on_device == 1.0 else np.maximum(device_s, host_update_s(rank, most))
