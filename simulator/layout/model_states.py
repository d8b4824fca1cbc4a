"""How many bytes of weights, gradients and optimizer states does one rank keep under its ZeRO stage?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.domain.plan import PlanTable, interleaved_groups, shard_group
from simulator.domain.workload import Workload
from simulator.layout.casts import cast_weight_bytes
from simulator.layout.expert_ranks import routed_shard_group, shares_nothing
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.owned_matrices import (
    OwnedMatrices,
    gathered_bytes,
    muon_of,
    padding,
    spread_weights,
    work_bytes,
)
from simulator.layout.stage_content import StageContent, layer_weights
from simulator.table import Booleans, Floats, Integers, total

WEIGHT_BYTES = 2.0
"""16-bit weights."""
MASTER_BYTES = 4.0
"""fp32 master weight, a part of the optimizer states; under FSDP the sharded weight itself."""
FULL_GRADIENT_BYTES = 4.0
"""A gradient in 32 bits, the format that optimizers work on."""
FIRST_OFFLOADED_STAGE = 2
"""First ZeRO stage that can accumulate gradients in host memory (DeepSpeed's `copy_grads_in_partition`)."""
NEVER_SPLIT = 4
"""A ZeRO stage beyond all existing ones."""


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """Weights, gradients and optimizer states on one rank of a stage under its ZeRO stage, `(n,)`."""

    weights: Floats
    gradients: Floats
    optimizer: Floats
    update: Floats
    """Copies of the gradients that the optimizer updates weights from."""

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, stage: StageContent) -> StateBytes:
        """Returns the states of a rank of one stage of each design."""
        ranks, routed_ranks = shard_group(plans), routed_shard_group(workload, plans)

        def split(weights: tuple[Floats, Floats], zero_stage: int) -> Floats:
            is_split, (shared, routed) = plans.zero_stage >= zero_stage, weights
            return shared / np.where(is_split, ranks, 1.0) + routed / np.where(is_split, routed_ranks, 1.0)

        def held(bytes_per_weight: float, zero_stage: int) -> Floats:
            return bytes_per_weight * split((stage.shared_weights, stage.routed_weights), zero_stage)

        # Fully sharded weights have the format of their gradients; in 32 bits they are their own master copy.
        is_its_own_master = (plans.zero_stage >= 3) & (workload.gradient_bytes >= FULL_GRADIENT_BYTES)
        on_device = 1.0 - workload.optimizer_offload_fraction
        weights = np.where(is_its_own_master, held(MASTER_BYTES, 3), held(WEIGHT_BYTES, 3))
        if stage.frozen_weights:
            weights = weights + WEIGHT_BYTES * split(stage.frozen_weights, 3)
        if workload.keeps_cast_weights:
            weights = weights + cast_weight_bytes(workload, plans) * layer_weights(workload, plans, stage)
        gradients = _gradient_bytes(workload, plans, held)
        if workload.muon:
            return cls._of_matrices(workload, plans, stage, weights, gradients)
        return cls(
            weights=weights,
            gradients=gradients,
            optimizer=on_device
            * (held(workload.optimizer_bytes, 1) - np.where(is_its_own_master, held(MASTER_BYTES, 3), 0.0)),
            update=on_device * held(copied_gradient_bytes(workload), 1),
        )

    @classmethod
    def _of_matrices(
        cls, workload: Workload, plans: PlanTable, stage: StageContent, weights: Floats, gradients: Floats
    ) -> StateBytes:
        """States where Muon updates whole matrices: buffers are padded, and the fullest rank counts."""
        padded = total(
            stage.chunks.on_stage(each, stage.number) for each in padding(workload, plans, stage.chunks)
        )
        owned = OwnedMatrices.of(workload, plans, stage.chunks, stage.number)
        spread = spread_weights((stage.shared_weights, stage.routed_weights), owned)
        of_matrices = total(each.state_bytes for each in owned)
        updated = spread + of_matrices / muon_of(workload).state_bytes
        held = stage.shared_weights, stage.routed_weights
        at_work = np.maximum(
            work_bytes(workload, owned), gathered_bytes(workload, plans, stage.chunks, owned, held)
        )
        return cls(
            weights=weights + WEIGHT_BYTES * padded,
            gradients=gradients + float(workload.gradient_bytes) * padded,
            optimizer=workload.optimizer_bytes * spread + of_matrices,
            update=copied_gradient_bytes(workload) * updated + at_work,
        )


def copied_gradient_bytes(workload: Workload) -> float:
    """Returns the bytes of the copies that the optimizer makes of one gradient."""
    if workload.update_bytes is not None:
        return workload.update_bytes
    return FULL_GRADIENT_BYTES if workload.gradient_bytes < FULL_GRADIENT_BYTES else 0.0


def _gradient_bytes(workload: Workload, plans: PlanTable, held: Callable[[float, int], Floats]) -> Floats:
    """Gradients on one rank; with ZeRO-2 a pipeline keeps those of two chunks whole: one accumulates, one is being reduced."""
    split, whole = (held(float(workload.gradient_bytes), zero_stage) for zero_stage in (2, NEVER_SPLIT))
    is_grouped = (plans.zero_stage == 2) & (plans.pipeline_parallel > 1)
    kept = np.where(is_grouped, np.minimum(whole, split + whole * 2.0 / plans.virtual_pipeline), split)
    if away := workload.offloaded_gradient_fraction:
        return np.where(plans.zero_stage >= FIRST_OFFLOADED_STAGE, 1.0 - away, 1.0) * kept
    return kept


def reduced_fraction(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the number of gradient reductions of a chunk under ZeRO-2 per micro-batch, `(n,)`.

    Without a pipeline it reduces after every micro-batch, as FSDP2 and DeepSpeed do by default. In a pipeline, gradients stay
    whole while backward passes of one chunk follow each other: all of them under 1F1B, a group when interleaved (PyTorch pull
    request 126166 describes both ways; Megatron-FSDP keeps partial gradients between micro-batches).
    """
    m = num_micro_batches(workload, plans)
    return np.asarray(np.ceil(m / reduced_together(workload, plans)) / m)


def reduced_together(workload: Workload, plans: PlanTable) -> Integers:
    """Returns how many micro-batches' gradients of a chunk ZeRO-2 reduces at once, `(n,)`; the last time there may be fewer."""
    is_interleaved = plans.virtual_pipeline > 1
    in_pipeline = np.where(is_interleaved, interleaved_groups(plans), num_micro_batches(workload, plans))
    return np.where(plans.pipeline_parallel > 1, in_pipeline, 1)


def has_whole_gradients(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether a rank accumulates whole gradients over the step, `(n,)`: up to ZeRO-1, and where ranks share nothing.

    Gradients that are accumulated in host memory are not whole on any rank.
    """
    is_alone = shares_nothing(workload, plans) & (workload.offloaded_gradient_fraction == 0.0)
    return np.asarray((plans.zero_stage < 2) | is_alone)


def adds_in_products(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether products accumulate weight gradients over micro-batches, on ranks that hold them whole, `(n,)`.

    They do not where other kernels accumulate (`added_gradient_bytes`). ZeRO-2 holds whole gradients in a pipeline; a single
    stage reduces those of every micro-batch, as ZeRO-3 does.
    """
    return np.where(
        has_whole_gradients(workload, plans),
        workload.added_gradient_bytes is None,
        (plans.zero_stage == 2) & (plans.pipeline_parallel > 1),
    )
