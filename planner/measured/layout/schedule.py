"""In which order do the pipeline stages of a measured run work? From its columns, its notes or the framework's habit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from planner.measured.cells import notes as measured_notes
from planner.measured.cells.told import Told
from planner.measured.cells.words import NOTHING_SAID, affirmed, first_affirmed, is_denied
from planner.measured.frameworks.families import PYTORCH, software_family
from planner.measured.frameworks.names import is_torchtitan
from planner.measured.layout.degrees import GROUP_SIZE, SCHEDULE_COLUMNS, can_split, told_group_size
from planner.measured.run_layout import RunLayout
from simulator.domain.plan import TO_AND_FRO, Schedule

_SCHEDULES = (
    (r"gpipe|all-?forward|\bafab\b|fill-?drain", Schedule.GPIPE),
    (r"zb-?h1|zb-?1p", Schedule.ZB_H1),
    ("dual-?pipe", Schedule.DUAL_PIPE_V),
    (r"zb-?(v|2p|h2)|zb\b|zero-?bubble", Schedule.ZB_V),
    (
        "interleav|vpp|virtual|looped|breadth-?first|depth-?first|1f1b|one-?forward|pipedream-?flush",
        Schedule.ONE_F_ONE_B,
    ),
)
"""Schedules by the words that mean them or something close; the first match decides."""
_ONLY_NEAR = re.compile("zb-?(1p|2p|h2)|(?<!zbv)(?<!zbv-)zero-?bubble$|zb$")
_IN_TWO_DIRECTIONS = re.compile("dual-?pipe(?!-?v)")
"""Pipelines on which micro-batches travel both ways: DualPipe before it is cut in half."""
_MIRRORED = 2
"""Stages of DualPipe that do the same, one from either end."""
_IN_NOTES = re.compile(
    r"gpipe|\bafab\b|(?<!interleaved[- ])\b1f1b\b|\bzbv-?zero-?bubble|\bzb[- _]?(h1|h2|v|1p|2p)\b|zero[- ]?bubble"
    r"|dual-?pipe(-?v)?",
    re.IGNORECASE,
)
"""Names that mean a schedule wherever they stand. `Interleaved` alone does not say of how many chunks, but for torchtitan: its
schedules of several have two if nothing else is said (`stages_per_rank` in `pipeline_parallel.py`)."""
_INTERLEAVED = re.compile("interleav(?!(?:ed?)?[-_ ]moe)|looped|breadth-?first|depth-?first", re.IGNORECASE)
_BREADTH_FIRST = re.compile("looped-?bfs|breadth-?first")
"""Chunks in the order of GPipe: all micro-batches pass one chunk before the next (arXiv 2211.05953), so all are kept."""
_KEEPS_TWICE = re.compile("zb-?(2p|h2)")
"""Schedules of one chunk that keep up to 2 p - 1 micro-batches on p stages; 1F1B keeps p (arXiv 2401.10241, section 2.2)."""
_LEAST_CHUNKS = 2
"""Of a stage that is interleaved, or of one that is passed to and fro."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a row says about its pipeline; `None` for what is usual."""

    schedule: Schedule | None = None
    chunks_per_stage: int | None = None
    """`Plan.virtual_pipeline`."""
    num_mirrored: int = 1
    """Number of stages that do the same work: the simulated pipeline has that many times fewer, and more replicas instead."""
    has_memory: bool = True
    """Whether what the schedule keeps in memory is simulated."""

    def simulated(self, layout: RunLayout) -> RunLayout:
        """Returns the layout with which the pipeline is simulated."""
        chunks = self.chunks_per_stage or layout.virtual_pipeline
        return replace(layout.folded(self.num_mirrored), virtual_pipeline=chunks)


_USUAL = Order()


