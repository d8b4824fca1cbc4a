"""Which few constants describe measured kernels best, and how well do they predict other shapes?

Rewrites simulator/data/kernel_efficiency.csv from the kernel tables of the package `aiconfigurator-core`
(Apache-2.0; folder systems/data of its installation):

    python -m benchmarks.fit_kernels --tables .../aiconfigurator_core/systems/data

Every fifth shape is held out of the fit and gives the `error` column.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.fitting import Line, describe, fit, write_lines
from benchmarks.kernel_tables import (
    ELEMENT_BYTES,
    FAMILIES,
    PARTS,
    Family,
    read_attention,
    read_gemms,
    read_launch_s,
)
from planner.calibration.kernel_models import (
    ATTENTION_BOUNDS,
    GEMM_BOUNDS,
    causal_attention_s,
    constants_of,
)
from simulator.machine.compute import gemm_time_s, memory_bound_time_s
from simulator.table import Floats

OUTPUT = Path(__file__).parents[1] / "simulator" / "data" / "kernel_efficiency.csv"
Values = Mapping[str, float]
Model = Callable[[Values, pd.DataFrame], Floats]

GEMM_START = {
    "gemm_peak_fraction": 0.8,
    "gemm_fill_elements": 1e5,
    "gemm_ramp_depth": 100.0,
    "overlap_exponent": 3.0,
}
ATTENTION_START = {"attention_peak_fraction": 0.8, "attention_ramp_tokens": 500.0, "attention_fill_rows": 1e4}
CAST_START = GEMM_START | {"cast_bytes_per_element": 3.0, "table_cast_s": 8e-6}
CAST_BOUNDS = GEMM_BOUNDS | {"table_cast_s": (1e-7, 2e-5)}
"""`table_cast_s`: the tables time a product with the cast of its input, which takes so long beside its bytes and a launch. No
product pays it: casts in training are kernels of their own, with launches of their own."""

UNITS = {
    "gemm_fill_elements": "elements",
    "gemm_ramp_depth": "elements",
    "overlap_exponent": "1",
    "launch_s": "s",
    "cast_bytes_per_element": "bytes/element",
    "table_cast_s": "s",
    "table_cast_bytes_per_element": "bytes/element",
    "attention_ramp_tokens": "tokens",
    "attention_ramp_head_dim": "elements",
    "attention_fill_rows": "rows",
    "attention_backward_ramp_tokens": "tokens",
    "attention_backward_fill_ratio": "1",
}

ON_A100, ON_H100 = "measured on one A100 only", "measured on H100 only"
PUBLISHED = {
    # SimuMax, A100 operator table: 0.62-0.72 of peak against 0.74-0.79 for forward and data gradient.
    "weight_gradient_fraction": (
        0.67 / 0.765,
        ON_A100,
        "SimuMax A100 operator table: 0.62-0.72 of peak against 0.74-0.79",
    ),
    # Three kernels on H100: 0.66, 0.73, 0.79, 0.84 and 0.87 of the forward with 512, 1,024, 2,048, 4,096 and 16,384 tokens.
    "attention_backward_fraction": (
        0.86,
        ON_H100,
        "arXiv 2407.08608 figures 5 and 6: 322 516 561 TFLOP/s backward against 370 595 648 forward",
    ),
    "attention_backward_ramp_tokens": (
        243.0,
        ON_H100,
        "arXiv 2407.08608 figures 5 and 6: ratios with 512 to 16384 tokens",
    ),
    # Of the forward: 0.86, 0.89, 0.97 and 1.31 with 32, 16, 8 and 4 heads of 4,096 tokens.
    "attention_backward_fill_ratio": (0.5, ON_A100, "SimuMax A100 operator table: 4 to 64 heads of 128"),
}


def gemm_model(values: Values, rows: pd.DataFrame, element_bytes: float) -> Floats:
    """Returns seconds as the tables time them: with bringing the left input to 8 or 4 bits, where it is."""
    m, n, k = (rows[axis].to_numpy(float) for axis in "mnk")
    constants, memory_bytes_per_s = constants_of(values), rows.bandwidth.to_numpy(float)
    product_s = gemm_time_s(
        m=m,
        n=n,
        k=k,
        bytes_per_element=element_bytes,
        peak_flop_per_s=rows.peak.to_numpy(float),
        memory_bytes_per_s=memory_bytes_per_s,
        constants=constants,
    )
    cast_bytes = constants.cast_bytes_per_element * m * k
    cast_s = memory_bound_time_s(
        num_bytes=cast_bytes, memory_bytes_per_s=memory_bytes_per_s, constants=constants
    )
    return product_s + np.where(cast_bytes > 0, cast_s, 0.0) + values.get("table_cast_s", 0.0)


def attention_model(values: Values, rows: pd.DataFrame) -> Floats:
    """Returns seconds of the causal forward pass."""
    return causal_attention_s(
        constants_of(values),
        batch=rows.batch_size.to_numpy(float),
        sequence_length=rows.isl.to_numpy(float),
        num_heads=rows.num_heads.to_numpy(float),
        head_dim=rows.head_dim.to_numpy(float),
        bf16_flop_per_s=rows.peak.to_numpy(float),
    )


def log_error(model: Model, values: Values, rows: pd.DataFrame) -> Floats:
    """Returns log(predicted / measured) of every row."""
    return np.asarray(np.log(model(values, rows)) - rows.log_s.to_numpy())


def fit_rows(
    model: Model,
    rows: pd.DataFrame,
    fixed: dict[str, float],
    start: dict[str, float],
    bounds: dict[str, tuple[float, float]],
) -> tuple[dict[str, float], str]:
    """Returns the constants fitted to the rows, and their error on the held-out ones."""
    return fit(lambda values: log_error(model, fixed | values, rows), start, bounds)


@dataclass(frozen=True, kw_only=True)
class KernelLine(Line):
    """One row of the shipped file."""

    family: str
    dtype: str


GEMM_SOURCE = "aiconfigurator-core 0.12.0, systems/data gemm_perf"
TABLE_CAST_SOURCE = f"{GEMM_SOURCE}, which times a product with the cast of its input; no product pays it"
ATTENTION_SOURCE = "aiconfigurator-core 0.12.0, systems/data context_attention_perf"
CEILING_SOURCE = "Bekman, Machine Learning Engineering, maximum achievable matmul FLOPS"


def lines_of(
    family: str, dtype: str, values: dict[str, float], fitted_on: str, error: str, source: str
) -> list[KernelLine]:
    """Returns one line per constant."""
    return [
        KernelLine(
            family=family,
            dtype=dtype,
            constant=name,
            value=float(f"{value:.4g}"),
            unit=UNITS.get(name, "fraction"),
            fitted_on=fitted_on,
            error=error,
            source=source,
        )
        for name, value in values.items()
    ]


def fit_family(tables: Path, family: Family, head_ramp: float | None) -> list[KernelLine]:
    """Returns the lines of one family; `head_ramp` is taken over where one head dimension was measured."""
    folders = " ".join(system.folder for system in family.systems)
    launch = {"launch_s": min(read_launch_s(tables, system) for system in family.systems)}
    rows = pd.concat([read_gemms(tables, system, "bf16") for system in family.systems], ignore_index=True)
    gemm, error = fit_rows(
        lambda v, r: gemm_model(v, r, 2.0), rows, launch, GEMM_START | {"memory_fraction": 0.8}, GEMM_BOUNDS
    )
    lines = lines_of(family.name, "bf16", gemm, f"{folders}: {len(rows)} products", error, GEMM_SOURCE)
    lines += lines_of(family.name, "bf16", launch, f"{folders}: quickest products", "", GEMM_SOURCE)
    lines += lines_of(
        family.name, "bf16", {"cast_bytes_per_element": 0.0}, "definition", "", "16-bit inputs need no cast"
    )
    lines += fit_attention(tables, family, launch, head_ramp)
    lines += ceiling_lines(family, rows)
    for name, (value, error, source) in PUBLISHED.items():
        lines += lines_of(family.name, "bf16", {name: value}, "published", error, source)
    for number_format in ("fp8", "fp4"):
        if np.isfinite(family.systems[0].peak_flop_per_s(number_format)):
            fixed = launch | {"memory_fraction": gemm["memory_fraction"]}
            lines += fit_cast(tables, family, number_format, fixed)
    return lines


def ceiling_lines(family: Family, rows: pd.DataFrame) -> list[KernelLine]:
    """Returns the line of the best product in 16 bits that anyone found, in the tables where nobody else looked."""
    name, published = "matmul_ceiling_fraction", family.systems[0].bf16_ceiling_fraction
    if np.isfinite(published):
        return lines_of(family.name, "bf16", {name: published}, "published", "", CEILING_SOURCE)
    fastest = 2.0 * rows.m * rows.n * rows.k / np.exp(rows.log_s) / rows.peak
    return lines_of(family.name, "bf16", {name: float(fastest.max())}, "fastest product", "", GEMM_SOURCE)


def fit_attention(
    tables: Path, family: Family, launch: dict[str, float], head_ramp: float | None
) -> list[KernelLine]:
    """Returns the attention lines of one family."""
    rows = pd.concat(
        [read_attention(tables, system, family.attention_kernel) for system in family.systems],
        ignore_index=True,
    )
    folders = " ".join(system.folder for system in family.systems)
    if head_ramp is None:
        fixed, start = launch, ATTENTION_START | {"attention_ramp_head_dim": 50.0}
    else:
        fixed, start = launch | {"attention_ramp_head_dim": head_ramp}, ATTENTION_START
    values, error = fit_rows(attention_model, rows, fixed, start, ATTENTION_BOUNDS)
    fitted_on = f"{folders} {family.attention_kernel}: {len(rows)} prefills"
    lines = lines_of(family.name, "bf16", values, fitted_on, error, ATTENTION_SOURCE)
    if head_ramp is not None:
        taken = {"attention_ramp_head_dim": head_ramp}
        lines += lines_of(
            family.name, "bf16", taken, "hopper", "only head dimension 128 was measured", ATTENTION_SOURCE
        )
    return lines


def fit_cast(tables: Path, family: Family, number_format: str, fixed: dict[str, float]) -> list[KernelLine]:
    """Returns the lines of one family in 8 or 4 bits; memory fraction and launch stay those of bf16."""
    rows = pd.concat(
        [read_gemms(tables, system, number_format) for system in family.systems], ignore_index=True
    )
    element_bytes = ELEMENT_BYTES[number_format]
    values, error = fit_rows(
        lambda v, r: gemm_model(v, r, element_bytes), rows, fixed, CAST_START, CAST_BOUNDS
    )
    folders = " ".join(system.folder for system in family.systems)
    cast = {"table_cast_s": values.pop("table_cast_s")}
    if number_format == "fp4":
        # What training moves follows from that of 8 bits: inference knows the scale of a tensor beforehand.
        cast["table_cast_bytes_per_element"] = values.pop("cast_bytes_per_element")
    fitted_on = f"{folders}: {len(rows)} products with cast"
    lines = lines_of(family.name, number_format, values, fitted_on, error, GEMM_SOURCE)
    lines += lines_of(family.name, number_format, cast, fitted_on, error, TABLE_CAST_SOURCE)
    return lines


def default_lines(tables: Path, hopper: list[KernelLine]) -> list[KernelLine]:
    """Returns Hopper's lines as `default`, with the error they make on families they were not fitted on."""
    errors = {
        (name, dtype): error
        for dtype in ("bf16", "fp8")
        for name, error in transfer_errors(tables, hopper, dtype).items()
    }
    rule = (
        "hopper's constants; peak fractions scaled by the accelerator's own matmul ceiling where it is known"
    )
    return [
        replace(
            line,
            family="default",
            fitted_on=f"hopper ({line.fitted_on})",
            source=rule,
            error=errors.get((line.constant, line.dtype), "not measured on other families"),
        )
        for line in hopper
    ]


