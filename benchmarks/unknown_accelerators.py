"""How far off would steps be on an architecture without any measurements? Each known one is left out in turn.

    python -m benchmarks.unknown_accelerators --measured training_runs.csv --vtrain FOLDER

The constants of training are fitted without its steps, linearized around the shipped ones. Its accelerators get a name that no
table knows, so that kernels, links and clocks follow the transfer rules of docs/model/kernels.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.fit_training import constants_of, constants_without, weights_of
from benchmarks.hold_out import plane_of
from benchmarks.training_steps import over_measured_steps, sources_of
from planner.calibration.steps import MeasuredSteps
from simulator import catalog
from simulator.domain.job import Job
from simulator.machine.rank import Rank
from simulator.machine.training import TrainingConstants
from simulator.table import Floats

UNKNOWN = "unknown"
INSIDE_SHARE = 0.8


def renamed(job: Job) -> Job:
    """Returns a job on the same accelerators, of an architecture that nobody measured."""
    offers = tuple(
        offer.model_copy(update={"accelerator": offer.accelerator.model_copy(update={"family": UNKNOWN})})
        for offer in job.offers
    )
    return job.model_copy(update={"offers": offers})


def transferred_errors(steps: MeasuredSteps, constants: TrainingConstants, family: str) -> Floats:
    """Returns the log errors of steps of an architecture, `(n,)`, with constants that have none of it."""
    fractions = {key: value for key, value in constants.sustained_fractions.items() if key[0] != family}
    known = replace(constants, sustained_fractions=fractions)
    return steps.log_errors(lambda job, plans: Rank.of(renamed(job), plans, known))


def described(log_errors_: Floats, formats: NDArray[np.str_]) -> str:
    """Returns the errors by number format."""
    lines = []
    for name in np.unique(formats):
        found = log_errors_[formats == name]
        errors = np.expm1(found)
        quantile = np.quantile(np.abs(found), INSIDE_SHARE)
        lines.append(
            f"{name}: mean {np.abs(errors).mean():.1%}, bias {errors.mean():+.1%}, four of five below "
            f"{np.expm1(quantile):.1%}, n={len(found)}"
        )
    return "; ".join(lines)


@over_measured_steps
def main(steps: MeasuredSteps) -> None:
    """Prints the errors on every architecture, left out of everything."""
    weights, plane = weights_of(sources_of(steps)), plane_of(steps)
    families = np.array([catalog.accelerator(row["accelerator"]).family for row in steps.rows])
    formats = np.array([row["precision"].replace("fp16", "bf16") for row in steps.rows])
    for family in np.unique(families):
        is_out = families == family
        constants = constants_of(constants_without(is_out, plane, weights))
        found = transferred_errors(steps.take(is_out), constants, str(family))
        print(f"{family}: {described(found, formats[is_out])}")


if __name__ == "__main__":
    main()
