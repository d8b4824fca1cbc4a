"""Which constants fit a user's own cluster? Published values as prior, measured steps as evidence, errors on left-out rows.

    from planner import calibrate, load_calibration

    answer = calibrate("steps.csv")
    answer.calibration.constants, answer.warnings

The fit is damped least squares on log errors, as for the published constants (`benchmarks/fit_training.py`). It includes only
constants that the rows determine: those whose variance they halve. All others keep their published values and are named.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from planner.calibration.answer import CalibrationAnswer, Held, RowFit
from planner.calibration.checks import STEPS, check_explained, on_ends
from planner.calibration.fitting import Plane, best_settled, damped, log_deviations, mean_error, noise_ratio
from planner.calibration.residuals import residuals_of
from planner.calibration.rows import MOST_NAMED, UsableRows, usable_rows
from planner.calibration.steps import MeasuredSteps
from planner.calibration.table import check_date
from planner.calibration.unknowns import MEASUREMENT_SCATTER, Unknown, prior_of, unknowns_of
from planner.input.arguments import path_given
from planner.text.human import percent, signed_percent
from simulator.domain.calibration import Calibration
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.errors import refusal
from simulator.machine.rank import Rank
from simulator.table import Floats

KNOWN_SHARE = 0.5**0.5
"""A constant is fitted if the rows reduce its standard deviation to at most this share, that is, halve its variance."""
MOST_FOLDS = 40
"""Number of fits that leave out some configurations; with fewer configurations, each one is left out alone."""
FEWEST_OF_SOFTWARE = 3
"""Configurations from which the mean error of a framework is compared with that of another one."""
SURE_DEVIATIONS = 3.0
"""Standard errors by which means must differ to be told."""
FAR_OFF = 0.2
"""Error of a left-out configuration from which it is named, if it is also three times the usual error."""


def calibrate(
    measured: str | Path,
    *,
    accelerator: str | None = None,
    date: str | None = None,
) -> CalibrationAnswer:
    """Fits the constants of a cluster to its own measured steps.

    Args:
        measured: CSV file with the columns of `capplan validate --measured` (docs/measured-rows.md).
        accelerator: uses only the rows of this accelerator; if omitted, the rows of all.
        date: when it was measured; if omitted, the day on which the file was written.

    Returns:
        The calibration and its evidence. The same file and version give the same calibration.

    Raises:
        InputError: the file is not a table of measured runs, or has too few usable rows, rows that contradict each other,
            rows that determine no constant, or rows that no constants come close to.
    """
    path = path_given(measured)
    check_date(date)
    rows = usable_rows(path, accelerator)
    steps = rows.steps
    draft = _draft(path, rows, date)
    all_unknowns = unknowns_of(steps.rows)
    published = _published_plane(steps, draft, all_unknowns)
    is_told, held = _told_apart(published, all_unknowns)
    unknowns = [unknown for unknown, is_one in zip(all_unknowns, is_told, strict=True) if is_one]
    if not unknowns:
        rule = "tells nothing of any constant: measure runs that take longer, or other layouts and sizes"
        raise refusal(path, rule)
    fit = _Fit(steps, draft, unknowns, published.take(is_told))
    check_explained(fit.plane.errors, str(path), STEPS)
    left_out = fit.left_out_errors()
    before, after = published.errors, fit.plane.errors
    calibration = draft.model_copy(
        update={
            "error_before_fraction": mean_error(before),
            "error_after_fraction": mean_error(after),
            "error_left_out_fraction": mean_error(left_out),
            "constants": fit.constants(),
            "residuals": residuals_of(steps.rows, left_out),
        }
    )
    return CalibrationAnswer(
        calibration=calibration,
        held=held,
        rows=_row_fits(steps, before, after, left_out),
        warnings=(
            *rows.warnings,
            *fit.warnings(),
            *_on_errors(steps, calibration, left_out),
            *_on_software(steps, left_out),
        ),
    )


def _draft(path: Path, rows: UsableRows, date: str | None) -> Calibration:
    """Returns a calibration that changes nothing yet, with the evidence that it will rest on."""
    return Calibration(
        source=path.name[:200],
        source_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        date=date or _day_of(path),
        num_rows=rows.num_rows,
        num_configurations=len(rows.steps.rows),
        num_left_out=rows.num_left_out,
        error_before_fraction=0.0,
        error_after_fraction=0.0,
        error_left_out_fraction=0.0,
        constants=(),
    )


class _Fit:
    """The best constants for some steps, and what they would be without some of the steps."""

    def __init__(
        self, steps: MeasuredSteps, draft: Calibration, unknowns: Sequence[Unknown], start: Plane
    ) -> None:
        self.steps, self.draft, self.unknowns = steps, draft, unknowns
        self.prior = prior_of(unknowns)
        self.weights = np.ones(len(steps.rows))
        self.plane: Plane = best_settled(
            lambda logs: self._errors_at(steps, logs), self.weights, self.prior, start
        )

    def constants(self) -> tuple[object, ...]:
        """Returns the constants and the uncertainty of each, which grows with the scatter of the steps."""
        weights = self.weights / noise_ratio(self.plane, self.prior)
        deviations = log_deviations(self.plane, weights, self.prior)
        return tuple(
            unknown.fitted(value, deviation)
            for unknown, value, deviation in zip(
                self.unknowns, np.exp(self.plane.at).tolist(), deviations.tolist(), strict=True
            )
        )

    def warnings(self) -> list[str]:
        """Returns a warning for each constant at an end of its range."""
        return on_ends([unknown.words for unknown in self.unknowns], self.plane.at, self.prior)

    def left_out_errors(self) -> Floats:
        """Returns the log error of every configuration with constants fitted without it, `(n,)`.

        These fits use the linearization around the constants of all steps; the left-out configurations are simulated.
        """
        errors = np.empty(len(self.steps.rows))
        folds = np.arange(len(errors)) % min(MOST_FOLDS, len(errors))
        for fold in np.unique(folds):
            is_out: NDArray[np.bool_] = folds == fold
            logs = damped(self.plane, np.where(is_out, 0.0, self.weights), self.prior)
            errors[is_out] = self._errors_at(self.steps.take(is_out), logs)
        return errors

    def _errors_at(self, steps: MeasuredSteps, logs: Floats) -> Floats:
        return _errors(steps, _with(self.draft, self.unknowns, logs))


def _with(draft: Calibration, unknowns: Sequence[Unknown], logs: Floats) -> Calibration:
    """Returns a calibration with the constants of a trial, `(k,)`."""
    values = np.exp(logs).tolist()
    tried = tuple(
        unknown.fitted(value, 0.0).model_copy(update={"value": value})
        for unknown, value in zip(unknowns, values, strict=True)
    )
    return draft.model_copy(update={"constants": tried})


def _errors(steps: MeasuredSteps, calibration: Calibration) -> Floats:
    """Returns ln(simulated / measured) of every configuration, `(n,)`."""

    def rank_of(job: Job, plans: PlanTable) -> Rank:
        return Rank.of(job.model_copy(update={"calibration": calibration}), plans)

    return steps.log_errors(rank_of)


def _published_plane(steps: MeasuredSteps, draft: Calibration, unknowns: Sequence[Unknown]) -> Plane:
    """Returns the errors with published constants, and their derivatives with respect to each."""
    prior = prior_of(unknowns)

    def errors_at(logs: Floats) -> Floats:
        return _errors(steps, _with(draft, unknowns, logs))

    return Plane.of(errors_at, np.log(prior.expected), prior)


def _told_apart(plane: Plane, unknowns: Sequence[Unknown]) -> tuple[NDArray[np.bool_], tuple[Held, ...]]:
    """Returns which constants the steps determine, `(k,)`, and the others.

    The constant that the steps determine least is held fixed, one at a time, until the steps halve the variance of all
    remaining ones and there are at least two configurations for each.
    """
    prior, weights = prior_of(unknowns), np.ones(len(plane.errors))
    chosen, held = np.ones(len(unknowns), dtype=bool), []
    while chosen.any():
        known = log_deviations(plane.take(chosen), weights, prior.take(chosen)) / prior.log_width[chosen]
        worst = int(known.argmax())
        if known[worst] <= KNOWN_SHARE and 2 * chosen.sum() <= len(weights):
            break
        position = int(np.flatnonzero(chosen)[worst])
        chosen[position] = False
        largest_slope = float(np.abs(plane.slopes[:, position]).max())
        held.append(_held(unknowns[position], largest_slope, float(known[worst])))
    return chosen, tuple(held)


def _held(unknown: Unknown, largest_slope: float, known_share: float) -> Held:
    if largest_slope * unknown.range.log_width < MEASUREMENT_SCATTER / 2:
        why = "the steps hardly depend on it"
    elif known_share > KNOWN_SHARE:
        why = "the steps cannot separate it from the others"
    else:
        why = "there are too few configurations"
    return Held(name=unknown.words, value=float(f"{unknown.published:.6g}"), why=why)


def _day_of(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).date().isoformat()


def _row_fits(steps: MeasuredSteps, before: Floats, after: Floats, left_out: Floats) -> tuple[RowFit, ...]:
    return tuple(
        RowFit(
            id=row["row_id"],
            accelerator=row["accelerator"],
            measured_step_time_s=measured_s,
            error_before_fraction=error[0],
            error_after_fraction=error[1],
            error_left_out_fraction=error[2],
        )
        for row, measured_s, error in zip(
            steps.rows,
            steps.measured_s.tolist(),
            np.expm1(np.array([before, after, left_out]).T).tolist(),
            strict=True,
        )
    )


def _on_errors(steps: MeasuredSteps, calibration: Calibration, left_out: Floats) -> list[str]:
    """Warns where the calibration does not help, and names the rows that it does not explain."""
    notes = []
    before, without = calibration.error_before_fraction, calibration.error_left_out_fraction
    if without >= before:
        notes.append(
            f"The calibration does not help: mean error {percent(without)} on configurations left out of the fit, "
            f"{percent(before)} with published constants. Measure more layouts, or plan with published constants."
        )
    errors = np.abs(np.expm1(left_out))
    is_far = errors > max(FAR_OFF, 3.0 * float(np.median(errors)))
    far = [
        f"{steps.rows[at]['row_id']} ({signed_percent(float(np.expm1(left_out[at])), num_decimals=0)})"
        for at in np.argsort(-errors)
        if is_far[at]
    ]
    if far:
        rest = f" and {len(far) - MOST_NAMED} more" if len(far) > MOST_NAMED else ""
        notes.append(
            f"The other rows do not explain {', '.join(far[:MOST_NAMED])}{rest}: check layout, software and measured time."
        )
    return notes


def _on_software(steps: MeasuredSteps, left_out: Floats) -> list[str]:
    """Warns where two frameworks differ by more than releases of one do: no constant of the cluster explains that."""
    software = np.array([row.get("software", "") for row in steps.rows])
    found = {str(name): left_out[software == name] for name in np.unique(software[software != ""])}
    means = [
        (float(errors.mean()), float(errors.var(ddof=1)) / len(errors), name)
        for name, errors in found.items()
        if len(errors) >= FEWEST_OF_SOFTWARE
    ]
    if len(means) < 2:
        return []
    (low, low_variance, slow), (high, high_variance, fast) = min(means), max(means)
    surely = SURE_DEVIATIONS * math.sqrt(low_variance + high_variance)
    if high - low <= max(surely, MEASUREMENT_SCATTER):
        return []
    slow_mean, fast_mean = (signed_percent(math.expm1(mean)) for mean in (low, high))
    told = f"{slow} {slow_mean}, {fast} {fast_mean}"
    why = "No constant of the cluster explains a difference between frameworks, so others take some of it"
    way_out = "calibrate the rows of each framework in a file of its own"
    return [f"Mean error on configurations left out of the fit: {told}. {why}: {way_out}."]
