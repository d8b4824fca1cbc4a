"""How does a job look with another value of one figure? Changes of single fields, without reading the job anew.

Nothing is validated: whoever changes a job knows which values its fields take.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.domain.job import Job
from simulator.record import Record

Change = Callable[[Job, float], Job]
"""Returns the job with another value of one figure."""


def setting(*path: str | int) -> Change:
    """Returns a change that gives the field at a path a value; numbers in a path are positions."""
    return lambda job, value: _replaced(job, path, lambda _: value)


def scaling(place: tuple[str | int, ...], names: tuple[str, ...]) -> Change:
    """Returns a change that multiplies some fields of one record by a factor."""

    def change(job: Job, factor: float) -> Job:
        for name in names:
            job = _replaced(job, (*place, name), lambda value: value * factor)
        return job

    return change


def _replaced(job: Job, path: tuple[str | int, ...], new: Callable[[float], float]) -> Job:
    """Returns the job with one value changed."""

    def walk(value: object, rest: tuple[str | int, ...]) -> object:
        if not rest:
            assert isinstance(value, (int, float)), f"{path} is no number"
            return new(value)
        step, *later = rest
        if isinstance(step, int):
            assert isinstance(value, tuple)
            return (*value[:step], walk(value[step], tuple(later)), *value[step + 1 :])
        assert isinstance(value, Record)
        return value.model_copy(update={step: walk(getattr(value, step), tuple(later))})

    changed = walk(job, path)
    assert isinstance(changed, Job)
    return changed
