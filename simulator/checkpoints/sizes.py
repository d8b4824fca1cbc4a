"""How large is a save, and how long do its transfers take? Bytes and times for the designs of one scheme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from simulator.domain.checkpointing import Checkpointing
from simulator.domain.hardware import Storage
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable, shard_group
from simulator.domain.reliability import Reliability
from simulator.domain.workload import Workload
from simulator.layout.expert_ranks import expert_ranks
from simulator.layout.forward_share import forward_share
from simulator.layout.matrices import num_matrix_weights
from simulator.layout.model_states import WEIGHT_BYTES
from simulator.layout.trained_weights import num_trained_parameters, num_trained_routed_parameters
from simulator.machine.offer_table import OfferTable
from simulator.run.spare_nodes import max_loans
from simulator.table import Floats, Integers, Table, total

Rows = NDArray[np.intp] | slice


@dataclass(frozen=True, kw_only=True)
class Designs(Table):
    """Properties of the designs of one scheme that saves depend on, `(n,)`."""

    num_gpus: Integers
    num_stages: Integers
    replicas: Integers
    """Ranks that hold the same weights, D c."""
    expert_ranks: Integers
    """Ranks of one stage that together hold one set of routed experts, e t_e; t c if the model has none."""
    group_ranks: Integers
    """Ranks of one stage that hold one copy of everything else: t c without sharding, otherwise t z."""
    zero_stage: Integers
    num_spare_nodes: Integers
    max_loans: Floats
    """Nodes that the run can borrow at a time where no spare is left."""
    gpus_per_node: Integers
    reclaims_per_1000_node_days: Floats
    """How often a landlord takes a node back."""
    host_copy_bytes_per_s: Floats
    network_bytes_per_s: Floats
    host_power_w: Floats
    step_time_s: Floats
    optimizer_s: Floats
    forward_share: Floats
    """Share of forward passes in all passes of a step."""

    @classmethod
    def of(
        cls,
        job: Job,
        plans: PlanTable,
        offers: OfferTable,
        step_time_s: Floats,
        optimizer_s: Floats,
        rows: Rows,
    ) -> Self:
        """Returns the designs in the given rows of all plans; `offers` holds one row per plan."""
        return cls(
            num_gpus=plans.num_gpus[rows],
            num_stages=plans.pipeline_parallel[rows],
            replicas=plans.data_parallel[rows] * plans.context_parallel[rows],
            expert_ranks=expert_set_ranks(job.workload, plans)[rows],
            group_ranks=group_ranks(plans)[rows],
            zero_stage=plans.zero_stage[rows],
            num_spare_nodes=plans.num_spare_nodes[rows],
            max_loans=max_loans(job, plans)[rows],
            gpus_per_node=offers.gpus_per_node[rows],
            reclaims_per_1000_node_days=offers.interruptions_per_1000_node_days[rows],
            host_copy_bytes_per_s=offers.host_copy_bytes_per_s[rows],
            network_bytes_per_s=offers.network_bytes_per_s[rows],
            host_power_w=offers.host_power_w[rows],
            step_time_s=step_time_s[rows],
            optimizer_s=optimizer_s[rows],
            forward_share=forward_share(job.workload, plans)[rows],
        )

    @property
    def copy_ranks(self) -> Integers:
        """Ranks of one stage that together hold one whole copy of its state."""
        return np.maximum(self.group_ranks, self.expert_ranks)

    @property
    def num_copies(self) -> Integers:
        """Whole copies of the state: D without sharding and experts, otherwise one per shard group and per set of experts."""
        return self.stage_ranks // self.copy_ranks

    @property
    def stage_ranks(self) -> Integers:
        """Ranks of one stage, t c D; they are neighbours."""
        return self.num_gpus // self.num_stages

    @property
    def num_nodes(self) -> Floats:
        """Training nodes; a partly used node counts as one."""
        return np.asarray(np.ceil(self.num_gpus / self.gpus_per_node))

    @property
    def overlap_s(self) -> Floats:
        """Forward and backward passes of one step, which can hide a copy."""
        return self.step_time_s - self.optimizer_s


def group_ranks(plans: PlanTable) -> Integers:
    """Returns the ranks of one stage that hold one copy of all except routed experts: t c, or t z of a shard group, `(n,)`."""
    ranks = np.where(plans.zero_stage == 0, plans.context_parallel, shard_group(plans))
    return np.asarray(plans.tensor_parallel * ranks)


def expert_set_ranks(workload: Workload, plans: PlanTable) -> Integers:
    """Returns the ranks of one stage that hold one set of routed experts, `(n,)`; t c if the model has none."""
    if workload.model.experts is None:
        return plans.tensor_parallel * plans.context_parallel
    return expert_ranks(workload, plans)


def saved_bytes_per_parameter(job: Job) -> float:
    """Returns the bytes of a save per trained weight: as configured, or the 16-bit weight and the optimizer's states."""
    asked = job.checkpointing.bytes_per_parameter
    return WEIGHT_BYTES + mean_state_bytes(job.workload) if asked is None else asked


