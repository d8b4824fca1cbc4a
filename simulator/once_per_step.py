"""What does a rank do with all of its weights once per step, however many ranks share the optimizer's states?

It sets the buffer of its gradients to zero, and casts weights whose products are in 8 or 4 bits, as long as gradients and
weights are whole on it. DeepSpeed's step in fp16, whose bytes are given (`step_bytes`), has its zeros among them.
"""

from __future__ import annotations

import numpy as np

from simulator.cast_weights import once_per_step_cast_bytes
from simulator.casts import is_cast
from simulator.chunks import Chunks
from simulator.rank import Rank
from simulator.table import Floats, Integers
from simulator.trained_weights import StepWeights


def once_per_step_bytes(
    rank: Rank, chunks: Chunks, stages: Integers, weights: StepWeights, trained: Floats
) -> Floats:
    """Returns the bytes that this moves on a rank of stages `(s, n)`.

    Args:
        rank: the rank.
        chunks: its chunks.
        stages: stages, `(s, n)`.
        weights: weights of the chunks, `(n, C)`.
        trained: the trained ones of these stages on the rank, whole, `(s, n)`.
    """
    workload, plans = rank.workload, rank.plans
    has_zeros = (plans.zero_stage < 2) & (workload.step_bytes is None)
    zeroed = np.where(has_zeros, float(workload.gradient_bytes), 0.0) * trained
    if not np.any(is_cast(plans)):
        return zeroed
    return zeroed + chunks.on_stage(once_per_step_cast_bytes(rank, weights.together), stages)
