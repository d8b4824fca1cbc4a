"""How do cluster size, checkpoint scheme and interval change a job? Tests of grids and of their command."""

from __future__ import annotations

import csv
import errno
import json
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from constraints.evaluation import evaluate
from constraints.lattice import cross_run_knobs, enumerate_layouts
from constraints.layout import is_valid_layout
from planner import simulate_plan
from planner.cli.commands import main
from planner.cli.terminal.output import rendered
from planner.sweep.grid import Sweep, SweepPoint, load_sweep, run_sweep
from planner.sweep.table import is_auto, sweep_rows, write_rows
from planner.sweep.view import NO_LAYOUT, best_by_scheme, empty_points, number, show_sweep
from simulator import catalog
from simulator.domain.limits import Limits
from simulator.domain.plan import CheckpointScheme
from simulator.errors import InputError

JOB: dict[str, object] = {
    "workload": {
        "model": "llama-3.1-8b",
        "tokens": 2e11,
        "sequence_length": 8192,
        "global_batch_size": 256,
    },
    "offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": 8, "rent_usd_per_gpu_hour": 2.0}],
    "site": "us-iowa",
    "search": {"micro_batch_sizes": [1], "tensor_parallel": [1, 2], "pipeline_parallel": [1, 2]},
}


def sweep_with(**fields: object) -> Sweep:
    return Sweep.model_validate(
        {
            "name": "test",
            "job": JOB,
            "num_gpus": [16, 64],
            "checkpoint_schemes": ["async", "in_memory_peer"],
            "checkpoint_intervals_s": ["auto", 120, 3600],
        }
        | fields
    )


def points_of(sweep: Sweep) -> list[SweepPoint]:
    return list(run_sweep(sweep))


def test_every_scheme_and_interval_is_run_on_the_same_layout_of_a_size() -> None:
    sweep = sweep_with()
    rows = sweep_rows(sweep, points_of(sweep))
    assert len(rows) == 2 * 2 * 3
    for num_gpus in (16, 64):
        here = [row for row in rows if row["num_gpus"] == num_gpus]
        layouts = {(row["tensor_parallel"], row["pipeline_parallel"], row["step_time_s"]) for row in here}
        assert len(here) == 6
        assert len(layouts) == 1
        assert [row["checkpoint_scheme"] for row in here] == ["async"] * 3 + ["in_memory_peer"] * 3
        assert [row["checkpoint_interval_s"] for row in here] == ["auto", "120.0", "3600.0"] * 2


def test_no_fixed_interval_beats_the_automatic_one() -> None:
    sweep = sweep_with(checkpoint_intervals_s=["auto", 30, 60, 120, 300, 600, 1200, 2400, 7200])
    for point in points_of(sweep):
        assert point.result is not None
        goodput = point.result.outcomes.run.goodput_fraction.reshape(2, -1)
        assert (goodput[:, 0] >= goodput.max(axis=1) - 1e-4).all()


@pytest.mark.parametrize("given", [{"interval_s": 60.0}, {"interval_steps": 5}])
def test_the_automatic_interval_is_none_of_the_job(given: dict[str, object]) -> None:
    fields = {"num_gpus": [16], "checkpoint_schemes": ["async"], "checkpoint_intervals_s": ["auto", 60]}
    without, with_one = (
        sweep_rows(sweep, points_of(sweep))
        for sweep in (sweep_with(**fields), sweep_with(**fields, job=JOB | {"checkpointing": given}))
    )
    assert with_one == without
    assert number(with_one[0], "used_interval_s") > number(with_one[1], "used_interval_s")


def test_limits_of_the_job_are_not_applied() -> None:
    fields = {"num_gpus": [16], "checkpoint_schemes": ["async"], "checkpoint_intervals_s": ["auto"]}
    limited = JOB | {"limits": {"num_gpus": 8, "deadline_days": 1e-3, "budget_usd": 1.0}}
    without, with_some = (sweep_with(**fields, job=job) for job in (JOB, limited))
    assert sweep_rows(with_some, points_of(with_some)) == sweep_rows(without, points_of(without))
    assert [point.job.limits for point in points_of(with_some)] == [Limits()]


def schemes_job(**search: object) -> dict[str, object]:
    """A batch of 64 sequences that a few splits share, with what `search` says."""
    wide = {
        "micro_batch_sizes": [1],
        "tensor_parallel": [2, 4],
        "pipeline_parallel": [1, 2],
        "recompute": ["none"],
    }
    return JOB | {"search": wide | search}


