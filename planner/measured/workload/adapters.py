"""Does a measured run train low-rank adapters? Their rank and target products, from its model, its kind and its notes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.measured.cells.notes import lora_rank
from planner.measured.cells.told import Told
from planner.measured.cells.words import affirmed
from planner.measured.frameworks.names import is_automodel
from simulator.domain.lora import ATTENTION_PRODUCTS, AdaptedProduct

USUAL_LORA_RANK = 32
"""NeMo's default (`LoRA.dim`)."""
MLPERF_LORA_RANK = 16
"""Rank in MLPerf's benchmark `llama2_70b_lora`, whose adapters are those of the attention block (`--lora_r 16
--lora_target_modules "qkv_proj,o_proj"` in mlcommons/training)."""

AUTOMODEL_LORA_RANK = 16
"""Rank in NeMo Automodel's recipes that measure dense networks (`dim: 16`, `target_modules: '*_proj'` in
`examples/llm_benchmark`); those of mixtures of experts have 32."""

_TARGETS = re.compile(r"\b(?:target\w*|lora_attn_modules|lora (?:on|for|of))\b[^;.]*", re.IGNORECASE)
_ALSO_FEED_FORWARD = re.compile(r"\bapply_lora_to_mlp\b(?![ =:'\"]*(?:false|0|no)\b)", re.IGNORECASE)
"""torchtune's option beside `lora_attn_modules`."""
_PRODUCTS: Mapping[AdaptedProduct, str] = {
    AdaptedProduct.QKV: r"linear_qkv|(?<![a-z_])(?:[qkv]|qkv|query_key_value)(?:_proj)?\b|\battention\b",
    AdaptedProduct.PROJ: r"linear_proj|(?<![a-z_])o(?:ut(?:put)?)?_proj\b|\battention\b",
    AdaptedProduct.FC1: r"linear_fc1|(?<![a-z_])(?:gate|up|gate_up)_proj\b|\bmlps?\b",
    AdaptedProduct.FC2: r"linear_fc2|(?<![a-z_])down_proj\b|\bmlps?\b",
}
"""Products by their names in Megatron Core and in Hugging Face's models, one of three of which is taken for all."""
_FROZEN_IN_4_BITS = re.compile(
    r"(?<![a-z])qlora|\bnf-?4\b|\b4[- ]?bit (?:base|frozen|weights)|load_in_4bit", re.IGNORECASE
)
_ADAPTERS = re.compile(r"(?<![a-z])(?:q?lora|peft)(?![a-z])", re.IGNORECASE)
_MLPERF = re.compile(r"(?<![a-z])mlperf|llama2_70b_lora(?![a-z])", re.IGNORECASE)
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
    products = _named_products(notes) or products
    rank = lora_rank(notes)
    if rank is None and is_of_mlperf:
        rank = MLPERF_LORA_RANK
    elif rank is None:
        is_16 = is_automodel(told.framework) and not has_experts
        rank = told.default("lora_rank", AUTOMODEL_LORA_RANK if is_16 else USUAL_LORA_RANK)
    targets = " ".join(product.value for product in products)
    return {"lora_rank": rank, "lora_targets": targets, "lora_all_to_all": is_of_mlperf}


def _trains_adapters(names: str, notes: str) -> bool:
    """Returns whether names of a run say low-rank adapters, or notes that do not say that all weights are trained."""
    if affirmed(_ADAPTERS, names):
        return True
    return not affirmed(_ALL_WEIGHTS, f"{names}; {notes}") and bool(affirmed(_ADAPTERS, notes))


def _named_products(notes: str) -> tuple[AdaptedProduct, ...]:
    """Returns the products that notes call the targets of adapters; empty where they name none."""
    if (found := affirmed(_TARGETS, notes)) is None:
        return ()
    said = f"{found[0]}; mlp" if affirmed(_ALSO_FEED_FORWARD, notes) else found[0]
    return tuple(product for product, words in _PRODUCTS.items() if affirmed(words, said))


def keeps_frozen_weights(told: Told) -> bool:
    """Returns whether the weights beside adapters are kept in 16 bits, as they are simulated; says where they are not."""
    columns = ("notes", "model", "metric_kind", "framework", "precision")
    column = next((name for name in columns if affirmed(_FROZEN_IN_4_BITS, told.text(name))), "")
    if column:
        told.remark(column, "frozen weights are simulated in 16 bits, not in 4: memory is not judged")
    return not column
