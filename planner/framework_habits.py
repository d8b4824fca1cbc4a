"""How does a framework train where a measurement does not say? Attention kernel, gradients, sharding.

The habits are those of the published configurations behind docs/validation.md where there are any, and otherwise the
frameworks' documented defaults. Two were looked up because steps came out too fast: that hosts of DeepSpeed's pipelines of
2021-22 wait for their kernels, and that vTrain's model of one node does not fill up its vocabulary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from planner import deepspeed_bytes
from planner.framework_releases import LAST_COPIED_HEADS_YEAR, LAST_EAGER_LOSS_YEAR, release_year
from planner.kernel_releases import attention_kernel
from planner.measured_sharding import LAST_STAGE, named_stage, sharded_copies
from planner.software_families import DEEPSPEED
from simulator.memory import MemoryKind
from simulator.model import (
    AttentionKernel,
    CastRecipe,
    ContextExchange,
    ExpertDispatch,
    ExpertProducts,
    KernelLaunch,
    SelectiveRecompute,
    ShardedCopies,
    WeightPrefetch,
)
from simulator.plan import Schedule

OLD_FAMILIES = ("volta", "ampere")
"""Architectures that Megatron-LM trained on before it had fused attention (2023)."""
FULL_OPTIMIZER_BYTES = 12.0
"""An fp32 master weight and Adam's two moments in fp32."""


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
    gathers_cast_inputs: bool = True
    """As Transformer Engine, which those that are unknown are taken to use."""
    gathers_tensor_scaled_inputs: bool = False
    """Whether inputs in 8 bits with one scale for the tensor are gathered so where others are not."""
    overlaps_gradient_sync: bool = True
    gradient_bytes: int = 4
    sync_bytes: int = 4
    zero_stage: int = 1
    keeps_weights_in_pipelines: bool = False
    """Whether sharded weights of a pipeline are gathered once per step, and gradients reduced once behind its last backward
    pass: full sharding then holds and sends what ZeRO-1 does."""
    selective_recompute: SelectiveRecompute = "attention"
    logit_bytes: int = 6
    split_logit_bytes: int | None = None
    """The same where tensor-parallel ranks share out the vocabulary; left out: as otherwise."""
    sync_buffer_bytes: float = 0.0
    optimizer_bytes: float = FULL_OPTIMIZER_BYTES
    update_bytes: float | None = None
    fp16_update_bytes: float | None = None
    """The same of the 16-bit gradients of loss scaling."""
    step_bytes: float | None = None
    fp16_step_bytes: float | None = None
    """The same with loss scaling."""
    most_gathered_weights: float | None = None
    weight_prefetch: WeightPrefetch = "both"
    offloads_gradients: bool = False
    """Whether gradients follow optimizer states into main memory."""
    sharded_copies: ShardedCopies = "none"
    keeps_stage_outputs: bool = False
    frees_stage_inputs: bool = False
    chunk_layers: int | None = None
    """Layers of the chunks of its interleaved schedules, embedding and output layer counting as one each; left out: its
    pipelines are not taken to be interleaved."""
    expert_dispatch: ExpertDispatch = "all_to_all"
    expert_products: ExpertProducts = "grouped"
    overlaps_far_experts: bool = False
    """Whether the traffic of experts is hidden where their ranks span several link domains."""
    pads_to_capacity: bool = False
    """Whether experts that drop tokens take inputs padded to their capacity, by all-to-alls (`apply_moe_token_drop`)."""
    dispatches_in_8_bits: bool = False
    expert_schedule: Schedule | None = None
    """Order of the pipelines of mixtures of experts; left out: 1F1B."""
    fp8_recipe: CastRecipe | None = None
    context_exchange: ContextExchange = "ring"
    memory_kind: MemoryKind = "allocated"
    """What its users publish as peak memory."""


