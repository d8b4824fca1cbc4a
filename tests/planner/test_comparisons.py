"""Does the answer say what its carbon counts, what survives unsure inputs, and what other circumstances would change?"""

from __future__ import annotations

import io
import math
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from constraints.evaluation import Evaluation, evaluate
from planner import Recommendation, human, load_job, recommend
from planner.bests import bests_of
from planner.bests_view import driver_text, paragraph
from planner.comparisons import Best, Driver, WhatIfCase
from planner.comparisons_view import intervals, survivals, what_if_rows
from planner.design_view import merits
from planner.designs import design_at, water_scope
from planner.grid_conventions import grid_convention
from planner.input_uncertainty import input_uncertainty_of
from planner.job_file import parse_job
from planner.reasons import cautions, scope_text
from planner.render import show
from planner.sensitivity import front_tornado
from planner.what_if import what_if_cases
from simulator.catalog import Kind, figures
from simulator.catalog import rent as rent_of
from simulator.errors import InputError
from simulator.hardware import Site
from simulator.job import Job, Objective
from tests.planner.hand_made import recommended as hand_made
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with, plans_with

EXAMPLE = Path(__file__).parents[2] / "examples" / "four-bests.yaml"
FIGURES = ("time_to_train_days", "cost_usd", "energy_kwh", "carbon_kgco2e")
PLACE = {"grid_kgco2e_per_kwh": 0.4, "electricity_usd_per_kwh": 0.1}
HOURLY = {"region": "us-iowa", "grid_profile": {"mean": 0.4, "daily_amplitude": 0.3}}


@cache
def four_bests() -> Recommendation:
    return recommend(load_job(EXAMPLE), tracking=False)


class TestFourBests:
    def test_fastest_cheapest_least_energy_and_least_carbon_are_four_designs(self) -> None:
        front = four_bests().front
        best = [min(front, key=lambda design, figure=figure: getattr(design, figure)) for figure in FIGURES]  # type: ignore[misc]
        assert len({design.design_id for design in best}) == 4
        assert [design.plan.offer for design in best] == [0, 1, 2, 3]

    def test_the_report_says_why_each_of_them_was_not_taken(self) -> None:
        why = " ".join(four_bests().why)
        for objective in ("time to train", "cost", "energy", "carbon"):
            assert f"east {objective}" in why

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
        assert "power cap as a share of the TDP" in names[2]

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


def chosen_of(job: Job, **plan: object) -> Evaluation:
    return evaluate(job, plans_with({"num_gpus": 16, "zero_stage": 3, **plan}))


def nothing(_: Job) -> None:
    """Finds no design that keeps all limits."""


def case_of(job: Job, name: str) -> WhatIfCase:
    cases = what_if_cases(job, chosen_of(job), lambda other: evaluate(other, plans_with({"num_gpus": 32})))
    return next(case for case in cases if case.case.startswith(name))


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
                if objective is Objective.CARBON:
                    assert factors["kWh"] == pytest.approx(
                        front.scores.energy_j[place] / front.scores.energy_j[1 - place]
                    )
                    continue
                # Factors that differ by less than half a per cent are left out; time is work over its factors.
                ratio = values[place] / values[1 - place]
                expected = 1.0 / ratio if objective is Objective.TIME else ratio
                assert math.prod(factors.values()) == pytest.approx(expected, rel=0.01)

    def test_a_power_cap_is_told_without_a_ratio_and_after_the_factors(self) -> None:
        job = job_with(objectives=["time_to_train", "energy"])
        front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 16, "power_cap_fraction": 0.6}))
        drivers = bests_of(job, front, np.array([7, 8]), 0)[1].drivers
        assert driver_text(drivers[-1]) == "power cap as a share of the TDP: 0.6, not 1"
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
        assert "all energy over that without idle spares" in drivers
        assert "W per GPU without cooling and spares" not in drivers

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


