"""What would the step of one accelerator be on many? A task graph for `simulator.deep.play`, made from its trace.

    made = extrapolate(trace, Parallelism(data_parallel=8), ring(8, 65e9, 1e-6))
    played = play(made.graph, made.topology, made.paths)

Every accelerator has a compute stream; what it sends travels beside it. A replica works on a batch of its own, as large
as the trace's unless another one is asked for.

    data parallel      gradients are added up, bucket by bucket or at the end; the optimizer waits for them
    sharded            weights are gathered layer by layer, one layer ahead; gradients are scattered layer by layer
    tensor parallel    operators that can be split take 1/n; what they make is gathered, and in the backward pass the
                       gradient of what they read is added up, before the next operator begins
    pipeline parallel  stages of equal time, or several chunks on each of them in turn; activations go to the next stage
                       and as many bytes of gradients come back
"""

from __future__ import annotations

from dataclasses import dataclass

from simulator.deep.chosen_collectives import Algorithm, ChosenCollectives
from simulator.deep.collectives import Collectives
from simulator.deep.division import with_batch
from simulator.deep.memory import lifetimes
from simulator.deep.memory_tiers import with_tiers
from simulator.deep.offload import Offload, OffloadPlan, add_moves, plan_offload
from simulator.deep.operator_model import OperatorModel
from simulator.deep.parallelism import GradientSync, Parallelism
from simulator.deep.routing import Paths, Router
from simulator.deep.step_tasks import add_step
from simulator.deep.tasks import TaskGraph, TaskGraphBuilder
from simulator.deep.topology import Topology
from simulator.deep.trace import OperatorTrace
from simulator.errors import InputError, Problem
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class Extrapolation:
    """A step on many accelerators, ready to be played; resource i of the graph is the compute stream of accelerator i."""

    graph: TaskGraph
    topology: Topology
    paths: Paths
    parallelism: Parallelism
    stage_of_layer: Integers
    """`(num_layers,)`."""
    offload: OffloadPlan | None = None
    """What leaves an accelerator whose memory is too small; None: nobody asked."""


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
) -> Extrapolation:
    """Returns the step of a trace on many accelerators.

    Args:
        trace: one step on one accelerator.
        parallelism: how it is divided.
        topology: the network, with as many accelerators or more.
        batch_size: samples of each replica; left out: those of the trace.
        speed: `(num_gpus,)` of each accelerator over that of the trace; left out: all as fast.
        model: lines of operators, for another batch and micro-batches; left out: time is proportional to the batch.
        offload: a limited memory, for replicas that each have all of the model; left out: everything fits.
        algorithm: of collectives; left out: of each the one that is over first.

    Raises:
        InputError: the trace cannot be divided so, the network or the memory is too small.
    """
    if offload is not None:
        _check_whole_replicas(parallelism)
    parallelism.check(trace, batch_size, speed)
    _check_network(parallelism, topology)
    network = with_tiers(topology, offload.tiers if offload else ())
    graph, ended = TaskGraphBuilder(), dict[int, Integers]()
    collectives = Collectives(graph=graph, router=Router(network.topology))
    traffic = ChosenCollectives(collectives=collectives, algorithm=algorithm)
    stage_of_layer = add_step(
        trace, parallelism, graph, traffic, batch_size=batch_size, speed=speed, model=model, ended=ended
    )
    plan = None
    if offload is not None:
        needed = lifetimes(with_batch(trace, batch_size or trace.batch_size, model))
        plan = plan_offload(needed, offload, parallelism.num_gpus)
        tasks = {operator: tasks.ravel() for operator, tasks in ended.items()}
        add_moves(graph, collectives.router, network, plan, tasks)
    return Extrapolation(
        graph=graph.build(),
        topology=network.topology,
        paths=collectives.router.table(),
        parallelism=parallelism,
        stage_of_layer=stage_of_layer,
        offload=plan,
    )


def _check_whole_replicas(parallelism: Parallelism) -> None:
    rules = {
        "tensor_parallel": (parallelism.tensor_parallel, parallelism.tensor_parallel == 1),
        "pipeline_parallel": (parallelism.pipeline_parallel, parallelism.pipeline_parallel == 1),
        "num_microbatches": (parallelism.num_microbatches, parallelism.num_microbatches == 1),
        "sync": (parallelism.sync.value, parallelism.sync is not GradientSync.SHARDED),
    }
    problems = [
        Problem(
            path=name, value=str(value), rule="must be left out with a limited memory: replicas are whole"
        )
        for name, (value, is_whole) in rules.items()
        if not is_whole
    ]
    if problems:
        raise InputError(problems)


def _check_network(parallelism: Parallelism, topology: Topology) -> None:
    if parallelism.num_gpus > topology.num_ranks:
        rule = f"must be at most {topology.num_ranks}, the accelerators of network {topology.name!r}"
        raise InputError([Problem(path="num_gpus", value=str(parallelism.num_gpus), rule=rule)])
