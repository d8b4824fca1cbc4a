"""What does the file of a study say beside its designs? The job, the answer, where it was delivered to: facts by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from planner.recommendation import Recommendation
from simulator.errors import StudyError
from simulator.job import Job
from simulator.record import Record
from studies.identity import hash_of, study_hash

KEEP = "keep"
"""Which designs the study keeps."""
ANSWER, STATUS, MERGED_FROM = "answer", "status", "merged_from"
"""Facts that are written when a study has ended."""
DELIVERED_TO = "delivered_to"
"""The MLflow stores that have the whole study, one place a line."""


_Written = TypeVar("_Written", bound=Record)


def job_of(facts: Mapping[str, str]) -> Job:
    """Returns the job of a study from the facts of its journal.

    Raises:
        StudyError: another version wrote it, or it is not the job of which the study has the hash.
    """
    job_hash = hash_of([facts["job"]])
    is_own = MERGED_FROM in facts or facts["study_hash"] == study_hash(
        job_hash, facts["code_hash"], facts["seed"]
    )
    if facts["job_hash"] != job_hash or not is_own:
        raise StudyError(
            "the study is damaged: its job, code and seed are not those of its hash: take its file from a backup, or move "
            "it away and run the job as a new study"
        )
    return _read(Job, facts["job"], "job")


def stored_answer(facts: Mapping[str, str]) -> Recommendation:
    """Returns the answer of a study that has ended from the facts of its journal; raises as `job_of` does."""
    return _read(Recommendation, facts[ANSWER], "answer")


def _read(kind: type[_Written], written: str, what: str) -> _Written:
    try:
        return kind.model_validate_json(written)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place, rule = ".".join(map(str, first["loc"])), first["msg"]
        raise StudyError(
            f"the {what} of this study was written by another version of capplan ({place}: {rule}): read it with that "
            "version, or study the job anew"
        ) from None
