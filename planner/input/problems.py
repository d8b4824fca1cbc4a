"""Which rules does a user's file break, and where? Problems in the user's own terms, all of them at once."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from planner.input.number_text import way_out
from planner.input.other_places import other_place, other_value
from planner.input.schema import Location, form_of, known_fields, model_at
from planner.input.unit_text import grams_hint
from simulator.argument_names import Argument
from simulator.domain.job import Job
from simulator.errors import InputError, Problem
from simulator.record import Record, meanings

_WHOLE_NUMBER = "must be a whole number"
_NUMBER = "must be a number"
_MAPPING = "must be a mapping of fields"
_TRUTH = "must be true or false"
_EMPTY = "must not be empty"
_MOST_SHOWN = 60
"""Characters of a value in a message."""

_PLAIN = re.compile(r"[\w.+-]{1,40}")
"""A number or a word that may stand in a list without quotes."""

_MOST_NAMES = 20
"""Names in a message; of more only the nearest, or the first."""

_RULES = {
    "greater_than": "must be greater than {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than": "must be less than {lt:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
    "finite_number": "must be a finite number",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "int_type": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "string_type": "must be text; put it in quotes",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "needs {min_length} or more entries",
    "too_long": "must have at most {max_length} entries",
    "tuple_type": "must be a list, such as [a, b]",
    "dict_type": _MAPPING,
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}
"""Rules by pydantic's error type, with the fields of its context."""

_LIMITS = {"gt": "greater than", "ge": "of at least", "lt": "less than", "le": "at most"}
"""How the limits of a field's type are told."""

_ALTERNATIVE = re.compile(r"str|constrained-\w+|(literal|dict)\[.*\]")
"""What pydantic adds to the place of a field that takes one of several types: the type that was tried."""

_TOO_MANY_DIGITS = "int_parsing_size"
"""Error of whole numbers beyond those of 64 bits."""
_UNREADABLE = ("float_parsing", "int_parsing")
"""Errors of texts that are not numbers."""

ModelAt = Callable[[Location], type[Record] | None]
"""Returns the type of the mapping at a place in a document, `None` if there is no record."""


class Findings:
    """Collects the problems of one file. A problem of a field hides those that only follow from it.

    Args:
        model_at: knows the fields of the file, which messages list if one is unknown or missing; by default a job's.
    """

    def __init__(self, model_at: ModelAt = model_at) -> None:
        self._model_at = model_at
        self.problems: list[Problem] = []
        self._hidden: set[Location] = set()
        self._with_refused_field: set[Location] = set()
        self._written: dict[Location, Location] = {}

    def add(self, location: Location, value: object, rule: str) -> None:
        """Reports a broken rule; later findings at the same place or below it are not repeated."""
        self.add_told(location, shown(value), rule)

    def add_told(self, location: Location, value: str, rule: str) -> None:
        """The same for a value that is in words already."""
        self._append(self._as_written(location), value, rule)
        self._with_refused_field.add(location[:-1])
        self.hide(location)

    def hide(self, location: Location) -> None:
        """Keeps findings of validation at or below a place out of the report."""
        self._hidden.add(location)

    def is_hidden(self, location: Location) -> bool:
        """Returns whether a problem was reported or hidden at or above a place."""
        return any(location[: len(hidden)] == hidden for hidden in self._hidden)

    def rename(self, resolved: Location, written: Location) -> None:
        """Reports findings at a resolved place under the place where the user wrote it."""
        self._written[resolved] = written

    def add_validation(self, error: ValidationError) -> None:
        """Reports pydantic's findings, rewritten as the rules of this module."""
        for detail in _unknown_first(error.errors(include_url=False)):
            location = tuple(step for step in detail["loc"] if step != "[key]")
            if is_alternative := _is_alternative(detail):
                location = location[:-1]
            written = self._as_written(location)
            is_hidden = self.is_hidden(location) or self.is_hidden(written)
            if not (is_hidden or _is_follow_up(detail) or self._follows_from_a_field(detail, location)):
                rule = _rule(detail, location, self._model_at)
                self._append(written, _shown_input(detail), rule, is_alternative=is_alternative)

    def _follows_from_a_field(self, detail: ErrorDetails, location: Location) -> bool:
        """Returns whether a rule on the fields of a record failed only because one of them was refused and thus missing."""
        return detail["type"] == "value_error" and location in self._with_refused_field

    def raise_if_any(self, source: str) -> None:
        """Raises one `InputError` with all problems, if there are any."""
        if self.problems:
            raise InputError(self.problems, source)

    def _append(self, location: Location, value: str, rule: str, *, is_alternative: bool = False) -> None:
        problem = Problem(path=_path_text(location), value=value, rule=rule)
        last = self.problems[-1] if self.problems else None
        if is_alternative and last and (last.path, last.value) == (problem.path, value):
            self.problems[-1] = replace(last, rule=f"{last.rule}, or {rule}")
        elif problem not in self.problems:  # a short form is checked once for each field that it represents
            self.problems.append(problem)

    def _as_written(self, location: Location) -> Location:
        for length in range(len(location), 0, -1):
            if written := self._written.get(location[:length]):
                return (*written, *location[length:])
        return location


