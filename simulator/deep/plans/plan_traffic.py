"""How does the traffic of a plan become flows? Whole, where symmetric parts are folded, or message by message.

Folded, a collective is one flow for each kind of link: it has the bytes of all steps and follows the latency of all steps.
A ring whose members run evenly moves as fast as its slowest link, so this gives the same time; members that are ready at
different times wait for the last one. Collectives that share a link have an equal claim to it, because libraries give each
about as many channels. Message by message every flow has an equal claim, and an all-to-all has many flows.

Arrays of tasks are `(m, R)`: micro-batches and the played accelerators of a stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from simulator.deep.collectives.patterns import other_members
from simulator.deep.plans.plan_collectives import Collective, Group, Message
from simulator.deep.plans.plan_network import (
    Crossing,
    PlanNetwork,
    direct_crossing,
    ring_crossing,
    send_crossing,
)
from simulator.deep.playing.tasks import TaskGraphBuilder
from simulator.table import Floats, Integers

After = tuple[Integers, ...]
"""Tasks to wait for, each `(m, R)`."""
SEND, TIED = "pipeline send", "tied gradient all-reduce"


class PlanTraffic(Protocol):
    """What moves data in a plan."""

    def collective(self, traffic: Collective, stage: int, after: After) -> After:
        """Adds a collective of all groups of a stage; returns the tasks that end it."""

    def send(
        self, message: Message, stages: tuple[int, int], after: After, label: str = SEND
    ) -> tuple[Integers, Integers]:
        """Adds messages to the counterparts in another stage; returns when they have left and when they arrived."""

    def tied(
        self, message: Message, stages: tuple[int, int], ready: tuple[Integers, Integers]
    ) -> tuple[Integers, Integers]:
        """Adds the sum between the two ends of the model, `(1, R)` each; returns the tasks at which each has it."""

    def norm(self, complete: list[Integers]) -> list[Integers]:
        """Adds the norm of all gradients, to which each stage, `(1, R)`, contributes; returns when each has it."""


@dataclass(kw_only=True)
class _PlayedTraffic(ABC):
    """What folded traffic and single messages have in common."""

    graph: TaskGraphBuilder
    network: PlanNetwork

    @abstractmethod
    def send(
        self, message: Message, stages: tuple[int, int], after: After, label: str = SEND
    ) -> tuple[Integers, Integers]:
        """Adds messages to the counterparts in another stage; returns when they have left and when they arrived."""

    def _on_link(self, near_bytes: float) -> float:
        """The part of the bytes over all scale-up links of an accelerator that is on one of them; it takes the same time."""
        return near_bytes / self.network.cluster.num_shares

    def tied(
        self, message: Message, stages: tuple[int, int], ready: tuple[Integers, Integers]
    ) -> tuple[Integers, Integers]:
        """Adds messages in both directions that begin when both ends are ready."""
        there, back = (self.send(message, ways, ready, TIED)[1] for ways in (stages, (stages[1], stages[0])))
        both = self.graph.add("tied gradients", after=[there, back]).reshape(there.shape)
        return both, both

    def norm(self, complete: list[Integers]) -> list[Integers]:
        """Adds one join: the number itself is too small to take time."""
        joined = self.graph.join("gradient norm", np.concatenate(complete, axis=1).ravel())
        return [np.full(each.shape, joined) for each in complete]


@dataclass(kw_only=True)
class FoldedTraffic(_PlayedTraffic):
    """Traffic of one accelerator for each role."""

    _crossings: dict[tuple[object, ...], Crossing] = field(default_factory=dict)

    def collective(self, traffic: Collective, stage: int, after: After) -> After:
        """Adds the flows of a collective."""
        if not traffic.moves:
            return after
        is_joint = traffic.group.span > self.network.roles.block_size and after[0].shape[1] > 1
        if is_joint:
            after = (self._joined(after),)
        shape = np.broadcast_shapes(*(each.shape for each in after))
        flows = tuple(
            self.graph.add(
                traffic.label, duration_s=traffic.rest_s, num_bytes=num_bytes, path=ways[None, :], after=after
            ).reshape(shape)
            for ways, num_bytes in self._ways(traffic, stage)
        )
        return (self._joined(flows),) if is_joint else flows

    def send(
        self, message: Message, stages: tuple[int, int], after: After, label: str = SEND
    ) -> tuple[Integers, Integers]:
        """Adds one flow for each role; if some ranks send across domains, all of them do."""
        cluster, roles = self.network.cluster, self.network.roles
        key = ("send", *stages)
        if key not in self._crossings:
            self._crossings[key] = send_crossing(cluster, cluster.ranks[stages[0]], cluster.ranks[stages[1]])
        source, target = (stage * roles.ranks.shape[1] + np.arange(roles.ranks.shape[1]) for stage in stages)
        is_far = bool(
            (cluster.domain(cluster.ranks[stages[0]]) != cluster.domain(cluster.ranks[stages[1]])).any()
        )
        far = self._far(source, target, self._crossings[key])
        ways = far if is_far else self.network.near(source, target)
        sent = self.graph.add(
            label,
            duration_s=message.far_rest_s if is_far else message.near_rest_s,
            num_bytes=message.far_bytes if is_far else self._on_link(message.near_bytes),
            path=ways[None, :],
            after=after,
        ).reshape(after[0].shape)
        return sent, sent

    def _ways(self, traffic: Collective, stage: int) -> Iterator[tuple[Integers, float]]:
        """Paths of the played accelerators of a stage, `(R,)`, and the bytes that move on each."""
        num_roles = self.network.roles.ranks.shape[1]
        own = stage * num_roles + np.arange(num_roles)
        if traffic.near_bytes > 0.0 or traffic.far_bytes == 0.0:
            yield self.network.among(own, traffic.group), self._on_link(traffic.near_bytes)
        if traffic.far_bytes > 0.0:
            yield self._far(own, own, self._crossing(traffic, stage)), traffic.far_bytes

    def _far(self, source: Integers, target: Integers, crossing: Crossing) -> Integers:
        """Paths that pass the spine as often as the accelerators that each one stands for do at once."""
        counts = self.network.roles.counts
        passing = np.ceil(crossing.share * np.maximum(1, np.rint(crossing.times * counts / counts.sum())))
        ways = [
            self.network.far(source[[role]], target[[role]], passing=int(passing[role]))
            for role in range(len(counts))
        ]
        return np.concatenate(ways)

    def _crossing(self, traffic: Collective, stage: int) -> Crossing:
        key = (traffic.group, traffic.is_direct, stage)
        if key not in self._crossings:
            found = direct_crossing if traffic.is_direct else ring_crossing
            cluster = self.network.cluster
            self._crossings[key] = found(cluster, cluster.ranks[stage], traffic.group)
        return self._crossings[key]

    def _joined(self, tasks: After) -> Integers:
        """Makes all roles wait for all: tasks of the shape of the first, with one join for each micro-batch."""
        num_micro_batches, num_roles = tasks[0].shape
        joined = self.graph.add("all replicas", after=[each[:, 0] for each in tasks])
        for each in tasks:
            for role in range(1, num_roles):
                self.graph.add_edges(each[:, role], joined)
        return np.asarray(np.broadcast_to(joined[:, None], (num_micro_batches, num_roles)))


@dataclass(kw_only=True)
class MessageTraffic(_PlayedTraffic):
    """Every message of every accelerator."""

    def collective(self, traffic: Collective, stage: int, after: After) -> After:
        """Adds the messages of a collective of all groups of a stage."""
        if not traffic.moves:
            return after
        own = self._own(stage)
        begun = self.graph.add(
            traffic.label, duration_s=traffic.rest_s, path=self.network.near(own, own)[None, :], after=after
        ).reshape(after[0].shape)
        places = self._groups(traffic.group)
        return (self._direct if traffic.is_direct else self._around)(traffic, own, places, begun)

    def send(
        self, message: Message, stages: tuple[int, int], after: After, label: str = SEND
    ) -> tuple[Integers, Integers]:
        """Adds one message for each accelerator."""
        cluster = self.network.cluster
        is_near = self.network.is_near(cluster.ranks[stages[0]], cluster.ranks[stages[1]])
        source, target = self._own(stages[0]), self._own(stages[1])
        sent = self.graph.add(
            label,
            duration_s=np.where(is_near, message.near_rest_s, message.far_rest_s)[None, :],
            num_bytes=np.where(is_near, self._on_link(message.near_bytes), message.far_bytes)[None, :],
            path=self._between(source, target)[None, :],
            after=after,
        ).reshape(after[0].shape)
        return sent, sent

    def _own(self, stage: int) -> Integers:
        size = self.network.cluster.ranks.shape[1]
        return np.asarray(stage * size + np.arange(size))

    def _groups(self, group: Group) -> Integers:
        """Positions of the members of each group in their stage, `(G, n)`."""
        size = self.network.cluster.ranks.shape[1]
        places = np.arange(size).reshape(-1, group.size, group.stride)
        return np.asarray(np.moveaxis(places, 1, 2).reshape(-1, group.size))

    def _around(self, traffic: Collective, own: Integers, places: Integers, begun: Integers) -> After:
        """Rings, one for each member in a domain; every step passes on what the previous one brought."""
        group = traffic.group
        num_rings = group.members_per_domain if group.members_per_domain < group.size else 1
        num_steps = group.size - 1
        done = []
        for number in range(num_rings):
            order = np.array([self._order(own[row], number) for row in places])
            members = np.take_along_axis(places, order, axis=1)
            following = np.roll(members, -1, axis=1)
            way = self._between(own[members], own[following])
            num_bytes = self._edge_bytes(traffic, own[members], own[following], num_rings) / num_steps
            arrived = sent = begun[:, members]
            for step in range(num_steps):
                sent = self.graph.add(
                    traffic.label, num_bytes=num_bytes, path=way, after=[arrived, sent] if step else [arrived]
                ).reshape(arrived.shape)
                arrived = np.roll(sent, 1, axis=2)
            back = np.empty_like(begun)
            back[:, members] = self.graph.add("arrived", after=[arrived, sent]).reshape(arrived.shape)
            done.append(back)
        return tuple(done)

    def _edge_bytes(self, traffic: Collective, source: Integers, target: Integers, num_rings: int) -> Floats:
        """Bytes that each link of one ring carries in all steps together, scaled up for limited efficiency."""
        members = traffic.group.members_per_domain
        near = traffic.near_bytes / (members - 1) if num_rings > 1 else traffic.near_bytes
        return np.where(self._is_near(source, target), self._on_link(near), traffic.far_bytes)

    def _order(self, ranks: Integers, number: int) -> Integers:
        """The order of one ring: domain after domain, back and forth, so that each ring has its own cards on one rail."""
        domains = self.network.cluster.domain(self._all[ranks])
        found: list[int] = []
        for turn, domain in enumerate(dict.fromkeys(domains.tolist())):
            inside = np.flatnonzero(domains == domain)
            inside = np.roll(inside, -(number % len(inside)))
            found += (inside if turn % 2 == 0 else inside[::-1]).tolist()
        return np.array(found, dtype=np.int64)

    @cached_property
    def _all(self) -> Integers:
        return self.network.roles.ranks.ravel()

    def _direct(self, traffic: Collective, own: Integers, places: Integers, begun: Integers) -> After:
        """Messages from each member to every other one, all at once."""
        group, members = traffic.group, traffic.group.members_per_domain
        one, other = other_members(group.size)
        source, target = places[:, one], places[:, other]
        is_near = self._is_near(own[source], own[target])
        near = self._on_link(traffic.near_bytes)
        if not self.network.cluster.is_mesh:
            near /= max(1, members - 1)
        far = traffic.far_bytes / max(1, group.size - members)
        sent = self.graph.add(
            traffic.label,
            num_bytes=np.where(is_near, near, far),
            path=self._between(own[source], own[target]),
            after=[begun[:, source]],
        ).reshape(*begun[:, source].shape)
        done = self.graph.add("exchanged", after=[begun]).reshape(begun.shape)
        self.graph.add_edges(sent, done[:, source])
        self.graph.add_edges(sent, done[:, target])
        return (done,)

    def _is_near(self, source: Integers, target: Integers) -> np.ndarray:
        return self.network.is_near(self._all[source], self._all[target])

    def _between(self, source: Integers, target: Integers) -> Integers:
        is_near = self._is_near(source, target)
        return np.where(is_near, self.network.near(source, target), self.network.far(source, target))
