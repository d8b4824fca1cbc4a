"""How long does the pipeline of each replica take when no two micro-batches are alike?

The kernel of `simulator.pipeline` in its own schedule, with a duration for every chunk, micro-batch and direction.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import compiled
from simulator.pipeline_kernel import play_design
from simulator.pipeline_state import DURATION, FloatArray, PipelineDesign, Records, allocated_workspace


@compiled
def play_replicas(
    num_stages: int, send_s: float, forward_s: FloatArray, backward_s: FloatArray
) -> FloatArray:
    """Plays one step of every replica, without traffic between replicas.

    Args:
        num_stages: p.
        send_s: transfer between consecutive chunks; the receiver waits, the sender goes on.
        forward_s: `(R, C, m)` forwards by replica, chunk in model order and micro-batch; chunk c is on stage c mod p.
        backward_s: `(R, C, m)` backwards.

    Returns:
        `(R, p)` when each stage ends its last backward.
    """
    num_replicas, num_chunks, num_micro_batches = forward_s.shape
    sends_s, sender_waits = (send_s, False) if num_stages > 1 else (0.0, False)
    design = PipelineDesign(num_stages, num_chunks, num_micro_batches, 0, sends_s, sender_waits)
    work = allocated_workspace(num_chunks, num_stages, (num_chunks, num_micro_batches))
    for chunk in range(num_chunks):
        work.chunks[chunk].gather_s = 0.0
    durations = np.empty((num_chunks, num_micro_batches), dtype=DURATION)
    end_s = np.empty((num_replicas, num_stages))
    for replica in range(num_replicas):
        _load_durations(forward_s[replica], backward_s[replica], durations)
        play_design(design, durations, work.chunks, work.stages, work.spans, is_in_full=True)
        for stage in range(num_stages):
            end_s[replica, stage] = work.spans[stage, num_micro_batches - 1].backward_end_s
    return end_s


@compiled
def _load_durations(forward_s: FloatArray, backward_s: FloatArray, durations: Records) -> None:
    """Copies the durations `(C, m)` of one replica."""
    for chunk in range(forward_s.shape[0]):
        for micro_batch in range(forward_s.shape[1]):
            durations[chunk, micro_batch].forward_s = forward_s[chunk, micro_batch]
            durations[chunk, micro_batch].backward_s = backward_s[chunk, micro_batch]
