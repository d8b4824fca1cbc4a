"""How long does a collective take?

Ring volumes over a two-level network: accelerators of one link domain (NVLink, xGMI, ICI) and the fabric
between domains. Every argument is a number or an array that broadcasts to `(n,)`, one row per design; every
result is in seconds. Constants per link are in `simulator.domain.links`.

A transfer of V bytes per accelerator at B bytes/s costs

    time = start-up + steps * hop + V/B + 2 sqrt(ramp * V/B)

The root is what a pipeline loses that cuts its message into the best number of chunks: with c chunks the
last one arrives after (c + h)(V/(cB) + a), least at c = sqrt(h V/(a B)), where V/B + h a + 2 sqrt(h a V/B)
remains. One slope alone is wrong by a factor of two around 10 MiB.

Through the fabric a ring visits every member, so its latency grows with the number of domains: 9 ms for an
all-reduce of 1,024 accelerators. A tree is as deep as the logarithm of their number, but pays the root; an
all-reduce takes whichever is faster, gathers have only the ring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypedDict

import numpy as np

from simulator.domain.links import LinkConstants
from simulator.table import Booleans, Floats

Numbers = float | Floats

MEASURED_GROUP = 8.0
"""Largest group inside a domain that was measured: full efficiency, and the end of latency growing with n."""
FORWARDED_FRACTION = 0.72
"""Share of the scale-up bandwidth that deduplicated dispatch and combine reach, kernels alone."""
FORWARDING_EXPONENT = 1.9
"""p of (near^p + far^p)^(1/p): 1 adds the two paths of such an exchange, a large p takes the longer one."""


class Group(TypedDict):
    """Members of a collective, in the form that `all_reduce_s` and the others take."""

    group_size: Numbers
    members_per_domain: Numbers
    links: LinkConstants


_FarWay = Callable[[Numbers, Numbers, Numbers, "LinkConstants"], Floats]
"""Seconds through the fabric by volume, group size, members in each domain and links."""


def all_reduce_s(
    *, num_bytes: Numbers, group_size: Numbers, members_per_domain: Numbers, links: LinkConstants
) -> Floats:
    """Returns seconds `(n,)` until every member has the sum: 2 (n-1)/n of the buffer, there and back.

    Args:
        num_bytes: Size of the full buffer.
        group_size: Members of the group; one member costs nothing.
        members_per_domain: Members in each scale-up domain; `group_size / members_per_domain` domains.
        links: Constants of the network.
    """
    members = np.minimum(members_per_domain, group_size)
    volume = 2.0 * _peer_share(group_size) * num_bytes
    near_s = _near_ring_s(volume, 2.0, links.all_reduce_fraction, members, links)
    return _faster_way_s(near_s, _far_all_reduce_s, volume, group_size, members, links)


def all_gather_s(
    *, num_bytes: Numbers, group_size: Numbers, members_per_domain: Numbers, links: LinkConstants
) -> Floats:
    """Returns seconds `(n,)` until every member has the full buffer of `num_bytes`: (n-1)/n of it arrives.

    Arguments as for `all_reduce_s`.
    """
    members = np.minimum(members_per_domain, group_size)
    volume = _peer_share(group_size) * num_bytes
    near_s = _near_ring_s(volume, 1.0, links.gather_fraction, members, links)
    return _faster_way_s(near_s, _far_gather_s, volume, group_size, members, links)


def reduce_scatter_s(
    *, num_bytes: Numbers, group_size: Numbers, members_per_domain: Numbers, links: LinkConstants
) -> Floats:
    """Returns seconds `(n,)` until every member has its share of the sum: an all-gather run backwards.

    Arguments as for `all_reduce_s`; `num_bytes` is the full buffer.
    """
    return all_gather_s(
        num_bytes=num_bytes, group_size=group_size, members_per_domain=members_per_domain, links=links
    )


def all_to_all_s(
    *, num_bytes: Numbers, group_size: Numbers, members_per_domain: Numbers, links: LinkConstants
) -> Floats:
    """Returns seconds `(n,)` until every member has sent an equal part of its data to every other one.

    Parts for the own domain travel over the scale-up link; at the same time, those for the other k-1 of k domains travel
    through the fabric, each member using its own share of the network cards. As for rings, a group of more than eight in one
    domain is no slower than one that leaves the domain after every eight members.

    Args:
        num_bytes: Everything that one member sends, including the part for itself.
        group_size: Members of the group; one member costs nothing.
        members_per_domain: Members in each scale-up domain.
        links: Constants of the network.
    """
    members = np.minimum(members_per_domain, group_size)
    time_s = _exchange_s(num_bytes, group_size, members, links)
    is_unmeasured = (members >= group_size) & (members > MEASURED_GROUP)
    if np.any(is_unmeasured) and not links.has_free_cards:
        leaving = np.where(is_unmeasured, MEASURED_GROUP, members)
        over_cards_s = _exchange_s(num_bytes, group_size, leaving, _alone(links)) / links.scale_up_fraction
        time_s = np.minimum(time_s, over_cards_s)
    return _started_s(time_s, group_size, links)


def forwarded_exchange_s(
    *,
    near_bytes: Numbers,
    far_bytes: Numbers,
    group_size: Numbers,
    members_per_domain: Numbers,
    links: LinkConstants,
) -> Floats:
    """Returns seconds `(n,)` of an exchange that crosses the fabric once and is forwarded inside the domains.

    near = bytes that arrive over the scale-up link, far = bytes that leave through the fabric, each over its rate;
    time = (near^p + far^p)^(1/p): the two are pipelined, with imperfect overlap.

    Args:
        near_bytes: What one member receives over the scale-up link, including forwarded parts.
        far_bytes: What one member sends through the fabric.
        group_size: Members of the group; one member costs nothing.
        members_per_domain: Members in each scale-up domain.
        links: Constants of the network.
    """
    members = np.minimum(members_per_domain, group_size)
    near_s = near_bytes / (links.intra_bytes_per_s * FORWARDED_FRACTION)
    far_s = far_bytes / links.fabric_bytes_per_s
    p = FORWARDING_EXPONENT
    transfer_s = (near_s**p + far_s**p) ** (1.0 / p)
    latency_s = links.intra_hop_s + np.log2(group_size / members) * links.inter_latency_s
    return _started_s(transfer_s + latency_s, group_size, links)


def gather_busy_s(
    *, num_bytes: Numbers, group_size: Numbers, members_per_domain: Numbers, links: LinkConstants
) -> tuple[Floats, Floats]:
    """Returns seconds `(n,)` for which an all-gather occupies the cards and the scale-up link of a member.

    Through the fabric, with g members per domain, a card carries 1/g of the volume and the scale-up link the rest. A group of
    more than eight in one domain takes that way, too, where it is faster; a smaller one shares its links as if it had no other,
    however fast it is. Arguments as for `all_reduce_s`.
    """
    members = np.minimum(members_per_domain, group_size)
    volume = _peer_share(group_size) * num_bytes
    near_s = _near_ring_s(volume, 1.0, links.gather_fraction, members, links)
    leaving = _leaving_members(members, group_size)
    is_slower = near_s > _far_gather_s(volume, group_size, leaving, links)
    turns_to_cards = is_slower & (np.asarray(members) > MEASURED_GROUP)
    is_near = (np.asarray(members) >= group_size) & ~turns_to_cards
    cards_s = np.where(is_near, 0.0, volume / leaving / card_rate(leaving, links))
    in_domain, passed_on = np.where(is_near, members, leaving), np.where(is_near, 1.0, _peer_share(leaving))
    return cards_s, np.asarray(passed_on * volume / scale_up_rate(links.gather_fraction, in_domain, links))


def point_to_point_s(
    *, num_bytes: Numbers, is_same_domain: bool | np.bool_ | Booleans, links: LinkConstants
) -> Floats:
    """Returns seconds `(n,)` until one member has received `num_bytes` from one other.

    Args:
        num_bytes: Size of the message.
        is_same_domain: Whether both sit in one scale-up domain.
        links: Constants of the network.
    """
    near_s = num_bytes / links.near_send_bytes_per_s
    far_s = links.inter_latency_s + num_bytes / links.far_send_bytes_per_s
    return links.intra_latency_s + np.where(is_same_domain, near_s, far_s)


def passed_on_s(
    *,
    num_bytes: Numbers,
    num_steps: Numbers,
    is_same_domain: bool | np.bool_ | Booleans,
    links: LinkConstants,
) -> Floats:
    """Returns seconds `(n,)` until every member of a ring has passed parts on to the next one, in this number of steps.

    In each step every member sends one message, so traffic that leaves a domain goes through a single card.

    Args:
        num_bytes: What one member passes on in all steps together.
        num_steps: Sequential messages; 0 costs nothing.
        is_same_domain: Whether the ring stays in one scale-up domain.
        links: Constants of the network.
    """
    steps = np.asarray(num_steps, dtype=np.float64)
    part_bytes = num_bytes / np.maximum(steps, 1.0)
    return np.asarray(
        steps * point_to_point_s(num_bytes=part_bytes, is_same_domain=is_same_domain, links=links)
    )


def _faster_way_s(
    near_s: Floats,
    far_way_s: _FarWay,
    volume: Numbers,
    group_size: Numbers,
    members: Numbers,
    links: LinkConstants,
) -> Floats:
    """Returns seconds of a collective inside one domain or through the fabric.

    Inside a domain, a group is no slower than one that leaves the domain after half of its members, over network cards that it
    has anyway; or after every eight if there are more than 16, for which no ring was measured.
    """
    leaving, alone = _leaving_members(members, group_size), _alone(links)
    far_s = far_way_s(volume, group_size, leaving, links)
    if not links.has_free_cards:
        alone_s = far_s if alone is links else far_way_s(volume, group_size, leaving, alone)
        near_s = np.minimum(near_s, alone_s / links.scale_up_fraction)
    return _started_s(np.where(np.asarray(members) >= group_size, near_s, far_s), group_size, links)


def _alone(links: LinkConstants) -> LinkConstants:
    """Returns the links as they are without other traffic on those inside domains."""
    if np.all(links.scale_up_fraction == 1.0):
        return links
    return replace(links, intra_bytes_per_s=links.intra_bytes_per_s / links.scale_up_fraction)


def _leaving_members(members: Numbers, group_size: Numbers) -> Floats:
    """Returns the members in each domain of a group that leaves its domain, also where it need not."""
    is_near = np.asarray(members) >= group_size
    return np.where(is_near, np.minimum(np.asarray(members) / 2.0, MEASURED_GROUP), members)


def _exchange_s(num_bytes: Numbers, group_size: Numbers, members: Numbers, links: LinkConstants) -> Floats:
    """Returns seconds of an all-to-all without its start-up."""
    near_share, far_share = (members - 1.0) / group_size, (group_size - members) / group_size
    near_s = near_share * num_bytes / scale_up_rate(links.all_to_all_fraction, members, links)
    far_s = far_share * num_bytes / links.fabric_bytes_per_s
    latency_s = links.intra_hop_s + np.log2(group_size / members) * links.inter_latency_s
    return np.asarray(_pipelined_s(np.maximum(near_s, far_s), links.intra_ramp_s) + latency_s)


def _far_all_reduce_s(volume: Numbers, group_size: Numbers, members: Numbers, links: LinkConstants) -> Floats:
    """Returns seconds of an all-reduce through the fabric: the faster of ring and tree."""
    transfer_s = volume / _far_rate(links.all_reduce_fraction, members, links)
    ring_s = 2.0 * _ring_latency_s(group_size, members, links) + transfer_s
    tree_latency_s = 2.0 * _tree_latency_s(group_size, members, links)
    return np.minimum(ring_s, tree_latency_s + _pipelined_s(transfer_s, tree_latency_s))


def _far_gather_s(volume: Numbers, group_size: Numbers, members: Numbers, links: LinkConstants) -> Floats:
    """Returns seconds of an all-gather through the fabric, which has only the ring."""
    transfer_s = volume / _far_rate(links.gather_fraction, members, links)
    return np.asarray(_ring_latency_s(group_size, members, links) + transfer_s)


def _near_ring_s(
    volume: Numbers, trips: float, fraction: Floats, members: Numbers, links: LinkConstants
) -> Floats:
    """Returns seconds of a ring inside one domain that moves `volume` bytes, `trips` times around."""
    transfer_s = volume / scale_up_rate(fraction, members, links)
    return trips * _domain_steps(members) * links.intra_hop_s + _pipelined_s(transfer_s, links.intra_ramp_s)


def scale_up_rate(fraction: Floats, members: Numbers, links: LinkConstants) -> Floats:
    """Returns bytes/s inside a domain for `members` of the group in it; in a mesh each member has a link to every other one."""
    linked = np.minimum(np.maximum(members, 2.0), MEASURED_GROUP) - links.unlinked_members
    share = linked / (MEASURED_GROUP - links.unlinked_members)
    return links.intra_bytes_per_s * fraction * share**links.group_exponent


def card_rate(members: Numbers, links: LinkConstants) -> Floats:
    """Returns bytes/s of the network cards that a ring through the fabric gets per member; see `_far_rate`.

    Where accelerators share cards, a ring of several, but not all, members of a node passes through one card. It gets
    `shared_card_fraction` of the card: at least what is left if all sibling rings chose the same card, at most its members'
    shares.
    """
    in_node = np.maximum(1.0, np.asarray(members) * links.gpus_per_node / links.gpus_per_domain)
    has_siblings = (links.gpus_per_card > 1.0) & (in_node > 1.0) & (in_node < links.gpus_per_node)
    of_one_card = np.maximum(links.shared_card_fraction, in_node / links.gpus_per_node)
    shares = np.minimum(1.0, of_one_card * links.gpus_per_card / in_node)
    return np.asarray(links.fabric_bytes_per_s * np.where(has_siblings, shares, 1.0))


def _far_rate(fraction: Floats, members: Numbers, links: LinkConstants) -> Floats:
    """Returns bytes/s of a ring or tree through the fabric.

    It enters and leaves a domain over the network cards of all its members there: g members carry g shares, and sibling groups
    of the same domain use the rest. A lone member uses its own card, and a whole node uses all cards. Where accelerators share
    cards, a ring of part of a node may choose the same card as its siblings, so two members may be slower than one. The
    scale-up link caps the sum, but makes no ring slower than one member's card. It carries (g-1)/g of the volume: each of g
    rings leaves the domain at a different member, which sends the rest of its rings on to its neighbour.
    """
    passed_on = _peer_share(np.maximum(members, 2.0))
    inside = scale_up_rate(fraction, members, links) / passed_on
    if not links.has_free_cards:
        inside = np.maximum(inside, links.fabric_bytes_per_s)
    return np.asarray(np.minimum(inside, card_rate(members, links) * members))


def _ring_latency_s(group_size: Numbers, members: Numbers, links: LinkConstants) -> Floats:
    """Returns seconds of one trip of an empty message past every member: n-1 of n steps, domain by domain."""
    domain_s = links.inter_latency_s + (np.asarray(members) - 1.0) * links.inter_member_s
    return _peer_share(group_size) * (group_size / members) * domain_s


def _tree_latency_s(group_size: Numbers, members: Numbers, links: LinkConstants) -> Floats:
    """Returns seconds from a leaf to the root: a chain inside each domain, a binary tree over the domains."""
    chain_s = _domain_steps(members) * links.inter_member_s
    return chain_s + np.log2(group_size / members) * links.inter_latency_s


def _pipelined_s(transfer_s: Floats, ramp_s: Floats) -> Floats:
    """Returns the transfer time including the root term of its pipeline."""
    return np.asarray(transfer_s + 2.0 * np.sqrt(ramp_s * transfer_s))


def _domain_steps(members: Numbers) -> Floats:
    """Returns latency steps in a domain: a ring's n-1 up to eight members (measured), then a tree's log."""
    log_slope = (MEASURED_GROUP - 1.0) / np.log2(MEASURED_GROUP)
    return np.asarray(np.minimum(np.asarray(members) - 1.0, log_slope * np.log2(members)))


def _peer_share(group_size: Numbers) -> Floats:
    """Returns (n-1)/n, the part of a buffer that belongs to others."""
    return 1.0 - 1.0 / np.asarray(group_size)


def _started_s(time_s: Floats, group_size: Numbers, links: LinkConstants) -> Floats:
    """Returns the time including start-up; 0 where a group has one member."""
    return np.where(np.asarray(group_size) > 1, links.intra_latency_s + time_s, 0.0)
