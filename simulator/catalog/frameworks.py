"""Which habits does a training framework have? Values of a job's workload and search that hold where the job says nothing.

The quantities of `frameworks.csv` are fields of `Workload` and `Search`, but for `name`; lists are written with commas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError

from simulator.catalog.lookup import Kind, figures
from simulator.domain.search_options import Search
from simulator.domain.workload import Workload
from simulator.errors import CatalogError, Problem

_TRUTHS = {"true": True, "false": False}

Habit = bool | int | float | str | list[int | str]
"""A value as a job file has it."""


@dataclass(frozen=True, kw_only=True)
class Framework:
    """What a framework does unless a job says otherwise."""

    workload: Mapping[str, Habit]
    """Values by field of the workload."""
    search: Mapping[str, Habit]
    """Values by field of the search: what the framework has, or what its users mostly take."""


def framework(name: str, *, path: str = "framework") -> Framework:
    """Returns the habits of a framework; raises `CatalogError` for an unknown name, or for own figures that break rules."""
    found = {figure.quantity: figure.si_value for figure in figures(Kind.FRAMEWORKS, name, path=path)}
    workload = {field: _scalar(value) for field, value in found.items() if field in Workload.model_fields}
    search = {field: _listed(value) for field, value in found.items() if field in Search.model_fields}
    problems = [*_broken(Workload, workload), *_broken(Search, search)]
    if problems:
        rule = f"has figures in a file of your own that no job may have: {'; '.join(problems)}"
        raise CatalogError([Problem(path=path, value=name, rule=rule)])
    return Framework(workload=workload, search=search)


def _scalar(value: float | str) -> bool | int | float | str:
    if isinstance(value, str):
        return _TRUTHS.get(value, value)
    return int(value) if value.is_integer() else value


def _listed(value: float | str) -> list[int | str]:
    words = value.split(",") if isinstance(value, str) else [f"{value:g}"]
    return [int(word) if word.strip().isdecimal() else word.strip() for word in words]


def _broken(record: type[Workload | Search], values: Mapping[str, Habit]) -> list[str]:
    """Returns what is wrong with values, each for itself: a job checks what they must be to each other."""
    problems = []
    for name, value in values.items():
        field = record.model_fields[name]
        kind: Any = Annotated[field.annotation, field]
        try:
            TypeAdapter(kind).validate_python(value)
        except ValidationError as error:
            problems.append(f"{name}: {error.errors(include_url=False)[0]['msg']}")
    return problems
