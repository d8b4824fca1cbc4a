"""Under which condition do fields of a job have an effect, and why not otherwise?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.domain.job import Job
from simulator.record import Record


@dataclass(frozen=True, kw_only=True)
class UnusedRule:
    """Fields that only have an effect if the job meets a condition."""

    is_used: Callable[[Job], bool]
    why: str
    """Why they have no effect otherwise."""
    paths: tuple[str, ...]


def is_set(job: Job, path: str) -> bool:
    """Returns whether a field, named as `part.field`, or a part of it, is present and differs from its default."""
    *parts, field = path.split(".")
    record: Record | None = job
    for part in parts:
        record = getattr(record, part, None)
    if record is None:
        return False
    default = type(record).model_fields[field].get_default(call_default_factory=True)
    return bool(getattr(record, field) != default)
