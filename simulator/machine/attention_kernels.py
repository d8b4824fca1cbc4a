"""Which attention kernel runs on an architecture, and how fast is it relative to the kernel that was measured there?

The measured kernels are FlashAttention-2 on Ampere, FlashAttention-3 on Hopper and TensorRT-LLM's on Blackwell
(`data/kernel_efficiency.csv`). The resulting constants for MI300X and MI355X match the speed of AMD's own kernels (AITER).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from simulator.domain.choices import AttentionKernel
from simulator.machine.compute import SEPARATE_KERNELS, Flags, KernelConstants, Numbers
from simulator.table import Floats

FAMILIES_WITHOUT_FLASH = ("volta",)
"""Architectures that no FlashAttention supports: it needs Ampere or newer (README of Dao-AILab/flash-attention)."""
FLASH_2_TIME_RATIO = 1.77
"""Time of FlashAttention-2 over that of FlashAttention-3 on H100, forward: 1.63 to 1.84 with 1,024 to 16,384 tokens, causal,
heads of 128 (arXiv 2407.08608, figure 5)."""
FLASH_2_BACKWARD_TIME_RATIO = 1.72
"""Time of FlashAttention-2 over that of FlashAttention-3 on H100, backward: 1.63 to 1.76 (figure 6 of arXiv 2407.08608)."""
AOTRITON_TIME_RATIO = 1.61
"""Time of PyTorch's attention on AMD (AOTriton) over that of AITER's, forward: 1.61 on MI300X (M. Reshadi), 1.64 and 1.58 on
MI355X (HipKittens), at 16,384 tokens, causal, heads of 128; with 4,096 up to 2.5."""
AOTRITON_BACKWARD_TIME_RATIO = 4.28
"""Time of PyTorch's attention on AMD over that of AITER's, backward, on MI355X (HipKittens); 6.1 with 4,096 tokens."""
FAMILIES_WITH_AOTRITON = ("cdna3", "cdna4")
"""Architectures on which `flash-2` means PyTorch's attention, still so in 2026."""
FLASH_2_TIME_RATIOS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("hopper", "blackwell"), (FLASH_2_TIME_RATIO, FLASH_2_BACKWARD_TIME_RATIO)),
    **dict.fromkeys(FAMILIES_WITH_AOTRITON, (AOTRITON_TIME_RATIO, AOTRITON_BACKWARD_TIME_RATIO)),
}
"""Forward and backward time of `flash-2` over that of the architecture's own kernels, where the two differ: FlashAttention-2
does not use the instructions of Hopper and Blackwell, and PyTorch has compiled kernels on AMD."""
FIRST_FLASH_BACKWARD_FRACTION = 0.75
"""Backward speed over forward speed of the first FlashAttention: 25 to 35 % of the peak against 30 to 50 % (arXiv 2307.08691,
section 1). Neither of its passes divides a sequence."""
BACKWARD_FRACTION_OF_64 = 0.92
"""Backward speed over forward speed of fused attention with queries and keys of 64: mean of Ampere, Hopper and Blackwell, like
the next ones (docs/model/kernels.md names the sources)."""
BACKWARD_FRACTION_OF_128 = 0.86
"""Backward speed over forward speed of fused attention with heads of 128, for which the constants of all kernels hold."""
BACKWARD_FRACTION_OF_192 = 0.73
"""Backward speed over forward speed of fused attention with queries and keys of 192 and values of 128."""
BACKWARD_FRACTION_OF_256 = 0.58
"""Backward speed over forward speed of fused attention with heads of 256."""
BACKWARD_FRACTIONS: Mapping[float, float] = {
    64.0: BACKWARD_FRACTION_OF_64,
    128.0: BACKWARD_FRACTION_OF_128,
    192.0: BACKWARD_FRACTION_OF_192,
    256.0: BACKWARD_FRACTION_OF_256,
}
"""Backward speed over forward speed of fused attention by head width: linear in between, constant outside."""
CHOSEN_BACKWARD_FRACTION = 0.18
"""Backward speed over forward speed of attention to chosen tokens: TileLang's 115 TFLOP/s on H200 over FlashMLA's 640 on H800,
2,048 tokens chosen (READMEs of TileLang's `examples/deepseek_v32` and of FlashMLA). No faster kernel of Hopper has a published
speed, and no other architecture has any."""
CHOSEN_BACKWARD_FRACTION_OF_BLACKWELL = 0.47
"""The same on B200: 684 TFLOP/s of the cuDNN frontend (pull request 318, 2,048 tokens chosen) over FlashMLA's 1,450."""


