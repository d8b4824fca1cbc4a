"""What is trained? The workload of a job, independent of any hardware."""

from __future__ import annotations

from typing import Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from simulator.domain.attention_span import SequenceShape
from simulator.domain.choices import (
    AttentionKernel,
    CastRecipe,
    ContextExchange,
    ExpertDispatch,
    ExpertProducts,
    GradientBytes,
    KernelLaunch,
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
from simulator.domain.documents import Documents
from simulator.domain.hardware import Precision
from simulator.domain.images import Images
from simulator.domain.lora import Lora, adapters_rule
from simulator.domain.model import ModelShape
from simulator.domain.model_flop import vision_flop_per_token
from simulator.domain.muon import Muon
from simulator.domain.recompute_modules import CORE, RESTORED, modules_rule
from simulator.domain.vision import SEEN_FROM_BOTH_SIDES, TrainedVision
from simulator.domain.workload_rules import excluded
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
    framework: str | None = None
    """Framework of the catalogue (`capplan catalog frameworks`), whose habits hold for what a job file leaves out of the fields
    below and of the search (`docs/how-to/frameworks.md`); left out: Megatron's, except for `expert_products`."""
    attention: AttentionKernel = "flash"
    """`flash`: fused, made for the architecture; `flash-2`: FlashAttention-2, slower since Hopper (PyTorch until 2025); on
    MI300X and MI355X PyTorch's kernels, slower than AMD's own; `flash-1`: fused kernels of 2022-23 (FlashAttention-1, Triton);
    `unfused`: separate kernels as in Megatron of 2021-22, with scale, mask and softmax in one; `eager`: one operator at a time
    (`attn_implementation="eager"` of Hugging Face)."""
    kernel_launch: KernelLaunch = "eager"
    """How kernels are launched. `graph`: replayed from CUDA graphs, without host time; `eager`: from Python, ahead of the
    accelerator; `eager-2022`: the same with software of 2021-22; `blocking-2022`: the same, with the host waiting for every
    kernel (`CUDA_LAUNCH_BLOCKING=1`)."""
    copies_shared_heads: bool = False
    """Whether keys and values are copied for every query head that shares them, before attention (torchtitan until 2025):
    layers then keep the copies, and context-parallel ranks exchange them."""
    has_fused_operators: bool = True
    """Whether norms, activations, positions, residuals and the operators that move tokens to experts are fused kernels
    (Megatron, compiled PyTorch)."""
    checkpoints_norms: bool = False
    """Whether norms read 32-bit copies of their input and are recomputed in the backward pass with the residual addition before
    them; fully recomputed layers do so without that addition (InternEvo: `dropout_selective_checkpoint`)."""
    measures_accuracy: bool = False
    """Whether accuracy and perplexity are computed from the logits of every micro-batch, in addition to a fused loss in 32 bits
    (InternEvo: `AccPerplex`)."""
    has_sequence_parallel: bool = True
    """Whether tensor-parallel ranks also split norms and residuals by sequence (Korthikanti et al., arXiv 2205.05198)."""
    overlaps_tensor_comm: bool = False
    """Whether tensor-parallel collectives run in pieces that overlap with their products (`tp_comm_overlap` of NeMo); needs
    sequence parallelism."""
    overlaps_input_gradients: bool = True
    """Whether the sum of the input gradient, where tensor-parallel ranks enter a block, overlaps the product for the weight
    gradient (Megatron since 2022, Transformer Engine) or precedes it (Megatron before, PyTorch's tensor parallelism)."""
    separate_first_products: SeparateProducts = "none"
    """Which products with a common input are separate, so that tensor-parallel ranks gather the input and sum its gradient for
    each. `none`: they are merged; `feed_forward`: gate and up projection of a gated network are separate (InternEvo); `all`:
    queries, keys and values are, too (Colossal-AI)."""
    overlaps_gradient_sync: bool = True
    """Whether gradients are synchronised bucket by bucket during the backward pass."""
    overlaps_parameter_gather: bool | None = None
    """Whether weights that ZeRO-1 and ZeRO-2 gather once per step arrive piece by piece during the first forward passes
    (`--overlap-param-gather` of Megatron); left out: the same as for gradients."""
    gradient_bytes: GradientBytes = 4
    """Bytes of one accumulated gradient (4: fp32 as in Megatron; 2: 16-bit; 6: both, DeepSpeed's BF16 optimizer)."""
    sync_bytes: WireBytes | None = None
    """Bytes of one gradient on the wire; left out: the same as `gradient_bytes`."""
    scatters_gradients_from: ScatterStage = 1
    """Lowest ZeRO stage that reduces gradients only to the ranks that update them (reduce-scatter); in lower stages every rank
    gets all sums (all-reduce over all replicas) (1: Megatron; 2: Colossal-AI, InternEvo; 3: DeepSpeed)."""
    bucket_weights: PositiveFloat | None = None
    """Weights per bucket of the gradient synchronisation up to ZeRO stage 1 (5.4e8: InternEvo; 5e8: DeepSpeed); left out: as in
    Megatron, at least 4e7 and 1e6 for each replica."""
    bucket_copy_bytes: float = Field(default=0.0, ge=0, le=1000)
    """Bytes moved to copy one whole gradient into a bucket, divide it there and copy it back, once per step up to ZeRO stage 1,
    in every reduction under ZeRO stage 2 (0: in place, Megatron; 8: InternEvo; 12: Colossal-AI, DeepSpeed's ZeRO; 32: its BF16
    optimizer)."""
    added_gradient_bytes: float | None = Field(default=None, ge=0, le=1000)
    """Bytes that separate kernels move to add one gradient to those of earlier micro-batches, up to ZeRO stage 1 (6: PyTorch in
    16 bits; 26: DeepSpeed's BF16 optimizer); left out: the product adds it (`gradient_accumulation_fusion` of Megatron)."""
    checks_gradients: bool = True
    """Whether a norm of all gradients that a rank holds whole is computed before their reduction, to find NaN, up to ZeRO stage
    1 and not in fp16 (Megatron without `--no-check-for-nan-in-loss-and-grad`; NeMo's performance recipes do not)."""
    divides_gradients: bool = True
    """Whether whole gradients are divided by the number of replicas before their reduction (Megatron), or inside the
    collective (NeMo's recipes; `--ddp-average-in-collective`)."""
    selective_recompute: SelectiveRecompute = "attention"
    """What selective recomputation recomputes. `attention`: its core (Megatron-LM); `every_other_product`: everything except
    the attention core and half of the products (operator-wise checkpointing of torchtitan)."""
    recompute_modules: tuple[RecomputeModule, ...] = Field(default=CORE, min_length=1)
    """What `selective_recompute: attention` recomputes (Megatron Core). `core_attn`: the attention core; `mla_up_proj`:
    up-projections of latent attention; `layernorm`: norms before latent attention and experts; `moe_act`: activation of routed
    experts; `shared_experts`; `mlp`: feed-forward blocks of layers without experts; `moe`: experts with their exchange; `mhc`:
    streams of hyper-connections."""
    mhc_recompute_layers: int | None = Field(default=None, gt=0, le=10_000)
    """Layers whose streams `mhc` recomputes together (Megatron Core: `mhc_recompute_layer_num`); left out: all of a chunk."""
    fp8_recipe: CastRecipe = "tensorwise"
    """How the inputs of 8-bit products are scaled: `tensorwise` (current scaling), `delayed`, `blockwise`, or `mxfp8`, which
    needs hardware support for block scales."""
    gathers_cast_inputs: bool = True
    """Whether tensor-parallel ranks gather inputs of 8- and 4-bit products after the cast; needs sequence parallelism."""
    keeps_cast_weights: bool = False
    """Whether 8- or 4-bit copies of weights are kept between micro-batches (Transformer Engine); not under ZeRO stage 3."""
    gathers_cast_weights: bool = False
    """Whether ranks that share weights cast them to 8 bits before they gather them (Megatron Core: `fp8_param_gather`;
    torchtitan: `enable_fsdp_float8_all_gather`); 4-bit weights are gathered in 16 bits, and so is MXFP8 except under ZeRO stage
    3."""
    recompute_method: RecomputeMethod = "block"
    """What a plan's `recompute_num_layers` counts. `block`: the first layers of every chunk, the only ones recomputed;
    `uniform`: layers of a group, of which only the first input is kept."""
    logit_bytes: int = Field(default=6, ge=2, le=32)
    """Bytes that the loss needs per logit (2: fused, in place; 4: compiled; 6: 16-bit logits and an fp32 copy; 12: not fused,
    as in PyTorch)."""
    weight_prefetch: WeightPrefetch = "both"
    """Passes in which ZeRO stage 3 prefetches the next layer's weights (`forward_prefetch` of FSDP); in others it waits."""
    regathers_weights: bool = False
    """Whether ZeRO stage 2 without a pipeline gathers the weights in the forward pass of every micro-batch, after freeing them
    in the previous backward pass (FSDP with `reshard_after_forward=False` or `SHARD_GRAD_OP`), or once per step (DeepSpeed,
    Megatron-FSDP)."""
    sharded_copies: ShardedCopies = "none"
    """Copies of gathered weights, and of gradients before their reduction, that the computation waits for under ZeRO stage 3.
    `fsdp-2`: those of PyTorch's `fully_shard` (torchtitan); `none`: collectives work in place (DeepSpeed)."""
    most_gathered_weights: PositiveFloat | None = None
    """Maximum number of gathered weights that ZeRO stage 3 holds in addition to the current product's (DeepSpeed: 1e9,
    `stage3_max_live_parameters`); left out: those of whole layers, as in PyTorch's FSDP."""
    optimizer_bytes: float = Field(default=12.0, ge=4, le=24)
    """Bytes of optimizer states per weight (12: an fp32 master weight and Adam's two moments in fp32; 10: of the master only
    the bits that a 16-bit weight lacks, as apex keeps it for NeMo; 6: such a master and 16-bit moments)."""
    update_bytes: float | None = Field(default=None, ge=0, le=16)
    """Bytes of the optimizer's copies of one gradient (0: apex; 6: DeepSpeed); left out: 4 where `gradient_bytes` is less."""
    muon: Muon | None = None
    """How Muon updates the weight matrices of the layers; left out: Adam updates all weights."""
    fuses_update: bool = False
    """Whether one kernel clips gradients, updates states and writes 16-bit weights (apex, `DistributedFusedAdam`), or separate
    kernels do (Megatron, PyTorch)."""
    step_bytes: float | None = Field(default=None, ge=0, le=1000)
    """Bytes that the optimizer step moves per weight (82: DeepSpeed in fp16); left out: as counted for separate or fused
    kernels, including work on whole gradients once per step up to ZeRO-1."""
    sync_buffer_bytes: NonNegativeFloat = 0.0
    """Additional memory for the buckets of gradient synchronisation (0: in place, as Megatron; 2e9: DeepSpeed's two)."""
    stage_layers: StageLayers = None
    """Layers of every pipeline chunk. `balanced`: embedding and output layer count as a layer each, modules of multi-token
    prediction as two; a list, in model order: only pipelines with that number of chunks are tried; left out: as even as the
    layers allow."""
    lora: Lora | None = None
    """Low-rank adaptation: the rank of its adapters and the products that have one; left out: all weights are trained."""
    activation_offload_fraction: float = Field(default=0.0, ge=0, le=1)
    """Share of the layers whose activations are offloaded to host memory until their backward pass (Megatron:
    `cpu_offloading_num_layers` over the layers of a stage; DeepSpeed: `cpu_checkpointing`)."""
    optimizer_offload_fraction: float = Field(default=0.0, ge=0, le=1)
    """Share of the optimizer states that are kept in host memory and updated by the CPU (ZeRO-Offload, Megatron)."""
    offloads_gradients: bool = False
    """Whether gradients of that share are accumulated in host memory from ZeRO-2 on, one micro-batch after the other
    (DeepSpeed), or on the accelerator until the update (Megatron)."""
    keeps_stage_outputs: bool = False
    """Whether pipeline stages keep what they sent until its backward pass (DeepSpeed), or free it (Megatron)."""
    frees_stage_inputs: bool = False
    """Whether pipeline stages free what they received (Llama 3), unless everything is recomputed from it."""
    joins_logits: bool = False
    """Whether the last pipeline stage keeps the logits of all micro-batches in 16 bits and concatenates them after the last one
    (PyTorch's pipelines without `return_outputs=False` on a whole batch; torchtitan until October 2025)."""
    context_exchange: ContextExchange | None = None
    """How context-parallel ranks attend to the whole sequence; left out: `ring`, or `all_gather` if the model has a sliding
    window or an indexer, which rings do not support. `ring`: keys and values travel around during the computation;
    `all_gather`: they are gathered before it (Llama 3); `gathered_ring`: gathered, but computed as in a ring, with gradients
    travelling around in 32 bits (PyTorch, torchtitan); `all_to_all`: parts of the sequence are exchanged for heads (DeepSpeed
    Ulysses); `hybrid`: heads inside a link domain, a ring between domains (Megatron-LM's `a2a+p2p`)."""
    expert_dispatch: ExpertDispatch = "all_to_all"
    """How tokens reach their experts. `all_to_all`: every copy travels separately; `deduplicated`: one copy to each link domain
    and rank where a token is needed (DeepEP, Hybrid-EP)."""
    overlaps_expert_exchange: bool = False
    """Whether expert traffic hides behind the computation of another micro-batch."""
    expert_products: ExpertProducts = "grouped"
    """How experts are computed. `grouped`: all experts of a rank in one kernel; `separate`: one product each, four at a time,
    in 8 or 4 bits on tokens copied so that each has whole groups of rows (Transformer Engine in Megatron Core)."""
    overlaps_shared_experts: bool = False
    """Whether expert traffic hides behind the shared experts (Megatron Core: `--moe-shared-expert-overlap`)."""
    dispatches_in_8_bits: bool = False
    """Whether tokens travel to their experts in 8 bits, and back in 16, if products are in 8 bits (DeepEP)."""
    fills_expert_rows: bool = False
    """Whether tokens reach experts in whole groups of rows, so that `separate` products in 8 or 4 bits need no padding copies
    (Hybrid-EP in Megatron Core, `moe_router_padding_for_quantization`, inputs padded to the capacity of experts)."""
    gathers_routing_maps: bool = False
    """Whether ranks that share the experts gather the routing of all their tokens before a `deduplicated` dispatch, which then
    carries a weight for each expert of a link domain with each token (Hybrid-EP)."""
    expert_tensor_parallel: int = Field(default=1, gt=0, le=10_000)
    """Ranks that share each routed expert (ETP), independent of `tensor_parallel`; 1: experts are whole."""
    expert_imbalance: float = Field(default=1.0, ge=1)
    """Tokens of the most loaded rank over those of the average one; 1: balanced routing. With e ranks sharing the experts it is
    at most e: one rank then has all tokens."""
    expert_capacity_factor: float | None = Field(default=None, ge=1)
    """Maximum number of tokens of a rank's experts over the average; further tokens are dropped. Left out: none are dropped."""
    trains_indexer: bool = True
    """Whether a loss over the chosen tokens trains the indexer of sparse attention (Megatron Core: `dsa_indexer_loss_coeff`
    with `dsa_indexer_use_sparse_loss`); false: it chooses, but does not learn."""
    documents: Documents | None = None
    """Documents packed into the sequences; left out: every sequence is one document."""
    images: Images | None = None
    """Images among the tokens of the sequences, which the encoder of a model with `vision` makes; left out: text alone, and of
    such a model only the language model is trained."""
    evaluation_every_steps: float | None = Field(default=None, ge=1)
    """Optimizer steps between two evaluations; left out: none."""
    evaluation_sequences: int = Field(default=1, gt=0, le=100_000_000)
    """Sequences of one evaluation: forward passes on the training accelerators."""

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
        experts = self.model.experts
        if self.overlaps_shared_experts and experts and experts.latent_size:
            raise ValueError(
                f"overlaps_shared_experts excludes experts that read a latent (latent_size {experts.latent_size}): Megatron "
                "Core refuses it in training; leave it out"
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

    @model_validator(mode="after")
    def _has_adapters_that_are_modelled(self) -> Self:
        if self.lora and (rule := adapters_rule(self.model, self.lora)):
            raise ValueError(rule)
        return self

    @model_validator(mode="after")
    def _excludes_what_is_not_modelled(self) -> Self:
        if rule := excluded(self):
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
    def tokens_per_step(self) -> float:
        """Tokens of one optimizer step, without the padding of packed sequences."""
        filled = self.documents.filled_fraction if self.documents else 1.0
        return float(self.global_batch_size) * self.sequence_length * filled

    @property
    def sequence_shape(self) -> SequenceShape:
        """What a sequence looks like to attention; patches see all of an image, as many as with a causal mask in two."""
        sides = SEEN_FROM_BOTH_SIDES if self.is_vision_encoder else 1
        return self.model.sequence_shape(sides * self.sequence_length, self.documents)

    @property
    def visible_shape(self) -> SequenceShape:
        """What a sequence looks like to an indexer, which scores all tokens that may be seen."""
        return self.model.visible_shape(self.sequence_length, self.documents)

    @property
    def model_flop_per_token(self) -> float:
        """Floating-point operations that training all weights needs per token, without any recomputation."""
        flop = self.model.model_flop_per_token(self.sequence_length, documents=self.documents)
        return flop + vision_flop_per_token(self, "all")

    @property
    def trained_vision(self) -> TrainedVision:
        """What is trained of a vision encoder."""
        if self.lora:
            return "nothing"
        return "all" if self.images is None or self.images.trains_encoder else "projectors"

    @property
    def is_vision_encoder(self) -> bool:
        """Whether the model is a vision encoder itself, and its sequences are the patches of an image (`encoder_workload`)."""
        return self.images is not None and self.model.vision is None

    @property
    def routes_by_maps(self) -> bool:
        """Whether the routing of all tokens is gathered before their dispatch."""
        return self.gathers_routing_maps and self.expert_dispatch == "deduplicated"

    @property
    def hides_parameter_gather(self) -> bool:
        """Whether weights that are gathered once per step arrive during the first forward passes."""
        return self.overlaps_gradient_sync and self.overlaps_parameter_gather is not False

    @property
    def chosen_exchange(self) -> ContextExchange:
        """How context-parallel ranks attend to the whole sequence."""
        has_ring = not (self.model.sliding_window or self.model.chooses_tokens)
        return self.context_exchange or ("ring" if has_ring else "all_gather")

    @property
    def offloaded_gradient_fraction(self) -> float:
        """Share of the gradients that host memory holds from ZeRO-2 on."""
        return self.optimizer_offload_fraction if self.offloads_gradients else 0.0

    @property
    def attended_kv_heads(self) -> int:
        """Heads of keys and values that attention receives; latent attention makes them for every head."""
        is_whole = self.copies_shared_heads or self.model.latent_attention is not None
        return self.model.num_heads if is_whole else self.model.num_kv_heads

    @property
    def modules_again(self) -> frozenset[RecomputeModule]:
        """Modules that selective recomputation recomputes; none if it selects operators instead.

        The core of compressed attention is none of them (`DSv4HybridAttention` of Megatron Core refuses it).
        """
        modules = frozenset(self.recompute_modules if self.selective_recompute == "attention" else ())
        return modules - frozenset(CORE) if self.model.compressed_attention else modules

    @property
    def recomputes_core_alone(self) -> bool:
        """Whether selective recomputation covers only the attention core."""
        return self.modules_again == frozenset(CORE)

    @property
    def recomputes_nothing(self) -> bool:
        """Whether selective recomputation has nothing to recompute."""
        return self.selective_recompute == "attention" and not self.modules_again

    @property
    def restores_inputs(self) -> bool:
        """Whether selective recomputation leaves inputs of products in place for later weight gradients."""
        return self.selective_recompute == "attention" and self.modules_again <= RESTORED

    @property
    def needs_layer_inputs(self) -> bool:
        """Whether selective recomputation starts from the inputs of layers."""
        is_norm = "layernorm" in self.modules_again and self.model.has_separate_norms
        return self.selective_recompute != "attention" or is_norm

    @property
    def wire_bytes(self) -> int:
        """Bytes of one gradient on the wire."""
        return self.sync_bytes or self.gradient_bytes

    @property
    def num_steps(self) -> float:
        """Optimizer steps of the whole run."""
        return self.tokens / self.tokens_per_step