_OF_2022 = Habits(
    name="Megatron of 2021-22",
    attention="unfused",
    kernel_launch="eager-2022",
    has_sequence_parallel=False,
    overlaps_gradient_sync=False,
    zero_stage=0,
)
_VTRAIN = replace(_OF_2022, name="vTrain", pads_vocabulary=False)
"""Its code splits GPT-2's 50,257 words without filling them up (`src/model/gpt_modeling.py`)."""
_VTRAIN_RUNS = replace(
    _OF_2022, name="vTrain's runs (Megatron-DeepSpeed)", fp16_step_bytes=deepspeed_bytes.STEP
)
"""Its iterations on several nodes ran in DeepSpeed."""
_MEGATRON_LM = Habits(name="Megatron-LM", overlaps_gradient_sync=False, expert_products="separate")
"""Megatron-LM overlaps the synchronisation of gradients only on request (`--overlap-grad-reduce`); experts of Megatron are
those of Transformer Engine."""
_MEGATRON_CORE = Habits(name="Megatron-Core", overlaps_tensor_comm=True, expert_products="separate")
"""Its published runs overlap data-, tensor- and pipeline-parallel traffic (README of NVIDIA/Megatron-LM; MegaScale, arXiv
2402.15627)."""
_NEMO = Habits(
    name="NeMo, Megatron-Bridge",
    overlaps_tensor_comm=True,
    gradient_bytes=2,
    sync_bytes=2,
    expert_products="separate",
    pads_to_capacity=True,
)
_BRIDGE = replace(_NEMO, expert_dispatch="deduplicated", overlaps_far_experts=True, logit_bytes=2)
"""Its recipes take DeepEP or Hybrid-EP, and overlap them on H100, where experts span several nodes; their loss is that of
Transformer Engine, which works in place on 16-bit logits (`cross_entropy_fusion_impl = "te"`)."""
_NEMO_APEX = replace(_NEMO, optimizer_bytes=10.0, update_bytes=0.0)
"""Until 24.05 its optimizer was that of apex, which works on gradients as they are and keeps of a bf16 weight's master only
the other 16 bits (`store_param_remainders` in `megatron_gpt_model.py` and `distributed_fused_adam.py`)."""
_NEMO_2023 = Habits(
    name="NeMo 23 on A100",
    attention="unfused",
    has_sequence_parallel=False,
    optimizer_bytes=_NEMO_APEX.optimizer_bytes,
    update_bytes=_NEMO_APEX.update_bytes,
)
_SHARDED = Habits(
    name="FSDP",
    attention="flash-2",
    copies_shared_heads=True,
    has_fused_operators=False,
    pads_vocabulary=False,
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    zero_stage=3,
    logit_bytes=10,
    memory_kind="reserved",
)
"""PyTorch computes the loss in 32 bits without fusion, and attention with FlashAttention-2, as transformers and llm-foundry do;
torchtitan, torchtune, litgpt and transformers copy shared keys and values for it. torchtitan prints the allocator's peak."""
_FOUNDRY = replace(_SHARDED, name="llm-foundry", copies_shared_heads=False, sync_bytes=2, logit_bytes=4)
"""Its configurations compute and reduce in pure 16 bits (`mixed_precision: PURE`), which FSDP does with copies: shards of
weights and gradients stay in 32 bits, so that its benchmark counts 16 bytes a weight (`scripts/train/benchmarking`). The loss
is fused by default (`fused_crossentropy`) and keeps logits and their gradients in 16 bits."""
_SHARDING = "automodel|torchtitan|torchtune|olmo|litgpt|fairscale|metaseq"
"""NeMo Automodel and torchtune are PyTorch's FSDP2, not Megatron; metaseq is fairscale's FSDP."""
_SHARDING_OF_ANY = "fsdp|axolotl"
"""Words that others use, too: Megatron and JAX have an FSDP of their own, axolotl runs DeepSpeed as well."""
_HUGGING_FACE = (
    r"^(?!.*(deepspeed|megatron|ddp)).*(\baccelerate\b|hugging ?face|\bhf\b|\btrainer\b|\btransformers\b)"
)
"""Hugging Face's Trainer and Accelerate shard by PyTorch's FSDP unless they are told to use another engine."""
_NEMO_PROPER = r"^(?!.*automodel).*(nemo|megatron-?bridge)"
_COMPILED = replace(_SHARDED, has_fused_operators=True)
_TORCHTITAN = replace(
    _SHARDED,
    name="torchtitan",
    has_sequence_parallel=True,
    gathers_tensor_scaled_inputs=True,
    selective_recompute="every_other_product",
    context_exchange="gathered_ring",
    split_logit_bytes=16,
    keeps_weights_in_pipelines=True,
)
"""Tensor parallelism always splits norms by sequence, and gathers 8 bits where float8 has scales of tensors, which is its
default (`apply_tp`, `enable_float8_tensorwise_tp`). Its `selective` checkpointing works operator by operator by default.
Context parallelism is PyTorch's, whose ring gathers keys and values (`context_parallel_rotate_method: allgather`), until August
2026 (its pull request 4218). In a pipeline weights are not sharded again (`fsdp_reshard_after_forward: default`), nor are
gradients reduced before a stage's last backward pass (`backward_maybe_with_nosync` of `torch.distributed.pipelining`); PyTorch
pull request 124319 calls that ZeRO-1. Its tensor-parallel loss, unless compiled, holds four fp32 tensors of logits backward:
log-softmax, exponential, gradient, their sum (`_nll_loss_and_log_softmax_backward` of PyTorch)."""
_COMPILED_TORCHTITAN = replace(_TORCHTITAN, has_fused_operators=True)
_JAX = Habits(
    name="JAX",
    kernel_launch="graph",
    pads_vocabulary=False,
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    zero_stage=3,
)
_DEEPSPEED = Habits(
    name="DeepSpeed",
    attention="flash-2",
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    gradient_bytes=deepspeed_bytes.BF16_GRADIENT,
    sync_bytes=2,
    sync_buffer_bytes=deepspeed_bytes.BUFFERS,
    fp16_update_bytes=deepspeed_bytes.UPDATE,
    fp16_step_bytes=deepspeed_bytes.STEP,
    most_gathered_weights=deepspeed_bytes.LIVE_WEIGHTS,
    offloads_gradients=True,
    keeps_stage_outputs=True,
    memory_kind="device",
)
_EARLY_DEEPSPEED = replace(
    _DEEPSPEED,
    name="Megatron-DeepSpeed of 2021-22",
    attention="unfused",
    kernel_launch="blocking-2022",
    overlaps_gradient_sync=False,
    zero_stage=1,
)
_EARLY_ZERO_3 = replace(
    _EARLY_DEEPSPEED,
    name="DeepSpeed's ZeRO-3 of 2021",
    kernel_launch="eager-2022",
    zero_stage=3,
    weight_prefetch="none",
)
"""Each of its gathers waited for the one before, host included (DeepSpeed pull request 1188, June 2021); prefetching that
overlaps came with pull request 1453 (October 2021). Megatron-LM had no ZeRO-3 of its own then."""
_META = Habits(name="Meta's of Llama 3", frees_stage_inputs=True, chunk_layers=1)
"""An interleaved schedule whose first chunk has the embedding only, and the last the output layer, after a layer less on
either; inputs and outputs of stages are freed; gradients are summed and reduced in 32 bits (arXiv 2407.21783, 3.3.2)."""
_SIXTEEN_BIT_ZERO = Habits(
    name="InternEvo, Colossal-AI",
    attention="flash-2",
    pads_vocabulary=False,
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    gradient_bytes=2,
    sync_bytes=2,
)
"""Gradients are reduced in their 16 bits in buckets behind the backward pass, and cast to 32 bits for the update
(`HybridZeroOptimizer` of InternEvo, `overlap_sync_grad` in its configurations; the optimizer is Colossal-AI's). Tensor
parallelism does not split norms by sequence in its default mode, `mtp`. Attention is FlashAttention-2 (`flash_attn`) since
January 2024, and 1.0.5 before (InternLM's `third_party/flash-attention`). Norms and rotary positions are fused (apex,
`rotary_emb`); SwiGLU was not until September 2023, which is left out."""
_NANOTRON = Habits(name="nanotron", pads_vocabulary=False, gathers_cast_inputs=False)
"""Megatron's layouts with gradients that are summed in 32 bits (`accumulate_grad_in_fp32`) and reduced behind the backward
pass; `make_vocab_size_divisible_by` is 1 by default."""
_HAI_LLM = Habits(
    name="HAI-LLM",
    pads_vocabulary=False,
    has_sequence_parallel=False,
    gathers_cast_inputs=False,
    optimizer_bytes=8.0,
    expert_dispatch="deduplicated",
    overlaps_far_experts=True,
    dispatches_in_8_bits=True,
    expert_schedule=Schedule.ZB_V,
    fp8_recipe="blockwise",
)
"""DeepSeek-V3's report (arXiv 2412.19437): DualPipe hides the dispatch of experts across nodes (section 3.2.1; `zb_v` is the
nearest schedule, and DeepSeek-V2's were zero-bubble, too), tokens travel once to a node (3.2.2) in 8 bits (3.3.3), blocks of
128 share a scale (3.3.1), and Adam's moments have 16 bits beside a master weight of 32 (3.3.3)."""
_OTHER = Habits(name="unknown framework")


