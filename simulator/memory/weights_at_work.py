"""What weights and gradients does the working layer need in addition to the states that its rank keeps?"""

from __future__ import annotations

import numpy as np

from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable, shard_group
from simulator.domain.workload import Workload
from simulator.layout.casts import gathered_weight_value_bytes
from simulator.layout.chunks import held_by_rank
from simulator.layout.expert_ranks import expert_ranks, routed_shard_group
from simulator.layout.model_states import FULL_GRADIENT_BYTES, WEIGHT_BYTES
from simulator.layout.stage_content import StageContent, layer_weights, num_experts, shared_of_layers
from simulator.table import Booleans, Floats


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
    model, output = workload.model, _output_weights(workload, plans, stage)
    one_expert = 1.0 / (num_experts(model) * workload.expert_tensor_parallel)
    gradients = WEIGHT_BYTES * (_largest_layer(model, plans, stage, routed=one_expert) + output)
    is_sharded = plans.zero_stage >= 3
    if not np.any(is_sharded):
        return gradients
    if workload.most_gathered_weights is not None:
        product = np.maximum(_largest_product(model, plans, stage), output)
        return np.where(is_sharded, WEIGHT_BYTES * product, gradients)
    shared, routed = _copied(workload, plans, is_cast=False)
    share = 1.0 / expert_ranks(workload, plans)
    whole = reduced = _largest_layer(model, plans, stage, routed=np.where(routed, share, one_expert))
    if not np.all(shared & routed):
        reduced = _largest_layer(model, plans, stage, shared=shared, routed=routed * share)
    return np.where(is_sharded, WEIGHT_BYTES * (whole + output) + workload.wire_bytes * reduced, gradients)


def _gathered_bytes(workload: Workload, plans: PlanTable, stage: StageContent) -> Floats:
    """Bytes that ZeRO-3 gathers: the working layer and, to prefetch backward, one more; or, as an option, single products."""
    model, output = workload.model, _output_weights(workload, plans, stage)
    is_cast = workload.lora is None and workload.gradient_bytes >= FULL_GRADIENT_BYTES
    shared, routed = _copied(workload, plans, is_cast=is_cast)
    layer = _largest_layer(model, plans, stage, shared=shared, routed=routed / expert_ranks(workload, plans))
    num_layers = 2.0 if workload.weight_prefetch in ("both", "backward") else 1.0
    layers = np.minimum(num_layers * layer, layer_weights(workload, plans, stage))
    gathered = gathered_weight_value_bytes(workload, plans) * layers + WEIGHT_BYTES * shared * output
    if workload.most_gathered_weights is None:
        return np.asarray(gathered)
    product = np.maximum(_largest_product(model, plans, stage), output)
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


def _largest_product(model: ModelShape, plans: PlanTable, stage: StageContent) -> Floats:
    """Weights of the largest product of a layer on one rank; expert products count one expert at a time."""
    qk_dim, value_dim = model.attention_dims
    attention = model.num_heads * qk_dim + model.num_kv_heads * (qk_dim + value_dim) + model.gate_width
    if model.linear_attention:
        attention = max(attention, model.linear_attention.entering_width)
    if compressed := model.compressed_attention:
        queries, groups = (
            compressed.query_rank * model.num_heads * model.head_dim,
            compressed.group_parameters(model),
        )
        attention = max(queries, groups) // model.hidden_size
    dense = np.where(stage.dense_layers > 0, model.ffn_hidden_size, 0)
    expert = np.where(
        stage.expert_layers > 0, model.experts.expert_ffn_hidden_size if model.experts else 0, 0
    )
    projected = np.where(stage.modules > 0, 2 * model.hidden_size, 0)
    widest = np.maximum(np.maximum(attention, projected), np.maximum(dense, expert))
    return np.asarray(model.hidden_size * widest / plans.tensor_parallel)


def _largest_layer(
    model: ModelShape,
    plans: PlanTable,
    stage: StageContent,
    *,
    shared: Booleans | float = 1.0,
    routed: Floats | float,
) -> Floats:
    """Weights of the largest layer on a stage, with these shares of weights for every token and of routed weights.

    A layer of a vision encoder, or all of its projectors together, may be larger than any of the language model.
    """
    dense, expert = shared_of_layers(model, plans)
    experts = shared * expert + routed * num_experts(model) * model.expert_parameters
    layers = np.maximum(
        np.where(stage.dense_layers > 0, shared * dense, 0.0),
        np.where(stage.expert_layers > 0, experts, 0.0),
    )
    if (vision := model.vision) is None:
        return layers
    unit = max(vision.layer_parameters, vision.projector_parameters(model.hidden_size))
    on_rank = held_by_rank(unit, unit if vision.is_replicated else 0, plans.tensor_parallel)
    return np.maximum(layers, stage.has_input * shared * on_rank)
