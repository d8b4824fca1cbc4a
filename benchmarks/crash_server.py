"""Does MLflow have a complete study if its server was killed and restarted in the middle of it?

    python -m benchmarks.crash_server --studies 5

Every study is recorded on a server of its own, which is killed by SIGKILL at a random moment, restarted at once, and killed
once more while the study continues. What the study could not send by its end is delivered from its journal. In the end, the
study must have the same answer as one whose server was left alone, and the server the same runs, curves, tags and designs,
each once.
"""

from __future__ import annotations

import argparse
import time
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.crash import BEGUN_AT, EXAMPLE, KINDS, SEED, answer_of, compare_told, told_to_mlflow
from benchmarks.mlflow_server import MlflowServer
from planner import load_job
from planner.study.durable import resume_study
from planner.tracking.delivery import deliver
from planner.tracking.sending import Target
from studies.files import design_parts
from studies.files.design_log import read_designs
from studies.files.store import StudyStore
from studies.tracking import tracker as tracking

CHANGES = (*KINDS["small batches"], "search.max_evaluations=400")
DESIGNS_PER_PART = 100
"""Small enough that parts of the design table are sent throughout the study."""
RETRY_AFTER_S = 1.0
"""Short enough that a study reconnects to a server that is back before the study ends."""
PAUSE_S = 1.0
"""Pause after each batch, so that the study lasts longer than a restart of the server."""
KILLS_PER_STUDY = 2


def tell(path: Path, uri: str) -> None:
    """Runs a study from start to end and records it on a server while there is one."""
    design_parts.DESIGNS_PER_PART = DESIGNS_PER_PART  # type: ignore[misc]
    tracking.RETRY_AFTER_S = RETRY_AFTER_S
    resume_study(path, target=Target(tracking_uri=uri), progress=lambda _: time.sleep(PAUSE_S))


def told_study(folder: Path, server: MlflowServer, kill_after_s: tuple[float, ...]) -> tuple[Path, int]:
    """Returns a finished study, and how often its server was killed before."""
    path = StudyStore(folder).create(load_job(EXAMPLE, CHANGES), SEED, BEGUN_AT)
    study = get_context("spawn").Process(target=tell, args=(path, server.uri))
    study.start()
    num_kills = 0
    for wait_s in kill_after_s:
        study.join(wait_s)
        if not study.is_alive():
            break
        server.kill()
        num_kills += 1
        server.start()
    study.join()
    if study.exitcode:
        raise SystemExit("a study failed by itself: see the traceback above")
    return path, num_kills


def held_by(server: MlflowServer) -> list[tuple[object, ...]]:
    """Returns all that a server holds, including the numbers of the designs in its files."""
    (parts,) = server.files.glob("*/*/artifacts/designs")
    return [*told_to_mlflow(server.database), ("designs", *sorted(read_designs(parts)["design_id"].tolist()))]


def main() -> None:
    """Kills, delivers, compares and prints the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--studies", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = np.random.default_rng(arguments.seed)
    num_kills = num_delivered = 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        with MlflowServer(folder) as server:
            path, _ = told_study(folder, server, ())
            expected, answer = held_by(server), answer_of(path)
        print(f"left alone: {len(expected) - 1:,} entries, {len(expected[-1]) - 1} designs", flush=True)
        for number in range(arguments.studies):
            folder = Path(name) / str(number)
            folder.mkdir()
            waits_s = tuple(draw.uniform(0.0, 12.0, KILLS_PER_STUDY).tolist())
            with MlflowServer(folder) as server:
                path, kills = told_study(folder, server, waits_s)
                delivery = deliver(path, tracking_uri=server.uri)
                compare_told(held_by(server), expected)
            if answer_of(path) != answer:
                raise SystemExit(f"DIFFERENT: the answer of {path}")
            num_kills, num_delivered = num_kills + kills, num_delivered + delivery.is_new
            print(
                f"study {number + 1}: {kills} kills, delivered afterwards: {delivery.is_new}; equal",
                flush=True,
            )
    print(
        f"{num_kills} kills of servers in {arguments.studies} studies, {num_delivered} of which were completed from their "
        "journals: nothing lost, nothing twice, all answers identical"
    )


if __name__ == "__main__":
    main()