def transfer_errors(tables: Path, hopper: list[KernelLine], dtype: str) -> dict[str, str]:
    """Returns by constant how Hopper's, scaled by the ceilings, do on all shapes of other families."""
    values = {line.constant: line.value for line in hopper if line.dtype == "bf16"}
    values |= {line.constant: line.value for line in hopper if line.dtype == dtype}
    element_bytes = ELEMENT_BYTES[dtype]
    products, attention = [], []
    for family in FAMILIES[1:]:
        system = family.systems[0]
        if np.isnan(system.peak_flop_per_s(dtype)):
            continue
        peaks = {
            name: min(values[name] * system.bf16_ceiling_fraction / values["matmul_ceiling_fraction"], 1.0)
            for name in ("gemm_peak_fraction", "attention_peak_fraction")
        }
        rows = read_gemms(tables, system, dtype)
        errors = log_error(lambda v, r: gemm_model(v, r, element_bytes), values | peaks, rows)
        products.append(describe(errors, system.folder))
        rows = read_attention(tables, system, family.attention_kernel)
        attention.append(describe(log_error(attention_model, values | peaks, rows), system.folder))
    return dict.fromkeys(CAST_BOUNDS, "; ".join(products)) | dict.fromkeys(
        ATTENTION_BOUNDS, "; ".join(attention)
    )


def main() -> None:
    """Fits every family, prints the errors and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tables", type=Path, required=True, help="folder systems/data of aiconfigurator-core"
    )
    tables = parser.parse_args().tables
    hopper, *others = FAMILIES
    lines = fit_family(tables, hopper, head_ramp=None)
    head_ramp = next(line.value for line in lines if line.constant == "attention_ramp_head_dim")
    default = default_lines(tables, lines)
    for family in (*others, *PARTS):
        lines += fit_family(tables, family, head_ramp if family.name == "ampere" else None)
    lines += default
    write_lines(OUTPUT, lines)


if __name__ == "__main__":
    main()
