"""How much memory does the most loaded GPU need, and for what?

Activation formulas follow Korthikanti et al. (arXiv 2205.05198), written per tensor so that they hold for gated
blocks, grouped-query attention and experts: for GPT shapes they give the paper's s b h (10 + 24/t + 5 a s/(h t)),
less the two dropout masks that today's models do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.chunks import Chunks, ChunkWeights, chunk_weights
from simulator.job import Workload
from simulator.model import ModelShape
from simulator.plan import PlanTable, Recompute
from simulator.table import Floats, Integers, Table, total
from simulator.units import GIGA

WEIGHT_BYTES = 2.0
"""16-bit weights."""
OPTIMIZER_BYTES = 12.0
"""Adam in mixed precision: fp32 master weight and two fp32 moments."""
ACTIVATION_BYTES = 2.0
"""16-bit activations."""
LOGIT_BYTES = 6.0
"""16-bit logits and the fp32 copy from which loss and gradient are computed."""
SCORE_BYTES = 5.0
"""Per score of unfused attention: 2 softmax output, 1 dropout mask, 2 dropout output (Korthikanti et al., section 4.1)."""
FRAMEWORK_BYTES = 3.9 * GIGA
"""Context, libraries and communicators: 3.5 GB + 0.39 GB for eight ranks (aiconfigurator, measured on H100)."""
NEVER_SPLIT = 4
"""A ZeRO stage beyond all that there are."""
RESERVED_FRACTION = 0.06
"""Share of the reserved memory that fragmentation wastes: reserved = allocated / 0.94 (SimuMax)."""


@dataclass(frozen=True, kw_only=True)
class MemoryTable(Table):
    """Memory of the most loaded GPU by component, bytes `(n,)`."""

    weights_bytes: Floats
    gradients_bytes: Floats
    optimizer_bytes: Floats
    activations_bytes: Floats
    logits_bytes: Floats
    overhead_bytes: Floats
    """Framework, communicators, gather buffers and fragmentation."""

    @property
    def peak_bytes(self) -> Floats:
        """Sum of the components."""
        return total(getattr(self, name) for name in self.names())


def peak_memory(workload: Workload, plans: PlanTable, chunks: Chunks) -> MemoryTable:
    """Returns the components of the stage that needs most.

    Only the first stage of each kind can be that one: the others of its kind hold the same and fewer micro-batches.
    """
    weights = chunk_weights(workload.model, plans, chunks)
    candidates = [
        _stage_memory(workload, plans, _Stage.of(plans, chunks, weights, stage))
        for stage in chunks.unlike_stages()
    ]
    worst = np.argmax([memory.peak_bytes for memory in candidates], axis=0)
    return MemoryTable(
        **{
            name: np.choose(worst, [getattr(memory, name) for memory in candidates])
            for name in MemoryTable.names()
        }
    )


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """One stage of each design: its number, and what one rank of it holds; all `(n,)`."""

    number: Integers
    dense_layers: Floats
    expert_layers: Floats
    shared_weights: Floats
    routed_weights: Floats
    has_output: Floats

    @classmethod
    def of(cls, plans: PlanTable, chunks: Chunks, weights: ChunkWeights, stage: Integers) -> _Stage:
        return cls(
            number=stage,
            dense_layers=chunks.on_stage(chunks.num_dense_layers, stage),
            expert_layers=chunks.on_stage(chunks.num_expert_layers, stage),
            shared_weights=chunks.on_stage(weights.shared, stage) / plans.tensor_parallel,
            routed_weights=chunks.on_stage(weights.routed, stage) / plans.expert_parallel,
            has_output=chunks.on_stage(chunks.is_last, stage),
        )


def _stage_memory(workload: Workload, plans: PlanTable, stage: _Stage) -> MemoryTable:
    states = _StateBytes.of(workload, plans, stage)
    activations = _stage_activations(workload, plans, stage)
    tokens = micro_batch_tokens(workload, plans)
    logits = stage.has_output * LOGIT_BYTES * tokens * workload.model.vocabulary_size / plans.tensor_parallel
    allocated = states.weights + states.gradients + states.optimizer + states.gathered + activations + logits
    fragmentation = allocated * RESERVED_FRACTION / (1.0 - RESERVED_FRACTION)
    return MemoryTable(
        weights_bytes=states.weights,
        gradients_bytes=states.gradients,
        optimizer_bytes=states.optimizer,
        activations_bytes=activations,
        logits_bytes=logits,
        overhead_bytes=FRAMEWORK_BYTES + states.gathered + fragmentation,
    )


@dataclass(frozen=True, kw_only=True)
class _StateBytes:
    """What one rank of a stage keeps of weights, gradients and optimizer states under its ZeRO stage, `(n,)`."""

    weights: Floats
    gradients: Floats
    optimizer: Floats
    gathered: Floats
    """Weights of the layer at work and of the next one, gathered under ZeRO-3."""

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, stage: _Stage) -> _StateBytes:
        replicas = (plans.data_parallel * plans.context_parallel).astype(np.float64)
        expert_replicas = replicas * plans.tensor_parallel / plans.expert_parallel

        def held(bytes_per_weight: float, zero_stage: int) -> Floats:
            is_split = plans.zero_stage >= zero_stage
            shared = stage.shared_weights / np.where(is_split, replicas, 1.0)
            return bytes_per_weight * (
                shared + stage.routed_weights / np.where(is_split, expert_replicas, 1.0)
            )

        layers = np.maximum(stage.dense_layers + stage.expert_layers, 1.0)
        two_layers = 2.0 * (stage.shared_weights + stage.routed_weights) / layers
        return cls(
            weights=held(WEIGHT_BYTES, 3),
            gradients=_gradient_bytes(workload, plans, held),
            optimizer=held(OPTIMIZER_BYTES, 1),
            gathered=np.where(plans.zero_stage >= 3, WEIGHT_BYTES * two_layers, 0.0),
        )


def _gradient_bytes(workload: Workload, plans: PlanTable, held: Callable[[float, int], Floats]) -> Floats:
    """Gradients on one rank; under ZeRO-2 a pipeline keeps those of two chunks whole: one grows, one is being reduced."""
    split, whole = (held(float(workload.gradient_bytes), zero_stage) for zero_stage in (2, NEVER_SPLIT))
    is_grouped = (plans.zero_stage == 2) & (plans.pipeline_parallel > 1)
    return np.where(is_grouped, np.minimum(whole, split + whole * 2.0 / plans.virtual_pipeline), split)


def reduced_fraction(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the share of micro-batches after which ZeRO-2 reduces the gradients of a chunk, `(n,)`.

    Without a pipeline every micro-batch, which is what FSDP2 and DeepSpeed do by themselves. In a pipeline, gradients
    stay whole while backward passes of one chunk follow each other: all of them under 1F1B, groups of p when interleaved
    (PyTorch pull request 126166 describes both ways; Megatron-FSDP keeps partial gradients between micro-batches).
    """
    p = plans.pipeline_parallel
    in_pipeline = np.where(plans.virtual_pipeline > 1, 1.0 / p, 1.0 / num_micro_batches(workload, plans))
    return np.where(p > 1, in_pipeline, 1.0)


