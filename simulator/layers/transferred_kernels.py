"""How long do fused kernels take that no measured table has? As long as their bytes, or their products at a known speed.

That speed is the best of fused attention with heads of the kernel's width. Nomenclature as in `simulator.machine.compute`.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.hardware import Precision
from simulator.machine.rank import Rank
from simulator.table import Floats


def best_attention_flop_per_s(rank: Rank, head_dim: float) -> Floats:
    """Returns the speed of fused attention over long sequences forward, with heads of this width, `(n,)`."""
    best = rank.kernels.attention_peak_fraction / (1.0 + rank.kernels.attention_ramp_head_dim / head_dim)
    peak_flop_per_s = rank.offers.peak_flop_per_s[:, Precision.FP16.code]  # as bf16, which not all have
    return np.asarray(peak_flop_per_s * best)


def kernel_s(
    rank: Rank, num_bytes: Floats, flop: Floats, flop_per_s: Floats, *, slowdown: Floats | float
) -> Floats:
    """Returns the time of one kernel, `(n,)`.

    Args:
        rank: Ranks of the designs.
        num_bytes: What it reads and writes.
        flop: Operations of its matrix products.
        flop_per_s: Speed of these.
        slowdown: Factor on their time, such as that of a power cap.
    """
    return np.maximum(rank.memory_bound_s(num_bytes, 1.0), flop / flop_per_s * slowdown)
