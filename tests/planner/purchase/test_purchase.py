"""What does a fleet buy? Tests of purchase plans from the file to the answer, and of the command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from constraints.evaluation import evaluate
from constraints.purchase_model import Solution, cheapest
from constraints.purchase_problem import PurchaseProblem
from constraints.relaxation import rounded_up
from constraints.space import pruned_space
from objectives.usage import num_held_gpus
from planner import simulate_plan
from planner.cli import commands as cli
from planner.input.record_input import parse_record
from planner.purchase import answer, ways
from planner.purchase.answer import SIDE_EFFORT, plan_purchase
from planner.purchase.fleet import Fleet, FleetLimits, load_fleet
from planner.purchase.notes import life_notes, notes_of, power_notes, slack_notes
from planner.purchase.plan import PurchasePlan
from planner.purchase.prices import NodePrices, node_prices, prices_by_size
from planner.purchase.problem import bought_lot
from planner.purchase.view import show_purchase
from planner.purchase.ways import candidates_of, job_on, jobs_of
from planner.text import human
from simulator import catalog
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.offer import GpuRange
from simulator.domain.options import WhatIf
from simulator.domain.ownership import Ownership
from simulator.errors import InputError

EXAMPLE = Path(__file__).parents[3] / "examples" / "fleet.yaml"
GPUS_PER_NODE = 8
SEARCH = {
    "tensor_parallel": [2],
    "pipeline_parallel": [1],
    "micro_batch_sizes": [1],
    "zero_stages": [1],
    "recompute": ["none", "full"],
    "checkpoint_schemes": ["async"],
    "num_refinements": 0,
}


def job(name: str, tokens: float, start: float, deadline: float) -> dict[str, object]:
    workload = {"model": "llama-3.1-8b", "tokens": tokens, "sequence_length": 8192, "global_batch_size": 64}
    run = {"workload": workload, "search": SEARCH}
    return {"name": name, "earliest_start_day": start, "deadline_day": deadline, "job": run}


def offer(**terms: object) -> dict[str, object]:
    return {"accelerator": "h100-sxm5-80gb", **terms}


RENT = {"usd_per_gpu_hour": 3.0, "max_nodes": 8}
BUY = {"usd_per_node": 250e3, "max_nodes": 8, "first_delivery_day": 20, "delivery_every_days": 20}
RESERVE = {"usd_per_gpu_hour": 2.0, "max_nodes": 4, "term_days": 30, "start_every_days": 10}
JOBS = [job("first", 1e11, 0, 60), job("second", 2e11, 20, 100)]


def with_sections(one: Mapping[str, object], **sections: object) -> dict[str, object]:
    """One of the jobs with other sections in its job file."""
    run = one["job"]
    assert isinstance(run, Mapping)
    return {**one, "job": {**run, **sections}}


def fleet_with(*offers: Mapping[str, object], **fields: object) -> Fleet:
    document = {"horizon_days": 100, "site": "us-iowa", "jobs": JOBS, **fields}
    return parse_record(Fleet, {"name": "fleet", **document, "offers": list(offers)})


@cache
def rented() -> PurchasePlan:
    return plan_purchase(fleet_with(offer(rent=RENT)))


@cache
def mixed() -> PurchasePlan:
    return plan_purchase(fleet_with(offer(rent=RENT, reserve=RESERVE, buy=BUY)))


def test_rent_is_paid_by_the_hour_for_all_accelerators_of_a_run() -> None:
    plan = rented()
    assert (plan.status, plan.acquisitions, plan.capital_usd) == ("optimal", (), 0)
    for run in plan.runs:
        hours = round((run.end_day - run.start_day) * 24)
        assert run.num_gpus == GPUS_PER_NODE * run.num_nodes
        assert run.cost_usd == pytest.approx(3.0 * run.num_gpus * hours, abs=0.5)
    assert plan.cost_usd == plan.all_rent_usd == sum(run.cost_usd for run in plan.runs)
    assert (plan.all_buy_usd, plan.undecided) == (None, ())  # nothing is for sale, which is proven


def test_every_job_runs_inside_its_window_and_nodes_are_never_used_twice() -> None:
    plan = mixed()
    first, second = sorted(plan.runs, key=lambda run: run.job)
    assert 0 <= first.start_day < first.end_day <= 60
    assert 20 <= second.start_day < second.end_day <= 100
    for kind in ("bought", "reserved"):
        runs = [run for run in plan.runs if run.kind == kind]
        for run in runs:
            together = [other for other in runs if other.start_day <= run.start_day < other.end_day]
            there = [one for one in plan.acquisitions if one.kind == kind and one.from_day <= run.start_day]
            assert sum(one.num_nodes for one in together) <= sum(one.num_nodes for one in there)


def test_more_ways_to_have_nodes_never_cost_more_and_the_parts_sum_to_the_cost() -> None:
    plan = mixed()
    assert plan.cost_usd is not None
    assert plan.all_rent_usd is not None
    assert plan.cost_usd <= plan.all_rent_usd == rented().cost_usd
    assert plan.all_buy_usd is None or plan.cost_usd <= plan.all_buy_usd
    parts = [one.cost_usd for one in plan.acquisitions] + [run.cost_usd for run in plan.runs]
    assert plan.cost_usd == pytest.approx(sum(parts), abs=1e-6)
    assert plan.bound_usd == plan.cost_usd
    assert plan.capital_usd == sum(one.capital_usd for one in plan.acquisitions)


def test_nodes_that_come_in_the_last_part_of_an_hour_are_not_bought() -> None:
    # Day 100.01 is 14 minutes into an hour, day 100.006 nine: in whole hours the nodes would come after the end.
    late = {**BUY, "first_delivery_day": 100.006}
    plan = plan_purchase(fleet_with(offer(rent=RENT, buy=late), horizon_days=100.01))
    assert (plan.acquisitions, plan.cost_usd) == ((), rented().cost_usd)


def test_the_same_fleet_gives_the_same_plan() -> None:
    again = plan_purchase(fleet_with(offer(rent=RENT, reserve=RESERVE, buy=BUY)))
    assert again == mixed()


@pytest.mark.parametrize(("num_nodes", "num_tiers"), [(1, 0), (8, 1), (64, 2)])
def test_an_owned_node_costs_its_annuity_and_upkeep_by_the_hour(num_nodes: int, num_tiers: int) -> None:
    terms = {"lifetime_years": 4, "capital_cost_fraction_per_year": 0.0, "facility_usd_per_w": 0.0}
    fleet = fleet_with(offer(buy={**BUY, "max_nodes": num_nodes}), ownership=terms)
    price = prices_of(fleet)
    # One node has no network outside it; of more, each accelerator has a port of 2,100 USD in every tier of 64-port switches.
    new_usd = 250e3 + GPUS_PER_NODE * 2100 * num_tiers
    # Its price over 4 years of 8,766 hours, and 5 % upkeep a year.
    assert price.owned_usd(1.0) == pytest.approx(new_usd * (1 / 4 + 0.05) / 8766, rel=1e-9)
    assert price.capital_usd == pytest.approx(new_usd)


def test_an_owned_node_costs_the_building_for_the_watts_that_it_draws_over_the_life_of_the_building() -> None:
    terms = {"facility_lifetime_years": 15, "capital_cost_fraction_per_year": 0.0}
    bare, housed = (
        prices_of(
            fleet_with(offer(buy={**BUY, "max_nodes": 1}), ownership=terms | {"facility_usd_per_w": usd})
        )
        for usd in (0.0, 12.0)
    )
    # DGX H100, all accelerators computing: 8 at 700 W and 1,200 W of host behind power supplies, and 1,100 W of fans.
    computing_w = (8 * 700 + 1200) / 0.95 + 1100
    building_usd = 12 * computing_w / 15 / 8766
    assert housed.owned_usd(1.0) - bare.owned_usd(1.0) == pytest.approx(building_usd, rel=1e-3)
    assert housed.capital_usd == bare.capital_usd


def test_an_owned_node_pays_the_demand_charge_of_the_site() -> None:
    site = {"region": "us-iowa", "demand_usd_per_w_month": 0.012}
    assert prices_of(fleet_with(offer(buy=BUY), site=site)).usd_per_w_month == 0.012


def test_no_more_nodes_are_sold_than_are_on_sale_however_many_are_for_rent() -> None:
    fleet = fleet_with(offer(buy={**BUY, "max_nodes": 64}, rent={**RENT, "max_nodes": 600}))
    # 8 nodes fill a switch of 64 ports; two tiers join 256.
    assert [price.most_nodes for price in prices_by_size(alone_in(fleet), fleet.offers[0])] == [1, 8, 64]


def prices_of(fleet: Fleet) -> NodePrices:
    """Of the largest cluster that can be had."""
    return prices_by_size(alone_in(fleet), fleet.offers[0])[-1]


def test_nodes_that_come_late_lose_as_much_at_first_as_those_that_come_early() -> None:
    terms = {"capital_cost_fraction_per_year": 0.0, "facility_usd_per_w": 0.0, "depreciation": "economic"}
    terms |= {"maintenance_fraction_per_year": 0.0, "economic_loss_per_year": 0.32}
    fleet = fleet_with(offer(buy={**BUY, "max_nodes": 1}), ownership=terms, horizon_days=3652.5)
    price = prices_of(fleet)
    year = bought_lot(fleet, replace(price, idle_w=0.0), 9 * 365.25)
    assert year.usd_per_node == pytest.approx(250e3 * (1 - math.exp(-0.32)), rel=1e-3)


def test_what_an_acquisition_costs_is_told_by_part_and_what_it_must_still_bring_in() -> None:
    terms = {
        "lifetime_years": 4,
        "capital_cost_fraction_per_year": 0.0,
        "maintenance_fraction_per_year": 0.05,
    }
    fleet = fleet_with(offer(buy={**BUY, "usd_per_node": 1e3, "first_delivery_day": 0}), ownership=terms)
    (held,) = plan_purchase(fleet).acquisitions
    assert sum(held.cost_parts_usd.values()) == pytest.approx(held.cost_usd, abs=1e-6)
    years = (held.to_day - held.from_day) / 365.25
    assert held.cost_parts_usd["capital_usd"] == pytest.approx(
        held.capital_usd * years / 4, abs=held.num_nodes
    )
    assert held.cost_parts_usd["maintenance_usd"] == pytest.approx(
        held.capital_usd * 0.05 * years, abs=held.num_nodes
    )
    assert held.left_usd == pytest.approx(held.capital_usd * (1 - years / 4), abs=held.num_nodes)


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"lifetime_years": 2}, "ownership.lifetime_years (2)"),
        ({"lifetime_years": 4, "network_lifetime_years": 2}, "ownership.network_lifetime_years (2)"),
        ({"lifetime_years": 2, "depreciation": "economic"}, None),
        ({"lifetime_years": 3}, None),
    ],
)
def test_nodes_that_are_held_beyond_their_life_are_told(terms: dict[str, object], named: str | None) -> None:
    bought, own = {**BUY, "first_delivery_day": 0}, Ownership.model_validate(terms)
    at_once, late, none = (
        life_notes(fleet_with(offer(rent=RENT, buy=buy), horizon_days=3 * 365.25), own)
        for buy in (bought, {**bought, "first_delivery_day": 730.5}, None)
    )
    assert [note.partition(":")[0] for note in at_once] == (
        [f"Bought nodes can be held for 3.00 years, longer than {named}"] if named else []
    )
    assert late == none == ()


def test_a_plan_tells_that_nodes_are_held_beyond_their_life() -> None:
    terms = {"lifetime_years": 0.1}
    fleet = fleet_with(offer(rent=RENT, buy=BUY), ownership=terms)
    (note,) = life_notes(fleet, Ownership.model_validate(terms))
    assert note in plan_purchase(fleet).notes


def test_reserved_nodes_cost_rent_alone_and_leave_nothing() -> None:
    plan = plan_purchase(fleet_with(offer(reserve={**RESERVE, "term_days": 100, "first_start_day": 0})))
    assert plan.left_usd == 0
    for held in plan.acquisitions:
        assert held.cost_parts_usd == {"rent_usd": held.cost_usd}


def test_offers_that_differ_in_price_alone_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def counted(job: Job, place: tuple[int, int], seed: int) -> tuple[ways.Candidate, ...]:
        searched.append(place)
        return candidates_of(job, place, seed)

    monkeypatch.setattr(answer, "candidates_of", counted)
    cheap, few = {**RENT, "usd_per_gpu_hour": 2.0}, {**RENT, "max_nodes": 4}
    plan = plan_purchase(fleet_with(offer(rent=RENT), offer(rent=cheap), offer(rent=few)))
    assert searched == [(0, 0), (1, 0), (0, 2), (1, 2)]
    assert {run.offer for run in plan.runs} == {1}  # the cheap one
    assert plan.cost_usd == pytest.approx(2 / 3 * (rented().cost_usd or 0.0), abs=1.0)


def test_runs_on_nodes_that_are_taken_back_take_longer() -> None:
    spot = {**RENT, "interruptions_per_1000_node_days": 500}
    calm, interrupted = rented(), plan_purchase(fleet_with(offer(rent=spot)))
    assert calm.cost_usd is not None
    assert interrupted.cost_usd is not None
    assert interrupted.cost_usd > 1.02 * calm.cost_usd
    fleet = fleet_with(offer(rent=spot))
    taken = job_on(fleet, fleet.jobs[0], fleet.offers[0], Path()).offers[0]
    assert taken.interruptions_per_1000_node_days == 500


def test_terms_of_single_jobs_that_those_of_the_fleet_replace_are_told() -> None:
    own = {"lifetime_years": 2}
    owning = [with_sections(JOBS[0], ownership=own), JOBS[1]]
    (note,) = notes_on(offer(rent=RENT), jobs=owning)
    assert note == "first: ownership of the job is ignored; ownership of the fleet holds for all jobs"
    assert notes_on(offer(rent=RENT), jobs=owning, ownership=own) == ()


def test_jobs_that_count_different_parts_of_what_is_made_are_told() -> None:
    wide = with_sections(JOBS[0], carbon_scope={"network": True, "building": True})
    first, second = (
        plan_purchase(fleet_with(offer(reserve={**RESERVE, "term_days": 100}), jobs=jobs))
        for jobs in ([wide, JOBS[1]], [JOBS[1], wide])
    )
    assert first.carbon_kgco2e > second.carbon_kgco2e
    for plan, name in ((first, "first"), (second, "second")):
        assert any(f"what {name} counts is counted" in note for note in plan.notes)
    assert not any("carbon_scope" in note for note in rented().notes)


def test_hours_of_a_site_count_with_their_mean_whenever_a_job_runs() -> None:
    # A run from midsummer on would meet a fifth of the grid that one from midwinter on meets.
    swinging = {"region": "us-iowa", "grid_profile": {"mean": 0.3, "yearly_amplitude": 0.2}}
    flat = {"region": "us-iowa", "grid_kgco2e_per_kwh": 0.3}
    by_hour, by_mean = (plan_purchase(fleet_with(offer(rent=RENT), site=site)) for site in (swinging, flat))
    assert by_hour.carbon_kgco2e == pytest.approx(by_mean.carbon_kgco2e, rel=1e-9)
    (note,) = notes_on(offer(rent=RENT), site=swinging)
    assert note == "site.grid_profile counts with the mean of all hours, whenever jobs run"
    assert notes_on(offer(rent=RENT), site=flat) == ()


def test_the_profile_of_a_site_is_a_file_beside_the_fleet_wherever_its_jobs_are(tmp_path: Path) -> None:
    hours = [f"2025-01-01T{hour:02}:00:00,{100 * (1 + hour % 3)}" for hour in range(24)]
    (tmp_path / "grid.csv").write_text("\n".join(["timestamp,g/kWh", *hours]))
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "job.yaml").write_text(json.dumps(JOBS[0]["job"]))
    beside = [{**JOBS[0], "job": "jobs/job.yaml"}]
    site = {"region": "us-iowa", "grid_profile": "grid.csv"}
    fleet = fleet_with(offer(rent=RENT), jobs=beside, site=site)
    job = job_on(fleet, fleet.jobs[0], fleet.offers[0], tmp_path)
    assert job.site.grid_kgco2e_per_kwh == pytest.approx(0.2)
    missing = fleet.model_copy(update={"site": {**site, "grid_profile": "none.csv"}})
    with pytest.raises(InputError, match=r"'\.\./none\.csv': cannot be read"):
        job_on(missing, fleet.jobs[0], fleet.offers[0], tmp_path)


def test_nodes_that_are_taken_back_are_an_offer_of_their_own() -> None:
    spot = {**RENT, "interruptions_per_1000_node_days": 50}
    with pytest.raises(
        InputError, match=r"must stand in an offer without buy and reserve: repeat the accelerator"
    ):
        fleet_with(offer(rent=spot, reserve=RESERVE))


@pytest.mark.parametrize(
    ("limit_w", "is_told"), [(None, False), (410.0, True), (2000.0, False), (410e3, False)]
)
def test_power_below_that_of_a_node_is_told(limit_w: float | None, is_told: bool) -> None:
    notes = power_notes(FleetLimits(power_w=limit_w), [2500.0, 2000.0])
    assert bool(notes) == is_told
    if is_told:
        assert "limits.power_w = 410 W is less than a single node draws when idle, 2.00 kW" in notes[0]
    assert power_notes(FleetLimits(power_w=410.0), []) == ()  # nothing is for sale


def test_power_in_kilowatts_is_told_where_nothing_can_be_bought() -> None:
    plan = plan_purchase(fleet_with(offer(rent=RENT, buy=BUY), limits={"power_w": 410}))
    assert any("Is it in watts?" in note for note in plan.notes)


@pytest.mark.parametrize(("days", "is_told"), [(90, False), (91, True)])
def test_terms_that_lead_beyond_the_horizon_are_told(days: float, is_told: bool) -> None:
    fleet = fleet_with(offer(reserve={**RESERVE, "term_days": days, "first_start_day": 10}))
    assert any("leads beyond horizon_days (100)" in note for note in told(fleet)) == is_told


@pytest.mark.parametrize(("share", "is_told"), [(0.5, True), (0.95, True), (1.0, False)])
def test_a_share_of_idle_time_is_said_not_to_be_looked_at(share: float, is_told: bool) -> None:
    fleet = fleet_with(offer(buy=BUY), ownership={"utilization_fraction": share})
    assert any("utilization_fraction" in note for note in told(fleet)) == is_told


@pytest.mark.parametrize("fixed", [0.0, 1.0])
def test_an_idle_node_draws_its_share_of_the_network_and_of_cooling_that_never_rests(fixed: float) -> None:
    site = {"region": "us-iowa", "power_usage_effectiveness": 1.5, "cooling_fixed_fraction": fixed}
    price = prices_of(fleet_with(offer(buy={**BUY, "max_nodes": 64}), site=site))
    # DGX H100: 70 W of 700 each, 78 % of 1,200 W of host, half of 1,100 W of fans; 512 of them have 67 W of network each.
    network_w = 8 * (3 * 747 / 64 + 4 * 8)
    idle_w = (8 * 70 + 0.78 * 1200) / 0.95 + 550 + network_w
    busy_w = (8 * 700 + 1200) / 0.95 + 1100 + network_w
    assert price.idle_w == pytest.approx(idle_w + 0.5 * (busy_w if fixed else idle_w))


def test_storage_bought_for_a_run_is_part_of_its_cost_and_of_no_node() -> None:
    def fleet(capacity_bytes: float) -> Fleet:
        stores = with_sections(job("first", 1e11, 0, 60), storage={"capacity_bytes": capacity_bytes})
        return fleet_with(offer(rent=RENT, buy=BUY), jobs=[stores])

    bare, stored = fleet(0.0), fleet(1e16)
    assert prices_of(stored).owned_usd(100.0) == prices_of(bare).owned_usd(100.0)
    assert prices_of(stored).idle_w == prices_of(bare).idle_w
    (run,) = plan_purchase(stored).runs
    hours = round((run.end_day - run.start_day) * 24)
    assert run.kind == "rented"
    # 4 million USD over 5 years at 8 %: an annuity of 25.05 %. Rent is paid for whole hours, of which there are more than 50.
    rent_usd = 3.0 * run.num_gpus * hours
    assert run.cost_usd - rent_usd == pytest.approx(4e6 * 0.250456 * hours / 8766, rel=0.02)


def test_cheap_nodes_are_bought_and_dear_ones_are_not() -> None:
    almost_free = {**BUY, "usd_per_node": 10e3, "first_delivery_day": 0}
    plan = plan_purchase(fleet_with(offer(rent=RENT, buy=almost_free)))
    assert {run.kind for run in plan.runs} == {"bought"}
    assert plan.all_buy_usd == plan.cost_usd
    dear = {**BUY, "usd_per_node": 1e7}
    assert plan_purchase(fleet_with(offer(rent=RENT, buy=dear))).acquisitions == ()


def test_nodes_of_a_long_horizon_are_held_to_its_last_day() -> None:
    almost_free = {**BUY, "usd_per_node": 10e3, "first_delivery_day": 0}
    plan = plan_purchase(fleet_with(offer(buy=almost_free), horizon_days=1826))
    console = Console(width=200, record=True, file=StringIO())
    show_purchase(plan, console)
    bought = next(line.split() for line in console.export_text().splitlines() if line.startswith("  buy "))
    assert "1,826" in bought


def test_limits_keep_the_plan_from_buying_and_are_said_to_bind() -> None:
    almost_free = {**BUY, "usd_per_node": 10e3, "first_delivery_day": 0}
    plan = plan_purchase(fleet_with(offer(rent=RENT, buy=almost_free), limits={"capital_usd": 9e3}))
    assert {run.kind for run in plan.runs} != {"bought"}
    free = plan_purchase(fleet_with(offer(rent=RENT, buy=almost_free)))
    saving = {rule.constraint: rule.saving_usd for rule in plan.binding}
    assert plan.cost_usd is not None
    assert free.cost_usd is not None
    assert saving["capital_usd"] == pytest.approx(plan.cost_usd - free.cost_usd, rel=1e-6)
    console = Console(width=200, record=True, file=StringIO())
    show_purchase(plan, console)
    told = "capital_usd: the capital cost of purchases must not exceed the limit; without it the plan costs less, by at least $"
    assert told in console.export_text()


def test_deadlines_that_contradict_the_supply_are_named_and_each_could_give_way() -> None:
    # Each run takes about 16 days of the one node that there is, so that two of them do not fit 20 days.
    def fleet(first: float = 20, second: float = 20, max_nodes: int = 1) -> Fleet:
        jobs = [job("first", 1e11, 0, first), job("second", 1e11, 0, second)]
        return fleet_with(offer(rent={**RENT, "max_nodes": max_nodes}), jobs=jobs)

    plan = plan_purchase(fleet())
    assert (plan.status, plan.cost_usd, plan.runs) == ("infeasible", None, ())
    assert plan.conflict == (
        "job_window: first",
        "job_window: second",
        "node_supply: h100-sxm5-80gb rented",
    )
    for other in (fleet(first=40), fleet(second=40), fleet(max_nodes=2)):
        assert plan_purchase(other).status == "optimal"


def test_what_the_effort_does_not_decide_is_said_to_be_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def hurried(problem: PurchaseProblem, *, effort: float) -> Solution:
        is_decided = problem.pools[0].max_nodes == 1 and effort > SIDE_EFFORT
        unknown = Solution(status="unknown", choice=None, cost_usd=None, bound_usd=0)
        return cheapest(problem, effort=effort) if is_decided else unknown

    monkeypatch.setattr(answer, "cheapest", hurried)
    jobs = [job("first", 1e11, 0, 20), job("second", 1e11, 0, 20)]
    plan = plan_purchase(fleet_with(offer(rent={**RENT, "max_nodes": 1}), jobs=jobs))
    supply = "node_supply: h100-sxm5-80gb rented"
    assert (plan.all_rent_usd, plan.all_buy_usd) == (None, None)
    assert plan.undecided == ("all_rent_usd", "all_buy_usd", supply)
    assert plan.conflict == ("job_window: first", "job_window: second", supply)
    console = Console(width=200, record=True, file=StringIO())
    show_purchase(plan, console)
    told = (
        "node_supply (h100-sxm5-80gb rented): nodes bought, reserved, or rented at once must not exceed those on offer "
        "(possibly: without it no plan was found with this effort)"
    )
    assert told in console.export_text()


def test_a_budget_below_every_plan_is_at_fault_alone() -> None:
    plan = plan_purchase(fleet_with(offer(rent=RENT), limits={"budget_usd": 100.0}))
    assert (plan.status, plan.conflict) == ("infeasible", ("fleet_budget_usd",))
    assert plan.all_rent_usd == rented().cost_usd


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("terms", "name", "little", "enough"),
    [
        # One node is enough, and alone it needs no network.
        ({"buy": BUY | {"first_delivery_day": 0}}, "capital_usd", 2e5, 250e3),
        ({"rent": RENT}, "budget_usd", 100.0, None),
    ],
)
def test_the_least_money_that_is_enough_is_told_and_is_enough(
    terms: Mapping[str, object], name: str, little: float, enough: float | None
) -> None:
    plan = plan_purchase(fleet_with(offer(**terms), limits={name: little}))
    assert plan.status == "infeasible"
    (told,) = plan.enough.items()
    least = enough if enough is not None else rounded_up(rented().cost_usd or 0.0)
    assert told == (name, least)
    assert plan_purchase(fleet_with(offer(**terms), limits={name: least})).status == "optimal"
    assert plan_purchase(fleet_with(offer(**terms), limits={name: 0.999 * least})).status == "infeasible"
    console = Console(width=200, record=True, file=StringIO())
    show_purchase(plan, console)
    assert f"limits.{name} = {human.no_less(least)} (" in console.export_text()


def test_the_least_power_that_is_enough_is_told_and_is_enough() -> None:
    bought = offer(buy=BUY | {"first_delivery_day": 0})
    plan = plan_purchase(fleet_with(bought, limits={"power_w": 100.0}))
    assert (plan.status, plan.conflict) == ("infeasible", ("site_power_w",))
    least_w = plan.enough["power_w"]
    assert plan_purchase(fleet_with(bought, limits={"power_w": least_w})).status == "optimal"
    assert plan_purchase(fleet_with(bought, limits={"power_w": 0.99 * least_w})).status == "infeasible"
    console = Console(width=200, record=True, file=StringIO())
    show_purchase(plan, console)
    assert f"limits.power_w = {human.no_less(least_w)} ({human.power(least_w)})" in console.export_text()


def test_money_is_not_said_to_be_enough_where_deadlines_stand_in_the_way_too() -> None:
    jobs = [job("first", 1e11, 0, 20), job("second", 1e11, 0, 20)]
    fleet = fleet_with(offer(rent={**RENT, "max_nodes": 1}), jobs=jobs, limits={"budget_usd": 100.0})
    plan = plan_purchase(fleet)
    assert (plan.status, plan.enough) == ("infeasible", {})


def test_a_job_longer_than_a_window_that_ends_with_the_horizon_is_named() -> None:
    fleet = fleet_with(
        offer(rent={"usd_per_gpu_hour": 2.0, "max_nodes": 1}),
        jobs=[job("late", 2e12, 15, 20)],
        horizon_days=20,
    )
    plan = plan_purchase(fleet)
    assert (plan.status, plan.conflict) == ("infeasible", ("job_window: late",))
    console = Console(width=200, record=True, file=StringIO())
    show_purchase(plan, console)
    assert re.search(r"CP-SAT: proven over \d+ designs? of 1 job\.", console.export_text())


def test_a_job_that_no_offer_can_run_is_named_whatever_its_own_budget() -> None:
    huge = job("huge", 1e11, 0, 60)
    run = {
        "workload": {
            "model": "llama-3.1-405b",
            "tokens": 1e11,
            "sequence_length": 8192,
            "global_batch_size": 64,
        }
    }
    small = with_sections(JOBS[0], limits={"budget_usd": 1.0})
    jobs = [small, {**huge, "job": {**run, "search": SEARCH}}]
    plan = plan_purchase(fleet_with(offer(rent={**RENT, "max_nodes": 1}), jobs=jobs))
    assert (plan.status, plan.conflict) == ("infeasible", ("no design: huge",))
    console = Console(width=200, record=True, file=StringIO())
    show_purchase(plan, console)
    assert "no design (huge): no offer can run this job; capplan explain says which" in console.export_text()
    assert plan.num_designs["first"] > 0


@pytest.mark.parametrize("tokens", [1e11, 1e9])
def test_designs_of_a_job_need_less_time_the_more_nodes_they_have(tokens: float) -> None:
    fleet = fleet_with(offer(rent=RENT), jobs=[job("first", tokens, 0, 60)])
    alone = job_on(fleet, fleet.jobs[0], fleet.offers[0], Path())
    found = candidates_of(alone, (0, 0), seed=0)
    nodes, hours = [one.num_nodes for one in found], [one.wall_s for one in found]
    assert nodes == sorted(set(nodes))
    assert nodes[0] == 1
    assert hours == sorted(hours, reverse=True)
    whole = [one.duration_h for one in found]
    assert whole == [math.ceil(one.wall_s / 3600) for one in found]
    assert all(more < fewer for fewer, more in pairwise(whole))


LARGE = {
    "name": "large",
    "deadline_day": 100,
    "job": {
        "workload": {
            "model": "llama-3.1-70b",
            "tokens": 1e10,
            "sequence_length": 8192,
            "global_batch_size": 256,
        },
        "search": {**SEARCH, "tensor_parallel": [8], "pipeline_parallel": [1, 2, 4], "zero_stages": [1, 3]},
    },
}
"""A run that takes 2 nodes longer than twice as long as 4, and these longer than twice as long as 8."""


def with_nodes_on_sale(max_nodes: int, limits: Mapping[str, float] | None = None, /, **more: object) -> Fleet:
    """A fleet with the large run and a little staff; 2 to 8 nodes have one tier of switches, 9 to 256 two."""
    sale = offer(buy={**BUY, "first_delivery_day": 0, "max_nodes": max_nodes}, **more)
    return fleet_with(sale, jobs=[LARGE], limits=limits or {}, ownership={"staff_usd_per_year": 1e4})


# Two nodes take 11.33 days, which only their simulation tells.
@pytest.mark.parametrize(("limits", "sizes"), [({}, [2, 4]), ({"deadline_days": 11.3}, [4])])
def test_each_number_of_nodes_has_the_fastest_design_of_all_that_keep_every_limit_of_the_job(
    limits: dict[str, float], sizes: list[int]
) -> None:
    fleet = fleet_with(offer(rent={**RENT, "max_nodes": 4}), jobs=[with_sections(LARGE, limits=limits)])
    alone = alone_in(fleet)
    every = evaluate(alone, pruned_space(alone).designs())
    held = num_held_gpus(alone, every.plans) / GPUS_PER_NODE
    found = candidates_of(alone, (0, 0), seed=0)
    assert [one.num_nodes for one in found] == sizes
    for one in found:
        is_own = every.is_feasible & (held == one.num_nodes)
        assert one.wall_s == every.scores.time_to_train_s[is_own].min()


@pytest.mark.parametrize(
    "more",
    [
        {"rent": {"usd_per_gpu_hour": 99.0, "max_nodes": 64}},
        {"reserve": {"usd_per_gpu_hour": 99.0, "max_nodes": 64, "term_days": 30}},
    ],
)
def test_a_way_more_to_have_nodes_costs_no_more(more: dict[str, object]) -> None:
    alone, both = plan_purchase(with_nodes_on_sale(2)), plan_purchase(with_nodes_on_sale(2, **more))
    assert both.cost_usd == both.all_buy_usd == alone.cost_usd is not None


@pytest.mark.long
@pytest.mark.parametrize("limits", [{}, {"capital_usd": 6e5}, {"power_w": 26e3}, {"budget_usd": 2e4}])
def test_more_nodes_on_sale_cost_no_more_and_limits_that_few_keep_can_be_kept(
    limits: dict[str, float],
) -> None:
    few, *more = (plan_purchase(with_nodes_on_sale(most, limits)) for most in (2, 8, 64))
    for many in more:
        assert (many.status, many.cost_usd) == ("optimal", few.cost_usd)
        assert [run.num_nodes for run in many.runs] == [2]
        assert (many.capital_usd, many.staff_usd) == (few.capital_usd, few.staff_usd)
        assert many.carbon_kgco2e == few.carbon_kgco2e


def test_bought_nodes_pay_for_the_network_that_they_need_and_for_all_of_the_staff() -> None:
    plan = plan_purchase(with_nodes_on_sale(64))
    (held,) = plan.acquisitions
    assert (held.num_nodes, held.from_day) == (2, 80)
    # One tier: one port of 2,100 USD for each accelerator.
    assert plan.capital_usd == 2 * (250e3 + GPUS_PER_NODE * 2100)
    assert plan.staff_usd == pytest.approx(1e4 * 20 / 365.25, abs=0.5)
    parts = [held.cost_usd, plan.staff_usd, *(run.cost_usd for run in plan.runs)]
    assert plan.cost_usd == pytest.approx(sum(parts))


@pytest.mark.short(1)
@pytest.mark.parametrize("tokens", [2e10, 4e11, 1.2e12])
def test_no_number_of_nodes_is_cheaper_at_its_own_price(tokens: float) -> None:
    once = {"first_delivery_day": 0, "delivery_every_days": 100, "max_nodes": 64}
    fleet = fleet_with(offer(buy={**BUY, **once}), jobs=[job("only", tokens, 0, 60)])
    alone = alone_in(fleet)
    costs = []
    for found in candidates_of(alone, (0, 0), seed=0):
        price = node_prices(alone, fleet.offers[0], found.num_nodes)
        held = price.owned_usd(2400) + price.usd_per_kwh * price.idle_w / 1e3 * 2400
        above = found.energy_kwh - found.idle_power_w / 1e3 * found.wall_s / 3600
        if found.duration_h <= 60 * 24:
            costs.append(found.num_nodes * held + price.usd_per_kwh * above)
    assert plan_purchase(fleet).cost_usd == pytest.approx(
        min(costs), abs=40
    )  # dollars of 64 nodes and a run are rounded


MADE = ("accelerators", "hosts", "network", "building")


def alone_in(fleet: Fleet) -> Job:
    return job_on(fleet, fleet.jobs[0], fleet.offers[0], Path())


def carbon_alone(fleet: Fleet, plan: PurchasePlan) -> Mapping[str, float]:
    """What `simulate` says that the first run emits, part by part."""
    found = simulate_plan(
        alone_in(fleet), plan.runs[0].plan.model_dump(exclude_unset=True), with_sensitivities=False
    )
    assert found.design is not None
    return found.design.carbon_parts_kgco2e


@pytest.mark.parametrize("share", [0.85, 0.5])
def test_a_run_on_rented_nodes_emits_what_it_does_alone(share: float) -> None:
    terms = {} if share == 0.85 else {"utilization_fraction": share}
    fleet = fleet_with(offer(rent=RENT), jobs=[LARGE], ownership=terms)
    plan = plan_purchase(fleet)
    parts = carbon_alone(fleet, plan)
    assert plan.runs[0].carbon_kgco2e == plan.carbon_kgco2e == pytest.approx(sum(parts.values()), rel=1e-9)


@pytest.mark.parametrize("kind", ["bought", "reserved"])
def test_nodes_emit_as_long_as_they_are_held_and_runs_what_comes_on_top(kind: str) -> None:
    reserved = {**RESERVE, "max_nodes": 2, "start_every_days": 80}
    sale = offer(buy={**BUY, "max_nodes": 2}) if kind == "bought" else offer(reserve=reserved)
    fleet = fleet_with(sale, jobs=[LARGE])
    plan = plan_purchase(fleet)
    (held,), (run,), price = plan.acquisitions, plan.runs, prices_of(fleet)
    parts = carbon_alone(fleet, plan)
    (found,) = (one for one in candidates_of(alone_in(fleet), (0, 0), seed=0) if one.plan == run.plan)
    held_h, run_h = (held.to_day - held.from_day) * 24, found.wall_s / 3600
    # The run's share of the making, at a utilization of 0.85, over its hours is that of any hour; idle ones draw idle power.
    made = 0.85 * sum(parts[f"embodied_{part}_kgco2e"] for part in MADE) * held_h / run_h
    idle = parts["operational_kgco2e"] / run.energy_kwh * 2 * price.idle_w / 1e3 * (held_h - run_h)
    on_its_own = parts["operational_kgco2e"] + parts["embodied_replacements_kgco2e"]
    assert plan.carbon_kgco2e == pytest.approx(made + idle + on_its_own, rel=1e-9)
    assert plan.carbon_kgco2e == pytest.approx(held.carbon_kgco2e + run.carbon_kgco2e, rel=1e-12)


def test_what_a_design_draws_when_idle_has_its_spares_and_what_it_uses_up_its_storage() -> None:
    sections = {
        "storage": {"capacity_bytes": 1e16},
        "carbon_scope": {"storage": True},
        "reliability": "harsh",
        "search": {
            **SEARCH,
            "tensor_parallel": [8],
            "pipeline_parallel": [1, 2],
            "zero_stages": [3],
            "with_spares": [True],
        },
    }
    fleet = fleet_with(offer(rent={**RENT, "max_nodes": 4}), jobs=[with_sections(LARGE, **sections)])
    alone = alone_in(fleet)
    found = next(one for one in candidates_of(alone, (0, 0), seed=0) if one.plan.num_spare_nodes)
    # One tier of switches, at whose ports spares draw nothing: 747 W for 64 ports, and two transceivers of 8 W.
    network_w = 8 * (747 / 64 + 2 * 8) * alone.site.power_usage_effectiveness
    held_w = found.num_nodes * node_prices(alone, fleet.offers[0], found.num_nodes).idle_w
    assert found.idle_power_w == pytest.approx(held_w - found.plan.num_spare_nodes * network_w)
    plan = found.plan.model_dump(exclude_unset=True)
    design = simulate_plan(alone, plan, with_sensitivities=False).design
    assert design is not None
    parts = design.carbon_parts_kgco2e
    stored, replaced = (parts[f"embodied_{part}_kgco2e"] for part in ("storage", "replacements"))
    assert min(stored, replaced) > 0.0
    # The job alone shares out hours in which nobody uses the storage, 15 of 100; in a fleet, every hour counts.
    assert found.used_up_kgco2e == pytest.approx(0.85 * stored + replaced)
    # Making and price are used up alike: 0.16 kg and 0.4 USD per GB over 5 years, the price as an annuity of 8 %.
    assert 0.85 * stored / 1.6e6 == pytest.approx(found.storage_usd / 4e6 / (5 * 0.250456), rel=1e-5)


def test_designs_for_few_nodes_are_the_same_whatever_the_most() -> None:
    few, many = (
        candidates_of(job_on(fleet, fleet.jobs[0], fleet.offers[0], Path()), (0, 0), seed=0)
        for fleet in map(with_nodes_on_sale, (4, 64))
    )
    assert [one.num_nodes for one in few] == [2, 4]
    assert few == many[:2]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"jobs": []}, "jobs = .*needs 1 or more entries"),
        (
            {"jobs": [{"name": "none", "deadline_day": 9, "job": 1}]},
            r"jobs\[0\].job = 1: must be text; put it in quotes, or must be a mapping of fields$",
        ),
        ({"offers": [offer()]}, "give at least one of buy, reserve and rent"),
        ({"jobs": [job("late", 1e11, 0, 101)]}, "deadline_day of late .101. must be at most horizon_days"),
        ({"jobs": [job("never", 1e11, 50, 50)]}, "earliest_start_day .50. must be before deadline_day"),
        ({"jobs": [*JOBS, JOBS[0]]}, "jobs must have different names"),
        ({"limits": {"power": 1}}, "limits.power = 1: unknown field; nearest: power_w"),
        ({"limits": {"budget_usd": math.nan}}, "limits.budget_usd = nan: must be a finite number"),
        (
            {"limits": {"capital_usd": 1e300}},
            r"limits.capital_usd = 1e\+300: must be at most 1e\+15",
        ),
        (
            {"offers": [offer(reserve={**RESERVE, "term_days": 1e300})]},
            r"offers\[0\].reserve.term_days = 1e\+300: must be at most 3660",
        ),
        (
            {"offers": [offer(rent=RENT), offer(buy={**BUY, "delivery_every_days": 1e-300})]},
            r"offers\[1\].buy.delivery_every_days .1e-300. must leave at most 400 days within horizon_days .100.",
        ),
        (
            {"offers": [offer(buy={**BUY, "first_delivery_day": 0, "delivery_every_days": 0.2499})]},
            r"offers\[0\].buy.delivery_every_days .0.2499. must leave at most 400 days",
        ),
        (
            {"offers": [offer(reserve={**RESERVE, "start_every_days": 0.2})]},
            r"offers\[0\].reserve.start_every_days .0.2. must leave at most 400 days",
        ),
    ],
)
def test_fleets_that_make_no_sense_are_refused(fields: dict[str, object], message: str) -> None:
    document = {"horizon_days": 100, "site": "us-iowa", "jobs": JOBS, "offers": [offer(rent=RENT)], **fields}
    with pytest.raises(InputError, match=message):
        parse_record(Fleet, {"name": "fleet", **document})


@pytest.mark.parametrize(("first", "every", "num_days"), [(0, 0.25, 400), (50, 0.2, 250), (100, 1, 0)])
def test_nodes_can_come_on_four_hundred_days_of_the_horizon(
    first: float, every: float, num_days: int
) -> None:
    fleet = fleet_with(offer(buy={**BUY, "first_delivery_day": first, "delivery_every_days": every}))
    assert fleet.offers[0].buy is not None
    assert len(fleet.start_days(fleet.offers[0].buy)) == num_days


def test_problems_are_told_where_they_stand_in_the_fleet_each_once() -> None:
    broken = with_sections(JOBS[1], workload={"model": "llama-9"})
    unknown = {**offer(rent=RENT), "accelerator": "h900"}
    fleet = fleet_with(
        offer(rent=RENT), unknown, jobs=[JOBS[0], broken], site="nowhere", ownership={"lifetime_years": 0}
    )
    with pytest.raises(InputError, match=r"^fleet fleet: ") as caught:
        plan_purchase(fleet)
    paths = [problem.path for problem in caught.value.problems]
    assert len(set(paths)) == len(paths)
    assert {"ownership.lifetime_years", "site", "jobs[1].job.workload.model", "offers[1].accelerator"} <= set(
        paths
    )
    assert not any(path.startswith(("offers[0]", "jobs[0]")) for path in paths)


def test_a_job_may_be_the_path_of_a_job_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "workload: {model: llama-3.1-8b, tokens: 1e11, sequence_length: 8192, global_batch_size: 64}\n"
        "offers: [{accelerator: a100-sxm4-80gb, num_gpus: 8}]\nsite: norway\n"
        "search: {tensor_parallel: [2], pipeline_parallel: [1], micro_batch_sizes: [1], num_refinements: 0}\n"
    )
    one = {"name": "from file", "job": "run.yaml", "deadline_day": 100}
    fleet = fleet_with(offer(rent=RENT), jobs=[one])
    found = job_on(fleet, fleet.jobs[0], fleet.offers[0], tmp_path)
    assert (found.offers[0].accelerator.id, found.site.region) == ("h100-sxm5-80gb", "us-iowa")


def test_what_a_job_weighs_compares_or_may_cost_alone_is_not_asked_in_a_fleet() -> None:
    alone = {
        "objectives": ["carbon"],
        "preference": {"carbon": 2.0},
        "what_if": {"refresh_from": "a100-sxm4-80gb"},
        "limits": {"budget_usd": 1e6, "budget_probability": 0.9},
    }
    found = alone_in(fleet_with(offer(rent=RENT), jobs=[with_sections(JOBS[0], **alone)]))
    assert (found.preference, found.what_if, found.limits) == ({}, WhatIf(), Limits())


def test_every_number_of_nodes_is_searched_once_up_to_a_million_accelerators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[GpuRange] = []
    monkeypatch.setattr(ways, "searched_front", lambda part, *_: asked.append(part.offers[0].num_gpus))
    node = catalog.node("dgx-h100").model_dump(mode="json") | {"id": "own", "num_accelerators": 16}
    large = alone_in(fleet_with(offer(node=node, rent={**RENT, "max_nodes": 100_000})))
    assert candidates_of(large, (0, 0), seed=0) == ()
    assert [(each.min, each.max) for each in asked[:4]] == [(16, 16), (32, 32), (48, 64), (80, 128)]
    assert all(more.min == fewer.max + 16 for fewer, more in pairwise(asked))
    assert asked[-1].max == 1_000_000


def test_a_job_that_needs_more_nodes_than_there_are_has_no_design() -> None:
    pipeline = {**SEARCH, "tensor_parallel": [8], "pipeline_parallel": [4]}  # four nodes of eight

    def sizes(max_nodes: int) -> list[int]:
        rent = offer(rent={**RENT, "max_nodes": max_nodes})
        alone = alone_in(fleet_with(rent, jobs=[with_sections(JOBS[0], search=pipeline)]))
        return [one.num_nodes for one in candidates_of(alone, (0, 0), seed=0)]

    assert (sizes(3), sizes(4)) == ([], [4])


def notes_on(*offers: Mapping[str, object], **fields: object) -> tuple[str, ...]:
    return told(fleet_with(*offers, **fields))


def told(fleet: Fleet) -> tuple[str, ...]:
    return notes_of(fleet, Path(), jobs_of(fleet, Path()))


def test_a_budget_of_a_single_job_is_said_not_to_be_looked_at() -> None:
    bounded = with_sections(JOBS[0], limits={"budget_usd": 1e6, "deadline_days": 50})
    (note,) = notes_on(offer(rent=RENT), jobs=[bounded, JOBS[1]])
    assert note.startswith("first: limits.budget_usd = 1e6 of the job is ignored")
    assert notes_on(offer(rent=RENT, buy=BUY, reserve=RESERVE)) == ()


@pytest.mark.parametrize(("deadline_day", "is_told"), [(110.0, True), (124.9, True), (125.0, False)])
def test_a_run_that_ends_just_before_its_deadline_is_named(deadline_day: float, is_told: bool) -> None:
    # A hundred days, so that fifteen are little.
    dates = {"start_day": 10.0, "end_day": 110.0, "deadline_day": deadline_day}
    found = " ".join(slack_notes([rented().runs[0].model_copy(update=dates)]))
    assert ("first (" in found) == is_told
    assert ("first (0 days after a run of 100)" in found) == (deadline_day == 110.0)


def test_the_answer_names_runs_without_slack() -> None:
    plan = rented()
    days = plan.runs[1].end_day - plan.runs[1].start_day
    tight = [JOBS[0], {**JOBS[1], "deadline_day": plan.runs[1].start_day + 1.05 * days}]
    assert "second (" in " ".join(plan_purchase(fleet_with(offer(rent=RENT), jobs=tight)).notes)


def test_prices_in_another_unit_are_told() -> None:
    # Per hour of a node, and of one GPU, of which a node has eight.
    node_hour, one_gpu = {**RENT, "usd_per_gpu_hour": 28.0}, {**BUY, "usd_per_node": 31e3}
    rent, price = notes_on(offer(rent=node_hour, reserve=RESERVE, buy=one_gpu))
    assert rent.startswith("The rent of h100-sxm5-80gb, 28 USD per GPU-hour, is far outside")
    assert price.startswith("The price of a node dgx-h100, 31,000 USD, is far from the catalogue's 270,000")
    own = {**catalog.node("dgx-h100").model_dump(mode="json", exclude_none=True), "id": "own"}
    assert notes_on(offer(node=own, buy=one_gpu)) == ()
    reserved = {**RESERVE, "usd_per_gpu_hour": 28.0}
    assert notes_on(offer(reserve=reserved)) == notes_on(offer(rent=node_hour, reserve=reserved)) == (rent,)


def test_offers_that_come_after_the_last_deadline_are_named() -> None:
    late = offer(
        rent=RENT, buy={**BUY, "first_delivery_day": 100}, reserve={**RESERVE, "first_start_day": 400}
    )
    bought, reserved = notes_on(late)
    assert "offers[0].buy.first_delivery_day (100) is not before the last deadline (day 100)" in bought
    assert "offers[0].reserve.first_start_day (400)" in reserved
    just_in_time = {**BUY, "first_delivery_day": 99}
    assert notes_on(offer(buy=just_in_time)) == ()


def test_an_accelerator_that_stands_in_two_offers_is_named_as_two_supplies() -> None:
    other = {"accelerator": "a100-sxm4-80gb", "rent": RENT}
    (note,) = notes_on(offer(rent=RENT), other, offer(rent={**RENT, "usd_per_gpu_hour": 4.0}))
    assert note.startswith(
        "h100-sxm5-80gb occurs in offers[0] and offers[2]: each counts as a separate supply"
    )


def test_other_terms_for_the_same_accelerator_are_no_second_supply() -> None:
    year, spot = {**RESERVE, "term_days": 60}, {**RENT, "interruptions_per_1000_node_days": 50}
    assert (
        notes_on(
            offer(buy=BUY), offer(rent=RENT), offer(rent=spot), offer(reserve=RESERVE), offer(reserve=year)
        )
        == ()
    )
    (note,) = notes_on(offer(buy=BUY, rent=RENT), offer(buy=BUY, rent=RENT))
    assert note.startswith("h100-sxm5-80gb occurs in offers[0] and offers[1]: ")


FLEET_TEXT = """
horizon_days: 100
site: us-iowa
offers: [{accelerator: h100-sxm5-80gb, rent: {usd_per_gpu_hour: 3.0, max_nodes: 4}}]
jobs:
  - name: only
    deadline_day: 60
    job:
      limits: {budget_usd: 10}
      workload: {model: llama-3.1-8b, tokens: 1e11, sequence_length: 8192, global_batch_size: 64}
      search: {tensor_parallel: [2], pipeline_parallel: [1], micro_batch_sizes: [1], num_refinements: 0}
