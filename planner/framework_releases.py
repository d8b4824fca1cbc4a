"""Of which year is the software that ran a step, and which attention kernel did it take?"""

from __future__ import annotations

import re

from simulator.attention_kernels import FAMILIES_WITHOUT_FLASH
from simulator.model import AttentionKernel

LAST_FLASH_2_YEAR = 2025
"""Until then PyTorch's `scaled_dot_product_attention` took FlashAttention-2 on Hopper. torchtitan asks for cuDNN's kernels
first since October 2025 (pull request 1776); PyTorch does since 2.11, the first release with a cuDNN that it trusts
(`check_prefer_cudnn_attention` in `sdp_utils.cpp`)."""
LAST_COPIED_HEADS_YEAR = 2025
"""Until then torchtitan copied keys and values for the query heads that share them (its pull request 2259)."""
FUSED_ON_ALL_SINCE = 2023
"""Year of PyTorch 2.0, whose attention has memory-efficient kernels for architectures without FlashAttention."""

_YEAR = re.compile(r"(?<!\d)(20[12]\d)(?!\d)")
_MONTHLY = re.compile(r"(?<![\d.])(2\d)\.(?:0[1-9]|1[0-2])(?!\d)")
"""Releases that are called by year and month, such as 24.05."""
_MEGATRON_RELEASE = re.compile(r"megatron-?lm\W+(?:core_?)?[rv]*(\d)\.\d")
_CORE_SINCE = 2023
"""Releases of Megatron-LM were 1.0 to 3.0 until 2022; since Megatron-Core they are 0.1 and on."""


def release_year(name: str) -> int | None:
    """Returns the year of a release, the latest that a name tells; `None` where it tells none."""
    years = [int(year) for year in _YEAR.findall(name)] + [
        2000 + int(year) for year in _MONTHLY.findall(name)
    ]
    if not years and (release := _MEGATRON_RELEASE.search(name)):
        return _CORE_SINCE if release[1] == "0" else _CORE_SINCE - 1
    return max(years, default=None)


def attention_kernel(habit: AttentionKernel, family: str, year: int | None) -> AttentionKernel:
    """Returns the kernel that a habit comes to on an architecture.

    On Blackwell PyTorch's attention is cuDNN's (pull request 1196 of torchtitan, 162073 of PyTorch). On V100 it is that of
    PyTorch, if of a year that has one, and else separate kernels.
    """
    if family in FAMILIES_WITHOUT_FLASH:
        return habit if habit == "flash-2" and (year or 0) >= FUSED_ON_ALL_SINCE else "unfused"
    is_superseded = family == "blackwell" or (year or 0) > LAST_FLASH_2_YEAR
    return "flash" if habit == "flash-2" and is_superseded else habit
