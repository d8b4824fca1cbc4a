"""Is what a job makes small under chance told everywhere: table, MLflow, answer, front; and are equal risks ties?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO

import numpy as np
from rich.console import Console

from constraints.evaluation import Evaluation, evaluate
from constraints.space import pruned_space
from objectives.pareto import front_rows
from planner.notes.reasons import why_chosen
from planner.recommended.bests import bests_of
from planner.recommended.designs import designs_of
from planner.recommended.recommendation import Design
from planner.text import human
from planner.text.objective_words import amount
from planner.uncertain.input_uncertainty import input_uncertainty_of
from planner.views.front_view import show_designs
from simulator.domain.job import Job, Objective
from simulator.units import DAY
from studies.designs.offer_tally import OfferTally
from studies.tracking.design_table import Marks, design_columns, design_runs, ranks
from tests.support import job_with

ROBUST = ("time_to_train_p95", "cost_p95", "deadline_risk")


def robust_job() -> Job:
    return job_with(
        search={"micro_batch_sizes": [1], "zero_stages": [1], "tensor_parallel": [2]},
        objectives=list(ROBUST),
        limits={"deadline_days": 60},
    )


def robust_front(job: Job) -> Evaluation:
    """All feasible designs that no other one beats; by so late a deadline all have the least risk that is told."""
    result = evaluate(job, pruned_space(job).designs())
    kept = result.take(result.is_feasible)
    front = kept.take(front_rows(kept.objectives(job)))
    assert len(front) > 2
    assert len(set(front.scores.deadline_risk.tolist())) == 1
    return front


def test_tables_and_runs_hold_late_values_and_risks() -> None:
    job = robust_job()
    front = robust_front(job)
    ids = np.arange(len(front))
    table = design_columns(job, front, ids, "test")
    marks = Marks(front=frozenset(ids.tolist()), recommended=0)
    metrics = design_runs(job, front, ids, marks, ranks(job, front)).metrics
    for name, expected in (
        ("time_to_train_p95_days", front.scores.time_to_train_p95_s / 86_400),
        ("cost_p95_usd", front.scores.cost_p95_usd),
        ("deadline_risk", front.scores.deadline_risk),
    ):
        np.testing.assert_allclose(table[name].astype(float), expected, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(metrics[name], dtype=float), expected, rtol=1e-12)
    assert "budget_risk" not in metrics
    assert np.isfinite(np.asarray(metrics["used_checkpoint_interval_s"], dtype=float)).all()


def shown(designs: Sequence[Design], width: int) -> str:
    """The designs as a console of so many columns has them."""
    text = StringIO()
    show_designs(Console(file=text, width=width), designs)
    return text.getvalue()


def test_designs_of_an_answer_hold_what_was_made_small_and_rows_show_it() -> None:
    job = robust_job()
    front = robust_front(job)
    designs = designs_of(job, front, np.arange(len(front)))
    assert tuple(designs[0].objective_values) == ROBUST
    held = np.array([list(design.objective_values.values()) for design in designs], dtype=np.float64)
    np.testing.assert_allclose(held, front.objectives(job))
    for width, heading in ((200, "deadline risk"), (60, "P95 time")):
        text = shown(designs, width)
        assert heading in text
        assert f"${front.scores.cost_p95_usd[0] / 1e3:.2f} k" in text
        assert human.days(front.scores.time_to_train_p95_s[0] / 86_400.0) in " ".join(text.split())


def test_equal_risks_are_ties_and_nobody_leads_in_them() -> None:
    job = robust_job()
    front = robust_front(job)
    risk = next(
        best for best in bests_of(job, front, np.arange(len(front)), 1) if best.objective == "deadline_risk"
    )
    assert (risk.design_id, risk.drivers) == (1, ())
    assert set(risk.shared_with) == set(range(len(front))) - {1}
    (told,) = [
        line
        for line in why_chosen(job, front, 1, OfferTally.none(job))
        if "risk of missing the deadline on the front" in line
    ]
    assert told.endswith(f", shared with {len(front) - 1} others.")
    unsure = input_uncertainty_of(job, front, np.arange(len(front)), 1, seed=1)
    assert "deadline_risk" not in {ordering.objective for ordering in unsure.orderings}


def test_a_small_risk_is_never_told_as_none() -> None:
    for risk, told in ((1e-4, "< 0.1 %"), (4.9e-4, "< 0.1 %"), (6e-4, "0.1 %"), (0.0141, "1.4 %")):
        assert amount(Objective.DEADLINE_RISK, risk) == told
    job = robust_job()
    front = robust_front(job)
    assert "< 0.1 %" in shown(designs_of(job, front, np.arange(len(front))), 200)


def test_what_is_less_by_a_hair_is_no_tie() -> None:
    job = robust_job()
    front = robust_front(job)
    risks = front.scores.deadline_risk.copy()
    risks[0] *= 0.999
    front = replace(front, scores=replace(front.scores, deadline_risk=risks))
    risk = next(
        best for best in bests_of(job, front, np.arange(len(front)), 1) if best.objective == "deadline_risk"
    )
    assert (risk.design_id, risk.shared_with) == (0, ())


def test_headroom_is_that_of_runs_as_late_as_the_limit_must_hold() -> None:
    limits = {"deadline_days": 2, "deadline_probability": 0.95, "budget_usd": 1e7}
    base = robust_job()
    job = base.model_copy(update={"limits": base.limits.model_copy(update=limits)})
    front = robust_front(base)
    late = 1.0 - front.scores.time_to_train_p95_s[0] / (2 * DAY)
    mean_cost = 1.0 - front.scores.cost_usd[0] / 1e7
    said = why_chosen(job, front, 0, OfferTally.none(job))[-1]
    assert said == (
        f"Headroom: {100 * mean_cost:.0f} % of the budget, {100 * late:.0f} % of the deadline in 95.0 % of all runs."
    )
    assert round(100 * late) != round(100 * (1.0 - front.scores.time_to_train_s[0] / (2 * DAY)))
