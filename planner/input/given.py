"""Has a Python program passed a valid job or plan? One whose values keep their rules, or else one error."""

from __future__ import annotations

from collections.abc import Iterator

from planner.input.arguments import check_kind, check_seed
from planner.input.problems import Findings, nearest, shown
from planner.input.record_input import validated
from simulator.domain.job import Job
from simulator.errors import InputError, Problem
from simulator.record import Record


def valid_job(job: Job) -> Job:
    """Returns a job validated by its own types, with values of a changed copy converted as those of a file.

    `model_copy` checks nothing and sets whatever it is given, so that a misspelt field would be no error and change nothing.

    Raises:
        InputError: it is no `Job`, but for example the path of a job file, a name is no field, or a value breaks a rule.
    """
    check_kind(job, "job", Job, "must be a Job, such as load_job returns")
    check_names(job, "job")
    return validated(Job, job.model_dump(warnings=False), Findings(), "job")


def check_names(record: Record, path: str) -> None:
    """Raises `InputError` for names that were set on a record, or on one inside it, and are no fields."""
    if problems := list(_strays(record, path)):
        raise InputError(problems)


def _strays(value: object, path: str) -> Iterator[Problem]:
    """Problems of all names that are no fields, computed ones included."""
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
    """Returns a valid job, as `valid_job` does, and checks a seed.

    Raises:
        InputError: a value of the job breaks a rule of its field, or the seed is none.
    """
    check_seed(seed)
    return valid_job(job)
