"""How long does the pipeline of each replica take when all micro-batches differ?

The kernel of `simulator.pipeline.schedule` in any of its schedules, with a separate duration for every chunk, micro-batch and
direction.
"""

from __future__ import annotations

import numpy as np

from simulator.compiled import compiled
from simulator.pipeline.kernel import play_lanes
from simulator.pipeline.order import pipeline_order
from simulator.pipeline.shape import PipelineShape, num_directions
from simulator.pipeline.state import NUM_LANES, FloatArray, Lanes, new_lanes


@compiled
def play_replicas(
    num_stages: int,
    send_s: float,
    forward_s: FloatArray,
    backward_s: FloatArray,
    schedule: int,
    weight_gradient_fraction: float,
    group_size: int,
) -> FloatArray:
    """Plays one step of every replica, without traffic between replicas.

    Args:
        num_stages: p.
        send_s: transfer between consecutive chunks; the receiver waits, the sender goes on.
        forward_s: `(R, C, m)` forwards by replica, chunk in model order and micro-batch; chunk c is on stage c mod p, and
            under ZB-V and DualPipeV on stage 2 p - 1 - c from chunk p on.
        backward_s: `(R, C, m)` backwards, weight gradients included.
        schedule: code of `simulator.domain.plan.Schedule`.
        weight_gradient_fraction: share of a backward that a schedule with split backwards does later.
        group_size: micro-batches in turn of a chunk where a stage has several under 1F1B; 0: p.

    Returns:
        `(R, p)` when each stage has all its gradients.
    """
    num_replicas, num_chunks, num_micro_batches = forward_s.shape
    shape = PipelineShape(schedule, num_stages, num_chunks, num_micro_batches, group_size or num_stages)
    weight_fraction = weight_gradient_fraction if num_directions(schedule) == 3 else 0.0
    order = pipeline_order(shape, False, True)  # noqa: FBT003  (numba takes no keywords here)
    lanes = new_lanes(shape, NUM_LANES, order.num_rows, 0, num_micro_batches)
    lanes.send_s[:] = send_s if num_stages > 1 else 0.0
    end_s = np.empty((num_replicas, num_stages))
    for first in range(0, num_replicas, NUM_LANES):
        last = min(first + NUM_LANES, num_replicas)
        _load_durations(forward_s[first:last], backward_s[first:last], weight_fraction, lanes)
        play_lanes(order, lanes)
        end_s[first:last] = lanes.last_end_s[:, : last - first].T
    return end_s


@compiled
def _load_durations(
    forward_s: FloatArray, backward_s: FloatArray, weight_fraction: float, lanes: Lanes
) -> None:
    """Copies the durations `(R, C, m)` of some replicas into one lane each."""
    num_replicas, num_each_way = len(forward_s), forward_s[0].size
    forwards_s = forward_s.reshape(num_replicas, num_each_way)
    backwards_s = backward_s.reshape(num_replicas, num_each_way)
    has_weights = len(lanes.duration_s) > 3 * num_each_way
    for lane in range(num_replicas):
        for row in range(num_each_way):
            later_s = weight_fraction * backwards_s[lane, row]
            lanes.duration_s[row, lane] = forwards_s[lane, row]
            lanes.duration_s[num_each_way + row, lane] = backwards_s[lane, row] - later_s
            if has_weights:
                lanes.duration_s[2 * num_each_way + row, lane] = later_s
