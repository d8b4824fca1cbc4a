"""Which job do the tests of proofs ask about, and what does its explanation say?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from constraints.evaluation import evaluate
from constraints.limits import limited_quantities, with_limits
from constraints.space import Space, pruned_space
from planner.explain.infeasible import explain
from planner.recommended.recommendation import Infeasibility
from simulator.domain.job import Job
from simulator.table import Booleans, Floats
from tests.support import job_with

# Eight billion parameters on 16 to 64 H100, bf16, 50 billion tokens: about a day for all 64 of them.
JOB = job_with(search={"micro_batch_sizes": [1], "zero_stages": [1]})


def explained(limits: Mapping[str, float], job: Job = JOB) -> Infeasibility:
    limited = with_limits(job, limits)
    answer = explain(limited, pruned_space(limited))
    assert isinstance(answer, Infeasibility)
    return answer


@cache
def every_design() -> tuple[Space, Mapping[str, Floats], Booleans]:
    """All designs of the job, simulated: the quantities under limits, and which designs are possible."""
    space = pruned_space(JOB)
    result = evaluate(JOB, space.designs())
    values = limited_quantities(JOB, result.plans, result.scores, result.outcomes)
    return space, values, result.excess.is_possible


def fits(limits: Mapping[str, float], job: Job = JOB) -> bool:
    """Whether any design meets the limits, by trying all designs."""
    space = pruned_space(with_limits(job, limits))
    return len(space.layouts) > 0 and bool(evaluate(space.job, space.designs()).is_feasible.any())


def least(name: str, others: Mapping[str, float] | None = None) -> float:
    """Smallest value of a quantity among the designs that meet some limits, by trying all designs."""
    _, values, kept = every_design()
    for other, limit in (others or {}).items():
        kept = kept & (values[other] <= limit)
    return float(values[name][kept].min())
