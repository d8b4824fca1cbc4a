"""How much memory does the most loaded GPU need, and for what?

Model states under ZeRO, activations (`simulator.activations`), the loss, what the layer at work and the optimizer step
need for a moment, what the allocator cannot use, and the framework itself. Publishers measure different sums of these:
`MemoryTable` has the one for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np

from simulator.activations import num_micro_batches, stage_activations
from simulator.casts import cast_weight_bytes, gathered_weight_value_bytes
from simulator.chunks import Chunks, ChunkWeights, held_by_rank, layers_and_modules, split_layers
from simulator.expert_ranks import expert_ranks, routed_shard_group
from simulator.loss_memory import embedding_at_work, logits_bytes
from simulator.model import ModelShape
from simulator.plan import Plan, PlanTable, shard_group
from simulator.table import Booleans, Floats, Integers, Table, total
from simulator.trained_weights import StepWeights
from simulator.units import GIGA
from simulator.workload import Workload

WEIGHT_BYTES = 2.0
"""16-bit weights."""
MASTER_BYTES = 4.0
"""fp32 master weight, a part of the optimizer's states; under FSDP the sharded weight itself."""
FULL_GRADIENT_BYTES = 4.0
"""A gradient in 32 bits, on which optimizers work."""
FIRST_OFFLOADED_STAGE = 2
"""ZeRO stage from which gradients may be added up in main memory (DeepSpeed's `copy_grads_in_partition`)."""
FRAMEWORK_BYTES = 3.9 * GIGA
"""Context, libraries and communicators: 3.5 GB + 0.39 GB for eight ranks (aiconfigurator, measured on H100)."""
NEVER_SPLIT = 4
"""A ZeRO stage beyond all that there are."""
RESERVED_FRACTION = 0.06
"""Share of the reserved memory that fragmentation wastes: reserved = allocated / 0.94 (SimuMax)."""

MemoryKind = Literal["allocated", "reserved", "device"]
"""What a published peak counts: live tensors, what their allocator holds, or all that the device has given away."""


@dataclass(frozen=True, kw_only=True)
class MemoryTable(Table):
    """Memory of the most loaded GPU by component, bytes `(n,)`."""

    weights_bytes: Floats
    gradients_bytes: Floats
    optimizer_bytes: Floats
    activations_bytes: Floats
    """What the micro-batches in flight keep for their backward passes."""
    logits_bytes: Floats
    """Logits and what the loss keeps of them, and inputs of the final norm and the output layer, on the last stage."""
    workspace_bytes: Floats
    """The layer at work: what it computes again, its gradients, weights gathered for it, buffers of their traffic."""
    update_bytes: Floats
    """Copies of gradients, which the optimizer makes when activations are gone. Their large pieces do not fit
    where those were, so that the allocator holds both."""
    fragmentation_bytes: Floats
    """Reserved by the allocator, and of no use."""
    framework_bytes: Floats
    """Context, libraries and communicators, which no allocator knows of."""

    @property
    def allocated_bytes(self) -> Floats:
        """Peak of live tensors, as `torch.cuda.max_memory_allocated` counts."""
        states = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        passes = self.activations_bytes + self.logits_bytes + self.workspace_bytes
        return np.asarray(states + np.maximum(passes, self.update_bytes))

    @property
    def reserved_bytes(self) -> Floats:
        """Peak of the allocator, as `torch.cuda.max_memory_reserved` counts."""
        return self.peak_bytes - self.framework_bytes

    def peak_of(self, kind: MemoryKind, capacity_bytes: Floats | float = math.inf) -> Floats:
        """Returns the peak as a publisher counted it on devices of a size, `(n,)` or one."""
        match kind:
            case "allocated":
                return self.allocated_bytes
            case "reserved":
                return self.peak_on(capacity_bytes) - self.framework_bytes
            case "device":
                return self.peak_on(capacity_bytes)
        assert_never(kind)

    @property
    def peak_bytes(self) -> Floats:
        """Sum of the components: what `nvidia-smi` shows, and what the device of a plan has to have."""
        return total(getattr(self, name) for name in self.names())

    @property
    def needed_bytes(self) -> Floats:
        """The least with which a step runs: PyTorch's allocator gives back what it holds unused before it fails."""
        return np.asarray(self.allocated_bytes + self.framework_bytes)

    def peak_on(self, capacity_bytes: Floats | float) -> Floats:
        """Returns the peak on devices of a size, `(n,)` or one: beyond it only where what is needed does not fit."""
        return np.maximum(self.needed_bytes, np.minimum(self.peak_bytes, capacity_bytes))


