"""When do fields of a job matter, and why not otherwise?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.job import Job
from simulator.record import Record


@dataclass(frozen=True, kw_only=True)
class UnusedRule:
    """Fields that only matter where a job has something else."""

    is_used: Callable[[Job], bool]
    why: str
    """Why not, where it has not."""
    paths: tuple[str, ...]


def is_set(job: Job, path: str) -> bool:
    """Returns whether a field, named as `part.field`, differs from its default."""
    part_name, field = path.split(".")
    part: Record = getattr(job, part_name)
    return bool(getattr(part, field) != type(part).model_fields[field].get_default(call_default_factory=True))
