"""How does a framework train where a measurement does not say? Attention kernel, gradients, sharding.

The habits are those of the published configurations behind docs/validation.md where there are any, and otherwise the
frameworks' documented defaults. None is chosen by how well the simulation then fits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from simulator.memory import MemoryKind
from simulator.model import AttentionKernel, ExpertDispatch, SelectiveRecompute

OLD_FAMILIES = ("volta", "ampere")
"""Architectures that Megatron-LM trained on before it had fused attention (2023)."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What a framework does unless a row says otherwise."""

    name: str
    """How the table of assumptions calls them."""
    attention: AttentionKernel = "flash"
    has_sequence_parallel: bool = True
    overlaps_gradient_sync: bool = True
    gradient_bytes: int = 4
    sync_bytes: int = 4
    zero_stage: int = 1
    selective_recompute: SelectiveRecompute = "attention"
    logit_bytes: int = 6
    sync_buffer_bytes: float = 0.0
    keeps_stage_outputs: bool = False
    expert_dispatch: ExpertDispatch = "all_to_all"
    overlaps_far_experts: bool = False
    """Whether the traffic of experts is hidden where their ranks span several link domains."""
    memory_kind: MemoryKind = "allocated"
    """What its users publish as peak memory."""


_DEEPSPEED_BUFFERS = 2e9
"""Two 16-bit buckets of 5e8 elements, `reduce_bucket_size` and `allgather_bucket_size` of DeepSpeed's defaults."""
_DEEPSPEED_BF16_GRADIENT = 6
"""DeepSpeed's `BF16_Optimizer` keeps 16-bit gradients beside the sums in 32 bits."""
_OF_2022 = Habits(
    name="Megatron of 2021-22",
    attention="unfused",
    has_sequence_parallel=False,
    overlaps_gradient_sync=False,
    zero_stage=0,
)
_MEGATRON_LM = Habits(name="Megatron-LM", overlaps_gradient_sync=False)
"""Megatron-LM overlaps the synchronisation of gradients only on request (`--overlap-grad-reduce`)."""
_MEGATRON_CORE = Habits(name="Megatron-Core")
_NEMO = Habits(name="NeMo, Megatron-Bridge", gradient_bytes=2, sync_bytes=2)
_BRIDGE = replace(_NEMO, expert_dispatch="deduplicated", overlaps_far_experts=True)
"""Its recipes take DeepEP or Hybrid-EP, and overlap them on H100, where experts span several nodes."""
_NEMO_2023 = Habits(name="NeMo 23 on A100", attention="unfused", has_sequence_parallel=False)
_SHARDED = Habits(
    name="FSDP", has_sequence_parallel=False, zero_stage=3, logit_bytes=10, memory_kind="reserved"
)
"""PyTorch computes the loss in 32 bits without fusion; torchtitan prints the allocator's peak."""
_TORCHTITAN = replace(_SHARDED, name="torchtitan", selective_recompute="every_other_product")
"""Its `selective` checkpointing works operator by operator by default."""
_FOUNDRY = replace(_SHARDED, name="llm-foundry", gradient_bytes=2, sync_bytes=2)
"""Its configurations train in pure 16 bits (`mixed_precision: PURE`)."""
_JAX = Habits(name="JAX", has_sequence_parallel=False, zero_stage=3)
_DEEPSPEED = Habits(
    name="DeepSpeed",
    has_sequence_parallel=False,
    gradient_bytes=_DEEPSPEED_BF16_GRADIENT,
    sync_bytes=2,
    sync_buffer_bytes=_DEEPSPEED_BUFFERS,
    keeps_stage_outputs=True,
    memory_kind="device",
)
_DEEPSPEED_2022 = replace(
    _DEEPSPEED,
    attention="unfused",
    overlaps_gradient_sync=False,
    zero_stage=1,
    name="Megatron-DeepSpeed of 2021-22",
)
_OTHER = Habits(name="unknown framework")


def habits_of(framework: str, family: str, precision: str) -> Habits:
    """Returns the habits of a framework on an architecture (`Accelerator.family`) in a number format."""
    habits = _by_name(framework.lower(), is_old=family in OLD_FAMILIES)
    if precision == "fp16":  # gradients are 16-bit from end to end, with loss scaling
        return replace(habits, gradient_bytes=2, sync_bytes=2)
    return habits


def _by_name(framework: str, *, is_old: bool) -> Habits:
    def has(words: str) -> bool:
        return re.search(words, framework) is not None

    if has("megatron-?deepspeed"):
        return _DEEPSPEED_2022 if is_old else _DEEPSPEED
    if has("nemo") and not has("megatron-?bridge"):
        return _NEMO_2023 if is_old and has(r"\b23\.") else _NEMO
    if has("megatron-?lm|^megatron$"):
        return _OF_2022 if is_old and not has("202[3-9]|core") else _MEGATRON_LM
    return next((habits for words, habits in _BY_WORDS if has(words)), _OTHER)


_BY_WORDS = (
    ("megatron-?bridge", _BRIDGE),
    ("composer|foundry", _FOUNDRY),
    ("torchtitan", _TORCHTITAN),
    ("fsdp|olmo|litgpt|axolotl|fairscale", _SHARDED),
    ("maxtext|jax|paxml|levanter|t5x|praxis", _JAX),
    ("deepspeed", _DEEPSPEED),
    ("megatron|mcore|primus|megascale", _MEGATRON_CORE),
)
"""Habits of whatever age by words in the framework's name; the first that fits holds."""
