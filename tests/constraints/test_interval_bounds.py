"""Is the least that another interval between saves could reach below everything that intervals do reach?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from constraints.evaluation import evaluate
from constraints.interval_bounds import (
    ENERGY_OF_WORK,
    holds_with_any_spares,
    least_by_intervals,
    undisturbed,
)
from constraints.lattice import cross_run_knobs, enumerate_layouts
from constraints.limits import limited_quantities
from objectives.scores import score
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import phase_power
from simulator.run.energy import EnergyTable
from simulator.run.wall_time import PARTS
from simulator.simulate import simulate
from simulator.table import Floats
from simulator.units import JOULES_PER_KWH
from tests.support import H100_BOUGHT, H100_RENTED, job_with

SEARCH = {"checkpoint_schemes": list(CheckpointScheme), "zero_stages": [0, 1], "power_caps": [1.0, 0.6]}
SURELY = {
    "deadline_days": 1e6,
    "deadline_probability": 0.99,
    "budget_usd": 1e12,
    "budget_probability": 0.5,
}
JOBS: Mapping[str, Job] = {
    "expected": job_with(search=SEARCH, reliability="harsh"),
    "short, limits kept surely": job_with(
        search=SEARCH, workload={"tokens": 2e9}, reliability="young", limits=SURELY
    ),
    "bought, by the hour, saves that wait": job_with(
        H100_BOUGHT,
        site={
            "region": "here",
            "power_usage_effectiveness": 1.2,
            "grid_profile": HourlyProfile(per_hour=(0.1, 0.9, 0.3, 0.0, 0.7, 0.5) * 4),
            "electricity_profile": HourlyProfile(per_hour=(0.5,) * 14 + (0.01,) * 10),
        },
        search=SEARCH,
        workload={"tokens": 5e9, "evaluation_every_steps": 20, "evaluation_sequences": 128},
        reliability={"preset": "harsh", "fails_during_restart": True, "straggler_log_mean": None},
        checkpointing={"backpressure": "wait", "write_tax_fraction": 0.5, "fixed_stall_s": 30.0},
        limits=SURELY,
    ),
    "causes of stragglers": job_with(
        search=SEARCH, reliability={"preset": "harsh", "stragglers": "shared"}, limits=SURELY
    ),
}
ENERGY_ALONE = job_with(
    {**H100_BOUGHT, "purchase_usd_per_node": 1.0},
    site={
        "region": "here",
        "power_usage_effectiveness": 1.2,
        "grid_kgco2e_per_kwh": 0.3,
        "electricity_usd_per_kwh": 10.0,
    },
    search={"checkpoint_schemes": ["sync"], "num_refinements": 0},
    workload={"tokens": 2e9},
    reliability={
        "preset": "typical",
        "straggler_log_mean": None,
        "failures_per_1000_node_days": 20.0,
        "restart": {"replace_from_spare_s": 4000.0},
    },
    limits={"budget_usd": 1e12, "budget_probability": 0.95},
)
"""Money is for energy, so that an hour of waiting costs less than the mean hour of a run."""
INTERVALS_S = np.geomspace(1.0, 1e6, 40)
NUM_DESIGNS = 100
"""Designs of a job that are drawn."""


def drawn_designs(job: Job, seed: int) -> PlanTable:
    """Some designs of a job."""
    designs = cross_run_knobs(job, enumerate_layouts(job))
    return designs.take(np.random.default_rng(seed).choice(len(designs), NUM_DESIGNS, replace=False))


def quantities(job: Job, plans: PlanTable) -> dict[str, Floats]:
    """What limits bound, of simulated designs."""
    outcomes = simulate(job, plans)
    return limited_quantities(job, plans, score(job, plans, outcomes), outcomes)


def reached_by_intervals(job: Job, designs: PlanTable) -> dict[str, Floats]:
    """The least that any of many intervals between saves reaches, by design."""
    plans = replace(
        designs.take(np.repeat(np.arange(len(designs)), len(INTERVALS_S))),
        checkpoint_interval_s=np.tile(INTERVALS_S, len(designs)),
    )
    return {
        limit: values.reshape(len(designs), -1).min(axis=1)
        for limit, values in quantities(job, plans).items()
    }


@pytest.mark.short(2)
@pytest.mark.parametrize("name", JOBS)
def test_no_interval_beats_it(name: str) -> None:
    job = JOBS[name]
    designs = drawn_designs(job, seed=5)
    found = evaluate(job, designs)
    best = reached_by_intervals(job, designs)
    ends = found.outcomes.run.makes_progress
    assert ends.any()
    for limit, values in least_by_intervals(job, found).items():
        assert (values[ends] <= best[limit][ends] * (1.0 + 1e-9)).all(), limit
        assert (values[ends] > 0.2 * best[limit][ends]).any(), limit


def test_a_late_run_may_spend_its_time_at_the_least_power() -> None:
    designs = drawn_designs(ENERGY_ALONE, seed=5)
    least = least_by_intervals(ENERGY_ALONE, evaluate(ENERGY_ALONE, designs))["budget_usd"]
    best = reached_by_intervals(ENERGY_ALONE, designs)["budget_usd"]
    assert (least <= best).all()
    assert (least > 0.2 * best).all()


def test_what_an_unwise_interval_loses_is_not_part_of_it() -> None:
    # With a failure in every interval on average, e - 1 times the work is done, of which all but one is lost.
    often = {"preset": "harsh", "failures_per_1000_node_days": 2000}
    job = job_with(search={**SEARCH, "checkpoint_schemes": ["sync"]}, reliability=often)
    designs = drawn_designs(job, seed=5).take(slice(0, 20))
    mtbf_s = evaluate(job, designs).outcomes.run.mtbf_s
    unwise = evaluate(job, replace(designs, checkpoint_interval_s=mtbf_s))
    run = unwise.outcomes.run
    is_wasteful = run.makes_progress & (run.lost_work_s > 0.5 * run.productive_s)
    assert is_wasteful.any()
    best = reached_by_intervals(job, designs)
    for limit, values in least_by_intervals(job, unwise).items():
        assert (values <= best[limit] * (1.0 + 1e-9))[is_wasteful].all(), limit


def test_a_run_that_neither_saves_nor_fails_is_its_own_bound() -> None:
    job = job_with(
        search={**SEARCH, "checkpoint_schemes": ["none"]},
        reliability={"preset": "typical", "failures_per_1000_node_days": 1e-12},
        carbon_scope={"network": True, "storage": True, "building": True},
        storage={"capacity_bytes": 1e15},
        workload={"tokens": 2e8, "evaluation_every_steps": 20, "evaluation_sequences": 128},
    )
    designs = drawn_designs(job, seed=5)
    designs = replace(designs, num_spare_nodes=np.arange(len(designs)) % 3)
    reached = quantities(job, designs)
    found = evaluate(job, designs)
    assert (found.outcomes.run.initialization_s > 0.01 * found.outcomes.run.wall_time_s).any()
    for limit, values in least_by_intervals(job, found).items():
        np.testing.assert_allclose(values, reached[limit], rtol=1e-9, err_msg=limit)


def test_failures_of_an_undisturbed_run_destroy_accelerators_too() -> None:
    kept, replaced = (
        job_with(search=SEARCH, reliability="harsh", carbon_scope={"replacements": counted})
        for counted in (False, True)
    )
    designs = drawn_designs(kept, seed=5)
    found = [evaluate(job, designs) for job in (kept, replaced)]
    least, reached = (
        np.subtract(*values)
        for values in (
            [
                least_by_intervals(job, each)["carbon_kgco2e"]
                for job, each in ((replaced, found[1]), (kept, found[0]))
            ],
            [each.scores.carbon_kgco2e for each in found[::-1]],
        )
    )
    run = found[0].outcomes.run
    ends = run.makes_progress
    share = undisturbed(kept, run).num_failures[ends] / run.num_failures[ends]
    assert (reached[ends] > 0.0).all()
    np.testing.assert_allclose(least[ends], share * reached[ends], rtol=1e-6)


def test_a_late_run_has_idle_spares_all_the_time() -> None:
    job = ENERGY_ALONE.model_copy(
        update={
            "reliability": ENERGY_ALONE.reliability.model_copy(update={"failures_per_1000_node_days": 1e-12})
        }
    )
    designs = drawn_designs(job, seed=5)
    without, with_spares = (
        evaluate(job, replace(designs, num_spare_nodes=np.full(len(designs), number))) for number in (0, 3)
    )
    least = [least_by_intervals(job, found)["budget_usd"] for found in (without, with_spares)]
    power = phase_power(job, with_spares.plans, OfferTable.from_job(job).take(designs.offer))
    kwh = power.spares_w * with_spares.outcomes.run.wall_time_s / JOULES_PER_KWH
    assert (least[1] - least[0] > 0.99 * 10.0 * kwh).all()  # at 10 USD


@pytest.mark.short(2)
@pytest.mark.parametrize("name", JOBS)
def test_where_it_says_so_no_number_of_spares_beats_it_either(name: str) -> None:
    job = JOBS[name]
    designs = drawn_designs(job, seed=6)
    found = evaluate(job, replace(designs, num_spare_nodes=np.zeros_like(designs.num_spare_nodes)))
    holds = holds_with_any_spares(job, found)
    assert holds.any() != job.reliability.fails_during_restart
    bounds = least_by_intervals(job, found)
    for num_spares in (1, 2, 5):
        plans = replace(found.plans, num_spare_nodes=np.full(len(designs), num_spares))
        reached = quantities(job, plans)
        for limit, least in bounds.items():
            assert (least <= reached[limit] * (1.0 + 1e-12))[holds].all(), limit


def test_spares_may_spare_replicas_that_go_on_a_restart_of_all() -> None:
    job = job_with(
        search={"checkpoint_schemes": ["replica_ft"], "zero_stages": [0], "num_refinements": 0},
        workload={"tokens": 1e10},
        reliability={
            "preset": "typical",
            "failures_per_1000_node_days": 60.0,
            "repair_days": 10,
            "restart": {"replace_from_queue_s": 7e5, "diagnose_s": 2e4},
        },
    )
    designs = drawn_designs(job, seed=6)
    found = evaluate(job, replace(designs, num_spare_nodes=np.zeros_like(designs.num_spare_nodes)))
    least = least_by_intervals(job, found)["deadline_days"]
    with_spares = replace(found.plans, num_spare_nodes=np.full(len(designs), 64))
    assert (least > quantities(job, with_spares)["deadline_days"]).any()
    assert not holds_with_any_spares(job, found).any()


def test_the_parts_of_an_undisturbed_run_sum_to_its_time() -> None:
    job = JOBS["expected"]
    run = evaluate(job, cross_run_knobs(job, enumerate_layouts(job)).take(slice(0, None, 50))).outcomes.run
    least = undisturbed(job, run)
    ends = run.makes_progress
    np.testing.assert_allclose(
        least.wall_time_s[ends], sum(getattr(least, name)[ends] for name in PARTS), rtol=1e-12
    )
    # Failures come at the rate at which they come while the run is up: after its first start, and not on a way back.
    up_s = (run.wall_time_s - run.initialization_s - run.way_back_s)[ends]
    work_s = (run.productive_s + run.straggler_s + run.evaluation_s)[ends]
    rates = run.num_failures[ends] / up_s
    assert (rates > 0.0).all()
    np.testing.assert_allclose(least.num_failures[ends] / work_s, rates, rtol=1e-12)


def test_delays_of_an_undisturbed_run_are_spread_as_single_restarts_are() -> None:
    job = JOBS["expected"]
    run = evaluate(job, drawn_designs(job, seed=5).take(slice(0, 20))).outcomes.run
    least = undisturbed(job, run)
    restart = stats.lognorm(job.reliability.restart.log_deviation)
    mean, variance, skew = (float(value) for value in restart.stats("mvs"))
    failed = least.num_failures > 0.0
    assert failed.any()
    mean_s = least.near_mean_s[failed]
    deviation_s = mean_s * variance**0.5 / mean
    np.testing.assert_allclose(mean_s * least.num_calm[failed], least.restart_s[failed], rtol=1e-12)
    np.testing.assert_allclose(least.near_variance_s2[failed], deviation_s**2, rtol=1e-9)
    np.testing.assert_allclose(least.near_third_s3[failed], skew * deviation_s**3, rtol=1e-9)


def test_every_part_of_the_energy_is_that_of_steps_or_depends_on_the_interval() -> None:
    others = {"checkpoint_j", "lost_work_j", "restart_j", "spare_j"}
    assert {*ENERGY_OF_WORK, *others} == set(EnergyTable.names())


@pytest.mark.filterwarnings("error")
def test_a_run_that_never_ends_has_no_interruptions_in_its_bound() -> None:
    # Failures every half minute, and ways back of minutes that fail themselves.
    reliability = {"preset": "harsh", "failures_per_1000_node_days": 10_000, "fails_during_restart": True}
    job = job_with({**H100_RENTED, "num_gpus": 4096}, reliability=reliability)
    run = evaluate(job, cross_run_knobs(job, enumerate_layouts(job)).take(slice(0, 20))).outcomes.run
    never = ~run.makes_progress
    assert never.any()
    assert (undisturbed(job, run).num_failures[never] == 0.0).all()


def test_spares_may_end_what_never_ends_without_them_or_in_restarts_that_fail() -> None:
    search = {**SEARCH, "checkpoint_schemes": ["none"]}
    for often in ({"failures_per_1000_node_days": 10_000}, {"fails_during_restart": True}):
        job = job_with(search=search, reliability={"preset": "harsh", **often}, workload={"tokens": 5e11})
        found = evaluate(job, drawn_designs(job, seed=6).take(slice(0, 20)))
        ends = found.outcomes.run.makes_progress
        assert ends.any() == ("fails_during_restart" in often)
        assert not holds_with_any_spares(job, found).any()
