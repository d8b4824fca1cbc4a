"""How long do single kernels take with given constants, and within which bounds are these fitted?

The same functions are used to fit the published constants (`benchmarks/fit_kernels.py`) and those of a user's own device.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from planner.calibration.table import SIZES, KernelKind, KernelTable
from simulator.domain.calibration import ConstantName
from simulator.domain.hardware import Accelerator, Precision
from simulator.layout.casts import PRODUCT_BYTES
from simulator.machine.attention_kernels import backward_width_ratio, with_backward_ratio
from simulator.machine.calibrated import KERNEL_FIELDS
from simulator.machine.compute import (
    KernelConstants,
    attention_time_s,
    gemm_time_s,
    kernel_constants,
    kernels_of,
    memory_bound_time_s,
)
from simulator.table import Booleans, Floats

Values = dict[ConstantName, float]
"""Constants of an accelerator, by name."""

GEMM_BOUNDS = {
    "gemm_peak_fraction": (0.2, 1.0),
    "gemm_fill_elements": (1.0, 1e8),
    "gemm_ramp_depth": (1.0, 4e3),
    "overlap_exponent": (1.0, 8.0),
    "memory_fraction": (0.3, 1.0),
    "cast_bytes_per_element": (1.0, 20.0),
}
ATTENTION_BOUNDS = {
    "attention_peak_fraction": (0.2, 1.0),
    "attention_ramp_tokens": (1.0, 1e4),
    "attention_fill_rows": (1.0, 1e6),
    "attention_ramp_head_dim": (1.0, 1e3),
}


def constants_of(values: Mapping[str, float]) -> KernelConstants:
    """Returns a table of one row; constants that a fit does not use are neutral."""
    row = {name: np.array([values.get(name, 0.0)]) for name in KernelConstants.names()}
    return KernelConstants(**row)


def causal_attention_s(
    constants: KernelConstants,
    *,
    batch: Floats,
    sequence_length: Floats,
    num_heads: Floats,
    head_dim: Floats,
    bf16_flop_per_s: Floats | float,
    backward: Booleans | bool = False,
) -> Floats:
    """Returns seconds of causal attention over whole sequences."""
    return attention_time_s(
        tokens=batch * sequence_length,
        sequence_length=sequence_length,
        num_heads=num_heads,
        head_dim=head_dim,
        bf16_flop_per_s=bf16_flop_per_s,
        constants=constants,
        backward=backward,
    )


def published_values(chip: Accelerator, precision: Precision = Precision.BF16) -> Values:
    """Returns an accelerator's constants without calibration, with those of products in a number format."""
    kernels = kernel_constants(
        [kernels_of(chip)], [precision.value], ceiling_fractions=np.array([chip.matmul_ceiling_fraction])
    )
    return {name: float(getattr(kernels, field)[0]) for name, field in KERNEL_FIELDS.items()}


def simulated_s(table: KernelTable, chip: Accelerator, values: Values) -> Floats:
    """Returns seconds of every kernel of one number format for given constants, `(n,)`; NaN for sums and whole layers."""
    constants = constants_of({KERNEL_FIELDS[name]: values[name] for name in KERNEL_FIELDS})
    found_s = np.full(len(table.kernels), np.nan)
    for kind, precision in {(kernel.kind, kernel.precision) for kernel in table.kernels}:
        chosen = np.array([(kernel.kind, kernel.precision) == (kind, precision) for kernel in table.kernels])
        found_s[chosen] = _seconds(kind, precision, _sizes(table, chosen), chip, constants)
    return found_s


def _seconds(
    kind: KernelKind,
    precision: Precision,
    sizes: Mapping[str, Floats],
    chip: Accelerator,
    constants: KernelConstants,
) -> Floats:
    match kind:
        case KernelKind.ATTENTION | KernelKind.ATTENTION_BACKWARD:
            each = constants.take(np.zeros(len(sizes["head_dim"]), dtype=np.int64))
            return causal_attention_s(
                with_backward_ratio(each, backward_width_ratio(sizes["head_dim"])),
                batch=sizes["batch"],
                sequence_length=sizes["sequence_length"],
                num_heads=sizes["num_heads"],
                head_dim=sizes["head_dim"],
                bf16_flop_per_s=chip.bf16_flop_per_s,
                backward=kind is KernelKind.ATTENTION_BACKWARD,
            )
        case KernelKind.COPY | KernelKind.ADD:
            return memory_bound_time_s(
                num_bytes=sizes["num_bytes"], memory_bytes_per_s=chip.memory_bytes_per_s, constants=constants
            )
        case KernelKind.ALL_REDUCE | KernelKind.LAYER | KernelKind.LAYER_BACKWARD:
            return np.full(len(sizes["m"]), np.nan)
        case _:
            return gemm_time_s(
                m=sizes["m"],
                n=sizes["n"],
                k=sizes["k"],
                bytes_per_element=PRODUCT_BYTES[precision],
                peak_flop_per_s=chip.peak_flop_per_s(precision) or np.nan,
                memory_bytes_per_s=chip.memory_bytes_per_s,
                constants=constants,
                weight_gradient=kind is KernelKind.ADDED_GRADIENT,
            )


def _sizes(table: KernelTable, chosen: NDArray[np.bool_]) -> Mapping[str, Floats]:
    kernels = [kernel for kernel, is_chosen in zip(table.kernels, chosen, strict=True) if is_chosen]
    return {name: np.array([getattr(kernel, name) for kernel in kernels], dtype=float) for name in SIZES}
