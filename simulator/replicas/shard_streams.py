"""What do FSDP2's communication streams copy and cast, in parallel with the computation, of a rank's share of the weights?

Before a gather, the share is cast to 16 bits and copied into the gather buffer (`_get_param_all_gather_inputs`,
`all_gather_copy_in`). After a reduction, the gradient share is converted to the format in which it is kept, and added to that
of earlier micro-batches (`foreach_reduce`). With w the weights of a part on one rank, Z the ranks that share them, x the bytes
in which they are gathered, M those in which they are kept (4, or 2), G and wire those of a gradient as kept and on the wire,

    gather       + (M + x) w / Z + 2 x w / Z            the former not where casts to 8 bits are counted apart
    reduction    + (wire + G) w / Z where they differ + 3 G w / Z (m - 1)/m

over BW μ, with a launch each. It is part of the traffic, and the computation hides it to the same extent; copies that block the
computation are in `simulator.replicas.sharded_copies`.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import shard_group
from simulator.layout.casts import gathers_cast_weights
from simulator.layout.chunks import ChunkWeights
from simulator.layout.expert_ranks import routed_shard_group
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.model_states import MASTER_BYTES, WEIGHT_BYTES
from simulator.layout.trained_weights import StepWeights
from simulator.layout.update_bytes import gathers_masters
from simulator.layout.weight_gathers import gathers_in_passes
from simulator.machine.compute import memory_bound_time_s
from simulator.machine.rank import Rank
from simulator.replicas.cast_weights import gathered_weight_bytes
from simulator.table import Floats
from simulator.traffic.layer_collectives import Directions


def stream_copies_s(rank: Rank, weights: StepWeights) -> Directions:
    """Returns the additional time of one gather and of one reduction of weights `(n, k)`, `(n, k)` each."""
    gathered, trained = weights.together, weights.trained
    return (
        _copies_s(rank, _gather_bytes(rank, gathered), num_kernels=2.0),
        _copies_s(rank, _reduction_bytes(rank, trained), num_kernels=1.0),
    )


def _gather_bytes(rank: Rank, weights: ChunkWeights) -> tuple[Floats, Floats]:
    """Bytes moved before a gather for the shared and the routed weights of a rank, unsharded."""
    workload, plans = rank.workload, rank.plans
    kept = np.where(gathers_masters(workload, plans), MASTER_BYTES, WEIGHT_BYTES)[:, None]
    gathered = gathered_weight_bytes(workload, plans, weights)
    shared, routed = _on_rank(rank, weights)
    if workload.gathers_cast_weights:  # casts to 8 bits are counted with those of layers
        is_ahead = gathers_cast_weights(workload, plans)[:, None]
        shared = np.where(is_ahead, weights.never_cast_on_rank(plans), shared)
        routed = np.where(is_ahead, 0.0, routed)
    to_16_bits = kept + WEIGHT_BYTES
    return 2.0 * gathered[0] + to_16_bits * shared, 2.0 * gathered[1] + to_16_bits * routed


def _reduction_bytes(rank: Rank, weights: ChunkWeights) -> tuple[Floats, Floats]:
    """Bytes moved after a reduction for the shared and the routed gradients of a rank, unsharded."""
    workload = rank.workload
    stays, travels = float(workload.gradient_bytes), float(workload.wire_bytes)
    cast = stays + travels if stays != travels else 0.0
    added = 3.0 * stays * (1.0 - 1.0 / num_micro_batches(workload, rank.plans))[:, None]
    shared, routed = _on_rank(rank, weights)
    return (cast + added) * shared, (cast + added) * routed


def _on_rank(rank: Rank, weights: ChunkWeights) -> tuple[Floats, Floats]:
    return (
        weights.shared_on_rank(rank.plans),
        weights.routed_on_rank(rank.workload, rank.plans),
    )


def _copies_s(rank: Rank, whole_bytes: tuple[Floats, Floats], num_kernels: float) -> Floats:
    """Copies of shared and routed weights that would move these bytes if unsharded, where ranks share them, `(n, k)`."""
    workload, plans = rank.workload, rank.plans
    is_copied = gathers_in_passes(workload, plans) & (workload.sharded_copies != "none")
    shared_bytes, routed_bytes = whole_bytes
    ranks, routed_ranks = shard_group(plans)[:, None], routed_shard_group(workload, plans)[:, None]
    shared = np.where(is_copied[:, None] & (ranks > 1), shared_bytes / ranks, 0.0)
    routed = np.where(is_copied[:, None] & (routed_ranks > 1), routed_bytes / routed_ranks, 0.0)
    return memory_bound_time_s(
        num_bytes=(shared + routed).T,
        memory_bytes_per_s=rank.offers.memory_bytes_per_s,
        constants=rank.kernels,
        num_kernels=num_kernels * (np.sign(shared) + np.sign(routed)).T,
    ).T
