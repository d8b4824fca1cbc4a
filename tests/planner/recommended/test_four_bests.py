"""Are the best designs for four objectives four different ones, and does the report say why each was not recommended?"""

from __future__ import annotations

import io
from functools import cache
from operator import attrgetter
from pathlib import Path

import pytest
from rich.console import Console

from planner import Recommendation, load_job, recommend
from planner.text import human
from planner.views.comparisons_view import by_accelerator, survivals
from planner.views.render import show

EXAMPLE = Path(__file__).parents[3] / "examples" / "four-bests.yaml"
FIGURES = ("time_to_train_days", "cost_usd", "energy_kwh", "carbon_kgco2e")


@cache
def four_bests() -> Recommendation:
    return recommend(load_job(EXAMPLE), tracking=False)


class TestFourBests:
    @pytest.mark.long
    def test_fastest_cheapest_least_energy_and_least_carbon_are_four_designs(self) -> None:
        front = four_bests().front
        best = [min(front, key=attrgetter(figure)) for figure in FIGURES]
        assert len({design.design_id for design in best}) == 4
        assert [design.plan.offer for design in best] == [0, 1, 2, 3]

    def test_the_report_says_why_each_of_them_was_not_taken(self) -> None:
        why = " ".join(four_bests().why)
        for objective in ("time to train", "cost", "energy", "carbon"):
            assert f"owest {objective}" in why

    def test_each_rival_keeps_its_lead_in_a_known_share_of_the_draws(self) -> None:
        sure = four_bests().input_uncertainty
        assert sure is not None
        assert all(0.0 <= ordering.holds_fraction <= 1.0 for ordering in sure.orderings)
        # Four times as many of the same accelerators are faster whatever the error of their steps.
        (fastest,) = [o for o in sure.orderings if o.objective == "time_to_train"]
        assert fastest.holds_fraction == 1.0
        assert 0.5 < sure.recommended_fraction < 1.0
        assert sum(design.recommended_fraction for design in sure.designs) == pytest.approx(1.0)
        best = four_bests().best
        assert best is not None
        drawn = sure.figures["cost"]
        assert drawn.p5 < best.cost_usd < drawn.p95

    def test_the_draws_tell_how_sure_the_accelerator_is(self) -> None:
        answer = four_bests()
        sure, accelerators = (
            answer.input_uncertainty,
            {each.design_id: each.accelerator for each in answer.front},
        )
        assert sure is not None
        assert answer.best is not None
        own = [
            each.recommended_fraction
            for each in sure.designs
            if accelerators[each.design_id] == answer.best.accelerator
        ]
        told = by_accelerator(answer)
        assert told.startswith(
            f"{answer.best.accelerator} is recommended in {human.percent(sum(own))} of the draws, "
        )
        assert all(f"{name} in " in told for name in set(accelerators.values()) - {answer.best.accelerator})
        assert told in survivals(sure, told)
        alone = tuple(each for each in answer.front if each.accelerator == answer.best.accelerator)
        drawn = tuple(each for each in sure.designs if each.design_id in {one.design_id for one in alone})
        of_one = sure.model_copy(update={"designs": drawn})
        assert not by_accelerator(answer.model_copy(update={"front": alone, "input_uncertainty": of_one}))

    def test_each_best_says_why_in_factors_and_what_it_gives_up(self) -> None:
        answer = four_bests()
        best = answer.best
        assert best is not None
        assert [one.objective for one in answer.best_of_each] == list(answer.objectives)
        designs = {design.design_id: design for design in answer.front}
        for one, figure in zip(answer.best_of_each, FIGURES, strict=True):
            value = getattr(designs[one.design_id], figure)
            assert value == min(getattr(design, figure) for design in answer.front)
            assert one.compared_with == best.design_id
            assert one.drivers
            assert max(one.changes.values()) > 0.0  # on a front nothing is free
            for name, change in one.changes.items():
                other = FIGURES[answer.objectives.index(name)]
                ratio = getattr(designs[one.design_id], other) / getattr(best, other)
                assert change == pytest.approx(ratio - 1.0)
        names = [{driver.name for driver in one.drivers} for one in answer.best_of_each]
        assert "GPUs" in names[0]
        assert "USD per GPU-hour" in names[1]
        assert "power cap, share of TDP" in names[2]

    def test_the_printed_front_shows_all_four_and_their_sites(self) -> None:
        answer = four_bests()
        console = Console(file=io.StringIO(), width=100, markup=False, highlight=False)
        with console.capture() as capture:
            show(answer, console)
        front = capture.get().partition("Pareto front")[2].partition("\n\n")[0]
        marked = {line.split()[1] for line in front.splitlines() if line.strip().startswith("<")}
        assert marked == {str(one.design_id) for one in answer.best_of_each}
        assert "norway" in front
        assert "us-virginia" in front
        for one in answer.best_of_each:
            assert f"design {one.design_id}, " in capture.get()

    def test_elsewhere_only_the_grid_and_the_cooling_change(self) -> None:
        best = four_bests().best
        assert best is not None
        cases = {case.case: case for case in four_bests().what_if}
        france, poland = cases["in france"], cases["in poland"]
        assert france.time_to_train_days == poland.time_to_train_days == best.time_to_train_days
        assert france.carbon_kgco2e is not None
        assert poland.carbon_kgco2e is not None
        assert france.carbon_kgco2e < poland.carbon_kgco2e  # nuclear power, coal
