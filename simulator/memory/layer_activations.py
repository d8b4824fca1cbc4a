"""What does the forward pass of one layer keep for its backward pass, and what more does the backward pass need?

Korthikanti et al. (arXiv 2205.05198), written per tensor so that it covers gated blocks, grouped-query and latent attention,
experts and 8-bit products. For GPT shapes it gives the paper's s b h (10 + 24/t + 5 a s/(h t)), less the two dropout masks that
today's models do not have. Blocks that read the same input keep it once, and if they share a norm, its output as well. A tensor
that only a matrix product needs again is kept in the number format of the product, as in Transformer Engine, or in 16 bits
where only an adapter needs it. Nomenclature as in `simulator.domain.model`; T is the tokens of a micro-batch on one rank, t the
tensor-parallel degree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from simulator.domain.choices import AttentionKernel
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.lora import AdaptedProduct
from simulator.domain.plan import PlanTable, Recompute, keeps_restored_inputs
from simulator.domain.workload import Workload
from simulator.layout.attended_keys import key_value_width
from simulator.layout.expert_ranks import expert_load
from simulator.layout.kept_inputs import (
    ACTIVATION_BYTES,
    WIDE_BYTES,
    copies_what_is_there,
    input_bytes,
    keeps_input,
    norm_output_bytes,
    norm_width,
    runs_one_by_one,
    separate_width,
    sequence_split,
)
from simulator.layout.micro_batches import micro_batch_tokens
from simulator.layout.recomputed_layers import layers_of_a_group, layers_of_streams
from simulator.memory.compressed_widths import (
    compressed_width,
    compressed_working_bytes,
    queries_again_width,
)
from simulator.memory.connection_widths import streams_again_width, streams_width
from simulator.memory.indexer_widths import core_width, keys_width, queries_width, working_bytes
from simulator.memory.layer_widths import gradient_widths, selected_width
from simulator.memory.linear_widths import kept_width, working_width
from simulator.table import Floats

RING_GRADIENT_BYTES = 4.0
"""Gradients of keys and values in a `gathered_ring` are exchanged in 32 bits (`convert_to_f32` of PyTorch's `_cp_options`)."""
SCORE_BYTES: Mapping[AttentionKernel, float] = {"unfused": 5.0, "eager": 6.0}
"""Kept for each score: 2 softmax output, 1 dropout mask, 2 dropout output (Korthikanti et al., section 4.1). `eager` without
dropout, with the softmax in 32 bits: 4 for its output, 2 for the factor that multiplies the values."""
SCORE_GRADIENT_BYTES: Mapping[AttentionKernel, float] = {"unfused": 4.0, "eager": 6.0}
"""The same in the backward pass: gradients before and after the softmax."""


@dataclass(frozen=True, kw_only=True)
class LayerActivations:
    """One micro-batch in one layer on one rank, bytes `(n,)`."""

    kept: Floats
    """Kept from the layer's forward to its backward pass."""
    at_work: Floats
    """What its backward pass needs in addition."""

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, *, is_expert: bool) -> LayerActivations:
        """Returns the activations of a dense layer, or of one with experts."""
        tokens = micro_batch_tokens(workload, plans)
        scores = workload.model.attention_share * _score_bytes(workload, plans, SCORE_BYTES)
        group = layers_of_a_group(workload, plans)
        tensors = tokens * _kept_width(workload, plans, is_expert=is_expert)
        in_attention, in_block = _again_widths(workload, plans, is_expert=is_expert)
        if workload.selective_recompute == "attention":
            core = scores if "core_attn" in workload.modules_again else np.zeros_like(scores)
            discarded = in_attention + in_block - _kept_instead(workload, plans, is_expert=is_expert)
            streams = tokens * streams_again_width(workload, plans, is_expert=is_expert)
            selective = (
                tensors - tokens * discarded - streams + (scores - core),
                tokens * in_block + core + layers_of_streams(workload, plans) * streams,
            )
        else:
            selective = tokens * selected_width(workload, plans, is_expert=is_expert), tensors + scores
        kept_and_again = {
            Recompute.NONE: (tensors + scores, np.zeros_like(scores)),
            Recompute.SELECTIVE: selective,
            Recompute.FULL: (layer_input_bytes(workload, plans) / group, group * (tensors + scores)),
        }
        by_code = (kept_and_again[choice] for choice in Recompute)
        kept, again = (np.choose(plans.recompute, values) for values in zip(*by_code, strict=True))
        residual, widest = (tokens * width for width in gradient_widths(workload, plans, is_expert=is_expert))
        # The backward pass has let go of the feed-forward block's tensors before it comes to attention.
        block = tokens * _block_width(workload, plans, is_expert=is_expert)
        if workload.model.compressed_attention:
            attention = compressed_working_bytes(workload, plans)
        elif workload.model.indexer:
            attention = working_bytes(workload, plans)
        else:
            scores_again = _score_bytes(workload, plans, SCORE_GRADIENT_BYTES)
            attention = scores_again + _gathered_keys(workload, plans)
        attention = attention + (plans.recompute == Recompute.SELECTIVE.code) * tokens * in_attention
        if linear := workload.model.linear_attention:
            at_once = working_width(linear, _key_heads(linear, plans)) / plans.tensor_parallel
            attention = np.maximum(attention, tokens * at_once)
        return cls(kept=kept, at_work=again + residual + np.maximum(widest, attention - block))


