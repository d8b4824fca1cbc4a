"""Which fields does a job get from its framework? Those of its workload and search that it leaves out.

`workload.framework` names an entry of the catalogue. What the job writes itself always holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from planner.input.problems import Findings
from planner.job.short_forms import Fields, found
from simulator import catalog
from simulator.catalog import Framework
from simulator.domain.job import Job
from simulator.domain.workload import Workload
from simulator.errors import CatalogError, InputError, Problem

_LOCATION = ("workload", "framework")
_SET_FIELDS = {name for name, field in Workload.model_fields.items() if field.default is not None}
"""Fields of a workload that always have a value, as the job that an answer keeps says."""


def with_habits(job: Fields, findings: Findings) -> Fields:
    """Returns the fields of a job, with those that it leaves out as its framework has them; an unknown name is reported."""
    workload, search = job.get("workload"), job.get("search", {})
    name = workload.get("framework") if isinstance(workload, dict) else None
    if not isinstance(workload, dict) or not isinstance(name, str):
        return job
    if workload.keys() >= _SET_FIELDS:  # the job of an answer, whose framework may be in a file of the user's
        return job
    framework = found(catalog.framework, name, _LOCATION, findings)
    if framework is None:
        return job
    filled = {**job, "workload": {**framework.workload, **workload}}
    return {**filled, "search": {**framework.search, **search}} if isinstance(search, dict) else filled


def telling_habits(error: InputError, written: Mapping[str, object]) -> InputError:
    """Returns an error that says which of the fields in its rules the job has from its framework.

    Args:
        error: what was found wrong with a job.
        written: the fields of the job as written, which a reader can find.
    """
    workload = written.get("workload")
    name = workload.get("framework") if isinstance(workload, Mapping) else None
    framework = _known(name) if isinstance(name, str) else None
    if framework is None or not isinstance(workload, Mapping):
        return error
    filled = {field: habit for field, habit in framework.workload.items() if workload.get(field) is None}
    return InputError(
        [_with_habits_told(problem, str(name), filled) for problem in error.problems], error.source
    )


def _with_habits_told(problem: Problem, name: str, filled: Mapping[str, object]) -> Problem:
    told = [
        f"{field} is {str(habit).lower() if isinstance(habit, bool) else habit}"
        for field, habit in filled.items()
        if problem.path == "workload" and re.search(rf"\b{field}\b", problem.rule)
    ]
    if not told:
        return problem
    return replace(
        problem,
        rule=f"{problem.rule} (with framework {name}, {', '.join(told)} unless the job says otherwise)",
    )


def habitual_fields(job: Job) -> frozenset[str]:
    """Returns the paths at which a job has what its framework does; none if it names none."""
    name = job.workload.framework
    framework = None if name is None else _known(name)
    if framework is None:
        return frozenset()
    parts = (("workload", job.workload, framework.workload), ("search", job.search, framework.search))
    return frozenset(
        f"{part}.{field}"
        for part, record, habits in parts
        for field, habit in habits.items()
        if getattr(record, field) == (tuple(habit) if isinstance(habit, list) else habit)
    )


def _known(name: str) -> Framework | None:
    """Returns a framework of the catalogue; `None` if it is in a file of the user's that is not at hand."""
    try:
        return catalog.framework(name)
    except CatalogError:
        return None
