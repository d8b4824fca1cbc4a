"""How many layers does a cell say are recomputed, and out of how many? `20 of 80 layers`, `block 4`, `every 2nd`, `full 25%`.

People count layers in mutually exclusive ways. There is one reader for each way, ordered from the most specific words to a bare
number, and the first that finds its words decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from planner.measured.cells.words import affirmed
from planner.measured.recomputation.module_names import ATTENTION_WORDS
from simulator.domain.choices import RecomputeMethod

PER_CENT = 100
_MOST_LAYERS = 10**6
"""A larger number counts something else."""

_BUDGET = re.compile(r"budget\D{0,3}(0?\.\d{1,2}|[01](?:\.0+)?)(?![\d.])")
"""What of the activations is kept, as in `activation_memory_budget` of PyTorch's compiler."""
_SELECTED_NTH = re.compile(
    r"(?:selective|s?ac)(?:[ _]ac)?(?:[ _]option)?[ =:(-]*(?:(?:layers?|every)[ =:]*)?([2-9]|[1-9]\d)\)?"
)
"""torchtitan's option: `selective 2` computes every second layer again."""
_GROUPS = re.compile(r"(?<!of )(?:every|each) (\d{1,3}) layers")
"""Layers of a group of which only the first input is kept: `every 2 layers`."""
_EVERY_NTH = re.compile(
    r"(?<!of )(?:every|each) (?:(other)|(\d{1,3})(?:st|nd|rd|th))\b(?! (?:ops?|operat\w+|mat[- ]?mul\w*|gemms?|mm|products?)\b)"
    r"|\b1 in (\d{1,3})\b"
)
"""`every 2nd layer`, not the products of `every 2nd op`."""
_LAYERS = re.compile(
    r"(?<!\d)(\d{1,9})(?:\s*(?:/|(?:out )?of)\s*(?:the |every )?(\d{1,9}))?[ _-]*layers?\b(?:\s*(?:/|(?:out )?of)\s*(\d{1,9}))?"
)
"""`5 layers`, and perhaps how many there are: `20 of 80 layers`, `20 layers of 80`."""
_NUMBERED = re.compile(
    r"(?:block|uniform|num[-_ ]layers)[ ,:=(_/-]*(\d{1,5})(?![\d.%])(?!\s*(?:/|(?:out )?of\b))|full ?@ ?(\d{1,5})\b"
    r"|full[ ,(:=]+([2-9]|[1-9]\d{1,4})\b(?![.%])(?!\s*(?:/|%|percent|(?:out )?of\b|bits?\b))"
)
"""A number behind Megatron's words: `block 4`, `uniform, 2`, `num-layers 10`, `full (10)`."""
_SHARE = re.compile(
    r"(\d{1,9})\s*(?:/|(?:out )?of)\s*(?:the )?(\d{1,9})|(\d{1,9}) ?(?:%|percent|per cent)|(?<![\d.])0?\.(\d\d?)(?!\d)"
)
"""A share without the word layers: `full (20 of 80)`, `AC 25 %`, and `selective 1/2` or 0.5 of fms-fsdp
(`apply_fsdp_checkpointing`)."""
_HAS_SHARE = re.compile(r"full|partial|selective|block|ratio|checkpoint|\bckpt|\bremat|\bac\b")
"""Words beside which a share is one of the layers; alone it is, too."""
_OF_LAYERS = re.compile(r"(?<=%)\s+layers|\s+of (?:the |all )?layers")
_HALF = re.compile(r"\bhalf\b(?: (?:the |all )?layers)?")
_NOT_SURE = re.compile(
    r"@|full[ ,(:=]+\d+\)?$|budget|(?<!of )(?:every|each) \d+ layers|^(?!100 ?%$)[\d./% ]+$"
)
"""Numbers of which only the likeliest meaning is taken."""


@dataclass(frozen=True, kw_only=True)
class LayerCount:
    """Layers that are computed again, as far as a cell counts them."""

    num_layers: int | None = None
    """How many; left out: no number of them is told."""
    of_layers: int | None = None
    """Of how many layers of the whole network, 100 where the number is per cent; left out: of those of a chunk."""


