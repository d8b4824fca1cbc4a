"""How far beyond what a job names is a layout looked for, if it has none? Degrees, accelerators and sequences."""

from __future__ import annotations

import math

from constraints.lattice import contexts, experts, filled_cuts, listed_cuts
from simulator.domain.job import Job

REACH = 2
"""Accelerators and sequences are searched up to this multiple of what the job names, or of what its least degrees take."""


def tensors(job: Job) -> list[int]:
    """Tensor-parallel degrees to try: those that the job lists, or all up to a link domain."""
    most = min(job.workload.model.num_heads, max(offer.node.link_domain_size for offer in job.offers))
    return list(job.search.tensor_parallel or range(1, most + 1))


def cuts(job: Job) -> list[tuple[int, int]]:
    """Pairs of PP and VPP to try, whether or not they cut the layers."""
    return filled_cuts(job) or list(listed_cuts(job))


def most_accelerators(job: Job) -> int:
    """Returns up to how many accelerators are tried: at least as many as make whole nodes with the least degrees."""
    stages = min((p for p, _ in cuts(job)), default=1)
    holders = min(experts(job)) * job.workload.expert_tensor_parallel
    ranks = stages * math.lcm(min(tensors(job)) * min(contexts(job)), holders)
    sizes = [offer.node.num_accelerators for offer in job.offers]
    if False not in job.search.hybrid_sharding:  # every stage has whole nodes
        ranks *= math.lcm(*sizes)
    return REACH * max(
        *(offer.num_gpus.max for offer in job.offers),
        *(math.lcm(ranks, size) for size in sizes),
    )


def most_sequences(job: Job) -> int:
    """Returns up to how many sequences of a step are tried."""
    return REACH * max(job.workload.global_batch_size, min(job.search.micro_batch_sizes))
