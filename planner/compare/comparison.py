"""What is different, and what makes the difference? Two or more jobs with their designs, in inputs, decisions and figures.

The first side is what the others are measured by. A difference of a figure is taken apart: every input of the other side
alone, under the design of the first; what all of them together make beyond that; and the other design. The parts sum to
the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from constraints.evaluation import evaluate
from planner import __version__
from planner.compare.choice import choices_of
from planner.compare.figures import (
    Cause,
    Metrics,
    change,
    design_of,
    figures_or_reason,
    metrics_of,
    plus,
    without_rounding,
)
from planner.compare.inputs import (
    Difference,
    OfferKey,
    differences,
    offer_keys,
    offer_label,
    price_text,
    swapped,
    with_one_offer,
)
from planner.compare.sides import Side
from planner.explain.violations import limit_violations
from planner.grid_conventions import GridConvention, grid_convention, grid_notes
from planner.job.in_short import in_short
from planner.recommended.output import SINGLE_FIGURES
from planner.recommended.recommendation import Design
from simulator.domain.hardware import Site
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.errors import InputError, Problem
from simulator.record import Record

RECORDED_TOLERANCE = 1e-3
"""Answers whose recorded figures are farther off than that were given by another version or catalogue."""


class InputRow(Record):
    """One input in which a side differs from the first."""

    input: str
    """Its place in the job; offers by their accelerators, `offers[NAME #2]` the second of several with the same one."""
    values: tuple[str, ...]
    """What stands there, side by side."""
    decides_choice_only: bool
    """Whether it decides which design is chosen, and changes no figure of a design."""


class DecisionRow(Record):
    """One decision of the designs."""

    decision: str
    """Field of the plan, `accelerator`, `node` or `region`; `offer` where a job has several of the accelerator."""
    values: tuple[str | None, ...]
    """Side by side; null where a side has no design. The interval between saves is the one that is used."""
    is_same: bool
    """Whether all sides decide alike."""


class MetricRow(Record):
    """One figure of the designs."""

    metric: str
    """Field of a design, parts as `field.part`; the unit is in the name."""
    values: tuple[float | None, ...]
    """Side by side; null where a side has no design or does not know the figure."""


class Explanation(Record):
    """Why the figures of one side differ from those of the first; the parts of a figure sum to its `total`."""

    side: str
    """The other side."""
    causes: tuple[Cause, ...]
    """Inputs, one at a time."""
    interaction: Metrics
    """What all inputs together change beyond the sum of them alone."""
    design: Metrics
    """What the other design changes under the inputs of the other side."""
    total: Metrics
    """The whole difference."""
    choices: tuple[Cause, ...] = ()
    """Inputs, one at a time, by the design that is then chosen among those of both answers instead of the first; these and
    `choice_interaction` sum to `design`. None where a design was given, not chosen."""
    choice_interaction: Metrics = Field(default={})
    """What inputs choose only together, and what their design changes more under all inputs than under one."""
    notes: tuple[str, ...] = ()
    """What could not be told apart."""


class Comparison(Record):
    """Jobs and their designs side by side."""

    schema_version: int = 1
    """Of this form; it rises when a field goes or changes its meaning."""
    capplan_version: str
    """Version that simulated all sides anew."""
    sides: tuple[str, ...]
    """What is compared, as it was asked for."""
    inputs: tuple[InputRow, ...]
    """Inputs that differ."""
    decisions: tuple[DecisionRow, ...]
    """The designs."""
    metrics: tuple[MetricRow, ...]
    """Figures of the designs."""
    grids: tuple[tuple[GridConvention, ...], ...] = ()
    """How the grids behind their carbon are counted, side by side; a side without a design has those of all its offers."""
    explanations: tuple[Explanation, ...]
    """Why the others differ from the first; empty where a design is missing."""
    warnings: tuple[str, ...] = ()
    """What the reader should know."""


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
        _explanation(first, side, designs[0], design)
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
        others = [differing[name].after if name in differing else known.before for differing in found]
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


def _warnings(sides: Sequence[Side], designs: Sequence[Design | None]) -> list[str]:
    notes = [
        f"{side.name} has no design: its limits cannot be kept. {'; '.join(side.reasons)}".rstrip()
        for side in sides
        if side.plan is None
    ]
    for side, design in zip(sides, designs, strict=True):
        notes += [f"{side.name} breaks a limit: {sentence}" for sentence in _broken(side)]
        if design is None or side.recorded is None:
            continue
        now, then = metrics_of(design), metrics_of(side.recorded)
        if any(abs(now[name] - then[name]) > RECORDED_TOLERANCE * abs(then[name]) for name in SINGLE_FIGURES):
            notes.append(
                f"{side.name} was answered by another version or catalogue; its figures here are those of this one."
            )
    return [*notes, *grid_notes(site for side in sides for site in _sites_of(side))]


def _broken(side: Side) -> list[str]:
    """What the design of a side breaks, in sentences."""
    if side.plan is None:
        return []
    evaluation = evaluate(side.job, PlanTable.from_plans([side.plan]))
    return [violation.sentence for violation in limit_violations(side.job, evaluation)]


def _explanation(first: Side, other: Side, before: Design, after: Design) -> Explanation:
    """Takes the differences of two designs apart."""
    assert first.plan is not None
    own, plan = with_one_offer(first.job, first.job.offers[first.plan.offer]), _alone(first.plan)
    key = offer_keys(first.job)[first.plan.offer]
    moved, notes = _moved(own, key, other.job)
    label = offer_label(key, first.job, other.job)
    base, total = metrics_of(before), change(metrics_of(before), metrics_of(after))
    found = [each for each in differences(own, moved, label) if not each.is_choosing]
    causes = tuple(_cause(difference, own, moved, plan, base) for difference in found)
    together = figures_or_reason(moved, plan)
    if isinstance(together, str):
        note = f"the design of {first.name} cannot be run with the inputs of {other.name} ({together})"
        design, interaction, notes = total, {}, [*notes, f"{note}: inputs and design cannot be told apart"]
    else:
        sums = {name: sum(cause.effects.get(name, 0.0) for cause in causes) for name in base}
        interaction = {name: together[name] - base[name] - sums[name] for name in base if name in together}
        design = change(together, metrics_of(after))
    choices, told = choices_of(first, other)
    chosen = plus(cause.effects for cause in choices)
    return Explanation(
        side=other.name,
        causes=causes,
        interaction=without_rounding(interaction, base),
        design=without_rounding(design, base),
        total=total,
        choices=tuple(choices),
        choice_interaction=without_rounding(change(chosen, design), base) if choices else {},
        notes=(*notes, *told),
    )


def _alone(plan: Plan) -> Plan:
    return plan.model_copy(update={"offer": 0})


def _moved(own: Job, key: OfferKey, other: Job) -> tuple[Job, list[str]]:
    """The other job with nothing on offer but what the first design takes, and what that leaves unsaid."""
    keys, (accelerator, _) = offer_keys(other), key
    if key in keys:
        return with_one_offer(other, other.offers[keys.index(key)]), []
    if (accelerator, 0) in keys:
        note = f"there are fewer offers of {accelerator} there; the first one stands for that of the design"
        return with_one_offer(other, other.offers[keys.index((accelerator, 0))]), [note]
    note = f"{accelerator} is not on offer there; its price and servers are kept where its design is moved"
    return with_one_offer(other, own.offers[0]), [note]


def _cause(difference: Difference, own: Job, moved: Job, plan: Plan, base: Metrics) -> Cause:
    figures = figures_or_reason(swapped(own, difference, moved), plan)
    if isinstance(figures, str):
        return Cause(input=difference.name, effects={}, note=figures)
    return Cause(input=difference.name, effects=without_rounding(change(base, figures), base))
