"""What changes if failures come early or late where live replicas continue? The work of an up-time that is kept.

In an up-time U the capacity is missing for r at first if the previous one was ended by a live replica's takeover (a share f),
and an interruption that a replica survives undoes the lag l. With g the work per second of a run without failures and m(x) =
E[min(U, x)], an up-time does the work

    w = g (M - f m(r) - f (f (m(r + l/g) - m(r)) + (1 - f) m(l/g)))

Neither postpones a save. Interruptions after which the durable level begins anew, a share e, end a geometric number of such
up-times, with mean work w/e. Their sum is approximated by a Weibull law with its variance. Announced interruptions among these
are saved. After the others, a share d of all, the run keeps k tau for every durable save written by then; the first is written
at work k tau + g D. With S the survival function of the sum, the kept work is

    (e - d) w/e + d k tau sum_{j >= 1} S(j k tau + g D)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.run import renewal
from simulator.run.columns import FOREVER_S, Runs
from simulator.run.levels import mean_lag_s, saves_per_durable
from simulator.run.shares import Shares, saved_ahead_share
from simulator.run.up_time_law import committed_s, mean_within_s, shape_of_sum
from simulator.table import Floats


def kept_by_replicas_s(runs: Runs, shares: Shares) -> Floats:
    """Returns the work per up-time of a long run with live replicas that no interruption undoes, `(n,)`."""
    cycle = renewal.Cycle.of(replace(runs, mtbf_s=np.full(len(runs), FOREVER_S)))
    work_s = _work_s(runs, shares, cycle)
    saved = np.minimum(saved_ahead_share(runs), shares.planned)
    ends = shares.durable + saved
    share = np.where(ends > 0.0, ends, 1.0)
    apart_s = saves_per_durable(runs, cycle.length_s) * cycle.gain_s
    sums = replace(
        runs,
        mtbf_s=work_s / share,
        weibull_shape=shape_of_sum(runs.weibull_shape, share),
        interval_s=runs.durable_every * cycle.gain_s,
    )
    first_s = sums.interval_s + runs.durable_commit_s * cycle.gain_s / cycle.length_s
    durable_s = committed_s(sums, renewal.Cycle.regular(sums, apart_s), first_s)
    return np.where(ends > 0.0, saved * sums.mtbf_s + shares.durable * durable_s, work_s)


def _work_s(runs: Runs, shares: Shares, cycle: renewal.Cycle) -> Floats:
    """Returns w, `(n,)`."""
    speed = cycle.gain_s / cycle.length_s
    lag_s = mean_lag_s(runs, shares, speed) / speed
    missing_s = mean_within_s(runs, runs.reduced_capacity_s)
    behind_s = mean_within_s(runs, runs.reduced_capacity_s + lag_s) - missing_s
    lost_s = shares.fast * behind_s + (1.0 - shares.fast) * mean_within_s(runs, lag_s)
    return speed * (runs.mtbf_s - shares.fast * (missing_s + lost_s))
