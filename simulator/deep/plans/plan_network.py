"""Which links does the traffic of a plan cross? The network around the accelerators that are played, and paths through it.

An accelerator that stands for many has its own links to its scale-up switch and its leaf, as each of the others has. The
links of a leaf to the spine are shared by many. A played flow crosses them as often as flows like it cross them at once:
`k` equal flows on a link are one flow that crosses it `k` times.

In a mesh an accelerator has one link to each other member of its domain. The flow of a collective crosses the links to all
members of its group; groups that have no two members in common share no links.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from simulator.deep.networks.routing import Router
from simulator.deep.networks.topology import Topology, TopologyBuilder
from simulator.deep.plans.plan_cluster import PlanCluster
from simulator.deep.plans.plan_collectives import Group
from simulator.deep.plans.plan_roles import Roles
from simulator.table import Booleans, Integers


@dataclass(kw_only=True)
class PlanNetwork:
    """The network of a plan; accelerator `stage * R + role` has this number as a vertex and as a resource."""

    cluster: PlanCluster
    roles: Roles
    topology: Topology
    router: Router
    leaves: Integers
    """Numbers of the leaves in this network."""
    leaf_of: Integers
    """`(p R,)` position of each accelerator's leaf in `leaves`."""
    _ways: dict[tuple[int, ...], int] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: PlanCluster, roles: Roles) -> PlanNetwork:
        """Returns the network around the accelerators that are played."""
        ranks = roles.ranks.ravel()
        domains, switch_of = np.unique(cluster.domain(ranks), return_inverse=True)
        leaves, leaf_of = np.unique(cluster.leaf(ranks), return_inverse=True)
        builder = TopologyBuilder("cluster of the plan")
        gpus = builder.add_ranks(len(ranks))
        scale_up = cluster.scale_up_bytes_per_s * roles.scale_up_factor.ravel()
        card = cluster.card_bytes_per_s * roles.card_factor.ravel()
        builder.connect(gpus, builder.add("scale-up switch", len(domains))[switch_of], scale_up, 0.0)
        leaf_vertices = builder.add("leaf", len(leaves))
        builder.connect(gpus, leaf_vertices[leaf_of], card, 0.0)
        builder.connect(leaf_vertices, builder.add("spine"), cluster.uplink_bytes_per_s()[leaves], 0.0)
        switches = [f"scale-up switch {domain}" for domain in domains.tolist()]
        names = [f"accelerator {rank}" for rank in ranks.tolist()] + switches
        names += [*(f"leaf {leaf}" for leaf in leaves.tolist()), "spine"]
        if cluster.is_mesh:
            share = scale_up / cluster.num_shares
            firsts = ranks // cluster.domain_size * cluster.domain_size
            for place in range(cluster.domain_size):
                builder.connect(gpus, builder.add(f"link {place}", len(ranks)), share, 0.0)
                names += [f"link to accelerator {rank}" for rank in (firsts + place).tolist()]
        topology = replace(builder.build(), vertex_names=tuple(names))
        return cls(
            cluster=cluster,
            roles=roles,
            topology=topology,
            router=Router(topology),
            leaves=leaves,
            leaf_of=np.asarray(leaf_of, dtype=np.int64),
        )

    def near(self, source: Integers, target: Integers) -> Integers:
        """Returns paths inside a domain between accelerators, `(...)`: through a switch, or over their own link."""
        pairs = zip(source.ravel().tolist(), target.ravel().tolist(), strict=True)
        return np.array([self._near(*pair) for pair in pairs], dtype=np.int64).reshape(source.shape)

    def _near(self, source: int, target: int) -> int:
        if not self.cluster.is_mesh:
            return self._number((source, self.roles.num_played + target))
        ranks = self.roles.ranks.ravel()
        return self._number((self._to(source, int(ranks[target])), self._from(target, int(ranks[source]))))

    def among(self, own: Integers, group: Group) -> Integers:
        """Returns paths from accelerators to the members of their groups in their domains and back, `(...)`."""
        if not self.cluster.is_mesh:
            return self.near(own, own)
        ways = [self._number(self._around(one, group)) for one in own.ravel().tolist()]
        return np.array(ways, dtype=np.int64).reshape(own.shape)

    def _around(self, one: int, group: Group) -> tuple[int, ...]:
        rank = int(self.roles.ranks.ravel()[one])
        first = rank - rank // group.stride % group.size * group.stride
        members = first + np.arange(group.size) * group.stride
        others = members[self.is_near(members, np.array(rank)) & (members != rank)].tolist() or [rank]
        return (*(self._to(one, other) for other in others), *(self._from(one, other) for other in others))

    def _to(self, one: int, rank: int) -> int:
        """The link from a played accelerator to another one of its domain, which is given by its rank."""
        size, place = self.roles.num_played, rank % self.cluster.domain_size
        return 4 * size + 2 * len(self.leaves) + 2 * place * size + one

    def _from(self, one: int, rank: int) -> int:
        """The same link in the other direction."""
        return self._to(one, rank) + self.roles.num_played

    def far(self, source: Integers, target: Integers, *, passing: int | None = None) -> Integers:
        """Returns paths through the fabric, `(...)`.

        Args:
            source: played accelerators.
            target: played accelerators that stand for the receivers.
            passing: how many flows like this one are on the links of its leaf to the spine at once; default: one if the
                leaves of its ends differ, else none.
        """
        first, size, num_leaves = 2 * self.roles.num_played, self.roles.num_played, len(self.leaves)
        ways = []
        for one, other in zip(source.ravel().tolist(), target.ravel().tolist(), strict=True):
            leaf, other_leaf = int(self.leaf_of[one]), int(self.leaf_of[other])
            count = int(leaf != other_leaf) if passing is None else passing
            up, down = 4 * size + leaf, 4 * size + num_leaves + other_leaf
            ways.append(self._number((first + one, *[up] * count, *[down] * count, first + size + other)))
        return np.array(ways, dtype=np.int64).reshape(source.shape)

    def _number(self, links: tuple[int, ...]) -> int:
        if links not in self._ways:
            self._ways[links] = self.router.add_path(np.array(links, dtype=np.int64))
        return self._ways[links]

    def is_near(self, source: Integers, target: Integers) -> Booleans:
        """Returns whether accelerators, given by rank, are in one link domain."""
        return np.asarray(self.cluster.domain(source) == self.cluster.domain(target))


