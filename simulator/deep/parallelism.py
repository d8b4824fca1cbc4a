"""How is a trace spread over accelerators? Degrees of parallelism, micro-batches, and how gradients are added up."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.deep.trace import OperatorTrace
from simulator.errors import InputError, Problem
from simulator.record import Choice
from simulator.table import Floats, Integers
from simulator.units import MIB

MOST_GPUS = 65_536
MOST_MICROBATCHES = 4_096


class PipelineOrder(Choice):
    """In which order a stage works on its micro-batches."""

    GPIPE = "gpipe"
    """All forward, then all backward, the last one first (Huang et al. 2019)."""
    ONE_F_ONE_B = "1f1b"
    """As few forward as fill the pipeline, then one backward for each forward (Narayanan et al. 2019)."""


class GradientSync(Choice):
    """When replicas add up their gradients."""

    BUCKETS = "buckets"
    """While the backward pass runs, bucket by bucket (PyTorch's DistributedDataParallel)."""
    AT_THE_END = "at_the_end"
    """All of them, when the backward pass is over."""
    SHARDED = "sharded"
    """Each replica keeps a part of all weights, which are gathered layer by layer; see `simulator.deep.sharded`."""


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """How one step is divided among accelerators."""

    data_parallel: int = 1
    """Replicas, each with a batch of its own."""
    tensor_parallel: int = 1
    """Accelerators that share each operator that can be split."""
    pipeline_parallel: int = 1
    """Stages."""
    num_microbatches: int = 1
    """Parts in which a replica's batch passes through; gradients are added up over all of them."""
    order: PipelineOrder = PipelineOrder.ONE_F_ONE_B
    sync: GradientSync = GradientSync.BUCKETS
    first_bucket_bytes: float = MIB
    """The first bucket is small, so that traffic begins early (PyTorch's `_DEFAULT_FIRST_BUCKET_BYTES`)."""
    bucket_bytes: float = 25 * MIB
    """A bucket is full from here on (PyTorch's `bucket_cap_mb`)."""

    @property
    def num_gpus(self) -> int:
        """Accelerators in all."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel

    def ranks(self) -> Integers:
        """Returns the accelerators `(stages, replicas, parts)`: parts of an operator next to each other, stages far."""
        shape = (self.pipeline_parallel, self.data_parallel, self.tensor_parallel)
        return np.arange(self.num_gpus).reshape(shape)

    def check(self, trace: OperatorTrace, batch_size: int | None = None, speed: Floats | None = None) -> None:
        """Raises `InputError` with all rules that the division of a trace breaks.

        Args:
            trace: what is divided.
            batch_size: samples of each replica; left out: those of the trace.
            speed: `(num_gpus,)` of each accelerator over that of the trace; left out: all as fast.
        """
        problems = [*self._out_of_range()]
        if batch_size is not None and batch_size < self.num_microbatches:
            rule = f"must be at least {self.num_microbatches}, the number of micro-batches"
            problems.append(Problem(path="batch_size", value=str(batch_size), rule=rule))
        if speed is not None and not (len(speed) == self.num_gpus and (speed > 0).all()):
            rule = f"must be above 0 for each of {self.num_gpus} accelerators"
            problems.append(Problem(path="speed", value=str(speed.tolist())[:60], rule=rule))
        if self.pipeline_parallel > trace.num_layers:
            rule = f"must be at most {trace.num_layers}, the layers of {trace.name!r}"
            problems.append(Problem(path="pipeline_parallel", value=str(self.pipeline_parallel), rule=rule))
        if self.tensor_parallel > 1 and not trace.can_split.any():
            rule = f"must be 1: no operator of {trace.name!r} can be split"
            problems.append(Problem(path="tensor_parallel", value=str(self.tensor_parallel), rule=rule))
        if problems:
            raise InputError(problems)

    def _out_of_range(self) -> list[Problem]:
        limits = {
            "data_parallel": MOST_GPUS,
            "tensor_parallel": MOST_GPUS,
            "pipeline_parallel": MOST_GPUS,
            "num_microbatches": MOST_MICROBATCHES,
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
    """Returns what a stage does, in order: whether it is a forward pass, and of which micro-batch."""
    forward = [(True, microbatch) for microbatch in range(num_microbatches)]
    if order is PipelineOrder.GPIPE:
        return [*forward, *((False, microbatch) for microbatch in reversed(range(num_microbatches)))]
    num_ahead = min(num_stages - stage, num_microbatches)
    turns = forward[:num_ahead]
    for microbatch in range(num_microbatches):
        turns.append((False, microbatch))
        turns += forward[num_ahead + microbatch : num_ahead + microbatch + 1]
    return turns
