"""How long are the up-times of a run with two levels of saves, live replicas or announced interruptions?

These are two nested renewal processes. The inner one knows only the interruptions that the fast level survives, at the rate a.
Its clock, the expected up-time per work, drives the outer one, which knows only those that need the durable level, at the rate
b, and whose cycle is the work between two durable saves.

Inner process, without replicas: exact as in `simulator.run.renewal`. For the outer process a time T counts through its Laplace
transform at b, because it matters how often an outer failure comes first: -ln(E[exp(-b T)])/b. With s = a + b this is

    a time F without a commit    C(F) = ln((b exp(s F) + a)/s)/b, which is (exp(a F) - 1)/a for b = 0
    from commit to commit        C(t1) - C(t1 - c)

A run counts as its cycles and its end, whose saves commit too late to be used.

Inner process, with live replicas: with g the share of work in the up-time of a run without failures, an up-time loses g (1 -
exp(-a lag/g))/a of work, and the next interruption cuts the pause after it short. Announced interruptions keep all work: an
up-time gains the whole work in their share, and what was committed otherwise (`simulator.run.announced` treats the ends of
runs). The outer process treats those that the fast level does not survive the same way, as they save durably.

Exact for a run with one level, no replica and no planned interruptions. Otherwise measured against the event loop's mean wall
time over 35 random runs each, with stalls up to a tenth and a durable cycle up to seven tenths of the mean up-time: 0.02 % on
average for planned interruptions, 0.05 % for two levels (at most 0.7 %), 0.1 % for replicas (at most 0.7 %). The error is
larger where recovery takes as long as writing to the durable level, which continues meanwhile. Announced interruptions that the
fast level survives postpone the saves of the durable one: `simulator.run.outlived`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.run import renewal
from simulator.run.announced import LEAST_SHARE, Announced, announced_up_time_s, unsaved_up_time_s
from simulator.run.columns import FOREVER_S, Runs, over_kinds
from simulator.run.next_save import Rates
from simulator.run.outlived import has_few_durable, outlived_up_time_s
from simulator.run.shares import Shares, mean_between_s, saved_ahead_share
from simulator.run.up_time import TIE_FRACTION
from simulator.table import Booleans, Floats, Table, TableGroup

UPTIME_LOSSES = ("checkpoint_stall_s", "checkpoint_tax_s", "backpressure_wait_s", "reduced_capacity_s")
"""Parts of the up-time without training."""


@dataclass(frozen=True, kw_only=True)
class UpTime(Table):
    """The expected time of a run between recoveries, and its parts that are not work, `(n,)`."""

    total_s: Floats
    checkpoint_stall_s: Floats
    checkpoint_tax_s: Floats
    backpressure_wait_s: Floats
    reduced_capacity_s: Floats
    calm_s: Floats
    """The run without interruptions, less the waits and tax that they spare it; not part of the total."""

    @classmethod
    def of(cls, runs: Runs, shares: Shares) -> Self:
        """Returns the up-time of all runs."""
        mtbf_s = np.where(runs.has_live_replicas, FOREVER_S, mean_between_s(runs, shares.fast))
        inner = _Inner.of(replace(runs, mtbf_s=mtbf_s))
        saves = inner.runs, inner.cycle, inner.ends
        losing_s = renewal.up_time_s(*saves)
        up_time = cls(
            total_s=losing_s,
            checkpoint_stall_s=renewal.stall_s(*saves),
            checkpoint_tax_s=renewal.tax_s(*saves),
            backpressure_wait_s=renewal.wait_s(*saves),
            reduced_capacity_s=np.zeros(len(runs)),
            calm_s=renewal.calm_s(inner.cycle, inner.ends),
        )
        if np.any(shares.planned > 0.0):
            up_time = up_time.with_planned(runs, shares, inner)
        if np.any(runs.has_live_replicas):
            up_time = up_time.with_replicas(runs, shares)
        if np.any(shares.durable > 0.0):
            clock = _Clock.of(runs, shares, inner, up_time.total_s / losing_s)
            up_time = up_time.times(_outer_factor(runs, shares, clock, up_time.total_s))
        return up_time

    def with_planned(self, runs: Runs, shares: Shares, inner: _Inner) -> Self:
        """Returns the up-time with interruptions that keep all work, its parts as in a long run.

        Args:
            runs: the runs.
            shares: of their interruptions.
            inner: the runs with only those interruptions that lose work since the newest save.
        """
        has_any = shares.planned > 0.0
        losing = _PerWork.of(inner.runs, inner.cycle, np.zeros(len(runs)))
        fast = np.where(runs.has_live_replicas, 0.0, shares.fast)  # where replicas go on, no interval begins
        ended = replace(runs, mtbf_s=mean_between_s(runs, fast + shares.planned))
        planned = shares.planned / np.maximum(LEAST_SHARE, fast + shares.planned)
        keeping = _PerWork.of(ended, renewal.Cycle.of(ended), planned)
        names = self.names()[1:4]
        parts = {
            name: getattr(self, name) * _ratio(getattr(keeping, name), getattr(losing, name), has_any)
            for name in names
        }
        announced = Announced.of(runs, shares.planned, keeping.up_time_s)
        total_s = announced_up_time_s(inner.runs, inner.cycle, inner.ends, announced)
        total_s = np.maximum(total_s, runs.work_s + np.sum(list(parts.values()), axis=0))
        return replace(self, **parts, total_s=np.where(has_any, total_s, self.total_s))

    def with_replicas(self, runs: Runs, shares: Shares) -> Self:
        """Returns the up-time where a working replica stands in for the fast level."""
        rate = shares.fast / runs.mtbf_s
        is_live = runs.has_live_replicas
        # An interruption also ends the saves under way and their tax.
        taxed = rate * np.minimum(runs.commit_s, runs.interval_s)
        untaxed = np.where(is_live & (taxed > 0.0), 1.0 + np.expm1(-taxed) / taxed, 0.0)
        tax_s = self.checkpoint_tax_s * (1.0 - untaxed)
        wait_s = self.backpressure_wait_s * np.where(is_live, _waited_share(runs, rate), 1.0)
        spared_s = self.checkpoint_tax_s - tax_s + self.backpressure_wait_s - wait_s
        steady_s = self.total_s - spared_s
        work_share = np.divide(runs.work_s, steady_s, out=np.ones(len(runs)), where=steady_s > 0.0)
        lag_s = mean_lag_s(runs, shares, work_share)
        kept = 1.0 - work_share * -np.expm1(-rate * lag_s / work_share)
        working_s = np.where(is_live, steady_s / kept, steady_s)
        paused = shares.fast * -np.expm1(-runs.reduced_capacity_s / runs.mtbf_s)
        paused_s = np.where(is_live, working_s * paused / (1.0 - paused), 0.0)
        total_s = working_s + paused_s
        return replace(
            self,
            total_s=total_s,
            checkpoint_tax_s=tax_s,
            backpressure_wait_s=wait_s,
            reduced_capacity_s=paused_s,
            calm_s=self.calm_s - spared_s,
        )

    def times(self, factor: Floats) -> Self:
        """Returns every part times a factor; the uninterrupted run stays as it is."""
        parts = {name: getattr(self, name) * factor for name in self.names() if name != "calm_s"}
        return replace(self, **parts)


@dataclass(frozen=True, kw_only=True)
class _Inner(TableGroup):
    """The runs with only the interruptions that go back to the newest save, and their saves."""

    runs: Runs
    cycle: renewal.Cycle
    ends: renewal.Ends

    @classmethod
    def of(cls, runs: Runs) -> Self:
        """Returns the saves of all runs."""
        cycle = renewal.Cycle.of(runs)
        return cls(runs=runs, cycle=cycle, ends=renewal.Ends.of(runs, cycle))


@dataclass(frozen=True, kw_only=True)
class _PerWork(Table):
    """Means of a long run per second of work, `(n,)`."""

    checkpoint_stall_s: Floats
    checkpoint_tax_s: Floats
    backpressure_wait_s: Floats
    up_time_s: Floats

    @classmethod
    def of(cls, runs: Runs, cycle: renewal.Cycle, planned: Floats) -> Self:
        """Returns the means for up-times that end in a roll-back or, with this probability, without one."""
        stall_s, tax_s, wait_s = renewal.per_up_time_s(runs, cycle)
        work_s = runs.mtbf_s - stall_s - tax_s - wait_s
        gain_s = planned * work_s + (1.0 - planned) * runs.mtbf_s / cycle.up_time_per_work(runs)
        return cls(
            checkpoint_stall_s=stall_s / gain_s,
            checkpoint_tax_s=tax_s / gain_s,
            backpressure_wait_s=wait_s / gain_s,
            up_time_s=runs.mtbf_s / gain_s,
        )


def _outer_factor(runs: Runs, shares: Shares, clock: _Clock, inner_s: Floats) -> Floats:
    """Returns the factor by which interruptions that need the durable level lengthen the up-time, `(n,)`."""
    none_s = np.zeros(len(runs))
    outer = replace(
        runs,
        work_s=clock.work_s,
        mtbf_s=mean_between_s(runs, shares.durable),
        interval_s=np.minimum(clock.first_s, FOREVER_S),
        commit_s=clock.commit_s,
        stall_s=none_s,
        tax_fraction=none_s,
    )
    cycle = renewal.Cycle.regular(outer, np.minimum(clock.cycle_s, FOREVER_S))
    ends = renewal.Ends.of(outer, cycle)
    up_time_s = renewal.up_time_s(outer, cycle, ends)
    saved = saved_ahead_share(runs)
    if np.any(saved > 0.0):
        announced = Announced.of(runs, saved, _up_time_per_saved_work(outer, cycle, saved / runs.mtbf_s))
        keeping_s = announced_up_time_s(outer, cycle, ends, announced)
        up_time_s = np.where((saved > 0.0) & (shares.durable > 0.0), keeping_s, up_time_s)
    has_any = (shares.durable > 0.0) & (inner_s > 0.0)
    outlived = np.flatnonzero(has_any & (shares.planned - saved > LEAST_SHARE))
    if len(outlived):
        up_time_s[outlived] = _with_outlived(
            runs.take(outlived),
            shares.take(outlived),
            saved[outlived],
            inner_s[outlived],
            up_time_s[outlived],
        )
    return np.maximum(1.0, np.divide(up_time_s, inner_s, out=np.ones(len(runs)), where=has_any))


def _with_outlived(runs: Runs, shares: Shares, saved: Floats, inner_s: Floats, unstopped_s: Floats) -> Floats:
    """Returns the up-time with announced stops that the fast level survives, `(n,)`.

    Args:
        runs: the runs.
        shares: of their interruptions.
        saved: the share of announced stops that are saved durably.
        inner_s: the up-time without interruptions that need the durable level.
        unstopped_s: that with durable saves not postponed by stops, for runs that meet none.
    """
    rates = Rates(
        fast=shares.fast / runs.mtbf_s,
        kept=(shares.planned - saved) / runs.mtbf_s,
        durable=shares.durable / runs.mtbf_s,
        saved=saved / runs.mtbf_s,
    )
    share = shares.fast + shares.planned
    inner = replace(runs, mtbf_s=mean_between_s(runs, share))
    cycle = renewal.Cycle.of(inner)
    num_apart = _saves_per_stopped_durable(runs, inner, cycle)
    per_work = _PerWork.of(inner, cycle, shares.planned / share).up_time_s
    stopped_s = outlived_up_time_s(runs, rates, num_apart, per_work)
    is_counted = (runs.work_s <= num_apart * runs.interval_s) | has_few_durable(runs, rates, num_apart)
    unstopped = np.where(~is_counted, np.exp(-rates.kept * inner_s), 0.0)
    # Where training stands still for a slot an up-time does not work in proportion to its age.
    unstopped = np.where(cycle.wait_s > TIE_FRACTION * runs.interval_s, 1.0, unstopped)
    stopped_s = np.where(unstopped < 1.0, (1.0 - unstopped) * stopped_s, 0.0)
    return stopped_s + np.where(unstopped > 0.0, unstopped * unstopped_s, 0.0)


def _saves_per_stopped_durable(runs: Runs, inner: Runs, cycle: renewal.Cycle) -> Floats:
    """Returns the number of saves from one durable save to the next where interruptions make saves late, `(n,)`.

    The fast level continues writing meanwhile. An uninterrupted write lasts a whole number of cycles; an interrupted one ends
    at any time between two saves.
    """
    under_way_s = runs.stall_s + runs.durable_commit_s
    back_s = over_kinds(runs.kind_share, runs.kind_restart_s)
    apart_s = inner.mtbf_s * cycle.failures * (1.0 + back_s / runs.mtbf_s)
    regular = np.exp(-under_way_s / inner.mtbf_s)
    late = np.maximum(runs.durable_every, under_way_s / apart_s + 0.5)
    return regular * saves_per_durable(runs, cycle.length_s) + (1.0 - regular) * late


def _up_time_per_saved_work(outer: Runs, cycle: renewal.Cycle, saved_per_s: Floats) -> Floats:
    """Returns outer up-time per work of a long run, `(n,)`, given the rate of announced stops that save durably."""
    either_per_s = saved_per_s + 1.0 / outer.mtbf_s
    ended = replace(outer, mtbf_s=1.0 / either_per_s)
    committed = 1.0 / renewal.Cycle.regular(ended, cycle.length_s).up_time_per_work(ended)
    keeps = saved_per_s / either_per_s
    return 1.0 / (keeps + (1.0 - keeps) * committed)


@dataclass(frozen=True, kw_only=True)
class _Clock(Table):
    """The inner process as seen by the outer one, `(n,)`."""

    work_s: Floats
    """Outer clock of the whole run."""
    first_s: Floats
    """From an outer failure to the first save that will be durable."""
    cycle_s: Floats
    """From one durable save to the next."""
    commit_s: Floats
    """From the end of the first cycle after an outer failure until it is durable."""

    @classmethod
    def of(cls, runs: Runs, shares: Shares, inner: _Inner, slower: Floats) -> Self:
        """Returns the clock of all runs.

        Args:
            runs: the runs.
            shares: of their interruptions.
            inner: the runs as `UpTime.of` takes them.
            slower: their inner up-time over that of `inner`, which has only some of their interruptions.
        """
        cycle, ends = inner.cycle, inner.ends
        outer_per_s = shares.durable / runs.mtbf_s
        both_per_s = outer_per_s + shares.fast / runs.mtbf_s
        first_commit_s = runs.first_commit_s
        first_s, to_last_s, to_rest_s, base_s = (
            unsaved_up_time_s(outer_per_s, both_per_s, part_s)
            for part_s in (
                first_commit_s,
                first_commit_s - cycle.length_s,
                first_commit_s - ends.step_s,
                ends.base_s,
            )
        )
        is_live, calm_s = runs.has_live_replicas, renewal.calm_s(cycle, ends)
        save_s = np.where(is_live, cycle.gain_s * calm_s / runs.work_s, first_s - to_last_s)
        late_s = np.where(is_live, 0.0, to_last_s - runs.commit_s) + runs.durable_commit_s
        work_s = base_s + np.where(ends.is_only_rest, first_s - to_rest_s, 0.0)
        work_s = work_s + np.where(ends.num_steady > 0.0, ends.num_steady * save_s, 0.0)
        return cls(
            work_s=slower * np.where(is_live, calm_s, work_s),
            first_s=runs.durable_every * slower * save_s,
            cycle_s=saves_per_durable(runs, cycle.length_s) * slower * save_s,
            commit_s=np.maximum(0.0, late_s),
        )


def _waited_share(runs: Runs, rate: Floats) -> Floats:
    """Returns the share of slot waits that remains where interruptions at a rate end saves under way, `(n,)`.

    With n slots, saves at the times 0, f, 2 f and so on fill them, and the next one waits from n f until the first commits at n
    c. An interruption frees all slots, and the next n saves fill them again. So a save waits for
    """
    cycle = renewal.Cycle.of(runs)
    free_s = cycle.length_s - cycle.wait_s
    slots, wait = runs.slots, rate * cycle.wait_s
    waits = (cycle.wait_s > 0.0) & (wait > 0.0)
    until = rate * slots * free_s
    waited = np.exp(-until) * -np.expm1(-slots * wait)
    num_saves = np.expm1(-until) / np.expm1(-rate * free_s)
    return np.asarray(np.divide(waited, wait * num_saves, out=np.ones(len(runs)), where=waits))


def mean_lag_s(runs: Runs, shares: Shares, work_share: Floats) -> Floats:
    """Returns the mean of the lag or the work since the newest durable save, whichever is less, `(n,)`."""
    cycle = renewal.Cycle.of(replace(runs, mtbf_s=mean_between_s(runs, shares.fast)))
    newest_s = runs.durable_commit_s * work_share
    apart_s = saves_per_durable(runs, cycle.length_s) * cycle.gain_s
    beyond_s = np.clip(runs.live_lag_s - newest_s, 0.0, apart_s)
    return np.minimum(runs.live_lag_s, newest_s) + beyond_s - 0.5 * beyond_s * (beyond_s / apart_s)


def saves_per_durable(runs: Runs, cycle_s: Floats) -> Floats:
    """Returns the number of saves from one durable save to the next, written one at a time, `(n,)`."""
    under_way_s = runs.stall_s + runs.durable_commit_s - TIE_FRACTION * runs.interval_s
    return np.maximum(runs.durable_every, np.ceil(under_way_s / cycle_s))


def _ratio(new: Floats, old: Floats, matters: Booleans) -> Floats:
    return np.divide(new, old, out=np.ones(len(new)), where=matters & (old > 0.0))
