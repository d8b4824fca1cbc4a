"""What do the notes of a measured run name that its simulation does not have? Each is told, so that its error has a name."""

from __future__ import annotations

import re

from planner.measured.told import Told
from planner.measured.words import affirmed

_GRAPHS = re.compile(r"cuda[- _]?graphs?\b", re.IGNORECASE)
_NOT_SIMULATED: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"\bmtp\b|multi[- ]token prediction", re.IGNORECASE),
        "multi-token prediction is left out: no layers are added for it",
    ),
    (
        re.compile(
            r"\b(moe|experts?)( layers?)? (in |on |at )?(every|each) (other|2nd|second|\d+)|interleaved moe"
            r"|moe[-_ ]layer[-_ ]freq\w*[ =:]+[2-9]",
            re.IGNORECASE,
        ),
        "experts are simulated in all layers but the first dense ones, not in every second or so",
    ),
    (
        re.compile(
            r"\bmuon\b|\b8[- ]?bit (adam|optim)|\badafactor\b|\blion\b|\bshampoo\b|\bsoap\b", re.IGNORECASE
        ),
        "the optimizer is simulated as Adam; give optimizer_bytes and update_bytes",
    ),
    (
        re.compile(
            r"power[- ]?(cap|limit)\w*|capped (to|at) \d+ ?w\b|clock[- ]?lock\w*|locked (at|to) \d+ ?mhz",
            re.IGNORECASE,
        ),
        "limits of power or clock are left out: full power",
    ),
    (
        re.compile(
            r"natural routing|unbalanced (experts|routing)|no (force|forced)[- ]balanc\w*", re.IGNORECASE
        ),
        "experts are simulated as balanced",
    ),
)
"""Words of notes, and what is simulated in their place."""


def remark_named(told: Told, kernel_launch: str) -> None:
    """Says of what the notes name how it is simulated instead.

    Args:
        told: the row.
        kernel_launch: how kernels are launched, a field of the workload.
    """
    if kernel_launch != "graph" and (found := affirmed(_GRAPHS, told.text("notes"))):
        told.remark("notes", f"{found[0]}: left out; the host launches every kernel")
    for words, meaning in _NOT_SIMULATED:
        if found := affirmed(words, told.text("notes")):
            told.remark("notes", f"{found[0]}: {meaning}")
