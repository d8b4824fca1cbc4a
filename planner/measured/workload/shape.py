"""Which network did a measured run train? From its shape columns, and from a known model of the same name and size."""

from __future__ import annotations

import re
from dataclasses import replace
from operator import itemgetter

from planner.measured.cells import notes as measured_notes
from planner.measured.cells.file import Cells, says_latent
from planner.measured.cells.numbers import shared_experts_in
from planner.measured.cells.told import CannotModelError, Told
from planner.measured.cells.words import affirmed, is_denied
from planner.measured.workload.hybrids import counts_all_blocks
from planner.measured.workload.model_names import (
    expert_layer_step,
    gates_blocks,
    known_shape,
    layers_in_name,
    norms_heads,
    ties_embeddings,
)
from simulator.domain.choices import ParallelBlock, QueryKeyNorm
from simulator.domain.model import ModelShape

USUAL_VOCABULARY = 51_200
"""GPT-2's vocabulary, padded as Megatron-LM pads it."""
USUAL_HEAD_DIM = 128
_OF_KNOWN_EXPERTS = "num_groups", "groups_per_token", "has_biases", "latent_size"
"""Fields of experts for which rows have no columns."""
MOST_SHARED_EXPERTS = 8
"""Up to this, what stands for the width of shared experts is their number."""
PLAIN_FFN_RATIO = 4
"""Feed-forward width over hidden size of a block without gate; one of another width is taken to have one."""
ROUNDED_WIDTH = 256
"""Widths are rounded to multiples of this."""

_PARALLEL_BLOCK = re.compile(
    r"(?<!tensor[- ])(?<!data[- ])(?<!context[- ])(?<!sequence[- ])(?<!pipeline[- ])(?<!expert[- ])(?<!model[- ])"
    r"\bparallel[-_ ](?:transformer[- ])?(?:blocks?\b|attention\b|attn\b|residual)|\bptb\b|gpt[-_]j[-_]residual",
    re.IGNORECASE,
)
"""Attention and feed-forward network of a block that work on the same input (arXiv 2204.02311)."""
_QK_NORM = re.compile(r"\bqk[-_ ]?(?:layer[-_ ]?)?norm", re.IGNORECASE)
_MEGASCALE = re.compile(r"\bmegascale\b(?![- ]?(?:moe|infer|.*baseline))", re.IGNORECASE)
_OF_MEGASCALE = re.compile(r"^gpt|megascale", re.IGNORECASE)
"""Networks of the runs that MegaScale's paper compares with Megatron-LM (arXiv 2402.15627, sections 3.1 and 6.1)."""


