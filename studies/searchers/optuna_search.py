"""Which designs do Optuna's samplers try? Trials over the same ordinal knobs that the populations work on.

Akiba et al., Optuna (KDD 2019). A trial is a Python object, so a suggestion costs a hundred times as much as its simulation.
These searches are for comparison, and for slower evaluations than ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final, Literal, final

import numpy as np

from simulator.domain.plan import PlanTable
from simulator.errors import StudyError
from simulator.table import Floats, Integers
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.knobs import Knobs

if TYPE_CHECKING:
    import optuna

SamplerName = Literal["tpe", "nsga2", "gp"]
TRIALS_PER_BATCH: Final = 20
"""Trials that are requested before any result is reported; larger batches are simulated faster but sampled worse."""
MAX_BARREN_BATCHES: Final = 100
"""Batches in a row without a valid layout after which the search gives up."""
FEWEST_IN_GENERATION: Final = 2
"""Below this Optuna's NSGA-II refuses to work."""
GP_TRIALS_PER_BATCH: Final = 4
"""Trials of Gaussian processes in a batch: choosing one takes seconds and depends on the results reported so far."""
BEYOND: Final = 10.0
"""Constraint value of an invalid layout, in addition to its distance from validity."""
LARGEST_VALUE: Final = 1e30
"""Replaces objectives that are infinite, and the missing objectives of invalid layouts."""


@final
class OptunaSearch(SearchAlgorithm):
    """Asks a sampler for trials, suggests those with valid layouts, and reports their results."""

    stage: ClassVar[str] = "searching with Optuna"

    def __init__(self, sampler: SamplerName, knobs: Knobs, start: Integers, seed: int) -> None:
        """Prepares an Optuna study.

        Args:
            sampler: which sampler.
            knobs: decode designs.
            start: index rows `(n, k)` that are tried first; their number is the size of generations, if there are any.
            seed: seed of everything random.

        Raises:
            StudyError: the sampler needs a package that is not installed.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._knobs = knobs
        self._names = list(knobs.values)
        self._batch_size = GP_TRIALS_PER_BATCH if sampler == "gp" else TRIALS_PER_BATCH
        self._study = optuna.create_study(
            directions=["minimize"] * len(knobs.job.objectives),
            sampler=_sampler(sampler, max(FEWEST_IN_GENERATION, len(start)), seed),
        )
        for row in start.tolist():
            self._study.enqueue_trial(dict(zip(self._names, row, strict=True)))
        self._trials: list[optuna.Trial] = []
        self._excess: Floats = np.zeros(0)

    def suggest(self) -> PlanTable:
        """Returns the valid layouts of the next batch that has any."""
        for _ in range(MAX_BARREN_BATCHES):
            self._trials = [self._study.ask() for _ in range(self._batch_size)]
            indices = np.array([self._drawn(trial) for trial in self._trials], dtype=np.int64)
            plans = self._knobs.decode(indices)
            self._excess = self._knobs.rejection(indices, plans)
            if (self._excess == 0.0).any():
                return plans.take(self._excess == 0.0)
            self.update(Results(values=np.zeros((0, len(self._knobs.job.objectives))), excess=np.zeros(0)))
        return self._knobs.no_designs()

    def update(self, results: Results) -> None:
        """Reports results to Optuna; an invalid layout breaks a constraint by its distance from validity."""
        rows = zip(results.values.tolist(), results.excess.tolist(), strict=True)
        for trial, layout_excess in zip(self._trials, self._excess.tolist(), strict=True):
            invalid = [LARGEST_VALUE] * len(self._knobs.job.objectives), BEYOND + layout_excess
            values, excess = invalid if layout_excess > 0.0 else next(rows)
            trial.set_constraint("excess", min(excess, LARGEST_VALUE))
            self._study.tell(trial, [min(value, LARGEST_VALUE) for value in values])

    def _drawn(self, trial: optuna.Trial) -> list[int]:
        sizes = self._knobs.largest.tolist()
        return [trial.suggest_int(name, 0, size) for name, size in zip(self._names, sizes, strict=True)]


def _sampler(name: SamplerName, population_size: int, seed: int) -> optuna.samplers.BaseSampler:
    from optuna import samplers

    if name == "gp" and find_spec("torch") is None:
        raise StudyError(
            "search.algorithm optuna_gp needs PyTorch: install capplan[gp], or choose optuna_tpe"
        )
    makers: dict[SamplerName, Callable[[], samplers.BaseSampler]] = {
        "tpe": lambda: samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True),
        "nsga2": lambda: samplers.NSGAIISampler(seed=seed, population_size=population_size),
        "gp": lambda: samplers.GPSampler(seed=seed, deterministic_objective=True),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental features announce themselves
        return makers[name]()
