"""What does a measured run recompute? From the words in one cell, and from the notes where the cell says too little.

A cell is checked in this order: nothing at all, a number of layers (`planner.measured.recomputation.layer_counts`), parts of
every layer (`planner.measured.recomputation.module_names`), whole layers.
"""

from __future__ import annotations

import re
from dataclasses import replace

from planner.input.problems import shown
from planner.measured.cells.words import NOTHING_SAID, TICKS, affirmed, first_affirmed, is_denied
from planner.measured.recomputation.layer_counts import (
    LayerCount,
    counted_layers,
    is_sure,
    method_of,
    names_groups,
)
from planner.measured.recomputation.module_names import (
    ATTENTION_WORDS,
    CORE_WORDS,
    MODULES,
    named_modules,
    unread_modules,
)
from planner.measured.recomputation.notes import noted, noted_modules, noted_part, noted_share
from planner.measured.recomputation.recomputed import EVERY_LAYER, NOT_GIVEN, NOTHING, Recomputed
from simulator.domain.choices import RecomputeModule
from simulator.errors import InputError, Problem

_NONE = re.compile(
    r"(none|no|n|off|false|0(\.0+)?|disabled|everything_saveable|without)"
    r"( (activation |gradient )?(recompute|recomputation|checkpointing|ac))?(\s*[,;(].*)?"
)
_EITHER = re.compile(
    r"(none|no|off|false)\s*(/|,|;|or\b|and\b)\s*(full|selective|yes|on|true)"
    r"|(full|selective|yes|on|true)\s*(/|,|;|or\b|and\b)\s*(none|no|off|false)"
)
"""Cells whose meaning cannot be determined."""
_ASKS_NOTES = re.compile(
    r"(selective|sel|partial|some)( (activation )?(recompute|recomputation|(activation )?checkpointing))?"
)
"""Cells that leave it to the notes which modules are recomputed."""
_OFFLOADED = re.compile(
    r"[,;+ ]*(?:cpu[- ]?)?(?:activations?[- ])?offload\w*[^\d,;+]{0,24}\d+ ?layers(?: to cpu)?"
)
"""Layers that are offloaded to main memory, not recomputed: `CPU offload 20 layers`."""
_SOME = re.compile(r"\bpartial|^some\b")
_POLICIES: tuple[tuple[str, tuple[RecomputeModule, ...]], ...] = (
    (r"save_dot\w*except_mlp|save_(qkv|out)_proj|(qkv|out)_proj\w*[ _-]offload", ("core_attn", "mlp")),
    (r"dots[\w ]*[_ ]saveable|checkpoint_dots|save_dots|\bminimal", ()),
)
"""What policies of JAX and MaxText compute again that keep some results of products, the nearest that there is."""
_OTHER_MODULES = re.compile(r"modules?\b")
_FULL = re.compile(
    r"full|\b(yes|y|true|on|enabled|all|half)\b|(^|[=: ])1$|(every|each) layer|block(?!s? \d+ ?-)|uniform|\d+ layers?"
    r"|num[-_ ]layers|checkpoint|\bckpt|\bac\b|\bgc\b|\bremat\b|nothing[_ ]saveable|save_nothing|decoder[_ ]layer[_ ]input"
    r"|^(per[- ])?layers?([- ]?wise)?$|partition(ed)?[-_ ]activations?|\bp_a\b|\bzero-?r\b",
    re.IGNORECASE,
)
"""Words for whole layers, all of them unless their number is told."""


def recomputed(written: str, notes: str) -> Recomputed | None:
    """Returns what a cell and the notes mean; `None` if the cell says nothing.

    A number of layers means the first ones of a chunk, as in Megatron's `block`. For `full` recomputation without that word, it
    is the size of groups of layers, as in Megatron's `uniform`.

    Unknown words are taken to mean none, and count as not understood.

    Raises:
        InputError: the cell says both none and some.
    """
    text = TICKS.get(written, written.lower())
    asks_notes = text in NOTHING_SAID or _ASKS_NOTES.fullmatch(text)
    if asks_notes and (found := noted_modules(notes) or noted_share(notes)):
        return found
    if text in NOTHING_SAID:
        return noted(notes)
    if _EITHER.fullmatch(text):
        rule = "says both; write none, selective, full, or the layers: full block 5 layers"
        raise InputError([Problem(path="recompute", value=shown(written), rule=rule)])
    if _NONE.fullmatch(text):
        return NOTHING
    rest = _OFFLOADED.sub("", text)
    return _more_than_nothing(rest, notes) if rest else NOT_GIVEN


def _more_than_nothing(text: str, notes: str) -> Recomputed:
    """Returns what a cell means that speaks of layers or of their parts; `partial` alone is left to the notes."""
    count = counted_layers(text)
    if count.num_layers == 0:
        return NOTHING
    is_some = affirmed(_SOME, text) is not None
    if count.of_layers or (is_some and count.num_layers):
        return _counted(count, is_exact=is_sure(text))
    if parts := _parts_of_layers(text):
        return parts
    return noted_part(notes) if is_some else _whole_layers(text, count)


def _counted(count: LayerCount, *, is_exact: bool) -> Recomputed:
    """Returns so many of the layers of the network, or the first ones of a chunk."""
    if count.num_layers == count.of_layers:
        return replace(EVERY_LAYER, is_exact=is_exact)
    return Recomputed(
        kind="full",
        num_layers=count.num_layers,
        of_layers=count.of_layers,
        method="block",
        is_exact=is_exact,
    )


def _parts_of_layers(text: str) -> Recomputed | None:
    """Returns the parts of layers that are named; `None` where there are none."""
    policy = first_affirmed(_POLICIES, text)
    if policy is not None:
        return Recomputed(kind="selective", modules=policy, is_exact=False)
    if modules := named_modules(text):
        unread = unread_modules(text)
        return Recomputed(kind="selective", modules=modules, unread=unread, is_exact=not unread)
    if affirmed(_OTHER_MODULES, text) and not affirmed(CORE_WORDS, text):
        return Recomputed(kind="selective", is_exact=False)
    return Recomputed(kind="selective") if affirmed(ATTENTION_WORDS, text) else None


def _whole_layers(text: str, count: LayerCount) -> Recomputed:
    """Returns whole layers, all or as many as are counted; of words for neither, that they are not understood.

    What is denied of known words, as in `no attention`, is none and understood.
    """
    if not affirmed(_FULL, text):
        is_known = any(is_denied(words, text) for words in (ATTENTION_WORDS, *MODULES.values(), _FULL))
        return replace(NOT_GIVEN, is_understood=is_known)
    if count.num_layers is None:
        return EVERY_LAYER
    method = method_of(text)
    return Recomputed(
        kind="full",
        num_layers=count.num_layers,
        method=method,
        is_implied=method == "uniform" and not names_groups(text),
        is_exact=is_sure(text),
    )
