"""How does a caller replace values of a job file? With texts such as `limits.budget_usd=4e6`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from planner.input.problems import Findings
from planner.input.schema import DEFAULT_PRESET, Location, long_form
from planner.input.yaml_text import parse_value
from planner.text import human
from simulator.argument_names import Argument
from simulator.errors import InputError
from simulator.record import Record

_NAME = r"[A-Za-z_][\w\-]*"
_INDEX = r"\[[0-9]{1,6}\]"
_PATH = re.compile(rf"{_NAME}(?:{_INDEX})*(?:\.{_NAME}(?:{_INDEX})*)*", re.ASCII)
_STEP = re.compile(rf"({_NAME})|\[([0-9]+)\]", re.ASCII)


def is_path(text: str) -> bool:
    """Returns whether a text has the form of a field's path, such as `offers[0].num_gpus.max`."""
    return _PATH.fullmatch(text) is not None


def with_overrides(
    document: Mapping[str, object], overrides: Sequence[str], findings: Findings
) -> Mapping[str, object]:
    """Returns a copy of a document with values replaced or added in the order of the overrides.

    An override is a path, `=` and a value in YAML; `null` removes a value, and an empty value is an error. If the file has a
    short form, such as `site: us-iowa`, an override may set any of the fields for which it stands; fields of a `reliability`
    that is left out are set beside the preset that then holds.
    """
    if isinstance(overrides, str):  # a str is also a sequence of texts: its characters
        findings.add((Argument("overrides"),), overrides, f"must be a list of texts: [{overrides!r}]")
        return document
    if not (isinstance(overrides, Sequence) and all(isinstance(each, str) for each in overrides)):
        findings.add(
            (Argument("overrides"),), overrides, 'must be a list of texts, such as ["limits.budget_usd=4e6"]'
        )
        return document
    for place, override in enumerate(overrides):
        location, value = _parsed(place, override, findings)
        if location:
            replaced = _replaced(document, location, value, (), findings)
            assert isinstance(replaced, Mapping)
            document = replaced
    return document


def _parsed(place: int, override: str, findings: Findings) -> tuple[Location, object]:
    path, equals, text = override.partition("=")
    if equals and not text.strip():
        findings.add(
            (Argument("overrides", place=place),), override, "needs a value after =; null takes a value out"
        )
        return (), None
    if not equals or not is_path(path.strip()):
        rule = "must be a path, = and a value, such as limits.budget_usd=4e6 or offers[0].num_gpus.max=512"
        findings.add((Argument("overrides", place=place),), override, rule)
        return (), None
    location = tuple(name or int(index) for name, index in _STEP.findall(path))
    try:
        return location, parse_value(text, source=override)
    except InputError as error:
        for problem in error.problems:
            findings.add(location, text, problem.rule)
        return (), None


def _replaced(node: object, rest: Location, value: object, done: Location, findings: Findings) -> object:
    """Returns a copy of a value with the part at `rest` replaced; `done` is the path from the top to the value."""
    if not rest:
        return value
    step, here = rest[0], (*done, rest[0])
    if isinstance(step, int):
        items = list(node) if isinstance(node, (list, tuple)) else []
        if step >= len(items):
            known = human.counted(len(items), "entry", "entries")
            findings.add(here, None, f"cannot be replaced: the list has {known}, counted from 0")
            return node
        items[step] = _replaced(items[step], rest[1:], value, here, findings)
        return items
    fields = _fields(node, done)
    if fields is None:
        findings.add(done, node, f"has no field {step}: it is a single value or a list")
        return node
    return {**fields, step: _replaced(fields.get(step), rest[1:], value, here, findings)}


def _fields(node: object, location: Location) -> Mapping[str, object] | None:
    """Returns the fields of a mapping, a record or a short form; `None` for any other value.

    Of `None` they are those that stand for what is left out: a fleet for `reliability`, otherwise none.
    """
    if node is None and location == ("reliability",):
        node = DEFAULT_PRESET
    long = long_form(str(location[-1]), node) if location else node
    match long:
        case None:
            return {}
        case Record():
            return long.model_dump()
        case Mapping():
            return long
        case _:
            return None
