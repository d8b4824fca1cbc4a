"""What can a report be made from? A study in its store, or the folder that `capplan recommend --output` wrote."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from planner.input.arguments import path_given
from planner.recommended.answered_job import other_job
from planner.recommended.output import ANSWER_FILE, JOB_FILE
from planner.recommended.recommendation import Recommendation
from planner.recommended.study_facts import ANSWER, check_not_merged, job_of, stored_answer
from planner.report.build import DrawnReport, build_report
from planner.report.designs import cloud_of_study, cloud_of_table
from simulator.argument_names import Argument
from simulator.domain.job import Job
from simulator.errors import InputError, Problem, StudyError
from simulator.file_text import utf8_text
from studies.files.journal import Journal
from studies.progress import Report as Told
from studies.progress import ignore
from studies.tracking.recording import DESIGN_TABLE

_TAKE_ALL = "take all files of one answer"


def report_of_study(path: str | Path, progress: Told = ignore) -> DrawnReport:
    """Returns the report of a study that has ended; `progress` is told which part is being computed.

    Raises:
        InputError: the path is invalid.
        StudyError: the study cannot be read, or has no answer.
    """
    file = path_given(path, of="a study")
    with Journal.read(file) as journal:
        facts = journal.facts
        check_not_merged(file.stem, facts, "report")
        if ANSWER not in facts:
            raise StudyError(f"study {file.stem} is not complete: resume it first")
        job = job_of(facts)
        return build_report(job, stored_answer(facts), cloud_of_study(job, journal), progress)


def report_of_folder(folder: Path, progress: Told = ignore) -> DrawnReport:
    """Returns the report of what `capplan recommend --output` wrote; `progress` as in `report_of_study`.

    Raises:
        InputError: a file is missing, not of this version, or of another answer.
    """
    try:
        job = Job.model_validate_json(_text(folder, JOB_FILE))
        answer = Recommendation.model_validate_json(_text(folder, ANSWER_FILE))
    except OSError as error:
        rule = f"holds no answer of `capplan recommend --output`: {error.filename}: {error.strerror}"
        raise _problem(folder, rule) from None
    except ValidationError:
        raise _problem(
            folder, "holds no answer of this version of capplan: run capplan recommend again"
        ) from None
    if strange := other_job(job, answer):
        raise _problem(folder, f"{ANSWER_FILE} {strange}, which is in {JOB_FILE}: {_TAKE_ALL}")
    cloud = cloud_of_table(folder / DESIGN_TABLE)
    best = answer.recommendation
    if best and not cloud.has(best.design_id, best.time_to_train_days, best.cost_usd):
        rule = f"{DESIGN_TABLE} lacks the recommended design of {ANSWER_FILE} with its figures: {_TAKE_ALL}"
        raise _problem(folder, rule)
    return build_report(job, answer, cloud, progress)


def _text(folder: Path, name: str) -> str:
    content = (folder / name).read_bytes()
    try:
        return utf8_text(content)
    except ValueError as error:
        raise _problem(folder, f"{name} {error}") from None


def _problem(folder: Path, rule: str) -> InputError:
    return InputError([Problem(path=Argument("folder"), value=str(folder), rule=rule)])
