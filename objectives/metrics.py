"""What does a design cost and emit per token and per exaFLOP? The figures of merit by which people compare runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from objectives.break_even import rent_or_own
from objectives.input_table import INTERRUPTION_RATE
from objectives.moved_designs import moved_designs
from objectives.scores import ScoreTable
from objectives.usage import Usage
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.layout.trained_weights import trained_flop_per_token
from simulator.simulate import Outcomes
from simulator.table import Floats, Table
from simulator.units import HOUR, JOULES_PER_KWH, KILO, MEGA, PETA

EXA = KILO * PETA


@dataclass(frozen=True, kw_only=True)
class MetricTable(Table):
    """Figures of merit, `(n,)`; NaN where a price or a factor is not known."""

    usd_per_million_tokens: Floats
    usd_per_effective_pflop_hour: Floats
    """Cost over the model's arithmetic, in hours at one PFLOP/s: the price of the hardware after losses to goodput and MFU."""
    kwh_per_million_tokens: Floats
    operational_location_kgco2e: Floats
    operational_market_kgco2e: Floats
    embodied_kgco2e: Floats
    gco2e_per_exaflop: Floats
    """Operational (location-based) and embodied emissions over the model's arithmetic (compute carbon intensity, CCI,
    arXiv 2502.01671)."""
    carbon_delay_kgco2e_s: Floats
    """Total carbon x time to train (tCDP of CORDOBA)."""
    water_l: Floats
    rent_usd: Floats
    """The design rented,"""
    own_usd: Floats
    """and bought, so that no landlord takes nodes back."""
    break_even_months: Floats
    """Calendar months at the job's utilisation after which a purchase has paid for itself, interest included; infinite
    where it has not by the end of the nodes' life."""


def metrics(job: Job, plans: PlanTable, outcomes: Outcomes, scores: ScoreTable) -> MetricTable:
    """Returns the figures of merit of simulated designs."""
    workload = job.workload
    million_tokens = workload.tokens / MEGA
    flop = workload.tokens * trained_flop_per_token(workload)
    both = rent_or_own(job, plans, Usage.of(outcomes), _owned(job, plans, outcomes))
    return MetricTable(
        usd_per_million_tokens=scores.cost_usd / million_tokens,
        usd_per_effective_pflop_hour=scores.cost_usd / (flop / (PETA * HOUR)),
        kwh_per_million_tokens=scores.energy_j / JOULES_PER_KWH / million_tokens,
        operational_location_kgco2e=scores.operational_kgco2e,
        operational_market_kgco2e=scores.market_kgco2e,
        embodied_kgco2e=scores.embodied_kgco2e,
        gco2e_per_exaflop=np.asarray(KILO * scores.carbon_kgco2e / (flop / EXA)),
        carbon_delay_kgco2e_s=scores.carbon_kgco2e * scores.time_to_train_s,
        water_l=scores.water_l,
        rent_usd=both.rent_usd,
        own_usd=both.own_usd,
        break_even_months=both.break_even_months,
    )


def _owned(job: Job, plans: PlanTable, outcomes: Outcomes) -> Usage:
    """What designs use on nodes of their own, which no landlord takes back."""
    if any(offer.interruptions_per_1000_node_days for offer in job.offers):
        _, outcomes = moved_designs(job, plans, outcomes, INTERRUPTION_RATE, 0.0)
    return Usage.of(outcomes)
