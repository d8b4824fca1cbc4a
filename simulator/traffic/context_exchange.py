"""How do context-parallel ranks, each with a part of the sequence, compute attention over the whole of it?

There are five ways. Keys and values go round in a ring, hidden behind attention over the parts that have already arrived (Liu
et al., arXiv 2310.01889). All of them are gathered before attention (Llama 3, arXiv 2407.21783, section 3.3.2). They are
gathered, but computed as in a ring, and their gradients go round it (PyTorch's `context_parallel`). Ranks exchange parts of the
sequence for heads, and back (DeepSpeed Ulysses, arXiv 2309.14509). Or both: heads are exchanged inside a link domain, and a
ring connects the domains (USP, arXiv 2405.07719). With c ranks, of which u exchange heads and c/u form a ring, one rank moves

    ring            (c - 1)/c   x K = 2 T c max(1, g/t) (d_qk + d_v) bytes behind the core; backward twice that, 1/c of K each
                                behind the first and the last kernel
    all_gather      the same, before the core; backward once more, and the gradients are scattered
                    (once in all, of the key that all heads share, where tokens are chosen: what is gathered is kept)
    gathered_ring   the same, behind the first of c kernels; backward once more, and 2 K of gradients behind the others
    all_to_all      (u - 1)/u   x 2 T (a + g) (d_qk + d_v) / t bytes, before and after the core, in each direction
    hybrid          both, with 1/u of the key-value heads in the ring

A ring passes keys, values and gradients from each rank to the next (`flash_attn_p2p_communicate` of Transformer Engine), so
everything that leaves a link domain goes through the network card of one rank. A gather leaves it through the cards of all
ranks. g is a, the number of query heads, if the key-value heads are copied ahead of attention (`copies_shared_heads`).
"""

from __future__ import annotations

from typing import assert_never

import numpy as np

from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.attended_keys import key_value_width
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.network import Group, all_gather_s, all_to_all_s, passed_on_s
from simulator.machine.rank import Rank, members_in_domain, once_per_rank
from simulator.memory.layer_activations import RING_GRADIENT_BYTES
from simulator.table import Floats, Integers, total
from simulator.traffic.layer_collectives import Directions, exposed_s

GATHERED_KERNELS = 2
"""Attention kernels after a gather: one for each of the two pieces of the sequence that a rank has."""


def head_ranks(workload: Workload, plans: PlanTable, link_domain_size: Integers) -> Integers:
    """Returns how many context-parallel ranks exchange heads among each other (u), `(n,)`; 1: none."""
    match workload.chosen_exchange:
        case "all_to_all":
            return plans.context_parallel
        case "hybrid":
            near = link_domain_size // plans.tensor_parallel
            return np.asarray(np.clip(near, 1, plans.context_parallel), dtype=np.int64)
        case "ring" | "all_gather" | "gathered_ring":
            return np.ones_like(plans.context_parallel)
    assert_never(workload.chosen_exchange)


@once_per_rank
def head_ranks_of(rank: Rank) -> Integers:
    """Returns how many context-parallel ranks exchange heads in the designs of a rank (u), `(n,)`; 1: none."""
    return head_ranks(rank.workload, rank.plans, rank.offers.link_domain_size)


@once_per_rank
def ring_steps(rank: Rank) -> Floats:
    """Returns the steps of the ring, `(n,)`; each is a kernel whose result is merged with the others."""
    if rank.workload.chosen_exchange == "all_gather":
        return np.ones(len(rank.plans))
    return np.asarray(rank.plans.context_parallel / head_ranks_of(rank))


def num_core_kernels(rank: Rank) -> Floats:
    """Returns the number of kernels into which the core is divided, `(n,)`."""
    if rank.workload.chosen_exchange == "all_gather":
        return np.minimum(rank.plans.context_parallel, GATHERED_KERNELS).astype(np.float64)
    return ring_steps(rank)


def context_exchange_s(rank: Rank, core_s: Directions) -> Directions:
    """Returns the exposed time of the exchange, where some of it hides behind the attention core.

    A ring sends once less than it computes. In the backward pass keys and values are sent behind all steps but the last,
    gradients behind all but the first.

    Args:
        rank: Ranks of the designs.
        core_s: Passes of the core, each `(n,)`.
    """
    if rank.workload.chosen_exchange == "all_gather":
        gather_s = _gathered_s(rank)
        return gather_s, (1.0 if rank.workload.model.indexer else 2.0) * gather_s
    if rank.workload.chosen_exchange == "gathered_ring":
        return _gathered_ring_s(rank, _gathered_s(rank), core_s)
    forward_s = exposed_s(_passed_on_s(rank, *passed_on(rank)), _but_one_step(rank) * core_s[0])
    backward_s = total(
        exposed_s(_passed_on_s(rank, num_bytes, num_steps), num_steps / ring_steps(rank) * core_s[1])
        for num_bytes, num_steps in passed_back(rank)
    )
    if rank.workload.chosen_exchange == "ring":
        return forward_s, backward_s
    heads_s = _heads_s(rank)
    return forward_s + heads_s, backward_s + heads_s


