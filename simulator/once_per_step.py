"""What does a rank do with all of its weights once per step, however many ranks share the optimizer's states?

It sets the buffer of its gradients to zero, and casts weights whose products are in 8 or 4 bits, as long as gradients and
weights are whole on it. DeepSpeed's step in fp16, whose bytes are given (`step_bytes`), has this in them.
"""

from __future__ import annotations

import numpy as np

from simulator.casts import is_cast
from simulator.chunks import Chunks
from simulator.memory import weights_of_layers
from simulator.rank import Rank
from simulator.table import Floats, Integers


def once_per_step_bytes(rank: Rank, chunks: Chunks, stages: Integers, weights: Floats) -> Floats:
    """Returns the bytes that this moves on a rank of stages `(s, n)`.

    Args:
        rank: the rank.
        chunks: the layers of its chunks.
        stages: stages, `(s, n)`.
        weights: trained weights of these on the rank, whole.
    """
    workload, plans = rank.workload, rank.plans
    zeroed = np.where(plans.zero_stage < 2, float(workload.gradient_bytes), 0.0)
    if workload.step_bytes is not None:
        zeroed = np.zeros_like(zeroed)
    if not np.any(is_cast(plans)):
        return np.asarray(zeroed * weights)
    dense, expert = (
        chunks.on_stage(number, stages) for number in (chunks.num_dense_layers, chunks.num_expert_layers)
    )
    cast = np.where(plans.zero_stage < 3, rank.cast_bytes, 0.0)
    return np.asarray(zeroed * weights + cast * weights_of_layers(workload, plans, dense, expert))
