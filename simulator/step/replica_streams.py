"""How long does the traffic of the replicas once per step take next to passes that are on the same links?

Where the replicas are in several link domains, these links are network cards. Where several of them are in one domain, they are
the scale-up links, too, on which all collectives of passes are. In a mesh only keys and values that go round meet them, on one
link of each rank. Traffic that is on no card is there all the time, other traffic for a share b of its time, as shards of ZeRO
are (`simulator.step.beside_shards`):

    w  = max(w (cards), b w (scale-up) - (1 - b) y)        y as long as that traffic takes alone
    w' = w' (cards) + b w' (scale-up)

The other equations are in `simulator.step.card_time`, `simulator.step.next_chunks` and `simulator.step.lent_cores`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.domain.plan import splits_backward
from simulator.layout.expert_ranks import expert_ranks, expert_replicas
from simulator.machine.rank import Rank, members_in_domain
from simulator.step.beside_shards import (
    busy_share,
    gathers_busy_s,
    reductions_busy_s,
    scale_up_collectives,
)
from simulator.step.card_time import (
    beside_own_traffic_s,
    has_collectives,
    replicas_leave_domain,
    with_last_send_s,
)
from simulator.step.gradient_buckets import FIRST_BY_PARTS, Buckets
from simulator.step.lent_cores import LinkWaits
from simulator.step.link_waits import OnLink
from simulator.step.model_parts import ModelParts
from simulator.step.next_chunks import PassesBeside, among_passes_s
from simulator.table import Booleans, Floats, Integers
from simulator.traffic.layer_collectives import Directions
from simulator.traffic.stage_sends import send_card_s


@dataclass(frozen=True, kw_only=True)
class ReplicaStreams:
    """The traffic of the replicas once per step, and the passes next to it, `(n, C)`."""

    once_s: Directions
    """Gradients and weights, before anything hides them."""
    passes_s: Directions
    """Forward and backward passes."""
    buckets: Buckets
    beside: PassesBeside
    """Passes of other chunks."""
    shards_s: Floats | None
    """Gathers and reductions behind backward passes on links that copies of hybrid sharding use, too; `None`: none."""
    covers_s: Floats
    """Backward passes of layers without shards."""
    shown_s: Floats
    """Shards that show in backward passes."""

    def beside_s(self, rank: Rank, own_s: Directions | None) -> Directions:
        """Returns gradients and weights including their waits for collectives of the passes next to them, w, `(n, C)` a way."""
        gradient_s, parameter_s = self.once_s
        if not rank.workload.overlaps_gradient_sync:
            return gradient_s, parameter_s
        gradient_s = with_last_send_s(gradient_s, replicas_leave_domain(rank) * send_card_s(rank))
        forward_s, backward_s = own_s or (None, None)
        if self.shards_s is not None:
            backward_s = self.shards_s if backward_s is None else backward_s + self.shards_s
        if forward_s is not None:
            parameter_s = beside_own_traffic_s(
                parameter_s, self.passes_s[0], forward_s, self.buckets.parameters
            )
            parameter_s = among_passes_s(parameter_s, self.passes_s[0], forward_s, self.beside.gathers)
        if backward_s is not None:
            # Zero-bubble schedules reduce gradients beside products alone.
            backward_s = ~splits_backward(rank.plans)[:, None] * backward_s
            gradient_s = beside_own_traffic_s(
                gradient_s, self.passes_s[1], backward_s, self.buckets.gradients
            )
            gradient_s = among_passes_s(gradient_s, self.passes_s[1], backward_s, self.beside.reductions)
        return gradient_s, parameter_s

    def waits(self, waited_s: Directions | None) -> LinkWaits | None:
        """Returns what passes wait for of their own traffic, w', `(n, C)` a way, and of shards next to copies."""
        if waited_s is None and self.shards_s is None:
            return None
        gradient_s, parameter_s = self.once_s
        forward_s, backward_s = waited_s or (np.zeros_like(gradient_s), np.zeros_like(gradient_s))
        shards_s = self._waiting_shards_s()
        return LinkWaits(
            forward_s=forward_s,
            backward_s=backward_s if shards_s is None else backward_s + shards_s,
            parameter_gather_s=parameter_s,
            gradient_sync_s=gradient_s,
            idle_s=None if shards_s is None else (shards_s > 0.0) * self.shown_s,
        )

    def _waiting_shards_s(self) -> Floats | None:
        """What backward passes wait for of shards that share links with copies: all that their layers do not hide.

        The first chunk delays none: the step ends with its copies, which wait for its shards.
        """
        if self.shards_s is None:
            return None
        waits_s = np.clip(2.0 * self.shards_s - self.covers_s, 0.0, self.shards_s)
        return np.asarray((np.arange(waits_s.shape[1]) > 0) * waits_s)


