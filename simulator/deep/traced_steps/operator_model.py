"""How long would an operator take with another size, or on another accelerator? A line for each class of operators.

    t = slope x + intercept        x: operations, bytes read, or bytes made, whichever fits the class best

Follows Li, Sun and Jog, Path Forward Beyond Simulators: Fast and Accurate GPU Execution Time Prediction for DNN Workloads
(MICRO 2023), who fit kernels: some are driven by operations, some by their input, some by their output. For another
accelerator each class keeps its driver. Its slope is proportional to 1 / rate of the memory or of the arithmetic, whichever
fits the known accelerators better, and its intercept is the mean of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.deep.traces.trace import OperatorTrace
from simulator.errors import InputError, Problem
from simulator.record import Choice
from simulator.table import Floats

MOST_ERROR_FRACTION = 0.1
"""Lines that miss their own samples by more than this are not used for other sizes."""
SAME_ERROR = 1e-6
"""Lines whose errors differ by no more than this fit equally well."""


class Driver(Choice):
    """The quantity with which the time of a class of operators grows."""

    OPERATIONS = "operations"
    INPUT = "input"
    """Bytes read."""
    OUTPUT = "output"
    """Bytes made."""


@dataclass(frozen=True, kw_only=True)
class OperatorSamples:
    """n operators whose time was measured on one accelerator."""

    names: tuple[str, ...]
    """`(n,)` their classes."""
    sizes: Floats
    """`(n, 3)` by `Driver`; 0 where unknown."""
    seconds: Floats
    """`(n,)`."""


@dataclass(frozen=True, kw_only=True)
class OperatorLine:
    """Time of one class of operators."""

    driver: Driver
    slope_s: float
    """Seconds for each operation, or byte."""
    intercept_s: float
    error_fraction: float
    """Root mean square of the relative error on the samples to which it was fitted."""
    num_samples: int
    num_sizes: int
    """Number of different sizes among its samples."""
    rivals: tuple[OperatorLine, ...] = ()
    """Lines of other drivers that fit the samples equally well."""

    def seconds(self, sizes: Floats) -> Floats:
        """Returns the time of operators of the class whose sizes by driver are `(n, 3)`."""
        return np.asarray(self.slope_s * sizes[:, self.driver.code] + self.intercept_s)


OperatorModel = Mapping[str, OperatorLine]
"""A line for each class."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The peak rates of an accelerator."""

    flop_per_s: float
    memory_bytes_per_s: float


def samples_of(trace: OperatorTrace) -> OperatorSamples:
    """Returns the operators of a trace as samples."""
    num_bytes = trace.tensors.num_bytes
    sizes = np.stack([trace.num_flop, trace.inputs.sums(num_bytes), trace.outputs.sums(num_bytes)], axis=1)
    return OperatorSamples(names=trace.names, sizes=sizes, seconds=trace.duration_s)


def fit_operators(samples: Sequence[OperatorSamples]) -> OperatorModel:
    """Returns the line of each class, fitted to the samples of one accelerator.

    The line minimises the relative error, so that small operators count as much as large ones; slope and intercept are
    not negative. Operators without time are left out.
    """
    names = np.array([name for part in samples for name in part.names], dtype=np.str_)
    if not len(names):
        return {}
    sizes = np.concatenate([part.sizes for part in samples])
    seconds = np.concatenate([part.seconds for part in samples])
    has_time = seconds > 0.0
    return {
        str(name): _line(sizes[rows], seconds[rows])
        for name in np.unique(names[has_time])
        for rows in [has_time & (names == name)]
    }


def _line(sizes: Floats, seconds: Floats) -> OperatorLine:
    """The best line of one class; a driver that is unknown for a sample is not tried."""
    known = [driver for driver in Driver if (sizes[:, driver.code] > 0.0).all()]
    lines = [_line_of(driver, sizes[:, driver.code], seconds) for driver in known]
    if lines:
        best = min(lines, key=lambda line: line.error_fraction)
        near = best.error_fraction + SAME_ERROR
        return replace(
            best, rivals=tuple(line for line in lines if line is not best and line.error_fraction <= near)
        )
    return _line_of(Driver.OUTPUT, np.zeros(len(seconds)), seconds)


def _line_of(driver: Driver, size: Floats, seconds: Floats) -> OperatorLine:
    from scipy.optimize import nnls

    largest = max(float(size.max()), np.finfo(np.float64).tiny)
    columns = np.stack([size / largest / seconds, 1.0 / seconds], axis=1)
    if np.ptp(size) == 0.0 and size.any():
        columns[:, 1] = 0.0  # one size says nothing about an intercept
    scale = seconds.max()  # of the order of 1, whatever the unit
    coefficients, _ = nnls(columns * scale, np.ones(len(seconds)))
    slope_s, intercept_s = coefficients * scale
    errors = columns @ np.array([slope_s, intercept_s]) - 1.0
    return OperatorLine(
        driver=driver,
        slope_s=float(slope_s) / largest,
        intercept_s=float(intercept_s),
        error_fraction=float(np.sqrt(np.mean(errors**2))),
        num_samples=len(seconds),
        num_sizes=len(np.unique(size)),
    )


