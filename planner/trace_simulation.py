"""What would a traced step take on many accelerators, and what holds it up? The answer of `capplan trace simulate`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner import __version__
from planner.trace_request import NetworkKind, Rules, Times, TraceRequest
from simulator.deep.division import moved, with_batch
from simulator.deep.extrapolate import extrapolate
from simulator.deep.operator_model import OperatorModel, fit_operators, samples_of
from simulator.deep.parallelism import GradientSync, Parallelism
from simulator.deep.play import Played, SharingRule, play
from simulator.deep.read import read_operator_trace
from simulator.deep.routing import Paths
from simulator.deep.tasks import TaskGraph
from simulator.deep.topology import Topology
from simulator.deep.trace import OperatorTrace
from simulator.deep.triosim import TrioSimCase, triosim_step
from simulator.deep.waits import Waits, waits
from simulator.errors import InputError, Problem
from simulator.record import Record

MOST_LINKS = 10
"""Hot links that are listed."""
SMALLEST_FRACTION = 1e-6
"""A wait below this share of the step is rounding."""


class AcceleratorTime(Record):
    """What one accelerator does in a step; the parts sum to the step."""

    accelerator: int
    """From 0."""
    busy_s: float
    """Computing."""
    traffic_waits_s: dict[str, float]
    """Waiting for traffic, by its kind: `all-reduce`, `all-gather`, `send`."""
    others_wait_s: float
    """Waiting while others compute what it needs."""
    over_s: float
    """After its last operator, while others are still at work."""
    held_up_others_s: float
    """How long others waited for its computing, all of them together."""


class HotLink(Record):
    """A link of the network that accelerators wait for."""

    link: str
    """Such as `gpu 3 -> gpu 4`."""
    num_bytes: float
    """What crosses it in a step."""
    used_fraction: float
    """Of the step, with traffic on it."""
    full_fraction: float
    """Of the step, with traffic that could have used more."""
    waited_s: float
    """How long accelerators waited for traffic on it, all of them together."""


class TraceAnswer(Record):
    """A traced step on many accelerators."""

    schema_version: int = 1
    """Of this form; it rises when a field goes or changes its meaning."""
    capplan_version: str
    """Version that simulated."""
    trace: str
    """Name of the trace."""
    rules: Rules
    """Whose rules it was spread by."""
    num_gpus: int
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    num_microbatches: int
    batch_size: int
    """Samples of each replica."""
    step_s: float
    """From the first operator to the end of all."""
    single_device_s: float
    """The step of one replica on one accelerator: as traced, or by capplan's rules for the other batch."""
    samples_per_s: float
    """Of all replicas together."""
    efficiency_fraction: float
    """Samples per second of each accelerator over those of one alone."""
    num_tasks: int
    """Operators and messages that were played."""
    accelerators: tuple[AcceleratorTime, ...]
    """All of them, by number."""
    hot_links: tuple[HotLink, ...]
    """The links that are waited for longest, at most 10."""


@dataclass(frozen=True, kw_only=True)
class TraceRun:
    """A played step with all that is known of it."""

    answer: TraceAnswer
    graph: TaskGraph
    topology: Topology
    paths: Paths
    played: Played


def simulate_trace(request: TraceRequest) -> TraceRun:
    """Returns a traced step on many accelerators.

    Raises:
        InputError: the trace is broken, or cannot be spread as asked.
    """
    trace = read_operator_trace(request.path, batch_size=request.trace_batch_size)
    if request.rules is Rules.TRIOSIM:
        return _by_triosim(request, trace)
    if rates := request.rates():
        trace = moved(trace, *rates)
    parallelism = request.parallelism()
    topology = request.topology()
    made = extrapolate(
        trace,
        parallelism,
        topology,
        batch_size=request.batch_size,
        speed=request.speed(),
        model=_model(request, trace),
    )
    played = play(made.graph, topology, made.paths)
    answer = _answer(request, trace, parallelism, made.graph, topology, made.paths, played)
    return TraceRun(answer=answer, graph=made.graph, topology=topology, paths=made.paths, played=played)


def _model(request: TraceRequest, trace: OperatorTrace) -> OperatorModel | None:
    """Lines for operators with another batch, where they were asked for."""
    return fit_operators([samples_of(trace)]) if request.times is Times.FITTED else None


