"""Which kernels were measured in the tables of `aiconfigurator-core` (Apache-2.0; folder systems/data of its installation)?

The tables hold inference kernels of accelerators; only those that training would run are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from simulator.units import GIGA, MILLISECOND, TERA

MIN_ROWS = 512
MIN_FLOP = 1.0 * GIGA
MIN_SEQUENCE = 1024


@dataclass(frozen=True, kw_only=True)
class System:
    """One measured accelerator: data-sheet peaks (dense) and the best matrix product anyone found on it.

    Ceilings: maximum achievable matmul FLOPS of Bekman's Machine Learning Engineering, accelerators.
    """

    folder: str
    memory_bytes_per_s: float
    bf16_flop_per_s: float
    fp8_flop_per_s: float = np.nan
    fp4_flop_per_s: float = np.nan
    bf16_ceiling_fraction: float = np.nan

    def peak_flop_per_s(self, number_format: str) -> float:
        """Returns the peak of a number format; NaN without one."""
        peaks = {"bf16": self.bf16_flop_per_s, "fp8": self.fp8_flop_per_s, "fp4": self.fp4_flop_per_s}
        return peaks[number_format]


@dataclass(frozen=True, kw_only=True)
class Family:
    """The systems that one family is fitted on, and the attention kernels that training would use there."""

    name: str
    systems: tuple[System, ...]
    attention_kernel: str


HOPPER_PEAKS = {"bf16_flop_per_s": 989.4 * TERA, "fp8_flop_per_s": 1978.9 * TERA}
HOPPER_CEILING = 794.5 / 989.4
A100 = System(
    folder="a100_sxm",
    memory_bytes_per_s=2.039 * TERA,
    bf16_flop_per_s=312 * TERA,
    bf16_ceiling_fraction=271.2 / 312,
)
H100 = System(
    folder="h100_sxm",
    memory_bytes_per_s=3.35 * TERA,
    **HOPPER_PEAKS,
    bf16_ceiling_fraction=HOPPER_CEILING,
)
H200 = replace(H100, folder="h200_sxm", memory_bytes_per_s=4.8 * TERA)
B200 = System(
    folder="b200_sxm",
    memory_bytes_per_s=8.0 * TERA,
    bf16_flop_per_s=2250 * TERA,
    fp8_flop_per_s=4500 * TERA,
    fp4_flop_per_s=9000 * TERA,
    bf16_ceiling_fraction=1745 / 2250,
)
GB200 = System(
    folder="gb200",
    memory_bytes_per_s=8.0 * TERA,
    bf16_flop_per_s=2500 * TERA,
    fp8_flop_per_s=5000 * TERA,
    fp4_flop_per_s=10000 * TERA,
    bf16_ceiling_fraction=1822 / 2500,
)
B300 = System(
    folder="b300_sxm",
    memory_bytes_per_s=8.0 * TERA,
    bf16_flop_per_s=2250 * TERA,
    fp8_flop_per_s=4500 * TERA,
    fp4_flop_per_s=12600 * TERA,
    bf16_ceiling_fraction=1769 / 2250,
)
GB300 = System(
    folder="gb300",
    memory_bytes_per_s=8.0 * TERA,
    bf16_flop_per_s=2500 * TERA,
    fp8_flop_per_s=5000 * TERA,
    fp4_flop_per_s=15000 * TERA,
)
HOPPER = Family(name="hopper", systems=(H100, H200), attention_kernel="fa3")
FAMILIES = (
    HOPPER,
    Family(name="ampere", systems=(A100,), attention_kernel="flash_attention"),
    Family(name="blackwell", systems=(B200,), attention_kernel="trtllm_mha"),
)
PARTS = (
    Family(name="gb200", systems=(GB200,), attention_kernel="trtllm_mha"),
    Family(name="b300", systems=(B300,), attention_kernel="trtllm_mha"),
    Family(name="gb300", systems=(GB300,), attention_kernel="trtllm_mha"),
)
"""Accelerators that have constants of their own, by catalogue name: sisters of B200 with other clocks, power and units for
exponentials."""

LIBRARIES = {"bf16": ("trtllm", "sglang"), "fp8": ("trtllm",), "fp4": ("trtllm",)}
"""bf16: both call cuBLAS and differ by 4 %; the third library of the tables exceeds the ceilings above, so it
was measured on data that draws less power. fp8: only this one calls cuBLAS, as training does.
fp4: only this one is timed with the cast of its input; the fastest products of the other two are as fast within a tenth."""
TABLE_FORMATS = {"bf16": "bfloat16", "fp8": "fp8", "fp4": "nvfp4"}
ELEMENT_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 9.0 / 16.0}
"""Of a matrix element; in 4 bits with the scale of 16 values."""


def read_gemms(tables: Path, system: System, number_format: str) -> pd.DataFrame:
    """Returns the training-size products of one system: m, n, k, seconds (geometric mean over libraries)."""
    files = [
        max((tables / system.folder / "gemm" / library).glob("*/gemm_perf.parquet"))
        for library in LIBRARIES[number_format]
    ]
    rows = pd.concat([pd.read_parquet(file) for file in files])
    rows = rows[rows.gemm_dtype == TABLE_FORMATS[number_format]]
    rows = rows[(rows.m >= MIN_ROWS) & (2.0 * rows.m * rows.n * rows.k >= MIN_FLOP)]
    rows = (
        rows.assign(log_s=np.log(rows.latency * MILLISECOND))
        .groupby(["m", "n", "k"])["log_s"]
        .mean()
        .reset_index()
    )
    return rows.assign(peak=system.peak_flop_per_s(number_format), bandwidth=system.memory_bytes_per_s)


def read_launch_s(tables: Path, system: System) -> float:
    """Returns the first percentile of all bf16 products: the tiny ones do next to nothing."""
    file = max((tables / system.folder / "gemm" / "trtllm").glob("*/gemm_perf.parquet"))
    rows = pd.read_parquet(file)
    return float(rows[rows.gemm_dtype == "bfloat16"].latency.quantile(0.01)) * MILLISECOND


def read_attention(tables: Path, system: System, kernel: str) -> pd.DataFrame:
    """Returns full causal bf16 prefill attention of one system."""
    file = max((tables / system.folder / "attention" / "sglang").glob("*/context_attention_perf.parquet"))
    rows = pd.read_parquet(file)
    window = rows.window_size if "window_size" in rows else pd.Series(0, index=rows.index)
    windowed = (window > 0) & (window < rows.isl)
    rows = rows[(rows.kernel_source == kernel) & (rows.attn_dtype == "bfloat16") & ~windowed]
    rows = rows[(rows.isl >= MIN_SEQUENCE) & rows.head_dim.isin([64, 128, 192, 256])]
    rows = rows[
        2.0 * rows.batch_size * rows.num_heads * rows.head_dim * rows.isl.astype(float) ** 2 >= MIN_FLOP
    ]
    return rows.assign(log_s=np.log(rows.latency * MILLISECOND), peak=system.bf16_flop_per_s).reset_index(
        drop=True
    )
