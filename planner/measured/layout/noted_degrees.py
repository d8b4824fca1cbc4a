"""Which degrees of parallelism and batches do the notes of a row name that no column states?

People who publish a table without such columns write `TP=8, PP=4`, `TP2xCP2xDP4`, `8-way tensor parallel`, `TP/PP/EP =
1/8/64` or `GBS 1024, MBS 1` beside it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from planner.measured.cells.file import Cells
from planner.measured.cells.numbers import number_in, sequences_in
from planner.measured.cells.words import all_affirmed, of_this_run

_LONG_NAMES: Mapping[str, str] = {
    "tp": "tensor",
    "pp": "pipeline",
    "cp": "context",
    "ep": "expert",
    "dp": "data",
}
_SHORT = "|".join(_LONG_NAMES)
_DEGREE = rf"(\d{{1,5}})(?:(?![^\W_]|\.\d|%)|(?=x?(?:{_SHORT}|etp|vpp?|[fh]sdp)(?![a-z])))"
"""A number that nothing but another degree is joined to: not the 1 of `PP 1F1B`."""
_SIZES = r"(?:[-_ ](?:size|degree))?(?: of)?"


def _words_of(column: str) -> re.Pattern[str]:
    """Returns how one degree is written: `TP8`, `tp = 8`, `tensor parallel size 8`, `8-way TP`."""
    parallel = rf"{_LONG_NAMES[column]}[-_ ](?:model[-_ ])?parallel(?:ism)?"
    scheme = (
        r"|\b(?:ulysses|ring)(?:[-_ ](?:attention|sp|cp|sequence[-_ ]parallel(?:ism)?))?"
        if column == "cp"
        else ""
    )
    name = rf"(?:(?<![a-wyz]){column}|\b{parallel}{scheme}){_SIZES}"
    way = rf"\b(\d{{1,5}})[- ]way (?:{column}\b|{parallel}{scheme})"
    stages = r"|\b(\d{1,3})[- ](?:pipeline[- ]stages\b|stage pipeline)" if column == "pp" else ""
    return re.compile(rf"{name}[ =:-]{{0,3}}{_DEGREE}|{way}{stages}", re.IGNORECASE)


_DEGREES = {column: _words_of(column) for column in _LONG_NAMES}
_BETWEEN = r"\s*[x\u00d7/,*]\s*"
_LISTED = re.compile(
    rf"\(?\b((?:{_SHORT})(?:{_BETWEEN}(?:{_SHORT}))+)\)?\s*(?:=|:|of|\s)\s*\(?(\d+(?:{_BETWEEN}\d+)+)\b",
    re.IGNORECASE,
)
"""Names and numbers apart: `TP/PP/EP = 1/8/64`, `(TP, PP) = (8, 4)`."""
_BOTH_SCHEMES = re.compile(
    rf"\bulysses[ =-]{{0,2}}(\d{{1,4}}){_BETWEEN}ring[ =-]{{0,2}}(\d{{1,4}})\b"
    rf"|\bring[ =-]{{0,2}}(\d{{1,4}}){_BETWEEN}ulysses[ =-]{{0,2}}(\d{{1,4}})\b",
    re.IGNORECASE,
)
"""Ranks that exchange heads, and groups of these that exchange keys and values: `Ulysses 8 x ring 4` share a sequence by 32."""
_COUNT = r"(\d[\d,]{0,12}(?:\.\d+)?(?: ?(?:[KM]|million)\b)?(?: ?tokens\b)?)(?!\w)"
_BATCHES = {
    "global_batch": re.compile(
        rf"\b(?:gbs|global[- _]batch(?:[- _]size)?)(?: of)?[ =:]{{0,3}}{_COUNT}", re.IGNORECASE
    ),
    "micro_batch": re.compile(
        rf"\b(?:mbs|(?:micro[- _]?|local[- _]|per[- _](?:device|gpu)[- _](?:train[- _])?)batch(?:[- _]size)?)(?: of)?"
        rf"[ =:]{{0,3}}{_COUNT}",
        re.IGNORECASE,
    ),
}


def with_noted_degrees(cells: Cells) -> Cells:
    """Returns a row with the degrees and batches that its notes name, where its columns are empty.

    `sp` may name the ranks that share a sequence, too. Several values of one degree, and degrees that do not make up the
    accelerators, are left out.
    """
    notes = of_this_run(cells.text.get("notes", ""))
    named = _named(notes, cells.numbers.get("seq_len"))
    ranks_of_scheme = dict(_degrees_in(cells.text.get("sp", ""))).get("cp")
    if ranks_of_scheme and "cp" not in named:
        named["cp"] = {ranks_of_scheme}
    found = {column: values for column, values in named.items() if column not in cells.numbers}
    once = {column: min(values) for column, values in found.items() if len(values) == 1}
    remarks = [
        (
            column,
            f"the notes name several ({', '.join(f'{value:.10g}' for value in sorted(values))}); not read",
        )
        for column, values in found.items()
        if len(values) > 1
    ]
    degrees = {column: value for column, value in once.items() if column in _LONG_NAMES}
    if degrees and not _make_up_run({**cells.numbers, **degrees}):
        remarks += [(column, "what the notes name does not make up n_gpus; not read") for column in degrees]
        once = {column: value for column, value in once.items() if column not in degrees}
    by = {"cp": "sp says"} if ranks_of_scheme else {}
    remarks += [
        (column, f"{value:.10g}, as {by.get(column, 'the notes say')}") for column, value in once.items()
    ]
    return replace(cells, numbers={**cells.numbers, **once}, remarks=(*cells.remarks, *remarks))


def _named(notes: str, sequence_length: float | None) -> dict[str, set[float]]:
    """Returns the values that notes name, by column."""
    found: dict[str, set[float]] = {}
    for column, value in (*_degrees_in(notes), *_batches_in(notes, sequence_length)):
        found.setdefault(column, set()).add(value)
    return found


def _degrees_in(notes: str) -> Iterator[tuple[str, float]]:
    for listed in all_affirmed(_LISTED, notes):
        names, counts = (re.split(_BETWEEN, part) for part in listed.groups())
        if len(names) == len(counts):
            yield from ((name.lower(), float(count)) for name, count in zip(names, counts, strict=True))
    for both in all_affirmed(_BOTH_SCHEMES, notes):
        yield "cp", float(math.prod(int(ranks) for ranks in both.groups() if ranks))
    for column, words in _DEGREES.items():
        for found in all_affirmed(words, _BOTH_SCHEMES.sub(";", _LISTED.sub(";", notes))):
            if value := float(next(filter(None, found.groups()))):
                yield column, value


def _batches_in(notes: str, sequence_length: float | None) -> Iterator[tuple[str, float]]:
    for column, words in _BATCHES.items():
        for found in all_affirmed(words, notes):
            written = found[1].rstrip(",")
            number = sequences_in(written, sequence_length) or number_in(column, written, may_be_0=False)
            if number and number.value >= 1 and number.value == int(number.value):
                yield column, number.value


def _make_up_run(numbers: Mapping[str, float]) -> bool:
    """Returns whether so many ranks share a replica that whole replicas make up the run."""
    ranks = math.prod(max(1, int(numbers.get(column, 1))) for column in ("tp", "pp", "cp"))
    return int(numbers.get("n_gpus", 0)) % ranks == 0
