"""How does a framework train where a measurement does not say? Attention kernel, gradients, sharding.

The habits are those of the published configurations behind docs/validation.md where there are any, and otherwise the
frameworks' documented defaults. None is chosen by how well the simulation then fits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from simulator.model import AttentionKernel

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
_NEMO_2023 = Habits(name="NeMo 23 on A100", attention="unfused", has_sequence_parallel=False)
_SHARDED = Habits(name="FSDP", has_sequence_parallel=False, zero_stage=3)
_FOUNDRY = replace(_SHARDED, name="llm-foundry", gradient_bytes=2, sync_bytes=2)
"""Its configurations train in pure 16 bits (`mixed_precision: PURE`)."""
_JAX = Habits(name="JAX", has_sequence_parallel=False, zero_stage=3)
_DEEPSPEED = Habits(name="DeepSpeed", has_sequence_parallel=False, sync_bytes=2)
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
        return replace(_OF_2022, zero_stage=1, sync_bytes=2) if is_old else replace(_DEEPSPEED, zero_stage=1)
    if has(r"nemo|megatron-?bridge"):
        return _NEMO_2023 if is_old and has(r"\b23\.") else _NEMO
    if has("composer|foundry"):
        return _FOUNDRY
    if has(r"fsdp|torchtitan|olmo|litgpt|axolotl|fairscale"):
        return _SHARDED
    if has("maxtext|jax|paxml|levanter|t5x|praxis"):
        return _JAX
    if has("deepspeed"):
        return _DEEPSPEED
    if has("megatron-?lm|^megatron$"):
        return _OF_2022 if is_old and not has("202[3-9]|core") else _MEGATRON_LM
    if has("megatron|mcore|primus|megascale"):
        return _MEGATRON_CORE
    return _OTHER