@dataclass(frozen=True, kw_only=True)
class _Framework:
    """Habits of a framework, by what its name contains."""

    words: str
    habits: Habits
    early: Habits | None = None
    """Those of releases until `last_early_year`; where a name has no date, of architectures up to 2022."""
    last_early_year: int = 2022
    on_old_families: Habits | None = None
    """Those of the same release on architectures up to 2022."""
    needs_release: bool = False
    """Whether releases before the usual ones had other habits."""


_FRAMEWORKS = (
    _Framework(words="vtrain.*deepspeed", habits=_VTRAIN_RUNS),
    _Framework(words="vtrain", habits=_VTRAIN),
    _Framework(words="megatron-?deepspeed|gpt-?neo-?x", habits=_DEEPSPEED, early=_EARLY_DEEPSPEED),
    _Framework(words=_NEMO_PROPER + r".*(?<![\d.])23\.", habits=_NEMO_APEX, on_old_families=_NEMO_2023),
    _Framework(words=r"^(?!.*automodel).*nemo.*(?<![\d.])24\.0[1-5]", habits=_NEMO_APEX),
    _Framework(words=r"megatron-?bridge", habits=_BRIDGE),
    _Framework(words=f"{_NEMO_PROPER}|nvidia release", habits=_NEMO, needs_release=True),
    _Framework(
        words="composer|foundry",
        habits=_FOUNDRY,
        early=replace(_FOUNDRY, attention="flash-1"),
        last_early_year=2023,
    ),
    _Framework(words="torchtitan.*compile|compile.*torchtitan", habits=_COMPILED_TORCHTITAN),
    _Framework(words=f"({_SHARDING}).*compile|compile.*({_SHARDING})", habits=_COMPILED),
    _Framework(words="torchtitan", habits=_TORCHTITAN),
    _Framework(words=r"\blingua\b", habits=_COMPILED),  # FSDP2 with `compile: true`
    _Framework(words=_SHARDING, habits=_SHARDED),
    _Framework(
        words="intern-?(evo|lm)",
        habits=_SIXTEEN_BIT_ZERO,
        early=replace(_SIXTEEN_BIT_ZERO, attention="flash-1"),
        last_early_year=2023,
    ),
    _Framework(words="colossal", habits=_SIXTEEN_BIT_ZERO),
    _Framework(words="nanotron", habits=_NANOTRON),
    _Framework(words=r"\bhai-?llm", habits=_HAI_LLM),
    _Framework(words="maxtext|jax|paxml|levanter|t5x|praxis", habits=_JAX),
    _Framework(words=DEEPSPEED, habits=_DEEPSPEED),
    _Framework(words=r"megatron.*fsdp|fsdp.*megatron|mcore.*fsdp|fsdp.*mcore", habits=_MEGATRON_CORE),
    _Framework(words="megatron-?lm.*core", habits=_MEGATRON_LM),
    _Framework(words="megatron-?lm|^megatron$", habits=_MEGATRON_LM, early=_OF_2022),
    _Framework(words="megatron|mcore|primus|megascale", habits=_MEGATRON_CORE),
    _Framework(words=f"({_SHARDING_OF_ANY}).*compile|compile.*({_SHARDING_OF_ANY})", habits=_COMPILED),
    _Framework(words=f"{_SHARDING_OF_ANY}|{_HUGGING_FACE}", habits=_SHARDED),
    _Framework(words=r"^meta internal$|^meta.*llama.?3", habits=_META),
)
"""Frameworks in the order in which their names are looked for; the first that fits counts."""


