"""How fast is a study, how much of the true front does NSGA-II find, and what does recording cost?

    python -m benchmarks.search

Compares in one run: designs simulated per second, the evolutionary search against the exhaustive one of the same space
(share of the dominated volume, evaluations, time), and a study with and without MLflow. Times depend on the machine,
ratios hardly do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from constraints.evaluation import evaluate
from objectives.pareto import hypervolume
from planner import Job, Recommendation, load_job, recommend
from studies.archive import Archive
from studies.study import run_study

EXAMPLES = Path(__file__).parents[1] / "examples"
JOBS = ("llama-3.1-70b", "llama-3.1-405b", "bloom-176b")
SEEDS = (0, 1, 2, 3, 4)
REPETITIONS = 5
MAX_EVALUATIONS = 6_000
REFERENCE_FACTOR = 1.3
"""The volume is measured up to this multiple of the worst values on the exhaustive front."""

_Result = TypeVar("_Result")


def timed(call: Callable[[], _Result]) -> tuple[_Result, float]:
    """Returns the result of a call and the seconds it took."""
    started = time.perf_counter()
    return call(), time.perf_counter() - started


def study_of(job: Job, seed: int = 0) -> Archive:
    """Searches a job without recording it."""
    archive = Archive(job)
    run_study(job, archive, lambda evaluation, _: archive.add(evaluation), seed=seed)
    return archive


def job_of(name: str, *changes: str) -> Job:
    """Returns a shipped job, changed."""
    return load_job(EXAMPLES / f"{name}.yaml", changes)


def examples_table() -> Table:
    """Each shipped job, with and without recording."""
    table = Table(
        "job", "designs", "without MLflow, s", "with MLflow, s", "ratio", "designs/s", title="Whole answers"
    )
    for name in JOBS:
        job = job_of(name)
        plain, plain_s, recorded_s = with_and_without_recording(job)
        table.add_row(
            name,
            f"{plain.num_evaluated:,}",
            f"{plain_s:.2f}",
            f"{recorded_s:.2f}",
            f"{recorded_s / plain_s:.2f}",
            f"{plain.num_evaluated / plain_s:,.0f}",
        )
    return table


def with_and_without_recording(job: Job) -> tuple[Recommendation, float, float]:
    """Returns an answer and the median seconds it takes, not recorded and recorded, in turns."""
    plain_s, recorded_s = [], []
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/mlflow.db"
        answer = recommend(job, tracking_uri=store)  # makes the store, which costs a second or two once
        for _ in range(REPETITIONS):
            plain_s.append(timed(lambda: recommend(job, tracking=False))[1])
            recorded_s.append(timed(lambda: recommend(job, tracking_uri=store))[1])
    return answer, median(plain_s), median(recorded_s)


def search_table() -> Table:
    """NSGA-II against the exhaustive search of the same space."""
    table = Table(
        "search", "seed", "designs", "seconds", "share of the volume", title="Search, llama-3.1-70b"
    )
    wide = "limits.deadline_days=null", "limits.budget_usd=null", "search.num_refinements=0"
    job = job_of("llama-3.1-70b", *wide, "search.algorithm=exhaustive")
    exact, exact_s = timed(lambda: study_of(job))
    assert exact.front is not None
    values = exact.front.objectives(job)
    reference = REFERENCE_FACTOR * values.max(axis=0)
    volume = hypervolume(values, reference)
    table.add_row("exhaustive", "", f"{exact.num_evaluated:,}", f"{exact_s:.1f}", "1")
    heuristic = job_of(
        "llama-3.1-70b", *wide, "search.algorithm=nsga2", f"search.max_evaluations={MAX_EVALUATIONS}"
    )
    for seed in SEEDS:
        archive, seconds = timed(lambda seed=seed: study_of(heuristic, seed))
        assert archive.front is not None
        share = hypervolume(archive.front.objectives(job), reference) / volume
        table.add_row("NSGA-II", str(seed), f"{archive.num_evaluated:,}", f"{seconds:.1f}", f"{share:.4f}")
    return table


def batch_table() -> Table:
    """One design after another against one batch."""
    from constraints.space import pruned_space

    job = job_of("llama-3.1-70b")
    designs = pruned_space(job).designs()
    sample = designs.take(np.linspace(0, len(designs) - 1, 2_000).astype(np.intp))
    evaluate(job, sample)
    _, batch_s = timed(lambda: evaluate(job, sample))
    _, single_s = timed(lambda: [evaluate(job, sample.take(slice(row, row + 1))) for row in range(200)])
    table = Table("way", "designs/s", title="Evaluation, llama-3.1-70b")
    table.add_row("one by one", f"{200 / single_s:,.0f}")
    table.add_row("one batch", f"{len(sample) / batch_s:,.0f}")
    table.add_row("ratio", f"{len(sample) / batch_s / (200 / single_s):,.0f}")
    return table


def main() -> None:
    """Prints the tables."""
    console = Console()
    recommend(job_of("bloom-176b"), tracking=False)  # compiled kernels are loaded once
    for table in (batch_table(), examples_table(), search_table()):
        console.print(table)


if __name__ == "__main__":
    main()
