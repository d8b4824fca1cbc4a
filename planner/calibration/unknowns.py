"""Which constants could measured steps of a cluster reveal? Each with its published value and how far a cluster may differ.

The widths are estimates of how much clusters of the same parts differ. Clocks and memory differ little; links inside a node
differ with their software, networks between nodes with cards, routing and neighbours, launches with the host and the framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.calibration.fitting import Prior
from planner.measured.runs import Row
from simulator import catalog
from simulator.domain.calibration import CalibratedConstant, ConstantName, rate_format
from simulator.domain.hardware import Accelerator, Precision
from simulator.machine.calibrated import TRAINING_FIELDS
from simulator.machine.compute import kernel_constants, kernels_of
from simulator.machine.training import training_constants
from simulator.table import Floats

MEASUREMENT_SCATTER = 0.05
"""Log deviation between two measurements of a step: 5 % between software releases (docs/validation.md)."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """How far a constant of a cluster may be from the published one."""

    log_width: float
    """One standard deviation of its logarithm."""
    low: float
    high: float


RANGES: Mapping[ConstantName, Range] = {
    ConstantName.SUSTAINED_FRACTION: Range(log_width=0.15, low=0.2, high=1.0),
    ConstantName.MEMORY_FRACTION: Range(log_width=0.15, low=0.2, high=1.0),
    ConstantName.INTRA_LINK_RATIO: Range(log_width=0.3, low=0.05, high=1.3),
    ConstantName.INTER_LINK_RATIO: Range(log_width=0.5, low=0.02, high=2.0),
    ConstantName.HOST_LAUNCH_S: Range(log_width=0.5, low=1e-7, high=1e-3),
    ConstantName.EARLY_HOST_LAUNCH_S: Range(log_width=0.5, low=1e-7, high=1e-3),
    ConstantName.BLOCKING_HOST_LAUNCH_S: Range(log_width=0.5, low=1e-7, high=1e-3),
    ConstantName.HIDDEN_TENSOR_FRACTION: Range(log_width=0.4, low=0.05, high=0.95),
}
"""Ranges of the constants that whole steps can reveal."""
LAUNCHES = {
    "eager": ConstantName.HOST_LAUNCH_S,
    "eager-2022": ConstantName.EARLY_HOST_LAUNCH_S,
    "blocking-2022": ConstantName.BLOCKING_HOST_LAUNCH_S,
}
"""Constant of host time, by how kernels reach the accelerator."""


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """A constant that may be fitted."""

    name: ConstantName
    accelerator: str | None = None
    precision: Precision | None = None
    published: float

    @property
    def range(self) -> Range:
        """How far it may be from the published value."""
        return RANGES[self.name]

    @property
    def words(self) -> str:
        """Name with what it applies to."""
        scope = [part for part in (self.accelerator, self.precision and self.precision.value) if part]
        return " ".join([*scope, self.name.value])

    def fitted(self, value: float, log_deviation: float) -> CalibratedConstant:
        """Returns the constant with the value that was found."""
        return CalibratedConstant(
            name=self.name,
            accelerator=self.accelerator,
            precision=self.precision,
            value=float(f"{np.clip(value, self.range.low, self.range.high):.6g}"),
            published=float(f"{self.published:.6g}"),
            log_deviation=float(f"{log_deviation:.3g}"),
        )


def unknowns_of(rows: Sequence[Row]) -> tuple[Unknown, ...]:
    """Returns every constant that the steps of the rows may depend on, in report order."""
    return (*_of_hardware(rows), *_of_software(rows))


def prior_of(unknowns: Sequence[Unknown]) -> Prior:
    """Returns the prior of the constants, centred on their published values."""

    def column(values: Iterator[float]) -> Floats:
        return np.array(list(values), dtype=float)

    return Prior(
        expected=column(unknown.published for unknown in unknowns),
        log_width=column(unknown.range.log_width for unknown in unknowns),
        low=column(unknown.range.low for unknown in unknowns),
        high=column(unknown.range.high for unknown in unknowns),
        weight=MEASUREMENT_SCATTER,
    )


def _of_hardware(rows: Sequence[Row]) -> Iterator[Unknown]:
    for name in sorted({row["accelerator"] for row in rows}):
        chip = catalog.accelerator(name)
        own = [row for row in rows if row["accelerator"] == name]
        for precision in sorted({rate_format(Precision(row["precision"])) for row in own}):
            sustained = float(training_constants().sustained([chip], [precision])[0])
            yield Unknown(
                name=ConstantName.SUSTAINED_FRACTION,
                accelerator=name,
                precision=precision,
                published=sustained,
            )
        yield Unknown(
            name=ConstantName.MEMORY_FRACTION, accelerator=name, published=_published_memory_fraction(chip)
        )
        for link in (ConstantName.INTRA_LINK_RATIO, ConstantName.INTER_LINK_RATIO):
            yield Unknown(name=link, accelerator=name, published=1.0)


def _of_software(rows: Sequence[Row]) -> Iterator[Unknown]:
    constants = training_constants()
    names = [LAUNCHES[kind] for kind in LAUNCHES if any(row["kernel_launch"] == kind for row in rows)]
    if any(row["overlaps_tensor_comm"] == "true" for row in rows):
        names.append(ConstantName.HIDDEN_TENSOR_FRACTION)
    for name in names:
        yield Unknown(name=name, published=float(getattr(constants, TRAINING_FIELDS[name])))


def _published_memory_fraction(chip: Accelerator) -> float:
    """Returns the share of the memory bandwidth that kernels of an architecture reach."""
    return float(kernel_constants([kernels_of(chip)], [Precision.BF16.value]).memory_fraction[0])
