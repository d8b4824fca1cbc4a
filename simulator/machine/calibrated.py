"""Which constants hold on a calibrated cluster? Its owner's calibration replaces published values; others stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from simulator.domain.calibration import SOFTWARE, CalibratedConstant, Calibration, ConstantName
from simulator.domain.hardware import Accelerator, Precision
from simulator.domain.links import LinkConstants
from simulator.machine.compute import KernelConstants
from simulator.machine.training import TrainingConstants
from simulator.table import Floats

TRAINING_FIELDS = {
    ConstantName.HOST_LAUNCH_S: "launch_s",
    ConstantName.EARLY_HOST_LAUNCH_S: "early_launch_s",
    ConstantName.BLOCKING_HOST_LAUNCH_S: "blocking_launch_s",
    ConstantName.HIDDEN_TENSOR_FRACTION: "hidden_tensor_fraction",
}
"""Fields of `TrainingConstants` that calibrated software constants replace."""
KERNEL_FIELDS = {name: name.value for name in ConstantName if name.value in KernelConstants.names()} | {
    ConstantName.KERNEL_LAUNCH_S: "launch_s"
}
"""Columns of `KernelConstants` that calibrated kernel constants replace."""
LINK_FIELDS = {
    ConstantName.INTRA_LINK_RATIO: (
        "all_reduce_fraction",
        "gather_fraction",
        "all_to_all_fraction",
        "point_to_point_fraction",
    ),
    ConstantName.INTER_LINK_RATIO: ("inter_fraction", "inter_point_to_point_fraction"),
}
"""Columns of `LinkConstants` that a calibrated ratio scales."""


def calibrated_training(constants: TrainingConstants, calibration: Calibration | None) -> TrainingConstants:
    """Returns the training constants with those of the owner's software."""
    values: dict[str, Any] = {
        TRAINING_FIELDS[one.name]: one.value
        for one in (calibration.constants if calibration else ())
        if one.name in SOFTWARE
    }
    return replace(constants, **values) if values else constants


def calibrated_sustained(
    fractions: Floats,
    calibration: Calibration | None,
    chips: Sequence[Accelerator],
    formats: Sequence[Precision],
) -> Floats:
    """Returns the sustained fractions of `(n,)` pairs of accelerator and number format."""
    return _replaced(fractions, _of(calibration, ConstantName.SUSTAINED_FRACTION), chips, formats)


def calibrated_kernels(
    constants: KernelConstants,
    calibration: Calibration | None,
    chips: Sequence[Accelerator],
    formats: Sequence[Precision],
) -> KernelConstants:
    """Returns the constants of the kernels of `(n,)` pairs of accelerator and number format."""
    columns = {
        field: _replaced(getattr(constants, field), found, chips, formats)
        for name, field in KERNEL_FIELDS.items()
        if (found := _of(calibration, name))
    }
    return replace(constants, **columns) if columns else constants


def calibrated_links(
    constants: LinkConstants, calibration: Calibration | None, chips: Sequence[Accelerator]
) -> LinkConstants:
    """Returns the link constants of `(n,)` accelerators; none becomes faster than its nominal bandwidth.

    Only switches that reduce in the network exceed the nominal bandwidth; published values above it may stay.
    """
    columns = {}
    for name, fields in LINK_FIELDS.items():
        found = _of(calibration, name)
        ratios = _replaced(np.ones(len(chips)), found, chips, [None] * len(chips)) if found else None
        for field in fields if ratios is not None else ():
            known = getattr(constants, field)
            columns[field] = np.minimum(known * ratios, np.maximum(known, 1.0))
    return replace(constants, **columns) if columns else constants


def _of(calibration: Calibration | None, name: ConstantName) -> list[CalibratedConstant]:
    return [one for one in calibration.constants if one.name is name] if calibration else []


def _replaced(
    values: Floats,
    constants: Sequence[CalibratedConstant],
    chips: Sequence[Accelerator],
    formats: Sequence[Precision | None],
) -> Floats:
    """Returns a column `(n,)` with the values of the constants that hold for each pair."""
    changed = values.copy()
    for row, (chip, precision) in enumerate(zip(chips, formats, strict=True)):
        for one in constants:
            if one.holds_for(chip.id, precision):
                changed[row] = one.value
    return changed
