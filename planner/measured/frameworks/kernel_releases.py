"""Which attention kernel does a release of a framework choose by default on an architecture?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from planner.measured.frameworks.names import is_torchtitan
from planner.measured.frameworks.releases import exact_month, release_month, release_year
from simulator.domain.choices import AttentionKernel
from simulator.machine.attention_kernels import FAMILIES_WITH_AOTRITON, FAMILIES_WITHOUT_FLASH

LAST_FLASH_2_YEAR = 2025
FIRST_CUDNN_MONTH = (2026, 3)
TORCHTITAN_CUDNN_MONTH = (2025, 10)
"""Until then PyTorch's `scaled_dot_product_attention` took FlashAttention-2 on Hopper. torchtitan asks for cuDNN's kernels
first since October 2025 (pull request 1776, in 0.2.0); PyTorch does since 2.11 of March 2026, the first release with a cuDNN
that it trusts (`check_prefer_cudnn_attention` in `sdp_utils.cpp`). The year counts where a release tells no month."""
FIRST_FLASH_YEAR = 2022
"""FlashAttention is of May 2022 (arXiv 2205.14135): what was measured before had separate kernels."""
FAMILIES_BEFORE_FLASH = ("volta", "ampere")
"""Architectures of GPUs that trained networks then."""
FUSED_ON_ALL_SINCE = 2023
"""Year of PyTorch 2.0, whose attention has memory-efficient kernels for architectures without FlashAttention."""
FLASH_ON_REQUEST = (
    r"^(?!.*(core(?!_?[rv])|transformer[- _]?engine|\bte\b))"
    r"(.*megatron-?(lm|deepspeed)|(?!.*fsdp).*deepspeed[- ]ulysses)"
)
FLASH_ON_REQUEST_YEAR = 2023
"""Year in which Megatron-LM, and DeepSpeed's fork of it, took FlashAttention on request only: `--use-flash-attn` is
`store_true` since December 2022, and `--transformer-impl` was `local` until April 2024 (`arguments.py`). Transformer Engine,
which 8 bits need, had fused attention without asking."""


@dataclass(frozen=True, kw_only=True)
class _Released:
    """A fused kernel that releases up to one month took on Hopper."""

    words: str
    last: tuple[int, int]
    kernel: AttentionKernel


_ON_HOPPER = (
    _Released(words="nemo|megatron|mcore|nvidia release", last=(2023, 6), kernel="flash-1"),
    _Released(words="nemo|megatron|mcore|nvidia release", last=(2023, 12), kernel="flash-2"),
    _Released(words="nemo(?!.*release)", last=(2024, 7), kernel="flash-2"),
)
"""Transformer Engine required FlashAttention-1 until 0.10 of June 2023 (`setup.py`), knows FlashAttention-2 since 0.11 and
preferred it until 1.1; since 1.2 of January 2024 it prefers cuDNN's attention on Hopper (release notes; `Select
FusedAttention on sm90`, its pull request 497). MLPerf's NeMo of 23.09 installed flash-attn 2.0.8 (`Dockerfile` of NVIDIA's
submission 3.1). NeMo's launcher of 24.01 to 24.07 set `NVTE_FUSED_ATTN: 0`, "Disable cudnn FA until we've tested it more",
for all runs (`launcher_scripts/conf/config.yaml`), but MLPerf's, which call themselves `Release`."""
_PRIMUS = "primus"
"""AMD's frameworks, whose torchtitan takes the kernels of Primus-Turbo, AITER's, by default (`use_turbo_attention` in its
configuration reference); its Megatron takes those of Transformer Engine or the same."""
_ULYSSES = "ulysses"
"""DeepSpeed-Ulysses recommends the Triton kernel of FlashAttention 1.0.4, and its scripts of 2023 take it
(`--use-flash-attn-triton` in `examples_deepspeed/sequence_parallel` of Megatron-DeepSpeed)."""

_LONGEST_FUSED_SOFTMAX = ((2020, 0), (2021, 2_048), (2023, 4_096))
"""Years until which Megatron-LM had no kernel for scale, mask and softmax together, or one for sequences up to these tokens,
and else took an operator for each (`is_kernel_available` in `fused_softmax.py`, and its history): the kernel is of September
2020, reaches 4,096 since January 2022 and 16,384 since July 2023; what came late in a year is taken to hold from the next."""
_LONGEST_SINCE = 16_384
_USUAL_YEAR = 2022


def separate_kernels(name: str, sequence_length: int) -> AttentionKernel:
    """Returns which separate kernels a release uses if it does not run fused attention."""
    year = release_year(name) or _USUAL_YEAR
    longest = next((tokens for last, tokens in _LONGEST_FUSED_SOFTMAX if year <= last), _LONGEST_SINCE)
    return "eager" if sequence_length > longest else "unfused"


def attention_kernel(habit: AttentionKernel, family: str, name: str, precision: str) -> AttentionKernel:
    """Returns the kernel that a habit means on an architecture with a release.

    On Blackwell PyTorch's attention is cuDNN's (pull request 1196 of torchtitan, 162073 of PyTorch), on AMD
    always its own. On V100 it is that of PyTorch, if of a year that has one, and else separate kernels.
    """
    year = release_year(name) or 0
    if family in FAMILIES_WITHOUT_FLASH:
        return habit if habit == "flash-2" and year >= FUSED_ON_ALL_SINCE else "unfused"
    if 0 < year < FIRST_FLASH_YEAR and family in FAMILIES_BEFORE_FLASH:
        return "unfused"
    if has_flash_on_request(name, precision):
        return "flash-1" if _ULYSSES in name else "unfused"
    if habit == "flash" and family == "hopper":
        return _on_hopper(name)
    is_of_pytorch = _takes_flash_2(name, year) and family != "blackwell"
    if family in FAMILIES_WITH_AOTRITON:
        is_of_pytorch = _PRIMUS not in name
    return "flash" if habit == "flash-2" and not is_of_pytorch else habit


def has_flash_on_request(name: str, precision: str) -> bool:
    """Returns whether a release uses fused attention only on request, so that its kernel is open if nobody states it."""
    is_released_so = release_year(name) == FLASH_ON_REQUEST_YEAR
    return is_released_so and precision != "fp8" and bool(re.search(FLASH_ON_REQUEST, name))


def _takes_flash_2(name: str, year: int) -> bool:
    month = exact_month(name)
    first = TORCHTITAN_CUDNN_MONTH if is_torchtitan(name) else FIRST_CUDNN_MONTH
    return year <= LAST_FLASH_2_YEAR if month is None else month < first


def _on_hopper(name: str) -> AttentionKernel:
    released = release_month(name)
    if released is None:
        return "flash"
    return next((x.kernel for x in _ON_HOPPER if released <= x.last and re.search(x.words, name)), "flash")