_Reader = Callable[[str], LayerCount | None]
_UNTOLD = LayerCount()


def counted_layers(text: str) -> LayerCount:
    """Returns the layers that a cell in lower case counts."""
    return next((count for read in _READERS if (count := read(text))), _UNTOLD)


def is_sure(text: str) -> bool:
    """Returns whether the numbers of a cell in lower case mean one thing only."""
    return not _NOT_SURE.search(text)


def names_groups(text: str) -> bool:
    """Returns whether a cell in lower case says by a word that groups of layers are meant, as Megatron's `uniform` does."""
    return "uniform" in text or bool(_GROUPS.search(text))


def method_of(text: str) -> RecomputeMethod:
    """Returns what a number of layers in a cell in lower case counts: the first ones of a chunk, or those of a group."""
    is_full_alone = "full" in text and "block" not in text and "@" not in text
    return "uniform" if is_full_alone or names_groups(text) else "block"


def _of_budget(text: str) -> LayerCount | None:
    """`budget 0.3` keeps 30 of 100, and computes the others again."""
    found = _BUDGET.search(text)
    return (
        LayerCount(num_layers=round(PER_CENT * (1.0 - float(found[1]))), of_layers=PER_CENT)
        if found
        else None
    )


def _selected(text: str) -> LayerCount | None:
    """`selective 2` is one of two."""
    found = _SELECTED_NTH.fullmatch(text)
    return LayerCount(num_layers=1, of_layers=int(found[1])) if found else None


def _in_groups(text: str) -> LayerCount | None:
    """`every 2 layers` are groups of two; of one they are all layers, which need no number.

    Beside words for attention, which needs no groups, it is one of two.
    """
    found = _GROUPS.search(text)
    if found is None:
        return None
    size = int(found[1])
    if affirmed(ATTENTION_WORDS, text):
        return _every_nth(text) or LayerCount(num_layers=1, of_layers=size)
    return LayerCount(num_layers=size) if size > 1 else _UNTOLD


def _every_nth(text: str) -> LayerCount | None:
    """`every 3rd layer` and `1 in 3` are one of three, `every other layer` is one of two."""
    found = _EVERY_NTH.search(text)
    if found is None:
        return None
    return LayerCount(num_layers=1, of_layers=2 if found[1] else int(found[2] or found[3]))


def _layers(text: str) -> LayerCount | None:
    """`5 layers`, and `20 of 80 layers`; no part is larger than the whole."""
    found = _LAYERS.search(text)
    if found is None:
        return None
    part, whole = int(found[1]), int(found[2] or found[3] or 0)
    if part >= _MOST_LAYERS:
        return _UNTOLD
    return LayerCount(num_layers=part, of_layers=whole if whole >= part else None)


def _numbered(text: str) -> LayerCount | None:
    """`block 4` and `full (10)`; groups of one layer are all layers, which need no number."""
    found = _NUMBERED.search(text)
    if found is None:
        return None
    number = int(next(filter(None, found.groups())))
    return _UNTOLD if number == 1 and "uniform" in text else LayerCount(num_layers=number)


def _share(text: str) -> LayerCount | None:
    """`full 25%` is 25 of 100, `half the layers` 50, `AC 1/4` one of four; no part is larger than the whole."""
    text_of_share = _OF_LAYERS.sub("", _HALF.sub("50 %", text))
    if not (_HAS_SHARE.search(text) or _SHARE.fullmatch(text_of_share)):
        return None
    found = _SHARE.search(text_of_share)
    if found is None:
        return None
    per_cent = found[3] or (found[4] and found[4].ljust(2, "0"))
    part, whole = int(found[1] or per_cent), int(found[2] or PER_CENT)
    return LayerCount(num_layers=part, of_layers=whole) if part <= whole else None


_READERS: tuple[_Reader, ...] = (
    _of_budget,
    _selected,
    _in_groups,
    _every_nth,
    _layers,
    _numbered,
    _share,
)
"""Readers in the order in which they are asked."""
