"""What is an operator trace to be simulated for? The words of the command line, as the types of the simulator.

ddp, dp, fsdp, tp, pp    all accelerators in one kind of parallelism
ddp=2,tp=4,pp=8          hybrids; the degrees multiply to the number of accelerators
hop                      decentralised, see `planner.trace.hop_simulation`
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from planner.deep.network_file import load_network
from planner.input.problems import nearest
from simulator import catalog
from simulator.argument_names import Argument, Words
from simulator.deep.collectives.collective_forms import Algorithm
from simulator.deep.networks.described_network import MOST_FULL
from simulator.deep.networks.slow_links import slowed
from simulator.deep.networks.topologies import cluster, fully_connected, photonic, ring, switch
from simulator.deep.networks.topology import Topology
from simulator.deep.traced_steps.operator_model import Rates
from simulator.deep.traces.parallelism import MOST_MICROBATCHES, GradientSync, Parallelism, PipelineOrder
from simulator.deep.traces.read import read_operator_trace
from simulator.deep.traces.trace import OperatorTrace
from simulator.domain.hardware import Accelerator
from simulator.errors import InputError, Problem
from simulator.record import Choice
from simulator.table import Floats
from simulator.units import GIGA, MICROSECOND

REPLICAS = {
    "ddp": GradientSync.BUCKETS,
    "dp": GradientSync.AT_THE_END,
    "fsdp": GradientSync.SHARDED,
}
"""Kinds that set the number of replicas, and how these sum their gradients."""
KINDS = (*REPLICAS, "tp", "pp")
HOP = "hop"
"""Decentralised training, in which no two workers need be in the same iteration."""


class NetworkKind(Choice):
    """Networks that a word can name; network files have more (`planner.deep.network_file`)."""

    RING = "ring"
    SWITCH = "switch"
    FULL = "full"
    """A cable between every two accelerators."""
    NODES = "nodes"
    """Nodes with a switch inside and a card for each accelerator, on rails."""
    PHOTONIC = "photonic"
    """Circuits between any two accelerators, a few at a time, set up when they are needed."""


class Rules(Choice):
    """Whose rules are used to spread a trace over accelerators."""

    CAPPLAN = "capplan"
    TRIOSIM = "triosim"
    """The rules of TrioSim's published code, for comparison with it."""