def test_schemes_that_the_fastest_layout_cannot_have_run_on_the_fastest_that_can() -> None:
    """ZeRO-3 has no live replica and no whole gradients; ZeRO-0 takes more memory and has both."""
    schemes = ["async", "replica_ft", "gradient_replica"]
    sweep = sweep_with(
        job=schemes_job(zero_stages=[0, 3]), checkpoint_schemes=schemes, checkpoint_intervals_s=["auto"]
    )
    num_elsewhere = 0
    for point in points_of(sweep):
        assert point.result is not None
        assert point.broken == {}
        search = point.job.search.model_copy(update={"checkpoint_schemes": tuple(CheckpointScheme)})
        job = point.job.model_copy(update={"search": search})
        result = evaluate(job, cross_run_knobs(job, enumerate_layouts(job)))
        fits = (result.excess.memory == 0.0) & (result.excess.host_memory == 0.0)
        for row, scheme in enumerate(schemes):
            own = fits & (result.plans.checkpoint_scheme == CheckpointScheme(scheme).code)
            step_s = point.result.outcomes.steps.step_time_s[row]
            assert step_s == result.outcomes.steps.step_time_s[own].min()
            num_elsewhere += step_s > result.outcomes.steps.step_time_s[fits].min()
        assert is_valid_layout(job, point.result.plans).all()
    shown = rendered(lambda console: show_sweep(sweep, sweep_rows(sweep, points_of(sweep)), console))
    assert shown.count("*") == num_elsewhere + (num_elsewhere > 0)


