"""Does a killed study go on as if nothing had happened? Kills studies at random moments and compares what they give.

    python -m benchmarks.crash --kills 200

Every study is begun, killed by SIGKILL after a random time, resumed, killed again, until it ends. After each kill no design
that was written down may be missing, and in the end every study must hold the designs of one that was never stopped, in
the same order, each once, and give its answer to the last byte. With `--with-mlflow` every study is told to an MLflow store
of its own, which in the end must hold the same run, curves, tags and runs of designs, each once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import numpy as np

from planner import Job, load_job
from planner.durable import resume_study
from planner.sending import Target
from planner.study_facts import ANSWER
from studies.journal import Journal
from studies.plan_keys import Keys
from studies.store import StudyStore

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama-3.1-405b.yaml"
CHANGES = (
    "search.algorithm=nsga2",
    "search.max_evaluations=600",
    "search.population_size=20",
    "search.num_refinements=5",
    "limits.deadline_days=null",
)
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
"""What an MLflow store holds of a study, table by table."""
BEGUN_AT = datetime(2026, 1, 1, tzinfo=UTC)
SEED = 3
DONE = 0


def in_child(work: Callable[[], object], time_limit_s: float | None) -> bool:
    """Runs work in a process of its own, kills that after a time, and returns whether it came to its end."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = DONE
        finally:
            os._exit(code)
    if time_limit_s is not None:
        time.sleep(time_limit_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return False
    if os.WEXITSTATUS(status) != DONE:
        raise SystemExit("a study failed by itself: see the traceback above")
    return True


def keys_of(path: Path) -> Keys:
    """Returns the keys of all designs that a study has written down, in their order."""
    with Journal.read(path) as journal:
        return np.concatenate([np.zeros(0, dtype=np.uint64), *(keys for _, keys in journal.design_keys())])


def answer_of(path: Path) -> str:
    """Returns the answer of a study as it stands in its journal."""
    with Journal.read(path) as journal:
        return journal.facts[ANSWER]


def told_to_mlflow(path: Path) -> list[tuple[object, ...]]:
    """Returns all that the store beside a study holds of it, but what depends on the clock and on MLflow's random ids."""
    found: list[tuple[object, ...]] = []
    with closing(sqlite3.connect(path.parent / STORE_FILE)) as store:
        for query in TOLD:
            found += sorted(store.execute(query))
    return found


def go_on(path: Path, *, with_mlflow: bool) -> None:
    """Runs a study from where it is to its end; fails where MLflow does not have it then."""
    target = Target(tracking_uri=f"sqlite:///{path.parent / STORE_FILE}") if with_mlflow else None
    if failure := resume_study(path, target=target).tracking_failure:
        raise SystemExit(failure)


def uninterrupted(job: Job, folder: Path, *, with_mlflow: bool) -> tuple[Path, float]:
    """Returns a study that was never stopped, and the seconds it took."""
    path = StudyStore(folder).create(job, SEED, BEGUN_AT)
    started_s = time.perf_counter()
    in_child(lambda: go_on(path, with_mlflow=with_mlflow), None)
    return path, time.perf_counter() - started_s


def killed_study(
    job: Job, folder: Path, draw: np.random.Generator, longest_s: float, max_kills: int, *, with_mlflow: bool
) -> tuple[Path, int]:
    """Returns a study that was killed at most so often and then came to its end, and how often it was killed."""
    path = StudyStore(folder).create(job, SEED, BEGUN_AT)
    written = keys_of(path)
    num_kills = 0
    while num_kills < max_kills:
        if in_child(lambda: go_on(path, with_mlflow=with_mlflow), draw.uniform(0.0, longest_s)):
            return path, num_kills
        num_kills += 1
        now = keys_of(path)
        if not np.array_equal(now[: len(written)], written):
            raise SystemExit(f"LOST: {len(written)} designs were written, {len(now)} are left")
        written = now
    in_child(lambda: go_on(path, with_mlflow=with_mlflow), None)
    return path, num_kills


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
    draw = np.random.default_rng(arguments.seed)
    job = load_job(EXAMPLE, CHANGES)
    for library in (*SLOW_TO_IMPORT, *(["mlflow"] if with_mlflow else [])):  # once, instead of in every child
        import_module(library)
    with tempfile.TemporaryDirectory() as name:
        expected, duration_s = uninterrupted(job, Path(name) / "whole", with_mlflow=with_mlflow)
        keys, answer = keys_of(expected), answer_of(expected)
        told = told_to_mlflow(expected) if with_mlflow else []
        print(
            f"uninterrupted: {len(keys)} designs, {duration_s:.1f} s; {len(told):,} entries in MLflow",
            flush=True,
        )
        num_kills = num_studies = 0
        while num_kills < arguments.kills:
            folder = Path(name) / f"killed-{num_studies}"
            path, kills = killed_study(
                job, folder, draw, 1.2 * duration_s, arguments.kills - num_kills, with_mlflow=with_mlflow
            )
            num_kills += kills
            num_studies += 1
            found = keys_of(path)
            is_equal = np.array_equal(found, keys) and answer_of(path) == answer
            if not is_equal or len(np.unique(found)) != len(found):
                raise SystemExit(f"DIFFERENT after {kills} kills: {len(found)} designs in {path}")
            if with_mlflow and (wrong := set(told_to_mlflow(path)) ^ set(told)):
                raise SystemExit(f"DIFFERENT in MLflow after {kills} kills: {sorted(map(str, wrong))[:10]}")
            if with_mlflow and len(told_to_mlflow(path)) != len(told):
                raise SystemExit(f"TWICE in MLflow after {kills} kills")
            print(f"study {num_studies}: {kills} kills, all equal", flush=True)
    print(f"{num_kills} kills in {num_studies} studies: no design lost, none twice, all answers identical")


if __name__ == "__main__":
    main()
