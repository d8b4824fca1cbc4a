"""What has every part of a pass for shards of ZeRO to travel beside it, and which links do both use meanwhile?

Bytes that are on a link at the same time take the sum of their times. A collective of a pass is on the network cards for what
its bytes need of them alone, and on the scale-up link for what they need of the whole network beyond that: w each. A part waits
for w' = w (shown/alone) of it, as some of the collective may hide behind computation.

A gather or a reduction that takes t is on these links for b t each (`network.gather_busy_s`): that of a group inside one link
domain on the scale-up link alone, that of others on both, of which the scale-up link is soon free. So collectives hold up
shards by their time on the cards for the part f of t whose groups leave their domain, and by that on the scale-up link for the
rest: by f w(cards) + (1 - f) w(scale-up). So does a send q to another domain where the stage goes on meanwhile: it is beside
the parts of the next pass, q over their number each.

In a mesh each pair of ranks has a link of its own, and no pair is in both of two groups that cross: nothing is counted there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.domain.links import LinkConstants
from simulator.domain.plan import shard_group
from simulator.layout.expert_ranks import expert_ranks
from simulator.machine.rank import Rank
from simulator.replicas.cast_weights import gathered_weight_bytes
from simulator.replicas.replica_sync import ReplicaGroup
from simulator.row_sums import sum_columns
from simulator.step.card_time import leaves_domain, part_traffic_s
from simulator.step.model_parts import ModelParts
from simulator.table import Floats, total
from simulator.traffic.layer_collectives import Directions
from simulator.traffic.stage_sends import send_card_s, sends_block

COVER, HELD_UP, WAITED_CARDS, BUSY_CARDS, WAITED_SCALE_UP, BUSY_SCALE_UP = range(6)
"""Seconds of a part, those by which its collectives hold up shards, and w' and b of the cards and of the scale-up link."""


def parts_beside_s(rank: Rank, parts: ModelParts, cards_s: Sequence[Directions] | None) -> Directions:
    """Returns what each of k parts has for shards beside it, `(6, k, n)` a way, by `COVER` and so on.

    Args:
        rank: the rank.
        parts: the parts of its model.
        cards_s: seconds in which the collectives of each part are on the cards, `(n,)` a way; `None`: none are.
    """
    sends_s = _sends_s(rank, parts)
    alone_s = _alone_s(parts, "forward", sends_s), _alone_s(parts, "backward", sends_s)
    if not _meets_shards(rank):
        return alone_s
    shards, own = _Shards.of(rank, parts), _Own.of(rank, parts, cards_s)
    return (
        _with_collectives(alone_s[0], _shown_s(parts, "forward"), own[0], shards),
        _with_collectives(alone_s[1], _shown_s(parts, "backward"), own[1], shards),
    )


def later_beside_s(rank: Rank, parts: ModelParts) -> Floats:
    """Returns what each of k parts has for shards beside the gradients of weights that come later: products, `(6, k, n)`."""
    cover_s = np.stack(parts.part_weight_gradients(rank))
    beside_s = np.zeros((BUSY_SCALE_UP + 1, *cover_s.shape))
    beside_s[COVER] = cover_s
    return beside_s


def _meets_shards(rank: Rank) -> bool:
    """Whether any design has collectives inside its passes."""
    plans = rank.plans
    beside = plans.tensor_parallel * plans.context_parallel
    return bool(np.any((beside > 1) | (expert_ranks(rank.workload, plans) > 1)))


@dataclass(frozen=True, kw_only=True)
class _Shards:
    """How the shards of k kinds of parts are on the links, shares of their time, `(k, n)`."""

    cards: Floats
    """On the cards: b."""
    scale_up: Floats
    """On the scale-up link: b."""
    far: Floats
    """In groups that leave their domain: f."""

    @classmethod
    def of(cls, rank: Rank, parts: ModelParts) -> Self:
        workload, plans = rank.workload, rank.plans
        num_bytes = gathered_weight_bytes(workload, plans, parts.weights.together)
        groups = (ReplicaGroup.of_shared(rank), ReplicaGroup.of_routed(rank))
        sizes = list(zip(groups, num_bytes, strict=True))[: 2 if workload.model.experts else 1]
        gathers_s = [group.all_gather_s(size) for group, size in sizes]
        cards_s, scale_up_s = zip(*(group.gather_busy_s(size) for group, size in sizes), strict=True)
        far_s = [
            group.leaves_domain * gather_s for (group, _), gather_s in zip(sizes, gathers_s, strict=True)
        ]
        whole_s = np.maximum(total(gathers_s), np.finfo(np.float64).tiny)
        cards, scale_up, far = ((total(each) / whole_s).T for each in (cards_s, scale_up_s, far_s))
        return cls(cards=cards, scale_up=scale_up, far=far)


