"""Are the told shares and percentiles those that one gets by counting draws and replays one by one?"""

from __future__ import annotations

from itertools import groupby, pairwise

import numpy as np
import pytest

from constraints.evaluation import Evaluation, evaluate
from objectives.input_uncertainty import objectives_at_ends
from planner.recommended.recommendation import Spread
from planner.uncertain import input_uncertainty
from planner.uncertain.drawn_front import drawn_front
from planner.uncertain.input_uncertainty import input_uncertainty_of
from planner.uncertain.sensitivity import front_tornado
from planner.uncertain.uncertainty import replayed, share_within, uncertainty_of
from simulator.domain.job import Job
from simulator.table import Floats
from simulator.units import DAY, HOUR
from tests.support import A100_RENTED, H100_RENTED, job_with, plans_with

ROW = 2
"""The recommended design, the slowest and not the first."""
IDS = np.array([30, 10, 20])
NUM_REPLAYS = 400


def unsure_front(**limits: float) -> tuple[Job, Evaluation]:
    """Three designs of two offers, whose order by cost and carbon the draws leave open."""
    job = job_with(
        H100_RENTED,
        A100_RENTED,
        reliability="harsh",
        limits=limits,
        objectives=["cost", "carbon", "cost_p95"],
    )
    plans = plans_with(
        {"num_gpus": 64, "zero_stage": 3},
        {"num_gpus": 32, "zero_stage": 3},
        {"num_gpus": 32, "zero_stage": 3, "offer": 1},
    )
    return job, evaluate(job, plans)


