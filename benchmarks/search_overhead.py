"""Which share of a study with MLflow is evaluation, and which is search, recording and MLflow?

    python -m benchmarks.search_overhead --evaluations 100000

GPT-3 175B on 512 A100 with every schedule, every way to save and fourteen power caps; with `--job 70b` Llama 3.1 70B on up to
4,096 accelerators under five, whose space is larger and takes longer to prune. Populations may spend all evaluations, because
the search would end before: nothing is left to find.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import final

from benchmarks.search import job_of
from benchmarks.search_jobs import FREE
from benchmarks.throughput import jobs
from constraints.evaluation import Evaluation
from constraints.space import Space
from planner import Job, recommend
from simulator.plan import CheckpointScheme, PlanTable, Schedule
from simulator.search_options import Algorithm, Search
from studies.archive import Archive
from studies.design_log import DesignLog
from studies.evaluator import Evaluator, Simulation
from studies.recording import DESIGN_TABLE, Recording
from studies.study import run_study
from studies.tracking import StudyTracker
from studies.tuning import Tuning


@final
class Timed(Evaluator):
    """Simulates, and adds up how long that takes."""

    def __init__(self, job: Job) -> None:
        self._simulation = Simulation(job)
        self.wall_s = 0.0
        self.cpu_s = 0.0

    def evaluate(self, plans: PlanTable, stage: str) -> Evaluation:
        """See `Evaluator.evaluate`."""
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        evaluation = self._simulation.evaluate(plans, stage)
        self.wall_s += time.perf_counter() - wall_s
        self.cpu_s += time.process_time() - cpu_s
        return evaluation

    def space(self) -> Space:
        """See `Evaluator.space`."""
        return self._simulation.space()

    def elapsed_s(self) -> float:
        """See `Evaluator.elapsed_s`."""
        return self._simulation.elapsed_s()


def recorded_study(job: Job, evaluator: Evaluator, folder: Path) -> int:
    """Searches with a design table and an SQLite store of MLflow, and returns how many designs were evaluated."""
    archive = Archive(job)
    with (
        StudyTracker.open(
            experiment="benchmark", run_name="overhead", tracking_uri=f"sqlite:///{folder}/mlflow.db"
        ) as tracker,
        DesignLog(folder / DESIGN_TABLE) as log,
    ):
        recording = Recording(job, archive, log, tracker)
        run_study(
            job, archive, recording.record, seed=0, evaluator=evaluator, tuning=Tuning(evolution_share=1.0)
        )
        recording.finish("FINISHED", {"num_evaluated": float(archive.num_evaluated)}, [])
    return archive.num_evaluated


def gpt3() -> Job:
    """Returns the job of Calculon's paper with more choices, so that there are enough designs."""
    choices: dict[str, object] = {
        "pipeline_schedules": list(Schedule),
        "checkpoint_schemes": list(CheckpointScheme),
        "power_caps": [round(0.35 + 0.05 * step, 2) for step in range(14)],
    }
    job = jobs()["gpt3-175b, 512 A100"]
    return job.model_copy(update={"search": Search.model_validate(choices)})


def llama_70b() -> Job:
    """Returns a shipped job without limits."""
    return job_of("llama-3.1-70b", *FREE, "search.power_caps=[1.0, 0.9, 0.8, 0.7, 0.6]")


JOBS = {"gpt3": gpt3, "70b": llama_70b}


def asked(job: Job, num_evaluations: int) -> Job:
    """Returns a job that is searched by NSGA-II until so many designs are evaluated."""
    changes = {
        "algorithm": Algorithm.NSGA2,
        "max_evaluations": num_evaluations,
        "stagnation_evaluations": 100_000_000,
        "num_refinements": 0,
    }
    return job.model_copy(update={"search": job.search.model_copy(update=changes)})


def main() -> None:
    """Prints how long a study took, and how much of that was evaluation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=100_000)
    parser.add_argument("--job", choices=sorted(JOBS), default="gpt3")
    arguments = parser.parse_args()
    job = asked(JOBS[arguments.job](), arguments.evaluations)
    with tempfile.TemporaryDirectory() as folder:
        recommend(
            job_of("bloom-176b"), tracking_uri=f"sqlite:///{folder}/mlflow.db"
        )  # compiles, makes the store
        evaluator = Timed(job)
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        num_evaluated = recorded_study(job, evaluator, Path(folder))
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    print(f"{num_evaluated:,} designs; {num_evaluated / wall_s:,.0f} designs/s")
    print(
        f"wall {wall_s:.1f} s, of which evaluation {evaluator.wall_s:.1f} s ({evaluator.wall_s / wall_s:.0%})"
    )
    print(f"CPU  {cpu_s:.1f} s, of which evaluation {evaluator.cpu_s:.1f} s ({evaluator.cpu_s / cpu_s:.0%})")


if __name__ == "__main__":
    main()
