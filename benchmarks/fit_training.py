"""How much slower are training steps than their kernels, and do the fitted constants hold for left-out steps?

    python -m benchmarks.fit_training --measured training_runs.csv --vtrain FOLDER

Fits the constants of `simulator.machine.training` on whole steps, prints the errors on models and on sources that were left
out, and rewrites `simulator/data/training_efficiency.csv` and the table of errors in docs/validation.md. The least squares are
damped (soft L1) and over log errors; a source of n steps weighs as much as n^(1/2) single ones. Every constant is pulled
towards its expected value, which comes from published figures where there are any. Terms and expectations were written with
the errors of these steps in view, so the errors on left-out steps are slightly too small.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.training_steps import log_errors, models_of, over_measured_steps, sources_of
from benchmarks.validate_held_out import are_inside, table_of
from benchmarks.validate_steps import REPORT_FILE, with_tables
from planner.calibration.fitting import Plane, Prior, damped, settled
from planner.calibration.steps import MeasuredSteps
from planner.validation.host_uncertainty import host_log_ratios
from simulator.machine.rank import Rank
from simulator.machine.training import DEFAULT_FAMILY, SOFTWARE, TrainingConstants, training_constants
from simulator.table import Floats

TARGET = Path(__file__).parents[1] / "simulator" / "data" / "training_efficiency.csv"
SUSTAINED = "sustained_fraction"
TRANSFERRED_FAMILY = "hopper"
"""Architecture whose constants are used where none were measured."""
PRIOR_WEIGHT = 0.1
"""A constant that is one prior width off costs as much as a step that is off by a tenth."""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """A constant to fit."""

    applies_to: str
    name: str
    expected: float
    """Value expected before the fit, from published figures or measured kernels of the same hardware."""
    log_width: float
    """Uncertainty of the expected value: one standard deviation of its logarithm."""
    low: float
    high: float
    neutral: float
    """Value at which it has no effect."""
    unit: str
    source: str


def _sustained(chip: str, expected: float, log_width: float, source: str) -> Unknown:
    return Unknown(
        applies_to=chip,
        name=SUSTAINED,
        expected=expected,
        log_width=log_width,
        low=0.5,
        high=1.0,
        neutral=1.0,
        unit="fraction",
        source=source,
    )


def _software(
    name: str, expected: float, log_width: float, bounds: tuple[float, float, float], unit: str, source: str
) -> Unknown:
    low, neutral, high = bounds
    return Unknown(
        applies_to=SOFTWARE,
        name=name,
        expected=expected,
        log_width=log_width,
        low=low,
        high=high,
        neutral=neutral,
        unit=unit,
        source=source,
    )


UNKNOWNS = (
    _sustained(
        "ampere bf16", 1.0, 0.03, "expected 1, an estimate: products of A100 seldom meet its power limit"
    ),
    _sustained("hopper bf16", 0.9, 0.1, "expected 0.9, an estimate"),
    _sustained(
        "hopper fp8", 0.92, 0.15, "expected 0.92: ceiling 0.71 of the peak against 0.77 of single kernels"
    ),
    _sustained(
        "blackwell bf16",
        0.71,
        0.15,
        "expected 0.71: hopper's 0.9 times the root of 1,000 W for 2,250 TFLOP/s over 700 W for 989 (data sheets); products "
        "that SimuMax measured on the B200 of these steps are at 0.71",
    ),
    _sustained("blackwell fp8", 0.85, 0.15, "expected 0.85, an estimate"),
    _software(
        "early_launch_s",
        45e-6,
        0.5,
        (1e-6, 1e-6, 1e-3),
        "s",
        "expected 45 us: SimuMax's 40 us for a memory-bound operator on A100",
    ),
    _software(
        "blocking_launch_s",
        60e-6,
        0.5,
        (1e-6, 1e-6, 1e-3),
        "s",
        "expected 60 us, an estimate for a launch and the way back; two and a half times that: it holds other costs of "
        "DeepSpeed's pipeline as well",
    ),
    _software(
        "first_flash_fraction",
        0.5,
        0.3,
        (0.3, 1.0, 1.0),
        "fraction",
        "expected 0.5: FlashAttention-2 is twice as fast as the first (arXiv 2307.08691)",
    ),
    _software(
        "separate_operators_ratio",
        1.5,
        0.4,
        (1.0, 1.0, 3.0),
        "1",
        "expected 1.5, an estimate: bias, activation, dropout and addition as kernels of their own",
    ),
    _software(
        "hidden_tensor_fraction",
        0.5,
        0.4,
        (0.05, 0.05, 0.95),
        "fraction",
        "expected 0.5, an estimate: traffic in pieces, the first or last exposed",
    ),
    _software(
        "unaligned_fraction",
        0.5,
        0.4,
        (0.2, 1.0, 1.0),
        "fraction",
        "expected 0.5: products of vTrain's 50,257 words on one rank against those of 25,128 on two",
    ),
    _software(
        "cast_ratio",
        1.5,
        0.4,
        (0.5, 1.0, 5.0),
        "1",
        "expected 1.5, an estimate: training keeps two layouts of each 8-bit matrix, inference one",
    ),
    _software(
        "accelerator_spread_fraction",
        0.008,
        0.4,
        (1e-3, 1e-3, 0.03),
        "fraction",
        "expected 0.8 %, an estimate",
    ),
    _software(
        "shared_card_fraction",
        0.5,
        0.4,
        (0.1, 1.0, 1.0),
        "fraction",
        "expected 0.5, an estimate: two rings that choose the same card have half of it each",
    ),
)


def constants_of(values: Floats) -> TrainingConstants:
    """Returns the shipped constants with the unknowns set to `(k,)` values."""
    shipped = training_constants()
    fractions, software = dict(shipped.sustained_fractions), {}
    for unknown, value in zip(UNKNOWNS, values.tolist(), strict=True):
        if unknown.name == SUSTAINED:
            family, number_format = unknown.applies_to.split()
            fractions[family, number_format] = value
        else:
            software[unknown.name] = value
    for number_format in ("bf16", "fp8"):
        fractions[DEFAULT_FAMILY, number_format] = fractions[TRANSFERRED_FAMILY, number_format]
    return replace(shipped, sustained_fractions=fractions, **software)


def column(name: str) -> Floats:
    """Returns a numeric field of all unknowns, `(k,)`."""
    return np.array([getattr(unknown, name) for unknown in UNKNOWNS])


def prior() -> Prior:
    """Returns the prior of the unknowns."""
    return Prior(
        expected=column("expected"),
        log_width=column("log_width"),
        low=column("low"),
        high=column("high"),
        weight=PRIOR_WEIGHT,
    )


def weights_of(sources: NDArray[np.str_]) -> Floats:
    """Returns the weight of each log error: a source of n rows counts as the root of n."""
    names, inverse, counts = np.unique(sources, return_inverse=True, return_counts=True)
    assert len(names) == len(counts)
    return np.asarray(counts[inverse] ** -0.25)


def fitted(steps: MeasuredSteps, known: Prior | None = None) -> tuple[Plane, Floats]:
    """Returns the plane at the best constants, and the weight of each error; `known` replaces the prior."""
    weights = weights_of(sources_of(steps))
    errors_at = partial(_errors_at, steps)
    return settled(errors_at, weights, known or prior()), weights


def _errors_at(steps: MeasuredSteps, logs: Floats) -> Floats:
    return log_errors(steps, constants_of(np.exp(logs)))


def constants_without(
    left_out: NDArray[np.bool_], plane: Plane, weights: Floats, known: Prior | None = None
) -> Floats:
    """Returns the unknowns, `(k,)`, fitted without some steps, linearized around the constants of a plane."""
    return np.exp(damped(plane, np.where(left_out, 0.0, weights), known or prior()))


def held_out(
    steps: MeasuredSteps,
    plane: Plane,
    weights: Floats,
    groups: NDArray[np.str_],
    known: Prior | None = None,
) -> tuple[Floats, Floats]:
    """Returns the log error of every step with constants fitted without its group, and all those constants `(g, k)`.

    The fits without a group take the plane around the constants of all; the steps that were left out are simulated.
    """
    errors, constants = np.empty(len(groups)), []
    for name in np.unique(groups):
        is_out = groups == name
        constants.append(constants_without(is_out, plane, weights, known))
        errors[is_out] = log_errors(steps.take(is_out), constants_of(constants[-1]))
    return errors, np.array(constants)


def describe(title: str, log_errors: Floats, groups: NDArray[np.str_]) -> None:
    """Prints mean absolute error and bias of every group."""
    errors = np.expm1(log_errors)
    is_vtrain = np.char.startswith(groups, "vTrain")
    print(f"{title}: training runs {np.abs(errors[~is_vtrain]).mean():.1%}", end="")
    for name in np.unique(groups):
        chosen = errors[groups == name]
        print(f"; {name} {np.abs(chosen).mean():.1%} ({chosen.mean():+.1%}, n={len(chosen)})", end="")
    print()


def mean_error(steps: MeasuredSteps, values: Floats, weights: Floats) -> float:
    """Returns the mean absolute error over all steps, weighted as in the fit."""
    errors = np.abs(np.expm1(log_errors(steps, constants_of(values))))
    return float(np.average(errors, weights=weights**2))


@dataclass(frozen=True, kw_only=True)
class Line:
    """A constant in the shipped file."""

    applies_to: str
    constant: str
    value: float
    low: float
    """The smallest value when one source is left out."""
    high: float
    """The largest of these values."""
    unit: str
    error: str
    source: str

    def cells(self) -> dict[str, str]:
        """Returns the row of the file."""
        return asdict(self) | {name: f"{getattr(self, name):.4g}" for name in ("value", "low", "high")}


LAUNCH = Line(
    applies_to=SOFTWARE,
    constant="launch_s",
    value=3e-5,
    low=2.8e-5,
    high=3.1e-5,
    unit="s",
    error="no dense step was short enough to show it",
    source="small layers of one H200 and one H100 in PyTorch 2.11 (docs/calibrate.md); low and high are theirs",
)


def lines(steps: MeasuredSteps, plane: Plane, weights: Floats, without_source: Floats) -> list[Line]:
    """Returns the rows of the shipped file: what was fitted, what follows from it, and what no step reveals."""
    values = np.exp(plane.at)
    return [*_fitted_lines(steps, values, weights, without_source), *_transferred_lines(values), LAUNCH]


def _fitted_lines(
    steps: MeasuredSteps, values: Floats, weights: Floats, without_source: Floats
) -> Iterator[Line]:
    whole = mean_error(steps, values, weights)
    for position, unknown in enumerate(UNKNOWNS):
        neutral = np.where(np.arange(len(values)) == position, unknown.neutral, values)
        without = f"with {unknown.neutral:g} in its place {mean_error(steps, neutral, weights):.1%}"
        yield Line(
            applies_to=unknown.applies_to,
            constant=unknown.name,
            value=values[position],
            low=without_source[:, position].min(),
            high=without_source[:, position].max(),
            unit=unknown.unit,
            error=f"mean error {whole:.1%}, {without}",
            source=unknown.source,
        )


def _transferred_lines(values: Floats) -> Iterator[Line]:
    fractions = constants_of(values).sustained_fractions
    for number_format in ("bf16", "fp8"):
        value = fractions[DEFAULT_FAMILY, number_format]
        yield Line(
            applies_to=f"{DEFAULT_FAMILY} {number_format}",
            constant=SUSTAINED,
            value=value,
            low=value,
            high=value,
            unit="fraction",
            error="not measured",
            source="hopper's, as for kernels; in 16 bits times the root of the power for each operation",
        )


def write(rows: Sequence[Mapping[str, str]]) -> None:
    """Rewrites the shipped file and prints it."""
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(
            f"{row['applies_to']:16} {row['constant']:28} {row['value']:>10}  {row['low']}..{row['high']}  {row['error']}"
        )


@over_measured_steps
def main(steps: MeasuredSteps) -> None:
    """Fits, prints the errors on left-out steps, and rewrites the shipped constants."""
    plane, weights = fitted(steps)
    describe("fitted", plane.errors, sources_of(steps))
    by_model, _ = held_out(steps, plane, weights, models_of(steps))
    describe("without its model", by_model, sources_of(steps))
    by_source, without_source = held_out(steps, plane, weights, sources_of(steps))
    describe("without its source", by_source, sources_of(steps))
    write([line.cells() for line in lines(steps, plane, weights, without_source)])
    errors = {"fitted": plane.errors, "without its model": by_model, "without its source": by_source}
    hosts = host_log_ratios(steps.batches, steps.simulated_s(Rank.of))
    sheet = table_of("held-out", errors, are_inside(steps, by_source, hosts), sources_of(steps))
    page = with_tables(REPORT_FILE.read_text(encoding="utf-8"), [sheet])
    REPORT_FILE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