def percentiles(values: Floats) -> tuple[float, float, float]:
    """The least values that a twentieth, a half and nineteen twentieths of some do not exceed."""
    ranked = sorted(values.tolist())
    return tuple(ranked[-(-len(ranked) * share // 100) - 1] for share in (5, 50, 95))


def test_figures_of_the_recommended_design_are_those_of_its_draws() -> None:
    drawn = drawn_front(*unsure_front(), 1)[1]
    # Limits that about a third and two thirds of the draws of this design keep, fewer or more of the others.
    wall_s, cost_usd = drawn.figures["time_to_train"], drawn.figures["cost"]
    limits = {
        "deadline_days": float(np.quantile(wall_s[:, ROW], 0.3)) / DAY,
        "budget_usd": float(np.quantile(cost_usd[:, ROW], 0.7)),
    }
    job, front = unsure_front(**limits)
    found = input_uncertainty_of(job, front, IDS, ROW, seed=1)
    assert found.within_deadline_fraction == np.mean(wall_s[:, ROW] / DAY <= limits["deadline_days"])
    assert found.within_budget_fraction == np.mean(cost_usd[:, ROW] <= limits["budget_usd"])
    assert found.within_deadline_fraction == pytest.approx(0.3, abs=0.01)
    assert found.within_budget_fraction == pytest.approx(0.7, abs=0.01)
    for name, values in drawn.figures.items():
        told = found.figures[name]
        assert (told.p5, told.p50, told.p95) == percentiles(values[:, ROW]), name
    for k, objective in enumerate(job.objectives):
        told = found.figures[objective.value]
        assert (told.p5, told.p50, told.p95) == percentiles(drawn.values[:, ROW, k]), objective
    own = next(design for design in found.designs if design.design_id == IDS[ROW])
    assert own.figures == found.figures
    assert (own.on_front_fraction, own.recommended_fraction) == (
        found.on_front_fraction,
        found.recommended_fraction,
    )
    assert {bar.design_id for bar in found.tornado} == {IDS[ROW]}


def test_designs_are_on_the_front_and_recommended_in_as_many_draws_as_one_counts() -> None:
    job, front = unsure_front()
    values = drawn_front(job, front, 1)[1].values
    found = input_uncertainty_of(job, front, IDS, ROW, seed=1)
    on_front, best = np.zeros(3), np.zeros(3)
    weights = np.array(job.objective_weights) / sum(job.objective_weights)
    for draw in values:
        beaten = [any((b <= a).all() and (b < a).any() for b in draw) for a in draw]
        on_front += ~np.array(beaten)
        best[int(np.argmin(np.prod(draw**weights, axis=1)))] += 1
    assert (best > 0).sum() > 1
    for place, number in enumerate(IDS):
        told = next(design for design in found.designs if design.design_id == number)
        assert told.on_front_fraction == pytest.approx(on_front[place] / len(values), abs=1e-12)
        assert told.recommended_fraction == pytest.approx(best[place] / len(values), abs=2e-3)
    assert not np.allclose(on_front, best)


def test_orders_hold_in_as_many_draws_as_one_counts() -> None:
    job, front = unsure_front()
    values = drawn_front(job, front, 1)[1].values
    found = input_uncertainty_of(job, front, IDS, ROW, seed=1)
    middle = front.objectives(job)
    orderings: list[object] = []
    neighbours: list[object] = []
    for k, objective in enumerate(job.objectives):
        order = np.argsort(middle[:, k])
        best = int(order[0])
        if middle[best, k] < middle[ROW, k]:
            holds = np.mean([draw[best, k] < draw[ROW, k] for draw in values])
            orderings.append((objective.value, IDS[best], pytest.approx(holds, abs=1e-12)))
        for less, more in pairwise(order.tolist()):
            if middle[less, k] < middle[more, k]:
                holds = np.mean([draw[less, k] < draw[more, k] for draw in values])
                neighbours.append((objective.value, IDS[less], IDS[more], pytest.approx(holds, abs=1e-12)))
    assert orderings
    assert len(neighbours) >= 2 * len(job.objectives) - 1
    told: list[object] = [(one.objective, one.design_id, one.holds_fraction) for one in found.orderings]
    assert told == orderings
    pairs: list[object] = [
        (one.objective, one.design_id, one.next_design_id, one.holds_fraction) for one in found.neighbours
    ]
    assert pairs == neighbours


def test_equal_designs_have_no_order() -> None:
    job, front = unsure_front()
    twice = front.take(np.array([0, 0, 2]))
    found = input_uncertainty_of(job, twice, IDS, 1, seed=1)
    pairs = {frozenset((one.design_id, one.next_design_id)) for one in found.neighbours}
    assert frozenset(IDS[:2].tolist()) not in pairs
    assert pairs
    assert IDS[0] not in {one.design_id for one in found.orderings}


def test_of_a_long_front_the_best_by_every_objective_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_uncertainty, "MOST_RIVALS", 2)  # the ends of the front
    job, front = unsure_front()
    best = int(front.objectives(job)[:, 0].argmin())
    others = [row for row in range(3) if row != best]
    order = np.array([others[0], best, others[1]])
    found = input_uncertainty_of(job, front.take(order), IDS[order], 2, seed=1)
    assert IDS[best] in {design.design_id for design in found.designs}
    (cheaper,) = (one for one in found.orderings if one.objective == "cost")
    values = drawn_front(job, front.take(order), 1)[1].values
    assert cheaper.design_id == IDS[best]
    assert cheaper.holds_fraction == pytest.approx(np.mean(values[:, 1, 0] < values[:, 2, 0]), abs=1e-12)


def test_bars_of_an_input_have_the_places_that_one_counts_the_longest_bar_first() -> None:
    unsure = drawn_front(*unsure_front(), 1)[0]
    ends, bars = objectives_at_ends(unsure), front_tornado(unsure, IDS)
    assert {bar.design_id for bar in bars} == set(IDS.tolist())
    moved = 0
    for bar in bars:
        lever, k = ends.names.index(bar.input), ends.columns.index(bar.objective)
        row = IDS.tolist().index(bar.design_id)
        for values, at, place in (
            (ends.middle[:, k], bar.middle, bar.place),
            (ends.low[lever, :, k], bar.at_low, bar.place_at_low),
            (ends.high[lever, :, k], bar.at_high, bar.place_at_high),
        ):
            assert at == values[row]
            assert place == 1 + sum(value < values[row] for value in values)
        moved += bar.place_at_low != bar.place_at_high
        assert bar.at_low != bar.at_high, bar.input
    assert moved > 0
    for _, group in groupby(bars, key=lambda bar: (bar.design_id, bar.objective)):
        lengths = [abs(bar.at_high - bar.at_low) for bar in group]
        assert lengths == sorted(lengths, reverse=True)


def test_what_just_meets_a_limit_meets_it() -> None:
    assert share_within(np.array([1.0, 2.0, 3.0, 4.0]), 3.0) == 0.75
    assert share_within(np.array([1.0]), None) is None


def spread_of(values: Floats) -> Spread:
    p5, p50, p95 = percentiles(values)
    return Spread(mean=float(np.mean(values)), p5=p5, p50=p50, p95=p95)


def test_replays_pay_rent_from_the_first_start_on_and_are_told_as_they_are() -> None:
    job, front = unsure_front()
    wall_s, cost_usd = replayed(job, front.take(np.array([ROW])), seed=3)
    run = front.outcomes.run.take(np.array([ROW]))
    assert len(wall_s) == NUM_REPLAYS
    assert wall_s.min() >= run.initialization_s[0] + run.productive_s[0]
    # Rent of 32 accelerators, and no storage, for as long as each lasts.
    np.testing.assert_allclose(cost_usd, 32 * 1.3 * wall_s / HOUR, rtol=1e-9)
    limits = {
        "deadline_days": float(np.quantile(wall_s, 0.25)) / DAY,
        "budget_usd": float(np.quantile(cost_usd, 0.75)),
    }
    job, front = unsure_front(**limits)
    told = uncertainty_of(job, front, IDS, ROW, seed=3)
    for found, values in (
        (told.time_to_train_days, wall_s / DAY),
        (told.cost_usd, cost_usd),
        (told.goodput_fraction, run.productive_s[0] / wall_s),
    ):
        assert found.model_dump() == pytest.approx(spread_of(values).model_dump(), rel=1e-12)
    assert told.deadline_probability == np.mean(wall_s / DAY <= limits["deadline_days"])
    assert told.budget_probability == np.mean(cost_usd <= limits["budget_usd"])
    assert told.deadline_probability == pytest.approx(0.25, abs=0.01)
    assert told.budget_probability == pytest.approx(0.75, abs=0.01)


def test_a_replay_without_failures_takes_the_expected_run_its_first_start_included() -> None:
    job = job_with(
        reliability={"preset": "typical", "failures_per_1000_node_days": 1e-12, "straggler_log_mean": None},
        workload={"tokens": 2e8},
    )
    chosen = evaluate(job, plans_with({"num_gpus": 16, "zero_stage": 3}))
    run = chosen.outcomes.run
    assert run.initialization_s[0] > 0.1 * run.wall_time_s[0]
    wall_s, _ = replayed(job, chosen, seed=3)
    np.testing.assert_allclose(wall_s, run.wall_time_s[0], rtol=1e-6)
