"""What do frameworks do differently where a measurement does not say? The fields in which they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simulator.domain.choices import (
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
"""Which stage's peak is published: the one that needs most, or the one that computes the loss."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What a framework does unless a row says otherwise."""

    name: str
    """Name in the table of assumptions."""
    attention: AttentionKernel = "flash"
    copies_shared_heads: bool = False
    kernel_launch: KernelLaunch = "eager"
    has_fused_operators: bool = True
    pads_vocabulary: bool = True
    """Whether the vocabulary is padded to a multiple of 128 per tensor-parallel rank, as in Megatron-LM."""
    has_sequence_parallel: bool = True
    overlaps_tensor_comm: bool = False
    overlaps_input_gradients: bool = False
    separate_first_products: SeparateProducts = "none"
    gathers_cast_inputs: bool = True
    """By default as in Transformer Engine, which unknown frameworks are assumed to use."""
    gathers_tensor_scaled_inputs: bool = False
    """Whether 8-bit inputs and weights are gathered in 8 bits if they have one scale per tensor, but not otherwise."""
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
    """Whether gradient reduction may also hide behind the backward pass in a pipeline."""
    checkpoints_norms: bool = False
    measures_accuracy: bool = False
    zero_stage: int = 1
    pipeline_zero_stage: int | None = None
    """The ZeRO stage that full sharding amounts to in a pipeline whose stages keep gathered weights: 2, or 1 if gradients are
    reduced once, after the last backward pass; if omitted, full sharding."""
    selective_recompute: SelectiveRecompute = "attention"
    logit_bytes: int = 6
    split_logit_bytes: int | None = None
    """The same if tensor-parallel ranks split the vocabulary; if omitted, no different."""
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
    sharded_gradient_bytes: int | None = None
    """`gradient_bytes` from ZeRO-2 on, which are then copied for the update as in fp16; left out: the same."""
    most_gathered_weights: float | None = None
    weight_prefetch: WeightPrefetch = "both"
    regathers_weights: bool = False
    offloads_gradients: bool = False
    """Whether gradients are offloaded together with optimizer states."""
    sharded_copies: ShardedCopies = "none"
    keeps_stage_outputs: bool = False
    frees_stage_inputs: bool = False
    joins_logits: bool = False
    chunk_layers: int | None = None
    """Layers per chunk of its interleaved schedules, where embedding and output layer count as one each; if omitted, its
    pipelines are assumed not to be interleaved."""
    picks_chunks: bool = False
    """Whether its users choose the fastest number of interleaved chunks, and do not always state it."""
    recomputes_all: bool = False
    """Whether recomputation is a switch for all layers or none."""
    expert_dispatch: ExpertDispatch = "all_to_all"
    dispatch_across_nodes: ExpertDispatch | None = None
    """The same if expert-parallel ranks span several nodes; if omitted, no different."""
    expert_products: ExpertProducts = "grouped"
    overlaps_far_experts: bool = False
    """Whether expert traffic is hidden if expert-parallel ranks span several link domains."""
    pads_to_capacity: bool = False
    """Whether experts that drop tokens take inputs padded to their capacity, by all-to-alls (`apply_moe_token_drop`)."""
    overlaps_shared_experts: bool = False
    dispatches_in_8_bits: bool = False
    predicting_models: tuple[tuple[str, int], ...] = ()
    """Names of models, as regular expressions, and the modules of multi-token prediction that their recipes train."""
    expert_schedule: Schedule | None = None
    """Pipeline schedule for mixtures of experts; if omitted, 1F1B."""
    fp8_recipe: CastRecipe | None = None
    context_exchange: ContextExchange = "ring"
    memory_kind: MemoryKind = "allocated"
    """Kind of peak memory that its users publish."""
    memory_stage: MemoryStage = "fullest"
    """Pipeline stage whose peak they publish."""
