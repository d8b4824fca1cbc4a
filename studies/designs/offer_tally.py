"""What did the designs of each offer reach? How many were evaluated, which limits they break, and their least objectives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from constraints.evaluation import Evaluation
from constraints.limits import ExcessTable
from simulator.domain.job import Job
from simulator.table import Booleans, Floats, Integers


@final
@dataclass(frozen=True, kw_only=True)
class OfferTally:
    """Counts and least objectives of designs, by the `o` offers of a job."""

    num_designs: Integers
    """Designs, `(o,)`."""
    num_feasible: Integers
    """Those that keep all limits, `(o,)`."""
    num_breaking: NDArray[np.int64]
    """Those that break each limit, `(o, limits)`; one design may break several."""
    least: Floats
    """Least value of each objective among the feasible designs, `(o, k)`; infinite without any."""

    @classmethod
    def none(cls, job: Job) -> Self:
        """Returns the tally of no designs."""
        offers = len(job.offers)
        return cls(
            num_designs=np.zeros(offers, dtype=np.int64),
            num_feasible=np.zeros(offers, dtype=np.int64),
            num_breaking=np.zeros((offers, len(ExcessTable.names())), dtype=np.int64),
            least=np.full((offers, len(job.objectives)), np.inf),
        )

    @classmethod
    def of(cls, job: Job, found: Evaluation) -> Self:
        """Returns the tally of evaluated designs under the objectives of a job."""
        offer, num_offers = found.plans.offer, len(job.offers)

        def counted(rows: Booleans) -> Integers:
            return np.bincount(offer[rows], minlength=num_offers)

        feasible = found.is_feasible
        num_feasible, values = counted(feasible), found.objectives(job)[feasible]
        least = np.full((num_offers, len(job.objectives)), np.inf)
        for number in np.flatnonzero(num_feasible).tolist():
            least[number] = values[offer[feasible] == number].min(axis=0)
        return cls(
            num_designs=np.bincount(offer, minlength=num_offers),
            num_feasible=num_feasible,
            num_breaking=np.column_stack(
                [counted(column.astype(bool)) for column in found.excess.columns().values()]
            ),
            least=least,
        )

    def __add__(self, other: Self) -> Self:
        """Returns the tally of the designs of both."""
        return type(self)(
            num_designs=self.num_designs + other.num_designs,
            num_feasible=self.num_feasible + other.num_feasible,
            num_breaking=self.num_breaking + other.num_breaking,
            least=np.minimum(self.least, other.least),
        )

    def breaking_of(self, offers: Iterable[int]) -> dict[str, int]:
        """Returns how many designs of some offers break each limit that any of them breaks."""
        numbers = self.num_breaking[list(offers)].sum(axis=0).tolist()
        return {name: number for name, number in zip(ExcessTable.names(), numbers, strict=True) if number}

    def to_json(self) -> str:
        """Returns the tally as text, which is exact."""
        breaking = dict(zip(ExcessTable.names(), self.num_breaking.T.tolist(), strict=True))
        least = [[value if np.isfinite(value) else None for value in row] for row in self.least.tolist()]
        counts = {"designs": self.num_designs.tolist(), "feasible": self.num_feasible.tolist()}
        return json.dumps({**counts, "breaking": breaking, "least": least})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reverses `to_json`.

        Raises:
            ValueError: the text is of another version.
        """
        told = json.loads(text)
        breaking = told["breaking"]
        if sorted(breaking) != sorted(ExcessTable.names()):
            raise ValueError(
                f"the designs were reduced under other limits than this version knows: {sorted(breaking)}"
            )
        least = [[np.inf if value is None else value for value in row] for row in told["least"]]
        return cls(
            num_designs=np.array(told["designs"], dtype=np.int64),
            num_feasible=np.array(told["feasible"], dtype=np.int64),
            num_breaking=np.array([breaking[name] for name in ExcessTable.names()], dtype=np.int64).T,
            least=np.array(least, dtype=np.float64),
        )
