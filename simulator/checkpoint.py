"""What does one save cost? Every checkpoint scheme as the five numbers that the run needs.

A scheme turns job, plan, node and storage into: the stall of training per save, the time from the stall's end until
the save can be restored (commit), the slow-down of training meanwhile (tax), how many saves may be under way (slots)
and the time to load one. Sources stand at the constants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.job import Job
from simulator.memory import OPTIMIZER_BYTES, WEIGHT_BYTES
from simulator.offer_table import OfferTable
from simulator.plan import CheckpointScheme, PlanTable
from simulator.table import Floats, Integers, Table

CHECKPOINT_BYTES = WEIGHT_BYTES + OPTIMIZER_BYTES
"""14 bytes per parameter: 16-bit weights, fp32 master weights, two moments (BLOOM: 2.3 TB for 176 billion)."""
FIXED_STALL_S = 0.6
"""Planning, metadata and barrier of one save: measured stalls of 0.78 s (PyTorch DCP, 70B on 1,856 H200) and 0.59 s
(ByteCheckpoint, 405B on 8,960 GPUs), of which the copy itself is 0.02 s."""
PEER_STALL_S = 0.04
"""Blocking time of a save to a peer's memory (ByteRobust, arXiv 2509.16293, 70B on 2,048 GPUs)."""
WRITE_TAX_FRACTION = 0.03
"""Slow-down of training while a save is written in the background; estimate, published dips are short and deep
(DCP: throughput halves during part of the window)."""
NUM_PEER_COPIES = 2
"""Copies of every shard, the own one included (Gemini, SOSP 2023)."""
IDLE_NETWORK_FRACTION = 0.5
"""Share of the network that a background copy may use; estimate."""
WINDOW_STEPS = 7
"""Steps over which a gradient-assisted save is spread; 7 and 8 save most (GoCkpt, arXiv 2511.07035)."""
GRADIENT_BYTES = 2.0
"""Bytes of one gradient that a gradient-assisted save ships."""
REPLAY_BYTES_PER_S = 150e9
"""Rate at which one node's processors replay the optimizer over host memory; host-memory bound, estimate."""
NEVER_S = float("inf")


@dataclass(frozen=True, kw_only=True)
class CheckpointTable(Table):
    """The numbers of the chosen scheme, `(n,)`."""

    stall_s: Floats
    commit_s: Floats
    tax_fraction: Floats
    slots: Integers
    load_s: Floats
    minimum_interval_s: Floats
    host_memory_bytes: Floats
    """Host memory per node that saves under way need."""
    bytes_per_save: Floats
    """Unique bytes of one save."""


