"""What share of a study with MLflow is evaluation, and what share is search, journal, MLflow and report?

    python -m benchmarks.search_overhead --evaluations 100000

GPT-3 175B on 512 A100 with every schedule, every way to save and fourteen power caps; with `--job 405b` Llama 3.1 405B on up
to 16,384 H100 with the same choices; with `--job 70b` Llama 3.1 70B on up to 4,096 accelerators under five caps, whose space
is larger. Populations may use up all evaluations; otherwise the search would end earlier, when nothing is left to find, as it
does with `--until-found`. Refinement and report simulate more designs and are left out. `--whole` does everything that
`capplan study run` does, including refinement by Optuna, answer, child runs, report and its pictures.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import ParamSpec, TypeVar, final
from unittest.mock import patch

from benchmarks.search import job_of
from benchmarks.search_jobs import FREE, STAGES, WIDE
from benchmarks.throughput import jobs
from planner import Job, recommend
from planner.study.durable import run_study_of
from planner.tracking.sending import Target
from simulator.domain.plan import CheckpointScheme, Schedule
from simulator.domain.search_options import Algorithm, Search
from studies.designs.archive import Archive
from studies.evaluation.evaluator import JournaledSimulation
from studies.files.design_parts import PARTS, DesignParts
from studies.files.journal import Journal
from studies.files.known_designs import KnownDesigns
from studies.files.store import StudyStore
from studies.search import Searcher
from studies.searchers.tuning import Tuning
from studies.study import run_study
from studies.tracking.recording import Ending, Recording
from studies.tracking.tracker import StudyTracker

P = ParamSpec("P")
T = TypeVar("T")
EVALUATIONS = (
    "simulator.simulate._simulate",
    "studies.evaluation.evaluator.judge",
    "constraints.evaluation.judge",
)
"""What simulates designs, wherever they are asked for, and what scores them and looks at their limits."""


@final
class Busy:
    """Adds up how long functions take, by the clock: while two threads are in them, once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0
        self._since_s = 0.0
        self.wall_s = 0.0

    def timed(self, function: Callable[P, T]) -> Callable[P, T]:
        """Returns a function whose calls count."""

        def wrapped(*args: P.args, **options: P.kwargs) -> T:
            self._step(1)
            try:
                return function(*args, **options)
            finally:
                self._step(-1)

        return wrapped

    def _step(self, change: int) -> None:
        """One thread goes in or out."""
        with self._lock:
            now_s = time.perf_counter()
            if self._num_inside:
                self.wall_s += now_s - self._since_s
            self._since_s = now_s
            self._num_inside += change


@contextmanager
def evaluations_timed() -> Iterator[Busy]:
    """Counts, in its context, the time of everything that evaluates designs."""
    busy = Busy()
    with ExitStack() as stack:
        for target in EVALUATIONS:
            module, _, name = target.rpartition(".")
            stack.enter_context(patch(target, busy.timed(getattr(import_module(module), name))))
        yield busy


def recorded_study(job: Job, folder: Path) -> int:
    """Searches as `capplan study run` does, with a journal and an SQLite store of MLflow that is updated meanwhile.

    Returns how many designs were evaluated.
    """
    archive = Archive(job)
    with (
        Journal.create(folder / "overhead.study", {}) as journal,
        JournaledSimulation(job, journal, KnownDesigns()) as evaluator,
        StudyTracker.open(
            experiment="benchmark",
            run_name="overhead",
            tracking_uri=f"sqlite:///{folder}/mlflow.db",
            settle=evaluator.settle,
        ) as tracker,
    ):
        recording = Recording(job, archive, None, tracker, DesignParts(folder / PARTS))
        searcher = Searcher(job=job, archive=archive, evaluator=evaluator, record=recording.record)
        run_study(searcher, seed=0)
        found = {"num_evaluated": float(archive.num_evaluated)}
        recording.finish(Ending(status="FINISHED", metrics=found), [])
    return archive.num_evaluated


def whole_study(job: Job, folder: Path) -> int:
    """Does all that `capplan study run` does; returns how many designs were evaluated."""
    done = run_study_of(
        job,
        store=StudyStore(folder / "studies"),
        target=Target(tracking_uri=f"sqlite:///{folder}/mlflow.db", experiment="benchmark"),
    )
    assert not done.tracking_failure, done.tracking_failure
    return done.counts.num_simulated


def with_choices(name: str) -> Job:
    """Returns a job of `benchmarks.throughput` with more choices, so that there are enough designs."""
    choices: dict[str, object] = {
        "pipeline_schedules": list(Schedule),
        "zero_stages": STAGES,
        "checkpoint_schemes": list(CheckpointScheme),
        "power_caps": [round(0.35 + 0.05 * step, 2) for step in range(14)],
    }
    return jobs()[name].model_copy(update={"search": Search.model_validate(choices)})


def gpt3() -> Job:
    """Returns the job of Calculon's paper."""
    return with_choices("gpt3-175b, 512 A100")


def llama_405b() -> Job:
    """Returns Llama 3.1 405B on up to 16,384 accelerators."""
    return with_choices("llama-3.1-405b, up to 16,384 H100")


def llama_70b() -> Job:
    """Returns a shipped job without limits."""
    return job_of("llama-3.1-70b", *WIDE, *FREE, "search.power_caps=[1.0, 0.9, 0.8, 0.7, 0.6]")


JOBS = {"gpt3": gpt3, "405b": llama_405b, "70b": llama_70b}


def asked(job: Job, num_evaluations: int, *, is_whole: bool) -> Job:
    """Returns a job that NSGA-II searches until the given number of evaluations; only a whole study refines it."""
    changes: dict[str, object] = {"algorithm": Algorithm.NSGA2, "max_evaluations": num_evaluations}
    if not is_whole:
        changes["num_refinements"] = 0
    return job.model_copy(update={"search": job.search.model_copy(update=changes)})


@contextmanager
def all_evaluations_spent() -> Iterator[None]:
    """Lets populations continue, in its context, until all evaluations are spent, whether they find anything or not."""
    spending = partial(run_study, tuning=Tuning(evolution_share=1.0))
    with (
        patch("planner.answer.recommend.run_study", spending),
        patch(f"{__name__}.run_study", spending),
        patch("studies.study.STALE_GENERATIONS", 1_000_000),
    ):
        yield


def main() -> None:
    """Prints how long a study took, and how much of that was evaluation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--evaluations", type=int, default=100_000)
    parser.add_argument("--job", choices=sorted(JOBS), default="gpt3")
    parser.add_argument("--whole", action="store_true", help="all that `capplan study run` does")
    parser.add_argument("--until-found", action="store_true", help="end where nothing better is found")
    arguments = parser.parse_args()
    job = asked(JOBS[arguments.job](), arguments.evaluations, is_whole=arguments.whole)
    study = whole_study if arguments.whole else recorded_study
    with tempfile.TemporaryDirectory() as folder:
        # Compiles, and makes the store.
        recommend(job_of("bloom-176b"), tracking_uri=f"sqlite:///{folder}/mlflow.db")
        spent = nullcontext() if arguments.until_found else all_evaluations_spent()
        with spent, evaluations_timed() as busy:
            started_s = time.perf_counter()
            num_evaluated = study(job, Path(folder))
            wall_s = time.perf_counter() - started_s
    print(f"{num_evaluated:,} designs; {num_evaluated / wall_s:,.0f} designs/s")
    print(f"{wall_s:.1f} s, of which evaluation {busy.wall_s:.1f} s ({busy.wall_s / wall_s:.0%})")


if __name__ == "__main__":
    main()
