"""How long would a traced step take on many accelerators, and what holds it up? The answer of `capplan trace simulate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from pydantic import Field

from planner import __version__
from planner.deep.events import check_num_events, check_size
from planner.deep.played_step import (
    PlayedStep,
    StepRun,
    accelerator_times,
    circuit_summary,
    hot_links,
    lacks_ramp,
)
from planner.trace.offload_request import MemoryUse, memory_use, offload_asked
from planner.trace.request import HOP, NetworkKind, Rules, Times, TraceRequest
from simulator.argument_names import Argument, Words
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import SharingRule, play
from simulator.deep.playing.waits import Accelerators, of_stages, receivers, waits
from simulator.deep.traced_steps.division import kept_in_proportion, moved
from simulator.deep.traced_steps.extrapolate import Extrapolation, num_whole_tasks, spread_step
from simulator.deep.traced_steps.fold import Fold
from simulator.deep.traced_steps.memory import lifetimes
from simulator.deep.traced_steps.operator_model import OperatorModel, fit_operators, samples_of
from simulator.deep.traced_steps.step_request import StepRequest
from simulator.deep.traced_steps.triosim import TrioSimCase, TrioSimStep, triosim_step
from simulator.deep.traces.parallelism import GradientSync, Parallelism
from simulator.deep.traces.trace import OperatorTrace
from simulator.errors import InputError, Problem, check_rules


class TraceAnswer(PlayedStep):
    """A traced step on many accelerators."""

    trace: str
    """Name of the trace."""
    rules: Rules
    """Whose rules were used to spread it."""
    num_played: int
    """Number of accelerators that were played; each of the others does the same as one of them at the same time."""
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    num_microbatches: int
    num_chunks: int
    """Runs of layers on each stage; above 1 the pipeline is interleaved."""
    batch_size: int
    """Number of samples of each replica."""
    single_device_s: float
    """Length of one replica's step on one accelerator: as traced, or by capplan's rules for another batch."""
    samples_per_s: float
    """Samples per second of all replicas together."""
    efficiency_fraction: float
    """Samples per second of each accelerator relative to one accelerator alone."""
    replica_peak_bytes: float
    """Peak bytes of a replica's tensors, if one accelerator held all of it."""
    kept_in_proportion: tuple[str, ...] = ()
    """Classes of operators scaled in proportion to the batch although lines were asked for, because their samples do not show
    what their time grows with."""
    speeds: dict[int, float] = Field(default_factory=dict)
    """Accelerators whose speed differs from the trace's, and their speed relative to it."""
    other_speeds_s: float = 0.0
    """How much longer the step is because of accelerators of another speed."""
    memory: MemoryUse | None = None
    """What a limited memory costs; None if none was asked for."""


@dataclass(frozen=True, kw_only=True)
class TraceRun(StepRun):
    """A played step with everything that is known about it."""

    answer: TraceAnswer


def simulate_trace(request: TraceRequest, *, is_drawn: bool = False) -> TraceRun:
    """Returns a traced step on many accelerators.

    Args:
        request: the trace, and how it is spread.
        is_drawn: whether a timeline will be drawn. It has a row for each accelerator, so all are played; otherwise only one of
            those that do the same is, with the same result.

    Raises:
        InputError: the trace is invalid, cannot be spread as asked, or is too large to be drawn.
    """
    if request.hop:
        rule = Words("is read with ", Argument("parallel", HOP), " only: leave it out, or ask for that")
        raise InputError([Problem(path=Argument("hop"), value=request.hop[:60], rule=rule)])
    if request.rules is Rules.TRIOSIM:
        return _by_triosim(request, is_drawn=is_drawn)
    return _by_capplan(request, is_drawn=is_drawn)


def _by_capplan(request: TraceRequest, *, is_drawn: bool) -> TraceRun:
    trace = asked_trace(request)
    offload = offload_asked(request)
    parallelism, topology = request.divided(trace), request.topology()
    step = StepRequest(
        trace=trace,
        parallelism=parallelism,
        batch_size=request.batch_size,
        model=operator_model(request, trace),
        speed=request.speed(),
    )
    spread = partial(spread_step, topology=topology, algorithm=request.collectives)
    if is_drawn and offload is None:
        _check_drawn(step, topology, request.collectives)
    made = spread(step, offload=offload, is_folded=not is_drawn)
    run = _played(made, is_drawn=is_drawn)
    answer = _answer(request, step, run, made.accelerators(), made.fold)
    if request.speeds:
        usual = _played(spread(replace(step, speed=None), offload=offload, is_folded=True))
        more = {"speeds": request.speeds, "other_speeds_s": run.step_s - usual.step_s}
        answer = answer.model_copy(update=more)
    if offload is not None:
        unlimited = _played(spread(step))
        memory = memory_use(offload, made, lifetimes(step.replica()), unlimited.step_s)
        answer = answer.model_copy(update={"memory": memory})
    return _told(run, answer)


def _check_drawn(step: StepRequest, topology: Topology, algorithm: Algorithm) -> None:
    """Refuses a timeline that is too large, before the step is built.

    Every step that is not refused has the same algorithms as the answer without a timeline: that one uses others only if the
    folded step has more than `MANY_TASKS`, far more than any timeline.
    """
    check_num_events(num_whole_tasks(step, topology, algorithm), step.parallelism.num_gpus)


