"""How fast is a study recorded, and what does each way of storing its designs cost compared with the others?

All ways store the same designs (20 parameters, 12 metrics, 6 tags, like those of a study) in one process, so the ratios hold on
other machines, too. An SQLite store in a temporary folder is used and removed:

    python -m benchmarks.tracking --designs 20000
    python -m benchmarks.tracking --designs 20000 --tracking-uri postgresql+psycopg2://user@host/database
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.search_jobs import WIDE
from constraints.space import pruned_space
from planner import load_job
from simulator.simulate import simulate
from studies.files.design_log import Columns, DesignLog
from studies.files.journal import Journal
from studies.tracking.bulk_runs import Way, write_runs
from studies.tracking.mlflow_session import mlflow_at
from studies.tracking.run_table import RunTable
from studies.tracking.tracker import StudyTracker

NUM_PARAMS = 20
NUM_METRICS = 12
NUM_TAGS = 6
NUM_GENERATIONS = 500
DESIGNS_PER_BATCH = 200
"""Size of a generation: the number of designs passed to the design log at a time."""
JOURNAL_BATCHES = (40, 200, 8_192)
"""Sizes of batches that searches ask for: refinement, a generation, exhaustive search."""
API_SHARE = 0.02
"""Share of the designs recorded through MLflow's interface: one run takes as long as dozens of rows, so fewer suffice."""


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Speed of one way to store designs."""

    way: str
    num_items: int
    duration_s: float
    """Wall-clock time."""
    cpu_s: float
    """CPU time, which other processes affect less."""

    @property
    def items_per_s(self) -> float:
        return self.num_items / self.duration_s


def run_table(num_designs: int) -> RunTable:
    """Returns designs in the form of child runs."""
    random = np.random.default_rng(1)
    choices = [[str(value) for value in random.integers(1, 4096, num_designs)] for _ in range(NUM_PARAMS)]
    return RunTable(
        names=[f"design {serial}" for serial in range(num_designs)],
        params={f"param_{number}": texts for number, texts in enumerate(choices)},
        metrics={f"metric_{number}": random.random(num_designs) for number in range(NUM_METRICS)},
        tags={f"tag_{number}": ["0"] * num_designs for number in range(NUM_TAGS)},
    )


def columns(num_designs: int) -> Columns:
    """Returns the same amount of data in the form that the search uses."""
    random = np.random.default_rng(1)
    return {
        **{f"param_{number}": random.integers(1, 4096, num_designs) for number in range(NUM_PARAMS)},
        **{f"metric_{number}": random.random(num_designs) for number in range(NUM_METRICS)},
        **{f"tag_{number}": np.zeros(num_designs, dtype=np.bool_) for number in range(NUM_TAGS)},
    }


def timed(way: str, num_items: int, work: Callable[[], object]) -> Rate:
    """Returns the rate of one call."""
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    work()
    duration_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    return Rate(way=way, num_items=num_items, duration_s=duration_s, cpu_s=cpu_s)


def measure_designs(folder: Path, num_designs: int, tracking_uri: str | None) -> list[Rate]:
    """Returns the rates of the ways to store designs, MLflow's first."""
    tracker = StudyTracker.open(
        experiment="benchmark",
        run_name="designs",
        tracking_uri=tracking_uri or f"sqlite:///{folder}/mlflow.db",
    )
    with mlflow_at(tracker.tracking_uri):
        from mlflow import MlflowClient

        experiment_id = MlflowClient(tracker.tracking_uri).get_run(tracker.run_id).info.experiment_id

    def write(num: int, way: Way) -> Rate:
        table = run_table(num)
        return timed(
            f"child runs, {way}",
            num,
            lambda: write_runs(
                tracker.tracking_uri, experiment_id, tracker.run_id, table, started_at_ms=1, way=way
            ),
        )

    rates = [write(max(1, round(API_SHARE * num_designs)), "api"), write(num_designs, "bulk")]
    tracker.finish()
    journals = [measure_journal(folder, num_designs, size) for size in JOURNAL_BATCHES]
    return [*rates, measure_parquet(folder, num_designs), *journals]


def measure_parquet(folder: Path, num_designs: int) -> Rate:
    """Returns the rate of the design log, fed generation by generation."""
    batch = columns(DESIGNS_PER_BATCH)
    num_batches = -(-num_designs // DESIGNS_PER_BATCH)

    def write() -> None:
        with DesignLog(folder / "designs.parquet") as log:
            for _ in range(num_batches):
                log.append(batch)

    return timed("Parquet file", num_batches * DESIGNS_PER_BATCH, write)


def measure_journal(folder: Path, num_designs: int, batch_size: int) -> Rate:
    """Returns the rate of a study's journal, which stores every column of a design and is synchronised after each batch."""
    job = load_job(Path(__file__).parents[1] / "examples" / "llama-3.1-70b.yaml", WIDE)
    plans = next(pruned_space(job).design_batches(batch_size))
    outcomes = simulate(job, plans)
    num_batches = -(-num_designs // batch_size)

    def write() -> None:
        with Journal.create(folder / f"{batch_size}.study", {}) as journal:
            for number in range(num_batches):
                journal.append(number, "benchmark", 0.0, plans, outcomes)

    return timed(f"journal, {batch_size}", num_batches * batch_size, write)


def measure_study(folder: Path) -> list[Rate]:
    """Returns a study's costs other than its designs: a new store, a known store, generations."""
    values = {f"metric_{number}": 0.5 for number in range(NUM_METRICS)}

    def study(num_generations: int = 0) -> None:
        with StudyTracker.open(
            experiment="benchmark", run_name="study", tracking_uri=f"sqlite:///{folder}/study.db"
        ) as tracker:
            for step in range(num_generations):
                tracker.log_generation(step, values)

    return [
        timed("study, new store", 1, study),
        timed("study, known store", 1, study),
        timed("generations", NUM_GENERATIONS, lambda: study(NUM_GENERATIONS)),
    ]


def main() -> None:
    """Measures all ways and prints them with their ratio to the slowest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--designs", type=int, default=20_000, help="designs to keep in each way")
    parser.add_argument("--tracking-uri", help="another MLflow store than an SQLite file; it keeps the runs")
    arguments = parser.parse_args()
    with mlflow_at("sqlite://"), tempfile.TemporaryDirectory() as folder:
        designs = measure_designs(Path(folder), arguments.designs, arguments.tracking_uri)
        study = measure_study(Path(folder))
    for rate in designs:
        ratio = rate.items_per_s / designs[0].items_per_s
        of_cpu = f"{rate.num_items / rate.cpu_s:10.0f} /s of CPU time"
        print(f"{rate.way:20} {rate.num_items:8} designs {rate.items_per_s:10.0f} /s {of_cpu} {ratio:8.1f} x")
    for rate in study:
        each_ms, of_cpu_ms = (1e3 * time_s / rate.num_items for time_s in (rate.duration_s, rate.cpu_s))
        print(f"{rate.way:20} {rate.num_items:8} {each_ms:12.2f} ms each, {of_cpu_ms:.2f} ms of CPU time")


if __name__ == "__main__":
    main()