def peak_memory(workload: Workload, plans: PlanTable, chunks: Chunks) -> MemoryTable:
    """Returns the components of the stage that needs most.

    Only the first stage of each kind can be that one: the others of its kind hold the same and fewer micro-batches.
    """
    candidates = memory_of_stage(workload, plans, chunks, chunks.unlike_stages())
    worst, rows = np.argmax(candidates.peak_bytes, axis=0), np.arange(len(plans))
    return MemoryTable(
        **{name: getattr(candidates, name)[worst, rows] for name in MemoryTable.names()},
    )


def memory_by_stage(workload: Workload, plan: Plan) -> MemoryTable:
    """Returns the components of every pipeline stage of one plan, a row each from the first stage to the last."""
    num_stages = plan.pipeline_parallel
    plans = PlanTable.from_plans([plan]).take(np.zeros(num_stages, dtype=np.intp))
    chunks = split_layers(workload.model, plans, workload.stage_layers)
    return memory_of_stage(workload, plans, chunks, np.arange(num_stages))


def memory_of_stage(workload: Workload, plans: PlanTable, chunks: Chunks, stage: Integers) -> MemoryTable:
    """Returns the components of one stage of each plan, `(n,)`, or of s stages, `(s, n)`."""
    return _stage_memory(workload, plans, _Stage.of(workload, plans, chunks, stage))


@dataclass(frozen=True, kw_only=True)
class _Stage:
    """One stage of each design: its number, and what one rank of it holds; all `(n,)`, or `(s, n)` for s stages of each."""

    number: Integers
    dense_layers: Floats
    expert_layers: Floats
    """Layers, those of multi-token prediction among them."""
    shared_weights: Floats
    routed_weights: Floats
    """Of the weights that are trained."""
    frozen_weights: tuple[Floats, Floats] | None
    """Shared and routed ones that are not."""
    chunks: Chunks
    """All chunks of the designs."""
    has_input: Floats
    has_output: Floats
    modules: Floats | float
    """Modules of multi-token prediction."""

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, chunks: Chunks, stage: Integers) -> _Stage:
        def on_rank(part: ChunkWeights) -> tuple[Floats, Floats]:
            return (
                chunks.on_stage(part.shared_on_rank(plans), stage),
                chunks.on_stage(part.routed, stage) / expert_ranks(workload, plans),
            )

        weights = StepWeights.of(workload, plans, chunks)
        shared, routed = on_rank(weights.trained)
        dense, expert, modules = layers_and_modules(workload.model, chunks, stage)
        return cls(
            number=stage,
            dense_layers=dense,
            expert_layers=expert,
            shared_weights=shared,
            routed_weights=routed,
            frozen_weights=on_rank(weights.frozen) if weights.frozen else None,
            chunks=chunks,
            has_input=chunks.on_stage(chunks.is_first, stage),
            has_output=chunks.on_stage(chunks.is_last, stage),
            modules=modules,
        )


def _stage_memory(workload: Workload, plans: PlanTable, stage: _Stage) -> MemoryTable:
    states = _StateBytes.of(workload, plans, stage)
    activations = stage_activations(
        workload,
        plans,
        stage=stage.number,
        dense_layers=stage.chunks.on_stage(stage.chunks.num_dense_layers, stage.number),
        expert_layers=stage.chunks.on_stage(stage.chunks.num_expert_layers, stage.number),
        chunks=stage.chunks,
    )
    logits, waiting = (stage.has_output * each for each in logits_bytes(workload, plans))
    weights = _weights_at_work(workload, plans, stage)
    # The loss has let go of its logits before the last layer begins its backward pass, and the chunk of its layers before the
    # embedding does: the largest counts. Gradients that products add to sums in 32 bits themselves leave a tensor of their
    # size behind (`get_dummy_wgrad` of Transformer Engine), others are gone with their layer.
    stays = (plans.zero_stage < 3) & (workload.gradient_bytes == FULL_GRADIENT_BYTES)
    embedding, at_work = embedding_at_work(
        workload, plans, activations, has_input=stage.has_input, modules=stage.modules
    )
    embedding = embedding - np.where(stays, 0.0, weights)
    beyond_logits = np.maximum(0.0, np.maximum(at_work, embedding) - logits)
    used = {
        "weights_bytes": states.weights,
        "gradients_bytes": states.gradients,
        "optimizer_bytes": states.optimizer,
        "activations_bytes": activations.kept_bytes,
        "logits_bytes": logits + waiting,
        "workspace_bytes": workload.sync_buffer_bytes + beyond_logits + weights,
        "update_bytes": states.update,
    }
    fragmentation = total(used.values()) * RESERVED_FRACTION / (1.0 - RESERVED_FRACTION)
    return MemoryTable(
        **used,
        fragmentation_bytes=fragmentation,
        framework_bytes=np.full_like(fragmentation, FRAMEWORK_BYTES),
    )


