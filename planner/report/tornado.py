"""Which inputs drive time, cost, energy and carbon of the recommended design? One tornado chart per objective."""

from __future__ import annotations

from planner.report.breakdowns import OBJECTIVE_FIELDS
from planner.report.data import Range, RangesFigure
from planner.report.units import text
from planner.text.objective_words import OBJECTIVE_WORDS
from planner.uncertain.sensitivity import ResultSensitivity, Sensitivities, Swing
from planner.uncertain.uncertain_inputs import UncertainInput
from planner.views.sensitivity_view import input_text, input_words
from simulator.domain.job import Job, Objective


def tornados(job: Job, found: Sensitivities) -> list[RangesFigure]:
    """Returns a tornado chart for each objective of the job that any input moves."""
    by_field = {result.result: result for result in found.results}
    figures = [
        _tornado(objective, by_field[OBJECTIVE_FIELDS[objective][0]], found)
        for objective in job.objectives
        if objective in OBJECTIVE_FIELDS
    ]
    return [figure for figure in figures if figure.ranges]


def _tornado(objective: Objective, result: ResultSensitivity, found: Sensitivities) -> RangesFigure:
    inputs = {described.name: described for described in found.inputs}
    shown = [swing for swing in result.swings if swing.is_worth_showing]
    quantity = OBJECTIVE_FIELDS[objective][1]
    name = OBJECTIVE_WORDS[objective]
    title = f"No input moves {name}"
    if shown:
        first = shown[0]
        ends = f"{text(first.at_low, quantity)} to {text(first.at_high, quantity)}"
        title = f"{name[0].upper()}{name[1:]} depends most on {input_words(inputs[first.input])}: {ends}"
    return RangesFigure(
        name=f"drivers-{objective.value.replace('_', '-')}",
        title=title,
        note=f"{name[0].upper()}{name[1:]} with each input alone at its 5th and its 95th percentile.",
        quantity=quantity,
        mid=result.mid,
        ranges=tuple(_range(swing, inputs[swing.input]) for swing in shown),
    )


def _range(swing: Swing, described: UncertainInput) -> Range:
    return Range(
        label=input_words(described),
        low_text=input_text(described, described.low),
        high_text=input_text(described, described.high),
        at_low=swing.at_low,
        at_high=swing.at_high,
        note=described.why,
    )
