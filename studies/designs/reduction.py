"""What is kept of a batch of designs when there are too many to keep all? Its front, and a tally of them by offer.

The front of many batches is the front of their fronts, so reductions combine to exactly what all designs would have given.
A reduction of 30,000 designs takes a few kilobytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np

from constraints.evaluation import Evaluation, judge
from objectives.pareto import front_rows
from simulator.domain.job import Job
from simulator.table import Integers, Table
from studies.designs.offer_tally import OfferTally
from studies.designs.payload import PLANS, Parts, parts_of, to_bytes

PLACES: Final = "places"
TALLY: Final = "tally"
"""Part and fact that only the bytes of a reduction have."""


@final
@dataclass(frozen=True, kw_only=True)
class PlaceTable(Table):
    """Positions of designs in their batch."""

    row: Integers


@final
@dataclass(frozen=True, kw_only=True)
class Reduction:
    """The front of a batch of designs, and a tally of all of them."""

    front: Evaluation
    """Feasible designs that no other design of the batch beats, by ascending first objective."""
    rows: Integers
    """Their positions in the batch, `(n,)`."""
    tally: OfferTally
    """What all of its designs reached, by offer."""

    @property
    def num_evaluated(self) -> int:
        """Number of designs of the batch."""
        return int(self.tally.num_designs.sum())

    @classmethod
    def of(cls, job: Job, evaluation: Evaluation) -> Self:
        """Returns the reduction of evaluated designs under the objectives of a job."""
        feasible = np.flatnonzero(evaluation.is_feasible)
        values = evaluation.objectives(job)[feasible]
        rows = feasible[front_rows(values)]
        return cls(
            front=evaluation.take(rows),
            rows=rows.astype(np.int64),
            tally=OfferTally.of(job, evaluation),
        )

    @classmethod
    def concatenate(cls, job: Job, parts: Sequence[Self]) -> Self:
        """Returns the reduction of all designs of one or more parts in sequence."""
        first = np.cumsum([0, *(part.num_evaluated for part in parts)])
        places = [start + part.rows for start, part in zip(first.tolist(), parts, strict=False)]
        fronts, rows = Evaluation.concatenate([part.front for part in parts]), np.concatenate(places)
        best = front_rows(fronts.objectives(job))
        return cls(
            front=fronts.take(best),
            rows=rows[best],
            tally=sum((part.tally for part in parts), OfferTally.none(job)),
        )

    def to_bytes(self) -> bytes:
        """Returns the reduction as bytes, without what depends on prices and limits."""
        tables: dict[str, Table] = {
            PLANS: self.front.plans,
            **parts_of(self.front.outcomes),
            PLACES: PlaceTable(row=self.rows),
        }
        return to_bytes(tables, {TALLY: self.tally.to_json()})


def is_reduction(parts: Parts) -> bool:
    """Whether the bytes hold a reduction rather than every design of a batch."""
    return TALLY in parts.facts


def read_reduction(job: Job, parts: Parts) -> Reduction:
    """Reverses `Reduction.to_bytes`, under the job that the designs were reduced under.

    Raises:
        ValueError: the bytes are of another version.
    """
    tally = OfferTally.from_json(parts.facts[TALLY])
    return Reduction(
        front=judge(job, parts.plans(), parts.outcomes()),
        rows=parts.table(PLACES, PlaceTable).row,
        tally=tally,
    )


def kept_of(found: Evaluation | Reduction) -> Evaluation:
    """Returns the designs that were kept: all of an evaluation, the front of a reduction."""
    return found.front if isinstance(found, Reduction) else found
