"""What does a measured run compute again? From what people write in one cell, and in the notes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from planner import measured_notes
from planner.measured_words import NOTHING_SAID, affirmed, is_denied
from planner.problems import shown
from simulator.errors import InputError, Problem
from simulator.model import RecomputeMethod

_NONE = re.compile(
    r"(none|no|off|false|0|disabled|without)( (activation |gradient )?(recompute|recomputation|checkpointing|ac))?(\s*[,;(].*)?"
)
_EITHER = re.compile(
    r"(none|no|off|false)\s*(/|,|;|or\b|and\b)\s*(full|selective|yes|on|true)"
    r"|(full|selective|yes|on|true)\s*(/|,|;|or\b|and\b)\s*(none|no|off|false)"
)
_FULL = re.compile(
    r"full|\b(yes|true|on|1|all)\b|every layer|block|uniform|\d+ layers?|checkpoint|\bac\b|\bgc\b",
    re.IGNORECASE,
)
_ATTENTION = re.compile(r"selective|core[ _-]?att|\battention\b|\battn\b|\bsac\b|\bops?\b")
_MODULES = re.compile(r"mlp|\bmoe|layer[ _]?norm|shared[ _]expert|\bmla|up[ _]proj|modules?\b|\bffn\b")
_LAYERS = re.compile(
    r"(\d+)(?:\s*(?:/|(?:out )?of)\s*(?:the |every )?(\d+))?[ _-]*layers?\b(?:\s*(?:/|(?:out )?of)\s*(\d+))?"
)
"""Layers that are computed again, and perhaps all that there are: `20 of 80 layers`."""
_SHARE = re.compile(
    r"(\d+)\s*(?:/|(?:out )?of)\s*(?:the )?(\d+)|(\d+) ?(?:%|percent|per cent)|(?<![\d.])0?\.(\d\d?)(?!\d)"
)
"""The same without that word, of which whole layers have a share: `full (20 of 80)`, `AC 25 %`, and `selective 1/2` or 0.5 of
fms-fsdp (`apply_fsdp_checkpointing`)."""


@dataclass(frozen=True, kw_only=True)
class Recomputed:
    """What is computed again, in the words of `Plan.recompute` and its neighbours."""

    kind: Literal["none", "selective", "full"]
    num_layers: int | None = None
    """`Plan.recompute_num_layers`."""
    method: RecomputeMethod | None = None
    """`Workload.recompute_method`, where layers are counted."""
    of_layers: int | None = None
    """Layers of the whole network among which they are counted, 100 where they are per cent; left out: those of a chunk."""
    is_exact: bool = True
    """Whether this is all that was written; single modules are not modelled, and some layers may be any number."""
    is_understood: bool = True
    """Whether it says anything of recomputation that is known."""


NOT_GIVEN = Recomputed(kind="none", is_exact=False)
"""What is assumed where nothing is said."""


def recomputed(written: str, notes: str) -> Recomputed | None:
    """Returns what a cell and the notes mean; `None` where the cell says nothing.

    Layers that are counted are the first ones of a chunk, as in Megatron's `block`; those of `full` recomputation without that
    word are groups of so many, as in its `uniform`.

    Words that mean nothing here are taken as none, and are not understood.

    Raises:
        InputError: the cell says none and some in one.
    """
    text = written.lower()
    if text in NOTHING_SAID:
        return None
    if _EITHER.fullmatch(text):
        rule = "says both; write none, selective, full, or the layers: full block 5 layers"
        raise InputError([Problem(path="recompute", value=shown(written), rule=rule)])
    if _NONE.fullmatch(text):
        return Recomputed(kind="none")
    num_layers, of_layers = _count(text)
    if num_layers == 0:
        return Recomputed(kind="none")
    if "partial" in text or of_layers:
        return _some_layers(num_layers or measured_notes.recomputed_layers(notes), of_layers)
    if affirmed(_ATTENTION, text):
        return Recomputed(kind="selective", is_exact=not affirmed(_MODULES, text))
    if affirmed(_MODULES, text):
        return Recomputed(kind="selective", is_exact=False)
    if not affirmed(_FULL, text):
        is_known = any(is_denied(words, text) for words in (_ATTENTION, _MODULES, _FULL))
        return replace(NOT_GIVEN, is_understood=is_known)
    is_uniform = "uniform" in text or ("full" in text and "block" not in text)
    return Recomputed(
        kind="full",
        num_layers=num_layers,
        method=None if num_layers is None else "uniform" if is_uniform else "block",
    )


def _some_layers(num_layers: int | None, of_layers: int | None) -> Recomputed:
    if num_layers is None:
        return NOT_GIVEN
    if num_layers == of_layers:
        return Recomputed(kind="full")
    return Recomputed(kind="full", num_layers=num_layers, of_layers=of_layers, method="block")


def _count(text: str) -> tuple[int | None, int | None]:
    """Returns the layers that are computed again and those of the whole network, as far as they are told."""
    if found := _LAYERS.search(text):
        part, whole = int(found[1]), int(found[2] or found[3] or 0)
        return (part, whole if whole >= part else None) if part < 10**6 else (None, None)
    if re.search(r"full|partial|selective|\bac\b", text) and (found := _SHARE.search(text)):
        per_cent = found[3] or (found[4] and found[4].ljust(2, "0"))
        part, whole = int(found[1] or per_cent), int(found[2] or 100)
        return (part, whole) if part <= whole else (None, None)
    return None, None


def of_a_chunk(again: Recomputed, *, num_layers: int, num_chunks: int) -> Recomputed:
    """Returns the same with the layers of one chunk, rounded up; all of the network are full recomputation.

    Args:
        again: what was written.
        num_layers: layers of the network.
        num_chunks: those of the whole pipeline, which all compute the same number again.
    """
    if again.num_layers is None:
        return again
    if again.of_layers is None:
        is_all = again.num_layers == num_layers and num_chunks > 1
        return Recomputed(kind="full") if is_all else again
    total = max(1, round(num_layers * again.num_layers / again.of_layers))
    each = -(-total // num_chunks)
    return replace(again, num_layers=each, is_exact=each * num_chunks == total)
