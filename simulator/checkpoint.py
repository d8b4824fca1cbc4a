"""What does one save cost? Every checkpoint scheme as the five numbers that the run needs.

A scheme turns job, plan, node and storage into: the stall of training per save, the time from the stall's end until
the save can be restored (commit), the slow-down of training meanwhile (tax), how many saves may be under way (slots)
and the time to load one. Sources stand at the constants.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.job import Job
from simulator.memory import OPTIMIZER_BYTES, WEIGHT_BYTES
from simulator.offer_table import OfferTable
from simulator.plan import CheckpointScheme, PlanTable
from simulator.table import Booleans, Floats, Integers, Table

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
    store_s = sizes.transfer_s(job.storage.write_bytes_per_s_per_node, job.storage.write_bytes_per_s)
    read_s = sizes.transfer_s(job.storage.read_bytes_per_s_per_node, job.storage.read_bytes_per_s)
    peer_s = sizes.gpu_bytes * (NUM_PEER_COPIES - 1) / (offers.network_bytes_per_s * IDLE_NETWORK_FRACTION)
    peer_commit_s = np.maximum(step_time_s, sizes.copy_s + peer_s)
    gradient_stall_s = FIXED_STALL_S + _exposed_gradient_copy(sizes, step_time_s, optimizer_s)
    replay_s = (WINDOW_STEPS - 1) / 2.0 * sizes.node_bytes / REPLAY_BYTES_PER_S
    is_scheme = {scheme: plans.checkpoint_scheme == scheme.code for scheme in CheckpointScheme}
    zero = np.zeros(len(plans))

    def choose(values: dict[CheckpointScheme, Floats | float]) -> Floats:
        return np.select([is_scheme[s] for s in values], [np.broadcast_to(v, zero.shape) for v in values.values()])

    commit_s = choose(
        {
            CheckpointScheme.NONE: 0.0,
            CheckpointScheme.SYNC_SHARDED: 0.0,
            CheckpointScheme.ASYNC: store_s,
            CheckpointScheme.IN_MEMORY_PEER: peer_commit_s,
            CheckpointScheme.GRADIENT_ASSISTED: store_s + replay_s,
        }
    )
    window_s = np.where(is_scheme[CheckpointScheme.GRADIENT_ASSISTED], WINDOW_STEPS * step_time_s, step_time_s)
    return CheckpointTable(
        stall_s=choose(
            {
                CheckpointScheme.NONE: 0.0,
                CheckpointScheme.SYNC_SHARDED: FIXED_STALL_S + sizes.copy_s + store_s,
                CheckpointScheme.ASYNC: FIXED_STALL_S + sizes.copy_s,
                CheckpointScheme.IN_MEMORY_PEER: PEER_STALL_S,
                CheckpointScheme.GRADIENT_ASSISTED: gradient_stall_s,
            }
        ),
        commit_s=commit_s,
        tax_fraction=np.where(commit_s > 0, WRITE_TAX_FRACTION, 0.0),
        slots=np.ones(len(plans), dtype=np.int64),
        load_s=choose(
            {
                CheckpointScheme.NONE: 0.0,
                CheckpointScheme.SYNC_SHARDED: read_s,
                CheckpointScheme.ASYNC: read_s,
                CheckpointScheme.IN_MEMORY_PEER: sizes.gpu_bytes / offers.network_bytes_per_s,
                CheckpointScheme.GRADIENT_ASSISTED: read_s,
            }
        ),
        minimum_interval_s=np.where(
            is_scheme[CheckpointScheme.NONE], NEVER_S, np.maximum(window_s, commit_s)
        ),
        host_memory_bytes=choose(
            {
                CheckpointScheme.NONE: 0.0,
                CheckpointScheme.SYNC_SHARDED: sizes.node_bytes,
                CheckpointScheme.ASYNC: 2.0 * sizes.node_bytes,
                CheckpointScheme.IN_MEMORY_PEER: 2.0 * NUM_PEER_COPIES * sizes.node_bytes,
                CheckpointScheme.GRADIENT_ASSISTED: (2.0 + GRADIENT_BYTES / CHECKPOINT_BYTES) * sizes.node_bytes,
            }
        ),
        bytes_per_save=np.where(is_scheme[CheckpointScheme.NONE], 0.0, sizes.total_bytes),
    )


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Bytes of one save and the time of its copy to host memory, `(n,)`."""

    total_bytes: Floats
    gpu_bytes: Floats
    node_bytes: Floats
    copy_s: Floats
    num_writing_nodes: Floats

    @classmethod
    def of(cls, job: Job, plans: PlanTable, offers: OfferTable) -> _Sizes:
        total = np.full(len(plans), CHECKPOINT_BYTES * job.workload.model.num_parameters)
        is_sharded: Booleans = plans.zero_stage >= 1
        writers = np.where(is_sharded, plans.num_gpus, plans.num_gpus / plans.data_parallel)
        gpu_bytes = total / writers
        nodes = np.maximum(1.0, writers / offers.gpus_per_node)
        return cls(
            total_bytes=total,
            gpu_bytes=gpu_bytes,
            node_bytes=total / nodes,
            copy_s=gpu_bytes / offers.host_copy_bytes_per_s,
            num_writing_nodes=nodes,
        )

    def transfer_s(self, node_bytes_per_s: float, storage_bytes_per_s: float) -> Floats:
        """Time in which the nodes write or read one save through the slower of node and storage."""
        return np.maximum(self.node_bytes / node_bytes_per_s, self.total_bytes / storage_bytes_per_s)


def _exposed_gradient_copy(sizes: _Sizes, step_time_s: Floats, optimizer_s: Floats) -> Floats:
    """What a gradient-assisted save cannot hide (GoCkpt-O: gradients travel behind update and next forward).

    s = max(0, T_S - K T_ovl) + sum over i = 2..K of max(0, (i - 1)/K T_G - (t_update + t_forward)),
    with T_S, T_G the copy times of the whole state and of all gradients; forward is a third of forward plus backward.
    """
    overlap_s = step_time_s - optimizer_s
    hidden_per_step_s = optimizer_s + overlap_s / 3.0
    gradient_copy_s = sizes.copy_s * GRADIENT_BYTES / CHECKPOINT_BYTES
    shares = np.arange(1, WINDOW_STEPS) / WINDOW_STEPS
    exposed = np.maximum(0.0, shares * gradient_copy_s[:, None] - hidden_per_step_s[:, None]).sum(axis=1)
    return np.maximum(0.0, sizes.copy_s - WINDOW_STEPS * overlap_s) + exposed
