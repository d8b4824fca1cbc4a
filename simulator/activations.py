"""What do forward passes keep for backward passes, and what does the layer at work need beside it?

Korthikanti et al. (arXiv 2205.05198), written per tensor so that it holds for gated blocks, grouped-query and latent
attention, experts and 8-bit products: for GPT shapes it gives the paper's s b h (10 + 24/t + 5 a s/(h t)), less the two
dropout masks that today's models do not have. A tensor that only a matrix product needs again is kept in the number
format of the product, as Transformer Engine does. Nomenclature as in `simulator.model`; T is the tokens of a
micro-batch on one rank, t the tensor-parallel degree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.hardware import Precision
from simulator.job import Workload
from simulator.plan import PlanTable, Recompute, Schedule
from simulator.table import Floats, Integers

ACTIVATION_BYTES = 2.0
"""16-bit activations."""
CAST_ACTIVATION_BYTES = 1.0
"""An 8-bit copy of an activation, made for a product in 8 bits."""
SCORE_BYTES = 5.0
"""Per score of unfused attention: 2 softmax output, 1 dropout mask, 2 dropout output (Korthikanti et al., section 4.1)."""
SCORE_GRADIENT_BYTES = 4.0
"""Per score of unfused attention, backward: 16-bit gradients before and after the softmax."""


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Activations of one stage, bytes `(n,)`."""

    kept_bytes: Floats
    """What the micro-batches in flight keep."""
    at_work_bytes: Floats
    """What the layer at work computes again, and the widest gradients in it."""


def stage_activations(
    workload: Workload, plans: PlanTable, *, stage: Integers, dense_layers: Floats, expert_layers: Floats
) -> Activations:
    """Returns the activations of one stage of each design, which has so many layers of either kind, all `(n,)`."""
    dense = _Layer.of(workload, plans, is_expert=False)
    expert = _Layer.of(workload, plans, is_expert=workload.model.experts is not None)
    in_flight = in_flight_chunks(workload, plans, stage) / plans.virtual_pipeline
    is_kept = (plans.pipeline_parallel > 1) & workload.keeps_stage_outputs
    sent = np.where(is_kept, plans.virtual_pipeline * _layer_input(workload, plans), 0.0)
    at_work = np.where(expert_layers > 0, expert.at_work, 0.0)
    return Activations(
        kept_bytes=in_flight * (dense_layers * dense.kept + expert_layers * expert.kept + sent),
        at_work_bytes=np.maximum(at_work, np.where(dense_layers > 0, dense.at_work, 0.0)),
    )


