"""Can a front design be run better? Optuna tunes checkpoint scheme and interval, spare nodes and power cap.

Only what the job's search allows is tried. The layout stays fixed, and so does an interval given by the job. Otherwise each
scheme has its own interval, around the one that the simulator expects to lose least. The original design is the first trial
of its Optuna study and costs nothing.

There is one Optuna study per design. All are asked and told together, so each round is one batch for the simulator.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from constraints.answers import (
    INTERVAL_FACTOR,
    has_any_number_of_spares,
    has_other_intervals,
    longest_tried_s,
    stepped_caps,
)
from constraints.evaluation import Evaluation
from constraints.scheme_rules import can_save_by
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, PlanTable
from simulator.run.spare_nodes import sufficient_spare_nodes
from simulator.simulate import Outcomes, simulate
from simulator.table import Floats, Integers
from studies.algorithm import Results, SearchAlgorithm
from studies.designs.spread_rows import spread_rows
from studies.searchers.seeds import seed_of_part

if TYPE_CHECKING:
    import optuna

MAX_DESIGNS = 40
"""Most front designs that are refined, spread over the front."""
PENALTY = 10.0
"""Loss per unit of excess over limits."""


@final
class Refinement(SearchAlgorithm):
    """Suggests one changed design for each front design, as often as the job asks for."""

    stage: ClassVar[str] = "refining with Optuna"

    def __init__(self, job: Job, front: Evaluation, seed: int) -> None:
        """Begins with designs spread over a front.

        Args:
            job: the job.
            front: the designs to start from.
            seed: seed of everything random.
        """
        rows = spread_rows(len(front), MAX_DESIGNS)
        self.designs = designs = front.take(rows)
        """The designs from which it starts."""
        spares = enough_spares(job, designs)
        intervals = _intervals(job, designs.plans)
        self._tuners = [
            _Tuner(
                job, designs.take(np.array([row])), int(spares[row]), intervals[row], seed_of_part(seed, row)
            )
            for row in range(len(designs))
        ]
        self._none = front.plans.take(slice(0))
        self._num_left = job.search.num_refinements

    @property
    def num_designs(self) -> int:
        """Total number of designs that will be suggested."""
        return self._num_left * len(self._tuners)

    def suggest(self) -> PlanTable:
        """Returns the next change of every front design."""
        if self._num_left == 0:
            return self._none
        self._num_left -= 1
        return PlanTable.concatenate([tuner.ask() for tuner in self._tuners])

    def update(self, results: Results) -> None:
        """Reports the result of each change to the Optuna study of its front design."""
        for tuner, values, excess in zip(self._tuners, results.values, results.excess.tolist(), strict=True):
            tuner.tell(values, excess)


class _Tuner:
    """The Optuna study of one front design."""

    def __init__(
        self, job: Job, start: Evaluation, most_spares: int, intervals: Mapping[str, _Intervals], seed: int
    ) -> None:
        """Begins with the result of the unchanged design.

        Args:
            job: the job.
            start: the design, one row.
            most_spares: number of spare nodes that is enough for it.
            intervals: checkpoint intervals for each scheme that it can have.
            seed: seed of the sampler.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._start = start
        self._job = job
        self._scheme = CheckpointScheme.from_code(int(start.plans.checkpoint_scheme[0])).value
        self._intervals = {**intervals, self._scheme: _intervals_of(job, start.outcomes)[0]}
        spares = int(start.plans.num_spare_nodes[0])
        self._spares = (0, max(spares, most_spares)) if has_any_number_of_spares(job) else (spares, spares)
        self._caps = np.unique([*stepped_caps(job), start.plans.power_cap_fraction[0]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental features announce themselves
            sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=6)
        self._study = optuna.create_study(direction="minimize", sampler=sampler)
        self._trial: optuna.Trial | None = None
        self._study.enqueue_trial(self._as_it_is())
        self.ask()
        self.tell(start.objectives(job)[0], 0.0)

    def ask(self) -> PlanTable:
        """Returns the next design to try, one row."""
        self._trial = trial = self._study.ask()
        scheme = trial.suggest_categorical("scheme", list(self._intervals))
        tried = self._intervals[scheme]
        interval_s = np.nan
        if self._tunes_interval_of(scheme):
            low = tried.best_s / INTERVAL_FACTOR
            interval_s = trial.suggest_float(f"interval_s of {scheme}", low, tried.longest_s, log=True)
        return replace(
            self._start.plans,
            checkpoint_scheme=np.array([CheckpointScheme(scheme).code]),
            checkpoint_interval_s=np.array([interval_s]),
            num_spare_nodes=np.array([trial.suggest_int("num_spare_nodes", *self._spares)]),
            power_cap_fraction=self._caps[[trial.suggest_int("power_cap", 0, len(self._caps) - 1)]],
        )

    def _tunes_interval_of(self, scheme: str) -> bool:
        return has_other_intervals(self._job) and scheme != CheckpointScheme.NONE.value

    def _as_it_is(self) -> dict[str, float | str]:
        """The unchanged design as a trial."""
        plans = self._start.plans
        trial: dict[str, float | str] = {
            "scheme": self._scheme,
            "num_spare_nodes": int(plans.num_spare_nodes[0]),
            "power_cap": int(np.searchsorted(self._caps, plans.power_cap_fraction[0])),
        }
        if self._tunes_interval_of(self._scheme):
            trial[f"interval_s of {self._scheme}"] = self._intervals[self._scheme].best_s
        return trial

    def tell(self, values: Floats, excess: float) -> None:
        """Reports the loss of the design: mean logarithm of its objectives relative to the start, plus a penalty for excess.

        Args:
            values: its objectives, `(k,)`.
            excess: its total excess over limits.
        """
        assert self._trial is not None, "tell follows ask"
        with np.errstate(divide="ignore", invalid="ignore"):  # what costs nothing stays unchanged
            ratios = values / self._start.objectives(self._job)[0]
        weights = np.array(self._job.objective_weights)
        self._study.tell(self._trial, _mean_log(ratios, weights) + PENALTY * min(excess, 1e6))


def enough_spares(job: Job, designs: Evaluation) -> Integers:
    """Returns the most spare nodes that are tried for designs with fewer, `(n,)`."""
    listed = sufficient_spare_nodes(job, designs.plans)
    # A slow run may need more, but proofs about answers cover no more than are listed.
    return np.minimum(listed, sufficient_spare_nodes(job, designs.plans, designs.outcomes.run.calm_s))


def _mean_log(ratios: Floats, weights: Floats) -> float:
    bounded = np.clip(np.nan_to_num(ratios, nan=1.0, posinf=1e6), 1e-6, 1e6)
    return float(np.average(np.log(bounded), weights=weights))


@dataclass(frozen=True, kw_only=True)
class _Intervals:
    """Checkpoint intervals of a design with one scheme."""

    best_s: float
    """The one that is expected to lose least."""
    longest_s: float
    """The longest that is tried."""


def _intervals_of(job: Job, outcomes: Outcomes) -> list[_Intervals]:
    """Intervals of simulated designs, with the one that each used as the best."""
    best_s = outcomes.run.checkpoint_interval_s
    longest_s = longest_tried_s(job, best_s, outcomes.checkpoints.stall_s)
    return [
        _Intervals(best_s=best, longest_s=longest)
        for best, longest in zip(best_s.tolist(), longest_s.tolist(), strict=True)
    ]


def _intervals(job: Job, plans: PlanTable) -> list[dict[str, _Intervals]]:
    """Intervals of every design, `(n,)`, by each scheme that the job allows and its layout can have."""
    intervals: list[dict[str, _Intervals]] = [{} for _ in range(len(plans))]
    for scheme in job.search.checkpoint_schemes:
        rows = np.flatnonzero(can_save_by(job, plans, [scheme]))
        if len(rows) == 0:
            continue
        saved = replace(
            plans.take(rows),
            checkpoint_scheme=np.full(len(rows), scheme.code),
            checkpoint_interval_s=np.full(len(rows), np.nan),
        )
        for row, found in zip(rows.tolist(), _intervals_of(job, simulate(job, saved)), strict=True):
            intervals[row][scheme.value] = found
    return intervals
