"""How sure are the recommended figures? Replays of the run under chance, and designs that the model cannot tell apart."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from constraints.evaluation import Evaluation
from objectives.scores import Usage, cost_parts, limit_risks, total
from objectives.unsure_inputs import step_error_of
from planner.bests import RISKS
from planner.recommendation import Spread, Uncertainty
from simulator.accuracy import Accuracy, step_time_error
from simulator.hardware import Precision
from simulator.job import Job
from simulator.simulate import replicate
from simulator.table import Floats, Integers
from simulator.units import DAY

NUM_REPLAYS = 400
"""Replays of the recommended run: the 5th and the 95th percentile are then known to about one percentile."""


def uncertainty_of(job: Job, front: Evaluation, ids: Integers, row: int, seed: int) -> Uncertainty:
    """Returns the spread of the recommended design and the designs that are as good within the model's error."""
    chosen = front.take(np.array([row]))
    wall_s, cost_usd = replayed(job, chosen, seed)
    accuracy = accuracy_of(job, chosen)
    half_widths = interval_log_half_widths(job, front)
    half_width = float(half_widths[row])
    step_time_s = float(chosen.outcomes.steps.step_time_s[0])
    limits = job.limits
    return Uncertainty(
        num_replays=NUM_REPLAYS,
        time_to_train_days=_spread(wall_s / DAY),
        cost_usd=_spread(cost_usd),
        goodput_fraction=_spread(chosen.outcomes.run.productive_s[0] / wall_s),
        deadline_probability=_share_within(wall_s / DAY, limits.deadline_days),
        budget_probability=_share_within(cost_usd, limits.budget_usd),
        step_time_error_fraction=accuracy.mean_absolute_error_fraction,
        step_time_low_s=step_time_s * math.exp(-half_width),
        step_time_high_s=step_time_s * math.exp(half_width),
        step_time_bias_fraction=accuracy.bias_fraction,
        is_step_time_measured=accuracy.is_measured,
        step_time_compared_with=accuracy.compared_with,
        tied_designs=tuple(ids[tied_designs(job, front, row, np.expm1(half_widths))].tolist()),
    )


def replayed(job: Job, chosen: Evaluation, seed: int) -> tuple[Floats, Floats]:
    """Returns wall time and cost of every replay of a design, one row, `(r,)` each."""
    replays = replicate(job, chosen.plans, chosen.outcomes, num_replications=NUM_REPLAYS, seed=seed)
    wall_s = replays.wall_s[0] + chosen.outcomes.run.initialization_s[0]
    return wall_s, _cost_of_replays(job, chosen, wall_s)


def _cost_of_replays(job: Job, chosen: Evaluation, wall_s: Floats) -> Floats:
    """Cost of runs of a design, one row, that take so long, `(r,)`."""
    rows = np.zeros(len(wall_s), dtype=np.intp)
    usage = Usage.of(chosen.outcomes).take(rows).lasting(wall_s)
    return total(cost_parts(job, chosen.plans.take(rows), usage))


def accuracy_of(job: Job, chosen: Evaluation) -> Accuracy:
    """Returns how well steps like those of a design, one row, were simulated.

    On runs of the job's calibration if it has any of that kind, on published ones otherwise.
    """
    chip = job.offers[int(chosen.plans.offer[0])].accelerator
    precision = Precision.from_code(int(chosen.plans.precision[0]))
    has_experts = job.workload.model.experts is not None
    own = calibrated_accuracy(job, chip.id, precision)
    return own or step_time_error(chip.family, precision.value, has_experts=has_experts)


def interval_log_half_widths(job: Job, front: Evaluation) -> Floats:
    """Returns half the width of the interval in which the step of each design lies in four of five cases, `(n,)`.

    As a logarithm of time; on runs of the job's calibration if it has any of that kind, on published ones otherwise.
    """
    kinds, inverse = np.unique(
        np.column_stack([front.plans.offer, front.plans.precision]), axis=0, return_inverse=True
    )
    widths = [
        step_error_of(job, offer, Precision.from_code(code)).interval_log_half_width
        for offer, code in kinds.tolist()
    ]
    return np.array(widths)[inverse.reshape(-1)]


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
    figures = [np.mean(values), *np.quantile(values, (0.05, 0.5, 0.95), method="inverted_cdf")]
    mean, p5, p50, p95 = (float(value) if math.isfinite(value) else None for value in figures)
    return Spread(mean=mean, p5=p5, p50=p50, p95=p95)


def _share_within(values: Floats, limit: float | None) -> float | None:
    return None if limit is None else float(np.mean(values <= limit))


def tied_designs(job: Job, front: Evaluation, row: int, errors: Floats) -> NDArray[np.bool_]:
    """Returns the designs of which no objective can be told from that of the chosen row, which is left out, `(n,)`.

    What is no risk grows with the step (`tied_rows`). A risk may grow many times over by a step that is little longer, so
    that it is compared with that of steps that are shorter by the error (`tied_risks`).

    Args:
        job: the job, for its objectives.
        front: the designs.
        row: the chosen one.
        errors: of the steps of the designs, as shares, `(n,)`.
    """
    is_risk = np.array([objective in RISKS for objective in job.objectives])
    values = front.objectives(job)
    is_tied = tied_rows(values[:, ~is_risk], row, errors)
    if is_risk.any():
        room = 1.0 + np.minimum(errors, errors[row])
        mine = front.take(np.full(len(front), row))
        shorter, mine_shorter = (_risks_with_room(job, designs, room) for designs in (front, mine))
        is_tied &= tied_risks(values[:, is_risk], row, shorter, mine_shorter)
    return is_tied


def _risks_with_room(job: Job, designs: Evaluation, room: Floats) -> Floats:
    """Risks among the objectives were every limit so many times as far away, `(n, k)`."""
    found = limit_risks(job, designs.plans, designs.outcomes, designs.scores.cost_usd, room)
    return np.column_stack([found[objective.value] for objective in job.objectives if objective in RISKS])


def tied_risks(risks: Floats, row: int, shorter: Floats, mine_shorter: Floats) -> NDArray[np.bool_]:
    """Returns the rows of which no risk can be told from that of the chosen row, `(n,)`.

    The larger one of two risks would be at most the smaller one, were the step shorter by the smaller error of the two.

    Args:
        risks: objectives that are risks, `(n, k)`.
        row: the chosen one.
        shorter: the same with steps that are shorter by that error, `(n, k)`.
        mine_shorter: those of the chosen row, with the error that is the smaller one in each pair, `(n, k)`.
    """
    eased = np.where(risks > risks[row], shorter, mine_shorter)
    is_near: NDArray[np.bool_] = (eased <= np.minimum(risks, risks[row])).all(axis=1)
    return is_near


def tied_rows(values: Floats, row: int, errors: Floats) -> NDArray[np.bool_]:
    """Returns the rows of which no value can be told from that of the chosen row, which is left out, `(n,)`.

    The larger one of two values is at most the smaller error of the two designs above the smaller one: each lies in the
    interval of the other, so that of two designs each is tied with the other or neither is.

    Args:
        values: objectives that grow with the step, `(n, k)`.
        row: the chosen one.
        errors: of the steps of the designs, as shares, `(n,)`; accelerators and number formats have their own.
    """
    larger, smaller = np.maximum(values, values[row]), np.minimum(values, values[row])
    within = 1.0 + np.minimum(errors, errors[row])[:, None]
    is_near: NDArray[np.bool_] = (larger <= within * smaller).all(axis=1)
    is_near[row] = False
    return is_near
