"""How long does a pass wait on a link that it shares with other traffic?

Libraries give each collective about as many channels, so two collectives that are on a link at the same time have half of it
each. A pass that shares a link all the time runs as on a link of half the rate. Of w, the time for which its own collectives
are on the link, it waits for

    w' = min(w, shown(at half the rate) - shown)

That is all of w where the collectives are exposed, and what is left of w behind their computation where they are hidden. Other
traffic that is there for a part of the pass takes the same part of w'.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.domain.links import LinkConstants
from simulator.machine.rank import Rank
from simulator.step.model_parts import ModelParts, part_collectives_s
from simulator.table import Booleans, Floats, Integers
from simulator.traffic.layer_collectives import Directions

WAYS = ("forward", "backward")


@dataclass(frozen=True, kw_only=True)
class OnLink:
    """The collectives inside the passes of each of k parts on one kind of link, forward and backward, `(k, n)` each."""

    carried_s: Directions
    """Seconds for which they are on the link: w."""
    waited_s: Directions
    """The part of that time for which a pass waits while other traffic is there: w'."""

    @classmethod
    def none(cls, parts: ModelParts, num_designs: int) -> Self:
        """Returns the record of parts without any collectives there."""
        none_s = np.zeros((len(parts.kinds), num_designs))
        return cls(carried_s=(none_s, none_s), waited_s=(none_s, none_s))

    def where(self, is_shared: Booleans) -> Self:
        """Returns the same for some designs only, and nothing for the others."""
        carried_s, waited_s = (
            (is_shared * each[0], is_shared * each[1]) for each in (self.carried_s, self.waited_s)
        )
        return replace(self, carried_s=carried_s, waited_s=waited_s)

    def take(self, rows: Integers) -> Self:
        """Returns those of the chosen designs."""
        carried_s, waited_s = (
            (each[0][:, rows], each[1][:, rows]) for each in (self.carried_s, self.waited_s)
        )
        return replace(self, carried_s=carried_s, waited_s=waited_s)


def half_cards(links: LinkConstants) -> LinkConstants:
    """Returns a network whose cards have half of their rate."""
    return replace(links, inter_bytes_per_s_per_gpu=0.5 * links.inter_bytes_per_s_per_gpu)


def half_scale_up(links: LinkConstants) -> LinkConstants:
    """Returns a network whose scale-up links have half of their rate; in a mesh only the links that rings use.

    The cost of cutting messages into chunks stays: as many of them pass, each for twice as long. Collectives keep their way,
    which libraries choose once, when they make a group (NCCL, `ncclTopoCompute`).
    """
    is_mesh = links.unlinked_members > 0.0
    rate = np.where(is_mesh, 1.0, 0.5)
    return replace(
        links,
        intra_bytes_per_s=rate * links.intra_bytes_per_s,
        intra_ramp_s=rate * links.intra_ramp_s,
        point_to_point_fraction=np.where(is_mesh, 0.5, 1.0) * links.point_to_point_fraction,
        scale_up_fraction=rate * links.scale_up_fraction,
    )


def on_link(
    rank: Rank,
    parts: ModelParts,
    carried_s: Directions,
    halved: Callable[[LinkConstants], LinkConstants],
    is_shared: Booleans,
) -> OnLink:
    """Returns the collectives of passes on a kind of link, and how long passes wait for them.

    Args:
        rank: the rank.
        parts: the parts of its model.
        carried_s: w, `(k, n)` a way.
        halved: the same network with links of this kind at half of their rate.
        is_shared: the designs in which other traffic may be there, `(n,)`; no others wait.
    """
    if not (is_shared & (carried_s[0] + carried_s[1]).any(axis=0)).any():
        none_s = np.zeros_like(carried_s[0])
        return OnLink(carried_s=carried_s, waited_s=(none_s, none_s))
    slower = rank.on_links(halved(rank.links))
    at_half_s = by_way([part_collectives_s(slower, kind) for kind in parts.kinds])
    waited_s = [
        np.asarray(is_shared * np.clip(each_s - shown_s(parts, way), 0.0, most_s), dtype=np.float64)
        for way, each_s, most_s in zip(WAYS, at_half_s, carried_s, strict=True)
    ]
    return OnLink(carried_s=carried_s, waited_s=(waited_s[0], waited_s[1]))


def shown_s(parts: ModelParts, way: str) -> Floats:
    """Returns the exposed time of the collectives of parts, `(k, n)`."""
    return np.stack([times.collectives_s(way) for times in parts.times.values()])


def by_way(parts_s: Sequence[Directions]) -> Directions:
    """Returns times of k parts, `(n,)` a way, as tables `(k, n)`."""
    forward_s, backward_s = zip(*parts_s, strict=True)
    return np.stack(forward_s), np.stack(backward_s)
