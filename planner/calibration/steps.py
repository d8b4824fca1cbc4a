"""Which measured steps can constants be fitted to, and what does the simulator predict for them with given constants?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Self

import numpy as np
from numpy.typing import NDArray

from planner.measured.runs import Row, fleet_slowdown, job_of, plan_of
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.step.step import simulate_step
from simulator.table import Floats

RankOf = Callable[[Job, PlanTable], Rank]
"""Returns the ranks of a job's plans, with the constants being tried."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The steps of one job."""

    positions: NDArray[np.intp]
    job: Job
    plans: PlanTable

    def simulated_s(self, rank_of: RankOf) -> Floats:
        """Returns their times, in the order of `positions`."""
        chunks = split_layers(self.job.workload.model, self.plans)
        return simulate_step(rank_of(self.job, self.plans), chunks).step_time_s


@dataclass(frozen=True, kw_only=True)
class MeasuredSteps:
    """`n` configurations, each with its mean measured time."""

    rows: tuple[Row, ...]
    """The first row of each configuration."""
    members: tuple[tuple[Row, ...], ...]
    """All rows of each."""
    measured_s: Floats
    batches: tuple[Batch, ...]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """Returns the configurations of timed rows; those that share a `config_key` count once."""
        alike: dict[str, list[Row]] = {}
        for row in rows:
            alike.setdefault(row["config_key"], []).append(row)
        members = tuple(tuple(found) for found in alike.values())
        return cls._of_members(members, np.array([float(np.mean(ideal_s(found))) for found in members]))

    @classmethod
    def _of_members(cls, members: tuple[tuple[Row, ...], ...], measured_s: Floats) -> Self:
        first = tuple(found[0] for found in members)
        return cls(rows=first, members=members, measured_s=measured_s, batches=tuple(batches_of(first)))

    def take(self, chosen: NDArray[np.bool_]) -> Self:
        """Returns a subset of the configurations."""
        members = tuple(found for found, is_chosen in zip(self.members, chosen, strict=True) if is_chosen)
        return self._of_members(members, self.measured_s[chosen])

    def simulated_s(self, rank_of: RankOf) -> Floats:
        """Returns the step time of every configuration, `(n,)`."""
        found_s = np.empty(len(self.rows))
        for batch in self.batches:
            found_s[batch.positions] = batch.simulated_s(rank_of)
        return found_s

    def log_errors(self, rank_of: RankOf) -> Floats:
        """Returns ln(simulated / measured), `(n,)`."""
        return np.asarray(np.log(self.simulated_s(rank_of) / self.measured_s))


def ideal_s(rows: Sequence[Row]) -> list[float]:
    """Returns the measured steps without the fleet's stragglers, which averages of production runs include."""
    slowdown = fleet_slowdown(int(rows[0]["num_gpus"])) if rows[0]["is_production"] == "true" else 1.0
    return [float(row["step_time_s"]) / slowdown for row in rows]


def batches_of(rows: Sequence[Row]) -> list[Batch]:
    """Returns the rows grouped by job."""
    keys = [job_of(row).model_dump_json() for row in rows]
    found = []
    for _, members in groupby(sorted(range(len(rows)), key=keys.__getitem__), key=keys.__getitem__):
        positions = list(members)
        plans = PlanTable.from_plans([plan_of(rows[position]) for position in positions])
        found.append(Batch(positions=np.array(positions), job=job_of(rows[positions[0]]), plans=plans))
    return found
