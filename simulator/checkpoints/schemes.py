"""What does one save cost, and which failures does it survive? Each checkpoint scheme as the numbers that the run needs.

A scheme turns job, plan, node and storage into columns: the stall of training per save, the time from its end until the save
can be restored (commit), the slow-down meanwhile (tax), how many saves may be under way (slots), and what a failure goes back
to on two levels, a fast one and the file system. The schemes are functions, grouped by where saves go:

    simulator.checkpoints.files        none, sync, sync_sharded, async, async_lazy, differential
    simulator.checkpoints.levels       local_nvme, in_memory_peer, tiered
    simulator.checkpoints.gradients    gradient_assisted, gradient_replica
    simulator.checkpoints.replicas     just_in_time, replica_ft

Their settings and sources are in `simulator.domain.checkpointing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.checkpoints import files, gradients, levels, replicas
from simulator.checkpoints.columns import Costs, IntervalReason, whole
from simulator.checkpoints.sizes import Designs, Rows, Saves
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.table import Floats, Integers, Table

__all__ = ["NEVER_S", "CheckpointTable", "IntervalReason", "checkpoint_costs", "chosen_interval_s"]

NEVER_S = float("inf")

SCHEMES: Mapping[CheckpointScheme, Callable[[Saves], Costs]] = {
    CheckpointScheme.NONE: files.no_saves,
    CheckpointScheme.SYNC: files.sync,
    CheckpointScheme.SYNC_SHARDED: files.sync_sharded,
    CheckpointScheme.ASYNC: files.asynchronous,
    CheckpointScheme.ASYNC_LAZY: files.lazy,
    CheckpointScheme.LOCAL_NVME: levels.local_nvme,
    CheckpointScheme.IN_MEMORY_PEER: levels.in_memory_peer,
    CheckpointScheme.TIERED: levels.tiered,
    CheckpointScheme.GRADIENT_ASSISTED: gradients.gradient_assisted,
    CheckpointScheme.GRADIENT_REPLICA: gradients.gradient_replica,
    CheckpointScheme.DIFFERENTIAL: files.differential,
    CheckpointScheme.JUST_IN_TIME: replicas.just_in_time,
    CheckpointScheme.REPLICA_FT: replicas.replica_ft,
}

DEFAULTS: Mapping[str, float] = {
    "slots": 1,
    "minimum_interval_s": NEVER_S,
    "why_minimum_interval": IntervalReason.NEVER.code,
    "durable_every": 1,
    "live_lag_s": NEVER_S,
    "live_restart_s": float("nan"),
}
"""Values of columns that a scheme omits; all others are 0."""

_COUNTS = ("slots", "durable_every", "num_servers", "why_minimum_interval")


@dataclass(frozen=True, kw_only=True)
class CheckpointTable(Table):
    """The numbers of the chosen scheme, `(n,)`."""

    stall_s: Floats
    """Training stopped per save."""
    commit_s: Floats
    """From the end of the stall until the save can be restored from the fast level."""
    tax_fraction: Floats
    """Slow-down of training until the commit."""
    slots: Integers
    """Saves that may be under way at once."""
    minimum_interval_s: Floats
    """Shortest training time between saves; infinite where nothing is saved."""
    why_minimum_interval: Integers
    """Code of the `IntervalReason` for the shortest interval."""
    durable_every: Integers
    """One in this many saves continues to the file system, or fewer where that writes for longer; see `saves_per_durable`."""
    durable_commit_s: Floats
    """From the end of that save's stall until it can be restored from there."""
    fast_load_s: Floats
    """Load from the fast level; 0 where it is part of `live_restart_s`."""
    durable_load_s: Floats
    """Load from the file system, which is available after every failure."""
    process_survival: Floats
    """Probability that the fast level survives a process fault."""
    node_survival: Floats
    """Probability that the fast level survives the loss of one node."""
    domain_survival: Floats
    """Probability that the fast level survives the loss of a whole failure domain."""
    live_lag_s: Floats
    """Mean work that a failure loses if a live replica is left; infinite without one."""
    live_restart_s: Floats
    """Downtime in that case, without waiting for a node; NaN where the ordinary restart applies."""
    missing_capacity_s: Floats
    """Work lost in that case while the failed replica is missing."""
    host_memory_bytes: Floats
    """Host memory per node for saves under way."""
    bytes_per_save: Floats
    """Bytes of one save, without copies."""
    network_bytes_per_save: Floats
    """Mean bytes that one save sends to peers, servers and the file system, where that can keep up."""
    storage_bytes: Floats
    """Capacity used on the file system."""
    save_energy_j: Floats
    """Energy of one save beyond stall and tax: moving its bytes and replaying gradients, before cooling."""
    num_servers: Integers
    """Servers in addition to the training nodes."""
    extra_power_w: Floats
    """Constant power of these servers, before cooling."""

    def saves_per_durable(self, interval_s: Floats) -> Integers:
        """Returns the number of saves from one that continues to the file system to the next, `(n,)`; it writes one at a time.

        In runs (`simulator.run.levels.saves_per_durable`) the tax slows training down meanwhile, so that they may be fewer.

        Args:
            interval_s: training time between two saves, `(n,)`.
        """
        under_way_s, apart_s = self.stall_s + self.durable_commit_s, self.stall_s + interval_s
        return np.maximum(self.durable_every, whole(under_way_s / apart_s))


def checkpoint_costs(
    job: Job, plans: PlanTable, offers: OfferTable, step_time_s: Floats, optimizer_s: Floats
) -> CheckpointTable:
    """Returns the cost of a save for each design; `offers` holds one row per design."""
    parts = []
    for scheme, rows in _rows_by_scheme(plans.checkpoint_scheme):
        designs = Designs.of(job, plans, offers, step_time_s, optimizer_s, rows)
        parts.append((rows, SCHEMES[scheme](Saves.of(job, designs))))
    return CheckpointTable(**{name: _column(name, parts, len(plans)) for name in CheckpointTable.names()})


def _rows_by_scheme(schemes: Integers) -> Iterator[tuple[CheckpointScheme, Rows]]:
    """Yields every scheme in use with its rows."""
    counts = np.bincount(schemes)
    for code in np.flatnonzero(counts).tolist():
        is_all = counts[code] == len(schemes)
        yield CheckpointScheme.from_code(code), slice(None) if is_all else np.flatnonzero(schemes == code)


def _column(name: str, parts: list[tuple[Rows, Costs]], num_designs: int) -> NDArray[Any]:
    dtype = np.int64 if name in _COUNTS else np.float64
    column = np.full(num_designs, DEFAULTS.get(name, 0), dtype=dtype)
    for rows, costs in parts:
        if name in costs:
            column[rows] = costs[name]
    return column


def chosen_interval_s(job: Job, plans: PlanTable, iteration_s: Floats) -> Floats:
    """Returns the requested training time between saves, `(n,)`; NaN: the optimal one.

    The plan's own value takes precedence over the job's, in seconds or in steps; a step takes `iteration_s`, stragglers
    included.
    """
    options = job.checkpointing
    asked_s = np.full(len(plans), np.nan if options.interval_s is None else options.interval_s)
    if options.interval_steps is not None:
        asked_s = options.interval_steps * iteration_s
    return np.where(np.isnan(plans.checkpoint_interval_s), asked_s, plans.checkpoint_interval_s)
