"""How are studies shown on a terminal? Lists, states and fronts as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from planner.text import human
from planner.text.limit_words import are_feasible
from planner.text.objective_words import objectives_in_words
from planner.text.text_blocks import grid, headline, plain_table, sentences, title
from planner.views.front_view import show_designs

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from planner.study.durable import Counts
    from planner.study.reports import StudyFront, StudyState, StudyStatus

NUMBERS = {"seed", "designs", "searched"}
"""Headings of right-aligned columns."""
WHAT_NEXT = {
    "running": "is running",
    "stopped": "was stopped; continue it with `capplan study resume {name}`",
    "recommended": "is complete: `capplan study resume {name}` shows its recommendation",
    "infeasible": "is complete, no design is feasible: `capplan study resume {name}` shows why",
    "damaged": "cannot be read",
    "other_version": "was written by another version of capplan",
    "merged": "holds the designs of several studies",
}


_SYNC = "no; `capplan study sync {name}` delivers it"
_NOT_DELIVERED = {
    "running": "not completely yet",
    "stopped": "not completely; `capplan study resume {name}` continues and delivers it",
    "recommended": _SYNC,
    "infeasible": _SYNC,
    "damaged": "no",
    "other_version": "no",
    "merged": "no; deliver the studies that it was merged from",
}
"""How to deliver a study that MLflow does not have, by its state."""
_NOT_TRACKED = {
    "running": "not tracked; `capplan study sync {name}` delivers it once it has ended",
    "stopped": "not tracked; `capplan study resume {name}` continues and delivers it",
}
"""The same for a study of which MLflow was sent nothing."""
_VOLUME_OF = "of the box from 0 to 1.1 times the worst values of the first front; only its growth matters"


def show_list(studies: Sequence[StudyState], folder: Path, console: Console) -> None:
    """Writes a line per study of a folder."""
    if not studies:
        missing = "" if folder.is_dir() else ", which does not exist yet"
        console.print(Text(f"No studies in {folder}{missing}; start one with `capplan study run JOB.yaml`."))
        return
    table = _table("study", "state", "designs", "searched", "seed", "in MLflow", "started (UTC)")
    for study in studies:
        _add_row(
            table,
            study.name,
            human.words(study.state),
            human.count(study.num_designs),
            human.duration(study.elapsed_s),
            "" if study.seed is None else str(study.seed),
            "yes" if study.delivered_to else "no",
            _minute(study.created_at),
        )
    console.print(table)
    if failures := [f"{study.name}: {study.failure}" for study in studies if study.failure]:
        title(console, "Unreadable studies")
        sentences(console, failures)


def show_status(study: StudyStatus, console: Console, called: str) -> None:
    """Writes the state of one study; `called` is its name in further commands."""
    told = f"Study {study.name} {WHAT_NEXT[study.state].format(name=called)}"
    headline(console, told, is_good=study.state not in ("stopped", "infeasible"))
    console.print()
    feasible = are_feasible(study.num_feasible, has_limits=study.has_limits)
    seeds = "several seeds" if study.seed is None else f"seed {study.seed}"
    rows = [
        ("job", f"{study.job}, {seeds}"),
        ("started", f"{_minute(study.created_at)} UTC"),
        ("searched", human.duration(study.elapsed_s)),
        ("designs", f"{human.count(study.num_designs)}, {human.count(study.num_feasible)} {feasible}"),
        ("front", f"{human.designs(study.num_front)}{_near(study.num_front, study.num_not_dominated)}"),
        ("hypervolume", f"{human.percent(study.hypervolume_fraction)} {_VOLUME_OF}"),
        ("in MLflow", ", ".join(study.delivered_to) or _not_delivered(study).format(name=called)),
        ("simulations", f"hash {study.simulation_hash}: shared with studies of the same hash"),
        ("code", f"hash {study.code_hash}"),
    ]
    grid(console, [*rows, *([("merged from", ", ".join(study.merged_from))] if study.merged_from else [])])
    if study.stages:
        title(console, "Designs by stage of the search")
        grid(console, [(stage, human.count(number)) for stage, number in study.stages.items()])


def _not_delivered(study: StudyStatus) -> str:
    if study.state in _NOT_TRACKED and not study.is_tracked:
        return _NOT_TRACKED[study.state]
    return _NOT_DELIVERED[study.state]


def show_front(found: StudyFront, console: Console) -> None:
    """Writes the front of a study."""
    objectives = objectives_in_words(found.objectives)
    study = found.study
    console.print(Text(f"Study {study.name} ({study.state}): {human.designs(study.num_designs)}"))
    title(console, f"Pareto front ({human.designs(len(found.front))}; {objectives})")
    show_designs(console, found.front)
    if near := _near(found.num_front, found.num_not_dominated):
        console.print(Text(f"The front has {human.designs(found.num_front)}{near}."))


def show_counts(name: str, counts: Counts, console: Console) -> None:
    """Writes where the evaluations of a run of a study came from."""
    title(console, "Study")
    rows = [
        ("simulated now", human.count(counts.num_simulated)),
        ("read from its journal", human.count(counts.num_read_back)),
        ("taken from other studies", human.count(counts.num_reused)),
    ]
    sentences(console, [f"Designs of {name}:"])
    grid(console, rows)


def _minute(moment: str) -> str:
    """A moment, ISO 8601 in UTC, to the minute; empty if unknown."""
    return moment[:16].replace("T", " ")


def _near(num_front: int, num_not_dominated: int) -> str:
    """The non-dominated designs that are too close to another one to be on the front."""
    if num_front == num_not_dominated:
        return ""
    return (
        f", and {human.count(num_not_dominated - num_front)} more that gain less than 0.1 % over one of them"
    )


def _table(*headings: str) -> Table:
    table = plain_table()
    for heading in headings:
        is_number = heading in NUMBERS
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number)
    return table


def _add_row(table: Table, *cells: str) -> None:
    table.add_row(*(Text(cell) for cell in cells))