def both_kinds(workload: Workload, plans: PlanTable) -> tuple[LayerActivations, LayerActivations]:
    """Returns a dense layer and one with experts; twice the same where the model has no experts."""
    dense = LayerActivations.of(workload, plans, is_expert=False)
    has_experts = workload.model.experts is not None
    return dense, LayerActivations.of(workload, plans, is_expert=True) if has_experts else dense


def kept_per_layer(workload: Workload, plans: PlanTable) -> tuple[Floats, Floats]:
    """Returns what a forward pass keeps of one micro-batch in a dense layer and in one with experts, bytes `(n,)` each."""
    dense, expert = both_kinds(workload, plans)
    return dense.kept, expert.kept


def _gathered_keys(workload: Workload, plans: PlanTable) -> Floats:
    """Keys and values that context-parallel ranks gather for one layer, and their gradients.

    If gradients go round a ring, there are three 32-bit copies of a rank's own part: one summed, one to send, one arriving.
    """
    if workload.chosen_exchange not in ("all_gather", "gathered_ring"):
        return np.zeros(len(plans))
    c, has_ring = plans.context_parallel, workload.chosen_exchange == "gathered_ring"
    gradients = 3.0 * RING_GRADIENT_BYTES * (c > 1) if has_ring else ACTIVATION_BYTES * (c - 1)
    values = micro_batch_tokens(workload, plans) * key_value_width(workload, plans)
    return np.asarray((ACTIVATION_BYTES * (c - 1) + gradients) * values)


def layer_input_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the input of a layer, `(n,)`: all that full recomputation keeps, and what a stage sends to the next one.

    That is the residual, in all of its streams.
    """
    width = workload.model.stream_width / sequence_split(workload, plans)
    return np.asarray(ACTIVATION_BYTES * micro_batch_tokens(workload, plans) * width)


def _kept_width(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Bytes per token that one layer keeps, without attention scores: inputs and outputs of its norms, and the blocks."""
    product, model = input_bytes(workload, plans), workload.model
    first, second = (
        norm_output_bytes(workload, plans, behind, is_expert=is_expert)
        for behind in (AdaptedProduct.QKV, AdaptedProduct.FC1)
    )
    outputs = np.maximum(first, second) if model.num_layer_norms == 1 else model.num_mixers * first + second
    norms = (model.num_blocks_in_turn * ACTIVATION_BYTES + outputs) * model.hidden_size
    latents = model.attention_share * _latent_bytes(workload, product)
    attention = _mixers(workload, plans) / plans.tensor_parallel
    if model.indexer:
        attention = _chosen_attention(workload, plans)
    if model.compressed_attention:
        attention = compressed_width(workload, plans)
    split = sequence_split(workload, plans)
    kept = (norms + latents) / split + attention + _block_width(workload, plans, is_expert=is_expert)
    if linear := model.linear_attention:  # inputs of the products up from a low rank, whole on every rank
        kept = kept + model.linear_share * product * 2 * linear.low_rank
    kept = kept + separate_width(workload, plans) + streams_width(workload, plans)
    small = workload.lora.rank * len(workload.lora.targets) if workload.lora else 0
    return np.asarray(kept + ACTIVATION_BYTES * small)


