"""What is worth keeping of a batch of designs when there are too many to keep all? Its front, and how many broke what.

The front of many batches is the front of their fronts, so that reductions add up to what all designs would have given,
to the last bit. A reduction of 30,000 designs takes a few kilobytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np

from constraints.evaluation import Evaluation, judge
from constraints.limits import ExcessTable
from objectives.pareto import front_rows
from simulator.domain.job import Job
from simulator.table import Integers, Table
from studies.designs.payload import PLANS, Parts, parts_of, to_bytes

PLACES: Final = "places"
COUNTS: Final = "counts"
"""Part and fact of the bytes that a batch of which all designs were kept does not have."""


@final
@dataclass(frozen=True, kw_only=True)
class PlaceTable(Table):
    """Where designs stood in their batch."""

    row: Integers


@final
@dataclass(frozen=True, kw_only=True)
class Reduction:
    """The front of a batch of designs, and counts of all of them."""

    front: Evaluation
    """Feasible designs that no other design of the batch beats, by rising first objective."""
    rows: Integers
    """Their places in the batch, `(n,)`."""
    num_evaluated: int
    """Designs of the batch."""
    num_feasible: int
    num_breaking: dict[str, int]
    """Designs that break each limit; one design may break several."""

    @classmethod
    def of(cls, job: Job, evaluation: Evaluation) -> Self:
        """Returns the reduction of evaluated designs under the objectives of a job."""
        feasible = np.flatnonzero(evaluation.is_feasible)
        values = evaluation.objectives(job)[feasible]
        rows = feasible[front_rows(values)] if len(feasible) else feasible
        excess = evaluation.excess.columns()
        return cls(
            front=evaluation.take(rows),
            rows=rows.astype(np.int64),
            num_evaluated=len(evaluation),
            num_feasible=len(feasible),
            num_breaking={name: int(np.count_nonzero(column)) for name, column in excess.items()},
        )

    @classmethod
    def concatenate(cls, job: Job, parts: Sequence[Self]) -> Self:
        """Returns the reduction of all designs of some parts, one after another; of at least one part."""
        first = np.cumsum([0, *(part.num_evaluated for part in parts)])
        places = [start + part.rows for start, part in zip(first.tolist(), parts, strict=False)]
        fronts, rows = Evaluation.concatenate([part.front for part in parts]), np.concatenate(places)
        best = front_rows(fronts.objectives(job))
        return cls(
            front=fronts.take(best),
            rows=rows[best],
            num_evaluated=int(first[-1]),
            num_feasible=sum(part.num_feasible for part in parts),
            num_breaking={
                name: sum(part.num_breaking[name] for part in parts) for name in ExcessTable.names()
            },
        )

    def to_bytes(self) -> bytes:
        """Returns it as bytes, without what prices and limits make of the designs."""
        counts = {"evaluated": self.num_evaluated, "feasible": self.num_feasible, **self.num_breaking}
        tables: dict[str, Table] = {
            PLANS: self.front.plans,
            **parts_of(self.front.outcomes),
            PLACES: PlaceTable(row=self.rows),
        }
        return to_bytes(tables, {COUNTS: json.dumps(counts)})


def is_reduction(parts: Parts) -> bool:
    """Whether some bytes hold a reduction, not every design of a batch."""
    return COUNTS in parts.facts


def read_reduction(job: Job, parts: Parts) -> Reduction:
    """Returns the reduction that `Reduction.to_bytes` made bytes of, under the job that it was reduced under.

    Raises:
        ValueError: the bytes are of another version.
    """
    counts: dict[str, int] = json.loads(parts.facts[COUNTS])
    breaking = {name: count for name, count in counts.items() if name not in ("evaluated", "feasible")}
    if sorted(breaking) != sorted(ExcessTable.names()):
        raise ValueError(
            f"the designs were reduced under other limits than this version knows: {sorted(breaking)}"
        )
    return Reduction(
        front=judge(job, parts.plans(), parts.outcomes()),
        rows=parts.table(PLACES, PlaceTable).row,
        num_evaluated=counts["evaluated"],
        num_feasible=counts["feasible"],
        num_breaking=breaking,
    )


def kept_of(found: Evaluation | Reduction) -> Evaluation:
    """Returns the designs that are at hand of what was found."""
    return found.front if isinstance(found, Reduction) else found