def _gathered_ring_s(rank: Rank, gather_s: Floats, core_s: Directions) -> Directions:
    """Exposed time: the gather hides behind the rank's own part, gradients behind the next part, except for the last time.

    Compiled PyTorch waits for every exchange where it starts.
    """
    steps, rounds_s = ring_steps(rank), gradient_rounds_s(rank)
    if rank.workload.has_fused_operators:
        return gather_s, gather_s + rounds_s
    forward_s, again_s = (exposed_s(gather_s, pass_s / steps) for pass_s in core_s)
    last_s, cover_s = rounds_s / steps, _but_one_step(rank) * core_s[1]
    return forward_s, again_s + last_s + exposed_s(rounds_s - last_s, cover_s)


def _but_one_step(rank: Rank) -> Floats:
    return 1.0 - 1.0 / ring_steps(rank)


def gradient_rounds_s(rank: Rank) -> Floats:
    """Returns the time in which gradients of keys and values go once round all ranks and back home, `(n,)`."""
    return _passed_on_s(rank, *gradient_rounds(rank))


def gradient_rounds(rank: Rank) -> tuple[Floats, Floats]:
    """Returns the bytes of gradients of keys and values that a rank passes on, and in how many steps."""
    c = rank.plans.context_parallel.astype(np.float64)
    passed_bytes = RING_GRADIENT_BYTES / ACTIVATION_BYTES * keys_and_values_bytes(rank)
    return np.where(c > 1.0, passed_bytes, 0.0), np.where(c > 1.0, c, 0.0)


def passed_on(rank: Rank) -> tuple[Floats, Floats]:
    """Returns the bytes of keys and values that a rank passes on, and in how many steps."""
    return _but_one_step(rank) * keys_and_values_bytes(rank), ring_steps(rank) - 1.0


def passed_back(rank: Rank) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Returns what goes round in the backward pass, and in how many steps: in the first and last one, and in those between.

    The first step sends keys and values alone, the last one their gradients alone, and those in between both in one message
    (`AttnFuncWithCPAndKVP2P` of Transformer Engine).
    """
    steps = ring_steps(rank)
    step_bytes = keys_and_values_bytes(rank) / steps
    outer, between = np.where(steps > 1.0, 2.0, 0.0), np.maximum(0.0, steps - 2.0)
    return (outer * step_bytes, outer), (2.0 * between * step_bytes, between)


def _passed_on_s(rank: Rank, num_bytes: Floats, num_steps: Floats) -> Floats:
    group = _ring_group(rank)
    return passed_on_s(
        num_bytes=num_bytes,
        num_steps=num_steps,
        is_same_domain=group["members_per_domain"] >= group["group_size"],
        links=rank.links,
    )


def _gathered_s(rank: Rank) -> Floats:
    """Keys and values of the whole sequence, gathered."""
    return all_gather_s(num_bytes=keys_and_values_bytes(rank), **_ring_group(rank))


@once_per_rank
def _ring_group(rank: Rank) -> Group:
    """The context-parallel ranks that do not exchange heads with each other."""
    plans, exchanged = rank.plans, head_ranks_of(rank)
    size = plans.context_parallel / exchanged
    return {
        "group_size": size,
        "members_per_domain": members_in_domain(rank, plans.tensor_parallel * exchanged, size),
        "links": rank.links,
    }


@once_per_rank
def keys_and_values_bytes(rank: Rank) -> Floats:
    """Returns the bytes of keys and values of the whole sequence, for the heads that one ring or gather has."""
    whole_tokens = rank.tokens * rank.plans.context_parallel.astype(np.float64)
    width = key_value_width(rank.workload, rank.plans) / head_ranks_of(rank)
    return np.asarray(ACTIVATION_BYTES * whole_tokens * width)


def heads_bytes(rank: Rank) -> tuple[Floats, Floats]:
    """Returns the bytes that one rank sends to exchange parts of the sequence for heads: before the core, and behind it."""
    model, t = rank.workload.model, rank.plans.tensor_parallel
    qk_dim, value_dim = model.attention_dims
    entering = model.num_heads * qk_dim + rank.workload.attended_kv_heads * (qk_dim + value_dim)
    entering_bytes, leaving_bytes = (
        ACTIVATION_BYTES * rank.tokens * width / t for width in (entering, model.num_heads * value_dim)
    )
    return entering_bytes, leaving_bytes


def _heads_s(rank: Rank) -> Floats:
    """Queries, keys and values are exchanged for heads in one all-to-all, and the output back in another."""
    t, exchanged = rank.plans.tensor_parallel, head_ranks_of(rank)
    return total(
        all_to_all_s(
            num_bytes=num_bytes,
            group_size=exchanged.astype(np.float64),
            members_per_domain=members_in_domain(rank, t, exchanged),
            links=rank.links,
        )
        for num_bytes in heads_bytes(rank)
    )
