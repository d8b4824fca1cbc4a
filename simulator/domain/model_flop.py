"""How many operations does a model need to train on a token, whatever computes them?

Six per weight that takes part in a matrix product (Kaplan et al. 2020, arXiv 2001.08361), plus attention scores and their
product with the values: 12 L a d s, half of it when masks are counted (PaLM, arXiv 2204.02311, appendix B), with what a token
sees in the place of s where windows or packed documents shorten it. The input embedding is a look-up and counts nothing, nor do
the norms. Multi-token prediction counts, its logits included, and linear attention counts its scan, as in Megatron Core
(`num_floating_point_operations` of `training.py`). An indexer counts four per weight, since no gradient goes on from it, its
scores of all tokens that may be seen, and of their gradients those of the chosen ones. The products that mix the streams of a
residual count; sums over the streams do not. Attention to compressed tokens counts what a token sees of either kind, 12 a d for
each, and its indexer as any other; the sums of compressors count nothing. A vision encoder counts for the tokens that it makes
(`simulator.domain.vision`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.domain.compressed_attention import CompressedAttention
from simulator.domain.documents import Documents

if TYPE_CHECKING:
    from simulator.domain.model import ModelShape
    from simulator.domain.vision import TrainedVision
    from simulator.domain.workload import Workload


def flop_per_token(model: ModelShape, sequence_length: int, documents: Documents | None) -> float:
    """Returns the operations of forward and backward pass for one token, without any recomputation.

    Args:
        model: What is trained.
        sequence_length: Tokens of a sequence.
        documents: What is packed into a sequence; `None`: one document.
    """
    if compressed := model.compressed_attention:
        of_attention = _compressed_flop(model, compressed, sequence_length, documents)
        return 6.0 * model.num_matrix_parameters + of_attention
    qk_dim, value_dim = model.attention_dims
    span = model.sequence_shape(sequence_length, documents).mean_span
    num_layers = model.num_layers + model.num_mtp_layers
    pairs = span / 2.0  # a token sees those before it
    attention = 6.0 * num_layers * model.attention_share * model.num_heads * (qk_dim + value_dim) * pairs
    flop = 6.0 * model.num_matrix_parameters + attention
    if linear := model.linear_attention:
        flop += 3.0 * num_layers * model.linear_share * linear.scan_flop_per_token()
    if indexer := model.indexer:
        visible = model.visible_shape(sequence_length, documents).mean_span
        scored = visible / 2.0 + span
        flop += num_layers * model.indexer_share * indexer.flop_per_pair() * scored
        flop -= 2.0 * num_layers * model.indexer_matrices
    return flop


def vision_flop_per_token(workload: Workload, trained: TrainedVision) -> float:
    """Returns the operations of a vision encoder, of which this much is trained, on average over all tokens of a sequence.

    There are none without images.
    """
    images, vision = workload.images, workload.model.vision
    if not (images and vision):
        return 0.0
    patches = images.tokens_per_image * vision.patches_per_token
    flop = vision.flop_per_token(workload.model.hidden_size, patches, trained)
    return flop * images.tokens_per_sequence / workload.sequence_length


def _compressed_flop(
    model: ModelShape,
    compressed: CompressedAttention,
    sequence_length: int,
    documents: Documents | None,
) -> float:
    """Operations of attention to a window and to compressed tokens, beyond those of weights, for one token."""
    num_layers = model.num_layers + model.num_mtp_layers
    chosen, heavy = compressed.compressing_shares(model.num_layers)
    pairs = compressed.pairs(model.num_layers, sequence_length, documents)
    seen = pairs.window + chosen * pairs.chosen + heavy * pairs.heavy
    scored = chosen * (pairs.visible + 2.0 * pairs.chosen)
    flop = num_layers * (
        12.0 * model.num_heads * model.head_dim * seen + compressed.flop_per_scored_pair() * scored
    )
    return flop - 2.0 * num_layers * compressed.mean_indexer_parameters(model)


def matrix_parameters(model: ModelShape) -> int:
    """Returns the weights that one token uses in matrix products, as often as it does.

    Those of the output layer count once per predicted token, and half of the projection of a module of multi-token prediction
    once per stream of the residual.
    """
    looked_up = model.embedding_parameters - model.tied_parameters
    added = model.experts.experts_per_token * model.expert_bias_parameters if model.experts else 0
    others = looked_up + model.norm_parameters + model.num_layers_of_each_kind[1] * added
    num_layers = model.num_layers + model.num_mtp_layers
    if linear := model.linear_attention:
        others += round(num_layers * model.linear_share * linear.other_parameters())
    if model.indexer:
        others += round(num_layers * model.indexer_norms)
    if compressed := model.compressed_attention:
        others += round(num_layers * compressed.other_parameters(model))
    again = model.num_mtp_layers * model.vocabulary_size * model.hidden_size
    if hyper := model.hyper_connections:
        others += round(num_layers * model.num_blocks_in_turn * hyper.other_parameters)
        others += model.num_predicted_tokens * hyper.other_output_parameters
        again += model.num_mtp_layers * (hyper.num_streams - 1) * model.hidden_size**2
    return model.num_active_parameters - others + again
