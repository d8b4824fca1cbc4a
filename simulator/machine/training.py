"""How far does a training step fall behind its kernels measured alone? Clocks under load, host time, older software.

The constants were fitted to whole training steps by `benchmarks/fit_training.py`; `data/training_efficiency.csv` names these
steps and says how well the fit predicts others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from simulator.domain.hardware import Accelerator, Precision
from simulator.machine.compute import kernel_constants, kernels_of
from simulator.machine.power import CAP_EXPONENT
from simulator.shipped import shipped_rows
from simulator.table import Floats, Integers
from simulator.units import TERA

FILE = "data/training_efficiency.csv"
SOFTWARE = "software"
"""What a constant applies to in the file if it does not belong to an architecture and number format."""
DEFAULT_FAMILY = "default"
STEADY_FAMILY = "ampere"
"""Architecture whose products rarely meet the power limit: its fraction is the loss of a step at a steady clock."""
REFERENCE_POWER: Mapping[str, tuple[float, Mapping[Precision, float]]] = {
    "ampere": (400.0 - 58.0, {Precision.BF16: 312.0 * TERA}),
    "hopper": (700.0 - 70.0, {Precision.BF16: 989.0 * TERA, Precision.FP8: 1979.0 * TERA}),
    "blackwell": (
        1000.0 - 140.0,
        {Precision.BF16: 2250.0 * TERA, Precision.FP8: 4500.0 * TERA, Precision.FP4: 9000.0 * TERA},
    ),
}
"""Power above idle and dense peaks of the parts on which the sustained fractions were fitted: A100 SXM, H100 SXM, B200 SXM
(data sheets; idle power of the catalogue)."""

TRANSFER_POWER = 700.0 / (989.0 * TERA)
"""Power limit of H100 SXM over its dense 16-bit peak (data sheet)."""
TRANSFER_CEILING = 0.803
"""Fastest measured 16-bit product of H100 SXM over its peak: 794.5 of 989 TFLOP/s (catalogue)."""


@dataclass(frozen=True, kw_only=True)
class TrainingConstants:
    """Effects that kernels measured alone do not show."""

    sustained_fractions: Mapping[tuple[str, str], float]
    """Speed of matrix products in a training step relative to products measured alone, by architecture and number
    format: the clock that the power limit leaves when they follow each other."""
    launch_s: float
    """Host time of one kernel that is launched from Python."""
    early_launch_s: float
    """Host time of one kernel with software and hosts of 2021-22."""
    blocking_launch_s: float
    """Host time of one kernel where the host waits for every kernel."""
    cast_ratio: float
    """Bytes that training moves to bring elements into 8 bits (both layouts, largest values), relative to inference."""
    accelerator_spread_fraction: float
    """Standard deviation of speed among accelerators of one kind."""
    first_flash_fraction: float
    """Speed of fused attention of 2022-23 relative to today's."""
    separate_operators_ratio: float
    """Bytes that memory-bound operators move without fusion, relative to fused ones."""
    hidden_tensor_fraction: float
    """Share of tensor-parallel traffic that runs beside products where software overlaps the two."""
    unaligned_fraction: float
    """Speed of a product with a width that is no multiple of 8 elements, relative to an aligned one."""
    shared_card_fraction: float
    """Share of a network card that inter-node collectives get where accelerators share cards, with several members per node,
    but not all: each passes through one card, which its siblings may also have chosen."""

    def sustained(self, chips: Sequence[Accelerator], formats: Sequence[Precision]) -> Floats:
        """Returns the sustained fraction of `(n,)` pairs of accelerator and number format.

        A part with less power per operation than the one behind the constant runs at a lower clock; one with more runs at a
        higher clock, up to that of products measured alone.
        """
        return np.array(
            [self._sustained(chip, precision) for chip, precision in zip(chips, formats, strict=True)]
        )

    def slowest_of(self, num_gpus: Integers) -> Floats:
        """Returns how much slower the slowest of `(n,)` accelerators is than the mean: all wait for it.

        sigma sqrt(2 ln N), the expected largest of N normal deviates for large N.
        """
        return np.asarray(1.0 + self.accelerator_spread_fraction * np.sqrt(2.0 * np.log(num_gpus)))

    def _sustained(self, chip: Accelerator, precision: Precision) -> float:
        is_known = (chip.kernel_family, Precision.BF16.value) in self.sustained_fractions
        unknown = STEADY_FAMILY if chip.has_fixed_clock else DEFAULT_FAMILY
        known = chip.kernel_family if is_known else unknown
        measured = Precision.FP8 if precision is Precision.FP4 else precision
        in_16_bits = self.sustained_fractions[known, Precision.BF16.value]
        fraction = self.sustained_fractions.get((known, measured.value), in_16_bits)
        if is_known:
            clock = power_fraction(chip, precision)
        elif chip.has_fixed_clock or measured is Precision.FP8:
            clock = 1.0
        else:
            clock = transferred_clock(chip)
        return min(1.0, fraction * clock * (clock_in_4_bits(chip) if precision is Precision.FP4 else 1.0))


