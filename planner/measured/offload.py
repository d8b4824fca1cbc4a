"""What of a measured run waits in main memory? Activations and states of the optimizer, from what people write."""

from __future__ import annotations

import re

from planner.measured.notes import offloaded_layers
from planner.measured.sharding import COLUMN
from planner.measured.told import Told
from planner.measured.words import affirmed

_OFFLOADED_OPTIMIZER = re.compile(
    r"zero[- _]?[123]?[- _+]*offload|optimizer(?:[- _]states?)?[- _]?(?:cpu[- _]?)?offload|cpu[- _]?adam"
    r"|offload\w*[- _](?:the[- _])?optimizer",
    re.IGNORECASE,
)


def activation_offload_fraction(told: Told, num_layers: int) -> float | None:
    """Returns the share of the layers that the notes say are offloaded; `None` where they say nothing."""
    offloaded, cell = offloaded_layers(told.text("notes")), told.text("recompute")
    if not offloaded and "offload" in cell.lower():
        offloaded = offloaded_layers(cell)
        left_out = "offloading is left out: notes say it, as: offloads activations of 20 layers"
        taken = f"taken as offloading the activations of {offloaded} layers"
        told.remark("recompute", taken if offloaded else left_out)
    return min(1.0, offloaded / num_layers) or None


def optimizer_offload_fraction(told: Told) -> float | None:
    """Returns 1 where the optimizer's states wait in main memory; `None` where no one says so."""
    written = told.text(COLUMN)
    if _offloads_optimizer(f"{written}; {told.text('notes')}"):
        return 1.0
    if not _offloads_something(written):
        return None
    told.remark(COLUMN, "offloading is taken as that of the optimizer's states alone")
    return 1.0


def _offloads_optimizer(written: str) -> bool:
    """Returns whether the optimizer's states wait in main memory, as ZeRO-Offload keeps them."""
    return bool(affirmed(_OFFLOADED_OPTIMIZER, written))


def _offloads_something(written: str) -> bool:
    """Returns whether a cell says that something waits in main memory, such as the `CPU offload` of FSDP."""
    return bool(affirmed(r"offload", re.sub(r"activations?[- _](cpu[- _])?offload\w*", "", written.lower())))
