"""How long is the expected way back (recovery) from an interruption, and which saves does it leave?

It has three sequential parts: replacement, restart, load. If restarts can fail, at the rate r of unplanned interruptions, a
part of length x that begins with probability b takes b (1 - exp(-r x))/r on average, and the next begins with probability b
exp(-r x). After a failed attempt, the next one has the longest restart of all kinds that have struck during this recovery: the
work of a planned stop is not over because a process failed meanwhile. Once lost, the fast level of saves stays lost until the
run is back. Nodes on their way arrive regardless. A kind with a longer restart may also strike during the wait for a node,
which then precedes that restart. With one kind and one level the mean is M (exp(R/M) - 1). Lognormal restarts are integrated by
Gauss-Hermite quadrature. Of 798 random runs whose kinds restart in between a thousandth of an up-time and a whole one, with
waits for nodes, three differ from the mean of the event loop by more than 2 % and four standard errors, at most 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.run.columns import NUM_KINDS, Interruption, Runs, over_kinds
from simulator.run.spares import spare_waits_s
from simulator.table import Floats, Table, total

_NUM_POINTS = 16
"""Points of the quadrature: full single precision for sigma up to 1."""


@dataclass(frozen=True, kw_only=True)
class WayBack(Table):
    """Means per interruption of an up-time, `(n,)`."""

    replacement_wait_s: Floats
    restart_s: Floats
    checkpoint_restore_s: Floats
    num_failures: Floats
    """Unplanned ones: the interruption itself unless it was planned, and those during restarts."""
    fast_share: Floats
    """Share of interruptions that roll back to the fast level of saves, or to a live replica."""
    durable_share: Floats
    """Share that rolls back to the durable level; the rest is announced and loses nothing."""

    @classmethod
    def with_spares(cls, runs: Runs) -> Self:
        """Returns the recovery of all runs if a spare is left for every node."""
        return cls._with_waits(runs, spare_waits_s(runs))

    def waiting_for_nodes(self, runs: Runs, wait_s: Floats) -> Self:
        """Returns the recovery of the same runs with this mean wait after each kind of interruption, `(n, 4)`."""
        if np.any(runs.fails_during_restart == 1.0):
            return self._with_waits(runs, wait_s)
        return replace(self, replacement_wait_s=over_kinds(runs.node_share, wait_s))

    @classmethod
    def _with_waits(cls, runs: Runs, wait_s: Floats) -> Self:
        plain = cls(**_plain(runs, wait_s))
        can_fail = runs.fails_during_restart == 1.0
        if not np.any(can_fail):
            return plain
        interrupted = _interrupted(runs, wait_s)
        return replace(
            plain,
            **{name: np.where(can_fail, found, getattr(plain, name)) for name, found in interrupted.items()},
        )

    @property
    def total_s(self) -> Floats:
        """From an interruption to the next up-time."""
        return self.replacement_wait_s + self.restart_s + self.checkpoint_restore_s


def _plain(runs: Runs, wait_s: Floats) -> dict[str, Floats]:
    """Returns the columns if nothing fails during recovery."""
    share = runs.kind_share
    survives = over_kinds(share, runs.kind_fast_survival)
    return {
        "replacement_wait_s": over_kinds(runs.node_share, wait_s),
        "restart_s": over_kinds(share, runs.kind_restart_s),
        "checkpoint_restore_s": survives * runs.fast_load_s + (1.0 - survives) * runs.durable_load_s,
        "num_failures": 1.0 - share[:, Interruption.PLANNED],
    } | _shares(runs, runs.kind_fast_survival)


def _shares(runs: Runs, kept: Floats) -> dict[str, Floats]:
    """Returns what is rolled back to, if the fast level lasts until the end of the recovery with shares `(n, 4)`."""
    planned = runs.planned_share
    # Before an announced interruption the run saves on the level that survives it; only a failed restart can still lose that.
    saved = np.where(runs.has_saves, runs.kind_fast_survival[:, Interruption.PLANNED], 1.0)
    lost_planned = runs.kind_share[:, Interruption.PLANNED] * (saved - kept[:, Interruption.PLANNED])
    unplanned_share = runs.kind_share[:, : Interruption.PLANNED]
    durable_share = total((unplanned_share * (1.0 - kept[:, : Interruption.PLANNED])).T) + lost_planned
    kept_planned = np.where(runs.has_saves, planned - lost_planned, 0.0)
    return {
        "durable_share": durable_share,
        "fast_share": np.maximum(0.0, 1.0 - durable_share - kept_planned),
    }


@dataclass(frozen=True, kw_only=True)
class _Attempts(Table):
    """One attempt with saves of one level, `(n, m, k)`: m is the longest kind so far, k the kind that begins the attempt."""

    replacement_wait_s: Floats
    restart_s: Floats
    checkpoint_restore_s: Floats
    num_failures: Floats
    success: Floats
    """Probability that restart and load do not fail."""

    @classmethod
    def of(cls, rate: Floats, wait_s: Floats, restart: tuple[Floats, Floats], load_s: Floats) -> Self:
        """Returns the mean time of each part with failures at a rate `(n, 1)`."""
        restart_s, restarts = restart
        load_s = np.broadcast_to(load_s[:, None], restart_s.shape)
        success = restarts * np.exp(-rate * load_s)
        return cls(
            replacement_wait_s=wait_s[:, None, :],
            restart_s=restart_s[:, :, None],
            checkpoint_restore_s=(restarts * _until(rate, load_s))[:, :, None],
            num_failures=(rate * wait_s)[:, None, :] + 1.0 - success[:, :, None],
            success=success[:, :, None],
        )


def _interrupted(runs: Runs, wait_s: Floats) -> dict[str, Floats]:
    """Returns the columns if restarts can fail; kinds are sorted by restart, the longest first."""
    unplanned = 1.0 - runs.kind_share[:, Interruption.PLANNED]
    rate = (unplanned / runs.mtbf_s)[:, None]
    next_share = _next_share(runs.kind_share, unplanned)
    takes_nodes = np.where(runs.kind_nodes > 0.0, 1.0, 0.0)
    wait_s = _busy_s(rate * over_kinds(next_share, takes_nodes)[:, None], wait_s)
    fast_wait_s = np.where(runs.kind_goes_on, 0.0, wait_s)
    loses_fast = rate * over_kinds(next_share, 1.0 - runs.kind_fast_survival)[:, None]
    survival = runs.kind_fast_survival * np.exp(-loses_fast * fast_wait_s)
    order = np.argsort(-runs.kind_restart_s, axis=1, kind="stable")
    # From here on kinds are processed one by one, which is fast if the runs of each are contiguous.
    share, next_share, wait_s, fast_wait_s, survival, restart_s, restarts = (
        np.asfortranarray(np.take_along_axis(column, order, axis=1))
        for column in (runs.kind_share, next_share, wait_s, fast_wait_s, survival, *_restart(runs, rate))
    )
    fast = _Attempts.of(rate, fast_wait_s, (restart_s, restarts), runs.fast_load_s)
    durable = _Attempts.of(rate, wait_s, (restart_s, restarts), runs.durable_load_s)
    survives = survival[:, None, :]
    chain = _Chain.of(next_share, rate * wait_s, durable.success)
    fast_chain = _Chain.of(next_share, rate * fast_wait_s, 1.0 - survives + survives * fast.success)
    columns = {}
    for name in WayBack.names()[:4]:
        all_durable = chain.until_back(getattr(durable, name))
        found = fast_chain.until_back(survives * getattr(fast, name), (1.0 - survives) * all_durable)
        columns[name] = over_kinds(share, _first(found))
    columns["num_failures"] += unplanned
    kept = _first(fast_chain.until_back(survives * fast.success))
    return columns | _shares(runs, np.take_along_axis(kept, np.argsort(order, axis=1), axis=1))


@dataclass(frozen=True, kw_only=True)
class _Chain(Table):
    """Successive attempts on one level; m has had the longest restart, k >= m begins the attempt, `(n, m, k)`."""

    share: Floats
    """Shares of the kinds that restart a recovery, that with the longest restart first, `(n, k)`."""
    stays: Floats
    """Probability that no kind before m, with a longer restart, strikes during the wait after k."""
    fails: Floats
    """Probability that another attempt follows on this level."""
    is_over: Floats
    """Probability that the next attempt is the last one in which m has the longest restart, `(n, m)`."""

    @classmethod
    def of(cls, share: Floats, failures: Floats, ends: Floats) -> Self:
        """Returns the attempts.

        Args:
            share: see above.
            failures: mean number of them during the wait after k, `(n, k)`.
            ends: the probability that no other attempt follows on this level, `(n, m, k)`.
        """
        longer = np.cumsum(share, axis=1) - share
        stays = np.exp(-longer[:, :, None] * failures[:, None, :])
        ends = np.broadcast_to(ends, stays.shape)
        is_over = np.empty(share.shape, order="F")
        for m in range(NUM_KINDS):
            at_last = 1.0 - stays[:, m, m:] + stays[:, m, m:] * ends[:, m, m:]
            is_over[:, m] = longer[:, m] + over_kinds(share[:, m:], at_last)
        return cls(share=share, stays=stays, fails=1.0 - ends, is_over=is_over)

    def until_back(self, value: Floats, before: Floats | None = None) -> Floats:
        """Returns the sum over attempts until the run is back, `(n, m, k)`.

        Args:
            value: what one attempt adds, where m has the longest restart by the end of its wait.
            before: what it adds in addition, where m has the longest restart when it begins.
        """
        found, risen = np.zeros(self.stays.shape, order="F"), np.zeros(self.share.shape, order="F")
        value = np.broadcast_to(value, found.shape)
        for m in range(NUM_KINDS):
            # Kinds before m have longer restarts, so m is no longer the longest once one of them strikes.
            longer, others = self.share[:, :m], self.share[:, m:]
            stays = self.stays[:, m, m:]
            at_once = risen[:, m:] + stays * value[:, m, m:]
            if before is not None:
                at_once += before[:, m, m:]
            follows = over_kinds(others, at_once)
            if m:
                follows = follows + over_kinds(longer, _first(found)[:, :m])
            again = self.fails[:, m, m:] * (follows / self.is_over[:, m])[:, None]
            found[:, m, m:] = at_once + stays * again
            if m + 1 < NUM_KINDS:
                rises = stays[:, 1:] - self.stays[:, m + 1, m + 1 :]
                risen[:, m + 1 :] += rises * (value[:, m, m + 1 :] + again[:, 1:])
        return found


def _first(found: Floats) -> Floats:
    """Returns the result after an interruption of each kind, `(n, 4)`, which has the longest restart so far."""
    return np.diagonal(found, axis1=1, axis2=2)


def _busy_s(rate: Floats, wait_s: Floats) -> Floats:
    """Returns the mean time until no node is missing, if more may fail meanwhile (busy period of M/D/inf)."""
    busy_s = np.expm1(rate * wait_s) / np.where(rate > 0.0, rate, 1.0)
    return np.where(rate > 0.0, busy_s, wait_s)


def _next_share(share: Floats, unplanned: Floats) -> Floats:
    """Returns the kinds of interruption that restart a recovery, `(n, 4)`: the unplanned ones."""
    next_share = share / np.where(unplanned > 0.0, unplanned, 1.0)[:, None]
    next_share[:, Interruption.PLANNED] = 0.0
    next_share[unplanned <= 0.0, Interruption.PROCESS_FAULT] = 1.0
    return next_share


def _until(rate: Floats, part_s: Floats) -> Floats:
    """Returns the mean time until a part is finished or has failed."""
    return np.where(rate > 0.0, -np.expm1(-rate * part_s) / np.where(rate > 0.0, rate, 1.0), part_s)


def _restart(runs: Runs, rate: Floats) -> tuple[Floats, Floats]:
    """Returns the mean time until a restart is finished or has failed, and its probability to finish, `(n, 4)`."""
    deviation = runs.restart_log_deviation[:, None]
    if not np.any(deviation > 0.0):
        return _until(rate, runs.kind_restart_s), np.exp(-rate * runs.kind_restart_s)
    points, weights = np.polynomial.hermite_e.hermegauss(_NUM_POINTS)
    mean_s, is_over = np.zeros(runs.kind_restart_s.shape), np.zeros(runs.kind_restart_s.shape)
    for point, weight in zip(points, weights / weights.sum(), strict=True):
        restart_s = np.exp(deviation * (point - 0.5 * deviation)) * runs.kind_restart_s
        mean_s += weight * _until(rate, restart_s)
        is_over += weight * np.exp(-rate * restart_s)
    return mean_s, is_over
