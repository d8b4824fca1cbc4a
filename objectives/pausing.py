"""What does it cost, and what does it save, to pause a run while the grid is carbon-intensive or expensive?

A run pauses in the hours of a profile with the highest values. Before a pause it saves and waits for the commit; after it
the framework starts and loads. Cheap checkpoints make this cheap. During a pause the accelerators idle, while their rent
and their share of embodied emissions go on. If the time between pauses is shorter than their overhead, pausing only adds
waiting.

Accelerators are held from the first start on. A run that would begin in an hour of pause waits before its first start, like
one that starts later: the wait takes time, but incurs no rent, power or embodied emissions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from objectives.carbon import embodied_parts, replacement_kgco2e
from objectives.cost import cost_parts, is_bought
from objectives.usage import Usage, product
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.options import Pause
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import phase_power
from simulator.run.energy import servers_w
from simulator.simulate import Outcomes
from simulator.table import Booleans, Floats, Integers, Table, total
from simulator.units import HOUR, JOULES_PER_KWH

SAME_MEAN_FRACTION = 1e-6
"""Means over a run that differ by a smaller share count as equal: rounding in sums over a year of hours is far smaller."""


@dataclass(frozen=True, kw_only=True)
class PausedTable(Table):
    """Paused runs, `(n,)`."""

    wall_s: Floats
    """Time from now to the end, including pauses and the wait for the first start; infinite where no stretch between pauses
    is long enough."""
    waited_s: Floats
    """Wait before the first start, which `wall_s` includes."""
    num_pauses: Floats
    energy_j: Floats
    cost_usd: Floats
    operational_kgco2e: Floats
    carbon_kgco2e: Floats


def pause_overhead_s(job: Job, outcomes: Outcomes) -> Floats:
    """Returns the overhead of a pause on top of the hours that it skips, `(n,)`: save, commit to storage, start, load."""
    restart, saves = job.reliability.restart, outcomes.checkpoints
    saved_s = saves.stall_s + saves.durable_commit_s + saves.durable_load_s
    return saved_s + restart.initialize_s + restart.warm_up_s


def paused_runs(
    job: Job, plans: PlanTable, outcomes: Outcomes, pause: Pause, usages: Usage | None = None
) -> PausedTable:
    """Returns the results of some designs when they pause.

    Args:
        job: the job.
        plans: `(n,)` designs, all of them at sites with the profile that the pause asks for.
        outcomes: what `simulate` returned for them.
        pause: when they pause.
        usages: what they use without pauses; by default, their expected usage.
    """
    usages, parts = usages or Usage.of(outcomes), []
    for row in range(len(plans)):
        one = np.array([row])
        parts.append(_paused(job, plans.take(one), outcomes.take(one), pause, usages.take(one)))
    return PausedTable.concatenate(parts)


def _paused(job: Job, plan: PlanTable, outcome: Outcomes, pause: Pause, usage: Usage) -> PausedTable:
    site = job.site_of(job.offers[int(plan.offer[0])])
    guide = site.grid_profile if pause.by == "carbon" else site.electricity_profile
    assert guide is not None, "checked before a pause is played"
    calendar = _Calendar.of(guide, pause.hours_fraction, float(pause_overhead_s(job, outcome)[0]))
    wall_s, num_pauses = calendar.elapsed(float(usage.wall_s[0]))
    offers = OfferTable.from_job(job).take(plan.offer)
    power = phase_power(job, plan, offers)
    always_w = power.spares_w + servers_w(offers, outcome.checkpoints)
    overhead_s = num_pauses * calendar.overhead_s
    held_s = wall_s - calendar.waited_s
    still_s = max(0.0, held_s - float(usage.wall_s[0]) - overhead_s)
    working_j = usage.energy_j + overhead_s * (power.stalled_w + always_w)
    idle_j = still_s * (power.idle_w + always_w)
    held = replace(usage, wall_s=np.array([held_s]), energy_j=working_j + idle_j)
    grid = calendar.means(site.grid_profile, site.grid_kgco2e_per_kwh, wall_s)
    tariff = calendar.means(site.electricity_profile, site.electricity_usd_per_kwh, wall_s)
    parts = cost_parts(job, plan, held)
    pays_energy = is_bought(job, plan)
    parts["electricity_usd"] = np.where(pays_energy, _at_means(tariff, working_j, idle_j), 0.0)
    operational = _at_means(grid, working_j, idle_j)
    made = total(embodied_parts(job, plan, held).values()) + replacement_kgco2e(job, plan, outcome.run)
    return PausedTable(
        wall_s=np.array([wall_s]),
        waited_s=np.array([calendar.waited_s]),
        num_pauses=np.array([num_pauses]),
        energy_j=held.energy_j,
        cost_usd=total(parts.values()),
        operational_kgco2e=operational,
        carbon_kgco2e=operational + made,
    )


def _at_means(means: tuple[float, float], working_j: Floats, idle_j: Floats) -> Floats:
    """Cost or emissions of energy at mean rates of working and idling; 0 at rate 0, even if the run never ends."""
    working, idling = (np.array([mean]) for mean in means)
    return (product(working, working_j) + product(idling, idle_j)) / JOULES_PER_KWH


@dataclass(frozen=True, kw_only=True)
class _Calendar:
    """Which hours of a profile are worked in, over one period of it."""

    is_working: Booleans
    """`(h,)` whether each hour is worked in."""
    overhead_s: float

    @classmethod
    def of(cls, guide: HourlyProfile, hours_fraction: float, overhead_s: float) -> _Calendar:
        values = np.array(guide.per_hour)
        num_still = int(np.floor(hours_fraction * len(values)))
        order = np.argsort(values, kind="stable")
        is_working = np.ones(len(values), dtype=np.bool_)
        is_working[order[len(values) - num_still :]] = False
        return cls(is_working=is_working, overhead_s=overhead_s)

    @property
    def num_waited(self) -> int:
        """Hours before the first one that is worked in."""
        return int(np.argmax(self.is_working))

    @property
    def waited_s(self) -> float:
        """Time before the first start."""
        return self.num_waited * HOUR

    def elapsed(self, work_s: float) -> tuple[float, float]:
        """Returns the elapsed time of a run with so much work, including the wait for its first start, and its pauses."""
        if self.is_working.all() or not np.isfinite(work_s):
            return work_s, 0.0
        starts, ends = self._stretches()
        lengths_s = (ends - starts) * HOUR
        if work_s <= lengths_s[0]:
            return self.waited_s + work_s, 0.0
        # A stretch that continues from the end of the last period needs no start of its own, except for any part of the
        # start that did not fit there. The very first stretch begins with the run, whose time already includes its start.
        goes_on = bool(self.is_working[0] and self.is_working[-1])
        overhead_s = np.full(len(starts), self.overhead_s)
        if goes_on:
            overhead_s[0] = max(0.0, self.overhead_s - lengths_s[-1])
        useful_s = np.maximum(0.0, lengths_s - overhead_s)
        per_period_s = float(useful_s.sum())
        if per_period_s == 0.0:
            return np.inf, 0.0
        needed_s = work_s - float(min(overhead_s[0], lengths_s[0]))
        num_periods = np.ceil(needed_s / per_period_s) - 1.0
        rest_s, done_s = needed_s - num_periods * per_period_s, np.cumsum(useful_s)
        last = min(int(np.searchsorted(done_s, rest_s * (1.0 - 1e-12))), len(done_s) - 1)
        in_last_s = starts[last] * HOUR + overhead_s[last] + rest_s - (done_s[last] - useful_s[last])
        wall_s = num_periods * len(self.is_working) * HOUR + in_last_s
        return float(wall_s), float(num_periods * (len(starts) - goes_on) + last)

    def _stretches(self) -> tuple[Floats, Floats]:
        """First hour and end of every stretch of working hours, `(s,)` each."""
        edges = np.diff(np.concatenate([[0], self.is_working.astype(np.int64), [0]]))
        return np.flatnonzero(edges == 1).astype(np.float64), np.flatnonzero(edges == -1).astype(np.float64)

    def means(self, profile: HourlyProfile | None, flat: float, wall_s: float) -> tuple[float, float]:
        """Returns the mean of a profile over working time and over pauses; the run may end within an hour."""
        if profile is None or not np.isfinite(wall_s):
            return flat, flat
        # After so many hours the calendar and the profile are aligned as at the start.
        hours = np.arange(
            min(math.ceil(wall_s / HOUR), math.lcm(len(self.is_working), len(profile.per_hour)))
        )
        values = np.array(profile.per_hour)[hours % len(profile.per_hour)]
        is_working = self.is_working[hours % len(self.is_working)]
        lasting = _lasting_hours(hours, wall_s)
        lasting[: self.num_waited] -= 1.0
        means = [_mean(values[rows], lasting[rows], flat) for rows in (is_working, ~is_working)]
        return means[0], means[1]


def _lasting_hours(hours: Integers, wall_s: float) -> Floats:
    """Returns how much of a run falls into each hour of a repeating period, in hours; the last hour may be partial."""
    num_periods, rest = divmod(wall_s / HOUR, max(1, len(hours)))
    return np.asarray(num_periods + np.clip(rest - hours, 0.0, 1.0))


def _mean(values: Floats, weights: Floats, otherwise: float) -> float:
    weight = float(weights.sum())
    return float(values @ weights) / weight if weight > 0.0 else otherwise


def best_start(profile: HourlyProfile, wall_s: float, within_hours: int) -> tuple[int, float, float]:
    """Returns the starting hour with the least mean of a profile over a run, that mean, and the mean for a start now.

    No hour after `within_hours` is considered. Of hours that differ only by rounding, the earliest is taken.
    """
    means = profile.means_from(np.arange(within_hours + 1, dtype=np.float64), wall_s)
    best = int(np.argmax(means <= means.min() * (1.0 + SAME_MEAN_FRACTION)))
    return best, float(means[best]), float(means[0])
