"""In which order do the pipeline stages of a measured run work? From its columns, its notes or the framework's habit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from planner.measured_layout import can_split
from planner.measured_told import Told
from planner.measured_words import NOTHING_SAID, affirmed, first_affirmed
from simulator.plan import Schedule

COLUMNS = ("pipeline_schedule", "pp_schedule", "schedule")
"""Columns that name it; the first that says something counts."""
_SCHEDULES = (
    ("gpipe|all-?forward|fill-?drain", Schedule.GPIPE),
    (r"zb-?h1|zb-?1p", Schedule.ZB_H1),
    (r"zb-?(v|2p|h2)|zb\b|zero-?bubble|dual-?pipe", Schedule.ZB_V),
    ("interleav|vpp|virtual|looped|1f1b|one-?forward|pipedream-?flush", Schedule.ONE_F_ONE_B),
)
"""Schedules by the words that mean them or something near; the first that fits holds."""
_ONLY_NEAR = re.compile("dual-?pipe|zb-?(1p|2p|h2)|(?<!zbv)(?<!zbv-)zero-?bubble$|zb$")
_IN_NOTES = re.compile(
    r"gpipe|\bzbv-?zero-?bubble|\bzb[- _]?(h1|h2|v|1p|2p)\b|zero[- ]?bubble|dual-?pipe(-?v)?", re.IGNORECASE
)
"""Names that mean a schedule wherever they stand. `Interleaved` alone does not say of how many chunks."""
_INTERLEAVED = re.compile("interleav|looped")
_LEAST_CHUNKS = 2
"""Of a stage that is interleaved, or of one that is passed to and fro."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a row says of its pipeline; `None` where it is as usual."""

    schedule: Schedule | None = None
    chunks_per_stage: int | None = None
    """`Plan.virtual_pipeline`."""


_USUAL = Order()


def ordered(
    told: Told, habit: Schedule | None, layout: Mapping[str, int], num_layers: int, *, keeps_inputs: bool
) -> Order:
    """Returns the schedule of a pipeline and its chunks; nothing where they are as usual.

    One that the layout cannot have is plain 1F1B, which is remarked.

    Args:
        told: the row.
        habit: schedule of the framework where the row names none.
        layout: degrees and batches.
        num_layers: layers of the network.
        keeps_inputs: whether inputs of all products wait for their weight gradients, which zero bubbles need.
    """
    column, name = _named(told)
    schedule = first_affirmed(_SCHEDULES, name) if name else habit
    if layout["pipeline_parallel"] == 1 or (schedule is None and not name):
        return _USUAL
    if schedule is None:
        told.remark(column, "names no known schedule; taken as 1F1B")
        return _USUAL
    if schedule is Schedule.ONE_F_ONE_B:
        return _interleaved(told, column, layout, num_layers) if affirmed(_INTERLEAVED, name) else _USUAL
    chunks = _LEAST_CHUNKS if schedule is Schedule.ZB_V else 1
    if reason := _reason_against(schedule, chunks, layout, num_layers, keeps_inputs=keeps_inputs):
        told.remark(column, f"{schedule.value} {reason}; taken as 1F1B")
        return _USUAL
    if not name:
        told.default("pipeline_schedule", schedule)
    elif _ONLY_NEAR.search(name):
        told.remark(column, f"taken as {schedule.value}, the nearest schedule")
    if (told.cells.count("vpp") or 1) not in (1, chunks):
        told.remark("vpp", f"left out; chunks of a stage with {schedule.value}: {chunks}")
    return Order(schedule=schedule, chunks_per_stage=chunks)


def _named(told: Told) -> tuple[str, str]:
    """Returns the column that names a schedule, and the name; empty where only the framework tells."""
    for column in COLUMNS:
        if told.text(column).lower() not in NOTHING_SAID:
            return column, _plain(told.text(column))
    found = affirmed(_IN_NOTES, told.text("notes"))
    return ("notes", _plain(found[0])) if found else ("framework", "")


def _plain(name: str) -> str:
    return re.sub(r"[_\s]+", "-", name.lower())


def _interleaved(told: Told, column: str, layout: Mapping[str, int], num_layers: int) -> Order:
    """Returns the least chunks that interleaving has, where a row does not say how many."""
    if "vpp" in told.cells.numbers or layout["virtual_pipeline"] > 1:
        return _USUAL
    rounds = layout["global_batch_size"] // (layout["data_parallel"] * layout["micro_batch_size"])
    if rounds % layout["pipeline_parallel"] or not can_split(num_layers, layout, _LEAST_CHUNKS):
        told.remark(column, "two chunks on a stage do not fit layers or batch; give vpp. Taken as 1F1B")
        return _USUAL
    return Order(chunks_per_stage=told.default("vpp", _LEAST_CHUNKS))


def _reason_against(
    schedule: Schedule, chunks: int, layout: Mapping[str, int], num_layers: int, *, keeps_inputs: bool
) -> str:
    """Returns why a layout cannot have a schedule (`constraints.layout`); empty where it can."""
    if schedule is not Schedule.GPIPE and not keeps_inputs:
        return "needs what is computed again, and shards no gradients"
    return "" if can_split(num_layers, layout, chunks) else f"needs layers for {chunks} chunks on each stage"
