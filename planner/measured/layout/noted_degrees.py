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
from planner.measured.cells.numbers import number_in, sequences_in, with_powers_as_numbers
from planner.measured.cells.words import all_affirmed, of_this_run

_LONG_NAMES: Mapping[str, str] = {
    "tp": "tensor",
    "pp": "pipeline",
    "cp": "context",
    "ep": "expert",
    "dp": "data",
}
_SHORT = "|".join(_LONG_NAMES)
_DEGREE = rf"(\d{{1,5}})(?:(?![^\W_]|\.\d|%|[- ]bits?\b)|(?=x?(?:{_SHORT}|etp|vpp?|[fh]sdp)(?![a-z])))"
"""A number that nothing but another degree is joined to: not the 1 of `PP 1F1B`."""
_PARALLEL = r"(?:[-_ ](?:model[-_ ])?parallel(?:ism)?)"
_ALONE = r"(?<![a-z])(?<!dcn_)(?<!expert[-_ ])(?<!per[-_ ])"
"""Not behind other words: `dcn_data_parallelism` counts slices, `expert tensor parallel` ranks of one expert, `per-tensor` no
ranks."""
_SIZES = r"(?:[-_ ](?:size|degree))?(?: of)?"


def _words_of(column: str) -> re.Pattern[str]:
    """Returns how one degree is written: `TP8`, `tp = 8`, `tensor parallel size 8`, `tensor 8`, `8-way TP`, `8-way tensor`.

    Without `parallel`, only ranks of products and stages are taken for degrees: `context 8192` are tokens.
    """
    is_plain = column in ("tp", "pp")
    parallel = rf"{_LONG_NAMES[column]}{_PARALLEL}{'?' if is_plain else ''}"
    scheme = (
        r"|\b(?:ulysses|ring)(?:[-_ ](?:attention|sp|cp|sequence[-_ ]parallel(?:ism)?))?"
        if column == "cp"
        else ""
    )
    name = rf"(?:(?<![a-wyz]){column}|{_ALONE}{parallel}{scheme}){_SIZES}"
    way = rf"\b(\d{{1,5}})[- ]way (?:megatron[- ])?(?:{column}\b|{_LONG_NAMES[column]}\b{scheme})"
    stages = r"|\b(\d{1,3})[- ](?:pipeline[- ]stages\b|stage pipeline)" if column == "pp" else ""
    return re.compile(rf"{name}[ =:-]{{0,3}}{_DEGREE}|{way}{stages}", re.IGNORECASE)


_DEGREES = {column: _words_of(column) for column in _LONG_NAMES}
_NAMES = rf"{_SHORT}|[tpd]"
_BETWEEN = r"\s*[x\u00d7/,*]\s*"
_LISTED = re.compile(
    rf"\(?\b((?:{_NAMES})(?:{_BETWEEN}(?:{_NAMES}))+)\)?\s*(?:=|:|of|\s)\s*\(?(\d+(?:{_BETWEEN}\d+)+)\b",
    re.IGNORECASE,
)
"""Names and numbers apart: `TP/PP/EP = 1/8/64`, `(t, p, d) = (8, 4, 16)`."""
_IS = r"[ =]{0,3}(\d{1,5})"
_LETTERS = re.compile(rf"\bt{_IS}[\s,;/x]{{1,3}}p{_IS}(?:[\s,;/x]{{1,3}}d{_IS})?\b", re.IGNORECASE)
"""As in papers on Megatron: `t=8, p=64, d=6`."""
_OF_A_MODEL = re.compile(
    rf"(?:\bmp|{_ALONE}model[-_ ]parallel(?:ism)?){_SIZES}[ =:-]{{1,3}}{_DEGREE}|\b(\d{{1,5}})[- ]way (?:mp\b|model[- ])",
    re.IGNORECASE,
)
"""Ranks that share a model which has no pipeline: `MP=16`, `16-way model parallelism`."""
MOST_MODEL_RANKS = 16
"""So many of them at most, those of a DGX-2: a `model-parallel size 144` is that of tensor and pipeline parallelism."""
_BOTH_SCHEMES = re.compile(
    rf"\bulysses[ =-]{{0,2}}(\d{{1,4}}){_BETWEEN}ring[ =-]{{0,2}}(\d{{1,4}})\b"
    rf"|\bring[ =-]{{0,2}}(\d{{1,4}}){_BETWEEN}ulysses[ =-]{{0,2}}(\d{{1,4}})\b",
    re.IGNORECASE,
)
"""Ranks that exchange heads, and groups of these that exchange keys and values: `Ulysses 8 x ring 4` share a sequence by 32."""
_COUNT = r"(\d[\d,]{0,12}(?:\.\d+)?(?: ?(?:[KM]|million)\b)?(?: ?tokens\b)?)(?!\w)"
_OF_A_RANK = r" ?(?:/|per|an?) ?(?:gpu|device|rank|chip|replica)"
_BATCHES = {
    "global_batch": re.compile(
        rf"\b(?:gbs|global[- _]batch(?:[- _]size)?)(?: of)?[ =:]{{0,3}}{_COUNT}", re.IGNORECASE
    ),
    "micro_batch": re.compile(
        rf"\b(?:mbs|(?:micro[- _]?|local[- _]|per[- _](?:device|gpu)[- _](?:train[- _])?)batch(?:[- _]size)?)(?: of)?"
        rf"[ =:]{{0,3}}{_COUNT}|\bbatch(?:[- _]size)? ?{_COUNT}(?={_OF_A_RANK})"
        rf"|\bbatch(?:[- _]size)?{_OF_A_RANK}[ =:]{{0,3}}{_COUNT}",
        re.IGNORECASE,
    ),
}
_ANY_BATCH = re.compile(
    rf"{_COUNT} (?:per|a) batch\b|\bbatch(?:[- _]size)?(?: of)?[ =:]{{0,3}}{_COUNT}", re.IGNORECASE
)
"""A batch of which nobody says whose it is: that of a step, if it has a sequence for every replica."""


