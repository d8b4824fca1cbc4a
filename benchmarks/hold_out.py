"""Which constants of training steps would there be without the publisher of a run? One set for each publisher of a whole run.

    python -m benchmarks.hold_out --measured training_runs.csv --vtrain FOLDER

Writes `planner/data/held_out_constants.csv`, from which `planner.whole_runs` predicts runs whose own steps the shipped
constants have seen. Errors are taken as a plane around the shipped constants, as in `benchmarks.fit_training`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from benchmarks.fit_training import SUSTAINED, UNKNOWNS, Unknown, constants_of, prior, weights_of
from benchmarks.training_steps import log_errors, read_steps, sources_of
from planner.calibration_fitting import Plane, damped
from planner.calibration_steps import MeasuredSteps
from simulator.table import Floats
from simulator.training import TrainingConstants, training_constants

TARGET = Path(__file__).parents[1] / "planner" / "data" / "held_out_constants.csv"
HEAD = ("without", "num_steps_left_out", "applies_to", "constant", "value")
PUBLISHERS = ("BigScience", "MT-NLG", "MLPerf Training")
"""Publishers both of steps that the constants are fitted on and of runs in `planner.whole_run_jobs`."""


def unknowns_of(constants: TrainingConstants) -> Floats:
    """Returns the values of the unknowns, `(k,)`, in given constants."""
    return np.array([_value(constants, unknown) for unknown in UNKNOWNS])


def _value(constants: TrainingConstants, unknown: Unknown) -> float:
    if unknown.name == SUSTAINED:
        family, number_format = unknown.applies_to.split()
        return constants.sustained_fractions[family, number_format]
    return float(getattr(constants, unknown.name))


def held_out_rows(steps: MeasuredSteps) -> Iterator[tuple[str, ...]]:
    """Yields every constant of the fit without each publisher."""
    sources, expected = sources_of(steps), prior()
    weights = weights_of(sources)
    shipped = np.log(unknowns_of(training_constants()))
    line = Plane.of(lambda logs: log_errors(steps, constants_of(np.exp(logs))), shipped, expected)
    for publisher in PUBLISHERS:
        is_out = sources == publisher
        assert is_out.any(), f"{publisher} has published steps of the fit"
        values = np.exp(damped(line, np.where(is_out, 0.0, weights), expected))
        for unknown, value in zip(UNKNOWNS, values.tolist(), strict=True):
            yield publisher, str(is_out.sum()), unknown.applies_to, unknown.name, f"{value:.6g}"


@click.command()
@click.option("--measured", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=True)
@click.option("--vtrain", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
def main(measured: Path, vtrain: Path) -> None:
    """Fits without each publisher, and writes the constants."""
    rows = list(held_out_rows(read_steps(measured, vtrain)))
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])


if __name__ == "__main__":
    main()
