"""What is a rule of layouts?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.table import Floats


@dataclass(frozen=True, kw_only=True)
class LayoutRule:
    """One rule: its name in reports, a sentence for readers, and how far each plan is from keeping it."""

    name: str
    sentence: str
    excess: Callable[[Job, PlanTable, OfferTable], Floats]
    """`(n,)`: 0 where the rule is kept, otherwise a positive distance from keeping it."""
