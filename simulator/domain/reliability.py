"""How often do failures occur, how long is the recovery, and how much slower than ideal is the fleet?"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from simulator.domain.straggler_causes import StragglerModel, StragglerPrior, Stragglers
from simulator.record import Record
from simulator.table import Floats, Integers
from simulator.units import DAY, HOUR

MOST_S = 1e9
"""Thirty years: a longer part of a recovery is a mistaken unit."""
MOST_FAILURES = 10_000
"""In a thousand node-days: a failure of every node each 2.4 hours."""
LEAST_SHAPE, MOST_SHAPE = 0.3, 5
"""Weibull shapes of up-times that can be played."""
GPUS_PER_COUNTED_NODE = 8.0
"""Accelerators per node in published failure rates."""
GPU_HOURS_IN_1000_NODE_DAYS = GPUS_PER_COUNTED_NODE * 1000.0 * DAY / HOUR
LEAST_GPU_HOURS_PER_FAILURE = GPU_HOURS_IN_1000_NODE_DAYS / MOST_FAILURES
"""Accelerator-hours between two failures, where there are most."""


class Restart(Record):
    """The recovery from a failure to the next useful step, without loading the checkpoint.

    Defaults are the typical column of published ranges: detection by heartbeats 60-300 s, diagnosis under 600 s
    (MegaScale, arXiv 2402.15627), a hot spare within a minute, communicator set-up 1-3 min, warm-up 1-3 min.
    """

    detect_s: float = Field(default=60.0, ge=0, le=MOST_S)
    """From the fault to its detection."""
    diagnose_s: float = Field(default=60.0, ge=0, le=MOST_S)
    """Finding and isolating the faulty node."""
    replace_from_spare_s: float = Field(default=60.0, ge=0, le=MOST_S)
    """Bringing in a spare node."""
    replace_from_queue_s: float | None = Field(default=None, ge=0, le=MOST_S)
    """Waiting for a newly allocated node when no spare is left, unless one is repaired before; left out: two hours (TrainMover,
    arXiv 2412.12636: stop-and-restart without standby), as long as `max_nodes` of the offer leaves any."""
    initialize_s: float = Field(default=120.0, ge=0, le=MOST_S)
    """Processes, containers and communicators."""
    warm_up_s: float = Field(default=60.0, ge=0, le=MOST_S)
    """Compilation and the first slow steps."""
    planned_stop_s: float = Field(default=600.0, ge=0, le=MOST_S)
    """Time to take nodes out for planned maintenance and bring others in, or to wait in the queue (`queue_limit_days`), before
    the ordinary initialization; estimate for maintenance."""
    log_deviation: float = Field(default=0.5, ge=0, le=2)
    """Spread of each recovery around its mean: standard deviation of its logarithm. It changes the mean of a run only if
    `fails_during_restart` restarts long ones; estimate."""


class Reliability(Record):
    """Failures, restarts and stragglers of a fleet."""

    failures_per_1000_node_days: float = Field(gt=0, le=MOST_FAILURES)
    """Failures that stop the job, per thousand node-days of nodes with eight accelerators, whatever the size of the job's
    nodes: 8,000 x failures / (accelerators x days) from your own logs; 1e-6 for a run in which nothing fails."""
    process_fault_fraction: float = Field(default=0.5, ge=0, le=1)
    """Share of failures that leave the node's memory intact (DLRover reports about 75 %)."""
    weibull_shape: float = Field(default=1.0, ge=LEAST_SHAPE, le=MOST_SHAPE)
    """Shape of the up-times in replays, including those of `capplan goodput --job`: 1 exponential, below 1 failures in
    clusters; the mean stays the same. Expected values assume 1. Shapes from 0.5 to 1.5 change the goodput by a point on average
    and up to 4 with one level of saves, by up to 12 points where spares run out now and then, and by up to 20 with saves on two
    levels."""
    fails_during_restart: bool = False
    """Whether failures may also occur during recovery, which then begins anew and never becomes shorter."""
    nodes_per_domain: int = Field(default=4, ge=1, le=4096)
    """Nodes (of their actual size) that share a rack, its power or a switch, and fail together with it; estimate: servers of
    one rack."""
    domain_failures_per_1000_domain_days: float = Field(default=0.0, ge=0, le=10_000)
    """Failures of whole domains. No published rate is usable: 0 unless you know yours."""
    planned_stops_per_1000_node_days: float = Field(default=0.0, ge=0, le=10_000)
    """Announced interruptions, before which the job saves (Llama 3 405B: 47 in 54 days on 2,048 nodes, 0.42)."""
    queue_limit_days: float | None = Field(default=None, gt=0, le=10_000)
    """Days of training after which the queue of a cluster ends a job, whatever its size: the job saves before, and its next one
    waits `restart.planned_stop_s` for its turn; left out: jobs may last as long as the run."""
    repair_days: float = Field(default=3.0, gt=0, le=10_000)
    """Days until a failed node is back in the spare pool."""
    restart: Restart = Restart()
    """The recovery after a failure."""
    straggler_log_mean: float | None = Field(default=-2.5, ge=-20, le=2)
    """Mean of ln(S - 1), with S the slow-down of a job relative to the same job without stragglers; null: S = 1. Used while
    `stragglers` names no causes. With a deviation of 1 it reproduces five statistics of 3,079 jobs (arXiv 2505.05713)."""
    straggler_log_deviation: float = Field(default=1.0, ge=0, le=3)
    """Standard deviation of ln(S - 1)."""
    stragglers: Stragglers | None = None
    """Causes of stragglers, whose cost follows from the layout; they replace the distribution over jobs."""

    def failures_per_s(self, num_gpus: Integers) -> Floats:
        """Returns the failures of the nodes of a job per second of up-time, `(n,)`."""
        per_1000_days = num_gpus / GPUS_PER_COUNTED_NODE * self.failures_per_1000_node_days
        return np.asarray(per_1000_days / (1000.0 * DAY))

    @property
    def queue_ends_per_1000_days(self) -> float:
        """How often the queue ends the job per thousand days of up-time."""
        return 0.0 if self.queue_limit_days is None else 1000.0 / self.queue_limit_days

    @property
    def straggler_model(self) -> StragglerModel | None:
        """The causes if they are known, otherwise the distribution over jobs; none if nothing straggles."""
        if self.stragglers is not None:
            return self.stragglers
        if self.straggler_log_mean is None:
            return None
        return StragglerPrior(log_mean=self.straggler_log_mean, log_deviation=self.straggler_log_deviation)

    @property
    def straggler_slowdown(self) -> float:
        """Expected slow-down S >= 1 over jobs (mean of a shifted lognormal); 1 if causes replace the distribution."""
        model = self.straggler_model
        if not isinstance(model, StragglerPrior):
            return 1.0
        return 1.0 + math.exp(model.log_mean + model.log_deviation**2 / 2.0)


RELIABILITY_PRESETS: dict[str, Reliability] = {
    "mature": Reliability(failures_per_1000_node_days=2.34),
    "frontier": Reliability(failures_per_1000_node_days=3.79),
    "typical": Reliability(failures_per_1000_node_days=6.5),
    "young": Reliability(failures_per_1000_node_days=14.0),
    "harsh": Reliability(failures_per_1000_node_days=23.7),
}
"""Published fleets: RSC-2 and RSC-1 of Meta (mature, typical; arXiv 2410.21680), Llama 3 405B's 419 unexpected
interruptions in 54 days on 2,048 nodes (frontier; arXiv 2407.21783), OPT-175B's logbook (young; arXiv 2205.01068),
RSC-1 as measured at 1,024 GPUs (harsh)."""
