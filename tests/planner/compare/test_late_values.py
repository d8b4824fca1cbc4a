"""Are late values, which a job may minimise, among the figures of a comparison, whatever its objectives?"""

from __future__ import annotations

import pytest

from constraints.evaluation import evaluate
from planner.cli.terminal.output import rendered
from planner.compare.side_by_side import compare
from planner.compare.view import show_comparison
from simulator.domain.plan import PlanTable
from simulator.units import DAY
from tests.planner.compare.test_compare import side, values_of
from tests.support import H100_RENTED, job_with


def test_late_values_are_compared_and_their_causes_sum_to_the_whole() -> None:
    first = side(job_with(objectives=["cost_p95", "time_to_train_p95"]), name="first")
    dear = {**H100_RENTED, "rent_usd_per_gpu_hour": 3.0}
    other = side(job_with(dear, reliability="harsh", objectives=["carbon"]), {"dp": 8}, name="other")
    found = compare([first, other])
    for metric, unit in (("time_to_train_p95_days", DAY), ("cost_p95_usd", 1.0)):
        scored = []
        for one in (first, other):
            assert one.plan is not None
            scores = evaluate(one.job, PlanTable.from_plans([one.plan])).scores
            late = scores.cost_p95_usd if metric == "cost_p95_usd" else scores.time_to_train_p95_s
            scored.append(float(late[0]) / unit)
        assert values_of(found, metric) == pytest.approx(tuple(scored), rel=1e-12)
        (told,) = found.explanations
        parts = sum(cause.effects.get(metric, 0.0) for cause in told.causes)
        whole = parts + told.interaction.get(metric, 0.0) + told.design.get(metric, 0.0)
        assert whole == pytest.approx(scored[1] - scored[0], rel=1e-9)
    shown = rendered(lambda console: show_comparison(found, console))
    assert "P95 time to train" in shown
    assert "P95 cost" in shown
