"""What does `capplan calibrate` answer? The calibration, and what a reader needs to trust it."""

from __future__ import annotations

from typing import Literal

from simulator.domain.calibration import Calibration
from simulator.domain.hardware import Precision
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


class KindFit(Record):
    """Measured kernels of a kind; errors are mean sizes of simulated over measured, less one."""

    name: str
    """What they are, with the number format of products."""
    num_kernels: int
    """How many were measured."""
    error_before_fraction: float
    """With published constants."""
    error_after_fraction: float
    """With the calibrated ones."""
    error_left_out_fraction: float
    """With constants that were fitted without the kernel in question; of layers, without its model."""


class PassFit(Record):
    """A pass through a layer that was timed on the device; errors are simulated over measured, less one."""

    measured_s: float
    """Mean under lasting load."""
    error_before_fraction: float
    """With published constants."""
    error_left_out_fraction: float
    """With calibrated ones, clock and host time from the layers of other models."""
    waits_for_host: bool
    """Whether the accelerator waits for launches for a tenth of the pass or more, simulated with calibrated constants."""


class LayerFit(Record):
    """A layer that was timed on the device."""

    model: str
    """Catalogue name of its model."""
    precision: Precision
    """Number format of its products."""
    software: Literal["eager", "compiled"]
    """Whether PyTorch launched one operator after the other, or its compiler had fused small ones."""
    batch: int
    """Sequences of the micro-batch."""
    sequence_length: int
    """Tokens of each."""
    forward: PassFit
    """Its forward pass."""
    backward: PassFit
    """Its backward pass."""
    kept_bytes: float | None = None
    """What it kept from the one to the other; `null` where unknown, and in 8 bits, where frameworks differ."""
    kept_error_fraction: float | None = None
    """What it keeps from forward to backward, simulated over measured, less one."""


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
    kinds: tuple[KindFit, ...] = ()
    """Measured kernels by kind; empty for measured steps."""
    layers: tuple[LayerFit, ...] = ()
    """Every layer that was timed; empty for measured steps."""
    warnings: tuple[str, ...] = ()
    """What the reader should know before using it."""

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows an answer in a few lines, for example in notebooks; `model_dump()` has every field."""
        fitted = {"num_rows": self.rows, "num_kinds": self.kinds, "num_layers": self.layers}
        return [
            ("calibration", self.calibration),
            ("held", [held.name for held in self.held]),
            *((name, len(parts)) for name, parts in fitted.items() if parts),
        ]
