"""How does a study come into MLflow after it has ended? From its journal, each design once, however often it is tried.

The run carries the hash of the study, so that a delivery that broke off is found and completed instead of repeated.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from constraints.evaluation import judge
from planner.answer import RUN_STATUS, asked_params, record_of, result_metrics
from planner.durable import ANSWER, MERGED_FROM, job_of, stored_answer
from planner.output import write_answer, write_job
from planner.recommendation import MlflowRecord
from planner.report_build import DrawnReport, build_report
from planner.report_designs import cloud_of_table
from planner.report_files import PAGE_FILE, write_page, write_pictures
from simulator.errors import StudyError, TrackingError
from studies.archive import Archive
from studies.design_log import DesignLog
from studies.journal import Journal
from studies.mlflow_session import without_password
from studies.recording import DESIGN_TABLE, PICTURE_FOLDER, Recording
from studies.run_lookup import finished_children, open_once
from studies.store import only_runner
from studies.tracking import StudyTracker, resolve_tracking_uri

DELIVERED_TO: Final = "delivered_to"
"""Fact of a journal: the stores that have the study, one address a line."""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What became of a delivery."""

    is_new: bool
    """False where the store had the whole study before."""
    record: MlflowRecord | None
    """Where MLflow holds the study; `None` where it had it before."""


def deliver(path: Path, *, tracking_uri: str | None = None, experiment: str = "capplan") -> Delivery:
    """Hands a study that has ended to MLflow.

    Args:
        path: the study's file.
        tracking_uri: MLflow store; by default as `recommend` has it.
        experiment: MLflow experiment that the study belongs to.

    Raises:
        StudyError: the study cannot be read, has not ended, or is being delivered by another process.
        TrackingError: the store cannot be used; try again later.
    """
    uri = resolve_tracking_uri(tracking_uri)
    place = f"{without_password(uri)} {experiment}"
    with only_runner(path), Journal.open(path) as journal:
        facts = journal.facts
        if MERGED_FROM in facts:
            raise StudyError(f"study {path.stem} was merged from others: deliver these")
        if ANSWER not in facts:
            raise StudyError(f"study {path.stem} has not ended: resume it, then deliver it")
        places = facts.get(DELIVERED_TO, "").splitlines()
        if place in places:
            return Delivery(is_new=False, record=None)
        record = _sent(journal, facts, uri, experiment)
        journal.note({DELIVERED_TO: "\n".join([*places, place])})
    return Delivery(is_new=True, record=record)


def _sent(journal: Journal, facts: dict[str, str], uri: str, experiment: str) -> MlflowRecord:
    """Plays the journal into an MLflow run, under the times at which the study wrote it."""
    job, answer = job_of(facts), stored_answer(facts)
    started_at_s = datetime.fromisoformat(facts["created_at"]).timestamp()
    now_s = [started_at_s]
    tracker = open_once(
        study_hash=facts["study_hash"],
        experiment=experiment,
        run_name=job.name,
        tracking_uri=uri,
        params=asked_params(job, int(facts["seed"])),
        tags={"catalog_hash": facts["catalog_hash"], "study": journal.path.stem},
        clock=lambda: now_s[0],
    )
    with tracker, tempfile.TemporaryDirectory(prefix="capplan-") as name:
        folder = Path(name)
        with DesignLog(folder / DESIGN_TABLE) as log:
            recording = Recording(job, Archive(job), log, tracker)
            for batch in journal.batches():
                now_s[0] = started_at_s + batch.elapsed_s
                recording.record(judge(job, batch.plans, batch.outcomes), batch.stage)
            log.close()
            drawn = build_report(job, answer, cloud_of_table(log.path))
            _finish(recording, tracker, drawn, folder)
    return record_of(tracker, answer.num_evaluated, recording.num_design_runs)


def _finish(recording: Recording, tracker: StudyTracker, drawn: DrawnReport, folder: Path) -> None:
    job, answer = drawn.report.job, drawn.report.answer
    page = write_page(drawn, folder / PAGE_FILE)
    recording.finish(
        RUN_STATUS[answer.status],
        result_metrics(answer),
        [write_job(job, folder), *write_answer(answer, folder, "csv"), page],
        pictures=write_pictures(drawn, folder / PICTURE_FOLDER, "png"),
        recommended_id=answer.recommendation.design_id if answer.recommendation else None,
        recorded_names=finished_children(tracker),
    )
    if recording.failure:
        raise TrackingError(recording.failure)
