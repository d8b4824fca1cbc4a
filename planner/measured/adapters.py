"""Does a measured run train low-rank adapters? Their rank and products, from its model, its kind and its notes."""

from __future__ import annotations

from planner.measured.notes import lora_rank
from planner.measured.told import Told
from planner.measured.words import affirmed
from simulator.lora import ATTENTION_PRODUCTS, AdaptedProduct

USUAL_LORA_RANK = 32
"""NeMo's default (`LoRA.dim`)."""


def adapter_cells(told: Told, kind: str, *, has_experts: bool) -> dict[str, object]:
    """Returns rank and products of low-rank adapters, where a row has them: NeMo's where it does not say which."""
    notes = told.text("notes")
    if not affirmed(r"\blora\b", f"{told.text('model')}; {kind}; {notes}"):
        return {}
    products = ATTENTION_PRODUCTS if has_experts else tuple(AdaptedProduct)
    rank = lora_rank(notes)
    if rank is None:
        rank = told.default("lora_rank", USUAL_LORA_RANK)
    return {"lora_rank": rank, "lora_targets": " ".join(product.value for product in products)}
