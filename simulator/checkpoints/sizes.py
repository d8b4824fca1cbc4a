"""How large is a save, and how long do its parts travel? Bytes and transfer times of the designs of one scheme."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulator.checkpoints.options import Checkpointing
from simulator.hardware import Storage
from simulator.job import Job
from simulator.model_states import WEIGHT_BYTES
from simulator.offer_table import OfferTable
from simulator.plan import PlanTable, shard_group
from simulator.reliability import Reliability
from simulator.table import Floats, Integers, Table
from simulator.trained_weights import num_trained_parameters

Rows = NDArray[np.intp] | slice


@dataclass(frozen=True, kw_only=True)
class Designs(Table):
    """What saves depend on of the designs of one scheme, `(n,)`."""

    num_gpus: Integers
    replicas: Integers
    """Ranks that hold the same weights, D c."""
    num_copies: Integers
    """Whole copies of the state: D without sharding, otherwise one in every shard group."""
    copy_ranks: Integers
    """Ranks of one stage that hold one of them together: t c without sharding, otherwise t z."""
    zero_stage: Integers
    num_spare_nodes: Integers
    gpus_per_node: Integers
    host_copy_bytes_per_s: Floats
    network_bytes_per_s: Floats
    host_power_w: Floats
    step_time_s: Floats
    optimizer_s: Floats

    @classmethod
    def of(
        cls, plans: PlanTable, offers: OfferTable, step_time_s: Floats, optimizer_s: Floats, rows: Rows
    ) -> Self:
        """Returns the designs in some rows of all plans; `offers` holds one row per plan."""
        replicas = plans.data_parallel[rows] * plans.context_parallel[rows]
        is_whole = plans.zero_stage[rows] == 0
        ranks = np.where(is_whole, plans.context_parallel[rows], shard_group(plans)[rows])
        return cls(
            num_gpus=plans.num_gpus[rows],
            replicas=replicas,
            num_copies=replicas // ranks,
            copy_ranks=plans.tensor_parallel[rows] * ranks,
            zero_stage=plans.zero_stage[rows],
            num_spare_nodes=plans.num_spare_nodes[rows],
            gpus_per_node=offers.gpus_per_node[rows],
            host_copy_bytes_per_s=offers.host_copy_bytes_per_s[rows],
            network_bytes_per_s=offers.network_bytes_per_s[rows],
            host_power_w=offers.host_power_w[rows],
            step_time_s=step_time_s[rows],
            optimizer_s=optimizer_s[rows],
        )

    @property
    def num_nodes(self) -> Floats:
        """Nodes that train; a part of one counts as one."""
        return np.asarray(np.ceil(self.num_gpus / self.gpus_per_node))

    @property
    def overlap_s(self) -> Floats:
        """Forward and backward passes of one step, behind which a copy hides."""
        return self.step_time_s - self.optimizer_s


def saved_bytes_per_parameter(job: Job) -> float:
    """Returns the bytes of a save for each trained weight: as asked for, or the 16-bit weight and the optimizer's states."""
    asked = job.checkpointing.bytes_per_parameter
    return WEIGHT_BYTES + job.workload.optimizer_bytes if asked is None else asked


@dataclass(frozen=True, kw_only=True)
class Saves:
    """The designs of one scheme, and the parts of the job on which their saves depend."""

    designs: Designs
    options: Checkpointing
    storage: Storage
    reliability: Reliability
    num_parameters: float
    """Weights that are trained."""
    bytes_per_parameter: float
    """What a save has of each."""

    @classmethod
    def of(cls, job: Job, designs: Designs) -> Self:
        """Returns the saves of some designs of a job."""
        return cls(
            designs=designs,
            options=job.checkpointing,
            storage=job.storage,
            reliability=job.reliability,
            num_parameters=float(num_trained_parameters(job.workload)),
            bytes_per_parameter=saved_bytes_per_parameter(job),
        )

    def sizes(self) -> SaveSizes:
        """Returns the sizes where all ranks write that hold something of their own, or everything is written."""
        if self.options.is_deduplicated:
            return self.sizes_of_one_copy()
        return SaveSizes.of(self, _total_bytes(self), self.designs.num_gpus.astype(np.float64))

    def sizes_of_one_copy(self) -> SaveSizes:
        """Returns the sizes where the ranks that hold one copy of the state together write it."""
        num_same = np.where(self.designs.zero_stage == 0, self.designs.replicas, self.designs.num_copies)
        return SaveSizes.of(self, self._unique_bytes, self.designs.num_gpus / num_same)

    def sizes_of_one_writer(self) -> SaveSizes:
        """Returns the sizes where the ranks of one replica write everything, whatever the others hold."""
        return SaveSizes.of(self, self._unique_bytes, self.designs.num_gpus / self.designs.replicas)

    @property
    def _unique_bytes(self) -> Floats:
        """The state without repetitions, `(n,)`."""
        return np.full(len(self.designs), self.bytes_per_parameter * self.num_parameters)


def _total_bytes(saves: Saves) -> Floats:
    """Bytes of one save without deduplication, `(n,)`: every rank adds what is not split, every shard group all of it."""
    designs, full_bytes = saves.designs, saves.bytes_per_parameter
    weights = min(WEIGHT_BYTES, full_bytes)
    repeated = np.array([full_bytes, weights, weights, 0.0])[designs.zero_stage]
    split = (designs.num_copies - 1) * (full_bytes - repeated)
    return np.asarray((full_bytes + (designs.replicas - 1) * repeated + split) * saves.num_parameters)


@dataclass(frozen=True, kw_only=True)
class SaveSizes(Table):
    """Bytes of one save, and how long its parts travel, `(n,)`."""

    total_bytes: Floats
    gpu_bytes: Floats
    """Of one rank that writes."""
    node_bytes: Floats
    """Of one node that writes."""
    copy_s: Floats
    """From the accelerators to host memory, or back."""
    store_s: Floats
    """From host memory to the file system."""
    read_s: Floats
    """From the file system."""

    @classmethod
    def of(cls, saves: Saves, total_bytes: Floats, writers: Floats) -> Self:
        """Returns the sizes where so many ranks write, `(n,)`."""
        designs, storage = saves.designs, saves.storage
        gpu_bytes = total_bytes / writers
        node_bytes = total_bytes / np.maximum(1.0, writers / designs.gpus_per_node)
        return cls(
            total_bytes=total_bytes,
            gpu_bytes=gpu_bytes,
            node_bytes=node_bytes,
            copy_s=gpu_bytes / designs.host_copy_bytes_per_s,
            store_s=np.maximum(
                node_bytes / storage.write_bytes_per_s_per_node, total_bytes / storage.write_bytes_per_s
            ),
            read_s=np.maximum(
                node_bytes / storage.read_bytes_per_s_per_node, total_bytes / storage.read_bytes_per_s
            ),
        )
