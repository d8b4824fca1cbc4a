"""Do the limits of a job leave anything over? What excludes every design is seen here, before any simulation.

Each bound is one that no design can beat: all accelerators at their dense peak for every second of the run,
the lower end of every rent, nothing but idle power. Whatever passes may still prove infeasible in the study.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner.problems import shown
from simulator import units
from simulator.errors import Problem
from simulator.job import Job, Offer


def contradictions(job: Job) -> list[Problem]:
    """Returns every rule that shuts out all designs; none where something may be feasible."""
    problems = [*_partial_nodes(job), *_missing_formats(job), *_too_few_gpus(job)]
    if problems:
        return problems  # the bounds below need an accelerator count and a rate
    return [*_too_short(job), *_too_cheap(job), *_too_weak(job)]


def _partial_nodes(job: Job) -> Iterator[Problem]:
    for index, offer in enumerate(job.offers):
        node, wanted = offer.node.num_accelerators, offer.num_gpus
        if _fewest(offer) > wanted.max:
            below, above = wanted.max // node * node, _fewest(offer)
            near = f"{below}, {above}" if below else f"{above}"
            value = str(wanted.min) if wanted.min == wanted.max else f"{wanted.min}..{wanted.max}"
            rule = f"must contain a multiple of the node's {node} accelerators; nearest: {near}"
            yield Problem(path=f"offers[{index}].num_gpus", value=value, rule=rule)


def _missing_formats(job: Job) -> Iterator[Problem]:
    if not any(_peak_flop_per_s(job, offer) for offer in job.offers):
        formats = ", ".join(job.workload.precisions)
        rule = "is not computed by any offered accelerator; add bf16 or another accelerator"
        yield Problem(path="workload.precisions", value=formats, rule=rule)


def _too_few_gpus(job: Job) -> Iterator[Problem]:
    limit = job.limits.num_gpus
    fewest = min(_fewest(offer) for offer in job.offers)
    if limit is not None and limit < fewest:
        rule = f"must be at least {fewest}, the fewest that any offer allows"
        yield Problem(path="limits.num_gpus", value=str(limit), rule=rule)


def _too_short(job: Job) -> Iterator[Problem]:
    days = min(_shortest_s(job, offer) for offer in _usable(job)) / units.DAY
    deadline = job.limits.deadline_days
    if deadline is not None and deadline < days:
        rule = f"must be at least {_up(days)}: the largest offer needs that long at its peak rate"
        yield Problem(path="limits.deadline_days", value=shown(deadline), rule=rule)


def _too_cheap(job: Job) -> Iterator[Problem]:
    budget = job.limits.budget_usd
    costs = [_cheapest_usd(job, offer) for offer in _usable(job)]
    if budget is not None and budget < min(costs):
        rule = f"must be at least {_up(min(costs))}: the cheapest offer costs that at its peak rate"
        yield Problem(path="limits.budget_usd", value=shown(budget), rule=rule)


def _too_weak(job: Job) -> Iterator[Problem]:
    limit, overhead = job.limits.power_w, job.site.power_usage_effectiveness
    idle_w = min(_fewest(offer) * offer.accelerator.idle_power_w for offer in _usable(job)) * overhead
    if limit is not None and limit < idle_w:
        rule = f"must be at least {_up(idle_w)}: the smallest offer draws that when it idles"
        yield Problem(path="limits.power_w", value=shown(limit), rule=rule)


def _usable(job: Job) -> list[Offer]:
    """Returns the offers that have an allowed number format and fit the limit on their number."""
    limit = job.limits.num_gpus or math.inf
    return [offer for offer in job.offers if _peak_flop_per_s(job, offer) and _fewest(offer) <= limit] or [
        *job.offers
    ]


def _fewest(offer: Offer) -> int:
    """Returns the accelerators of the fewest whole nodes that reach the minimum."""
    node = offer.node.num_accelerators
    return math.ceil(offer.num_gpus.min / node) * node


def _peak_flop_per_s(job: Job, offer: Offer) -> float:
    """Returns the dense peak of one accelerator over the allowed formats; 0 where it has none of them."""
    rates = (offer.accelerator.peak_flop_per_s(precision) for precision in job.workload.precisions)
    return max(rate or 0.0 for rate in rates)


def _gpu_s(job: Job, offer: Offer) -> float:
    """Returns accelerator-seconds at the peak rate: the model's FLOPs, causal attention counted by half."""
    workload = job.workload
    flop = workload.tokens * workload.model.model_flop_per_token(workload.sequence_length)
    peak = _peak_flop_per_s(job, offer)
    return flop / peak if peak else math.inf


def _shortest_s(job: Job, offer: Offer) -> float:
    return _gpu_s(job, offer) / min(offer.num_gpus.max, job.limits.num_gpus or offer.num_gpus.max)


def _cheapest_usd(job: Job, offer: Offer) -> float:
    """Returns the lowest rent of those accelerator-hours; 0 for an offer that is bought."""
    rent = offer.rent_usd_per_gpu_hour
    return rent.low * _gpu_s(job, offer) / units.HOUR if rent else 0.0


def _up(value: float) -> str:
    """Returns a bound with three digits, rounded up so that a limit copied from the message passes."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 2) if value > 0 else 1.0
    return f"{math.ceil(value / scale) * scale:.6g}"
