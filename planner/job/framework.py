"""Which fields does a job get from its framework? Those of its workload and search that it leaves out.

`workload.framework` names an entry of the catalogue. What the job writes itself always holds.
"""

from __future__ import annotations

from planner.input.problems import Findings
from planner.job.short_forms import Fields, found
from simulator import catalog
from simulator.catalog import Framework
from simulator.domain.job import Job
from simulator.errors import CatalogError

_LOCATION = ("workload", "framework")


def with_habits(job: Fields, findings: Findings) -> Fields:
    """Returns the fields of a job, with those that it leaves out as its framework has them; an unknown name is reported."""
    workload, search = job.get("workload"), job.get("search", {})
    name = workload.get("framework") if isinstance(workload, dict) else None
    if not isinstance(workload, dict) or not isinstance(name, str):
        return job
    framework = found(catalog.framework, name, _LOCATION, findings)
    if framework is None:
        return job
    filled = {**job, "workload": {**framework.workload, **workload}}
    return {**filled, "search": {**framework.search, **search}} if isinstance(search, dict) else filled


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
