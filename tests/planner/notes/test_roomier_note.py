"""Does a note say which layout surely fits where the recommended one barely does, and what it costs?"""

from __future__ import annotations

from planner import recommend
from planner.input.plan_input import plan_text
from planner.notes.roomier_note import roomier_text
from planner.one_design.simulated_design import simulate_plan
from planner.recommended.same_accelerators import ROOMY_FRACTION, same_accelerators
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.offer import Estimate
from tests.simulator.builders import changed, job_of, plan_of, training

TIGHT = plan_of(data=8, zero=2, micro_batch=2)
"""Fills 99 % of the memory."""


def on_eight(**search: object) -> Job:
    job = job_of(training("llama-3.1-8b", global_batch_size=64))
    offer = changed(job.offers[0], num_gpus=changed(job.offers[0].num_gpus, min=8, max=8))
    return changed(job, offers=(offer,), search=changed(job.search, num_refinements=0, **search))


def test_the_figures_are_those_of_the_roomy_plan() -> None:
    others = same_accelerators(on_eight(), TIGHT)
    found = others.best_roomy()
    assert found is not None
    roomy = found.plans.plan(0)
    tight, loose = (
        simulate_plan(on_eight(), plan, with_sensitivities=False).design for plan in (TIGHT, roomy)
    )
    assert tight is not None
    assert loose is not None
    time, cost = (
        human.change(getattr(loose, name) / getattr(tight, name) - 1)
        for name in ("time_to_train_days", "cost_usd")
    )
    used = loose.peak_memory_bytes / loose.memory_capacity_bytes
    assert used < ROOMY_FRACTION
    assert roomier_text(others) == (
        "The best layout on the same accelerators that fills no more than 95 % trains in "
        f"{human.days(loose.time_to_train_days)} ({time}), for {human.dollars(loose.cost_usd)} ({cost}), and fills "
        f"{human.percent(used)}: {plan_text(roomy)}."
    )


def test_accelerators_that_cost_nothing_have_no_relative_cost() -> None:
    job = on_eight()
    free = changed(job.offers[0], rent_usd_per_gpu_hour=Estimate(low=0.0, mid=0.0, high=0.0))
    told = roomier_text(same_accelerators(changed(job, offers=(free,)), TIGHT))
    assert " %), for $0, and fills " in told


def test_where_no_layout_is_left_the_note_says_so() -> None:
    others = same_accelerators(changed(on_eight(), limits=Limits(power_w=1.0)), TIGHT)
    expected = "No layout on the same accelerators that keeps the limits fills no more than 95 %."
    assert roomier_text(others) == expected


def test_only_a_recommended_design_that_barely_fits_has_the_note() -> None:
    for headroom, is_told in ((0.0, True), (1.0 - ROOMY_FRACTION, False)):
        job = on_eight(memory_headroom_fraction=headroom)
        answer = recommend(job, tracking=False, with_report=False)
        assert any("The best layout on the same accelerators" in each for each in answer.warnings) == is_told
        assert any("on the front would fill more than 95 %" in each for each in answer.warnings) == is_told