class TestWords:
    def test_a_best_that_hardly_differs_says_so(self) -> None:
        found = answer_of_one_best()
        (text, why, gives_up) = paragraph(found, found.best_of_each[0])
        assert text.startswith(
            "Least time to train: the recommended design, 31.4 days with 1,024 x h100-sxm5-80gb"
        )
        assert text.endswith("3 spare nodes.")
        assert why == "Why, against design 8: nothing differs by more than half a per cent."
        assert gives_up == "It gives up +12.0 % cost; it gains -3.0 % energy."

    @pytest.mark.parametrize(
        ("driver", "text"),
        [
            (Driver(name="GPUs", value=2048, reference=512), "GPUs: 2,048, not 512 (x 4.00)"),
            (
                Driver(name="GPU-hours", value=2.68e7, reference=3.3e7),
                "GPU-hours: 26.8 M, not 33 M (x 0.812)",
            ),
            (Driver(name="kg CO2e per kWh", value=0.028, reference=0.0), "kg CO2e per kWh: 0.028, not 0"),
        ],
    )
    def test_a_factor_is_told_in_both_designs(self, driver: Driver, text: str) -> None:
        assert driver_text(driver) == text

    def test_neighbours_of_the_front_keep_their_order_as_often_as_the_draws_say(self) -> None:
        # Two offers of the same accelerators whose prices reach from half to twice their middle: one draw moves both. A
        # third, on other accelerators, has a draw of its own.
        def priced(usd: float, accelerator: dict[str, object]) -> dict[str, object]:
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
        (told,) = (sentence for sentence in survivals(sure) if "follow each other in cost" in sentence)
        assert told.startswith(
            "Of 2 pairs of designs that follow each other in cost, 1 keeps its order in 90.0 %"
        )

    def test_one_pair_is_told_as_one(self) -> None:
        job = job_with(H100_RENTED, A100_RENTED, objectives=["cost"])
        front = evaluate(job, plans_with({"num_gpus": 32}, {"num_gpus": 32, "offer": 1}))
        sure = input_uncertainty_of(job, front, np.array([10, 11]), 0, seed=1)
        (told,) = (sentence for sentence in survivals(sure) if "pair" in sentence)
        assert re.fullmatch(
            r"The one pair of designs that differs in cost keeps its order in [\d.]+ % of them\.", told
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
        assert survivals(sure)[0] == "Of 1,000 draws of all unsure inputs 100.0 % keep the deadline."


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
        bars = front_tornado(job, front, np.array([7, 8]))
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
        bars = front_tornado(job, front, np.array([7, 8]))
        for design in (7, 8):
            for objective in job.objectives:
                mine = [bar for bar in bars if (bar.design_id, bar.objective) == (design, objective.value)]
                swings = [abs(bar.at_high - bar.at_low) for bar in mine]
                assert swings == sorted(swings, reverse=True)
                assert swings[-1] > 0.0


class TestCases:
    def test_a_pause_needs_a_profile_where_the_design_stands_and_says_so(self) -> None:
        # Only the second offer stands where hours differ; the recommended design is of the first.
        asked = {"pauses": [{"by": "carbon", "hours_fraction": 0.25}]}
        case = case_of(job_with(H100_RENTED, {**A100_RENTED, "site": HOURLY}, what_if=asked), "pause")
        assert case.note == "needs the site's grid_profile"
        assert case.cost_usd is None

    def test_hours_of_a_tariff_mean_nothing_to_a_design_that_is_rented(self) -> None:
        tariff = {"region": "us-iowa", "electricity_profile": {"mean": 0.1, "daily_amplitude": 0.09}}
        asked = {"pauses": [{"by": "price", "hours_fraction": 0.25}], "start_within_hours": 24}
        job = job_with(H100_RENTED, H100_BOUGHT, site=tariff, what_if=asked)
        assert (
            case_of(job, "pause").note == "needs the site's electricity_profile, and a design that is bought"
        )
        cases = what_if_cases(job, chosen_of(job), nothing)
        assert [case.case for case in cases if case.case.startswith("start")] == []
        bought = what_if_cases(job, chosen_of(job, offer=1), nothing)
        assert [case.note[-11:] for case in bought if case.case.startswith("start")] == ["in its mean"]

    def test_a_pause_takes_time_and_saves_carbon_of_operation(self) -> None:
        asked = {"pauses": [{"by": "carbon", "hours_fraction": 0.5}]}
        job = job_with(H100_RENTED, site=HOURLY, what_if=asked)
        case, free = case_of(job, "pause in the 50.0 %"), chosen_of(job)
        assert case.time_to_train_days is not None
        assert case.time_to_train_days > 1.8 * free.scores.time_to_train_s[0] / 86_400
        assert "pauses" in case.note

    def test_a_pause_that_misses_the_deadline_says_so_and_what_it_changes(self) -> None:
        free = chosen_of(job_with(H100_RENTED, site=HOURLY))
        days = float(free.scores.time_to_train_s[0]) / 86_400
        budget_usd = 1.5 * float(free.scores.cost_usd[0])
        asked = {"pauses": [{"by": "carbon", "hours_fraction": 0.5}]}
        limits = {"deadline_days": 1.25 * days, "budget_usd": budget_usd}
        job = job_with(H100_RENTED, site=HOURLY, what_if=asked, limits=limits)
        case = case_of(job, "pause in the 50.0 %")
        assert case.time_to_train_days is not None
        assert case.cost_usd is not None
        assert case.limits_broken == {
            "budget_usd": pytest.approx(case.cost_usd / budget_usd - 1),
            "deadline_days": pytest.approx(case.time_to_train_days / (1.25 * days) - 1),
        }
        assert case.time_change_days == pytest.approx(case.time_to_train_days - days)
        assert case.carbon_change_kgco2e == pytest.approx(
            (case.carbon_kgco2e or 0.0) - float(free.scores.carbon_kgco2e[0])
        )
        (_, changes) = what_if_rows(case)
        assert changes[0] == "  against the answer"
        assert changes[1] == f"+{human.days(case.time_to_train_days - days)}"
        shares = [case.limits_broken[name] or 0.0 for name in ("budget_usd", "deadline_days")]
        assert changes[-1] == f"breaks budget by {100 * shares[0]:.1f} %, deadline by {100 * shares[1]:.1f} %"

    def test_a_pause_must_keep_the_deadline_with_the_wanted_probability(self) -> None:
        asked = {"pauses": [{"by": "carbon", "hours_fraction": 0.5}]}
        free = case_of(job_with(H100_RENTED, site=HOURLY, what_if=asked), "pause")
        assert free.time_to_train_days is not None
        limits = {"deadline_days": free.time_to_train_days * 1.001}
        surely = {**limits, "deadline_probability": 0.99}
        broken = [
            case_of(job_with(H100_RENTED, site=HOURLY, what_if=asked, limits=kept), "pause").limits_broken
            for kept in (limits, surely)
        ]
        assert [list(names) for names in broken] == [[], ["deadline_days"]]

    def test_a_cap_and_another_site_meet_the_limits_too(self) -> None:
        free = chosen_of(job_with(H100_RENTED, site="norway")).scores
        asked = {"power_caps": [0.5], "sites": ["poland"]}
        limits = {
            "deadline_days": 1.001 * float(free.time_to_train_s[0]) / 86_400,
            "carbon_kgco2e": 1.001 * float(free.carbon_kgco2e[0]),
        }
        job = job_with(H100_RENTED, site="norway", what_if=asked, limits=limits)
        assert "deadline_days" in case_of(job, "power cap").limits_broken
        moved = case_of(job, "in poland")
        assert list(moved.limits_broken) == ["carbon_kgco2e"]
        (_, changes) = what_if_rows(moved)
        assert changes[1:3] == ("", "")  # neither time nor money
        assert changes[-1].startswith("breaks carbon by ")

    def test_a_start_that_gains_next_to_nothing_is_not_advised(self) -> None:
        # The swing is half a per cent of the mean, and four days of it cancel out but for their last hours.
        calm = {"region": "us-iowa", "grid_profile": {"mean": 0.4, "daily_amplitude": 0.002}}
        job = job_with(H100_RENTED, site=calm, what_if={"start_within_hours": 24})
        case = case_of(job, "start")
        assert case.case == "start later for carbon"
        assert case.note == "waiting up to 1.00 days saves less than 0.1 % of its mean: start at once"
        assert case.carbon_change_kgco2e == 0.0

    def test_moving_away_says_what_only_this_site_has(self) -> None:
        site = {**HOURLY, "demand_usd_per_w_month": 0.015}
        job = job_with(H100_BOUGHT, site=site, what_if={"sites": ["norway"]})
        note = case_of(job, "in norway").note
        assert note.startswith("without the hourly grid and the demand charge of us-iowa")

    def test_a_later_start_is_never_dirtier(self) -> None:
        job = job_with(H100_RENTED, site=HOURLY, what_if={"start_within_hours": 24})
        case = case_of(job, "start")
        assert case.carbon_kgco2e is not None
        assert case.carbon_kgco2e <= chosen_of(job).scores.carbon_kgco2e[0]

    def test_waiting_for_the_first_start_is_the_same_in_a_pause_and_in_a_later_start(self) -> None:
        # A day of dirty hours, then clean ones for longer than the run takes: both can only wait for the first clean one.
        days = math.ceil(float(chosen_of(job_with(H100_RENTED)).scores.time_to_train_s[0]) / 86_400) + 1
        profile = {"region": "us-iowa", "grid_profile": [0.5] * 24 + [0.1] * 24 * days}
        asked = {
            "pauses": [{"by": "carbon", "hours_fraction": 1.0001 / (days + 1)}],
            "start_within_hours": 24,
        }
        for offer in (H100_RENTED, H100_BOUGHT):
            job = job_with(offer, site=profile, what_if=asked)
            paused, later = case_of(job, "pause"), case_of(job, "start")
            assert paused.note == "0 pauses, and a start 1.00 days later"
            assert later.case == "start 1.00 days later for carbon"
            for field in ("time_to_train_days", "cost_usd", "energy_kwh", "carbon_kgco2e"):
                assert getattr(paused, field) == pytest.approx(getattr(later, field), rel=1e-9), field
            # Nothing is held before it starts: only time passes.
            assert later.time_change_days == pytest.approx(1.0)
            assert later.cost_change_usd == pytest.approx(0.0, abs=1e-6)
            assert later.energy_change_kwh == pytest.approx(0.0, abs=1e-6)
            free = chosen_of(job).scores
            assert later.carbon_kgco2e is not None
            at_once_kg = float(free.carbon_kgco2e[0] - free.operational_kgco2e[0])
            clean_kg = 0.1 * float(free.energy_j[0]) / 3.6e6
            assert later.carbon_kgco2e == pytest.approx(at_once_kg + clean_kg)

    def test_a_later_start_keeps_the_deadline(self) -> None:
        # Every hour of the first days is cleaner than the one before, so that the latest start is the best.
        profile = {"region": "us-iowa", "grid_profile": [0.6 - 0.001 * hour for hour in range(480)]}
        asked = {"start_within_hours": 100}
        days = float(chosen_of(job_with(H100_RENTED)).scores.time_to_train_s[0]) / 86_400
        assert days < 480 / 24 - 100 / 24
        for slack_hours, expected in ((200.5, 100), (30.5, 30), (1.5, 1)):
            limits = {"deadline_days": days + slack_hours / 24}
            case = case_of(job_with(H100_RENTED, site=profile, what_if=asked, limits=limits), "start")
            assert case.time_change_days == pytest.approx(expected / 24), slack_hours
            assert case.limits_broken == {}
        limits = {"deadline_days": days + 0.5 / 24}
        case = case_of(job_with(H100_RENTED, site=profile, what_if=asked, limits=limits), "start")
        assert case.note == "no later start keeps the deadline"
        assert case.time_change_days == 0.0

    def test_a_later_start_keeps_the_deadline_with_the_wanted_probability(self) -> None:
        profile = {"region": "us-iowa", "grid_profile": [0.6 - 0.001 * hour for hour in range(480)]}
        free = chosen_of(job_with(H100_RENTED))
        days = float(free.scores.time_to_train_s[0]) / 86_400
        waits = []
        for probability in (None, 0.99):
            limits = {"deadline_days": 2.5 * days, "deadline_probability": probability}
            job = job_with(H100_RENTED, site=profile, what_if={"start_within_hours": 8000}, limits=limits)
            waits.append(case_of(job, "start").time_change_days or 0.0)
        assert 0.0 < waits[1] < waits[0] <= 1.5 * days

    def test_a_case_that_the_design_is_in_already_says_so(self) -> None:
        job = job_with(H100_RENTED, what_if={"sites": ["us-iowa", "norway"], "power_caps": [1.0, 0.8]})
        cases = {case.case: case for case in what_if_cases(job, chosen_of(job), nothing)}
        for name, note in (
            ("in us-iowa", "is where it stands already"),
            ("power cap 100.0 %", "is its cap already"),
        ):
            case = cases[name]
            assert case.note == note
            changes = case.time_change_days, case.cost_change_usd, case.carbon_change_kgco2e
            assert changes == (0.0, 0.0, 0.0)
        assert "already" not in cases["in norway"].note + cases["power cap 80.0 %"].note

    def test_a_cap_trades_time_for_energy(self) -> None:
        job = job_with(H100_RENTED, what_if={"power_caps": [0.7]})
        case, free = case_of(job, "power cap 70.0 %"), chosen_of(job).scores
        assert case.energy_kwh is not None
        assert case.time_to_train_days is not None
        assert case.energy_kwh < free.energy_j[0] / 3.6e6
        assert case.time_to_train_days > free.time_to_train_s[0] / 86_400

    def test_a_refresh_pays_for_its_making_by_what_it_saves(self) -> None:
        job = job_with(H100_RENTED, A100_RENTED, what_if={"refresh_from": "a100-sxm4-80gb"})
        case = case_of(job, "instead of going on with a100-sxm4-80gb")
        new, old = (
            chosen_of(job),
            evaluate(job.model_copy(update={"offers": job.offers[1:]}), plans_with({"num_gpus": 32})),
        )
        months = new.scores.time_to_train_s[0] / 0.85 / (8766 * 3600 / 12)
        saved = (old.scores.operational_kgco2e[0] - new.scores.operational_kgco2e[0]) / months
        offer = job.offers[0]
        made = 16 * offer.accelerator.embodied_kgco2e + 2 * offer.node.embodied_host_kgco2e
        assert saved > 0
        assert f"made up for its making after {made / saved:.3g} calendar months" in case.note
        assert case.note.endswith(
            "what the old one would sell for is not counted, since its age is not known"
        )

    def test_going_on_with_an_old_fleet_takes_nothing_that_is_bought_or_made_already(self) -> None:
        fields = {"storage": {"capacity_bytes": 1e15}, "carbon_scope": {"storage": True}}
        old_fleet = {**A100_RENTED, "other_purchase_usd_per_node": 150e3}
        job = job_with(H100_RENTED, old_fleet, what_if={"refresh_from": "a100-sxm4-80gb"}, **fields)
        bought = {"rent_usd_per_gpu_hour": None, "purchase_usd_per_node": 150e3}
        old = evaluate(job_with({**A100_RENTED, **bought}, **fields), plans_with({"num_gpus": 32})).scores
        running = old.maintenance_usd + old.staff_usd + old.electricity_usd + old.demand_usd + old.storage_usd
        case = case_of(job, "instead of going on with a100-sxm4-80gb")
        assert case.cost_usd == pytest.approx(float(running[0]), rel=1e-12)
        assert case.carbon_kgco2e == pytest.approx(
            float(old.operational_kgco2e[0] + old.embodied_storage_kgco2e[0]), rel=1e-12
        )

    def test_the_budget_of_going_on_is_that_of_running(self) -> None:
        old_fleet = {**A100_RENTED, "other_purchase_usd_per_node": 150e3}
        asked = {"refresh_from": "a100-sxm4-80gb"}
        usd = case_of(job_with(H100_RENTED, old_fleet, what_if=asked), "instead").cost_usd
        assert usd is not None
        for share, breaks in ((1.1, False), (0.8, True)):
            job = job_with(H100_RENTED, old_fleet, what_if=asked, limits={"budget_usd": share * usd})
            assert ("budget_usd" in case_of(job, "instead").limits_broken) == breaks

    def test_another_rent_changes_the_cost_and_nothing_else(self) -> None:
        job = job_with(H100_RENTED, what_if={"rents_usd_per_gpu_hour": [1.25, 5.0]})
        free = chosen_of(job).scores
        for factor, name in ((0.5, "$1.25 a GPU-hour"), (2.0, "$5 a GPU-hour")):
            case = case_of(job, name)
            assert case.cost_usd == pytest.approx(factor * free.cost_usd[0])
            assert case.carbon_kgco2e == free.carbon_kgco2e[0]
            assert case.note.startswith("32 x h100-sxm5-80gb for ")  # what `case_of` finds best

    def test_the_same_accelerators_may_still_be_the_best_at_another_price(self) -> None:
        job = job_with(H100_RENTED, what_if={"rents_usd_per_gpu_hour": [3.0]})
        (same,) = what_if_cases(job, chosen_of(job), chosen_of)
        assert same.note == "the same accelerators are recommended"
        (none,) = what_if_cases(job, chosen_of(job), nothing)
        assert none.note == "no design keeps all limits then"

    def test_a_rented_design_is_bought_at_the_price_that_is_asked_for(self) -> None:
        rented = {**H100_RENTED, "commitment_days": 365}
        job = job_with(rented, what_if={"purchases_usd_per_node": [300e3]})
        case = case_of(job, "$300,000 a node of h100-sxm5-80gb")
        bought = chosen_of(job_with(H100_BOUGHT)).scores
        assert case.cost_usd == pytest.approx(bought.cost_usd[0])

    def test_an_unknown_region_is_a_problem_of_the_job(self) -> None:
        rule = "is not among the catalogue's sites"
        for site in ("atlantis", {"region": "atlantis"}):
            with pytest.raises(InputError, match=rf"what_if\.sites\[0\].*atlantis.*{rule}") as caught:
                job_with(H100_RENTED, what_if={"sites": [site]})
            assert len(caught.value.problems) == 1
        assert job_with(what_if={"sites": ["norway"]}).what_if.sites == (job_with(site="norway").site,)

    @pytest.mark.parametrize("value", [True, "much", None])
    def test_a_mean_that_is_no_number_is_its_own_problem(self, value: object) -> None:
        with pytest.raises(InputError, match=r"site\.grid_profile\.mean.*: must be a number") as caught:
            job_with(site={"region": "us-iowa", "grid_profile": {"mean": value}})
        assert len(caught.value.problems) == 1


def test_the_scope_is_named_with_what_it_leaves_out() -> None:
    assert scope_text(job_with()) == (
        "location-based grid by the mean of a year (combustion, 2020); making of accelerators, hosts, replacements; "
        "without network, storage, building"
    )
    every = dict.fromkeys(("network", "storage", "building"), True)
    flash = {"capacity_bytes": 1e15}
    told = scope_text(job_with(H100_RENTED, carbon_scope=every, storage=flash, site=HOURLY))
    assert "without" not in told
    assert "by the hour" in told


def test_the_scope_tells_sites_apart_that_are_counted_otherwise() -> None:
    job = job_with(H100_RENTED, {**A100_RENTED, "site": HOURLY}, site="france")
    expected = (
        "location-based grid by the hour in us-iowa and by the mean of a year in france "
        "(france: life cycle, 2024; us-iowa: the job's own figure); making"
    )
    assert scope_text(job).startswith(expected)
    # A site of the job at which no offer stands counts nothing.
    elsewhere = job_with({**H100_RENTED, "site": HOURLY}, site="france")
    assert scope_text(elsewhere).startswith("location-based grid by the hour (the job's own figure); making")


class TestConventions:
    def test_sites_that_count_their_grids_otherwise_are_a_warning(self) -> None:
        # Virginia's figure is the EPA's of 2020, combustion alone; Norway's is Ember's of 2025, life cycle.
        job = job_with({**H100_RENTED, "site": "us-virginia"}, {**A100_RENTED, "site": "norway"})
        (note,) = (note for note in cautions(job, None) if "conventions" in note)
        assert "(us-virginia: combustion, 2020; norway: life cycle, 2025)" in note
        alike = job_with({**H100_RENTED, "site": "france"}, {**A100_RENTED, "site": "norway"})
        assert not any("conventions" in note for note in cautions(alike, None))
        asked = job_with({**H100_RENTED, "site": "us-virginia"}, what_if={"sites": ["poland"]})
        assert any("poland: life cycle, 2024" in note for note in cautions(asked, None))
        assert (
            "its grid is counted otherwise (life cycle, 2024, not combustion, 2020)"
            in case_of(asked, "in poland").note
        )

    def test_a_figure_of_the_job_is_not_the_catalogues(self) -> None:
        own = job_with(site={"region": "norway", "grid_kgco2e_per_kwh": 0.02}).site
        assert grid_convention(own).words == "the job's own figure"
        assert grid_convention(job_with(site="norway").site).words == "life cycle, 2025"

    @pytest.mark.parametrize(
        ("known", "words"),
        [
            ({}, "at power stations only; on site unknown"),
            ({"water_onsite_l_per_kwh": 0.2}, "on site and at power stations"),
        ],
    )
    def test_water_says_which_part_of_it_is_known(self, known: dict[str, float], words: str) -> None:
        job = job_with(site={"region": "norway", **known})
        design = design_at(job, chosen_of(job), 0, 1)
        assert design.water_scope == words
        assert ("water", words) in [(name, note) for name, _, note in merits(design)]

    def test_water_at_the_site_alone_is_said_too(self) -> None:
        site = Site(
            region="own",
            grid_kgco2e_per_kwh=0.1,
            electricity_usd_per_kwh=0.1,
            power_usage_effectiveness=1.1,
            water_onsite_l_per_kwh=0.2,
        )
        assert water_scope(site) == "on site only; at power stations unknown"


class TestJobFile:
    def test_profiles_come_from_files_lists_and_swings(self, tmp_path: Path) -> None:
        (tmp_path / "grid.csv").write_text(
            "t,g\n" + "".join(f"2022-01-01T{hour:02d}:00,{400 - 200 * (hour % 2)}\n" for hour in range(24)),
            encoding="utf-8",
        )
        job = parse_job(
            {
                "workload": {
                    "model": "llama-3.1-8b",
                    "tokens": 1e10,
                    "sequence_length": 8192,
                    "global_batch_size": 64,
                },
                "offers": [{**H100_BOUGHT, "site": {"region": "norway", "grid_profile": [0.1, 0.2] * 12}}],
                "site": {
                    "region": "us-iowa",
                    "grid_profile": "grid.csv",
                    "electricity_profile": {"mean": 0.1, "daily_amplitude": 0.05},
                },
            },
            folder=tmp_path,
        )
        assert job.site.grid_profile is not None
        assert job.site.grid_profile.per_hour == pytest.approx((0.4, 0.2) * 12)
        assert job.site.electricity_profile is not None
        assert job.site.electricity_profile.mean == pytest.approx(0.1)
        own = job.site_of(job.offers[0])
        assert own.grid_profile is not None
        assert (own.region, own.grid_profile.per_hour) == ("norway", (0.1, 0.2) * 12)

    @pytest.mark.parametrize(
        ("profile", "message"),
        [
            ("none.csv", r"site\.grid_profile = 'none\.csv': cannot be read"),
            ({"mean": 0.1, "daily_amplitude": 0.2}, r"site\.grid_profile.*together not exceed the mean"),
            ([0.1, -0.2], r"site\.grid_profile\.per_hour\[1\] = -0\.2: must be at least 0"),
            ([], r"site\.grid_profile\.per_hour = \[\]: needs 1 or more entries"),
        ],
    )
    def test_broken_profiles_say_where(self, profile: object, message: str) -> None:
        with pytest.raises(InputError, match=message):
            job_with(H100_RENTED, site={"region": "us-iowa", "grid_profile": profile})

    @pytest.mark.parametrize("contract", ["on_demand", "reserved_1y", "reserved_3y"])
    def test_a_contract_takes_the_catalogues_prices_of_its_kind(self, contract: str) -> None:
        offer = {**A100_RENTED, "rent_usd_per_gpu_hour": contract}
        rent = job_with(offer).offers[0].rent_usd_per_gpu_hour
        quotes = [
            float(figure.value)
            for figure in figures(Kind.RENTS, "a100-sxm4-80gb")
            if figure.quantity == contract
        ]
        assert rent is not None
        assert min(quotes) <= rent.low <= rent.mid <= rent.high <= max(quotes)

    def test_a_single_spot_price_has_the_spread_of_all_rents_of_its_accelerator(self) -> None:
        # The catalogue has one spot price of an H100 (Nebius, 1.25 USD), and eleven rents.
        spot = {**H100_RENTED, "rent_usd_per_gpu_hour": "spot", "interruptions_per_1000_node_days": 50}
        (offer,) = job_with(spot).offers
        rent = offer.rent_usd_per_gpu_hour
        usual, _ = rent_of("h100-sxm5-80gb")
        assert rent is not None
        assert rent.mid == 1.25
        assert (rent.low / 1.25, rent.high / 1.25) == pytest.approx(
            (usual.low / usual.mid, usual.high / usual.mid), abs=0.005
        )
        assert offer.price_source.endswith("one price, with the spread of all rents of this accelerator")

    def test_spot_prices_come_with_their_interruptions(self) -> None:
        spot = {**H100_RENTED, "rent_usd_per_gpu_hour": "spot"}
        with pytest.raises(InputError, match="needs interruptions_per_1000_node_days"):
            job_with(spot)
        often = job_with({**spot, "interruptions_per_1000_node_days": 50})
        rent, usual = often.offers[0].rent_usd_per_gpu_hour, job_with(H100_RENTED).offers[0]
        assert rent is not None
        assert usual.rent_usd_per_gpu_hour is not None
        assert rent.mid < usual.rent_usd_per_gpu_hour.mid

    def test_a_contract_without_prices_says_so(self) -> None:
        with pytest.raises(InputError, match="has no price of the kind spot in the catalogue; give a number"):
            job_with(
                {
                    **H100_RENTED,
                    "accelerator": "v100-sxm2-32gb",
                    "rent_usd_per_gpu_hour": "spot",
                    "interruptions_per_1000_node_days": 9,
                }
            )

    def test_a_bought_offer_is_compared_with_the_catalogues_rent(self) -> None:
        other = job_with(H100_BOUGHT).offers[0].other_rent_usd_per_gpu_hour
        assert other is not None
        assert other.low < other.mid < other.high
        design = recommend(job_with(H100_BOUGHT), tracking=False).best
        assert design is not None
        rent, own = design.metrics["rent_usd"], design.metrics["own_usd"]
        assert rent is not None
        assert own == pytest.approx(design.cost_usd)
        assert np.isfinite(rent)
