"""How much of the true front does a search find with a twentieth of the evaluations, and what does recording cost?

    python -m benchmarks.search                  both, each job as soon as it is done
    python -m benchmarks.search --job 405B       the share of the volume that the exhaustive front dominates, on some jobs
    python -m benchmarks.search --recording      a study with and without MLflow

There are six jobs with two to four objectives, under tight and loose limits, and eight others that were held out
(`benchmarks.search_jobs`). Every design of a space is simulated once; the searches then look up what they ask for. Times depend
on the machine; shares do not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Self, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.search_jobs import HELD_OUT, SEEN
from benchmarks.sheets import markdown_row
from constraints.evaluation import Evaluation, evaluate
from constraints.space import Space, pruned_space
from objectives.pareto import front_rows, hypervolume
from planner import Job, Recommendation, load_job, recommend
from simulator.domain.plan import PlanTable
from simulator.domain.search_options import Algorithm
from simulator.table import Floats
from studies.designs.archive import Archive
from studies.designs.plan_keys import plan_keys
from studies.designs.reduction import Reduction
from studies.evaluation.evaluator import Evaluator
from studies.search import Searcher
from studies.searchers.tuning import DEFAULT, Tuning
from studies.study import run_study

EXAMPLES = Path(__file__).parents[1] / "examples"
JOBS = ("llama-3.1-70b", "llama-3.1-405b", "bloom-176b")
REPETITIONS = 5
SHARE_OF_EVALUATIONS = 0.05
REFERENCE_FACTOR = 1.3
"""The volume is measured up to this multiple of the worst values on the exhaustive front."""
ALGORITHMS = (Algorithm.NSGA2, Algorithm.NSGA3, Algorithm.RANDOM)
WIDTH = 160
_Result = TypeVar("_Result")


def timed(call: Callable[[], _Result]) -> tuple[_Result, float]:
    """Returns the result of a call and the seconds it took."""
    started = time.perf_counter()
    return call(), time.perf_counter() - started


def study_of(
    job: Job, seed: int, evaluator: Evaluator, tuning: Tuning = DEFAULT, space: Space | None = None
) -> Archive:
    """Searches a job without recording it."""
    archive = Archive(job)

    def record(found: Evaluation | Reduction, stage: str) -> None:
        del stage
        archive.add(found)

    searcher = Searcher(job=job, archive=archive, evaluator=evaluator, record=record)
    run_study(searcher, seed=seed, tuning=tuning, space=space)
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
        # Makes the store, which costs a second or two once.
        answer = recommend(job, tracking_uri=store, with_report=False)
        for _ in range(REPETITIONS):
            plain_s.append(timed(lambda: recommend(job, tracking=False))[1])
            recorded_s.append(timed(lambda: recommend(job, tracking_uri=store, with_report=False))[1])
    return answer, median(plain_s), median(recorded_s)


class Remembered(Evaluator):
    """Looks up the results of designs that were simulated beforehand; simulates others."""

    def __init__(self, job: Job, everything: Evaluation) -> None:
        self._job = job
        keys = plan_keys(everything.plans)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        self._everything = everything

    def evaluate(self, plans: PlanTable, stage: str) -> Evaluation:
        """See `Evaluator.evaluate`."""
        del stage
        keys = plan_keys(plans)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        is_known = self._keys[place] == keys
        rows = np.concatenate([np.flatnonzero(is_known), np.flatnonzero(~is_known)])
        parts = [self._everything.take(self._order[place[is_known]])]
        if not is_known.all():
            parts.append(evaluate(self._job, plans.take(~is_known)))
        return Evaluation.concatenate(parts).take(np.argsort(rows))

    def space(self) -> Space:
        """See `Evaluator.space`."""
        return pruned_space(self._job)

    def elapsed_s(self) -> float:
        """See `Evaluator.elapsed_s`."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Exhausted:
    """A job whose every design has been simulated."""

    job: Job
    space: Space
    remembered: Remembered
    front: Floats
    """Objectives of the exhaustive front, `(m, k)`."""

    @classmethod
    def of(cls, job: Job) -> Self:
        """Simulates every design of a job that at least one design fits."""
        space = pruned_space(job)
        everything = Evaluation.concatenate([evaluate(job, batch) for batch in space.design_batches(8_192)])
        values = everything.objectives(job)[everything.is_feasible]
        return cls(
            job=job,
            space=space,
            remembered=Remembered(job, everything),
            front=values[front_rows(values)],
        )

    @property
    def num_evaluations(self) -> int:
        """Evaluation budget of a search."""
        return int(SHARE_OF_EVALUATIONS * self.space.num_designs)

    def share_found(self, algorithm: Algorithm, seed: int, tuning: Tuning = DEFAULT) -> float:
        """Returns the share of the exhaustive front's volume that a search reaches."""
        changes = {"algorithm": algorithm, "max_evaluations": self.num_evaluations}
        job = self.job.model_copy(update={"search": self.job.search.model_copy(update=changes)})
        archive = study_of(job, seed, self.remembered, tuning, replace(self.space, job=job))
        assert archive.num_evaluated <= self.num_evaluations
        if archive.front is None:
            return 0.0
        reference = REFERENCE_FACTOR * self.front.max(axis=0)
        return hypervolume(archive.front.objectives(job), reference) / hypervolume(self.front, reference)


def search_rows(jobs: Mapping[str, Callable[[], Job]], num_seeds: int) -> Iterator[str]:
    """Yields each search against the exhaustive front of the same space: median and least share of its volume."""
    headings = [f"{algorithm.value}: median, least" for algorithm in ALGORITHMS]
    yield markdown_row("job", "designs", "on the front", "evaluations", *headings)
    yield markdown_row("---", *["---:"] * (3 + len(ALGORITHMS)))
    for name, job in jobs.items():
        exhausted = Exhausted.of(job())
        shares = [
            [exhausted.share_found(algorithm, seed) for seed in range(num_seeds)] for algorithm in ALGORITHMS
        ]
        counts = (exhausted.space.num_designs, len(exhausted.front), exhausted.num_evaluations)
        found = [f"{median(share):.4f}, {min(share):.4f}" for share in shares]
        yield markdown_row(name, *(f"{count:,}" for count in counts), *found)


def print_shares(wanted: str, num_seeds: int) -> None:
    """Prints the rows of all jobs whose name has `wanted` in it, each as soon as it is known."""
    groups = {"Jobs with which the search was made": SEEN, "Jobs that were held out": HELD_OUT}
    for title, jobs in groups.items():
        chosen = {name: job for name, job in jobs.items() if wanted in name}
        if chosen:
            print(f"\n{title}\n")
        for row in search_rows(chosen, num_seeds) if chosen else ():
            print(row, flush=True)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--job", default="", help="only jobs whose name has this in it, and nothing on recording"
    )
    parser.add_argument("--recording", action="store_true", help="only the cost of recording")
    arguments = parser.parse_args()
    console = Console(width=WIDTH)
    recommend(job_of("bloom-176b"), tracking=False)  # compiled kernels are loaded once
    if not arguments.recording:
        print_shares(arguments.job, arguments.seeds)
    if not arguments.job:
        console.print(examples_table())


if __name__ == "__main__":
    main()
