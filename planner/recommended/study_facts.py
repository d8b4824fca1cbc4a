"""What does the file of a study contain besides its designs? Job, answer, deliveries and other facts by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

from pydantic import ValidationError

from planner.recommended.recommendation import Recommendation
from simulator.domain.job import Job
from simulator.errors import OtherVersionError, StudyError
from simulator.record import Record
from studies.files.identity import Keep, hash_of, study_hash

KEEP = "keep"
"""Which designs the study keeps."""
ANSWER, STATUS, MERGED_FROM = "answer", "status", "merged_from"
"""Facts that are written when a study is complete."""
DELIVERED_TO = "delivered_to"
"""The MLflow stores that have the whole study, one per line."""
TRACKED_IN = "tracked_in"
"""The MLflow store to which the study was last sent while it ran."""


class Leaf(Record):
    """A study that was searched, as a merged one holds it."""

    name: str
    """How it was called when it was merged."""
    study_hash: str
    """Its own; the same study may come in by several ways."""
    seed: int
    """Of everything random."""
    elapsed_s: float
    """Seconds of its search."""
    num_batches: int
    """Batches that the merged study has of this one, one behind the other."""


class Leaves(Record):
    """The searched studies behind a merged one, each once; none of them is itself merged."""

    leaves: tuple[Leaf, ...]
    """In the order of their batches."""


_Written = TypeVar("_Written", bound=Record)


def job_of(facts: Mapping[str, str]) -> Job:
    """Returns the job of a study from the facts of its journal.

    Raises:
        OtherVersionError: another version wrote it.
        StudyError: it is not the job of which the study has the hash.
    """
    job_hash = hash_of([facts["job"]])
    if (facts["job_hash"], facts["study_hash"]) != (job_hash, _study_hash(facts, job_hash)):
        raise StudyError(
            "the study is damaged, because its job, code and seed do not match its hash: restore its file from a backup, or "
            "move it away and run the job as a new study"
        )
    return _read(Job, facts["job"], "job")


def leaves_of(facts: Mapping[str, str]) -> tuple[Leaf, ...]:
    """Returns the studies that a merged one is made of, none for any other; raises as `job_of` does."""
    return _read(Leaves, facts[MERGED_FROM], "list of merged studies").leaves if MERGED_FROM in facts else ()


def keep_of(facts: Mapping[str, str]) -> Keep:
    """Returns which designs a study keeps; where that was changed, `job_of` raises."""
    return cast(Keep, facts.get(KEEP, "all"))


def check_not_merged(name: str, facts: Mapping[str, str], what_else: str) -> None:
    """Raises `StudyError` for a study that was merged, with what to do to those that it is made of."""
    if MERGED_FROM in facts:
        names = ", ".join(leaf.name for leaf in leaves_of(facts))
        raise StudyError(f"study {name} was merged from others and has no answer: {what_else} these: {names}")


def hash_of_leaves(leaves: Iterable[Leaf]) -> str:
    """Returns the hash of a merged study, in whatever order and by whatever ways the studies came in."""
    return hash_of(sorted(leaf.study_hash for leaf in leaves))


def stored_answer(facts: Mapping[str, str]) -> Recommendation:
    """Returns the answer of a study that has ended from the facts of its journal; raises as `job_of` does."""
    return _read(Recommendation, facts[ANSWER], "answer")


def _study_hash(facts: Mapping[str, str], job_hash: str) -> str:
    """The hash that a study of these facts has."""
    leaves = leaves_of(facts)
    if leaves:
        return hash_of_leaves(leaves)
    return study_hash(job_hash, facts["code_hash"], facts["seed"], keep_of(facts))


def _read(kind: type[_Written], written: str, what: str) -> _Written:
    try:
        return kind.model_validate_json(written)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place, rule = ".".join(map(str, first["loc"])), first["msg"]
        raise OtherVersionError(
            f"the {what} of this study was written by another version of capplan ({place}: {rule}): read it with that "
            "version, or run the job as a new study"
        ) from None
