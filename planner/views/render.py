"""What does a terminal answer look like? Sections of plain text with rich, for terminals, pipes and files alike.

Nothing depends on colour, and tables have no borders. Each command has a line of its own and is never wrapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.job.typed_command import TypedCommand
from planner.notes.doubts import doubts
from planner.notes.reasons import searched_text
from planner.recommended.design_words import (
    breakdowns,
    configuration,
    figures,
    has_several_sites,
    headline,
    layout,
    site_words,
)
from planner.recommended.limit_uses import LIMIT_UNITS
from planner.recommended.recommendation import Design, Infeasibility, Recommendation, Relaxation, Uncertainty
from planner.text import human
from planner.text.limit_words import no_design
from planner.text.objective_words import objectives_in_words
from planner.text.text_blocks import bar, command_line, grid, plain_table, sentences, show_doubts, title
from planner.views.bests_view import show_bests
from planner.views.choices_view import SAME_ACCELERATORS, show_choices
from planner.views.comparisons_view import show_comparisons
from planner.views.front_view import show_designs
from simulator.accuracy.published_runs import LEAST_ROWS

if TYPE_CHECKING:
    from rich.console import Console

MAX_FRONT_ROWS = 20
"""Most designs of the front that are shown; files and JSON hold all of them."""
NUM_ENDS = 2
"""Rows reserved for the two ends of a long front."""

_INDENT = 2
_FRONT_MARKS = {"*": "recommended", "~": "indistinguishable from it", "<": "lowest value of an objective"}


def show(
    answer: Recommendation,
    console: Console,
    *,
    command: TypedCommand | None = None,
    files: Sequence[Path] = (),
    is_brief: bool = False,
) -> None:
    """Writes an answer.

    Args:
        answer: The answer to show.
        console: Where to.
        command: The command that was run; commands for the design and for each relaxation are derived from it.
        files: Files that were written with the answer.
        is_brief: Whether only the design and its figures are written, or why there is none.
    """
    command = command or TypedCommand(seed=answer.seed)
    _show_headline(answer, console)
    if answer.recommendation:
        _show_design(answer, answer.recommendation, console, command)
    if answer.infeasibility:
        _show_infeasibility(answer.infeasibility, console, command)
    if is_brief:
        _show_left_out(answer, console)
    else:
        if answer.recommendation:
            _show_reasons(answer, answer.recommendation, console)
        _show_front(answer, console)
        _show_rejected(answer, console)
        _show_notes(answer, console)
    _show_record(answer, console, files)


def _show_headline(answer: Recommendation, console: Console) -> None:
    best = answer.recommendation
    match answer.status:
        case "recommended":
            verdict, style = "Recommended", "bold green"
        case "interrupted" if best is None:
            found = "any design met all limits" if answer.has_limits else "a design was found that can be run"
            verdict, style = f"Interrupted before {found}", "bold yellow"
        case "interrupted":
            verdict, style = "Interrupted; best design so far", "bold yellow"
        case "infeasible":
            verdict, style = no_design(has_limits=answer.has_limits), "bold red"
    console.print(
        Text(f"{verdict}: {headline(best, site_words(answer, best))}" if best else verdict, style=style)
    )
    show_doubts(console, doubts(best, answer.uncertainty))
    console.print(Text(f"Job {answer.job}, seed {answer.seed}: {searched_text(answer)}; {answer.algorithm}."))


def _show_design(answer: Recommendation, design: Design, console: Console, command: TypedCommand) -> None:
    title(console, "Configuration")
    grid(console, configuration(design))
    command_line(console, command.simulate(design.plan))
    title(console, "Results")
    grid(console, figures(design, answer.uncertainty, answer.carbon_scope, answer.input_uncertainty))
    _show_uncertainty(answer, console)


def _show_left_out(answer: Recommendation, console: Console) -> None:
    """What a brief answer leaves unsaid."""
    front, notes = (
        human.counted(len(each), name) for each, name in ((answer.front, "design"), (answer.warnings, "note"))
    )
    title(console, "Left out by --brief")
    sentences(
        console,
        [f"Reasons, other choices, the front of {front}, rejections, and {notes}. --json has them."],
    )


def _show_reasons(answer: Recommendation, design: Design, console: Console) -> None:
    title(console, "Why this design")
    sentences(console, answer.why)
    show_choices(design, answer.other_choices, SAME_ACCELERATORS, console)
    show_bests(answer, console)
    show_comparisons(answer, console)
    for breakdown in breakdowns(design):
        title(console, breakdown.title)
        grid(
            console, [(*part[:2], human.percent(part[2]), bar(console, part[2])) for part in breakdown.parts]
        )


def step_error_text(sure: Uncertainty) -> str:
    """Returns the mean error of simulated step times and the runs behind it, with their number where they are few."""
    few, compared_with = sure.step_time_num_compared, sure.step_time_compared_with
    if not sure.is_step_time_measured:
        compared_with = "the least accurate group of published runs (none is closer to this design)"
    elif 0 < few < LEAST_ROWS:
        compared_with = f"{human.counted(few, 'configuration')} of {compared_with}"
    error = human.percent(sure.step_time_error_fraction)
    return f"simulated step times have a mean error of {error} on {compared_with}"


def step_range(sure: Uncertainty) -> str:
    """Returns the 80 % interval of the step time of a recommended design."""
    low, high = human.duration(sure.step_time_low_s), human.duration(sure.step_time_high_s)
    return f"80 % interval of the step time: {low} to {high}."


def _show_uncertainty(answer: Recommendation, console: Console) -> None:
    sure = answer.uncertainty
    if sure is None:
        return
    replays = f"{human.count(sure.num_replays)} replays of failures and stragglers"
    told = [f"{replays}; {step_error_text(sure)}.", step_range(sure)]
    if sure.tied_designs:
        shown = [str(each.design_id) for each in _front_rows(answer) if each.design_id in sure.tied_designs]
        hidden = len(sure.tied_designs) - len(shown)
        more = f" and {human.count(hidden)} more" if hidden else ""
        ties = f"{', '.join(shown)} (marked ~){more} on the front"
        designs = "design" if len(sure.tied_designs) == 1 else "designs"
        told.append(
            f"Given the uncertainty of the inputs, the recommended design is indistinguishable from {designs} {ties}."
        )
    console.print()
    sentences(console, told)


def _conflict_text(infeasibility: Infeasibility) -> str:
    """Returns which limits conflict, in one sentence."""
    limits = " and ".join(infeasibility.conflict)
    if len(infeasibility.conflict) == 1:
        return f"Cause: {limits} alone."
    if any(len(relaxation.limits) > 1 for relaxation in infeasibility.relaxations):
        return f"Cause: {limits}. Changing only one of them is not enough."
    helpful = [name for relaxation in infeasibility.relaxations for name in relaxation.limits]
    stuck = [name for name in infeasibility.conflict if name not in helpful]
    if helpful and stuck:
        return (
            f"In conflict: {limits}. Relaxing only one of them helps only for {' or '.join(helpful)}: without "
            f"{' or '.join(stuck)}, other limits still conflict."
        )
    return f"In conflict: {limits}. If any one of them is relaxed, the others can be met."


def _show_infeasibility(infeasibility: Infeasibility, console: Console, command: TypedCommand) -> None:
    title(console, "Why no design is feasible")
    if infeasibility.conflict:
        sentences(console, [_conflict_text(infeasibility)])
    sentences(console, [*infeasibility.reasons, f"Proof: {infeasibility.proof}"])
    if infeasibility.relaxations:
        title(console, "What would help")
    for relaxation in infeasibility.relaxations:
        _show_relaxation(relaxation, console, command)


def _show_relaxation(relaxation: Relaxation, console: Console, command: TypedCommand) -> None:
    told = " and ".join(
        f"{name} = {human.no_less(value)} ({LIMIT_UNITS.get(name, human.digits)(value)})"
        for name, value in relaxation.limits.items()
    )
    sentences(console, [f"{told}: {headline(relaxation.example)}, {layout(relaxation.example.plan)}"])
    changes = [f"limits.{name}={human.no_less(value)}" for name, value in relaxation.limits.items()]
    command_line(console, command.recommend(changes))


def _show_front(answer: Recommendation, console: Console) -> None:
    if not answer.front:
        return
    objectives = objectives_in_words(answer.objectives)
    title(console, f"Pareto front ({human.designs(len(answer.front))}; {objectives})")
    shown = _front_rows(answer)
    has_site = has_several_sites(answer)
    marks = [_mark(answer, design) for design in shown]
    # Site and MFU together are too wide for a terminal.
    show_designs(console, shown, marks=marks, has_site=has_site, has_efficiency=not has_site)
    told = [f"{mark} {meaning}" for mark, meaning in _FRONT_MARKS.items() if mark in "".join(marks)]
    if told:
        sentences(console, ["; ".join(told)])
    if hidden := len(answer.front) - len(shown):
        sentences(
            console, [f"{human.count(hidden)} more on the front are not shown; --json and --output list all."]
        )


def _front_rows(answer: Recommendation) -> list[Design]:
    """Returns the recommended design, the best for each objective, tied designs, and others spread over the front."""
    last = len(answer.front) - 1
    if last < MAX_FRONT_ROWS:
        return list(answer.front)
    ids = [design.design_id for design in answer.front]
    bests = {best.design_id for best in answer.best_of_each}
    chosen = {index for index, each in enumerate(ids) if each in bests or answer.recommends(each)}
    tied = [index for index, each in enumerate(ids) if answer.ties(each)]
    chosen |= set(_spread_over(tied, MAX_FRONT_ROWS - len(chosen) - NUM_ENDS))
    chosen |= set(_spread_over(range(last + 1), max(NUM_ENDS, MAX_FRONT_ROWS - len(chosen))))
    return [design for index, design in enumerate(answer.front) if index in chosen]


def _spread_over(indices: Sequence[int], most: int) -> Sequence[int]:
    """Returns at most `most` of the indices, evenly spaced, with both ends if there is room for two."""
    if len(indices) <= most:
        return indices
    return [indices[round(step * (len(indices) - 1) / max(1, most - 1))] for step in range(most)]


def _mark(answer: Recommendation, design: Design) -> str:
    """`*` for the recommended design, `~` for one indistinguishable from it, `<` for the best in an objective."""
    mark = "*" if answer.recommends(design.design_id) else "~" if answer.ties(design.design_id) else ""
    is_best = any(best.design_id == design.design_id for best in answer.best_of_each)
    return f"{mark}<" if is_best else mark


def _show_rejected(answer: Recommendation, console: Console) -> None:
    if not answer.rejected:
        return
    title(console, "Constraints that excluded designs")
    table = _table("constraint", "rule", "before simulation", "after")
    for rejection in answer.rejected:
        before, after = rejection.num_before_simulation, rejection.num_after_simulation
        cells = (human.words(rejection.constraint), rejection.rule, human.count(before), human.count(after))
        table.add_row(*(Text(cell) for cell in cells))
    console.print(Padding(table, (0, 0, 0, _INDENT)))


def _show_notes(answer: Recommendation, console: Console) -> None:
    if answer.warnings:
        title(console, "Notes")
        sentences(console, answer.warnings)


def _show_record(answer: Recommendation, console: Console, files: Sequence[Path]) -> None:
    record = answer.mlflow
    if record:
        title(console, "In MLflow")
        held = f"{human.count(record.num_designs)} designs, {human.count(record.num_design_runs)} of them with their own run"
        sentences(console, [f"Run {record.run_name} of experiment {record.experiment} holds {held}."])
        command_line(console, record.open_with)
    if files:
        title(console, "Files")
        for file in files:
            command_line(console, str(file))


def _table(*headings: str) -> Table:
    table = plain_table()
    for heading in headings:
        is_number = heading in ("before simulation", "after")
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number)
    return table
