"""How does a row of the tables become a design that people can read? One function, one row."""

from __future__ import annotations

import numpy as np

from constraints.evaluation import Evaluation
from objectives.cost import COST_PARTS
from objectives.metrics import MetricTable, metrics
from objectives.scores import EMBODIED_PARTS
from planner.recommended.recommendation import Design
from planner.water_scopes import water_scope
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme
from simulator.record import finite_or_none
from simulator.run.wall_time import BADPUT
from simulator.run.wall_time import PARTS as RUN_PARTS
from simulator.step.step import STEP_PARTS
from simulator.table import Integers, Table
from simulator.units import DAY, JOULES_PER_KWH

POWERS = ("hall_power_w", "cooling_power_w", "rack_power_w", "power_swing_w")
CARBON_PARTS = ("operational_kgco2e", *EMBODIED_PARTS)


def design_at(
    job: Job, evaluation: Evaluation, row: int, design_id: int, merits: MetricTable | None = None
) -> Design:
    """Returns one evaluated design with all its figures; `merits` are those of the evaluation where they are known."""
    plan = evaluation.plans.plan(row)
    offer = job.offers[plan.offer]
    scores, outcomes = evaluation.scores, evaluation.outcomes
    run, power, summary = outcomes.run, outcomes.power, outcomes.summary
    never_saves = plan.checkpoint_scheme is CheckpointScheme.NONE
    known = merits or _merits(job, evaluation)
    return Design(
        design_id=design_id,
        accelerator=offer.accelerator.id,
        node=offer.node.id,
        num_nodes=int(np.ceil(plan.num_gpus / offer.node.num_accelerators)),
        region=job.site_of(offer).region,
        framework=job.workload.framework or "",
        global_batch_size=job.workload.global_batch_size,
        plan=plan,
        time_to_train_days=_at(scores.time_to_train_s, row) / DAY,
        cost_usd=_at(scores.cost_usd, row),
        cost_low_usd=_at(scores.cost_low_usd, row),
        cost_high_usd=_at(scores.cost_high_usd, row),
        energy_kwh=_at(scores.energy_j, row) / JOULES_PER_KWH,
        carbon_kgco2e=_at(scores.carbon_kgco2e, row),
        objective_values={
            name.value: finite_or_none(_at(scores.objective(name), row)) for name in job.objectives
        },
        peak_power_w=_at(power.peak_power_w, row),
        step_time_s=_at(outcomes.steps.step_time_s, row),
        iteration_time_s=_at(run.iteration_time_s(job.workload.num_steps), row),
        mfu_fraction=_at(summary.mfu_fraction, row),
        goodput_fraction=_at(run.goodput_fraction, row),
        num_failures=_at(run.num_failures, row),
        memory_bytes=_parts(outcomes.memory, outcomes.memory.names(), row),
        peak_memory_bytes=_at(summary.peak_memory_bytes, row),
        memory_capacity_bytes=_at(summary.memory_capacity_bytes, row),
        checkpoint_interval_s=None if never_saves else _at(run.checkpoint_interval_s, row),
        step_seconds=_parts(outcomes.steps, STEP_PARTS, row),
        run_seconds=_parts(run, RUN_PARTS, row),
        badput_seconds=_badput(_parts(run, tuple(BADPUT), row)),
        cost_parts_usd=_parts(scores, COST_PARTS, row),
        energy_parts_kwh={
            name.replace("_j", "_kwh"): value / JOULES_PER_KWH
            for name, value in _parts(outcomes.energy, outcomes.energy.names(), row).items()
        },
        carbon_parts_kgco2e=_parts(scores, CARBON_PARTS, row),
        metrics=_metrics(known, row),
        water_scope=water_scope(job.site_of(offer)),
        buying_pays=_buying_pays(_at(known.break_even_months, row)),
        power_w=_parts(power, POWERS, row),
        power_range_fraction=_at(power.power_range_fraction, row),
        power_ramp_w_per_s=_at(power.power_ramp_w_per_s, row),
    )


def designs_of(job: Job, evaluation: Evaluation, ids: Integers) -> tuple[Design, ...]:
    """Returns every evaluated design of a table with all its figures."""
    merits = _merits(job, evaluation)
    return tuple(design_at(job, evaluation, row, int(ids[row]), merits) for row in range(len(evaluation)))


def _merits(job: Job, evaluation: Evaluation) -> MetricTable:
    return metrics(job, evaluation.plans, evaluation.outcomes, evaluation.scores)


def _metrics(merits: MetricTable, row: int) -> dict[str, float | None]:
    return {name: finite_or_none(_at(getattr(merits, name), row)) for name in merits.names()}


def _buying_pays(months: float) -> bool | None:
    return None if np.isnan(months) else bool(np.isfinite(months))


def _at(column: np.ndarray, row: int) -> float:
    return float(column[row])


def _badput(parts: dict[str, float]) -> dict[str, float]:
    """Sums the parts of the run by their names in Google's accounts."""
    names = dict.fromkeys(BADPUT.values())
    return {name: sum(value for part, value in parts.items() if BADPUT[part] == name) for name in names}


def _parts(table: Table, names: tuple[str, ...], row: int) -> dict[str, float]:
    return {name: float(getattr(table, name)[row]) for name in names}
