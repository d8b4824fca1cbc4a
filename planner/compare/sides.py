"""What can be compared? A study, an answer in a file, a job with a plan, or a job that is answered first.

llama-70b-1a2b3c4d, FILE.study       a study by its name, the start of its hash, or the path of its file
DIR, DIR/recommendation.json         what `capplan recommend --output DIR` wrote
JOB.yaml@tp=8,pp=4,dp=16,mbs=2       a job and a plan of it; behind the @ also a file
JOB.yaml                             a job, which is searched for its recommendation
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from planner.answer.recommend import recommend
from planner.explain.runnable_plan import plan_that_runs
from planner.input.plan_input import read_plan
from planner.input.yaml_text import FILE_SUFFIXES
from planner.job.file import load_job
from planner.recommended.answered_job import other_job
from planner.recommended.output import ANSWER_FILE, JOB_FILE
from planner.recommended.recommendation import Design, Recommendation
from planner.recommended.study_facts import ANSWER, check_not_merged, job_of, stored_answer
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.errors import InputError, Problem
from simulator.file_text import utf8_text
from studies.files.journal import Journal
from studies.files.store import StudyStore, called
from studies.progress import Report, ignore

WRITTEN_PLAN = re.compile(r"(?P<job>.+?\.(?:ya?ml|json|toml))@(?P<plan>.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the things that are compared."""

    name: str
    """As it was asked for."""
    job: Job
    plan: Plan | None
    """The recommended or given design; `None` where there is none."""
    recorded: Design | None = None
    """What an answer says of it."""
    reasons: tuple[str, ...] = ()
    """Why there is none."""
    front: tuple[Plan, ...] = ()
    """The designs that an answer chose among; none where the design was given."""


def read_side(
    text: str, store: StudyStore | None = None, *, seed: int = 0, progress: Report = ignore
) -> Side:
    """Returns what a user names.

    Args:
        text: one of the forms at the head of this module.
        store: where studies are looked for; left out: `capplan-studies` in the current folder.
        seed: of the search for a job without a plan.
        progress: told how far that search is.

    Raises:
        InputError: a file cannot be read or breaks rules, or a plan cannot be run.
        StudyError: there is no such study, or it was merged from others.
    """
    if written := WRITTEN_PLAN.fullmatch(text):
        return _planned(text, load_job(written["job"]), written["plan"])
    path = Path(text)
    if path.is_dir():
        return _answered(text, path / ANSWER_FILE)
    if path.suffix.lower() in FILE_SUFFIXES:
        return _of_file(text, path, seed, progress)
    return _studied(text, (store or StudyStore()).find(text))


def _of_file(text: str, path: Path, seed: int, progress: Report) -> Side:
    """A file is an answer where its text says so, else a job."""
    if path.suffix.lower() == ".json" and _is_answer(path):
        return _answered(text, path)
    job = _resolved_job(path) if path.name == JOB_FILE else load_job(path)
    answer = recommend(job, seed=seed, tracking=False, progress=progress)
    return _with_answer(text, job, answer)


def _is_answer(path: Path) -> bool:
    try:
        return '"recommendation"' in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False  # reading it as a job says what is wrong


def _planned(text: str, job: Job, written: str) -> Side:
    if not written.strip():
        rule = "the plan behind @ is missing: write one, such as tp=8,pp=4,dp=16, or leave out the @"
        raise _problem(text, rule)
    try:
        fields = read_plan(written)
    except InputError as error:
        raise InputError(list(error.problems), text) from None
    return Side(name=text, job=job, plan=plan_that_runs(job, fields, source=text))


def _answered(text: str, path: Path) -> Side:
    """An answer in a file; the job that it answers lies beside it."""
    try:
        answer = Recommendation.model_validate_json(utf8_text(path.read_bytes()))
    except OSError as error:
        raise _problem(text, f"{path} cannot be read: {error.strerror or error}") from None
    except ValidationError:
        raise _problem(
            text, f"{path} is not an answer of this version of capplan: run capplan recommend again"
        ) from None
    except ValueError as error:  # no text; a broken record is one, too
        raise _problem(text, f"{path} {error}") from None
    job_file = path.with_name(JOB_FILE)
    if not job_file.is_file():
        written = "the job file that `capplan recommend --output DIR` writes next to it"
        raise _problem(text, f"{job_file} is missing: an answer needs {written}")
    job = _resolved_job(job_file)
    if strange := other_job(job, answer):
        raise _problem(text, f"{path.name} {strange}, which is in {job_file}: take both files of one answer")
    return _with_answer(text, job, answer)


def _resolved_job(path: Path) -> Job:
    """A job as `--output` writes it, with every name resolved; or a job file of the same name."""
    try:
        return Job.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return load_job(path)


def _studied(text: str, path: Path) -> Side:
    with Journal.read(path) as journal:
        facts = journal.facts
    job = job_of(facts)
    check_not_merged(path.stem, facts, "compare")
    if ANSWER not in facts:
        rule = f"has no answer yet: continue it with `capplan study resume {called(path)}`"
        raise _problem(text, rule)
    return _with_answer(text, job, stored_answer(facts))


def _with_answer(text: str, job: Job, answer: Recommendation) -> Side:
    best = answer.best
    reasons = answer.infeasibility.reasons if answer.infeasibility else ()
    return Side(
        name=text,
        job=job,
        plan=best.plan if best else None,
        recorded=best,
        reasons=reasons,
        front=tuple(design.plan for design in answer.front),
    )


def _problem(text: str, rule: str) -> InputError:
    return InputError([Problem(path="compare", value=text, rule=rule)])
