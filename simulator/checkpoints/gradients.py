"""What does a save cost that gradients keep up to date? On the nodes themselves, or on dedicated servers."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np

from simulator.checkpoints.columns import Costs, committed, in_background, survives, two_levels, whole
from simulator.checkpoints.sizes import Saves
from simulator.domain.checkpointing import GradientVariant
from simulator.table import Floats, Integers, total


def gradient_assisted(saves: Saves) -> Costs:
    """The copy is spread over K steps, and gradients bring its earlier parts up to date with the last of them (GoCkpt).

    P = T_store + (K - 1)/2 passes of the optimizer over the state in host memory; the next save waits for it.
    """
    sizes, options, designs = saves.sizes(), saves.options, saves.designs
    replay_s = (options.window_steps - 1) / 2.0 * sizes.node_bytes / options.replay_bytes_per_s
    commit_s = sizes.store_s + replay_s
    share = options.gradient_bytes / saves.bytes_per_parameter
    moved_j = options.transfer_j_per_byte * sizes.total_bytes
    return {
        **in_background(saves, sizes),
        **committed(saves, commit_s, slots=1, window_s=options.window_steps * designs.step_time_s),
        "stall_s": options.fixed_stall_s + _exposed_s(saves, sizes.copy_s),
        "host_memory_bytes": (2.0 + share) * sizes.node_bytes,
        "save_energy_j": moved_j + replay_s * designs.host_power_w * designs.num_nodes,
    }


def _exposed_s(saves: Saves, copy_s: Floats) -> Floats:
    """Exposed time of a gradient-assisted save (GoCkpt, arXiv 2511.07035).

    s = max(0, T_S - K T_ovl) + T_G (K - 1)/2, or overlapped
    s = max(0, T_S - K T_ovl) + sum over i = 1..K-1 of max(0, i/K T_G - (t_update + t_forward)),

    with T_S, T_G the copy times of the whole state and of all gradients.
    """
    options, designs = saves.options, saves.designs
    window, overlap_s = options.window_steps, designs.overlap_s
    gradient_s = copy_s * (options.gradient_bytes / saves.bytes_per_parameter)
    late_s = np.maximum(0.0, copy_s - window * overlap_s)
    if options.gradient_variant is GradientVariant.BASE:
        return np.asarray(late_s + gradient_s * ((window - 1) / 2.0))
    hidden_s = designs.optimizer_s + designs.forward_share * overlap_s
    exposed = (np.maximum(0.0, i / window * gradient_s - hidden_s) for i in range(1, window))
    return total(chain([late_s], exposed))


def gradient_replica(saves: Saves) -> Costs:
    """Servers receive gradients mirrored by the switches and replay every step (FlowCheck, Checkmate).

    Training waits only if a fixed number of servers takes longer for a step than the step itself.
    """
    sizes, options, designs = saves.sizes(), saves.options, saves.designs
    servers, late_s = _servers(saves)
    commit_s = designs.step_time_s * (1.0 + options.server_lag_steps)
    node_rate = saves.storage.write_bytes_per_s_per_node
    write_bytes_per_s = np.minimum(servers * node_rate, saves.storage.write_bytes_per_s)
    load_s = sizes.total_bytes / (servers * options.server_network_bytes_per_s)
    return {
        **two_levels(
            saves,
            commit_s=commit_s,
            durable_commit_s=commit_s + sizes.total_bytes / write_bytes_per_s,
            slots=math.ceil(1.0 + options.server_lag_steps),
            moved_bytes=options.gradient_bytes * saves.num_parameters,
            durable_bytes=sizes.total_bytes,
        ),
        **survives(process=1.0, node=1.0, domain=1.0),
        "stall_s": late_s,
        "bytes_per_save": sizes.total_bytes,
        "storage_bytes": options.kept_saves * sizes.total_bytes,
        "fast_load_s": np.maximum(load_s, sizes.gpu_bytes / designs.network_bytes_per_s),
        "durable_load_s": sizes.read_s,
        "live_lag_s": commit_s,
        "num_servers": servers,
        "extra_power_w": np.asarray(servers * options.server_power_w),
    }


def _servers(saves: Saves) -> tuple[Integers, Floats]:
    """Number of servers, and their delay in every step, both `(n,)`.

    A step's gradients must arrive, and the optimizer run on them, within a step: n = max(G Theta / (NIC t_step), (b + G) Theta
    / (replay rate t_step)), and the state must fit into their memories.
    """
    options, step_s = saves.options, saves.designs.step_time_s
    held_bytes = (saves.bytes_per_parameter + options.gradient_bytes) * saves.num_parameters
    one_server_s = max(
        options.gradient_bytes * saves.num_parameters / options.server_network_bytes_per_s,
        held_bytes / options.replay_bytes_per_s,
    )
    needed = np.maximum(one_server_s / step_s, held_bytes / options.server_memory_bytes)
    servers = whole(needed) if options.num_servers is None else np.full(len(step_s), options.num_servers)
    return servers, np.maximum(0.0, one_server_s / servers - step_s)
