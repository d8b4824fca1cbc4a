"""Does a simulated design keep the limits? Memory, cost, time, power, accelerators, carbon: by how much each is exceeded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from objectives.cost import cost_parts
from objectives.scores import ScoreTable
from objectives.usage import Usage
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.run.spread import wall_time_quantile_s
from simulator.simulate import Outcomes
from simulator.step.offload import offloaded_bytes_per_node
from simulator.table import Booleans, Floats, Table, total
from simulator.units import DAY


@dataclass(frozen=True, kw_only=True)
class ExcessTable(Table):
    """The share by which each limit is exceeded, `(n,)`; 0: kept, 0.1: ten per cent too much, inf: out of reach."""

    memory: Floats
    """Memory of the most loaded accelerator over what it may use: its capacity less `search.memory_headroom_fraction`."""
    host_memory: Floats
    """Main memory needed by saves in progress and by offloading, over what a node has."""
    progress: Floats
    """Infinite where failures come faster than work can be saved, otherwise 0."""
    budget_usd: Floats
    deadline_days: Floats
    power_w: Floats
    hall_power_w: Floats
    rack_power_w: Floats
    power_swing_w: Floats
    power_ramp_w_per_s: Floats
    power_range_fraction: Floats
    num_gpus: Floats
    carbon_kgco2e: Floats

    @property
    def total(self) -> Floats:
        """Sum over the limits, `(n,)`: 0 for a feasible design."""
        return total(getattr(self, name) for name in self.names())

    @property
    def is_possible(self) -> Booleans:
        """Whether a design keeps the limits that users cannot change: memory, host memory and progress; `(n,)`."""
        return np.asarray((self.memory + self.host_memory + self.progress) == 0.0)

    @property
    def is_feasible(self) -> Booleans:
        """Whether every limit is kept, `(n,)`."""
        return np.asarray(self.total == 0.0)


LIMIT_NAMES = (
    "budget_usd",
    "deadline_days",
    "power_w",
    "hall_power_w",
    "rack_power_w",
    "power_swing_w",
    "power_ramp_w_per_s",
    "power_range_fraction",
    "num_gpus",
    "carbon_kgco2e",
)
"""Limits that a user sets, in the order in which reports name them; the rest of `ExcessTable` is physics."""


def set_limits(job: Job) -> dict[str, float]:
    """Returns the limits that the job sets, by name, in the order of `LIMIT_NAMES`."""
    limits = {name: getattr(job.limits, name) for name in LIMIT_NAMES}
    return {name: limit for name, limit in limits.items() if limit is not None}


def with_limits(job: Job, limits: Mapping[str, float]) -> Job:
    """Returns the job with these limits and no others, and the same designs.

    The power caps of a job depend on whether it limits power, so they are fixed before that limit is dropped. The
    probability with which a limit must be kept stays, since it decides which value is compared with the limit.
    """
    search = job.search.model_copy(update={"power_caps": job.power_caps})
    sureness = {name: getattr(job.limits, name) for name in ("deadline_probability", "budget_probability")}
    others = Limits.model_validate(dict(limits)).model_copy(update=sureness)
    return job.model_copy(update={"limits": others, "search": search})


def wanted_probability(job: Job, limit: str) -> float | None:
    """Returns the probability with which a limit must be kept; None where the expected value must keep it."""
    match limit:
        case "budget_usd":
            return job.limits.budget_probability
        case "deadline_days":
            return job.limits.deadline_probability
        case _:
            return None


def limited_quantities(
    job: Job, plans: PlanTable, scores: ScoreTable, outcomes: Outcomes
) -> dict[str, Floats]:
    """Returns what each limit of a job bounds, `(n,)`, in the unit of the limit.

    A limit that must be kept with a probability bounds the quantile of the time, or the cost at that quantile.
    """
    power = outcomes.power
    return {
        "budget_usd": _cost_usd(job, plans, scores, outcomes),
        "deadline_days": _wall_time_s(job, plans, outcomes, job.limits.deadline_probability) / DAY,
        "power_w": power.peak_power_w,
        "hall_power_w": power.hall_power_w,
        "rack_power_w": power.rack_power_w,
        "power_swing_w": power.power_swing_w,
        "power_ramp_w_per_s": power.power_ramp_w_per_s,
        "power_range_fraction": power.power_range_fraction,
        "num_gpus": plans.num_gpus.astype(np.float64),
        "carbon_kgco2e": scores.carbon_kgco2e,
    }


def _cost_usd(job: Job, plans: PlanTable, scores: ScoreTable, outcomes: Outcomes) -> Floats:
    """The expected cost, or the cost of a run at the quantile of the wanted probability; `(n,)`."""
    if job.limits.budget_probability is None:
        return scores.cost_usd
    wall_s = _wall_time_s(job, plans, outcomes, job.limits.budget_probability)
    return total(cost_parts(job, plans, Usage.of(outcomes).lasting(wall_s)).values())


def _wall_time_s(job: Job, plans: PlanTable, outcomes: Outcomes, probability: float | None) -> Floats:
    """The expected wall time, or the one that a run stays below with a given probability; `(n,)`."""
    if probability is None:
        return outcomes.run.wall_time_s
    return wall_time_quantile_s(job, plans, outcomes.steps, outcomes.run, probability)


def excess_over(limit: float | None, value: Floats) -> Floats:
    """Returns the share by which values exceed a limit, `(n,)`; a missing limit is never exceeded."""
    return np.zeros(len(value)) if limit is None else np.maximum(0.0, value / limit - 1.0)


def usable_memory_bytes(job: Job) -> Floats:
    """Returns the memory of an accelerator of each offer that a design may fill, one entry per offer."""
    return OfferTable.from_job(job).memory_bytes * (1.0 - job.search.memory_headroom_fraction)


def check_limits(job: Job, plans: PlanTable, outcomes: Outcomes, scores: ScoreTable) -> ExcessTable:
    """Returns by how much each design exceeds each limit."""
    offers = OfferTable.from_job(job).take(plans.offer)
    values = limited_quantities(job, plans, scores, outcomes)
    host_bytes = outcomes.checkpoints.host_memory_bytes + offloaded_bytes_per_node(job, plans, offers)
    return ExcessTable(
        memory=np.maximum(
            0.0, outcomes.summary.peak_memory_bytes / usable_memory_bytes(job)[plans.offer] - 1.0
        ),
        host_memory=np.maximum(0.0, host_bytes / offers.host_memory_bytes - 1.0),
        progress=np.where(outcomes.run.makes_progress, 0.0, np.inf),
        **{name: excess_over(getattr(job.limits, name), value) for name, value in values.items()},
    )