def _path_text(location: Location) -> str:
    """Returns a place as users write it: `offers[0].num_gpus.max`; an argument is returned unchanged."""
    if location and isinstance(location[0], Argument):
        return location[0]
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            name = step if re.fullmatch(r"[\w.\-]{1,60}", step, re.ASCII) else shown(step)
            path += f".{name}" if path else name
    return path


def shown(value: object) -> str:
    """Returns a value on one line of printable characters, shortened; text is quoted, `None` becomes empty."""
    if value is None:
        return ""
    # Python refuses to print more than 4,300 digits.
    if isinstance(value, int) and abs(value) >= 10**_MOST_SHOWN:
        return f"a whole number of about 2**{value.bit_length()}"
    if isinstance(value, float):
        return f"{value:.15g}"
    text = json.dumps(value, default=str) if isinstance(value, (dict, list)) else repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def nearest(name: str, known: tuple[str, ...], *, most: int | None = None) -> str:
    """Returns the known names most similar to a name, or those that begin with it; else all of them, or the first `most`.

    Of more names than are read at a glance, the least different ones are told in any case.

    Example:
        >>> nearest("tq", ("tp", "pp", "zero"))
        'nearest: tp'
    """
    least = 0.5 if len(name) <= 2 else 0.6  # one letter of two is half; the other is difflib's default
    begun = [each for each in known if each.startswith(f"{name}_")][:3]
    matches = difflib.get_close_matches(name[:100], known, n=3, cutoff=least) or begun
    if matches:
        return f"nearest: {', '.join(matches)}"
    if most is None and len(known) > _MOST_NAMES:
        return f"nearest of {len(known):,}: {', '.join(difflib.get_close_matches(name[:100], known, n=3, cutoff=0.0))}"
    return f"known: {_first(known, most)}"


def _first(names: tuple[str, ...], most: int | None) -> str:
    """Returns the first names in a row, and how many there are where some are left out."""
    told = names[:most]
    return ", ".join(told) + (f", ... ({len(names):,})" if len(told) < len(names) else "")


