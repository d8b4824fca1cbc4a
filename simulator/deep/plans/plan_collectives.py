"""What load does a collective of a plan put on the links, and which part of its time is not spent on them?

The fast depth says how long a collective takes alone (`simulator.machine.network`): start-up, the latency of its steps, and
its bytes over the share of the bandwidth that such messages reach. Here the bytes become flows. A message that reaches a share
f of a link's bandwidth occupies the link like 1/f times as many bytes at full bandwidth; everything else is a delay before the
first byte. A collective that is alone therefore takes as long as in the fast depth; one that shares its links takes longer.

A ring of n ranks, g of them in each domain, runs as g rings that each enter and leave a domain at a different member. Each
member thus sends (g-1)/g of the volume to its neighbour and 1/g through its own card.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.domain.links import LinkConstants
from simulator.machine.network import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    card_rate,
    forwarded_exchange_s,
    passed_on_s,
    point_to_point_s,
    scale_up_rate,
)
from simulator.machine.rank import Rank, members_in_domain
from simulator.record import Choice
from simulator.table import Floats


class Operation(Choice):
    """What a collective does."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    ALL_TO_ALL = "all-to-all"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks of one stage that communicate: each is `stride` after the previous one."""

    stride: int
    size: int
    members_per_domain: int
    """Members in one link domain, as the fast depth counts them."""

    @classmethod
    def of(cls, rank: Rank, stride: int, size: int) -> Group:
        """Returns a group of the only design of `rank`."""
        members = members_in_domain(rank, np.array([stride]), np.array([size]))
        return cls(stride=stride, size=size, members_per_domain=int(members[0]))

    @property
    def span(self) -> int:
        """Number of ranks from the first member to the end of the last one's stride."""
        return self.stride * self.size


@dataclass(frozen=True, kw_only=True)
class Collective:
    """One collective of a group, as each of its members sees it."""

    label: str
    """Its name in timelines and sentences."""
    operation: Operation
    group: Group
    num_bytes: float
    """Size of the whole buffer; for an all-to-all, what a member sends in total."""
    alone_s: float
    """How long it takes with nothing else on the network, as in the fast depth."""
    rest_s: float
    """The part of `alone_s` that the bytes below do not account for."""
    near_bytes: float
    """What a member sends over its scale-up link, scaled up for limited efficiency."""
    far_bytes: float
    """What it sends through its card, scaled up for limited efficiency."""
    is_direct: bool = False
    """Whether every member sends to every other one, instead of to the next."""

    def scaled(self, share: float) -> Collective:
        """Returns one piece of a collective that runs in several; pieces have no start-up of their own."""
        return replace(
            self,
            num_bytes=share * self.num_bytes,
            alone_s=share * self.alone_s,
            rest_s=share * self.rest_s,
            near_bytes=share * self.near_bytes,
            far_bytes=share * self.far_bytes,
        )

    def with_rest(self, rest_s: float) -> Collective:
        """Returns a collective with the same bytes and another `rest_s`."""
        return replace(self, rest_s=rest_s, alone_s=self.alone_s - self.rest_s + rest_s)

    @property
    def moves(self) -> bool:
        """Whether anything is sent at all."""
        return self.group.size > 1 and self.alone_s > 0.0


@dataclass(frozen=True, kw_only=True)
class Message:
    """What one rank sends to its counterpart in another stage."""

    num_bytes: float
    near_rest_s: float
    """Delay before the first byte, inside a domain."""
    far_rest_s: float
    """Delay before the first byte, through the fabric."""
    near_bytes: float
    """What it sends inside a domain, scaled up for limited efficiency."""
    far_bytes: float


def ring(
    label: str, operation: Operation, num_bytes: float, group: Group, links: LinkConstants
) -> Collective:
    """Returns an all-reduce, an all-gather or a reduce-scatter of a buffer."""
    size, members = float(group.size), float(group.members_per_domain)
    is_sum = operation is Operation.ALL_REDUCE
    volume = (2.0 if is_sum else 1.0) * (1.0 - 1.0 / size) * num_bytes
    fraction = links.all_reduce_fraction if is_sum else links.gather_fraction
    timed = all_reduce_s if is_sum else all_gather_s
    alone_s = timed(num_bytes=num_bytes, group_size=size, members_per_domain=members, links=links)
    near_rate, far_rate = scale_up_rate(fraction, members, links), card_rate(members, links)
    if members < size:
        near_s, far_s = volume * (members - 1.0) / members / near_rate, volume / members / far_rate
        capped_s = np.maximum(near_s, far_s)
    else:
        near_s = capped_s = volume / near_rate
        far_s = np.zeros_like(near_s)
    return _collective(label, operation, group, num_bytes, alone_s, near_s, far_s, capped_s, links)