def test_schemes_that_no_layout_can_have_are_named_with_the_constraint(tmp_path: Path) -> None:
    sweep = sweep_with(
        job=schemes_job(zero_stages=[3]),
        num_gpus=[8],
        checkpoint_schemes=["replica_ft", "async", "in_memory_peer"],
        checkpoint_intervals_s=["auto", 600],
    )
    rows = sweep_rows(sweep, points_of(sweep))
    assert [row["broken_constraint"] for row in rows] == [
        *("live_replica", "live_replica", "", "", "peer_memory", "peer_memory")
    ]
    assert [row["checkpoint_interval_s"] for row in rows] == ["auto", "600.0"] * 3
    for row in rows:
        assert row["num_gpus"] == 8
        assert (row["goodput_fraction"] is None) == (row["checkpoint_scheme"] != "async")
    assert list(best_by_scheme(rows)) == ["async"]
    shown = rendered(lambda console: show_sweep(sweep, rows, console))
    assert shown.startswith("test: 2 designs\n")
    assert "violates live_replica: checkpoint_scheme just_in_time or" in " ".join(shown.split())
    write_rows(rows, tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [(row["broken_constraint"], row["goodput_fraction"] == "") for row in written[1:4]] == [
        ("live_replica", True),
        ("", False),
        ("", False),
    ]


def test_saves_that_no_main_memory_holds_are_named() -> None:
    """Peers hold copies of one another: 112 GB of weights and states twice, on two nodes of 80 GB."""
    node = catalog.node("dgx-h100").model_dump(mode="json") | {"host_memory_bytes": 80e9}
    offer = {"accelerator": "h100-sxm5-80gb", "num_gpus": 8, "rent_usd_per_gpu_hour": 2.0, "node": node}
    small = schemes_job() | {"offers": [offer]}
    sweep = sweep_with(job=small, num_gpus=[16], checkpoint_schemes=["sync", "in_memory_peer"])
    (point,) = points_of(sweep)
    assert point.broken == {CheckpointScheme.IN_MEMORY_PEER: "host_memory"}


def test_no_layout_of_a_size_is_faster_than_the_chosen_one() -> None:
    narrow = sweep_with(job=JOB | {"search": {"micro_batch_sizes": [1], "tensor_parallel": [2]}})
    for wide_point, narrow_point in zip(points_of(sweep_with()), points_of(narrow), strict=True):
        assert wide_point.result is not None
        assert narrow_point.result is not None
        wide_s = wide_point.result.outcomes.steps.step_time_s[0]
        assert wide_s <= narrow_point.result.outcomes.steps.step_time_s[0]


def test_axes_are_fields_of_the_job() -> None:
    sweep = sweep_with(
        axes={"reliability": ["mature", "harsh"], "offers[0].rent_usd_per_gpu_hour": [1.0, 2.0]},
        num_gpus=[16],
        checkpoint_intervals_s=["auto"],
    )
    rows = [row for row in sweep_rows(sweep, points_of(sweep)) if row["checkpoint_scheme"] == "async"]
    assert [(row["reliability"], row["offers[0].rent_usd_per_gpu_hour"]) for row in rows] == [
        ("mature", 1.0),
        ("mature", 2.0),
        ("harsh", 1.0),
        ("harsh", 2.0),
    ]
    assert number(rows[0], "goodput_fraction") > number(rows[2], "goodput_fraction")
    assert number(rows[1], "cost_usd") == pytest.approx(2.0 * number(rows[0], "cost_usd"))


def test_an_axis_may_leave_a_field_out() -> None:
    axes = {
        "workload.lora": [None, {"rank": 16, "targets": ["linear_qkv"]}],
        "reliability": [{"preset": "typical", "straggler_log_mean": None}],
    }
    sweep = sweep_with(
        axes=axes, num_gpus=[16], checkpoint_intervals_s=["auto"], checkpoint_schemes=["async"]
    )
    points = points_of(sweep)
    lora = [point.job.workload.lora for point in points]
    assert lora[0] is None
    assert lora[1] is not None
    assert lora[1].rank == 16
    shown = rendered(lambda console: show_sweep(sweep, sweep_rows(sweep, points), console))
    assert "workload.lora = null, " in shown
    last = 'reliability = {"preset": "typical", "straggler_log_mean": null}'
    assert list(empty_points(sweep, [])) == [
        f"16 GPUs (workload.lora = null, {last})",
        f'16 GPUs (workload.lora = {{"rank": 16, "targets": ["linear_qkv"]}}, {last})',
    ]


def test_a_size_at_which_nothing_fits_has_no_rows() -> None:
    sweep = sweep_with(axes={"workload.model": ["llama-3.1-405b"]}, num_gpus=[8])
    points = points_of(sweep)
    assert points[0].result is None
    assert sweep_rows(sweep, points) == []


def test_sizes_at_which_nothing_fits_are_named() -> None:
    # 405e9 weights of 2 bytes alone are 810 GB, more than the 8 x 80 GiB of a node; 8e9 with all states are 144 GB at most.
    models = {"workload.model": ["llama-3.1-8b", "llama-3.1-405b"]}
    sweep = sweep_with(
        axes=models, num_gpus=[8], checkpoint_intervals_s=["auto"], checkpoint_schemes=["async"]
    )
    rows = sweep_rows(sweep, points_of(sweep))
    assert list(empty_points(sweep, rows)) == ["8 GPUs (workload.model = llama-3.1-405b)"]
    said = rendered(lambda console: show_sweep(sweep, rows, console))
    assert "test: 1 design\n" in said
    assert "\nAt workload.model = llama-3.1-8b\n" in said
    assert f"{NO_LAYOUT} at 8 GPUs (workload.model = llama-3.1-405b); " in " ".join(said.split())
    assert "No layout" not in rendered(lambda console: show_sweep(sweep, rows, console, is_whole=False))


def test_sizes_that_are_no_whole_nodes_are_refused_with_the_nearest_ones() -> None:
    rule = r"num_gpus\[1\] = 20: must be a multiple of a node's 8 accelerators; nearest: 16, 24"
    with pytest.raises(InputError, match=rule):
        points_of(sweep_with(num_gpus=[8, 20]))
    with pytest.raises(InputError, match=r"num_gpus\[0\] = 4: .*; nearest: 8$"):
        points_of(sweep_with(num_gpus=[4]))


def test_a_size_is_tried_that_is_whole_nodes_of_one_of_several_offers() -> None:
    four = {"accelerator": "gb200", "num_gpus": 4, "rent_usd_per_gpu_hour": 4.0}
    job = {**JOB, "offers": [*cast(list[object], JOB["offers"]), four]}
    (point,) = points_of(sweep_with(job=job, num_gpus=[4], checkpoint_schemes=["async"]))
    assert point.job.offers[1].num_gpus.max == 4


def test_rows_agree_with_the_simulation_they_come_from() -> None:
    sweep = sweep_with(checkpoint_intervals_s=["auto"], checkpoint_schemes=["async"])
    points = points_of(sweep)
    for row, point in zip(sweep_rows(sweep, points), points, strict=True):
        assert point.result is not None
        run = point.result.outcomes.run
        assert is_auto(row)
        assert number(row, "effective_tokens_per_s") == pytest.approx(2e11 / run.wall_time_s[0])
        assert run.straggler_s[0] > 0.0
        healthy_s = run.productive_s[0] + run.straggler_s[0]
        assert number(row, "tokens_per_s") == pytest.approx(2e11 / healthy_s)
        assert number(row, "effective_tokens_per_s") < number(row, "tokens_per_s")
        assert number(row, "checkpoint_bytes_per_gpu") == pytest.approx(
            14 * point.job.workload.model.num_parameters / point.result.plans.num_gpus[0]
        )


def test_rows_have_the_figures_that_simulate_gives() -> None:
    sweep = sweep_with(checkpoint_intervals_s=["auto"], checkpoint_schemes=["async"], num_gpus=[16])
    (point,) = points_of(sweep)
    (row,) = sweep_rows(sweep, [point])
    assert point.result is not None
    plan = point.result.plans.plan(0).model_dump(exclude_unset=True)
    design = simulate_plan(point.job, plan, with_sensitivities=False).design
    assert design is not None
    for name in (
        "time_to_train_days",
        "energy_kwh",
        "cost_usd",
        "carbon_kgco2e",
        "mfu_fraction",
        "num_failures",
    ):
        assert number(row, name) == pytest.approx(getattr(design, name), rel=1e-9)
    spent_s = design.run_seconds
    away_s = spent_s["restart_s"] + spent_s["replacement_wait_s"] + spent_s["checkpoint_restore_s"]
    assert number(row, "way_back_s") == pytest.approx(away_s, rel=1e-9)
    assert number(row, "time_to_train_p95_days") > number(row, "time_to_train_days")
    # A node writes the states of its eight accelerators; meanwhile training goes on, but for their copy to the host.
    written_s = 8 * number(row, "checkpoint_bytes_per_gpu") / point.job.storage.write_bytes_per_s_per_node
    assert number(row, "commit_s") == pytest.approx(written_s, rel=1e-9)
    num_saves = number(row, "wall_time_s") / number(row, "used_interval_s")
    assert number(row, "checkpoint_stall_s") == pytest.approx(num_saves * number(row, "stall_s"), rel=0.01)


def test_the_best_row_of_a_scheme_has_its_largest_goodput() -> None:
    sweep = sweep_with(num_gpus=[64])
    rows = sweep_rows(sweep, points_of(sweep))
    best = best_by_scheme(rows)
    for scheme in ("async", "in_memory_peer"):
        own = [number(row, "goodput_fraction") for row in rows if row["checkpoint_scheme"] == scheme]
        assert number(best[scheme], "goodput_fraction") == np.max(own)


def test_a_file_with_mistakes_names_all_of_them(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("job: {}\nnum_gpus: [0]\ncheckpoint_schemes: [daily]\ncolour: red\n")
    with pytest.raises(InputError) as caught:
        load_sweep(file)
    assert {problem.path for problem in caught.value.problems} == {
        "num_gpus[0]",
        "checkpoint_schemes[0]",
        "colour",
    }


def test_a_number_that_is_none_does_not_leave_out_a_field(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("job: {}\nnum_gpus: [8]\ncheckpoint_schemes: [sync]\ncalibration: .nan\n")
    with pytest.raises(InputError, match="calibration = nan: must be a finite number"):
        load_sweep(file)


def test_a_field_of_several_types_is_named_once_with_what_each_wants(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "job: {}\nnum_gpus: [8]\ncheckpoint_schemes: [sync]\ncheckpoint_intervals_s: [60, -1, 'daily']\n"
    )
    with pytest.raises(InputError) as caught:
        load_sweep(file)
    assert [(problem.path, problem.rule) for problem in caught.value.problems] == [
        ("checkpoint_intervals_s[1]", "must be greater than 0, or must be 'auto'"),
        ("checkpoint_intervals_s[2]", "must be a number, or must be 'auto'"),
    ]


def test_a_size_that_no_offer_can_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text("job: {}\nnum_gpus: [8, 1000008]\ncheckpoint_schemes: [sync]\n")
    with pytest.raises(InputError, match=r"num_gpus\[1\] = 1000008: must be at most 1000000"):
        load_sweep(file)


def test_a_grid_that_would_take_days_is_refused() -> None:
    sweep = sweep_with(num_gpus=range(8, 8008, 8), axes={"workload.tokens": [*range(1, 200)]})
    with pytest.raises(InputError, match=r"axes = 199,000 points: must make at most 100,000 points"):
        next(run_sweep(sweep))


def test_an_axis_without_values_is_refused() -> None:
    with pytest.raises(InputError, match=r"axes\.workload\.tokens = \[\]: has no value to try"):
        points_of(sweep_with(axes={"workload.tokens": []}))


def test_calibrations_of_an_axis_are_refused_beside_one_for_all_points() -> None:
    sweep = sweep_with(axes={"calibration": ("own.yaml", None)}, calibration="cal.yaml")
    with pytest.raises(InputError, match=r"axes\.calibration: stands beside calibration: cal.yaml"):
        next(run_sweep(sweep))


def test_an_axis_that_is_no_field_of_the_job_is_named() -> None:
    with pytest.raises(InputError, match=r"workload\.modle"):
        points_of(sweep_with(axes={"workload.modle": ["llama-3.1-8b"]}))
    with pytest.raises(InputError, match=r"axes = offers\.0\.num_gpus: must be the path of a field"):
        points_of(sweep_with(axes={"offers.0.num_gpus": [8]}))


def test_paths_of_a_sweep_start_at_its_file_from_whatever_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_with(num_gpus=[16], checkpoint_intervals_s=["auto"]).model_dump(mode="json")
    (tmp_path / "job.json").write_text(json.dumps(sweep["job"]))
    (tmp_path / "sweep.json").write_text(json.dumps({**sweep, "job": "job.json"}))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = load_sweep("../sweep.json")
    assert [point.job.name for point in run_sweep(found)] == ["job"]
    with pytest.raises(InputError, match=r"job\.json.*\n.*cannot be read"):
        next(run_sweep(found, folder=Path()))


@pytest.mark.parametrize("fields", [{"calibration": "own.json"}, {"job": JOB | {"calibration": "own.json"}}])
def test_calibrations_of_a_sweep_and_of_its_job_lie_in_the_folder_of_the_sweep(
    fields: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "own.json").write_text("{}")
    with pytest.raises(InputError, match="calibration") as caught:
        next(run_sweep(sweep_with(**fields), folder=tmp_path))
    assert "No such file" not in str(caught.value)


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    document = sweep_with(num_gpus=[16], checkpoint_intervals_s=["auto"]).model_dump(mode="json")
    file = tmp_path / "small.json"
    file.write_text(json.dumps(document))
    return file


def test_the_command_writes_what_it_shows(
    sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "rows.csv"
    assert main(["sweep", str(sweep_file), "--output", str(output), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    with output.open(encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert [float(row["goodput_fraction"]) for row in written] == [row["goodput_fraction"] for row in rows]
    assert main(["sweep", str(sweep_file)]) == 0
    assert f"{rows[0]['goodput_fraction'] * 100:.2f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reliability", "endless"),
    [("typical", []), ({"preset": "typical", "failures_per_1000_node_days": 10_000}, ["none"])],
)
def test_json_has_null_for_saves_that_never_come_and_runs_that_never_end(
    reliability: object, endless: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON has no infinity (RFC 8259, section 6)."""
    schemes = {"num_gpus": [16], "checkpoint_schemes": ["none"], "checkpoint_intervals_s": ["auto"]}
    sweep = sweep_with(**schemes, job=JOB | {"reliability": reliability}).model_dump(mode="json")
    file = tmp_path / "small.json"
    file.write_text(json.dumps(sweep))
    assert main(["sweep", str(file), "--json"]) == 0
    shown = capsys.readouterr().out
    constants: list[str] = []
    (row,) = json.loads(shown, parse_constant=constants.append)["rows"]
    assert constants == []
    assert row["used_interval_s"] is None
    assert [row["checkpoint_scheme"]] * (row["wall_time_s"] is None) == endless


def test_the_command_overwrites_nothing(
    sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "rows.csv"
    output.write_text("mine")
    assert main(["sweep", str(sweep_file), "--output", str(output)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert output.read_text() == "mine"


def test_a_sweep_whose_file_cannot_be_written_is_shown_all_the_same(
    sweep_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("planner.sweep.table.write_rows", full_disk)
    output = tmp_path / "rows.csv"
    assert main(["sweep", str(sweep_file), "--output", str(output), "--json"]) == 1
    shown = capsys.readouterr()
    assert len(json.loads(shown.out)["rows"]) > 0
    assert f"--output = {output}: cannot be written: No space left on device" in shown.err
