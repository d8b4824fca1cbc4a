"""How long do replicas take whose micro-batches are not alike? The pipeline kernel, fed with every duration."""

from __future__ import annotations

import numpy as np

from simulator.compiled import compiled
from simulator.pipeline_kernel import (
    DURATION,
    FloatArray,
    PipelineDesign,
    play_design,
    workspace_of,
)


@compiled
def play_replicas(
    num_stages: int, send_s: float, blocks_sender: bool, forward_s: FloatArray, backward_s: FloatArray
) -> FloatArray:
    """Plays one pipeline for each replica with its own durations."""
    num_replicas, num_chunks, num_micro_batches = forward_s.shape
    design = PipelineDesign(
        num_stages, num_chunks, num_micro_batches, 0, send_s if num_stages > 1 else 0.0, blocks_sender
    )
    work = workspace_of(num_chunks, num_stages, num_micro_batches)
    durations = np.empty((num_chunks, num_micro_batches), dtype=DURATION)
    end_s = np.empty((num_replicas, num_stages))
    for chunk in range(num_chunks):
        work.chunks[chunk].gather_s = 0.0
    for replica in range(num_replicas):
        for chunk in range(num_chunks):
            for micro_batch in range(num_micro_batches):
                durations[chunk, micro_batch].forward_s = forward_s[replica, chunk, micro_batch]
                durations[chunk, micro_batch].backward_s = backward_s[replica, chunk, micro_batch]
        play_design(design, durations, work.chunks, work.stages, work.spans)
        for stage in range(num_stages):
            end_s[replica, stage] = work.spans[stage, num_micro_batches - 1].backward_end_s
    return end_s
