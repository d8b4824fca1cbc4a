"""Which design is best in each objective, and why? Its figures, compared with those of the recommended design."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from constraints.evaluation import Evaluation
from objectives.usage import Usage, it_energy_j, num_held_gpus
from planner.recommended.comparisons import Best, Driver
from simulator.domain.job import Job, Objective
from simulator.table import Integers
from simulator.units import HOUR, JOULES_PER_KWH

LEAST_DIFFERENCE = 0.005
"""Smaller differences of a factor are not reported."""


def bests_of(job: Job, front: Evaluation, ids: Integers, row: int) -> tuple[Best, ...]:
    """Returns the best design of a front for each objective of the job, in the job's order.

    Args:
        job: the job.
        front: the front.
        ids: `(n,)` ids of its designs.
        row: row of the recommended design.
    """
    values = front.objectives(job)
    best = [int(found) for found in values.argmin(axis=0)]
    found = []
    for k, objective in enumerate(job.objectives):
        # Among equally good designs, the recommended one counts as the best.
        mine = row if values[row, k] <= values[best[k], k] else best[k]
        rival = _rival(best, values[:, k], mine, row)
        found.append(
            Best(
                objective=objective.value,
                design_id=int(ids[mine]),
                value=float(values[mine, k]),
                shared_with=tuple(int(ids[other]) for other in _equals(values[:, k], mine)),
                compared_with=None if rival is None else int(ids[rival]),
                drivers=()
                if rival is None or values[rival, k] == values[mine, k]
                else _drivers(job, front, objective, mine, rival),
                changes={} if rival is None else _changes(job, front, objective, mine, rival),
            )
        )
    return tuple(found)


def _rival(bests: Sequence[int], values: np.ndarray, mine: int, recommended: int) -> int | None:
    """The recommended row; for that row itself, the next worse row that is best in another objective, else of all rows."""
    if mine != recommended:
        return recommended
    everything = [row for row in range(len(values)) if row != mine]
    # Equal rows explain nothing, so they come last.
    worse = [row for row in everything if values[row] > values[mine]]
    others = [row for row in bests if row in worse] or worse or everything
    return min(others, key=lambda row: float(values[row])) if others else None


def _equals(values: np.ndarray, mine: int) -> list[int]:
    """Other rows with the same value."""
    return [row for row in np.flatnonzero(values == values[mine]).tolist() if row != mine]


def _changes(job: Job, front: Evaluation, objective: Objective, mine: int, rival: int) -> dict[str, float]:
    changes = {}
    for other in job.objectives:
        value, reference = (float(front.scores.objective(other)[row]) for row in (mine, rival))
        if other is not objective:
            is_difference = other.is_risk or reference == 0.0
            changes[other.value] = value - reference if is_difference else value / reference - 1.0
    return changes


def _drivers(job: Job, front: Evaluation, objective: Objective, mine: int, rival: int) -> tuple[Driver, ...]:
    pair = front.take(np.array([mine, rival]))
    found = [
        Driver(name=name, value=float(values[0]), reference=float(values[1]), is_factor=is_factor)
        for is_factor, columns in (
            (True, _factors(job, pair, objective)),
            (False, _behind_factors(pair, objective)),
        )
        for name, values in columns
        if np.isfinite(values).all()
    ]
    told = [driver for driver in found if _size(driver) > LEAST_DIFFERENCE]
    return tuple(sorted(told, key=lambda driver: (driver.is_factor, _size(driver)), reverse=True))


def _size(driver: Driver) -> float:
    """Absolute logarithm of the ratio of the two designs; infinite if only one of them is above 0."""
    if driver.value == driver.reference:
        return 0.0
    if min(driver.value, driver.reference) <= 0.0:
        return math.inf
    return abs(math.log(driver.value / driver.reference))


def _factors(job: Job, pair: Evaluation, objective: Objective) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the factors or summands of an objective, `(2,)` each."""
    match objective:
        case Objective.TIME | Objective.TIME_P95 | Objective.DEADLINE_RISK:
            yield from _factors_of_time(job, pair)
        case Objective.COST | Objective.COST_P95 | Objective.BUDGET_RISK:
            yield from _factors_of_cost(job, pair)
        case Objective.ENERGY:
            yield from _factors_of_energy(job, pair)
        case Objective.CARBON:
            yield from _factors_of_carbon(pair)


def _behind_factors(pair: Evaluation, objective: Objective) -> Iterator[tuple[str, np.ndarray]]:
    """Yields what affects an objective through its factors, `(2,)` each."""
    if objective is Objective.ENERGY:
        yield "power cap, share of TDP", pair.plans.power_cap_fraction


def _factors_of_time(job: Job, pair: Evaluation) -> Iterator[tuple[str, np.ndarray]]:
    step_s, gpus = pair.outcomes.steps.step_time_s, pair.plans.num_gpus
    yield "GPUs", gpus
    yield "tokens/s per GPU in a step", job.workload.tokens_per_step / (step_s * gpus)
    yield "share of time in steps", job.workload.num_steps * step_s / pair.scores.time_to_train_s


def _factors_of_cost(job: Job, pair: Evaluation) -> Iterator[tuple[str, np.ndarray]]:
    """GPU-hours of all accelerators that are held, spares included, and the cost of one GPU-hour."""
    hours = num_held_gpus(job, pair.plans) * pair.scores.time_to_train_s / HOUR
    yield "GPU-hours", hours
    yield "USD per GPU-hour", pair.scores.cost_usd / hours


def _factors_of_energy(job: Job, pair: Evaluation) -> Iterator[tuple[str, np.ndarray]]:
    hours = pair.plans.num_gpus * pair.scores.time_to_train_s / HOUR
    energy = pair.outcomes.energy
    training = 1.0 - energy.spare_j / energy.total_j
    it_j = it_energy_j(job, pair.plans, Usage.of(pair.outcomes))
    yield "GPU-hours excluding spares", hours
    yield "W per GPU excluding cooling and spares", training * it_j / (hours * HOUR)
    yield "PUE", pair.scores.energy_j / it_j
    yield "energy overhead of idle spares", 1.0 / training


def _factors_of_carbon(pair: Evaluation) -> Iterator[tuple[str, np.ndarray]]:
    kwh = pair.scores.energy_j / JOULES_PER_KWH
    yield "kWh", kwh
    yield "kg CO2e per kWh", pair.scores.operational_kgco2e / kwh
    yield "embodied kg CO2e", pair.scores.embodied_kgco2e