@dataclass(frozen=True, kw_only=True)
class Crossing:
    """Which share of a group's traffic passes the spine, and how many flows like it pass one leaf at once."""

    share: float
    times: int


def ring_crossing(cluster: PlanCluster, ranks: Integers, group: Group) -> Crossing:
    """Returns whether rings between domains pass the spine anywhere; if so, all their traffic waits for it.

    Args:
        cluster: the network.
        ranks: `(r,)` all accelerators of a stage.
        group: the kind of group into which they are divided.
    """
    place = np.arange(len(ranks)) // group.stride % group.size
    following = (place + group.members_per_domain) % group.size
    return send_crossing(cluster, ranks, ranks + (following - place) * group.stride)


def direct_crossing(cluster: PlanCluster, ranks: Integers, group: Group) -> Crossing:
    """Returns which share of the direct messages through the fabric passes the spine."""
    place = np.arange(len(ranks)) // group.stride % group.size
    num_far = num_passing = 0
    for step in range(1, group.size):
        other = ranks + ((place + step) % group.size - place) * group.stride
        is_far = cluster.domain(ranks) != cluster.domain(other)
        num_far += int(is_far.sum())
        num_passing += int((is_far & (cluster.leaf(ranks) != cluster.leaf(other))).sum())
    if num_passing == 0:
        return Crossing(share=0.0, times=1)
    return Crossing(share=num_passing / num_far, times=int(np.bincount(cluster.leaf(ranks)).max()))


def send_crossing(cluster: PlanCluster, source: Integers, target: Integers) -> Crossing:
    """Returns how many sends from one stage to another, `(r,)` each, pass the spine from one leaf."""
    is_far = cluster.domain(source) != cluster.domain(target)
    passes = is_far & (cluster.leaf(source) != cluster.leaf(target))
    if not passes.any():
        return Crossing(share=0.0, times=1)
    return Crossing(share=1.0, times=int(np.bincount(cluster.leaf(source[passes])).max()))