def ordered(
    told: Told, habit: Schedule | None, layout: RunLayout, num_layers: int, *, keeps_inputs: bool
) -> Order:
    """Returns the schedule of a pipeline and its chunks; nothing if they are as usual.

    A schedule that is impossible with the layout is simulated as plain 1F1B, with a remark.

    Args:
        told: the row.
        habit: schedule of the framework where the row names none.
        layout: degrees and batches.
        num_layers: layers of the network.
        keeps_inputs: whether inputs of all products are kept for their weight gradients, which zero-bubble schedules need.
    """
    column, name = _named(told)
    schedule = first_affirmed(_SCHEDULES, name) if name else habit
    if layout.pipeline_parallel == 1 or (schedule is None and not name):
        return _USUAL
    if schedule is None:
        told.remark(column, "names no known schedule; taken as 1F1B")
        return _USUAL
    if schedule is Schedule.ONE_F_ONE_B:
        order = _interleaved(told, column, layout, num_layers) if affirmed(_INTERLEAVED, name) else _USUAL
        return _breadth_first(told, column, order) if affirmed(_BREADTH_FIRST, name) else order
    is_both_ways = schedule is Schedule.DUAL_PIPE_V and (not name or bool(_IN_TWO_DIRECTIONS.search(name)))
    num_mirrored = _MIRRORED if is_both_ways and _can_fold(layout, num_layers) else 1
    fitting, missing = _fitting(schedule, layout.folded(num_mirrored), num_layers)
    if fitting is not Schedule.GPIPE and not keeps_inputs:
        meaning = f"{schedule.value} needs what is computed again, and shards no gradients; taken as 1F1B"
        told.remark(column, meaning)
        return _USUAL
    keeps_twice = bool(_KEEPS_TWICE.search(name))
    if missing:
        told.remark(column, f"{schedule.value} needs {missing}; taken as {fitting.value}")
    else:
        _remark_likeness(told, column, name, schedule, num_mirrored)
    if keeps_twice:
        told.remark(
            column, "keeps up to twice the activations of 1F1B, which is not simulated: memory is not judged"
        )
    if not name:
        told.default("pipeline_schedule", fitting)
    chunks = _chunks(fitting)
    if (told.cells.count("vpp") or 1) not in (1, chunks):
        told.remark("vpp", f"left out; chunks of a stage with {fitting.value}: {chunks}")
    return Order(
        schedule=fitting, chunks_per_stage=chunks, num_mirrored=num_mirrored, has_memory=not keeps_twice
    )


def remark_unknown_chunks(told: Told, layout: RunLayout) -> None:
    """Remarks that a pipeline whose notes call it interleaved is taken as 1F1B if nothing states its chunks."""
    is_open = says_nothing_of_chunks(told) and layout.pipeline_parallel > 1 == layout.virtual_pipeline
    if is_open and affirmed(_INTERLEAVED, told.text("notes")):
        told.remark("vpp", "the notes say interleaved, but not of how many chunks; taken as 1F1B")


def says_nothing_of_chunks(told: Told) -> bool:
    """Returns whether a row neither states nor denies a pipeline schedule or chunks per stage."""
    _, name = _named(told)
    notes = told.text("notes")
    is_noted = measured_notes.virtual_pipeline(notes) or measured_notes.layers_of_a_chunk(notes)
    return not (name or is_noted or "vpp" in told.cells.numbers or is_denied(_INTERLEAVED, notes))


def interleaved_group(told: Told, layout: RunLayout, schedule: Schedule | None) -> int | None:
    """Returns the micro-batches per interleaved group if they differ from the stages; remarks if there is no such group.

    Args:
        told: the row.
        layout: degrees, with the assumed chunks per stage.
        schedule: the schedule if it is not 1F1B.
    """
    size = told_group_size(told)
    if size is None and layout.virtual_pipeline > 1 and schedule is None:
        size = _round_of_pytorch(told, layout)
    if size is None or size == layout.pipeline_parallel:
        return None
    if layout.virtual_pipeline == 1 or schedule is not None:
        told.remark(GROUP_SIZE, f"{size} left out; the pipeline is not interleaved")
        return None
    return size


