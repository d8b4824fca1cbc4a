from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints import relaxation
from constraints.answers import NUM_INTERVALS, with_fewer_spares, with_other_intervals
from constraints.evaluation import Evaluation, evaluate
from constraints.limits import LIMIT_NAMES, check_limits, limited_quantities, with_limits
from constraints.relaxation import LeastValues, rounded_up
from constraints.space import Space, pruned_space
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.table import Floats
from studies.designs.plan_keys import are_same, plan_keys
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with

JOBS: Mapping[str, Job] = {
    "rented": job_with(H100_RENTED, A100_RENTED, search={"micro_batch_sizes": [1]}),
    "bought under power caps": job_with(
        H100_BOUGHT, search={"power_caps": [1.0, 0.7], "with_spares": [True, False], "zero_stages": [1]}
    ),
    "experts": job_with(
        workload={"model": "mixtral-8x7b"}, search={"micro_batch_sizes": [1], "checkpoint_schemes": ["async"]}
    ),
}


@cache
def whole(name: str) -> tuple[Space, Evaluation, Mapping[str, Floats]]:
    """Every design of a job, simulated, with its limited quantities."""
    space = pruned_space(JOBS[name])
    result = evaluate(space.job, space.designs())
    return space, result, limited_quantities(space.job, result.plans, result.scores, result.outcomes)


ROUNDING = 1e-12
"""Sums come out a few last bits apart when the batch around a design is another one."""


def tight_limits(name: str, share: float) -> dict[str, float]:
    """Limits that some share of the designs keeps, each taken alone; a hair above the value of a design."""
    _, result, values = whole(name)
    possible = result.excess.is_possible
    limits = {
        limit: float(np.quantile(values[limit][possible], share, method="inverted_cdf")) * (1.0 + 1e-9)
        for limit in LIMIT_NAMES
    }
    return limits | {"num_gpus": float(np.floor(limits["num_gpus"]))}


def looked_up(name: str) -> Callable[[Job, PlanTable], Evaluation]:
    """Judges designs of a job as `evaluate` does, without simulating again what `whole` has simulated."""
    _, result, _ = whole(name)
    keys = plan_keys(result.plans)
    order = np.argsort(keys)

    def evaluated(job: Job, plans: PlanTable) -> Evaluation:
        rows = order[np.searchsorted(keys, plan_keys(plans), sorter=order)]
        assert are_same(plans, result.plans.take(rows)).all()
        same = result.take(rows)  # whose scores depend on no limit, but for risks
        return replace(same, excess=check_limits(job, plans, same.outcomes, same.scores))

    return evaluated


@pytest.mark.short(1)
@pytest.mark.parametrize("share", [0.1, 0.0, 0.4])
@pytest.mark.parametrize("name", JOBS)
def test_the_least_value_is_the_minimum_over_all_designs(
    name: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaxation, "evaluate", looked_up(name))
    space, result, values = whole(name)
    limits = tight_limits(name, share)
    least = LeastValues(space.under(limits))
    for relaxed in LIMIT_NAMES:
        rest = tuple(limit for limit in LIMIT_NAMES if limit != relaxed)
        for others in [(), *combinations(rest, 1), *combinations(rest[:4], 2), rest]:
            kept = result.excess.is_possible.copy()
            for other in others:
                kept &= values[other] <= limits[other]
            found = least.of(relaxed, others)
            if kept.any():
                assert found is not None
                assert found.value == pytest.approx(values[relaxed][kept].min(), rel=ROUNDING)
            else:
                assert found is None
            assert least.can_keep((relaxed, *others)) == bool(
                (values[relaxed][kept] <= limits[relaxed]).any()
            )


