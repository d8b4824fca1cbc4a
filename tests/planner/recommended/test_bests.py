"""Does the answer say why each best design is the best, and what holds under uncertain inputs?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from constraints.evaluation import evaluate
from objectives.drawn_runs import UnsureDesigns
from planner import Recommendation
from planner.notes.reasons import why_chosen
from planner.recommended.bests import bests_of
from planner.recommended.comparisons import Best, Driver
from planner.recommended.design_words import figures
from planner.text import human
from planner.uncertain.input_uncertainty import input_uncertainty_of
from planner.uncertain.sensitivity import front_tornado
from planner.views.bests_view import driver_text, paragraph
from planner.views.comparisons_view import intervals, survivals
from simulator.domain.job import Objective
from studies.designs.offer_tally import OfferTally
from tests.planner.compared import chosen_of
from tests.planner.hand_made import design as hand_made_design
from tests.planner.hand_made import recommended as hand_made
from tests.support import A100_RENTED, H100_RENTED, job_with, plans_with

PLACE = {"grid_kgco2e_per_kwh": 0.4, "electricity_usd_per_kwh": 0.1}


class TestBests:
    def test_the_factors_of_an_objective_multiply_to_its_ratio(self) -> None:
        dirty = {**A100_RENTED, "site": "poland"}
        job = job_with(H100_RENTED, dirty, objectives=["time_to_train", "cost", "energy", "carbon"])
        capped = {"num_gpus": 64, "power_cap_fraction": 0.6, "num_spare_nodes": 2}
        front = evaluate(job, plans_with(capped, {"num_gpus": 16, "offer": 1}))
        for row in (0, 1):
            for best in bests_of(job, front, np.array([7, 8]), row):
                place = (7, 8).index(best.design_id)
                objective = Objective(best.objective)
                values = front.scores.objective(objective)
                factors = {
                    driver.name: driver.value / driver.reference
                    for driver in best.drivers
                    if "(x" in driver_text(driver)
                }
                if objective is Objective.ENERGY:
                    amounts = {driver.name: driver.value for driver in best.drivers}
                    days = front.scores.time_to_train_s[place] / 86_400
                    hours = float(front.plans.num_gpus[place] * days * 24)
                    assert amounts["GPU-hours excluding spares"] == pytest.approx(hours)
                    assert (
                        400 < amounts["W per GPU excluding cooling and spares"] < 1400
                    )  # with its part of a host
                if objective is Objective.CARBON:
                    assert factors["kWh"] == pytest.approx(
                        front.scores.energy_j[place] / front.scores.energy_j[1 - place]
                    )
                    continue
                # Factors that differ by less than half a per cent are left out; time is work over its factors.
                ratio = values[place] / values[1 - place]
                expected = 1.0 / ratio if objective is Objective.TIME else ratio
                assert math.prod(factors.values()) == pytest.approx(expected, rel=0.01)

    @pytest.mark.parametrize(("days", "rival"), [((20.0, 30.0, 25.0), 9), ((20.0, 25.0, 30.0), 8)])
    def test_a_best_design_that_is_recommended_is_compared_with_the_nearest_of_the_other_bests(
        self, days: tuple[float, ...], rival: int
    ) -> None:
        job = job_with(objectives=["time_to_train", "cost", "energy"])
        front = evaluate(job, plans_with(*3 * [{"num_gpus": 16}]))
        scores = replace(
            front.scores,
            time_to_train_s=np.array(days) * 86_400,
            cost_usd=np.array([3e6, 1e6, 2e6]),
            energy_j=np.array([3e12, 2e12, 1e12]),
        )
        fastest, *_ = bests_of(job, replace(front, scores=scores), np.array([7, 8, 9]), 0)
        assert (fastest.design_id, fastest.compared_with) == (7, rival)

    def test_a_change_from_nothing_is_a_difference(self) -> None:
        job = job_with(objectives=["time_to_train", "cost"])
        front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 16}))
        scores = replace(front.scores, time_to_train_s=np.array([20.0, 30.0]), cost_usd=np.array([5e5, 0.0]))
        fastest, _ = bests_of(job, replace(front, scores=scores), np.array([7, 8]), 1)
        assert fastest.changes == {"cost": 5e5}

    def test_a_power_cap_is_told_without_a_ratio_and_after_the_factors(self) -> None:
        job = job_with(objectives=["time_to_train", "energy"])
        front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 16, "power_cap_fraction": 0.6}))
        drivers = bests_of(job, front, np.array([7, 8]), 0)[1].drivers
        assert driver_text(drivers[-1]) == "power cap, share of TDP: 0.6 instead of 1"
        assert all("(x" in driver_text(driver) for driver in drivers[:-1])

    def test_spares_and_the_weather_are_not_told_as_power_of_a_gpu(self) -> None:
        climate = {"mean_celsius": 20, "free_cooling_below_celsius": 10, "overhead_per_celsius": 0.05}
        warm = {**PLACE, "region": "warm", "power_usage_effectiveness": 1.1, "climate": climate}
        cool = {**PLACE, "region": "cool", "power_usage_effectiveness": 1.1}
        offers = ({**H100_RENTED, "site": site} for site in (warm, cool))
        job = job_with(*offers, objectives=["energy", "time_to_train"])
        front = evaluate(
            job, plans_with({"num_gpus": 16, "num_spare_nodes": 1}, {"num_gpus": 16, "offer": 1})
        )
        drivers = {driver.name: driver for driver in bests_of(job, front, np.array([7, 8]), 0)[0].drivers}
        assert (drivers["PUE"].value, drivers["PUE"].reference) == pytest.approx((1.1, 1.6))
        assert "energy overhead of idle spares" in drivers
        assert "W per GPU excluding cooling and spares" not in drivers

    def test_a_grid_without_emissions_comes_first_and_energy_is_told_in_kwh(self) -> None:
        dirty = {**PLACE, "region": "dirty", "power_usage_effectiveness": 1.1}
        places = ({**dirty, "region": "clean", "grid_kgco2e_per_kwh": 0.0}, dirty)
        job = job_with(*({**H100_RENTED, "site": site} for site in places), objectives=["carbon"])
        front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 64, "offer": 1}))
        grid, *others = bests_of(job, front, np.array([7, 8]), 1)[0].drivers
        assert (grid.name, grid.value) == ("kg CO2e per kWh", 0.0)
        assert grid.reference == pytest.approx(0.4)
        kwh = next(driver for driver in others if driver.name == "kWh")
        assert (kwh.value, kwh.reference) == pytest.approx(tuple(front.scores.energy_j / 3.6e6))

    def test_a_front_of_one_design_is_best_without_a_rival(self) -> None:
        job = job_with(H100_RENTED)
        for best in bests_of(job, chosen_of(job), np.array([5]), 0):
            assert (best.design_id, best.compared_with, best.drivers, best.changes) == (5, None, (), {})

    def test_the_recommended_design_is_compared_with_the_next_best(self) -> None:
        job = job_with(H100_RENTED, A100_RENTED, objectives=["time_to_train", "cost"])
        front = evaluate(job, plans_with({"num_gpus": 64}, {"num_gpus": 16, "offer": 1}))
        fastest = int(front.scores.time_to_train_s.argmin())
        found = bests_of(job, front, np.array([7, 8]), fastest)[0]
        assert (found.design_id, found.compared_with) == ((7, 8)[fastest], (7, 8)[1 - fastest])

    @pytest.mark.parametrize("row", [0, 1])
    def test_of_equal_designs_the_recommended_one_is_the_best_and_its_rival_is_a_worse_one(
        self, row: int
    ) -> None:
        job = job_with(H100_RENTED, objectives=["time_to_train"])
        front = evaluate(job, plans_with({"num_gpus": 64}, {"num_gpus": 64}, {"num_gpus": 16}))
        (best,) = bests_of(job, front, np.array([7, 8, 9]), row)
        assert (best.design_id, best.shared_with) == ((7, 8)[row], ((8, 7)[row],))
        assert best.compared_with == 9
        assert best.drivers[0].value / best.drivers[0].reference == 4.0  # GPUs
        # Without a worse one it is an equal one, which explains nothing.
        (best,) = bests_of(job, front.take(slice(0, 2)), np.array([7, 8]), row)
        assert (best.compared_with, best.drivers) == ((8, 7)[row], ())


class TestWords:
    def test_a_best_that_hardly_differs_says_so(self) -> None:
        found = answer_of_one_best()
        (text, why, gives_up) = paragraph(found, found.best_of_each[0])
        assert text.startswith(
            "Lowest time to train: the recommended design, 31.4 days with 1,024 x h100-sxm5-80gb"
        )
        assert text.endswith("3 spare nodes.")
        assert why == "Compared with design 8: nothing differs by more than 0.5 %."
        assert gives_up == "Worse: +12.0 % cost; better: -3.0 % energy."

    def test_what_costs_nothing_elsewhere_is_told_in_dollars(self) -> None:
        found = answer_of_one_best()
        (best,), (own, other) = found.best_of_each, found.front[:2]
        free = other.model_copy(update={"objective_values": {"cost": 0.0}})
        dear = best.model_copy(update={"changes": {"cost": 168.0}})
        answer = found.model_copy(update={"front": (own, free), "best_of_each": (dear,)})
        assert list(paragraph(answer, dear))[2] == "Worse: +$168 cost."

    @pytest.mark.parametrize(
        ("driver", "text"),
        [
            (Driver(name="GPUs", value=2048, reference=512), "GPUs: 2,048 instead of 512 (x 4.00)"),
            (
                Driver(name="GPU-hours", value=2.68e7, reference=3.3e7),
                "GPU-hours: 26.8 M instead of 33 M (x 0.812)",
            ),
            (
                Driver(name="kg CO2e per kWh", value=0.028, reference=0.0),
                "kg CO2e per kWh: 0.028 instead of 0",
            ),
        ],
    )
    def test_a_factor_is_told_in_both_designs(self, driver: Driver, text: str) -> None:
        assert driver_text(driver) == text

    def test_neighbours_of_the_front_keep_their_order_as_often_as_the_draws_say(self) -> None:
        # Two offers of the same accelerators whose prices reach from half to twice their middle: one draw moves both. A
        # third, on other accelerators, has a draw of its own.
        def priced(usd: float, accelerator: Mapping[str, object]) -> dict[str, object]:
            wide = {"low": 0.5 * usd, "mid": usd, "high": 2 * usd}
            return {**accelerator, "rent_usd_per_gpu_hour": wide}

        offers = (priced(2.0, H100_RENTED), priced(2.1, H100_RENTED), priced(1.0, A100_RENTED))
        job = job_with(*offers, objectives=["cost"])
        front = evaluate(job, plans_with(*({"num_gpus": 32, "zero_stage": 3, "offer": k} for k in range(3))))
        sure = input_uncertainty_of(job, front, np.array([10, 11, 12]), 0, seed=1)
        costs = dict(zip((10, 11, 12), front.scores.cost_usd.tolist(), strict=True))
        order = sorted(costs, key=costs.__getitem__)
        found = [(pair.design_id, pair.next_design_id) for pair in sure.neighbours]
        assert found == list(pairwise(order))
        shares = {
            frozenset(pair): each.holds_fraction for pair, each in zip(found, sure.neighbours, strict=True)
        }
        assert shares[frozenset({10, 11})] == 1.0
        assert all(0.5 < share < 1.0 for pair, share in shares.items() if 12 in pair)
        (told,) = (
            sentence for sentence in survivals(sure, "") if "neighbours on the front by cost" in sentence
        )
        assert told.startswith(
            "Of 2 pairs of neighbours on the front by cost, 1 keeps its order in at least 90.0 %"
        )
        assert told.endswith(f"; the least certain pair does in {human.percent(min(shares.values()))}.")
        just_sure, unsure = (
            pair.model_copy(update={"holds_fraction": share})
            for pair, share in zip(sure.neighbours, (0.9, 0.5), strict=True)
        )
        at_the_limit = sure.model_copy(update={"neighbours": (just_sure, unsure)})
        assert any("1 keeps its order in at least 90.0 %" in each for each in survivals(at_the_limit, ""))

    def test_inputs_that_move_nothing_are_not_told_to_move_a_figure_most(self) -> None:
        job = job_with(H100_RENTED, objectives=["cost"])
        front = evaluate(job, plans_with({"num_gpus": 32, "zero_stage": 3}))
        sure = input_uncertainty_of(job, front, np.array([10]), 0, seed=1)
        assert any(drivers for _, _, drivers in intervals(sure))
        still = tuple(bar.model_copy(update={"at_high": bar.at_low}) for bar in sure.tornado)
        fixed = sure.model_copy(update={"tornado": still})
        assert {drivers for _, _, drivers in intervals(fixed)} == {""}

    def test_the_offer_that_is_taken_is_named_where_another_has_the_same_accelerator(self) -> None:
        spot = {**H100_RENTED, "rent_usd_per_gpu_hour": 1.25, "interruptions_per_1000_node_days": 40}
        job = job_with(H100_RENTED, spot, A100_RENTED, objectives=["time_to_train", "cost"])
        front = evaluate(job, plans_with(*({"num_gpus": 32, "offer": k} for k in range(3))))
        told = " ".join(why_chosen(job, front, 1, OfferTally.none(job)))
        assert (
            "It uses offers[1], rented at $1.25 per GPU-hour, reclaimed 40 times in 1,000 node-days; "
            "offers[0] has the same accelerator." in told
        )
        assert "32 x H100 SXM5 80GB of offers[0]" in told
        assert "It uses offers" not in " ".join(why_chosen(job, front, 2, OfferTally.none(job)))

    def test_accelerators_on_offer_that_no_design_of_the_front_has_are_named(self) -> None:
        job = job_with(H100_RENTED, A100_RENTED, objectives=["time_to_train", "cost"])
        both = evaluate(job, plans_with(*({"num_gpus": 32, "offer": k} for k in range(2))))
        for rows in ([0], [0, 0]):
            told = why_chosen(job, both.take(np.array(rows)), 0, OfferTally.none(job))
            (said,) = (sentence for sentence in told if "No design on the front has" in sentence)
            assert said.startswith("No design on the front has A100 SXM4 80GB: ")
        assert "No design on the front has" not in " ".join(why_chosen(job, both, 0, OfferTally.none(job)))

    def test_hours_of_energy_are_not_called_those_of_cost_that_hold_spares(self) -> None:
        job = job_with(objectives=["cost", "energy"])
        few, many = {"num_gpus": 16}, {"num_gpus": 16, "num_spare_nodes": 2, "power_cap_fraction": 0.6}
        cost, energy = bests_of(job, evaluate(job, plans_with(few, many)), np.array([7, 8]), 1)
        held, training = (
            next(driver for driver in best.drivers if "GPU-hours" in driver.name) for best in (cost, energy)
        )
        assert (held.name, training.name) == ("GPU-hours", "GPU-hours excluding spares")
        # Two spare nodes of eight beside sixteen: twice as many are held, for the same time.
        ratios = held.value / held.reference, training.value / training.reference
        assert max(ratios[0], 1 / ratios[0]) == pytest.approx(2.0 * max(ratios[1], 1 / ratios[1]), rel=0.01)

    def test_one_pair_is_told_as_one(self) -> None:
        job = job_with(H100_RENTED, A100_RENTED, objectives=["cost"])
        front = evaluate(job, plans_with({"num_gpus": 32}, {"num_gpus": 32, "offer": 1}))
        sure = input_uncertainty_of(job, front, np.array([10, 11]), 0, seed=1)
        (told,) = (sentence for sentence in survivals(sure, "") if "pair" in sentence)
        assert re.fullmatch(
            r"The only pair of designs that differs in cost keeps its order in [\d.]+ % of the draws\.", told
        )

    def test_draws_tell_how_often_limits_are_kept(self) -> None:
        job = job_with(H100_RENTED, limits={"budget_usd": 4000, "deadline_days": 400})
        front = chosen_of(job)
        sure = input_uncertainty_of(job, front, np.array([3]), 0, seed=1)
        cost = front.scores.cost_usd[0]
        budget = job_with(H100_RENTED, limits={"budget_usd": float(cost)})
        half = input_uncertainty_of(budget, front, np.array([3]), 0, seed=1)
        assert sure.within_deadline_fraction == 1.0
        assert half.within_deadline_fraction is None
        # Prices reach further up than down, but half of the draws of each input lie below its middle.
        assert half.within_budget_fraction == pytest.approx(0.45, abs=0.1)
        told = [note for _, _, note in figures(hand_made_design(), None, "", sure)]
        time, cost = sure.figures["time_to_train"], sure.figures["cost"]
        for low, high, within in (
            (human.duration(time.p5), human.duration(time.p95), 1.0),
            (human.dollars(cost.p5), human.dollars(cost.p95), sure.within_budget_fraction or 0.0),
        ):
            kept = f"{human.percent(within)} meet it"
            assert f"{low} to {high} in 9 of 10 draws of the inputs; {kept}" in told


def answer_of_one_best() -> Recommendation:
    """A hand-made answer with one best design."""
    best = Best(
        objective="time_to_train",
        design_id=7,
        value=31.4 * 86_400,
        compared_with=8,
        drivers=(),
        changes={"cost": 0.12, "energy": -0.03},
    )
    return hand_made().model_copy(update={"best_of_each": (best,)})


class TestTornado:
    def test_a_price_moves_the_cost_alone_and_changes_places_between_accelerators(self) -> None:
        wide = {**A100_RENTED, "rent_usd_per_gpu_hour": {"low": 0.2, "mid": 1.3, "high": 9.0}}
        job = job_with(H100_RENTED, wide, objectives=["time_to_train", "cost"])
        front = evaluate(job, plans_with({"num_gpus": 32}, {"num_gpus": 32, "offer": 1}))
        designs = UnsureDesigns.of(job, front.plans, front.outcomes, front.scores)
        bars = front_tornado(designs, np.array([7, 8]))
        price = [bar for bar in bars if bar.input == "hardware_price of a100-sxm4-80gb"]
        assert {(bar.objective, bar.design_id) for bar in price} == {("cost", 8)}
        (bar,) = price
        assert (bar.at_low / bar.middle, bar.at_high / bar.middle) == pytest.approx((0.2 / 1.3, 9.0 / 1.3))
        assert (bar.place_at_low, bar.place_at_high) == (1, 2)

    def test_inputs_of_figures_that_are_no_objective_are_named_too(self) -> None:
        job = job_with(site={"region": "us-iowa", "water_onsite_l_per_kwh": 1.0}, objectives=["cost"])
        sure = input_uncertainty_of(job, chosen_of(job), np.array([7]), 0, seed=1)
        told = {words: drivers for words, _, drivers in intervals(sure)}
        assert told.keys() == {"time to train", "cost", "energy", "carbon", "water"}
        assert all(told.values())
        # A factor on the water of every kilowatt-hour, between half and 1.6 times.
        assert told["water"].startswith("water of us-iowa -50 % to +60 %")

    def test_the_largest_swing_comes_first(self) -> None:
        job = job_with(H100_RENTED)
        front = evaluate(job, plans_with({"num_gpus": 32}, {"num_gpus": 16}))
        designs = UnsureDesigns.of(job, front.plans, front.outcomes, front.scores)
        bars = front_tornado(designs, np.array([7, 8]))
        for design in (7, 8):
            for objective in job.objectives:
                mine = [bar for bar in bars if (bar.design_id, bar.objective) == (design, objective.value)]
                swings = [abs(bar.at_high - bar.at_low) for bar in mine]
                assert swings == sorted(swings, reverse=True)
                assert swings[-1] > 0.0
