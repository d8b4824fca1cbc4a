"""What would a traced step look like to ASTRA-sim? Its operators and collectives as Chakra nodes, for each accelerator.

    export = chakra_export(trace, Parallelism(data_parallel=8))
    export.write(Path("step"), "vgg13")        # vgg13.0.et ... vgg13.7.et, and the groups in vgg13.groups.json

The step is divided as in `simulator.deep.traced_steps.extrapolate`. Collectives stay whole, so that the other simulator
chooses how to run them. Durations are whole microseconds there: they are rounded so that their sums are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simulator.deep.playing.tasks import NONE, TaskGraph, TaskGraphBuilder
from simulator.deep.traced_steps.step_request import StepRequest
from simulator.deep.traced_steps.step_tasks import add_step
from simulator.deep.traces.chakra import ChakraNode, CommType, NodeType, Value
from simulator.deep.traces.chakra_files import write_chakra
from simulator.deep.traces.parallelism import Parallelism
from simulator.deep.traces.trace import OperatorTrace
from simulator.table import Floats, Integers
from simulator.units import MICROSECOND


@dataclass(frozen=True, kw_only=True)
class ChakraExport:
    """A step as Chakra traces."""

    nodes: tuple[tuple[ChakraNode, ...], ...]
    """Nodes of each accelerator."""
    groups: dict[int, tuple[int, ...]]
    """Accelerators that take part in a collective, by the group's number (`pg_name`)."""

    def write(self, folder: Path, name: str, *, suffix: str = ".et") -> None:
        """Writes a file for each accelerator, `NAME.RANK.et` or `.json`, and `NAME.groups.json` into a folder.

        Raises:
            OSError: the folder does not exist, or a file cannot be written.
        """
        for rank, nodes in enumerate(self.nodes):
            write_chakra(folder / f"{name}.{rank}{suffix}", nodes)
        groups = {str(number): list(ranks) for number, ranks in self.groups.items()}
        (folder / f"{name}.groups.json").write_text(json.dumps(groups) + "\n", encoding="utf-8")


def chakra_export(
    trace: OperatorTrace, parallelism: Parallelism, *, batch_size: int | None = None
) -> ChakraExport:
    """Returns a traced step on many accelerators as Chakra traces.

    Args:
        trace: one step on one accelerator.
        parallelism: how it is divided.
        batch_size: samples of each replica; default: those of the trace.

    Raises:
        InputError: the trace cannot be divided that way.
    """
    graph = TaskGraphBuilder()
    traffic = WholeTraffic(graph)
    add_step(StepRequest(trace=trace, parallelism=parallelism, batch_size=batch_size), graph, traffic)
    nodes = nodes_of(graph.build(), traffic, parallelism.num_gpus)
    groups = {number: ranks for ranks, number in traffic.groups.items()}
    return ChakraExport(nodes=nodes, groups=groups)


