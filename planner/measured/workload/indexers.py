"""What does a measured run whose attention sees chosen tokens compute? The indexer of the catalogue's model, fused kernels."""

from __future__ import annotations

from collections.abc import Mapping

from planner.measured.cells.notes import attends_to_all, freezes_indexer
from planner.measured.cells.told import Told
from simulator.domain.attention_span import SlidingWindow
from simulator.domain.model import ModelShape

PREFIX = "indexer_"
"""What tells the cells of an indexer from those of attention."""


def indexer_cells(told: Told, known: ModelShape | None, num_layers: int) -> dict[str, object]:
    """Returns the fields of `TokenIndexer`, with their prefix, and whether it is trained; nothing for other attention.

    Args:
        told: the row, whose notes may say that attention sees all tokens.
        known: the catalogue's model of that name and size.
        num_layers: of the run, which may have fewer than lead in the model.
    """
    notes = told.text("notes")
    if known is None or known.indexer is None or attends_to_all(notes):
        return {}
    leading = min(known.indexer.num_leading_layers, num_layers)
    fields = known.indexer.model_dump() | {"num_leading_layers": leading}
    cells: dict[str, object] = {f"{PREFIX}{name}": value for name, value in fields.items()}
    return cells | {"trains_indexer": not freezes_indexer(notes)}


def fitted_to_chosen_tokens(told: Told, cells: Mapping[str, object]) -> dict[str, object]:
    """Returns the cells that attention to chosen tokens excludes, replaced; remarks those that a row states.

    Args:
        told: the row.
        cells: fields of its network, workload and plan.
    """
    if not {f"{PREFIX}num_heads", "compressed_query_rank"} & cells.keys():
        return {}
    fitted: dict[str, object] = {}
    if cells["attention"] != "flash":
        if cells["attention"] != "flash-2":
            told.remark("attention", "attention to chosen tokens is simulated with fused kernels")
        fitted["attention"] = "flash"
    if cells.get("context_exchange", "all_gather") != "all_gather":
        if "context_exchange" not in told.assumed:
            told.remark("cp_comm_type", "ranks gather all keys, among which tokens are chosen")
        fitted["context_exchange"] = "all_gather"
    if cells.get("selective_recompute", "attention") != "attention":
        if cells["recompute"] == "selective":
            again = "is simulated with its core computed again"
            if "compressed_query_rank" in cells:
                again = "never computes its core again, and is simulated so"
            told.remark("recompute", f"attention to chosen tokens {again}")
        fitted["selective_recompute"] = "attention"
    if windows := dict.fromkeys(SlidingWindow.model_fields.keys() & cells.keys()):
        told.remark("window", "left out: attention sees the tokens that an indexer chooses")
        fitted |= windows
    return fitted