def shape_cells(told: Told, known: ModelShape | None) -> dict[str, int]:
    """Returns the fields of `ModelShape`, without experts; a known model provides what the row leaves open.

    Raises:
        CannotModelError: there are neither layers nor a hidden size.
    """
    fields = known.model_dump() if known else {}
    _check_size(told, known)
    hidden = told.count("hidden", fields.get("hidden_size"))
    head_dim = told.cells.count("head_dim")
    usual_heads = max(1, hidden // (head_dim or USUAL_HEAD_DIM))
    heads = told.count("heads", fields.get("num_heads"), usual_heads)
    _remark_latent(told, known)
    plain = PLAIN_FFN_RATIO * hidden
    ffn = told.count("ffn_hidden", fields.get("ffn_hidden_size"), plain)
    is_gated = fields.get("is_gated", bool(told.cells.count("experts")) or _is_gated(told, ffn, plain))
    return {
        "num_layers": _num_layers(told, known),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": told.count("kv_heads", fields.get("num_kv_heads"), heads),
        "head_dim": told.count("head_dim", fields.get("head_dim"), max(1, hidden // heads)),
        "ffn_hidden_size": ffn,
        "is_gated": told.count("mlp_matrices", 3 if is_gated else 2) == 3,
        "vocabulary_size": told.count("vocab", fields.get("vocabulary_size"), USUAL_VOCABULARY),
        "has_tied_embeddings": fields.get("has_tied_embeddings", ties_embeddings(told.name("model"))),
    }


def _num_layers(told: Told, known: ModelShape | None) -> int:
    """Returns the layers, of a hybrid its feed-forward blocks."""
    if known and counts_all_blocks(known, told.cells.count("layers")):
        told.remark("layers", f"counts the blocks of every kind, {known.num_layers} of them feed-forward")
        return known.num_layers
    return told.count("layers", known.num_layers if known else None)


def with_layers_of_name(cells: Cells) -> Cells:
    """Returns a row with the layers that the name of its model gives, where their column is empty."""
    layers = layers_in_name(cells.text.get("model", ""))
    if not layers or "layers" in cells.numbers:
        return cells
    remark = ("layers", f"{layers}, as the name of the model says")
    return replace(
        cells, numbers={**cells.numbers, "layers": float(layers)}, remarks=(*cells.remarks, remark)
    )


def _remark_latent(told: Told, known: ModelShape | None) -> None:
    """Remarks that latent attention is not simulated for models not known to have it, since its ranks have no columns."""
    if says_latent("kv_heads", told.text("kv_heads")) and not (known and known.has_separate_norms):
        told.remark("kv_heads", "latent attention is left out, but of models of the catalogue that have it")


def _is_gated(told: Told, ffn: int, plain: int) -> bool:
    """Returns whether a feed-forward network has a gate, by the model's family or else by its width.

    Args:
        told: the row; of one that gives no width, `plain` is taken without a gate.
        ffn: its width.
        plain: that of one without a gate, not rounded.
    """
    if not told.cells.count("ffn_hidden"):
        return False
    by_family = gates_blocks(told.name("model"))
    is_plain = ffn == plain or (ffn % ROUNDED_WIDTH == 0 and abs(ffn - plain) < ROUNDED_WIDTH)
    return not is_plain if by_family is None else by_family


def _check_size(told: Told, known: ModelShape | None) -> None:
    missing = [column for column in ("hidden", "layers") if not told.cells.count(column)]
    if missing and not known and (name := told.name("model")):
        alike = known_shape(name, None, None, None)
        others = f"{alike.name} of the catalogue has other sizes than the row" if alike else ""
        reason = others or f"the catalogue has no model {name} (`capplan catalog models`)"
        raise CannotModelError(f"{missing[0]} is not given, and {reason}")


def parallel_block(told: Told, known: ModelShape | None) -> ParallelBlock | None:
    """Returns whether attention and feed-forward network of a block work on the same input, and after how many norms.

    This comes from the notes, framework or model, or from a known model; the dense networks of MegaScale's paper do by default.
    """
    said = "; ".join(told.text(column) for column in ("notes", "framework", "model"))
    usual = known.parallel_block if known else None
    if is_denied(_PARALLEL_BLOCK, said):
        return None
    if affirmed(_PARALLEL_BLOCK, said):
        return usual or "one_norm"
    is_of_megascale = affirmed(_MEGASCALE, told.framework) and _OF_MEGASCALE.search(told.name("model"))
    return told.default("notes", "one_norm") if is_of_megascale and not has_experts(told, known) else usual


def qk_norm(told: Told, known: ModelShape | None) -> QueryKeyNorm | None:
    """Returns the norms of queries and keys: those of a known model or its family, unless notes or model say otherwise."""
    said = "; ".join(told.text(column) for column in ("notes", "model"))
    if is_denied(_QK_NORM, said) or (known and known.has_separate_norms):
        return None
    usual = known.qk_norm if known else norms_heads(told.name("model"))
    return usual or ("per_head" if affirmed(_QK_NORM, said) else None)


def has_experts(told: Told, known: ModelShape | None) -> bool:
    """Returns whether a row has routed experts; 0 means that it has none, while an empty cell says nothing, like no column."""
    is_known = bool(known and known.experts) and "experts" not in told.cells.numbers
    return bool(told.cells.count("experts")) or is_known


def expert_cells(told: Told, known: ModelShape | None, ffn_hidden_size: int) -> dict[str, int | None]:
    """Returns the fields of `MixtureOfExperts` and `LatentAttention`, if the network has them.

    Raises:
        CannotModelError: nothing states the number of experts, or the number of experts per token.
    """
    experts, latent = (known.experts, known.latent_attention) if known else (None, None)
    parts: dict[str, int | None] = dict(latent.model_dump(exclude={"indexer"})) if latent else {}
    if not has_experts(told, known):
        return {**parts, "num_experts": None}
    fields = experts.model_dump() if experts else {}
    width = told.count("moe_ffn_hidden", fields.get("expert_ffn_hidden_size", ffn_hidden_size))
    return {
        **parts,
        "num_experts": told.count("experts", fields.get("num_experts")),
        "experts_per_token": told.count("topk", fields.get("experts_per_token")),
        "expert_ffn_hidden_size": width,
        "shared_ffn_hidden_size": _shared_width(told, fields.get("shared_ffn_hidden_size"), width),
        **_order_of_layers(told, fields.get("num_dense_layers")),
        **{name: fields[name] for name in _OF_KNOWN_EXPERTS if name in fields},
    }


def _shared_width(told: Told, known: int | None, width: int) -> int:
    """Returns the width of all shared experts, each as wide as a routed one where the row gives their number alone."""
    given = told.or_known("shared_expert_ffn", known)
    beside = ((column, shared_experts_in(column, told.text(column))) for column in ("experts", "topk"))
    column, num_shared = max(beside, key=itemgetter(1))
    if num_shared and not known and "shared_expert_ffn" not in told.cells.numbers:
        told.remark(column, f"the shared ones are taken as {num_shared} x {width}; give shared_expert_ffn")
        return num_shared * width
    if not 0 < given <= MOST_SHARED_EXPERTS < width:
        return given
    told.remark(
        "shared_expert_ffn", f"taken as {given} x {width}: a width of all shared experts belongs here"
    )
    return given * width


def _order_of_layers(told: Told, known_leading: int | None) -> dict[str, int]:
    """Returns which layers have experts: those behind the leading ones, or every nth where notes or model say so."""
    noted = measured_notes.expert_layer_step(told.text("notes"))
    step = noted or expert_layer_step(told.name("model"))
    num_dense = told.or_known("dense_layers", known_leading)
    num_between = told.cells.count("layers") or 0
    if 0 < num_between <= num_dense and "dense_layers" not in told.cells.numbers:
        told.remark("layers", f"none has experts, as the first {num_dense} of the model; give dense_layers")
    num_between -= num_between // step
    is_told = "dense_layers" in told.cells.numbers
    is_other = is_told and num_dense not in ((0, num_between) if noted else (num_between,))
    if is_other and noted:
        told.remark("notes", f"experts in every {step} layers are left out, as dense_layers are others")
    if step == 1 or is_other:
        return {"num_dense_layers": num_dense, "layer_step": 1}
    is_sure = is_told or noted is not None
    return {"num_dense_layers": 0, "layer_step": step if is_sure else told.default("dense_layers", step)}
