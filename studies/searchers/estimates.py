"""How good will designs be, before they are simulated? Bounds of their layouts, corrected by what simulations showed.

The ratio of simulated values to their bounds is learned (`studies.searchers.ratio_model`). The estimates only decide the
order in which designs are simulated; they are never an answer.
"""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from constraints.bounds import BoundTable
from constraints.limits import set_limits
from constraints.space import Space
from objectives.pareto import front_rows
from simulator.compiled import compiled
from simulator.domain.job import Job, Objective
from simulator.domain.plan import PlanTable
from simulator.table import Booleans, Floats
from simulator.threads import num_parts, on_threads
from simulator.units import DAY
from studies.algorithm import Results
from studies.designs.knobs import Knobs
from studies.designs.plan_keys import Keys, plan_keys
from studies.searchers.ratio_model import RatioModel, features_of

_Rows = NDArray[np.intp]


BOUND_OF = {
    Objective.TIME: "deadline_days",
    Objective.TIME_P95: "deadline_days",
    Objective.COST: "budget_usd",
    Objective.COST_P95: "budget_usd",
    Objective.DEADLINE_RISK: "deadline_days",
    Objective.BUDGET_RISK: "budget_usd",
    Objective.ENERGY: "energy_j",
    Objective.CARBON: "carbon_kgco2e",
}
"""The bound that represents each objective."""
GROWING_LIMITS = ("deadline_days", "budget_usd", "carbon_kgco2e")
"""Limits on quantities that grow with the length of a run; for all other limits the bounds equal the simulated values."""

MOST_LEARNED = 300
"""Most designs from which ratios are learned, nearest to the front first: the time of an estimate grows with them."""
LEAST_VALUE = 1e-9
"""Replaces values of 0, which have no logarithm."""
MOST_EXCESS = 10.0
"""Excess at which broken limits are clipped."""
CERTAIN_EXCESS = 0.02
"""Estimated excess from which a limit counts that no objective measures."""
LEAST_ROWS_PER_THREAD = 2_000
"""Fewest designs for which it pays to start a thread."""
DIGITS = 6
"""Decimals of a shortfall: designs that differ by less keep their order, so that all machines agree."""


def bounds_of(job: Job, bounds: BoundTable) -> Floats:
    """Returns the bounds that represent the objectives of a job, `(n, k)`, in the units of the objectives."""
    columns = [getattr(bounds, BOUND_OF[objective]) for objective in job.objectives]
    units = [DAY if BOUND_OF[objective] == "deadline_days" else 1.0 for objective in job.objectives]
    return np.column_stack(columns) * units


