"""Which family of training software does a name belong to? Members of a family share kernels, overlap and memory."""

from __future__ import annotations

import re

DEEPSPEED = r"deepspeed(?![- ]?ulysses)|^(?!.*fsdp).*deepspeed"
"""Words of its engine; FSDP may take no more of it than its exchange of heads."""
PYTORCH = "PyTorch FSDP"
LLAMA_3_REPORT = r"^(the )?llama.?3(\.1)? (herd|paper|report)"
"""The source of runs whose software its authors do not name (arXiv 2407.21783)."""
TRAINERS = (
    r"\baxolotl|llama[-_ ]?factory|\btrl\b|\bunsloth\b|\bxtuner\b|\blmflow\b|\baccelerate\b|hugging ?face|\bhf\b"
    r"|\btrainer\b|\btransformers\b"
)
"""Programs that train Hugging Face's models: whole ones on every rank, which FSDP or DeepSpeed shards."""
_FAMILIES = (
    (PYTORCH, "automodel|torchtitan|foundry|composer|olmo|litgpt|fairscale"),
    ("DeepSpeed", DEEPSPEED),
    ("JAX", r"\balpa\b|maxtext|jax|paxml|levanter|t5x|praxis"),
    ("Megatron", "nemo|megatron|mcore|primus|megascale|vtrain|nvidia release"),
    (PYTORCH, "fsdp|axolotl|llama[-_ ]?factory"),
    ("Meta", rf"\bmeta\b|{LLAMA_3_REPORT}"),
)
"""Families in the order in which their words are looked for; the first that fits counts. NeMo trains with Megatron-Core, and
so does Megatron-Bridge; Megatron-DeepSpeed has the engine of DeepSpeed, NeMo Automodel PyTorch's FSDP; FSDP
beside another engine is that engine's own."""


def software_family(name: str) -> str:
    """Returns the family of a framework or of a source that names one; empty where none is known."""
    written = name.lower()
    return next((family for family, words in _FAMILIES if re.search(words, written)), "")