def seconds(model: OperatorModel, names: Sequence[str], sizes: Floats) -> Floats:
    """Returns the time of operators of the classes `names`, `(n,)`; NaN for classes without a line.

    Args:
        model: lines of the classes.
        names: `(n,)` classes.
        sizes: `(n, 3)` by `Driver`.
    """
    found = np.full(len(names), np.nan)
    all_names = np.array(names, dtype=np.str_)
    for name in model:
        rows = all_names == name
        found[rows] = model[name].seconds(sizes[rows])
    return found


def ratios(model: OperatorModel, names: Sequence[str], before: Floats, after: Floats) -> Floats:
    """Returns the factor by which operators take longer when their sizes change, `(n,)`; NaN for classes that cannot say.

    Samples of one size cannot. Nor can a line that misses its own samples by more than `MOST_ERROR_FRACTION`: the factor
    depends on the intercept, and convolutions of different shapes share none. If lines of several drivers fit equally well,
    the one that changes most counts: an operator's output may be a weight's gradient, which no batch changes.
    """
    found = np.full(len(names), np.nan)
    all_names = np.array(names, dtype=np.str_)
    for name, line in model.items():
        rows = all_names == name
        if line.error_fraction <= MOST_ERROR_FRACTION and line.num_sizes > 1:
            found[rows] = _largest_change((line, *line.rivals), before[rows], after[rows])
    return found


def _largest_change(lines: Sequence[OperatorLine], before: Floats, after: Floats) -> Floats:
    """The ratio furthest from 1 for each operator, `(n,)`; NaN if all lines say that it takes no time."""
    old_s, new_s = (np.stack([line.seconds(sizes) for line in lines]) for sizes in (before, after))
    each = np.divide(new_s, old_s, out=np.ones_like(new_s), where=old_s > 0.0)
    furthest = np.argmax(np.abs(np.log(np.maximum(each, np.finfo(np.float64).tiny))), axis=0)
    chosen = np.take_along_axis(each, furthest[None, :], axis=0)[0]
    return np.where((old_s > 0.0).any(axis=0), chosen, np.nan)


def on_accelerator(known: Sequence[tuple[Rates, OperatorModel]], rates: Rates) -> OperatorModel:
    """Returns the lines for an accelerator on which nothing was measured.

    Classes need a line of the same driver on each known accelerator; where drivers differ, the first one's is used. With
    one known accelerator, the arithmetic rate is used for classes driven by operations and the memory rate for others.

    Args:
        known: accelerators with their lines, at least one.
        rates: of the other accelerator.

    Raises:
        InputError: no accelerator is known, or a rate is not above 0.
    """
    every = [rates, *(one for one, _ in known)]
    if not known or not all(min(_both(one)) > 0.0 and max(_both(one)) < np.inf for one in every):
        rule = "needs at least one known accelerator, and rates above 0 for each"
        raise InputError([Problem(path="accelerators", value="", rule=rule)])
    shared = [name for name in known[0][1] if all(name in model for _, model in known)]
    return {name: _moved([(one, model[name]) for one, model in known], rates) for name in shared}


def _moved(known: Sequence[tuple[Rates, OperatorLine]], rates: Rates) -> OperatorLine:
    first = known[0][1]
    pairs = [(one, line) for one, line in known if line.driver is first.driver]
    by_rate = [
        _slope(np.array([_both(one)[rate] for one, _ in pairs]), pairs, _both(rates)[rate]) for rate in (0, 1)
    ]
    preferred = 0 if first.driver is Driver.OPERATIONS else 1
    slope_s, error = min([by_rate[preferred], by_rate[1 - preferred]], key=lambda found: round(found[1], 12))
    return OperatorLine(
        driver=first.driver,
        slope_s=slope_s,
        intercept_s=float(np.mean([line.intercept_s for _, line in pairs])),
        error_fraction=max(error, *(line.error_fraction for _, line in pairs)),
        num_samples=sum(line.num_samples for _, line in pairs),
        num_sizes=max(line.num_sizes for _, line in pairs),
    )


def _slope(per_s: Floats, pairs: Sequence[tuple[Rates, OperatorLine]], rate: float) -> tuple[float, float]:
    """Slope for a rate from slopes proportional to 1 / rate, and the relative error of that on the known ones."""
    slopes = np.array([line.slope_s for _, line in pairs])
    if not slopes.any():
        return 0.0, 0.0
    # Least squares of slope x rate = constant, relative to each slope.
    products = slopes * per_s
    positive = products[products > 0.0]
    constant = float((1.0 / positive).sum() / (1.0 / positive**2).sum())
    error = float(np.sqrt(np.mean((constant / positive - 1.0) ** 2)))
    return constant / rate, error


def _both(rates: Rates) -> tuple[float, float]:
    return rates.flop_per_s, rates.memory_bytes_per_s
