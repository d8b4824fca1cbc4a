"""Are the dollars, hours and nodes of the model those of the fleet? Designs and prices that are made up, and sums by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from constraints.purchase_model import Solution, cheapest
from constraints.purchase_problem import PurchaseProblem
from planner.input.record_input import parse_record
from planner.purchase import answer
from planner.purchase.answer import SIDE_EFFORT, plan_purchase
from planner.purchase.fleet import Fleet
from planner.purchase.plan import PurchasePlan
from planner.purchase.prices import NodePrices, node_prices
from planner.purchase.problem import PooledProblem, pooled_problem
from planner.purchase.rules import rules_of
from planner.purchase.sizes import MOST_SIZES
from planner.purchase.view import show_purchase
from planner.purchase.ways import Candidate, job_on
from simulator.domain.job import Job
from simulator.domain.plan import Plan

MONTH_H = 365.25 * 24 / 12
BUY = {
    "usd_per_node": 250e3,
    "max_nodes": 8,
    "first_delivery_day": 20,
    "delivery_every_days": 40,
    "max_lots": 1,
}
RESERVE = {"usd_per_gpu_hour": 2.0, "max_nodes": 4, "term_days": 30, "first_start_day": 80}
RENT = {"usd_per_gpu_hour": 3.0, "max_nodes": 8}
RUN = {
    "workload": {"model": "llama-3.1-8b", "tokens": 1e11, "sequence_length": 8192, "global_batch_size": 64}
}


def fleet_of(*jobs: tuple[float, float], limits: Mapping[str, float] | None = None, **terms: object) -> Fleet:
    """A hundred days in which each job runs between two of them."""
    named = [
        {"name": f"job {number}", "earliest_start_day": start, "deadline_day": end, "job": RUN}
        for number, (start, end) in enumerate(jobs)
    ]
    offers = [{"accelerator": "h100-sxm5-80gb", **terms}]
    document = {"name": "fleet", "horizon_days": 100, "site": "us-iowa", "jobs": named, "offers": offers}
    return parse_record(Fleet, {**document, "limits": limits or {}})


def price_of(most_nodes: int) -> NodePrices:
    """10 USD an hour for the node and 1 USD for staff, 0.1 USD/kWh and 0.5 USD/W a month for electricity."""
    return NodePrices(
        gpus=8,
        most_nodes=most_nodes,
        owned_parts_usd=lambda hours: {"capital_usd": 10.0 * hours},
        left_usd=lambda hours: 250_000.4 - 10.0 * hours,
        capital_usd=250_000.4,
        staff_usd_per_year=365.25 * 24,
        idle_w=1000.5,
        usd_per_kwh=0.1,
        usd_per_w_month=0.5,
        made_kgco2e=lambda hours: 0.2 * hours,
        kgco2e_per_kwh=0.4,
    )


def design(job: int, num_nodes: int, hours: float) -> Candidate:
    """Nodes of 5,000.25 W at most, 2 kW when idle and 4 kW in the mean."""
    size = 8 * num_nodes
    return Candidate(
        job=job,
        offer=0,
        num_nodes=num_nodes,
        wall_s=hours * 3600,
        energy_kwh=4.0 * num_nodes * hours,
        peak_power_w=5000.25 * num_nodes,
        idle_power_w=2000.0 * num_nodes,
        carbon_kgco2e=1.0,
        operational_kgco2e=1.0,
        used_up_kgco2e=0.0,
        storage_usd=7.0,
        plan=Plan(offer=0, num_gpus=size, data_parallel=size),
    )


def pooled(fleet: Fleet, *designs: Candidate, sizes: tuple[int, ...] = (8,)) -> PooledProblem:
    return pooled_problem(fleet, [[price_of(most) for most in sizes]], designs)


def test_lots_cost_from_their_day_to_the_end_and_terms_for_as_long_as_they_last() -> None:
    bought, reserved, rented = pooled(
        fleet_of((0, 100), buy=BUY, reserve=RESERVE, rent=RENT), design(0, 2, 10.0)
    ).problem.pools
    assert [(lot.start_h, lot.end_h) for lot in bought.lots] == [(20 * 24, 2400), (60 * 24, 2400)]
    for lot, hours in zip(bought.lots, (80 * 24, 40 * 24), strict=True):
        idle_usd = 0.1 * 1.0005 * hours + 0.5 * 1000.5 * hours / MONTH_H
        assert lot.usd_per_node == round(10 * hours + idle_usd)
        assert (lot.capital_usd_per_node, lot.staff_usd) == (250_000, hours)
    assert (bought.max_nodes, bought.max_lots, bought.idle_w_per_node) == (8, 1, 1001)
    (term,) = reserved.lots
    assert (term.start_h, term.end_h) == (80 * 24, 110 * 24)
    assert (term.usd_per_node, term.capital_usd_per_node, term.staff_usd) == (2.0 * 8 * 30 * 24, 0, 0)
    assert (reserved.max_nodes, reserved.max_lots, reserved.idle_w_per_node) == (4, 1, 0)
    assert (rented.max_nodes, rented.lots, rented.idle_w_per_node) == (8, (), 0)


def test_a_run_costs_what_it_adds_to_nodes_that_are_there_or_its_rent() -> None:
    fleet = fleet_of((0, 100), buy=BUY, reserve=RESERVE, rent=RENT)
    bought, reserved, rented = pooled(fleet, design(0, 2, 99.5)).problem.ways
    # Two nodes draw 4 kW above idle power in the mean, and 6,000.5 W at most, for 99.5 hours.
    added_usd = 0.1 * 4.0 * 99.5 + 0.5 * 6000.5 * 99.5 / MONTH_H
    assert (bought.usd, bought.above_idle_w) == (round(7 + added_usd), 6001)
    assert (reserved.usd, reserved.above_idle_w) == (7, 0)
    # Rent is paid for whole hours.
    assert (rented.usd, rented.above_idle_w) == (7 + 3.0 * 8 * 2 * 100, 0)
    assert {(way.num_nodes, way.duration_h) for way in (bought, reserved, rented)} == {(2, 100)}


def test_windows_and_limits_are_in_whole_hours_and_dollars() -> None:
    fleet = fleet_of((0.99 / 24, 2.01 / 24), limits={"budget_usd": 9.9, "power_w": 5e3}, rent=RENT)
    problem = pooled(fleet).problem
    assert [(window.start_h, window.end_h) for window in problem.windows] == [(1, 2)]
    assert (problem.horizon_h, problem.budget_usd, problem.capital_usd, problem.power_w) == (
        2400,
        9,
        None,
        5000,
    )


def test_whole_hours_that_are_written_in_days_are_whole() -> None:
    hours = range(1, 2400, 49)
    fleet = fleet_of(*((hour / 24, (hour + 1) / 24) for hour in hours), rent=RENT)
    windows = pooled(fleet).problem.windows
    assert [(window.start_h, window.end_h) for window in windows] == [(hour, hour + 1) for hour in hours]


def test_terms_begin_with_the_next_whole_hour_and_last_as_many_as_they_touch() -> None:
    odd = {**RESERVE, "first_start_day": 80.01, "term_days": 29.99}
    (reserved,) = pooled(fleet_of((0, 100), reserve=odd)).problem.pools
    (term,) = reserved.lots
    assert (term.start_h, term.end_h) == (80 * 24 + 1, 80 * 24 + 1 + 30 * 24)


def test_no_run_takes_more_nodes_than_its_pool_has() -> None:
    parts = pooled(fleet_of((0, 100), buy=BUY, reserve=RESERVE, rent=RENT), design(0, 8, 99.5))
    assert [parts.problem.pools[way.pool].kind for way in parts.problem.ways] == ["bought", "rented"]


def two_offers(
    *jobs: tuple[float, float], first: Mapping[str, object], second: Mapping[str, object]
) -> Fleet:
    """A fleet with nodes of eight accelerators, and then with nodes of four."""
    fleet = fleet_of(*jobs, rent=RENT)
    offers = [{"accelerator": "h100-sxm5-80gb", **first}, {"accelerator": "gb200", **second}]
    return parse_record(Fleet, {**fleet.model_dump(), "offers": offers})


def test_each_pool_has_the_prices_of_its_own_offer_and_stands_for_another_one_of_it_alone() -> None:
    fleet = two_offers((0, 100), first={"rent": RENT}, second={"buy": BUY, "rent": RENT})
    small, large = (replace(price_of(most), gpus=4) for most in (1, 8))
    parts = pooled_problem(fleet, [[price_of(8)], [small, large]], [])
    assert [pool.name for pool in parts.problem.pools] == [
        "h100-sxm5-80gb rented",
        *["gb200 bought"] * 2,
        "gb200 rented",
    ]
    assert parts.offers == (0, 1, 1, 1)
    assert [(price.gpus, price.most_nodes) for price in parts.prices] == [(8, 8), (4, 1), (4, 8), (4, 8)]
    assert parts.problem.alternatives == ((1, 2),)


def test_nodes_that_come_with_the_end_of_the_horizon_are_not_bought() -> None:
    late = {**BUY, "first_delivery_day": 99.99}
    (bought,) = pooled(fleet_of((0, 100), buy=late)).problem.pools
    assert bought.lots == ()


def test_sizes_that_fit_and_those_that_no_window_holds_do_not_displace_each_other() -> None:
    fleet = fleet_of((0, 100), rent={**RENT, "max_nodes": 100})
    sizes = [design(0, nodes, 4000.0 - 80 * nodes) for nodes in range(1, 50)]
    durations_h = [way.duration_h for way in pooled(fleet, *sizes).problem.ways]
    assert (sum(hours <= 2400 for hours in durations_h), len(durations_h)) == (MOST_SIZES, 19 + MOST_SIZES)


def test_every_rule_of_the_pools_can_be_left_out_alone() -> None:
    fleet = fleet_of((10, 50), (0, 100), buy=BUY, rent=RENT, limits={"power_w": 1e5})
    cheap = replace(price_of(1), owned_parts_usd=lambda hours: {"capital_usd": 9.0 * hours})
    parts = pooled_problem(fleet, [[cheap, price_of(8)]], [design(0, 2, 10.0)])
    small, large, rented = parts.problem.pools
    assert [price.most_nodes for price in parts.prices] == [1, 8, 8]
    rules = {str(rule): rule.leave_out(parts.problem) for rule in rules_of(fleet, parts)}
    name = "h100-sxm5-80gb bought"
    assert set(rules) == {
        "job_window: job 0",  # the other one ends with the horizon
        *(f"{rule}: {name}" for rule in ("node_supply", "node_delivery", "num_lots")),
        "node_supply: h100-sxm5-80gb rented",
        "site_power_w",
    }
    late = rules["job_window: job 0"].windows[0]
    assert (late.start_h, late.end_h) == (240, 2400)
    assert rules["site_power_w"].power_w is None
    # Only the largest cluster at its price can have more nodes.
    more = rules[f"node_supply: {name}"].pools
    assert [pool.max_nodes for pool in more] == [1, 80, 8]
    early = rules[f"node_delivery: {name}"].pools
    assert [[lot.start_h for lot in pool.lots] for pool in early] == [[0, 480, 1440], [0, 480, 1440], []]
    idle_usd = 0.1 * 1.0005 * 2400 + 0.5 * 1000.5 * 2400 / MONTH_H
    at_once_usd = [round(usd * 2400 + idle_usd) for usd in (9, 10)]
    assert [pool.lots[0].usd_per_node for pool in early[:2]] == at_once_usd
    often = rules[f"num_lots: {name}"].pools
    assert [pool.max_lots for pool in often] == [2, 2, 0]
    for pools in (more, early, often):
        assert pools[2] == rented
        assert (
            (pools[0].least_nodes, pools[1].least_nodes) == (small.least_nodes, large.least_nodes) == (1, 2)
        )


def test_what_comes_at_once_or_as_often_as_it_can_has_no_such_rule() -> None:
    fleet = fleet_of((0, 100), buy={**BUY, "first_delivery_day": 0, "max_lots": 3})
    names = [rule.constraint for rule in rules_of(fleet, pooled(fleet, design(0, 2, 10.0)))]
    assert names == ["node_supply"]
    # Terms of a reservation begin when the offer says; nothing is delivered.
    fleet = fleet_of((0, 100), reserve=RESERVE)
    assert [rule.constraint for rule in rules_of(fleet, pooled(fleet, design(0, 2, 10.0)))] == ["node_supply"]


def planned(monkeypatch: pytest.MonkeyPatch, fleet: Fleet, *designs: Candidate) -> PurchasePlan:
    """The plan for designs that are made up, at prices that are not."""

    def found(job: Job, place: tuple[int, int], seed: int) -> tuple[Candidate, ...]:
        return tuple(one for one in designs if (one.job, one.offer) == place)

    monkeypatch.setattr(answer, "candidates_of", found)
    return plan_purchase(fleet)


def test_nodes_are_used_for_the_share_of_their_hours_within_the_horizon_in_which_jobs_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = fleet_of((0, 100), (0, 100), buy={**BUY, "first_delivery_day": 0, "delivery_every_days": 100})
    plan = planned(monkeypatch, fleet, design(0, 2, 100.0), design(1, 1, 200.0))
    (bought,) = plan.acquisitions
    assert bought.num_nodes == 2
    assert bought.used_fraction == pytest.approx((2 * 100 + 1 * 200) / (2 * 2400))
    # The last ten days of a term are those of nobody's horizon.
    fleet = fleet_of((0, 100), reserve=RESERVE)
    (reserved,) = planned(monkeypatch, fleet, design(0, 3, 120.0)).acquisitions
    assert reserved.used_fraction == pytest.approx(120 / (20 * 24))
    assert (reserved.from_day, reserved.to_day, reserved.num_gpus) == (80, 110, 24)
    assert reserved.cost_usd == 2.0 * 24 * 30 * 24


def test_nodes_of_two_lots_stand_in_the_network_of_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Eight nodes fill a switch of 64 ports; sixteen need two tiers, whose power and making are more for each node.
    lots = {**BUY, "max_nodes": 16, "first_delivery_day": 0, "delivery_every_days": 50, "max_lots": 2}
    fleet = fleet_of((0, 20), (50, 100), buy=lots)
    plan = planned(monkeypatch, fleet, design(0, 8, 100.0), design(1, 16, 100.0))
    assert [(one.num_nodes, one.from_day, one.to_day) for one in plan.acquisitions] == [
        (8, 0, 100),
        (8, 50, 100),
    ]
    job = job_on(fleet, fleet.jobs[0], fleet.offers[0], Path())
    among = {size: node_prices(job, fleet.offers[0], size) for size in (8, 16)}
    assert among[16].held_kgco2e(100.0) > 1.01 * among[8].held_kgco2e(100.0)
    for one, hours in zip(plan.acquisitions, (2400, 1200), strict=True):
        assert one.carbon_kgco2e == pytest.approx(8 * among[16].held_kgco2e(hours))
    # All nodes stand there while the second job runs, each with 3 kW above idle power.
    assert plan.peak_power_w == pytest.approx(16 * (among[16].idle_w + 3000), abs=16)


def test_nodes_of_two_terms_stand_in_the_network_of_their_own_term(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = {**RESERVE, "max_nodes": 16, "first_start_day": 0, "start_every_days": 50, "max_terms": 2}
    fleet = fleet_of((0, 20), (50, 100), reserve=terms)
    plan = planned(monkeypatch, fleet, design(0, 8, 100.0), design(1, 16, 100.0))
    assert [(one.num_nodes, one.from_day, one.to_day) for one in plan.acquisitions] == [
        (8, 0, 30),
        (16, 50, 80),
    ]
    job = job_on(fleet, fleet.jobs[0], fleet.offers[0], Path())
    for one in plan.acquisitions:
        alone = node_prices(job, fleet.offers[0], one.num_nodes)
        assert one.carbon_kgco2e == pytest.approx(one.num_nodes * alone.held_kgco2e(30 * 24))


def test_acquisitions_are_told_by_day_and_each_with_the_use_of_its_own_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dear = {**RENT, "usd_per_gpu_hour": 99.0}
    fleet = two_offers(
        (0, 30.01),
        (60, 100),
        first={"reserve": {**RESERVE, "first_start_day": 0, "start_every_days": 100}, "rent": dear},
        second={"buy": {**BUY, "first_delivery_day": 60}},
    )
    with_spare = replace(design(0, 3, 100.0), plan=Plan(offer=0, num_gpus=16, data_parallel=16))
    plan = planned(monkeypatch, fleet, with_spare, replace(design(1, 1, 240.0), offer=1))
    assert [(one.kind, one.accelerator, one.from_day, one.num_gpus) for one in plan.acquisitions] == [
        ("reserved", "h100-sxm5-80gb", 0, 24),
        ("bought", "gb200", 60, 4),
    ]
    assert [one.used_fraction for one in plan.acquisitions] == pytest.approx([100 / 720, 240 / 960])
    assert [(run.num_gpus, run.deadline_day) for run in plan.runs] == [(24, 30.01), (4, 100)]
    assert plan.num_designs == {
        "job 0": 1,
        "job 1": 1,
    }  # the same design, whether its nodes are reserved or rented


def test_what_a_limit_costs_is_counted_from_the_bound_and_told_from_the_largest_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unsure(problem: PurchaseProblem, *, effort: float) -> Solution:
        found = cheapest(problem, effort=effort)
        if effort == SIDE_EFFORT or found.cost_usd is None:
            return found
        return replace(found, status="feasible", bound_usd=found.cost_usd * 9 // 10)

    monkeypatch.setattr(answer, "cheapest", unsure)
    few, many = (
        [design(job, nodes, hours) for job, hours in enumerate(times)]
        for nodes, times in ((1, (1000.0, 2000.0, 2200.0)), (4, (400.0, 1000.0, 1200.0)))
    )
    fleet = fleet_of((0, 20), (0, 50), (0, 60), rent={**RENT, "max_nodes": 40})
    plan = planned(monkeypatch, fleet, *few, *many)
    # Four nodes for 2,600 hours at 24 USD, and storage; one node takes longer than the windows, and fewer node-hours.
    assert (plan.status, plan.cost_usd, plan.bound_usd) == ("feasible", 249_621, 224_658)
    assert plan.gap_fraction == pytest.approx(0.1, rel=1e-4)
    # Without its deadline the first job saves 14,400 USD, less than what is in doubt.
    doubt_usd = 249_621 - 224_658
    assert [(rule.subject, rule.saving_usd) for rule in plan.binding] == [
        ("job 2", 4 * 24 * 1200 - 24 * 2200 - doubt_usd),
        ("job 1", 4 * 24 * 1000 - 24 * 2000 - doubt_usd),
    ]
    console = Console(width=200, record=True, file=StringIO())
    show_purchase(plan, console)
    assert "no plan over 6 designs of 3 jobs costs less than $225 k; gap 10.0 %" in console.export_text()


def test_what_buying_alone_would_cost_is_told_whatever_capital_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    designs = design(0, 2, 1000.0)
    free, limited = (
        planned(monkeypatch, fleet_of((0, 100), buy=BUY, rent=RENT, limits=limits), designs)
        for limits in ({}, {"capital_usd": 1e3})
    )
    assert [run.kind for run in limited.runs] == ["rented"]
    assert limited.all_buy_usd == free.all_buy_usd is not None


def test_a_limit_that_costs_nothing_is_not_said_to_bind(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of((0, 100), rent=RENT, limits={"power_w": 1e9, "budget_usd": 1e9})
    assert planned(monkeypatch, fleet, design(0, 2, 10.0)).binding == ()


def test_of_two_contradictions_one_is_named_and_without_it_the_other_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each run is longer than its own window, which has nothing to do with the other run.
    designs = (design(0, 1, 100.0), design(1, 1, 100.0))
    conflicts = [
        planned(monkeypatch, fleet_of(*windows, rent=RENT), *designs).conflict
        for windows in (((0, 1), (0, 2)), ((0, 100), (0, 2)), ((0, 1), (0, 100)))
    ]
    assert conflicts == [("job_window: job 1",), ("job_window: job 1",), ("job_window: job 0",)]


def test_a_job_as_long_as_the_horizon_is_not_the_one_that_is_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = fleet_of((0, 100), (0, 100), rent=RENT)
    plan = planned(monkeypatch, fleet, design(0, 1, 2400.0), design(1, 1, 2401.0))
    assert (plan.status, plan.conflict) == ("infeasible", ("job_window: job 1",))
    # A window that begins later is shorter than the horizon.
    plan = planned(monkeypatch, fleet_of((90, 100), rent=RENT), design(0, 1, 241.0))
    assert (plan.status, plan.conflict) == ("infeasible", ("job_window: job 0",))


def test_all_jobs_without_a_design_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(monkeypatch, fleet_of((0, 100), (0, 100), (0, 100), rent=RENT), design(1, 1, 10.0))
    assert plan.conflict == ("no design: job 0", "no design: job 2")


def test_each_limit_on_money_is_told_what_is_enough_while_the_other_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two nodes for all of the hundred days, at 96,007 USD of rent for 2,000 hours.
    cheap = {**BUY, "usd_per_node": 10e3, "first_delivery_day": 0}
    free, limited = (
        planned(monkeypatch, fleet_of((0, 100), buy=cheap, rent=RENT, limits=limits), design(0, 2, 2000.0))
        for limits in ({}, {"budget_usd": 90e3, "capital_usd": 1e3})
    )
    assert free.all_rent_usd == 7 + 3.0 * 8 * 2 * 2000
    assert free.all_buy_usd is not None
    assert free.all_buy_usd < 90e3
    assert (limited.status, limited.conflict) == ("infeasible", ("fleet_budget_usd", "capital_usd"))
    # Nobody buys for 1,000 USD, so that all of the rent has to be paid; nobody rents for 90,000 USD.
    assert limited.enough["budget_usd"] == pytest.approx(96_007, rel=1e-3)
    assert limited.enough["capital_usd"] == pytest.approx(2 * (10e3 + 8 * 2100), rel=1e-3)


def test_money_is_enough_only_if_a_plan_is_found_with_that_much(monkeypatch: pytest.MonkeyPatch) -> None:
    def found_once(problem: PurchaseProblem, *, effort: float) -> Solution:
        unknown = Solution(status="unknown", choice=None, cost_usd=None, bound_usd=0)
        return unknown if problem.budget_usd == 487 else cheapest(problem, effort=effort)

    fleet, run = fleet_of((0, 100), rent=RENT, limits={"budget_usd": 100.0}), design(0, 2, 10.0)
    assert planned(monkeypatch, fleet, run).enough == {"budget_usd": 7 + 3 * 8 * 2 * 10}
    monkeypatch.setattr(answer, "cheapest", found_once)
    assert planned(monkeypatch, fleet, run).enough == {}


def test_money_is_enough_only_if_the_plan_is_one_of_the_sizes_that_are_considered_with_that_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # At first the dear sizes of job 1 are judged apart from the others; with enough money for both jobs all are judged
    # together, and the size that is the cheapest, because it needs no storage, is not among those that are kept.
    def size(num_nodes: int) -> Candidate:
        storage_usd = 0.0 if num_nodes == 49 else 20e3 if num_nodes < 35 else 1e3
        return replace(design(1, num_nodes, 24_000 / num_nodes), storage_usd=storage_usd)

    fleet = fleet_of((0, 100), (0, 100), rent={**RENT, "max_nodes": 100}, limits={"budget_usd": 590e3})
    plan = planned(monkeypatch, fleet, design(0, 40, 2000.0), *map(size, range(20, 51)))
    assert (plan.conflict, plan.enough) == (("fleet_budget_usd",), {})
