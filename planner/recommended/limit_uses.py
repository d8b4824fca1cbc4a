"""How much of each limit does a design use? The limit, the design's value, and both in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from constraints.evaluation import Evaluation
from constraints.limits import limited_quantities, set_limits, wanted_probability
from planner.text import human
from simulator.domain.job import Job
from simulator.record import Record

LIMIT_UNITS: Mapping[str, Callable[[float], str]] = {
    "budget_usd": human.dollars,
    "deadline_days": human.days,
    "power_w": human.power,
    "hall_power_w": human.power,
    "rack_power_w": human.power,
    "power_swing_w": human.power,
    "power_ramp_w_per_s": human.power_ramp,
    "power_range_fraction": human.percent,
    "num_gpus": human.count,
    "carbon_kgco2e": human.carbon,
}
"""How each limit is written for people."""


class LimitUse(Record):
    """One limit of a job, and a design's use of it."""

    limit: str
    """Name of the limit, as in `limits` of a job."""
    allowed: float
    """The limit, in its unit."""
    used: float
    """What it bounds; where a probability is asked for, what the limit must hold with that probability."""
    probability: float | None = None
    """With which probability the limit is to be kept; null where the expected value is to keep it."""


def limit_uses(job: Job, evaluation: Evaluation) -> tuple[LimitUse, ...]:
    """Returns the limits that a job sets, and what the first design of an evaluation takes of each that it takes finitely."""
    used = limited_quantities(job, evaluation.plans, evaluation.scores, evaluation.outcomes)
    return tuple(
        LimitUse(
            limit=name,
            allowed=allowed,
            used=float(used[name][0]),
            probability=wanted_probability(job, name),
        )
        for name, allowed in set_limits(job).items()
        if np.isfinite(used[name][0])
    )


def share_of_runs(probability: float | None) -> str:
    """Returns in how many runs a limit is to be kept, in words; empty where the expected value is to keep it."""
    return f" in {human.percent(probability)} of all runs" if probability is not None else ""


def uses_in_words(uses: tuple[LimitUse, ...]) -> Iterator[tuple[str, str, str]]:
    """Yields each limit, the value used, and its share of the limit."""
    for use in uses:
        unit = LIMIT_UNITS[use.limit]
        share = human.percent(use.used / use.allowed)
        allowed = f"{unit(use.allowed)}{share_of_runs(use.probability)}"
        yield human.words(use.limit), unit(use.used), f"{share} of {allowed}"
