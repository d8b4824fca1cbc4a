"""How long is a run up, and how long are its ways back, by expectation? Each depends on the other.

How many nodes are in repair depends on how long the run is up, stalls and work that is done again included. What an
interruption goes back to depends on waits for nodes only where the fast level of saves may be lost during one
(`fails_during_restart`); there the up-time is that with a spare for every node first, and then that with the waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.run.columns import Runs
from simulator.run.levels import UpTime
from simulator.run.shares import Shares
from simulator.run.way_back import WayBack


@dataclass(frozen=True, kw_only=True)
class Course:
    """Up-times and ways back of n runs."""

    up_time: UpTime
    way_back: WayBack

    @classmethod
    def of(cls, runs: Runs) -> Self:
        """Returns the course of all runs."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            spared = WayBack.with_spares(runs)
            up_time = UpTime.of(runs, Shares.of(runs, spared))
            way_back = spared.waiting_for_nodes(runs, up_time.total_s)
            if np.any(runs.fails_during_restart == 1.0):
                up_time = UpTime.of(runs, Shares.of(runs, way_back))
        return cls(up_time=up_time, way_back=way_back)
