"""How does a framework train where a measurement does not say? Attention kernel, gradients, sharding.

The habits are those of the published configurations behind docs/validation.md where there are any, and otherwise the
frameworks' documented defaults. Two habits were looked up because steps came out too fast: hosts of DeepSpeed's pipelines of
2021-22 wait for their kernels, and vTrain's model of one node does not pad its vocabulary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from planner.measured.frameworks.deepspeed_habits import (
    COLOSSAL_AI,
    DEEPSPEED,
    EARLY_DEEPSPEED,
    EARLY_ZERO_3,
    GPT_NEOX,
    INTERN_EVO,
    OF_TRAINERS,
)
from planner.measured.frameworks.families import DEEPSPEED as DEEPSPEED_WORDS
from planner.measured.frameworks.families import LLAMA_3_REPORT, TRAINERS
from planner.measured.frameworks.fsdp_habits import (
    AUTOMODEL,
    COMPILED,
    COMPILED_LOSS_BYTES,
    COMPILED_TORCHTITAN,
    FOUNDRY,
    SHARDED,
    TORCHTITAN,
)
from planner.measured.frameworks.habits import FULL_OPTIMIZER_BYTES, Habits
from planner.measured.frameworks.kernel_releases import attention_kernel
from planner.measured.frameworks.megatron_habits import (
    BRIDGE,
    EARLY_MEGATRON,
    MEGATRON_2022,
    MEGATRON_CORE,
    MEGATRON_LM,
    NANOTRON,
    NEMO,
    NEMO_2023,
    NEMO_APEX,
    PRIMUS,
    VTRAIN,
    VTRAIN_RUNS,
)
from planner.measured.frameworks.other_habits import ALPA, GAUDI, HAI_LLM, HAI_LLM_16_BITS, JAX, META, UNKNOWN
from planner.measured.frameworks.release_numbers import Month
from planner.measured.frameworks.releases import (
    FIRST_SEQUENCE_PARALLEL_YEAR,
    LAST_COPIED_HEADS_YEAR,
    LAST_EAGER_LOSS_YEAR,
    LAST_JOINED_LOGITS,
    LAST_PLAIN_EXCHANGE,
    release_month,
    release_year,
)
from planner.measured.layout.sharding import LAST_STAGE, named_stage, sharded_copies

GAUDI_FAMILY = "gaudi"
OLD_FAMILIES = ("volta", "ampere")
"""Architectures that Megatron-LM trained on before it had fused attention (2023)."""
_SHARDING = "torchtitan|torchtune|olmo|litgpt|fairscale|metaseq"
"""torchtune is PyTorch's FSDP2; metaseq is fairscale's FSDP."""
_FUSED_BY_DEFAULT = r"\blingua\b|fms-?fsdp|olmo-?core|tiny-?llama"
"""Lingua's configurations say `compile: true`, fms-fsdp's default is `use_torch_compile = True`, all 46 training scripts of
OLMo-core that say something of it say `compile_model=True`, and TinyLlama has fused norms, rotary positions and loss of its own
(`lit_gpt`)."""
_SHARDING_OF_ANY = "fsdp"
"""A word that others use, too: Megatron and JAX have an FSDP of their own."""
_ENGINE = "deepspeed(?![- ]?ulysses)"
_HUGGING_FACE = rf"^(?!.*(deepspeed|megatron|ddp)).*({TRAINERS})"
"""They shard by PyTorch's FSDP unless they are told to use another engine."""
_META_OF_LLAMA_3 = (
    r"^meta\b(?!.*\b20([01]\d|2[0-3])\b)(\W*(ai|platforms|internal|in-?house|proprietary|production|training|stack"
    r"|software|system|4d|parallel(ism)?|[tpcd]p|fsdp|\+|20\d\d))*\W*$"
    rf"|^meta\b.*llama.?[34]|{LLAMA_3_REPORT}"
)
"""What tables call software that has no public name, in runs since 2024; earlier ones are of LLaMA and Llama 2."""
_NEMO_PROPER = r"^(?!.*automodel).*(nemo|megatron-?bridge)"


@dataclass(frozen=True, kw_only=True)
class _Framework:
    """Habits of a framework, by what its name contains and when the stated release came out."""

    words: str
    habits: Habits
    early: Habits | None = None
    """Habits of releases until `last_early_year`; for a name without a date, on architectures up to 2022."""
    last_early_year: int = 2022
    on_old_families: Habits | None = None
    """Habits of the same release on architectures up to 2022."""
    first: Month | None = None
    """Month before which no release has these habits; nor does one without a date."""
    last: Month | None = None
    """Month after which no release has these habits; nor does one without a date."""
    needs_release: bool = False
    """Whether releases before the usual ones had other habits."""


