"""Which attention kernel ran a step? From the row's own column, its notes or its framework."""

from __future__ import annotations

import re
from typing import cast, get_args

from planner.measured.cells.told import Told
from planner.measured.cells.words import NOTHING_SAID, affirmed, is_denied
from planner.measured.frameworks.kernel_releases import has_flash_on_request, separate_kernels
from planner.measured.frameworks.releases import release_year
from planner.measured.software.first_years import possible_since
from planner.measured.software.framework_habits import OLD_FAMILIES, tells_habits
from simulator.domain.choices import AttentionKernel
from simulator.machine.attention_kernels import FAMILIES_WITHOUT_FLASH

LAST_FLASH_1_YEAR = 2022
"""FlashAttention-2 is of July 2023 (arXiv 2307.08691)."""
XFORMERS_YEAR = 2023
"""Year in which xFormers changed from the first FlashAttention to the second (release 0.0.21 of August)."""

_COLUMN = "attention"
_WORD = r"(?<![a-z])(?<!nvte_)flash"
"""Transformer Engine's `NVTE_FLASH_ATTN=0` leaves cuDNN's kernels."""
_FLASH = rf"{_WORD}(?:[-_ ]?(?:attention|attn))?"
_ANY_FLASH = re.compile(rf"{_WORD}[-_ ]?(?:attention|attn)", re.IGNORECASE)
_NO_FLASH = re.compile(rf"{_FLASH}(?![a-z])", re.IGNORECASE)
_XFORMERS = re.compile("xformers", re.IGNORECASE)


def _version(digit: int) -> str:
    number = rf"{digit}(?:\.\d+)*(?!\w)"
    return rf"(?:{_FLASH}[-_ =]*(?:v(?:ersion)?[-_. ]?)?|\bfa[-_]?v?){number}"


_NAMED: tuple[tuple[str, AttentionKernel], ...] = (
    (_version(3), "flash"),
    (r"cu-?dnn['s]*[-_ ](?:(?:fused|flash)[-_ ]?)?(?:attention|attn|sdpa|fa\b)", "flash"),
    (_version(2), "flash-2"),
    (r"\bflex[-_ ]?(?:attention|attn)", "flash-2"),
    (rf"{_version(1)}|{_FLASH}[-_ (]*triton|triton[-_ ]flash", "flash-1"),
    (
        r"\bunfused\b(?!\s+(?!attention|softmax|and\b)\w)",
        "unfused",
    ),
    (r"\b(?:eager|naive|vanilla) (?:attention|attn)\b", "eager"),
)
"""Words of each kernel; `flash` is what is made for the architecture, as FlashAttention-3 and cuDNN's are for Hopper.
PyTorch's FlexAttention comes near FlashAttention-2: 90 % of its speed forward, 85 % backward
(pytorch.org/blog/flexattention)."""


def told_kernel(told: Told, habit: AttentionKernel, family: str, precision: str) -> AttentionKernel:
    """Returns the kernel that a row states, or the habit of its framework, which is open if the framework says too little.

    A guessed release without fused attention is not assumed for sequences longer than its kernels supported.
    """
    written = told.text(_COLUMN).lower()
    if named := next((kernel for kernel in get_args(AttentionKernel) if kernel == written), None):
        return cast("AttentionKernel", named)
    is_old = family in OLD_FAMILIES and (possible_since(told) or 0) <= LAST_FLASH_1_YEAR
    reader = _Reader(told, habit, is_old=is_old)
    kernel, sequence_length = reader.of_words(written, precision), told.cells.count("seq_len")
    if kernel != "unfused" or not sequence_length:
        return kernel
    separate = separate_kernels(reader.framework, sequence_length)
    is_guessed = reader.year is None and _COLUMN in told.assumed and family not in FAMILIES_WITHOUT_FLASH
    return "flash-2" if separate == "eager" and is_guessed else separate


class _Reader:
    """Reads the kernel of one row from what is written."""

    def __init__(self, told: Told, habit: AttentionKernel, *, is_old: bool) -> None:
        self.told, self.habit, self.is_old = told, habit, is_old
        self.framework = told.framework.lower()
        self.year = release_year(self.framework)

    def of_words(self, written: str, precision: str) -> AttentionKernel:
        """Returns the kernel named in its own column, or else in notes or framework, or else the habit."""
        if written not in NOTHING_SAID:
            if found := self.kernel(_COLUMN, written):
                return found
            self.told.remark(_COLUMN, f"is not understood; taken as {self.habit}")
        text = "; ".join(self.told.text(column) for column in ("notes", "framework", "precision"))
        if found := self.kernel("notes", text):
            return found
        is_open = has_flash_on_request(self.framework, precision) or not tells_habits(self.framework)
        return self.told.default(_COLUMN, self.habit) if is_open else self.habit

    def kernel(self, column: str, text: str) -> AttentionKernel | None:
        """Returns the kernel that a text names; if it names several, the newest, with a remark."""
        found = list(dict.fromkeys(kernel for words, kernel in _NAMED if affirmed(words, text)))
        if len(found) > 1:
            self.told.remark(column, f"name the attention kernels {', '.join(found)}; taken as {found[0]}")
        if found:
            return found[0]
        if affirmed(_XFORMERS, text):
            return self._of_xformers()
        if affirmed(_ANY_FLASH, text):
            return self._of_some_version()
        return "unfused" if is_denied(_NO_FLASH, text) else None

    def _of_xformers(self) -> AttentionKernel:
        is_early = self.is_old if self.year is None else self.year <= LAST_FLASH_1_YEAR
        kernel: AttentionKernel = "flash-1" if is_early else "flash-2"
        return self.told.default(_COLUMN, kernel) if self.year in (None, XFORMERS_YEAR) else kernel

    def _of_some_version(self) -> AttentionKernel:
        if self.year is not None and self.year <= LAST_FLASH_1_YEAR:
            return "flash-1"
        if self.habit != "unfused" and tells_habits(self.framework):
            return self.habit
        return self.told.default(_COLUMN, "flash-2")
