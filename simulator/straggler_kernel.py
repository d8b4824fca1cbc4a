"""How long does the pipeline of each replica take when no two micro-batches are alike?

The kernel of `simulator.pipeline` in its own schedule, with a duration for every chunk, micro-batch and direction.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import compiled
from simulator.pipeline_kernel import play_lanes
from simulator.pipeline_order import pipeline_order
from simulator.pipeline_state import NUM_LANES, FloatArray, Lanes, new_lanes
from simulator.pipeline_turns import ONE_F_ONE_B, PipelineShape


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
    shape = PipelineShape(ONE_F_ONE_B, num_stages, num_chunks, num_micro_batches)
    order = pipeline_order(shape, False, True)  # noqa: FBT003  (numba takes no keywords here)
    lanes = new_lanes(shape, NUM_LANES, order.num_rows, 0, num_micro_batches)
    lanes.send_s[:] = send_s if num_stages > 1 else 0.0
    end_s = np.empty((num_replicas, num_stages))
    for first in range(0, num_replicas, NUM_LANES):
        last = min(first + NUM_LANES, num_replicas)
        _load_durations(forward_s[first:last], backward_s[first:last], lanes)
        play_lanes(order, lanes)
        end_s[first:last] = lanes.last_end_s[:, : last - first].T
    return end_s


@compiled
def _load_durations(forward_s: FloatArray, backward_s: FloatArray, lanes: Lanes) -> None:
    """Copies the durations `(R, C, m)` of some replicas into a lane each."""
    num_replicas, num_chunks, num_micro_batches = forward_s.shape
    for lane in range(num_replicas):
        for chunk in range(num_chunks):
            for micro_batch in range(num_micro_batches):
                row = chunk * num_micro_batches + micro_batch
                lanes.duration_s[row, lane] = forward_s[lane, chunk, micro_batch]
                row += num_chunks * num_micro_batches
                lanes.duration_s[row, lane] = backward_s[lane, chunk, micro_batch]