_LESS_THAN_16_BITS = ("fp8", "fp4")
_OF_MEGATRON = (MEGATRON_LM.name, MEGATRON_CORE.name, NEMO.name)
"""Its documentation takes DeepEP for experts across nodes, and Hybrid-EP for those of NVL72 (`README.md` of
`megatron/core/transformer/moe`); NeMo's recipe of DeepSeek-V3 takes DeepEP on Hopper (`pretrain_deepseek_v3.py`)."""
_JAX_WORDS = (
    r"maxtext|\bjax\b|\bpax(ml)?\b|levanter|t5x|praxis|axlearn|lingvo|pathways|flax|haiku|gspmd|easylm"
    r"|mesh[- ]?tensorflow"
)
_FRAMEWORKS = (
    _Framework(words="vtrain.*deepspeed", habits=VTRAIN_RUNS),
    _Framework(words="vtrain", habits=VTRAIN),
    _Framework(words="megatron-?deepspeed", habits=DEEPSPEED, early=EARLY_DEEPSPEED),
    _Framework(words=r"gpt-?neo-?x|\bneo-?x\b", habits=GPT_NEOX, early=EARLY_DEEPSPEED),
    _Framework(words=_NEMO_PROPER, last=(2023, 12), habits=NEMO_APEX, on_old_families=NEMO_2023),
    _Framework(words=_NEMO_PROPER, last=(2024, 5), habits=NEMO_APEX),
    _Framework(words=r"megatron-?bridge", habits=BRIDGE),
    _Framework(words=f"{_NEMO_PROPER}|nvidia release", habits=NEMO, needs_release=True),
    _Framework(
        words="composer|foundry|mosaic",
        habits=FOUNDRY,
        early=replace(FOUNDRY, attention="flash-1"),
        last_early_year=2023,
    ),
    _Framework(words="automodel", habits=AUTOMODEL),
    _Framework(words="torchtitan.*compile|compile.*torchtitan", habits=COMPILED_TORCHTITAN),
    _Framework(words=f"({_SHARDING}).*compile|compile.*({_SHARDING})", habits=COMPILED),
    _Framework(words="torchtitan", habits=TORCHTITAN),
    _Framework(words=_FUSED_BY_DEFAULT, habits=COMPILED),
    _Framework(words=_SHARDING, habits=SHARDED),
    _Framework(words="intern-?evo", habits=INTERN_EVO),  # since January 2024
    _Framework(
        words="intern-?lm",
        habits=INTERN_EVO,
        early=replace(INTERN_EVO, attention="flash-1"),
        last_early_year=2023,
    ),
    _Framework(words="colossal", habits=COLOSSAL_AI),
    _Framework(words="nanotron", habits=NANOTRON),
    _Framework(words=r"\bhai-?llm", habits=HAI_LLM),
    _Framework(words=r"\balpa\b", habits=ALPA),
    _Framework(words=_JAX_WORDS, habits=JAX),
    _Framework(words=rf"^(?!.*megatron)(?=.*({TRAINERS})).*{_ENGINE}", habits=OF_TRAINERS),
    _Framework(words=DEEPSPEED_WORDS, habits=DEEPSPEED),
    _Framework(words="^megascale", habits=MEGATRON_CORE),
    _Framework(words="primus", habits=PRIMUS),
    _Framework(words=r"megatron.*fsdp|fsdp.*megatron|mcore.*fsdp|fsdp.*mcore", habits=MEGATRON_CORE),
    _Framework(words="megatron-?lm.*core", habits=MEGATRON_LM),
    _Framework(words="megatron-?lm", first=(2022, 1), last=(2022, 12), habits=MEGATRON_2022),
    _Framework(words="megatron-?lm", habits=MEGATRON_LM, early=EARLY_MEGATRON),
    _Framework(words="megatron|mcore", habits=MEGATRON_CORE),
    _Framework(words=_META_OF_LLAMA_3, habits=META),
    _Framework(words=f"({_SHARDING_OF_ANY}).*compile|compile.*({_SHARDING_OF_ANY})", habits=COMPILED),
    _Framework(words=f"{_SHARDING_OF_ANY}|{_HUGGING_FACE}", habits=SHARDED),
)
"""Frameworks in the order in which their names are looked for; the first match counts."""