def power_fraction(chip: Accelerator, precision: Precision) -> float:
    """Returns the clock of a part under load in a number format, relative to its sibling or predecessor behind the constants.

    Power limits the clock, which follows the square root of the power per operation. A part with measured products needs no
    estimate: it has kernels of its own, or `kernel_constants` scales its peak by the measured share.
    """
    is_measured = chip.measured_bf16_flop_per_s is not None or kernels_of(chip) == chip.id
    if chip.kernel_family not in REFERENCE_POWER or is_measured:
        return 1.0
    power_w, peaks = REFERENCE_POWER[chip.kernel_family]
    known = precision if precision in peaks else Precision.BF16
    flop_per_s = chip.peak_flop_per_s(known)
    if flop_per_s is None:
        return 1.0
    power = (chip.thermal_design_power_w - chip.idle_power_w) / flop_per_s * (peaks[known] / power_w)
    return float(power ** (1.0 / CAP_EXPONENT))


def clock_in_4_bits(chip: Accelerator) -> float:
    """Returns the clock of 4-bit products relative to 8-bit ones, where both were measured; else 1.

    At the peak, a 4-bit operation has less power available in the same proportion as it needs less. Kernels that fall further
    short of their peak leave power for the clock, which follows its square root.
    """
    share_8, share_4 = kernel_constants([kernels_of(chip)] * 2, ["fp8", "fp4"]).gemm_peak_fraction
    return float((share_8 / share_4) ** (1.0 / CAP_EXPONENT))


def transferred_clock(chip: Accelerator) -> float:
    """Returns the clock of an architecture without measured steps relative to Hopper, whose constants it uses.

    It follows the square root of the power per operation at the peak, as under a power cap. Where the part's products were
    measured, only the effects that they do not show already count: `kernel_constants` scales its peak by the measured share.
    """
    power = chip.thermal_design_power_w / chip.bf16_flop_per_s / TRANSFER_POWER
    clock = power ** (1.0 / CAP_EXPONENT)
    if chip.measured_bf16_flop_per_s is None:
        return float(clock)
    return float(min(1.0, clock * TRANSFER_CEILING / chip.matmul_ceiling_fraction))


@cache
def training_constants() -> TrainingConstants:
    """Returns the shipped constants; the file is read once."""
    rows = shipped_rows(FILE)
    of_software = {row["constant"]: float(row["value"]) for row in rows if row["applies_to"] == SOFTWARE}
    of_hardware = {
        (row["applies_to"].split()[0], row["applies_to"].split()[1]): float(row["value"])
        for row in rows
        if row["applies_to"] != SOFTWARE
    }
    return TrainingConstants(sustained_fractions=of_hardware, **of_software)
