"""How far do unsure inputs carry to the front? Draws of prices, grids, power and making, the same ones for every design.

Every input is drawn with its low and high figure as 5th and 95th percentile about the middle, lognormal on each side.
Designs that share an input meet the same draw of it: two designs on the same accelerators cannot change places because
their price is unsure, and two on different ones can. What time and energy do to a design is not simulated anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from objectives.scores import ScoreTable
from objectives.usage import of_sites
from simulator.job import Estimate, Job, Objective
from simulator.options import Factors
from simulator.plan import PlanTable
from simulator.table import Floats

Z_95 = 1.6448536269514722
"""Standard normal quantile of 95 %."""
NUM_DRAWS = 1000


def factor_draws(factors: Factors, normal: Floats) -> Floats:
    """Returns factors about one, `(r,)`, whose 5th and 95th percentiles are the low and the high one."""
    side = np.where(normal < 0.0, -np.log(factors.low), np.log(factors.high))
    return np.asarray(np.exp(normal / Z_95 * side))


def estimate_draws(estimate: Estimate, normal: Floats) -> Floats:
    """Returns values of an estimate over its middle, `(r,)`; 1 where the middle is 0."""
    if estimate.mid == 0.0:
        return np.ones(len(normal))
    low = max(estimate.low / estimate.mid, 1e-3)
    return factor_draws(Factors(low=low, high=estimate.high / estimate.mid), normal)


@dataclass(frozen=True, kw_only=True)
class DrawnObjectives:
    """The objectives of n designs under r draws of the inputs."""

    values: Floats
    """`(r, n, k)`, in the order of the job's objectives."""

    def quantiles(self, probabilities: tuple[float, ...]) -> Floats:
        """Returns quantiles of every objective, `(p, n, k)`."""
        return np.quantile(self.values, probabilities, axis=0, method="inverted_cdf")

    @property
    def on_front_fraction(self) -> Floats:
        """Share of the draws in which no other design is better in every objective, `(n,)`."""
        is_dominated = np.zeros(self.values.shape[:2], dtype=np.bool_)
        for rival in range(self.values.shape[1]):
            other = self.values[:, rival : rival + 1]
            is_worse = (other <= self.values).all(axis=2) & (other < self.values).any(axis=2)
            is_dominated |= is_worse
        return np.asarray(1.0 - is_dominated.mean(axis=0))

    def better_fraction(self, row: int, rival: int) -> Floats:
        """Returns in which share of the draws one design has less of each objective than another, `(k,)`."""
        return np.asarray((self.values[:, row] < self.values[:, rival]).mean(axis=0))


def draw_objectives(
    job: Job,
    plans: PlanTable,
    scores: ScoreTable,
    *,
    seed: int,
    num_draws: int = NUM_DRAWS,
) -> DrawnObjectives:
    """Returns the objectives of some designs under draws of the unsure inputs.

    Args:
        job: the job; its prices have ranges, `input_factors` has those of everything else.
        plans: `(n,)` designs.
        scores: what `score` returned for them.
        seed: of the draws.
        num_draws: r.
    """
    draws = _Draws(job, np.random.Generator(np.random.PCG64(seed)), num_draws)
    power = draws.by_offer(job.input_factors.compute_power)[:, plans.offer]
    overhead = of_sites(job, plans, lambda site: site.power_usage_effectiveness) - 1.0
    cooling = (1.0 + overhead * draws.by_site(job.input_factors.cooling_overhead)[:, plans.offer]) / (
        1.0 + overhead
    )
    energy = power * cooling
    columns: Mapping[Objective, Callable[[], Floats]] = {
        Objective.TIME: lambda: np.broadcast_to(scores.time_to_train_s, energy.shape),
        Objective.TIME_P95: lambda: np.broadcast_to(scores.time_to_train_p95_s, energy.shape),
        Objective.COST: lambda: _cost(job, plans, scores, draws, energy),
        Objective.COST_P95: lambda: (
            _cost(job, plans, scores, draws, energy) * (scores.cost_p95_usd / scores.cost_usd)
        ),
        Objective.ENERGY: lambda: scores.energy_j * energy,
        Objective.CARBON: lambda: _carbon(job, plans, scores, draws, energy),
        # Risks are those of chance in the run, at the middle of every input.
        Objective.DEADLINE_RISK: lambda: np.broadcast_to(scores.deadline_risk, energy.shape),
        Objective.BUDGET_RISK: lambda: np.broadcast_to(scores.budget_risk, energy.shape),
    }
    return DrawnObjectives(values=np.stack([columns[objective]() for objective in job.objectives], axis=2))


