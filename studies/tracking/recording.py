"""Where does every evaluated design go? Into the design table, and, with the progress of the study, into MLflow.

No evaluation is lost: the table is written batch by batch, and if MLflow fails in the middle of a study, the search goes on
and the table stays on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from constraints.evaluation import Evaluation
from simulator.domain.job import Job, Objective
from simulator.errors import StudyError, TrackingError
from simulator.table import Integers
from studies.designs.archive import Archive
from studies.designs.reduction import Reduction, kept_of
from studies.files.design_log import Columns, DesignLog
from studies.files.design_parts import PARTS, DesignParts
from studies.files.identity import study_label
from studies.tracking.design_table import Marks, design_columns, design_runs, ranks, run_name
from studies.tracking.tracker import RunStatus, StudyTracker

MAX_DESIGN_RUNS = 2_000
"""Largest study in which every design gets its own MLflow run; in larger ones only non-dominated designs do. Writing this many
takes about a second, less than a third of the time to evaluate more designs."""
DESIGN_TABLE = "designs.parquet"
PICTURE_FOLDER = "figures"
"""Folder of an MLflow run with the pictures of its report."""
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


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a study ended."""

    status: RunStatus
    metrics: Mapping[str, float]
    """Result of the study."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags by which the study can be found."""
    recommended_id: int | None = None
    """Number of the recommended design; None: there is none."""
    tied_ids: Collection[int] = ()
    """Numbers of the designs that cannot be distinguished from the recommended one."""


class Recording:
    """The memory of one study: archive, design table, MLflow run."""

    def __init__(
        self,
        job: Job,
        archive: Archive,
        log: DesignLog | None,
        tracker: StudyTracker | None,
        parts: DesignParts | None = None,
    ) -> None:
        """Begins with nothing evaluated.

        Args:
            job: the question.
            archive: receives every batch.
            log: receives all designs in one file.
            tracker: the study's run in MLflow.
            parts: receives all designs in parts, which are sent to MLflow while the study runs.
        """
        self._job = job
        self.archive = archive
        self.log = log
        """Table of all designs in one file; None: there is none."""
        self._tracker = tracker
        self._parts = parts
        self._unsent: list[Path] = []
        self._loss = ""  # why the parts do not hold all designs
        self._kept: list[tuple[Evaluation, Integers]] = []
        self._generation = 0
        self.num_designs = 0
        """Number of designs that were kept and are thus in the design table."""
        self.num_design_runs = 0
        """Number of designs with their own MLflow run."""
        self.failure = ""
        """Why MLflow does not have the whole study; empty if it does."""

    def record(self, found: Evaluation | Reduction, stage: str) -> None:
        """Records a batch of evaluated designs, or what was kept of it."""
        ids, evaluation = self.archive.add(found), kept_of(found)
        self.num_designs += len(ids)
        if self.log is not None or self._parts is not None:
            self._write(design_columns(self._job, evaluation, ids, stage))
        if self.archive.num_evaluated <= MAX_DESIGN_RUNS:
            self._kept.append((evaluation, ids))
        else:
            self._kept.clear()
        if self._tracker is not None:
            self._track_generation(self._tracker)
        self._generation += 1

    def finish(
        self,
        ending: Ending,
        files: list[Path],
        *,
        pictures: Sequence[Path] = (),
        recorded_names: Collection[str] = (),
    ) -> None:
        """Completes the design table and sends everything to MLflow.

        Args:
            ending: how the study ended.
            files: files that it has written.
            pictures: pictures for MLflow, which keeps them in their own folder.
            recorded_names: runs of designs that MLflow already has.

        Raises:
            StudyError: the design table cannot be written.
        """
        self.close_table()
        if self._tracker is None:
            return
        _, front = self.archive.distinct_front()
        marks = Marks(
            front=frozenset(front.tolist()),
            recommended=ending.recommended_id,
            tied=frozenset(ending.tied_ids),
        )
        try:
            self._send_parts(self._tracker)
            for path in files:
                self._tracker.log_artifact(path)
            for path in pictures:
                self._tracker.log_artifact(path, PICTURE_FOLDER)
            self._log_design_runs(self._tracker, marks, recorded_names)
            counts = {} if self._generation else self._counts()
            self._tracker.finish(ending.status, {**counts, **ending.metrics}, ending.tags)
        except TrackingError as error:
            self.failure = error.message
        else:
            self.failure = self._loss

    def close_table(self) -> None:
        """Completes the design table, so that it can be read.

        Raises:
            StudyError: it cannot be written.
        """
        if self.log is not None:
            self.log.close()
        self._write_part(None)

    def _write(self, columns: Columns) -> None:
        if self.log is not None:
            self.log.append(columns)
        self._write_part(columns)
        if self._unsent and self._tracker is not None and not self._tracker.is_resting:
            try:
                self._send_parts(self._tracker)
            except TrackingError as error:  # sent again later
                self.failure = error.message

    def _write_part(self, columns: Columns | None) -> None:
        """Adds designs to the parts, or `None` to end them; if they cannot be written, the study goes on without them."""
        if self._parts is None:
            return
        try:
            complete = self._parts.close() if columns is None else self._parts.append(columns)
        except StudyError as error:
            self._parts, self._loss = None, error.message
        else:
            self._unsent += complete

    def _send_parts(self, tracker: StudyTracker) -> None:
        while self._unsent:
            tracker.log_artifact(self._unsent[0], PARTS)
            del self._unsent[0]

    def _track_generation(self, tracker: StudyTracker) -> None:
        archive = self.archive
        metrics = self._counts() | {
            "feasible_fraction": archive.num_feasible / max(1, archive.num_evaluated),
            "hypervolume": archive.hypervolume(),
        }
        if (elapsed_s := tracker.elapsed_s) > 0.0:
            metrics["designs_per_s"] = archive.num_evaluated / elapsed_s
        if archive.front is not None:
            values = archive.front.objectives(self._job).min(axis=0)
            names = [f"best_{OBJECTIVE_METRICS[objective]}" for objective in self._job.objectives]
            metrics |= dict(zip(names, values.tolist(), strict=True))
        try:
            tracker.log_generation(self._generation, metrics)
        except TrackingError as error:  # the points are kept and sent again with the next ones
            self.failure = error.message
        else:
            self.failure = self._loss if not self._unsent else self.failure

    def _counts(self) -> dict[str, float]:
        """Numbers of designs; a study without evaluations has no curves that would end with them."""
        return {
            "num_evaluated": float(self.archive.num_evaluated),
            "num_feasible": float(self.archive.num_feasible),
            "num_front": float(self.archive.num_distinct),
            "num_not_dominated": float(len(self.archive.ids)),
        }

    def _log_design_runs(self, tracker: StudyTracker, marks: Marks, recorded_names: Collection[str]) -> None:
        archive = self.archive
        if self._kept and tracker.takes_thousands:
            evaluation = Evaluation.concatenate([part for part, _ in self._kept])
            ids = np.concatenate([part_ids for _, part_ids in self._kept])
        elif archive.front is not None:
            evaluation, ids = archive.front, archive.ids
        else:
            return
        self.num_design_runs = len(ids)
        study = study_label(self._job)
        names = [run_name(number, study) for number in ids.tolist()]
        new = [row for row, name in enumerate(names) if name not in recorded_names]
        rows = np.array(new, dtype=np.intp)
        if len(rows):
            every = ranks(self._job, evaluation)  # what is recorded already counts, too
            rank_of = [every[row] for row in new]
            tracker.log_designs(design_runs(self._job, evaluation.take(rows), ids[rows], marks, rank_of))
