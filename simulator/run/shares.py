"""What do interruptions go back to? Shares for the newest save, a durable one, or no loss at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.run.announced import LEAST_SHARE
from simulator.run.columns import FOREVER_S, Interruption, Runs
from simulator.run.way_back import WayBack
from simulator.table import Booleans, Floats, Table


@dataclass(frozen=True, kw_only=True)
class Shares(Table):
    """What interruptions go back to, as shares that sum to 1, `(n,)`."""

    fast: Floats
    """The newest committed save, or a live replica."""
    durable: Floats
    planned: Floats
    """Nothing lost: all work is kept."""

    @classmethod
    def of(cls, runs: Runs, way_back: WayBack) -> Self:
        """Returns the shares; where both levels hold the same saves, all of it is the fast level's."""
        is_same = has_same_saves(runs)
        fast, durable = way_back.fast_share, way_back.durable_share
        durable = np.where(is_same | (durable < LEAST_SHARE), 0.0, durable)
        planned = 1.0 - fast - way_back.durable_share
        fast = np.where(is_same, fast + way_back.durable_share, fast)
        return cls(fast=fast, durable=durable, planned=np.where(planned < LEAST_SHARE, 0.0, planned))


def has_same_saves(runs: Runs) -> Booleans:
    """Returns whether both levels hold the same saves, or there is nothing to go back to, `(n,)`."""
    return np.asarray(runs.has_one_level | (~runs.has_live_replicas & ~runs.has_saves))


def saved_ahead_share(runs: Runs) -> Floats:
    """Returns the share of interruptions that are announced and saved on the durable level, `(n,)`."""
    return runs.planned_share * (1.0 - runs.kind_fast_survival[:, Interruption.PLANNED])


def mean_between_s(runs: Runs, share: Floats) -> Floats:
    """Returns the mean up-time between the interruptions with this share, `(n,)`."""
    return np.minimum(FOREVER_S, runs.mtbf_s / np.maximum(share, 1e-300))
