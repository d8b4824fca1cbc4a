"""Which micro-batch and recomputation did a run use that does not state them? The fastest that fit.

A run that ran fitted into memory. Choices that its row does not state are filled in as follows:

- Micro-batch: the faster of one and two sequences that fits. Frameworks that shard everything seldom accumulate gradients, so
  such runs are taken to pass a rank's whole share at once, or the largest part of it that fits.
- Recomputation: the assumed one (usually none) if that fits; otherwise the fastest choice that does.
- Chunks per stage: the fastest number that fits where users of the framework pick it (`Habits.picks_chunks`), otherwise one.
- Attention of an unknown release: a fused kernel where the scores would not fit, since the run cannot have stored them.

Where nothing fits, the choice that needs the least memory is taken. The memory of two kinds of runs is not judged. The first do
not state over how many accelerators they sharded the weights and are simulated as too large: their own split may have needed
less. The second say that they recompute something, but not what.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np

from planner.measured.layout.degrees import MOST_UNSPLIT_GPUS
from planner.measured.layout.sharding import SHARD_GROUPS
from planner.measured.recomputation.fitting_modules import restored_modules
from planner.measured.row_reasons import reasons_against
from planner.measured.runs import Comparison, Row, compare, is_untold, whole_share
from planner.measured.workload.images import with_encoder
from simulator.domain.calibration import Calibration
from simulator.domain.plan import SPLIT_BACKWARD
from simulator.layout.chunks import can_split_evenly

MICRO_BATCH_SIZES: Final = (1, 2)
"""Usual micro-batch sizes of a pipeline, used by 201 of the 262 configurations of training_runs.csv that state theirs."""
FAR: Final = 1.05
"""Simulated memory over capacity above which a run that ran must have been set up differently: simulated memory is 4 % off on
average."""
LAYER_SHARES: Final = 16
"""Number of steps in which the recomputed share of a chunk's layers is tried, to find the smallest that fits."""
_RECOMPUTATION: Final = ("recompute", "recompute_num_layers", "recompute_modules")
_PUT_OFF: Final = tuple(schedule.value for schedule in SPLIT_BACKWARD)
"""Schedules that defer weight gradients."""
_KEEP_SCORES: Final = ("unfused", "eager")
"""Attention kernels that store the scores of every pair of tokens."""
FUSED: Final = "flash-2"
"""Attention kernel of a run whose scores would not fit; also that of a run that names FlashAttention without a version."""
_OPEN_SPLIT: Final = (
    "over how many accelerators weights are split is not given, and too few are assumed: memory is not judged"
)
_CHOSEN: Final = ("micro_batch", "recompute", "vpp")
"""Columns whose values may be chosen here."""
_ALL_OR_NOTHING: Final = ("eager-2022", "blocking-2022")
"""Software from before arXiv 2205.05198, by how it launches kernels. That paper brought selective recomputation and
sequence parallelism, so a run with the one can have the other."""


def with_room(comparisons: Sequence[Comparison], calibration: Calibration | None = None) -> list[Comparison]:
    """Returns the runs with their unstated choices filled in so that they fit, or need the least memory where nothing fits."""
    found = _with_choices(comparisons, calibration)
    scored = [position for position, known in enumerate(found) if _has_no_room_for_scores(known)]
    fused = compare([_with_fused_attention(comparisons[position].row) for position in scored], calibration)
    for position, known in zip(scored, _with_choices(fused, calibration), strict=True):
        scores_bytes = found[position].simulated_memory_bytes - known.simulated_memory_bytes
        if not known.is_too_large or scores_bytes > known.capacity_bytes:
            found[position] = _unjudged(known, _scores_remark(comparisons[position].row))
    return [
        _unjudged(known, _OPEN_SPLIT) if _has_open_split(known) else _without_part(known) for known in found
    ]