def habits_of(framework: str, family: str, precision: str, *, is_fully_sharded: bool = False) -> Habits:
    """Returns the habits of a framework on an architecture (`Accelerator.family`) in a number format.

    Args:
        framework: its name, perhaps with a release; FSDP and stages of ZeRO in it hold where nothing else is said.
        family: architecture of the accelerators.
        precision: number format of the products.
        is_fully_sharded: whether a run is known to shard weights, too (ZeRO stage 3).
    """
    name = framework.lower()
    habits = _by_name(name, is_old=family in OLD_FAMILIES)
    stage = named_stage(name)
    if (is_fully_sharded or stage == LAST_STAGE) and habits in (_OF_2022, _EARLY_DEEPSPEED):
        habits = _EARLY_ZERO_3
    elif stage is not None:
        habits = replace(habits, zero_stage=stage)
    attention = attention_kernel(habits.attention, family, name, precision)
    year = release_year(name) or 0
    copies_heads = habits.copies_shared_heads and year <= LAST_COPIED_HEADS_YEAR
    habits = replace(_in_format(habits, precision), attention=attention, copies_shared_heads=copies_heads)
    habits = replace(habits, sharded_copies=sharded_copies(name))
    has_compiled_loss = habits.has_fused_operators and year > LAST_EAGER_LOSS_YEAR
    return replace(habits, split_logit_bytes=None) if has_compiled_loss else habits


