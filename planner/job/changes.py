"""How is one figure of a job changed? By replacing single fields, without parsing the job again.

Nothing is validated: callers must know which values the fields accept.
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.record import Record

Change = Callable[[Job, float], Job]
"""Returns the job with a new value of one figure."""


def setting(*path: str | int) -> Change:
    """Returns a change that sets the field at a path; numbers in the path are positions in a sequence."""
    return lambda job, value: _replaced(job, path, lambda _: value)


def scaling(place: tuple[str | int, ...], names: tuple[str, ...]) -> Change:
    """Returns a change that multiplies some fields of one record by a factor."""

    def change(job: Job, factor: float) -> Job:
        for name in names:
            job = _replaced(job, (*place, name), lambda value: value * factor)
        return job

    return change


def scaling_profile(*path: str | int) -> Change:
    """Returns a change that multiplies every hour of the profile at a path by a factor."""

    def scaled(profile: object, factor: float) -> HourlyProfile:
        assert isinstance(profile, HourlyProfile), f"{path} is no profile"
        return HourlyProfile(per_hour=tuple(value * factor for value in profile.per_hour))

    return lambda job, factor: _with_value(job, path, lambda profile: scaled(profile, factor))


def _replaced(job: Job, path: tuple[str | int, ...], new: Callable[[float], float]) -> Job:
    """Returns the job with one number changed."""

    def number(value: object) -> float:
        assert isinstance(value, (int, float)), f"{path} is no number"
        return new(value)

    return _with_value(job, path, number)


def _with_value(job: Job, path: tuple[str | int, ...], new: Callable[[object], object]) -> Job:
    """Returns the job with one value changed."""

    def walk(value: object, rest: tuple[str | int, ...]) -> object:
        if not rest:
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
