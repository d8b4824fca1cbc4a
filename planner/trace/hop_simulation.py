"""How fast is decentralised training with slow workers? The answer of `capplan trace simulate --parallel hop`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from planner import __version__
from planner.deep.events import check_size
from planner.deep.played_step import PlayedStep, StepRun, accelerator_times, circuit_summary, hot_links
from planner.input.pair_text import Pairs, read_pairs
from planner.input.problems import nearest
from planner.trace.request import HOP, Rules, TraceRequest
from planner.trace.simulation import asked_trace, operator_model
from simulator.argument_names import Argument, Words
from simulator.deep.playing.play import play
from simulator.deep.playing.waits import waits
from simulator.deep.traced_steps.division import with_batch
from simulator.deep.traced_steps.hop import MOST_GAP, HopResult, HopRules, hop_result, hop_step
from simulator.deep.traced_steps.hop_graphs import HopGraph, checked_graph, hop_graph
from simulator.deep.traces.trace_text import broken, read_json
from simulator.errors import check_rules
from simulator.record import Record
from simulator.table import Floats, Integers

KEYS = ("graph", "iterations", "gap", "backups", "staleness", "skip", "slowdown", "chance", "seed")
MOST_ITERATIONS = 100_000
MOST_NAMED = 3
"""Number of workers that are named as those that one waits for."""


class HopWait(Record):
    """A worker that another one waits for."""

    worker: int
    waited_s: float


class HopWorker(Record):
    """One worker, over all iterations."""

    worker: int
    """Its number, from 0."""
    iterations_per_s: float
    """Iterations that it passed per second, skipped ones included."""
    num_skipped: int
    for_updates_s: float
    """Time spent waiting for updates after computing."""
    for_tokens_s: float
    """Time spent waiting for tokens after an iteration was over."""
    waits_for: tuple[HopWait, ...]
    """The workers that it waited for longest, at most 3."""


class HopAnswer(PlayedStep):
    """Iterations of decentralised training; `step_s` and the times of accelerators cover all iterations together."""

    trace: str
    """Name of the trace."""
    graph: str
    """The communication graph: who sends to whom."""
    num_iterations: int
    max_gap: int
    num_backups: int
    staleness: int
    skip_behind: int | None
    batch_size: int
    """Samples of each worker in each iteration."""
    iterations_per_s: float
    """Iterations of an average worker per second."""
    samples_per_s: float
    """Samples per second of all workers together, without skipped iterations, until the last worker is done."""
    largest_gap: int
    """Most iterations that a worker was ahead of a neighbour."""
    workers: tuple[HopWorker, ...]


@dataclass(frozen=True, kw_only=True)
class HopRun(StepRun):
    """Played iterations with everything that is known about them."""

    answer: HopAnswer


def simulate_hop(request: TraceRequest, *, is_drawn: bool = False) -> HopRun:
    """Returns iterations of decentralised training, each of which computes the traced step.

    Raises:
        InputError: the trace or a value of `--hop` is invalid, or does not fit the others.
    """
    _refuse_others(request)
    pairs = read_pairs(Argument("hop"), request.hop, KEYS)
    num_iterations = pairs.whole("iterations", 50, least=1, most=MOST_ITERATIONS)
    graph = pairs.text("graph", HopGraph.RING.value)
    edges, rules = _edges(pairs, graph, request.num_gpus), _rules(pairs)
    trace = asked_trace(request)
    batch_size = request.batch_size or trace.batch_size
    alone_s = with_batch(trace, batch_size, operator_model(request, trace)).single_device_s
    compute_s = alone_s / request.speed() * _slowdowns(pairs, (num_iterations, request.num_gpus))
    topology = request.topology()
    step = hop_step(compute_s, trace.parameter_bytes, edges, topology, rules)
    if is_drawn:
        check_size(step.graph)
    played = play(step.graph, topology, step.paths)
    result, found = hop_result(step, played), waits(step.graph, played, len(step.paths))
    num_computed = result.is_skipped.size - int(result.is_skipped.sum())
    answer = HopAnswer(
        capplan_version=__version__,
        num_gpus=request.num_gpus,
        step_s=played.makespan_s,
        num_tasks=len(step.graph),
        accelerators=accelerator_times(step.graph, found),
        hot_links=hot_links(topology, step.paths, played, found.path_s),
        circuits=circuit_summary(topology, played),
        trace=trace.name,
        graph=graph,
        num_iterations=num_iterations,
        max_gap=rules.max_gap,
        num_backups=rules.num_backups,
        staleness=rules.staleness,
        skip_behind=rules.skip_behind,
        batch_size=batch_size,
        iterations_per_s=float(result.iterations_per_s.mean()),
        samples_per_s=num_computed * batch_size / played.makespan_s if played.makespan_s else 0.0,
        largest_gap=result.largest_gap,
        workers=_workers(result),
    )
    return HopRun(answer=answer, graph=step.graph, topology=topology, paths=step.paths, played=played)


def _refuse_others(request: TraceRequest) -> None:
    given = {
        "rules": request.rules is not Rules.CAPPLAN,
        "num_microbatches": request.num_microbatches is not None,
        "offload": bool(request.offload),
    }
    rule = Words("is nothing that workers of ", Argument("parallel", HOP), " have: leave it out")
    check_rules({Argument(name): ("", not is_given, rule) for name, is_given in given.items()})


def _rules(pairs: Pairs) -> HopRules:
    skip = pairs.whole("skip", 0, least=1, most=MOST_GAP)
    return HopRules(
        max_gap=pairs.whole("gap", 5, least=1, most=MOST_GAP),
        num_backups=pairs.whole("backups", 0, least=0, most=MOST_GAP),
        staleness=pairs.whole("staleness", 0, least=0, most=MOST_GAP - 1),
        skip_behind=skip or None,
    )


def _edges(pairs: Pairs, graph: str, num_workers: int) -> Integers:
    """The graph that a word names, or that in a JSON file of pairs."""
    kinds = tuple(kind.value for kind in HopGraph)
    if graph in kinds:
        return hop_graph(HopGraph(graph), num_workers)
    if not graph.endswith(".json"):
        raise pairs.broken("graph", f"must be a graph, or a .json file of pairs; {nearest(graph, kinds)}")
    document = read_json(Path(graph))
    rule = "must be pairs of sender and receiver, such as [[0, 1], [1, 0]]"
    is_pairs = isinstance(document, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(end) is int and abs(end) < 2**31 for end in pair)
        for pair in document
    )
    if not is_pairs:
        raise broken(Path(graph), "", "", rule)
    return checked_graph(np.array(document, dtype=np.int64), num_workers)


def _slowdowns(pairs: Pairs, shape: tuple[int, int]) -> Floats:
    """How much longer each iteration takes on each worker, drawn at random."""
    factor = pairs.number("slowdown", 6.0, least=1.0, most=1e6)
    chance = pairs.number("chance", 0.0, least=0.0, most=1.0)
    random = np.random.default_rng(pairs.whole("seed", 0, least=0, most=2**32 - 1))
    return np.where(random.random(shape) < chance, factor, 1.0)


def _workers(result: HopResult) -> tuple[HopWorker, ...]:
    longest = np.argsort(-result.waited_for_s, axis=1, kind="stable")[:, :MOST_NAMED]
    return tuple(
        HopWorker(
            worker=worker,
            iterations_per_s=float(result.iterations_per_s[worker]),
            num_skipped=int(result.is_skipped[:, worker].sum()),
            for_updates_s=float(result.for_updates_s[worker]),
            for_tokens_s=float(result.for_tokens_s[worker]),
            waits_for=tuple(
                HopWait(worker=other, waited_s=float(result.waited_for_s[worker, other]))
                for other in others
                if result.waited_for_s[worker, other] > 0.0
            ),
        )
        for worker, others in enumerate(longest.tolist())
    )
