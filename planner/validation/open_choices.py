"""How much longer or shorter would a step be if what its row leaves open had been chosen differently?

Publishers often do not state all choices of a recipe: how tokens reach their experts and whether anything hides that, how
context-parallel ranks exchange keys and values, which release of attention ran, which card of several with the same name and
which number format were used, what is recomputed, chunks per stage and micro-batch size. The framework's habit is assumed for
them (`assumed`), and the step is also simulated with the other choices. A choice that does not fit is ruled out if the habit
does fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import get_args

import numpy as np

from planner.measured.hardware.nodes import LESS_POWERFUL_H100
from planner.measured.row_reasons import reason_against
from planner.measured.runs import Comparison, Row, compare, whole_share
from simulator import catalog
from simulator.domain.calibration import Calibration
from simulator.domain.choices import AttentionKernel, ContextExchange
from simulator.table import Floats

OTHER_KERNELS: Mapping[AttentionKernel, tuple[AttentionKernel, ...]] = {
    "eager": ("flash-2",),
    "unfused": ("flash-2",),
    "flash-1": ("flash-2",),
    "flash-2": ("flash-1", "flash"),
    "flash": ("flash-2",),
}
"""For each kernel, those of the releases before and after; Megatron-LM, which had its own kernel, moved to
FlashAttention-2."""
MOST_USUAL_EXCHANGES: tuple[ContextExchange, ...] = ("ring", "all_gather", "all_to_all")
"""Single-level exchanges; a hybrid needs two degrees, which a row would state."""


def _other_dispatch(known: Comparison) -> list[Row]:
    is_plain = known.row["expert_dispatch"] == "all_to_all"
    return [{**known.row, "expert_dispatch": "deduplicated" if is_plain else "all_to_all"}]


def _other_overlap(known: Comparison) -> list[Row]:
    """Only one of the two overlaps is possible (`Workload.overlaps_shared_experts`)."""
    is_hidden = known.row["overlaps_expert_exchange"] == "true"
    hidden_otherwise = {"overlaps_expert_exchange": "true", "overlaps_shared_experts": "false"}
    return [{**known.row, **({"overlaps_expert_exchange": "false"} if is_hidden else hidden_otherwise)}]


def _other_exchange(known: Comparison) -> list[Row]:
    return _with_others(known.row, "context_exchange", MOST_USUAL_EXCHANGES)


def _other_attention(known: Comparison) -> list[Row]:
    found = next(kernel for kernel in get_args(AttentionKernel) if kernel == known.row["attention"])
    return _with_others(known.row, "attention", OTHER_KERNELS[found])


def _other_recomputation(known: Comparison) -> list[Row]:
    """With or without recomputed attention; full recomputation only if storing everything is not known to fit comfortably."""
    if known.row.get("recompute_num_layers"):
        is_chosen = not known.has_memory_verdict
        whole = {**known.row, "recompute_num_layers": ""}
        return [{**whole, "recompute": kind} for kind in ("none", "full") if is_chosen]
    kinds = (
        ("none", "selective", "full") if known.may_be_too_large or known.is_pressed else ("none", "selective")
    )
    return _with_others(known.row, "recompute", kinds)


def _other_chunks(known: Comparison) -> list[Row]:
    """Not interleaved, with two chunks, or with chunks of single layers."""
    is_interleaved = int(known.row["virtual_pipeline"] or 1) > 1
    most = int(known.row["num_layers"]) // int(known.row["pipeline_parallel"])
    others = ("1",) if is_interleaved else ("2", str(most))
    told = {name: cell for name, cell in known.row.items() if name != "interleaved_group_size"}
    return [{**told, "virtual_pipeline": chunks} for chunks in others]


def _other_micro_batch(known: Comparison) -> list[Row]:
    """Half or twice the micro-batch; also single sequences where a rank's whole share is assumed."""
    size = int(known.row["micro_batch_size"])
    fewest = [1] if size == whole_share(known.row) > 1 else []
    others = dict.fromkeys([*fewest, size // 2, 2 * size])
    return [{**known.row, "micro_batch_size": str(other)} for other in others if other]


def _other_card(known: Comparison) -> list[Row]:
    """The card of the same name with less power and memory bandwidth."""
    node = catalog.default_node(LESS_POWERFUL_H100).id
    return [{**known.row, "accelerator": LESS_POWERFUL_H100, "node": node}]


def _other_scales(known: Comparison) -> list[Row]:
    """Block scales, which like row scales are computed for each operand and orientation."""
    return _with_others(known.row, "fp8_recipe", ("blockwise",))


def _other_format(known: Comparison) -> list[Row]:
    """8 bits, which not every accelerator has (`reason_against`)."""
    return _with_others(known.row, "precision", ("fp8",))


def _with_others(row: Row, column: str, values: Sequence[str]) -> list[Row]:
    return [{**row, column: value} for value in values if value != (row[column] or "none")]


OTHER_CHOICES: Mapping[str, Callable[[Comparison], list[Row]]] = {
    "gpu": _other_card,
    "precision": _other_format,
    "fp8_recipe": _other_scales,
    "context_exchange": _other_exchange,
    "attention": _other_attention,
    "recompute": _other_recomputation,
    "vpp": _other_chunks,
    "virtual_pipeline": _other_chunks,
    "micro_batch": _other_micro_batch,
    "micro_batch_size": _other_micro_batch,
}
"""Functions that make rows with the other choices, by their name in `assumed`; two are columns of shipped rows."""
OTHER_CHOICES_OF_EXPERTS: Mapping[str, Callable[[Comparison], list[Row]]] = {
    "expert_dispatch": _other_dispatch,
    "expert_overlap": _other_overlap,
}
"""The same for choices that dense models do not have."""


def open_log_ratios(
    comparisons: Sequence[Comparison], calibration: Calibration | None = None
) -> list[Floats]:
    """Returns, row by row, ln(step with another choice / step) for the choices that the row leaves open, `(k,)`.

    Each choice contributes the longest of its longer steps and the shortest of its shorter ones.
    """
    others = [
        (position, name, other)
        for position, known in enumerate(comparisons)
        for name, other in _others(known)
    ]
    simulated = compare([other for _, _, other in others], calibration)
    found: list[list[float]] = [[] for _ in comparisons]
    pairs = zip(others, simulated, strict=True)
    for (position, _), choice in groupby(pairs, key=lambda pair: pair[0][:2]):
        known = comparisons[position]
        possible = [other for _, other in choice if known.may_be_too_large or not other.is_too_large]
        ratios = [float(np.log(other.simulated_s / known.simulated_s)) for other in possible]
        found[position] += [ratio for ratio in (min([0.0, *ratios]), max([0.0, *ratios])) if ratio]
    return [np.array(ratios) for ratios in found]


def _others(known: Comparison) -> list[tuple[str, Row]]:
    """Returns the row with each open choice made differently, as far as it can run that way, by the name of the choice."""
    possible = {**OTHER_CHOICES, **(OTHER_CHOICES_OF_EXPERTS if known.row["num_experts"] else {})}
    return [
        (name, other)
        for name in dict.fromkeys(known.row["assumed"].split())
        if name in possible
        for other in possible[name](known)
        if not reason_against(other)
    ]
