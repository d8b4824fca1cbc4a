"""Does every value of the axes of a sweep give a job of its own? What is wrong with one is told of its axis, not of the job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from simulator.argument_names import Argument
from simulator.errors import InputError, Problem

Axes = Mapping[str, object]
"""One value of each axis, by the field of the job that it replaces."""
Job = TypeVar("Job")
NOTHING_NEW = (
    "gives the same designs as value {first} of this axis; a sweep has sizes, spares, schemes and intervals of its own, and "
    "applies no limits"
)
"""The rule that a value breaks which changes nothing."""


def as_written(value: object) -> str:
    """Returns a value of an axis in the form of `--set`: text unchanged, everything else as JSON.

    Example:
        >>> as_written(2e12), as_written({"low": 1})
        ('2e+12', '{"low": 1}')
    """
    if isinstance(value, float) and float(short := f"{value:g}") == value:
        return short
    return value if isinstance(value, str) else json.dumps(value)


def assignments(axes: Axes) -> list[str]:
    """Returns the values of axes as `--set` takes them: `workload.tokens=1e12`."""
    return [f"{name}={as_written(value)}" for name, value in axes.items()]


@dataclass(frozen=True, kw_only=True)
class AxisValues:
    """The values that each axis of a sweep takes."""

    values: Mapping[str, tuple[object, ...]]
    """At least one value of each axis."""
    source: str
    """Name of the sweep, for error messages."""

    def check(self, job_with: Callable[[Axes], Job], counted: Callable[[Job], object]) -> None:
        """Tries every value of each axis once, beside the first values of all others.

        Args:
            job_with: makes the job with some values of axes.
            counted: what the designs of a job depend on, hashable.

        Raises:
            InputError: some give no job, or the same designs as another value; all of them are in `problems`.
        """
        if replaced := list(self._replaced()):
            raise InputError(replaced, self.source)
        first = {name: values[0] for name, values in self.values.items()}
        given = self.job(first, job_with)
        problems: list[Problem] = []
        for name, values in self.values.items():
            known = {counted(given): 0}
            for place, value in enumerate(values[1:], start=1):
                try:
                    same = known.setdefault(counted(job_with({**first, name: value})), place)
                except InputError as error:
                    problems += (self._told(problem, {name: value}) for problem in error.problems)
                    continue
                if same != place:
                    path, rule = f"axes.{name}[{place}]", NOTHING_NEW.format(first=same)
                    problems.append(Problem(path=path, value=as_written(value), rule=rule))
        if problems:
            raise InputError(problems, self.source)

    def _replaced(self) -> Iterator[Problem]:
        """Axes of which a later one replaces the whole section that their field is in."""
        names = list(self.values)
        for place, name in enumerate(names):
            for later in names[place + 1 :]:
                if name.startswith((f"{later}.", f"{later}[")):
                    yield Problem(
                        path=f"axes.{name}",
                        value="",
                        rule=f"is replaced by axes.{later}; write that one first",
                    )

    def job(self, axes: Axes, job_with: Callable[[Axes], Job]) -> Job:
        """Returns the job with these values; raises `InputError` that names them, unless the job itself is wrong."""
        try:
            return job_with(axes)
        except InputError as error:
            without = _problems_without(job_with) if axes else error.problems
            if set(error.problems) <= set(without):
                raise
            told = [
                Problem(path="job", value="", rule=str(problem))
                if problem in without
                else self._told(problem, axes)
                for problem in error.problems
            ]
            raise InputError(told, self.source) from None

    def _told(self, problem: Problem, axes: Axes) -> Problem:
        """A problem of a job at the axis that replaces its field; otherwise at the axes that the job was given."""
        for name, value in axes.items():
            rest = problem.path.removeprefix(name)
            if problem.path.startswith(name) and (not rest or rest[0] in ".["):
                return Problem(
                    path=f"{self._place(name, value)}{rest}", value=problem.value, rule=problem.rule
                )
        rule = problem.rule if isinstance(problem.path, Argument) else str(problem)
        if len(axes) == 1:
            ((name, value),) = axes.items()
            return Problem(path=self._place(name, value), value=as_written(value), rule=rule)
        at = ", ".join(f"{name} = {as_written(value)}" for name, value in axes.items())
        return Problem(path="axes", value=at, rule=rule)

    def _place(self, name: str, value: object) -> str:
        return f"axes.{name}[{self.values[name].index(value)}]"


def _problems_without(job_with: Callable[[Axes], object]) -> tuple[Problem, ...]:
    try:
        job_with({})
    except InputError as error:
        return error.problems
    return ()
