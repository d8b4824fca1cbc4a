"""How would the step of one accelerator run on many? A task graph for `simulator.deep.playing.play`, made from its trace.

    made = extrapolate(trace, Parallelism(data_parallel=8), ring(8, 65e9, 1e-6))
    played = play(made.graph, made.topology, made.paths)

Every accelerator has a compute stream; its sends overlap with it. A replica works on a batch of its own, as large as the
trace's unless another size is given.

    data parallel      gradients are all-reduced around a ring, bucket by bucket or at the end; the optimizer waits for them
    sharded            weights are gathered layer by layer, one layer ahead; gradients are scattered layer by layer
    tensor parallel    operators that can be split take 1/n; before the next operator begins, their outputs are gathered and,
                       in the backward pass, the gradients of their inputs are all-reduced
    pipeline parallel  stages of equal time, or several chunks on each of them in turn; activations go to the next stage
                       and as many bytes of gradients come back
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.deep.collectives.chosen_collectives import ChosenCollectives
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Paths, Router
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.tasks import NONE, TaskGraph, TaskGraphBuilder
from simulator.deep.playing.waits import Accelerators, of_stages, receivers
from simulator.deep.traced_steps.fold import Fold
from simulator.deep.traced_steps.memory import lifetimes
from simulator.deep.traced_steps.memory_tiers import with_tiers
from simulator.deep.traced_steps.offload import Offload, OffloadPlan, add_moves, plan_offload
from simulator.deep.traced_steps.operator_model import OperatorModel
from simulator.deep.traced_steps.played_part import PlayedPart, played_part
from simulator.deep.traced_steps.step_request import StepRequest
from simulator.deep.traced_steps.step_sketch import num_meetings
from simulator.deep.traced_steps.step_tasks import add_step
from simulator.deep.traces.parallelism import GradientSync, Parallelism
from simulator.deep.traces.trace import OperatorTrace
from simulator.errors import InputError, Problem, check_rules
from simulator.table import Floats, Integers

MANY = 1_024
"""From this number of accelerators on, a step that is too large is refused before it is built, which would take long."""

MOST_MEETINGS = 1e9
"""From this number of meetings of inter-stage messages on links on, a step is refused; 2e8 of them take half a minute."""
_FEWER = "take fewer accelerators, micro-batches or stages"


@dataclass(frozen=True, kw_only=True)
class Extrapolation:
    """A step on many accelerators, ready to be played.

    Resource i of the graph is the compute stream of accelerator i, or of the i-th of those that are played.
    """

    graph: TaskGraph
    topology: Topology
    paths: Paths
    parallelism: Parallelism
    stage_of_layer: Integers
    """`(num_layers,)`."""
    offload: OffloadPlan | None = None
    """What leaves an accelerator whose memory is too small; None: no offload was asked for."""
    fold: Fold | None = None
    """Which accelerators and links stand for which, in `topology` and `paths`, too; None: all of them are played."""

    def accelerators(self) -> Accelerators:
        """Returns what `waits` has to know: where each path leads, and that accelerators of a stage do the same."""
        receiver, size = receivers(self.topology, self.paths), self.graph.num_resources
        if self.fold is not None:
            receiver = np.where(receiver == NONE, NONE, self.fold.row_of_rank()[receiver])
        return Accelerators(receiver=receiver, team=of_stages(size, self.parallelism.pipeline_parallel))


def extrapolate(
    trace: OperatorTrace,
    parallelism: Parallelism,
    topology: Topology,
    *,
    batch_size: int | None = None,
    speed: Floats | None = None,
    model: OperatorModel | None = None,
    offload: Offload | None = None,
    algorithm: Algorithm = Algorithm.AUTO,
    is_folded: bool = False,
) -> Extrapolation:
    """Returns the step of a trace on many accelerators.

    Args:
        trace: one step on one accelerator.
        parallelism: how it is divided.
        topology: the network, with at least as many accelerators.
        batch_size: samples of each replica; default: those of the trace.
        speed: `(num_gpus,)` speed of each accelerator relative to that of the trace; default: all are as fast.
        model: lines of operators, for another batch and micro-batches; default: time is proportional to the batch.
        offload: a limited memory, for replicas that each have all of the model; default: everything fits. With it
            nothing is folded.
        algorithm: algorithm of collectives; default: the fastest for each.
        is_folded: whether accelerators that do the same are played once (`simulator.deep.traced_steps.fold`).

    Raises:
        InputError: the trace cannot be divided that way, or the network or the memory is too small.
    """
    step = StepRequest(trace=trace, parallelism=parallelism, batch_size=batch_size, speed=speed, model=model)
    return spread_step(step, topology, offload=offload, algorithm=algorithm, is_folded=is_folded)


def spread_step(
    step: StepRequest,
    topology: Topology,
    *,
    offload: Offload | None = None,
    algorithm: Algorithm = Algorithm.AUTO,
    is_folded: bool = False,
) -> Extrapolation:
    """Returns the requested step; see `extrapolate`."""
    parallelism = step.parallelism
    if offload is not None:
        _check_whole_replicas(parallelism)
    step.check()
    topology.check_holds(parallelism.num_gpus)
    network = with_tiers(topology, offload.tiers if offload else ())
    ground = _Ground.of(step, network.topology, algorithm, is_folded=is_folded and offload is None)
    graph, router, fold = ground.graph, ground.traffic.collectives.router, ground.fold
    ended: dict[int, Integers] = {}
    stage_of_layer = add_step(step, graph, ground.traffic, ended=ended, played=fold.played if fold else None)
    plan = None
    if offload is not None:
        plan = plan_offload(lifetimes(step.replica()), offload, parallelism.num_gpus)
        tasks = {operator: of_replicas.ravel() for operator, of_replicas in ended.items()}
        add_moves(graph, router, network, plan, tasks)
    paths = router.table()
    return Extrapolation(
        graph=graph.build(),
        topology=network.topology if fold is None else fold.network(topology),
        paths=paths if fold is None else fold.ways(paths),
        parallelism=parallelism,
        stage_of_layer=stage_of_layer,
        offload=plan,
        fold=fold,
    )


def num_whole_tasks(step: StepRequest, topology: Topology, algorithm: Algorithm) -> int:
    """Returns how many tasks a step has that is not folded, without building it; see `extrapolate`.

    Raises:
        InputError: the trace cannot be divided that way, or the network is too small.
    """
    step.check()
    topology.check_holds(step.parallelism.num_gpus)
    return played_part(step, _traffic(topology, algorithm), is_folded=False).num_tasks


@dataclass(frozen=True, kw_only=True)
class _Ground:
    """The empty graph and the traffic to which the tasks of a step are added."""

    graph: TaskGraphBuilder
    traffic: ChosenCollectives
    fold: Fold | None

    @classmethod
    def of(cls, step: StepRequest, topology: Topology, algorithm: Algorithm, *, is_folded: bool) -> Self:
        """Returns that of a step, unless the step already turns out to be too large."""
        traffic = _traffic(topology, algorithm)
        if step.parallelism.num_gpus < MANY and not is_folded:
            graph = TaskGraphBuilder(way_out=_FEWER)
            return cls(graph=graph, traffic=traffic.on(graph), fold=None)
        part = played_part(step, traffic, is_folded=is_folded)
        traffic = _traffic_of(part, topology)
        graph = TaskGraphBuilder(way_out=_way_out(part))
        graph.require_room(part.num_tasks)
        _check_meetings(step.parallelism, traffic.collectives.router, part.fold)
        return cls(graph=graph, traffic=traffic.on(graph), fold=part.fold)


def _traffic(topology: Topology, algorithm: Algorithm) -> ChosenCollectives:
    """Returns the traffic of a network, not yet bound to a graph."""
    collectives = Collectives(graph=TaskGraphBuilder(), router=Router(topology))
    return ChosenCollectives(collectives=collectives, algorithm=algorithm)


def _traffic_of(part: PlayedPart, topology: Topology) -> ChosenCollectives:
    """Returns the traffic of a part of a step, without the paths of accelerators that are not played."""
    if part.fold is None or part.fold.num_each == 1:
        return part.traffic
    return replace(part.traffic, collectives=replace(part.traffic.collectives, router=Router(topology)))


def _way_out(part: PlayedPart) -> str:
    if Algorithm.TREE in part.sketch.algorithms:
        return f"{_FEWER}, or rings for all collectives, of which those that are alike are played once"
    if part.fold is not None and part.fold.num_each == 1:
        return f"{_FEWER}, or a network on which replicas are alike, such as a switch"
    return _FEWER


def _check_meetings(parallelism: Parallelism, router: Router, fold: Fold | None) -> None:
    meetings = num_meetings(parallelism, router, fold)
    if meetings > MOST_MEETINGS:
        name, most = router.topology.name, MOST_MEETINGS
        rule = (
            f"lets messages between stages meet on its links {meetings:.2g} times, more than {most:.2g}, which takes long"
            f" to play: {_FEWER}, or a network with shorter ways between stages, such as a switch"
        )
        raise InputError([Problem(path="network", value=name, rule=rule)])


def _check_whole_replicas(parallelism: Parallelism) -> None:
    divided = {
        "tensor_parallel": (parallelism.tensor_parallel, parallelism.tensor_parallel == 1),
        "pipeline_parallel": (parallelism.pipeline_parallel, parallelism.pipeline_parallel == 1),
        "num_microbatches": (parallelism.num_microbatches, parallelism.num_microbatches == 1),
        "sync": (parallelism.sync.value, parallelism.sync is not GradientSync.SHARDED),
    }
    rule = "must be left out with a limited memory: replicas are whole"
    check_rules({name: (value, is_whole, rule) for name, (value, is_whole) in divided.items()})
