"""What does a save to the file system cost? The schemes whose saves all end there, and the one that never saves."""

from __future__ import annotations

import numpy as np

from simulator.checkpoints.columns import Costs, blocking, committed, in_background, survives
from simulator.checkpoints.sizes import Saves


def no_saves(_saves: Saves) -> Costs:
    """Every failure restarts the run from the beginning."""
    return {}


def sync(saves: Saves) -> Costs:
    """One writer per replica: the ranks of the first replica write everything while training stands still."""
    return blocking(saves, saves.sizes_of_one_writer())


def sync_sharded(saves: Saves) -> Costs:
    """Every rank writes its shard while training stands still."""
    return blocking(saves, saves.sizes())


def asynchronous(saves: Saves) -> Costs:
    """Written in the background; after a process fault, host memory still holds the state (DLRover)."""
    sizes = saves.sizes()
    return {
        **in_background(saves, sizes),
        **committed(saves, sizes.store_s, slots=saves.options.slots),
        **survives(process=1.0),
        "fast_load_s": sizes.copy_s,
    }


def lazy(saves: Saves) -> Costs:
    """The copy also hides behind forward and backward of the next step (CheckFreq, DataStates-LLM).

    s = max(0, s_fixed + T_copy - T_overlap). The hidden part still delays the commit.
    """
    sizes, options = saves.sizes(), saves.options
    copy_s = options.fixed_stall_s + sizes.copy_s
    stall_s = np.maximum(0.0, copy_s - saves.designs.overlap_s)
    return {
        **in_background(saves, sizes),
        **committed(saves, copy_s - stall_s + sizes.store_s, slots=options.slots),
        "stall_s": stall_s,
        "host_memory_bytes": options.slots * sizes.node_bytes,
    }


def differential(saves: Saves) -> Costs:
    """A full save, then only changes; columns are means over saves, loads over failures (Check-N-Run, LowDiff).

    With a full save every k and changes of share q, a save has (1 + (k - 1) q)/k of the bytes on average, and a failure must
    replay (k - 1)/2 changes.
    """
    sizes, options = saves.sizes(), saves.options
    every, fraction = options.base_every, options.delta_fraction
    share = (1.0 + (every - 1) * fraction) / every
    replayed = (every - 1) / 2.0 * fraction
    load_s = (1.0 + replayed) * sizes.read_s + replayed * sizes.node_bytes / options.replay_bytes_per_s
    saved_bytes = share * sizes.total_bytes
    return {
        **in_background(saves, sizes),
        **committed(saves, share * sizes.store_s, slots=options.slots),
        "stall_s": options.fixed_stall_s + share * sizes.copy_s,
        "fast_load_s": load_s,
        "durable_load_s": load_s,
        "bytes_per_save": saved_bytes,
        "network_bytes_per_save": saved_bytes,
        # The older full saves with all their changes, and the one under way.
        "storage_bytes": (options.kept_saves - 1) * every * saved_bytes + sizes.total_bytes,
        "save_energy_j": options.transfer_j_per_byte * saved_bytes,
    }