@dataclass(frozen=True, kw_only=True)
class OwnTraffic:
    """Collectives of passes on the links that the replicas use, `(n, C)` a way."""

    carried_s: Directions
    """For how long they hold up the traffic of the replicas: w."""
    waited_s: Directions
    """What passes wait for while that traffic is there: w'."""

    @classmethod
    def of(cls, parts: ModelParts, on_link: OnLink) -> Self:
        """Returns the collectives of parts on one kind of link."""
        return cls(carried_s=parts.both_ways(on_link.carried_s), waited_s=parts.both_ways(on_link.waited_s))

    def add_scale_up(self, rows: Integers, scale_up: Self, shares: Directions, once_s: Directions) -> None:
        """Adds to those on cards, for some designs, others on scale-up links.

        Args:
            rows: the m designs.
            scale_up: the others, `(m, C)` a way.
            shares: the shares of its time for which the traffic of the replicas is on scale-up links, b, likewise.
            once_s: that time, of which the rest can be spared there.
        """
        for way in range(2):
            carried_s, waited_s, share = self.carried_s[way], self.waited_s[way], shares[way]
            beside_s = share * scale_up.carried_s[way] - (1.0 - share) * once_s[way]
            carried_s[rows] = np.maximum(carried_s[rows], beside_s)
            waited_s[rows] += share * scale_up.waited_s[way]


def beside_replicas(
    rank: Rank, parts: ModelParts, once_s: Directions, cards: OnLink | None
) -> OwnTraffic | None:
    """Returns the collectives of passes on the links that the replicas use; `None` where no design has any.

    Args:
        rank: the rank.
        parts: the parts of its model.
        once_s: the traffic of the replicas once per step, gradients and weights, before anything hides it, `(n, C)` each.
        cards: the collectives of parts on the cards; `None`: there are none.
    """
    is_beside = _meet_in_domain(rank) & has_collectives(rank) & _has_traffic_of_its_own(rank, once_s)
    rows = np.flatnonzero(is_beside * rank.workload.overlaps_gradient_sync)
    if cards is None and not rows.size:
        return None
    cards = cards or OnLink.none(parts, len(rank.plans))
    own = OwnTraffic.of(parts, cards.where(replicas_leave_domain(rank)))
    if not rows.size:
        return own
    near, parts_near = rank.take(rows), parts.take(rows)
    on_scale_up = scale_up_collectives(near, parts_near, np.ones(len(rows), dtype=np.bool_))
    ways_s = once_s[1][rows], once_s[0][rows]  # weights beside forward passes, gradients beside backward ones
    shares = _scale_up_shares(near, parts_near, ways_s)
    own.add_scale_up(rows, OwnTraffic.of(parts_near, on_scale_up), shares, ways_s)
    return own


def _scale_up_shares(rank: Rank, parts: ModelParts, once_s: Directions) -> Directions:
    """Returns the shares of these times for which the traffic is on scale-up links, b, `(n, C)` a way."""
    is_far, trained = replicas_leave_domain(rank)[:, None], parts.weights.trained
    shares = []
    for busy_s, whole_s in zip((gathers_busy_s, reductions_busy_s), once_s, strict=True):
        cards_s, scale_up_s, _ = (parts.weighted(part_s.T) for part_s in busy_s(rank, trained))
        shares.append(np.where(is_far | (cards_s > 0.0), busy_share(scale_up_s, whole_s), 1.0))
    return shares[0], shares[1]


def replicas_share_scale_up(rank: Rank) -> Booleans:
    """Returns which designs have several replicas, all in one link domain that is no mesh, `(n,)`."""
    plans = rank.plans
    are_near = (plans.data_parallel * plans.context_parallel > 1) & ~replicas_leave_domain(rank)
    return np.asarray(are_near & (rank.links.unlinked_members == 0.0))


def _meet_in_domain(rank: Rank) -> Booleans:
    """Whether several replicas of any weights are in one link domain, so that their traffic is on scale-up links."""
    workload, plans = rank.workload, rank.plans
    together = members_in_domain(rank, plans.tensor_parallel, plans.data_parallel * plans.context_parallel)
    if workload.model.experts is not None:
        of_experts = members_in_domain(rank, expert_ranks(workload, plans), expert_replicas(workload, plans))
        together = np.maximum(together, of_experts)
    return together > 1.0


def _has_traffic_of_its_own(rank: Rank, once_s: Directions) -> Booleans:
    """Whether anything travels once per step that meets no shards instead, as in hybrid sharding from ZeRO-2 on."""
    is_any = (once_s[0] + once_s[1]).any(axis=1)
    return np.asarray(is_any & ((rank.plans.zero_stage < FIRST_BY_PARTS) | (rank.plans.shard_ranks == 0)))
