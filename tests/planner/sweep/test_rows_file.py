"""What does the CSV file of a sweep hold? Rows whose cells other programs can read, and a heading of its own without any."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from planner.cli.terminal.output import rendered
from planner.sweep.grid import run_sweep
from planner.sweep.table import sweep_rows, write_rows
from planner.sweep.view import show_sweep
from simulator.domain.plan import CheckpointScheme
from tests.planner.sweep.test_sweep import schemes_job, sweep_with


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


def test_a_scheme_alone_is_marked_where_the_fastest_layout_does_not_support_it() -> None:
    """A live replica needs a second copy of the state, which the fastest layout, of ZeRO stage 3, has not."""
    alone = {"num_gpus": [16], "checkpoint_schemes": ["replica_ft"], "checkpoint_intervals_s": ["auto"]}
    sweep = sweep_with(job=schemes_job(zero_stages=[0, 3]), **alone)
    rows = sweep_rows(sweep, run_sweep(sweep))
    assert [row["is_fastest_layout"] for row in rows] == [False]
    assert "*" in rendered(lambda console: show_sweep(sweep, rows, console))
    both = sweep.model_copy(
        update={"checkpoint_schemes": (*sweep.checkpoint_schemes, CheckpointScheme.ASYNC)}
    )
    assert [row["is_fastest_layout"] for row in sweep_rows(both, run_sweep(both))] == [False, True]
