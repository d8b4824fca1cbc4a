"""Are designs ranked by mean, late runs and risks as their replays rank them, and do ties hold both ways?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from constraints.evaluation import Evaluation, evaluate
from constraints.space import pruned_space
from planner.uncertainty import interval_log_half_widths, tied_designs, tied_rows, uncertainty_of
from simulator.job import Job
from simulator.run_spread import LEAST_RISK, miss_probability
from simulator.simulate import replicate
from simulator.step_error import step_error
from simulator.table import Floats
from simulator.units import DAY
from tests.support import A100_RENTED, H100_RENTED, job_with

SHORT, LONG = 5e10, 2e13
"""Tokens: of runs with a failure at most, most likely, and of runs with a hundred and more."""
WIDE = {"min": 16, "max": 512}
NUM_DESIGNS, NUM_REPLAYS = 60, 200
ROUNDING = 1e-9


@given(
    arrays(np.float64, (5, 2), elements=st.floats(0.0, 10.0)),
    arrays(np.float64, 5, elements=st.floats(0.0, 0.5)),
)
def test_of_two_designs_each_is_tied_with_the_other_or_neither_is(values: Floats, errors: Floats) -> None:
    tied = np.stack([tied_rows(values, row, errors) for row in range(len(values))])
    np.testing.assert_array_equal(tied, tied.T)
    assert not tied.diagonal().any()


def test_designs_are_tied_up_to_the_error_and_not_beyond_it_in_any_objective() -> None:
    values = np.array(
        [[100.0, 10.0], [109.0, 10.0], [111.0, 10.0], [91.0, 10.9], [90.0, 10.0], [100.0, 12.0]]
    )
    assert tied_rows(values, 0, np.full(6, 0.1)).tolist() == [False, True, False, True, False, False]


def test_the_surer_of_two_designs_says_whether_they_are_tied() -> None:
    values = np.array([[100.0], [105.0], [105.0], [115.0], [95.0]])
    errors = np.array([0.1, 0.2, 0.03, 0.2, 0.06])
    assert tied_rows(values, 0, errors).tolist() == [False, True, False, False, True]


def test_risks_are_tied_where_a_step_within_the_error_makes_them_equal() -> None:
    job = job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={"tokens": LONG},
        reliability="typical",
        objectives=["deadline_risk"],
        limits={"deadline_days": 1e4},
    )
    space = pruned_space(job)
    found = evaluate(job, space.designs_at(np.arange(min(40, space.num_designs))))
    late_s = found.scores.time_to_train_p95_s
    job = job.model_copy(
        update={"limits": job.limits.model_copy(update={"deadline_days": float(np.median(late_s)) / DAY})}
    )
    found = evaluate(job, found.plans)
    wall_s, risk = found.scores.time_to_train_s, found.scores.deadline_risk
    for row in range(0, len(found), 7):
        for error in (0.03, 0.1):
            tied = tied_designs(job, found, row, np.full(len(found), error))
            apart = np.maximum(wall_s, wall_s[row]) / np.minimum(wall_s, wall_s[row]) - 1.0
            is_told = (np.minimum(risk, risk[row]) > LEAST_RISK) & (np.maximum(risk, risk[row]) < 1.0)
            # Chance stretches these runs nearly alike, so that their means say which of them the error covers.
            assert tied[is_told & (apart < 0.8 * error) & (np.arange(len(found)) != row)].all()
            assert not tied[is_told & (apart > 1.25 * error)].any()
            assert not tied[row]


def test_each_design_of_a_front_has_the_interval_of_its_own_accelerator() -> None:
    job = job_with({**A100_RENTED, "num_gpus": WIDE}, {**H100_RENTED, "num_gpus": WIDE})
    layouts = pruned_space(job).designs()
    rows = [np.flatnonzero(layouts.offer == offer)[0] for offer in (1, 0, 1)]
    widths = interval_log_half_widths(job, evaluate(job, layouts.take(np.array(rows))))
    of_hopper = step_error("hopper", "bf16", accelerator="h100-sxm5-80gb").interval_log_half_width
    of_ampere = step_error("ampere", "bf16", accelerator="a100-sxm4-80gb").interval_log_half_width
    assert of_hopper != of_ampere
    assert widths.tolist() == [of_hopper, of_ampere, of_hopper]


def test_ties_and_the_told_range_are_the_calibrated_interval_of_a_step() -> None:
    job = job_with({**H100_RENTED, "num_gpus": {"min": 16, "max": 64}}, reliability="typical")
    space = pruned_space(job)
    front = evaluate(job, space.designs_at(np.arange(min(40, space.num_designs))))
    found = uncertainty_of(job, front, np.arange(len(front)), 0, seed=1)
    step_s = float(front.outcomes.steps.step_time_s[0])
    # Four of five normal errors lie within 1.2816 standard deviations; the file has those of H100 in bf16.
    known = step_error("hopper", "bf16", accelerator="h100-sxm5-80gb")
    ratio = math.exp(1.2816 * math.hypot(known.shared_log_deviation, known.own_log_deviation))
    assert found.step_time_low_s == pytest.approx(step_s / ratio, rel=1e-4)
    assert found.step_time_high_s == pytest.approx(step_s * ratio, rel=1e-4)
    errors = np.full(len(front), found.step_time_high_s / step_s - 1.0)
    expected = tied_rows(front.objectives(job), 0, errors)
    assert found.tied_designs == tuple(np.flatnonzero(expected).tolist())


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
