"""How far may the wall time of a run be from its mean? The closed form against replays of the event kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, Plan
from simulator.domain.reliability import Reliability
from simulator.domain.straggler_causes import STRAGGLER_PRESETS, StragglerPreset, Stragglers
from simulator.run.delays import Delays
from simulator.run.events import RunLedger, expected_ledger_and_delays
from simulator.run.spread import LEAST_RISK, Slowdowns, exceedance, miss_probability, wall_time_quantile_s
from simulator.run.strata import strata_of
from simulator.run.wall_time import RunTable
from simulator.simulate import replicate, simulate
from tests.simulator.builders import job_of, plan_of, table_of, training

SCHEMES = (CheckpointScheme.SYNC_SHARDED, CheckpointScheme.ASYNC, CheckpointScheme.IN_MEMORY_PEER)


def job_with(num_steps: int = 300_000, **reliability: object) -> Job:
    job = job_of(training(num_steps=num_steps))  # long enough for failures to be many
    figures = job.reliability.model_dump() | reliability
    return job.model_copy(update={"reliability": Reliability.model_validate(figures)})


def run_with(ledger: RunLedger, delays: Delays) -> RunTable:
    """The columns of a run of which nothing is known but its ledger and its delays."""
    wall_s = sum(getattr(ledger, name) for name in ledger.names() if name.endswith("_s"))
    nothing = np.zeros(len(ledger))
    return RunTable(
        **dict.fromkeys(RunTable.names(), nothing)
        | {
            "wall_time_s": wall_s,
            "makes_progress": np.isfinite(wall_s),
            "calm_s": delays.calm_s,
            "num_calm": delays.num_calm,
            **delays.by_class(),
        }
    )


def quantiles(job: Job, plan: Plan, probability: float) -> tuple[float, float]:
    """The closed form and the replays."""
    plans = table_of(plan)
    outcomes = simulate(job, plans)
    replays = replicate(job, plans, outcomes, num_replications=4000, seed=3)
    played_s = replays.wall_s[0] + outcomes.run.initialization_s[0]
    return float(wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, probability)[0]), float(
        np.quantile(played_s, probability)
    )


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rate", [2.34, 100.0])
def test_quantiles_with_the_prior_of_stragglers_are_those_of_replays(
    probability: float, scheme: CheckpointScheme, rate: float
) -> None:
    job = job_with(failures_per_1000_node_days=rate)
    found, played = quantiles(job, plan_of(data=64, scheme=scheme), probability)
    assert found == pytest.approx(played, rel=0.02)


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("preset", STRAGGLER_PRESETS)
def test_quantiles_with_causes_of_stragglers_are_those_of_replays(
    probability: float, preset: StragglerPreset
) -> None:
    job = job_with(failures_per_1000_node_days=20.0, stragglers=STRAGGLER_PRESETS[preset])
    found, played = quantiles(job, plan_of(tensor=2, pipeline=4, data=64), probability)
    assert found == pytest.approx(played, rel=0.03)


@pytest.mark.parametrize("probability", [0.5, 0.95])
def test_quantiles_without_stragglers_are_those_of_failures_alone(probability: float) -> None:
    job = job_with(failures_per_1000_node_days=50.0, straggler_log_mean=None)
    found, played = quantiles(job, plan_of(data=64), probability)
    assert found == pytest.approx(played, rel=0.02)


@pytest.mark.parametrize(
    ("planned", "spares", "queue_s"),
    [(0.0, 9, 7200.0), (40.0, 9, 7200.0), (0.0, 0, 7200.0), (0.0, 1, 86_400.0)],
)
def test_planned_stops_and_waits_for_nodes_spread_runs_as_replays_do(
    planned: float, spares: int, queue_s: float
) -> None:
    job = job_with(
        planned_stops_per_1000_node_days=planned,
        straggler_log_mean=None,
        restart={"replace_from_queue_s": queue_s},
    )
    plans = table_of(plan_of(data=512, spares=spares))
    outcomes = simulate(job, plans)
    replays = replicate(job, plans, outcomes, num_replications=20_000, seed=3)
    late_s, early_s = (
        wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, p)[0] for p in (0.975, 0.025)
    )
    assert late_s - early_s == pytest.approx(
        np.subtract(*np.quantile(replays.wall_s, (0.975, 0.025))), rel=0.05
    )


@pytest.mark.parametrize("fails_during_restart", [False, True])
@pytest.mark.parametrize(("nodes_left", "spares"), [(0, 0), (1, 0), (1, 1), (3, 1), (4, 4), (6, 2)])
def test_late_runs_that_wait_for_repairs_are_as_late_as_replays(
    nodes_left: int, spares: int, *, fails_during_restart: bool
) -> None:
    job = job_with(
        num_steps=1_500_000,
        failures_per_1000_node_days=40.0,
        fails_during_restart=fails_during_restart,
        repair_days=3.0,
    )
    offer = job.offers[0].model_copy(update={"max_nodes": 32 + nodes_left})
    job = job.model_copy(update={"offers": (offer,)})
    plan = plan_of(data=256, spares=spares)
    for probability in (0.5, 0.9, 0.95, 0.99):
        found, played = quantiles(job, plan, probability)
        assert found == pytest.approx(played, rel=0.03), probability


@pytest.mark.short(6)
@pytest.mark.parametrize("rate", [0.05, 0.5, 2.5, 12.0])
@pytest.mark.parametrize("scheme", [*SCHEMES, CheckpointScheme.NONE, CheckpointScheme.JUST_IN_TIME])
def test_risks_of_runs_with_few_failures_are_those_of_replays(rate: float, scheme: CheckpointScheme) -> None:
    job = job_with(failures_per_1000_node_days=rate, straggler_log_mean=None)
    plans = table_of(
        plan_of(data=64, scheme=scheme, zero=0 if scheme is CheckpointScheme.JUST_IN_TIME else 1)
    )
    outcomes = simulate(job, plans)
    assert 0.003 < outcomes.run.num_failures[0] < 3.0
    replays = replicate(job, plans, outcomes, num_replications=100_000, seed=9)
    played_s = replays.wall_s[0] + outcomes.run.initialization_s[0]
    calm_s = float(outcomes.run.initialization_s[0] + outcomes.run.calm_s[0])
    run = outcomes.run
    delay_s = float((run.near_share * run.near_mean_s + run.far_share * run.far_mean_s)[0])
    for num_delays in (0.01, 0.5, 1.0, 1.5, 2.5, 3.5):
        limit_s = calm_s + num_delays * delay_s
        late = float(np.mean(played_s > limit_s))
        risk = float(miss_probability(job, plans, outcomes.steps, outcomes.run, limit_s)[0])
        # A hundred late replays, of which chance moves the number by 10 %, are the least that tell anything.
        assert late < 1e-3 or risk == pytest.approx(late, rel=0.25), num_delays


@pytest.mark.parametrize("rate", [0.01, 1.0, 10.0])
def test_nothing_delays_a_run_with_the_chance_that_nothing_fails(rate: float) -> None:
    job = job_with(failures_per_1000_node_days=rate, straggler_log_mean=None)
    plans = table_of(plan_of(data=64))
    outcomes = simulate(job, plans)
    run = outcomes.run
    limit_s = run.initialization_s + run.calm_s * (1.0 + 1e-7)
    none = np.exp(-run.calm_s / run.mtbf_s)  # Poisson
    # The least delays are taken for somewhat less than they may be.
    assert miss_probability(job, plans, outcomes.steps, run, limit_s) == pytest.approx(1.0 - none, rel=0.03)
    for probability in (0.5 * none[0], 0.999 * none[0]):
        late_s = wall_time_quantile_s(job, plans, outcomes.steps, run, float(probability))
        assert late_s == pytest.approx(run.initialization_s + run.calm_s, rel=1e-8)


@pytest.mark.short(3)
@pytest.mark.parametrize("log_mean", [None, -2.5])
@pytest.mark.parametrize("rate", [0.02, 0.3, 3.0, 30.0])
def test_risks_sum_up_to_the_expected_run(rate: float, log_mean: float | None) -> None:
    # The mean of a time is the integral of the risk over it.
    job = job_with(failures_per_1000_node_days=rate, straggler_log_mean=log_mean)
    plans = table_of(plan_of(data=64))
    outcomes = simulate(job, plans)
    calm_s, mean_s = float(outcomes.run.calm_s[0]), float(outcomes.run.wall_time_s[0])
    near, far = np.linspace(0.8, 1.2, 100_001), np.geomspace(1.2, 60.0, 20_001)
    times_s = np.concatenate([[0.0], near, far[1:]]) * calm_s
    again = np.zeros(len(times_s), dtype=np.intp)
    slowdowns = Slowdowns.of(job, plans.take(again), outcomes.steps.take(again))
    risks = exceedance(outcomes.run.take(again), slowdowns, times_s)
    assert np.trapezoid(risks, times_s) == pytest.approx(mean_s, rel=2e-5)
    assert (np.diff(risks) <= 1e-12).all()


def test_segments_that_are_tried_until_they_succeed_take_as_long_as_drawn_ones() -> None:
    # Saves that stall and commit at once: n segments of a length c, each tried until no failure meets it, a geometric number of
    # times; a failed try takes an exponential time that is cut at c, and a restart.
    num_segments, length_s, mean_up_s, restart_s = 6, 1000.0, 2500.0, 300.0
    ledger, delays = expected_ledger_and_delays(
        work_s=num_segments * length_s,
        mtbf_s=mean_up_s,
        interval_s=length_s,
        stall_s=0.0,
        commit_s=0.0,
        tax_fraction=0.0,
        slots=1,
        policy=0,
        restart_s=restart_s,
    )
    random = np.random.default_rng(4)
    tries = random.negative_binomial(num_segments, np.exp(-length_s / mean_up_s), 200_000)
    up_to = -np.expm1(-length_s / mean_up_s)
    lost_s = -mean_up_s * np.log1p(-up_to * random.random(tries.sum()))
    ends = np.concatenate([[0], np.cumsum(tries)])
    sums_s = np.concatenate([[0.0], np.cumsum(lost_s + restart_s)])
    drawn_s = num_segments * length_s + np.diff(sums_s[ends])
    run = run_with(ledger, delays)
    for limit_s in (6001.0, 7000.0, 8000.0, 10_000.0, 13_000.0):
        risk = float(exceedance(run, Slowdowns.none(1), np.array([limit_s]))[0])
        assert risk == pytest.approx(float(np.mean(drawn_s > limit_s)), rel=0.08)


def test_a_run_without_progress_has_no_quantile() -> None:
    job = job_with(failures_per_1000_node_days=10_000.0)
    plans = table_of(plan_of(data=64, scheme=CheckpointScheme.NONE))
    outcomes = simulate(job, plans)
    assert not outcomes.run.makes_progress[0]
    assert np.isinf(wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, 0.95)[0])


def test_delays_without_end_say_nothing_of_the_runs_beside_them() -> None:
    job, plans = job_with(), table_of(plan_of(data=64), plan_of(data=32))
    outcomes = simulate(job, plans)
    ends = np.array([False, True])
    near_s = np.where(ends, outcomes.run.near_mean_s, np.inf)
    run = replace(outcomes.run, makes_progress=ends, near_mean_s=near_s)
    late_s = wall_time_quantile_s(job, plans, outcomes.steps, run, 0.95)
    alone_s = wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, 0.95)
    assert np.isinf(late_s[0])
    assert late_s[1] == alone_s[1]


def test_a_later_quantile_is_a_longer_run() -> None:
    job = job_with()
    plans = table_of(plan_of(data=64), plan_of(data=32))
    outcomes = simulate(job, plans)
    late = np.array(
        [
            wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, p)
            for p in (0.05, 0.5, 0.9, 0.95, 0.999)
        ]
    )
    assert (np.diff(late, axis=0) > 0).all()


@pytest.mark.parametrize("stragglers", [None, STRAGGLER_PRESETS["shared"]])
@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_the_risk_of_a_quantile_is_what_lies_beyond_it(
    probability: float, stragglers: Stragglers | None
) -> None:
    job = job_with(failures_per_1000_node_days=20.0, stragglers=stragglers)
    plans = table_of(plan_of(data=64), plan_of(tensor=2, pipeline=4, data=64))
    outcomes = simulate(job, plans)
    replays = replicate(job, plans, outcomes, num_replications=4000, seed=5)
    limit_s = np.quantile(replays.wall_s, probability, axis=1) + outcomes.run.initialization_s
    risk = miss_probability(job, plans, outcomes.steps, outcomes.run, limit_s)
    # Up to 0.05 off where the spread is skewed, and 0.02 that 4,000 replays leave open.
    assert risk == pytest.approx([1 - probability] * 2, abs=0.07)


def test_risks_fall_with_the_time_that_is_left_and_never_to_nothing() -> None:
    job, plans = job_with(), table_of(plan_of(data=64))
    outcomes = simulate(job, plans)
    mean_s = float(outcomes.run.wall_time_s[0])
    risks = [
        float(miss_probability(job, plans, outcomes.steps, outcomes.run, factor * mean_s)[0])
        for factor in (0.5, 0.95, 1.0, 1.2, 2.0, 100.0)
    ]
    assert risks == sorted(risks, reverse=True)
    assert risks[0] == pytest.approx(1.0)
    assert risks[-1] == LEAST_RISK


@pytest.mark.parametrize("preset", STRAGGLER_PRESETS)
def test_no_risk_is_told_beyond_the_slowest_of_the_drawn_fleets(preset: StragglerPreset) -> None:
    job, plans = job_with(stragglers=STRAGGLER_PRESETS[preset]), table_of(plan_of(data=64))
    outcomes = simulate(job, plans)
    far_s = 100.0 * outcomes.run.wall_time_s
    assert miss_probability(job, plans, outcomes.steps, outcomes.run, far_s)[0] == 1 / 200  # of 200 fleets


def test_the_risk_of_a_run_without_progress_is_certainty() -> None:
    job = job_with(failures_per_1000_node_days=10_000.0)
    plans = table_of(plan_of(data=64, scheme=CheckpointScheme.NONE))
    outcomes = simulate(job, plans)
    assert miss_probability(job, plans, outcomes.steps, outcomes.run, 1e12)[0] == 1.0


@pytest.mark.parametrize("rate", [2.34, 100.0])
def test_rare_delays_are_as_rare_as_in_many_replays(rate: float) -> None:
    job, plans = job_with(failures_per_1000_node_days=rate), table_of(plan_of(data=64))
    outcomes = simulate(job, plans)
    replays = replicate(job, plans, outcomes, num_replications=200_000, seed=7)
    for probability in (0.99, 0.995, 0.998, 0.999):
        limit_s = np.quantile(replays.wall_s[0], probability) + outcomes.run.initialization_s[0]
        risk = float(miss_probability(job, plans, outcomes.steps, outcomes.run, limit_s)[0])
        # 200 replays at least lie beyond, so that chance moves their number by 7 %: twice that.
        assert risk == pytest.approx(1.0 - probability, rel=0.14)
        late_s = float(wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, probability)[0])
        assert late_s == pytest.approx(limit_s, rel=0.03)


@pytest.mark.parametrize("rate", [0.1, 2.34, 100.0])
@pytest.mark.parametrize("deviation", [0.3, 1.0, 1.5])
def test_with_the_prior_risk_and_quantile_are_each_others_inverse(rate: float, deviation: float) -> None:
    job = job_with(failures_per_1000_node_days=rate, straggler_log_deviation=deviation)
    plans = table_of(plan_of(data=64), plan_of(tensor=2, data=32))
    outcomes = simulate(job, plans)
    for probability in (0.5, 0.95, 0.99, 0.999, 0.9998):
        late_s = wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, probability)
        risk = miss_probability(job, plans, outcomes.steps, outcomes.run, late_s)
        # The quantile is interpolated in a table of noise.
        assert risk == pytest.approx([1.0 - probability] * 2, rel=0.02)


def test_strata_have_the_moments_of_the_lognormal_and_reach_into_its_tail() -> None:
    strata = strata_of(-2.5, 1.0)
    mean = float(strata.weights @ strata.means)
    assert strata.weights.sum() == pytest.approx(1.0)
    assert mean == pytest.approx(np.exp(-2.0))  # e^(mu + sigma^2/2)
    second = float(strata.weights @ (strata.means**2 + strata.deviations**2))
    assert second == pytest.approx(np.exp(-3.0))  # e^(2 mu + 2 sigma^2)
    beyond = strata.weights[::-1].cumsum()[::-1]
    # Between the 90th percentile and one in ten thousand no stratum is more than 40 % of what lies beyond its near edge.
    is_tail = (beyond < 0.1) & (beyond > 1e-4)
    assert (strata.weights[is_tail] < 0.4 * beyond[is_tail]).all()
