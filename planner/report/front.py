"""What does the front look like in two objectives, and which designs are indistinguishable? Its points with their errors."""

from __future__ import annotations

from collections.abc import Mapping

from planner.recommended.recommendation import Design, Recommendation
from planner.report.breakdowns import OBJECTIVE_FIELDS
from planner.report.data import FrontFigure, FrontPoint, Role, StepInterval
from planner.text import human
from planner.text.objective_words import OBJECTIVE_WORDS
from planner.uncertain.uncertainty import step_time_interval
from simulator.domain.job import Job, Objective
from simulator.domain.plan import PlanTable


def step_intervals(job: Job, answer: Recommendation) -> dict[int, StepInterval]:
    """Returns the 80 % interval of the step of every design of the front, by its id."""
    plans = PlanTable.from_plans([design.plan for design in answer.front])
    found = {}
    for row, design in enumerate(answer.front):
        low, high = step_time_interval(job, plans, row, 1.0)
        found[design.design_id] = StepInterval(low_fraction=low, high_fraction=high)
    return found


def front_figure(answer: Recommendation, intervals: Mapping[int, StepInterval]) -> FrontFigure:
    """Returns the front in the first two objectives that designs hold, completed by time and cost."""
    x, y = _axes(answer)
    (x_field, x_quantity), (y_field, y_quantity) = OBJECTIVE_FIELDS[x], OBJECTIVE_FIELDS[y]
    points = tuple(
        FrontPoint(
            design_id=design.design_id,
            x=getattr(design, x_field),
            y=getattr(design, y_field),
            interval=intervals[design.design_id],
            role=role_of(answer, design),
        )
        for design in answer.front
    )
    return FrontFigure(
        name="front",
        title=_title(answer),
        note=(
            "Each dot is a design; error bars show the 80 % interval of its step time. Faint: dominated designs, and designs "
            "that violate a limit."
        ),
        x_field=x_field,
        x_label=OBJECTIVE_WORDS[x],
        x_quantity=x_quantity,
        y_field=y_field,
        y_label=OBJECTIVE_WORDS[y],
        y_quantity=y_quantity,
        points=points,
    )


def _axes(answer: Recommendation) -> tuple[Objective, Objective]:
    wanted = [Objective(name) for name in answer.objectives if Objective(name) in OBJECTIVE_FIELDS]
    first, second, *_ = dict.fromkeys([*wanted, Objective.TIME, Objective.COST])
    return first, second


def role_of(answer: Recommendation, design: Design) -> Role:
    """Returns the role of a design of the front."""
    if answer.recommends(design.design_id):
        return "recommended"
    return "tied" if answer.ties(design.design_id) else "front"


def _title(answer: Recommendation) -> str:
    num_front = len(answer.front)
    if num_front == 1:
        return "One design is best in every objective"
    ties = len(answer.uncertainty.tied_designs) if answer.uncertainty else 0
    are = "is" if ties == 1 else "are"
    tied = f"; {human.count(ties)} of them {are} indistinguishable from the recommended one" if ties else ""
    designs = human.count(num_front)
    return f"{designs} of {human.count(answer.num_feasible)} feasible designs form the front{tied}"
