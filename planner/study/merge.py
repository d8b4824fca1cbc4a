"""How are several studies of one job combined? Their designs in one study, each once, with the front of all.

Studies may differ in seed, search or part of the space. They must not differ in limits, prices or the memory that designs
leave free, because a design would score differently in each of them. A merged study counts as the studies that it contains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

import numpy as np

from planner.input.arguments import refused
from planner.recommended.study_facts import (
    MERGED_FROM,
    STATUS,
    Leaf,
    Leaves,
    hash_of_leaves,
    job_of,
    leaves_of,
)
from simulator.argument_names import Argument, Words
from simulator.domain.job import Job
from simulator.errors import StudyError
from studies.designs.plan_keys import Keys, plan_keys
from studies.files.journal import Journal

MAY_DIFFER = ("name", "search")
"""Fields of a job in which merged studies may differ."""

JUDGES = ("memory_headroom_fraction",)
"""Fields of a search in which they may not: these decide whether a design is feasible, the others which ones are tried."""

IDENTITY = ("job", "simulation_hash", "job_hash", "code_hash", "catalog_hash")
"""Facts that the new study takes from the first one."""


def merge_studies(paths: Sequence[Path], target: Path, created_at: datetime) -> int:
    """Writes the designs of several studies into a new one and returns how many there are.

    Args:
        paths: at least two studies of one job; they are not changed.
        target: file of the new study.
        created_at: time of day for the new study.

    Raises:
        InputError: there are fewer than two studies, or one is named twice.
        StudyError: the studies differ in more than name and search or in the memory that designs leave free, were simulated
            by another version or keep only fronts, or the target exists or cannot be written.
    """
    named, different = len(paths), len({path.resolve() for path in paths})
    if different < max(2, named):
        names = ", ".join(path.stem for path in paths)
        raise refused("paths", names, "merging needs two studies or more, each named once")
    with ExitStack() as stack:
        journals = [stack.enter_context(Journal.read(path)) for path in paths]
        all_facts = [journal.facts for journal in journals]
        _check_alike(paths, all_facts)
        facts = {name: value for name, value in all_facts[0].items() if name in IDENTITY}
        merged = {**facts, STATUS: "merged", "created_at": created_at.isoformat()}
        with Journal.draft(target, merged) as into:
            leaves = _copied(_parts(journals, all_facts), into)
            into.note(
                {MERGED_FROM: Leaves(leaves=leaves).model_dump_json(), "study_hash": hash_of_leaves(leaves)}
            )
            if len(seeds := {leaf.seed for leaf in leaves}) == 1:
                into.note({"seed": str(*seeds)})
            return into.num_designs


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The part of one leaf that one of the files contains."""

    leaf: Leaf
    journal: Journal
    first: int
    """First batch of the leaf in the file."""
    began_s: float
    """Time at which the leaf begins on the clock of the file."""


def _parts(journals: Sequence[Journal], all_facts: Sequence[Mapping[str, str]]) -> dict[str, list[_Part]]:
    """All parts of every leaf, by its hash; a leaf in several files may have been continued in between."""
    parts: dict[str, list[_Part]] = {}
    for journal, facts in zip(journals, all_facts, strict=True):
        first, began_s = 0, 0.0
        for leaf in leaves_of(facts) or (_as_leaf(journal, facts),):
            part = _Part(leaf=leaf, journal=journal, first=first, began_s=began_s)
            parts.setdefault(leaf.study_hash, []).append(part)
            first, began_s = first + leaf.num_batches, began_s + leaf.elapsed_s
    return parts


def _as_leaf(journal: Journal, facts: Mapping[str, str]) -> Leaf:
    return Leaf(
        name=journal.path.stem,
        study_hash=facts["study_hash"],
        seed=int(facts["seed"]),
        elapsed_s=journal.elapsed_s,
        num_batches=journal.num_batches,
    )


def _copied(parts_of_leaves: Mapping[str, Sequence[_Part]], into: Journal) -> tuple[Leaf, ...]:
    """Appends every design once (the first of equal ones), leaf by leaf; returns the leaves of the new study."""
    seen: Keys = np.zeros(0, dtype=np.uint64)
    leaves: list[Leaf] = []
    for parts in parts_of_leaves.values():
        first = into.num_batches
        began_s = sum(leaf.elapsed_s for leaf in leaves)
        for part in parts:
            seen = _append(part, into, began_s, seen)
        longest = max((part.leaf for part in parts), key=lambda leaf: leaf.elapsed_s)
        leaves.append(longest.model_copy(update={"num_batches": into.num_batches - first}))
    return tuple(leaves)


def _append(part: _Part, into: Journal, began_s: float, seen: Keys) -> Keys:
    """Appends the unseen designs of a part, with times from the start of its leaf; returns the keys of all seen designs."""
    number = into.num_batches
    for batch in islice(part.journal.batches(part.first), part.leaf.num_batches):
        if batch.is_reduced:
            why = (
                f"study {part.journal.path.stem} keeps fronts instead of all designs, which cannot be merged, and an export "
                "of it has only these"
            )
            raise StudyError(Words(why, ": run the job anew with ", Argument("keep", "all")))
        keys, first = np.unique(plan_keys(batch.plans), return_index=True)
        rows = np.sort(first[~np.isin(keys, seen, assume_unique=True)])
        seen = np.union1d(seen, keys)
        if len(rows):
            elapsed_s = began_s + batch.elapsed_s - part.began_s
            into.append(number, batch.stage, elapsed_s, batch.plans.take(rows), batch.outcomes.take(rows))
            number += 1
    return seen


def _check_alike(paths: Sequence[Path], all_facts: Sequence[Mapping[str, str]]) -> None:
    first, job = all_facts[0], job_of(all_facts[0])
    for path, facts in zip(paths[1:], all_facts[1:], strict=True):
        names = f"studies {paths[0].stem} and {path.stem}"
        if different := _difference(job, job_of(facts)):
            raise StudyError(f"{names} differ in {different}: merge studies of one job")
        if facts["simulation_hash"] != first["simulation_hash"]:
            raise StudyError(f"{names} were simulated by different versions: run one of them again")


def _difference(first: Job, second: Job) -> str:
    """The first field in which two jobs differ although they must not, of a search with values; empty if there is none."""
    fields = [name for name in Job.model_fields if name not in MAY_DIFFER]
    if different := next((name for name in fields if getattr(first, name) != getattr(second, name)), ""):
        return different
    values = {name: (getattr(first.search, name), getattr(second.search, name)) for name in JUDGES}
    told = (f"search.{name} ({own:g} and {other:g})" for name, (own, other) in values.items() if own != other)
    return next(told, "")
