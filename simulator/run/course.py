"""What are a run's expected up-time and its recoveries? Each depends on the other.

The number of nodes in repair depends on the up-time, including stalls and repeated work. What an interruption goes back to
depends on waits for nodes only if the fast level of saves may be lost during such a wait (`fails_during_restart`). In that case
the up-time is first computed with a spare for every node, and then with the waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.run.columns import Runs
from simulator.run.levels import UpTime
from simulator.run.shares import Shares
from simulator.run.spares import ExpectedWaits, expected_waits
from simulator.run.way_back import WayBack


@dataclass(frozen=True, kw_only=True)
class Course:
    """Up-times, ways back and waits for nodes of n runs."""

    up_time: UpTime
    way_back: WayBack
    waits: ExpectedWaits

    @classmethod
    def of(cls, runs: Runs) -> Self:
        """Returns the course of all runs."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            spared = WayBack.with_spares(runs)
            up_time = UpTime.of(runs, Shares.of(runs, spared))
            waits = expected_waits(runs, up_time.total_s)
            way_back = spared.waiting_for_nodes(runs, waits.mean.total_s)
            if np.any(runs.fails_during_restart == 1.0):
                up_time = UpTime.of(runs, Shares.of(runs, way_back))
        return cls(up_time=up_time, way_back=way_back, waits=waits)