class Times(Choice):
    """How operator times are scaled to another batch size."""

    PROPORTIONAL = "proportional"
    """In proportion to the batch."""
    FITTED = "fitted"
    """By lines fitted to the operators of the trace, whose intercepts do not grow."""


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """A request to simulate one trace."""

    path: Path
    """Folder written by TrioSim's tracer, or file of a trace."""
    num_gpus: int
    parallel: str = "ddp"
    """Kind or degrees of parallelism."""
    batch_size: int | None = None
    """Samples of each replica; default: those of the trace."""
    trace_batch_size: int | None = None
    """Samples of the trace, if it does not say."""
    num_microbatches: int | None = None
    """Number of micro-batches; default: as many as stages, or one under TrioSim's rules."""
    order: PipelineOrder = PipelineOrder.ONE_F_ONE_B
    num_chunks: int = 1
    """Runs of layers on each stage; above 1 the pipeline is interleaved."""
    network: NetworkKind = NetworkKind.RING
    network_file: Path | None = None
    """Network file that replaces `network` and all of the following fields up to `set_up_s`."""
    bandwidth_bytes_per_s: float = 65 * GIGA
    """Bandwidth of a cable, in one direction; for nodes, that of an accelerator to the switch of its node."""
    latency_s: float = MICROSECOND
    """Latency of a cable."""
    ramp_s: float = 0.0
    """Ramp of a cable: what small collectives lose (`simulator.deep.networks.topology`); in `NODES`, of cables inside nodes."""
    gpus_per_node: int = 8
    card_bytes_per_s: float = 50 * GIGA
    """Bandwidth of a network card of a node."""
    num_ports: int = 8
    """Most circuits of an accelerator at one time, in `PHOTONIC` (TrioSim's default)."""
    set_up_s: float = 0.02
    """Time from the request for a circuit until it is up (TrioSim's default)."""
    slow_links: Mapping[str, float] = field(default_factory=dict)
    """Share of their bandwidth that slow links keep, see `simulator.deep.networks.slow_links`."""
    collectives: Algorithm = Algorithm.AUTO
    """Algorithm of all-reduces, all-gathers and reduce-scatters."""
    speeds: dict[int, float] = field(default_factory=dict)
    """Relative speed of accelerators that are slower or faster than that of the trace, by number."""
    rules: Rules = Rules.CAPPLAN
    times: Times = Times.PROPORTIONAL
    traced_on: str | None = None
    """Accelerator of the trace, by its name in the catalogue; given together with `on`."""
    on: str | None = None
    """Accelerator for which the step is simulated."""
    hop: str = ""
    """Settings of `--parallel hop`: `KEY=VALUE,...`, see `planner.trace.hop_simulation`."""
    offload: str = ""
    """Settings of a limited memory: `KEY=VALUE,...`, see `planner.trace.offload_request`."""

    def read(self) -> OperatorTrace:
        """Returns the trace.

        Raises:
            InputError: it is invalid, or the number of samples is given although the trace says it.
        """
        if self.trace_batch_size is not None and self.path.is_file():
            rule = (
                "is read with folders of TrioSim's only: this file says how many samples it has; leave it out"
            )
            raise _broken("trace_batch_size", str(self.trace_batch_size), rule)
        return read_operator_trace(self.path, batch_size=self.trace_batch_size)

    def parallelism(self) -> Parallelism:
        """Returns the degrees.

        Raises:
            InputError: a kind is unknown or given twice, or degrees do not multiply to the number of accelerators.
        """
        degrees = self._degrees()
        num_stages = degrees.get("pp", 1)
        kinds = [kind for kind in degrees if kind in REPLICAS]
        if len(kinds) > 1:
            rule = f"{' and '.join(sorted(kinds))} each say how many replicas: give one of them"
            raise _broken("parallel", self.parallel, rule)
        kind = kinds[0] if kinds else "ddp"
        found = Parallelism(
            data_parallel=degrees.get(kind, 1),
            tensor_parallel=degrees.get("tp", 1),
            pipeline_parallel=num_stages,
            num_microbatches=num_stages if self.num_microbatches is None else self.num_microbatches,
            order=self.order,
            num_chunks=self.num_chunks,
            sync=REPLICAS[kind],
        )
        if found.num_gpus != self.num_gpus:
            multiply = f"the degrees multiply to {found.num_gpus}, and "
            rule = Words(multiply, Argument("num_gpus"), f" is {self.num_gpus}")
            raise _broken("parallel", self.parallel, rule)
        return found

    def divided(self, trace: OperatorTrace) -> Parallelism:
        """Returns the degrees if a trace can be divided that way, into micro-batches of whole samples.

        Raises:
            InputError: as for `parallelism`; or the trace cannot be divided that way, or an option has no effect.
        """
        found = self.parallelism()
        found.check(trace, self.batch_size)
        num_samples, num_parts = self.batch_size or trace.batch_size, found.num_microbatches
        if num_samples % num_parts:
            whole = [parts for parts in range(1, MOST_MICROBATCHES + 1) if num_samples % parts == 0]
            place = bisect(whole, num_parts)
            near = ", ".join(map(str, whole[place - 1 : place + 1]))
            usual = "is as many as stages, and " if self.num_microbatches is None else ""
            rule = f"{usual}must divide the {num_samples:,} samples of a replica; nearest: {near}"
            raise _broken("num_microbatches", str(num_parts), rule)
        if self.order is not PipelineOrder.ONE_F_ONE_B and num_parts == 1:
            why = "orders micro-batches, and a batch is one: leave it out, or give "
            rule = Words(why, Argument("num_microbatches"))
            raise _broken("order", self.order.value, rule)
        return found

    def _degrees(self) -> dict[str, int]:
        degrees: dict[str, int] = {}
        for pair in self.parallel.split(","):
            kind, equals, number = (part.strip() for part in pair.partition("="))
            if kind == HOP:
                raise _broken("parallel", pair, "stands alone, and only in trace simulate")
            if kind not in KINDS:
                raise _broken("parallel", pair, f"must begin with a kind; {nearest(kind, (*KINDS, HOP))}")
            if kind in degrees:
                raise _broken("parallel", pair, "is given twice")
            if equals and not (number.isascii() and number.isdigit() and 0 < len(number) < 10):
                raise _broken("parallel", pair, "needs a whole number behind the equals sign")
            degrees[kind] = int(number) if equals else self.num_gpus
        return degrees

    def topology(self) -> Topology:
        """Returns the network.

        Raises:
            InputError: the file is invalid or has too few accelerators, they do not fill nodes, or a slow link does not exist.
        """
        if self.network_file is None:
            return slowed(self._ramped(self._named_topology()), self.slow_links)
        found = load_network(self.network_file).build()
        if self.num_gpus > found.num_ranks:
            rule = f"must be at most {found.num_ranks:,}, the accelerators of {self.network_file}"
            raise _broken("num_gpus", str(self.num_gpus), rule)
        return slowed(found, self.slow_links)

    def _named_topology(self) -> Topology:
        size, bandwidth, latency_s = self.num_gpus, self.bandwidth_bytes_per_s, self.latency_s
        match self.network:
            case NetworkKind.RING:
                return ring(size, bandwidth, latency_s)
            case NetworkKind.SWITCH:
                return switch(size, bandwidth, latency_s)
            case NetworkKind.PHOTONIC:
                self._require_few()
                return photonic(size, bandwidth, latency_s, num_ports=self.num_ports, set_up_s=self.set_up_s)
            case NetworkKind.FULL:
                self._require_few()
                return fully_connected(size, bandwidth, latency_s)
            case NetworkKind.NODES:
                if size % self.gpus_per_node:
                    rule = f"must be a multiple of {self.gpus_per_node}, the accelerators of a node"
                    raise _broken("num_gpus", str(size), rule)
                return cluster(
                    size // self.gpus_per_node,
                    self.gpus_per_node,
                    scale_up_bytes_per_s=bandwidth,
                    scale_up_latency_s=latency_s,
                    card_bytes_per_s=self.card_bytes_per_s,
                    fabric_latency_s=latency_s,
                )

    def _ramped(self, made: Topology) -> Topology:
        if self.network is not NetworkKind.NODES:
            return made.with_ramp(self.ramp_s)
        switches = self.num_gpus + np.arange(self.num_gpus // self.gpus_per_node)
        is_inside = np.isin(made.source, switches) | np.isin(made.target, switches)
        return made.with_ramp(np.where(is_inside, self.ramp_s, 0.0))

    def _require_few(self) -> None:
        if self.num_gpus > MOST_FULL:
            rule = f"must be at most {MOST_FULL:,} with a cable or circuit from each to each"
            raise _broken("num_gpus", str(self.num_gpus), rule)

    def rates(self) -> tuple[Rates, Rates] | None:
        """Returns the rates of the trace's accelerator and of the other one; `None` if both are the same.

        Raises:
            InputError: only one is named, or one is not in the catalogue.
        """
        if self.traced_on is None and self.on is None:
            return None
        if self.traced_on is None or self.on is None:
            rule = Words("needs ", Argument("traced_on"), ", and the other way round: name both")
            raise _broken("on", self.on or "", rule)
        one = catalog.accelerator(self.traced_on, path=Argument("traced_on"))
        other = catalog.accelerator(self.on, path=Argument("on"))
        return _rates(one), _rates(other)

    def speed(self) -> Floats:
        """Returns the speed of each accelerator; raises `InputError` for one that does not exist."""
        speed = np.ones(self.num_gpus)
        for rank, factor in self.speeds.items():
            if not 0 <= rank < self.num_gpus:
                rule = f"must be an accelerator, 0 to {self.num_gpus - 1}"
                raise _broken("speeds", str(rank), rule)
            speed[rank] = factor
        return speed


def _rates(accelerator: Accelerator) -> Rates:
    return Rates(flop_per_s=accelerator.bf16_flop_per_s, memory_bytes_per_s=accelerator.memory_bytes_per_s)


def _broken(argument: str, value: str, rule: str) -> InputError:
    return InputError([Problem(path=Argument(argument), value=value[:60], rule=rule)])
