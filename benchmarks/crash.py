"""Does a killed study resume as if nothing had happened? Kills studies at random moments and compares their results.

    python -m benchmarks.crash --kills 200

Every study is started, killed by SIGKILL, resumed and killed again until it ends, alternately at a random moment and while it
writes. Half of the studies write many small batches, the other half few large ones. After each kill, no recorded design may be
missing. In the end, every study must hold the same designs as one that was never stopped, in the same order and each once, and
give the same answer to the last byte. With `--with-mlflow`, every study is recorded in an MLflow store of its own, which in the
end must hold the same run, curves, tags and design runs, each once.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from itertools import cycle
from pathlib import Path

import numpy as np

from benchmarks.killing import Blow, has_half_a_batch, in_child
from benchmarks.search_jobs import WIDE
from planner import Job, load_job
from planner.recommended.study_facts import ANSWER
from planner.study.durable import resume_study
from planner.tracking.sending import Target
from studies.designs.plan_keys import Keys
from studies.files.journal import Journal
from studies.files.store import StudyStore

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama-3.1-405b.yaml"
KINDS = {
    "small batches": (
        *WIDE,
        "limits.deadline_days=null",
        "search.algorithm=nsga2",
        "search.max_evaluations=600",
        "search.population_size=20",
        "search.num_refinements=5",
    ),
    "large batches": (
        *WIDE,
        "limits.deadline_days=null",
        "search.algorithm=exhaustive",
        "search.power_caps=[1.0,0.95,0.9,0.85,0.8,0.75,0.7,0.65]",
        "search.num_refinements=0",
    ),
}
"""Kinds of studies: those that write batches of tens of designs, and those that write batches of thousands."""
KILLS_PER_STUDY = 8
"""About how often a study is killed: each time after the share of its transactions that this leaves, at most."""
LONGEST_WRITE_S = 0.002
"""A batch of tens of designs is in the file after a tenth of this time, and one of thousands after about all of it."""
SLOW_TO_IMPORT = (
    "optuna",
    "pymoo.algorithms.moo.nsga2",
    "pymoo.operators.crossover.sbx",
    "pyarrow",
    "moocore",
    "scipy.stats",
)
STORE_FILE = "mlflow.db"
TOLD = (
    "SELECT name, status FROM runs WHERE lifecycle_stage = 'active'",
    "SELECT name, key, step, value FROM metrics JOIN runs USING (run_uuid) WHERE lifecycle_stage = 'active' "
    "AND key != 'designs_per_s'",
    "SELECT name, key, value FROM params JOIN runs USING (run_uuid) WHERE lifecycle_stage = 'active'",
    "SELECT name, key, value FROM tags JOIN runs USING (run_uuid) WHERE lifecycle_stage = 'active' "
    "AND key != 'mlflow.parentRunId'",
)
"""Queries for what an MLflow store holds about a study, table by table."""
BEGUN_AT = datetime(2026, 1, 1, tzinfo=UTC)
SEED = 3


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The results of a study that is never stopped."""

    job: Job
    keys: Keys
    answer: str
    told: list[tuple[object, ...]]
    """To MLflow; empty where it is not told."""
    batch_s: float
    """Seconds between two batches."""
    num_batches: int


@dataclass(kw_only=True)
class Tally:
    """Counts over all studies."""

    num_kills: int = 0
    num_at_writes: int = 0
    num_half_written: int = 0
    """Kills that left a batch half written."""

    def __str__(self) -> str:
        return (
            f"{self.num_kills} kills, {self.num_at_writes} of them at a write, {self.num_half_written} of which left "
            "half a batch"
        )


def keys_of(path: Path) -> Keys:
    """Returns the keys of all designs that a study has recorded, in order."""
    with Journal.read(path) as journal:
        return np.concatenate([np.zeros(0, dtype=np.uint64), *(keys for _, keys in journal.design_keys())])


def answer_of(path: Path) -> str:
    """Returns the answer of a study from its journal."""
    with Journal.read(path) as journal:
        return journal.facts[ANSWER]


def told_to_mlflow(store: Path) -> list[tuple[object, ...]]:
    """Returns all that an MLflow store holds about a study, except what depends on the clock and MLflow's random ids."""
    found: list[tuple[object, ...]] = []
    with closing(sqlite3.connect(store)) as connection:
        for query in TOLD:
            found += sorted(connection.execute(query))
    return found


def go_on(path: Path, *, with_mlflow: bool) -> None:
    """Continues a study to its end; fails if MLflow does not have all of it then."""
    target = Target(tracking_uri=f"sqlite:///{path.parent / STORE_FILE}") if with_mlflow else None
    if failure := resume_study(path, target=target).tracking_failure:
        raise SystemExit(failure)


