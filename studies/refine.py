"""Can the continuous knobs of a front design be set better? Optuna tunes checkpoint interval and power cap.

One Optuna study per design, all of them asked and told together, so that a round is one batch for the simulator.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from constraints.evaluation import Evaluation
from simulator.job import LOWEST_POWER_CAP
from simulator.plan import CheckpointScheme, PlanTable
from simulator.table import Floats
from studies.search import Searcher

if TYPE_CHECKING:
    import optuna

STAGE = "refining with Optuna"
MAX_DESIGNS = 40
"""Front designs that are refined, spread over the front."""
INTERVAL_FACTOR = 4.0
"""The interval is searched between the best expected one divided and multiplied by this."""
CAP_STEP = 0.05
"""Power caps are set in steps of this share of the TDP."""
PENALTY = 10.0
"""Loss per share by which limits are exceeded."""


def refine(searcher: Searcher, seed: int) -> bool:
    """Tunes designs of the archive's front, round by round; returns whether it was not interrupted."""
    front = searcher.archive.front
    rounds = searcher.job.search.num_refinements
    if front is None or rounds == 0:
        return True
    start = front.take(np.unique(np.linspace(0, len(front) - 1, MAX_DESIGNS).astype(np.intp)))
    tuners = [_Tuner(searcher, start.take(np.array([row])), seed + row) for row in range(len(start))]
    for index in range(rounds):
        if searcher.should_stop():
            return False
        plans = PlanTable.concatenate([tuner.ask() for tuner in tuners])
        evaluation = searcher.evaluate(plans, STAGE, index * len(tuners), rounds * len(tuners))
        for row, tuner in enumerate(tuners):
            tuner.tell(evaluation.take(np.array([row])))
    return True


class _Tuner:
    """The Optuna study of one front design."""

    def __init__(self, searcher: Searcher, start: Evaluation, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._start = start
        self._job = searcher.job
        self._interval_s = float(start.outcomes.run.checkpoint_interval_s[0])
        caps = searcher.job.search.power_caps or (LOWEST_POWER_CAP, 1.0)
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

    def tell(self, result: Evaluation) -> None:
        """Reports what the design came to: mean logarithm of its objectives relative to the start, plus what it breaks."""
        assert self._trial is not None
        with np.errstate(divide="ignore", invalid="ignore"):  # what costs nothing stays as it is
            ratios = result.objectives(self._job) / self._start.objectives(self._job)
        weights = np.array([self._job.preference.get(objective, 1.0) for objective in self._job.objectives])
        loss = _mean_log(ratios[0], weights) + PENALTY * min(float(result.excess.total[0]), 1e6)
        self._study.tell(self._trial, loss)


def _mean_log(ratios: Floats, weights: Floats) -> float:
    bounded = np.clip(np.nan_to_num(ratios, nan=1.0, posinf=1e6), 1e-6, 1e6)
    return float(np.average(np.log(bounded), weights=weights))
