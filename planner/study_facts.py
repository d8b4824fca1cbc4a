"""What does the file of a study say beside its designs? The job, the answer, where it was delivered to: facts by name."""

from __future__ import annotations

from collections.abc import Mapping

from planner.recommendation import Recommendation
from simulator.job import Job

KEEP = "keep"
"""Which designs the study keeps."""
ANSWER, STATUS, MERGED_FROM = "answer", "status", "merged_from"
"""Facts that are written when a study has ended."""
DELIVERED_TO = "delivered_to"
"""The MLflow stores that have the whole study, one place a line."""


def job_of(facts: Mapping[str, str]) -> Job:
    """Returns the job of a study from the facts of its journal."""
    return Job.model_validate_json(facts["job"])


def stored_answer(facts: Mapping[str, str]) -> Recommendation:
    """Returns the answer of a study that has ended from the facts of its journal."""
    return Recommendation.model_validate_json(facts[ANSWER])
