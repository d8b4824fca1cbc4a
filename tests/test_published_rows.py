"""Are shipped rows read as the list that they are from says?"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks.published_rows import SHIPPED_FILE, as_csv, difference, read_twice, renewed
from planner.measured.runs import Row, compare, read_rows
from tests.planner.measured_rows import KORTHIKANTI_22B

# NeMo, performance summary: GPT-3 5B in fp8 on 64 H100.
NEMO_5B = {
    "id": "nemo-0001",
    "source": "NeMo performance tables",
    "model": "GPT3-5B",
    "layers": 24,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 32,
    "ffn_hidden": 16384,
    "vocab": 51200,
    "mlp_matrices": 2,
    "seq_len": 2048,
    "gpu": "H100-80GB",
    "n_gpus": 64,
    "precision": "fp8",
    "tp": 1,
    "pp": 1,
    "dp": 64,
    "micro_batch": 4,
    "global_batch": 2048,
    "recompute": "none",
    "framework": "NeMo 24.09",
    "step_time_s": 2.8,
}


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Returns a list of two runs that are shipped as well."""
    path = tmp_path / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, sorted({*KORTHIKANTI_22B, *NEMO_5B}), restval="")
        writer.writeheader()
        writer.writerows([KORTHIKANTI_22B, NEMO_5B])
    return path


def shipped(row_id: str) -> Row:
    """Returns the shipped row of that name."""
    return next(row for row in read_rows() if row["row_id"] == row_id)


def test_rows_are_found_by_the_first_that_they_are_the_mean_of(measured: Path) -> None:
    found = [ours["row_id"] for ours, _ in read_twice(read_rows(), measured)]
    assert found == ["kort-0001", "nemo-0001+3"]


def test_what_a_framework_does_is_taken_from_the_list_and_what_was_measured_stays(measured: Path) -> None:
    (_, listed) = read_twice([shipped("nemo-0001+3")], measured)[0]
    old = {**shipped("nemo-0001+3"), "gathers_cast_weights": "", "kernel_launch": "graph"}
    assert old != shipped("nemo-0001+3")
    assert renewed(old, listed) == shipped("nemo-0001+3")


def test_gathers_in_8_bits_make_steps_shorter_by_some_parts_in_a_thousand() -> None:
    ours = shipped("nemo-0001+3")
    wide, narrow = compare([{**ours, "gathers_cast_weights": ""}, ours])
    assert difference(wide, narrow)[0] == pytest.approx(-0.0048, abs=5e-4)


def test_the_shipped_file_is_written_as_it_is() -> None:
    rows = read_rows()
    assert as_csv(rows, list(rows[0])) == SHIPPED_FILE.read_text(encoding="utf-8")
