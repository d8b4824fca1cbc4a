"""Which traffic of a pass shares links with shards of ZeRO, and by how much do they hold each other up?

Bytes that are on a link at the same time take the sum of their times. Let w be the time for which a collective of a pass is on
a link: what its bytes need of the cards, or of the scale-up link. w' is what a part waits for of that time while other traffic
is there (`simulator.step.link_waits`).

The gathers and reductions of a pass, which take t, are on these links for b t each (`network.gather_busy_s`). If their group is
inside one link domain, they use the scale-up link alone; otherwise they use both, one of which is free sooner. A collective
meets them there for the share b of its own time, and each waits equally long for the other. So collectives hold up shards by
b w on the cards, or by b w on the scale-up link beyond the time for which shards are on the cards alone. They are on either
link for b(either) t, in which shared and routed weights follow each other:

    max(b w (cards), b w (scale-up) - (b(either) - b(scale-up)) t)

A send q to another domain does so, too, if the stage continues meanwhile. It then overlaps with the parts of the next pass,
each of which has q over their number in its w on the cards.

In a mesh each pair of ranks has a link of its own. Two groups that cross have no pair in common, but context-parallel ranks are
all in the group of the shards: keys and values that go round use one link of each rank, and the shards wait for their part on
that link.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from simulator.domain.plan import shard_group
from simulator.layout.chunks import ChunkWeights
from simulator.layout.weight_gathers import gathers_in_passes
from simulator.machine.rank import Rank
from simulator.replicas.cast_weights import gathered_weight_bytes
from simulator.replicas.replica_sync import ReplicaGroup, reductions_of_step, scatters_gradients
from simulator.row_sums import sum_columns
from simulator.step.card_time import has_collectives, leaves_domain, part_traffic_s
from simulator.step.gradient_buckets import FIRST_BY_PARTS
from simulator.step.link_waits import OnLink, by_way, half_scale_up, on_link
from simulator.step.model_parts import ModelParts
from simulator.table import Booleans, Floats, total
from simulator.traffic.layer_collectives import Directions
from simulator.traffic.stage_sends import send_card_s, sends_block

COVER, CARRIED_CARDS, WAITED_CARDS, BUSY_CARDS, CARRIED_SCALE_UP, WAITED_SCALE_UP, BUSY_SCALE_UP, BUSY = (
    range(8)
)
"""Rows of a table: seconds of a part, then w, w' and b on the cards and on the scale-up link, and b on either."""


class BusyTimes(NamedTuple):
    """How long traffic of weights occupies links, `(n, k)` each."""

    cards_s: Floats
    scale_up_s: Floats
    either_s: Floats
    """At least one of them."""

    @classmethod
    def of(cls, cards_s: Floats, scale_up_s: Floats) -> Self:
        """Returns those of one group, which is on both links at the same time."""
        return cls(cards_s, scale_up_s, np.maximum(cards_s, scale_up_s))


def parts_beside_s(rank: Rank, parts: ModelParts, traffic_s: Directions, cards: OnLink | None) -> Directions:
    """Returns what each of k parts offers to shards that travel at the same time, `(8, k, n)` a way, in rows `COVER` and so on.

    Args:
        rank: the rank.
        parts: the parts of its model.
        traffic_s: the shards that may travel beside a part, `(n, k)` a way.
        cards: the collectives of parts on the cards; `None`: there are none.
    """
    sends_s = _sends_s(rank, parts)
    alone_s = _alone_s(parts, "forward", sends_s), _alone_s(parts, "backward", sends_s)
    if not (sends_s.any() or has_collectives(rank).any()):
        return alone_s
    shards, cards = _Shards.of(rank, parts, traffic_s), cards or OnLink.none(parts, len(rank.plans))
    scale_up = scale_up_collectives(rank, parts, rank.plans.zero_stage >= FIRST_BY_PARTS)
    return (
        _with_collectives(alone_s[0], 0, (cards, scale_up), shards),
        _with_collectives(alone_s[1], 1, (cards, scale_up), shards),
    )


@dataclass(frozen=True, kw_only=True)
class _Shards:
    """Shares of the time of shards, of k kinds of parts, in which they are on each kind of link, `(k, n)` a way."""

    cards: Directions
    """On the cards: b."""
    scale_up: Directions
    """On the scale-up link: b."""
    either: Directions
    """On one of them."""

    @classmethod
    def of(cls, rank: Rank, parts: ModelParts, traffic_s: Directions) -> Self:
        workload, plans, weights = rank.workload, rank.plans, parts.weights
        gathers_s = gathers_busy_s(rank, weights.together)
        reductions_s = reductions_busy_s(rank, weights.trained)
        gathers, gathers_back = gathers_in_passes(workload, plans)[:, None], plans.zero_stage[:, None] == 3
        reductions = reductions_of_step(rank)[0] * workload.overlaps_gradient_sync
        cards, scale_up, either = (
            (
                busy_share(gathers * gather_s, traffic_s[0]).T,
                busy_share(gathers_back * gather_s + reductions * reduction_s, traffic_s[1]).T,
            )
            for gather_s, reduction_s in zip(gathers_s, reductions_s, strict=True)
        )
        return cls(cards=cards, scale_up=scale_up, either=either)