def micro_batch_tokens(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the tokens of one micro-batch on one context-parallel rank, `(n,)`."""
    return plans.micro_batch_size * workload.sequence_length / plans.context_parallel


def num_micro_batches(workload: Workload, plans: PlanTable) -> Integers:
    """Returns the micro-batches of one replica in one step, `(n,)`."""
    return workload.global_batch_size // (plans.data_parallel * plans.micro_batch_size)


def _stage_activations(workload: Workload, plans: PlanTable, stage: _Stage) -> Floats:
    """What the micro-batches in flight keep, and what the layer at work computes again."""
    has_experts = workload.model.experts is not None
    dense = _layer_activations(workload, plans, is_expert=False)
    expert = _layer_activations(workload, plans, is_expert=True) if has_experts else dense
    scores = _score_bytes(workload, plans)
    is_full, is_selective = (
        plans.recompute == choice.code for choice in (Recompute.FULL, Recompute.SELECTIVE)
    )
    kept_scores = np.where(is_selective, 0.0, scores)
    layer_input = _layer_input(workload, plans)
    kept_dense = np.where(is_full, layer_input, dense + kept_scores)
    kept_expert = np.where(is_full, layer_input, expert + kept_scores)
    in_flight = in_flight_chunks(workload, plans, stage.number) / plans.virtual_pipeline
    largest = np.where(stage.expert_layers > 0, np.maximum(dense, expert), dense)
    at_work = np.select([is_full, is_selective], [largest + scores, scores], 0.0)
    return in_flight * (stage.dense_layers * kept_dense + stage.expert_layers * kept_expert) + at_work


def in_flight_chunks(workload: Workload, plans: PlanTable, stage: Integers) -> Integers:
    """Returns how many (micro-batch, chunk) activations a stage holds at most, `(n,)`.

    1F1B: min(p - r, m). Interleaved: warm-up 2 (p - r - 1) + (v - 1) p forwards and the one that follows, at most m v
    (Narayanan et al., arXiv 2104.04473, section 2.2).
    """
    p, v = plans.pipeline_parallel, plans.virtual_pipeline
    warm_up = np.where(v > 1, 2 * (p - stage - 1) + (v - 1) * p, p - stage - 1)
    return np.asarray(np.minimum(warm_up + 1, num_micro_batches(workload, plans) * v))


def _layer_input(workload: Workload, plans: PlanTable) -> Floats:
    """The input of a layer, which is all that full recomputation keeps."""
    split = plans.tensor_parallel if workload.has_sequence_parallel else 1
    return ACTIVATION_BYTES * micro_batch_tokens(workload, plans) * workload.model.hidden_size / split


def _layer_activations(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Bytes that one layer keeps for its backward pass besides attention scores."""
    model, tensor = workload.model, plans.tensor_parallel
    sequence_split = tensor if workload.has_sequence_parallel else 1
    replicated = 4.0 * model.hidden_size  # inputs of both norms and of both blocks
    ffn = _expert_width(model) if is_expert else _ffn_width(model, model.ffn_hidden_size)
    width = replicated / sequence_split + (_attention_width(model, tensor) + ffn) / tensor
    return np.asarray(ACTIVATION_BYTES * micro_batch_tokens(workload, plans) * width)


def _score_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Attention scores of one layer, which only separate kernels write to memory."""
    if workload.attention != "unfused":
        return np.zeros(len(plans))
    scores = micro_batch_tokens(workload, plans) * workload.sequence_length * workload.model.num_heads
    return SCORE_BYTES * scores / plans.tensor_parallel


def _attention_width(model: ModelShape, tensor: Integers) -> Floats:
    """Values per token on all ranks: queries, keys, values and the input of the output projection.

    Where there are more ranks than key-value heads, ranks hold copies of them.
    """
    qk_dim, value_dim = model.attention_dims
    mla = model.latent_attention
    kv_heads = model.num_heads if mla else np.maximum(model.num_kv_heads, tensor)
    latent = mla.key_value_rank + mla.query_rank if mla else 0
    return np.asarray((model.num_heads + kv_heads) * (qk_dim + value_dim) + latent, dtype=np.float64)


def _ffn_width(model: ModelShape, hidden: float) -> float:
    """Values per token: outputs of the input matrices and of the activation function."""
    return model.num_ffn_matrices * hidden


def _expert_width(model: ModelShape) -> float:
    """Values per token of routed and shared experts; routed tokens are copied to and from each of their experts."""
    experts = model.experts
    if experts is None:
        return 0.0
    routed = experts.experts_per_token * (
        _ffn_width(model, experts.expert_ffn_hidden_size) + 2 * model.hidden_size
    )
    return routed + _ffn_width(model, experts.shared_ffn_hidden_size)