def mean_state_bytes(workload: Workload) -> float:
    """Returns the bytes of optimizer states per trained weight, mean over those of Muon and of Adam."""
    if workload.muon is None:
        return workload.optimizer_bytes
    share = num_matrix_weights(workload.model) / workload.model.num_parameters
    return share * workload.muon.state_bytes + (1.0 - share) * workload.optimizer_bytes


@dataclass(frozen=True, kw_only=True)
class Saves:
    """The designs of one scheme, and the parts of the job that their saves depend on."""

    designs: Designs
    options: Checkpointing
    storage: Storage
    reliability: Reliability
    num_parameters: float
    """Weights that are trained."""
    num_routed_parameters: float
    """Weights of routed experts among those that are trained."""
    bytes_per_parameter: float
    """Bytes that a save holds for each weight."""

    @classmethod
    def of(cls, job: Job, designs: Designs) -> Self:
        """Returns the saves of some designs of a job."""
        return cls(
            designs=designs,
            options=job.checkpointing,
            storage=job.storage,
            reliability=job.reliability,
            num_parameters=float(num_trained_parameters(job.workload)),
            num_routed_parameters=float(num_trained_routed_parameters(job.workload)),
            bytes_per_parameter=saved_bytes_per_parameter(job),
        )

    def sizes(self) -> SaveSizes:
        """Returns the sizes if all ranks with unique content write, or if everything is written."""
        if self.options.is_deduplicated:
            return self.sizes_of_one_copy()
        return SaveSizes.of(self, [(_total_bytes(self), self.designs.stage_ranks)])

    def sizes_of_one_copy(self) -> SaveSizes:
        """Returns the sizes if the ranks that hold one copy of the state write it."""
        designs = self.designs
        is_whole = designs.zero_stage == 0
        return self._sizes(
            np.where(is_whole, self._tensor_ranks, designs.group_ranks),
            np.where(is_whole, designs.expert_ranks, designs.copy_ranks),
        )

    def sizes_of_one_writer(self) -> SaveSizes:
        """Returns the sizes if the ranks of one replica write everything, whatever the others hold."""
        return self._sizes(self._tensor_ranks, self.designs.expert_ranks)

    @property
    def _tensor_ranks(self) -> Integers:
        """Ranks of one stage of a replica that hold different weights, t."""
        return self.designs.stage_ranks // self.designs.replicas

    def _sizes(self, writers: Integers, expert_writers: Integers) -> SaveSizes:
        """Returns the sizes of the deduplicated state, given how many ranks of a stage write it and its experts."""
        routed = self.bytes_per_parameter * self.num_routed_parameters
        others = self.bytes_per_parameter * self.num_parameters - routed
        ones = np.ones(len(self.designs))
        parts = [(others * ones, writers), (routed * ones, expert_writers)]
        return SaveSizes.of(self, parts if routed else parts[:1])


def _total_bytes(saves: Saves) -> Floats:
    """Bytes of one save without deduplication, `(n,)`: every rank writes what is not split, every copy all else."""
    designs, full_bytes = saves.designs, saves.bytes_per_parameter
    weights = min(WEIGHT_BYTES, full_bytes)
    repeated = np.array([full_bytes, weights, weights, 0.0])[designs.zero_stage]
    routed, others = saves.num_routed_parameters, saves.num_parameters - saves.num_routed_parameters
    held = designs.replicas * others + designs.stage_ranks // designs.expert_ranks * routed
    copies = designs.stage_ranks // designs.group_ranks * others + designs.num_copies * routed
    return np.asarray(repeated * held + (full_bytes - repeated) * copies)


@dataclass(frozen=True, kw_only=True)
class SaveSizes(Table):
    """Bytes of one save, and how long its transfers take, `(n,)`."""

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
    def of(cls, saves: Saves, parts: Sequence[tuple[Floats, Integers]]) -> Self:
        """Returns the sizes for the rank and the node that write most, `(n,)`.

        Args:
            saves: the designs.
            parts: bytes of a part of the state, and how many ranks of each stage write it.
        """
        designs, storage = saves.designs, saves.storage
        of_ranks = [num_bytes / (writers * designs.num_stages) for num_bytes, writers in parts]
        of_nodes = [
            gpu_bytes * _writers_of_node(designs, writers)
            for gpu_bytes, (_, writers) in zip(of_ranks, parts, strict=True)
        ]
        total_bytes, gpu_bytes, node_bytes = (
            total(values) for values in ((num_bytes for num_bytes, _ in parts), of_ranks, of_nodes)
        )
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


def _writers_of_node(designs: Designs, writers: Integers) -> Floats:
    """Returns how many of each stage's neighbouring writers share a node, `(n,)`: stages are t c D ranks apart."""
    stages = np.clip(designs.gpus_per_node / designs.stage_ranks, 1.0, designs.num_stages)
    return np.minimum(writers * stages, designs.gpus_per_node)
