"""How long do the copies of PyTorch's FSDP2 take, which stand between computing and the traffic of sharded weights?

What was gathered is copied into the weights of the layer (`foreach_all_gather_copy_out`), gradients into the buffer that is
reduced (`foreach_reduce_scatter_copy_in`). Both run on the stream of the computing, which nothing hides. With w the weights of
a part on one rank, wire the bytes of a gradient on the wire,

    forward     2 · 2 w / (BW μ) + launch
    backward    2 · 2 w / (BW μ) + launch + (2 + wire) w / (BW μ) + launch      the second copy of trained weights alone

under ZeRO-3, where more than one rank shares a copy of the weights; those of routed experts are copied by kernels of their own.
A ZeRO-2 that gathers in every forward pass makes all but the first copy backward.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.chunks import ChunkWeights
from simulator.compute import memory_bound_time_s
from simulator.expert_ranks import expert_ranks, routed_shard_group
from simulator.layer_costs import PartTimes
from simulator.memory import WEIGHT_BYTES
from simulator.plan import shard_group
from simulator.rank import Rank
from simulator.replica_sync import regathers
from simulator.table import Booleans, Floats
from simulator.trained_weights import StepWeights


def with_copies(rank: Rank, times: list[PartTimes], weights: StepWeights) -> tuple[PartTimes, ...]:
    """Returns the times of k parts with the copies of their weights `(1, k)`."""
    if rank.workload.sharded_copies == "none":
        return tuple(times)
    out_s, back_s = gathered_copies_s(rank, weights), gathered_copies_s(rank, weights, is_backward=True)
    in_s = reduced_copies_s(rank, weights)
    return tuple(
        replace(
            part,
            forward_compute_s=part.forward_compute_s + out_s[kind],
            backward_compute_s=part.backward_compute_s + back_s[kind] + in_s[kind],
        )
        for kind, part in enumerate(times)
    )


def gathered_copies_s(rank: Rank, weights: StepWeights, *, is_backward: bool = False) -> Floats:
    """Returns the copies of what one pass gathers of weights `(1, k)`, `(k, n)`."""
    gathered = weights.trained
    if weights.frozen is not None:
        gathered = ChunkWeights(
            shared=gathered.shared + weights.frozen.shared,
            routed=gathered.routed + weights.frozen.routed,
            whole=gathered.whole + weights.frozen.whole,
        )
    is_gathered = rank.plans.zero_stage == 3
    return _copies_s(
        rank, gathered, 2.0 * WEIGHT_BYTES, is_gathered if is_backward else is_gathered | regathers(rank)
    )


def reduced_copies_s(rank: Rank, weights: StepWeights) -> Floats:
    """Returns the copies of the gradients of trained weights `(1, k)`, which come in 16 bits, `(k, n)`."""
    is_reduced = (rank.plans.zero_stage == 3) | regathers(rank)
    return _copies_s(rank, weights.trained, float(WEIGHT_BYTES + rank.workload.wire_bytes), is_reduced)


def _copies_s(rank: Rank, weights: ChunkWeights, bytes_per_weight: float, is_copied: Booleans) -> Floats:
    workload, plans = rank.workload, rank.plans
    is_sharded = is_copied & (workload.sharded_copies != "none")
    copied = (
        weights.shared_on_rank(plans).T * (is_sharded & (shard_group(plans) > 1)),
        weights.routed.T
        * (is_sharded & (routed_shard_group(workload, plans) > 1.0))
        / expert_ranks(workload, plans),
    )
    return memory_bound_time_s(
        num_bytes=bytes_per_weight * (copied[0] + copied[1]),
        memory_bytes_per_s=rank.offers.memory_bytes_per_s,
        constants=rank.kernels,
        num_kernels=np.sign(copied[0]) + np.sign(copied[1]),
    )
