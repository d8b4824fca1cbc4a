"""What does a save near the accelerators cost? To node-local drives or peers' memory, with the file system behind them."""

from __future__ import annotations

import numpy as np

from simulator.checkpoints.columns import Costs, in_background, survives, two_levels
from simulator.checkpoints.sizes import Saves, SaveSizes
from simulator.checkpoints.survival import peer_survival
from simulator.table import Floats


def local_nvme(saves: Saves) -> Costs:
    """Nodes write to their own drives, which are lost with the node."""
    sizes, options = saves.sizes(), saves.options
    commit_s = sizes.node_bytes / options.nvme_write_bytes_per_s
    return {
        **in_background(saves, sizes),
        **two_levels(
            saves,
            commit_s=commit_s,
            durable_commit_s=commit_s + sizes.store_s,
            slots=options.slots,
            moved_bytes=0.0,
            durable_bytes=sizes.total_bytes,
        ),
        **survives(process=1.0),
        "fast_load_s": sizes.node_bytes / options.nvme_read_bytes_per_s,
    }


def in_memory_peer(saves: Saves) -> Costs:
    """Host memory holds the last save and the one under way, each including the peers' copies (Gemini).

    P = max(t_step, T_copy + T_net / idle share); s = s_peer + max(0, T_net - idle time of a step), T_net = (m - 1) B_g / BW.
    """
    sizes, options, designs = saves.sizes(), saves.options, saves.designs
    send_s, idle = _send_s(saves, sizes), options.idle_network_fraction
    moved_s = sizes.copy_s + send_s / idle
    commit_s = np.maximum(designs.step_time_s, moved_s)
    durable_commit_s = np.maximum(commit_s, sizes.copy_s + sizes.store_s)
    return {
        **in_background(saves, sizes),
        **_with_peers(saves, sizes, commit_s, durable_commit_s, slots=1),
        "stall_s": options.peer_stall_s + np.maximum(0.0, send_s - idle * designs.step_time_s),
        # Training is slower while bytes move, possibly only for a small part of the step until the next state.
        "tax_fraction": options.write_tax_fraction * moved_s / commit_s,
        "host_memory_bytes": 2.0 * options.peer_copies * sizes.node_bytes,
        "fast_load_s": sizes.gpu_bytes / designs.network_bytes_per_s,
    }


def tiered(saves: Saves) -> Costs:
    """Own drives, drives of peers, file system: recovery uses the fastest that survives (Orbax, HyperPod)."""
    sizes, options = saves.sizes(), saves.options
    write_s = options.peer_copies * sizes.node_bytes / options.nvme_write_bytes_per_s
    commit_s = np.maximum(write_s, _send_s(saves, sizes) / options.idle_network_fraction)
    read_s = sizes.node_bytes / options.nvme_read_bytes_per_s
    return {
        **in_background(saves, sizes),
        **_with_peers(saves, sizes, commit_s, commit_s + sizes.store_s, slots=options.slots),
        "fast_load_s": np.maximum(read_s, sizes.gpu_bytes / saves.designs.network_bytes_per_s),
    }


def _send_s(saves: Saves, sizes: SaveSizes) -> Floats:
    """Time to send the copies of one rank's shard over the network that it has to itself."""
    return (saves.options.peer_copies - 1) * sizes.gpu_bytes / saves.designs.network_bytes_per_s


def _with_peers(
    saves: Saves, sizes: SaveSizes, commit_s: Floats, durable_commit_s: Floats, *, slots: int
) -> Costs:
    """Copies on other nodes survive the loss of a node, and that of a failure domain depending on placement."""
    options = saves.options
    node, domain = (
        peer_survival(
            num_nodes=saves.designs.num_nodes,
            num_copies=options.peer_copies,
            num_lost=num_lost,
            placement=options.peer_placement,
        )
        for num_lost in (1, saves.reliability.nodes_per_domain)
    )
    return {
        **two_levels(
            saves,
            commit_s=commit_s,
            durable_commit_s=durable_commit_s,
            slots=slots,
            moved_bytes=(options.peer_copies - 1) * sizes.total_bytes,
            durable_bytes=sizes.total_bytes,
        ),
        **survives(process=1.0, node=node, domain=domain),
    }
