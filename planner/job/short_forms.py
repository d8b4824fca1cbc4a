"""How is a short form expanded? Steps that all parts of a job file share: names, single values, nulls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from planner.input.problems import Findings
from planner.input.schema import LONG_FORMS, Location, is_unset_by_null, long_form, model_at
from simulator.errors import InputError

Fields = dict[str, object]
Entry = TypeVar("Entry")


def without_nulls(fields: Fields, location: Location) -> Fields:
    """Returns the set fields of a record and of the records in it; `null` unsets a known field."""
    model = model_at(location)
    return {
        name: _inner_without_nulls(value, (*location, name))
        for name, value in fields.items()
        if value is not None or model is None or not is_unset_by_null(model, name)
    }


def _inner_without_nulls(value: object, location: Location) -> object:
    match value:
        case dict():
            return without_nulls(value, location)
        case list():
            return [_inner_without_nulls(item, (*location, index)) for index, item in enumerate(value)]
        case _:
            return value


def entry(
    value: object, find: Callable[[str], Entry], location: Location, findings: Findings
) -> Entry | object:
    """Returns the catalogue's entry for a name; any other value unchanged."""
    return found(find, value, location, findings) if isinstance(value, str) else value


def found(find: Callable[[str], Entry], name: str, location: Location, findings: Findings) -> Entry | None:
    """Returns the catalogue's entry for a name; an unknown name is reported and becomes `None`."""
    try:
        return find(name)
    except InputError as error:
        for problem in error.problems:
            findings.add(location, name, problem.rule)
        return None


def lengthen(fields: Fields, field: str, location: Location, findings: Findings) -> None:
    """Replaces a single value by the mapping for which it stands, if any."""
    value = fields.get(field)
    long = long_form(field, value)
    if long is not value:
        fields[field] = long
        for key in LONG_FORMS[field]:
            findings.rename((*location, field, key), (*location, field))


def number_of(value: object) -> float | None:
    """Returns a number that may be written as text (`4e6` is text in YAML); `None` for anything else."""
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:
        return None
