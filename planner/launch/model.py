"""Which arguments describe the network to Megatron-LM?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.launch.arguments import LaunchArgument, argument
from simulator.domain.hardware import Precision
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload

INDEXER_LOSS_COEFFICIENT = 0.01
"""Weight of the loss that trains the indexer, that of Megatron-LM's own test (`gpt3_mcore_te_tp2_pp2_dsa`)."""


def model_arguments(workload: Workload) -> Iterator[LaunchArgument]:
    """Yields the arguments of the network, without its experts.

    Blocks with a gate have neither biases nor dropout, as in Llama; those without have both, as in GPT, which is the default of
    Megatron-LM and what is simulated. Models with experts have biases where experts have them.
    """
    model = workload.model
    yield argument("num-layers", model.num_layers)
    yield argument("hidden-size", model.hidden_size)
    yield argument("ffn-hidden-size", model.ffn_hidden_size)
    yield from _attention(model)
    yield from _indexer(workload)
    if model.is_gated:
        yield argument("swiglu")
        yield argument("normalization", "RMSNorm")
        yield argument("hidden-dropout", 0)
        yield argument("attention-dropout", 0)
    yield from _biases(model)
    if not model.has_tied_embeddings:
        yield argument("untie-embeddings-and-output-weights")
    yield argument("padded-vocab-size", model.vocabulary_size)
    yield from _positions(workload)
    if model.num_mtp_layers:
        yield argument("mtp-num-layers", model.num_mtp_layers)


def has_biases(model: ModelShape) -> bool:
    """Returns whether products of a network have biases."""
    return model.experts.has_biases if model.experts else not model.is_gated


def _biases(model: ModelShape) -> Iterator[LaunchArgument]:
    """Grouped experts with biases exclude kernels that fuse these with dropout, or with an activation without a gate."""
    if not has_biases(model):
        yield argument("disable-bias-linear")
    elif model.experts:
        yield argument("no-bias-dropout-fusion")
        if not model.is_gated:
            yield argument("no-bias-gelu-fusion")


def _attention(model: ModelShape) -> Iterator[LaunchArgument]:
    yield argument("num-attention-heads", model.num_heads)
    if latent := model.latent_attention:
        yield argument("multi-latent-attention")
        yield argument("qk-layernorm")  # norms of the latents
        if latent.query_rank:
            yield argument("q-lora-rank", latent.query_rank)
        yield argument("kv-lora-rank", latent.key_value_rank)
        yield argument("qk-head-dim", latent.nope_head_dim)
        yield argument("qk-pos-emb-head-dim", latent.rope_head_dim)
        yield argument("v-head-dim", latent.value_head_dim)
    else:
        if model.num_kv_heads < model.num_heads:
            yield argument("group-query-attention")
            yield argument("num-query-groups", model.num_kv_heads)
        yield argument("kv-channels", model.head_dim)
    if model.has_output_gate:
        yield argument("attention-output-gate")
    match model.qk_norm:
        case "per_head":
            yield argument("qk-layernorm")
        case "unweighted":
            yield argument("qk-l2-norm")
        case _:
            pass
    if window := model.sliding_window:
        # Megatron-LM counts the tokens before the own one, and none after it.
        yield argument("window-size", f"{window.window_tokens - 1},0")
        if window.full_every:
            yield argument("window-attn-skip-freq", window.full_every)


def _indexer(workload: Workload) -> Iterator[LaunchArgument]:
    """What chooses the tokens that attention sees, with the kernels that are simulated; nothing for other attention."""
    if (indexer := workload.model.indexer) is None:
        return
    yield argument("experimental-attention-variant", "dsa")
    yield argument("no-rope-fusion")
    yield argument("dsa-kernel-backend", "cudnn")
    yield argument("dsa-indexer-n-heads", indexer.num_heads)
    yield argument("dsa-indexer-head-dim", indexer.head_dim)
    yield argument("dsa-indexer-topk", indexer.chosen_tokens)
    if indexer.layer_step > 1:
        yield argument("dsa-indexer-topk-freq", indexer.layer_step)
        yield argument("dsa-indexer-skip-topk-offset", indexer.num_leading_layers)
    if workload.trains_indexer:
        yield argument("dsa-indexer-loss-coeff", INDEXER_LOSS_COEFFICIENT)
        yield argument("dsa-indexer-use-sparse-loss")


def _positions(workload: Workload) -> Iterator[LaunchArgument]:
    num_learned = workload.model.num_learned_positions
    yield argument("position-embedding-type", "learned_absolute" if num_learned else "rope")
    yield argument("max-position-embeddings", num_learned or workload.sequence_length)


def expert_arguments(workload: Workload, plan: Plan) -> Iterator[LaunchArgument]:
    """Yields the arguments of the experts and of their exchange; nothing for a dense model."""
    experts = workload.model.experts
    if experts is None:
        return
    yield argument("num-experts", experts.num_experts)
    yield argument("moe-router-topk", experts.experts_per_token)
    if experts.experts_per_token == 1:
        yield argument("moe-router-pre-softmax")
    yield argument("moe-ffn-hidden-size", experts.expert_ffn_hidden_size)
    if experts.latent_size:
        yield argument("moe-latent-size", experts.latent_size)
    if experts.num_dense_layers or experts.layer_step > 1:
        yield argument("moe-layer-freq", _layers_with_experts(workload.model))
    if experts.shared_ffn_hidden_size:
        yield argument("moe-shared-expert-intermediate-size", experts.shared_ffn_hidden_size)
        if workload.overlaps_shared_experts:
            yield argument("moe-shared-expert-overlap")
    if experts.num_groups > 1:
        yield argument("moe-router-num-groups", experts.num_groups)
        yield argument("moe-router-group-topk", experts.groups_per_token)
    yield argument("moe-grouped-gemm")
    yield argument("moe-permute-fusion")
    yield from _exchange(workload)
    if workload.fills_expert_rows and plan.precision in {Precision.FP8, Precision.FP4}:
        yield argument("moe-router-padding-for-quantization")


def _exchange(workload: Workload) -> Iterator[LaunchArgument]:
    """How tokens travel to their experts, and how many an expert takes."""
    if workload.expert_dispatch == "deduplicated":
        yield argument("moe-token-dispatcher-type", "flex")
        backend = "hybridep" if workload.gathers_routing_maps else "deepep"
        yield argument("moe-flex-dispatcher-backend", backend)
    else:
        yield argument("moe-token-dispatcher-type", "alltoall")
    if workload.overlaps_expert_exchange:
        yield argument("overlap-moe-expert-parallel-comm")
    if workload.expert_capacity_factor:
        yield argument("moe-expert-capacity-factor", workload.expert_capacity_factor)


def _layers_with_experts(model: ModelShape) -> str:
    """Which layers have experts, as Megatron-LM reads it: `([0]*3+[1]*58)`, or one of so many.

    Example:
        >>> from simulator.catalog import model
        >>> _layers_with_experts(model("deepseek-v3"))
        '([0]*3+[1]*58)'
    """
    counts = model.num_expert_layers_among(np.arange(model.num_layers + 1))
    has_experts = np.diff(counts).tolist()
    num_dense = has_experts.index(1) if 1 in has_experts else len(has_experts)
    if all(has_experts[num_dense:]):
        return f"([0]*{num_dense}+[1]*{model.num_layers - num_dense})"
    return f"({has_experts})".replace(" ", "")
