"""How many weights does a model have? Those of its layers, of modules of multi-token prediction, and of all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.domain.blocks import PartWeights

if TYPE_CHECKING:
    from simulator.domain.model import ModelShape


def mixing_parameters(model: ModelShape) -> float:
    """Returns the weights of the blocks of a layer that mix tokens, mean over layers that differ in them."""
    if compressed := model.compressed_attention:
        return compressed.matrix_parameters(model) + compressed.other_parameters(model)
    if model.linear_attention is None:
        return model.attention_parameters + model.indexer_matrices + model.indexer_norms
    linear = model.linear_attention
    others = linear.matrix_parameters(model.hidden_size) + linear.other_parameters()
    return model.attention_share * model.attention_parameters + model.linear_share * others


def module_weights(model: ModelShape) -> PartWeights:
    """Returns the weights of a module of multi-token prediction with its layer; the ends are those of the model."""
    if not model.has_expert_modules or model.experts is None:
        shared, routed, whole = model.dense_layer_parameters, 0, model.dense_layer_whole_parameters
    else:
        shared, whole = model.expert_layer_shared_parameters, model.expert_layer_whole_parameters
        routed = model.experts.num_experts * model.expert_parameters
    return PartWeights(shared=shared + model.mtp_parameters, routed=routed, whole=whole)


def language_parameters(model: ModelShape) -> int:
    """Returns all weights but those of a vision encoder."""
    expert_layer = model.expert_layer_shared_parameters + (
        model.experts.num_experts * model.expert_parameters if model.experts else 0
    )
    num_dense, num_expert = model.num_layers_of_each_kind
    layers = num_dense * model.dense_layer_parameters + num_expert * expert_layer
    modules = model.num_mtp_layers * model.mtp_parameters
    return round(layers) + modules + model.embedding_parameters + model.output_parameters