def checkpoint_costs(
    job: Job, plans: PlanTable, offers: OfferTable, step_time_s: Floats, optimizer_s: Floats
) -> CheckpointTable:
    """Returns what a save of each design costs; `offers` holds one row per design."""
    sizes = _Sizes.of(job, plans, offers)
    tables = {
        CheckpointScheme.NONE: _none(sizes),
        CheckpointScheme.SYNC_SHARDED: _sync_sharded(sizes, step_time_s),
        CheckpointScheme.ASYNC: _async(sizes, step_time_s),
        CheckpointScheme.IN_MEMORY_PEER: _in_memory_peer(sizes, step_time_s),
        CheckpointScheme.GRADIENT_ASSISTED: _gradient_assisted(sizes, step_time_s, optimizer_s),
    }
    return CheckpointTable(
        **{
            name: np.choose(
                plans.checkpoint_scheme, [getattr(tables[scheme], name) for scheme in CheckpointScheme]
            )
            for name in CheckpointTable.names()
        }
    )


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Bytes of one save, and how long its parts travel, `(n,)`."""

    total_bytes: Floats
    node_bytes: Floats
    copy_s: Floats
    """From the accelerators to host memory."""
    store_s: Floats
    """From host memory to the file system."""
    read_s: Floats
    """From the file system."""
    peer_copy_s: Floats
    """To the host memory of other nodes, in the background."""
    peer_read_s: Floats
    """Back from there."""

    @classmethod
    def of(cls, job: Job, plans: PlanTable, offers: OfferTable) -> _Sizes:
        """Returns the sizes; without a sharded optimizer one replica writes for all."""
        total = np.full(len(plans), CHECKPOINT_BYTES * job.workload.model.num_parameters)
        replicas = plans.data_parallel * plans.context_parallel
        writers = plans.num_gpus / np.where(plans.zero_stage >= 1, 1, replicas)
        gpu_bytes, node_bytes = total / writers, total / np.maximum(1.0, writers / offers.gpus_per_node)
        storage, network = job.storage, offers.network_bytes_per_s
        return cls(
            total_bytes=total,
            node_bytes=node_bytes,
            copy_s=gpu_bytes / offers.host_copy_bytes_per_s,
            store_s=np.maximum(
                node_bytes / storage.write_bytes_per_s_per_node, total / storage.write_bytes_per_s
            ),
            read_s=np.maximum(
                node_bytes / storage.read_bytes_per_s_per_node, total / storage.read_bytes_per_s
            ),
            peer_copy_s=gpu_bytes * (NUM_PEER_COPIES - 1) / (network * IDLE_NETWORK_FRACTION),
            peer_read_s=gpu_bytes / network,
        )


def _none(sizes: _Sizes) -> CheckpointTable:
    zero = np.zeros_like(sizes.total_bytes)
    return CheckpointTable(
        stall_s=zero,
        commit_s=zero,
        tax_fraction=zero,
        slots=np.ones(len(zero), dtype=np.int64),
        load_s=zero,
        minimum_interval_s=np.full_like(zero, NEVER_S),
        host_memory_bytes=zero,
        bytes_per_save=zero,
    )


def _sync_sharded(sizes: _Sizes, step_time_s: Floats) -> CheckpointTable:
    return replace(
        _none(sizes),
        stall_s=FIXED_STALL_S + sizes.copy_s + sizes.store_s,
        load_s=sizes.read_s,
        minimum_interval_s=step_time_s,
        host_memory_bytes=sizes.node_bytes,
        bytes_per_save=sizes.total_bytes,
    )


def _async(sizes: _Sizes, step_time_s: Floats) -> CheckpointTable:
    return replace(
        _sync_sharded(sizes, step_time_s),
        stall_s=FIXED_STALL_S + sizes.copy_s,
        commit_s=sizes.store_s,
        tax_fraction=np.full_like(step_time_s, WRITE_TAX_FRACTION),
        minimum_interval_s=np.maximum(step_time_s, sizes.store_s),
        host_memory_bytes=2.0 * sizes.node_bytes,
    )


def _in_memory_peer(sizes: _Sizes, step_time_s: Floats) -> CheckpointTable:
    """Host memory holds the last save and the one under way, each with the copies of the peers."""
    commit_s = np.maximum(step_time_s, sizes.copy_s + sizes.peer_copy_s)
    return replace(
        _async(sizes, step_time_s),
        stall_s=np.full_like(step_time_s, PEER_STALL_S),
        commit_s=commit_s,
        load_s=sizes.peer_read_s,
        minimum_interval_s=commit_s,
        host_memory_bytes=2.0 * NUM_PEER_COPIES * sizes.node_bytes,
    )


def _gradient_assisted(sizes: _Sizes, step_time_s: Floats, optimizer_s: Floats) -> CheckpointTable:
    replay_s = (WINDOW_STEPS - 1) / 2.0 * sizes.node_bytes / REPLAY_BYTES_PER_S
    commit_s = sizes.store_s + replay_s
    return replace(
        _async(sizes, step_time_s),
        stall_s=FIXED_STALL_S + _exposed_gradient_copy(sizes.copy_s, step_time_s, optimizer_s),
        commit_s=commit_s,
        minimum_interval_s=np.maximum(WINDOW_STEPS * step_time_s, commit_s),
        host_memory_bytes=(2.0 + GRADIENT_BYTES / CHECKPOINT_BYTES) * sizes.node_bytes,
    )


def _exposed_gradient_copy(copy_s: Floats, step_time_s: Floats, optimizer_s: Floats) -> Floats:
    """What a gradient-assisted save cannot hide (GoCkpt-O: gradients travel behind update and next forward).

    s = max(0, T_S - K T_ovl) + sum over i = 2..K of max(0, (i - 1)/K T_G - (t_update + t_forward)),
    with T_S, T_G the copy times of the whole state and of all gradients; forward is a third of forward plus backward.
    """
    overlap_s = step_time_s - optimizer_s
    hidden_per_step_s = optimizer_s + overlap_s / 3.0
    gradient_copy_s = copy_s * GRADIENT_BYTES / CHECKPOINT_BYTES
    shares = np.arange(1, WINDOW_STEPS) / WINDOW_STEPS
    exposed = np.maximum(0.0, shares * gradient_copy_s[:, None] - hidden_per_step_s[:, None]).sum(axis=1)
    return np.asarray(np.maximum(0.0, copy_s - WINDOW_STEPS * overlap_s) + exposed)
