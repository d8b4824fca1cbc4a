"""How long does a run wait for other nodes, by expectation? The pool of spares as a queue with infinitely many servers.

Failed nodes are in repair for a fixed time T each and fail at a constant rate, so that the number in repair is
Poisson with mean a (M/G/inf), and each of them is back after a time that is uniform between 0 and T. With c
spares an interruption finds none left if X >= c. It then waits for the queue, Q, or for the first of X + 1 nodes
to come back and be brought in, S, whichever is shorter; with q = min(Q - S, T), as X + 1 moves the sum by one,

    E[wait] = S + T/a (P(Y > c; a) - exp(-a q/T) P(Y > c; a (1 - q/T))),      Y Poisson.

Waits make failures rarer, and rarer failures wait less: the mean wait is the one that leads to itself. Several
nodes that fail at once are one of a mean number of nodes. In steady state the mean wait is that of the event loop
within 1 % where as many nodes fail each time and restarts are short, within 15 % for mixtures. Where spares run
out and the up-time M is no longer than the way back, failures are no more independent of repairs: goodput comes
out within 9 % of the event loop's at half an hour of up-time, within a third at ten minutes, and up to three times
as large at one. At first all spares stand by, which is left out: a run as short as a few repairs waits less than this.
"""

from __future__ import annotations

import numpy as np
from scipy.special import pdtrc

from simulator.run.columns import FOREVER_S, Runs, over_kinds
from simulator.table import Booleans, Floats

_FEW = 1e-12
"""Fewer nodes in repair than this are as good as none, and divide no more."""
_SETTLED_FRACTION = 1e-3
"""Two passes are enough where the mean wait that leads to itself is this close to the second one's, as a share of the
time between interruptions. They are not where failures wait or not according to how many have waited."""
_NUM_HALVINGS = 30
"""Of the interval of mean waits: from hours to less than a millisecond."""


def expected_replacement_wait_s(runs: Runs) -> Floats:
    """Returns the mean wait after each kind of interruption, `(n, 4)`."""
    if not np.any(runs.kind_nodes):
        return np.zeros(runs.kind_nodes.shape)
    wait_s = spare_wait_s = np.where(runs.kind_nodes > 0.0, runs.spare_wait_s[:, None], 0.0)
    can_run_out = (runs.num_spares < FOREVER_S)[:, None] & (runs.kind_nodes * runs.kind_share > 0.0)
    if not np.any(can_run_out):
        return wait_s
    wait_s = spare_wait_s + _extra_wait_s(runs, _apart_s(runs, spare_wait_s), can_run_out)
    next_s = spare_wait_s + _extra_wait_s(runs, _apart_s(runs, wait_s), can_run_out)
    rows = np.flatnonzero(_is_unsettled(runs, spare_wait_s, wait_s, next_s))
    if len(rows):
        next_s[rows] = _settled_wait_s(runs.take(rows), spare_wait_s[rows], can_run_out[rows])
    return next_s


def _apart_s(runs: Runs, wait_s: Floats) -> Floats:
    """Returns the mean time between interruptions if they wait as given, `(n,)`."""
    load_s = np.maximum(runs.fast_load_s, runs.durable_load_s)
    back_s = over_kinds(runs.kind_share, runs.kind_restart_s) + load_s
    down_s = back_s + over_kinds(runs.kind_share, wait_s)
    return np.where(runs.fails_during_restart == 1.0, runs.mtbf_s, runs.mtbf_s + down_s)


def _is_unsettled(runs: Runs, first_s: Floats, second_s: Floats, third_s: Floats) -> Booleans:
    """Returns whether the third of three waits, each following from the one before, is far from settled, `(n,)`.

    Where the line through the two steps crosses is about where they lead.
    """
    first_mean_s, second_mean_s, third_mean_s = (
        over_kinds(runs.kind_share, wait_s) for wait_s in (first_s, second_s, third_s)
    )
    step_s, back_s = second_mean_s - first_mean_s, second_mean_s - third_mean_s
    share = np.divide(step_s, step_s + back_s, out=np.ones(len(runs)), where=step_s + back_s > 0.0)
    crossing_s = first_mean_s + share * step_s
    return np.abs(crossing_s - third_mean_s) > _SETTLED_FRACTION * _apart_s(runs, third_s)


def _settled_wait_s(runs: Runs, spare_wait_s: Floats, can_run_out: Booleans) -> Floats:
    """Returns the waits whose mean leads to itself, `(n, 4)`: the longer it is, the shorter is what it leads to."""
    low_s = spare_wait_s
    high_s = wait_s = spare_wait_s + _extra_wait_s(runs, _apart_s(runs, spare_wait_s), can_run_out)
    for _ in range(_NUM_HALVINGS):
        middle_s = 0.5 * (low_s + high_s)
        wait_s = spare_wait_s + _extra_wait_s(runs, _apart_s(runs, middle_s), can_run_out)
        is_low = over_kinds(runs.kind_share, wait_s) > over_kinds(runs.kind_share, middle_s)
        low_s = np.where(is_low[:, None], middle_s, low_s)
        high_s = np.where(is_low[:, None], high_s, middle_s)
    return wait_s


def _extra_wait_s(runs: Runs, apart_s: Floats, can_run_out: Booleans) -> Floats:
    """Returns the mean wait beyond that for a spare after each kind of interruption, `(n, 4)`."""
    per_interruption = over_kinds(runs.kind_share, runs.kind_nodes)
    squares = over_kinds(runs.kind_share, runs.kind_nodes**2)
    takes_any = per_interruption > 0.0
    at_once = np.divide(squares, per_interruption, out=np.ones(len(runs)), where=takes_any)
    at_once = np.maximum(1.0, at_once)
    # The run is longer than its work: at least by its ways back.
    away_s = np.minimum(runs.repair_s, runs.work_s * apart_s / runs.mtbf_s)
    in_repair = np.maximum(_FEW, per_interruption * away_s / apart_s / at_once)
    queue_s = runs.queue_wait_s - runs.spare_wait_s
    share = np.clip(np.divide(queue_s, away_s, out=np.zeros(len(runs)), where=away_s > 0.0), 0.0, 1.0)
    extra_s = np.zeros(can_run_out.shape)
    for kind in np.flatnonzero(can_run_out.any(axis=0)):
        enough = np.maximum(0.0, np.floor((runs.num_spares - runs.kind_nodes[:, kind]) / at_once) + 1.0)
        is_back = pdtrc(enough, in_repair)
        is_back_late = np.exp(-in_repair * share) * pdtrc(enough, in_repair * (1.0 - share))
        shorter_queue_s = np.minimum(queue_s, 0.0) * _none_left(enough, in_repair, queue_s < 0.0)
        waits_s = away_s / in_repair * (is_back - is_back_late) + shorter_queue_s
        extra_s[:, kind] = np.where(can_run_out[:, kind], waits_s, 0.0)
    return extra_s


def _none_left(enough: Floats, in_repair: Floats, matters: Booleans) -> Floats:
    """Returns P(X >= enough), `(n,)`; it is only worked out where it matters for any run."""
    if not np.any(matters):
        return np.zeros(len(enough))
    return np.asarray(np.where(enough > 0.0, pdtrc(enough - 1.0, in_repair), 1.0))
