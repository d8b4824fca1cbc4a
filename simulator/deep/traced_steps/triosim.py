"""What would TrioSim predict? Steps under the rules of its published code, for comparison with it.

    step = triosim_step(trace, TrioSimCase.DISTRIBUTED, num_gpus=64)
    play(step.graph, step.topology, step.paths).makespan_s

The rules are those of the code of Li et al. (ISCA 2025) as published in April 2025, which differ from those of the paper and
from what accelerators do; `docs/deep/comparisons.md` lists the differences. S is the size of the all-reduced buffer and B the
bandwidth that the user gives. The n accelerators are on a ring whose links have 2 B (n - 1) / n, so that an all-reduce takes
S / B for every n:

    data parallel       the step, then S / B for all parameters
    distributed         one all-reduce for each backward operator that reads a parameter, from when it begins; nothing
                        waits for them
    tensor parallel     operators that can be split take 1/n, then S / B / n for all their outputs
    pipeline parallel   equally many operators on each stage; see `simulator.deep.traced_steps.triosim_pipeline`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Paths, Router
from simulator.deep.networks.topologies import ring
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.tasks import NONE, TaskGraph, TaskGraphBuilder
from simulator.deep.traces.trace import OperatorTrace, Phase
from simulator.errors import check_rules
from simulator.record import Choice
from simulator.table import Floats, Integers
from simulator.units import GIGA

BANDWIDTH_BYTES_PER_S = 65 * GIGA
"""Bandwidth between accelerators, TrioSim's default."""
MOST_GPUS = 4_096


class TrioSimCase(Choice):
    """The cases that TrioSim simulates."""

    SINGLE = "single"
    DATA = "dp"
    DISTRIBUTED = "ddp"
    TENSOR = "tp"
    PIPELINE = "pp"


@dataclass(frozen=True, kw_only=True)
class TrioSimStep:
    """A step under TrioSim's rules, ready to be played; resource i is accelerator i."""

    graph: TaskGraph
    topology: Topology
    paths: Paths


def triosim_step(
    trace: OperatorTrace,
    case: TrioSimCase,
    *,
    num_gpus: int,
    bandwidth_bytes_per_s: float = BANDWIDTH_BYTES_PER_S,
    batch_size: int | None = None,
    num_microbatches: int = 1,
) -> TrioSimStep:
    """Returns the step of a trace as TrioSim's published code would play it.

    Args:
        trace: one step on one accelerator.
        case: how it is spread.
        num_gpus: number of accelerators.
        bandwidth_bytes_per_s: bandwidth between them.
        batch_size: samples; everything is scaled by it, including weights and optimizer. Default: those of the trace.
        num_microbatches: number of micro-batches in the pipeline; other cases ignore it.

    Raises:
        InputError: a number is out of range.
    """
    _check(num_gpus, bandwidth_bytes_per_s, batch_size, num_microbatches)
    is_ring = case is not TrioSimCase.PIPELINE
    per_link = 2.0 * (num_gpus - 1) / num_gpus if is_ring and num_gpus > 1 else 1.0
    build = _Build(
        trace=_scaled(trace, (batch_size or trace.batch_size) / trace.batch_size),
        topology=ring(num_gpus, per_link * bandwidth_bytes_per_s, 0.0),
    )
    match case:
        case TrioSimCase.SINGLE:
            build.add_step()
        case TrioSimCase.DATA:
            build.add_data_parallel()
        case TrioSimCase.DISTRIBUTED:
            build.add_distributed()
        case TrioSimCase.TENSOR:
            build.add_tensor_parallel()
        case TrioSimCase.PIPELINE:
            from simulator.deep.traced_steps.triosim_pipeline import add_pipeline

            add_pipeline(build.trace, build.collectives, num_gpus, num_microbatches)
    return TrioSimStep(
        graph=build.graph.build(), topology=build.topology, paths=build.collectives.router.table()
    )