def _with_choices(comparisons: Sequence[Comparison], calibration: Calibration | None) -> list[Comparison]:
    designs = [
        (position, row)
        for position, known in enumerate(comparisons)
        if _is_open(known)
        for row in untold_designs(known.row)
    ]
    simulated = compare([row for _, row in designs], calibration)
    found = list(comparisons)
    for position, pairs in groupby(zip(designs, simulated, strict=True), key=lambda pair: pair[0][0]):
        found[position] = _told(
            comparisons[position], _chosen(comparisons[position], [design for _, design in pairs])
        )
    return found


def _has_no_room_for_scores(known: Comparison) -> bool:
    """Returns whether a run that ran is simulated as too large because unfused attention was assumed for it."""
    if known.ran_out_of_memory or "remarks" not in known.row or known.row["attention"] not in _KEEP_SCORES:
        return False
    return is_untold(known.row, "attention") and known.simulated_memory_bytes > FAR * known.capacity_bytes


def _with_fused_attention(row: Row) -> Row:
    return {**row, "attention": FUSED}


def _scores_remark(row: Row) -> str:
    return f"scores of {row['attention']} attention have no room: taken as {FUSED}; memory is not judged"


def _without_part(known: Comparison) -> Comparison:
    """Returns the run, without a verdict on its memory if it says that it recomputes something, but not what."""
    is_part = known.row.get("recomputes_some") == "true"
    return replace(known, row={**known.row, "has_memory_verdict": "false"}) if is_part else known


def _has_open_split(known: Comparison) -> bool:
    """Returns whether a run that ran is simulated as too large with an assumed split of its weights."""
    if known.ran_out_of_memory or not known.has_memory_verdict or not known.is_too_large:
        return False
    is_guessed = is_untold(known.row, "tp") and int(known.row["num_gpus"]) > MOST_UNSPLIT_GPUS
    return "remarks" in known.row and (is_guessed or is_untold(known.row, SHARD_GROUPS))


def _unjudged(known: Comparison, said: str) -> Comparison:
    remarks = "\n".join(filter(None, [known.row.get("remarks"), said]))
    return replace(known, row={**known.row, "remarks": remarks, "has_memory_verdict": "false"})


def _chosen(known: Comparison, designs: Sequence[Comparison]) -> Comparison:
    fitting = [design for design in designs if not design.is_too_large]
    if not fitting:
        return min([known, *designs], key=lambda design: design.simulated_memory_bytes)
    supposed = [design for design in fitting if _recomputes_alike(design, known)]
    return fastest(supposed or fitting)


def untold_designs(row: Row) -> list[Row]:
    """Returns one row for every combination of micro-batch, recomputation and chunks that a row leaves open."""
    designs = [
        {**row, "micro_batch_size": str(size), "virtual_pipeline": str(chunks), **again}
        for size in _micro_batch_sizes(row)
        for chunks in _chunk_counts(row)
        for again in (with_encoder(row, each) for each in _recomputations(row, chunks))
    ]
    return [design for design, reason in zip(designs, reasons_against(designs), strict=True) if not reason]


def fastest(fitting: Sequence[Comparison]) -> Comparison:
    """Returns the design with the shortest step; where everything is sharded, only the largest micro-batch is considered."""
    sizes = [int(design.row["micro_batch_size"]) for design in fitting]
    least = max(sizes) if _passes_its_share(fitting[0].row) else 0
    large = [design for design, size in zip(fitting, sizes, strict=True) if size >= least]
    return min(large, key=lambda design: design.simulated_s)


def _recomputes_alike(one: Comparison, other: Comparison) -> bool:
    return all((one.row.get(name) or "") == (other.row.get(name) or "") for name in _RECOMPUTATION)


def _is_open(known: Comparison) -> bool:
    """Returns whether something is chosen for a run: it leaves open what may make its simulation too large or too slow.

    Shipped rows, which have no remarks, already spell out what was assumed.
    """
    if known.ran_out_of_memory or not known.has_memory_verdict or "remarks" not in known.row:
        return False
    if is_untold(known.row, "micro_batch") and (known.is_too_large or not _passes_its_share(known.row)):
        return True
    if len(_chunk_counts(known.row)) > 1:
        return True
    return is_untold(known.row, "recompute") and known.simulated_memory_bytes > FAR * known.capacity_bytes


