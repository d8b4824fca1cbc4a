"""How many sequences did a run take at a time, and what did it compute again, that does not say? What is fast and fits.

A run that ran had room. Where it does not tell its micro-batch, the faster of one and two sequences stands in that has. Where
it does not tell what it computes again, and has no room without, what makes room in the least time does. Frameworks that shard
everything seldom accumulate gradients: they are taken to pass the share of a rank at once, or the largest part that has room.
Chunks of a stage are the fastest number that has room where users of the framework pick it (`Habits.picks_chunks`), or one.
Where nothing has room, what needs the least memory stands in. Where it does not tell over how many accelerators it shared out
weights, its own split may have needed less than the one that stands in, whose memory is not judged where it is too large; nor
is that of a run which says that it computes some of it again, and not what. Attention of a release that is not told wrote no
scores for which there was no room: it was a fused kernel.
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
from simulator.domain.calibration import Calibration
from simulator.domain.plan import SPLIT_BACKWARD
from simulator.layout.chunks import can_split_evenly

MICRO_BATCH_SIZES: Final = (1, 2)
"""Sequences that a pipeline usually passes at a time: so do 201 of the 262 configurations of training_runs.csv that tell it."""
FAR: Final = 1.05
"""Memory over capacity beyond which a run that ran did something else: simulated memory is 4 % off on average."""
LAYER_SHARES: Final = 16
"""Into how many parts the layers of a chunk are divided to find the least that has to be computed again."""
_RECOMPUTATION: Final = ("recompute", "recompute_num_layers", "recompute_modules")
_PUT_OFF: Final = tuple(schedule.value for schedule in SPLIT_BACKWARD)
"""Schedules that put off weight gradients."""
_KEEP_SCORES: Final = ("unfused", "eager")
"""Attention kernels that write the scores of every pair of tokens."""
FUSED: Final = "flash-2"
"""Attention of a run without room for scores, as of one that names FlashAttention without a version."""
_OPEN_SPLIT: Final = (
    "over how many accelerators weights are split is not given, and too few are assumed: memory is not judged"
)
_CHOSEN: Final = ("micro_batch", "recompute", "vpp")
"""What may be chosen here, by columns."""
_ALL_OR_NOTHING: Final = ("eager-2022", "blocking-2022")
"""Software from before selective recomputation (arXiv 2205.05198), by how it launches kernels."""


def with_room(comparisons: Sequence[Comparison], calibration: Calibration | None = None) -> list[Comparison]:
    """Returns the runs, with what they do not tell chosen so that they have room, or need least where nothing has."""
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
    """Returns whether a run that ran is simulated too large with attention of separate kernels that it does not tell."""
    if known.ran_out_of_memory or "remarks" not in known.row or known.row["attention"] not in _KEEP_SCORES:
        return False
    return is_untold(known.row, "attention") and known.simulated_memory_bytes > FAR * known.capacity_bytes


def _with_fused_attention(row: Row) -> Row:
    return {**row, "attention": FUSED}


def _scores_remark(row: Row) -> str:
    return f"scores of {row['attention']} attention have no room: taken as {FUSED}; memory is not judged"


def _without_part(known: Comparison) -> Comparison:
    """Returns a run without a verdict on its memory where it says that some of it is computed again, and not what."""
    is_part = known.row.get("recomputes_some") == "true"
    return replace(known, row={**known.row, "has_memory_verdict": "false"}) if is_part else known


def _has_open_split(known: Comparison) -> bool:
    """Returns whether a run that ran is simulated too large with a split of its weights that it does not tell."""
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
    """Returns a row with each micro-batch, recomputation and number of chunks that it may have had and does not tell."""
    designs = [
        {**row, "micro_batch_size": str(size), "virtual_pipeline": str(chunks), **again}
        for size in _micro_batch_sizes(row)
        for chunks in _chunk_counts(row)
        for again in _recomputations(row, chunks)
    ]
    return [design for design, reason in zip(designs, reasons_against(designs), strict=True) if not reason]


def fastest(fitting: Sequence[Comparison]) -> Comparison:
    """Returns the design of the shortest step; of those that shard everything, among the ones with the largest micro-batch."""
    sizes = [int(design.row["micro_batch_size"]) for design in fitting]
    least = max(sizes) if _passes_its_share(fitting[0].row) else 0
    large = [design for design, size in zip(fitting, sizes, strict=True) if size >= least]
    return min(large, key=lambda design: design.simulated_s)


def _recomputes_alike(one: Comparison, other: Comparison) -> bool:
    return all((one.row.get(name) or "") == (other.row.get(name) or "") for name in _RECOMPUTATION)


def _is_open(known: Comparison) -> bool:
    """Returns whether something is chosen for a run: it does not tell what may be why it is simulated too large, or slow.

    Rows that come with capplan, which have no remarks, have what was assumed written out.
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
    """Returns the chunks that stages may have had: those told or usual, or every number that their layers come to.

    Some layers of a chunk that are told to be computed again are those of chunks that are known.
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
    """Returns the cells of nothing, attention, some layers of a chunk, and all of them computed again.

    Pipelines that put off weight gradients, which need the inputs of all products, also of modules that leave those in place.
    """
    if not is_untold(row, "recompute"):
        return [{}]
    whole = [{"recompute": kind, "recompute_num_layers": ""} for kind in ("none", "full")]
    if row["kernel_launch"] in _ALL_OR_NOTHING or row.get("recomputes_all") == "true":
        return whole
    num_layers = int(row["num_layers"]) // (int(row["pipeline_parallel"]) * chunks_per_stage)
    counts = {round(num_layers * part / LAYER_SHARES) for part in range(1, LAYER_SHARES)} - {0, num_layers}
    some = [{**whole[1], "recompute_num_layers": str(count)} for count in sorted(counts)]
    selective = {**whole[0], "recompute": "selective"}
    modules = " ".join(restored_modules(row)) if row.get("pipeline_schedule") in _PUT_OFF else ""
    restored = [{**selective, "recompute_modules": modules}] if modules else []
    return [*whole, selective, *restored, *some]


def _told(supposed: Comparison, chosen: Comparison) -> Comparison:
    """Returns the chosen design, which says so where it is another than the supposed one; its memory is not judged then."""
    if chosen.row == supposed.row:
        return supposed
    untold = [column for column in _CHOSEN if is_untold(chosen.row, column)]
    said = f"not given, taken as what is fast and has room: {said_of(chosen.row, untold)}"
    remarks = [supposed.row.get("remarks"), said]
    row = {**chosen.row, "remarks": "\n".join(filter(None, remarks)), "has_memory_verdict": "false"}
    return replace(chosen, row=row)


def said_of(row: Row, columns: Collection[str] = _CHOSEN) -> str:
    """Returns micro-batch, recomputation and, where there are several, chunks of a stage of a row as text.

    Args:
        row: the run.
        columns: which of them.
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