_OF_A_NODE = re.compile(
    r"\b(\d{1,2}) ?(?:gpus?|gcds?|hpus?|accelerators?|devices?|chips?)? ?(?:/|per|a) ?node\b"
    r"|\bgpus[-_]per[-_]node[ =:]+(\d{1,2})\b",
    re.IGNORECASE,
)


def with_noted_degrees(cells: Cells) -> Cells:
    """Returns a row with the degrees, batches and accelerators of a node that its notes name, where its columns are empty.

    `sp` may name the ranks that share a sequence, too. Several values of one degree, and degrees that do not make up the
    accelerators, are left out.
    """
    notes = with_powers_as_numbers(of_this_run(cells.text.get("notes", "")))
    named = _named(notes, cells.numbers)
    ranks_of_scheme = dict(_degrees_in(cells.text.get("sp", ""))).get("cp")
    if ranks_of_scheme and "cp" not in named:
        named["cp"] = {ranks_of_scheme}
    found = {column: values for column, values in named.items() if column not in cells.numbers}
    once = _sure(found)
    remarks = [
        (
            column,
            f"the notes name several ({', '.join(f'{value:.10g}' for value in sorted(values))}); not read",
        )
        for column, values in found.items()
        if len(values) > 1
    ]
    degrees = {column: value for column, value in once.items() if column in _LONG_NAMES}
    if degrees and cells.numbers.get("n_gpus", 0.0) % _ranks_of_replica({**cells.numbers, **degrees}):
        remarks += [(column, "what the notes name does not make up n_gpus; not read") for column in degrees]
        once = {column: value for column, value in once.items() if column not in degrees}
    by = {"cp": "sp says"} if ranks_of_scheme else {}
    remarks += [
        (column, f"{value:.10g}, as {by.get(column, 'the notes say')}") for column, value in once.items()
    ]
    return replace(cells, numbers={**cells.numbers, **once}, remarks=(*cells.remarks, *remarks))


def _named(notes: str, numbers: Mapping[str, float]) -> dict[str, set[float]]:
    """Returns the values that notes name, by column."""
    found: dict[str, set[float]] = {}
    sequence_length = numbers.get("seq_len")
    for column, value in (*_degrees_in(notes), *_batches_in(notes, sequence_length)):
        found.setdefault(column, set()).add(value)
    found |= {"gpus_per_node": nodes} if (nodes := _values(_OF_A_NODE, notes)) else {}
    shares = _values(_OF_A_MODEL, notes)
    if shares and max(shares) <= MOST_MODEL_RANKS and not {"tp", "pp"} & {*found, *numbers}:
        found["tp"] = shares
    if not {"global_batch", "micro_batch"} & found.keys():
        told = {**_sure(found), **numbers}
        replicas = told.get("dp") or numbers.get("n_gpus", 0.0) // _ranks_of_replica(told)
        batches = set(_counts_in(_ANY_BATCH, "global_batch", notes, sequence_length, least=replicas))
        found |= {"global_batch": batches} if batches else {}
    return found


def _sure(found: Mapping[str, set[float]]) -> dict[str, float]:
    return {column: min(values) for column, values in found.items() if len(values) == 1}


def _values(words: re.Pattern[str], text: str) -> set[float]:
    return {float(next(filter(None, found.groups()))) for found in all_affirmed(words, text)}


def _degrees_in(notes: str) -> Iterator[tuple[str, float]]:
    for listed in all_affirmed(_LISTED, notes):
        names, counts = (re.split(_BETWEEN, part) for part in listed.groups())
        if len(names) == len(counts):
            columns = (name.lower() if len(name) > 1 else f"{name.lower()}p" for name in names)
            yield from ((column, float(count)) for column, count in zip(columns, counts, strict=True))
    for letters in all_affirmed(_LETTERS, notes):
        counted = zip(("tp", "pp", "dp"), letters.groups(), strict=True)
        yield from ((column, float(count)) for column, count in counted if count)
    for both in all_affirmed(_BOTH_SCHEMES, notes):
        yield "cp", float(math.prod(int(ranks) for ranks in both.groups() if ranks))
    for column, words in _DEGREES.items():
        rest = _BOTH_SCHEMES.sub(";", _LISTED.sub(";", notes))
        yield from ((column, value) for value in _values(words, rest) if value)


def _batches_in(notes: str, sequence_length: float | None) -> Iterator[tuple[str, float]]:
    for column, words in _BATCHES.items():
        yield from ((column, value) for value in _counts_in(words, column, notes, sequence_length))


def _counts_in(
    words: re.Pattern[str], column: str, notes: str, sequence_length: float | None, *, least: float = 1.0
) -> Iterator[float]:
    """Yields the sequences of the batches that notes name; of those not counted in tokens, so many at least."""
    for found in all_affirmed(words, notes):
        written = next(filter(None, found.groups())).rstrip(",")
        of_tokens = sequences_in(written, sequence_length)
        number = of_tokens or number_in(column, written, may_be_0=False)
        if number and number.value >= (1.0 if of_tokens else least) and number.value.is_integer():
            yield number.value


def _ranks_of_replica(numbers: Mapping[str, float]) -> int:
    """Returns how many ranks share a replica, as far as it is told."""
    return math.prod(max(1, int(numbers.get(column, 1))) for column in ("tp", "pp", "cp"))
