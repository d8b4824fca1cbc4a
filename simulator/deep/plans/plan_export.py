"""What would a step of a plan look like to ASTRA-sim? Operators and collectives of every accelerator as Chakra nodes.

Collectives stay whole and keep their plain bytes, without link inefficiency: the other simulator has its own network model.
The norm of all gradients, a join at the other depths, is an all-reduce of one number here, because traces of different
accelerators meet only in collectives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simulator.deep.collectives.chosen_collectives import ChosenCollectives
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.collectives.schedules import Collectives, Traffic
from simulator.deep.networks.routing import Paths, Router
from simulator.deep.networks.topology import Topology
from simulator.deep.plans.plan_cluster import Faults, PlanCluster
from simulator.deep.plans.plan_collectives import Collective, Message, Operation
from simulator.deep.plans.plan_graph import PlanGraph
from simulator.deep.plans.plan_step import parts_and_shape
from simulator.deep.plans.plan_traffic import SEND, TIED, After
from simulator.deep.playing.tasks import TaskGraph, TaskGraphBuilder
from simulator.deep.traced_steps.chakra_export import ChakraExport, WholeTraffic, nodes_of
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.errors import refusal
from simulator.table import Integers

MOST_NODES = 4_000_000
"""Most nodes of all traces together, about a gigabyte."""
NORM_BYTES = 4.0
"""One 32-bit number."""


class Messenger(Traffic, Protocol):
    """Traffic whose messages say when they have left, and that also has all-to-alls."""

    def called(self, label: str) -> Messenger:
        """Returns a messenger whose flows have another name."""

    def all_to_all(self, ranks: Integers, num_bytes: float, after: Integers) -> Integers:
        """Adds an exchange between the `(n,)` ranks of one group."""

    def message(
        self, source: Integers, target: Integers, num_bytes: float, after: Integers, label: str
    ) -> tuple[Integers, Integers]:
        """Adds a message for each pair of ranks, `(k,)`; returns the tasks at which they have left and have arrived."""


@dataclass(kw_only=True)
class WholePlanTraffic:
    """Traffic of every accelerator of a plan, with whole collectives; see `simulator.deep.plans.plan_traffic`."""

    graph: TaskGraphBuilder
    ranks: Integers
    """`(p, R)` all accelerators."""
    messenger: Messenger

    def collective(self, traffic: Collective, stage: int, after: After) -> After:
        """Adds a collective for each group of a stage and each micro-batch."""
        if not traffic.moves:
            return after
        ready, group = self._ready(after), traffic.group
        all_places = np.arange(self.ranks.shape[1]).reshape(-1, group.size, group.stride)
        places = np.moveaxis(all_places, 1, 2).reshape(-1, group.size)
        begin = ready[:, places]
        members = np.broadcast_to(self.ranks[stage][places], begin.shape)
        done = np.empty_like(ready)
        done[:, places] = self._run(traffic, members, begin)
        return (done,)

    def _run(self, traffic: Collective, members: Integers, begin: Integers) -> Integers:
        messenger = self.messenger.called(traffic.label)
        match traffic.operation:
            case Operation.ALL_REDUCE:
                return messenger.all_reduce(members, traffic.num_bytes, begin)
            case Operation.ALL_GATHER:
                return messenger.all_gather(members, traffic.num_bytes, begin)
            case Operation.REDUCE_SCATTER:
                return messenger.reduce_scatter(members, traffic.num_bytes, begin)
            case Operation.ALL_TO_ALL:
                size = members.shape[-1]
                groups = zip(members.reshape(-1, size), begin.reshape(-1, size), strict=True)
                done = [messenger.all_to_all(one, traffic.num_bytes, ready) for one, ready in groups]
                return np.array(done).reshape(begin.shape)

    def send(
        self, message: Message, stages: tuple[int, int], after: After, label: str = SEND
    ) -> tuple[Integers, Integers]:
        """Adds a message from each accelerator to its counterpart, for each micro-batch."""
        ready = self._ready(after)
        source, target = (np.broadcast_to(self.ranks[stage], ready.shape).ravel() for stage in stages)
        left, arrived = self.messenger.message(source, target, message.num_bytes, ready.ravel(), label)
        return left.reshape(ready.shape), arrived.reshape(ready.shape)

    def tied(
        self, message: Message, stages: tuple[int, int], ready: tuple[Integers, Integers]
    ) -> tuple[Integers, Integers]:
        """Adds an all-reduce of each accelerator and its counterpart."""
        pairs = np.stack([self.ranks[stage] for stage in stages], axis=-1)[None]
        done = self.messenger.called(TIED).all_reduce(pairs, message.num_bytes, np.stack(ready, axis=-1))
        return done[..., 0], done[..., 1]

    def norm(self, complete: list[Integers]) -> list[Integers]:
        """Adds an all-reduce of one number over all accelerators."""
        done = self.messenger.called("gradient norm").all_reduce(
            self.ranks.ravel(), NORM_BYTES, np.concatenate(complete, axis=1).ravel()
        )
        return list(done.reshape(len(complete), 1, -1))

    def _ready(self, after: After) -> Integers:
        if len(after) == 1:
            return after[0]
        shape = np.broadcast_shapes(*(each.shape for each in after))
        return self.graph.add("ready", after=after).reshape(shape)


def export_plan(job: Job, plan: Plan) -> ChakraExport:
    """Returns a step of a plan as Chakra traces, one for each accelerator.

    Args:
        job: the job.
        plan: a plan with a valid layout (`constraints.layout`).

    Raises:
        InputError: the plan has too many nodes.
    """
    _refuse_too_many(job, plan)
    graph = TaskGraphBuilder()
    traffic = WholeTraffic(graph)
    tasks = _add_plan(job, plan, graph, traffic)
    groups = {number: ranks for ranks, number in traffic.groups.items()}
    return ChakraExport(nodes=nodes_of(tasks, traffic, plan.num_gpus), groups=groups)


def step_on(
    job: Job,
    plan: Plan,
    topology: Topology,
    *,
    faults: Faults | None = None,
    algorithm: Algorithm = Algorithm.AUTO,
) -> tuple[TaskGraph, Paths]:
    """Returns the step that `export_plan` writes, with its collectives as flows on a network, ready to play."""
    graph, router = TaskGraphBuilder(), Router(topology)
    collectives = Collectives(graph=graph, router=router)
    messenger = ChosenCollectives(collectives=collectives, algorithm=algorithm)
    return _add_plan(job, plan, graph, messenger, faults), router.table()


def _refuse_too_many(job: Job, plan: Plan) -> None:
    """Refuses a plan by the number of operators and collectives of all passes, before any node is built."""
    parts, shape = parts_and_shape(job, plan)
    num_nodes = parts.num_items * shape.pipeline.num_micro_batches * plan.num_gpus // plan.pipeline_parallel
    if num_nodes > MOST_NODES:
        rule = f"makes {num_nodes:,} nodes; at most {MOST_NODES:,} are written: take fewer accelerators or micro-batches"
        raise refusal("Chakra traces", rule)


def _add_plan(
    job: Job, plan: Plan, graph: TaskGraphBuilder, messenger: Messenger, faults: Faults | None = None
) -> TaskGraph:
    parts, shape = parts_and_shape(job, plan)
    cluster = PlanCluster.of(job, plan, faults)
    traffic = WholePlanTraffic(graph=graph, ranks=cluster.ranks, messenger=messenger)
    speed = cluster.speed()[cluster.ranks]
    PlanGraph(graph=graph, traffic=traffic, parts=parts, shape=shape, speed=speed).add()
    return graph.build()
