"""Has a Python program passed a valid job? A `Job` whose values keep their rules, or else one error."""

from __future__ import annotations

from collections.abc import Iterator

from planner.input.arguments import check_kind, check_seed
from planner.input.problems import Findings, nearest, shown
from planner.input.record_input import validated
from simulator.domain.job import Job
from simulator.errors import InputError, Problem
from simulator.record import Record


def check_job(job: object) -> None:
    """Raises `InputError` for anything but a `Job`, such as the path of a job file, and for names that are no fields.

    `model_copy` sets whatever it is given, so that a misspelt field would be no error and change nothing.
    """
    check_kind(job, "job", Job, "must be a Job, such as load_job returns")
    if problems := list(_strays(job, "job")):
        raise InputError(problems)


def _strays(value: object, path: str) -> Iterator[Problem]:
    """Problems of all names that were set on a record, or on one inside it, and are no fields, computed ones included."""
    match value:
        case Record():
            known = type(value).model_fields
            for name, item in vars(value).items():
                if name in known:
                    yield from _strays(item, f"{path}.{name}")
                else:
                    rule = f"unknown field; {nearest(name, tuple(known))}"
                    yield Problem(path=f"{path}.{name}", value=shown(item), rule=rule)
        case tuple():
            for index, item in enumerate(value):
                yield from _strays(item, f"{path}[{index}]")
        case _:
            return


def checked_job(job: Job, seed: int) -> Job:
    """Returns the job validated by its own types, since `model_copy` checks nothing.

    Raises:
        InputError: a value breaks a rule of its field.
    """
    check_job(job)
    check_seed(seed)
    return validated(Job, job.model_dump(warnings=False), Findings(), "job")
