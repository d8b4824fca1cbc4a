"""Do the reasons of a recommendation name the rivals, what they cost, and the limits that excluded others?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from constraints.evaluation import evaluate
from planner.notes.cautions import cautions_on_answer
from planner.notes.reasons import rule_text, searched_text, why_chosen
from planner.recommended.designs import design_at
from studies.designs.offer_tally import OfferTally
from tests.planner.hand_made import recommended
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with, plans_with

DAY = 86_400.0


@pytest.mark.parametrize("site", ["us-iowa", "norway"])
def test_a_rival_is_told_with_its_gain_its_losses_and_its_site_if_there_are_several(site: str) -> None:
    offers = ({**H100_RENTED, "site": "us-iowa"}, {**A100_RENTED, "site": site})
    job = job_with(*offers, objectives=["time_to_train", "cost"])
    front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 64, "offer": 1}))
    days, usd = np.array([30.0, 24.0]), np.array([1e6, 1.5e6])
    front = replace(front, scores=replace(front.scores, time_to_train_s=days * DAY, cost_usd=usd))
    told = why_chosen(job, front, 0, OfferTally.of(job, front))
    where = " in norway" if site == "norway" else ""
    rival = f"64 x {job.offers[1].accelerator.name}{where}: +50.0 % cost"
    assert told[1] == f"The lowest time to train is 24.0 days (-20.0 %) with {rival}."
    assert told[2] == "It has the lowest cost on the front: $1.00 M."


@pytest.mark.parametrize(
    ("sizes", "is_told"),
    [({"min": 8, "max": 64}, True), ({"min": 8, "max": 72}, False), ({"min": 64, "max": 64}, False)],
)
def test_a_size_at_the_end_of_its_range_is_told(sizes: Mapping[str, int], *, is_told: bool) -> None:
    job = job_with({**H100_RENTED, "num_gpus": sizes}, objectives=["time_to_train", "cost"])
    front = evaluate(job, plans_with({"num_gpus": 64, "zero_stage": 3}))
    said = "It has all 64 GPUs that offers[0].num_gpus allows; more may be better still."
    assert (said in why_chosen(job, front, 0, OfferTally.of(job, front))) == is_told


def told_of_pair(
    *offers: Mapping[str, object], values: tuple[list[float], list[float]], **sections: object
) -> tuple[str, ...]:
    """Why the first of two designs of 16 GPUs is recommended, of the first and the last offer, given their days and dollars."""
    job = job_with(*offers, **{"objectives": ["time_to_train", "cost"], **sections})
    front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 16, "offer": len(offers) - 1}))
    days, usd = (np.array(column) for column in values)
    front = replace(front, scores=replace(front.scores, time_to_train_s=days * DAY, cost_usd=usd))
    return why_chosen(job, front, 0, OfferTally.of(job, front))


def test_what_does_not_differ_and_what_was_nothing_is_told_as_such() -> None:
    told = told_of_pair(H100_RENTED, values=([30.0, 24.0], [0.0, 0.0]))
    assert told[1].endswith("with the same accelerators: +0.0 % cost.")
    assert told[2] == "It has the lowest cost on the front: $0, shared with 1 other."
    told = told_of_pair(H100_RENTED, values=([30.0, 24.0], [0.0, 1e6]))
    assert told[1].endswith("with the same accelerators: +$1.00 M cost.")


@pytest.mark.parametrize(
    ("sections", "weighed"),
    [({}, "equal weights"), ({"preference": {"time_to_train": 3, "cost": 1}}, "weights 3:1")],
)
def test_the_weights_of_the_compromise_are_told_in_the_order_of_the_objectives(
    sections: Mapping[str, object], weighed: str
) -> None:
    told = told_of_pair(H100_RENTED, values=([30.0, 24.0], [1e6, 2e6]), **sections)
    assert f"the percentage losses in time to train, cost ({weighed})" in told[0]


def test_offers_of_one_accelerator_are_told_apart_by_number_and_price() -> None:
    spot = {**H100_RENTED, "rent_usd_per_gpu_hour": 1.5, "interruptions_per_1000_node_days": 20}
    told = told_of_pair(spot, H100_RENTED, values=([30.0, 24.0], [1e6, 2e6]))
    assert told[1] == (
        "It uses offers[0], rented at $1.50 per GPU-hour, reclaimed 20 times in 1,000 node-days; offers[1] has the same "
        "accelerator."
    )
    assert "with 16 x H100 SXM5 80GB of offers[1]: " in told[2]
    told = told_of_pair(spot, H100_RENTED, H100_RENTED, values=([30.0, 24.0], [1e6, 2e6]))
    assert told[1].endswith("offers[1] and offers[2] have the same accelerator.")


def test_a_rival_that_is_bought_is_told_where_the_recommended_design_is_rented() -> None:
    values = ([30.0, 24.0], [1e6, 2e6])
    told = told_of_pair(A100_RENTED, H100_BOUGHT, values=values)
    assert "with 16 x H100 SXM5 80GB, bought: " in told[1]
    told = told_of_pair(H100_RENTED, H100_BOUGHT, values=values)
    assert "with 16 x H100 SXM5 80GB of offers[1], bought: " in told[2]
    told = told_of_pair(H100_BOUGHT, H100_BOUGHT, values=values)
    assert "with 16 x H100 SXM5 80GB of offers[1]: " in told[2]


def test_a_rival_of_the_same_offer_with_another_size_is_told_by_its_size() -> None:
    job = job_with(H100_RENTED, objectives=["time_to_train"])
    front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 32}))
    front = replace(front, scores=replace(front.scores, time_to_train_s=np.array([30.0, 24.0]) * DAY))
    told = why_chosen(job, front, 0, OfferTally.of(job, front))[1]
    assert told == "The lowest time to train is 24.0 days (-20.0 %) with 32 x H100 SXM5 80GB."


def test_a_rival_of_one_objective_loses_nothing() -> None:
    job = job_with(H100_RENTED, objectives=["time_to_train"])
    front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 16}))
    front = replace(front, scores=replace(front.scores, time_to_train_s=np.array([30.0, 24.0]) * DAY))
    told = why_chosen(job, front, 0, OfferTally.of(job, front))[1]
    assert told == "The lowest time to train is 24.0 days (-20.0 %) with the same accelerators."


def test_the_headroom_is_what_is_left_of_each_limit() -> None:
    job = job_with(H100_RENTED, limits={"budget_usd": 2e6}, objectives=["cost"])
    front = evaluate(job, plans_with({"num_gpus": 16}))
    scores = replace(front.scores, cost_usd=np.array([0.5e6]))
    told = why_chosen(job, replace(front, scores=scores), 0, OfferTally.of(job, front))[-1]
    assert told == "Headroom: 75 % of the budget."


def test_the_headroom_of_a_limit_with_a_probability_is_that_of_so_many_runs() -> None:
    job = job_with(H100_RENTED, limits={"budget_usd": 2e6, "budget_probability": 0.9}, objectives=["cost"])
    front = evaluate(job, plans_with({"num_gpus": 16, "zero_stage": 3}))
    told = why_chosen(job, front, 0, OfferTally.of(job, front))[-1]
    assert told.startswith("Headroom: ")
    assert told.endswith(" % of the budget in 90.0 % of all runs.")


def test_a_rule_has_the_limit_and_the_share_of_runs_that_must_keep_it() -> None:
    job = job_with(H100_RENTED, limits={"deadline_days": 45, "budget_usd": 2.1e6, "budget_probability": 0.95})
    assert rule_text(job, "deadline_days") == "time to train above deadline_days = 45"
    assert rule_text(job, "budget_usd") == "cost above budget_usd = 2,100,000 in more than 5.0 % of the runs"
    assert rule_text(job, "progress").startswith("failures occur faster")
    tight = job_with(H100_RENTED, search={"memory_headroom_fraction": 0.1})
    needs = "the most loaded accelerator needs more memory than it has"
    assert rule_text(job, "memory") == needs
    assert rule_text(tight, "memory") == f"{needs}, less search.memory_headroom_fraction = 0.1"


@pytest.mark.parametrize(("num_feasible", "told"), [(1, "1 meets"), (2, "2 meet"), (0, "0 meet")])
def test_a_search_is_told_with_how_many_designs_meet_all_limits(num_feasible: int, told: str) -> None:
    answer = recommended().model_copy(update={"num_feasible": num_feasible})
    assert searched_text(answer) == f"4,321 designs simulated, {told} all limits"
    unlimited = answer.model_copy(update={"has_limits": False})
    assert searched_text(unlimited) == f"4,321 designs simulated, {num_feasible} can be run"


def test_the_longest_of_the_runs_of_more_than_a_year_is_told() -> None:
    job = job_with(H100_RENTED)
    front = evaluate(job, plans_with(*({"num_gpus": num} for num in (16, 32, 64))))
    front = replace(front, scores=replace(front.scores, time_to_train_s=np.array([300.0, 400, 500]) * DAY))
    best = design_at(job, front, 0, 0)
    told = next(note for note in cautions_on_answer(job, front, best, None) if "longer than a year" in note)
    assert told.startswith("2 of 3 designs on the front take longer than a year, up to 500 days")
    late = job_with(H100_RENTED, limits={"deadline_days": 600})
    assert not any("longer than a year" in note for note in cautions_on_answer(late, front, best, None))


def test_a_site_that_no_design_of_the_front_has_is_told() -> None:
    here, there = ({**H100_RENTED, "site": site} for site in ("iceland", "poland"))
    front = evaluate(job := job_with(here, there), plans_with({"num_gpus": 16, "zero_stage": 3}))
    (told,) = (
        line
        for line in why_chosen(job, front, 0, OfferTally.of(job, front))
        if line.startswith("No design on the front")
    )
    assert told.startswith("No design on the front has H100 SXM5 80GB in poland: ")


class TestAcceleratorsThatNoDesignOfTheFrontHas:
    JOB = job_with(
        H100_RENTED, A100_RENTED, objectives=["time_to_train", "cost"], limits={"budget_usd": 1.6e6}
    )

    def told(self, days: list[float], usd: list[float]) -> str:
        """What is said of A100 beside a recommended design of 20 days and $1 M; the first of the designs has H100."""
        fits = {"num_gpus": 16, "zero_stage": 3}
        plans = plans_with(fits, *({**fits, "offer": 1} for _ in days))
        found = evaluate(self.JOB, plans)
        values = np.array([20.0, *days]) * DAY, np.array([1e6, *usd])
        excess = replace(found.excess, budget_usd=np.maximum(0.0, values[1] / 1.6e6 - 1.0))
        scores = replace(found.scores, time_to_train_s=values[0], cost_usd=values[1])
        found = replace(found, scores=scores, excess=excess)
        front = found.take(np.array([0]))
        tally = OfferTally.of(self.JOB, front) + OfferTally.of(self.JOB, found)
        said = why_chosen(self.JOB, front, 0, tally)
        return next(line for line in said if "No design on the front has" in line).partition("80GB")[2]

    def test_the_lowest_of_their_feasible_designs_is_told_value_by_value(self) -> None:
        assert self.told([30.0, 25.0, 15.0], [1.2e6, 1.5e6, 1.7e6]) == (
            "; the lowest values of its 2 designs that meet all limits: time to train 25.0 days (+25.0 %), "
            "cost $1.20 M (+20.0 %)."
        )
        assert self.told([30.0], [1.2e6]) == (
            "; the only one that meets all limits has time to train 30.0 days (+50.0 %), cost $1.20 M (+20.0 %)."
        )

    def test_the_lowest_of_several_offers_is_told(self) -> None:
        job = job_with(H100_RENTED, A100_RENTED, A100_RENTED, objectives=["time_to_train", "cost"])
        fits = {"num_gpus": 16, "zero_stage": 3}
        found = evaluate(job, plans_with(*({**fits, "offer": offer} for offer in range(3))))
        days, usd = np.array([20.0, 30.0, 25.0]) * DAY, np.array([1e6, 1.2e6, 1.5e6])
        found = replace(found, scores=replace(found.scores, time_to_train_s=days, cost_usd=usd))
        said = why_chosen(job, found.take(np.array([0])), 0, OfferTally.of(job, found))
        (told,) = (line for line in said if "No design on the front has" in line)
        assert told.endswith(
            "its 2 designs that can be run: time to train 25.0 days (+25.0 %), cost $1.20 M (+20.0 %)."
        )

    def test_limits_that_keep_them_out_are_told_with_how_many_designs_violate_each(self) -> None:
        assert self.told([15.0, 16.0], [1.7e6, 1.8e6]) == (
            ": none of 2 designs simulated meets all limits; violated: 2 budget_usd."
        )

    def test_what_was_never_simulated_is_not_made_up(self) -> None:
        assert self.told([], []) == ": none was simulated."
