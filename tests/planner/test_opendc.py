"""Does OpenDC get what capplan says of a run, and does capplan get what OpenDC's traces say?"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.fuzz_traces import mutations, num_refused, opendc_readers
from planner.cli import main
from planner.opendc_export import MOST_ROWS, Written, export_opendc
from planner.opendc_failures import TracedFailures, read_failures, weibull_shape
from planner.plan_input import plan_of
from simulator.errors import InputError
from simulator.job import Job
from simulator.plan import Plan, PlanTable
from simulator.simulate import Outcomes, simulate
from simulator.traces import PRICE_TRACE, read_trace
from tests.support import job_with

NEVER: Mapping[str, object] = {"failures_per_1000_node_days": 1e-9, "straggler_log_mean": None}
"""A fleet on which nothing happens, so that every replay is the expected run."""
OFTEN: Mapping[str, object] = {"failures_per_1000_node_days": 2000.0, "straggler_log_mean": None}
PLAN: Mapping[str, object] = {"tp": 2, "dp": 8, "mbs": 1, "zero_stage": 1, "num_spare_nodes": 1}
START = datetime(2026, 1, 1)  # noqa: DTZ001 -- the exporter takes UTC without a zone

SCHEMAS = {
    "workload/tasks.parquet": """\
required int32 id
optional binary name (String)
required int64 submission_time (Timestamp(isAdjustedToUTC=true, timeUnit=milliseconds))
required int64 duration
required int32 cpu_count
required double cpu_capacity
required int64 mem_capacity
optional int32 gpu_count
optional double gpu_capacity
optional group parents (List)
optional group children (List)
optional boolean deferrable
optional int64 deadline""",
    "workload/fragments.parquet": """\
required int32 id
required int64 duration
required double cpu_usage
optional double gpu_usage""",
    "carbon.parquet": """\
required int64 timestamp (Timestamp(isAdjustedToUTC=false, timeUnit=milliseconds))
required double carbon_intensity""",
    "failures.parquet": """\
required int64 failure_interval
required int64 failure_duration
required double failure_intensity""",
    "powerSource.parquet": """\
required int64 timestamp
required int64 timestamp_absolute
required binary source_name (String)
required binary cluster_name (String)
required float power_draw
required float energy_usage
required float carbon_intensity
required float carbon_emission""",
}
"""Columns as OpenDC's TaskSchemas.kt (third version), FragmentSchemas.kt (second), CarbonSchemas.kt, FailureSchemas.kt
and DfltPowerSourceExportColumns.kt name them (commit 691036deb); the carbon column is as in its own traces."""


def spoken(file: Path) -> str:
    """Returns the columns of a file as Parquet itself describes them, without its field numbers and flags."""
    lines = []
    for line in str(pq.ParquetFile(file).schema).splitlines():
        if line.startswith("  ") and not line.startswith("   ") and "}" not in line:
            text = line.strip().rstrip(";{ ").replace("field_id=-1 ", "")
            flags = ", is_from_converted_type=false, force_set_converted_type=false"
            lines.append(text.replace(flags, ""))
    return "\n".join(lines)


def asked(reliability: Mapping[str, object], **site: object) -> tuple[Job, Plan, Outcomes]:
    job = job_with(reliability=dict(reliability), site={"region": "us-iowa", **site})
    plan, _ = plan_of(job, PLAN)
    return job, plan, simulate(job, PlanTable.from_plans([plan]))


def exported(folder: Path, job: Job, plan: Plan, **options: float) -> Written:
    return export_opendc(job, plan, folder, start=START, **options)  # type: ignore[arg-type]  # numbers by name


def read(folder: Path, name: str) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    table = pq.read_table(folder / name)
    return {column: table.column(column).to_numpy() for column in table.column_names}


def energy_by_opendc_j(folder: Path) -> float:
    """Returns what OpenDC's linear power models draw for the fragments: idle + (highest - idle) x share in use."""
    clusters = json.loads((folder / "topology.json").read_text(encoding="utf-8"))["clusters"]
    hosts, spares = clusters[0]["hosts"]
    gpu, model = hosts["gpu"], hosts["gpuPowerModel"]
    rows = read(folder, "workload/fragments.parquet")
    share = rows["gpu_usage"] / (gpu["count"] * gpu["coreCount"] * gpu["coreSpeed"])
    assert np.all((share >= 0.0) & (share <= 1.0 + 1e-12))
    node_w = gpu["count"] * (model["idlePower"] + (model["maxPower"] - model["idlePower"]) * share)
    wall_s = read(folder, "workload/tasks.parquet")["duration"][0] / 1e3
    spares_w = spares["count"] * spares["gpu"]["count"] * spares["gpuPowerModel"]["idlePower"]
    return float(np.sum(node_w * rows["duration"] / 1e3) + spares_w * wall_s)


