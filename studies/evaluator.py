"""Who simulates the designs that a search asks for? The simulator, or a journal that knows what came of them.

A search does the same at every start, so a study is resumed by starting it again: what its journal holds is read back,
and from where the journal ends designs are simulated and written down.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import numpy as np

from constraints.evaluation import Evaluation, evaluate, judge
from simulator.errors import StudyError
from simulator.job import Job
from simulator.plan import PlanTable
from simulator.simulate import Outcomes, simulate
from studies.journal import Batch, Journal
from studies.known_designs import KnownDesigns
from studies.plan_keys import are_same

Clock = Callable[[], float]
"""Seconds since any moment, never going back."""


class Evaluator(ABC):
    """Where evaluations come from."""

    @abstractmethod
    def evaluate(self, plans: PlanTable, stage: str) -> Evaluation:
        """Returns what becomes of designs with valid layouts.

        Args:
            plans: the designs, `(n,)`.
            stage: what asks for them.
        """

    @abstractmethod
    def elapsed_s(self) -> float:
        """Returns how long the study had been running when its last designs were there, over all its starts."""


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

    def elapsed_s(self) -> float:
        """See `Evaluator.elapsed_s`."""
        return self._elapsed_s


@final
class JournaledSimulation(Evaluator):
    """Reads back what the journal holds; simulates and writes down what it does not."""

    def __init__(
        self, job: Job, journal: Journal, known: KnownDesigns, clock: Clock = time.monotonic
    ) -> None:
        """Starts at the beginning of the journal.

        Args:
            job: the job of the study.
            journal: its journal, opened to go on.
            known: designs that other studies have simulated.
            clock: for the time that the study takes.
        """
        self._job = job
        self._journal = journal
        self._known = known
        self._clock = clock
        self._number = 0
        self._elapsed_s = 0.0
        self._resumed_at_s = clock()
        self.num_read_back = 0
        """Designs that the journal held."""
        self.num_reused = 0
        """Designs that another study had simulated."""
        self.num_simulated = 0

    def evaluate(self, plans: PlanTable, stage: str) -> Evaluation:
        """See `Evaluator.evaluate`.

        Raises:
            StudyError: the journal cannot be written or is damaged, or holds other designs than are asked for.
        """
        batch = self._journal.batch(self._number)
        outcomes = self._appended(plans, stage) if batch is None else self._read_back(batch, plans, stage)
        self._number += 1
        return judge(self._job, plans, outcomes)

    def elapsed_s(self) -> float:
        """See `Evaluator.elapsed_s`."""
        return self._elapsed_s

    def _read_back(self, batch: Batch, plans: PlanTable, stage: str) -> Outcomes:
        is_equal = stage == batch.stage and len(plans) == len(batch.plans)
        if not is_equal or not are_same(plans, batch.plans).all():
            raise StudyError(
                f"study {self._journal.path}: the search now asks for other designs in batch {batch.number} than it "
                "did; export what is there and run the job as a new study"
            )
        self.num_read_back += len(plans)
        self._elapsed_s = batch.elapsed_s
        self._resumed_at_s = self._clock()
        return batch.outcomes

    def _appended(self, plans: PlanTable, stage: str) -> Outcomes:
        outcomes = self._completed(plans)
        elapsed_s = self._elapsed_s + self._clock() - self._resumed_at_s
        self._journal.append(self._number, stage, elapsed_s, plans, outcomes)
        self._resumed_at_s += elapsed_s - self._elapsed_s
        self._elapsed_s = elapsed_s
        return outcomes

    def _completed(self, plans: PlanTable) -> Outcomes:
        """Outcomes of designs, from other studies where these have them."""
        rows, outcomes = self._known.find(plans)
        self.num_reused += len(rows)
        self.num_simulated += len(plans) - len(rows)
        if outcomes is None:
            return simulate(self._job, plans)
        rest = np.setdiff1d(np.arange(len(plans)), rows)
        if len(rest) > 0:
            outcomes = Outcomes.concatenate([outcomes, simulate(self._job, plans.take(rest))])
        return outcomes.take(np.argsort(np.concatenate([rows, rest])))
