"""Which study do the tests of studies run, stop and deliver? One with about a dozen batches."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from planner.study.durable import StudyAnswer, run_study_of
from simulator.domain.job import Job
from studies.files.identity import Keep
from studies.files.journal import Journal
from studies.files.store import StudyStore
from studies.progress import Stop, never_stop
from tests.studies.study_jobs import small_job

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EVALUATIONS = 120


def job_of(**search: object) -> Job:
    """A search of about a dozen batches, refinement included."""
    settings = {
        "algorithm": "nsga2",
        "max_evaluations": EVALUATIONS,
        "population_size": 12,
        "num_refinements": 2,
        "tensor_parallel": [1, 2],
        **search,
    }
    return small_job(**settings)


def run(
    folder: Path,
    *,
    seed: int = 1,
    job: Job | None = None,
    should_stop: Stop = never_stop,
    keep: Keep = "all",
) -> StudyAnswer:
    store = StudyStore(folder)
    return run_study_of(
        job or job_of(), seed=seed, store=store, should_stop=should_stop, clock=lambda: NOW, keep=keep
    )


def made(
    folder: Path,
    *,
    seed: int = 1,
    job: Job | None = None,
    num_batches: int | None = None,
    keep: Keep = "all",
) -> StudyAnswer:
    """A study as `run` leaves it in an empty folder, complete or stopped after some batches; equal ones are searched once."""
    known = _made(seed, (job or job_of()).model_dump_json(), num_batches, keep)
    return replace(known, path=Path(shutil.copy(known.path, folder)))


@functools.cache
def _made(seed: int, job: str, num_batches: int | None, keep: Keep) -> StudyAnswer:
    should_stop = never_stop if num_batches is None else stop_after(num_batches)
    folder = Path(tempfile.mkdtemp(prefix="capplan-test-"))
    return run(folder, seed=seed, job=Job.model_validate_json(job), should_stop=should_stop, keep=keep)


def exhaustive_job() -> Job:
    """An exhaustive search of a few hundred designs, which can keep only their front."""
    return job_of(algorithm="exhaustive", num_refinements=0, tensor_parallel=[1], pipeline_parallel=[1])


def stop_after(num_batches: int) -> Stop:
    """Returns a callback that stops a search after `num_batches` batches."""
    left: Iterator[bool] = iter([False] * num_batches)
    return lambda: next(left, True)


def keys_of(path: Path) -> np.ndarray:
    with Journal.read(path) as journal:
        return np.concatenate([np.zeros(0, dtype=np.uint64), *(keys for _, keys in journal.design_keys())])
