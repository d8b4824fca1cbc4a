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
    """A step of a plan."""

    pipeline: PipelineShape
    sends_block: bool
    """Whether a stage stands still while it sends."""
    buckets: Buckets
    """Pieces of the gradients and parameters of every chunk, `(C,)`."""
    zero_stage: int
    reduces_every: int
    """Micro-batches of a chunk after which ZeRO-2 and ZeRO-3 reduce its gradients."""
    host_copy_s: Floats
    """`(2, C)` forward and backward, how much longer than a pass and its shards copies to main memory and back take."""
    optimizer_s: float

    @property
    def num_last_passes(self) -> int:
        """Micro-batches of the last interleaved group."""
        pipeline = self.pipeline
        return int(last_group_size(np.asarray(pipeline.num_micro_batches), np.asarray(pipeline.group_size)))