class TestExport:
    @pytest.mark.parametrize("name", SCHEMAS)
    def test_columns_are_those_of_opendc(self, tmp_path: Path, name: str) -> None:
        job, plan, _ = asked(OFTEN)
        exported(tmp_path, job, plan)
        assert spoken(tmp_path / name) == SCHEMAS[name]

    def test_lists_of_tasks_have_the_names_that_opendc_reads(self, tmp_path: Path) -> None:
        job, plan, _ = asked(NEVER)
        exported(tmp_path, job, plan)
        schema = str(pq.ParquetFile(tmp_path / "workload" / "tasks.parquet").schema)
        lists = re.findall(
            r"repeated group field_id=-1 list \{\s+optional int32 field_id=-1 element;", schema
        )
        assert len(lists) == 2

    def test_opendc_comes_to_the_same_energy_time_and_carbon(self, tmp_path: Path) -> None:
        job, plan, outcomes = asked(NEVER, grid_kgco2e_per_kwh=0.4)
        written = exported(tmp_path, job, plan)
        expected_j = float(outcomes.energy.total_j[0])
        assert energy_by_opendc_j(tmp_path) == pytest.approx(expected_j, rel=1e-6)
        assert written.energy_kwh == pytest.approx(expected_j / 3.6e6, rel=1e-6)
        tasks = read(tmp_path, "workload/tasks.parquet")
        assert len(tasks["id"]) == written.num_tasks == 2
        # Whole milliseconds.
        assert tasks["duration"][0] == pytest.approx(float(outcomes.run.wall_time_s[0]) * 1e3, abs=0.5)
        power = read(tmp_path, "powerSource.parquet")
        grams = np.sum(power["carbon_emission"], dtype=np.float64)
        assert grams == pytest.approx(400.0 * expected_j / 3.6e6, rel=1e-6)

    def test_fragments_of_every_task_are_as_long_as_the_run_with_failures(self, tmp_path: Path) -> None:
        job, plan, _ = asked(OFTEN)
        written = exported(tmp_path, job, plan, replication=1)
        rows, tasks = read(tmp_path, "workload/fragments.parquet"), read(tmp_path, "workload/tasks.parquet")
        assert len(rows["id"]) == written.num_fragments
        for task in tasks["id"]:
            assert rows["duration"][rows["id"] == task].sum() == tasks["duration"][task]
        # Standing still draws less than training: a run that fails has both.
        assert rows["gpu_usage"].min() < 0.3 * rows["gpu_usage"].max()

    def test_equal_pieces_draw_the_same_energy(self, tmp_path: Path) -> None:
        job, plan, _ = asked(OFTEN)
        events, hours = tmp_path / "events", tmp_path / "hours"
        exported(events, job, plan)
        exported(hours, job, plan, period_s=3600.0)
        assert energy_by_opendc_j(hours) == pytest.approx(energy_by_opendc_j(events), rel=1e-6)
        lengths_ms = read(hours, "workload/fragments.parquet")["duration"]
        assert np.mean(lengths_ms == 3_600_000) > 0.9

    def test_the_carbon_trace_is_read_back_as_the_profile_that_it_was(self, tmp_path: Path) -> None:
        profile = [0.1 + 0.01 * hour for hour in range(24)]
        job, plan, _ = asked(NEVER, grid_profile=profile)
        exported(tmp_path, job, plan)
        again = read_trace(tmp_path / "carbon.parquet").per_hour
        assert again[:24] == pytest.approx(profile)
        assert again[24:48] == pytest.approx(profile)
        moved, _, _ = asked(NEVER, grid_profile=str(tmp_path / "carbon.parquet"))
        assert moved.site is not None
        assert moved.site.grid_kgco2e_per_kwh == pytest.approx(0.215)

    def test_failures_of_the_run_are_read_back_at_their_rate(self, tmp_path: Path) -> None:
        job, plan, _ = asked(OFTEN)
        exported(tmp_path, job, plan)
        rows = read(tmp_path, "failures.parquet")
        traced = read_failures(tmp_path / "failures.parquet", num_nodes=2)
        assert traced.num_rows == traced.num_stops == len(rows["failure_interval"])
        # 2,000 in 1,000 node-days; the deviation of n stops is the root of n.
        assert traced.failures_per_1000_node_days == pytest.approx(
            2000.0, rel=4.0 / math.sqrt(traced.num_stops)
        )
        assert np.all(rows["failure_intensity"] == 0.5)

    def test_faults_of_racks_stop_all_their_nodes(self, tmp_path: Path) -> None:
        racks = {"nodes_per_domain": 2, "domain_failures_per_1000_domain_days": 4000.0}
        job, plan, _ = asked({**NEVER, **racks})
        exported(tmp_path, job, plan)
        assert set(read(tmp_path, "failures.parquet")["failure_intensity"]) == {1.0}

    def test_the_experiment_names_files_that_are_there(self, tmp_path: Path) -> None:
        job, plan, _ = asked(NEVER)
        exported(tmp_path, job, plan)
        experiment = json.loads((tmp_path / "experiment.json").read_text(encoding="utf-8"))
        topology = json.loads((tmp_path / "topology.json").read_text(encoding="utf-8"))
        named = [part["pathToFile"] for kind in ("topologies", "workloads") for part in experiment[kind]]
        named.append(topology["clusters"][0]["powerSource"]["carbonTracePath"])
        assert all((tmp_path / name).exists() for name in named)

    def test_a_task_fits_the_devices_of_its_host_which_are_no_more_than_opendc_has_places_for(
        self, tmp_path: Path
    ) -> None:
        job, plan, _ = asked(NEVER)
        exported(tmp_path, job, plan)
        tasks = read(tmp_path, "workload/tasks.parquet")
        clusters = json.loads((tmp_path / "topology.json").read_text(encoding="utf-8"))["clusters"]
        for host in clusters[0]["hosts"]:
            gpu = host["gpu"]
            assert gpu["count"] <= 4  # `maxSuppliers` of opendc's FlowDistributor.java
            assert set(tasks["gpu_count"]) == {gpu["count"] * gpu["coreCount"]} == {8}
            assert set(tasks["gpu_capacity"]) == {8 * gpu["coreSpeed"]}

    def test_more_fragments_than_opendc_can_hold_are_refused_with_the_way_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert MOST_ROWS > 1
        monkeypatch.setattr("planner.opendc_export.MOST_ROWS", 1)
        job, plan, _ = asked(OFTEN)
        with pytest.raises(InputError, match=r"fragments = .*must be at most 1, .*--every 3600"):
            exported(tmp_path, job, plan)

    def test_an_experiment_of_somebody_is_not_overwritten(self, tmp_path: Path) -> None:
        job, plan, _ = asked(NEVER)
        (tmp_path / "topology.json").write_text("mine", encoding="utf-8")
        with pytest.raises(
            InputError, match=r"holds topology\.json already, and experiments are never overwritten"
        ):
            exported(tmp_path, job, plan)
        assert [path.name for path in tmp_path.iterdir()] == ["topology.json"]

    def test_a_folder_that_is_a_file_is_one_clear_error(self, tmp_path: Path) -> None:
        job, plan, _ = asked(NEVER)
        file = tmp_path / "taken"
        file.write_text("", encoding="utf-8")
        with pytest.raises(InputError, match=r"--output = .*taken.*cannot be made"):
            exported(file, job, plan)


