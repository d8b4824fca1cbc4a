"""Does a measured run train low-rank adapters? Their rank and products, from its model, its kind and its notes."""

from __future__ import annotations

import re

from planner.measured.notes import lora_rank
from planner.measured.told import Told
from planner.measured.words import affirmed
from simulator.domain.lora import ATTENTION_PRODUCTS, AdaptedProduct

USUAL_LORA_RANK = 32
"""NeMo's default (`LoRA.dim`)."""
MLPERF_LORA_RANK = 16
"""Rank in MLPerf's benchmark `llama2_70b_lora`, whose adapters are those of the attention block (`--lora_r 16
--lora_target_modules "qkv_proj,o_proj"` in mlcommons/training)."""

_ADAPTERS = re.compile(r"(?<![a-z])(?:q?lora|peft)(?![a-z])", re.IGNORECASE)
_MLPERF = re.compile(r"(?<![a-z])mlperf|llama[-_ ]?2[-_ ]70b[-_ ]lora", re.IGNORECASE)
_MLPERF_MODEL = re.compile("70b", re.IGNORECASE)
_ALL_WEIGHTS = re.compile(
    r"\bfull[- ](?:parameter|weight|model)?[- ]?(?:sft|fine[- ]?tun\w*|training)\b", re.IGNORECASE
)


def adapter_cells(told: Told, kind: str, *, has_experts: bool) -> dict[str, object]:
    """Returns rank and products of low-rank adapters, where a row has them: NeMo's where it does not say which.

    Those of MLPerf are the ones of its benchmark, whose name stands in the source more often than in the model; NVIDIA's and
    AMD's submissions exchange their results by all-to-alls (`LORA_A2A=1`).
    """
    notes, model = told.text("notes"), told.name("model")
    benchmark = f"{told.name('source')}; {model}; {kind}" if _MLPERF_MODEL.search(model) else ""
    is_of_mlperf = bool(_MLPERF.search(benchmark))
    names = f"{model}; {kind}; {told.name('framework')}; {benchmark if is_of_mlperf else ''}"
    if not _trains_adapters(names, notes):
        return {}
    products = ATTENTION_PRODUCTS if has_experts or is_of_mlperf else tuple(AdaptedProduct)
    rank = lora_rank(notes)
    if rank is None:
        rank = MLPERF_LORA_RANK if is_of_mlperf else told.default("lora_rank", USUAL_LORA_RANK)
    targets = " ".join(product.value for product in products)
    return {"lora_rank": rank, "lora_targets": targets, "lora_all_to_all": is_of_mlperf}


def _trains_adapters(names: str, notes: str) -> bool:
    """Returns whether names of a run say low-rank adapters, or notes that do not say that all weights are trained."""
    if affirmed(_ADAPTERS, names):
        return True
    return not affirmed(_ALL_WEIGHTS, f"{names}; {notes}") and bool(affirmed(_ADAPTERS, notes))
