"""Does the answer say what other circumstances would change?"""

from __future__ import annotations

import math

import pytest

from constraints.evaluation import Evaluation, evaluate
from planner.text import human
from planner.views.comparisons_view import what_if_rows
from planner.what_if.cases import what_if_cases
from simulator.catalog import default_node
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.errors import InputError
from tests.planner.compared import HOURLY, case_of, chosen_of
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with, plans_with


def nothing(_: Job) -> None:
    """Finds no design that keeps all limits."""


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
        # Three and a half days: of whole ones every start sees the same hours.
        job = job_with(H100_RENTED, H100_BOUGHT, site=tariff, what_if=asked, workload={"tokens": 4.5e10})
        assert (
            case_of(job, "pause").note == "needs the site's electricity_profile, and a design that is bought"
        )
        cases = what_if_cases(job, chosen_of(job), nothing)
        (start,) = [case for case in cases if case.case.startswith("start")]
        assert (start.case, start.cost_usd) == ("start later", None)
        assert start.note == (
            "needs the site's grid_profile, or the site's electricity_profile, and a design that is bought"
        )
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
        assert changes[0] == "  change"
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

    def test_a_pause_must_keep_the_budget_with_the_wanted_probability(self) -> None:
        asked = {"pauses": [{"by": "carbon", "hours_fraction": 0.5}]}
        free = case_of(job_with(H100_RENTED, site=HOURLY, what_if=asked), "pause")
        assert free.cost_usd is not None
        limits = {"budget_usd": free.cost_usd * 1.001}
        for kept, broken in ((limits, []), ({**limits, "budget_probability": 0.99}, ["budget_usd"])):
            job = job_with(H100_RENTED, site=HOURLY, what_if=asked, limits=kept)
            assert list(case_of(job, "pause").limits_broken) == broken

    def test_a_pause_may_keep_a_carbon_limit_that_the_design_breaks(self) -> None:
        asked = {"pauses": [{"by": "carbon", "hours_fraction": 0.5}]}
        free = case_of(job_with(H100_RENTED, site=HOURLY, what_if=asked), "pause")
        assert free.carbon_kgco2e is not None
        assert free.carbon_change_kgco2e is not None
        assert free.carbon_change_kgco2e < 0.0
        for saved, broken in ((0.5, []), (1.5, ["carbon_kgco2e"])):  # of what the pauses save
            unpaused_kg = free.carbon_kgco2e - free.carbon_change_kgco2e
            limits = {"carbon_kgco2e": unpaused_kg + saved * free.carbon_change_kgco2e}
            job = job_with(H100_RENTED, site=HOURLY, what_if=asked, limits=limits)
            assert chosen_of(job).excess.carbon_kgco2e > 0.0
            assert list(case_of(job, "pause").limits_broken) == broken

    def test_a_later_start_of_a_bought_design_pays_the_tariff_of_its_hours(self) -> None:
        # A dear day, then cheap ones for longer than the run takes: its mean falls to the cheap price.
        dear, cheap = 0.5, 0.1
        days = math.ceil(float(chosen_of(job_with(H100_BOUGHT)).scores.time_to_train_s[0]) / 86_400) + 1
        profile = [dear] * 24 + [cheap] * 24 * days
        for offer in (
            {**H100_BOUGHT},
            {**H100_BOUGHT, "site": {"region": "us-iowa", "electricity_profile": profile}},
        ):
            site = (
                {"region": "us-iowa"}
                if "site" in offer
                else {"region": "us-iowa", "electricity_profile": profile}
            )
            job = job_with(offer, site=site, what_if={"start_within_hours": 24})
            free, case = chosen_of(job).scores, case_of(job, "start 1.00 days later for price")
            hours = float(free.time_to_train_s[0]) / 3600
            mean = (24 * dear + (hours - 24) * cheap) / hours
            saved = (mean - cheap) * float(free.energy_j[0]) / 3.6e6
            assert case.cost_change_usd == pytest.approx(-saved, rel=1e-6)
            assert case.note == f"{100 * (cheap / mean - 1):.1f} % in its mean"

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
        days = float(chosen_of(job).scores.time_to_train_s[0]) / 86_400
        limits = {"deadline_days": days + 5.5 / 24}
        soon = job_with(H100_RENTED, site=calm, what_if={"start_within_hours": 24}, limits=limits)
        told = "waiting up to 5.00 h, the latest that meets the deadline, saves less than 0.1 % of its mean"
        assert case_of(soon, "start").note == f"{told}: start at once"

    def test_moving_away_says_what_only_this_site_has(self) -> None:
        site = {**HOURLY, "demand_usd_per_w_month": 0.015}
        job = job_with(H100_BOUGHT, site=site, what_if={"sites": ["norway"]})
        note = case_of(job, "in norway").note
        assert note.startswith("without the hourly grid and the demand charge of us-iowa")

    def test_moving_away_loses_the_weather_and_not_what_the_other_site_has_too(self) -> None:
        weather = {"mean_celsius": 12, "free_cooling_below_celsius": 18, "overhead_per_celsius": 0.01}
        there = {"region": "norway", "grid_profile": {"mean": 0.03, "daily_amplitude": 0.01}}
        job = job_with(H100_RENTED, site={**HOURLY, "climate": weather}, what_if={"sites": [there]})
        assert case_of(job, "in norway").note.startswith("without the climate of us-iowa")

    def test_moving_away_loses_the_part_of_the_cooling_that_does_not_follow_the_load(self) -> None:
        site = {"region": "norway", "cooling_fixed_fraction": 0.5}
        case = case_of(job_with(H100_RENTED, site=site, what_if={"sites": ["norway"]}), "in norway")
        assert case.energy_change_kwh is not None
        assert case.energy_change_kwh < 0.0
        assert case.note.startswith("without the fixed part of the cooling of norway")

    def test_another_overhead_of_cooling_is_told_since_it_changes_the_energy(self) -> None:
        job = job_with(
            H100_RENTED,
            site={"region": "us-iowa", "power_usage_effectiveness": 1.1},
            what_if={"sites": ["us-texas", {"region": "us-texas", "power_usage_effectiveness": 1.1}]},
        )
        other, same = what_if_cases(job, chosen_of(job), nothing)
        assert other.note.startswith("PUE 1.44 instead of 1.1; water ")
        assert same.note == ""
        assert other.energy_kwh == pytest.approx((same.energy_kwh or 0.0) * 1.44 / 1.1)

    def test_a_site_tells_its_water_where_that_is_known_of_both(self) -> None:
        dry, wet, cooled = (
            {"region": "us-iowa", "water_offsite_l_per_kwh": litres} | cooling
            for litres, cooling in ((1.0, {}), (3.0, {}), (3.0, {"water_onsite_l_per_kwh": 1.0}))
        )
        job = job_with(H100_RENTED, site=dry, what_if={"sites": [wet, cooled]})
        more, of_another_scope = what_if_cases(job, chosen_of(job), nothing)
        here_l = float(chosen_of(job).scores.water_l[0])
        assert more.note == f"water {human.water(3 * here_l)} instead of {human.water(here_l)}"
        assert of_another_scope.note == ""

    def test_an_offer_leaves_its_own_site_too(self) -> None:
        moved = [
            case_of(job_with(offer, site=site, what_if={"sites": ["norway"]}), "in norway")
            for offer, site in (({**H100_RENTED, "site": "poland"}, "us-iowa"), (H100_RENTED, "poland"))
        ]
        assert moved[0].carbon_change_kgco2e == moved[1].carbon_change_kgco2e
        assert (moved[0].carbon_change_kgco2e or 0.0) < 0.0

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
        assert case.note == "no later start meets the deadline"
        assert case.time_change_days == 0.0

    def test_a_design_that_is_late_anyway_starts_at_once(self) -> None:
        days = float(chosen_of(job_with(H100_RENTED)).scores.time_to_train_s[0]) / 86_400
        late = {"deadline_days": 0.5 * days}
        job = job_with(H100_RENTED, site=HOURLY, what_if={"start_within_hours": 100}, limits=late)
        assert case_of(job, "start").note == "no later start meets the deadline"

    def test_pauses_that_leave_no_time_for_a_restart_have_no_figures(self) -> None:
        # Clean and dirty hours take turns, and a restart takes more than an hour.
        profile = {"region": "us-iowa", "grid_profile": [0.1, 0.5] * 12}
        asked = {"pauses": [{"by": "carbon", "hours_fraction": 0.5}]}
        slow = {"preset": "typical", "restart": {"initialize_s": 4000}}
        case = case_of(job_with(H100_RENTED, site=profile, what_if=asked, reliability=slow), "pause")
        assert (case.note, case.cost_usd) == ("no interval between pauses is longer than a restart", None)

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
            ("in us-iowa", "already its site"),
            ("power cap 100.0 %", "already its cap"),
        ):
            case = cases[name]
            assert case.note == note
            changes = case.time_change_days, case.cost_change_usd, case.carbon_change_kgco2e
            assert changes == (0.0, 0.0, 0.0)
        assert "already" not in cases["in norway"].note + cases["power cap 80.0 %"].note

    def test_sites_of_one_region_are_told_apart(self) -> None:
        own = [{"region": "norway", "power_usage_effectiveness": value} for value in (1.1, 1.3)]
        job = job_with(H100_RENTED, what_if={"sites": ["norway", own[0], "sweden", own[1]]})
        cases = what_if_cases(job, chosen_of(job), nothing)
        assert [case.case for case in cases] == ["in norway", "in norway #2", "in sweden", "in norway #3"]
        assert ["PUE 1.1" in case.note for case in cases] == [False, True, False, False]

    def test_a_site_of_the_same_region_may_be_another_one(self) -> None:
        dirty = {"region": "us-iowa", "grid_kgco2e_per_kwh": 0.9}
        job = job_with(H100_RENTED, site=dirty, what_if={"sites": ["us-iowa"]})
        case = case_of(job, "in us-iowa")
        assert case.note != "already its site"
        assert case.carbon_change_kgco2e is not None
        assert case.carbon_change_kgco2e < 0.0

    def test_a_cap_trades_time_for_energy(self) -> None:
        job = job_with(H100_RENTED, what_if={"power_caps": [0.7]})
        case, free = case_of(job, "power cap 70.0 %"), chosen_of(job).scores
        assert case.energy_kwh is not None
        assert case.time_to_train_days is not None
        assert case.energy_kwh < free.energy_j[0] / 3.6e6
        assert case.time_to_train_days > free.time_to_train_s[0] / 86_400

    @pytest.mark.parametrize(
        "sections", [{}, {"storage": {"capacity_bytes": 1e15}, "carbon_scope": {"storage": True}}]
    )
    def test_a_refresh_pays_for_its_making_by_what_it_saves(self, sections: dict[str, object]) -> None:
        # The run has its storage with either fleet.
        job = job_with(H100_RENTED, A100_RENTED, what_if={"refresh_from": "a100-sxm4-80gb"}, **sections)
        case = case_of(job, "going on with a100-sxm4-80gb")
        new, old = (
            chosen_of(job),
            evaluate(job.model_copy(update={"offers": job.offers[1:]}), plans_with({"num_gpus": 32})),
        )
        months = new.scores.time_to_train_s[0] / 0.85 / (8766 * 3600 / 12)
        saved = (old.scores.operational_kgco2e[0] - new.scores.operational_kgco2e[0]) / months
        offer = job.offers[0]
        made = 16 * offer.accelerator.embodied_kgco2e + 2 * offer.node.embodied_host_kgco2e
        assert saved > 0
        assert f"pays back its embodied carbon after {made / saved:#.3g} calendar months" in case.note
        assert case.note.endswith("its resale value is not counted, because its age is unknown")

    def test_a_refresh_pays_its_price_by_what_running_it_costs_less(self) -> None:
        # Without interest, installation, network and building the price of two nodes is all that has to be paid back.
        free_of = {"kind": "infiniband-ndr", "port_usd": 0}
        new = {**H100_BOUGHT, "purchase_usd_per_node": 1e4, "fabric": free_of}
        old = {**A100_RENTED, "rent_usd_per_gpu_hour": None, "purchase_usd_per_node": 2e5, "fabric": free_of}
        ownership = {
            "capital_cost_fraction_per_year": 0.0,
            "installation_fraction": 0.0,
            "facility_usd_per_w": 0.0,
            "depreciation": "straight_line",
            "residual_fraction": 0.0,
        }
        job = job_with(new, old, what_if={"refresh_from": "a100-sxm4-80gb"}, ownership=ownership)
        one, other = (
            evaluate(job.model_copy(update={"offers": (offer,)}), plans_with(plan)).scores
            for offer, plan in zip(
                job.offers, ({"num_gpus": 16, "zero_stage": 3}, {"num_gpus": 32}), strict=True
            )
        )
        running = [
            float(each.maintenance_usd[0] + each.staff_usd[0] + each.electricity_usd[0] + each.demand_usd[0])
            for each in (other, one)
        ]
        months = float(one.time_to_train_s[0]) / 0.85 / (8766 * 3600 / 12)
        paid_back = 2e4 / ((running[0] - running[1]) / months)
        assert 0.1 < paid_back < 60
        note = case_of(job, "going on").note
        assert f"and its price after {human.digits(paid_back)} calendar months" in note

    def test_a_refresh_that_saves_no_emissions_never_pays_back_its_making(self) -> None:
        job = job_with(
            H100_RENTED,
            {**A100_RENTED, "site": "norway"},
            site="poland",
            what_if={"refresh_from": "a100-sxm4-80gb"},
        )
        assert "pays back its embodied carbon never" in case_of(job, "going on").note

    def test_a_new_fleet_without_a_known_price_pays_it_back_after_an_unknown_time(self) -> None:
        node = default_node("h100-sxm5-80gb").model_dump(mode="json") | {"purchase_usd": None}
        job = job_with({**H100_RENTED, "node": node}, A100_RENTED, what_if={"refresh_from": "a100-sxm4-80gb"})
        note = case_of(job, "going on").note
        assert "its price, if bought, after an unknown time, because its price is unknown" in note

    def test_going_on_with_an_old_fleet_takes_nothing_that_is_bought_or_made_already(self) -> None:
        fields = {"storage": {"capacity_bytes": 1e15}, "carbon_scope": {"storage": True}}
        old_fleet = {**A100_RENTED, "other_purchase_usd_per_node": 150e3}
        job = job_with(H100_RENTED, old_fleet, what_if={"refresh_from": "a100-sxm4-80gb"}, **fields)
        bought = {"rent_usd_per_gpu_hour": None, "purchase_usd_per_node": 150e3}
        old = evaluate(job_with({**A100_RENTED, **bought}, **fields), plans_with({"num_gpus": 32})).scores
        running = old.maintenance_usd + old.staff_usd + old.electricity_usd + old.demand_usd + old.storage_usd
        case = case_of(job, "going on with a100-sxm4-80gb")
        assert case.cost_usd == pytest.approx(float(running[0]), rel=1e-12)
        assert case.carbon_kgco2e == pytest.approx(
            float(old.operational_kgco2e[0] + old.embodied_storage_kgco2e[0]), rel=1e-12
        )

    def test_the_budget_of_going_on_is_that_of_running(self) -> None:
        old_fleet = {**A100_RENTED, "other_purchase_usd_per_node": 150e3}
        asked = {"refresh_from": "a100-sxm4-80gb"}
        usd = case_of(job_with(H100_RENTED, old_fleet, what_if=asked), "going on").cost_usd
        assert usd is not None
        for share, breaks in ((1.1, False), (0.8, True)):
            job = job_with(H100_RENTED, old_fleet, what_if=asked, limits={"budget_usd": share * usd})
            assert ("budget_usd" in case_of(job, "going on").limits_broken) == breaks

    def test_the_carbon_limit_of_going_on_is_that_of_operation(self) -> None:
        asked = {"refresh_from": "a100-sxm4-80gb"}
        kg = case_of(job_with(H100_RENTED, A100_RENTED, what_if=asked), "going on").carbon_kgco2e
        assert kg is not None
        for share, breaks in ((1.001, False), (0.9, True)):
            limits = {"carbon_kgco2e": share * kg}
            job = job_with(H100_RENTED, A100_RENTED, what_if=asked, limits=limits)
            assert ("carbon_kgco2e" in case_of(job, "going on").limits_broken) == breaks

    def test_going_on_must_keep_the_budget_with_the_wanted_probability(self) -> None:
        old_fleet = {**A100_RENTED, "other_purchase_usd_per_node": 150e3}
        asked = {"refresh_from": "a100-sxm4-80gb"}
        usd = case_of(job_with(H100_RENTED, old_fleet, what_if=asked), "going on").cost_usd
        assert usd is not None
        limits = {"budget_usd": usd * 1.001}
        for kept, is_broken in ((limits, False), ({**limits, "budget_probability": 0.99}, True)):
            job = job_with(H100_RENTED, old_fleet, what_if=asked, limits=kept)
            assert ("budget_usd" in case_of(job, "going on").limits_broken) == is_broken

    @pytest.mark.parametrize("others", [["cost_p95"], []])
    def test_an_old_fleet_is_chosen_without_limits_and_so_without_the_risk_of_breaking_them(
        self, others: list[str]
    ) -> None:
        risks = ["deadline_risk", "budget_risk"]
        asked = {
            "what_if": {"refresh_from": "a100-sxm4-80gb"},
            "limits": {"deadline_days": 90, "budget_usd": 1e6},
            "objectives": [*others, *risks],
            "preference": dict.fromkeys([*others, *risks], 2.0),
        }
        found = []

        def best(other: Job) -> Evaluation:
            found.append(Job.model_validate(other.model_dump()))
            return evaluate(other, plans_with({"num_gpus": 32}))

        job = job_with(H100_RENTED, A100_RENTED, **asked)
        (case,) = what_if_cases(job, chosen_of(job), best)
        assert case.time_to_train_days is not None
        assert [each.value for each in found[0].objectives] == (others or ["time_to_train"])

    def test_nobody_takes_back_nodes_of_an_old_fleet(self) -> None:
        cases = [
            case_of(
                job_with(H100_RENTED, {**A100_RENTED, **terms}, what_if={"refresh_from": "a100-sxm4-80gb"}),
                "going on",
            )
            for terms in ({}, {"interruptions_per_1000_node_days": 100.0})
        ]
        assert cases[0] == cases[1]

    def test_an_old_fleet_that_stands_elsewhere_says_where(self) -> None:
        asked = {"refresh_from": "a100-sxm4-80gb"}
        job = job_with(H100_RENTED, {**A100_RENTED, "site": "norway"}, what_if=asked)
        assert case_of(job, "going on").case == "going on with a100-sxm4-80gb in norway"

    def test_another_rent_changes_the_cost_and_nothing_else(self) -> None:
        job = job_with(H100_RENTED, what_if={"rents_usd_per_gpu_hour": [1.25, 5.0]})
        free = chosen_of(job).scores
        for factor, name in ((0.5, "$1.25 a GPU-hour"), (2.0, "$5 a GPU-hour")):
            case = case_of(job, name)
            assert case.cost_usd == pytest.approx(factor * free.cost_usd[0])
            assert case.carbon_kgco2e == free.carbon_kgco2e[0]
            assert case.note.startswith("32 x h100-sxm5-80gb for ")  # what `case_of` finds best

    def test_a_price_is_written_in_full_however_high_it_is(self) -> None:
        job = job_with(H100_RENTED, what_if={"purchases_usd_per_node": [1_250_000.0, 285_000.0]})
        names = [case.case for case in what_if_cases(job, chosen_of(job), nothing)]
        assert names == ["$1,250,000 a node of h100-sxm5-80gb", "$285,000 a node of h100-sxm5-80gb"]

    def test_another_rent_is_that_of_the_recommended_offer_wherever_it_stands_in_the_job(self) -> None:
        job = job_with(H100_RENTED, A100_RENTED, what_if={"rents_usd_per_gpu_hour": [2.6]})
        chosen = chosen_of(job, offer=1)
        (case,) = what_if_cases(job, chosen, nothing)
        assert case.case == "$2.6 a GPU-hour of a100-sxm4-80gb"
        assert case.cost_usd == pytest.approx(2.0 * chosen.scores.cost_usd[0])

    def test_as_many_of_other_accelerators_are_another_recommendation(self) -> None:
        job = job_with(H100_RENTED, A100_RENTED, what_if={"rents_usd_per_gpu_hour": [9.0]})
        (case,) = what_if_cases(job, chosen_of(job), lambda other: chosen_of(other, offer=1))
        assert case.note.startswith("16 x a100-sxm4-80gb for ")

    def test_the_same_accelerators_may_still_be_the_best_at_another_price(self) -> None:
        job = job_with(H100_RENTED, what_if={"rents_usd_per_gpu_hour": [3.0]})
        (same,) = what_if_cases(job, chosen_of(job), chosen_of)
        assert same.note == "the same accelerators are recommended"
        (none,) = what_if_cases(job, chosen_of(job), nothing)
        assert none.note == "no design can be run then"
        limited = job.model_copy(update={"limits": Limits(budget_usd=1e12)})
        (none,) = what_if_cases(limited, chosen_of(limited), nothing)
        assert none.note == "no design meets all limits then"

    def test_a_rented_design_is_bought_at_the_price_that_is_asked_for(self) -> None:
        rented = {**H100_RENTED, "commitment_days": 365, "interruptions_per_1000_node_days": 20.0}
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