"""


def test_the_command_shows_the_plan_in_words_and_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(FLEET_TEXT)
    assert cli.main(["purchase", str(file)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Cheapest plan for small: $")
    assert "None: all runs rent." in shown
    assert cli.main(["purchase", str(file), "--json"]) == 0
    plan = PurchasePlan.model_validate_json(capsys.readouterr().out)
    assert [run.job for run in plan.runs] == ["only"]
    of_budget, of_cooling = plan.notes
    assert of_budget.startswith("only: limits.budget_usd = 10 of the job is ignored")
    assert of_cooling.startswith(
        "The power usage effectiveness of us-iowa, 1.44, is the catalogue's estimate"
    )
    assert all(note in " ".join(shown.split()) for note in plan.notes)
    file.write_text(FLEET_TEXT.replace("deadline_day: 60", "deadline_day: 0.1"))
    assert cli.main(["purchase", str(file)]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "Conflicting constraints job_window (only): every job must run between its earliest start and its deadline"
        in shown
    )


def test_paths_of_a_fleet_start_at_its_file_from_whatever_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
site: us-iowa
offers: [{accelerator: h100-sxm5-80gb, rent: {usd_per_gpu_hour: 2.5, max_nodes: 4}}]
jobs: [{name: only, deadline_day: 90, job: jobs/only.yaml}]
"""
    (tmp_path / "fleet.yaml").write_text(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"^\.\./jobs/only\.yaml: .*\n.*No such file"):
        plan_purchase(load_fleet("../fleet.yaml"))


