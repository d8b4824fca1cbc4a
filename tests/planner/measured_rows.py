"""Which measured runs do the tests of the comparison read? Rows as people write them, and hand-made comparisons."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from planner.measured.row_reasons import reason_against
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Comparison, Row, job_of, read_rows
from simulator.domain.model import ModelShape
from simulator.units import GIB

RUN: Mapping[str, object] = {
    "id": "r",
    "model": "llama-3.1-8b",
    "gpu": "H100-80GB",
    "n_gpus": 8,
    "seq_len": 4096,
    "global_batch": 64,
    "step_time_s": 10,
}
# Megatron-Bridge, verification card of Qwen3-30B-A3B: 16 H100, 20.1 s with Hybrid-EP and overlap, 62.2 GiB.
QWEN3_30B: Mapping[str, object] = {
    "id": "q",
    "model": "qwen3-30b-a3b",
    "seq_len": 4096,
    "gpu": "H100-80GB",
    "n_gpus": 16,
    "global_batch": 1024,
    "micro_batch": 1,
    "tp": 1,
    "pp": 1,
    "ep": 16,
    "framework": "Megatron-Bridge",
    "step_time_s": 20.1473,
    "peak_mem_gib_per_gpu": 62.166,
}

# Korthikanti et al., arXiv 2205.05198, Table 5: 22B on eight A100, full recomputation, 1.42 s per iteration.
KORTHIKANTI_22B: Mapping[str, object] = {
    "id": "kort-0001",
    "source": "Korthikanti et al. 2022",
    "model": "GPT-22B",
    "layers": 48,
    "hidden": 6144,
    "heads": 64,
    "kv_heads": 64,
    "ffn_hidden": 24576,
    "vocab": 51200,
    "head_dim": 96,
    "mlp_matrices": 2,
    "seq_len": 2048,
    "gpu": "A100-80GB",
    "n_gpus": 8,
    "gpus_per_node": 8,
    "interconnect": "Selene: NVLink3 node + 8x200G HDR InfiniBand fat tree",
    "precision": "fp16",
    "tp": 8,
    "sp": "no",
    "pp": 1,
    "cp": 1,
    "dp": 1,
    "zero_stage_or_fsdp": "none",
    "micro_batch": 4,
    "global_batch": 4,
    "recompute": "full",
    "framework": "Megatron-LM (May 2022)",
    "metric_kind": "iteration time",
    "step_time_s": 1.42,
}
LLAMA_8B: Mapping[str, object] = {
    "id": "a",
    "model": "llama-3.1-8b",
    "seq_len": 8192,
    "gpu": "H100-80GB",
    "n_gpus": 8,
    "global_batch": 128,
    "tp": 1,
    "pp": 1,
    "framework": "NeMo 25.02",
    "step_time_s": 10.0,
}

# arXiv 2407.21783, tables 3 and 4: 16 M tokens a step in sequences of 8,192; 430 TFLOP/s per GPU, no step time.
LLAMA_405B: Mapping[str, object] = {
    "id": "herd",
    "model": "llama-3.1-405b",
    "seq_len": 8192,
    "gpu": "H100-80GB",
    "n_gpus": 8192,
    "gpus_per_node": 8,
    "interconnect": "8x400G RoCE",
    "precision": "bf16",
    "tp": 8,
    "sp": "yes",
    "pp": 16,
    "dp": 64,
    "zero_stage_or_fsdp": "SHARD_GRAD_OP",
    "global_batch": 2048,
    "recompute": "none",
    "framework": "Meta internal",
    "metric_kind": "production MFU",
}


def written(folder: Path, *rows: Mapping[str, object]) -> Path:
    """A file of measured runs; its columns are the union of those of all rows."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    path = folder / "measured.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def the_row(folder: Path, cells: Mapping[str, object]) -> Row | Unmodelled:
    """The row read from a file with one measured run."""
    (row,) = read_measured(written(folder, cells))
    return row


def modelled_row(folder: Path, cells: Mapping[str, object]) -> Row:
    """Returns the row that a file with these cells is read as, which can be modelled."""
    row = the_row(folder, cells)
    assert not isinstance(row, Unmodelled), row.reason
    return row


def network_of(row: Row) -> ModelShape:
    """Returns the network of a row."""
    return job_of(row).workload.model


def simulated_row(folder: Path, cells: Mapping[str, object]) -> Row:
    """The row read from a file with one measured run, which must be one that can be simulated."""
    row = the_row(folder, cells)
    assert not isinstance(row, Unmodelled), row
    assert reason_against(row) == ""
    return row


def shipped(name: str, /, **changes: str) -> Row:
    return {**next(row for row in read_rows() if row["row_id"] == name), **changes}


def compared(
    step_time_s: float, simulated_s: float, *, memory_gib: float = 70.0, **changes: str
) -> Comparison:
    """A hand-made comparison on an accelerator with 80 GiB."""
    row = shipped("kort-0001", step_time_s=str(step_time_s), **changes)
    return Comparison(
        row=row,
        family="ampere",
        simulated_s=simulated_s,
        simulated_memory_bytes=memory_gib * GIB,
        planned_memory_bytes=memory_gib * GIB + 8.0 * GIB,
        memory_kind="device",
        comparable_memory_bytes=memory_gib * GIB,
        capacity_bytes=80.0 * GIB,
    )