@final
class Estimator:
    """Learns from simulated designs, and estimates how far other designs are from the front."""

    def __init__(self, space: Space, knobs: Knobs) -> None:
        """Starts with only the bounds.

        Args:
            space: a space with at least one layout.
            knobs: knobs of the space; they find the layouts of designs.
        """
        job = space.job
        self._job = job
        self._knobs = knobs
        self._log_bounds = _logarithm(bounds_of(job, space.kept_bounds))
        limits = set_limits(job)
        self._log_limits = np.array([_logarithm(np.array(limit)) for limit in limits.values()])
        columns = [_logarithm(getattr(space.kept_bounds, name)) for name in limits]
        self._log_limited: Floats = np.column_stack([np.zeros((space.num_kept, 0)), *columns])
        self._measures = [_measure(job, name) for name in limits]
        self._keys: Keys = np.zeros(0, dtype=np.uint64)
        self._features: Floats = np.zeros((0, 0))
        self._rows = np.zeros(0, dtype=np.intp)
        self._results = Results(values=np.zeros((0, len(job.objectives))), excess=np.zeros(0))
        self._fit: RatioModel | None = None

    def knows(self, plans: PlanTable) -> Booleans:
        """Returns which designs it has learned from, `(n,)`."""
        return np.isin(plan_keys(plans), self._keys)

    @property
    def has_front(self) -> bool:
        """Whether it has learned from any design that keeps all limits."""
        return bool((self._results.excess == 0.0).any())

    def learn(self, plans: PlanTable, results: Results) -> None:
        """Learns the results of designs of the space, each of them once."""
        features = features_of(self._job, plans)
        self._features = np.concatenate([self._features.reshape(-1, features.shape[1]), features])
        self._rows = np.concatenate([self._rows, self._knobs.layout_rows(plans)])
        self._keys = np.concatenate([self._keys, plan_keys(plans)])
        self._results = Results.concatenate([self._results, results])
        self._fit = None

    def layout_shortfalls(self) -> Floats:
        """Returns shortfalls of all layouts of the space, with every bound corrected by the mean ratio, `(n,)`."""
        mean, front = self._fitted().mean, self._front()

        def estimated(rows: _Rows) -> Floats:
            return self._shortfalls(rows, np.broadcast_to(mean, (len(rows), len(mean))), front)

        return np.concatenate(on_threads(estimated, _shared(np.arange(len(self._log_bounds)))))

    def shortfalls(self, plans: PlanTable) -> Floats:
        """Returns how far designs of the space are estimated to be from the front, `(n,)`.

        The distance is the logarithm of the factor by which the objectives must be better than estimated for a design to
        keep all limits and not be beaten by the front. It is negative where the design is expected to be on the front.
        """
        features, layout_rows = features_of(self._job, plans), self._knobs.layout_rows(plans)
        model, front = self._fitted(), self._front()

        def estimated(rows: _Rows) -> Floats:
            return self._shortfalls(layout_rows[rows], model.ratios(features[rows]), front)

        return np.concatenate(on_threads(estimated, _shared(np.arange(len(plans)))))

    def _shortfalls(self, rows: _Rows, ratios: Floats, front: Floats) -> Floats:
        """Distance of layouts `rows` from the front at ratios `(n, k + 1)`; the last ratio is of what no objective measures."""
        hidden = np.where(ratios[:, -1] > CERTAIN_EXCESS, ratios[:, -1], -np.inf)
        shortfalls = np.maximum(hidden, self._beyond_limits(rows, ratios))
        shortfalls = _beyond_front(self._log_bounds[rows] + ratios[:, :-1], front, shortfalls)
        return np.asarray(
            np.round(np.where(shortfalls == -np.inf, 0.0, shortfalls), DIGITS), dtype=np.float64
        )

    def _beyond_limits(self, rows: _Rows, ratios: Floats) -> Floats:
        """Logarithm of the excess ratio of the most broken limit, `(n,)`; negative where all limits are kept."""
        beyond = np.full(len(rows), -np.inf)
        for number, measure in enumerate(self._measures):
            ratio = 0.0 if measure is None else ratios[:, measure]
            beyond = np.maximum(beyond, self._log_limited[rows, number] + ratio - self._log_limits[number])
        return beyond

    def _front(self) -> Floats:
        values = _logarithm(self._results.values[self._results.excess == 0.0])
        return values[front_rows(values)]

    def _fitted(self) -> RatioModel:
        if self._fit is None:
            ratios = self._known_ratios()
            nearest = np.argsort(self._shortfalls(self._rows, ratios, self._front()), kind="stable")[
                :MOST_LEARNED
            ]
            self._fit = RatioModel(self._features[nearest], ratios[nearest])
        return self._fit

    def _known_ratios(self) -> Floats:
        """Log ratios of simulated designs to their bounds, and the excess that no objective measures, `(n, k + 1)`."""
        values = _logarithm(self._results.values)
        is_finite = np.isfinite(values)
        worst = np.max(values, axis=0, where=is_finite, initial=-np.inf)
        beyond_worst = np.where(is_finite.any(axis=0), worst + 1.0, 1.0)  # if no run ends, all are alike
        ratios = np.where(is_finite, values, beyond_worst) - self._log_bounds[self._rows]
        beyond = self._beyond_limits(self._rows, ratios)
        excess = np.log1p(np.minimum(self._results.excess, MOST_EXCESS))
        return np.column_stack([ratios, np.where(beyond > 0.0, 0.0, excess)])


def _shared(rows: _Rows) -> list[_Rows]:
    """Rows, split into as many parts as there are threads; few rows stay in one part."""
    return np.array_split(rows, num_parts(len(rows), LEAST_ROWS_PER_THREAD))


@compiled
def _beyond_front(values: Floats, front: Floats, shortfalls: Floats) -> Floats:
    """How much better each row `(n, k)` must be in everything to be beaten by no point `(m, k)`; at least `shortfalls`."""
    worst = shortfalls.copy()
    for row in range(values.shape[0]):
        for point in range(front.shape[0]):
            least = values[row, 0] - front[point, 0]
            for column in range(1, values.shape[1]):
                least = min(least, values[row, column] - front[point, column])
            worst[row] = max(worst[row], least)
    return worst


def _measure(job: Job, limit: str) -> int | None:
    """The objective that shows how far a limited quantity is above its bound: its own, or another that grows with time."""
    if limit not in GROWING_LIMITS:
        return None
    # risks do not scale with their bound, so they say nothing about limits
    growing = [number for number, objective in enumerate(job.objectives) if not objective.is_risk]
    own = [number for number in growing if BOUND_OF[job.objectives[number]] == limit]
    return next(iter([*own, *growing]), None)


def _logarithm(values: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(values, LEAST_VALUE)), dtype=np.float64)