def test_values_of_a_fleet_are_replaced_where_they_are_asked_for() -> None:
    changes = [
        "limits.capital_usd=2e6",
        "jobs[1].deadline_day=200",
        "offers[1].rent.max_nodes=8",
        "limits.power_w=null",
    ]
    fleet = load_fleet(EXAMPLE, changes)
    asked, usual = fleet.limits, load_fleet(EXAMPLE)
    assert (asked.capital_usd, asked.power_w, fleet.jobs[1].deadline_day) == (2e6, None, 200)
    assert fleet.offers[1].max_nodes == 8
    assert (usual.limits.capital_usd, usual.limits.power_w, fleet.name) == (4e6, 90e3, usual.name)
    with pytest.raises(InputError, match=r"fleet\.yaml: 2 problems") as refused:
        load_fleet(EXAMPLE, ["limits.capital=1", "offers[9].rent=null"])
    assert [problem.path for problem in refused.value.problems] == ["offers[9]", "limits.capital"]


def unrefined(fleet: Fleet) -> Fleet:
    """The same fleet, each of whose designs is searched without refinement, which takes half of the time."""
    jobs = []
    for one in fleet.jobs:
        assert isinstance(one.job, dict)
        search = one.job["search"]
        assert isinstance(search, dict)
        jobs.append(one.model_copy(update={"job": {**one.job, "search": {**search, "num_refinements": 0}}}))
    return fleet.model_copy(update={"jobs": tuple(jobs)})


@pytest.mark.long
def test_the_example_is_proven_and_cheaper_than_rent_and_keeps_to_its_room() -> None:
    plan = plan_purchase(unrefined(load_fleet(EXAMPLE)))
    assert plan.status == "optimal"
    assert plan.cost_usd is not None
    assert plan.all_rent_usd is not None
    assert plan.cost_usd < plan.all_rent_usd
    assert (
        plan.all_buy_usd is None
    )  # the room has power for six nodes or seven, which are too slow for the deadlines
    assert 0 < plan.peak_power_w <= 90e3
