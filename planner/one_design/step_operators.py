"""Which operators take the time that a step computes? A finer breakdown of `compute_s`, for the one plan that is shown."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.deep.plans.compute_parts import compute_parts
from simulator.domain.job import Job
from simulator.domain.plan import Plan
from simulator.record import Record

RECOMPUTATION = "recomputation"
"""Name of everything that is computed again, in words for readers."""


class OperatorTime(Record):
    """How long one kind of operator takes in a step, on average over the accelerators; all of them sum to `compute_s`."""

    name: str
    """Kind of operator, as at the deep depth, such as `attention core`."""
    forward_s: float
    """In forward passes."""
    backward_s: float
    """In backward passes, without what is recomputed there."""
    recomputed_s: float
    """Recomputed in backward passes."""


def operator_times(job: Job, plan: Plan) -> tuple[OperatorTime, ...]:
    """Returns the operators of a plan that can run, in the order in which a micro-batch first meets them."""
    return tuple(
        OperatorTime(
            name=part.name,
            forward_s=part.forward_s,
            backward_s=part.backward_s,
            recomputed_s=part.recomputed_s,
        )
        for part in compute_parts(job, plan)
    )


def seconds_by_operator(operators: Sequence[OperatorTime]) -> dict[str, float]:
    """Returns the seconds of every operator, and of all recomputation together."""
    own_s = {each.name: each.forward_s + each.backward_s for each in operators}
    return {**own_s, RECOMPUTATION: sum(each.recomputed_s for each in operators)}