def _unknown_first(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Returns the findings with unknown fields first in each mapping, because a misspelt field makes another one missing."""
    first = {detail["loc"][:-1]: place for place, detail in reversed([*enumerate(details)])}
    return sorted(details, key=lambda each: (first[each["loc"][:-1]], each["type"] != "extra_forbidden"))


def _is_follow_up(detail: ErrorDetails) -> bool:
    """Returns whether a list is reported as too short only because some of its entries have problems of their own."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _is_alternative(detail: ErrorDetails) -> bool:
    """Returns whether the last step of a finding's place is no field but one of several types that a field takes."""
    return detail["type"] != "extra_forbidden" and bool(_ALTERNATIVE.fullmatch(str(*detail["loc"][-1:])))


def _shown_input(detail: ErrorDetails) -> str:
    """A missing field has no value, and a rule about several fields names their values itself."""
    return "" if detail["type"] in ("missing", "value_error") else shown(detail["input"])


def _rule(detail: ErrorDetails, location: Location, model_at: ModelAt) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        model = model_at(location[:-1])
        known, name = known_fields(model) if model else (), str(location[-1])
        if model_at(()) is Job and (place := other_place(name)):
            return f"unknown field here; see {place}"
        return f"unknown field; {nearest(name, known)}"
    if kind == "missing":
        return f"is missing{_expected(location, model_at)}"
    if kind == "model_type":
        return _mapping_rule(location, model_at)
    if kind == "tuple_type" and model_at((*location, 0)) is None and _PLAIN.fullmatch(str(detail["input"])):
        return f"must be a list; write [{detail['input']}]"
    if kind == "tuple_type" and isinstance(detail["input"], dict) and model_at((*location, 0)):
        return "must be a list of such mappings; write '- ' before the first field of each"
    if kind == _TOO_MANY_DIGITS:
        return f"must be a whole number{_range(location, model_at)}"
    if kind in _RULES:
        is_whole = kind.startswith("int")
        # An entry of a list has the unit of the list.
        field = next((step for step in reversed(location) if isinstance(step, str)), "")
        limits = detail.get("ctx", {})
        way = way_out(detail["input"], field, is_whole=is_whole) if kind in _UNREADABLE else ""
        way += other_value(detail["input"], limits["expected"]) if kind == "enum" else ""
        way += grams_hint(detail["input"], field, limits["le"]) if kind == "less_than_equal" else ""
        return _EMPTY if _is_empty_text(detail) else _RULES[kind].format(**limits) + way
    return detail["msg"]


def _range(location: Location, model_at: ModelAt) -> str:
    """Returns the range of a number as its type gives it: `greater than 0 and at most 10000`, behind a space."""
    model, field = model_at(location[:-1]), str(location[-1])
    known = model.model_fields.get(field) if model else None
    limits = [
        f"{word} {getattr(limit, name):.15g}"
        for name, word in _LIMITS.items()
        for limit in ((*known.metadata, *_limits_in(known.annotation)) if known else ())
        if hasattr(limit, name)
    ]
    if not any(limit.startswith(("at most", "less")) for limit in limits):
        limits.append("less than 2**63")
    return f" {' and '.join(limits)}"


def _limits_in(annotation: object) -> Iterator[object]:
    """Yields the limits that a type such as `Annotated[int, Gt(0)] | None` has inside."""
    for limit in getattr(annotation, "__metadata__", ()):
        yield from limit.metadata if isinstance(limit, FieldInfo) else (limit,)
    for part in get_args(annotation):
        yield from _limits_in(part)


def _is_empty_text(detail: ErrorDetails) -> bool:
    """Returns whether the problem is an empty text where any other length is allowed."""
    return detail["type"] == "string_too_short" and detail["ctx"]["min_length"] == 1


def _mapping_rule(location: Location, model_at: ModelAt) -> str:
    """Returns what to write instead of a value that is not a mapping: its short form, or the fields."""
    parent, model = model_at(location[:-1]), model_at(location)
    if parent and isinstance(location[-1], str) and form_of(parent, location[-1]):
        return f"must be given as follows{_expected(location, model_at)}"
    return f"{_MAPPING}: {_first(known_fields(model), _MOST_NAMES)}" if model else _MAPPING


def _expected(location: Location, model_at: ModelAt) -> str:
    """Returns ': what the field takes' from its form or its description; empty if neither exists."""
    model, field = model_at(location[:-1]), str(location[-1])
    if model is None:
        return ""
    if form := form_of(model, field):
        return f": {form.written}"
    meaning = meanings(model).get(field)
    return f": {meaning.rstrip('.')}" if meaning else ""
