"""How long does the traffic of the replicas once per step take next to passes that are on the same links?

Where the replicas are in several link domains, these links are network cards. Where all of them are in one domain, it is the
scale-up link of each rank, on which all collectives of its passes are, too. In a mesh only keys and values that go round meet
them, on one link of each rank (`simulator.step.beside_shards`). The equations are in `simulator.step.card_time` and
`simulator.step.lent_cores`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.domain.plan import splits_backward
from simulator.machine.rank import Rank
from simulator.step.beside_shards import scale_up_collectives
from simulator.step.card_time import (
    beside_own_traffic_s,
    has_collectives,
    replicas_leave_domain,
    with_last_send_s,
)
from simulator.step.gradient_buckets import FIRST_BY_PARTS, Buckets
from simulator.step.lent_cores import CardWaits
from simulator.step.link_waits import OnLink
from simulator.step.model_parts import ModelParts
from simulator.table import Booleans, Floats
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
        if backward_s is not None:
            # Zero-bubble schedules reduce gradients beside products alone.
            backward_s = ~splits_backward(rank.plans)[:, None] * backward_s
            gradient_s = beside_own_traffic_s(
                gradient_s, self.passes_s[1], backward_s, self.buckets.gradients
            )
        return gradient_s, parameter_s

    def waits(self, waited_s: Directions | None) -> CardWaits | None:
        """Returns what passes wait for of their own traffic, w', `(n, C)` a way, and of shards next to copies."""
        if waited_s is None and self.shards_s is None:
            return None
        gradient_s, parameter_s = self.once_s
        forward_s, backward_s = waited_s or (np.zeros_like(gradient_s), np.zeros_like(gradient_s))
        shards_s = self._waiting_shards_s()
        return CardWaits(
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


def beside_replicas(rank: Rank, parts: ModelParts, cards: OnLink | None) -> OnLink | None:
    """Returns the collectives of passes on the links that the replicas use; `None` where no design has any.

    From ZeRO-2 on, the shards of a part already wait for them on scale-up links.

    Args:
        rank: the rank.
        parts: the parts of its model.
        cards: the collectives of parts on the cards; `None`: there are none.
    """
    far = cards.where(replicas_leave_domain(rank)) if cards else None
    is_near = _are_near(rank) & has_collectives(rank) & (rank.plans.zero_stage < FIRST_BY_PARTS)
    if not (rank.workload.overlaps_gradient_sync and is_near.any()):
        return far
    rows = np.flatnonzero(is_near)
    near, parts_near = rank.take(rows), parts.take(rows)
    none = OnLink.none(parts_near, len(rows))
    on_scale_up = scale_up_collectives(near, parts_near, none, np.ones(len(rows), dtype=np.bool_))
    return (far or OnLink.none(parts, len(rank.plans))).with_rows(rows, on_scale_up)


def replicas_share_scale_up(rank: Rank) -> Booleans:
    """Returns which designs have several replicas, all in one link domain that is no mesh, `(n,)`."""
    return np.asarray(_are_near(rank) & (rank.links.unlinked_members == 0.0))


def _are_near(rank: Rank) -> Booleans:
    """Whether several replicas are all in one link domain."""
    plans = rank.plans
    return (plans.data_parallel * plans.context_parallel > 1) & ~replicas_leave_domain(rank)
