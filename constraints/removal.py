"""How many designs does each constraint remove? Counts over the whole space: by rules, by bounds, and by simulation.

A design is a layout with a checkpoint scheme and with or without spares. The counts show what it costs to keep a
constraint: how many of the candidates break it, and how many of them break nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from constraints.bounds import kept_by_bounds
from constraints.evaluation import evaluate
from constraints.feasibility import conflicting_limits
from constraints.lattice import candidate_blocks
from constraints.layout import LAYOUT_RULES
from constraints.layout_rule import LayoutRule
from constraints.limits import ExcessTable
from constraints.scheme_rules import SCHEME_RULES
from constraints.space import Space
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.record import Record
from simulator.run.spare_nodes import sufficient_spare_nodes
from simulator.table import Booleans, Integers

Stage = Literal["rules", "bounds", "simulation"]
DEGREE_RULES = tuple(rule for rule in LAYOUT_RULES if rule not in SCHEME_RULES)
"""Rules that hold for a layout under every checkpoint scheme."""
DESIGNS_PER_BATCH = 16_384
"""Designs that are simulated together."""


class RemovedDesigns(Record):
    """How many designs one constraint removes."""

    constraint: str
    """Its name."""
    stage: Stage
    """How: by layout rules; by bounds that no simulation beats, for designs that meet the rules; by simulation, for designs
    that pass the bounds."""
    num_designs: int
    """Designs that violate it."""
    num_only: int
    """Designs that violate it and no other constraint at this stage."""


@dataclass(frozen=True, kw_only=True)
class SpaceCount:
    """How many of all candidate designs pass each stage."""

    num_tried: int
    """Candidates: all designs whose degrees divide what they must, under every choice of the job."""
    num_valid: int
    """Designs that keep the rules of layouts."""
    num_admitted: int
    """Designs that, by their bounds, may keep memory and every limit."""
    num_feasible: int | None
    """Designs that keep memory and every limit in simulation; `None` where nothing was simulated."""
    removals: tuple[RemovedDesigns, ...]
    """What each constraint removes, stage by stage; constraints that remove nothing are left out."""


class _Tally:
    """Counts by constraint at one stage."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._counts: dict[str, list[int]] = {}

    def add(self, broken: Mapping[str, Booleans], weights: Integers) -> None:
        """Counts designs `(n,)`, each `weights` times, by the constraints that they break."""
        times = np.sum([column.astype(np.int64) for column in broken.values()], axis=0)
        for name, column in broken.items():
            counts = self._counts.setdefault(name, [0, 0])
            counts[0] += int(weights[column].sum())
            counts[1] += int(weights[column & (times == 1)].sum())

    def removals(self) -> list[RemovedDesigns]:
        """The counts, constraint by constraint."""
        return [
            RemovedDesigns(constraint=name, stage=self._stage, num_designs=broken, num_only=only)
            for name, (broken, only) in self._counts.items()
            if broken
        ]


def count_designs(job: Job, space: Space, *, simulate_up_to: int) -> SpaceCount:
    """Returns how many designs each constraint removes.

    Args:
        job: the job.
        space: its space.
        simulate_up_to: most designs that may be simulated; a larger space is counted by rules and bounds alone.
    """
    num_tried, by_rules = _by_rules(job)
    by_bounds, num_valid = _by_bounds(job, space)
    by_simulation, num_feasible = _Tally("simulation"), None
    if space.num_designs <= simulate_up_to:
        by_simulation, num_feasible = _by_simulation(job, space)
    return SpaceCount(
        num_tried=num_tried,
        num_valid=num_valid,
        num_admitted=space.num_designs,
        num_feasible=num_feasible,
        removals=(*by_rules.removals(), *by_bounds.removals(), *by_simulation.removals()),
    )


def conflicting_choices(job: Job) -> tuple[str, ...]:
    """Returns rules that no candidate layout keeps together under any scheme; empty if some layout keeps all.

    The conflict is minimal: if any one of its rules is dropped, some candidate layout keeps the rest.
    """
    patterns = [
        np.unique(np.column_stack(list(_broken(job, layouts, DEGREE_RULES).values())), axis=0)
        for layouts in candidate_blocks(job)
    ]
    names = [rule.name for rule in DEGREE_RULES]
    is_broken = dict(zip(names, np.concatenate(patterns).astype(np.float64).T, strict=True))
    return conflicting_limits(is_broken, dict.fromkeys(names, 0.0))


def rules_of_schemes(job: Job) -> tuple[str, ...]:
    """Returns the rules of checkpoint schemes that layouts with valid degrees break, in the order of the rules."""
    found: set[str] = set()
    for layouts in candidate_blocks(job):
        has_degrees = ~np.any(list(_broken(job, layouts, DEGREE_RULES).values()), axis=0)
        for scheme in job.search.checkpoint_schemes:
            plans = layouts.saving_by(scheme).take(has_degrees)
            found |= {name for name, column in _broken(job, plans, SCHEME_RULES).items() if column.any()}
    return tuple(rule.name for rule in SCHEME_RULES if rule.name in found)


def _by_rules(job: Job) -> tuple[int, _Tally]:
    """The number of candidates, and how many of them the rules of layouts remove."""
    tally, num_tried = _Tally("rules"), 0
    for layouts in candidate_blocks(job):
        weights = _num_spare_choices(job, layouts)
        of_degrees = _broken(job, layouts, DEGREE_RULES)
        for scheme in job.search.checkpoint_schemes:
            plans = layouts.saving_by(scheme)
            tally.add(of_degrees | _broken(job, plans, SCHEME_RULES), weights)
            num_tried += int(weights.sum())
    return num_tried, tally


def _broken(job: Job, plans: PlanTable, rules: tuple[LayoutRule, ...]) -> dict[str, Booleans]:
    offers = OfferTable.from_job(job).take(plans.offer)
    return {rule.name: rule.excess(job, plans, offers) > 0.0 for rule in rules}


def _num_spare_choices(job: Job, layouts: PlanTable) -> Integers:
    """Designs of each layout and scheme, `(n,)`: with and without spares coincide where zero spares are sufficient."""
    choices = job.search.with_spares
    is_twin = (sufficient_spare_nodes(job, layouts) == 0) & (False in choices)
    return np.asarray(len(choices) - is_twin * (True in choices), dtype=np.int64)


def _by_bounds(job: Job, space: Space) -> tuple[_Tally, int]:
    """What memory and the bounds on limits remove of the valid designs, and the number of valid designs."""
    tally, num_valid = _Tally("bounds"), 0
    for block in space.blocks():
        broken = {name: ~kept for name, kept in kept_by_bounds(job, block.bounds).items()}
        tally.add(broken, block.num_designs)
        num_valid += int(block.num_designs.sum())
    return tally, num_valid


def _by_simulation(job: Job, space: Space) -> tuple[_Tally, int]:
    """What only simulation removes, and how many designs are left."""
    tally, num_feasible = _Tally("simulation"), 0
    for plans in space.design_batches(DESIGNS_PER_BATCH):
        excess = evaluate(job, plans).excess
        tally.add(
            {name: getattr(excess, name) > 0.0 for name in ExcessTable.names()},
            np.ones(len(plans), dtype=np.int64),
        )
        num_feasible += int(excess.is_feasible.sum())
    return tally, num_feasible
