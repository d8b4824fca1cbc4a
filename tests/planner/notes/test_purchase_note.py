"""Does an answer with a purchase state the upfront payment, and not only the share that one run uses?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from constraints.evaluation import evaluate
from planner import simulate_plan
from planner.notes.cautions import cautions_on_answer
from planner.notes.doubts import doubts
from planner.text import human
from simulator.domain.plan import PlanTable
from tests.support import H100_BOUGHT, H100_RENTED, job_with

PLAN = {"tp": 2, "dp": 16, "recompute": "full"}


def notes_of(
    offer: Mapping[str, object],
    spares: int = 0,
    limits: Mapping[str, object] | None = None,
    **sections: object,
) -> list[str]:
    job = job_with(offer, limits=limits or {}, **sections)
    found = simulate_plan(job, {**PLAN, "spares": spares}, with_sensitivities=False)
    assert found.design is not None
    front = evaluate(job, PlanTable.from_plans([found.design.plan]))
    of_plan, of_answer = (
        [note for note in notes if "up front" in note]
        for notes in (found.warnings, cautions_on_answer(job, front, found.design, None))
    )
    assert of_plan == of_answer
    return of_plan


@pytest.mark.parametrize(("spares", "dollars"), [(0, "$1.27 M"), (2, "$1.90 M")])
def test_nodes_spares_and_network_are_paid_at_once(spares: int, dollars: str) -> None:
    # Nodes of 300,000 dollars; one tier of switches for 8 ports each, at 2,100 dollars a port.
    assert (4 + spares) * (300e3 + 8 * 2100) == pytest.approx(float(dollars[1:5]) * 1e6, rel=0.005)
    (note,) = notes_of(H100_BOUGHT, spares)
    assert note.startswith(
        f"Buying takes {dollars} up front, for nodes{' and spares' if spares else ''}, network"
    )
    assert "budget" not in note


def test_a_building_is_told_apart_by_the_power_that_it_must_supply() -> None:
    (one,), (two,) = (
        notes_of(H100_BOUGHT, ownership={"facility_usd_per_w": usd_per_w}) for usd_per_w in (0, 100)
    )
    assert "installation, and $0 more if building, power and cooling must still be built" in one
    # Four nodes of H100 peak somewhat below what NVIDIA's data sheet allows each, 10.2 kW.
    millions = float(two.partition("and $")[2].partition(" M more")[0])
    assert millions == pytest.approx(4 * 10.2e3 * 100 / 1e6, rel=0.2)
    assert one.partition(" up front")[0] == two.partition(" up front")[0]


def test_a_budget_bounds_only_the_share_of_the_run() -> None:
    (note,) = notes_of(H100_BOUGHT, limits={"budget_usd": 1e6})
    assert "limits.budget_usd applies to that share only" in note


def test_rent_takes_nothing_at_once() -> None:
    assert notes_of(H100_RENTED, limits={"budget_usd": 1e6}) == []


def test_nodes_that_have_an_age_are_paid_at_what_they_are_worth() -> None:
    # Four nodes of 300,000 dollars when new, exp(-0.32 x 2) of it two years later; one tier of switches, new.
    (note,) = notes_of(H100_BOUGHT, ownership={"depreciation": "economic", "age_years": 2})
    assert f"Buying takes {human.dollars(4 * (300e3 * 0.5273 + 8 * 2100))} up front" in note


def test_a_rented_design_beside_bought_ones_tells_what_these_take_at_once() -> None:
    # Four nodes, and six with the spares; the price of four is that of the test above.
    job = job_with(H100_RENTED, H100_BOUGHT, limits={"budget_usd": 1e6})
    found = simulate_plan(job, {**PLAN, "offer": 0}, with_sensitivities=False).design
    assert found is not None
    plans = [found.plan, *(found.plan.model_copy(update={"offer": 1, "num_spare_nodes": n}) for n in (2, 0))]
    notes = cautions_on_answer(job, evaluate(job, PlanTable.from_plans(plans)), found, None)
    (note,) = (note for note in notes if "up front" in note)
    assert note == (
        "2 of 3 designs on the front are bought: their cost is only the share of the purchase that this run uses up, and "
        "limits.budget_usd applies to that share. The one of the lowest cost, 32 x h100-sxm5-80gb of offers[1], takes "
        "$1.27 M up front."
    )


def test_a_front_that_is_rented_or_bought_as_a_whole_has_no_such_note() -> None:
    assert notes_of(H100_RENTED) == []
    assert [note.startswith("Buying takes") for note in notes_of(H100_BOUGHT)] == [True]


def test_the_cost_of_a_bought_design_is_doubted_at_once_and_the_notes_are_named() -> None:
    bought, rented = (
        simulate_plan(job_with(offer), PLAN, with_sensitivities=False).design
        for offer in (H100_BOUGHT, H100_RENTED)
    )
    doubt = "The cost is only the share of the purchase that this run uses up, not what is paid up front"
    assert f"{doubt} (Notes)." in doubts(bought)
    assert f"{doubt} (Before you rely on it)." in doubts(bought, notes="Before you rely on it")
    assert not any(doubt in text for text in doubts(rented))