@dataclass
class WholeTraffic:
    """Replaces collectives of flows by one task for each accelerator, and records what the task stands for."""

    graph: TaskGraphBuilder
    groups: dict[tuple[int, ...], int] = field(default_factory=dict)
    stands_for: dict[int, tuple[int, NodeType, dict[str, Value]]] = field(default_factory=dict)
    """By task: accelerator, kind of node, attributes."""
    _num_sends: int = 0

    def all_reduce(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-reduce of the groups `(..., n)`; returns the tasks, one for each rank."""
        return self._collective(CommType.ALL_REDUCE, ranks, num_bytes, after)

    def all_gather(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an all-gather of the groups `(..., n)`; returns the tasks, one for each rank."""
        # The size of an all-gather is what each accelerator contributes (astra-sim's `Ring.cc`).
        return self._collective(CommType.ALL_GATHER, ranks, num_bytes / ranks.shape[-1], after)

    def reduce_scatter(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds a reduce-scatter of the groups `(..., n)`; returns the tasks, one for each rank."""
        return self._collective(CommType.REDUCE_SCATTER, ranks, num_bytes, after)

    def _collective(self, kind: CommType, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        if ranks.shape[-1] == 1:
            return after
        label = kind.name.lower().replace("_", "-")
        tasks = self.graph.add(label, after=[after]).reshape(ranks.shape)
        for group, members in zip(
            ranks.reshape(-1, ranks.shape[-1]), tasks.reshape(-1, ranks.shape[-1]), strict=True
        ):
            number = self.groups.setdefault(tuple(group.tolist()), len(self.groups) + 1)
            attributes: dict[str, Value] = {
                "is_cpu_op": False,
                "comm_type": int(kind),
                "comm_size": round(num_bytes),
                "pg_name": str(number),
            }
            for rank, task in zip(group.tolist(), members.tolist(), strict=True):
                self.stands_for[task] = rank, NodeType.COMM_COLL_NODE, dict(attributes)
        return tasks

    def called(self, _label: str) -> WholeTraffic:
        """Returns itself: nodes are named after the kind of their collective."""
        return self

    def all_to_all(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an exchange of one group `(..., n)`; returns the tasks, one for each rank."""
        return self._collective(CommType.ALL_TO_ALL, ranks, num_bytes, after)

    def send(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> Integers:
        """Adds a message for each pair of ranks, `(k,)`; returns the tasks that receive it."""
        return self.message(source, target, num_bytes, after, label)[1]

    def message(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> tuple[Integers, Integers]:
        """Adds a message for each pair of ranks, `(k,)`; returns the tasks that send and that receive it."""
        sent = self.graph.add(label, after=[after])
        received = self.graph.add(f"receive of {label}", duration_s=np.zeros(len(sent)))
        for one, other, give, take in zip(
            source.tolist(), target.tolist(), sent.tolist(), received.tolist(), strict=True
        ):
            attributes: dict[str, Value] = {
                "is_cpu_op": False,
                "comm_src": one,
                "comm_dst": other,
                "comm_tag": self._num_sends,
                "comm_size": round(num_bytes),
            }
            self._num_sends += 1
            self.stands_for[give] = one, NodeType.COMM_SEND_NODE, attributes
            self.stands_for[take] = other, NodeType.COMM_RECV_NODE, dict(attributes)
        return sent, received


def nodes_of(graph: TaskGraph, traffic: WholeTraffic, num_gpus: int) -> tuple[tuple[ChakraNode, ...], ...]:
    """Returns the tasks of each accelerator; joins are replaced by the tasks that they join."""
    before: list[list[int]] = [[] for _ in range(len(graph))]
    for task in range(len(graph)):
        for after in graph.successors[graph.offsets[task] : graph.offsets[task + 1]].tolist():
            before[after].append(task)
    rows: list[list[ChakraNode]] = [[] for _ in range(num_gpus)]
    behind: dict[int, tuple[int, ...]] = {}
    """For each task seen so far: the nodes for which its successors wait."""
    spent_s = np.zeros(num_gpus)
    for task in _in_order(graph):
        deps = tuple(dict.fromkeys(dep for other in before[task] for dep in behind[other]))
        node = _node(graph, traffic, task, deps, spent_s)
        if node is None:
            behind[task] = deps
            continue
        behind[task] = (task,)
        rows[node[0]].append(node[1])
    return tuple(tuple(sorted(row, key=lambda node: node.id)) for row in rows)


def _node(
    graph: TaskGraph, traffic: WholeTraffic, task: int, deps: tuple[int, ...], spent_s: Floats
) -> tuple[int, ChakraNode] | None:
    name = graph.label_of(task)
    if task in traffic.stands_for:
        rank, kind, attributes = traffic.stands_for[task]
        return rank, ChakraNode(id=task, name=name, type=kind, deps=deps, attributes=attributes)
    rank = int(graph.resource[task])
    if rank == NONE:
        return None
    begin_s = spent_s[rank]
    spent_s[rank] += graph.duration_s[task]
    duration = round(spent_s[rank] / MICROSECOND) - round(begin_s / MICROSECOND)
    return rank, ChakraNode(
        id=task,
        name=name,
        type=NodeType.COMP_NODE,
        deps=deps,
        duration_micros=duration,
        attributes={"is_cpu_op": False},
    )


def _in_order(graph: TaskGraph) -> Iterator[int]:
    """Tasks, each after all those for which it waits."""
    waiting = graph.num_predecessors.tolist()
    ready = [task for task, count in enumerate(waiting) if count == 0][::-1]
    while ready:
        task = ready.pop()
        yield task
        for after in graph.successors[graph.offsets[task] : graph.offsets[task + 1]].tolist():
            waiting[after] -= 1
            if waiting[after] == 0:
                ready.append(after)
