"""What was measured, on what hardware, and with which software? What must be known about a row before its layout can be read.

The steps build on one another: what a row counts as an accelerator determines its node and number formats, and these determine
the habits of its framework. A row that cannot be modelled is refused at the first step that shows it.
"""

from __future__ import annotations

import re

from planner.measured.cells.file import Cells
from planner.measured.cells.told import CannotModelError, Told
from planner.measured.cells.words import NOTHING_SAID, is_known_kind, is_usable, known_kind
from planner.measured.frameworks.habits import Habits
from planner.measured.hardware.dies import counted_by_rank
from planner.measured.hardware.nodes import MeasuredNode, accelerator_of, node_of
from planner.measured.layout.noted_degrees import with_noted_degrees
from planner.measured.layout.sharding import with_noted_sharding, with_tensor_degree
from planner.measured.named import remark_named
from planner.measured.software.run_software import RunSetting
from planner.measured.software.told_habits import told_habits
from planner.measured.unmodelled import (
    leave_out_unknown_words,
    refuse_unlike_a_decoder,
    remark_chosen_tokens,
)
from planner.measured.workload.model_names import known_shape
from planner.measured.workload.precision import precision_of
from planner.measured.workload.sequences import told_split
from planner.measured.workload.shape import with_layers_of_name
from simulator import catalog

_PARTLY_TRAINED = re.compile(r"inference|single-layer|forward only", re.IGNORECASE)


def setting_of(written: Cells) -> RunSetting:
    """Returns the setting of a row.

    Raises:
        CannotModelError: it is broken, is not pretraining of a decoder, or uses a number format without constants.
        InputError: words are not understood, and without them the row could be mistaken for something else.
    """
    named = with_layers_of_name(with_noted_sharding(written))
    cells = counted_by_rank(with_noted_degrees(with_tensor_degree(named)))
    told = Told(cells)
    leave_out_unknown_words(told)
    _refuse_broken(cells)
    model, kind = told.name("model"), _kind_of(told)
    is_sequence_split = told_split(told)
    known = known_shape(model, *(cells.count(size) for size in ("layers", "hidden", "heads")))
    refuse_unlike_a_decoder(model, known)
    _refuse_other_work(told, model, kind)
    remark_chosen_tokens(told, known)
    accelerator = accelerator_of(told)
    node = _told_node(told, accelerator)
    precision = precision_of(told, accelerator)
    habits = _habits_on(told, accelerator, precision)
    return RunSetting(
        told=told,
        habits=habits,
        precision=precision,
        kind=kind,
        known=known,
        node=node,
        splits_sequence=is_sequence_split,
    )


def _refuse_broken(cells: Cells) -> None:
    if cells.problems:
        raise CannotModelError("; ".join(cells.problems))


def _kind_of(told: Told) -> str:
    """Returns what was measured; unknown words do not discard a measured time."""
    written = told.text("metric_kind")
    if is_known_kind(written) or not told.cells.has_time:
        return known_kind(written)
    told.remark("metric_kind", "is not understood; the measured time is taken as that of a step")
    return ""


def _refuse_other_work(told: Told, model: str, kind: str) -> None:
    """Refuses rows that are not a whole training step, and rows that are marked."""
    if _PARTLY_TRAINED.search(f"{kind} {model}"):
        raise CannotModelError(f"metric_kind {kind or model}: only steps of training")
    if not is_usable(told.text("usable")):
        raise CannotModelError("usable: the row is marked as unusable")


def _told_node(told: Told, accelerator: str) -> MeasuredNode:
    """Returns the node of a row; remarks what was assumed about it and how its words were understood."""
    node = node_of(told.cells, accelerator)
    told.assumed += node.assumed
    if node.node_remark:
        told.remark("gpus_per_node", node.node_remark)
    if told.text("interconnect").lower() in NOTHING_SAID:
        if node.network_remark:
            told.remark("gpu", node.network_remark)
        return node
    unknown = "is not understood; the usual links of the accelerator stand in"
    if meaning := node.network_remark if node.is_network_understood else unknown:
        told.remark("interconnect", meaning)
    return node


def _habits_on(told: Told, accelerator: str, precision: str) -> Habits:
    """Returns the habits of a row's framework; remarks what the notes name that is not simulated."""
    device = catalog.accelerator(accelerator)
    habits = told_habits(told, device.kernel_family, precision)
    remark_named(told, habits.kernel_launch, device.thermal_design_power_w)
    return habits
