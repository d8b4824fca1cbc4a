"""Do exported OpenDC experiments contain what capplan computes for a run?"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from planner.cli.commands import main
from planner.input.plan_input import plan_of
from planner.opendc.export import FILES, MOST_ROWS, Written, export_opendc
from planner.opendc.failures import read_failures
from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.domain.traces import read_trace
from simulator.errors import InputError
from simulator.simulate import Outcomes, simulate
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


def exported(
    folder: Path, job: Job, plan: Plan, *, replication: int = 0, period_s: float | None = None
) -> Written:
    return export_opendc(job, plan, folder, start=START, replication=replication, period_s=period_s)


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
        monkeypatch.setattr("planner.opendc.export.MOST_ROWS", 1)
        job, plan, _ = asked(OFTEN)
        with pytest.raises(InputError, match=r"fragments = .*must be at most 1, .*period_s=3600"):
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
        with pytest.raises(InputError, match=r"output = .*cannot be a folder, since .*taken is a file"):
            exported(file, job, plan)

    def test_a_run_beyond_the_last_year_of_the_calendar_is_refused(self, tmp_path: Path) -> None:
        job, plan, _ = asked(NEVER)
        start = datetime(9999, 12, 31)  # noqa: DTZ001
        with pytest.raises(InputError, match=r"start = 9999-12-31.*must be earlier: the run takes \d+ days,"):
            export_opendc(job, plan, tmp_path / "x", start=start)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("folder", ["new", "above/new", "."])
    def test_what_fails_half_way_leaves_nothing(
        self, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        job, plan, _ = asked(NEVER)
        monkeypatch.setattr(Path, "write_text", full)  # of the JSON, behind all tables
        with pytest.raises(InputError, match=r"output = .*cannot be written: No space left on device"):
            exported(tmp_path / folder, job, plan)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("folder", ["new", "above/new", "."])
    def test_the_files_are_put_into_the_folder_together(self, tmp_path: Path, folder: str) -> None:
        job, plan, _ = asked(NEVER)
        exported(tmp_path / folder, job, plan)
        assert {path.name for path in (tmp_path / folder).iterdir()} == set(FILES)
        assert all(not path.name.startswith(".") for path in tmp_path.iterdir())


def exported_by_command(tmp_path: Path, *, least_gpus: int, limits: str = "{}") -> Path:
    """Returns the folder into which the command exports a run on 16 accelerators."""
    job, folder = tmp_path / "job.yaml", tmp_path / "experiment"
    job.write_text(
        "workload: {model: llama-3.1-8b, tokens: 5e9, sequence_length: 8192, global_batch_size: 64}\n"
        f"offers: [{{accelerator: h100-sxm5-80gb, num_gpus: {{min: {least_gpus}, max: 64}}}}]\nsite: us-iowa\n"
        f"limits: {limits}\n",
        encoding="utf-8",
    )
    assert (
        main(["opendc", "export", str(job), "--plan", "tp=2,dp=8", "--output", str(folder), "--quiet"]) == 0
    )
    return folder


class TestCommand:
    def test_a_run_is_exported_from_a_job_file(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = exported_by_command(tmp_path, least_gpus=16)
        assert "experiment.json: 2 tasks with " in capsys.readouterr().err
        assert sorted(path.name for path in folder.iterdir()) == [
            "carbon.parquet",
            "experiment.json",
            "failures.parquet",
            "powerSource.parquet",
            "topology.json",
            "workload",
        ]

    def test_limits_that_a_written_plan_violates_are_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = exported_by_command(tmp_path, least_gpus=32, limits="{deadline_days: 0.1}")
        told = capsys.readouterr().err.splitlines()
        assert told[0].startswith(f"{folder}/experiment.json: 2 tasks with ")
        assert [line.split(": ", 1)[0] for line in told[1:]] == ["The plan violates a limit"] * 2
        assert "num_gpus" in told[1]
        assert "deadline_days" in told[2]

    def test_a_plan_that_does_not_run_is_broken_input(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job = str(Path(__file__).parents[3] / "examples" / "llama-3.1-70b.yaml")
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
