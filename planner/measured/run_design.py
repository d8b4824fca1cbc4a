"""How was a measured run laid out, and what did it compute? From its setting to the cells of a design that can be simulated.

The layout is read first because the rest depends on it: the pipeline schedule determines the chunks, these determine how layers
are cut, and the degrees determine what the software does by default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.measured.layout.degrees import layout_of, split_layers
from planner.measured.layout.schedule import Order, interleaved_group, ordered, remark_unknown_chunks
from planner.measured.layout.stage_cuts import noted_cut
from planner.measured.recomputation.fitting_modules import in_model
from planner.measured.run_layout import RunLayout
from planner.measured.software.muon import muon_cells
from planner.measured.software.run_software import RunSetting
from planner.measured.unmodelled import remark_packing, remark_window
from planner.measured.workload.compressed import compressed_cells, refuse_shared_sequences
from planner.measured.workload.hybrids import hybrid_cells
from planner.measured.workload.images import image_cells
from planner.measured.workload.indexers import fitted_to_chosen_tokens, indexer_cells
from planner.measured.workload.predicted import cut_around_modules, num_mtp_layers
from planner.measured.workload.sequences import (
    EXCHANGE,
    context_exchange,
    document_cells,
    exchanged_heads,
    possible_exchange,
    says_exchange,
    splits_for_context,
    window_cells,
)
from planner.measured.workload.shape import expert_cells, has_experts, parallel_block, qk_norm, shape_cells
from planner.measured.workload.size_in_name import remark_other_size

PADDED_VOCABULARY = 128
"""Megatron-LM pads the vocabulary of each tensor-parallel rank to a multiple of this."""


@dataclass(frozen=True, kw_only=True)
class RunDesign:
    """What ran and how."""

    cells: dict[str, object]
    """Fields of the network, the workload, the plan and the node."""
    global_batch_size: int
    """Sequences per step."""
    has_memory: bool
    """Whether what the pipeline keeps in memory is simulated."""


def design_of(setting: RunSetting) -> RunDesign:
    """Returns the design of a run.

    Raises:
        CannotModelError: a column without a default is missing.
        OpenLayoutError: the layout of a run on several nodes is missing.
    """
    told, known = setting.told, setting.known
    shape = shape_cells(told, known)
    experts = expert_cells(told, known, shape["ffn_hidden_size"])
    remark_other_size(told, shape, experts, is_known=known is not None)
    layout = layout_of(told, setting.habits, shape["num_layers"], experts["num_experts"])
    if setting.habits.pads_vocabulary:
        unit = PADDED_VOCABULARY * layout.tensor_parallel
        shape["vocabulary_size"] = unit * math.ceil(shape["vocabulary_size"] / unit)
    habits, stage = setting.sharding(layout)
    order = _order(setting, layout, shape["num_layers"], habits.zero_stage if stage is None else stage)
    layout = order.simulated(layout)
    schedule_cells = _schedule_cells(setting, layout, order)
    if order.schedule is None and not habits.picks_chunks:
        remark_unknown_chunks(told, layout)
    setting.remark_whole_gradients(habits, stage)
    cut_cells = _cut_cells(setting, shape["num_layers"], layout, order)
    shape["num_layers"] = _cut_layers(setting, shape["num_layers"], layout, cut_cells)
    habit_cells = setting.cells(layout, shape["num_layers"], habits, stage)
    sequences = _sequence_cells(setting, layout, num_heads=shape["num_heads"])
    sequences |= possible_exchange(
        told,
        sequences,
        heads=shape["num_heads"],
        kv_heads=shape["num_kv_heads"],
        layout=layout,
        domain=setting.node.link_domain_size,
    )
    shape["num_kv_heads"] = exchanged_heads(
        told, sequences, heads=shape["num_heads"], kv_heads=shape["num_kv_heads"], layout=layout
    )
    sizes = {
        **shape,
        **experts,
        "parallel_block": parallel_block(told, known),
        "qk_norm": qk_norm(told, known),
        **hybrid_cells(known, shape["num_layers"]),
        **indexer_cells(told, known, shape["num_layers"]),
        **compressed_cells(told, known, shape["num_layers"]),
        **cut_cells,
        **layout.cells,
        **setting.node.cells,
        **habit_cells,
    }
    refuse_shared_sequences(sizes)
    cells = {**sizes, **in_model(told, setting.recomputed(), sizes), **schedule_cells, **sequences}
    cells |= image_cells(told, known, cells)
    muon = muon_cells(told, {**cells, "precision": setting.precision})
    return RunDesign(
        cells={**cells, **fitted_to_chosen_tokens(told, cells), **muon},
        global_batch_size=layout.global_batch_size,
        has_memory=order.has_memory,
    )


def _order(setting: RunSetting, layout: RunLayout, num_layers: int, zero_stage: int) -> Order:
    """Returns the pipeline's schedule and chunks where they are not the usual ones."""
    is_kept = setting.recomputed().keeps_inputs(setting.habits.selective_recompute)
    return ordered(
        setting.told,
        setting.habits.expert_schedule if has_experts(setting.told, setting.known) else None,
        layout,
        num_layers,
        keeps_inputs=is_kept and zero_stage <= 1,
    )


def _schedule_cells(setting: RunSetting, layout: RunLayout, order: Order) -> dict[str, object]:
    """Returns the schedule and the micro-batches per interleaved group where they are not the usual ones."""
    group = interleaved_group(setting.told, layout, order.schedule)
    return {
        **({"pipeline_schedule": order.schedule.value} if order.schedule else {}),
        **({"interleaved_group_size": group} if group else {}),
    }


def _cut_cells(setting: RunSetting, num_layers: int, layout: RunLayout, order: Order) -> dict[str, object]:
    """Returns the multi-token prediction modules, and the layers of every chunk where these or the notes affect the cut."""
    modules = num_mtp_layers(setting.told, setting.habits)
    noted = noted_cut(setting.told, num_layers, layout, order.schedule)
    cut = noted or cut_around_modules(num_layers, modules, layout)
    return {
        **({"num_mtp_layers": modules} if modules else {}),
        **({"stage_layers": " ".join(map(str, cut))} if cut else {}),
    }


def _cut_layers(setting: RunSetting, num_layers: int, layout: RunLayout, cut_cells: dict[str, object]) -> int:
    """Returns the number of layers, or a few more where no cut is stated and they do not split evenly."""
    return num_layers if "stage_layers" in cut_cells else split_layers(setting.told, num_layers, layout)


def _sequence_cells(setting: RunSetting, layout: RunLayout, *, num_heads: int) -> dict[str, object]:
    """Returns windows, packed documents and, if there are several context-parallel ranks, their exchange."""
    told = setting.told
    window = window_cells(told, setting.known)
    remark_window(told, has_window=bool(window))
    documents = document_cells(told)
    remark_packing(told, has_documents=bool(documents))
    found = {**window, **documents}
    if layout.context_parallel == 1:
        columns = (("sp", splits_for_context(told.text("sp"))), (EXCHANGE, says_exchange(told)))
        for column in (column for column, is_said in columns if is_said):
            told.remark(column, "no ranks share the sequence; say in cp how many do")
        return found
    exchange, is_assumed = context_exchange(
        told,
        setting.habits,
        has_window="window_tokens" in found,
        splits_heads=num_heads % (layout.tensor_parallel * layout.context_parallel) == 0,
    )
    return {
        **found,
        "context_exchange": told.default("context_exchange", exchange) if is_assumed else exchange,
    }
