"""What is each part of the search worth? One part at a time is removed, with an equal number of evaluations.

    python -m benchmarks.search_parts
    python -m benchmarks.search_parts --job 405B --seeds 3

Prints the share of the exhaustive front's volume that NSGA-II reaches with a twentieth of the evaluations, as in
`benchmarks.search`. The whole search comes first, then populations alone: after the screening they use so few evaluations that
the worth of their operators would not show. Shares do not depend on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import ClassVar, final
from unittest.mock import patch

import numpy as np

from benchmarks.search import Exhausted
from benchmarks.search_jobs import HELD_OUT, SEEN
from benchmarks.sheets import markdown_row
from simulator.domain.plan import PlanTable
from simulator.domain.search_options import Algorithm
from simulator.table import Floats, Integers
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.archive import Archive
from studies.designs.knobs import Knobs
from studies.searchers.estimates import Estimator
from studies.searchers.mating import MOST_TRIES
from studies.searchers.neighbours import Neighbours
from studies.searchers.tuning import DEFAULT, Tuning
from studies.searchers.variation import EXCHANGE_PROBABILITY, Spread

JOBS = (
    "70B, 3 objectives, tight",
    "405B, 2 objectives, tight power",
    "70B on B200, late runs, chance",
    "BLOOM, 4 objectives, free layout",
    "405B, 3 objectives, tight carbon",
)
"""Jobs of `benchmarks.search_jobs` whose searches take less than a second."""


@final
class NoNeighbours(SearchAlgorithm):
    """Replaces `Neighbours` so that the front is not compared with its neighbours."""

    stage: ClassVar[str] = Neighbours.stage

    def __init__(self, knobs: Knobs, archive: Archive, estimator: Estimator | None = None) -> None:
        """Takes what `Neighbours` takes."""
        del archive, estimator
        self._none = knobs.no_designs()

    def suggest(self) -> PlanTable:
        """Returns no designs."""
        return self._none

    def update(self, results: Results) -> None:
        """Learns nothing."""
        del results


def neighbours_in_any_order(knobs: Knobs, archive: Archive, estimator: Estimator | None = None) -> Neighbours:
    """Replaces `Neighbours` so that no estimates decide which neighbours come first."""
    del estimator
    return Neighbours(knobs, archive)


def unmutated(*, mutation_probability: float, **spread: float) -> Spread:
    """Replaces `Spread` so that no knob changes by itself."""
    del mutation_probability
    return Spread(mutation_probability=0.0, **spread)


def unordered(
    mothers: Integers, fathers: Integers, largest: Integers, spread: Spread, draws: Floats
) -> Integers:
    """Replaces `variation.varied` by one in which values have no order: a knob comes from a parent, or is any of its values."""
    exchange, change = draws[:, 1::2], draws[:, 2::2] / spread.mutation_probability
    is_crossed = (draws[:, :1] < spread.crossover_probability) & (exchange < EXCHANGE_PROBABILITY)
    anywhere = np.floor(np.minimum(change, 1.0) * (largest + 1)).astype(np.int64)
    return np.where(change < 1.0, anywhere, np.where(is_crossed, fathers, mothers))


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A search without some part."""

    name: str
    tuning: Tuning = DEFAULT
    num_restarts: int = 2
    stand_ins: Mapping[str, object] = field(default_factory=dict)
    """What replaces the part, by the name under which the search finds it."""


NO_NEIGHBOURS: Mapping[str, object] = {"studies.study.Neighbours": NoNeighbours}
ANY_ORDER: Mapping[str, object] = {"studies.study.Neighbours": neighbours_in_any_order}
"""Without screening there are no estimates that could order neighbours."""
WHOLE = (
    Variant(name="whole search"),
    Variant(
        name="no screening by estimates",
        tuning=replace(DEFAULT, screening_share=0.0),
        stand_ins=ANY_ORDER,
    ),
    Variant(
        name="first designs at random, none from bounds",
        stand_ins={"studies.searchers.starts.FRONT_SHARE": 0.0},
    ),
    Variant(name="no populations", tuning=replace(DEFAULT, evolution_share=0.0)),
    Variant(name="no restart", num_restarts=1),
    Variant(name="neighbours in any order", stand_ins=ANY_ORDER),
    Variant(
        name="no neighbours, populations spend the rest",
        tuning=replace(DEFAULT, evolution_share=1.0),
        stand_ins=NO_NEIGHBOURS,
    ),
)
"""The search as it is, then without one part each."""


def populations(
    name: str,
    stand_ins: Mapping[str, object] | None = None,
    *,
    num_restarts: int = 2,
    crossover_probability: float = DEFAULT.crossover_probability,
) -> Variant:
    """Returns populations alone, without some operator."""
    return Variant(
        name=name,
        tuning=replace(
            DEFAULT, screening_share=0.0, evolution_share=1.0, crossover_probability=crossover_probability
        ),
        num_restarts=num_restarts,
        stand_ins={**NO_NEIGHBOURS, **(stand_ins or {})},
    )


ALONE = (
    populations("populations alone"),
    populations("no crossover", crossover_probability=0.0),
    populations("no mutation", {"studies.searchers.mating.Spread": unmutated}),
    populations("values of knobs without order", {"studies.searchers.mating.varied": unordered}),
    populations("no repair", {"studies.searchers.mating.FIRST_REPAIRED": MOST_TRIES + 1}),
    populations("first designs at random", {"studies.searchers.starts.FRONT_SHARE": 0.0}),
    populations("no restart", num_restarts=1),
)
"""Populations alone, then without one operator each."""


def shares_of(exhausted: Exhausted, variant: Variant, num_seeds: int) -> list[float]:
    """Returns the share of the volume that each seed finds."""
    changes = {"num_restarts": variant.num_restarts}
    if variant.tuning.evolution_share == 1.0:  # nothing would spend what a stagnant population leaves
        changes["stagnation_evaluations"] = exhausted.num_evaluations
    search = exhausted.job.search.model_copy(update=changes)
    changed = replace(exhausted, job=exhausted.job.model_copy(update={"search": search}))
    with ExitStack() as stack:
        for target, stand_in in variant.stand_ins.items():
            stack.enter_context(patch(target, stand_in))
        return [changed.share_found(Algorithm.NSGA2, seed, variant.tuning) for seed in range(num_seeds)]


def part_rows(jobs: Sequence[Exhausted], variants: Sequence[Variant], num_seeds: int) -> Iterator[str]:
    """Yields each variant: median and least share by job, and the mean over all jobs and seeds."""
    for variant in variants:
        shares = [shares_of(job, variant, num_seeds) for job in jobs]
        found = [f"{median(share):.4f}, {min(share):.4f}" for share in shares]
        yield markdown_row(variant.name, *found, f"{mean(map(mean, shares)):.4f}")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--job", default="", help="only jobs whose name has this in it")
    arguments = parser.parse_args()
    makers = {name: ({**SEEN, **HELD_OUT})[name] for name in JOBS if arguments.job in name}
    jobs = [Exhausted.of(make()) for make in makers.values()]
    for title, variants in {"Parts of the search": WHOLE, "Parts of its populations": ALONE}.items():
        print(f"\n{title}: median, least share of the volume\n")
        print(markdown_row("search", *makers, "mean of all"))
        print(markdown_row("---", *["---:"] * (len(jobs) + 1)))
        for row in part_rows(jobs, variants, arguments.seeds):
            print(row, flush=True)


if __name__ == "__main__":
    main()
