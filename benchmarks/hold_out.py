"""What would the constants of training steps be without a publisher or a model, and how far off are steps then?

    python -m benchmarks.hold_out --measured training_runs.csv --vtrain FOLDER

Writes `planner/data/held_out_constants.csv`, with which `planner.validation.whole_runs` predicts runs whose own steps the
shipped constants are fitted on. The same without each model, and the publisher of each shipped step, go to `benchmarks/data`.
Errors are linearized around the shipped constants, as in `benchmarks.fit_training`. A table of docs/validation.md simulates the
published steps with these constants anew, so that it shows changes of the simulator.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.fit_training import (
    SUSTAINED,
    UNKNOWNS,
    Unknown,
    constants_of,
    constants_without,
    prior,
    weights_of,
)
from benchmarks.training_steps import log_errors, models_of, over_measured_steps, sources_of
from benchmarks.validate_held_out import MODELS_FILE, STEPS_FILE
from planner.calibration.fitting import Plane
from planner.calibration.steps import MeasuredSteps
from planner.measured.runs import read_rows
from planner.validation import held_out
from simulator.machine.training import TrainingConstants, training_constants
from simulator.table import Floats

SOURCES_FILE = Path(__file__).parents[1] / "planner" / held_out.FILE
HEAD = ("without", "num_steps_left_out", "applies_to", "constant", "value")


def unknowns_of(constants: TrainingConstants) -> Floats:
    """Returns the values of the unknowns, `(k,)`, in given constants."""
    return np.array([_value(constants, unknown) for unknown in UNKNOWNS])


def _value(constants: TrainingConstants, unknown: Unknown) -> float:
    if unknown.name == SUSTAINED:
        family, number_format = unknown.applies_to.split()
        return constants.sustained_fractions[family, number_format]
    return float(getattr(constants, unknown.name))


def plane_of(steps: MeasuredSteps) -> Plane:
    """Returns the errors of all steps around the shipped constants."""
    shipped = np.log(unknowns_of(training_constants()))
    return Plane.of(lambda logs: log_errors(steps, constants_of(np.exp(logs))), shipped, prior())


def held_out_rows(plane: Plane, weights: Floats, groups: NDArray[np.str_]) -> Iterator[tuple[str, ...]]:
    """Yields every constant of the fit without each group of steps."""
    for name in np.unique(groups):
        is_out = groups == name
        values = constants_without(is_out, plane, weights)
        for unknown, value in zip(UNKNOWNS, values.tolist(), strict=True):
            yield str(name), str(is_out.sum()), unknown.applies_to, unknown.name, f"{value:.6g}"


def step_rows(steps: MeasuredSteps) -> Iterator[tuple[str, ...]]:
    """Yields publisher and model of every shipped step that the constants are fitted on."""
    shipped = {row["config_key"] for row in read_rows() if not row["left_out_because"]}
    for row, source, model in zip(steps.rows, sources_of(steps), models_of(steps), strict=True):
        if row["config_key"] in shipped:
            yield row["config_key"], str(source), str(model)


def write(path: Path, head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> None:
    """Writes a table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


@over_measured_steps
def main(steps: MeasuredSteps) -> None:
    """Fits without each publisher and each model, and writes the constants."""
    plane, sources = plane_of(steps), sources_of(steps)
    weights = weights_of(sources)
    write(SOURCES_FILE, HEAD, held_out_rows(plane, weights, sources))
    write(MODELS_FILE, HEAD, held_out_rows(plane, weights, models_of(steps)))
    write(STEPS_FILE, ("config_key", "source", "model"), step_rows(steps))


if __name__ == "__main__":
    main()
