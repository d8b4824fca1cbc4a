"""What does the event loop read, remember and fill? Its records: a design, a run being played, and its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import gamma

from simulator.run.columns import NUM_KINDS, Interruption, Runs

FloatArray = npt.NDArray[np.float64]
Records = npt.NDArray[np.void]
Cell = tuple[int, int]


def record_type(protocol: type) -> np.dtype[np.void]:
    """Returns a class of numbers as one record; a sequence in it has a number for each `Interruption`."""
    types = {"int": np.int64, "bool": np.bool_, "float": np.float64}
    return np.dtype(
        [
            (name, types.get(kind, np.float64), (NUM_KINDS,) if "Sequence" in kind else ())
            for name, kind in protocol.__annotations__.items()
        ]
    )


class RunDesign(Protocol):
    """The numbers of one run, as in `simulator.run.columns.RunColumns`; a record to the compiler."""

    mtbf_s: float
    interval_s: float
    stall_s: float
    commit_s: float
    tax_fraction: float
    slots: int
    policy: int
    up_scale_s: float
    """Scale of the Weibull up-times."""
    restart_scale_s: float
    """Scale of the Weibull time until a restart is interrupted; inf: it never is."""
    inverse_shape: float
    """1 over the Weibull shape."""
    restart_log_deviation: float
    kind_share: Sequence[float]
    kind_restart_s: Sequence[float]
    kind_nodes: Sequence[float]
    kind_fast_survival: Sequence[float]
    kind_goes_on: Sequence[float]
    """1 if a live replica that survives a kind of interruption continues without the nodes that it takes, otherwise 0."""
    has_one_level: bool
    has_live_replicas: bool
    durable_every: float
    durable_commit_s: float
    fast_load_s: float
    durable_load_s: float
    live_lag_s: float
    reduced_capacity_s: float
    num_spares: float
    repair_s: float
    spare_wait_s: float
    queue_wait_s: float
    max_loans: float


DESIGN = record_type(RunDesign)
"""`RunDesign` as one record."""


def designs_of(runs: Runs) -> Records:
    """Returns the runs as records `(n,)`; unknown numbers become 1, as runs with them are not played."""
    scale_s = runs.mtbf_s / gamma(1.0 + 1.0 / runs.weibull_shape)
    unplanned_share = 1.0 - runs.kind_share[:, Interruption.PLANNED]
    derived = {
        "up_scale_s": scale_s,
        "restart_scale_s": np.divide(
            scale_s,
            unplanned_share,
            out=np.full(len(runs), np.inf),
            where=(runs.fails_during_restart == 1.0) & (unplanned_share > 0.0),
        ),
        "inverse_shape": 1.0 / runs.weibull_shape,
        "has_one_level": runs.has_one_level,
        "has_live_replicas": runs.has_live_replicas,
    }
    designs = np.zeros(len(runs), dtype=DESIGN)
    for name in DESIGN.names or ():
        column = derived[name] if name in derived else getattr(runs, name)
        designs[name] = np.nan_to_num(column, nan=1.0, posinf=np.inf)
    return designs


class RunState(Protocol):
    """One run while it is played; a record for the compiler, with these fields for the reader."""

    wall_s: float
    """Since the start of the run, up to the last interruption or restart."""
    now_s: float
    """Since the last restart."""
    work_s: float
    """Work to do."""
    done_s: float
    """Work done, and not lost since."""
    due_s: float
    """Work at which the next save is due."""
    restored_s: float
    """Work that the run had when it last came back."""
    num_saved: float
    """Saves made so far, without those rolled back."""
    fast_s: float
    """Work of the newest save on the fast level, and `num_saved` after it."""
    num_saved_fast: float
    durable_s: float
    """Work of the newest save on the durable level, and `num_saved` after it."""
    num_saved_durable: float
    writing_s: float
    """Work of the save on its way to the durable level, and `num_saved` after it."""
    num_saved_writing: float
    written_at_s: float
    """When it becomes durable; inf: none is on its way."""
    oldest: int
    """Position of the oldest uncommitted save in the ring of saves."""
    num_uncommitted: int
    mark_now_s: float
    """`now_s` and the following fields at the start of a save with no other under way; below 0: not yet set."""
    mark_done_s: float
    mark_stall_s: float
    mark_tax_s: float
    mark_wait_s: float
    mark_num_saved: float
    is_live: bool
    """Whether the run came back from a live replica: its capacity is missing, and the save interval continues."""
    spares_left: float
    """Standby nodes; below 0: nodes on loan."""
    num_awaited: float
    """Nodes missing in this recovery until the same number of repaired ones return."""
    oldest_repair: int
    """Position of the node that has been in repair longest in the ring of nodes."""
    num_in_repair: int
    checkpoint_stall_s: float
    checkpoint_tax_s: float
    backpressure_wait_s: float
    lost_work_s: float
    reduced_capacity_s: float
    restart_s: float
    replacement_wait_s: float
    checkpoint_restore_s: float
    num_failures: float
    num_planned: float


STATE = record_type(RunState)
"""`RunState` as one record."""
SAVE = np.dtype([("commit_at_s", np.float64), ("done_s", np.float64), ("num_saved", np.float64)])
"""A save under way."""


class RunResults(NamedTuple):
    """The arrays of `simulator.run.events.RunReplications` except `productive_s`, `(n, R)`, to be filled."""

    wall_s: FloatArray
    checkpoint_stall_s: FloatArray
    checkpoint_tax_s: FloatArray
    backpressure_wait_s: FloatArray
    lost_work_s: FloatArray
    reduced_capacity_s: FloatArray
    restart_s: FloatArray
    replacement_wait_s: FloatArray
    checkpoint_restore_s: FloatArray
    num_failures: FloatArray
    num_planned: FloatArray