def with_attention_kernel(
    constants: KernelConstants,
    attention: AttentionKernel,
    families: Sequence[str],
    *,
    first_flash_fraction: float,
) -> KernelConstants:
    """Returns published constants `(n,)` with those of the fused kernel that a name stands for on each architecture.

    V100 runs the memory-efficient kernels of PyTorch and xFormers, which also keep no scores; they run at the speed of the
    first FlashAttention, where wide heads are no faster. `with_first_flash` turns the returned constants into `flash-1`.
    """
    if attention in SEPARATE_KERNELS:
        return constants
    is_older = np.isin(families, FAMILIES_WITHOUT_FLASH) & (attention != "flash-1")
    has_own = attention == "flash"
    ratios = [(1.0, 1.0) if has_own else FLASH_2_TIME_RATIOS.get(family, (1.0, 1.0)) for family in families]
    forward_ratio, backward_ratio = np.array(ratios).reshape(-1, 2).T
    constants = with_first_flash(constants, first_flash_fraction, where=is_older)
    slower = replace(
        constants, attention_peak_fraction=constants.attention_peak_fraction * (1.0 / forward_ratio)
    )
    if attention == "flash-1":
        return slower
    fraction = constants.attention_backward_fraction * forward_ratio / backward_ratio
    return replace(slower, attention_backward_fraction=fraction)


def with_head_width(
    constants: KernelConstants, attention: AttentionKernel, families: Sequence[str], key_head_dim: float
) -> KernelConstants:
    """Returns constants `(n,)`, published or calibrated, with the backward speed for heads with keys of this width.

    There are no measurements for the first FlashAttention and its stand-in on V100; they are left as they are.
    """
    if attention in SEPARATE_KERNELS or attention == "flash-1":
        return constants
    is_older = np.isin(families, FAMILIES_WITHOUT_FLASH)
    return with_backward_ratio(constants, np.where(is_older, 1.0, backward_width_ratio(key_head_dim)))


def with_chosen_tokens(constants: KernelConstants, families: Sequence[str]) -> KernelConstants:
    """Returns constants `(n,)` with the backward speed of attention to the tokens that an indexer chooses.

    Gradients of keys are summed at places that the tokens choose, which takes most of the time.
    """
    is_blackwell = np.array([family == "blackwell" for family in families])
    fractions = np.where(is_blackwell, CHOSEN_BACKWARD_FRACTION_OF_BLACKWELL, CHOSEN_BACKWARD_FRACTION)
    return with_backward_ratio(constants, fractions / BACKWARD_FRACTION_OF_128)


def with_backward_ratio(constants: KernelConstants, ratio: Numbers) -> KernelConstants:
    """Returns the constants with fused attention faster backward by a ratio, but no faster than forward."""
    fraction = np.minimum(constants.attention_backward_fraction * ratio, 1.0)
    return replace(constants, attention_backward_fraction=fraction)


def backward_width_ratio(key_head_dim: Numbers) -> Floats:
    """Returns the backward speed of heads with keys of this width over that of heads of 128, at equal forward speed."""
    fractions = np.interp(key_head_dim, list(BACKWARD_FRACTIONS), list(BACKWARD_FRACTIONS.values()))
    return np.asarray(fractions / BACKWARD_FRACTION_OF_128)


def with_first_flash(
    constants: KernelConstants, speed_fraction: float, *, head_dim: float = np.inf, where: Flags = True
) -> KernelConstants:
    """Returns the constants of fused attention of 2022-23: slower, and no faster for wide heads (arXiv 2205.14135).

    Narrow heads are no faster than today's, either. The backward speed is that of the constants, published or calibrated, times
    `FIRST_FLASH_BACKWARD_FRACTION` over the same fraction of today's kernels.

    Args:
        constants: `(n,)`.
        speed_fraction: its speed over today's with the widest heads.
        head_dim: width of a head; left out: wide.
        where: rows that use it.
    """
    width_fraction = 1.0 / (1.0 + constants.attention_ramp_head_dim / head_dim)
    speed = np.minimum(speed_fraction, width_fraction)
    backward_speed = FIRST_FLASH_BACKWARD_FRACTION / BACKWARD_FRACTION_OF_128
    return replace(
        constants,
        attention_peak_fraction=constants.attention_peak_fraction * np.where(where, speed, 1.0),
        attention_ramp_head_dim=np.where(where, 0.0, constants.attention_ramp_head_dim),
        attention_backward_fraction=constants.attention_backward_fraction
        * np.where(where, backward_speed, 1.0),
        attention_backward_ramp_tokens=np.where(where, 0.0, constants.attention_backward_ramp_tokens),
        attention_backward_fill_ratio=np.where(where, 1.0, constants.attention_backward_fill_ratio),
    )