@dataclass(frozen=True, kw_only=True)
class _Own:
    """The collectives of k kinds of parts in passes of one way, `(k, n)`."""

    cards_s: Floats
    """On the cards: w."""
    scale_up_s: Floats
    """On the scale-up link: w."""
    alone_s: Floats
    """How long they take alone."""

    @classmethod
    def of(cls, rank: Rank, parts: ModelParts, cards_s: Sequence[Directions] | None) -> tuple[Self, Self]:
        """Returns those of forward and of backward passes."""
        none_s = np.zeros(len(rank.plans))
        cards = _by_way([(none_s, none_s)] * len(parts.kinds) if cards_s is None else cards_s)
        carried, alone = (
            _by_way([part_traffic_s(each, kind) for kind in parts.kinds])
            for each in (_without_latency(rank), rank)
        )
        is_shared = rank.links.unlinked_members == 0.0
        forward, backward = (
            cls(
                cards_s=on_cards_s,
                scale_up_s=is_shared * np.maximum(0.0, carried_s - on_cards_s),
                alone_s=alone_s,
            )
            for on_cards_s, carried_s, alone_s in zip(cards, carried, alone, strict=True)
        )
        return forward, backward


def _by_way(parts_s: Sequence[Directions]) -> Directions:
    """Times of k parts, `(n,)` a way, as tables `(k, n)`."""
    forward_s, backward_s = zip(*parts_s, strict=True)
    return np.stack(forward_s), np.stack(backward_s)


def _without_latency(rank: Rank) -> Rank:
    """Returns ranks on a network on which only bytes take time."""
    nothing = np.zeros(len(rank.plans))
    links: LinkConstants = replace(
        rank.links,
        intra_latency_s=nothing,
        intra_hop_s=nothing,
        intra_ramp_s=nothing,
        inter_latency_s=nothing,
        inter_member_s=nothing,
    )
    return replace(rank, links=links)


def _sends_s(rank: Rank, parts: ModelParts) -> Floats:
    """Card time of a send beside each part of a pass, where shards are on the cards, too, `(n,)`."""
    plans = rank.plans
    is_beside = leaves_domain(rank, plans.tensor_parallel, shard_group(plans)) & ~sends_block(rank)
    num_parts = sum_columns(total(parts.counts.values()))
    num_chunks = plans.pipeline_parallel * plans.virtual_pipeline
    return np.asarray(is_beside * send_card_s(rank) * num_chunks / num_parts)


def _alone_s(parts: ModelParts, way: str, sends_s: Floats) -> Floats:
    """What parts have whose passes have no collectives, `(6, k, n)`."""
    cover_s = np.stack([getattr(times, f"{way}_s") for times in parts.times.values()])
    beside_s = np.zeros((BUSY_SCALE_UP + 1, *cover_s.shape))
    beside_s[COVER], beside_s[HELD_UP] = cover_s, sends_s
    return beside_s


def _shown_s(parts: ModelParts, way: str) -> Floats:
    """What of the collectives of parts shows, `(k, n)`."""
    tensor_s, expert_s = (
        np.stack([getattr(times, f"{way}_{name}_comm_s") for times in parts.times.values()])
        for name in ("tensor", "expert")
    )
    return np.asarray(tensor_s + expert_s)


def _with_collectives(alone_s: Floats, shown_s: Floats, own: _Own, shards: _Shards) -> Floats:
    """What parts have in passes of one way with their collectives, `(6, k, n)`."""
    beside_s = alone_s.copy()
    shown = np.minimum(1.0, shown_s / np.maximum(own.alone_s, np.finfo(np.float64).tiny))
    cards_s, scale_up_s = (np.minimum(each, beside_s[COVER]) for each in (own.cards_s, own.scale_up_s))
    beside_s[HELD_UP] += shards.far * cards_s + (1.0 - shards.far) * scale_up_s
    beside_s[WAITED_CARDS], beside_s[BUSY_CARDS] = shown * cards_s, shards.cards
    beside_s[WAITED_SCALE_UP], beside_s[BUSY_SCALE_UP] = shown * scale_up_s, shards.scale_up
    return beside_s
