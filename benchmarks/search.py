"""How much of the true front does a search find with a twentieth of the evaluations, and what does recording cost?

    python -m benchmarks.search                  both
    python -m benchmarks.search --seeds 10       the share of the volume that the exhaustive front dominates, by algorithm
    python -m benchmarks.search --recording      a study with and without MLflow

Six jobs with two to four objectives, under tight and loose limits. Every design of a space is simulated once; the searches
then read what they ask for. Times depend on the machine, shares do not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from constraints.evaluation import Evaluation, evaluate
from constraints.space import Space, pruned_space
from objectives.pareto import front_rows, hypervolume
from planner import Job, Recommendation, load_job, recommend
from simulator.plan import PlanTable
from simulator.search_options import Algorithm
from studies.archive import Archive
from studies.evaluator import Evaluator
from studies.plan_keys import plan_keys
from studies.study import run_study

EXAMPLES = Path(__file__).parents[1] / "examples"
JOBS = ("llama-3.1-70b", "llama-3.1-405b", "bloom-176b")
REPETITIONS = 5
SHARE_OF_EVALUATIONS = 0.05
REFERENCE_FACTOR = 1.3
"""The volume is measured up to this multiple of the worst values on the exhaustive front."""
GENERATIONS = 12
"""Populations are as large as leaves so many generations, within the limits of the default."""
ALGORITHMS = (Algorithm.NSGA2, Algorithm.NSGA3, Algorithm.RANDOM)
FREE = ("limits.deadline_days=null", "limits.budget_usd=null")
WIDTH = 160
SEARCHES: dict[str, tuple[str, tuple[str, ...]]] = {
    "70B, 3 objectives, as shipped": ("llama-3.1-70b", ()),
    "70B, 3 objectives, tight": (
        "llama-3.1-70b",
        ("limits.deadline_days=30", "limits.budget_usd=1.9e6", "limits.carbon_kgco2e=400e3"),
    ),
    "70B, 2 objectives, no limits": (
        "llama-3.1-70b",
        (*FREE, "objectives=[time_to_train, cost]", "search.micro_batch_sizes=[1, 2]"),
    ),
    "405B, 4 objectives, no deadline": (
        "llama-3.1-405b",
        ("limits.deadline_days=null", "objectives=[time_to_train, cost, energy, carbon]"),
    ),
    "405B, 2 objectives, tight power": (
        "llama-3.1-405b",
        ("limits.power_w=11e6", "limits.deadline_days=null", "objectives=[time_to_train, energy]"),
    ),
    "70B, 4 objectives, loose": (
        "llama-3.1-70b",
        (
            "limits.deadline_days=120",
            "limits.budget_usd=4e6",
            "search.micro_batch_sizes=[1, 2]",
            "objectives=[time_to_train, cost, energy, carbon]",
        ),
    ),
}
"""Jobs that are searched: a shipped one, changed."""

_Result = TypeVar("_Result")


def timed(call: Callable[[], _Result]) -> tuple[_Result, float]:
    """Returns the result of a call and the seconds it took."""
    started = time.perf_counter()
    return call(), time.perf_counter() - started


def study_of(job: Job, seed: int, evaluator: Evaluator) -> Archive:
    """Searches a job without recording it."""
    archive = Archive(job)

    def record(evaluation: Evaluation, stage: str) -> None:
        del stage
        archive.add(evaluation)

    run_study(job, archive, record, seed=seed, evaluator=evaluator)
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
        answer = recommend(
            job, tracking_uri=store, with_report=False
        )  # makes the store, which costs a second or two once
        for _ in range(REPETITIONS):
            plain_s.append(timed(lambda: recommend(job, tracking=False))[1])
            recorded_s.append(timed(lambda: recommend(job, tracking_uri=store, with_report=False))[1])
    return answer, median(plain_s), median(recorded_s)


class Remembered(Evaluator):
    """Reads what designs come to that were all simulated before; simulates others."""

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

    def elapsed_s(self) -> float:
        """See `Evaluator.elapsed_s`."""
        return 0.0


def search_table(num_seeds: int) -> Table:
    """Each search against the exhaustive front of the same space: median and least share of its volume."""
    table = Table(
        "job",
        "designs",
        "front",
        "evaluations",
        *(f"{a.value}: median, least" for a in ALGORITHMS),
        title="Share of the volume",
    )
    for title, (name, changes) in SEARCHES.items():
        job = job_of(name, *changes, "search.num_refinements=0")
        space = pruned_space(job)
        everything = Evaluation.concatenate([evaluate(job, batch) for batch in space.design_batches(8_192)])
        values = everything.objectives(job)[everything.is_feasible]
        front = values[front_rows(values)]
        num_evaluations = int(SHARE_OF_EVALUATIONS * space.num_designs)
        shares = [searched(job, space, everything, algorithm, num_seeds) for algorithm in ALGORITHMS]
        cells = [f"{median(share):.4f}, {min(share):.4f}" for share in shares]
        table.add_row(title, f"{space.num_designs:,}", str(len(front)), f"{num_evaluations:,}", *cells)
    return table


def searched(
    job: Job, space: Space, everything: Evaluation, algorithm: Algorithm, num_seeds: int
) -> list[float]:
    """Returns the share of the exhaustive front's volume that a search reaches with each seed."""
    num_evaluations = int(SHARE_OF_EVALUATIONS * space.num_designs)
    population_size = min(200, max(8, num_evaluations // GENERATIONS))
    changes = {
        "algorithm": algorithm,
        "max_evaluations": num_evaluations,
        "population_size": population_size,
    }
    heuristic = job.model_copy(update={"search": job.search.model_copy(update=changes)})
    values = everything.objectives(job)[everything.is_feasible]
    reference = REFERENCE_FACTOR * values[front_rows(values)].max(axis=0)
    shares = []
    for seed in range(num_seeds):
        archive = study_of(heuristic, seed, Remembered(job, everything))
        assert archive.num_evaluated <= num_evaluations
        found = np.zeros((0, values.shape[1])) if archive.front is None else archive.front.objectives(job)
        shares.append(hypervolume(found, reference) / hypervolume(values, reference))
    return shares


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--recording", action="store_true", help="only the cost of recording")
    arguments = parser.parse_args()
    console = Console(width=WIDTH)
    recommend(job_of("bloom-176b"), tracking=False)  # compiled kernels are loaded once
    if not arguments.recording:
        console.print(search_table(arguments.seeds))
    console.print(examples_table())


if __name__ == "__main__":
    main()
