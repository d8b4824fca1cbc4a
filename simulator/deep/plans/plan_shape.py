"""What does the fast depth say about a step, apart from the times of its parts? Order, pieces of traffic, and the update."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.pipeline.groups import last_group_size
from simulator.pipeline.shape import PipelineShape
from simulator.step.gradient_buckets import Buckets
from simulator.table import Floats


@dataclass(frozen=True, kw_only=True)
class StepShape:
    """The shape of a plan's step."""

    pipeline: PipelineShape
    sends_block: bool
    """Whether a stage is blocked while it sends."""
    buckets: Buckets
    """Number of pieces of the gradients and parameters of every chunk, `(C,)`."""
    zero_stage: int
    reduces_every: int
    """Number of a chunk's micro-batches after which ZeRO-2 and ZeRO-3 reduce its gradients."""
    host_copy_s: Floats
    """`(2, C)` forward and backward: how much longer copies to main memory and back take than a pass and its shards."""
    optimizer_s: float

    @property
    def num_last_passes(self) -> int:
        """Number of micro-batches in the last interleaved group."""
        pipeline = self.pipeline
        return int(last_group_size(np.asarray(pipeline.num_micro_batches), np.asarray(pipeline.group_size)))