def failures_file(folder: Path, rows: Sequence[tuple[object, object, object]], **types: pa.DataType) -> Path:
    names = ("failure_interval", "failure_duration", "failure_intensity")
    kinds = {
        "failure_interval": pa.int64(),
        "failure_duration": pa.int64(),
        "failure_intensity": pa.float64(),
    }
    columns = [
        pa.array([row[index] for row in rows], type={**kinds, **types}[name])
        for index, name in enumerate(names)
    ]
    file = folder / "failures.parquet"
    pq.write_table(pa.Table.from_arrays(columns, names=list(names)), file)
    return file


DAY_MS = 86_400_000
HOUR_MS = 3_600_000


class TestFailures:
    def test_a_hand_made_trace_gives_the_figures_worked_out_by_hand(self, tmp_path: Path) -> None:
        # Ten nodes, four failures in eight days; 4 % of ten nodes is none, 5 % one, as OpenDC rounds.
        rows = [
            (DAY_MS, HOUR_MS, 1.0),
            (DAY_MS, 2 * HOUR_MS, 0.04),
            (3 * DAY_MS, 3 * HOUR_MS, 0.05),
            (3 * DAY_MS, 2 * HOUR_MS, 0.5),
        ]
        traced = read_failures(failures_file(tmp_path, rows), num_nodes=10)
        assert (traced.num_rows, traced.num_stops, traced.span_days) == (4, 3, 8.0)
        assert traced.failures_per_1000_node_days == pytest.approx(1000 * 3 / (8 * 10))
        assert traced.repair_days == pytest.approx(2 / 24)
        assert read_failures(
            failures_file(tmp_path, rows), num_nodes=10, gpus_per_node=4
        ).failures_per_1000_node_days == (pytest.approx(1000 * 3 / (8 * 5)))
        assert traced.reliability().repair_days == traced.repair_days

    @pytest.mark.parametrize("shape", [0.5, 1.0, 2.0])
    def test_the_shape_of_a_large_sample_is_found(self, shape: float) -> None:
        # 100,000 draws: the standard error of the shape is below 2 % even at 0.5, whose tail is long.
        sample = np.random.default_rng(7).weibull(shape, 100_000)
        assert weibull_shape(sample) == pytest.approx(shape, rel=0.05)

    def test_shapes_stay_within_what_a_job_may_have(self) -> None:
        assert weibull_shape(np.ones(5)) == pytest.approx(5.0)
        assert weibull_shape(np.array([0.0] * 999 + [1.0])) == pytest.approx(0.3)

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            ([], "must hit 10 nodes at least twice"),
            ([(DAY_MS, 0, 1.0)], "must hit 10 nodes at least twice"),
            ([(0, 0, 1.0), (0, 0, 1.0)], "at different times"),
            ([(DAY_MS, 0, 0.01), (DAY_MS, 0, 0.01)], "must hit 10 nodes at least twice"),
            ([(-1, 0, 1.0), (DAY_MS, 0, 1.0)], "row 1, failure_interval = -0.001"),
            ([(DAY_MS, 0, 1.0), (DAY_MS, -5, 1.0)], "row 2, failure_duration"),
            ([(DAY_MS, 0, 1.0), (DAY_MS, 0, 1.5)], r"row 2, failure_intensity = 1.5: must lie in \(0, 1\]"),
            ([(DAY_MS, 0, 0.0), (DAY_MS, 0, 1.0)], "row 1, failure_intensity"),
            ([(DAY_MS, 0, math.nan), (DAY_MS, 0, 1.0)], "row 1, failure_intensity"),
            ([(DAY_MS, 0, None), (DAY_MS, 0, 1.0)], "1 rows without a value"),
            ([(1, 0, 1.0)] * 9, "more than 10,000 failures in 1,000 node-days"),
        ],
    )
    def test_a_broken_trace_is_one_clear_error(
        self, tmp_path: Path, rows: Sequence[tuple[object, object, object]], message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            read_failures(failures_file(tmp_path, rows), num_nodes=10)

    def test_text_in_place_of_numbers_and_missing_columns_are_named(self, tmp_path: Path) -> None:
        file = failures_file(tmp_path, [(1, 1, "high")], failure_intensity=pa.string())
        with pytest.raises(InputError, match="failure_intensity = string: must hold numbers"):
            read_failures(file, num_nodes=10)
        pq.write_table(pa.table({"timestamp": [1]}), file)
        with pytest.raises(
            InputError, match="failure_interval: must be a column, once; the file has timestamp"
        ):
            read_failures(file, num_nodes=10)

    @pytest.mark.parametrize("length", [0, 3, 200, 700])
    def test_a_truncated_or_foreign_file_is_one_clear_error(self, tmp_path: Path, length: int) -> None:
        file = failures_file(tmp_path, [(DAY_MS, HOUR_MS, 1.0)] * 5)
        file.write_bytes(file.read_bytes()[:length])
        with pytest.raises(InputError, match=r"no Parquet file, or is broken off|cannot be read"):
            read_failures(file, num_nodes=10)
        with pytest.raises(InputError, match="cannot be read"):
            read_failures(tmp_path / "missing.parquet", num_nodes=10)


def carbon_file(folder: Path, columns: Mapping[str, pa.Array]) -> Path:
    file = folder / "carbon.parquet"
    pq.write_table(pa.table(dict(columns)), file)
    return file


def quarters(num: int) -> pa.Array:
    return pa.array([1_640_995_200_000 + 900_000 * index for index in range(num)], type=pa.timestamp("ms"))


class TestCarbonTraces:
    def test_quarters_of_an_hour_in_grams_become_hours_in_kilograms(self, tmp_path: Path) -> None:
        values = pa.array([100.0 + 4.0 * (index // 4) + index % 4 for index in range(96)])
        file = carbon_file(tmp_path, {"timestamp": quarters(96), "carbon_intensity": values})
        # The mean of 0, 1, 2, 3 is 1.5.
        assert read_trace(file).per_hour == pytest.approx([(101.5 + 4 * hour) / 1e3 for hour in range(24)])

    def test_broken_traces_are_named(self, tmp_path: Path) -> None:
        numbers = pa.array([100.0] * 96)
        for columns, message in (
            ({"timestamp": quarters(96)}, "carbon_intensity: must be a column of a carbon trace"),
            (
                {"timestamp": numbers, "carbon_intensity": numbers},
                "row 1 = 100.0, 100.0: must begin with a timestamp",
            ),
            (
                {"timestamp": quarters(96), "carbon_intensity": pa.array([None] * 96, pa.float64())},
                "finite number",
            ),
            ({"timestamp": quarters(95), "carbon_intensity": numbers[:95]}, "whole days"),
        ):
            with pytest.raises(InputError, match=message):
                read_trace(carbon_file(tmp_path, columns))
        (tmp_path / "carbon.parquet").write_bytes(b"PAR1 and then nothing")
        with pytest.raises(InputError, match="cannot be read as Parquet"):
            read_trace(tmp_path / "carbon.parquet")

    def test_prices_are_not_read_from_it(self, tmp_path: Path) -> None:
        file = carbon_file(tmp_path, {"timestamp": quarters(96), "carbon_intensity": pa.array([1.0] * 96)})
        with pytest.raises(InputError, match="holds a grid, not USD/kWh"):
            read_trace(file, PRICE_TRACE)


@pytest.mark.parametrize("kind", [0, 1], ids=["failures", "carbon"])
def test_mutated_files_are_read_or_refused_in_one_message(tmp_path: Path, kind: int) -> None:
    path, read_again = list(opendc_readers(tmp_path))[kind]
    assert num_refused(read_again) == 0
    refused = 0
    for changed in mutations(path.read_bytes(), 400):
        path.write_bytes(changed)
        refused += num_refused(read_again)
    # Most mutations hit the head or the tail of so small a file.
    assert 200 < refused <= 400


class TestCommand:
    def test_failures_are_printed_as_lines_of_a_job_file_and_as_json(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = failures_file(tmp_path, [(DAY_MS, HOUR_MS, 1.0)] * 4)
        assert main(["opendc", "failures", str(file), "--nodes", "10"]) == 0
        text = capsys.readouterr().out
        assert text.startswith("# 4 of 4 failures in 4.0 days hit a node of 10\nreliability:\n")
        assert "  failures_per_1000_node_days: 100\n" in text
        assert main(["opendc", "failures", str(file), "--nodes", "10", "--json"]) == 0
        answer = TracedFailures.model_validate_json(capsys.readouterr().out)
        assert answer.failures_per_1000_node_days == pytest.approx(100.0)

    def test_a_run_is_exported_from_a_job_file(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job = tmp_path / "job.yaml"
        job.write_text(
            "workload: {model: llama-3.1-8b, tokens: 5e9, sequence_length: 8192, global_batch_size: 64}\n"
            "offers: [{accelerator: h100-sxm5-80gb, num_gpus: {min: 16, max: 64}}]\nsite: us-iowa\n",
            encoding="utf-8",
        )
        folder = tmp_path / "experiment"
        assert (
            main(["opendc", "export", str(job), "--plan", "tp=2,dp=8", "--output", str(folder), "--quiet"])
            == 0
        )
        assert "experiment.json: 2 tasks with " in capsys.readouterr().err
        assert sorted(path.name for path in folder.iterdir()) == [
            "carbon.parquet",
            "experiment.json",
            "failures.parquet",
            "powerSource.parquet",
            "topology.json",
            "workload",
        ]

    def test_a_plan_that_does_not_run_is_broken_input(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job = str(Path(__file__).parents[2] / "examples" / "llama-3.1-70b.yaml")
        assert (
            main(
                [
                    "opendc",
                    "export",
                    job,
                    "--plan",
                    "accelerator=h100-sxm5-80gb,tp=3,dp=8",
                    "--output",
                    str(tmp_path / "x"),
                ]
            )
            == 2
        )
        assert "tensor_parallel" in capsys.readouterr().err
