"""What does a measured run offload to main memory? Activations and optimizer states, from what people write."""

from __future__ import annotations

import re

from planner.measured.cells.notes import offloaded_layers
from planner.measured.cells.told import Told
from planner.measured.cells.words import affirmed
from planner.measured.layout.sharding import COLUMN, zero_stage

_OFFLOADED_OPTIMIZER = re.compile(
    r"optimizer(?:[- _]states?)?[- _]?(?:cpu[- _]?)?offload|cpu[- _]?adam"
    r"|offload\w*[- _](?:of[- _])?(?:the[- _])?optimizer",
    re.IGNORECASE,
)
_OFFLOADING_SCHEME = re.compile(r"zero[- _]?[123]?[- _+]*offload", re.IGNORECASE)
_ACTIVATIONS = re.compile(
    r"(?:activations?|(?:activation|gradient)[-_ ]checkpoint(?:s|ing)?)[-_ ](?:cpu[-_ ])?offload\w*"
    r"|offload\w*[-_ ](?:of[-_ ])?(?:the[-_ ])?(?:activations?|gradient[-_ ]checkpoints?)\b",
    re.IGNORECASE,
)
_EXAMPLE = "offloads activations of 20 layers"
_SHARE = re.compile(
    r"(?:optim\w*|offload\w*|cpu[- _]?adam)[^\d,;.%]{0,24}(?:(\d{1,3}) ?(?:%|percent)|0?\.(\d{1,2})\b)",
    re.IGNORECASE,
)
"""The part of an optimizer's states that is offloaded, as in Megatron's `--optimizer-offload-fraction 0.5`."""


def activation_offload_fraction(told: Told, num_layers: int) -> float | None:
    """Returns the share of the layers that the notes say are offloaded; `None` where they say nothing."""
    offloaded, cell = offloaded_layers(told.text("notes")), told.text("recompute")
    if not offloaded and (offloaded := offloaded_layers(cell) if "offload" in cell.lower() else 0):
        told.remark("recompute", f"taken as offloading the activations of {offloaded} layers")
    if (column := _unread_column(told)) == "recompute":
        told.remark(column, f"offloading is left out: notes say it, as: {_EXAMPLE}{_verdict(told)}")
    elif column and (found := affirmed(_ACTIVATIONS, told.text("notes"))):
        told.remark(column, f"{found[0]}: left out; say of how many layers: {_EXAMPLE}{_verdict(told)}")
    return min(1.0, offloaded / num_layers) or None


def leaves_memory_open(told: Told) -> bool:
    """Returns whether a row says that activations are offloaded to main memory, but not for how many layers.

    The recomputation must be stated, since otherwise one that fits is chosen.
    """
    return bool(_unread_column(told)) and "recompute" not in told.assumed


def _verdict(told: Told) -> str:
    return "; memory is not judged" if leaves_memory_open(told) else ""


def _unread_column(told: Told) -> str:
    """Returns the column that says so; empty if none does, or if layers are counted."""
    notes, cell = told.text("notes"), told.text("recompute")
    if offloaded_layers(notes) or offloaded_layers(cell):
        return ""
    if affirmed("offload", cell):
        return "recompute"
    return "notes" if affirmed(_ACTIVATIONS, notes) else ""


def offloads_optimizer(told: Told) -> bool:
    """Returns whether a row says that optimizer states are offloaded to main memory."""
    written, notes = told.text(COLUMN), told.text("notes")
    return bool(affirmed(_OFFLOADED_OPTIMIZER, f"{written}; {notes}")) or _names_scheme(written, notes)


def optimizer_offload_fraction(told: Told) -> float | None:
    """Returns the share of optimizer states that is offloaded, by default all of them; `None` if none is."""
    written, notes = told.text(COLUMN), told.text("notes")
    if offloads_optimizer(told):
        return _share(f"{written}; {notes}")
    if not _offloads_something(written):
        return None
    told.remark(COLUMN, "offloading is taken as that of the optimizer's states alone")
    return 1.0


def _share(said: str) -> float:
    found = _SHARE.search(said)
    if found is None:
        return 1.0
    return min(1.0, int(found[1]) / 100 if found[1] else float(f"0.{found[2]}")) or 1.0


def _names_scheme(written: str, notes: str) -> bool:
    """Returns whether a row names ZeRO-Offload, which keeps optimizer states in main memory.

    If its cell says that nothing is sharded, notes that name it only make a comparison.
    """
    shards_nothing = zero_stage(written) == 0
    return bool(affirmed(_OFFLOADING_SCHEME, written if shards_nothing else f"{written}; {notes}"))


def _offloads_something(written: str) -> bool:
    """Returns whether a cell says that something is offloaded to main memory, such as FSDP's `CPU offload`."""
    return bool(affirmed(r"offload", re.sub(r"activations?[- _](cpu[- _])?offload\w*", "", written.lower())))
