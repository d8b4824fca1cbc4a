"""Which optimiser fits the constants of a cluster best? Damped least squares against Optuna and CMA-ES, on the same steps.

    python -m benchmarks.calibration_optimizers examples/calibration/steps.csv

All minimise the same loss as `capplan calibrate`: soft L1 of the log errors and of the constants' distances from their
published values. They start at the published values and fit the constants that `calibrate` fits. One evaluation simulates all
configurations once. Seconds depend on the machine; the rest does not.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.sheets import markdown_row
from planner import calibrate
from planner.calibration.fitting import OUTLIER_SCALE, Prior, settled
from planner.calibration.rows import usable_rows
from planner.calibration.steps import MeasuredSteps
from planner.calibration.unknowns import prior_of, unknowns_of
from simulator.domain.calibration import Calibration
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.machine.rank import Rank
from simulator.table import Floats

MULTIPLES = (1, 4, 16)
"""Evaluation budget of the other optimisers, as a multiple of the evaluations that least squares takes."""
FIRST_STEP = 0.5
"""Initial standard deviation of CMA-ES, in standard deviations of the prior."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What is to be fitted, and the losses of all constants tried."""

    steps: MeasuredSteps
    calibration: Calibration
    prior: Prior
    losses: list[float] = field(default_factory=list)
    """In the order of the evaluations."""

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Least and largest logarithms of the constants, `(k,)` each."""
        return np.log(self.prior.low), np.log(self.prior.high)

    def errors_at(self, logs: Floats) -> Floats:
        """Returns ln(simulated / measured) of all configurations, and keeps the loss."""
        constants = tuple(
            constant.model_copy(update={"value": value})
            for constant, value in zip(self.calibration.constants, np.exp(logs).tolist(), strict=True)
        )
        tried = self.calibration.model_copy(update={"constants": constants})

        def rank_of(job: Job, plans: PlanTable) -> Rank:
            return Rank.of(job.model_copy(update={"calibration": tried}), plans)

        errors = self.steps.log_errors(rank_of)
        self.losses.append(self._loss(logs, errors))
        return errors

    def loss_at(self, logs: Floats) -> float:
        """Returns the loss to minimise."""
        self.errors_at(logs)
        return self.losses[-1]

    def _loss(self, logs: Floats, errors: Floats) -> float:
        """Soft L1 of errors and pulls, `sum s^2 (sqrt(1 + (r / s)^2) - 1)`."""
        pulls = self.prior.weight * (logs - np.log(self.prior.expected)) / self.prior.log_width
        scaled = np.concatenate([errors, pulls]) / OUTLIER_SCALE
        return float(OUTLIER_SCALE**2 * (np.sqrt(1.0 + scaled**2) - 1.0).sum())


def fit_of(measured: Path) -> Fit:
    """Returns the fit of the constants that `calibrate` fits to a file of steps."""
    calibration = calibrate(measured).calibration
    steps = usable_rows(measured, None).steps
    unknowns = [
        unknown
        for constant in calibration.constants
        for unknown in unknowns_of(steps.rows)
        if (unknown.name, unknown.accelerator, unknown.precision)
        == (constant.name, constant.accelerator, constant.precision)
    ]
    return Fit(steps=steps, calibration=calibration, prior=prior_of(unknowns))


def by_least_squares(fit: Fit, num_evaluations: int, seed: int) -> None:
    """Fits as `calibrate` does; says itself when it is done."""
    del num_evaluations, seed
    settled(fit.errors_at, np.ones(len(fit.steps.rows)), fit.prior)


def by_optuna(fit: Fit, num_evaluations: int, seed: int) -> None:
    """Fits by Optuna's sampler of continuous knobs that needs no further package."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    low, high = fit.bounds
    names = [f"constant {position}" for position in range(len(low))]
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
    study.enqueue_trial(dict(zip(names, np.log(fit.prior.expected).tolist(), strict=True)))

    def loss(trial: optuna.Trial) -> float:
        logs = [trial.suggest_float(name, *ends) for name, *ends in zip(names, low, high, strict=True)]
        return fit.loss_at(np.array(logs))

    study.optimize(loss, n_trials=num_evaluations)


def by_cma(fit: Fit, num_evaluations: int, seed: int) -> None:
    """Fits by CMA-ES (Hansen, arXiv 1604.00772) of the package `cma`, which comes with pymoo."""
    import cma  # type: ignore[import-untyped]  # no stubs, no py.typed

    low, high = fit.bounds
    options = {
        "bounds": [low.tolist(), high.tolist()],
        "CMA_stds": fit.prior.log_width.tolist(),
        "maxfevals": num_evaluations,
        "seed": seed + 1,  # 0 would be the clock
        "verbose": -9,
    }
    strategy = cma.CMAEvolutionStrategy(np.log(fit.prior.expected), FIRST_STEP, options)
    while not strategy.stop():
        tried = strategy.ask()
        strategy.tell(tried, [fit.loss_at(np.asarray(logs)) for logs in tried])


OPTIMISERS: dict[str, Callable[[Fit, int, int], None]] = {
    "damped least squares": by_least_squares,
    "Optuna, TPE": by_optuna,
    "CMA-ES": by_cma,
}


def table_rows(fit: Fit, num_seeds: int) -> Iterator[str]:
    """Yields each optimiser: best loss after some evaluations, median and largest of the seeds, and seconds of all."""
    by_least_squares(fit, 0, 0)
    num_own = len(fit.losses)
    counts = [num_own * multiple for multiple in MULTIPLES]
    yield markdown_row("optimiser", *(f"{count} evaluations" for count in counts), "evaluations", "seconds")
    yield markdown_row("---", *["---:"] * (len(counts) + 2))
    published = f"{fit.losses[0]:.5f}"
    yield markdown_row("published constants", *[published] * len(counts), "1", "")
    for name, optimise in OPTIMISERS.items():
        runs, seconds = [], []
        for seed in range(num_seeds):
            own = Fit(steps=fit.steps, calibration=fit.calibration, prior=fit.prior)
            started = time.perf_counter()
            optimise(own, counts[-1], seed)
            seconds.append(time.perf_counter() - started)
            runs.append(own.losses)
        best = [[min(losses[:count]) for losses in runs] for count in counts]
        found = [f"{median(losses):.5f}, {max(losses):.5f}" for losses in best]
        yield markdown_row(name, *found, f"{max(map(len, runs))}", f"{median(seconds):.1f}")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("measured", type=Path, help="CSV file as for `capplan calibrate --measured`")
    parser.add_argument("--seeds", type=int, default=2)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*multivariate.*")  # experimental by name, in Optuna for years
    fit = fit_of(arguments.measured)
    print(f"{len(fit.steps.rows)} configurations, {len(fit.prior.expected)} constants\n")
    for row in table_rows(fit, arguments.seeds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
