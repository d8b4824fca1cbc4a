"""How far is a study, and what is its front? Read from the journal, while it runs or after.

Nothing is simulated: the journal has the outcome of every design, to which the job's prices and limits are applied.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from constraints.limits import set_limits
from planner.recommended.designs import designs_of
from planner.recommended.recommendation import Design
from planner.recommended.study_facts import (
    ANSWER,
    DELIVERED_TO,
    MERGED_FROM,
    STATUS,
    TRACKED_IN,
    job_of,
    leaves_of,
)
from simulator.errors import OtherVersionError, StudyError
from simulator.record import Record
from studies.designs.archive import Archive
from studies.files.journal import Journal
from studies.files.store import StudyStore, is_running

State = Literal["running", "stopped", "recommended", "infeasible", "merged", "damaged", "other_version"]


class StudyState(Record):
    """One study in the list of studies."""

    name: str
    """Name of the study in the store."""
    job: str
    """Name of its job."""
    seed: int | None
    """Seed of everything random; null for a merged study whose parts have several, or for one that cannot be read."""
    state: State
    """`running`: a process is searching; `stopped`: none is, so resume it; `merged`: merged from others; `damaged`: not a
    readable study; `other_version`: written by another version of capplan; otherwise how it ended."""
    created_at: str
    """Time of its first start, ISO 8601, UTC."""
    num_designs: int
    """Designs that were simulated and written down."""
    elapsed_s: float
    """Seconds of search, over all starts."""
    delivered_to: tuple[str, ...]
    """MLflow stores and experiments that have it."""
    is_tracked: bool
    """Whether it was sent to MLflow while it ran; MLflow may still lack the end of it."""
    merged_from: tuple[str, ...]
    """Studies from which it was merged; merged ones are replaced by the studies that they contain."""
    failure: str = ""
    """Why it cannot be read; empty if it can."""


class StudyList(Record):
    """The studies of a folder."""

    schema_version: int = 3
    """Version of this form; increases when a field is removed or changes its meaning."""
    studies: tuple[StudyState, ...]
    """The studies, sorted by name."""


class StudyStatus(StudyState):
    """The state of a study, and an evaluation of its designs."""

    schema_version: int = 3
    """Version of this form; increases when a field is removed or changes its meaning."""
    num_feasible: int
    """Designs that keep every limit; where the job sets none, designs that fit the memory and end."""
    has_limits: bool = True
    """Whether the job sets any limit."""
    num_front: int
    """Designs of the front, without those that gain less than 0.1 % over one of them; these have the tag `front` in
    MLflow."""
    num_not_dominated: int
    """Feasible non-dominated designs: the front and its near-equals, which have the tag `near_front`."""
    hypervolume_fraction: float = Field(ge=0, le=1)
    """Share of the box between zero and 1.1 times the worst values of the first front that the front dominates."""
    stages: dict[str, int]
    """Designs by the stage of the search that evaluated them."""
    simulation_hash: str
    """Studies with equal hashes reuse each other's simulations."""
    code_hash: str
    """Only code with this hash can continue the study."""


class StudyFront(Record):
    """The current front of a study."""

    schema_version: int = 3
    """Version of this form; increases when a field is removed or changes its meaning."""
    study: StudyState
    """The study."""
    objectives: tuple[str, ...]
    """The objectives, which are minimized."""
    num_front: int
    """Designs of the front."""
    num_not_dominated: int
    """Feasible non-dominated designs: the front and its near-equals."""
    front: tuple[Design, ...]
    """Non-dominated designs, without those that gain less than 0.1 % over one of them, by ascending first objective."""


def list_studies(store: StudyStore) -> list[StudyState]:
    """Returns the studies of a store by name."""
    return [_state_or_damage(path) for path in store.paths()]


def state_of(path: Path) -> StudyState:
    """Returns the state of a study; raises `StudyError` if it cannot be read."""
    with Journal.read(path) as journal:
        return StudyState.model_validate(_state(journal))


def _state_or_damage(path: Path) -> StudyState:
    """The state of a study; an unreadable file does not hide the others."""
    try:
        return state_of(path)
    except StudyError as error:
        return StudyState(
            name=path.stem,
            job="",
            seed=None,
            state="other_version" if isinstance(error, OtherVersionError) else "damaged",
            created_at="",
            num_designs=0,
            elapsed_s=0.0,
            delivered_to=(),
            is_tracked=False,
            merged_from=(),
            failure=str(error),
        )


def status_of(path: Path) -> StudyStatus:
    """Returns the state of a study with an evaluation of its designs; raises `StudyError` if it cannot be read."""
    with Journal.read(path) as journal:
        facts = journal.facts
        job = job_of(facts)
        archive = Archive(job)
        stages: dict[str, int] = {}
        for batch in journal.batches():
            before = archive.num_evaluated
            archive.add(batch.found(job))
            stages[batch.stage] = stages.get(batch.stage, 0) + archive.num_evaluated - before
        return StudyStatus.model_validate(
            {
                **_state(journal),
                "num_feasible": archive.num_feasible,
                "has_limits": bool(set_limits(job)),
                "num_front": len(archive.distinct_front()[1]),
                "num_not_dominated": len(archive.ids),
                "hypervolume_fraction": archive.hypervolume(),
                "stages": stages,
                "simulation_hash": facts["simulation_hash"],
                "code_hash": facts["code_hash"],
            }
        )


def front_of(path: Path) -> StudyFront:
    """Returns the front of a study; raises `StudyError` if it cannot be read."""
    with Journal.read(path) as journal:
        job = job_of(journal.facts)
        archive = Archive(job)
        for batch in journal.batches():
            archive.add(batch.found(job))
        front, ids = archive.distinct_front()
        return StudyFront(
            study=StudyState.model_validate(_state(journal)),
            objectives=tuple(objective.value for objective in job.objectives),
            num_front=len(ids),
            num_not_dominated=len(archive.ids),
            front=() if front is None else designs_of(job, front, ids),
        )


def _state(journal: Journal) -> dict[str, object]:
    facts = journal.facts
    leaves = leaves_of(facts)
    return {
        "name": journal.path.stem,
        "job": job_of(facts).name,
        "seed": int(facts["seed"]) if "seed" in facts else None,
        "state": _how(journal.path, facts),
        "created_at": facts["created_at"],
        "num_designs": journal.num_designs,
        "elapsed_s": sum(leaf.elapsed_s for leaf in leaves) if leaves else journal.elapsed_s,
        "delivered_to": tuple(facts.get(DELIVERED_TO, "").splitlines()),
        "is_tracked": TRACKED_IN in facts,
        "merged_from": tuple(leaf.name for leaf in leaves),
    }


def _how(path: Path, facts: dict[str, str]) -> str:
    if MERGED_FROM in facts:
        return "merged"
    if ANSWER in facts:
        return facts[STATUS]
    return "running" if is_running(path) else "stopped"
