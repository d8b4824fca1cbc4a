"""What did this run train, on what, and how was it laid out? From the cells of a file to a row that can be simulated.

The columns are those of compiled lists of training runs: `gpu`, `n_gpus`, `layers`, `hidden`, `tp`, `pp`, .... What a
row leaves open is taken from a catalogue model of the same name and size, from the framework's habits or from the
defaults below, and named in `assumed`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from planner.measured import notes as measured_notes
from planner.measured.dies import counted_by_rank
from planner.measured.file import Cells, read_cells
from planner.measured.fitting_modules import in_model
from planner.measured.habits import Habits
from planner.measured.hardware import accelerator_of, node_of
from planner.measured.layout import OpenLayoutError, layout_cells, split_layers
from planner.measured.limits import reason_of_most
from planner.measured.model_names import known_shape
from planner.measured.named import remark_named
from planner.measured.precision import precision_of
from planner.measured.predicted import cut_around_modules, num_mtp_layers
from planner.measured.runs import OUT_OF_MEMORY, Row
from planner.measured.schedule import (
    Order,
    interleaved_group,
    ordered,
    remark_unknown_chunks,
    says_nothing_of_chunks,
)
from planner.measured.sequences import (
    context_exchange,
    document_cells,
    exchanged_heads,
    splits_for_context,
    splits_sequence,
    window_cells,
)
from planner.measured.shape import expert_cells, has_experts, parallel_block, qk_norm, shape_cells
from planner.measured.sharding import (
    with_tensor_degree,
)
from planner.measured.software import Software
from planner.measured.software_families import software_family
from planner.measured.told import CannotModelError, Told
from planner.measured.told_habits import told_habits
from planner.measured.unmodelled import (
    leave_out_unknown_words,
    refuse_unlike_a_decoder,
    remark_chosen_tokens,
    remark_packing,
    remark_window,
    simulates_memory,
)
from planner.measured.words import NOTHING_SAID, is_known_kind, is_usable, known_kind
from simulator import catalog
from simulator.domain.model import ModelShape
from simulator.errors import InputError
from simulator.units import GIB

PADDED_VOCABULARY = 128
"""Words of a tensor-parallel rank, which Megatron-LM fills up to a multiple of this."""
SAME_TIME = 0.05
"""Part by which a time and the tokens per second beside it may differ, as rounded or averaged figures do."""
LONGEST_NOTES = 200
"""Characters of the notes that a row keeps."""

_PARTLY_TRAINED = re.compile(r"inference|single-layer|forward only", re.IGNORECASE)
_PRODUCTION = re.compile(r"production(?! steady)|whole[- ]run", re.IGNORECASE)
_OUT_OF_MEMORY = re.compile(r"out[- ]of[- ]memory|\boom\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Unmodelled:
    """A row that is not simulated."""

    row_id: str
    group: str
    reason: str
    step_time_s: str
    """What was measured; empty where nothing was."""
    possible: tuple[Row, ...] | None = None
    """The row with each layout that it may have had, where only that is not told (`planner.measured.untold_layouts`)."""


def read_measured(path: Path) -> list[Row | Unmodelled]:
    """Returns the rows of a file in its order, each ready to be simulated or with the reason why not.

    Raises:
        InputError: the file is no table of measured runs.
    """
    rows = read_cells(path)
    count = Counter(_id_of(cells) for cells in rows)
    return [_translated(cells, is_shared=count[_id_of(cells)] > 1) for cells in rows]


def _id_of(cells: Cells) -> str:
    return cells.text.get("id") or f"row {cells.line}"


def _translated(cells: Cells, *, is_shared: bool) -> Row | Unmodelled:
    """Returns a row; one that shares its id with another is told apart by where it stands."""
    row_id = _id_of(cells) + (f" (row {cells.line})" if is_shared else "")
    group = cells.text.get("source") or "source not named"
    possible = None
    try:
        return _Translation(cells, row_id, group).row()
    except OpenLayoutError as error:
        tried = [
            _translated(replace(cells, numbers={**cells.numbers, **degrees}), is_shared=is_shared)
            for degrees in error.degrees
        ]
        possible = tuple(row for row in tried if not isinstance(row, Unmodelled))
        refused = [row.reason for row in tried if isinstance(row, Unmodelled)]
        reason = str(error) if possible or not refused else reason_of_most(refused)
    except CannotModelError as error:
        reason = str(error)
    except InputError as error:
        reason = "; ".join(str(problem) for problem in error.problems)
    return Unmodelled(
        row_id=row_id,
        group=group,
        reason=reason,
        step_time_s=_as_text(cells.step_time_s()),
        possible=possible or None,
    )


class _Translation:
    """One row on its way; collects what had to be assumed."""

    def __init__(self, cells: Cells, row_id: str, group: str) -> None:
        self.row_id, self.group = row_id, group
        self.cells = cells = counted_by_rank(with_tensor_degree(cells))
        self.told = Told(cells)
        leave_out_unknown_words(self.told)
        self.model = self.told.name("model")
        self._refuse_broken_cells()
        self.kind = self._known_kind()
        is_sequence_split = splits_sequence(self.told.text("sp"))
        self._refuse_what_is_no_pretraining_of_a_decoder()
        remark_chosen_tokens(self.told)
        self.accelerator = accelerator_of(self.told)
        self.node = node_of(cells, self.accelerator)
        self.told.assumed += self.node.assumed
        self._remark_node()
        self.precision = precision_of(self.told, self.accelerator)
        family = catalog.accelerator(self.accelerator).family
        self.habits: Habits = told_habits(self.told, family, self.precision)
        power_w = catalog.accelerator(self.accelerator).thermal_design_power_w
        remark_named(self.told, self.habits.kernel_launch, power_w)
        self.known: ModelShape | None = known_shape(
            self.model, cells.count("layers"), cells.count("hidden"), cells.count("heads")
        )
        self.software = Software(
            told=self.told,
            habits=self.habits,
            precision=self.precision,
            kind=self.kind,
            known=self.known,
            node=self.node,
            splits_sequence=is_sequence_split,
        )

    def row(self) -> Row:
        """Returns the row, its sizes as text like all its cells."""
        design, layout, order = self._design()
        cells: dict[str, object] = {
            "row_id": self.row_id,
            "group": self.group,
            "model": self.model[:100] or "model not named",
            "precision": self.precision,
            "is_production": bool(_PRODUCTION.search(self.kind)),
            "tier": self.told.text("tier"),
            "software": software_family(self.told.framework),
            **design,
            **self._measured(layout),
            "picks_chunks": self.habits.picks_chunks and says_nothing_of_chunks(self.told),
            "recomputes_all": self.habits.recomputes_all,
            "recomputes_some": self.software.recomputed().is_some,
            "has_memory_verdict": order.has_memory and simulates_memory(self.told, design),
            "notes": " ".join(self.cells.text.get("notes", "").split())[:LONGEST_NOTES],
            "left_out_because": OUT_OF_MEMORY if _OUT_OF_MEMORY.search(self.kind) else None,
            "assumed": " ".join(dict.fromkeys(self.told.assumed)),
            "remarks": "\n".join(self.told.remarks),
        }
        row = {name: _as_text(value) for name, value in cells.items()}
        key = "|".join(value for name, value in row.items() if name not in _NO_PART_OF_THE_DESIGN)
        return {**row, "config_key": self.told.text("config_key") or key}

    def _design(self) -> tuple[dict[str, object], dict[str, int], Order]:
        """Returns the cells that say what ran and how, the degrees of the layout among them, and the order of its pipeline."""
        shape = shape_cells(self.told, self.known)
        experts = expert_cells(self.told, self.known, shape["ffn_hidden_size"])
        layout = layout_cells(self.told, self.habits, shape["num_layers"], experts["num_experts"])
        if self.habits.pads_vocabulary:
            unit = PADDED_VOCABULARY * layout["tensor_parallel"]
            shape["vocabulary_size"] = unit * math.ceil(shape["vocabulary_size"] / unit)
        habits, stage = self.software.sharding(layout)
        order = self._order(layout, shape["num_layers"], habits.zero_stage if stage is None else stage)
        layout = order.simulated(layout)
        group = interleaved_group(self.told, layout, order.schedule)
        if order.schedule is None and not habits.picks_chunks:
            remark_unknown_chunks(self.told, layout)
        self.software.remark_whole_gradients(habits, stage)
        cut_cells = self._cut_cells(shape, layout)
        habit_cells = self.software.cells(layout, shape["num_layers"], habits, stage)
        sequences = self._sequences(layout)
        shape["num_kv_heads"] = exchanged_heads(
            self.told, sequences, heads=shape["num_heads"], kv_heads=shape["num_kv_heads"], layout=layout
        )
        sizes = {
            **shape,
            **experts,
            "parallel_block": parallel_block(self.told, self.known),
            "qk_norm": qk_norm(self.told, self.known),
            **cut_cells,
            **layout,
            **self.node.cells,
            **habit_cells,
        }
        design = {
            **sizes,
            **in_model(self.told, self.software.recomputed(), sizes),
            **({"pipeline_schedule": order.schedule.value} if order.schedule else {}),
            **({"interleaved_group_size": group} if group else {}),
            **sequences,
        }
        return design, layout, order

    def _cut_cells(self, shape: dict[str, int], layout: dict[str, int]) -> dict[str, object]:
        """Returns how layers and modules of multi-token prediction are cut into stages; `shape` may get more layers."""
        modules = num_mtp_layers(self.told, self.habits)
        cut = cut_around_modules(shape["num_layers"], modules, layout)
        if cut is None:
            shape["num_layers"] = split_layers(self.told, shape["num_layers"], layout)
        return {
            **({"num_mtp_layers": modules} if modules else {}),
            **({"stage_layers": " ".join(map(str, cut))} if cut else {}),
        }

    def _known_kind(self) -> str:
        """Returns what was measured; a time is not lost because of unknown words beside it."""
        written = self.told.text("metric_kind")
        if is_known_kind(written) or not self.cells.has_time:
            return known_kind(written)
        self.told.remark("metric_kind", "is not understood; the measured time is taken as that of a step")
        return ""

    def _remark_node(self) -> None:
        if self.node.node_remark:
            self.told.remark("gpus_per_node", self.node.node_remark)
        if self.told.text("interconnect").lower() in NOTHING_SAID:
            return
        unknown = "is not understood; the usual links of the accelerator stand in"
        if meaning := self.node.network_remark if self.node.is_network_understood else unknown:
            self.told.remark("interconnect", meaning)

    def _refuse_broken_cells(self) -> None:
        if self.cells.problems:
            raise CannotModelError("; ".join(self.cells.problems))

    def _refuse_what_is_no_pretraining_of_a_decoder(self) -> None:
        refuse_unlike_a_decoder(self.model)
        if _PARTLY_TRAINED.search(f"{self.kind} {self.model}"):
            raise CannotModelError(f"metric_kind {self.kind or self.model}: only steps of training")
        if not is_usable(self.told.text("usable")):
            raise CannotModelError("usable: the row is marked as unusable")

    def _order(self, layout: dict[str, int], num_layers: int, zero_stage: int) -> Order:
        """Returns schedule and chunks of the pipeline where they are not the usual ones."""
        is_kept = self.software.recomputed().keeps_inputs(self.habits.selective_recompute)
        return ordered(
            self.told,
            self.habits.expert_schedule if has_experts(self.told, self.known) else None,
            layout,
            num_layers,
            keeps_inputs=is_kept and zero_stage <= 1,
        )

    def _sequences(self, layout: dict[str, int]) -> dict[str, object]:
        """Windows, packed documents, and the exchange of context-parallel ranks where there are several."""
        window = window_cells(self.told, self.known)
        remark_window(self.told, has_window=bool(window))
        documents = document_cells(self.told)
        remark_packing(self.told, has_documents=bool(documents))
        found = {**window, **documents}
        if layout["context_parallel"] == 1:
            if splits_for_context(self.told.text("sp")):
                self.told.remark("sp", "no ranks share the sequence; say in cp how many do")
            return found
        exchange, is_assumed = context_exchange(self.told, self.habits, has_window="window_tokens" in found)
        return {
            **found,
            "context_exchange": self.told.default("context_exchange", exchange) if is_assumed else exchange,
        }

    def _remark_other_rate(self) -> None:
        told, of_rate = self.cells.numbers.get("step_time_s"), self.cells.step_time_of_rate_s()
        if told and of_rate and not math.isclose(told, of_rate, rel_tol=SAME_TIME):
            meaning = f"with global_batch, seq_len and n_gpus a step of {of_rate:.4g} s; step_time_s counts"
            self.told.remark("tokens_per_s_per_gpu", meaning)

    def _measured(self, layout: dict[str, int]) -> dict[str, object]:
        self._remark_other_rate()
        memory = self.cells.numbers.get("peak_mem_gib_per_gpu")
        written = f"{self.kind} {self.told.text('notes')}"
        return {
            "step_time_s": self.cells.step_time_s(layout["global_batch_size"]),
            "peak_memory_bytes": memory and memory * GIB,
            "memory_kind": measured_notes.memory_kind(written) or self.habits.memory_kind,
            "memory_stage": self.habits.memory_stage,
        }


_NO_PART_OF_THE_DESIGN = (
    "row_id",
    "tier",
    "software",
    "step_time_s",
    "peak_memory_bytes",
    "memory_kind",
    "memory_stage",
    "picks_chunks",
    "recomputes_all",
    "recomputes_some",
    "left_out_because",
    "notes",
    "assumed",
    "remarks",
)


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