def _by_triosim(request: TraceRequest, trace: OperatorTrace) -> TraceRun:
    case = _case(request)
    num_microbatches = request.num_microbatches or 1
    step = triosim_step(
        trace,
        case,
        num_gpus=request.num_gpus,
        bandwidth_bytes_per_s=request.bandwidth_bytes_per_s,
        batch_size=request.batch_size,
        num_microbatches=num_microbatches,
    )
    played = play(step.graph, step.topology, step.paths, sharing=SharingRule.EQUAL_SPLIT)
    size = request.num_gpus
    parallelism = Parallelism(
        data_parallel=size if case in (TrioSimCase.DATA, TrioSimCase.DISTRIBUTED) else 1,
        tensor_parallel=size if case is TrioSimCase.TENSOR else 1,
        pipeline_parallel=size if case is TrioSimCase.PIPELINE else 1,
        num_microbatches=num_microbatches if case is TrioSimCase.PIPELINE else 1,
        sync=GradientSync.AT_THE_END,
    )
    answer = _answer(request, trace, parallelism, step.graph, step.topology, step.paths, played)
    return TraceRun(answer=answer, graph=step.graph, topology=step.topology, paths=step.paths, played=played)


def _case(request: TraceRequest) -> TrioSimCase:
    """What TrioSim calls it; it has no hybrids, other networks, or accelerators of other speeds."""
    rules = {
        "--parallel": request.parallel not in ("dp", "ddp", "tp", "pp"),
        "--network": request.network is not NetworkKind.RING,
        "--speed": bool(request.speeds),
        "--times": request.times is not Times.PROPORTIONAL,
        "--on": request.on is not None or request.traced_on is not None,
    }
    problems = [
        Problem(path=option, value="", rule="is nothing that TrioSim has: leave it out, or --rules triosim")
        for option, is_broken in rules.items()
        if is_broken
    ]
    if problems:
        raise InputError(problems)
    return TrioSimCase(request.parallel)


def _answer(
    request: TraceRequest,
    trace: OperatorTrace,
    parallelism: Parallelism,
    graph: TaskGraph,
    topology: Topology,
    paths: Paths,
    played: Played,
) -> TraceAnswer:
    batch_size = request.batch_size or trace.batch_size
    found = waits(graph, played, len(paths))
    step_s = played.makespan_s
    alone_s = with_batch(trace, batch_size, _model(request, trace)).single_device_s
    samples_per_s = parallelism.data_parallel * batch_size / step_s if step_s > 0.0 else 0.0
    return TraceAnswer(
        capplan_version=__version__,
        trace=trace.name,
        rules=request.rules,
        num_gpus=request.num_gpus,
        data_parallel=parallelism.data_parallel,
        tensor_parallel=parallelism.tensor_parallel,
        pipeline_parallel=parallelism.pipeline_parallel,
        num_microbatches=parallelism.num_microbatches,
        batch_size=batch_size,
        step_s=step_s,
        single_device_s=alone_s,
        samples_per_s=samples_per_s,
        efficiency_fraction=samples_per_s * alone_s / batch_size / request.num_gpus,
        num_tasks=len(graph),
        accelerators=_accelerators(graph, found),
        hot_links=_hot_links(topology, paths, played, found),
    )


def _accelerators(graph: TaskGraph, found: Waits) -> tuple[AcceleratorTime, ...]:
    is_waited = found.for_traffic_s.sum(axis=0) > 0.0
    names = [graph.labels[label] for label in np.flatnonzero(is_waited)]
    waited = found.for_traffic_s[:, is_waited].tolist()
    columns = (found.busy_s, found.for_others_s, np.maximum(0.0, found.over_s), found.waited_for_s)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(
        AcceleratorTime(
            accelerator=rank,
            busy_s=busy_s,
            traffic_waits_s=dict(zip(names, waited[rank], strict=True)),
            others_wait_s=others_s,
            over_s=over_s,
            held_up_others_s=held_s,
        )
        for rank, (busy_s, others_s, over_s, held_s) in enumerate(rows)
    )


def _hot_links(topology: Topology, paths: Paths, played: Played, found: Waits) -> tuple[HotLink, ...]:
    """Waits for a path are waits for its fullest link."""
    waited_s = np.zeros(topology.num_links)
    for path in np.flatnonzero(found.path_s > 0.0).tolist():
        links = paths.links_of(path)
        if len(links):
            waited_s[links[np.argmax(played.link_full_s[links])]] += found.path_s[path]
    step_s = max(played.makespan_s, np.finfo(np.float64).tiny)
    hottest = np.argsort(-waited_s, kind="stable")[:MOST_LINKS]
    return tuple(
        HotLink(
            link=topology.link_name(link),
            num_bytes=float(played.link_bytes[link]),
            used_fraction=float(played.link_used_s[link]) / step_s,
            full_fraction=float(played.link_full_s[link]) / step_s,
            waited_s=float(waited_s[link]),
        )
        for link in hottest.tolist()
        if waited_s[link] > SMALLEST_FRACTION * step_s
    )