def uninterrupted(kind: str, folder: Path, *, with_mlflow: bool) -> Expected:
    """Returns the results of a study of a kind, from the second of two runs; the first one may have to compile."""
    job = load_job(EXAMPLE, KINDS[kind])
    for name in ("first", "second"):
        path = StudyStore(folder / name).create(job, SEED, BEGUN_AT)
        started_s = time.perf_counter()
        in_child(lambda path=path: go_on(path, with_mlflow=with_mlflow))  # type: ignore[misc]
        duration_s = time.perf_counter() - started_s
    with Journal.read(path) as journal:
        num_batches = journal.num_batches
    told = told_to_mlflow(path.parent / STORE_FILE) if with_mlflow else []
    keys = keys_of(path)
    print(f"{kind}: {len(keys):,} designs, {duration_s:.1f} s, {len(told):,} entries in MLflow", flush=True)
    return Expected(
        job=job,
        keys=keys,
        answer=answer_of(path),
        told=told,
        batch_s=duration_s / num_batches,
        num_batches=num_batches,
    )


def random_blow(expected: Expected, draw: np.random.Generator, *, is_at_write: bool) -> Blow:
    """Draws a moment: during a transaction, or anywhere between two of them."""
    most = max(2, expected.num_batches // KILLS_PER_STUDY)
    return Blow(
        num_transactions=int(draw.integers(1 if is_at_write else 0, most + 1)),
        later_s=draw.uniform(0.0, LONGEST_WRITE_S if is_at_write else expected.batch_s),
    )


def kill_until_it_ends(
    expected: Expected,
    folder: Path,
    draw: np.random.Generator,
    most_kills: int,
    tally: Tally,
    *,
    with_mlflow: bool,
) -> Path:
    """Returns a study that was killed at most the given number of times and then finished."""
    path = StudyStore(folder).create(expected.job, SEED, BEGUN_AT)
    written = keys_of(path)
    for number in range(most_kills):
        is_at_write = number % 2 == 1
        blow = random_blow(expected, draw, is_at_write=is_at_write)
        if in_child(lambda: go_on(path, with_mlflow=with_mlflow), blow):
            return path
        tally.num_kills += 1
        tally.num_at_writes += is_at_write
        tally.num_half_written += has_half_a_batch(path)  # before the next run cleans it up
        now = keys_of(path)
        if not np.array_equal(now[: len(written)], written):
            raise SystemExit(f"LOST: {len(written)} designs were written, {len(now)} are left")
        written = now
    in_child(lambda: go_on(path, with_mlflow=with_mlflow))
    return path


def compare(path: Path, expected: Expected, *, with_mlflow: bool) -> None:
    """Ends the program if a study differs from one that was never stopped."""
    keys = keys_of(path)
    if not np.array_equal(keys, expected.keys) or len(np.unique(keys)) != len(keys):
        raise SystemExit(f"DIFFERENT: {len(keys)} designs in {path}")
    if answer_of(path) != expected.answer:
        raise SystemExit(f"DIFFERENT: the answer of {path}")
    if with_mlflow:
        compare_told(told_to_mlflow(path.parent / STORE_FILE), expected.told)


def compare_told(told: list[tuple[object, ...]], expected: list[tuple[object, ...]]) -> None:
    """Ends the program if two MLflow stores do not hold the same things, each as often."""
    if wrong := set(told) ^ set(expected):
        raise SystemExit(f"DIFFERENT in MLflow: {sorted(map(str, wrong))[:10]}")
    if sorted(map(str, told)) != sorted(map(str, expected)):
        raise SystemExit("TWICE in MLflow")


def main() -> None:
    """Kills, compares and prints the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--with-mlflow", action="store_true", help="tell MLflow of every study, and compare that, too"
    )
    arguments = parser.parse_args()
    with_mlflow: bool = arguments.with_mlflow
    draw, tally, num_studies = np.random.default_rng(arguments.seed), Tally(), 0
    for library in (*SLOW_TO_IMPORT, *(["mlflow"] if with_mlflow else [])):  # once, instead of in every child
        import_module(library)
    with tempfile.TemporaryDirectory() as name:
        whole = {kind: uninterrupted(kind, Path(name) / kind, with_mlflow=with_mlflow) for kind in KINDS}
        for kind in cycle(KINDS):
            if tally.num_kills >= arguments.kills:
                break
            folder, most = Path(name) / f"killed-{num_studies}", arguments.kills - tally.num_kills
            path = kill_until_it_ends(whole[kind], folder, draw, most, tally, with_mlflow=with_mlflow)
            compare(path, whole[kind], with_mlflow=with_mlflow)
            num_studies += 1
            print(f"{num_studies} studies: {tally}", flush=True)
    print(f"{tally}, in {num_studies} studies: no design lost, none twice, all answers identical")


if __name__ == "__main__":
    main()
