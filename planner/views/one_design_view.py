"""How does a person read one simulated plan? Its verdict, its figures, one step as a picture, and what drives the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.notes.doubts import doubts
from planner.one_design.simulated_design import SimulatedDesign
from planner.one_design.stage_memory import host_text, stage_rows
from planner.one_design.step_operators import seconds_by_operator
from planner.recommended.design_words import (
    compute_breakdown,
    configuration,
    figures,
    layout,
    run_breakdowns,
    step_breakdowns,
)
from planner.recommended.design_words import headline as design_headline
from planner.recommended.limit_uses import uses_in_words
from planner.recommended.recommendation import Design
from planner.text import human
from planner.text.text_blocks import bar, grid, headline, sentences, show_doubts, title
from planner.timeline.view import show_timeline
from planner.views.choices_view import ONE_CHANGE, show_choices
from planner.views.render import step_error_text, step_range
from planner.views.sensitivity_view import show_sensitivities
from simulator.step.timeline import StepTimeline

if TYPE_CHECKING:
    from rich.console import Console


def show_simulated(answer: SimulatedDesign, console: Console, step: StepTimeline | None) -> None:
    """Writes the whole answer.

    Args:
        answer: the answer to show.
        console: where to.
        step: one step of the plan, to draw as a timeline; `None`: none.
    """
    headline(console, _headline(answer), is_good=answer.is_feasible)
    show_doubts(console, doubts(answer.design, answer.spread))
    if answer.violations:
        title(console, "violated constraints")
        sentences(console, [violation.sentence for violation in answer.violations])
    if answer.design:
        _show_design(answer, answer.design, console)
        show_choices(answer.design, answer.other_choices, ONE_CHANGE, console)
    if answer.host_memory:
        title(console, "memory per stage")
        grid(console, stage_rows(answer.stage_memory))
        title(console, "host memory")
        sentences(console, [host_text(answer.host_memory)])
    if step:
        show_timeline(step, console)
    if answer.sensitivities:
        show_sensitivities(answer.sensitivities, console)
    if answer.simpler_models:
        title(console, "estimates of simpler models")
        grid(console, _simpler(answer))
    notes = _notes(answer)
    if notes:
        title(console, "notes")
        sentences(console, notes)


def _show_design(answer: SimulatedDesign, design: Design, console: Console) -> None:
    title(console, "configuration")
    grid(console, configuration(design))
    title(console, "results")
    grid(console, figures(design, answer.spread, answer.carbon_scope))
    if answer.limits:
        title(console, "use of the limits")
        grid(console, uses_in_words(answer.limits))
    of_compute = compute_breakdown(design, seconds_by_operator(answer.operators))
    for part in (*step_breakdowns(design), *of_compute, *run_breakdowns(design)):
        title(console, part.title)
        grid(console, [(*cells[:2], human.percent(cells[2]), bar(console, cells[2])) for cells in part.parts])


def _headline(answer: SimulatedDesign) -> str:
    if answer.design is None:
        what = f": {layout(answer.plan)}" if answer.plan else ""
        is_endless = any(violation.constraint == "progress" for violation in answer.violations)
        return f"{'Never ends' if is_endless else 'Cannot be run'}{what}"
    kept = "Meets all limits" if answer.limits else "Can be run (the job sets no limits)"
    verdict = kept if answer.is_feasible else "Violates the constraints listed below"
    return f"{verdict}: {design_headline(answer.design)}"


def _simpler(answer: SimulatedDesign) -> list[tuple[str, ...]]:
    return [
        (
            each.name,
            f"{human.short(each.gpu_hours)} GPU-hours",
            human.energy(each.energy_kwh),
            f"{human.carbon(each.operational_kgco2e)} operational",
        )
        for each in answer.simpler_models
    ]


def _notes(answer: SimulatedDesign) -> list[str]:
    spread = answer.spread
    if spread is None:
        return list(answer.warnings)
    replays = f"{human.count(spread.num_replays)} replays of failures and stragglers, seed {answer.seed}"
    return [
        f"{replays}; {step_error_text(spread)}.",
        step_range(spread),
        *answer.warnings,
    ]
