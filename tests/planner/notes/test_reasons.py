"""Do the reasons of a recommendation name the rivals, what they cost, and the limits that excluded others?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from constraints.evaluation import evaluate
from planner.notes.reasons import cautions, rule_text, why_chosen
from tests.support import A100_RENTED, H100_RENTED, job_with, plans_with

DAY = 86_400.0


@pytest.mark.parametrize("site", ["us-iowa", "norway"])
def test_a_rival_is_told_with_its_gain_its_losses_and_its_site_if_there_are_several(site: str) -> None:
    offers = ({**H100_RENTED, "site": "us-iowa"}, {**A100_RENTED, "site": site})
    job = job_with(*offers, objectives=["time_to_train", "cost"])
    front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 64, "offer": 1}))
    days, usd = np.array([30.0, 24.0]), np.array([1e6, 1.5e6])
    front = replace(front, scores=replace(front.scores, time_to_train_s=days * DAY, cost_usd=usd))
    told = why_chosen(job, front, 0)
    where = " in norway" if site == "norway" else ""
    rival = f"64 x {job.offers[1].accelerator.name}{where}: +50.0 % cost"
    assert told[1] == f"The lowest time to train is 24.0 days (-20.0 %) with {rival}."
    assert told[2] == "It has the lowest cost on the front: $1.00 M."


def test_a_rival_of_one_objective_loses_nothing() -> None:
    job = job_with(H100_RENTED, objectives=["time_to_train"])
    front = evaluate(job, plans_with({"num_gpus": 16}, {"num_gpus": 16}))
    front = replace(front, scores=replace(front.scores, time_to_train_s=np.array([30.0, 24.0]) * DAY))
    told = why_chosen(job, front, 0)[1]
    assert told == "The lowest time to train is 24.0 days (-20.0 %) with the same accelerators."


def test_a_rule_has_the_limit_and_the_share_of_runs_that_must_keep_it() -> None:
    job = job_with(H100_RENTED, limits={"deadline_days": 45, "budget_usd": 2.1e6, "budget_probability": 0.95})
    assert rule_text(job, "deadline_days") == "time to train above deadline_days = 45"
    assert rule_text(job, "budget_usd") == "cost above budget_usd = 2,100,000 in more than 5.0 % of the runs"
    assert rule_text(job, "progress").startswith("failures occur faster")


def test_the_longest_of_the_runs_of_more_than_a_year_is_told() -> None:
    job = job_with(H100_RENTED)
    front = evaluate(job, plans_with(*({"num_gpus": num} for num in (16, 32, 64))))
    front = replace(front, scores=replace(front.scores, time_to_train_s=np.array([300.0, 400, 500]) * DAY))
    told = next(note for note in cautions(job, front) if "longer than a year" in note)
    assert told.startswith("2 of 3 designs on the front take longer than a year, up to 500 days")