@dataclass(frozen=True, kw_only=True)
class _StateBytes:
    """What one rank of a stage keeps of weights, gradients and optimizer states under its ZeRO stage, `(n,)`."""

    weights: Floats
    gradients: Floats
    optimizer: Floats
    update: Floats
    """Copies of the gradients that the rank updates weights with."""

    @classmethod
    def of(cls, workload: Workload, plans: PlanTable, stage: _Stage) -> _StateBytes:
        ranks, routed_ranks = shard_group(plans), routed_shard_group(workload, plans)

        def split(weights: tuple[Floats, Floats], zero_stage: int) -> Floats:
            is_split, (shared, routed) = plans.zero_stage >= zero_stage, weights
            return shared / np.where(is_split, ranks, 1.0) + routed / np.where(is_split, routed_ranks, 1.0)

        def held(bytes_per_weight: float, zero_stage: int) -> Floats:
            return bytes_per_weight * split((stage.shared_weights, stage.routed_weights), zero_stage)

        # Fully sharded weights have the format of their gradients, and those in 32 bits are their own master copy.
        is_its_own_master = (plans.zero_stage >= 3) & (workload.gradient_bytes >= FULL_GRADIENT_BYTES)
        on_device = 1.0 - workload.optimizer_offload_fraction
        weights = np.where(is_its_own_master, held(MASTER_BYTES, 3), held(WEIGHT_BYTES, 3))
        if stage.frozen_weights:
            weights = weights + WEIGHT_BYTES * split(stage.frozen_weights, 3)
        if workload.keeps_cast_weights:
            weights = weights + cast_weight_bytes(workload, plans) * _layer_weights(workload, plans, stage)
        return cls(
            weights=weights,
            gradients=_gradient_bytes(workload, plans, held),
            optimizer=on_device
            * (held(workload.optimizer_bytes, 1) - np.where(is_its_own_master, held(MASTER_BYTES, 3), 0.0)),
            update=on_device * held(copied_gradient_bytes(workload), 1),
        )


def copied_gradient_bytes(workload: Workload) -> float:
    """Returns the bytes of the copies that the optimizer makes of one gradient."""
    if workload.update_bytes is not None:
        return workload.update_bytes
    return FULL_GRADIENT_BYTES if workload.gradient_bytes < FULL_GRADIENT_BYTES else 0.0


def _layer_weights(workload: Workload, plans: PlanTable, stage: _Stage) -> Floats:
    """Weights of the layers of one rank of a stage, without embedding and output layer, whole."""
    model = workload.model
    dense, expert = _shared_of_layers(model, plans)
    routed = stage.expert_layers * _num_experts(model) * model.expert_parameters
    projections = stage.modules * model.mtp_parameters / plans.tensor_parallel
    shared = stage.dense_layers * dense + stage.expert_layers * expert + projections
    return np.asarray(shared + routed / expert_ranks(workload, plans))


def _shared_of_layers(model: ModelShape, plans: PlanTable) -> tuple[Floats, Floats]:
    """Weights on one rank that every token meets of a dense layer, and of one with experts, `(n,)` each."""
    return (
        held_by_rank(model.dense_layer_parameters, model.dense_layer_whole_parameters, plans.tensor_parallel),
        held_by_rank(
            model.expert_layer_shared_parameters, model.expert_layer_whole_parameters, plans.tensor_parallel
        ),
    )


def _gradient_bytes(workload: Workload, plans: PlanTable, held: Callable[[float, int], Floats]) -> Floats:
    """Gradients on one rank; under ZeRO-2 a pipeline keeps those of two chunks whole: one grows, one is being reduced."""
    split, whole = (held(float(workload.gradient_bytes), zero_stage) for zero_stage in (2, NEVER_SPLIT))
    is_grouped = (plans.zero_stage == 2) & (plans.pipeline_parallel > 1)
    kept = np.where(is_grouped, np.minimum(whole, split + whole * 2.0 / plans.virtual_pipeline), split)
    if away := workload.offloaded_gradient_fraction:
        return np.where(plans.zero_stage >= FIRST_OFFLOADED_STAGE, 1.0 - away, 1.0) * kept
    return kept


