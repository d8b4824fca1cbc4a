"""What is kept in the main memory of the hosts, and for how long do its copies hold up training?

Activations of a share of the layers leave the accelerator after their forward pass and come back before their backward pass
(Megatron Core's `cpu_offloading_num_layers`, DeepSpeed's `cpu_checkpointing`). The processors of the host update a share of the
optimizer's states: gradients travel there, new weights come back (ZeRO-Offload, Ren et al., arXiv 2101.06840; Megatron Core's
`optimizer_cpu_offload`).
"""

from __future__ import annotations

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable, shard_group
from simulator.domain.workload import Workload
from simulator.layout.chunks import Chunks, ChunkWeights, split_layers
from simulator.layout.expert_ranks import expert_ranks, routed_shard_group
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.model_states import FIRST_OFFLOADED_STAGE, FULL_GRADIENT_BYTES, WEIGHT_BYTES
from simulator.layout.trained_weights import StepWeights
from simulator.machine.offer_table import OfferTable
from simulator.machine.rank import Rank
from simulator.memory.activations import activations_of_stage, kept_per_module
from simulator.memory.layer_activations import kept_per_layer
from simulator.step.parts import Part, rank_of_part
from simulator.table import Floats

HOST_UPDATE_FRACTION = 0.456
"""Share of the host's memory bandwidth that an update reaches: 10 billion weights of 30 bytes in 2.57 s on a DGX-2, whose two
processors have 256 GB/s (ZeRO-Offload, arXiv 2101.06840, table 4; gradients are `float` in DeepSpeed's `cpu_adam.cpp`)."""


def part_copies_s(rank: Rank, kind: Part) -> Floats:
    """Returns the time to copy activations of one micro-batch in a part of the model to the host, or back, `(n,)`."""
    kept = _kept_bytes(rank_of_part(rank, kind), kind)
    return np.asarray(rank.workload.activation_offload_fraction * kept / rank.offers.host_copy_bytes_per_s)


def _kept_bytes(rank: Rank, kind: Part) -> Floats:
    if not kind.has_layer:
        return np.zeros(len(rank.plans))
    if kind is Part.MODULE:
        return kept_per_module(rank.workload, rank.plans)
    return kept_per_layer(rank.workload, rank.plans)[kind.has_experts]


def gradient_copies_s(rank: Rank, weights: ChunkWeights) -> Floats:
    """Returns the time to copy gradients of one micro-batch to the host and their sum so far from there, `(n, k)`.

    The first micro-batch of a step has no sum to fetch, and the sum of the last one goes with the update (`host_update_s`).

    Args:
        rank: Ranks of the designs.
        weights: What is trained of k parts of the model, `(n, k)` or `(1, k)`.
    """
    workload, plans = rank.workload, rank.plans
    shared, routed = _shards(workload, plans, zero_stage=FIRST_OFFLOADED_STAGE)
    held = weights.shared_on_rank(plans) / shared[:, None] + weights.routed / routed[:, None]
    ways = 2.0 * (1.0 - 1.0 / num_micro_batches(workload, plans))
    fraction = workload.offloaded_gradient_fraction * (plans.zero_stage >= FIRST_OFFLOADED_STAGE)
    return np.asarray(held * (fraction * ways * WEIGHT_BYTES / rank.offers.host_copy_bytes_per_s)[:, None])


def host_update_s(rank: Rank, weights: Floats) -> Floats:
    """Returns how long the hosts take to update the share of the weights, `(n,)`, that each rank updates.

    Pieces follow each other through three stages, of which the slowest sets the pace: gradients to the host, the update,
    and weights back. The accelerators of a node share its main memory.
    """
    moved = rank.workload.optimizer_offload_fraction * weights
    rate = rank.offers.host_memory_bytes_per_s * HOST_UPDATE_FRACTION / rank.offers.gpus_per_node
    copied_s = moved * rank.workload.gradient_bytes / rank.offers.host_copy_bytes_per_s
    # The update reads the fp32 gradient, reads and writes the states, and writes the 16-bit weight.
    passed_bytes = FULL_GRADIENT_BYTES + 2.0 * rank.workload.optimizer_bytes + WEIGHT_BYTES
    return np.asarray(np.maximum(copied_s, moved * passed_bytes / rate))


def offloaded_bytes_per_node(job: Job, plans: PlanTable, offers: OfferTable) -> Floats:
    """Returns the main memory that offloading takes on the fullest node of each design, `(n,)`; `offers` has a row each.

    A node is assumed to hold ranks of the fullest stage only.
    """
    workload = job.workload
    if not (workload.activation_offload_fraction or workload.optimizer_offload_fraction):
        return np.zeros(len(plans))
    chunks = split_layers(workload.model, plans, workload.stage_layers)
    activations = activations_of_stage(workload, plans, chunks, chunks.unlike_stages())
    per_rank = activations.on_host_bytes + _state_bytes(workload, plans, chunks)
    fullest = np.max(per_rank, axis=0)
    return np.asarray(fullest * np.minimum(offers.gpus_per_node, plans.num_gpus))


def _state_bytes(workload: Workload, plans: PlanTable, chunks: Chunks) -> Floats:
    """Returns what offloaded states take on one rank of every unlike stage, `(s, n)`.

    These are states of the optimizer, a gradient in 32 bits, a weight in 16, and sums of gradients in 16.
    """
    weights = StepWeights.of(workload, plans, chunks).trained
    shared, routed = _shards(workload, plans, zero_stage=1)
    is_added = workload.offloads_gradients * (plans.zero_stage >= FIRST_OFFLOADED_STAGE)
    per_weight = workload.optimizer_bytes + FULL_GRADIENT_BYTES + WEIGHT_BYTES * (1.0 + is_added)
    stages = chunks.unlike_stages()
    return np.asarray(
        workload.optimizer_offload_fraction
        * per_weight
        * (
            chunks.on_stage(weights.shared_on_rank(plans), stages) / shared
            + chunks.on_stage(weights.routed, stages) / routed
        )
    )


def _shards(workload: Workload, plans: PlanTable, *, zero_stage: int) -> tuple[Floats, Floats]:
    """Ranks that share out what is split from a ZeRO stage on, `(n,)`: a rank's shared weights, and all routed ones."""
    is_split = plans.zero_stage >= zero_stage
    shared = np.where(is_split, shard_group(plans), 1)
    routed = expert_ranks(workload, plans) * np.where(is_split, routed_shard_group(workload, plans), 1.0)
    return np.asarray(shared, dtype=float), np.asarray(routed, dtype=float)
