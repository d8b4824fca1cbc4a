"""Are comparisons under uncertain inputs told in the words of the rest of an answer?"""

from __future__ import annotations

import io

from rich.console import Console

from planner.job.typed_command import TypedCommand
from planner.recommended.comparisons import DrawnDesign, DrawnFigure, InputUncertainty, Neighbours, Ordering
from planner.recommended.recommendation import Recommendation
from planner.report.sections import comparisons
from planner.views.render import show
from tests.planner.hand_made import recommended


def answer_by_p95_cost() -> Recommendation:
    """Design 8 costs less in nine of ten draws."""
    drawn = tuple(
        DrawnDesign(
            design_id=number,
            figures={},
            on_front_fraction=1.0,
            recommended_fraction=0.5,
            least_fraction={},
        )
        for number in (7, 8)
    )
    unsure = InputUncertainty(
        num_draws=1000,
        figures={name: DrawnFigure(p5=1.0, p50=2.0, p95=3.0) for name in ("time_to_train", "cost")},
        on_front_fraction=1.0,
        recommended_fraction=0.5,
        orderings=(Ordering(objective="cost_p95", design_id=8, holds_fraction=0.9),),
        neighbours=(Neighbours(objective="cost_p95", design_id=8, next_design_id=7, holds_fraction=0.9),),
        designs=drawn,
    )
    objectives = ("time_to_train", "cost_p95")
    return recommended().model_copy(update={"objectives": objectives, "input_uncertainty": unsure})


def test_an_objective_has_one_name_in_all_of_an_answer() -> None:
    answer, console = answer_by_p95_cost(), Console(file=io.StringIO(), width=100)
    with console.capture() as capture:
        show(answer, console, command=TypedCommand(job="job.yaml"))
    told = " ".join(capture.get().split())
    assert "Pareto front (3 designs; time to train, P95 cost)" in told
    assert "Design 8 has less P95 cost than the recommended one in 90.0 % of the draws." in told
    assert "The only pair of designs that differs in P95 cost keeps its order in 90.0 % of the draws." in told
    assert "cost p95" not in told
    assert "Design 8 has less P95 cost than the recommended one in " in comparisons(answer)
