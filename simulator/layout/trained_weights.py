"""Which weights does a step train, and which are frozen? All, but for low-rank adaptation and frozen vision encoders.

Frozen weights have no gradients and no optimizer states; ZeRO-3 shards and gathers them like the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from simulator.domain.lora import adapter_parameters
from simulator.domain.model_flop import vision_flop_per_token
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.chunks import Chunks, ChunkWeights, chunk_weights
from simulator.layout.expert_ranks import expert_ranks
from simulator.layout.owned_matrices import padding
from simulator.table import Floats


@dataclass(frozen=True, kw_only=True)
class StepWeights:
    """Weights of every chunk, `(n, C)`."""

    trained: ChunkWeights
    """Weights that are updated."""
    frozen: ChunkWeights | None = None
    """Weights that are not updated; `None` where all are."""
    padded: ChunkWeights | None = None
    """Those that are updated with what pads their buffers; `None` where nothing does."""

    @property
    def exchanged(self) -> ChunkWeights:
        """What replicas exchange of the weights that are updated, once per step."""
        return self.padded or self.trained

    @property
    def together(self) -> ChunkWeights:
        """All weights, trained and frozen."""
        if self.frozen is None:
            return self.trained
        return ChunkWeights(
            shared=self.trained.shared + self.frozen.shared,
            routed=self.trained.routed + self.frozen.routed,
            whole=self.trained.whole + self.frozen.whole,
            never_cast=self.trained.never_cast + self.frozen.never_cast,
            never_cast_whole=self.trained.never_cast_whole + self.frozen.never_cast_whole,
        )

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, chunks: Chunks) -> Self:
        """Returns the weights of a workload's chunks."""
        weights = chunk_weights(workload.model, plans, chunks)
        vision = workload.model.vision
        tower = np.asarray(chunks.is_first * (vision.tower_parameters if vision else 0), dtype=np.float64)
        found = cls.adapted(workload, weights, chunks.num_layers + chunks.num_mtp_layers, tower)
        if workload.muon is None:
            return found
        shared, routed = padding(workload, plans, chunks)
        padded = replace(
            weights,
            shared=weights.shared + plans.tensor_parallel[:, None] * shared,
            routed=weights.routed + expert_ranks(workload, plans)[:, None] * routed,
        )
        return replace(found, padded=padded)

    @classmethod
    def adapted(cls, workload: Workload, weights: ChunkWeights, num_layers: Floats, tower: Floats) -> Self:
        """Returns the weights of a model `(n, C)` and what a workload trains of them.

        Args:
            workload: What is trained.
            weights: All weights.
            num_layers: Layers that have adapters under low-rank adaptation, which trains nothing else.
            tower: Weights of a vision encoder without its projectors, which may be frozen.
        """
        if workload.lora is None:
            if workload.trained_vision == "all":
                return cls(trained=weights)
            vision = workload.model.vision
            frozen = tower + np.zeros_like(weights.routed)
            whole = frozen if vision and vision.is_replicated else 0.0
            return cls(
                trained=replace(
                    weights,
                    shared=weights.shared - frozen,
                    whole=weights.whole - whole,
                    never_cast=weights.never_cast - frozen,
                    never_cast_whole=weights.never_cast_whole - whole,
                ),
                frozen=ChunkWeights(
                    shared=frozen,
                    routed=np.zeros_like(frozen),
                    whole=whole,
                    never_cast=frozen,
                    never_cast_whole=whole,
                ),
            )
        adapters = num_layers * adapter_parameters(workload.model, workload.lora)
        trained = ChunkWeights(shared=adapters, routed=np.zeros_like(adapters), never_cast=adapters)
        return cls(trained=trained, frozen=weights)


def num_trained_parameters(workload: Workload) -> int:
    """Returns the number of weights that the optimizer updates."""
    if workload.lora is None:
        vision = workload.model.vision
        frozen = vision.tower_parameters if vision and workload.trained_vision != "all" else 0
        return workload.model.num_parameters - frozen
    num_layers = workload.model.num_layers + workload.model.num_mtp_layers
    return num_layers * adapter_parameters(workload.model, workload.lora)


def num_trained_routed_parameters(workload: Workload) -> int:
    """Returns the number of routed-expert weights that the optimizer updates; adapters have none."""
    return workload.model.num_routed_parameters if workload.lora is None else 0


def trained_flop_per_token(workload: Workload) -> float:
    """Returns the floating-point operations per token that training needs; frozen weights have no gradients to compute."""
    flop = workload.model_flop_per_token - vision_flop_per_token(workload, "all")
    if workload.lora:
        flop = flop - 2.0 * workload.model.num_matrix_parameters
    return flop + vision_flop_per_token(workload, workload.trained_vision)
