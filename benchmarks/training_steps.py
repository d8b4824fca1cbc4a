"""Which measured steps are the constants of training fitted on, and what does the simulator predict for given constants?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.convert_vtrain import converted, write_runs
from planner.calibration.steps import MeasuredSteps
from planner.measured.row_reasons import reason_against
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row
from simulator.machine.rank import Rank
from simulator.machine.training import TrainingConstants
from simulator.table import Floats

TIERS = ("A", "")
"""Complete rows with a published speed, and those of files that do not grade theirs."""
_RELEASE = re.compile(r"( (v?\d|container|[(\d]|performance|A100|H100).*|[(:,].*)$")


def over_measured_steps(run: Callable[..., None]) -> click.Command:
    """Makes a command of what is done with all these steps: `--measured training_runs.csv --vtrain FOLDER`.

    Options that are added to the command are passed on by their names.
    """

    @click.command(help=run.__doc__)
    @click.option("--measured", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=True)
    @click.option("--vtrain", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
    def command(measured: Path, vtrain: Path, **options: object) -> None:
        run(read_steps(measured, vtrain), **options)

    return command


def log_errors(steps: MeasuredSteps, constants: TrainingConstants) -> Floats:
    """Returns ln(simulated / measured) with these constants, `(n,)`."""
    return steps.log_errors(lambda job, plans: Rank.of(job, plans, constants))


def sources_of(steps: MeasuredSteps) -> NDArray[np.str_]:
    """Returns the publisher of each configuration, whatever the release of its software."""
    return np.array([source_of(row["group"]) for row in steps.rows])


def models_of(steps: MeasuredSteps) -> NDArray[np.str_]:
    """Returns the model of each configuration; variants of one model are the same."""
    return np.array([re.sub(r" \(.*|(?<=BLOOM)-.*", "", row["model"]) for row in steps.rows])


def source_of(group: str) -> str:
    """Returns the publisher of a row, without release or cluster."""
    return "BigScience" if "BLOOM" in group else _RELEASE.sub("", group)


def read_steps(measured: Path, vtrain: Path) -> MeasuredSteps:
    """Returns all dense configurations of a file of training runs and of a folder of vTrain."""
    with TemporaryDirectory() as folder:
        files = [measured]
        for path in sorted(vtrain.glob("ground_truth_*.csv")):
            files.append(Path(folder) / path.name)
            write_runs(converted(path), files[-1])
        rows = [row for path in files for row in read_measured(path)]
    return MeasuredSteps.of([row for row in rows if not isinstance(row, Unmodelled) and _is_scored(row)])


def _is_scored(row: Row) -> bool:
    is_timed = bool(row["step_time_s"]) and not row["left_out_because"]
    return is_timed and row["tier"] in TIERS and not row["num_experts"] and not reason_against(row)