def _check(num_gpus: int, bandwidth: float, batch_size: int | None, num_microbatches: int) -> None:
    rules = {
        "num_gpus": (num_gpus, 1 <= num_gpus <= MOST_GPUS, f"must be between 1 and {MOST_GPUS:,}"),
        "bandwidth_bytes_per_s": (bandwidth, 0.0 < bandwidth < np.inf, "must be above 0"),
        "batch_size": (batch_size, batch_size is None or batch_size >= 1, "must be at least 1"),
        "num_microbatches": (num_microbatches, 1 <= num_microbatches <= MOST_GPUS, "must be at least 1"),
    }
    check_rules(rules)


def _scaled(trace: OperatorTrace, ratio: float) -> OperatorTrace:
    """Scales all operators and all tensors, as TrioSim does."""
    tensors = replace(trace.tensors, num_bytes=np.floor(ratio * trace.tensors.num_bytes))
    return replace(trace, tensors=tensors, duration_s=ratio * trace.duration_s)


@dataclass(kw_only=True)
class _Build:
    trace: OperatorTrace
    topology: Topology
    graph: TaskGraphBuilder = field(default_factory=TaskGraphBuilder)
    collectives: Collectives = field(init=False)
    ranks: Integers = field(init=False)

    def __post_init__(self) -> None:
        self.collectives = Collectives(graph=self.graph, router=Router(self.topology))
        self.ranks = self.graph.add_resources(self.topology.num_ranks)

    def add_step(self) -> Integers:
        """Adds all operators on every accelerator, `(num_gpus, n)`."""
        every = np.arange(len(self.trace))
        return self._add_run(every, self.trace.duration_s, np.full(len(self.ranks), NONE))

    def add_data_parallel(self) -> None:
        """Adds the step, and after it the sum of all gradients at once."""
        done = self.add_step()[:, -1]
        self.collectives.ring_all_reduce(self.ranks, self.trace.parameter_bytes, done)

    def add_distributed(self) -> None:
        """Adds the step and, in parallel, what TrioSim sends for each backward operator."""
        steps = self.add_step()
        before = np.full(len(self.ranks), NONE)
        for operator, num_bytes in self._buckets():
            begin = self.graph.add("bucket", after=[steps[:, operator - 1], before])
            before = self.collectives.ring_all_reduce(self.ranks, num_bytes, begin)

    def add_tensor_parallel(self) -> None:
        """Adds the step with split operators, each followed by the exchange of its outputs."""
        trace, size = self.trace, len(self.ranks)
        made = trace.outputs.sums(trace.tensors.num_bytes) / size
        duration_s = np.where(trace.can_split, 1.0 / size, 1.0) * trace.duration_s
        before = np.full(size, NONE)
        for run in np.split(np.arange(len(trace)), np.flatnonzero(trace.can_split) + 1):
            if len(run):
                before = self._add_run(run, duration_s[run], before)[:, -1]
                if trace.can_split[run[-1]]:
                    before = self.collectives.ring_all_reduce(self.ranks, float(made[run[-1]]), before)

    def _buckets(self) -> Iterator[tuple[int, float]]:
        """Backward operators that read parameters, and the bytes that TrioSim sends for them.

        It sends those parameters, whether sent before or not, and each unsent one whose name comes later in the alphabet.
        """
        tensors = self.trace.tensors
        unsent = set(self.trace.parameters.tolist())
        known = frozenset(unsent)
        for operator in np.flatnonzero(self.trace.is_in(Phase.BACKWARD)).tolist():
            read = [number for number in self.trace.inputs.of(operator).tolist() if number in known]
            sent = list(read)
            for parameter in read:
                unsent.discard(parameter)
                later = {other for other in unsent if tensors.names[other] > tensors.names[parameter]}
                unsent -= later
                sent += sorted(later)
            if sent:
                yield operator, float(tensors.num_bytes[sent].sum())

    def _add_run(self, operators: Integers, duration_s: Floats, after: Integers) -> Integers:
        """Adds operators one after another on every accelerator, `(num_gpus, k)`."""
        names = self.graph.names([self.trace.names[operator] for operator in operators.tolist()])
        tasks = self.graph.add(names, duration_s=duration_s, resource=self.ranks[:, None])
        tasks = tasks.reshape(len(self.ranks), len(operators))
        self.graph.add_edges(after, tasks[:, 0])
        self.graph.add_edges(tasks[:, :-1], tasks[:, 1:])
        return tasks
