"""What does the CSV file of a sweep hold? Rows whose cells other programs can read, and a heading of its own without any."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from planner.sweep.grid import run_sweep
from planner.sweep.table import sweep_rows, write_rows
from tests.planner.sweep.test_sweep import sweep_with


def written(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_mapping_or_list_of_an_axis_is_written_as_json(tmp_path: Path) -> None:
    rent, schemes = {"low": 1, "mid": 2, "high": 3}, ["bf16"]
    axes = {"offers[0].rent_usd_per_gpu_hour": [2.0, rent], "workload.precisions": [schemes]}
    fields = {"num_gpus": [16], "checkpoint_schemes": ["sync"], "checkpoint_intervals_s": ["auto"]}
    sweep = sweep_with(axes=axes, **fields)
    write_rows(sweep_rows(sweep, run_sweep(sweep)), tmp_path / "rows.csv")
    first, second = written(tmp_path / "rows.csv")
    assert first["offers[0].rent_usd_per_gpu_hour"] == "2.0"
    assert json.loads(second["offers[0].rent_usd_per_gpu_hour"]) == rent
    assert json.loads(second["workload.precisions"]) == schemes


def test_a_file_without_rows_has_no_heading_of_another_table(tmp_path: Path) -> None:
    write_rows([], tmp_path / "rows.csv")
    heading = "num_gpus,checkpoint_scheme,checkpoint_interval_s,broken_constraint\n"
    assert (tmp_path / "rows.csv").read_text(encoding="utf-8") == heading
