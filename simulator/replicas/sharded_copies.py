"""How long do the copies of PyTorch's FSDP2 take that stand between the computation and the traffic of sharded weights?

Gathered weights are copied into the weights of the layer (`foreach_all_gather_copy_out`), gradients into the reduction buffer
(`foreach_reduce_scatter_copy_in`). Both run on the compute stream, so nothing hides them. With w the weights of a part on one
rank, x the bytes in which they are gathered, wire those of a gradient on the wire,

    forward     2 x w / (BW μ) + launch
    backward    2 x w / (BW μ) + launch + (2 + wire) w / (BW μ) + launch      the second copy of trained weights alone

under ZeRO-3, where more than one rank shares a copy of the weights; separate kernels copy those of routed experts. A ZeRO-2
that gathers in every forward pass makes all of these except the first copy of the backward pass. Casts of gathered weights
(`simulator.replicas.cast_weights`) run at the same point.

Where ranks share nothing, ZeRO-3 (and a ZeRO-2 that gathers) copies nothing. Weights kept in 32 bits are then cast to 16 in
every pass that would gather them, (4 + 2) w / (BW μ) + launch, whatever `sharded_copies` says.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.domain.plan import shard_group
from simulator.layers.part_times import PartTimes
from simulator.layout.casts import gathers_cast_weights, is_cast
from simulator.layout.expert_ranks import routed_shard_group, shares_nothing
from simulator.layout.model_states import MASTER_BYTES, WEIGHT_BYTES
from simulator.layout.trained_weights import StepWeights
from simulator.layout.update_bytes import gathers_masters
from simulator.layout.weight_gathers import gathers_in_passes
from simulator.machine.compute import memory_bound_time_s
from simulator.machine.rank import Rank
from simulator.replicas.cast_weights import casts_in_passes_s, gathered_weight_bytes
from simulator.table import Booleans, Floats


def with_copies(rank: Rank, times: list[PartTimes], weights: StepWeights) -> tuple[PartTimes, ...]:
    """Returns the times of k parts including the copies and casts of their weights `(1, k)`."""
    has_copies = (rank.workload.sharded_copies != "none") | is_cast(rank.plans) | _casts_masters(rank)
    if not np.any(gathers_in_passes(rank.workload, rank.plans) & has_copies):
        return tuple(times)
    out_s, back_s = gathered_copies_s(rank, weights), gathered_copies_s(rank, weights, is_backward=True)
    in_s, casts_s = reduced_copies_s(rank, weights), casts_in_passes_s(rank, weights.together)
    return tuple(
        replace(
            part,
            forward_compute_s=part.forward_compute_s + out_s[kind] + casts_s[0][kind],
            backward_compute_s=part.backward_compute_s + back_s[kind] + in_s[kind] + casts_s[1][kind],
        )
        for kind, part in enumerate(times)
    )


def gathered_copies_s(rank: Rank, weights: StepWeights, *, is_backward: bool = False) -> Floats:
    """Returns the copies of the weights `(1, k)` that one pass gathers, or the casts in their place, `(k, n)`."""
    shared, routed = gathered_weight_bytes(rank.workload, rank.plans, weights.together)
    is_copied = rank.plans.zero_stage == 3 if is_backward else gathers_in_passes(rank.workload, rank.plans)
    copies_s = _copies_s(rank, 2.0 * shared, 2.0 * routed, is_copied)
    is_own = is_copied & _casts_masters(rank)
    return copies_s + _master_casts_s(rank, weights, is_own) if np.any(is_own) else copies_s


def _casts_masters(rank: Rank) -> Booleans:
    """Returns whether a rank casts 32-bit weights that it owns alone wherever passes would gather them, `(n,)`."""
    workload, plans = rank.workload, rank.plans
    is_counted = gathers_cast_weights(workload, plans)
    return np.asarray(shares_nothing(workload, plans) & gathers_masters(workload, plans) & ~is_counted)


def _master_casts_s(rank: Rank, weights: StepWeights, is_own: Booleans) -> Floats:
    trained = weights.trained
    whole = trained.shared_on_rank(rank.plans) + trained.routed_on_rank(rank.workload, rank.plans)
    num_bytes = (is_own[:, None] * (MASTER_BYTES + WEIGHT_BYTES) * whole).T
    return rank.memory_bound_s(num_bytes, np.sign(num_bytes))


def reduced_copies_s(rank: Rank, weights: StepWeights) -> Floats:
    """Returns the copies of the 16-bit gradients of trained weights `(1, k)`, `(k, n)`."""
    per_weight, trained = float(WEIGHT_BYTES + rank.workload.wire_bytes), weights.trained
    routed = trained.routed_on_rank(rank.workload, rank.plans)
    shared = trained.shared_on_rank(rank.plans)
    return _copies_s(
        rank, per_weight * shared, per_weight * routed, gathers_in_passes(rank.workload, rank.plans)
    )


def _copies_s(rank: Rank, shared_bytes: Floats, routed_bytes: Floats, is_copied: Booleans) -> Floats:
    """Copies that move these bytes, `(n, k)`, where ranks share the weights, `(k, n)`."""
    workload, plans = rank.workload, rank.plans
    is_sharded = is_copied & (workload.sharded_copies != "none")
    copied = (
        shared_bytes.T * (is_sharded & (shard_group(plans) > 1)),
        routed_bytes.T * (is_sharded & (routed_shard_group(workload, plans) > 1.0)),
    )
    return memory_bound_time_s(
        num_bytes=copied[0] + copied[1],
        memory_bytes_per_s=rank.offers.memory_bytes_per_s,
        constants=rank.kernels,
        num_kernels=np.sign(copied[0]) + np.sign(copied[1]),
    )
