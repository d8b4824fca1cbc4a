"""What do several studies of one job know together? Their designs in one study, each once, and the front of all.

Studies with other seeds, other searches or other parts of a space add up; studies with other limits or prices do not,
because a design is worth something else in each of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import numpy as np

from planner.study_facts import MERGED_FROM, STATUS, job_of
from simulator.errors import StudyError
from simulator.job import Job
from studies.identity import hash_of
from studies.journal import Journal
from studies.plan_keys import Keys, plan_keys

MAY_DIFFER = ("name", "search")
"""Fields of a job in which studies that are merged may differ."""

IDENTITY = ("job", "seed", "simulation_hash", "job_hash", "code_hash", "catalog_hash")
"""Facts that the new study has from the first one."""


def merge_studies(paths: Sequence[Path], target: Path, created_at: datetime) -> int:
    """Writes the designs of several studies into a new one and returns how many there are.

    Args:
        paths: at least two studies of one job; none is changed.
        target: file of the new study.
        created_at: time of day for the new study.

    Raises:
        StudyError: fewer than two studies, studies that differ in more than name and search, were simulated by another
            version or keep fronts only, or a target that is there or cannot be written.
    """
    if len({path.resolve() for path in paths}) < max(2, len(paths)):
        raise StudyError(f"merging needs at least two different studies, got {len(paths)}")
    with ExitStack() as stack:
        journals = [stack.enter_context(Journal.read(path)) for path in paths]
        all_facts = [journal.facts for journal in journals]
        _check_alike(paths, all_facts)
        merged = {
            MERGED_FROM: json.dumps([path.stem for path in paths]),
            STATUS: "merged",
            "created_at": created_at.isoformat(),
            "study_hash": hash_of(sorted(facts["study_hash"] for facts in all_facts)),
        }
        facts = {name: value for name, value in all_facts[0].items() if name in IDENTITY}
        with Journal.draft(target, {**facts, **merged}) as into:
            return _copied(journals, into)


def _copied(journals: Sequence[Journal], into: Journal) -> int:
    """Appends every design once; of equal ones the first."""
    seen: Keys = np.zeros(0, dtype=np.uint64)
    elapsed_s = 0.0
    number = 0
    for journal in journals:
        before_s = elapsed_s
        for batch in journal.batches():
            if batch.is_reduced:
                raise StudyError(
                    f"study {journal.path.stem} keeps fronts instead of all designs, which do not add up: run it "
                    "anew with --keep all, or export both"
                )
            elapsed_s = before_s + batch.elapsed_s
            keys, first = np.unique(plan_keys(batch.plans), return_index=True)
            rows = np.sort(first[~np.isin(keys, seen, assume_unique=True)])
            seen = np.union1d(seen, keys)
            if len(rows):
                into.append(number, batch.stage, elapsed_s, batch.plans.take(rows), batch.outcomes.take(rows))
                number += 1
    return into.num_designs


def _check_alike(paths: Sequence[Path], all_facts: Sequence[dict[str, str]]) -> None:
    first, job = all_facts[0], job_of(all_facts[0])
    for path, facts in zip(paths[1:], all_facts[1:], strict=True):
        names = f"studies {paths[0].stem} and {path.stem}"
        if different := _difference(job, job_of(facts)):
            raise StudyError(f"{names} differ in {different}: merge studies of one job")
        if facts["simulation_hash"] != first["simulation_hash"]:
            raise StudyError(f"{names} were simulated by different versions: run one of them anew")


def _difference(first: Job, second: Job) -> str:
    """The first field in which two jobs differ that may not; empty where there is none."""
    fields = [name for name in Job.model_fields if name not in MAY_DIFFER]
    return next((name for name in fields if getattr(first, name) != getattr(second, name)), "")
