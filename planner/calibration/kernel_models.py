"""How long do single kernels take for given constants, and within which bounds are these fitted?

The same functions fit the published constants (`benchmarks/fit_kernels.py`) and those of a user's own device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.calibration.table import SIZES, KernelKind, KernelTable
from simulator.attention_kernels import backward_width_ratio, with_backward_ratio
from simulator.calibrated import KERNEL_FIELDS
from simulator.calibration import ConstantName
from simulator.compute import (
    KernelConstants,
    attention_time_s,
    gemm_time_s,
    kernel_constants,
    kernels_of,
    memory_bound_time_s,
)
from simulator.hardware import Accelerator, Precision
from simulator.table import Booleans, Floats
from simulator.training import training_constants

Values = dict[ConstantName, float]
"""Constants of an accelerator by name."""

GEMM_START = {
    "gemm_peak_fraction": 0.8,
    "gemm_fill_elements": 1e5,
    "gemm_ramp_depth": 100.0,
    "overlap_exponent": 3.0,
}
GEMM_BOUNDS = {
    "gemm_peak_fraction": (0.2, 1.0),
    "gemm_fill_elements": (1.0, 1e8),
    "gemm_ramp_depth": (1.0, 4e3),
    "overlap_exponent": (1.0, 8.0),
    "memory_fraction": (0.3, 1.0),
    "cast_bytes_per_element": (1.0, 20.0),
}
ATTENTION_START = {"attention_peak_fraction": 0.8, "attention_ramp_tokens": 500.0, "attention_fill_rows": 1e4}
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


def gemm_s(
    constants: KernelConstants,
    shape: tuple[Floats, Floats, Floats],
    *,
    peak_flop_per_s: Floats | float,
    memory_bytes_per_s: Floats | float,
    element_bytes: float = 2.0,
) -> Floats:
    """Returns seconds of products (m, n, k), with bringing the left input to 8 bits where that costs anything."""
    m, n, k = shape
    product_s = gemm_time_s(
        m=m,
        n=n,
        k=k,
        bytes_per_element=element_bytes,
        peak_flop_per_s=peak_flop_per_s,
        memory_bytes_per_s=memory_bytes_per_s,
        constants=constants,
    )
    cast_bytes = constants.cast_bytes_per_element * m * k
    cast_s = memory_bound_time_s(
        num_bytes=cast_bytes, memory_bytes_per_s=memory_bytes_per_s, constants=constants
    )
    return product_s + np.where(cast_bytes > 0, cast_s, 0.0)


def _plain_weight_gradient_s(
    constants: KernelConstants,
    shape: tuple[Floats, Floats, Floats],
    *,
    peak_flop_per_s: float,
    memory_bytes_per_s: float,
) -> Floats:
    """Returns seconds of the products of weight gradients that are written in 16 bits, as one kernel alone does."""
    slower = replace(
        constants, gemm_peak_fraction=constants.gemm_peak_fraction * constants.weight_gradient_fraction
    )
    return gemm_s(slower, shape, peak_flop_per_s=peak_flop_per_s, memory_bytes_per_s=memory_bytes_per_s)


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


def published_values(chip: Accelerator) -> Values:
    """Returns the constants of an accelerator without calibration."""
    kernels = kernel_constants(
        [kernels_of(chip)], [Precision.BF16.value], ceiling_fractions=np.array([chip.matmul_ceiling_fraction])
    )
    known = {name: float(getattr(kernels, field)[0]) for name, field in KERNEL_FIELDS.items()}
    return {**known, ConstantName.HOST_LAUNCH_S: training_constants().launch_s}


def simulated_s(table: KernelTable, chip: Accelerator, values: Values) -> Floats:
    """Returns seconds of every kernel for given constants, `(n,)`; NaN for launches from the host and for sums."""
    constants = constants_of({KERNEL_FIELDS[name]: values[name] for name in KERNEL_FIELDS})
    found_s = np.full(len(table.kernels), np.nan)
    for kind in KernelKind:
        chosen = np.array([kernel.kind is kind for kernel in table.kernels])
        if chosen.any():
            found_s[chosen] = _seconds(kind, _sizes(table, chosen), chip, constants)
    return found_s


def _seconds(
    kind: KernelKind, sizes: Mapping[str, Floats], chip: Accelerator, constants: KernelConstants
) -> Floats:
    shape = (sizes["m"], sizes["n"], sizes["k"])
    match kind:
        case KernelKind.GEMM | KernelKind.INPUT_GRADIENT | KernelKind.WEIGHT_GRADIENT:
            price = _plain_weight_gradient_s if kind is KernelKind.WEIGHT_GRADIENT else gemm_s
            return price(
                constants,
                shape,
                peak_flop_per_s=chip.bf16_flop_per_s,
                memory_bytes_per_s=chip.memory_bytes_per_s,
            )
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
        case KernelKind.COPY | KernelKind.ADD | KernelKind.EMPTY:
            return memory_bound_time_s(
                num_bytes=sizes["num_bytes"], memory_bytes_per_s=chip.memory_bytes_per_s, constants=constants
            )
        case KernelKind.HOST_LAUNCH | KernelKind.ALL_REDUCE:
            return np.full(len(sizes["m"]), np.nan)


def _sizes(table: KernelTable, chosen: NDArray[np.bool_]) -> Mapping[str, Floats]:
    kernels = [kernel for kernel, is_chosen in zip(table.kernels, chosen, strict=True) if is_chosen]
    return {name: np.array([getattr(kernel, name) for kernel in kernels], dtype=float) for name in SIZES}
