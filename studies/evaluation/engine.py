"""Where are designs simulated? In this process, or wherever an engine sends them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar, final

from constraints.space import PrunedBlock
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.simulate import Outcomes, simulate
from studies.designs.blocks import BlockPart, BlockWorker
from studies.designs.reduction import Reduction

T = TypeVar("T")
Pending = Callable[[], T]
"""Waits for a result and returns it, once."""


class Engine(ABC):
    """Simulates batches of designs of one job."""

    @property
    @abstractmethod
    def num_ahead(self) -> int:
        """Batches worth requesting before the first result arrives."""

    @abstractmethod
    def simulate(self, plans: PlanTable, *, is_awaited: bool) -> Pending[Outcomes]:
        """Starts to simulate designs.

        Args:
            plans: the designs, `(n,)`; the result keeps their order, wherever they are simulated.
            is_awaited: whether the result is wanted at once; otherwise other batches are submitted first.

        Raises:
            EngineError: the designs cannot be simulated there; also raised while waiting for the result.
        """

    @abstractmethod
    def prune(self, number: int) -> Pending[PrunedBlock]:
        """Starts to bound the layouts of a block of the space, given by its number; raises as `simulate`."""

    @abstractmethod
    def reduce(self, part: BlockPart) -> Pending[Reduction]:
        """Starts to simulate designs of which only the front and counts are wanted; raises as `simulate`."""


@final
class ThisProcess(Engine):
    """Simulates when the result is requested, on all cores of this machine that Numba may use."""

    num_ahead = 0

    def __init__(self, job: Job) -> None:
        self._job = job
        self._worker = BlockWorker(job)

    def simulate(self, plans: PlanTable, *, is_awaited: bool) -> Pending[Outcomes]:
        """See `Engine.simulate`."""
        del is_awaited
        return lambda: simulate(self._job, plans)

    def prune(self, number: int) -> Pending[PrunedBlock]:
        """See `Engine.prune`."""
        return lambda: self._worker.prune(number)

    def reduce(self, part: BlockPart) -> Pending[Reduction]:
        """See `Engine.reduce`."""
        return lambda: self._worker.reduce(part)
