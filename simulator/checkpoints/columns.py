"""What do checkpoint schemes have in common? The columns that several of them fill in the same way.

A scheme is a function from `Saves` to `Costs`: columns of `simulator.checkpoints.schemes.CheckpointTable`, each an array `(n,)`
or one number for all designs. Columns that a scheme omits take their values from `simulator.checkpoints.schemes.DEFAULTS`.
"""

from __future__ import annotations

import numpy as np

from simulator.checkpoints.sizes import Saves, SaveSizes
from simulator.record import Choice
from simulator.table import Floats, Integers

Costs = dict[str, Floats | Integers | float]

_ROUNDING = 1e-9
"""Relative rounding error by which a whole number may come out too large."""


class IntervalReason(Choice):
    """Why saves cannot follow each other more closely."""

    NEVER = "never"
    """Nothing is saved."""
    STEP_TIME = "step_time"
    """The state changes once per step."""
    COMMIT_TIME = "commit_time"
    """A save must be written before its slot is free: commit time over slots."""
    WINDOW = "window"
    """The steps over which one save is spread."""


def blocking(saves: Saves, sizes: SaveSizes) -> Costs:
    """Training stops for copy and write; the file system survives every failure."""
    return {
        **_on_file_system(saves, sizes),
        **_shortest_interval(saves, 0.0),
        "stall_s": saves.options.fixed_stall_s + sizes.copy_s + sizes.store_s,
        "host_memory_bytes": sizes.node_bytes,
    }


def in_background(saves: Saves, sizes: SaveSizes) -> Costs:
    """Training stops only for the copy to host memory, written on in the background; `committed` or `two_levels` end it."""
    return {
        **_on_file_system(saves, sizes),
        "stall_s": saves.options.fixed_stall_s + sizes.copy_s,
        "tax_fraction": saves.options.write_tax_fraction,
        "host_memory_bytes": (1.0 + saves.options.slots) * sizes.node_bytes,
    }


def _on_file_system(saves: Saves, sizes: SaveSizes) -> Costs:
    return {
        **survives(process=1.0, node=1.0, domain=1.0),
        "fast_load_s": sizes.read_s,
        "durable_load_s": sizes.read_s,
        "bytes_per_save": sizes.total_bytes,
        "network_bytes_per_save": sizes.total_bytes,
        "storage_bytes": saves.options.kept_saves * sizes.total_bytes,
        "save_energy_j": saves.options.transfer_j_per_byte * sizes.total_bytes,
    }


def committed(saves: Saves, commit_s: Floats, *, slots: int, window_s: Floats | float = 0.0) -> Costs:
    """Saves have one destination, which they reach `commit_s` after the stall; until then they occupy a slot."""
    return {
        **_shortest_interval(saves, commit_s / slots, window_s),
        "commit_s": commit_s,
        "durable_commit_s": commit_s,
        "slots": slots,
    }


def two_levels(
    saves: Saves,
    *,
    commit_s: Floats,
    durable_commit_s: Floats,
    slots: int,
    moved_bytes: float | Floats,
    durable_bytes: Floats,
) -> Costs:
    """Saves commit to a fast level; one in `persist_every` continues to the file system, or fewer if that writes for longer.

    Args:
        saves: the designs.
        commit_s: from the end of the stall to the commit on the fast level, `(n,)`.
        durable_commit_s: from the end of the stall to the commit on the file system, `(n,)`.
        slots: saves under way at once.
        moved_bytes: additional bytes that a save sends over the network.
        durable_bytes: bytes written to the file system, `(n,)`.
    """
    network_bytes = moved_bytes + durable_bytes / saves.options.persist_every
    return {
        **_shortest_interval(saves, commit_s / slots),
        "commit_s": commit_s,
        "durable_commit_s": durable_commit_s,
        "durable_every": saves.options.persist_every,
        "slots": slots,
        "network_bytes_per_save": network_bytes,
        "save_energy_j": saves.options.transfer_j_per_byte * network_bytes,
    }


def _shortest_interval(saves: Saves, slot_s: Floats | float, window_s: Floats | float = 0.0) -> Costs:
    """max(step, time until a slot is free, steps of a window), and which of them it is."""
    step_s = saves.designs.step_time_s
    others_s = np.maximum(slot_s, window_s)
    others = np.where(others_s > window_s, IntervalReason.COMMIT_TIME.code, IntervalReason.WINDOW.code)
    return {
        "minimum_interval_s": np.maximum(step_s, others_s),
        "why_minimum_interval": np.where(others_s > step_s, others, IntervalReason.STEP_TIME.code),
    }


def survives(*, process: Floats | float, node: Floats | float = 0.0, domain: Floats | float = 0.0) -> Costs:
    """Probabilities that the fast level survives each kind of failure."""
    return {"process_survival": process, "node_survival": node, "domain_survival": domain}


def whole(values: Floats) -> Integers:
    """Rounds up to whole numbers of at least 1; unknown values become 1."""
    counts = np.ceil(np.maximum(values, 1.0) * (1.0 - _ROUNDING))
    return np.where(np.isfinite(values), counts, 1.0).astype(np.int64)
