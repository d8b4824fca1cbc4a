from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from constraints.evaluation import evaluate
from constraints.limits import (
    LIMIT_NAMES,
    ExcessTable,
    check_limits,
    excess_over,
    limited_quantities,
    set_limits,
    with_limits,
)
from simulator.domain.limits import Limits
from tests.support import job_with, plans_with

PLANS = plans_with(
    {"num_gpus": 16, "tensor_parallel": 4, "num_spare_nodes": 1}, {"num_gpus": 32, "tensor_parallel": 4}
)


def test_the_excess_is_the_share_beyond_the_limit() -> None:
    np.testing.assert_allclose(
        excess_over(50.0, np.array([25.0, 50.0, 55.0, np.inf])), [0.0, 0.0, 0.1, np.inf]
    )
    np.testing.assert_array_equal(excess_over(None, np.array([1.0, np.inf])), [0.0, 0.0])


def test_every_limit_of_a_job_can_be_exceeded() -> None:
    sureness = {"deadline_probability", "budget_probability"}
    assert set(LIMIT_NAMES) == set(Limits.model_fields) - sureness
    result = evaluate(job_with(), PLANS)
    values = limited_quantities(job_with(), PLANS, result.scores, result.outcomes)
    assert result.is_feasible.all()
    for name in LIMIT_NAMES:
        limit = float(values[name].min())  # the smaller design keeps it, the other one does not
        excess = check_limits(with_limits(job_with(), {name: limit}), PLANS, result.outcomes, result.scores)
        np.testing.assert_allclose(getattr(excess, name), values[name] / limit - 1.0)
        assert excess.is_feasible.tolist() == (values[name] <= limit).tolist()
        np.testing.assert_array_equal(excess.total, getattr(excess, name))


def test_limited_quantities_are_in_the_units_of_the_limits() -> None:
    result = evaluate(job_with(), PLANS)
    values = limited_quantities(job_with(), PLANS, result.scores, result.outcomes)
    np.testing.assert_allclose(values["deadline_days"], result.outcomes.run.wall_time_s / 86_400.0)
    np.testing.assert_array_equal(values["num_gpus"], [16.0, 32.0])  # spares are not counted


@pytest.mark.parametrize(("name", "headroom"), [("memory", 0.0), ("memory", 0.2), ("host_memory", 0.0)])
def test_memory_beyond_the_hardware_is_exceeded_by_its_share(name: str, headroom: float) -> None:
    job = job_with(search={"memory_headroom_fraction": headroom})
    result = evaluate(job, PLANS)
    chip, node = job.offers[0].accelerator, job.offers[0].node
    if name == "memory":
        held = result.outcomes.summary.peak_memory_bytes
        chip = chip.model_copy(update={"memory_bytes": held[0] / 1.25 / (1.0 - headroom)})
    else:
        held = result.outcomes.checkpoints.host_memory_bytes
        node = node.model_copy(update={"host_memory_bytes": held[0] / 1.25})
    offer = job.offers[0].model_copy(update={"accelerator": chip, "node": node})
    excess = check_limits(job.model_copy(update={"offers": (offer,)}), PLANS, result.outcomes, result.scores)
    assert getattr(excess, name)[0] == pytest.approx(0.25)
    assert not excess.is_possible[0]


def test_a_run_without_progress_is_infinitely_far_from_feasible() -> None:
    result = evaluate(job_with(), PLANS)
    run = replace(result.outcomes.run, makes_progress=np.array([True, False]))
    excess = check_limits(job_with(), PLANS, replace(result.outcomes, run=run), result.scores)
    np.testing.assert_array_equal(excess.total, [0.0, np.inf])
    np.testing.assert_array_equal(excess.is_possible, [True, False])


def test_limits_are_read_in_their_order_and_written_back() -> None:
    job = job_with(limits={"power_w": 5e5, "budget_usd": 1e6})
    assert list(set_limits(job).items()) == [("budget_usd", 1e6), ("power_w", 5e5)]
    assert set_limits(with_limits(job, {"num_gpus": 64.0})) == {"num_gpus": 64}
    assert set_limits(with_limits(job, {})) == {}


def test_dropping_the_power_limit_keeps_the_power_caps_that_it_brought() -> None:
    # A job searches over caps because its power is limited; the least power of its designs is the one with caps.
    job = job_with(limits={"power_w": 5e5})
    assert with_limits(job, {}).power_caps == job.power_caps == (1.0, 0.8, 0.6)
    assert with_limits(job_with(), {"power_w": 5e5}).power_caps == (1.0,)


def test_the_names_of_the_columns_are_those_of_the_reports() -> None:
    assert ExcessTable.names() == ("memory", "host_memory", "progress", *LIMIT_NAMES)