@pytest.mark.short(4)
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("relaxed", ["budget_usd", "deadline_days", "carbon_kgco2e"])
def test_the_search_goes_on_until_no_bound_could_win(
    name: str, relaxed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Layout by layout, so that the best one is not in the first round by luck.
    monkeypatch.setattr(relaxation, "FIRST_ROUND", 1)
    monkeypatch.setattr(relaxation, "LARGEST_ROUND", 1)
    monkeypatch.setattr(relaxation, "evaluate", looked_up(name))
    space, result, values = whole(name)
    found = LeastValues(space).of(relaxed, ())
    assert found is not None
    least = values[relaxed][result.excess.is_possible].min()
    assert found.value == pytest.approx(least, rel=ROUNDING)


@pytest.mark.parametrize("name", JOBS)
def test_the_design_that_comes_with_a_least_value_reaches_it(name: str) -> None:
    space, _, _ = whole(name)
    limits = tight_limits(name, 0.4)
    found = LeastValues(space.under(limits)).of("budget_usd", ("deadline_days",))
    assert found is not None
    again = evaluate(with_limits(space.job, {"deadline_days": limits["deadline_days"]}), found.design.plans)
    assert again.is_feasible.tolist() == [True]
    assert again.scores.cost_usd[0] == pytest.approx(found.value, rel=ROUNDING)
    assert found.proposed_limit >= found.value


@pytest.mark.parametrize("name", JOBS)
def test_the_nearest_design_has_the_least_total_excess(name: str) -> None:
    space, result, _ = whole(name)
    limits = {limit: value / 3.0 for limit, value in tight_limits(name, 0.05).items()}
    limited = space.under({**limits, "num_gpus": 8.0})
    excess = check_limits(limited.job, result.plans, result.outcomes, result.scores)
    nearest = LeastValues(limited).nearest_design()
    assert nearest is not None
    least = excess.total[excess.is_possible].min()
    assert nearest.excess.total[0] == pytest.approx(least, rel=ROUNDING)


def test_a_least_value_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(job: Job, plans: PlanTable) -> Evaluation:
        calls.append(len(plans))
        return evaluate(job, plans)

    monkeypatch.setattr(relaxation, "evaluate", counted)
    space = pruned_space(job_with(limits={"budget_usd": 1e4, "deadline_days": 5.0}))
    least = LeastValues(space)
    first = least.of("budget_usd", ("deadline_days",))
    num_calls = len(calls)
    assert num_calls > 0
    assert least.of("budget_usd", ["deadline_days", "budget_usd"]) is first
    assert least.can_keep(("budget_usd", "deadline_days")) in (True, False)
    assert len(calls) == num_calls


def test_a_design_that_is_known_to_be_the_best_gets_the_risks_of_the_limits_that_it_keeps() -> None:
    least = LeastValues(pruned_space(job_with(limits={"budget_usd": 1e6, "deadline_days": 1e4})))
    first, again = least.of("budget_usd", ()), least.of("budget_usd", ("deadline_days",))
    assert first is not None
    assert again is not None
    assert are_same(first.design.plans, again.design.plans).all()
    assert np.isnan(first.design.scores.deadline_risk[0])
    assert np.isfinite(again.design.scores.deadline_risk[0])


def test_bounds_spare_most_of_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated: list[int] = []

    def counted(job: Job, plans: PlanTable) -> Evaluation:
        simulated.append(len(plans))
        return evaluate(job, plans)

    monkeypatch.setattr(relaxation, "evaluate", counted)
    space, _, _ = whole("rented")
    LeastValues(space).of("budget_usd", ())
    assert sum(simulated) < space.num_designs / 4


@pytest.mark.long
def test_where_many_spares_are_enough_few_numbers_of_them_are_simulated_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = {
        "micro_batch_sizes": [1],
        "zero_stages": [1],
        "checkpoint_schemes": ["async"],
        "tensor_parallel": [4, 8],
        "num_refinements": 5,
    }
    failing = {"preset": "typical", "failures_per_1000_node_days": 1000}
    job = job_with({**H100_RENTED, "num_gpus": 64}, search=search, reliability=failing)
    space = pruned_space(job)
    most_spares = int(space.designs().num_spare_nodes.max())
    assert most_spares > 10
    spared: list[int] = []

    def with_fewer(plans: PlanTable) -> PlanTable:
        found = with_fewer_spares(plans)
        spared.append(len(found))
        return found

    monkeypatch.setattr(relaxation, "with_fewer_spares", with_fewer)
    whole_search = LeastValues(space).of("budget_usd", ())
    num_at_once, num_spared = len(spared), sum(spared)
    spared.clear()
    batches: list[int] = []

    def counted(job: Job, plans: PlanTable) -> Evaluation:
        if plans.num_spare_nodes.min() > 0:  # with fewer than enough, or with other intervals
            batches.append(len(plans))
        return evaluate(job, plans)

    monkeypatch.setattr(relaxation, "evaluate", counted)
    monkeypatch.setattr(relaxation, "SPARED_TOGETHER", 2 * most_spares)
    monkeypatch.setattr(relaxation, "TUNED_TOGETHER", 1)
    found = LeastValues(space).of("budget_usd", ())
    assert whole_search is not None
    assert found is not None
    assert found.value == pytest.approx(whole_search.value, rel=ROUNDING)
    assert max(batches) <= max(3 * most_spares, NUM_INTERVALS)
    assert len(spared) > num_at_once
    assert sum(spared) == num_spared > 0


def test_a_stopped_search_says_so() -> None:
    space, _, _ = whole("rented")
    least = LeastValues(space, lambda: True)
    assert not least.was_stopped
    assert least.of("budget_usd", ()) is None
    assert least.was_stopped
    assert LeastValues(space, lambda: True).nearest_design() is None


def test_a_stopped_search_tries_no_further_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    search = {"checkpoint_schemes": ["async"], "tensor_parallel": [4], "num_refinements": 5}
    failing = {"preset": "typical", "failures_per_1000_node_days": 1000}
    space = pruned_space(job_with({**H100_RENTED, "num_gpus": 64}, search=search, reliability=failing))
    tried: list[int] = []

    def others(job: Job, plans: PlanTable, used_s: Floats, stall_s: Floats) -> PlanTable:
        tried.append(len(plans))
        return with_other_intervals(job, plans, used_s, stall_s)

    monkeypatch.setattr(relaxation, "with_other_intervals", others)
    assert LeastValues(space).of("budget_usd", ()) is not None
    assert tried
    tried.clear()
    answers = iter([False])
    assert LeastValues(space, lambda: next(answers, True)).of("budget_usd", ()) is not None
    assert tried == []


def test_a_search_that_is_stopped_later_keeps_what_it_has() -> None:
    space, _, values = whole("rented")
    answers = iter([False])
    least = LeastValues(space, lambda: next(answers, True))
    found = least.of("deadline_days", ())
    assert found is not None
    assert found.value >= values["deadline_days"].min() * (1.0 - ROUNDING)


@given(value=st.floats(1e-6, 1e15))
def test_a_proposed_limit_is_the_next_number_of_four_digits(value: float) -> None:
    limit = rounded_up(value)
    digits = Decimal(repr(limit)).normalize()
    assert limit >= value
    assert len(digits.as_tuple().digits) <= 4
    step = Decimal(1).scaleb(Decimal(value).adjusted() - 3)
    assert Decimal(repr(limit)) - Decimal(value) < step  # the number before it is too small


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (1_699_001.0, 1_700_000.0),
        (1_699_000.0, 1_699_000.0),
        (45.0, 45.0),
        (45.00001, 45.01),
        (99_991.0, 100_000.0),
        (64.0, 64.0),
        (0.1, 0.1001),  # the double next to 0.1 lies above it
        (12_345.0, 12_350.0),
    ],
)
def test_proposed_limits_by_hand(value: float, limit: float) -> None:
    assert rounded_up(value) == limit
