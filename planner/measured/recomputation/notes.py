"""What do the notes of a run say that it recomputes? They are read where its cell says nothing, or too little."""

from __future__ import annotations

import re
from typing import Literal

from planner.measured.cells import notes as measured_notes
from planner.measured.cells.words import affirmed, all_affirmed, first_affirmed
from planner.measured.recomputation.module_names import CORE_WORDS, listed_modules, named_modules
from planner.measured.recomputation.recomputed import ANYTHING, NOTHING, Recomputed

_AGAIN = r"(?:recompute|recomputation|remat|checkpointing|ac)\b"
_SAID_BEHIND = rf"\b(?:{_AGAIN}|recompute[-_ ](?:granularity|mode)\b)[ :='\"]+"
_OTHER_FULL = r"(?![-_ ]?(?:iteration|fine|shard|param|batch|precision|sft|model|network|graph))"
"""What `full` does not belong to if it stands before it: `recompute: full-iteration graphs`."""
_KINDS: tuple[tuple[str, Literal["full", "selective"]], ...] = (
    (rf"\bselective[- ](?:activation[- ])?{_AGAIN}|{_SAID_BEHIND}selective\b", "selective"),
    (rf"\bfull[- ](?:activation[- ])?{_AGAIN}|{_SAID_BEHIND}full\b{_OTHER_FULL}", "full"),
    (r"\b(?:activation|gradient)[-_ ]checkpointing\b", "full"),
)
"""Kinds by their words before or behind the word for recomputation; checkpointing alone is that of whole layers."""
_NONE = re.compile(
    rf"(?:^|[;,])\s*(?:no|without) (?:(?:activation|gradient)[- ])?{_AGAIN}"
    r"|\b(?:(?:activation|gradient)[-_ ]checkpointing|ac)[:=]? ?(?:off|none|false)\b",
    re.IGNORECASE,
)
_MODULES = re.compile(r"(?:recompute[ _-]?modules?|selective recompute\w* of)\b[^;.]*", re.IGNORECASE)
"""Words that only modules follow, up to the end of the sentence: `recompute modules mlp`."""
_BEFORE_MODULES = re.compile(
    r"\b(?:recomput(?:e[sd]?|ing|ation)|checkpointing|remat)\b(?: (?:of|the|only|for))*", re.IGNORECASE
)
"""Words that modules may follow, as in `recompute: mlp, layernorm`."""


def noted(notes: str) -> Recomputed | None:
    """Returns what notes mean beside an empty cell; `None` where they say nothing."""
    if num_layers := measured_notes.recomputed_layers(notes):
        return Recomputed(kind="full", num_layers=num_layers, method="block")
    if kind := first_affirmed(_KINDS, notes):
        return Recomputed(kind=kind)
    return NOTHING if _NONE.search(notes) else None


def noted_modules(notes: str) -> Recomputed | None:
    """Returns the modules that notes name; `None` where they name none."""
    if found := affirmed(_MODULES, notes):
        said = found[0].lower()
        modules = named_modules(said)
        is_exact = bool(modules or affirmed(CORE_WORDS, said))
        return Recomputed(kind="selective", modules=modules, is_exact=is_exact)
    lists = (listed_modules(notes[found.end() :]) for found in all_affirmed(_BEFORE_MODULES, notes))
    listed = next(filter(None, lists), None)
    return Recomputed(kind="selective", modules=named_modules(listed)) if listed else None


def noted_part(notes: str) -> Recomputed:
    """Returns what notes mean beside a cell that says `partial`; of nothing, anything but none and all."""
    found = noted(notes)
    return found if found and (found.num_layers or found.kind == "selective") else ANYTHING