def _passes_its_share(row: Row) -> bool:
    return row["zero_stage"] == "3" and row["pipeline_parallel"] == "1"


def _micro_batch_sizes(row: Row) -> list[int]:
    size, share = int(row["micro_batch_size"]), whole_share(row)
    if not is_untold(row, "micro_batch"):
        return [size]
    others = range(size, 0, -1) if _passes_its_share(row) else MICRO_BATCH_SIZES
    return [other for other in others if share % other == 0]


def _chunk_counts(row: Row) -> list[int]:
    """Returns the possible chunks per stage: the stated or usual number, or every number that splits the layers evenly.

    A stated number of recomputed layers refers to a known chunk size, so it fixes the usual number.
    """
    usual, num_stages = int(row["virtual_pipeline"] or 1), int(row["pipeline_parallel"])
    told_layers = row.get("recompute_num_layers") and not is_untold(row, "recompute")
    if row.get("picks_chunks") != "true" or not is_untold(row, "vpp") or told_layers:
        return [usual]
    num_layers = int(row["num_layers"])
    counts = np.arange(1, num_layers // num_stages + 1)
    even: list[int] = counts[can_split_evenly(num_layers, counts * num_stages)].tolist()
    return even or [usual]


def _recomputations(row: Row, chunks_per_stage: int) -> list[dict[str, str]]:
    """Returns the cells for recomputing nothing, attention, some layers of a chunk, and all layers.

    Deferred weight gradients need the inputs of all products. Schedules that defer them may therefore also recompute only
    modules that leave those inputs in place.
    """
    if not is_untold(row, "recompute"):
        return [{}]
    whole = [{"recompute": kind, "recompute_num_layers": ""} for kind in ("none", "full")]
    is_early = row["kernel_launch"] in _ALL_OR_NOTHING and row["has_sequence_parallel"] != "true"
    if is_early or row.get("recomputes_all") == "true":
        return whole
    num_layers = int(row["num_layers"]) // (int(row["pipeline_parallel"]) * chunks_per_stage)
    counts = {round(num_layers * part / LAYER_SHARES) for part in range(1, LAYER_SHARES)} - {0, num_layers}
    some = [{**whole[1], "recompute_num_layers": str(count)} for count in sorted(counts)]
    selective = {**whole[0], "recompute": "selective"}
    modules = " ".join(restored_modules(row)) if row.get("pipeline_schedule") in _PUT_OFF else ""
    restored = [{**selective, "recompute_modules": modules}] if modules else []
    return [*whole, selective, *restored, *some]


def _told(supposed: Comparison, chosen: Comparison) -> Comparison:
    """Returns the chosen design; if it differs from the supposed one, it has a remark and its memory is not judged."""
    if chosen.row == supposed.row:
        return supposed
    untold = [column for column in _CHOSEN if is_untold(chosen.row, column)]
    return _unjudged(chosen, f"not given, taken as what is fast and has room: {said_of(chosen.row, untold)}")


def said_of(row: Row, columns: Collection[str] = _CHOSEN) -> str:
    """Returns micro-batch, recomputation and, if there are several, chunks per stage of a row as text.

    Args:
        row: the run.
        columns: which of them to name.
    """
    count, chunks = row.get("recompute_num_layers"), int(row["virtual_pipeline"] or 1)
    modules = row.get("recompute_modules")
    layers = f" of {count} layers a chunk" if count else f" of {modules}" if modules else ""
    said = {
        "micro_batch": f"micro-batch {row['micro_batch_size']}",
        "recompute": f"recomputation {row['recompute'] or 'none'}{layers}",
        "vpp": f"{chunks} chunks a stage" if chunks > 1 else "",
    }
    return ", ".join(text for column, text in said.items() if text and column in columns)
