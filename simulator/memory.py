"""How much memory does the most loaded GPU need, and for what?

Activation formulas follow Korthikanti et al. (arXiv 2205.05198), written per tensor so that they hold for gated
blocks, grouped-query attention and experts: for GPT shapes they give the paper's s b h (10 + 24/t + 5 a s/(h t)),
less the two dropout masks that today's models do not have.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.chunks import Chunks
from simulator.job import Workload
from simulator.model import ModelShape
from simulator.plan import PlanTable, Recompute
from simulator.table import Floats, Integers, Table
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
        return np.sum(list(self.columns().values()), axis=0)


def peak_memory(workload: Workload, plans: PlanTable, chunks: Chunks) -> MemoryTable:
    """Returns the components of the stage that needs most.

    Only four stages can be that one: the first, the second, the first without dense layers of a mixture of experts,
    and the last. Stages in between hold as many layers of the same kind and fewer micro-batches.
    """
    last = plans.pipeline_parallel - 1
    first_without_dense = np.argmax(chunks.num_dense_layers == 0, axis=1) % plans.pipeline_parallel
    candidates = [
        _stage_memory(workload, plans, chunks, stage)
        for stage in (np.zeros_like(last), np.minimum(1, last), first_without_dense, last)
    ]
    worst = np.argmax([memory.peak_bytes for memory in candidates], axis=0)
    return MemoryTable(
        **{
            name: np.choose(worst, [getattr(memory, name) for memory in candidates])
            for name in MemoryTable.names()
        }
    )


def _stage_memory(workload: Workload, plans: PlanTable, chunks: Chunks, stage: Integers) -> MemoryTable:
    model = workload.model
    layers = _StageLayers.of(plans, chunks, stage)
    shared, routed = _stage_parameters(model, plans, chunks, layers)
    shards = (plans.data_parallel * plans.context_parallel).astype(np.float64)
    expert_shards = shards * plans.tensor_parallel / plans.expert_parallel
    weights_split, gradients_split, optimizer_split = (plans.zero_stage >= stage for stage in (3, 2, 1))

    def states(bytes_per_weight: float, is_split: np.ndarray) -> Floats:
        held = shared / np.where(is_split, shards, 1.0) + routed / np.where(is_split, expert_shards, 1.0)
        return bytes_per_weight * held

    gathered = np.where(weights_split, 2.0 * WEIGHT_BYTES * (shared + routed) / np.maximum(layers.total, 1.0), 0.0)
    activations = _stage_activations(workload, plans, layers, stage)
    tokens = micro_batch_tokens(workload, plans)
    logits = layers.has_output * LOGIT_BYTES * tokens * model.vocabulary_size / plans.tensor_parallel
    weights = states(WEIGHT_BYTES, weights_split)
    gradients = states(workload.gradient_bytes, gradients_split)
    optimizer = states(OPTIMIZER_BYTES, optimizer_split)
    allocated = weights + gradients + optimizer + activations + logits + gathered
    return MemoryTable(
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        logits_bytes=logits,
        overhead_bytes=FRAMEWORK_BYTES + gathered + allocated * RESERVED_FRACTION / (1.0 - RESERVED_FRACTION),
    )


def micro_batch_tokens(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the tokens of one micro-batch on one context-parallel rank, `(n,)`."""
    return plans.micro_batch_size * workload.sequence_length / plans.context_parallel


def num_micro_batches(workload: Workload, plans: PlanTable) -> Integers:
    """Returns the micro-batches of one replica in one step, `(n,)`."""
    return workload.global_batch_size // (plans.data_parallel * plans.micro_batch_size)


@dataclass(frozen=True, kw_only=True)
class _StageLayers:
    """Layers of one stage of each design, `(n,)`."""

    dense: Floats
    expert: Floats
    per_chunk: Floats
    has_embedding: Floats
    has_output: Floats

    @property
    def total(self) -> Floats:
        return self.dense + self.expert

    @classmethod
    def of(cls, plans: PlanTable, chunks: Chunks, stage: Integers) -> _StageLayers:
        chunk = np.arange(chunks.num_layers.shape[1])
        is_own = (chunk % plans.pipeline_parallel[:, None] == stage[:, None]) & (
            chunk < chunks.num_chunks[:, None]
        )
        dense = np.sum(chunks.num_dense_layers * is_own, axis=1)
        expert = np.sum(chunks.num_expert_layers * is_own, axis=1)
        return cls(
            dense=dense,
            expert=expert,
            per_chunk=(dense + expert) / plans.virtual_pipeline,
            has_embedding=np.any(chunks.is_first & is_own, axis=1).astype(np.float64),
            has_output=np.any(chunks.is_last & is_own, axis=1).astype(np.float64),
        )


