"""Where does every evaluated design go? Into the design table, and with the study's course into MLflow.

Nothing that was evaluated is lost: the table is written batch by batch, and when MLflow fails in the middle of a study,
the search goes on and the table stays on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from constraints.evaluation import Evaluation
from simulator.errors import TrackingError
from simulator.job import Job, Objective
from simulator.table import Integers
from studies.archive import Archive
from studies.design_log import DesignLog
from studies.design_table import Marks, design_columns, design_runs, run_name
from studies.tracking import RunStatus, StudyTracker

MAX_DESIGN_RUNS = 2_000
"""Largest study whose designs all get an MLflow run of their own; above it the front does. Writing this many takes about
a second, which is less than a third of what evaluating more designs takes."""
DESIGN_TABLE = "designs.parquet"
PICTURE_FOLDER = "figures"
"""Folder of an MLflow run that holds the pictures of its report."""
OBJECTIVE_METRICS = {
    Objective.TIME: "time_to_train_s",
    Objective.COST: "cost_usd",
    Objective.ENERGY: "energy_j",
    Objective.CARBON: "carbon_kgco2e",
    Objective.TIME_P95: "time_to_train_p95_s",
    Objective.COST_P95: "cost_p95_usd",
    Objective.DEADLINE_RISK: "deadline_risk",
    Objective.BUDGET_RISK: "budget_risk",
}
"""Names of the objectives' best values by generation, with their units."""


class Recording:
    """The memory of one study: archive, design table, MLflow run."""

    def __init__(
        self, job: Job, archive: Archive, log: DesignLog | None, tracker: StudyTracker | None
    ) -> None:
        self._job = job
        self.archive = archive
        self._log = log
        self._tracker = tracker
        self._kept: list[tuple[Evaluation, Integers]] = []
        self._generation = 0
        self.num_design_runs = 0
        """Designs that have an MLflow run of their own."""
        self.failure = ""
        """Why MLflow does not hold the whole study; empty when it does."""

    def record(self, evaluation: Evaluation, stage: str) -> None:
        """Takes in a batch of evaluated designs."""
        ids = self.archive.add(evaluation)
        if self._log is not None:
            self._log.append(design_columns(self._job, evaluation, ids, stage))
        if self.archive.num_evaluated <= MAX_DESIGN_RUNS:
            self._kept.append((evaluation, ids))
        else:
            self._kept.clear()
        if self._tracker is not None:
            self._track_generation(self._tracker)
        self._generation += 1

    def finish(
        self,
        status: RunStatus,
        metrics: dict[str, float],
        files: list[Path],
        *,
        pictures: Sequence[Path] = (),
        recommended_id: int | None = None,
        recorded_names: Collection[str] = (),
    ) -> None:
        """Completes the design table and hands everything to MLflow.

        Args:
            status: how the study ended.
            metrics: its result.
            files: what it has written.
            pictures: what MLflow shows of it, kept in a folder of their own.
            recommended_id: number of the recommended design, if there is one.
            recorded_names: runs of designs that MLflow has already.

        Raises:
            StudyError: the design table cannot be written.
        """
        if self._log is not None:
            self._log.close()
            files = [self._log.path, *files]
        if self._tracker is None:
            return
        try:
            for path in files:
                self._tracker.log_artifact(path)
            for path in pictures:
                self._tracker.log_artifact(path, PICTURE_FOLDER)
            self._log_design_runs(self._tracker, recommended_id, recorded_names)
            self._tracker.finish(status, metrics)
        except TrackingError as error:
            self.failure = str(error)

    def _track_generation(self, tracker: StudyTracker) -> None:
        archive = self.archive
        metrics = {
            "num_evaluated": float(archive.num_evaluated),
            "num_feasible": float(archive.num_feasible),
            "num_front": float(len(archive.ids)),
            "hypervolume": archive.hypervolume(),
        }
        if archive.front is not None:
            values = archive.front.objectives(self._job).min(axis=0)
            names = [f"best_{OBJECTIVE_METRICS[objective]}" for objective in self._job.objectives]
            metrics |= dict(zip(names, values.tolist(), strict=True))
        try:
            tracker.log_generation(self._generation, metrics)
        except TrackingError as error:  # the points are kept and sent again with the next ones
            self.failure = str(error)
        else:
            self.failure = ""

    def _log_design_runs(
        self, tracker: StudyTracker, recommended_id: int | None, recorded_names: Collection[str]
    ) -> None:
        archive = self.archive
        if self._kept and tracker.takes_thousands:
            evaluation = Evaluation.concatenate([part for part, _ in self._kept])
            ids = np.concatenate([part_ids for _, part_ids in self._kept])
        elif archive.front is not None:
            evaluation, ids = archive.front, archive.ids
        else:
            return
        self.num_design_runs = len(ids)
        new = [row for row, number in enumerate(ids.tolist()) if run_name(number) not in recorded_names]
        rows = np.array(new, dtype=np.intp)
        marks = Marks(front=frozenset(archive.ids.tolist()), recommended=recommended_id)
        if len(rows):
            tracker.log_designs(design_runs(self._job, evaluation.take(rows), ids[rows], marks))
