"""Which inputs are uncertain in the tests of draws, and what is the result of a draw with given values?"""

from __future__ import annotations

import math

import numpy as np

from constraints.evaluation import Evaluation
from objectives.drawn_runs import DrawnRuns, UnsureDesigns
from objectives.unsure_inputs import Z_95
from simulator.domain.job import Job
from simulator.domain.options import InputFactors
from simulator.table import Floats
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with

CERTAIN = {"low": 1.0, "high": 1.0}
SURE = dict.fromkeys(InputFactors.model_fields, CERTAIN)
"""Only the hardware's price is drawn."""
FIXED = {**H100_BOUGHT, "purchase_usd_per_node": 3e5}
PLACE = {"region": "here", "grid_kgco2e_per_kwh": 0.4, "electricity_usd_per_kwh": 0.1}


def only(name: str, low: float, high: float) -> dict[str, object]:
    """Input factors with exactly one that is uncertain."""
    return {**SURE, name: {"low": low, "high": high}}


def two_offers(**fields: object) -> Job:
    wide = {**A100_RENTED, "rent_usd_per_gpu_hour": {"low": 0.5, "mid": 1.3, "high": 4.0}}
    return job_with(H100_RENTED, wide, **fields)


def runs_at(job: Job, result: Evaluation, amounts: dict[str, float]) -> DrawnRuns:
    """One draw, with the given factors for some inputs and the middle value for all others."""
    designs = UnsureDesigns.of(job, result.plans, result.outcomes, result.scores)
    inputs = designs.inputs

    def normal(name: str) -> Floats:
        amount = amounts.get(name.partition(" of ")[0], 1.0)
        unsure = next(one for one in inputs.values() if name in one.draws)
        expected, row = unsure.expected_normal, unsure.draws.index(name)
        if amount == 1.0:
            return np.array([expected])
        side = unsure.log_high[row] if amount > 1.0 else -unsure.log_low[row]
        end = Z_95 - expected if amount > 1.0 else Z_95 + expected
        return np.array([expected + end * math.log(amount) / side])

    return DrawnRuns.of(designs, normal)
