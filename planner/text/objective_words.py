"""What are objectives called, and in which units are their values written?"""

from __future__ import annotations

from collections.abc import Iterable

from planner.text import human
from simulator.domain.job import Objective
from simulator.units import JOULES_PER_KWH

OBJECTIVE_WORDS = {
    Objective.TIME: "time to train",
    Objective.COST: "cost",
    Objective.ENERGY: "energy",
    Objective.CARBON: "carbon",
    Objective.TIME_P95: "P95 time to train",
    Objective.COST_P95: "P95 cost",
    Objective.DEADLINE_RISK: "risk of missing the deadline",
    Objective.BUDGET_RISK: "risk of exceeding the budget",
}
"""Objectives for readers."""


def objectives_in_words(names: Iterable[str]) -> str:
    """Returns objectives for readers, by their names in a job: `cost, P95 time to train`."""
    return ", ".join(OBJECTIVE_WORDS[Objective(name)] for name in names)


def amount(objective: Objective, value: float) -> str:
    """Returns an objective's value in a unit for readers: `31.4 days`."""
    match objective:
        case Objective.TIME | Objective.TIME_P95:
            return human.duration(value)
        case Objective.COST | Objective.COST_P95:
            return human.dollars(value)
        case Objective.DEADLINE_RISK | Objective.BUDGET_RISK:
            return human.risk(value)
        case Objective.ENERGY:
            return human.energy(value / JOULES_PER_KWH)
        case Objective.CARBON:
            return human.carbon(value)