def _in_format(habits: Habits, precision: str) -> Habits:
    # 8-bit products of PyTorch need its compiler
    if precision in ("fp8", "fp4") and habits in (_SHARDED, _TORCHTITAN):
        return replace(habits, has_fused_operators=True)
    if precision != "bf16":  # the half that apex leaves out of a master weight is in a bf16 weight
        habits = replace(habits, optimizer_bytes=FULL_OPTIMIZER_BYTES)
    if precision == "fp16":  # gradients are 16-bit from end to end, with loss scaling
        return replace(
            habits,
            gradient_bytes=2,
            sync_bytes=2,
            update_bytes=habits.fp16_update_bytes,
            step_bytes=habits.fp16_step_bytes,
        )
    return habits


def in_pipeline(habits: Habits) -> Habits:
    """Returns the habits of a framework where the model is split over a pipeline.

    What PyTorch reduces behind the last backward pass of a stage, nothing of that stage hides: its final callback waits.
    """
    if not habits.keeps_weights_in_pipelines:
        return habits
    return replace(habits, zero_stage=1, overlaps_gradient_sync=False)


def tells_habits(framework: str) -> bool:
    """Returns whether a name says enough: that of a framework which is known, with a release where habits changed."""
    name = framework.lower()
    found = _framework(name)
    is_dated = release_year(name) is not None
    return found is not None and (is_dated or not (found.needs_release or found.early))


def _by_name(name: str, *, is_old: bool) -> Habits:
    found = _framework(name)
    if found is None:
        return _OTHER
    if is_old and found.on_old_families is not None:
        return found.on_old_families
    year = release_year(name)
    is_early = is_old if year is None else year <= found.last_early_year
    return found.early if found.early and is_early else found.habits


def _framework(name: str) -> _Framework | None:
    return next((found for found in _FRAMEWORKS if re.search(found.words, name)), None)
