"""What does another plan gain or cost? Its time and its money beside those of a plan, in words."""

from __future__ import annotations

from constraints.evaluation import evaluate
from planner.text import human
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable


def gain_words(job: Job, plan: Plan, other: Plan) -> str:
    """Returns what another plan takes and how much more that is: `trains in 8.98 h (+1.8 %), for $144 (+1.8 %)`."""
    both = evaluate(job, PlanTable.from_plans([plan, other]))
    own_s, other_s = both.scores.time_to_train_s.tolist()
    own_usd, other_usd = both.scores.cost_usd.tolist()
    dearer = f" ({human.change(other_usd / own_usd - 1.0)})" if own_usd else ""
    time = f"{human.duration(other_s)} ({human.change(other_s / own_s - 1.0)})"
    return f"trains in {time}, for {human.dollars(other_usd)}{dearer}"
