"""How does a study reach MLflow? As one run that carries its hash, while the study runs or later from its journal.

Sending a study a second time finds the run by the hash and completes it. The points of the curves have the times at which
the study wrote its designs, and the parts of the design table depend only on the designs. So what is sent twice is stored
once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from planner.recommended.output import PAGE_FILE, write_answer, write_job
from planner.recommended.recommendation import MlflowRecord, Recommendation
from planner.recommended.study_facts import keep_of
from planner.report.build import build_report
from planner.report.designs import cloud_of_table
from planner.report.files import write_page, write_pictures
from planner.tracking.content import asked_params, finish, inputs_profile, record_of, study_tags
from simulator.domain.job import Job
from simulator.errors import TrackingError, system_reason, words_of
from studies.designs.archive import Archive
from studies.files.design_parts import PARTS, DesignParts
from studies.files.identity import study_label
from studies.tracking.mlflow_session import without_password
from studies.tracking.recording import PICTURE_FOLDER, Recording
from studies.tracking.run_lookup import finished_children, open_once
from studies.tracking.store_address import asked_store, resolve_tracking_uri
from studies.tracking.tracker import Settle, StudyTracker


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where studies are sent.

    Raises:
        InputError: MLflow has no such kind of store.
    """

    tracking_uri: str | None = None
    """MLflow store; same default as in `recommend`."""
    experiment: str = "capplan"
    """MLflow experiment that the studies belong to."""

    def __post_init__(self) -> None:
        asked_store(self.tracking_uri)  # fail before a study begins if the address is invalid

    @property
    def uri(self) -> str:
        """The store's absolute address; may contain a password."""
        return resolve_tracking_uri(self.tracking_uri)

    @property
    def place(self) -> str:
        """The store and experiment, without secrets."""
        return f"{without_password(self.uri)} {self.experiment}"


@dataclass(frozen=True, kw_only=True)
class Sending:
    """A study that is being sent to MLflow."""

    job: Job
    recording: Recording
    """Receives what the study evaluates, batch by batch."""
    tracker: StudyTracker
    folder: Path
    """Folder for the files of the run."""

    def finish(self, answer: Recommendation) -> MlflowRecord:
        """Sends the answer and what has not been sent yet, and ends the run.

        Raises:
            TrackingError: the store cannot be used; try again later.
        """
        try:
            self.recording.close_table()
            drawn = build_report(self.job, answer, cloud_of_table(self.folder / PARTS))
            page = write_page(drawn, self.folder / PAGE_FILE)
            files = [write_job(self.job, self.folder), *write_answer(answer, self.folder, "csv"), page]
            pictures = write_pictures(drawn, self.folder / PICTURE_FOLDER, "png")
        except OSError as error:
            raise TrackingError(f"the files for MLflow cannot be written: {system_reason(error)}") from error
        finish(self.recording, answer, files, pictures, finished_children(self.tracker))
        if self.recording.failure:
            raise TrackingError(self.recording.failure)
        return record_of(self.tracker, self.recording.num_designs, self.recording.num_design_runs)


@contextmanager
def sending(
    job: Job,
    facts: Mapping[str, str],
    name: str,
    target: Target,
    elapsed_s: Callable[[], float],
    settle: Settle,
) -> Iterator[Sending]:
    """Context in which a study is sent; the run is ended in any case.

    Args:
        job: the job of the study.
        facts: facts of its journal.
        name: name of the study.
        target: where it is sent.
        elapsed_s: how long the study had been running when it wrote what is sent now.
        settle: called before any result is sent; returns when it is in the journal.

    Raises:
        TrackingError: the store cannot be used.
    """
    started_at_s = datetime.fromisoformat(facts["created_at"]).timestamp()
    tracker = open_once(
        study_hash=facts["study_hash"],
        experiment=target.experiment,
        run_name=study_label(job),
        tracking_uri=target.uri,
        params=asked_params(job, int(facts["seed"])),
        tags={**study_tags(facts["job_hash"], facts["catalog_hash"]), "study": name, "keep": keep_of(facts)},
        clock=lambda: started_at_s + elapsed_s(),
        settle=settle,
    )
    with ExitStack() as stack:
        stack.enter_context(tracker)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="capplan-")))
        tracker.log_inputs(job.name, facts["job_hash"], inputs_profile(job))
        recording = Recording(job, Archive(job), None, tracker, DesignParts(folder / PARTS))
        yield Sending(job=job, recording=recording, tracker=tracker, folder=folder)


class Told:
    """A running study that is sent to MLflow as long as that works."""

    def __init__(self, recording: Recording, study: Sending | None, failure: str) -> None:
        self.recording = recording
        """Receives what the study evaluates."""
        self._study = study
        self.failure = failure
        """Why MLflow does not have the whole study; empty if it does, or if the study is not sent."""

    def finish(self, answer: Recommendation) -> MlflowRecord | None:
        """Sends the end of a study; returns where MLflow has it, `None` if MLflow does not have all of it."""
        if self._study is None:
            return None
        try:
            if answer.status == "interrupted":
                self._study.tracker.finish("KILLED")
                return None
            return self._study.finish(answer)
        except TrackingError as error:
            self.failure = error.message
            self._study.tracker.leave()
            return None


@contextmanager
def telling(
    job: Job,
    facts: Mapping[str, str],
    name: str,
    target: Target | None,
    elapsed_s: Callable[[], float],
    settle: Settle,
) -> Iterator[Told]:
    """Context in which a running study is sent to MLflow; failures do not stop the study. See `sending`."""
    with ExitStack() as stack:
        try:
            to_send = sending(job, facts, name, target, elapsed_s, settle) if target else None
            study = stack.enter_context(to_send) if to_send else None
        except (TrackingError, OSError) as error:  # OSError: not even a temporary folder can be created
            yield Told(Recording(job, Archive(job), None, None), None, words_of(error))
            return
        yield Told(study.recording if study else Recording(job, Archive(job), None, None), study, "")
