"""Does an answer say so if its search missed a better layout of the recommended accelerators?"""

from __future__ import annotations

from planner.input.plan_input import plan_text
from planner.notes.missed_note import missed_notes
from planner.one_design.simulated_design import simulate_plan
from planner.recommended.same_accelerators import same_accelerators
from planner.text import human
from simulator.domain.limits import Limits
from tests.simulator.builders import changed, job_of, plan_of, training

JOB = job_of(training("llama-3.1-8b", global_batch_size=64))


def test_a_better_layout_is_told_with_what_it_gains() -> None:
    slow = plan_of(tensor=4, data=4, zero=1)
    others = same_accelerators(JOB, slow)
    (note,) = missed_notes(others)
    best = others.leaders.plans.plan(0)
    slow_design, design = (simulate_plan(JOB, plan, with_sensitivities=False).design for plan in (slow, best))
    assert slow_design is not None
    assert design is not None
    change = human.change(design.time_to_train_days / slow_design.time_to_train_days - 1)
    assert change.startswith("-")
    assert (
        f"trains in {human.days(design.time_to_train_days)} ({change}), for {human.dollars(design.cost_usd)} ("
        in note
    )
    assert f": {plan_text(best)}. A longer search (search.max_evaluations)" in note


def test_nothing_is_missed_by_the_best_layout_or_where_none_keeps_the_limits() -> None:
    best = same_accelerators(JOB, plan_of(tensor=4, data=4, zero=1)).leaders.plans.plan(0)
    assert not missed_notes(same_accelerators(JOB, best))
    tight = changed(JOB, limits=Limits(power_w=1.0))
    assert not missed_notes(same_accelerators(tight, plan_of(tensor=4, data=4, zero=1)))