class _Draws:
    """Draws by offer and by site, `(r, o)`: what two offers share they share in every draw."""

    def __init__(self, job: Job, generator: np.random.Generator, num_draws: int) -> None:
        self._job, self._generator, self._num_draws = job, generator, num_draws
        self._normal: dict[str, Floats] = {}

    def _shared(self, what: str) -> Floats:
        if what not in self._normal:
            self._normal[what] = self._generator.standard_normal(self._num_draws)
        return self._normal[what]

    def common(self, factors: Factors, what: str) -> Floats:
        """One draw for all designs, `(r, 1)`."""
        return factor_draws(factors, self._shared(what))[:, None]

    def by_offer(self, factors: Factors, what: str = "power") -> Floats:
        """One draw for each kind of accelerator."""
        ids = [offer.accelerator.id for offer in self._job.offers]
        return np.column_stack([factor_draws(factors, self._shared(f"{what} {name}")) for name in ids])

    def by_site(self, factors: Factors, what: str = "cooling") -> Floats:
        """One draw for each region."""
        regions = [self._job.site_of(offer).region for offer in self._job.offers]
        return np.column_stack([factor_draws(factors, self._shared(f"{what} {name}")) for name in regions])

    def prices(self) -> Floats:
        """Price of each offer's hardware over its middle; offers of the same accelerator are dear together."""
        columns = []
        for offer in self._job.offers:
            estimate = offer.rent_usd_per_gpu_hour or offer.purchase_usd_per_node
            assert estimate is not None, "an offer has a price"
            columns.append(estimate_draws(estimate, self._shared(f"price {offer.accelerator.id}")))
        return np.column_stack(columns)


def _cost(job: Job, plans: PlanTable, scores: ScoreTable, draws: _Draws, energy: Floats) -> Floats:
    """Cost under every draw: hardware at its price, capital by lifetime, electricity by energy and tariff."""
    inputs, price = job.input_factors, draws.prices()[:, plans.offer]
    tariff = draws.by_site(inputs.electricity_price, "tariff")[:, plans.offer]
    return np.asarray(
        (scores.rent_usd + scores.maintenance_usd) * price
        + scores.capital_usd * price / draws.common(inputs.lifetime, "lifetime")
        + (scores.storage_usd + scores.staff_usd + scores.facility_usd)
        + (scores.electricity_usd + scores.demand_usd) * energy * tariff
    )


def _carbon(job: Job, plans: PlanTable, scores: ScoreTable, draws: _Draws, energy: Floats) -> Floats:
    inputs = job.input_factors
    grid = draws.by_site(inputs.grid, "grid")[:, plans.offer]
    chips = scores.embodied_accelerators_kgco2e, scores.embodied_replacements_kgco2e
    rest = scores.embodied_kgco2e - chips[0] - chips[1]
    chip = draws.by_offer(inputs.embodied_accelerator, "chip")[:, plans.offer]
    host = draws.common(inputs.embodied_host, "host")
    life = draws.common(inputs.lifetime, "lifetime")
    made = (chips[0] * chip + rest * host) / life + chips[1] * chip
    return np.asarray(scores.operational_kgco2e * energy * grid + made)
