"""What does another plan gain or cost? Its time and its money beside those of a plan, in words."""

from __future__ import annotations

from constraints.evaluation import evaluate
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable


def gain_words(job: Job, plan: Plan, other: Plan) -> str:
    """Returns what another plan takes and how much more that is: `trains in 8.98 h (+1.8 %), for $144 (+1.8 %)`."""
    both = evaluate(job, PlanTable.from_plans([plan, other]))
    times_s, costs_usd = both.scores.time_to_train_s, both.scores.cost_usd
    time, cost = (human.change(float(each[1] / each[0]) - 1.0) for each in (times_s, costs_usd))
    return f"trains in {human.duration(float(times_s[1]))} ({time}), for {human.dollars(float(costs_usd[1]))} ({cost})"
