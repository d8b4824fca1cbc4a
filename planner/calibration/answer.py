"""What does `capplan calibrate` answer? The calibration, and what a reader needs to trust it."""

from __future__ import annotations

from typing import Literal

from simulator.calibration import Calibration
from simulator.record import Record


class Held(Record):
    """A constant that stays at its published value."""

    name: str
    """Which constant, with the accelerator and number format that it holds for."""
    value: float
    """Its published value."""
    why: str
    """Why it was not fitted."""


class RowFit(Record):
    """One measured configuration; errors are simulated over measured, less one."""

    id: str
    """Its first row."""
    accelerator: str
    """Catalogue name of the accelerator."""
    measured_step_time_s: float
    """Mean of its rows."""
    error_before_fraction: float
    """With published constants."""
    error_after_fraction: float
    """With the calibrated ones."""
    error_left_out_fraction: float
    """With constants that were fitted without it."""


class CalibrationAnswer(Record):
    """Constants of a cluster, and how they came about."""

    schema_version: Literal[1] = 1
    """Version of this form."""
    calibration: Calibration
    """What `--output` writes."""
    held: tuple[Held, ...] = ()
    """Constants that could not be told and stay as published."""
    rows: tuple[RowFit, ...] = ()
    """Every configuration that was fitted; empty for measured kernels."""
    warnings: tuple[str, ...] = ()
    """What the reader should know before using it."""
