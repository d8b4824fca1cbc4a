"""What weights and gradients does the working layer need in addition to the states that its rank keeps?

A layer of a vision encoder, or all of its projectors together, may be larger than any layer of the language model.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import numpy as np

from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable, shard_group
from simulator.domain.vision import VisionEncoder
from simulator.domain.workload import Workload
from simulator.layout.casts import gathered_weight_value_bytes
from simulator.layout.chunks import held_by_rank
from simulator.layout.expert_ranks import expert_ranks, routed_shard_group
from simulator.layout.matrices import (
    Matrix,
    Split,
    dense_matrices,
    module_matrices,
    routed_matrices,
    shared_matrices,
)
from simulator.layout.model_states import FULL_GRADIENT_BYTES, WEIGHT_BYTES
from simulator.layout.stage_content import StageContent, layer_weights, num_experts, shared_of_layers
from simulator.table import Booleans, Floats, Integers


def weights_at_work(workload: Workload, plans: PlanTable, stage: StageContent) -> Floats:
    """Returns the working layer's gradients, and what ZeRO-3 gathers for it; the output layer is a unit of its own."""
    gradients = 0.0 if workload.lora else _gradients_at_work(workload, plans, stage)
    is_sharded = plans.zero_stage >= 3
    if not np.any(is_sharded):
        return gradients + np.zeros_like(stage.has_output)
    return np.where(is_sharded, _gathered_bytes(workload, plans, stage), 0.0) + gradients


def _gradients_at_work(workload: Workload, plans: PlanTable, stage: StageContent) -> Floats:
    """Gradients of the working layer in 16 bits, before they are accumulated or reduced; those of adapters are negligible.

    Grouped expert products create one gradient at a time. ZeRO-3 reduces those of a whole layer in the wire format; with
    `most_gathered_weights` they leave one by one.
    """
    output, unit = _output_weights(workload, plans, stage), _trained_unit(workload)
    one_expert = 1.0 / (num_experts(workload.model) * workload.expert_tensor_parallel)
    largest = _largest_layer(workload, plans, stage, unit, routed=one_expert)
    gradients = WEIGHT_BYTES * (largest + output)
    is_sharded = plans.zero_stage >= 3
    if not np.any(is_sharded):
        return gradients
    if workload.most_gathered_weights is not None:
        product = np.maximum(_largest_product(workload, plans, stage), output)
        return np.where(is_sharded, WEIGHT_BYTES * product, gradients)
    shared, routed = _copied(workload, plans, is_cast=False)
    share = 1.0 / expert_ranks(workload, plans)
    whole = reduced = _largest_layer(workload, plans, stage, unit, routed=np.where(routed, share, one_expert))
    if not np.all(shared & routed):
        reduced = _largest_layer(workload, plans, stage, unit, shared=shared, routed=routed * share)
    return np.where(is_sharded, WEIGHT_BYTES * (whole + output) + workload.wire_bytes * reduced, gradients)


def _gathered_bytes(workload: Workload, plans: PlanTable, stage: StageContent) -> Floats:
    """Bytes that ZeRO-3 gathers: the working layer and, to prefetch backward, one more; or, as an option, single products."""
    output, unit = _output_weights(workload, plans, stage), _largest_unit(workload.model)
    is_cast = workload.lora is None and workload.gradient_bytes >= FULL_GRADIENT_BYTES
    shared, routed = _copied(workload, plans, is_cast=is_cast)
    routed_share = routed / expert_ranks(workload, plans)
    layer = _largest_layer(workload, plans, stage, unit, shared=shared, routed=routed_share)
    num_layers = 2.0 if workload.weight_prefetch in ("both", "backward") else 1.0
    layers = np.minimum(num_layers * layer, _weights_of_layers(workload, plans, stage))
    gathered = gathered_weight_value_bytes(workload, plans) * layers + WEIGHT_BYTES * shared * output
    if workload.most_gathered_weights is None:
        return np.asarray(gathered)
    product = np.maximum(_largest_product(workload, plans, stage), output)
    return np.minimum(gathered, WEIGHT_BYTES * (workload.most_gathered_weights + product))


