"""What differs? Two or more jobs with their designs side by side; the first is the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from constraints.evaluation import evaluate
from constraints.limits import set_limits
from planner import __version__
from planner.compare.causes import explanation_of
from planner.compare.certainty import certainty_notes
from planner.compare.comparison import Comparison, DecisionRow, InputRow, MetricRow
from planner.compare.figures import design_of, metrics_of
from planner.compare.inputs import differences, offer_keys, price_text, text_in
from planner.compare.sides import Side
from planner.explain.violations import limit_violations
from planner.grid_conventions import GridConvention, grid_convention, grid_notes
from planner.job.in_short import in_short
from planner.recommended.output import SINGLE_FIGURES
from planner.recommended.recommendation import Design
from planner.text.limit_words import CAN_BE_RUN
from planner.water_scopes import water_notes
from simulator.domain.hardware import Site
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError, Problem

RECORDED_TOLERANCE = 1e-3
"""Answers whose recorded figures are farther off than that were given by another version or catalogue."""


def compare(sides: Sequence[Side]) -> Comparison:
    """Returns sides side by side, all simulated anew by this version.

    Args:
        sides: two or more; the first one is what the others are measured by.

    Raises:
        InputError: there are fewer than two.
    """
    if len(sides) < 2:
        rule = "needs two or more of: study, answer, job@plan, job"
        raise InputError([Problem(path="compare", value="", rule=rule)])
    designs = [design_of(side.job, side.plan) if side.plan else None for side in sides]
    first = sides[0]
    explained = [
        explanation_of(first, side, designs[0], design)
        for side, design in zip(sides[1:], designs[1:], strict=True)
        if design is not None and designs[0] is not None
    ]
    return Comparison(
        capplan_version=__version__,
        sides=tuple(side.name for side in sides),
        inputs=_input_rows(sides),
        decisions=(*_offer_row(sides), *_decision_rows(designs)),
        metrics=_metric_rows(designs),
        grids=tuple(_grids_of(side) for side in sides),
        explanations=tuple(explained),
        warnings=tuple(_warnings(sides, designs)),
    )


def _input_rows(sides: Sequence[Side]) -> tuple[InputRow, ...]:
    first = sides[0].job
    found = [{difference.name: difference for difference in differences(first, s.job)} for s in sides[1:]]
    names = dict.fromkeys(name for differing in found for name in differing)
    rows = []
    for name in names:
        known = next(differing[name] for differing in found if name in differing)
        others = [
            differing[name].after if name in differing else text_in(side.job, known, first)
            for side, differing in zip(sides[1:], found, strict=True)
        ]
        rows.append(
            InputRow(input=name, values=(known.before, *others), decides_choice_only=known.is_choosing)
        )
    return tuple(rows)


def _offer_row(sides: Sequence[Side]) -> Iterator[DecisionRow]:
    """Which offer each design takes, where its accelerator alone does not say so."""
    if any(_has_alike(side) for side in sides):
        values = tuple(_offer_text(side) for side in sides)
        yield DecisionRow(decision="offer", values=values, is_same=len(set(values)) == 1)


def _has_alike(side: Side) -> bool:
    if side.plan is None:
        return False
    names = [name for name, _ in offer_keys(side.job)]
    return names.count(names[side.plan.offer]) > 1


def _offer_text(side: Side) -> str | None:
    if side.plan is None:
        return None
    name, place = offer_keys(side.job)[side.plan.offer]
    return f"{name} #{place + 1}, {price_text(side.job.offers[side.plan.offer])}"


def _decision_rows(designs: Sequence[Design | None]) -> tuple[DecisionRow, ...]:
    def row(name: str, values: Sequence[str | None]) -> DecisionRow:
        return DecisionRow(decision=name, values=tuple(values), is_same=len(set(values)) == 1)

    own = [
        row(name, [getattr(d, name) if d else None for d in designs])
        for name in ("accelerator", "node", "region")
    ]
    fields = [name for name in Plan.model_fields if name != "offer"]
    return (
        *own,
        *(row(name, [_decided(d, name) if d else None for d in designs]) for name in fields),
    )


def _decided(design: Design, name: str) -> str:
    """What a plan decides; the interval between saves is that of the run, because most plans leave it to capplan."""
    if name != "checkpoint_interval_s":
        return in_short(getattr(design.plan, name))
    return "never" if design.checkpoint_interval_s is None else in_short(design.checkpoint_interval_s)


def _metric_rows(designs: Sequence[Design | None]) -> tuple[MetricRow, ...]:
    known = [metrics_of(design) if design else {} for design in designs]
    names = dict.fromkeys(name for metrics in known for name in metrics)
    return tuple(
        MetricRow(metric=name, values=tuple(metrics.get(name) for metrics in known)) for name in names
    )


def _grids_of(side: Side) -> tuple[GridConvention, ...]:
    return tuple(dict.fromkeys(map(grid_convention, _sites_of(side))))


def _sites_of(side: Side) -> Sequence[Site]:
    """Where the design of a side stands, or could stand if there is none."""
    job = side.job
    return [
        job.site_of(offer) for offer in (job.offers if side.plan is None else [job.offers[side.plan.offer]])
    ]


def _why_none(side: Side) -> str:
    return "its limits cannot be met" if set_limits(side.job) else f"none {CAN_BE_RUN}"


def _warnings(sides: Sequence[Side], designs: Sequence[Design | None]) -> list[str]:
    notes = [
        f"{side.name} has no design, because {_why_none(side)}. {'; '.join(side.reasons)}".rstrip()
        for side in sides
        if side.plan is None
    ]
    for side, design in zip(sides, designs, strict=True):
        notes += [f"{side.name} violates a limit: {sentence}" for sentence in _broken(side)]
        if design is None or side.recorded is None:
            continue
        now, then = metrics_of(design), metrics_of(side.recorded)
        if any(abs(now[name] - then[name]) > RECORDED_TOLERANCE * abs(then[name]) for name in SINGLE_FIGURES):
            notes.append(
                f"{side.name} was answered by another version or catalogue; the figures shown here are from this one."
            )
    if all(design and design.cost_parts_usd.get("rent_usd") for design in designs) and any(
        "electricity" in row.input for row in _input_rows(sides)
    ):
        notes.append(
            "Electricity is part of every rent: its price changes only the cost of nodes that are bought."
        )
    notes += certainty_notes(sides, designs)
    places = [site for side in sides for site in _sites_of(side)]
    return [*notes, *grid_notes(places), *water_notes(places)]


def _broken(side: Side) -> list[str]:
    """What the design of a side breaks, in sentences."""
    if side.plan is None:
        return []
    evaluation = evaluate(side.job, PlanTable.from_plans([side.plan]))
    return [violation.sentence for violation in limit_violations(side.job, evaluation)]
