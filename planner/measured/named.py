"""What do the notes of a measured run name that is not simulated? Each is remarked, so that it can explain the row's error."""

from __future__ import annotations

import re

from planner.measured.cells.notes import CHUNKED_LOSS
from planner.measured.cells.told import Told
from planner.measured.cells.words import NOTHING_SAID, affirmed
from planner.measured.software.muon import AS_ADAM, COLUMN, named_muon

_GRAPHS = re.compile(r"(?:full[-_ ]iteration )?cuda[- _]?graphs?(?![a-z])", re.IGNORECASE)
_NOT_SIMULATED: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"natural routing|unbalanced (experts|routing)|no (force|forced)[- ]balanc\w*", re.IGNORECASE
        ),
        "experts are simulated as balanced",
    ),
    (
        re.compile(r"\b(tiled?|tiling|chunked?)[-_ ]?(of )?(the )?(mlps?|ffn|compute)\b", re.IGNORECASE),
        "feed-forward networks are simulated whole, not in pieces",
    ),
    (CHUNKED_LOSS, "the loss is simulated in place on all logits, with 16 bits each"),
    (
        re.compile(r"\b(fp8|8[- ]?bit)[-_ ](attention|attn|dpa|mha)\b|\bfp8_(dpa|mha)\b", re.IGNORECASE),
        "the attention core is simulated in 16 bits",
    ),
)
"""Words in notes, and what is simulated instead."""
_LIMITED = re.compile(
    r"power[- ]?(cap|limit)\w*|capped (to|at) \d+ ?w\b|clock[- ]?lock\w*|locked (at|to) \d+ ?mhz",
    re.IGNORECASE,
)
_ADAM = re.compile(r"adam|distributed", re.IGNORECASE)
"""Words for Adam, and for the optimizer of Megatron that shards it."""
_STATES = r"(?:moments?|exp_avgs?|optim\w*[-_ ]states?|adam\w*[-_ ]states?|(?:master|main)[-_ ](?:weights?|param\w*))"
_16_BITS = r"(?:bf16|bfloat16|fp16|float16|fp8|16[- ]?bits?)"
_KEPT = r"[-_ :=(]*(?:(?:are|is|kept|stored|in|at|as)[- ]+)*"
_OPTIMIZERS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"\badafactor\b|\blion\b|\bshampoo\b|\bsoap\b|\bsgd\b|\blamb\b|\bsophia\b|\bgalore\b|\bademamix\b"
            r"|\badam[-_ ]?mini\b"
            r"|\b8[- ]?bit[-_ ](?:paged[-_ ])?(?:adam|optim)|(?<![a-z])adam\w*8[-_]?bit\b"
            rf"|\b(?:adam\w*|optim\w*(?:[-_ ]states?)?){_KEPT}(?:8[- ]?bits?|int8)\b",
            re.IGNORECASE,
        ),
        AS_ADAM,
    ),
    (
        re.compile(
            rf"precision[-_ ]aware[-_ ]optim\w*|\b{_16_BITS}[-_ ](?:adam[-_ ])?{_STATES}|\b{_STATES}{_KEPT}{_16_BITS}\b",
            re.IGNORECASE,
        ),
        "the optimizer keeps what is usual for the framework; give optimizer_bytes",
    ),
)
"""The same for optimizers, whose bytes have columns."""


def remark_named(told: Told, kernel_launch: str, power_w: float) -> None:
    """Remarks how each thing that the notes name is simulated instead.

    Args:
        told: the row.
        kernel_launch: how kernels are launched, a field of the workload.
        power_w: thermal design power of the accelerators; a limit at this power is not remarked.
    """
    notes = told.text("notes")
    if kernel_launch != "graph" and (found := affirmed(_GRAPHS, notes)):
        told.remark(
            "notes",
            f"{found[0]}: left out unless they are told to be of the whole step; the host launches every kernel",
        )
    if (found := affirmed(_LIMITED, notes)) and not re.search(rf"(?<!\d){power_w:.0f} ?W\b", notes):
        told.remark("notes", f"{found[0]}: limits of power or clock are left out: full power")
    others = () if "optimizer_bytes" in told.cells.numbers else _OPTIMIZERS
    for words, meaning in (*_NOT_SIMULATED, *others):
        if found := affirmed(words, notes):
            told.remark("notes", f"{found[0]}: {meaning}")
    _remark_optimizer(told, others)


def _remark_optimizer(told: Told, others: tuple[tuple[re.Pattern[str], str], ...]) -> None:
    """Remarks an optimizer in its column that is not Adam with usual states, nor Muon, which is read apart."""
    optimizer = told.text(COLUMN)
    named = [f"{found[0]}: {meaning}" for words, meaning in others if (found := affirmed(words, optimizer))]
    if (
        not named
        and optimizer.lower() not in NOTHING_SAID
        and not _ADAM.search(optimizer)
        and not named_muon(told)
    ):
        named = [f"is not understood: {AS_ADAM}"]
    for meaning in named:
        told.remark(COLUMN, meaning)
