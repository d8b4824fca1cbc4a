"""Which attention kernel runs on an architecture, and how fast is it beside the one that was measured there?

The measured ones are FlashAttention-2 on Ampere, FlashAttention-3 on Hopper and TensorRT-LLM's on Blackwell
(`data/kernel_efficiency.csv`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simulator.compute import SEPARATE_KERNELS, Flags, KernelConstants
from simulator.model import AttentionKernel

FAMILIES_WITHOUT_FLASH = ("volta",)
"""Architectures that no FlashAttention supports: it needs Ampere or newer (README of Dao-AILab/flash-attention)."""
FAMILIES_BEYOND_FLASH_2 = ("hopper", "blackwell")
"""Architectures whose measured kernels use instructions that FlashAttention-2 does not know."""
FLASH_2_TIME_RATIO = 1.75
"""Time of FlashAttention-2 over that of FlashAttention-3 on H100, forward: 1.5 to 2.0 (arXiv 2407.08608, section 4.1)."""
FLASH_2_BACKWARD_TIME_RATIO = 1.625
"""The same backward: 1.5 to 1.75."""


def with_attention_kernel(
    constants: KernelConstants,
    attention: AttentionKernel,
    families: Sequence[str],
    *,
    first_flash_fraction: float,
) -> KernelConstants:
    """Returns published constants `(n,)` with those of the fused kernel that a name stands for on each architecture.

    V100 runs the memory-efficient kernels of PyTorch and xFormers, which keep no scores either; they have the pace of the
    first FlashAttention, wide heads being no faster. `with_first_flash` makes `flash-1` of what is returned.
    """
    if attention in SEPARATE_KERNELS:
        return constants
    is_older = np.isin(families, FAMILIES_WITHOUT_FLASH) & (attention != "flash-1")
    is_newer = np.isin(families, FAMILIES_BEYOND_FLASH_2) & (attention != "flash")
    forward_ratio = np.where(is_newer, FLASH_2_TIME_RATIO, 1.0)
    backward_ratio = np.where(is_newer, FLASH_2_BACKWARD_TIME_RATIO, 1.0)
    constants = with_first_flash(constants, first_flash_fraction, where=is_older)
    return replace(
        constants,
        attention_peak_fraction=constants.attention_peak_fraction * (1.0 / forward_ratio),
        attention_backward_fraction=constants.attention_backward_fraction * forward_ratio / backward_ratio,
    )


def with_first_flash(
    constants: KernelConstants, speed_fraction: float, *, head_dim: float = np.inf, where: Flags = True
) -> KernelConstants:
    """Returns the constants of fused attention of 2022-23: slower, and no faster for wide heads (arXiv 2205.14135).

    Narrow heads are no faster than today's, either.

    Args:
        constants: `(n,)`.
        speed_fraction: its pace over today's with the widest heads.
        head_dim: width of a head; left out: wide.
        where: rows that have it.
    """
    width_fraction = 1.0 / (1.0 + constants.attention_ramp_head_dim / head_dim)
    speed = np.minimum(speed_fraction, width_fraction)
    return replace(
        constants,
        attention_peak_fraction=constants.attention_peak_fraction * np.where(where, speed, 1.0),
        attention_ramp_head_dim=np.where(where, 0.0, constants.attention_ramp_head_dim),
    )
