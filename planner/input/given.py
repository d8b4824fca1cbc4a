"""Has a Python program passed a valid job? A `Job` whose values keep their rules, or else one error."""

from __future__ import annotations

from planner.input.arguments import check_kind, check_seed
from planner.input.problems import Findings
from planner.input.record_input import validated
from simulator.domain.job import Job


def check_job(job: object) -> None:
    """Raises `InputError` for anything but a `Job`, such as the path of a job file."""
    check_kind(job, "job", Job, "must be a Job, such as load_job returns")


def checked_job(job: Job, seed: int) -> Job:
    """Returns the job validated by its own types, since `model_copy` checks nothing.

    Raises:
        InputError: a value breaks a rule of its field.
    """
    check_job(job)
    check_seed(seed)
    return validated(Job, job.model_dump(warnings=False), Findings(), "job")
