"""Where are designs simulated? In this process, or wherever an engine takes them."""

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
        """Batches that are worth being asked for before the first one is there."""

    @abstractmethod
    def simulate(self, plans: PlanTable, *, is_awaited: bool) -> Pending[Outcomes]:
        """Begins to simulate designs.

        Args:
            plans: the designs, `(n,)`; the result has them in their order, whoever simulates them.
            is_awaited: whether the result is wanted at once; otherwise other batches follow before that.

        Raises:
            EngineError: the designs cannot be simulated there; raised when the result is waited for, too.
        """

    @abstractmethod
    def prune(self, number: int) -> Pending[PrunedBlock]:
        """Begins to bound the layouts of a block of the space, named by its number; raises as `simulate`."""

    @abstractmethod
    def reduce(self, part: BlockPart) -> Pending[Reduction]:
        """Begins to simulate designs of which the front and counts are all that is wanted; raises as `simulate`."""


@final
class ThisProcess(Engine):
    """Simulates when the result is waited for, on all cores of this machine that Numba may use."""

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