def gathers_busy_s(rank: Rank, weights: ChunkWeights) -> BusyTimes:
    """Returns how long a gather of weights over all ranks that share them occupies links."""
    return _busy_s(rank, gathered_weight_bytes(rank.workload, rank.plans, weights))


def reductions_busy_s(rank: Rank, weights: ChunkWeights) -> BusyTimes:
    """Returns the same for a reduction of their gradients; where all ranks receive it, it goes there and back."""
    workload, plans = rank.workload, rank.plans
    trips = np.where(scatters_gradients(rank) & (plans.zero_stage > 0), 1.0, 2.0)[:, None]
    gradients = weights.shared_on_rank(plans), weights.routed_on_rank(workload, plans)
    return _busy_s(rank, tuple(trips * workload.wire_bytes * each for each in gradients))


def _busy_s(rank: Rank, num_bytes: tuple[Floats, ...]) -> BusyTimes:
    """How long shared and routed weights of these sizes, one after the other, occupy links."""
    shared = BusyTimes.of(*ReplicaGroup.of_shared(rank).gather_busy_s(num_bytes[0]))
    if rank.workload.model.experts is None:
        return shared
    routed = BusyTimes.of(*ReplicaGroup.of_routed(rank).gather_busy_s(num_bytes[1]))
    return BusyTimes(*(one_s + other_s for one_s, other_s in zip(shared, routed, strict=True)))


def busy_share(busy_s: Floats, whole_s: Floats) -> Floats:
    """Returns the part of times for which a link is busy; 0 where there is none."""
    return np.asarray(busy_s / np.maximum(np.maximum(whole_s, busy_s), np.finfo(np.float64).tiny))


def scale_up_collectives(rank: Rank, parts: ModelParts, is_shared: Booleans) -> OnLink:
    """Returns the collectives of parts on scale-up links: the time of their bytes there, if not less on the whole network.

    In a mesh these are only rings, on the links that they use.

    Args:
        rank: the rank.
        parts: the parts of its model.
        is_shared: the designs in which other traffic may be there, `(n,)`; no others wait.
    """
    inside, is_mesh = rank.links.on_scale_up_alone(), rank.links.unlinked_members > 0.0
    whole_s, inside_s = (
        _carried_s(replace(rank, links=links), parts) for links in (rank.links.without_latency(), inside)
    )
    if is_mesh.any():
        fraction = np.where(is_mesh, np.inf, inside.point_to_point_fraction)
        others = replace(rank, links=replace(inside, point_to_point_fraction=fraction))
        others_s = _carried_s(others, parts)
        inside_s = inside_s[0] - is_mesh * others_s[0], inside_s[1] - is_mesh * others_s[1]
    carried_s = np.minimum(whole_s[0], inside_s[0]), np.minimum(whole_s[1], inside_s[1])
    return on_link(rank, parts, carried_s, half_scale_up, is_shared)


def _carried_s(rank: Rank, parts: ModelParts) -> Directions:
    return by_way([part_traffic_s(rank, kind) for kind in parts.kinds])


def _sends_s(rank: Rank, parts: ModelParts) -> Floats:
    """Card time of a send next to each part of a pass, in designs whose shards are also on the cards, `(n,)`."""
    plans = rank.plans
    is_beside = leaves_domain(rank, plans.tensor_parallel, shard_group(plans)) & ~sends_block(rank)
    num_parts = sum_columns(total(parts.counts.values()))
    num_chunks = plans.pipeline_parallel * plans.virtual_pipeline
    return np.asarray(is_beside * send_card_s(rank) * num_chunks / num_parts)


def _alone_s(parts: ModelParts, way: str, sends_s: Floats) -> Floats:
    """Rows of parts whose passes have no collectives, `(8, k, n)`."""
    cover_s = np.stack([getattr(times, f"{way}_s") for times in parts.times.values()])
    beside_s = np.zeros((BUSY + 1, *cover_s.shape))
    beside_s[COVER], beside_s[CARRIED_CARDS] = cover_s, sends_s
    return beside_s


def _with_collectives(alone_s: Floats, way: int, links: tuple[OnLink, OnLink], shards: _Shards) -> Floats:
    """Rows of parts in passes of one way, with their collectives, `(8, k, n)`."""
    beside_s = alone_s.copy()
    cards_s, scale_up_s = (np.minimum(each.carried_s[way], beside_s[COVER]) for each in links)
    beside_s[CARRIED_CARDS] += cards_s
    beside_s[CARRIED_SCALE_UP] = scale_up_s
    beside_s[WAITED_CARDS], beside_s[BUSY_CARDS] = links[0].waited_s[way], shards.cards[way]
    beside_s[WAITED_SCALE_UP], beside_s[BUSY_SCALE_UP] = links[1].waited_s[way], shards.scale_up[way]
    beside_s[BUSY] = shards.either[way]
    return beside_s
