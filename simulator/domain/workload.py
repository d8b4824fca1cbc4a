"""What is trained? The workload of a job, independent of any hardware."""

from __future__ import annotations

from typing import Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from simulator.domain.attention_span import SequenceShape
from simulator.domain.documents import Documents
from simulator.domain.hardware import Precision
from simulator.domain.lora import Lora, adapters_rule
from simulator.domain.model import (
    AttentionKernel,
    CastRecipe,
    ContextExchange,
    ExpertDispatch,
    ExpertProducts,
    GradientBytes,
    KernelLaunch,
    ModelShape,
    RecomputeMethod,
    RecomputeModule,
    ScatterStage,
    SelectiveRecompute,
    SeparateProducts,
    ShardedCopies,
    StageLayers,
    WeightPrefetch,
    WireBytes,
)
from simulator.domain.recompute_modules import CORE, RESTORED, modules_rule
from simulator.record import Record


class Workload(Record):
    """The training run itself, independent of any hardware."""

    model: ModelShape
    """The network."""
    tokens: float = Field(gt=0, le=1e18)
    """Tokens to train on."""
    sequence_length: int = Field(gt=0, le=100_000_000)
    """Tokens per sequence (s)."""
    global_batch_size: int = Field(gt=0, le=100_000_000)
    """Sequences per optimizer step."""
    precisions: tuple[Precision, ...] = (Precision.BF16,)
    """Number formats that the run may use for its matrix products."""
    attention: AttentionKernel = "flash"
    """`flash`: fused, made for the architecture; `flash-2`: FlashAttention-2, slower since Hopper (PyTorch until 2025),
    on MI300X and MI355X PyTorch's, slower than AMD's own;
    `flash-1`: fused ones of 2022-23 (FlashAttention-1, Triton); `unfused`: separate kernels as in Megatron of 2021-22,
    scale, mask and softmax being one; `eager`: one operator after the other (`attn_implementation="eager"` of Hugging Face)."""
    kernel_launch: KernelLaunch = "eager"
    """How kernels reach the accelerator. `graph`: replayed from CUDA graphs, without host time; `eager`: from Python,
    ahead of the accelerator; `eager-2022`: the same with the software of 2021-22; `blocking-2022`: the same, the host
    waiting for every kernel (`CUDA_LAUNCH_BLOCKING=1`)."""
    copies_shared_heads: bool = False
    """Whether keys and values are copied for every query head that shares them, ahead of attention (torchtitan until 2025):
    layers then keep the copies, and context-parallel ranks exchange them."""
    has_fused_operators: bool = True
    """Whether norms, activations, positions, residuals and what moves tokens to experts are fused kernels (Megatron, compiled
    PyTorch)."""
    checkpoints_norms: bool = False
    """Whether norms read copies of their input in 32 bits, and are computed again backward with the residual addition ahead
    of them, layers that are computed again as a whole but for the latter (InternEvo: `dropout_selective_checkpoint`)."""
    measures_accuracy: bool = False
    """Whether accuracy and perplexity are taken from the logits of every micro-batch, beside a fused loss in 32 bits
    (InternEvo: `AccPerplex`)."""
    has_sequence_parallel: bool = True
    """Whether tensor-parallel ranks also split norms and residuals by sequence (Korthikanti et al., arXiv 2205.05198)."""
    overlaps_tensor_comm: bool = False
    """Whether collectives of tensor parallelism run in pieces beside their products (`tp_comm_overlap` of NeMo); needs
    sequence parallelism."""
    overlaps_input_gradients: bool = True
    """Whether the gradient of what enters a block of tensor-parallel ranks is summed up beside the product for the gradient of
    its weights (Megatron since 2022, Transformer Engine), or ahead of it (Megatron before, PyTorch's tensor parallelism)."""
    separate_first_products: SeparateProducts = "none"
    """Which products that read the same input are apart, so that tensor-parallel ranks gather it and sum up its gradient for
    each. `none`: they are one; `feed_forward`: gate and up projection of a gated network are apart (InternEvo); `all`: those
    for queries, keys and values are, too (Colossal-AI)."""
    overlaps_gradient_sync: bool = True
    """Whether gradients are synchronised bucket by bucket behind the backward pass."""
    overlaps_parameter_gather: bool | None = None
    """Whether weights that ZeRO-1 and ZeRO-2 gather once per step come piece by piece during the first forward passes
    (`--overlap-param-gather` of Megatron); left out: where gradients are synchronised so."""
    gradient_bytes: GradientBytes = 4
    """Bytes of one accumulated gradient (4: fp32 as in Megatron; 2: 16-bit; 6: both, DeepSpeed's BF16 optimizer)."""
    sync_bytes: WireBytes | None = None
    """Bytes of one gradient on the wire; left out: the same as `gradient_bytes`."""
    scatters_gradients_from: ScatterStage = 1
    """Least ZeRO stage that reduces gradients to the ranks that update them (reduce-scatter); up to the one before, every rank
    gets all sums (all-reduce over all replicas) (1: Megatron; 2: Colossal-AI, InternEvo; 3: DeepSpeed)."""
    bucket_weights: PositiveFloat | None = None
    """Weights of the buckets in which gradients are synchronised up to ZeRO stage 1 (5.4e8: InternEvo; 5e8: DeepSpeed); left
    out: those of Megatron, at least 4e7 and 1e6 for each replica."""
    bucket_copy_bytes: float = Field(default=0.0, ge=0, le=1000)
    """Bytes that are moved to copy one whole gradient into a bucket, divide it there and copy it back, once per step up to ZeRO
    stage 1, under ZeRO stage 2 in every reduction (0: in place, Megatron; 8: InternEvo; 12: Colossal-AI, DeepSpeed's ZeRO; 32:
    its BF16 optimizer)."""
    added_gradient_bytes: float | None = Field(default=None, ge=0, le=1000)
    """Bytes that kernels of their own move to add one gradient to those of the micro-batches before, up to ZeRO stage 1 (6:
    PyTorch in 16 bits; 26: DeepSpeed's BF16 optimizer); left out: the product adds it (`gradient_accumulation_fusion` of
    Megatron)."""
    checks_gradients: bool = True
    """Whether a norm of all gradients that a rank has whole is taken ahead of their reduction, to find NaN, up to ZeRO stage 1
    and not in fp16 (Megatron without `--no-check-for-nan-in-loss-and-grad`; recipes of NeMo for measuring speed do not)."""
    divides_gradients: bool = True
    """Whether they are divided by the number of replicas ahead of it, too (Megatron), or in the collective (NeMo's recipes;
    `--ddp-average-in-collective`)."""
    selective_recompute: SelectiveRecompute = "attention"
    """What selective recomputation computes again. `attention`: its core (Megatron-LM); `every_other_product`: all but the
    attention core and half of the products (operator-wise checkpointing of torchtitan)."""
    recompute_modules: tuple[RecomputeModule, ...] = Field(default=CORE, min_length=1)
    """What `selective_recompute: attention` computes again (Megatron Core). `core_attn`: the attention core; `mla_up_proj`:
    up-projections of latent attention; `layernorm`: norms before latent attention and experts; `moe_act`: activation of routed
    experts; `shared_experts`; `mlp`: feed-forward blocks of layers without experts; `moe`: experts with their exchange."""
    fp8_recipe: CastRecipe = "tensorwise"
    """How the inputs of 8-bit products are scaled: `tensorwise` (current scaling), `delayed`, `blockwise`, or `mxfp8`, which
    needs hardware with scales for blocks."""
    gathers_cast_inputs: bool = True
    """Whether tensor-parallel ranks gather inputs of 8- and 4-bit products behind the cast; needs sequence parallelism."""
    keeps_cast_weights: bool = False
    """Whether 8- or 4-bit copies of weights stay between micro-batches (Transformer Engine); not under ZeRO stage 3."""
    gathers_cast_weights: bool = False
    """Whether ranks that share weights cast them to 8 bits ahead of their gathers (Megatron Core: `fp8_param_gather`;
    torchtitan: `enable_fsdp_float8_all_gather`); weights in 4 bits are gathered in 16, as in MXFP8 but under ZeRO stage 3."""
    recompute_method: RecomputeMethod = "block"
    """What `recompute_num_layers` of a plan counts. `block`: the first layers of every chunk, which alone are computed again;
    `uniform`: layers of a group, of which only the first input is kept."""
    logit_bytes: int = Field(default=6, ge=2, le=32)
    """Bytes that the loss needs for each logit (2: fused, in place; 4: compiled; 6: 16-bit logits and an fp32 copy; 12: not
    fused, PyTorch's)."""
    weight_prefetch: WeightPrefetch = "both"
    """Passes in which ZeRO stage 3 gathers the next layer's weights ahead (`forward_prefetch` of FSDP); in others it waits."""
    regathers_weights: bool = False
    """Whether ZeRO stage 2 without a pipeline gathers the weights in the forward pass of every micro-batch, having let go of
    them behind the backward pass before (FSDP with `reshard_after_forward=False` or `SHARD_GRAD_OP`), or once per step
    (DeepSpeed, Megatron-FSDP)."""
    sharded_copies: ShardedCopies = "none"
    """Copies of gathered weights, and of gradients ahead of their reduction, that ZeRO stage 3 lets the computation wait for.
    `fsdp-2`: those of PyTorch's `fully_shard` (torchtitan); `none`: collectives work in place (DeepSpeed)."""
    most_gathered_weights: PositiveFloat | None = None
    """Weights that ZeRO stage 3 holds gathered at most beside the product at work (DeepSpeed: 1e9,
    `stage3_max_live_parameters`); left out: those of whole layers, as PyTorch's FSDP does."""
    optimizer_bytes: float = Field(default=12.0, ge=4, le=24)
    """Bytes of the optimizer's states for one weight (12: an fp32 master weight and Adam's two moments in fp32; 10: of the
    master only the bits that a 16-bit weight lacks, as apex keeps it for NeMo; 6: such a master and 16-bit moments)."""
    update_bytes: float | None = Field(default=None, ge=0, le=16)
    """Bytes of the optimizer's copies of one gradient (0: apex; 6: DeepSpeed); left out: 4 where `gradient_bytes` is less."""
    fuses_update: bool = False
    """Whether one kernel clips gradients, updates states and writes weights of 16 bits (apex, `DistributedFusedAdam`), or one
    each (Megatron, PyTorch)."""
    step_bytes: float | None = Field(default=None, ge=0, le=1000)
    """Bytes that the optimizer's step moves for one weight (82: DeepSpeed in fp16); left out: as counted for separate or fused
    kernels, with what is done to whole gradients once per step up to ZeRO-1."""
    sync_buffer_bytes: NonNegativeFloat = 0.0
    """Memory of buckets for the synchronisation of gradients, beside these (0: in place, as Megatron; 2e9: DeepSpeed's two)."""
    stage_layers: StageLayers = None
    """Layers of every pipeline chunk. `balanced`: embedding and output layer count as a layer each, modules of multi-token
    prediction as two; a list, in model order: only pipelines with as many chunks are tried; left out: as even as the layers
    allow."""
    lora: Lora | None = None
    """Low-rank adaptation: the rank of its adapters and the products that have one; left out: all weights are trained."""
    activation_offload_fraction: float = Field(default=0.0, ge=0, le=1)
    """Share of the layers whose activations wait in main memory for their backward pass (Megatron:
    `cpu_offloading_num_layers` over the layers of a stage; DeepSpeed: `cpu_checkpointing`)."""
    optimizer_offload_fraction: float = Field(default=0.0, ge=0, le=1)
    """Share of the optimizer's states that main memory holds and processors update (ZeRO-Offload, Megatron)."""
    offloads_gradients: bool = False
    """Whether gradients of that share are added up in main memory from ZeRO-2 on, one micro-batch after the other (DeepSpeed),
    or on the accelerator until the update (Megatron)."""
    keeps_stage_outputs: bool = False
    """Whether pipeline stages keep what they have sent until its backward pass (DeepSpeed), or free it (Megatron)."""
    frees_stage_inputs: bool = False
    """Whether pipeline stages free what they received (Llama 3) unless it is what they compute everything again from."""
    joins_logits: bool = False
    """Whether the last stage of a pipeline keeps the logits of all micro-batches in 16 bits, and joins them behind the last one
    (pipelines of PyTorch that are not told `return_outputs=False` and take a batch at once; torchtitan until October 2025)."""
    context_exchange: ContextExchange | None = None
    """How context-parallel ranks attend to the whole sequence; left out: `ring`, or `all_gather` where the model has a sliding
    window, which rings do not know. `ring`: keys and values go round behind the computation;
    `all_gather`: they are gathered before it (Llama 3); `gathered_ring`: gathered, but computed as by a ring, and their
    gradients go round in 32 bits (PyTorch, torchtitan); `all_to_all`: parts of the sequence are exchanged for heads
    (DeepSpeed Ulysses); `hybrid`: heads inside a link domain, a ring between domains (Megatron-LM's `a2a+p2p`)."""
    expert_dispatch: ExpertDispatch = "all_to_all"
    """How tokens reach their experts. `all_to_all`: every copy travels on its own; `deduplicated`: one copy to each link
    domain and rank where a token is needed (DeepEP, Hybrid-EP)."""
    overlaps_expert_exchange: bool = False
    """Whether the traffic of experts hides behind the computation of another micro-batch."""
    expert_products: ExpertProducts = "grouped"
    """How experts are computed. `grouped`: all those of a rank in one kernel; `separate`: a product for each, four at a
    time, in 8 or 4 bits on tokens copied so that each has whole groups of rows (Transformer Engine in Megatron Core)."""
    overlaps_shared_experts: bool = False
    """Whether the traffic of experts hides behind the shared experts (Megatron Core: `--moe-shared-expert-overlap`)."""
    dispatches_in_8_bits: bool = False
    """Whether tokens travel to their experts in 8 bits, and back in 16, where products are in 8 bits (DeepEP)."""
    fills_expert_rows: bool = False
    """Whether tokens reach experts in whole groups of rows, so that `separate` products in 8 or 4 bits need no copies for it
    (Hybrid-EP in Megatron Core, `moe_router_padding_for_quantization`, inputs that are padded to the capacity of experts)."""
    gathers_routing_maps: bool = False
    """Whether ranks that share the experts gather where all of their tokens go ahead of a `deduplicated` dispatch, which then
    carries a weight for each expert of a link domain with each token (Hybrid-EP)."""
    expert_tensor_parallel: int = Field(default=1, gt=0, le=10_000)
    """Ranks that share each routed expert (ETP), whatever `tensor_parallel` is; 1: experts are whole."""
    expert_imbalance: float = Field(default=1.0, ge=1)
    """Tokens of the most loaded rank over those of the average one; 1: balanced routing. Where e ranks share the experts it is
    e at most: one of them then has all tokens."""
    expert_capacity_factor: float | None = Field(default=None, ge=1)
    """Tokens that a rank's experts take at most, over the average; further ones are dropped. Left out: none are dropped."""
    documents: Documents | None = None
    """What is packed into the sequences; left out: every sequence is one document."""
    evaluation_every_steps: PositiveFloat | None = None
    """Optimizer steps between two evaluations; left out: none."""
    evaluation_sequences: PositiveInt = 1
    """Sequences of one evaluation: forward passes on the accelerators that train."""

    @model_validator(mode="after")
    def _trains_at_least_one_step(self) -> Self:
        if self.tokens < self.tokens_per_step:
            raise ValueError(
                f"tokens ({self.tokens:g}) must be at least one global batch ({self.tokens_per_step:g} tokens)"
            )
        return self

    @model_validator(mode="after")
    def _stages_have_all_layers(self) -> Self:
        if isinstance(self.stage_layers, tuple) and sum(self.stage_layers) != self.model.num_layers:
            raise ValueError(
                f"stage_layers add up to {sum(self.stage_layers)} and must add up to num_layers ({self.model.num_layers})"
            )
        return self

    @model_validator(mode="after")
    def _hides_experts_once(self) -> Self:
        if self.overlaps_shared_experts and self.overlaps_expert_exchange:
            raise ValueError("overlaps_shared_experts excludes overlaps_expert_exchange; give one of them")
        return self

    @model_validator(mode="after")
    def _hides_gathers_where_gradients_are_hidden(self) -> Self:
        if self.overlaps_parameter_gather and not self.overlaps_gradient_sync:
            raise ValueError(
                "overlaps_parameter_gather needs overlaps_gradient_sync; set both or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _keeps_weights_in_one_format(self) -> Self:
        if self.keeps_cast_weights and self.gathers_cast_weights:
            raise ValueError(
                "gathers_cast_weights excludes keeps_cast_weights: weights that are gathered behind their cast are in 8 bits "
                "themselves; give one of them"
            )
        return self

    @model_validator(mode="after")
    def _routes_each_token_to_different_experts(self) -> Self:
        experts = self.model.experts
        if experts and self.expert_imbalance > (most := experts.num_experts / experts.experts_per_token):
            raise ValueError(
                f"expert_imbalance ({self.expert_imbalance:g}) must not exceed {most:g}, num_experts over "
                f"experts_per_token: no expert can take more than every token"
            )
        return self

    @property
    def tokens_per_step(self) -> float:
        """Tokens of one optimizer step, padding of packed sequences not counted."""
        filled = self.documents.filled_fraction if self.documents else 1.0
        return float(self.global_batch_size) * self.sequence_length * filled

    @property
    def sequence_shape(self) -> SequenceShape:
        """What a sequence looks like to attention."""
        return self.model.sequence_shape(self.sequence_length, self.documents)

    @property
    def model_flop_per_token(self) -> float:
        """Floating-point operations that training needs per token, without any recomputation."""
        return self.model.model_flop_per_token(self.sequence_length, documents=self.documents)

    @model_validator(mode="after")
    def _has_adapters_that_are_modelled(self) -> Self:
        if self.lora and (rule := adapters_rule(self.model, self.lora)):
            raise ValueError(rule)
        return self

    @model_validator(mode="after")
    def _has_modules_to_compute_again(self) -> Self:
        modules = self.recompute_modules
        if rule := modules_rule(self.model, modules):
            raise ValueError(rule)
        if self.selective_recompute != "attention" and modules != CORE:
            raise ValueError("recompute_modules needs selective_recompute attention; leave one of them out")
        if self.overlaps_shared_experts and "shared_experts" in modules:
            raise ValueError(
                "overlaps_shared_experts excludes recompute_modules shared_experts; give one of them"
            )
        return self

    @property
    def routes_by_maps(self) -> bool:
        """Whether the routing of all tokens is gathered ahead of their dispatch."""
        return self.gathers_routing_maps and self.expert_dispatch == "deduplicated"

    @property
    def hides_parameter_gather(self) -> bool:
        """Whether weights that are gathered once per step come during the first forward passes."""
        return self.overlaps_gradient_sync and self.overlaps_parameter_gather is not False

    @property
    def chosen_exchange(self) -> ContextExchange:
        """How context-parallel ranks attend to the whole sequence."""
        return self.context_exchange or ("all_gather" if self.model.sliding_window else "ring")

    @property
    def offloaded_gradient_fraction(self) -> float:
        """Share of the gradients that main memory holds from ZeRO-2 on."""
        return self.optimizer_offload_fraction if self.offloads_gradients else 0.0

    @property
    def attended_kv_heads(self) -> int:
        """Heads of keys and values as attention gets them."""
        return self.model.num_heads if self.copies_shared_heads else self.model.num_kv_heads

    @property
    def modules_again(self) -> frozenset[RecomputeModule]:
        """Modules that selective recomputation computes again; none where it goes by operators."""
        return frozenset(self.recompute_modules if self.selective_recompute == "attention" else ())

    @property
    def recomputes_core_alone(self) -> bool:
        """Whether selective recomputation is that of the attention core and nothing else."""
        return self.modules_again == frozenset(CORE)

    @property
    def restores_inputs(self) -> bool:
        """Whether selective recomputation leaves inputs of products in place for weight gradients that come later."""
        return self.selective_recompute == "attention" and self.modules_again <= RESTORED

    @property
    def needs_layer_inputs(self) -> bool:
        """Whether selective recomputation starts from the inputs of layers."""
        is_norm = "layernorm" in self.modules_again and self.model.latent_attention is not None
        return self.selective_recompute != "attention" or is_norm

    @property
    def wire_bytes(self) -> int:
        """Bytes of one gradient on the wire."""
        return self.sync_bytes or self.gradient_bytes

    @property
    def num_steps(self) -> float:
        """Optimizer steps of the whole run."""
        return self.tokens / self.tokens_per_step
