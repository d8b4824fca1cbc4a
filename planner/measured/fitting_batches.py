"""How many sequences did a run take at a time that does not say, where its whole share of a batch has no room?

Frameworks that shard everything are taken to pass the share of a rank at once. A run that ran had room for what it took: where
that share has none, the rank accumulates gradients over the largest micro-batches that do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from planner.measured.runs import Comparison, Row, compare, reason_against, whole_share
from simulator.calibration import Calibration


def with_room(comparisons: Sequence[Comparison], calibration: Calibration | None = None) -> list[Comparison]:
    """Returns the runs, those whose supposed micro-batch has no room with the largest that has; unchanged where none has."""
    smaller = [
        (position, row)
        for position, known in enumerate(comparisons)
        if _has_no_room(known)
        for row in _smaller(known)
    ]
    simulated = compare([row for _, row in smaller], calibration)
    found = list(comparisons)
    for position, pairs in groupby(zip(smaller, simulated, strict=True), key=lambda pair: pair[0][0]):
        fitting = (other for _, other in pairs if not other.is_too_large)
        found[position] = next(fitting, comparisons[position])
    return found


def _has_no_room(known: Comparison) -> bool:
    """Returns whether nothing but the micro-batch can be why a run is simulated too large; what it recomputes is known."""
    is_judged = known.ran and known.has_memory_verdict and known.is_too_large
    return is_judged and not known.may_recompute and "micro_batch" in known.row["assumed"].split()


def _smaller(known: Comparison) -> list[Row]:
    """Returns the row with each smaller micro-batch that shares out what a rank has of a batch, the largest first."""
    size, share = int(known.row["micro_batch_size"]), whole_share(known.row)
    sizes = [other for other in range(size - 1, 0, -1) if share % other == 0]
    rows = [
        {
            **known.row,
            "micro_batch_size": str(other),
            "remarks": "\n".join(filter(None, [known.row.get("remarks"), _remark(size, other)])),
        }
        for other in sizes
    ]
    return [row for row in rows if not reason_against(row)]


def _remark(size: int, other: int) -> str:
    return f"micro_batch is not given: {size} sequences at a time have no room; taken as {other}, the most that have"