def _block_width(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Bytes per token that the feed-forward block or the experts keep."""
    product = input_bytes(workload, plans)
    block = _expert_block(workload, plans, product) if is_expert else _ffn(workload, product)
    return np.asarray(block / plans.tensor_parallel)


def _mixers(workload: Workload, plans: PlanTable) -> Floats:
    """Bytes per token on all ranks of the blocks that mix tokens, mean over the layers of a hybrid."""
    model, attention = workload.model, _attention(workload, plans)
    if (linear := model.linear_attention) is None:
        return attention
    out = keeps_input(workload, AdaptedProduct.PROJ) * input_bytes(workload, plans) * linear.value_width
    kept = kept_width(linear, _key_heads(linear, plans)) + out
    return np.asarray(model.attention_share * attention + model.linear_share * kept)


def _key_heads(linear: LinearAttention, plans: PlanTable) -> Floats:
    return linear.key_heads_over(plans.tensor_parallel * plans.context_parallel)


def _attention(workload: Workload, plans: PlanTable) -> Floats:
    """Bytes per token on all ranks: queries, keys, values and the output.

    The output projection keeps an 8-bit copy of the attention output with `delayed` scaling; with other recipes it reads the
    original (`save_original_input` of Transformer Engine 2.6). It keeps a 16-bit copy if the output has come back from other
    ranks in exchange for heads. Norms of queries and keys also keep their inputs. If there are more ranks than key-value heads,
    ranks hold copies of them.
    """
    model, product = workload.model, input_bytes(workload, plans)
    qk_dim, value_dim = model.attention_dims
    kv_heads = (
        model.num_heads
        if model.latent_attention
        else np.maximum(workload.attended_kv_heads, plans.tensor_parallel)
    )
    values = (model.num_heads + kv_heads) * ((2 if model.qk_norm else 1) * qk_dim + value_dim)
    is_other = (plans.context_parallel > 1) & (workload.chosen_exchange in ("all_to_all", "hybrid"))
    copy = np.where(copies_what_is_there(workload, plans), product, np.where(is_other, ACTIVATION_BYTES, 0.0))
    is_read = keeps_input(workload, AdaptedProduct.PROJ)
    kept = ACTIVATION_BYTES * values + is_read * copy * model.num_heads * value_dim
    return np.asarray(kept + (ACTIVATION_BYTES + is_read * product) * model.gate_width)


def _chosen_attention(workload: Workload, plans: PlanTable) -> Floats:
    """Bytes per token of attention to chosen tokens; the input of the product out of it comes from the latents of its core."""
    model = workload.model
    values = model.num_heads * model.attention_dims[1] / plans.tensor_parallel
    of_heads = queries_width(workload, plans) + input_bytes(workload, plans) * values
    return of_heads + core_width(workload, plans) + keys_width(workload)


def _latent_bytes(workload: Workload, product: Floats) -> Floats:
    """Bytes per token of low-rank queries, keys and values: inputs of their norms, and of the products behind these."""
    mla = workload.model.latent_attention
    if mla is None:
        return np.zeros_like(product)
    return ACTIVATION_BYTES * (mla.key_value_rank + mla.query_rank) + _entering_latents(workload, product)


def _entering_latents(workload: Workload, product: Floats) -> Floats:
    """Bytes per token of the latents that enter products; those of keys and values do not where heads attend to them."""
    mla = workload.model.latent_attention
    assert mla is not None
    return product * (mla.query_rank + (0 if mla.indexer else mla.key_value_rank))


def _ffn(workload: Workload, product: Floats, width: float | None = None) -> Floats:
    """Bytes per token of a feed-forward block: outputs of the input matrices, and of the activation with and without gate."""
    hidden = float(workload.model.ffn_hidden_size if width is None else width)
    kept = keeps_input(workload, AdaptedProduct.FC2) * product
    of_gate = ACTIVATION_BYTES if runs_one_by_one(workload) else 0.0
    return (ACTIVATION_BYTES * (workload.model.num_ffn_matrices - 1) + of_gate + kept) * hidden


def _expert_block(workload: Workload, plans: PlanTable, product: Floats) -> Floats:
    """Bytes per token of routed experts, each of which gets its own copy of the token, and of shared experts.

    Ranks that have parts of the same expert have a copy each. Megatron Core applies router weights before the last product,
    whose outputs then need not be kept. Operators that run one by one apply them after it, in 32 bits.
    """
    experts = workload.model.experts
    assert experts is not None
    inputs = keeps_input(workload, AdaptedProduct.FC1) * product
    read = workload.model.expert_input_size
    weighed = WIDE_BYTES * read if runs_one_by_one(workload) else 0.0
    copies = (
        expert_load(workload, plans)
        * experts.experts_per_token
        * (
            workload.expert_tensor_parallel * inputs * read
            + _ffn(workload, product, experts.expert_ffn_hidden_size)
            + weighed
        )
    )
    latent = product * experts.latent_size  # the input of the product out of it
    return copies + latent + _ffn(workload, product, experts.shared_ffn_hidden_size)


def _again_widths(workload: Workload, plans: PlanTable, *, is_expert: bool) -> tuple[Floats, Floats]:
    """Bytes per token that modules of attention, and those of the second block, recompute instead of keeping.

    Delayed weight gradients need norms and activations until then, so recomputing these saves no memory for long.
    """
    modules, model = workload.modules_again, workload.model
    product, split, t = input_bytes(workload, plans), sequence_split(workload, plans), plans.tensor_parallel
    is_released = ~keeps_restored_inputs(plans)
    # Hyper-connections that are computed again take norms into their groups.
    has_norms = "layernorm" in modules and "mhc" not in modules
    attention, block = np.zeros(len(plans)), np.zeros(len(plans))
    if model.latent_attention and "mla_up_proj" in modules:
        qk_dim, value_dim = model.attention_dims
        heads = ACTIVATION_BYTES * model.num_heads * (2 * qk_dim + value_dim) / t
        of_latents = _entering_latents(workload, product) / split + heads
        if model.indexer:
            # Inputs of the products and of their norms are apart, and the key is as wide as what makes it.
            of_latents = queries_width(workload, plans)
        attention = attention + model.attention_share * of_latents
    if model.compressed_attention and "mla_up_proj" in modules:
        attention = attention + queries_again_width(workload)
    if model.indexer and "core_attn" in modules:
        attention = attention + core_width(workload, plans)
    if model.has_separate_norms and has_norms:
        width = norm_width(workload, plans, AdaptedProduct.QKV, is_expert=is_expert)
        attention = attention + is_released * model.num_mixers * width
    if (has_norms and is_expert) or ("mlp" in modules and not is_expert):
        block = block + is_released * norm_width(workload, plans, AdaptedProduct.FC1, is_expert=is_expert)
    if ("moe" if is_expert else "mlp") in modules:
        return attention, block + _block_width(workload, plans, is_expert=is_expert)
    return attention, block + (_expert_modules(workload, plans, product) / t if is_expert else 0.0)


def _expert_modules(workload: Workload, plans: PlanTable, product: Floats) -> Floats:
    """Bytes per token on all ranks that activations of routed experts and shared experts recompute."""
    experts, modules = workload.model.experts, workload.modules_again
    assert experts is not None
    again = np.zeros(len(plans))
    if "moe_act" in modules:
        kept = keeps_input(workload, AdaptedProduct.FC2) * product * ~keeps_restored_inputs(plans)
        copies = expert_load(workload, plans) * experts.experts_per_token
        again = again + copies * kept * experts.expert_ffn_hidden_size
    if "shared_experts" in modules:
        again = again + _ffn(workload, product, experts.shared_ffn_hidden_size)
    return again


def _kept_instead(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Bytes per token that recomputed modules keep as their input: the shared rotary key, and the experts' 16-bit input."""
    modules, mla = workload.modules_again, workload.model.latent_attention
    instead = np.zeros(len(plans))
    if mla and mla.indexer is None and "mla_up_proj" in modules:
        instead = instead + workload.model.attention_share * ACTIVATION_BYTES * mla.rope_head_dim
    # Norms that are computed again, by themselves or with hyper-connections, are freed there.
    if is_expert and "moe" in modules and not {"layernorm", "mhc"} & set(modules):
        width = ACTIVATION_BYTES * workload.model.hidden_size / sequence_split(workload, plans)
        instead = instead + width - norm_width(workload, plans, AdaptedProduct.FC1, is_expert=is_expert)
    return instead


def _score_bytes(
    workload: Workload, plans: PlanTable, bytes_of_score: Mapping[AttentionKernel, float]
) -> Floats:
    """Bytes of the attention scores of one layer, which only separate kernels write to memory."""
    scores = micro_batch_tokens(workload, plans) * workload.sequence_length * workload.model.num_heads
    return np.asarray(bytes_of_score.get(workload.attention, 0.0) * scores / plans.tensor_parallel)