def habits_of(
    framework: str,
    family: str,
    precision: str,
    *,
    is_fully_sharded: bool = False,
    first_year: int | None = None,
) -> Habits:
    """Returns the habits of a framework on an architecture (`Accelerator.kernel_family`) in a number format.

    Args:
        framework: its name, possibly with a release; FSDP and ZeRO stages in it apply if nothing else is stated.
        family: architecture of the accelerators.
        precision: number format of the products.
        is_fully_sharded: whether a run is known to shard weights, too (ZeRO stage 3).
        first_year: year before which nobody can have run it, and so of which no release without a date is.
    """
    name = framework.lower()
    is_old = family in OLD_FAMILIES
    is_of_jax = family == "tpu" and _framework(name) is None
    habits = JAX if is_of_jax else _by_name(name, is_old=is_old, first_year=first_year or 0)
    if habits is HAI_LLM and precision not in _LESS_THAN_16_BITS:
        habits = HAI_LLM_16_BITS
    if family == GAUDI_FAMILY and habits.name != JAX.name:
        habits = replace(GAUDI, zero_stage=habits.zero_stage)
    stage = named_stage(name)
    if (is_fully_sharded or stage == LAST_STAGE) and habits in (
        EARLY_MEGATRON,
        MEGATRON_2022,
        EARLY_DEEPSPEED,
    ):
        habits = EARLY_ZERO_3
    elif stage is not None:
        habits = replace(habits, zero_stage=stage)
    attention = attention_kernel(habits.attention, family, name, precision)
    year = release_year(name) or 0
    copies_heads = habits.copies_shared_heads and year <= LAST_COPIED_HEADS_YEAR
    is_before_split = 0 < year < FIRST_SEQUENCE_PARALLEL_YEAR and family != GAUDI_FAMILY
    habits = replace(
        _in_format(habits, precision),
        attention=attention,
        copies_shared_heads=copies_heads,
        has_sequence_parallel=habits.has_sequence_parallel and not is_before_split,
        sharded_copies=sharded_copies(name),
    )
    if habits.name == TORCHTITAN.name and (release_month(name) or LAST_JOINED_LOGITS) > LAST_JOINED_LOGITS:
        habits = replace(habits, joins_logits=False)
    last = LAST_PLAIN_EXCHANGE.get(family)
    if last and habits.name in _OF_MEGATRON and (release_month(name) or last) > last:
        habits = replace(habits, dispatch_across_nodes="deduplicated")
    if habits.split_logit_bytes and habits.has_fused_operators and year > LAST_EAGER_LOSS_YEAR:
        return replace(habits, logit_bytes=COMPILED_LOSS_BYTES, split_logit_bytes=None)
    return habits


def _in_format(habits: Habits, precision: str) -> Habits:
    # 8-bit products of PyTorch need its compiler
    if precision in _LESS_THAN_16_BITS and habits in (SHARDED, TORCHTITAN):
        return replace(habits, has_fused_operators=True)
    if precision != "bf16" and habits.splits_masters:
        habits = replace(habits, optimizer_bytes=FULL_OPTIMIZER_BYTES)
    if precision == "fp16":  # gradients are 16-bit from end to end, with loss scaling
        return replace(
            habits,
            gradient_bytes=2,
            sync_bytes=2,
            update_bytes=habits.fp16_update_bytes,
            step_bytes=habits.fp16_step_bytes,
            pipeline_bucket_copy_bytes=None,
            pipeline_added_gradient_bytes=None,
        )
    return habits


def in_pipeline(habits: Habits) -> Habits:
    """Returns the habits of a framework if the model is split over a pipeline.

    What PyTorch reduces after the last backward pass of a stage is not hidden by that stage: its final callback waits.
    """
    stage = habits.pipeline_zero_stage
    if stage is None:
        return habits
    hides = habits.overlaps_gradient_sync and stage > 1
    return replace(habits, zero_stage=min(stage, habits.zero_stage), overlaps_gradient_sync=hides)


def reducing_in_pipeline(habits: Habits) -> Habits:
    """Returns the habits of a framework with what it does to gradients where the model is split over a pipeline."""
    copies, added = habits.pipeline_bucket_copy_bytes, habits.pipeline_added_gradient_bytes
    return replace(
        habits,
        overlaps_gradient_sync=habits.overlaps_gradient_sync and habits.hides_gradients_in_pipeline,
        bucket_copy_bytes=habits.bucket_copy_bytes if copies is None else copies,
        added_gradient_bytes=habits.added_gradient_bytes if added is None else added,
    )


def sharding_gradients(habits: Habits) -> Habits:
    """Returns the habits of a framework with the gradients that it keeps where ranks share them, from ZeRO-2 on."""
    size = habits.sharded_gradient_bytes
    if size is None or habits.gradient_bytes == size:
        return habits
    return replace(habits, gradient_bytes=size, update_bytes=habits.fp16_update_bytes)


def outside_pipeline(habits: Habits) -> Habits:
    """Returns the habits of a framework without a pipeline: only DeepSpeed's pipelines are known to wait."""
    return replace(habits, kernel_launch="eager-2022") if habits.kernel_launch == "blocking-2022" else habits


def tells_habits(framework: str) -> bool:
    """Returns whether a name says enough: a known framework, with a release if its habits changed."""
    name = framework.lower()
    found = _framework(name)
    is_dated = release_year(name) is not None
    return found is not None and (is_dated or not (found.needs_release or found.early))


def _by_name(name: str, *, is_old: bool, first_year: int) -> Habits:
    found = _framework(name)
    if found is None:
        return UNKNOWN
    if is_old and found.on_old_families is not None:
        return found.on_old_families
    year, last = release_year(name), found.last_early_year
    is_early = is_old and first_year <= last if year is None else year <= last
    if is_early and year is None and first_year:
        found = _framework(f"{name} {first_year}") or found
    return found.early if found.early and is_early else found.habits


def _framework(name: str) -> _Framework | None:
    month = release_month(name)
    return next(
        (found for found in _FRAMEWORKS if re.search(found.words, name) and _is_dated(found, month)), None
    )


def _is_dated(framework: _Framework, month: Month | None) -> bool:
    """Returns whether a release is neither before the first nor after the last with the habits."""
    if month is None:
        return framework.first is None and framework.last is None
    return (framework.first or month) <= month <= (framework.last or month)