def circle(label: str, num_bytes: float, num_steps: float, group: Group, links: LinkConstants) -> Collective:
    """Returns messages from each member to the next one, which pass on `num_bytes` in total, in `num_steps` steps.

    Where the circle leaves a domain, all of them go through the card of the member that sends across.
    """
    is_near = group.members_per_domain >= group.size
    alone_s = passed_on_s(num_bytes=num_bytes, num_steps=num_steps, is_same_domain=is_near, links=links)
    near_s = num_bytes / links.near_send_bytes_per_s
    far_s = num_bytes / links.far_send_bytes_per_s
    if is_near:
        far_s = np.zeros_like(far_s)
    elif group.members_per_domain == 1:
        near_s = np.zeros_like(near_s)
    around = group if is_near else replace(group, members_per_domain=1)
    most_s = np.maximum(near_s, far_s)
    whole = _buffer_bytes(num_bytes, group)
    return _collective(label, Operation.ALL_GATHER, around, whole, alone_s, near_s, far_s, most_s, links)


def _buffer_bytes(sent_bytes: float, group: Group) -> float:
    """Returns the size of a buffer of which a member sends `sent_bytes`: all but its own part."""
    return sent_bytes * group.size / max(1, group.size - 1)


def all_to_all(label: str, num_bytes: float, group: Group, links: LinkConstants) -> Collective:
    """Returns an exchange in which each member sends an equal part of its bytes to every member."""
    size, members = float(group.size), float(group.members_per_domain)
    alone_s = all_to_all_s(num_bytes=num_bytes, group_size=size, members_per_domain=members, links=links)
    near_s = (members - 1.0) / size * num_bytes / scale_up_rate(links.all_to_all_fraction, members, links)
    far_s = (size - members) / size * num_bytes / links.fabric_bytes_per_s
    most_s = np.maximum(near_s, far_s)
    found = _collective(label, Operation.ALL_TO_ALL, group, num_bytes, alone_s, near_s, far_s, most_s, links)
    return replace(found, is_direct=True)


def forwarded_exchange(
    label: str,
    near_bytes: float,
    far_bytes: float,
    group: Group,
    links: LinkConstants,
    forwarded_fraction: float,
) -> Collective:
    """Returns an exchange that crosses the fabric once and is forwarded inside domains; bytes are those of the fast depth."""
    alone_s = forwarded_exchange_s(
        near_bytes=near_bytes,
        far_bytes=far_bytes,
        group_size=float(group.size),
        members_per_domain=float(group.members_per_domain),
        links=links,
    )
    near_s = near_bytes / (links.intra_bytes_per_s * forwarded_fraction)
    far_s = far_bytes / links.fabric_bytes_per_s
    most_s = np.maximum(near_s, far_s)
    whole = _buffer_bytes(near_bytes + far_bytes, group)
    found = _collective(label, Operation.ALL_TO_ALL, group, whole, alone_s, near_s, far_s, most_s, links)
    return replace(found, is_direct=True)


def _collective(
    label: str,
    operation: Operation,
    group: Group,
    num_bytes: float,
    alone_s: Floats,
    near_s: Floats,
    far_s: Floats,
    transfer_s: Floats,
    links: LinkConstants,
) -> Collective:
    # Where a faster way takes a part of the bytes (`simulator.machine.network`), the rest is on the link for no longer than it.
    near_s, far_s = np.minimum(near_s, alone_s), np.minimum(far_s, alone_s)
    return Collective(
        label=label,
        operation=operation,
        group=group,
        num_bytes=num_bytes,
        alone_s=float(alone_s[0]),
        rest_s=max(0.0, float((alone_s - transfer_s)[0])) if group.size > 1 else 0.0,
        near_bytes=float((near_s * links.intra_bytes_per_s)[0]),
        far_bytes=float((far_s * links.inter_bytes_per_s_per_gpu)[0]),
    )


def message(num_bytes: float, links: LinkConstants) -> Message:
    """Returns what a rank sends to its counterpart in another stage."""
    near_s, far_s = (
        float(point_to_point_s(num_bytes=num_bytes, is_same_domain=is_near, links=links)[0])
        for is_near in (True, False)
    )
    near_bytes = num_bytes / float(links.point_to_point_fraction[0])
    far_bytes = num_bytes / float(links.inter_point_to_point_fraction[0])
    return Message(
        num_bytes=num_bytes,
        near_rest_s=near_s - near_bytes / float(links.intra_bytes_per_s[0]),
        far_rest_s=far_s - far_bytes / float(links.inter_bytes_per_s_per_gpu[0]),
        near_bytes=near_bytes,
        far_bytes=far_bytes,
    )


def pieces_of(whole: tuple[Collective, ...], count: int, *, is_late: bool) -> list[tuple[Collective, ...]]:
    """Cuts collectives into pieces that follow each other; one piece has the start-up of all.

    The start-up of reductions comes after the last piece, so that it ends when the whole would; that of gathers comes before
    the first.
    """
    bare = tuple(each.scaled(1.0 / count).with_rest(0.0) for each in whole)
    full = tuple(each.scaled(1.0 / count).with_rest(each.rest_s) for each in whole)
    pieces = [bare] * (count - 1)
    return [*pieces, full] if is_late else [full, *pieces]


def even_pieces(
    whole: tuple[Collective, ...], count: int, parts: list[tuple[Collective, ...]]
) -> list[tuple[Collective, ...]]:
    """Cuts collectives into equal pieces that together have the start-ups and ramps of the collectives of all parts."""
    rest_s = sum(each.rest_s for part in parts for each in part) / count
    piece = tuple(
        each.scaled(1.0 / count).with_rest(0.0 if number else rest_s) for number, each in enumerate(whole)
    )
    return [piece] * count
