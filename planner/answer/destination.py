"""Where do a study and its answer go? Into a folder, into MLflow, or both; the answer says where MLflow has it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from planner.recommended.output import ANSWER_FILE, PAGE_FILE, FrontFormat, write_answer, write_job
from planner.recommended.recommendation import Recommendation
from planner.report.build import report_of_log
from planner.report.files import write_page, write_pictures
from planner.tracking.content import finish, record_of
from simulator.argument_names import told
from simulator.domain.job import Job
from simulator.errors import NoSpaceError
from studies.designs.archive import Archive
from studies.files.design_log import DesignLog
from studies.files.design_parts import PARTS, DesignParts
from studies.files.store import file_name
from studies.progress import RECORDING_IN_MLFLOW, Progress, Report
from studies.tracking.design_table import no_designs
from studies.tracking.recording import DESIGN_TABLE, PICTURE_FOLDER, Recording
from studies.tracking.store_address import DEFAULT_FILE
from studies.tracking.tracker import StudyTracker


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where the answer of a job goes."""

    job: Job
    output: Path | None
    """Requested folder; None: none."""
    scratch: Path
    """Temporary folder."""
    front_format: FrontFormat
    has_report: bool
    """Whether a page explains the answer, where it is written or recorded."""
    tracker: StudyTracker | None
    """The study's run in MLflow; None: it is not recorded."""

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Context with the memory of the study; it has a table of all designs if the output or the report needs one."""
        is_tracked = self.tracker is not None
        folder = self.output or (self.scratch if is_tracked and self.has_report else None)
        parts = DesignParts(self.scratch / PARTS) if is_tracked else None
        with nullcontext() if folder is None else DesignLog(folder / DESIGN_TABLE) as log:
            if log is not None:
                log.append(no_designs(self.job))
            yield Recording(self.job, Archive(self.job), log, self.tracker, parts)

    def deliver(self, answer: Recommendation, recording: Recording, progress: Report) -> Recommendation:
        """Writes the files of an answer and sends everything to MLflow.

        An answer that was interrupted before any design was simulated leaves no file in the requested folder.

        Args:
            answer: the answer.
            recording: recording of the study that gave it.
            progress: receives progress reports on drawing and recording.

        Returns:
            The answer, with the location of the study in MLflow.

        Raises:
            InputError: the page or a picture cannot be written.
            StudyError: the design table cannot be written.
        """
        is_empty = answer.status == "interrupted" and answer.num_evaluated == 0
        folder = self.scratch if is_empty else self.output or self.scratch
        files = [write_job(self.job, folder), *write_answer(answer, folder, self.front_format)]
        log = recording.log if self.has_report else None
        drawn = report_of_log(self.job, answer, log, progress) if log is not None else None
        pictures = []
        if drawn is not None:
            with self._answer_kept():
                files.append(write_page(drawn, folder / PAGE_FILE))
            pictures = write_pictures(drawn, self.scratch / PICTURE_FOLDER, "png") if self.tracker else []
        if self.tracker is not None:
            progress(Progress(stage=RECORDING_IN_MLFLOW, num_done=0, num_total=None))
        finish(recording, answer, files, pictures)
        answer = self._with_record(answer, recording)
        if self.output is not None and is_empty:  # so that the same command can be run again
            (self.output / DESIGN_TABLE).unlink(missing_ok=True)
        elif self.output is not None:
            write_answer(answer, folder, self.front_format)
            if drawn is not None:  # again, now that it is known where the study is recorded
                with self._answer_kept():
                    write_page(drawn.answering(answer), folder / PAGE_FILE)
        return answer

    @contextmanager
    def _answer_kept(self) -> Iterator[None]:
        """Context in which a lack of space for the page is told with what there is already, and how to write the page."""
        try:
            yield
        except NoSpaceError as error:
            if self.output is None:
                raise
            kept = f"; the answer is in {ANSWER_FILE}: once there is space, capplan report {self.output} writes the page"
            problems = [replace(problem, rule=problem.rule + kept) for problem in error.problems]
            raise NoSpaceError(problems, error.source) from error

    def _with_record(self, answer: Recommendation, recording: Recording) -> Recommendation:
        """The answer with where MLflow holds the study, or with the place of the design table where MLflow failed."""
        if self.tracker is None:
            return answer
        if recording.failure:
            kept = "the output folder" if self.output else self._rescued()
            # An answer is read by others than who asked for it, in whatever way.
            failure = told(recording.failure, lambda _: "as given")
            note = f"MLflow does not hold the whole study ({failure}); the design table is in {kept}"
            answer = answer.model_copy(update={"warnings": (*answer.warnings, note)})
        record = record_of(self.tracker, answer.num_evaluated, recording.num_design_runs)
        return answer.model_copy(update={"mlflow": record})

    def _rescued(self) -> str:
        """Moves the design table out of the scratch folder and says where it is."""
        place = DEFAULT_FILE.parent
        place.mkdir(parents=True, exist_ok=True)
        target = place / file_name(self.job.name, self.scratch.name)
        (self.scratch / PARTS).mkdir(exist_ok=True)  # a search that found nothing to try has written nothing
        shutil.move(self.scratch / PARTS, target)
        return str(target)
