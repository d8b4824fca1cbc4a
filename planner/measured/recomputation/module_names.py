"""Which modules of a layer do people name as recomputed? In the words of Megatron Core and of reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile

from planner.measured.cells.words import affirmed
from simulator.domain.choices import RecomputeModule
from simulator.domain.recompute_modules import CORE

CORE_WORDS = re.compile(r"core[ _-]?att|\battention\b|\battn\b")
ATTENTION_WORDS = re.compile(
    r"selective|\bsel\b|core[ _-]?att|\battention\b|\battn\b|\bsac\b|\bops?\b|recompute[-_]activations"
)
"""The same, and words for parts of layers of which it is the usual one; Megatron's `--recompute-activations` is its selective
recomputation (`recompute_granularity = 'selective'` in `arguments.py`)."""
MODULES: Mapping[RecomputeModule, re.Pattern[str]] = {
    "core_attn": CORE_WORDS,
    "mla_up_proj": re.compile(r"\bmla\b|\bmla[ _-]?up|up[ _-]?proj"),
    "layernorm": re.compile(r"(layer|rms)[ _-]?norms?\b|\bnorms?\b"),
    "moe_act": re.compile(r"\b(?:moe|experts?)[ _-]?act|swi-?glu\b"),
    "shared_experts": re.compile(r"shared[ _-]?experts?"),
    "mlp": re.compile(r"(?<!expert[ _-])(?<!experts[ _-])(?:\bmlps?\b|\bffn\b)|feed[ _-]?forward"),
    "moe": re.compile(r"\bmoe(?![ _-]?act)|(?<!shared[ _-])\bexperts?\b(?![ _-]?act)"),
    "mhc": re.compile(r"\bmhc\b|hyper[ _-]?connections?"),
}
"""Modules of a layer by the words that mean them."""
_NO_MODULE = re.compile(
    r"selective(?:ly)?|selected|partial(?:ly)?|some|sel|s?ac|activations?|gradients?|checkpoint(?:s|ing)?|recompute\w*"
    r"|granularity|modules?|save|ops?|layers?|of|the|only|in|with|all|every|each|and|full|\d*"
)
"""Words beside those of modules that name none."""
_WHOLE_WORDS = re.compile("|".join(rf"(?:{words.pattern})\w*(?:[ _-]proj\w*)?" for words in MODULES.values()))
"""Names of modules to the end of their last word."""
_LIST = re.compile(r"[\s:=\[(]*([^;.()\[\]]*)")
"""What stands behind a word that a list of modules follows, up to where it ends."""
_LONGEST_LIST = 400
"""Characters of a list of modules; the names of all of them take fewer."""
_BETWEEN = re.compile(r"[,+/&]|\band\b")


def named_modules(text: str) -> tuple[RecomputeModule, ...]:
    """Returns the modules that a text names, nothing where that is the attention core alone."""
    found = tuple(module for module, words in MODULES.items() if affirmed(words, text))
    return () if found == CORE else found


def unread_modules(text: str) -> tuple[str, ...]:
    """Returns the parts of a list of modules that name none which is known."""
    parts = (part.strip() for part in re.split(r"[,;+/&()\[\]]", text))
    return tuple(
        part
        for part in parts
        if not _names_nothing(part) and not any(words.search(part) for words in MODULES.values())
    )


def listed_modules(text: str) -> str:
    """Returns the list of modules that a text begins with, empty where it begins with none.

    It ends where something else is said, as in `mlp, moe dispatcher all-to-all`.
    """
    found = _LIST.match(text[:_LONGEST_LIST].lower())
    parts = _BETWEEN.split(found[1]) if found else []
    return ", ".join(takewhile(_is_module, parts))


def _is_module(part: str) -> bool:
    return bool(_WHOLE_WORDS.search(part)) and _names_nothing(_WHOLE_WORDS.sub("", part).strip())


def _names_nothing(part: str) -> bool:
    return all(_NO_MODULE.fullmatch(word) for word in re.split(r"[\s:=_-]", part))
