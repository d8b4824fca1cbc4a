"""What does it cost that all ranks know where every token goes, and that tokens carry the weights of the router?

The kernels of Hybrid-EP read the routing of the tokens of all ranks that share the experts. With each token, and with its
gradient on the way back, Hybrid-EP sends a 32-bit weight for each expert of a link domain (deepseek-ai/DeepEP, branch
hybrid-ep: `executor.cu`, `hybrid_ep_backend.cuh`). With r = e t_e ranks that share the experts, T/t tokens on each, and E t_e
experts as it sees them:

    gather   r T/t E t_e bytes, a boolean for each expert of each token             `allgather_routing_map`
    scan     reads them; writes for a rank's own experts of the tokens of all 1 + 4 bytes each, and 4 for each token and rank:
             r T/t E t_e + 5 T/t E t_e + 4 T/t r bytes, 2 kernels                   `metadata_preprocess_core`
    weights  4 E t_e/P bytes with each copy of a token, P link domains
    staging  a read and a write of each token into a buffer that network cards read, ahead of a dispatch through the fabric,
             forward of tokens and backward of gradients                            `dispatch_preprocess`

Gather and scan happen once, forward: the way back and the gradients use the same maps.
"""

from __future__ import annotations

import numpy as np

from simulator.layout.expert_ranks import expert_ranks
from simulator.machine.network import all_gather_s
from simulator.machine.rank import Rank, members_in_domain
from simulator.table import Floats

BOOLEAN_BYTES = 1.0
PLACE_BYTES = 4.0
"""Position of a token among the tokens of an expert, or of a rank."""
WEIGHT_BYTES = 4.0
"""A weight of the router on the wire; experts that the token is not routed to have one, too."""
NUM_SCAN_KERNELS = 2.0
"""Kernels that turn maps into positions: the scan, and one that pads the numbers of tokens (`pad_tokens_per_expert`)."""
STAGING_PASSES = 2.0
"""A read and a write of each token ahead of the fabric."""


def map_bytes(rank: Rank) -> Floats:
    """Returns the size of the maps of all ranks that share the experts, `(n,)`."""
    return BOOLEAN_BYTES * expert_ranks(rank.workload, rank.plans) * _routed_places(rank)


def map_gather_s(rank: Rank) -> Floats:
    """Returns the time to gather them, `(n,)`; 0 on a single rank, or where no dispatcher needs them."""
    if not rank.workload.routes_by_maps:
        return np.zeros(len(rank.plans))
    ranks = expert_ranks(rank.workload, rank.plans)
    return all_gather_s(
        num_bytes=map_bytes(rank),
        group_size=ranks.astype(np.float64),
        members_per_domain=members_in_domain(rank, 1, ranks),
        links=rank.links,
    )


def map_scan_s(rank: Rank) -> Floats:
    """Returns the time in which a rank finds its own tokens and their positions in them, `(n,)`."""
    ranks = expert_ranks(rank.workload, rank.plans)
    if not rank.workload.routes_by_maps:
        return np.zeros(len(ranks))
    places = (BOOLEAN_BYTES + PLACE_BYTES) * _routed_places(rank) + PLACE_BYTES * _own_tokens(rank) * ranks
    return np.where(ranks > 1, rank.memory_bound_s(map_bytes(rank) + places, NUM_SCAN_KERNELS), 0.0)


def weight_value_bytes(rank: Rank, domains: Floats) -> Floats:
    """Returns the bytes that the weights of the router add to each of the values of a token on the wire, `(n,)`.

    Args:
        rank: Ranks of the designs.
        domains: Link domains among which the experts are spread, `(n,)`.
    """
    experts = rank.workload.model.experts
    assert experts is not None
    is_sent = float(rank.workload.routes_by_maps)
    num_experts = experts.num_experts * rank.workload.expert_tensor_parallel
    return np.asarray(is_sent * WEIGHT_BYTES * num_experts / domains / rank.workload.model.expert_input_size)


def staging_passes(rank: Rank) -> Floats:
    """Returns the number of reads and writes of each token ahead of the fabric, `(n,)`."""
    ranks = expert_ranks(rank.workload, rank.plans)
    leaves = members_in_domain(rank, 1, ranks) < ranks
    return np.where(leaves, STAGING_PASSES * rank.workload.routes_by_maps, 0.0)


def _routed_places(rank: Rank) -> Floats:
    """Pairs of a token of a rank and an expert."""
    experts = rank.workload.model.experts
    assert experts is not None
    return np.asarray(_own_tokens(rank) * experts.num_experts * rank.workload.expert_tensor_parallel)


def _own_tokens(rank: Rank) -> Floats:
    return rank.tokens / rank.plans.tensor_parallel
