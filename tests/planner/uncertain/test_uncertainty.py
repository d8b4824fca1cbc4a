"""Are designs ranked by mean, late runs and risks as their replays rank them, and do ties hold both ways?"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from constraints.evaluation import Evaluation, evaluate
from constraints.space import pruned_space
from objectives.unsure_inputs import step_error_of
from planner.measured.reach import reach_of_row
from planner.measured.row_reasons import reason_against
from planner.measured.runs import job_of, plan_of, read_rows
from planner.notes.accuracy_notes import accuracy_notes
from planner.recommended.designs import designs_of
from planner.uncertain.ties import BATCH, surely_ordered, tied_designs
from planner.uncertain.uncertainty import accuracy_of, uncertainty_of
from simulator.accuracy.published_runs import step_time_error
from simulator.accuracy.step_error import UNSEEN_RATIOS, step_error
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.run.spread import miss_probability
from simulator.simulate import replicate
from simulator.step.step_reach import reach_of
from simulator.table import Floats
from simulator.units import DAY
from tests.support import A100_RENTED, H100_RENTED, job_with

SHORT, LONG = 5e10, 2e13
"""Tokens: of runs with a failure at most, most likely, and of runs with a hundred and more."""
WIDE = {"min": 16, "max": 512}
NUM_DESIGNS, NUM_REPLAYS = 60, 200
ROUNDING = 1e-9


def test_designs_are_told_apart_by_the_draws_of_either_order() -> None:
    reference = np.zeros((10, 1, 2))
    values = np.ones((10, 4, 2))
    values[:2, 1:] = -1.0  # only the first is more in nine of ten draws
    values[:, 2, 1] = 0.0  # what is equal in every draw has no order
    values[:, 3, 0] = -1.0
    told = surely_ordered(values, reference)
    assert told.tolist() == [[True, True], [False, False], [False, False], [True, False]]
    for row in range(4):
        np.testing.assert_array_equal(surely_ordered(reference, values[:, row : row + 1])[0], told[row])


def test_the_error_of_a_layout_ties_others_near_to_it_but_not_itself_with_another_power_cap() -> None:
    job = job_with({**H100_RENTED, "num_gpus": 64}, reliability="typical")
    space = pruned_space(job)
    found = evaluate(job, space.designs_at(np.arange(min(400, space.num_designs))))
    step_s = found.outcomes.steps.step_time_s
    alike = found.plans.num_spare_nodes, found.plans.recompute  # which tell in cost and energy
    first, second = min(  # the two such layouts that take most nearly as long
        (
            pair
            for pair in pairwise(np.argsort(step_s))
            if np.ptp(step_s[list(pair)]) > 0.0 and all(np.ptp(column[list(pair)]) == 0 for column in alike)
        ),
        key=lambda pair: step_s[pair[1]] / step_s[pair[0]],
    )
    plans = found.plans.take(np.array([first, second, first, first]))
    caps = np.array([1.0, 1.0, 0.9, 1.0])
    front = evaluate(job, replace(plans, power_cap_fraction=caps))
    ratio = front.scores.time_to_train_s / front.scores.time_to_train_s[0]
    known = step_error("hopper", "bf16", accelerator="h100-sxm5-80gb")
    # Two layouts have an error of their own each; of that of the accelerator neither tells them apart.
    assert abs(math.log(ratio[1])) < 0.5 * known.own_log_deviation
    assert 1.0 < ratio[2] < math.exp(known.interval_log_half_widths.above)  # within the interval of a step
    assert tied_designs(job, front, 0, seed=1).tolist() == [False, True, False, True]
    other_order = front.take(np.array([2, 0, 1, 3]))
    assert tied_designs(job, other_order, 1, seed=1).tolist() == [False, False, True, True]


def test_designs_that_are_alike_are_tied_however_many_there_are() -> None:
    job = job_with({**H100_RENTED, "num_gpus": 64}, reliability="typical")
    one = evaluate(job, pruned_space(job).designs_at(np.zeros(1, dtype=np.intp)))
    alike = one.take(np.zeros(2 * BATCH + 2, dtype=np.intp))
    assert tied_designs(job, alike, 1, seed=1).tolist() == [row != 1 for row in range(len(alike))]


@pytest.mark.long
def test_a_long_front_is_drawn_until_no_design_is_tied_any_more() -> None:
    job = job_with({**H100_RENTED, "num_gpus": 64}, reliability="typical")
    space = pruned_space(job)
    front = evaluate(job, space.designs_at(np.arange(min(150, space.num_designs))))
    assert len(front) > 2 * BATCH
    tied = tied_designs(job, front, 0, seed=1)
    assert 0 < tied.sum() < len(front) - 1
    every = front.take(np.roll(np.arange(len(front)), 70))  # in another order
    np.testing.assert_array_equal(tied_designs(job, every, 70, seed=1), np.roll(tied, 70))


def test_the_told_range_is_the_calibrated_interval_of_a_step_on_that_accelerator() -> None:
    for offer, family, name in (
        (H100_RENTED, "hopper", "h100-sxm5-80gb"),
        (A100_RENTED, "ampere", "a100-sxm4-80gb"),
    ):
        job = job_with({**offer, "num_gpus": {"min": 16, "max": 64}}, reliability="typical")
        design = evaluate(job, pruned_space(job).designs_at(np.arange(1)))
        found = uncertainty_of(job, design, np.arange(1), 0, seed=1)
        step_s = float(design.outcomes.steps.step_time_s[0])
        # Four of five normal errors lie within 1.2816 standard deviations.
        known = step_error(family, "bf16", accelerator=name)
        ratio = math.exp(1.2816 * math.hypot(known.shared_log_deviation, known.own_log_deviation))
        assert found.step_time_low_s == pytest.approx(step_s / ratio**UNSEEN_RATIOS.below, rel=1e-4)
        assert found.step_time_high_s == pytest.approx(step_s * ratio**UNSEEN_RATIOS.above, rel=1e-4)


def test_rows_and_designs_reach_equally_far() -> None:
    row = next(row for row in read_rows() if row["context_parallel"] == "2" and not reason_against(row))
    asked = {
        **row,
        "sequence_length": "131072",
        "context_parallel": "4",
        "num_gpus": str(2 * int(row["num_gpus"])),
    }
    plan = PlanTable.from_plans([plan_of(asked)])
    assert reach_of_row(asked) == reach_of(job_of(asked), plan, 0)


@pytest.mark.parametrize(
    ("offer", "workload", "plan", "told"),
    [
        ({}, {}, {"context_parallel": 2, "data_parallel": 8}, ""),
        ({}, {}, {"context_parallel": 4, "data_parallel": 4}, "context parallelism 4 (measured: up to 2)"),
        ({}, {"sequence_length": 131_072}, {}, "sequences of 131,072 tokens (measured: up to 65,536)"),
        ({}, {}, {"tensor_parallel": 16, "data_parallel": 1}, "tensor parallelism across link domains"),
        ({}, {"lora": {"rank": 16}}, {}, "low-rank adapters"),
        ({}, {"model": "deepseek-v2-lite"}, {}, "latent attention"),
        ({"accelerator": "b200-sxm-180gb"}, {}, {"precision": "fp4"}, "4 bits"),
        ({"accelerator": "h200-sxm-141gb"}, {}, {}, "h200-sxm-141gb"),
    ],
)
def test_what_was_never_measured_has_a_wide_error_and_a_note(
    offer: dict[str, object], workload: dict[str, object], plan: dict[str, object], told: str
) -> None:
    job = job_with({**H100_RENTED, "num_gpus": 16, **offer}, workload=workload)
    chosen = Plan.model_validate({"offer": 0, "num_gpus": 16, "data_parallel": 16, **plan})
    found = evaluate(job, PlanTable.from_plans([chosen]))
    accuracy = accuracy_of(job, found.plans, 0)
    width = step_error_of(job, found.plans, 0).interval_log_half_widths.above
    (best,) = designs_of(job, found, np.zeros(1, dtype=np.int64))
    notes = [note for note in accuracy_notes(job, None, best) if "No published step" in note]
    assert told in " ".join(notes)
    assert len(notes) == bool(told)
    assert accuracy.is_measured == (not told)
    has_experts = job.workload.model.experts is not None
    alike = (
        step_error("any", "any", has_experts=has_experts).interval_log_half_widths.above / 1.5
    )  # an architecture
    least = alike if "accelerator" in offer and "precision" not in plan else 2.0 * alike
    assert (width >= 0.999 * least) == bool(told)
    known = accuracy.mean_absolute_error_fraction
    assert (
        not told
        or known >= step_time_error("hopper", "bf16", has_experts=has_experts).mean_absolute_error_fraction
    )


def drawn_designs(tokens: float, deadline_days: float) -> tuple[Job, Evaluation]:
    """Some designs of a job, drawn at random."""
    job = job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        {**A100_RENTED, "num_gpus": WIDE},
        workload={"tokens": tokens},
        reliability="harsh",
        limits={"deadline_days": deadline_days},
    )
    space = pruned_space(job)
    drawn = np.random.default_rng(1).choice(space.num_designs, NUM_DESIGNS, replace=False)
    return job, evaluate(job, space.designs_at(drawn))


def is_always_shorter(job: Job, found: Evaluation) -> NDArray[np.bool_]:
    """Which design has a shorter run than which in every replay, `(n, n)`."""
    replays = replicate(job, found.plans, found.outcomes, num_replications=NUM_REPLAYS, seed=1)
    wall_s = replays.wall_s + found.outcomes.run.initialization_s[:, None]
    is_shorter = (wall_s[:, None] <= wall_s[None]).all(axis=2) & ~np.eye(NUM_DESIGNS, dtype=np.bool_)
    assert is_shorter.sum() > NUM_DESIGNS  # otherwise nothing is compared
    return np.asarray(is_shorter)


def is_ranked_worse(values: Floats) -> NDArray[np.bool_]:
    """Which design has more than which, `(n, n)`, beyond rounding."""
    return np.asarray(values[:, None] > values[None] * (1.0 + ROUNDING))


@pytest.mark.parametrize("tokens", [SHORT, LONG])
def test_a_design_whose_run_is_shorter_in_every_replay_is_never_later_on_average_or_in_bad_luck(
    tokens: float,
) -> None:
    job, found = drawn_designs(tokens, deadline_days=1e3)
    is_shorter = is_always_shorter(job, found)
    for values in (found.scores.time_to_train_s, found.scores.time_to_train_p95_s):
        assert not (is_ranked_worse(values) & is_shorter).any()


def test_a_design_whose_run_is_shorter_in_every_replay_never_risks_the_deadline_more() -> None:
    days = drawn_designs(LONG, deadline_days=1e4)[1].scores.time_to_train_s / DAY
    job, found = drawn_designs(LONG, deadline_days=float(np.quantile(days, 0.1)))
    assert found.outcomes.run.num_failures.min() > 10  # the normal distribution is none of fewer failures
    risk = found.scores.deadline_risk
    assert 0.1 < (risk < 0.5).mean() < 0.9
    assert not (is_ranked_worse(risk) & is_always_shorter(job, found)).any()


def test_a_run_is_never_shorter_than_one_without_failures() -> None:
    job, found = drawn_designs(SHORT, deadline_days=1e3)
    run = found.outcomes.run
    least_s = run.initialization_s + run.productive_s
    for share, is_certain in ((0.999, True), (1.1, False)):
        risk = miss_probability(job, found.plans, found.outcomes.steps, run, share * least_s)
        assert (risk == 1.0).all() if is_certain else (risk < 1.0).any(), share
