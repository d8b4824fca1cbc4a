"""How long do the Chakra traces of several accelerators take on a network? Their nodes as tasks, collectives as flows.

    step = chakra_step([read_chakra(Path(f"step.{rank}.et")) for rank in range(8)], groups, ring(8, 65e9, 1e-6))
    play(step.graph, step.topology, step.paths).makespan_s

The n-th collective of a group on one accelerator matches the group's n-th collective on every other one. The n-th send matches
the n-th receive with the same ends and tag. Memory nodes and metadata take no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from simulator.deep.collectives.chosen_collectives import ChosenCollectives
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Paths, Router
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.tasks import NONE, TaskGraph, TaskGraphBuilder
from simulator.deep.traces.chakra import ChakraNode, CommType, NodeType
from simulator.deep.traces.trace_text import MOST_PROBLEMS
from simulator.errors import InputError, Problem
from simulator.table import Integers
from simulator.units import MICROSECOND

Groups = Mapping[int, Sequence[int]]
"""Accelerators of each group, by its number."""
_ALL = -1
"""Group of the collectives without `pg_name`: all accelerators."""


@dataclass(frozen=True, kw_only=True)
class ChakraStep:
    """Chakra traces, ready to be played; resource i is accelerator i."""

    graph: TaskGraph
    topology: Topology
    paths: Paths


def chakra_step(
    ranks: Sequence[Sequence[ChakraNode]],
    groups: Groups,
    topology: Topology,
    *,
    algorithm: Algorithm = Algorithm.AUTO,
) -> ChakraStep:
    """Returns the traces of several accelerators as one task graph.

    Args:
        ranks: nodes of each accelerator.
        groups: accelerators of each group; a collective without `pg_name` is one of all.
        topology: the network, with at least as many accelerators.
        algorithm: algorithm of collectives; default: the fastest for each.

    Raises:
        InputError: collectives or messages of different accelerators do not match, or the network is too small.
    """
    topology.check_holds(len(ranks))
    graph, router = TaskGraphBuilder(), Router(topology)
    traffic = ChosenCollectives(collectives=Collectives(graph=graph, router=router), algorithm=algorithm)
    _Build(ranks=ranks, groups=groups, graph=graph, collectives=traffic).add()
    return ChakraStep(graph=graph.build(), topology=topology, paths=router.table())


@dataclass(kw_only=True)
class _Build:
    ranks: Sequence[Sequence[ChakraNode]]
    groups: Groups
    graph: TaskGraphBuilder
    collectives: ChosenCollectives
    begins: dict[tuple[int, int], int] = field(default_factory=dict)
    """By accelerator and node: the task that waits for the node's predecessors."""
    ends: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self) -> None:
        """Adds all tasks."""
        self.graph.add_resources(len(self.ranks))
        self._add_nodes()
        self._add_collectives()
        self._add_messages()
        before, after = [], []
        for rank, nodes in enumerate(self.ranks):
            for node in nodes:
                before += [self.ends[rank, other] for other in node.deps]
                after += [self.begins[rank, node.id]] * len(node.deps)
        self.graph.add_edges(before, after)

    def _add_nodes(self) -> None:
        """Adds what nodes do by themselves; traffic gets a begin task, to which flows are added later."""
        labels, durations_s, resources, keys = [], [], [], []
        for rank, nodes in enumerate(self.ranks):
            for node in nodes:
                computes = node.type is NodeType.COMP_NODE
                labels.append(node.name or ("compute" if computes else "node"))
                durations_s.append(node.duration_micros * MICROSECOND if computes else 0.0)
                resources.append(rank if computes else NONE)
                keys.append((rank, node.id))
        tasks = self.graph.add(self.graph.names(labels), duration_s=durations_s, resource=resources)
        self.begins = dict(zip(keys, tasks.tolist(), strict=True))
        self.ends = self.begins.copy()

    def _add_collectives(self) -> None:
        problems = []
        for (group, turn), members in self._meetings().items():
            ranks = tuple(self.groups.get(group, range(len(self.ranks))))
            kinds = {_kind_and_bytes(rank, node) for rank, node in members.items()}
            if sorted(members) != sorted(ranks) or len(kinds) != 1:
                rule = (
                    "differs between accelerators of its group, in who takes part, in its kind or in its size"
                )
                who = "all accelerators" if group == _ALL else f"group {group}"
                problems.append(Problem(path=f"{who}, collective {turn}", value="", rule=rule))
                continue
            (kind, num_bytes), order = kinds.pop(), np.array(ranks, dtype=np.int64)
            begin = np.array([self.begins[rank, members[rank].id] for rank in ranks], dtype=np.int64)
            done = self._flows(kind, order, float(num_bytes), begin)
            self.ends |= {(rank, members[rank].id): int(task) for rank, task in zip(ranks, done, strict=True)}
        if problems:
            raise InputError(problems[:MOST_PROBLEMS], "Chakra traces")

    def _meetings(self) -> dict[tuple[int, int], dict[int, ChakraNode]]:
        """Nodes of collectives by group and count, then by accelerator."""
        found: dict[tuple[int, int], dict[int, ChakraNode]] = {}
        for rank, nodes in enumerate(self.ranks):
            turns: dict[int, int] = {}
            for node in nodes:
                if node.type is NodeType.COMM_COLL_NODE:
                    group = self._group(rank, node)
                    turns[group] = turns.get(group, -1) + 1
                    found.setdefault((group, turns[group]), {})[rank] = node
        return found

    def _group(self, rank: int, node: ChakraNode) -> int:
        name = str(node.attributes.get("pg_name", ""))
        if name == "":
            return _ALL
        if not (name.isascii() and name.isdigit() and len(name) < 10) or int(name) not in self.groups:
            known = f"must be one of the groups {', '.join(map(str, sorted(self.groups)))}"[:200]
            rule = (
                known
                if self.groups
                else "is a group, and none is known: NAME.groups.json is missing or empty"
            )
            place = f"accelerator {rank}, node {node.id}.pg_name"
            raise InputError([Problem(path=place, value=name[:60], rule=rule)], "Chakra traces")
        return int(name)

    def _flows(self, kind: int, ranks: Integers, num_bytes: float, begin: Integers) -> Integers:
        match kind:
            case CommType.ALL_REDUCE:
                return self.collectives.all_reduce(ranks, num_bytes, begin)
            case CommType.ALL_GATHER:  # its size is what each accelerator contributes
                return self.collectives.all_gather(ranks, num_bytes * len(ranks), begin)
            case CommType.REDUCE_SCATTER | CommType.REDUCE_SCATTER_BLOCK:
                return self.collectives.reduce_scatter(ranks, num_bytes, begin)
            case CommType.ALL_TO_ALL:
                return self.collectives.all_to_all(ranks, num_bytes, begin)
            case CommType.BARRIER:
                return np.full(len(ranks), self.graph.join("barrier", begin))
            case _:
                name = {int(each): each.name for each in CommType}.get(kind, str(kind))
                rule = "is not played: all-reduce, all-gather, reduce-scatter, all-to-all and barrier are"
                raise InputError([Problem(path="comm_type", value=name, rule=rule)], "Chakra traces")

    def _add_messages(self) -> None:
        sends, receives = self._ends_of(NodeType.COMM_SEND_NODE), self._ends_of(NodeType.COMM_RECV_NODE)
        if lonely := sends.keys() ^ receives.keys():
            source, target, tag, _ = min(lonely)
            others = len(lonely) - 1
            more = f", and {others} more {'are' if others > 1 else 'is'}" if others else ""
            rule = f"is sent or received by one of the two only{more}"
            place = f"message from {source} to {target} with tag {tag}"
            raise InputError([Problem(path=place, value="", rule=rule)], "Chakra traces")
        for key, (rank, node) in sends.items():
            taker, received = receives[key]
            _check_size(key, node, received)
            ends = np.array([rank], dtype=np.int64), np.array([taker], dtype=np.int64)
            begin = np.array([self.begins[rank, node.id]])
            (flow,) = self.collectives.send(
                *ends, float(node.number("comm_size", source=_trace(rank))), begin, "send"
            )
            # Successors of a send wait until it has arrived, as in ASTRA-sim; successors of its begin do not.
            self.ends[rank, node.id] = int(flow)
            self.graph.add_edges(flow, self._arrival(taker, received))

    def _arrival(self, rank: int, node: ChakraNode) -> int:
        (task,) = self.graph.add("arrived", after=[[self.begins[rank, node.id]]])
        self.ends[rank, node.id] = int(task)
        return int(task)

    def _ends_of(self, kind: NodeType) -> dict[tuple[int, int, int, int], tuple[int, ChakraNode]]:
        """Sends or receives by source, target, tag and count."""
        found: dict[tuple[int, int, int, int], tuple[int, ChakraNode]] = {}
        turns: dict[tuple[int, int, int], int] = {}
        for rank, node in self._of(kind):
            is_send = kind is NodeType.COMM_SEND_NODE
            source = rank if is_send else node.number("comm_src", source=_trace(rank))
            target = node.number("comm_dst", source=_trace(rank)) if is_send else rank
            tag = node.number("comm_tag", 0, source=_trace(rank))
            if max(source, target) >= len(self.ranks):
                rule = f"must be an accelerator, 0 to {len(self.ranks) - 1}"
                place = f"accelerator {rank}, node {node.id}"
                raise InputError([Problem(path=place, value=str(max(source, target)), rule=rule)])
            key = source, target, tag
            turns[key] = turns.get(key, -1) + 1
            found[*key, turns[key]] = rank, node
        return found

    def _of(self, kind: NodeType) -> Iterator[tuple[int, ChakraNode]]:
        for rank, nodes in enumerate(self.ranks):
            yield from ((rank, node) for node in nodes if node.type is kind)


def _kind_and_bytes(rank: int, node: ChakraNode) -> tuple[int, int]:
    """What a collective does and its bytes; a barrier need not say that it has none."""
    kind = node.number("comm_type", 0, source=_trace(rank))
    least = 0 if kind == CommType.BARRIER else None
    return kind, node.number("comm_size", least, source=_trace(rank))


def _check_size(key: tuple[int, int, int, int], sent: ChakraNode, received: ChakraNode) -> None:
    """Refuses a message of which its receiver expects other bytes; a receiver need not say how many."""
    size = sent.number("comm_size", source=_trace(key[0]))
    if size != (expected := received.number("comm_size", size, source=_trace(key[1]))):
        ends = f"at its sender (node {sent.id}), and {expected:,} at its receiver (node {received.id})"
        place = f"message from {key[0]} to {key[1]} with tag {key[2]}"
        raise InputError([Problem(path=place, value="", rule=f"has {size:,} bytes {ends}")], "Chakra traces")


def _trace(rank: int) -> str:
    return f"trace of accelerator {rank}"