def _round_of_pytorch(told: Told, layout: RunLayout) -> int | None:
    """Returns the micro-batches of a group in PyTorch's interleaved pipelines; `None` of others, or if it refuses them.

    Where stages do not divide the micro-batches, its groups are as few as stages fill, and larger (`number_of_rounds` and
    `microbatches_per_round` of `ScheduleInterleaved1F1B`), with the warm-up of Megatron Core's.
    """
    micro_batches, stages = layout.num_micro_batches, layout.pipeline_parallel
    if software_family(told.framework) != PYTORCH or micro_batches < stages:
        return None
    size, rest = divmod(micro_batches, micro_batches // stages)
    return None if rest else size


def _chunks(schedule: Schedule) -> int:
    return _LEAST_CHUNKS if schedule in TO_AND_FRO else 1


def _fitting(schedule: Schedule, layout: RunLayout, num_layers: int) -> tuple[Schedule, str]:
    """Returns the same, or the zero bubble that a layout can have which lacks something for it, and what that is."""
    if not can_split(num_layers, layout, _chunks(schedule)):
        return Schedule.ZB_H1, f"layers for {_chunks(schedule)} chunks on each stage"
    if schedule is Schedule.DUAL_PIPE_V and layout.num_micro_batches < 2 * layout.pipeline_parallel:
        return Schedule.ZB_V, "two micro-batches for each stage"
    return schedule, ""


def _can_fold(layout: RunLayout, num_layers: int) -> bool:
    """Returns whether DualPipe is DualPipeV on half of the stages with twice the replicas, half of the batch for each."""
    p, m = layout.pipeline_parallel, layout.num_micro_batches
    is_whole = p % _MIRRORED == 0 and p > _MIRRORED and m % _MIRRORED == 0
    fitting, _ = _fitting(Schedule.DUAL_PIPE_V, layout.folded(_MIRRORED), num_layers)
    return is_whole and fitting is Schedule.DUAL_PIPE_V


def _remark_likeness(told: Told, column: str, name: str, schedule: Schedule, num_mirrored: int) -> None:
    """Remarks that a schedule is simulated as a similar one, or as one that is equal in another layout."""
    if _ONLY_NEAR.search(name):
        told.remark(column, f"taken as {schedule.value}, the nearest schedule")
    if num_mirrored > 1:
        meaning = f"DualPipe is simulated as its equal, {schedule.value} on half of the stages with twice the replicas"
        told.remark(column, meaning)
    elif _IN_TWO_DIRECTIONS.search(name):
        meaning = f"taken as {schedule.value}, its half, which holds all weights once instead of twice"
        told.remark(column, meaning)


def _named(told: Told) -> tuple[str, str]:
    """Returns the column that names a schedule, and the name; empty where only the framework tells."""
    for column in SCHEDULE_COLUMNS:
        if told.text(column).lower() not in NOTHING_SAID:
            return column, _plain(told.text(column))
    notes = told.text("notes")
    found = affirmed(_IN_NOTES, notes)
    if found is None and is_torchtitan(told.framework):
        found = affirmed(_INTERLEAVED, notes)
    return ("notes", _plain(found[0])) if found else ("framework", "")


def _plain(name: str) -> str:
    return re.sub(r"[_\s]+", "-", name.lower())


def _interleaved(told: Told, column: str, layout: RunLayout, num_layers: int) -> Order:
    """Returns the smallest number of chunks for interleaving, if a row does not say how many."""
    if "vpp" in told.cells.numbers or layout.virtual_pipeline > 1:
        return _USUAL
    is_whole = layout.num_micro_batches % layout.pipeline_parallel == 0
    has_group = told_group_size(told) or _round_of_pytorch(told, layout)
    if not ((is_whole or has_group) and can_split(num_layers, layout, _LEAST_CHUNKS)):
        told.remark(column, "two chunks on a stage do not fit layers or batch; give vpp. Taken as 1F1B")
        return _USUAL
    return Order(chunks_per_stage=told.default("vpp", _LEAST_CHUNKS))


def _breadth_first(told: Told, column: str, order: Order) -> Order:
    """Returns interleaved 1F1B for a schedule that keeps all micro-batches, which it says."""
    told.remark(column, "taken as interleaved 1F1B, which keeps fewer micro-batches: memory is not judged")
    return replace(order, has_memory=False)
