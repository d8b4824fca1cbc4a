"""Does a cell say yes or no, or name something only to deny it? A row with unknown words is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeVar

from planner.input.problems import shown
from simulator.errors import InputError, Problem

_Meaning = TypeVar("_Meaning")

NOTHING_SAID = (
    *("", "-", "--", "\N{EN DASH}", "\N{EM DASH}", "?", "n/a", "n.a.", "na", "nan", "null", "tbd", "unknown"),
    *("not given", "not stated", "not reported", "not published", "not specified", "unspecified"),
)
TICKS = {"\u2713": "yes", "\u2714": "yes", "\u2717": "no", "\u2718": "no"}
"""Check marks and crosses of tables, and what they say."""
YES = ("yes", "true", "on", "y", "1", "enabled")
NO = ("no", "false", "off", "n", "0", "disabled")
WITH_CARE = ("caution",)
"""Graded lists of runs call a row so that is of use although something about it is odd."""
WITHOUT_USE = ("unusable",)

_DENIAL_BEFORE = re.compile(
    r"\b(?:(?:no|not|nor|never|without|w/o|instead of|rather than)[-_\s]+|non[-_\s]*)"
    r"(?:(?:a|an|any|the|using|use of|activation|gradient)[-_\s]+)*$",
    re.IGNORECASE,
)
_LONGEST_DENIAL = 100
"""Characters before a name in which a denial of it begins; to search all of them would take the square of their number."""
_DENIAL_BEHIND = re.compile(
    r"\w*[-_\s:=(]+(?:(?:kernels?|layers?|modules?)[-_\s]+)?(?:(?:is|are|was|were)[-_\s]+)?(?:(?:turned|switched)[-_\s]+)?"
    r"(?:off|false|disabled|none|absent|excluded|unavailable|ignored|left[-_\s]+out"
    r"|not[-_\s]+(?:used|enabled|in[-_\s]+use|available|included|trained|counted|modell?ed)"
    r"|(?:no|0)(?=\s*(?:$|[,;.)])))(?![-\w])",
    re.IGNORECASE,
)
_SAYS_NOTHING = re.compile(
    r"\w*[-_\s:=(]+(?:(?:is|are|was|were)[-_\s]+)?not[-_\s]+(?:stated|given|reported|known)\b", re.IGNORECASE
)
"""Words behind a name that leave it open whether it is on or off."""
_PARTS_OF_NOTES = re.compile(r";|(?<=[^\d.])(?<!\bvs)\.(?=\s)|[()]")
_COMPARISON = re.compile(
    r"\b(?:versus|vs\.?|baseline of|compared (?:to|with)|comparison)(?!\w)", re.IGNORECASE
)
_OF_OTHERS = re.compile(
    r"(?<!\bthis )\brows?\b(?!-?wise)"
    r"|\b(?:faster|slower|better|worse|higher|lower) than\b"
    r"|\b\d+(?:\.\d+)? ?(?:%|x|times) (?:faster|slower|better|worse|higher|lower)|\b(?:reach(?:es)?|gives?) \d"
    r"|\bsame (?:model|run|layout|configuration|job) (?:with|without)\b",
    re.IGNORECASE,
)
"""What parts of notes say that speak of another run than their own: of the next row, of what it is compared with. A comparison
may list several things."""
_KINDS = re.compile(
    r"step|iteration|throughput|time|seconds|speed|flop|\bmfu\b|\bhfu\b|utili[sz]ation|token|memory|out[- ]of[- ]memory"
    r"|\boom\b|benchmark|measure|production|whole[- ]run|mlperf|\bq?lora\b|\bpeft\b|train|tuning|\bsft\b|steady|inference"
    r"|single-layer|forward|\bt[gp]s\b|\bwps\b|samples|sequences|performance|\blogs?\b|scaling",
    re.IGNORECASE,
)
"""What descriptions of a measurement contain; which of them change the simulation is up to the reader."""
_KNOWN_KINDS = (
    "iteration time, throughput, MFU, peak memory, MLPerf, production, LoRA, out-of-memory or single-layer"
)


def is_yes(column: str, written: str, *, yes: tuple[str, ...], no: tuple[str, ...]) -> bool | None:
    """Returns whether a cell says one of the words for yes; `None` if it says nothing.

    Raises:
        InputError: the cell says something else.
    """
    text = re.sub(r"^([01])\.0+$", r"\1", re.sub(r"\s*[:(].*", "", written.lower()))
    text = TICKS.get(text, text)
    if text in NOTHING_SAID:
        return None
    if text not in (*yes, *no):
        rule = f"is neither yes nor no; write {', '.join(yes)} or {', '.join(no)}, or leave it empty"
        raise InputError([Problem(path=column, value=shown(written), rule=rule)])
    return text in yes


def of_this_run(notes: str) -> str:
    """Returns notes without the parts about another run, such as `ZeRO-3 rows run without TP`."""
    if not (_OF_OTHERS.search(notes) or _COMPARISON.search(notes)):
        return notes
    parts = [part for part in _PARTS_OF_NOTES.split(notes) if not _COMPARISON.search(part)]
    return ";".join(
        ",".join(said for said in part.split(",") if not _OF_OTHERS.search(said)) for part in parts
    )


def affirmed(words: str | re.Pattern[str], text: str) -> re.Match[str] | None:
    """Returns where a text first names something without denying it, as `no fp8` and `fp8 off` do."""
    return next(all_affirmed(words, text), None)


def all_affirmed(words: str | re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Returns every place where a text does so."""
    return (found for found in _named(words, text) if not _is_denied(found))


