"""Is the effect of another choice that between two designs under the same input, also where one of them is no longer had?"""

from __future__ import annotations

import pytest

from constraints.evaluation import evaluate
from planner.compare.choice import choices_of
from planner.compare.sides import Side
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from tests.support import A100_RENTED, H100_RENTED, job_with, plans_with

FAST, CHEAP = (
    plans_with({"num_gpus": 64, "zero_stage": 3}).plan(0),
    plans_with({"num_gpus": 32, "zero_stage": 3, "offer": 1}).plan(0),
)
"""On H100, and on A100."""


def usd_and_days(job: Job, plan: Plan) -> tuple[float, float]:
    scores = evaluate(job, PlanTable.from_plans([plan])).scores
    return float(scores.cost_usd[0]), float(scores.time_to_train_s[0]) / 86_400


def side(name: str, job: Job, plan: Plan, *front: Plan) -> Side:
    return Side(name=name, job=job, plan=plan, front=front)


def test_an_input_that_chooses_is_told_by_both_designs_under_it() -> None:
    def job(tokens: float, deadline_days: float) -> Job:
        return job_with(
            H100_RENTED,
            {**A100_RENTED, "rent_usd_per_gpu_hour": 0.5},
            workload={"tokens": tokens},
            objectives=["cost"],
            limits={"deadline_days": deadline_days},
        )

    days = usd_and_days(job(5e10, 1e3), CHEAP)[1]
    # The cheap design just keeps the deadline, which a job of twice the tokens does not.
    few, many = (job(tokens, 1.1 * days) for tokens in (5e10, 1e11))
    assert usd_and_days(few, CHEAP)[0] < usd_and_days(few, FAST)[0]
    causes, notes = choices_of(side("few", few, CHEAP, CHEAP, FAST), side("many", many, FAST, CHEAP, FAST))
    (cause,) = [cause for cause in causes if cause.effects]
    assert cause.input == "workload.tokens"
    assert notes == [
        "what an input leads to is chosen among the 2 designs of both answers"
    ]  # each has its best one
    for name, before, after in zip(
        ("cost_usd", "time_to_train_days"), usd_and_days(many, CHEAP), usd_and_days(many, FAST), strict=True
    ):
        assert cause.effects[name] == pytest.approx(after - before, rel=1e-9), name


def test_a_design_that_is_taken_off_the_market_is_compared_as_it_was() -> None:
    both = job_with(H100_RENTED, A100_RENTED, objectives=["time_to_train"])
    alone = job_with(A100_RENTED, objectives=["time_to_train"])
    only = CHEAP.model_copy(update={"offer": 0})
    causes, _ = choices_of(side("both", both, FAST, CHEAP, FAST), side("alone", alone, only, only))
    (cause,) = [cause for cause in causes if cause.note]
    assert "leads to 32 x a100-sxm4-80gb" in cause.note
    change = usd_and_days(both, CHEAP)[0] - usd_and_days(both, FAST)[0]
    assert cause.effects["cost_usd"] == pytest.approx(change, rel=1e-9)


def test_without_an_accelerator_in_common_one_input_alone_leaves_nothing_on_offer() -> None:
    first, other = job_with(H100_RENTED), job_with(A100_RENTED)
    only = CHEAP.model_copy(update={"offer": 0})
    causes, notes = choices_of(side("first", first, FAST, FAST), side("other", other, only, only))
    told = {cause.input: cause.note for cause in causes if cause.note}
    reason = "with this input alone, none of the designs of the two answers can be run"
    assert told == {"offers[h100-sxm5-80gb]": reason}
    assert any("different design due to several inputs" in note for note in notes)


def test_an_input_that_stops_every_known_design_chooses_none() -> None:
    first, other = job_with(), job_with(workload={"global_batch_size": 32})
    (cause,), _ = choices_of(side("first", first, FAST, FAST), side("other", other, FAST, FAST))
    assert cause.note == "with this input alone, none of the designs of the two answers can be run"


def test_limits_that_no_known_design_keeps_choose_none() -> None:
    usual, tight = job_with(), job_with(limits={"budget_usd": 10.0})
    sides = side("usual", usual, FAST, FAST), side("tight", tight, FAST, FAST)
    (cause,), notes = choices_of(*sides)
    assert cause.note == "with this input alone, none of the designs of the two answers meets the limits"
    assert not any("several inputs" in note for note in notes)
    reason = "none of the designs of the two answers meets the limits of tight"
    assert choices_of(*reversed(sides)) == ([], [reason])


def test_an_input_that_stops_the_design_is_told_by_the_rule() -> None:
    first, other = job_with(), job_with(workload={"global_batch_size": 32})
    small = FAST.model_copy(update={"num_gpus": 32, "data_parallel": 32})
    (cause,), _ = choices_of(side("first", first, FAST, FAST, small), side("other", other, small, small))
    assert cause.effects == {}
    assert "global_batch_size" in cause.note
    assert "leads to" not in cause.note


@pytest.mark.parametrize("given", [0, 1])
def test_where_either_design_was_given_nothing_was_chosen(given: int) -> None:
    dear = {**H100_RENTED, "rent_usd_per_gpu_hour": 9.0}
    fronts = [() if place == given else (FAST,) for place in range(2)]
    sides = [
        side("one", job, FAST, *front)
        for job, front in zip((job_with(), job_with(dear)), fronts, strict=True)
    ]
    assert choices_of(*sides) == ([], [])
