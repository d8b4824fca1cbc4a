"""How far off are published steps when the constants are fitted without their model or without their source?

A table of docs/validation.md over the steps in this repository, simulated anew each time so that it shows changes of the
simulator. The constants are those of `python -m benchmarks.hold_out`, which also gives the source of each step.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.sheets import Sheet
from benchmarks.validate_further import FURTHER_FILE, SAMPLE
from planner.calibration.steps import MeasuredSteps
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row, compare, read_rows
from planner.validation.held_out import constants_in, constants_without
from planner.validation.host_uncertainty import host_log_ratios
from planner.validation.interval import development_residuals, half_widths, half_widths_of, kind_of
from planner.validation.open_choices import open_log_ratios
from simulator.machine.rank import Rank
from simulator.machine.training import TrainingConstants
from simulator.table import Floats

DATA = Path(__file__).parent / "data"
MODELS_FILE = DATA / "held_out_models.csv"
STEPS_FILE = DATA / "held_out_steps.csv"
VTRAIN = "vTrain"
VTRAIN_SOURCES = {"vTrain multi-node": "vTrain multi", SAMPLE: "vTrain single"}
"""Names in the fit of sources in `further_steps.csv`."""


def read_table(path: Path) -> list[dict[str, str]]:
    """Returns the lines of a table by their columns."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def held_out_again_sheet() -> Sheet:
    """Returns the errors of every source on steps whose model or source the constants have not seen."""
    steps, sources, models = labelled_steps()
    lines_without_model = read_table(MODELS_FILE)
    by_model = _errors_without(steps, models, lambda name: constants_in(lines_without_model, name))
    by_source = errors_without_sources(steps, sources)
    errors = {"without its model": by_model, "without its source": by_source}
    unsure_ratios = unsure_ratios_without_sources(steps, sources)
    return table_of("held-out-again", errors, are_inside(steps, by_source, unsure_ratios), sources)


def labelled_steps() -> tuple[MeasuredSteps, NDArray[np.str_], NDArray[np.str_]]:
    """Returns the steps behind the table, with the source and the model of each, `(n,)`."""
    labels = {row["config_key"]: (row["source"], row["model"]) for row in read_table(STEPS_FILE)}
    published = [row for row in read_rows() if row["config_key"] in labels and not row["left_out_because"]]
    steps = MeasuredSteps.of([*published, *_rows_of_vtrain()])
    known = [labels.get(row["config_key"]) or _label_of_vtrain(row) for row in steps.rows]
    sources, models = np.array(known).T
    return steps, sources, models


def errors_without_sources(steps: MeasuredSteps, sources: NDArray[np.str_]) -> Floats:
    """Returns ln(simulated / measured) of every step, with constants that are fitted without its source, `(n,)`."""
    return _errors_without(steps, sources, constants_without)


def unsure_ratios_without_sources(steps: MeasuredSteps, sources: NDArray[np.str_]) -> list[Floats]:
    """Returns, row by row, what slower and faster hosts would change with those constants, and what a row leaves open."""
    hosts = _by_group(steps, sources, _host_ratios_without)
    choices_left = open_log_ratios(compare(steps.rows))
    return [np.append(*ratios) for ratios in zip(choices_left, hosts, strict=True)]


def _rows_of_vtrain() -> list[Row]:
    further = [row for row in read_measured(FURTHER_FILE) if not isinstance(row, Unmodelled)]
    return [row for row in further if row["group"] in VTRAIN_SOURCES]


def _label_of_vtrain(row: Row) -> tuple[str, str]:
    return VTRAIN_SOURCES[row["group"]], row["model"]


def _errors_without(
    steps: MeasuredSteps, groups: NDArray[np.str_], constants_of: Callable[[str], TrainingConstants]
) -> Floats:
    """Returns the log error of every step with the constants of the fit without its group, `(n,)`."""
    return _by_group(
        steps,
        groups,
        lambda part, name: part.log_errors(partial(Rank.of, training=constants_of(name))),
    )


def _host_ratios_without(steps: MeasuredSteps, source: str) -> Floats:
    """Returns what slower and faster hosts would change with the constants of the fit without a source, `(n, 2)`."""
    constants = constants_without(source)
    known_s = steps.simulated_s(partial(Rank.of, training=constants))
    return host_log_ratios(steps.batches, known_s, constants)


def _by_group(
    steps: MeasuredSteps, groups: NDArray[np.str_], found_of: Callable[[MeasuredSteps, str], Floats]
) -> Floats:
    """Returns what is found of the steps of each group, in the order of all steps, `(n, ...)`."""
    names = [str(name) for name in np.unique(groups)]
    parts = [found_of(steps.take(groups == name), name) for name in names]
    order = np.concatenate([np.flatnonzero(groups == name) for name in names])
    return np.concatenate(parts)[np.argsort(order)]


def are_inside(steps: MeasuredSteps, errors: Floats, unsure_ratios: Iterable[Floats]) -> NDArray[np.bool_]:
    """Returns whether every log error is within the interval of its row, which is made without the row's source.

    Args:
        steps: `n` configurations.
        errors: ln(simulated / measured), `(n,)`.
        unsure_ratios: what hosts and open choices would change (`planner.validation.comparison.unsure_log_ratios`), row by row.
    """
    below, above = sides_of(steps, unsure_ratios)
    return np.asarray((errors <= below) & (-errors <= above))


def sides_of(steps: MeasuredSteps, unsure_ratios: Iterable[Floats]) -> Floats:
    """Returns how far below and above each step its interval reaches, as logarithms, `(2, n)`; arguments as of `are_inside`."""
    residuals = development_residuals()
    widths = [half_widths_of(row, kind_of(row), residuals) for row in steps.rows]
    sides = [half_widths(width, ratios) for width, ratios in zip(widths, unsure_ratios, strict=True)]
    return np.array(sides).T


def table_of(
    name: str, errors: dict[str, Floats], is_inside: NDArray[np.bool_], sources: NDArray[np.str_]
) -> Sheet:
    """Returns mean absolute errors, and shares inside, of all training runs, every source and both parts of vTrain."""
    of_runs = ~np.char.startswith(sources, VTRAIN)
    chosen = {
        "all training runs": of_runs,
        **{str(source): sources == source for source in np.unique(sources)},
    }
    lines = [_line(source, rows, list(errors.values()), is_inside) for source, rows in chosen.items()]
    return Sheet(name=name, head=("source", "n", *errors, "inside its interval"), lines=lines)


def _line(
    source: str, rows: NDArray[np.bool_], errors: Sequence[Floats], is_inside: NDArray[np.bool_]
) -> list[str]:
    means = [f"{np.abs(np.expm1(found[rows])).mean():.1%}" for found in errors]
    return [source, str(rows.sum()), *means, f"{is_inside[rows].mean():.0%}"]