def affirmed_number(words: str | re.Pattern[str], text: str) -> int | None:
    """Returns the first number that is a group of what a text names without denying it; `None` where it names nothing."""
    found = affirmed(words, text)
    return int(next(filter(None, found.groups()))) if found else None


def is_denied(words: str | re.Pattern[str], text: str) -> bool:
    """Returns whether a text names something in order to deny it."""
    return any(_is_denied(found) for found in _named(words, text))


def first_affirmed(meanings: tuple[tuple[str, _Meaning], ...], text: str) -> _Meaning | None:
    """Returns the meaning of the first words in a list that a text names without denying them."""
    return next((meaning for words, meaning in meanings if affirmed(words, text)), None)


def _named(words: str | re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    pattern = re.compile(words, re.IGNORECASE) if isinstance(words, str) else words
    return (found for found in pattern.finditer(text) if not _SAYS_NOTHING.match(text, found.end()))


def _is_denied(found: re.Match[str]) -> bool:
    start = found.start()
    is_before = _DENIAL_BEFORE.search(found.string, max(0, start - _LONGEST_DENIAL), start)
    return bool(is_before or _DENIAL_BEHIND.match(found.string, found.end()))


def is_usable(written: str) -> bool:
    """Returns whether a row may be modelled; it may if the cell says nothing.

    Raises:
        InputError: the cell says neither yes nor no.
    """
    return is_yes("usable", written, yes=(*YES, *WITH_CARE), no=(*NO, *WITHOUT_USE)) is not False


def known_kind(written: str) -> str:
    """Returns what a row measured, as written; empty if the cell says nothing.

    Raises:
        InputError: none of its words is known, so that something else could be mistaken for an ordinary step.
    """
    if written.lower() in NOTHING_SAID:
        return ""
    if not is_known_kind(written):
        rule = f"is not understood; name what was measured, such as {_KNOWN_KINDS}, or leave it empty"
        raise InputError([Problem(path="metric_kind", value=shown(written), rule=rule)])
    return written


def is_known_kind(written: str) -> bool:
    """Returns whether words about what was measured are understood."""
    return written.lower() in NOTHING_SAID or bool(_KINDS.search(written))