def _stage_parameters(
    model: ModelShape, plans: PlanTable, chunks: Chunks, layers: _StageLayers
) -> tuple[Floats, Floats]:
    """Weights on one rank of the stage: those that every token meets, and those of routed experts."""
    shared = (
        layers.dense * model.dense_layer_parameters
        + layers.expert * model.expert_layer_shared_parameters
        + layers.has_embedding * model.embedding_parameters
        + layers.has_output * model.output_parameters
    )
    if model.has_tied_embeddings:  # the last stage keeps its own copy of the embedding unless it is also the first
        shared = shared + layers.has_output * (1 - layers.has_embedding) * model.embedding_parameters
    num_experts = model.experts.num_experts if model.experts else 0
    routed = layers.expert * num_experts * model.expert_parameters / plans.expert_parallel
    return shared / plans.tensor_parallel, routed


def _stage_activations(
    workload: Workload, plans: PlanTable, layers: _StageLayers, stage: Integers
) -> Floats:
    is_full = plans.recompute == Recompute.FULL.code
    dense = _layer_activations(workload, plans, is_expert=False)
    expert = _layer_activations(workload, plans, is_expert=True) if workload.model.experts else dense
    kept_dense = np.where(is_full, _checkpointed_activations(workload, plans), dense)
    kept_expert = np.where(is_full, _checkpointed_activations(workload, plans), expert)
    in_flight = in_flight_chunks(workload, plans, stage) / plans.virtual_pipeline
    working = np.where(is_full, np.where(layers.expert > 0, np.maximum(dense, expert), dense), 0.0)
    return in_flight * (layers.dense * kept_dense + layers.expert * kept_expert) + working


def in_flight_chunks(workload: Workload, plans: PlanTable, stage: Integers) -> Integers:
    """Returns how many (micro-batch, chunk) activations a stage holds at most, `(n,)`.

    1F1B: min(p - r, m). Interleaved: warm-up 2 (p - r - 1) + (v - 1) p forwards and the one that follows, at most m v
    (Narayanan et al., arXiv 2104.04473, section 2.2).
    """
    p, v = plans.pipeline_parallel, plans.virtual_pipeline
    warm_up = np.where(v > 1, 2 * (p - stage - 1) + (v - 1) * p, p - stage - 1)
    return np.minimum(warm_up + 1, num_micro_batches(workload, plans) * v)


def _checkpointed_activations(workload: Workload, plans: PlanTable) -> Floats:
    """The layer input that full recomputation keeps."""
    split = plans.tensor_parallel if workload.has_sequence_parallel else 1
    return ACTIVATION_BYTES * micro_batch_tokens(workload, plans) * workload.model.hidden_size / split


def _layer_activations(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Bytes that one layer keeps for its backward pass when nothing of it is computed again."""
    model = workload.model
    tokens = micro_batch_tokens(workload, plans)
    tensor = plans.tensor_parallel.astype(np.float64)
    sequence_split = tensor if workload.has_sequence_parallel else np.ones_like(tensor)
    replicated = 4 * model.hidden_size  # inputs of both norms and of both blocks
    scores = _score_bytes_per_token(workload) * (plans.recompute == Recompute.NONE.code)
    ffn = _expert_width(model) if is_expert else _ffn_width(model, model.ffn_hidden_size)
    split_values = _attention_width(model) + ffn
    return tokens * (
        ACTIVATION_BYTES * (replicated / sequence_split + split_values / tensor) + scores / tensor
    )


def _score_bytes_per_token(workload: Workload) -> float:
    if workload.attention == "flash":
        return 0.0
    return SCORE_BYTES * workload.model.num_heads * workload.sequence_length


def _attention_width(model: ModelShape) -> float:
    """Values per token: queries, keys, values and the input of the output projection."""
    qk_dim, value_dim = model.attention_dims
    heads = model.num_heads if model.latent_attention else model.num_kv_heads
    latent = model.latent_attention.key_value_rank + model.latent_attention.query_rank if model.latent_attention else 0
    return float(model.num_heads * (qk_dim + value_dim) + heads * (qk_dim + value_dim) + latent)


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