def micro_batch_tokens(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the tokens of one micro-batch on one context-parallel rank, `(n,)`."""
    return plans.micro_batch_size * workload.sequence_length / plans.context_parallel


def num_micro_batches(workload: Workload, plans: PlanTable) -> Integers:
    """Returns the micro-batches of one replica in one step, `(n,)`."""
    return workload.global_batch_size // (plans.data_parallel * plans.micro_batch_size)


def in_flight_chunks(workload: Workload, plans: PlanTable, stage: Integers) -> Integers:
    """Returns how many (micro-batch, chunk) activations a stage holds at most, `(n,)`.

    1F1B: min(p - r, m). Interleaved: warm-up 2 (p - r - 1) + (v - 1) p forwards and the one that follows, at most m v
    (Narayanan et al., arXiv 2104.04473, section 2.2). GPipe: m v. ZB-H1: min(p, m), ZB-V: min(2 p, 2 m) on every stage,
    where activations are kept until their weight gradients are computed (Qi et al., arXiv 2401.10241).
    """
    p, v, schedule = plans.pipeline_parallel, plans.virtual_pipeline, plans.pipeline_schedule
    num_all = num_micro_batches(workload, plans) * v
    warm_up = np.where(v > 1, 2 * (p - stage - 1) + (v - 1) * p, p - stage - 1)
    choices = [schedule == choice.code for choice in (Schedule.GPIPE, Schedule.ZB_H1, Schedule.ZB_V)]
    return np.asarray(np.minimum(np.select(choices, [num_all, p, 2 * p], warm_up + 1), num_all))


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """One micro-batch in one layer on one rank, bytes `(n,)`."""

    kept: Floats
    """Kept from its forward to its backward pass."""
    at_work: Floats
    """What its backward pass needs in addition."""

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, *, is_expert: bool) -> _Layer:
        tokens, num_scores = micro_batch_tokens(workload, plans), _num_scores(workload, plans)
        scores = SCORE_BYTES * num_scores
        tensors = tokens * _kept_width(workload, plans, is_expert=is_expert)
        if workload.selective_recompute == "attention":
            selective = tensors, scores
        else:
            selective = tokens * _selected_width(workload, plans, is_expert=is_expert), tensors + scores
        kept_and_again = {
            Recompute.NONE: (tensors + scores, np.zeros_like(scores)),
            Recompute.SELECTIVE: selective,
            Recompute.FULL: (_layer_input(workload, plans), tensors + scores),
        }
        choices = [plans.recompute == choice.code for choice in kept_and_again]
        kept, again = (np.select(choices, values) for values in zip(*kept_and_again.values(), strict=True))
        gradients = tokens * _gradient_width(workload, plans, is_expert=is_expert)
        gathered = _gathered_keys(workload, plans)
        return cls(kept=kept, at_work=again + gradients + SCORE_GRADIENT_BYTES * num_scores + gathered)


def _gathered_keys(workload: Workload, plans: PlanTable) -> Floats:
    """Keys and values that context-parallel ranks gather from the others for one layer, and their gradients."""
    if workload.chosen_exchange != "all_gather":
        return np.zeros(len(plans))
    kv_heads = np.maximum(1.0, workload.model.num_kv_heads / plans.tensor_parallel)
    others = micro_batch_tokens(workload, plans) * (plans.context_parallel - 1)
    return np.asarray(2.0 * ACTIVATION_BYTES * others * kv_heads * sum(workload.model.attention_dims))


def _layer_input(workload: Workload, plans: PlanTable) -> Floats:
    """The input of a layer, which is all that full recomputation keeps, and what a stage sends to the next."""
    width = workload.model.hidden_size / _sequence_split(workload, plans)
    return np.asarray(ACTIVATION_BYTES * micro_batch_tokens(workload, plans) * width)


def _kept_width(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Bytes per token that one layer keeps besides attention scores: inputs and outputs of both norms, and the blocks."""
    product = _product_bytes(plans)
    norms = 2.0 * (ACTIVATION_BYTES + product) * workload.model.hidden_size
    latents = (ACTIVATION_BYTES + product) * _latent_width(workload)
    block = _expert_block(workload, product) if is_expert else _ffn(workload, product)
    split = _sequence_split(workload, plans)
    return np.asarray(
        (norms + latents) / split + (_attention(workload, plans) + block) / plans.tensor_parallel
    )


def _attention(workload: Workload, plans: PlanTable) -> Floats:
    """Bytes per token on all ranks: queries, keys, values and the output, of which 8-bit products need a copy.

    Where there are more ranks than key-value heads, ranks hold copies of them.
    """
    model = workload.model
    qk_dim, value_dim = model.attention_dims
    kv_heads = (
        model.num_heads if model.latent_attention else np.maximum(model.num_kv_heads, plans.tensor_parallel)
    )
    values = (model.num_heads + kv_heads) * (qk_dim + value_dim)
    copy = np.where(_is_8_bit(plans), CAST_ACTIVATION_BYTES * model.num_heads * value_dim, 0.0)
    return np.asarray(ACTIVATION_BYTES * values + copy)


def _latent_width(workload: Workload) -> float:
    """Values per token of the low-rank queries, keys and values of latent attention."""
    mla = workload.model.latent_attention
    return float(mla.key_value_rank + mla.query_rank) if mla else 0.0


def _ffn(workload: Workload, product: Floats, width: float | None = None) -> Floats:
    """Bytes per token of a feed-forward block: outputs of the input matrices, and of the activation function."""
    hidden = float(workload.model.ffn_hidden_size if width is None else width)
    return (ACTIVATION_BYTES * (workload.model.num_ffn_matrices - 1) + product) * hidden


def _expert_block(workload: Workload, product: Floats) -> Floats:
    """Bytes per token of routed experts, to each of which a copy of the token goes, and of shared ones.

    Ranks that have parts of the same expert have a copy each. Router weights are applied before the last product, so that
    its outputs need not be kept (Megatron Core).
    """
    experts = workload.model.experts
    assert experts is not None
    copies = (
        workload.expert_load
        * experts.experts_per_token
        * (
            workload.expert_tensor_parallel * product * workload.model.hidden_size
            + _ffn(workload, product, experts.expert_ffn_hidden_size)
        )
    )
    return copies + _ffn(workload, product, experts.shared_ffn_hidden_size)


def _selected_width(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Bytes per token where every other product keeps its output: queries, values, the core's output, and one wide tensor.

    Those are the first, third and fifth product of a layer; with a gate the seventh, the block's output, too.
    """
    model, experts = workload.model, workload.model.experts
    qk_dim, value_dim = model.attention_dims
    attention = model.num_heads * (qk_dim + value_dim) + model.num_kv_heads * value_dim
    output = model.hidden_size if model.is_gated else 0
    block = float(model.ffn_hidden_size + output)
    if is_expert and experts:
        width = experts.expert_ffn_hidden_size + workload.expert_tensor_parallel * output
        routed = workload.expert_load * experts.experts_per_token * width
        block = routed + experts.shared_ffn_hidden_size
    residual = model.hidden_size / _sequence_split(workload, plans)
    return np.asarray(ACTIVATION_BYTES * (residual + (attention + block) / plans.tensor_parallel))


def _gradient_width(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Bytes per token of the gradients that are alive at once: of the residual stream and of the widest tensor."""
    model, experts = workload.model, workload.model.experts
    num_inputs = model.num_ffn_matrices - 1
    wide = num_inputs * float(model.ffn_hidden_size)
    if is_expert and experts:
        wide = (
            workload.expert_load
            * experts.experts_per_token
            * (
                workload.expert_tensor_parallel * model.hidden_size
                + num_inputs * float(experts.expert_ffn_hidden_size)
            )
        )
    residual = model.hidden_size / _sequence_split(workload, plans)
    return np.asarray(ACTIVATION_BYTES * (residual + wide / plans.tensor_parallel))


def _num_scores(workload: Workload, plans: PlanTable) -> Floats:
    """Attention scores of one layer, which only separate kernels write to memory."""
    if workload.attention != "unfused":
        return np.zeros(len(plans))
    scores = micro_batch_tokens(workload, plans) * workload.sequence_length * workload.model.num_heads
    return np.asarray(scores / plans.tensor_parallel)


def _sequence_split(workload: Workload, plans: PlanTable) -> Integers | int:
    """Ranks among which norms and residuals are split."""
    return plans.tensor_parallel if workload.has_sequence_parallel else 1


def _is_8_bit(plans: PlanTable) -> Floats:
    return np.asarray(plans.precision == Precision.FP8.code)


def _product_bytes(plans: PlanTable) -> Floats:
    """Bytes of a kept input of a matrix product."""
    return np.where(_is_8_bit(plans), CAST_ACTIVATION_BYTES, ACTIVATION_BYTES)
