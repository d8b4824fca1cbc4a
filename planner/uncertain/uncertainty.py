"""How uncertain are the recommended figures? Replays of the run, the error of its steps, and indistinguishable designs."""

from __future__ import annotations

import math

import numpy as np

from constraints.evaluation import Evaluation
from objectives.cost import cost_parts
from objectives.unsure_inputs import step_error_of
from objectives.usage import Usage
from planner.recommended.recommendation import Spread, Uncertainty
from planner.uncertain.ties import tied_designs
from simulator.accuracy.published_runs import Accuracy, step_time_error
from simulator.accuracy.step_error import is_measured
from simulator.domain.hardware import Accelerator, Precision
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.compute import has_measured_kernels
from simulator.order_statistics import percentiles
from simulator.record import finite_or_none
from simulator.simulate import replicate
from simulator.step.step_reach import beyond_measured, reach_of
from simulator.table import Floats, Integers, total
from simulator.units import DAY

NUM_REPLAYS = 400
"""Replays of the recommended run: the 5th and the 95th percentile are then known to about one percentile."""


def uncertainty_of(job: Job, front: Evaluation, ids: Integers, row: int, seed: int) -> Uncertainty:
    """Returns the spread of the recommended design, and the designs that are indistinguishable from it."""
    chosen = front.take(np.array([row]))
    wall_s, cost_usd = replayed(job, chosen, seed)
    accuracy = accuracy_of(job, chosen.plans, 0)
    low_s, high_s = step_time_interval(job, chosen.plans, 0, float(chosen.outcomes.steps.step_time_s[0]))
    limits = job.limits
    return Uncertainty(
        num_replays=NUM_REPLAYS,
        time_to_train_days=_spread(wall_s / DAY),
        cost_usd=_spread(cost_usd),
        goodput_fraction=_spread(chosen.outcomes.run.productive_s[0] / wall_s),
        deadline_probability=share_within(wall_s / DAY, limits.deadline_days),
        budget_probability=share_within(cost_usd, limits.budget_usd),
        step_time_error_fraction=accuracy.mean_absolute_error_fraction,
        step_time_low_s=low_s,
        step_time_high_s=high_s,
        step_time_bias_fraction=accuracy.bias_fraction,
        is_step_time_measured=accuracy.is_measured,
        step_time_num_compared=accuracy.num_rows,
        step_time_compared_with=accuracy.compared_with,
        are_kernels_scaled=not accuracy.is_measured
        and not has_measured_kernels(_accelerator(job, chosen.plans, 0)),
        tied_designs=tuple(ids[tied_designs(job, front, row, seed)].tolist()),
    )


def step_time_interval(job: Job, plans: PlanTable, row: int, step_time_s: float) -> tuple[float, float]:
    """Returns the ends of the interval that holds four of five steps like that of one of some designs.

    Args:
        job: the job.
        plans: the designs.
        row: the design.
        step_time_s: its simulated step.
    """
    below, above = step_error_of(job, plans, row).interval_log_half_widths
    return step_time_s * math.exp(-below), step_time_s * math.exp(above)


def replayed(job: Job, chosen: Evaluation, seed: int) -> tuple[Floats, Floats]:
    """Returns wall time and cost of every replay of a design, one row, `(r,)` each."""
    replays = replicate(job, chosen.plans, chosen.outcomes, num_replications=NUM_REPLAYS, seed=seed)
    wall_s = replays.wall_s[0] + chosen.outcomes.run.initialization_s[0]
    return wall_s, _cost_of_replays(job, chosen, wall_s)


def _cost_of_replays(job: Job, chosen: Evaluation, wall_s: Floats) -> Floats:
    """Cost of runs of a design, one row, with these wall times, `(r,)`."""
    rows = np.zeros(len(wall_s), dtype=np.intp)
    usage = Usage.of(chosen.outcomes).take(rows).lasting(wall_s)
    return total(cost_parts(job, chosen.plans.take(rows), usage).values())


def accuracy_of(job: Job, plans: PlanTable, row: int) -> Accuracy:
    """Returns how well steps like that of one of some designs were simulated.

    On runs of the job's calibration if it has any of that kind, on published ones otherwise.
    """
    accelerator = _accelerator(job, plans, row)
    precision = Precision.from_code(int(plans.precision[row]))
    return calibrated_accuracy(job, accelerator.id, precision) or _published_accuracy(job, plans, row)


def _published_accuracy(job: Job, plans: PlanTable, row: int) -> Accuracy:
    """Returns how well steps like that of one of some designs were simulated on published runs."""
    chip, has_experts = _accelerator(job, plans, row), job.workload.model.experts is not None
    is_beyond = bool(beyond_measured(reach_of(job, plans, row)))
    return step_time_error(
        chip.family,
        Precision.from_code(int(plans.precision[row])).value,
        has_experts=has_experts,
        is_like_measured=is_measured(chip.id, has_experts=has_experts) and not is_beyond,
    )


def _accelerator(job: Job, plans: PlanTable, row: int) -> Accelerator:
    return job.offers[int(plans.offer[row])].accelerator


def calibrated_accuracy(job: Job, accelerator: str, precision: Precision) -> Accuracy | None:
    """Returns the error on the owner's own runs, each simulated with constants fitted without it; `None` without such runs."""
    if job.calibration is None:
        return None
    has_experts = job.workload.model.experts is not None
    found = job.calibration.residuals_of(accelerator, precision, has_experts=has_experts)
    if found is None:
        return None
    return Accuracy(
        num_rows=found.num_configurations,
        bias_fraction=found.bias_fraction,
        mean_absolute_error_fraction=found.mean_absolute_error_fraction,
        is_measured=True,
        compared_with=f"runs of the calibration ({job.calibration.source})",
    )


def _spread(values: Floats) -> Spread:
    mean, p5, p50, p95 = map(finite_or_none, (float(np.mean(values)), *percentiles(values)))
    return Spread(mean=mean, p5=p5, p50=p50, p95=p95)


def share_within(values: Floats, limit: float | None) -> float | None:
    """Returns the share of values that meet a limit; `None` without one."""
    return None if limit is None else float(np.mean(values <= limit))
