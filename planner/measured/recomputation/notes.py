"""What do the notes of a run say that it recomputes? They are read where its cell says nothing, or too little."""

from __future__ import annotations

import re
from typing import Literal

from planner.measured.cells import notes as measured_notes
from planner.measured.cells.words import affirmed, affirmed_number, all_affirmed, first_affirmed
from planner.measured.recomputation.layer_counts import LayerCount, counted_layers
from planner.measured.recomputation.module_names import CORE_WORDS, listed_modules, named_modules
from planner.measured.recomputation.recomputed import ANYTHING, EVERY_LAYER, NOTHING, Recomputed

_AGAIN = r"(?:recompute|recomputation|remat|checkpointing|ac)\b"
_CHECKPOINT = r"(?:activation|gradient)[-_ ]checkpoint(?:ing)?"
_SAID_BEHIND = (
    rf"\b(?:{_AGAIN}|recompute[-_ ](?:granularity|mode)\b|{_CHECKPOINT}(?:\.mode)?(?![\w.]))[ :='\"]+"
)
_OTHER_FULL = r"(?![-_ ]?(?:iteration|fine|shard|param|batch|precision|sft|model|network|graph))"
"""What `full` does not belong to if it stands before it: `recompute: full-iteration graphs`."""
_SELECTIVE = (
    rf"\bselective[- ](?:op[- ])?(?:(?:activation[- ])?{_AGAIN}|{_CHECKPOINT}\b)"
    rf"|{_SAID_BEHIND}(?:selective|op)\b|\bsac\b(?![ =:(]*\d)|\bselective_ac_option[ :='\"]+op\b"
)
_FULL = rf"\bfull[- ](?:(?:activation[- ])?{_AGAIN}|{_CHECKPOINT}\b)|{_SAID_BEHIND}full\b{_OTHER_FULL}"
_KINDS: tuple[tuple[str, Literal["full", "selective"]], ...] = (
    (_SELECTIVE, "selective"),
    (_FULL, "full"),
    (rf"\b{_CHECKPOINT}\b(?!\.)|\bcheckpoint[-_]activations\b", "full"),
)
"""Kinds by their words before or behind the word for recomputation; checkpointing alone is that of whole layers, and so is
`--checkpoint-activations`, Megatron's option of 2019 to 2022. `op` is torchtitan's name for its selective checkpointing."""
_NUM_LAYERS = re.compile(r"\brecompute[-_ ]num[-_ ]layers[ =:]+([1-9]\d{0,4})\b", re.IGNORECASE)
_IN_GROUPS = re.compile(r"\brecompute[-_ ]method[ =:]+uniform\b", re.IGNORECASE)
"""Megatron's options: as many layers of a chunk, or groups of so many layers."""
_SHARE = re.compile(
    rf"\b(?:{_AGAIN}|{_CHECKPOINT}|checkpoints?|recomputes)[ :=(]+(?:(?:of|on|for|in|only|with) )*"
    r"((?:every|each) (?:other|[1-9]\d{0,2}(?:st|nd|rd|th)) layer\b|[1-9]\d{0,2} (?:out )?of (?:the )?[1-9]\d{0,2} layers\b)"
    r"|\bselective[-_ ](?:ac|activation[-_ ]checkpointing)(?:[-_ ]option)?[ =:'\"]+([2-9]|[1-9]\d)\b(?![.%]| \w)",
    re.IGNORECASE,
)
"""A share of the layers: `AC every 2nd layer`, torchtitan's `selective_ac_option=2`."""
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
    if share := noted_share(notes):
        return share
    if num_layers := measured_notes.recomputed_layers(notes):
        return Recomputed(kind="full", num_layers=num_layers, method="block")
    kind = first_affirmed(_KINDS, notes)
    if kind != "selective" and (num_layers := affirmed_number(_NUM_LAYERS, notes)):
        return _by_option(num_layers, is_grouped=affirmed(_IN_GROUPS, notes) is not None)
    if kind:
        return Recomputed(kind=kind)
    return NOTHING if _NONE.search(notes) else None


def noted_share(notes: str) -> Recomputed | None:
    """Returns what notes mean that compute one in so many layers again, or so many of all; `None` where they do not say."""
    found = affirmed(_SHARE, notes)
    if found is None:
        return None
    count = (
        counted_layers(found[1].lower()) if found[1] else LayerCount(num_layers=1, of_layers=int(found[2]))
    )
    if count.num_layers == count.of_layers:
        return EVERY_LAYER
    return Recomputed(kind="full", num_layers=count.num_layers, of_layers=count.of_layers, method="block")


def _by_option(num_layers: int, *, is_grouped: bool) -> Recomputed:
    if is_grouped and num_layers == 1:
        return EVERY_LAYER
    return Recomputed(kind="full", num_layers=num_layers, method="uniform" if is_grouped else "block")


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
