"""Does a measured run train low-rank adapters? Their rank and products, from its model, its kind and its notes."""

from __future__ import annotations

import re

from planner.measured.notes import lora_rank
from planner.measured.told import Told
from planner.measured.words import affirmed
from simulator.lora import ATTENTION_PRODUCTS, AdaptedProduct

USUAL_LORA_RANK = 32
"""NeMo's default (`LoRA.dim`)."""

_ADAPTERS = re.compile(r"\b(?:q?lora|peft)\b", re.IGNORECASE)
_ALL_WEIGHTS = re.compile(
    r"\bfull[- ](?:parameter|weight|model)?[- ]?(?:sft|fine[- ]?tun\w*|training)\b", re.IGNORECASE
)


def adapter_cells(told: Told, kind: str, *, has_experts: bool) -> dict[str, object]:
    """Returns rank and products of low-rank adapters, where a row has them: NeMo's where it does not say which."""
    notes = told.text("notes")
    if not _trains_adapters(f"{told.text('model')}; {kind}; {told.name('framework')}", notes):
        return {}
    products = ATTENTION_PRODUCTS if has_experts else tuple(AdaptedProduct)
    rank = lora_rank(notes)
    if rank is None:
        rank = told.default("lora_rank", USUAL_LORA_RANK)
    return {"lora_rank": rank, "lora_targets": " ".join(product.value for product in products)}


def _trains_adapters(names: str, notes: str) -> bool:
    """Returns whether names of a run say low-rank adapters, or notes that do not say that all weights are trained."""
    if affirmed(_ADAPTERS, names):
        return True
    return not affirmed(_ALL_WEIGHTS, f"{names}; {notes}") and bool(affirmed(_ADAPTERS, notes))
