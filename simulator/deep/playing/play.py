"""When does every task of a graph begin and end, and which links hold it up?

    graph = TaskGraphBuilder()...build()
    played = play(graph, topology, router.table())

Exact for the rules that it plays: each resource runs its durations one after another, and flows share links max-min fairly;
their rates change at once when another flow begins or ends. A flow begins to move when its latency is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from simulator.deep.networks.circuits import CircuitUse, circuit_use
from simulator.deep.networks.routing import Paths
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.circuit_kernel import new_circuit_state
from simulator.deep.playing.play_kernel import State, Tasks, run
from simulator.deep.playing.sharing import new_sharing
from simulator.deep.playing.tasks import NONE, TaskGraph
from simulator.deep.playing.timers import new_timers
from simulator.errors import InputError, refusal
from simulator.table import Floats, Integers


class SharingRule(StrEnum):
    """How flows share a link."""

    MAX_MIN = "max_min"
    """Bandwidth that some flows cannot use goes to the others."""
    EQUAL_SPLIT = "equal_split"
    """Every flow gets the same, used or not (TrioSim)."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """When n tasks ran, and how l links were used."""

    ready_s: Floats
    """`(n,)` when the last predecessor ended."""
    start_s: Floats
    """`(n,)` when the task got its resource and its circuit."""
    end_s: Floats
    """`(n,)`."""
    link_bytes: Floats
    """`(l,)` bytes that crossed each link."""
    link_used_s: Floats
    """`(l,)` how long there was a flow on each link."""
    link_full_s: Floats
    """`(l,)` how long each link's flows could have used more bandwidth."""
    circuit_wait_s: Floats
    """`(n,)` how long a flow waited for its circuit, before `start_s`; empty without circuits."""
    circuit_use: CircuitUse | None
    """How circuits were used; None without circuits."""

    @property
    def makespan_s(self) -> float:
        """When the last task ended; 0 without tasks."""
        return float(self.end_s.max(initial=0.0))


def play(
    graph: TaskGraph, topology: Topology, paths: Paths, *, sharing: SharingRule = SharingRule.MAX_MIN
) -> Played:
    """Plays a task graph on a network from time 0.

    Args:
        graph: what has to be done.
        topology: the network.
        paths: the paths that `graph.path` numbers.
        sharing: how flows share links.

    Raises:
        InputError: tasks wait for each other in a circle, some of which are named; or a path needs two circuits.
    """
    net, change = new_sharing(paths.offsets, paths.links, topology.bandwidth_bytes_per_s)
    state = _new_state(graph, len(paths), topology.num_links)
    tasks = Tasks(
        duration_s=graph.duration_s,
        num_bytes=graph.num_bytes,
        path=graph.path,
        resource=graph.resource,
        offsets=graph.offsets,
        successors=graph.successors,
        unless=graph.unless,
    )
    circuits = new_circuit_state(topology.circuits, _circuit_of_path(topology, paths), len(graph))
    if run(tasks, net, change, circuits, state, sharing is SharingRule.MAX_MIN) < len(graph):
        raise _circle(graph, state.end_s)
    return Played(
        ready_s=state.ready_s,
        start_s=state.start_s,
        end_s=state.end_s,
        link_bytes=_link_bytes(graph, paths, topology.num_links),
        link_used_s=state.used_s,
        link_full_s=state.full_s,
        circuit_wait_s=circuits.waited_s,
        circuit_use=circuit_use(circuits.of_path, graph.path, circuits.waited_s, circuits.num_set_ups)
        if topology.circuits
        else None,
    )


def _circle(graph: TaskGraph, end_s: Floats) -> InputError:
    stuck = np.flatnonzero(np.isnan(end_s))
    names = ", ".join(f"{task} ({graph.label_of(task)})" for task in stuck[:3].tolist())
    rule = f"{len(stuck)} tasks wait for each other in a circle, among them {names}"
    return refusal("task graph", rule)


def _circuit_of_path(topology: Topology, paths: Paths) -> Integers:
    if topology.circuits is None:
        return np.empty(0, np.int64)
    return topology.circuits.of_path(paths.offsets, paths.links, topology.vertex_names)


def _link_bytes(graph: TaskGraph, paths: Paths, num_links: int) -> Floats:
    is_flow = graph.path != NONE
    per_path = np.bincount(graph.path[is_flow], weights=graph.num_bytes[is_flow], minlength=len(paths))
    per_crossing = np.repeat(per_path, np.diff(paths.offsets))
    return np.asarray(np.bincount(paths.links, weights=per_crossing, minlength=num_links), dtype=np.float64)


def _new_state(graph: TaskGraph, num_paths: int, num_links: int) -> State:
    size, resources = len(graph), graph.num_resources

    def none(count: int) -> Integers:
        return np.full(count, NONE, dtype=np.int64)

    def unset(count: int) -> Integers:
        """Zeros, which take no memory until something is written there."""
        return np.zeros(count, dtype=np.int64)

    return State(
        now_s=np.zeros(1),
        ready_s=np.zeros(size),
        start_s=np.zeros(size),
        end_s=np.full(size, np.nan),
        waits_for=graph.num_predecessors.copy(),
        work=unset(size),
        sizes=np.zeros(3, dtype=np.int64),
        timers=new_timers(size),
        is_busy=np.zeros(resources, dtype=np.bool_),
        has_resource=np.zeros(size, dtype=np.bool_),
        first_waiting=none(resources),
        last_waiting=none(resources),
        next_waiting=unset(size),
        moved_bytes=np.zeros(num_paths),
        moved_until_s=np.zeros(num_paths),
        leaves_at_bytes=np.zeros(size),
        root=none(num_paths),
        left=unset(size),
        right=unset(size),
        is_changed=np.zeros(num_paths, dtype=np.bool_),
        changed=none(num_paths),
        kept=none(num_paths),
        new_end_s=np.zeros(num_paths),
        due=none(num_paths),
        path_end_s=np.full(2 * _power_of_two(num_paths), np.inf),
        since_s=np.zeros(num_links),
        used_flows=np.zeros(num_links, dtype=np.int64),
        used_s=np.zeros(num_links),
        full_s=np.zeros(num_links),
    )


def _power_of_two(count: int) -> int:
    """The smallest power of two that is at least `count`."""
    return 1 << max(0, count - 1).bit_length()
