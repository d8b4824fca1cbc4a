"""Where do the evaluations of a search come from? From the simulator, or from a journal of earlier results.

A search is deterministic, so a study is resumed by starting it again. Results that the journal holds are read back; where
it ends, designs are simulated and written, each batch while the next one is being simulated.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeVar, final

import numpy as np

from constraints.evaluation import Evaluation, evaluate, judge
from constraints.lattice import BlockIndex
from constraints.space import Space, pruned_space, space_of
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.errors import StudyError
from simulator.simulate import Outcomes
from studies.designs.blocks import LEAST_SHARED_BLOCKS, BlockPart
from studies.designs.plan_keys import are_same
from studies.designs.reduction import Reduction, read_reduction
from studies.evaluation.engine import Engine, Pending, ThisProcess
from studies.files.behind import Behind
from studies.files.journal import Batch, Journal
from studies.files.known_designs import KnownDesigns

Clock = Callable[[], float]
"""Seconds since an arbitrary moment, monotonic."""
T = TypeVar("T")


class Evaluator(ABC):
    """Where evaluations come from."""

    @abstractmethod
    def evaluate(self, plans: PlanTable, stage: str) -> Evaluation:
        """Returns the evaluation of designs with valid layouts.

        Args:
            plans: the designs, `(n,)`.
            stage: the stage of the search that asks for them.
        """

    @abstractmethod
    def space(self) -> Space:
        """Returns the layouts that may keep every limit; their bounds may be computed elsewhere."""

    def ahead(self, batches: Iterator[PlanTable]) -> Iterator[PlanTable]:
        """Yields batches that do not depend on earlier results, and starts them early if several can be simulated at once.

        Args:
            batches: the batches, which will be requested in this order with nothing in between.
        """
        return batches

    @abstractmethod
    def elapsed_s(self) -> float:
        """Returns how long the study had been running, over all its starts, when its last designs were evaluated."""


@final
class Simulation(Evaluator):
    """Simulates every design and remembers none."""

    def __init__(self, job: Job, clock: Clock = time.monotonic) -> None:
        self._job = job
        self._clock = clock
        self._started_s = clock()
        self._elapsed_s = 0.0

    def evaluate(self, plans: PlanTable, stage: str) -> Evaluation:
        """See `Evaluator.evaluate`; the stage does not matter."""
        del stage
        evaluation = evaluate(self._job, plans)
        self._elapsed_s = self._clock() - self._started_s
        return evaluation

    def space(self) -> Space:
        """See `Evaluator.space`."""
        return pruned_space(self._job)

    def elapsed_s(self) -> float:
        """See `Evaluator.elapsed_s`."""
        return self._elapsed_s


@final
class JournaledSimulation(Evaluator):
    """Reads back what the journal holds, lets the engine simulate the rest, and writes it down. A context manager.

    The journal has the batches in the order in which they were requested, wherever and whenever they were simulated. The
    last batch may still be unwritten until `settle` returns, so call `settle` before publishing designs.
    """

    def __init__(
        self,
        job: Job,
        journal: Journal,
        known: KnownDesigns,
        engine: Engine | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """Starts at the beginning of the journal.

        Args:
            job: the job of the study.
            journal: its journal, opened for writing.
            known: designs that other studies have simulated.
            engine: simulates the designs; by default this process.
            clock: measures the time that the study takes.
        """
        self._job = job
        self._journal = journal
        self._known = known
        self._engine = engine or ThisProcess(job)
        self._clock = clock
        self._num_there = journal.num_batches
        self._writing = Behind("journal")
        self._number = 0
        self._elapsed_s = 0.0
        self._resumed_at_s = clock()
        self._under_way: deque[tuple[PlanTable, Pending[Outcomes]]] = deque()
        self.num_read_back = 0
        """Designs that the journal held."""
        self.num_reused = 0
        """Designs that another study had simulated."""
        self.num_simulated = 0

    def evaluate(self, plans: PlanTable, stage: str) -> Evaluation:
        """See `Evaluator.evaluate`.

        Raises:
            StudyError: the journal is damaged, holds designs other than those requested, or could not store the previous batch.
            EngineError: the designs cannot be simulated; what was written is kept.
        """
        if self._number < self._num_there:
            batch = self._there()
            is_alike = batch.stage == stage and not batch.is_reduced and len(batch.plans) == len(plans)
            self._check(batch, is_equal=is_alike and bool(are_same(plans, batch.plans).all()))
            self._pass_over(batch, len(plans))
            return judge(self._job, plans, batch.outcomes)
        outcomes = self._outcomes_of(plans)
        number, elapsed_s = self._number, self._elapsed_now_s()
        self._writing.begin(lambda: self._journal.append(number, stage, elapsed_s, plans, outcomes))
        self._go_on(elapsed_s)
        return judge(self._job, plans, outcomes)

    def space(self) -> Space:
        """See `Evaluator.space`; the engine prunes a large space if it can process several blocks at once.

        Raises:
            EngineError: the layouts cannot be bounded there.
        """
        num_blocks = len(BlockIndex(self._job))
        if self._engine.num_ahead == 0 or num_blocks < LEAST_SHARED_BLOCKS:
            return pruned_space(self._job)
        begun = map(self._engine.prune, range(num_blocks))
        return space_of(self._job, (pending() for pending in _early(begun, lambda: self._engine.num_ahead)))

    def ahead(self, batches: Iterator[PlanTable]) -> Iterator[PlanTable]:
        """See `Evaluator.ahead`; what the journal holds is not simulated again."""
        unwritten = self._num_there - self._number

        def begun() -> Iterator[PlanTable]:
            for index, plans in enumerate(batches):
                if index >= unwritten and self._engine.num_ahead:
                    self._under_way.append((plans, self._begun(plans, is_awaited=False)))
                yield plans

        return _early(begun(), lambda: self._engine.num_ahead)

    def reductions(self, parts: Iterator[BlockPart], stage: str) -> Iterator[Reduction]:
        """Yields the reductions of parts of a space, in order; only these are written down.

        Raises as `evaluate` does.
        """
        unwritten = self._num_there - self._number
        begun = (
            self._engine.reduce(part) if index >= unwritten else None for index, part in enumerate(parts)
        )
        for pending in _early(begun, lambda: self._engine.num_ahead):
            yield self._read_reduction(stage) if pending is None else self._written(stage, pending())

    def elapsed_s(self) -> float:
        """See `Evaluator.elapsed_s`."""
        return self._elapsed_s

    def settle(self) -> None:
        """Waits until everything evaluated is durably in the journal.

        Raises:
            StudyError: the journal could not store it.
        """
        self._writing.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._writing.close()
        except StudyError as second:  # the error that ended the search stays the visible one
            if error is None:
                raise
            error.add_note(f"the last batch could not be written either: {second}")

    def _there(self) -> Batch:
        """The next batch that the journal held at the start."""
        batch = self._journal.batch(self._number)
        assert batch is not None, "the journal was counted before"
        return batch

    def _read_reduction(self, stage: str) -> Reduction:
        batch = self._there()
        self._check(batch, is_equal=batch.stage == stage and batch.is_reduced)
        reduction = read_reduction(self._job, batch.parts)
        self._pass_over(batch, reduction.num_evaluated)
        return reduction

    def _written(self, stage: str, reduction: Reduction) -> Reduction:
        number, elapsed_s = self._number, self._elapsed_now_s()
        self._writing.begin(lambda: self._journal.append_reduction(number, stage, elapsed_s, reduction))
        self.num_simulated += reduction.num_evaluated
        self._go_on(elapsed_s)
        return reduction

    def _check(self, batch: Batch, *, is_equal: bool) -> None:
        """Raises if the journal holds designs other than those requested."""
        if not is_equal:
            raise StudyError(
                f"study {self._journal.path}: the search now asks for other designs in batch {batch.number} than it "
                "did; export what is there and run the job as a new study"
            )

    def _outcomes_of(self, plans: PlanTable) -> Outcomes:
        """Outcomes of designs, from the simulation in flight if these designs were expected."""
        if self._under_way:
            expected, pending = self._under_way.popleft()
            if len(expected) == len(plans) and are_same(expected, plans).all():
                return pending()
            self._under_way.clear()
        return self._begun(plans, is_awaited=True)()

    def _begun(self, plans: PlanTable, *, is_awaited: bool) -> Pending[Outcomes]:
        """Starts to simulate the designs that no other study has."""
        rows, known = self._known.find(plans)
        rest = np.setdiff1d(np.arange(len(plans)), rows)
        pending = None
        if len(rest):
            pending = self._engine.simulate(plans.take(rest), is_awaited=is_awaited)

        def finish() -> Outcomes:
            self.num_reused += len(rows)
            self.num_simulated += len(rest)
            parts = [part for part in (known, pending() if pending else None) if part is not None]
            if len(parts) == 1:  # all rows come from one source, in order
                return parts[0].take(np.argsort(rows)) if len(rows) else parts[0]
            return Outcomes.concatenate(parts).take(np.argsort(np.concatenate([rows, rest])))

        return finish

    def _elapsed_now_s(self) -> float:
        return self._elapsed_s + self._clock() - self._resumed_at_s

    def _go_on(self, elapsed_s: float) -> None:
        """Moves on after a batch that was written."""
        self._resumed_at_s += elapsed_s - self._elapsed_s
        self._elapsed_s = elapsed_s
        self._number += 1

    def _pass_over(self, batch: Batch, num_designs: int) -> None:
        """Moves on after a batch that the journal held."""
        self.num_read_back += num_designs
        self._elapsed_s = batch.elapsed_s
        self._resumed_at_s = self._clock()
        self._number += 1


def _early(items: Iterator[T], num_early: Callable[[], int]) -> Iterator[T]:
    """Yields items in order, drawing up to `num_early()` further items before each."""
    waiting: deque[T] = deque()
    for item in items:
        waiting.append(item)
        while len(waiting) > num_early():
            yield waiting.popleft()
    yield from waiting
