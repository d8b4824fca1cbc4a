"""Does a document have only plain values? Text, finite numbers, lists and mappings, as a copy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from numbers import Integral, Real

from planner.input.problems import Findings
from planner.input.schema import Location
from planner.input.yaml_text import MAX_DEPTH, TOO_DEEP
from simulator.record import Record

_LARGEST_INTEGER = 2**63 - 1


def plain_copy(document: Mapping[str, object], findings: Findings) -> dict[str, object]:
    """Returns a copy with plain values only; values that a document cannot have are reported and become `None`.

    Records pass unchanged, so that Python callers may use them. Booleans become the words `true` and `false`: validation
    accepts these words as booleans but never as numbers, whereas `True` would pass as 1.
    """
    copy: dict[str, object] = _plain_mapping(document, (), findings)
    return copy


def _plain(value: object, location: Location, findings: Findings) -> object:
    if len(location) > MAX_DEPTH:
        findings.add(location[:3], "", TOO_DEEP)
        return None
    match value:
        case None | Record():
            return value
        case bool():
            return "true" if value else "false"
        case str():
            return _plain_text(value, location, findings)
        case Integral() | Real() | Decimal():
            return _plain_number(value, location, findings)
        case Mapping():
            return _plain_mapping(value, location, findings)
        case list() | tuple():
            return [_plain(item, (*location, index), findings) for index, item in enumerate(value)]
        case _:
            rule = "must be text, a number, true or false, a list or a mapping; put dates and times in quotes"
            findings.add(location, str(value), rule)
            return None


def _plain_text(value: str, location: Location, findings: Findings) -> str | None:
    if value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value):
        return str(value)
    findings.add(location, value, "must be valid Unicode text")
    return None


def _plain_number(value: Real | Decimal, location: Location, findings: Findings) -> float | None:
    try:
        number = int(value) if isinstance(value, Integral) else float(value)
        if isinstance(number, int) and abs(number) > _LARGEST_INTEGER:
            number = float(number)
    except (OverflowError, ValueError):  # too large, or a signalling NaN of `Decimal`
        number = math.inf
    if math.isfinite(number):
        # -0.0 equals 0.0, but its text differs, and so would the hash of the job.
        return number + 0
    findings.add(location, value, "must be a finite number")
    return None


def _plain_mapping(
    value: Mapping[object, object] | Mapping[str, object], location: Location, findings: Findings
) -> dict[str, object]:
    copy: dict[str, object] = {}
    for key, item in value.items():
        if isinstance(key, str) and _plain_text(key, (*location, str(key)), findings) is not None:
            copy[str(key)] = _plain(item, (*location, str(key)), findings)
        elif not isinstance(key, str):
            findings.add(location, key, "the names of fields must be text; put this one in quotes")
    return copy
