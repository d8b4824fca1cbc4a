"""Where does every evaluated design go? Into the design table, and with the study's course into MLflow.

Nothing that was evaluated is lost: the table is written batch by batch, and when MLflow fails in the middle of a study,
the search goes on and the table stays on disk.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from constraints.evaluation import Evaluation
from simulator.errors import TrackingError
from simulator.job import Job, Objective
from simulator.table import Integers
from studies.archive import Archive
from studies.design_log import DesignLog
from studies.design_table import design_columns, design_runs
from studies.tracking import RunStatus, StudyTracker

MAX_DESIGN_RUNS = 2_000
"""Largest study whose designs all get an MLflow run of their own; above it the front does. Writing this many takes about
a second, which is less than a third of what evaluating more designs takes."""
DESIGN_TABLE = "designs.parquet"
OBJECTIVE_METRICS = {
    Objective.TIME: "time_to_train_s",
    Objective.COST: "cost_usd",
    Objective.ENERGY: "energy_j",
    Objective.CARBON: "carbon_kgco2e",
    Objective.TIME_P95: "time_to_train_p95_s",
    Objective.COST_P95: "cost_p95_usd",
}
"""Names of the objectives' best values by generation, with their units."""


class Recording:
    """The memory of one study: archive, design table, MLflow run."""

    def __init__(self, job: Job, archive: Archive, log: DesignLog, tracker: StudyTracker | None) -> None:
        self._job = job
        self._archive = archive
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
        ids = self._archive.add(evaluation)
        self._log.append(design_columns(self._job, evaluation, ids, stage))
        if self._archive.num_evaluated <= MAX_DESIGN_RUNS:
            self._kept.append((evaluation, ids))
        else:
            self._kept.clear()
        if self._tracker is not None:
            self._track_generation(self._tracker)
        self._generation += 1

    def finish(self, status: RunStatus, metrics: dict[str, float], files: list[Path]) -> None:
        """Completes the design table and hands everything to MLflow.

        Raises:
            StudyError: the design table cannot be written.
        """
        self._log.close()
        if self._tracker is None:
            return
        try:
            for path in [self._log.path, *files]:
                self._tracker.log_artifact(path)
            self._log_design_runs(self._tracker)
            self._tracker.finish(status, metrics)
        except TrackingError as error:
            self.failure = str(error)

    def _track_generation(self, tracker: StudyTracker) -> None:
        archive = self._archive
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

    def _log_design_runs(self, tracker: StudyTracker) -> None:
        archive = self._archive
        if self._kept and tracker.takes_thousands:
            evaluation = Evaluation.concatenate([part for part, _ in self._kept])
            ids = np.concatenate([part_ids for _, part_ids in self._kept])
        elif archive.front is not None:
            evaluation, ids = archive.front, archive.ids
        else:
            return
        tracker.log_designs(design_runs(self._job, evaluation, ids, np.isin(ids, archive.ids)))
        self.num_design_runs = len(ids)
