"""What does `capplan calibrate` return? The calibration, and what a reader needs in order to trust it."""

from __future__ import annotations

from typing import Literal

from simulator.domain.calibration import Calibration
from simulator.domain.hardware import Precision
from simulator.record import Record


class Held(Record):
    """A constant that stays at its published value."""

    name: str
    """The constant, with the accelerator and number format that it applies to."""
    value: float
    """Its published value."""
    why: str
    """Why it was not fitted."""


class RowFit(Record):
    """One measured configuration; an error is the simulated over the measured time, less one."""

    id: str
    """Id of its first row."""
    accelerator: str
    """Catalogue name of the accelerator."""
    measured_step_time_s: float
    """Mean over its rows."""
    error_before_fraction: float
    """With published constants."""
    error_after_fraction: float
    """With the calibrated ones."""
    error_left_out_fraction: float
    """With constants fitted without this configuration."""


class KindFit(Record):
    """Measured kernels of a kind; an error is the mean of |simulated / measured - 1|."""

    name: str
    """Kind of kernel; for products with the number format."""
    num_kernels: int
    """Number of measured kernels."""
    error_before_fraction: float
    """With published constants."""
    error_after_fraction: float
    """With the calibrated ones."""
    error_left_out_fraction: float
    """With constants fitted without the kernel in question; for layers, without those of its model."""


class PassFit(Record):
    """A pass through a layer that was timed on the device; an error is the simulated over the measured time, less one."""

    measured_s: float
    """Mean under sustained load."""
    error_before_fraction: float
    """With published constants."""
    error_left_out_fraction: float
    """With calibrated constants, whose clock and host time come from the layers of other models."""
    waits_for_host: bool
    """Whether waiting for launches lengthens the pass by a tenth or more, simulated with calibrated constants."""


class LayerFit(Record):
    """A layer that was timed on the device."""

    model: str
    """Catalogue name of its model."""
    precision: Precision
    """Number format of its products."""
    software: Literal["eager", "compiled"]
    """Whether PyTorch launched the operators one by one, or its compiler fused small ones."""
    batch: int
    """Sequences per micro-batch."""
    sequence_length: int
    """Tokens per sequence."""
    forward: PassFit
    """Its forward pass."""
    backward: PassFit
    """Its backward pass."""
    kept_bytes: float | None = None
    """Bytes kept from forward to backward; `null` if unknown, and for 8 bits, where frameworks differ."""
    kept_error_fraction: float | None = None
    """Error of the bytes kept from forward to backward: simulated over measured, less one."""


class CalibrationAnswer(Record):
    """Constants of a cluster, and how they were obtained."""

    schema_version: Literal[1] = 1
    """Version of this form."""
    calibration: Calibration
    """The calibration that `--output` writes."""
    held: tuple[Held, ...] = ()
    """Constants that could not be determined and keep their published values."""
    rows: tuple[RowFit, ...] = ()
    """Every fitted configuration; empty for measured kernels."""
    kinds: tuple[KindFit, ...] = ()
    """Measured kernels, by kind; empty for measured steps."""
    layers: tuple[LayerFit, ...] = ()
    """Every timed layer; empty for measured steps."""
    warnings: tuple[str, ...] = ()
    """What the reader should know before using the calibration."""

    def __repr_args__(self) -> list[tuple[str | None, object]]:
        """Shows an answer in a few lines, for example in notebooks; `model_dump()` has every field."""
        fitted = {"num_rows": self.rows, "num_kinds": self.kinds, "num_layers": self.layers}
        return [
            ("calibration", self.calibration),
            ("held", [held.name for held in self.held]),
            *((name, len(parts)) for name, parts in fitted.items() if parts),
        ]
