"""How does a study reach MLflow after it has ended? From its journal, each design once, however often it is tried."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from planner.recommended.recommendation import MlflowRecord
from planner.recommended.study_facts import ANSWER, DELIVERED_TO, check_not_merged, job_of, stored_answer
from planner.tracking.sending import Target, sending
from simulator.errors import StudyError
from studies.files.journal import Journal
from studies.files.store import only_runner
from studies.tracking.run_lookup import holds_study
from studies.tracking.tracker import nothing_to_wait_for


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The result of a delivery."""

    is_new: bool
    """False if the store already had the whole study."""
    record: MlflowRecord | None
    """Where MLflow has the study; `None` if it already had it."""


def deliver(path: Path, *, tracking_uri: str | None = None, experiment: str = "capplan") -> Delivery:
    """Sends a study that has ended to MLflow.

    Args:
        path: the study's file.
        tracking_uri: MLflow store; same default as in `recommend`.
        experiment: MLflow experiment that the study belongs to.

    Raises:
        StudyError: the study cannot be read, has not ended, or is being delivered by another process.
        TrackingError: the store cannot be used; try again later.
    """
    target = Target(tracking_uri=tracking_uri, experiment=experiment)
    with only_runner(path), Journal.open(path) as journal:
        facts = journal.facts
        check_not_merged(path.stem, facts, "deliver")
        if ANSWER not in facts:
            raise StudyError(f"study {path.stem} has not ended: resume it, then deliver it")
        return delivered(journal, facts, target)


def delivered(journal: Journal, facts: dict[str, str], target: Target) -> Delivery:
    """Sends an answered study to MLflow unless MLflow has all of it; no other process may be running the study.

    The journal knows what was delivered, the store what is still there: a run that is gone is delivered again.

    Raises:
        StudyError: the study cannot be read.
        TrackingError: the store cannot be used; try again later.
    """
    places = facts.get(DELIVERED_TO, "").splitlines()
    if target.place in places:
        if holds_study(study_hash=facts["study_hash"], experiment=target.experiment, tracking_uri=target.uri):
            return Delivery(is_new=False, record=None)
        places.remove(target.place)
        journal.note({DELIVERED_TO: "\n".join(places)})  # true even if the delivery fails midway
    record = _sent(journal, facts, target)
    journal.note({DELIVERED_TO: "\n".join([*places, target.place])})
    return Delivery(is_new=True, record=record)


def _sent(journal: Journal, facts: dict[str, str], target: Target) -> MlflowRecord:
    """Replays the journal into an MLflow run, with the times at which the study wrote it."""
    job = job_of(facts)
    elapsed_s = [0.0]
    name = journal.path.stem
    with sending(job, facts, name, target, lambda: elapsed_s[0], nothing_to_wait_for) as study:
        for batch in journal.batches():
            elapsed_s[0] = batch.elapsed_s
            study.recording.record(batch.found(job), batch.stage)
        return study.finish(stored_answer(facts))
