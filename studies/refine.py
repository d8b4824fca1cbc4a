"""Can the continuous knobs of a front design be set better? Optuna tunes checkpoint interval and power cap.

One Optuna study per design, all of them asked and told together, so that a round is one batch for the simulator.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from constraints.evaluation import Evaluation
from simulator.job import Job
from simulator.plan import CheckpointScheme, PlanTable
from simulator.search_options import LOWEST_POWER_CAP
from simulator.table import Floats
from studies.algorithm import Results, SearchAlgorithm

if TYPE_CHECKING:
    import optuna

MAX_DESIGNS = 40
"""Front designs that are refined, spread over the front."""
INTERVAL_FACTOR = 4.0
"""The interval is searched between the best expected one divided and multiplied by this."""
CAP_STEP = 0.05
"""Power caps are set in steps of this share of the TDP."""
PENALTY = 10.0
"""Loss per share by which limits are exceeded."""


@final
class Refinement(SearchAlgorithm):
    """Suggests one changed design for each front design, as many times as the job asks for."""

    stage: ClassVar[str] = "refining with Optuna"

    def __init__(self, job: Job, front: Evaluation, seed: int) -> None:
        """Begins with designs spread over a front.

        Args:
            job: the job.
            front: the designs to start from.
            seed: of everything random.
        """
        rows = np.unique(np.linspace(0, len(front) - 1, MAX_DESIGNS).astype(np.intp))
        self._tuners = [
            _Tuner(job, front.take(np.array([row])), seed + number) for number, row in enumerate(rows)
        ]
        self._none = front.plans.take(slice(0))
        self._num_left = job.search.num_refinements

    @property
    def num_designs(self) -> int:
        """Designs that will be suggested in all."""
        return self._num_left * len(self._tuners)

    def suggest(self) -> PlanTable:
        """Returns the next change of every front design."""
        if self._num_left == 0:
            return self._none
        self._num_left -= 1
        return PlanTable.concatenate([tuner.ask() for tuner in self._tuners])

    def update(self, results: Results) -> None:
        """Tells every front design's study of Optuna what its change came to."""
        for tuner, values, excess in zip(self._tuners, results.values, results.excess.tolist(), strict=True):
            tuner.tell(values, excess)


class _Tuner:
    """The Optuna study of one front design."""

    def __init__(self, job: Job, start: Evaluation, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._start = start
        self._job = job
        self._interval_s = float(start.outcomes.run.checkpoint_interval_s[0])
        caps = job.search.power_caps or (LOWEST_POWER_CAP, 1.0)
        self._caps = min(caps), max(caps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental features announce themselves
            sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=6)
        self._study = optuna.create_study(direction="minimize", sampler=sampler)
        self._trial: optuna.Trial | None = None

    def ask(self) -> PlanTable:
        """Returns the next design to try, one row."""
        self._trial = self._study.ask()
        columns = dict(self._start.plans.columns())
        if self._start.plans.checkpoint_scheme[0] != CheckpointScheme.NONE.code:
            low, high = self._interval_s / INTERVAL_FACTOR, self._interval_s * INTERVAL_FACTOR
            columns["checkpoint_interval_s"] = np.array(
                [self._trial.suggest_float("interval_s", low, high, log=True)]
            )
        if self._caps[0] < self._caps[1]:
            columns["power_cap_fraction"] = np.array(
                [self._trial.suggest_float("power_cap", *self._caps, step=CAP_STEP)]
            )
        return PlanTable(**columns)  # type: ignore[arg-type]

    def tell(self, values: Floats, excess: float) -> None:
        """Reports what the design came to: mean logarithm of its objectives relative to the start, plus what it breaks.

        Args:
            values: its objectives, `(k,)`.
            excess: by how much it exceeds limits.
        """
        assert self._trial is not None, "tell follows ask"
        with np.errstate(divide="ignore", invalid="ignore"):  # what costs nothing stays as it is
            ratios = values / self._start.objectives(self._job)[0]
        weights = np.array([self._job.preference.get(objective, 1.0) for objective in self._job.objectives])
        self._study.tell(self._trial, _mean_log(ratios, weights) + PENALTY * min(excess, 1e6))


def _mean_log(ratios: Floats, weights: Floats) -> float:
    bounded = np.clip(np.nan_to_num(ratios, nan=1.0, posinf=1e6), 1e-6, 1e6)
    return float(np.average(np.log(bounded), weights=weights))
