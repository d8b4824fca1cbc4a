"""Do figures follow what few jobs ask for: adapters, slow computation, copies to hosts, hours that end? By hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from objectives.metrics import metrics
from objectives.scores import score
from simulator.domain.hourly import HourlyProfile
from simulator.domain.lora import Lora
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import phase_power
from simulator.run.energy import run_energy
from simulator.simulate import simulate
from simulator.units import PETA
from tests.simulator.builders import changed, gpt, job_of, plan_of, rented, table_of, training


def test_adapters_train_with_two_thirds_of_the_arithmetic() -> None:
    workload = changed(training(gpt()), lora=Lora(rank=1))
    job, plans = job_of(workload), table_of(plan_of(data=8))
    outcomes = simulate(job, plans)
    scores = score(job, plans, outcomes)
    flop = workload.model_flop_per_token - 2.0 * workload.model.num_matrix_parameters
    hours = workload.tokens * flop / PETA / 3600.0
    found = metrics(job, plans, outcomes, scores).usd_per_effective_pflop_hour
    assert found == pytest.approx(scores.cost_usd / hours)


def test_no_phase_draws_more_than_computation() -> None:
    offer = rented()
    weak = changed(offer, accelerator=changed(offer.accelerator, compute_power_fraction=0.4))
    job, plans = job_of(training(), weak), table_of(plan_of(data=8))
    power = phase_power(job, plans, OfferTable.from_job(job).take(plans.offer))
    assert power.evaluation_w == power.optimizer_w == power.waiting_w == power.compute_w
    assert power.stalled_w < power.compute_w


def test_copies_to_hosts_that_hold_up_passes_draw_the_power_of_communication() -> None:
    job, plans = job_of(training(gpt())), table_of(plan_of(data=8))
    outcomes, offers = simulate(job, plans), OfferTable.from_job(job).take(plans.offer)
    steps = outcomes.steps
    late = replace(steps, host_copy_s=steps.host_copy_s + steps.compute_s)
    run, saves = outcomes.run, outcomes.checkpoints
    before, after = (
        run_energy(job, plans, offers, each, run, saves).communication_j for each in (steps, late)
    )
    assert after > before + 0.4 * outcomes.energy.compute_j


def test_the_least_mean_of_a_run_of_one_hour_is_that_of_its_hour() -> None:
    profile = HourlyProfile(per_hour=(0.1, 1.0))
    assert profile.least_mean_over(np.array([3600.0])) == pytest.approx(0.1)
