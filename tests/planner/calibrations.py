"""Which calibrations do tests use? Given constants, with arbitrary values for all other fields."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.domain.calibration import CalibratedConstant, Calibration


def calibration_with(constants: Iterable[CalibratedConstant]) -> Calibration:
    """Returns a calibration with these constants."""
    return Calibration(
        source="made up",
        source_sha256="0" * 64,
        date="2026-05-01",
        num_rows=1,
        num_configurations=1,
        error_before_fraction=0.0,
        error_after_fraction=0.0,
        error_left_out_fraction=0.0,
        constants=tuple(constants),
    )
