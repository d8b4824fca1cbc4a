"""Is every second of the run charged once, at the power of its phase?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.energy import EnergyTable, run_energy
from simulator.job import Job
from simulator.offer_table import OfferTable
from simulator.plan import CheckpointScheme, Plan, PlanTable
from simulator.power import peak_power, phase_power
from simulator.simulate import Outcomes, simulate
from tests.simulator.builders import job_of, plan_of, table_of, training

PLANS = table_of(
    *[plan_of(tensor=2, pipeline=4, data=8, scheme=scheme, spares=1) for scheme in CheckpointScheme],
    plan_of(data=64, zero=3),
    plan_of(tensor=8, pipeline=2, virtual=4, data=16, cap=0.7),
)
JOB = job_of(training("llama-3.1-8b", num_steps=50_000))
OUTCOMES = simulate(JOB, PLANS)


def offers_of(job: Job, plans: PlanTable) -> OfferTable:
    return OfferTable.from_job(job).take(plans.offer)


def with_failures(rate: float) -> Job:
    return JOB.model_copy(
        update={
            "reliability": JOB.reliability.model_copy(
                update={"failures_per_1000_node_days": rate, "straggler_log_mean": None}
            )
        }
    )


def outcome_of(job: Job, plan: Plan) -> Outcomes:
    return simulate(job, table_of(plan))


def test_phases_sum_to_the_total_and_to_mean_power_times_wall_time() -> None:
    energy = OUTCOMES.energy
    total = np.sum([getattr(energy, name) for name in EnergyTable.names()], axis=0)
    assert energy.total_j == pytest.approx(total, rel=1e-12)
    assert energy.total_j == pytest.approx(
        OUTCOMES.summary.mean_power_w * OUTCOMES.run.wall_time_s, rel=1e-12
    )


def test_mean_power_lies_between_standing_still_and_computing() -> None:
    power = phase_power(JOB, PLANS, offers_of(JOB, PLANS))
    assert (OUTCOMES.summary.mean_power_w > power.stalled_w + power.spares_w).all()
    assert (OUTCOMES.summary.mean_power_w < peak_power(JOB, PLANS, offers_of(JOB, PLANS))).all()
    assert OUTCOMES.summary.peak_power_w == pytest.approx(peak_power(JOB, PLANS, offers_of(JOB, PLANS)))


def test_a_run_that_only_computes_draws_the_power_of_computing() -> None:
    outcome = outcome_of(with_failures(1e-9), plan_of(scheme=CheckpointScheme.NONE))
    power = phase_power(JOB, table_of(plan_of()), offers_of(JOB, table_of(plan_of())))
    computing_s = outcome.steps.compute_s * JOB.workload.num_steps
    assert outcome.energy.compute_j == pytest.approx(computing_s * power.compute_w)
    # What remains is the optimizer and the first start of 180 s.
    rest_j = outcome.energy.optimizer_j + outcome.energy.restart_j
    assert outcome.energy.total_j == pytest.approx(outcome.energy.compute_j + rest_j, rel=1e-6)
    assert outcome.energy.restart_j == pytest.approx(180 * power.stalled_w, rel=1e-3)


def test_blocking_saves_draw_what_a_stalled_node_draws() -> None:
    row = list(CheckpointScheme).index(CheckpointScheme.SYNC_SHARDED)
    power = phase_power(JOB, PLANS, offers_of(JOB, PLANS))
    stalled_j = OUTCOMES.run.checkpoint_stall_s[row] * power.stalled_w[row]
    num_saves = OUTCOMES.run.checkpoint_stall_s[row] / OUTCOMES.checkpoints.stall_s[row]
    moved_j = num_saves * OUTCOMES.checkpoints.save_energy_j[row] * JOB.site.power_usage_effectiveness
    assert moved_j > 0
    assert OUTCOMES.energy.checkpoint_j[row] == pytest.approx(stalled_j + moved_j, rel=1e-4)


def test_lost_work_draws_what_work_draws() -> None:
    energy, run = OUTCOMES.energy, OUTCOMES.run
    worked_j = energy.compute_j + energy.communication_j + energy.pipeline_bubble_j + energy.optimizer_j
    assert energy.lost_work_j / worked_j == pytest.approx(run.lost_work_s / run.productive_s)


def test_spares_draw_idle_power_all_the_time() -> None:
    power = phase_power(JOB, PLANS, offers_of(JOB, PLANS))
    assert OUTCOMES.energy.spare_j == pytest.approx(OUTCOMES.run.wall_time_s * power.spares_w)
    assert OUTCOMES.energy.spare_j[-1] == 0
    assert OUTCOMES.energy.spare_j[0] > 0


def test_more_failures_cost_more_energy() -> None:
    few, many = (outcome_of(with_failures(rate), plan_of(data=64)).energy.total_j for rate in (1.0, 20.0))
    assert few < many


def test_a_run_that_never_ends_needs_infinite_energy_at_no_known_power() -> None:
    outcome = outcome_of(with_failures(10_000.0), plan_of(data=512, scheme=CheckpointScheme.NONE))
    assert not outcome.run.makes_progress[0]
    assert outcome.run.wall_time_s[0] == outcome.energy.total_j[0] == np.inf
    assert outcome.energy.spare_j[0] == 0
    assert np.isnan(outcome.summary.mean_power_w[0])


def test_energy_can_be_told_apart_from_its_simulation() -> None:
    again = run_energy(JOB, PLANS, offers_of(JOB, PLANS), OUTCOMES.steps, OUTCOMES.run, OUTCOMES.checkpoints)
    assert (again.total_j == OUTCOMES.energy.total_j).all()
