"""Has a Python program given what is asked for? A job, a seed, a mapping or a path, or else one error that says so."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from planner.problems import Findings, shown
from planner.record_input import validated
from simulator.errors import InputError, Problem
from simulator.job import Job

LARGEST_SEED = 2**32 - 1


def check_job(job: object) -> None:
    """Raises `InputError` for what is no `Job`, such as the path of a job file."""
    if not isinstance(job, Job):
        raise _refused("job", job, "must be a Job, such as load_job returns")


def check_seed(seed: object) -> None:
    """Raises `InputError` for what is no seed."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED:
        raise _refused("seed", seed, f"must be a whole number from 0 to {LARGEST_SEED}")


def check_mapping(value: object, name: str, rule: str) -> None:
    """Raises `InputError` with a rule for what is no mapping, such as text."""
    if not isinstance(value, Mapping):
        raise _refused(name, value, rule)


def path_given(path: object) -> Path:
    """Returns the path of a file; raises `InputError` for what is none, such as the content of one."""
    if not isinstance(path, (str, PathLike)):
        raise _refused("path", path, "must be the path of a file")
    return Path(path)


def checked_job(job: Job, seed: int) -> Job:
    """The job as its own types read it, since `model_copy` checks nothing.

    Raises:
        InputError: a value breaks a rule of its field.
    """
    check_job(job)
    check_seed(seed)
    return validated(Job, job.model_dump(warnings=False), Findings(), "job")


def _refused(name: str, value: object, rule: str) -> InputError:
    return InputError([Problem(path=name, value=shown(value) or repr(value), rule=rule)])
