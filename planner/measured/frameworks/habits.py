"""What do frameworks do differently where a measurement does not say? The fields in which they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.domain.model import (
    AttentionKernel,
    CastRecipe,
    ContextExchange,
    ExpertDispatch,
    ExpertProducts,
    KernelLaunch,
    ScatterStage,
    SelectiveRecompute,
    SeparateProducts,
    ShardedCopies,
    WeightPrefetch,
)
from simulator.domain.plan import Schedule
from simulator.memory.peak import MemoryKind

FULL_OPTIMIZER_BYTES = 12.0
"""An fp32 master weight and Adam's two moments in fp32."""


MemoryStage = Literal["fullest", "last"]
"""Whose peak is published: that of the stage which needs most, or of the one that computes the loss."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What a framework does unless a row says otherwise."""

    name: str
    """How the table of assumptions calls them."""
    attention: AttentionKernel = "flash"
    copies_shared_heads: bool = False
    kernel_launch: KernelLaunch = "eager"
    has_fused_operators: bool = True
    pads_vocabulary: bool = True
    """Whether the vocabulary is filled up to a multiple of 128 for every tensor-parallel rank, as Megatron-LM does."""
    has_sequence_parallel: bool = True
    overlaps_tensor_comm: bool = False
    overlaps_input_gradients: bool = False
    separate_first_products: SeparateProducts = "none"
    gathers_cast_inputs: bool = True
    """As Transformer Engine, which those that are unknown are taken to use."""
    gathers_tensor_scaled_inputs: bool = False
    """Whether inputs and weights in 8 bits with one scale for the tensor are gathered so where others are not."""
    gathers_cast_weights: bool = False
    overlaps_gradient_sync: bool = True
    overlaps_parameter_gather: bool | None = None
    gradient_bytes: int = 4
    sync_bytes: int = 4
    checks_gradients: bool = False
    divides_gradients: bool = False
    fuses_update: bool = False
    scatters_gradients_from: ScatterStage = 1
    bucket_weights: float | None = None
    bucket_copy_bytes: float = 0.0
    pipeline_bucket_copy_bytes: float | None = None
    """The same in a pipeline in bf16; left out: as otherwise."""
    added_gradient_bytes: float | None = None
    pipeline_added_gradient_bytes: float | None = None
    """The same in a pipeline in bf16; left out: as otherwise."""
    hides_gradients_in_pipeline: bool = True
    """Whether gradients may hide behind the backward pass in a pipeline, too."""
    checkpoints_norms: bool = False
    measures_accuracy: bool = False
    zero_stage: int = 1
    pipeline_zero_stage: int | None = None
    """The stage that full sharding comes to in a pipeline, whose stages keep gathered weights: 2, or 1 where gradients are
    reduced once, behind the last backward pass; left out: full sharding."""
    selective_recompute: SelectiveRecompute = "attention"
    logit_bytes: int = 6
    split_logit_bytes: int | None = None
    """The same where tensor-parallel ranks share out the vocabulary; left out: as otherwise."""
    sync_buffer_bytes: float = 0.0
    optimizer_bytes: float = FULL_OPTIMIZER_BYTES
    splits_masters: bool = False
    """Whether these leave out the half of a master weight that is in a bf16 weight, and are all of them in other formats."""
    update_bytes: float | None = None
    fp16_update_bytes: float | None = None
    """The same of the 16-bit gradients of loss scaling."""
    step_bytes: float | None = None
    fp16_step_bytes: float | None = None
    """The same with loss scaling."""
    most_gathered_weights: float | None = None
    weight_prefetch: WeightPrefetch = "both"
    regathers_weights: bool = False
    offloads_gradients: bool = False
    """Whether gradients follow optimizer states into main memory."""
    sharded_copies: ShardedCopies = "none"
    keeps_stage_outputs: bool = False
    frees_stage_inputs: bool = False
    joins_logits: bool = False
    chunk_layers: int | None = None
    """Layers of the chunks of its interleaved schedules, embedding and output layer counting as one each; left out: its
    pipelines are not taken to be interleaved."""
    picks_chunks: bool = False
    """Whether its users interleave their pipelines in as many chunks as are fastest, and do not always say so."""
    recomputes_all: bool = False
    """Whether a switch has all layers computed again, or none."""
    expert_dispatch: ExpertDispatch = "all_to_all"
    dispatch_across_nodes: ExpertDispatch | None = None
    """The same where the ranks of experts span several nodes; left out: no other."""
    expert_products: ExpertProducts = "grouped"
    overlaps_far_experts: bool = False
    """Whether the traffic of experts is hidden where their ranks span several link domains."""
    pads_to_capacity: bool = False
    """Whether experts that drop tokens take inputs padded to their capacity, by all-to-alls (`apply_moe_token_drop`)."""
    overlaps_shared_experts: bool = False
    dispatches_in_8_bits: bool = False
    predicting_models: str = ""
    """Names of models, as a regular expression, whose recipes train one module of multi-token prediction."""
    expert_schedule: Schedule | None = None
    """Order of the pipelines of mixtures of experts; left out: 1F1B."""
    fp8_recipe: CastRecipe | None = None
    context_exchange: ContextExchange = "ring"
    memory_kind: MemoryKind = "allocated"
    """What its users publish as peak memory."""
    memory_stage: MemoryStage = "fullest"
    """Of which stage of a pipeline they publish it."""