def _copied(workload: Workload, plans: PlanTable, *, is_cast: bool) -> tuple[Booleans, Booleans]:
    """Shared and routed weights that ZeRO-3 copies for the working layer, `(n,)` or `(1,)`: those with at least two owners.

    A rank with sole ownership computes with the weights that it keeps (`NoGatherHandle` of DeepSpeed), unless they are masters
    in 32 bits, which it casts. FSDP2 copies them in any case (`tensor.copy_(all_gather_input)`).
    """
    if is_cast or workload.sharded_copies == "fsdp-2":
        every = np.ones(1, dtype=np.bool_)
        return every, every
    return shard_group(plans) > 1, routed_shard_group(workload, plans) > 1.0


def _output_weights(workload: Workload, plans: PlanTable, stage: StageContent) -> Floats:
    """Weights of the output layer on one rank."""
    weights = workload.model.vocabulary_size * workload.model.hidden_size
    return np.asarray(stage.has_output * weights / plans.tensor_parallel)


def _weights_of_layers(workload: Workload, plans: PlanTable, stage: StageContent) -> Floats:
    """Weights on one rank of all layers of a stage and of a vision encoder with its projectors."""
    weights = layer_weights(workload, plans, stage)
    if (vision := workload.model.vision) is None:
        return weights
    encoder = vision.tower_parameters + vision.projector_parameters(workload.model.hidden_size)
    return weights + stage.has_input * _of_encoder_on_rank(vision, plans, encoder)


def _largest_unit(model: ModelShape) -> int:
    """Weights of the larger of a layer of the vision encoder and all of its projectors; 0 without an encoder."""
    vision = model.vision
    return max(vision.layer_parameters, vision.projector_parameters(model.hidden_size)) if vision else 0


def _trained_unit(workload: Workload) -> int:
    """The same of those that are trained."""
    model = workload.model
    match workload.trained_vision:
        case "projectors":
            return model.vision.projector_parameters(model.hidden_size) if model.vision else 0
        case "all":
            return _largest_unit(model)
        case "nothing":
            return 0


def _largest_layer(
    workload: Workload,
    plans: PlanTable,
    stage: StageContent,
    unit: int,
    *,
    shared: Booleans | float = 1.0,
    routed: Floats | float,
) -> Floats:
    """Weights of the largest layer on a stage, with these shares of weights for every token and of routed weights.

    Args:
        workload: What is trained.
        plans: The designs.
        stage: One stage of each, or several.
        unit: Weights of the largest unit of the vision encoder that counts.
        shared: Share of the weights that every token uses.
        routed: Share of those of all experts.
    """
    model = workload.model
    dense, expert = shared_of_layers(model, plans)
    experts = shared * expert + routed * num_experts(model) * model.expert_parameters
    layers = np.maximum(
        np.where(stage.dense_layers > 0, shared * dense, 0.0),
        np.where(stage.expert_layers > 0, experts, 0.0),
    )
    if (vision := model.vision) is None:
        return layers
    return np.maximum(layers, stage.has_input * shared * _of_encoder_on_rank(vision, plans, unit))


def _largest_product(workload: Workload, plans: PlanTable, stage: StageContent) -> Floats:
    """Weights of the largest product on one rank of a stage; those of experts count one expert at a time."""
    model, t = workload.model, plans.tensor_parallel
    of_experts = _largest_matrix(routed_matrices(model), workload.expert_tensor_parallel)
    parts = [
        (stage.dense_layers, _largest_matrix(dense_matrices(model), t)),
        (stage.expert_layers, np.maximum(_largest_matrix(shared_matrices(model), t), of_experts)),
        (stage.modules, _largest_matrix(module_matrices(model), t)),
    ]
    if linear := model.linear_attention:
        entering = model.hidden_size * linear.entering_width / t
        parts.append((stage.dense_layers + stage.expert_layers, entering))
    if vision := model.vision:
        largest = vision.largest_product(model.hidden_size)
        parts.append((stage.has_input, _of_encoder_on_rank(vision, plans, largest)))
    return reduce(np.maximum, [np.where(count > 0, weights, 0.0) for count, weights in parts])


def _largest_matrix(matrices: Iterable[Matrix], ranks: Integers | int) -> Floats:
    """Weights of the largest of these on one of the ranks that split them."""
    largest = np.zeros(np.shape(ranks))
    for each in matrices:
        largest = np.maximum(largest, each.num_weights / (1 if each.split is Split.NONE else ranks))
    return largest


def _of_encoder_on_rank(vision: VisionEncoder, plans: PlanTable, weights: int) -> Floats:
    """So many weights of a vision encoder on one rank, all of them where every rank runs all of it."""
    return held_by_rank(weights, weights if vision.is_replicated else 0, plans.tensor_parallel)
