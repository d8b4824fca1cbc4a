"""Which layers and weights does one rank of a pipeline stage hold?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.chunks import Chunks, held_by_rank, layers_and_modules, weights_on_stage
from simulator.layout.expert_ranks import expert_ranks
from simulator.layout.trained_weights import StepWeights
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class StageContent:
    """One stage of each design, and the content of one rank of it; all `(n,)`, or `(s, n)` for s stages of each."""

    number: Integers
    dense_layers: Floats
    expert_layers: Floats
    """Layers with experts, including those of multi-token prediction."""
    shared_weights: Floats
    routed_weights: Floats
    """Routed weights among those that are trained."""
    frozen_weights: tuple[Floats, Floats] | None
    """Shared and routed weights that are not trained."""
    chunks: Chunks
    """All chunks of the designs."""
    has_input: Floats
    has_output: Floats
    modules: Floats | float
    """Modules of multi-token prediction."""

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, chunks: Chunks, stage: Integers) -> StageContent:
        """Returns the content of a rank of one stage of each design, or of s stages."""
        weights = StepWeights.of(workload, plans, chunks)
        shared, routed = weights_on_stage(workload, plans, chunks, weights.trained, stage)
        dense, expert, modules = layers_and_modules(workload.model, chunks, stage)
        return cls(
            number=stage,
            dense_layers=dense,
            expert_layers=expert,
            shared_weights=shared,
            routed_weights=routed,
            frozen_weights=weights_on_stage(workload, plans, chunks, weights.frozen, stage)
            if weights.frozen
            else None,
            chunks=chunks,
            has_input=chunks.on_stage(chunks.is_first, stage),
            has_output=chunks.on_stage(chunks.is_last, stage),
            modules=modules,
        )


def layer_weights(workload: Workload, plans: PlanTable, stage: StageContent) -> Floats:
    """Returns the layer weights on one rank of a stage, unsharded, without embedding and output layer."""
    model = workload.model
    dense, expert = shared_of_layers(model, plans)
    routed = stage.expert_layers * num_experts(model) * model.expert_parameters
    projections = stage.modules * model.mtp_parameters / plans.tensor_parallel
    shared = stage.dense_layers * dense + stage.expert_layers * expert + projections
    return np.asarray(shared + routed / expert_ranks(workload, plans))


def shared_of_layers(model: ModelShape, plans: PlanTable) -> tuple[Floats, Floats]:
    """Returns the weights on one rank that every token uses, of a dense layer and of one with experts, `(n,)` each."""
    return (
        held_by_rank(model.dense_layer_parameters, model.dense_layer_whole_parameters, plans.tensor_parallel),
        held_by_rank(
            model.expert_layer_shared_parameters, model.expert_layer_whole_parameters, plans.tensor_parallel
        ),
    )


def num_experts(model: ModelShape) -> int:
    """Returns the routed experts of a layer; 1 if there are none, and it then has no weights."""
    return model.experts.num_experts if model.experts else 1