def _weights_at_work(workload: Workload, plans: PlanTable, stage: _Stage) -> Floats:
    """Gradients of the layer at work, and what ZeRO-3 gathers for it; the output layer is a unit of its own."""
    gradients = 0.0 if stage.frozen_weights else _gradients_at_work(workload, plans, stage)
    is_sharded = plans.zero_stage >= 3
    if not np.any(is_sharded):
        return gradients + np.zeros_like(stage.has_output)
    return np.where(is_sharded, _gathered_bytes(workload, plans, stage), 0.0) + gradients


def _gradients_at_work(workload: Workload, plans: PlanTable, stage: _Stage) -> Floats:
    """Gradients of the layer at work in 16 bits, before they are added up or reduced; adapters have next to none.

    Grouped products of experts make one at a time. ZeRO-3 reduces those of a whole layer in the format of the wire; with
    `most_gathered_weights` they leave one by one.
    """
    model, output = workload.model, _output_weights(workload, plans, stage)
    one_expert = 1.0 / (_num_experts(model) * workload.expert_tensor_parallel)
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


def _gathered_bytes(workload: Workload, plans: PlanTable, stage: _Stage) -> Floats:
    """Bytes that ZeRO-3 gathers: of the layer at work and, prefetching backward, of one more; or of products, if it says so."""
    model, output = workload.model, _output_weights(workload, plans, stage)
    is_cast = workload.lora is None and workload.gradient_bytes >= FULL_GRADIENT_BYTES
    shared, routed = _copied(workload, plans, is_cast=is_cast)
    layer = _largest_layer(model, plans, stage, shared=shared, routed=routed / expert_ranks(workload, plans))
    num_layers = 2.0 if workload.weight_prefetch in ("both", "backward") else 1.0
    layers = np.minimum(num_layers * layer, _layer_weights(workload, plans, stage))
    gathered = gathered_weight_value_bytes(workload, plans) * layers + WEIGHT_BYTES * shared * output
    if workload.most_gathered_weights is None:
        return np.asarray(gathered)
    product = np.maximum(_largest_product(model, plans, stage), output)
    return np.minimum(gathered, WEIGHT_BYTES * (workload.most_gathered_weights + product))


def _copied(workload: Workload, plans: PlanTable, *, is_cast: bool) -> tuple[Booleans, Booleans]:
    """Which shared and routed weights ZeRO-3 copies for the layer at work, `(n,)` or `(1,)`: those that two ranks share.

    A rank that has them for itself computes with what it keeps (`NoGatherHandle` of DeepSpeed), unless that is a master in
    32 bits, which it casts. FSDP2 copies them all the same (`tensor.copy_(all_gather_input)`).
    """
    if is_cast or workload.sharded_copies == "fsdp-2":
        every = np.ones(1, dtype=np.bool_)
        return every, every
    return shard_group(plans) > 1, routed_shard_group(workload, plans) > 1.0


def _output_weights(workload: Workload, plans: PlanTable, stage: _Stage) -> Floats:
    """Weights of the output layer on one rank."""
    weights = workload.model.vocabulary_size * workload.model.hidden_size
    return np.asarray(stage.has_output * weights / plans.tensor_parallel)


def _largest_product(model: ModelShape, plans: PlanTable, stage: _Stage) -> Floats:
    """Weights of the largest product of a layer on one rank; expert by expert, as their products are."""
    qk_dim, value_dim = model.attention_dims
    attention = model.num_heads * qk_dim + model.num_kv_heads * (qk_dim + value_dim)
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
    stage: _Stage,
    *,
    shared: Booleans | float = 1.0,
    routed: Floats | float,
) -> Floats:
    """Weights of the larger kind of layer on a stage, with shares of those that every token meets and of routed ones."""
    dense, expert = _shared_of_layers(model, plans)
    experts = shared * expert + routed * _num_experts(model) * model.expert_parameters
    return np.maximum(
        np.where(stage.dense_layers > 0, shared * dense, 0.0),
        np.where(stage.expert_layers > 0, experts, 0.0),
    )


def _num_experts(model: ModelShape) -> int:
    return model.experts.num_experts if model.experts else 1


def reduced_fraction(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the share of micro-batches after which ZeRO-2 reduces the gradients of a chunk, `(n,)`.

    Without a pipeline every micro-batch, which is what FSDP2 and DeepSpeed do by themselves. In a pipeline, gradients
    stay whole while backward passes of one chunk follow each other: all of them under 1F1B, groups of p when interleaved
    (PyTorch pull request 126166 describes both ways; Megatron-FSDP keeps partial gradients between micro-batches).
    """
    p = plans.pipeline_parallel
    in_pipeline = np.where(plans.virtual_pipeline > 1, 1.0 / p, 1.0 / num_micro_batches(workload, plans))
    return np.where(p > 1, in_pipeline, 1.0)
