"""How is a trace spread over accelerators? Degrees of parallelism, micro-batches, and how gradients are all-reduced."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.deep.traces.trace import OperatorTrace
from simulator.errors import InputError, Problem
from simulator.record import Choice
from simulator.table import Floats, Integers
from simulator.units import MIB

MOST_GPUS = 65_536
MOST_MICROBATCHES = 4_096


class PipelineOrder(Choice):
    """The order in which a stage works on its micro-batches."""

    GPIPE = "gpipe"
    """All forward passes, then all backward passes, the last micro-batch first (Huang et al. 2019)."""
    ONE_F_ONE_B = "1f1b"
    """As few forward passes as fill the pipeline, then one backward for each forward (Narayanan et al. 2019)."""


class GradientSync(Choice):
    """When replicas sum their gradients."""

    BUCKETS = "buckets"
    """While the backward pass runs, bucket by bucket (PyTorch's DistributedDataParallel)."""
    AT_THE_END = "at_the_end"
    """All gradients, when the backward pass is over."""
    SHARDED = "sharded"
    """Each replica keeps a part of all weights, which are gathered layer by layer (`simulator.deep.traced_steps.sharded`)."""


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """How one step is divided among accelerators."""

    data_parallel: int = 1
    """Number of replicas, each with a batch of its own."""
    tensor_parallel: int = 1
    """Number of accelerators that share each operator that can be split."""
    pipeline_parallel: int = 1
    """Stages."""
    num_microbatches: int = 1
    """Number of micro-batches into which a replica's batch is divided; gradients are accumulated over all of them."""
    order: PipelineOrder = PipelineOrder.ONE_F_ONE_B
    num_chunks: int = 1
    """Number of runs of layers on each stage; above 1 the pipeline is interleaved (Narayanan et al. 2021)."""
    sync: GradientSync = GradientSync.BUCKETS
    first_bucket_bytes: float = MIB
    """Size of the first bucket; it is small, so that traffic begins early (PyTorch's `_DEFAULT_FIRST_BUCKET_BYTES`)."""
    bucket_bytes: float = 25 * MIB
    """Size from which on any other bucket is full (PyTorch's `bucket_cap_mb`)."""

    @property
    def num_gpus(self) -> int:
        """Total number of accelerators."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel

    def ranks(self) -> Integers:
        """Returns the accelerators `(stages, replicas, parts)`: parts of an operator are consecutive, stages far apart."""
        shape = (self.pipeline_parallel, self.data_parallel, self.tensor_parallel)
        return np.arange(self.num_gpus).reshape(shape)

    def check(self, trace: OperatorTrace, batch_size: int | None = None, speed: Floats | None = None) -> None:
        """Raises `InputError` with all rules that the division of a trace breaks.

        Args:
            trace: the trace that is divided.
            batch_size: samples of each replica; default: those of the trace.
            speed: `(num_gpus,)` speed of each accelerator relative to that of the trace; default: all are as fast.
        """
        problems = [*self._out_of_range()]
        if batch_size is not None and batch_size < self.num_microbatches:
            rule = f"must be at least {self.num_microbatches}, the number of micro-batches"
            problems.append(Problem(path="batch_size", value=str(batch_size), rule=rule))
        if speed is not None and not (len(speed) == self.num_gpus and (speed > 0).all()):
            rule = f"must be above 0 for each of {self.num_gpus} accelerators"
            problems.append(Problem(path="speed", value=str(speed.tolist())[:60], rule=rule))
        problems += self._pipeline_problems(trace)
        if self.tensor_parallel > 1 and not trace.can_split.any():
            rule = f"must be 1: no operator of {trace.name!r} can be split"
            problems.append(Problem(path="tensor_parallel", value=str(self.tensor_parallel), rule=rule))
        if problems:
            raise InputError(problems)

    def _pipeline_problems(self, trace: OperatorTrace) -> list[Problem]:
        num_stages, num_chunks = self.pipeline_parallel, self.num_chunks
        if num_stages > trace.num_layers:
            rule = f"must be at most {trace.num_layers}, the layers of {trace.name!r}"
            return [Problem(path="pipeline_parallel", value=str(num_stages), rule=rule)]
        if num_chunks == 1 or num_stages < 1:
            return []
        most = trace.num_layers // num_stages
        multiples = (
            f"needs micro-batches in multiples of the {num_stages} stages, not {self.num_microbatches}"
        )
        rules = {
            f"must be at most {most}, the layers of {trace.name!r} on a stage": num_chunks <= most,
            "must be 1 without a pipeline": num_stages > 1,
            "must be 1 in the order gpipe": self.order is PipelineOrder.ONE_F_ONE_B,
            multiples: self.num_microbatches % num_stages == 0,
        }
        broken = [rule for rule, is_kept in rules.items() if not is_kept]
        return [Problem(path="num_chunks", value=str(num_chunks), rule=rule) for rule in broken]

    def _out_of_range(self) -> list[Problem]:
        limits = {
            "data_parallel": MOST_GPUS,
            "tensor_parallel": MOST_GPUS,
            "pipeline_parallel": MOST_GPUS,
            "num_microbatches": MOST_MICROBATCHES,
            "num_chunks": MOST_GPUS,
        }
        problems = [
            Problem(path=name, value=str(getattr(self, name)), rule=f"must be between 1 and {most:,}")
            for name, most in limits.items()
            if not 1 <= getattr(self, name) <= most
        ]
        if not problems and self.num_gpus > MOST_GPUS:
            rule = f"must be at most {MOST_GPUS:,} accelerators in all"
            problems.append(Problem(path="num_gpus", value=str(self.num_gpus), rule=rule))
        problems += [
            Problem(path=name, value=str(getattr(self, name)), rule="must be above 0")
            for name in ("first_bucket_bytes", "bucket_bytes")
            if not getattr(self, name) > 0
        ]
        return problems


def stage_order(
    order: PipelineOrder, stage: int, num_stages: int, num_microbatches: int
) -> list[tuple[bool, int]]:
    """Returns the passes of a stage in order: whether each is forward, and its micro-batch."""
    forward = [(True, microbatch) for microbatch in range(num_microbatches)]
    if order is PipelineOrder.GPIPE:
        return [*forward, *((False, microbatch) for microbatch in reversed(range(num_microbatches)))]
    num_ahead = num_stages - stage
    turns = forward[:num_ahead]
    for microbatch in range(num_microbatches):
        turns.append((False, microbatch))
        turns += forward[num_ahead + microbatch : num_ahead + microbatch + 1]
    return turns


def interleaved_order(
    stage: int, num_stages: int, num_chunks: int, num_microbatches: int
) -> list[tuple[bool, int, int]]:
    """Returns the passes of a stage with several chunks in order: whether each is forward, its chunk, its micro-batch.

    Micro-batches pass through each chunk in groups of `num_stages`. The stage runs as few forward passes as keep all stages
    busy, then one backward for each forward (Narayanan et al. 2021, section 2.2).
    """
    num_passes = num_chunks * num_microbatches
    num_ahead = 2 * (num_stages - stage - 1) + (num_chunks - 1) * num_stages + 1
    turns = []
    for number in range(num_passes):
        group, within = divmod(number, num_stages * num_chunks)
        chunk, microbatch = within // num_stages, group * num_stages + within % num_stages
        turns.append((chunk, microbatch))
    forward = [(True, chunk, microbatch) for chunk, microbatch in turns]
    order = forward[:num_ahead]
    for number, (chunk, microbatch) in enumerate(turns):
        order.append((False, num_chunks - 1 - chunk, microbatch))
        order += forward[num_ahead + number : num_ahead + number + 1]
    return order
