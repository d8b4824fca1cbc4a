"""How close is simulated sliding-window attention to measured kernels that no constant was fitted on?

    python -m benchmarks.validate_windows --tables .../aiconfigurator_core/systems/data

For each accelerator, kernel and window, prints how many causal bf16 prefills with sequences longer than the window the kernel
tables of `aiconfigurator-core` 0.12 contain, and the predicted over the measured time: the median and the middle 80 %. The same
for attention over whole sequences with that kernel is printed next to it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.kernel_tables import B200, H100, System
from simulator.domain.attention_span import SequenceShape, SlidingWindow, layer_spans
from simulator.machine.compute import attention_time_s, kernel_constants
from simulator.table import Floats
from simulator.units import MILLISECOND

KERNELS = (
    (H100, "hopper", "sglang", "fa3"),
    (H100, "hopper", "vllm", "vllm_flash_attn_fa3"),
    (B200, "blackwell", "sglang", "trtllm_mha"),
)
"""Kernels that reach on whole sequences what the law says; others of the tables do not, with or without a window."""
LEAST_TOKENS = 8192
"""Query tokens of a batch, below which launches count more than what is launched."""
LONGEST = 16_384
LEAST_HEADS = 8


def read_prefills(tables: Path, system: System, library: str, kernel: str) -> pd.DataFrame:
    """Returns the causal bf16 prefills of one kernel, with and without windows."""
    file = max((tables / system.folder / "attention" / library).glob("*/context_attention_perf.parquet"))
    rows = pd.read_parquet(file)
    is_bf16 = (rows.attn_dtype == "bfloat16") & (rows.kv_cache_dtype == "bfloat16") & (rows.step == 0)
    is_large = (rows.batch_size * rows.isl >= LEAST_TOKENS) & (rows.num_heads >= LEAST_HEADS)
    is_whole = (rows.window_size == 0) | (rows.window_size < rows.isl)
    is_fitted = rows.isl.between(1024, LONGEST)
    return rows[(rows.kernel_source == kernel) & is_bf16 & is_large & is_whole & is_fitted]


def predicted_over_measured(rows: pd.DataFrame, system: System, family: str) -> Floats:
    """Returns the ratio of every prefill, `(n,)`."""
    spans = [
        kernel_span(int(length), int(size)) for length, size in zip(rows.isl, rows.window_size, strict=True)
    ]
    predicted_s = attention_time_s(
        tokens=(rows.batch_size * rows.isl).to_numpy(float),
        sequence_length=np.array(spans),
        num_heads=rows.num_heads.to_numpy(float),
        head_dim=rows.head_dim.to_numpy(float),
        bf16_flop_per_s=system.bf16_flop_per_s,
        constants=kernel_constants([family] * len(rows), ["bf16"] * len(rows)),
    )
    return np.asarray(predicted_s / (rows.latency.to_numpy(float) * MILLISECOND))


def kernel_span(sequence_length: int, window_tokens: int) -> float:
    """Returns what kernels compute for a token; a window of 0 is none."""
    window = SlidingWindow(window_tokens=window_tokens) if window_tokens else None
    (span,) = layer_spans(SequenceShape(tokens=sequence_length, num_layers=1, window=window))
    return span.kernel_tokens


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tables", type=Path, required=True, help="folder systems/data of aiconfigurator-core"
    )
    tables = parser.parse_args().tables
    table = Table("accelerator", "kernel", "window", "prefills", "median", "10 %", "90 %")
    for system, family, library, kernel in KERNELS:
        rows = read_prefills(tables, system, library, kernel)
        for size, group in rows.groupby("window_size"):
            ratios = predicted_over_measured(group, system, family)
            quantiles = [f"{value:.2f}" for value in np.quantile(ratios, (0.5, 0.1, 0.9))]
            table.add_row(system.folder, kernel, str(size or "none"), str(len(group)), *quantiles)
    Console().print(table)


if __name__ == "__main__":
    main()