def _played(
    made: Extrapolation | TrioSimStep, sharing: SharingRule = SharingRule.MAX_MIN, *, is_drawn: bool = False
) -> StepRun:
    """Plays a step; if it will be drawn, it must not be too large for that."""
    if is_drawn:
        check_size(made.graph)
    played = play(made.graph, made.topology, made.paths, sharing=sharing)
    return StepRun(graph=made.graph, topology=made.topology, paths=made.paths, played=played)


def _told(run: StepRun, answer: TraceAnswer) -> TraceRun:
    return TraceRun(answer=answer, graph=run.graph, topology=run.topology, paths=run.paths, played=run.played)


def asked_trace(request: TraceRequest) -> OperatorTrace:
    """Returns the trace as it would be on the requested accelerator; raises `InputError` if it is invalid."""
    trace = request.read()
    rates = request.rates()
    return moved(trace, *rates) if rates else trace


def operator_model(request: TraceRequest, trace: OperatorTrace) -> OperatorModel | None:
    """Returns lines for operators with another batch, if they were asked for."""
    return fit_operators([samples_of(trace)]) if request.times is Times.FITTED else None


def _kept_in_proportion(step: StepRequest) -> tuple[str, ...]:
    """Classes of operators without a line, if the batch of a pass is not that of the trace."""
    if step.model is None or step.samples_of_pass == step.trace.batch_size:
        return ()
    return kept_in_proportion(step.trace, step.samples_of_pass, step.model)


def _by_triosim(request: TraceRequest, *, is_drawn: bool) -> TraceRun:
    trace = request.read()
    case = _case(request)
    size, num_microbatches = request.num_gpus, request.num_microbatches or 1
    made = triosim_step(
        trace,
        case,
        num_gpus=size,
        bandwidth_bytes_per_s=request.bandwidth_bytes_per_s,
        batch_size=request.batch_size,
        num_microbatches=num_microbatches,
    )
    run = _played(made, SharingRule.EQUAL_SPLIT, is_drawn=is_drawn)
    parallelism = Parallelism(
        data_parallel=size if case in (TrioSimCase.DATA, TrioSimCase.DISTRIBUTED) else 1,
        tensor_parallel=size if case is TrioSimCase.TENSOR else 1,
        pipeline_parallel=size if case is TrioSimCase.PIPELINE else 1,
        num_microbatches=num_microbatches if case is TrioSimCase.PIPELINE else 1,
        sync=GradientSync.AT_THE_END,
    )
    step = StepRequest(trace=trace, parallelism=parallelism, batch_size=request.batch_size)
    known = Accelerators(
        receiver=receivers(made.topology, made.paths), team=of_stages(size, parallelism.pipeline_parallel)
    )
    return _told(run, _answer(request, step, run, known))


def _case(request: TraceRequest) -> TrioSimCase:
    """TrioSim's name for the case; TrioSim has no hybrids, other networks, or accelerators of other speeds."""
    beyond = {
        "parallel": request.parallel not in ("dp", "ddp", "tp", "pp"),
        "num_chunks": request.num_chunks > 1,
        "network": request.network is not NetworkKind.RING or request.network_file is not None,
        "slow_links": bool(request.slow_links),
        "speeds": bool(request.speeds),
        "offload": bool(request.offload),
        "times": request.times is not Times.PROPORTIONAL,
        "on": request.on is not None or request.traced_on is not None,
    }
    rule = Words("is nothing that ", Argument("rules", Rules.TRIOSIM), " covers: leave one of them out")
    check_rules({Argument(name): ("", not is_beyond, rule) for name, is_beyond in beyond.items()})
    return TrioSimCase(request.parallel)


def _answer(
    request: TraceRequest, step: StepRequest, run: StepRun, known: Accelerators, fold: Fold | None = None
) -> TraceAnswer:
    found = waits(run.graph, run.played, len(run.paths), known)
    parallelism, batch_size, alone = step.parallelism, step.num_samples, step.replica()
    samples_per_s = parallelism.data_parallel * batch_size / run.step_s if run.step_s > 0.0 else 0.0
    return TraceAnswer(
        capplan_version=__version__,
        trace=step.trace.name,
        rules=request.rules,
        num_gpus=request.num_gpus,
        num_played=request.num_gpus if fold is None else fold.played.size,
        data_parallel=parallelism.data_parallel,
        tensor_parallel=parallelism.tensor_parallel,
        pipeline_parallel=parallelism.pipeline_parallel,
        num_microbatches=parallelism.num_microbatches,
        num_chunks=parallelism.num_chunks,
        batch_size=batch_size,
        step_s=run.step_s,
        single_device_s=alone.single_device_s,
        samples_per_s=samples_per_s,
        efficiency_fraction=samples_per_s * alone.single_device_s / batch_size / request.num_gpus,
        replica_peak_bytes=lifetimes(alone).peak_bytes,
        kept_in_proportion=_kept_in_proportion(step),
        num_tasks=len(run.graph),
        accelerators=accelerator_times(run.graph, found, fold),
        hot_links=hot_links(run.topology, run.paths, run.played, found.path_s, fold),
        circuits=circuit_summary(run.topology, run.played),
        lacks_ramp=request.rules is Rules.CAPPLAN and lacks_ramp(run.graph, run.topology),
    )
