"""Is there a cheaper purchase plan? Small problems against all choices, and every rule against a choice that breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints.purchase_model import cheapest, least_capital_usd, least_power_w
from constraints.purchase_problem import (
    Choice,
    Lot,
    Pool,
    PurchaseProblem,
    Way,
    Window,
    broken_rules,
    capital_usd,
    cost_usd,
    fits_alone,
    site_power_w,
)

EFFORT = 30.0
HORIZON_H = 4


def every_choice(problem: PurchaseProblem) -> Iterator[Choice]:
    """All choices whose jobs run in their windows and whose lots alone, without a job, break no rule."""
    runs = [
        [
            (index, start_h)
            for index, way in enumerate(problem.ways)
            if way.job == job
            for start_h in range(window.start_h, window.end_h - way.duration_h + 1)
        ]
        for job, window in enumerate(problem.windows)
    ]
    lots = [list(product(range(pool.max_nodes + 1), repeat=len(pool.lots))) for pool in problem.pools]
    # What lots break without a job, they break with any.
    idle = replace(problem, windows=(), ways=())
    kept = [
        nodes
        for nodes in product(*lots)
        if not broken_rules(idle, Choice(ways=(), starts_h=(), lot_nodes=nodes))
    ]
    for taken, nodes in product(product(*runs), kept):
        ways, starts_h = zip(*taken, strict=True)
        yield Choice(ways=ways, starts_h=starts_h, lot_nodes=nodes)


def cheapest_by_trying(problem: PurchaseProblem) -> int | None:
    choices = sorted(every_choice(problem), key=lambda choice: cost_usd(problem, choice))
    kept = (choice for choice in choices if not broken_rules(problem, choice))
    return next((cost_usd(problem, choice) for choice in kept), None)


@st.composite
def problems(draw: st.DrawFn) -> PurchaseProblem:
    dollars = st.integers(0, 20)
    starts = draw(st.sampled_from([(0,), (1,), (0, 2), (1, 3)]))
    staff = draw(st.integers(0, 5))
    max_lots = draw(st.integers(0, 2))
    # One node costs otherwise than each of two.
    one, two = (
        Pool(
            name="bought",
            kind="bought",
            least_nodes=size,
            max_nodes=size,
            lots=tuple(
                Lot(
                    start_h=start,
                    end_h=HORIZON_H,
                    usd_per_node=draw(dollars),
                    capital_usd_per_node=draw(dollars),
                    staff_usd=staff * (HORIZON_H - start),
                )
                for start in starts
            ),
            max_lots=max_lots,
            idle_w_per_node=draw(st.integers(0, 3)),
        )
        for size in (1, 2)
    )
    reserved = Pool(
        name="reserved",
        kind="reserved",
        max_nodes=1,
        lots=tuple(Lot(start_h=start, end_h=start + 2, usd_per_node=draw(dollars)) for start in (0, 2)),
        max_lots=draw(st.integers(1, 2)),
    )
    rented = Pool(name="rented", kind="rented", max_nodes=draw(st.integers(0, 2)))
    windows = tuple(
        Window(start_h=(begin := draw(st.integers(0, 2))), end_h=draw(st.integers(begin + 2, HORIZON_H)))
        for _ in range(2)
    )
    ways = tuple(
        Way(
            job=job,
            pool=pool,
            num_nodes=draw(st.integers(1, 2)),
            duration_h=draw(st.integers(1, 2)),
            usd=draw(dollars),
            above_idle_w=draw(st.integers(0, 5)) if pool < 2 else 0,
        )
        for job in range(2)
        for pool in range(4)
    )
    limit = st.none() | st.integers(0, 60)
    return PurchaseProblem(
        horizon_h=HORIZON_H,
        windows=windows,
        pools=(one, two, reserved, rented),
        alternatives=((0, 1),),
        ways=ways,
        power_w=draw(st.none() | st.integers(0, 15)),
        budget_usd=draw(limit),
        capital_usd=draw(limit),
    )


@given(problems())
def test_no_choice_is_cheaper_and_none_is_found_only_where_there_is_none(problem: PurchaseProblem) -> None:
    solution = cheapest(problem, effort=EFFORT)
    assert solution.cost_usd == cheapest_by_trying(problem)
    if solution.choice is None:
        assert solution.status == "infeasible"
    else:
        assert solution.status == "optimal"
        assert solution.bound_usd == solution.cost_usd == cost_usd(problem, solution.choice)
        assert broken_rules(problem, solution.choice) == ()


@pytest.mark.long
@given(problems())
def test_no_choice_takes_less_capital(problem: PurchaseProblem) -> None:
    free = replace(problem, capital_usd=None)
    needed = [capital_usd(free, choice) for choice in every_choice(free) if not broken_rules(free, choice)]
    assert least_capital_usd(problem, effort=EFFORT) == min(needed, default=None)


@pytest.mark.long
@given(problems())
def test_no_choice_takes_less_power(problem: PurchaseProblem) -> None:
    free = replace(problem, power_w=None)
    needed = [site_power_w(free, choice) for choice in every_choice(free) if not broken_rules(free, choice)]
    assert least_power_w(problem, effort=EFFORT) == min(needed, default=None)


# One job of two nodes and ten hours, on nodes that are bought in two lots or on rented ones.
POOLS = (
    Pool(
        name="bought",
        kind="bought",
        max_nodes=3,
        lots=(
            Lot(start_h=10, end_h=100, usd_per_node=90, capital_usd_per_node=500),
            Lot(start_h=50, end_h=100, usd_per_node=50, capital_usd_per_node=500),
        ),
        max_lots=1,
        idle_w_per_node=100,
    ),
    Pool(name="rented", kind="rented", max_nodes=2),
)
PROBLEM = PurchaseProblem(
    horizon_h=100,
    windows=(Window(start_h=5, end_h=80),),
    pools=POOLS,
    ways=(
        Way(job=0, pool=0, num_nodes=2, duration_h=10, usd=7, above_idle_w=1000),
        Way(job=0, pool=1, num_nodes=2, duration_h=10, usd=500),
        Way(job=0, pool=1, num_nodes=3, duration_h=6, usd=20),
    ),
    power_w=1200,
    budget_usd=200,
    capital_usd=1000,
)
KEPT = Choice(ways=(0,), starts_h=(60,), lot_nodes=((0, 2), ()))
BREAKS = {
    "job_window": (PROBLEM, replace(KEPT, starts_h=(71,))),
    "node_delivery": (PROBLEM, replace(KEPT, starts_h=(49,))),
    "node_supply": (PROBLEM, replace(KEPT, ways=(2,), lot_nodes=((0, 0), ()))),
    "num_lots": (PROBLEM, replace(KEPT, lot_nodes=((1, 1), ()))),
    "site_power_w": (replace(PROBLEM, power_w=1199), KEPT),
    "fleet_budget_usd": (replace(PROBLEM, budget_usd=106), KEPT),
    "capital_usd": (replace(PROBLEM, capital_usd=999), KEPT),
}
"""For every rule of purchase plans a problem and a choice that breaks it."""


def test_the_figures_of_a_choice_are_the_sums_of_its_parts() -> None:
    assert broken_rules(PROBLEM, KEPT) == ()
    assert (cost_usd(PROBLEM, KEPT), capital_usd(PROBLEM, KEPT)) == (2 * 50 + 7, 2 * 500)
    assert site_power_w(PROBLEM, KEPT) == 2 * 100 + 1000


@pytest.mark.parametrize("name", BREAKS)
def test_every_rule_can_be_broken(name: str) -> None:
    assert name in broken_rules(*BREAKS[name])


def test_what_is_cheapest_is_bought_late_and_in_time() -> None:
    solution = cheapest(PROBLEM, effort=EFFORT)
    assert solution.choice is not None
    assert (solution.status, solution.cost_usd) == ("optimal", 107)
    assert solution.choice.lot_nodes == ((0, 2), ())
    assert solution.choice.starts_h == (50,)  # as early as the nodes that were bought allow


# The same nodes, of which one alone costs 30 USD without a network; staff costs 1 USD an hour.
SIZES = replace(
    PROBLEM,
    pools=(
        replace(POOLS[0], max_nodes=1, max_lots=2, lots=tuple(
            replace(lot, usd_per_node=30, staff_usd=lot.end_h - lot.start_h) for lot in POOLS[0].lots
        )),
        replace(POOLS[0], least_nodes=2, max_lots=2, lots=tuple(
            replace(lot, staff_usd=lot.end_h - lot.start_h) for lot in POOLS[0].lots
        )),
    ),
    alternatives=((0, 1),),
    ways=(
        Way(job=0, pool=0, num_nodes=1, duration_h=30, usd=7, above_idle_w=500),
        Way(job=0, pool=1, num_nodes=1, duration_h=30, usd=7, above_idle_w=500),
        Way(job=0, pool=1, num_nodes=2, duration_h=10, usd=7, above_idle_w=1000),
    ),
)  # fmt: skip


def test_one_staff_looks_after_all_lots_from_the_first_on() -> None:
    choice = Choice(ways=(2,), starts_h=(60,), lot_nodes=((0, 0), (1, 1)))
    assert cost_usd(SIZES, choice) == (90 + 50) + (100 - 10) + 7


@pytest.mark.parametrize("lot_nodes", [((1, 0), (2, 0)), ((0, 0), (1, 0)), ((1, 1), (0, 0))])
def test_nodes_have_the_price_of_as_many_as_are_bought(lot_nodes: tuple[tuple[int, ...], ...]) -> None:
    assert "node_supply" in broken_rules(SIZES, Choice(ways=(0,), starts_h=(50,), lot_nodes=lot_nodes))


def test_one_node_is_bought_at_the_price_of_one() -> None:
    solution = cheapest(SIZES, effort=EFFORT)
    assert solution.choice is not None
    assert (solution.status, solution.cost_usd) == ("optimal", 30 + (100 - 50) + 7)
    assert solution.choice.lot_nodes == ((0, 1), (0, 0))


def test_supplies_are_alternatives_together_and_every_other_pool_alone() -> None:
    assert SIZES.supplies == ((0, 1),)
    assert PROBLEM.supplies == ((0,), (1,))
    four = replace(PROBLEM, pools=(*POOLS, *POOLS), alternatives=((1, 3),))
    assert four.supplies == ((0,), (1, 3), (2,))


def test_what_cannot_be_bought_is_rented() -> None:
    solution = cheapest(replace(PROBLEM, capital_usd=999, budget_usd=None), effort=EFFORT)
    assert solution.choice is not None
    assert (solution.cost_usd, solution.choice.ways) == (500, (1,))


def test_two_jobs_share_what_is_bought_one_after_the_other() -> None:
    ways = tuple(replace(PROBLEM.ways[0], job=job) for job in range(2))
    twice = replace(PROBLEM, windows=PROBLEM.windows * 2, ways=ways)
    solution = cheapest(twice, effort=EFFORT)
    assert solution.choice is not None
    first, second = sorted(solution.choice.starts_h)
    assert solution.cost_usd == 2 * 50 + 2 * 7
    assert second - first >= 10


@pytest.mark.long
@given(problems())
def test_a_way_that_some_choice_takes_fits_alone(problem: PurchaseProblem) -> None:
    alone = replace(problem, windows=problem.windows[:1], ways=problem.ways[:4])
    taken: set[int] = set()
    for choice in every_choice(alone):
        (index,) = choice.ways
        if index not in taken and not broken_rules(alone, choice):
            taken.add(index)
    assert all(fits_alone(problem, alone.ways[index]) for index in taken)


def test_a_way_that_any_limit_rules_out_does_not_fit_alone() -> None:
    bought, rented = PROBLEM.ways[:2]
    assert fits_alone(PROBLEM, bought)
    for limited in (
        replace(PROBLEM, power_w=1199),
        replace(PROBLEM, budget_usd=106),
        replace(PROBLEM, capital_usd=999),
        replace(PROBLEM, windows=(Window(start_h=5, end_h=19),)),
    ):
        assert not fits_alone(limited, bought)
    assert not fits_alone(PROBLEM, rented)  # it costs more than there is
    assert not fits_alone(PROBLEM, PROBLEM.ways[2])  # more nodes than there are


def test_where_there_is_one_way_it_fits_alone_exactly_if_some_choice_takes_it() -> None:
    lot = Lot(start_h=10, end_h=30, usd_per_node=50, capital_usd_per_node=500, staff_usd=40)
    pool = Pool(name="bought", kind="bought", max_nodes=2, lots=(lot,), max_lots=1, idle_w_per_node=100)
    least = replace(
        PROBLEM,
        horizon_h=30,
        windows=(Window(start_h=5, end_h=20),),
        pools=(pool,),
        ways=PROBLEM.ways[:1],
        power_w=2 * 100 + 1000,
        budget_usd=2 * 50 + 40 + 7,
        capital_usd=2 * 500,
    )
    late, early = Window(start_h=11, end_h=20), Window(start_h=0, end_h=19)
    for problem, fits in (
        (least, True),
        (replace(least, power_w=2 * 100 + 999), False),
        (replace(least, budget_usd=2 * 50 + 40 + 6), False),
        (replace(least, capital_usd=2 * 500 - 1), False),
        (replace(least, windows=(late,)), False),
        (replace(least, windows=(early,)), False),
        (replace(least, pools=(replace(pool, max_nodes=1),)), False),
        (replace(least, pools=(replace(pool, max_lots=0),)), False),
        (replace(least, pools=(replace(pool, lots=()),)), False),
    ):
        assert (cheapest_by_trying(problem) is not None) == fits
        assert fits_alone(problem, problem.ways[0]) == fits


def test_what_is_said_to_be_proven_is_so_where_nodes_of_two_terms_overlap() -> None:
    """A capacity that varies by term lets CP-SAT 9.15 prove that two jobs take 78 nodes."""
    terms = tuple(Lot(start_h=start, end_h=start + 1440, usd_per_node=21_867) for start in (1440, 2160, 8640))
    late = Lot(start_h=7200, end_h=8760, usd_per_node=13_082)
    sizes = ((0, 8, 1243), (0, 10, 996), (1, 16, 1345), (1, 19, 1340), (1, 32, 682), (1, 68, 345))
    problem = PurchaseProblem(
        horizon_h=8760,
        windows=(Window(start_h=2400, end_h=3810), Window(start_h=0, end_h=2464)),
        pools=(
            Pool(name="bought", kind="bought", max_nodes=88, lots=(late,), max_lots=2, idle_w_per_node=2562),
            Pool(name="reserved", kind="reserved", max_nodes=80, lots=terms, max_lots=2),
        ),
        ways=tuple(
            Way(job=job, pool=1, num_nodes=nodes, duration_h=hours, usd=0) for job, nodes, hours in sizes
        ),
        power_w=485_565,
    )
    solution = cheapest(problem, effort=EFFORT)
    # The second job takes 32 nodes of the first term, from which it is gone when the first job takes 10 of the second.
    assert (solution.status, solution.cost_usd) == ("optimal", (32 + 10) * 21_867)


def test_nodes_of_a_term_that_has_ended_are_reserved_again() -> None:
    lots = tuple(Lot(start_h=start, end_h=start + 40, usd_per_node=10) for start in (0, 40))
    pool = Pool(name="reserved", kind="reserved", max_nodes=2, lots=lots, max_lots=2)
    problem = PurchaseProblem(
        horizon_h=80,
        windows=(Window(start_h=0, end_h=40), Window(start_h=40, end_h=80)),
        pools=(pool,),
        ways=tuple(Way(job=job, pool=0, num_nodes=2, duration_h=30, usd=0) for job in range(2)),
    )
    solution = cheapest(problem, effort=EFFORT)
    assert solution.choice is not None
    assert (solution.choice.lot_nodes, solution.cost_usd) == (((2, 2),), 2 * 2 * 10)
    # Terms that overlap need as many nodes together.
    meeting = replace(pool, lots=(lots[0], replace(lots[1], start_h=39, end_h=79)))
    assert "node_supply" in broken_rules(replace(problem, pools=(meeting,)), solution.choice)


def test_runs_that_draw_too_much_are_proven_to_whatever_the_lots() -> None:
    """Twelve lots, any of which may come: no matter, since the nodes of the smallest run alone draw too much."""
    lots = tuple(Lot(start_h=730 * month, end_h=8760, usd_per_node=8760 - 730 * month) for month in range(12))
    problem = PurchaseProblem(
        horizon_h=8760,
        windows=(Window(start_h=0, end_h=8640),) * 2,
        pools=(
            Pool(name="bought", kind="bought", max_nodes=64, lots=lots, max_lots=12, idle_w_per_node=4154),
        ),
        ways=tuple(
            Way(job=job, pool=0, num_nodes=nodes, duration_h=2880 // nodes, usd=9, above_idle_w=8245 * nodes)
            for job in range(2)
            for nodes in (8, 10, 16, 20, 32, 33, 64)
        ),
        power_w=98_000,
    )
    assert 8 * (4154 + 8245) > 98_000
    assert cheapest(problem, effort=1.0).status == "infeasible"


def test_a_plan_that_more_effort_improves_is_not_called_the_cheapest() -> None:
    """Three jobs, each at seven sizes on rented nodes or on any of six lots."""
    lots = tuple(Lot(start_h=1460 * lot, end_h=8760, usd_per_node=8760 - 1460 * lot) for lot in range(6))
    problem = PurchaseProblem(
        horizon_h=8760,
        windows=(Window(start_h=0, end_h=8640),) * 3,
        pools=(
            Pool(name="bought", kind="bought", max_nodes=64, lots=lots, max_lots=6),
            Pool(name="rented", kind="rented", max_nodes=640),
        ),
        ways=tuple(
            Way(job=job, pool=pool, num_nodes=nodes, duration_h=2880 * (job + 2) // nodes, usd=usd)
            for job in range(3)
            for pool, usd in enumerate((9, 20_000 * (job + 1)))
            for nodes in (8, 10, 16, 20, 32, 33, 64)
        ),
    )
    hurried, patient = (cheapest(problem, effort=effort) for effort in (0.003, 1.0))
    assert hurried.cost_usd is not None
    assert patient.cost_usd is not None
    assert hurried.bound_usd <= patient.cost_usd < hurried.cost_usd
    assert (hurried.status, patient.status) == ("feasible", "optimal")


def test_the_least_capital_is_found_whatever_the_limit_on_it() -> None:
    alone = replace(PROBLEM, ways=PROBLEM.ways[:1])
    for limit in (None, 5000, 999):
        assert least_capital_usd(replace(alone, capital_usd=limit), effort=EFFORT) == 2 * 500
    # Rent takes none, but more than the budget.
    assert least_capital_usd(PROBLEM, effort=EFFORT) == 2 * 500
    assert least_capital_usd(replace(PROBLEM, budget_usd=500), effort=EFFORT) == 0
    assert least_capital_usd(replace(alone, power_w=1199), effort=EFFORT) is None


def test_the_least_power_is_found_whatever_the_limit_on_it() -> None:
    alone = replace(PROBLEM, ways=PROBLEM.ways[:1])
    for limit in (None, 5000, 1):
        assert least_power_w(replace(alone, power_w=limit), effort=EFFORT) == 2 * 100 + 1000
    # Rented nodes draw none at the site, but cost more than the budget.
    assert least_power_w(PROBLEM, effort=EFFORT) == 2 * 100 + 1000
    assert least_power_w(replace(PROBLEM, budget_usd=500), effort=EFFORT) == 0
    assert least_power_w(replace(alone, capital_usd=999), effort=EFFORT) is None


def test_nodes_that_stand_idle_beside_a_run_draw_from_the_site_too() -> None:
    """One job needs both nodes and the other one of them, which draws 1,000 W above its idle 100 W."""
    ways = (
        Way(job=0, pool=0, num_nodes=2, duration_h=10, usd=7),
        Way(job=1, pool=0, num_nodes=1, duration_h=10, usd=7, above_idle_w=1000),
        Way(job=1, pool=1, num_nodes=1, duration_h=10, usd=30),
    )
    lots = POOLS[0].lots[1:]
    both = replace(
        PROBLEM,
        windows=PROBLEM.windows * 2,
        pools=(replace(POOLS[0], lots=lots), POOLS[1]),
        ways=ways,
    )
    for power_w, way, usd in ((2 * 100 + 1000, 1, 7), (2 * 100 + 999, 2, 30)):
        solution = cheapest(replace(both, power_w=power_w), effort=EFFORT)
        assert solution.choice is not None
        assert (solution.choice.ways, solution.cost_usd) == ((0, way), 2 * 50 + 7 + usd)
