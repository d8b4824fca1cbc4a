"""How long is the expected wait for replacement nodes? The pool of spares as a queue with infinitely many servers.

Nodes fail at a constant rate r and are in repair for a fixed time T. After a time A of the run, at most T, the number X in
repair is Poisson with mean a = r A (M/G/inf), and each has been there for a time uniform between 0 and A. With c spares, an
interruption finds none left if X >= c. It then waits for the shorter of Q, the queue, and S, the first node to return and be
brought in. None returns before T - A; so with q = min(Q - S, T), B = min(T - q, A), b = r B and Y Poisson

    E[wait] = S + min(q, T - A) P(Y >= c; a) + (P(Y > c; a) - exp(b - a) P(Y > c; b)) / r.

At first all spares are on standby. The mean over the run is that over A up to T or the end of the run; from then on A stays T.
Its integrals are those of P(Y >= c; x) and of x P(Y >= c; x) over x. The first is E[max(0, Y - c)]: in a run shorter than a
repair, all failures beyond the number of spares wait for the queue.

If the queue takes longer than a repair, only repairs end a wait. Nothing fails meanwhile, so at most c + 1 nodes are in repair:
Erlang's loss system with c + 1 servers, where arrivals are lost while all are taken. Its states do not depend on the
distribution of repair times, so in steady state, with r the rate while nobody waits and Y of mean r T,

    E[wait] = S + P(Y = c + 1) / (r P(Y <= c)),      which is S + T without spares,

if recoveries are short compared with the time between failures. If m nodes can be lent at a time, only repairs end the wait of
a failure that finds X >= c + m: these waits are those of c + m spares, and take the place of their waits for the queue.

Waits make failures rarer, and rarer failures shorten waits: the mean wait is the fixed point. Several nodes that fail at once
are treated as groups of the mean size. In steady state the mean wait agrees with the event loop within 1 % if the same number
of nodes fails each time and restarts are short.

If the wait for the queue is as long as the time between failures, failures are no longer independent of repairs, and the pool
is played separately (`simulator.run.pool_play`). With two hours or a day for the queue and 0 to 160 spares, the goodput of long
runs then agrees with the event loop within 7 % for up-times of at least half an hour, 10 % at ten minutes and 13 % at one.
Where repairs alone end waits, 1,200 random runs with recoveries of up to 20 up-times agree with the event loop within 2 % and
four standard errors; with Erlang's form 102 do not, with errors of up to 23 %. Pools are also played where nodes fail both
alone and by domains, which the form cannot distinguish: 450 random runs with both agree with the event loop within 2.5 %, 0.2 %
on average; with the form alone errors reach 45 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, pdtr, pdtrc, xlogy

from simulator.run.columns import FOREVER_S, Runs, over_kinds
from simulator.run.pool_play import PlayedWaits, played_waits
from simulator.table import Booleans, Floats, Table

_LEAST_PROBABILITY = 1e-280
"""Smaller probabilities have no digits left."""
_ROUNDING = 1e-9
"""Rounding tolerance for a quotient of numbers of nodes."""
_FEW = 1e-12
"""Fewer nodes in repair than this count as none, and are not divided by."""
_SETTLED_FRACTION = 1e-3
"""Two passes are enough if the mean wait at the fixed point is this close to that of the second, as a share of the time between
interruptions. They are not enough if whether a failure waits depends on how many have waited."""
LEAST_RHYTHM = 0.3
"""Wait for the queue over the time between failures from which failures are played (`simulator.run.pool_play`). Waits that only
repairs end are always as long."""
LEAST_WAIT_FRACTION = 0.01
"""Mean wait beyond that for a spare, over the time between failures, below which nothing is played: it changes nothing."""
MIXED_PART = 0.1
"""Factor on both thresholds where nodes fail alone and by domains: the closed form uses one mean number of nodes for both."""
LEAST_MIXTURE = 1.05
"""Mean size of the loss that a lost node belongs to, over the smallest size, from which this factor applies."""
_NUM_HALVINGS = 30
"""Bisection steps over mean waits: from hours to less than a millisecond."""


@dataclass(frozen=True, kw_only=True)
class ReplacementWaits(Table):
    """Mean waits after each kind of interruption that waits for nodes, `(n, 4)`; the parts sum to the wait."""

    for_spares_s: Floats
    for_queue_s: Floats
    """What waits for a node on loan, or for a repaired one that comes earlier, add."""
    for_repairs_s: Floats
    """What waits add where only repairs end them."""

    @classmethod
    def with_spares(cls, runs: Runs) -> Self:
        """Returns the waits if a spare is left for every node."""
        for_spares_s = spare_waits_s(runs)
        none_s = np.zeros(for_spares_s.shape)
        return cls(for_spares_s=for_spares_s, for_queue_s=none_s, for_repairs_s=none_s)

    @property
    def longer_s(self) -> Floats:
        """What is added to the wait for a spare."""
        return self.for_queue_s + self.for_repairs_s

    @property
    def total_s(self) -> Floats:
        """The whole wait."""
        return self.for_spares_s + self.longer_s

    def of_length(self, total_s: Floats) -> Self:
        """Returns the waits with another total, `(n, 4)`: the parts beyond the wait for a spare keep their ratio."""
        was_s, longer_s = self.longer_s, total_s - self.for_spares_s
        of_repairs = np.divide(self.for_repairs_s, was_s, out=np.zeros(was_s.shape), where=was_s > 0.0)
        for_repairs_s = of_repairs * longer_s
        return replace(self, for_queue_s=longer_s - for_repairs_s, for_repairs_s=for_repairs_s)

    def with_rows(self, rows: NDArray[np.intp], waits: Self) -> Self:
        """Returns the waits with others in some rows."""
        columns: dict[str, Floats] = {name: getattr(self, name).copy() for name in self.names()}
        for name, column in columns.items():
            column[rows] = getattr(waits, name)
        return replace(self, **columns)


@dataclass(frozen=True, kw_only=True)
class ExpectedWaits:
    """Mean waits of n runs, and those of them that were played."""

    mean: ReplacementWaits
    played: PlayedWaits
    played_rows: NDArray[np.intp]
    """Whose they are."""


def expected_waits(runs: Runs, up_time_s: Floats) -> ExpectedWaits:
    """Returns the waits for nodes of runs.

    Args:
        runs: the runs.
        up_time_s: how long they are up, `(n,)`.
    """
    with_spares = ReplacementWaits.with_spares(runs)
    spare_wait_s = with_spares.for_spares_s
    can_run_out = (runs.num_spares < FOREVER_S)[:, None] & (runs.kind_nodes * runs.node_share > 0.0)
    if not np.any(can_run_out):
        none = np.zeros(0, dtype=np.intp)
        return ExpectedWaits(mean=with_spares, played=PlayedWaits.none(), played_rows=none)
    # Written so that nan, as from infinity minus infinity, counts as never ending.
    up_s = np.fmin(up_time_s, FOREVER_S)
    first = _waits(runs, up_s, spare_wait_s, can_run_out)
    waits = _waits(runs, up_s, first.total_s, can_run_out)
    # The third wait is shorter than that of the fixed point, so those that are long enough to be played need not be settled.
    is_unsettled = _is_unsettled(runs, spare_wait_s, first.total_s, waits.total_s)
    rows = np.flatnonzero(is_unsettled & ~_is_rhythmic(runs, waits))
    if len(rows):
        waits = waits.with_rows(rows, _settled(runs.take(rows), up_s[rows], can_run_out[rows]))
    rows = np.flatnonzero(_is_rhythmic(runs, waits))
    played = PlayedWaits.none()
    if len(rows):
        played, expected = played_waits(runs.take(rows), up_s[rows]), waits.take(rows)
        wait_s = np.where(np.isnan(played.mean_s), expected.total_s, played.mean_s)
        waits = waits.with_rows(rows, expected.of_length(wait_s))
    return ExpectedWaits(mean=waits, played=played, played_rows=rows)


def spare_waits_s(runs: Runs) -> Floats:
    """Returns the wait after each kind of interruption if a spare is left for every node, `(n, 4)`."""
    return np.where(runs.kind_nodes > 0.0, runs.spare_wait_s[:, None], 0.0)


def losses_that_leave_none(runs: Runs, num_nodes: Floats) -> Floats:
    """Returns how many losses in repair, of the mean size, leave of some nodes, `(n,)`, fewer than a kind takes, `(n, 4)`."""
    at_once = _lost_at_once(runs)[:, None]
    left = num_nodes[:, None] - runs.kind_nodes
    return np.maximum(0.0, np.ceil((left + 1.0) / at_once - _ROUNDING))


def _apart_s(runs: Runs, wait_s: Floats) -> Floats:
    """Returns the mean time between interruptions with these waits, `(n,)`."""
    load_s = np.maximum(runs.fast_load_s, runs.durable_load_s)
    back_s = over_kinds(runs.kind_share, runs.kind_restart_s) + load_s
    down_s = back_s + over_kinds(runs.node_share, wait_s)
    return np.where(runs.fails_during_restart == 1.0, runs.mtbf_s, runs.mtbf_s + down_s)


def _is_unsettled(runs: Runs, first_s: Floats, second_s: Floats, third_s: Floats) -> Booleans:
    """Returns whether the third of three successive waits is far from the fixed point, `(n,)`.

    The fixed point is estimated by extrapolating the line through the two steps.
    """
    first_mean_s, second_mean_s, third_mean_s = (
        over_kinds(runs.node_share, wait_s) for wait_s in (first_s, second_s, third_s)
    )
    step_s, back_s = second_mean_s - first_mean_s, second_mean_s - third_mean_s
    share = np.divide(step_s, step_s + back_s, out=np.ones(len(runs)), where=step_s + back_s > 0.0)
    crossing_s = first_mean_s + share * step_s
    return np.abs(crossing_s - third_mean_s) > _SETTLED_FRACTION * _apart_s(runs, third_s)


def _is_rhythmic(runs: Runs, waits: ReplacementWaits) -> Booleans:
    """Returns whether waits for the queue or for repairs take as long as the time between failures, and occur, `(n,)`."""
    apart_s = _apart_s(runs, waits.for_spares_s)
    extra_s = over_kinds(runs.node_share, waits.total_s - waits.for_spares_s)
    for_repairs_s = over_kinds(runs.node_share, waits.for_repairs_s)
    is_long, is_long_if_mixed = (
        (runs.queue_wait_s > part_s * LEAST_RHYTHM) & (extra_s > part_s * LEAST_WAIT_FRACTION)
        | (for_repairs_s > part_s * LEAST_WAIT_FRACTION)
        for part_s in (apart_s, MIXED_PART * apart_s)
    )
    if np.any(is_long_if_mixed & ~is_long):
        is_long = is_long | (is_long_if_mixed & _takes_mixed_numbers(runs))
    return np.asarray(is_long & ~runs.is_unknown)


def _takes_mixed_numbers(runs: Runs) -> Booleans:
    """Returns whether losses differ in size by more than rare exceptions, `(n,)`."""
    takes_any = runs.kind_nodes * runs.node_share > 0.0
    least = np.where(takes_any, runs.kind_nodes, np.inf).min(axis=1)
    return np.asarray(_lost_at_once(runs) > LEAST_MIXTURE * least)


def _lost_at_once(runs: Runs) -> Floats:
    """Returns the mean size of the loss that a lost node belongs to, itself included, `(n,)`; at least 1."""
    per_interruption = over_kinds(runs.node_share, runs.kind_nodes)
    squares = over_kinds(runs.node_share, runs.kind_nodes**2)
    at_once = np.divide(squares, per_interruption, out=np.ones(len(runs)), where=per_interruption > 0.0)
    return np.maximum(1.0, at_once)


def _settled(runs: Runs, up_s: Floats, can_run_out: Booleans) -> ReplacementWaits:
    """Returns the fixed point of the waits: the longer the mean wait, the shorter the wait that follows from it."""
    low_s = spare_waits_s(runs)
    waits = _waits(runs, up_s, low_s, can_run_out)
    high_s = waits.total_s
    for _ in range(_NUM_HALVINGS):
        middle_s = 0.5 * (low_s + high_s)
        waits = _waits(runs, up_s, middle_s, can_run_out)
        is_low = over_kinds(runs.node_share, waits.total_s) > over_kinds(runs.node_share, middle_s)
        low_s = np.where(is_low[:, None], middle_s, low_s)
        high_s = np.where(is_low[:, None], high_s, middle_s)
    return waits


def _waits(runs: Runs, up_s: Floats, wait_s: Floats, can_run_out: Booleans) -> ReplacementWaits:
    """Returns the waits of runs whose failures are as far apart as with these mean waits, `(n, 4)`."""
    apart_s = _apart_s(runs, wait_s)
    waits = ReplacementWaits.with_spares(runs)
    waits = replace(waits, for_queue_s=_waits_beyond(runs, runs.num_spares, up_s, apart_s, can_run_out))
    rows = np.flatnonzero(runs.max_loans < FOREVER_S)
    if len(rows) == 0:
        return waits
    # Beyond the loans a failure does not wait for the queue but for repairs, as with an endless queue.
    some, up_s, apart_s, can_run_out = runs.take(rows), up_s[rows], apart_s[rows], can_run_out[rows]
    without_queue = replace(some, queue_wait_s=np.full(len(rows), FOREVER_S))
    not_lent_s, for_repairs_s = (
        _waits_beyond(those, some.num_spares + some.max_loans, up_s, apart_s, can_run_out)
        for those in (some, without_queue)
    )
    lent_s = np.maximum(0.0, waits.for_queue_s[rows] - not_lent_s)
    found = replace(waits.take(rows), for_queue_s=lent_s, for_repairs_s=for_repairs_s)
    return waits.with_rows(rows, found)


def _waits_beyond(
    runs: Runs, num_nodes: Floats, up_s: Floats, apart_s: Floats, can_run_out: Booleans
) -> Floats:
    """Returns what failures that find all of some nodes, `(n,)`, in repair add to the mean wait, by kind, `(n, 4)`."""
    at_once = _lost_at_once(runs)
    # The run is longer than its work: by repeated work and by recoveries.
    run_s = up_s * apart_s / runs.mtbf_s
    failing = _Failing.of(runs, run_s, over_kinds(runs.node_share, runs.kind_nodes) / at_once, apart_s)
    enough = losses_that_leave_none(runs, num_nodes)
    extra_s = np.zeros(can_run_out.shape)
    for kind in np.flatnonzero(can_run_out.any(axis=0)):
        extra_s[:, kind] = np.where(can_run_out[:, kind], failing.mean_wait_s(enough[:, kind]), 0.0)
    return extra_s


@dataclass(frozen=True, kw_only=True)
class _Failing(Table):
    """Nodes that fail during a run and return, `(n,)`; letters as at the head of this module."""

    per_s: Floats
    """r."""
    per_working_s: Floats
    """r while nobody waits for a node beyond the time for a spare."""
    full_s: Floats
    """The longest A: the repair time, or the run if that is shorter."""
    transient: Floats
    """Share of the run until A reaches this."""
    repair_s: Floats
    """T."""
    queue_s: Floats
    """q, the wait beyond that for a spare if no node returns."""
    faster_s: Floats
    """How much faster the queue is than a spare; 0 if it is slower."""
    only_repairs: Booleans
    """Whether waits end with a repair at the latest, and nothing fails during them."""

    @classmethod
    def of(cls, runs: Runs, run_s: Floats, per_interruption: Floats, apart_s: Floats) -> Self:
        """Returns the failing nodes of runs of this length, by nodes per interruption and mean time between interruptions."""
        full_s = np.minimum(runs.repair_s, run_s)
        queue_s = runs.queue_wait_s - runs.spare_wait_s
        working_s = _apart_s(runs, spare_waits_s(runs))
        return cls(
            per_s=np.maximum(per_interruption / apart_s, _FEW / np.where(full_s > 0.0, full_s, 1.0)),
            per_working_s=np.maximum(per_interruption / working_s, _FEW / np.maximum(runs.repair_s, 1.0)),
            full_s=full_s,
            transient=np.divide(full_s, run_s, out=np.ones(len(runs)), where=run_s > 0.0),
            repair_s=runs.repair_s,
            queue_s=np.clip(queue_s, 0.0, runs.repair_s),
            faster_s=np.maximum(0.0, -queue_s),
            only_repairs=(runs.queue_wait_s >= runs.repair_s) & (runs.fails_during_restart == 0.0),
        )

    def mean_wait_s(self, enough: Floats) -> Floats:
        """Returns the mean wait beyond that for a spare, `(n,)`, if `enough` nodes in repair, c, leave no spare."""
        alone_s = np.minimum(self.repair_s - self.queue_s, self.full_s)
        full, alone = _Tail.of(self.per_s * self.full_s, enough), _Tail.of(self.per_s * alone_s, enough)
        kept = np.exp(alone.mean - full.mean)
        late_s = np.minimum(self.queue_s, self.repair_s - self.full_s)
        steady_s = late_s * full.reached + (full.passed - kept * alone.passed) / self.per_s
        # Until T: integrals over r A, up to r B without nodes that come back, beyond it with them.
        before = self.per_s * self.queue_s * alone.reached_sum
        after = self.per_s * self.repair_s * (full.reached_sum - alone.reached_sum)
        after = after - (full.moment_sum - alone.moment_sum) + (full.passed_sum - alone.passed_sum)
        after = after - (1.0 - kept) * alone.passed
        first_s = self._mean_until_full(before + after) / self.per_s
        none_left = self._mean(self._mean_until_full(full.reached_sum), full.reached)
        mean_s = self._mean(first_s, steady_s) - none_left * self.faster_s
        if not np.any(self.only_repairs):
            return mean_s
        # Without spares the first failure waits as long as any.
        transient = np.where(enough > 0.0, self.transient, 0.0)
        waiting_s = transient * first_s + (1.0 - transient) * self._wait_for_repairs_s(enough)
        return np.where(self.only_repairs, waiting_s, mean_s)

    def _wait_for_repairs_s(self, enough: Floats) -> Floats:
        """Returns the mean steady-state wait if only repairs end it (Erlang's loss system), `(n,)`."""
        mean = self.per_working_s * self.repair_s
        all_lost = np.exp(xlogy(enough + 1.0, mean) - mean - gammaln(enough + 2.0))
        some_left = pdtr(enough, mean)
        # Where hardly ever a node is left both have no digits; nodes then come back one after another.
        is_known = some_left > _LEAST_PROBABILITY
        ratio = np.divide(all_lost, some_left, out=(mean - enough) / (enough + 1.0), where=is_known)
        return np.asarray(ratio / self.per_working_s)

    def _mean(self, first: Floats, steady: Floats) -> Floats:
        """Returns the mean over the run of a figure with one mean value until A is longest, and another from then on."""
        return self.transient * first + (1.0 - self.transient) * steady

    def _mean_until_full(self, integral: Floats) -> Floats:
        """Returns an integral over r A divided by the length of its range."""
        end = self.per_s * self.full_s
        return np.divide(integral, end, out=np.zeros(len(end)), where=end > 0.0)


@dataclass(frozen=True, kw_only=True)
class _Tail(Table):
    """Probabilities that a Poisson number Y reaches c, and their integrals over its mean from 0 on, `(n,)`."""

    mean: Floats
    reached: Floats
    """P(Y >= c)."""
    passed: Floats
    """P(Y > c)."""
    reached_sum: Floats
    """Integral of P(Y >= c): E[max(0, Y - c)]."""
    passed_sum: Floats
    """Integral of P(Y > c)."""
    moment_sum: Floats
    """Integral of P(Y >= c) times the mean."""

    @classmethod
    def of(cls, mean: Floats, enough: Floats) -> Self:
        """Returns the tail beyond c = `enough`, a whole number."""
        beyond = pdtrc(enough + 1.0, mean)
        at_enough = np.exp(xlogy(enough, mean) - mean - gammaln(enough + 1.0))
        # Summed from the end on, so that no digits of small tails are lost.
        passed = beyond + at_enough * mean / (enough + 1.0)
        reached = passed + at_enough
        return cls(
            mean=mean,
            reached=reached,
            passed=passed,
            reached_sum=mean * reached - enough * passed,
            passed_sum=mean * passed - (enough + 1.0) * beyond,
            moment_sum=0.5 * (mean**2 * reached - enough * (enough + 1.0) * beyond),
        )
