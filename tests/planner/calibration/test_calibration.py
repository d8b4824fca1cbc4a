"""Does calibration recover a cluster's constants and refuse bad rows, and do all commands use the calibration?"""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from rich.console import Console

from benchmarks.calibration_example import (
    ACCELERATOR,
    NOISE,
    TRUE_CONSTANTS,
    made_up_rows,
)
from objectives.unsure_inputs import step_error_of
from planner import calibrate, load_calibration
from planner.calibration.answer import CalibrationAnswer
from planner.calibration.file import calibration_text, write_calibration
from planner.calibration.notes import calibration_notes
from planner.calibration.notes import calibration_text as calibration_text_of
from planner.calibration.residuals import REPEAT_DEVIATION, residuals_of
from planner.calibration.rows import usable_rows
from planner.calibration.unknowns import Unknown, unknowns_of
from planner.calibration.view import show_calibration
from planner.cli.commands import main
from planner.cli.terminal.exit_codes import BROKEN_INPUT, OK
from planner.job.file import parse_job
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import compare, fleet_slowdown
from planner.report.front import step_intervals
from planner.uncertain.uncertainty import accuracy_of
from planner.validation.comparison import Modelled, entries_of
from simulator.catalog import accelerator
from simulator.domain.calibration import SOFTWARE, CalibratedConstant, Calibration, ConstantName
from simulator.domain.hardware import Precision
from simulator.errors import InputError
from simulator.machine.training import training_constants
from simulator.simulate import simulate
from studies.files.identity import Identity
from tests.planner.calibrations import calibration_with
from tests.planner.hand_made import recommended
from tests.support import A100_RENTED, H100_RENTED, document_with, job_with, plans_with

EXAMPLE = Path(__file__).parents[3] / "examples" / "calibration" / "steps.csv"
Rows = Sequence[Mapping[str, object]]


def written(folder: Path, rows: Rows) -> Path:
    path = folder / "steps.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return made_up_rows()


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory, rows: Rows) -> CalibrationAnswer:
    return calibrate(written(tmp_path_factory.mktemp("measured"), rows), date="2026-05-01")


@pytest.fixture
def file(tmp_path: Path, answer: CalibrationAnswer) -> Path:
    path = tmp_path / "calibration.yaml"
    write_calibration(answer.calibration, path)
    return path


def test_the_constants_of_a_made_up_cluster_are_found_again(answer: CalibrationAnswer) -> None:
    found = {one.name: one for one in answer.calibration.constants}
    assert found.keys() == TRUE_CONSTANTS.keys()
    for name, truth in TRUE_CONSTANTS.items():
        # log_deviation is for steps that are off by 5 %; these are off by 2 %, but the expectation pulls as well.
        assert abs(math.log(found[name].value / truth)) < 2.0 * found[name].log_deviation
        assert abs(found[name].value - truth) < abs(found[name].published - truth) / 3


def test_configurations_that_were_left_out_are_simulated_as_well_as_noise_allows(
    answer: CalibrationAnswer,
) -> None:
    found = answer.calibration
    mean_of_noise = NOISE * math.sqrt(2.0 / math.pi)  # of the size of a normal deviate
    assert found.error_before_fraction > 0.1
    assert found.error_after_fraction < found.error_left_out_fraction < 2.0 * mean_of_noise
    # Every configuration draws the constants towards itself (its leverage is above 0).
    for row in answer.rows:
        assert abs(math.log1p(row.error_left_out_fraction)) > 1.02 * abs(math.log1p(row.error_after_fraction))
    (residuals,) = found.residuals
    assert residuals.num_configurations == len(answer.rows) == 16
    assert residuals.own_log_deviation == pytest.approx(REPEAT_DEVIATION, rel=0.3)


def test_what_the_steps_cannot_tell_stays_as_published_and_is_named(answer: CalibrationAnswer) -> None:
    held = {one.name: one for one in answer.held}
    assert held.keys() == {f"{ACCELERATOR} memory_fraction", "host_launch_s"}
    assert held["host_launch_s"].value == training_constants().launch_s


def test_a_constant_takes_two_configurations(tmp_path: Path, rows: Rows) -> None:
    found = calibrate(written(tmp_path, rows[:5]))
    assert len(found.calibration.constants) == 2
    assert [one.name for one in found.held if one.why == "there are too few configurations"] == [
        f"{ACCELERATOR} inter_link_ratio"
    ]


def test_steps_of_one_layout_cannot_tell_clocks_from_links(tmp_path: Path, rows: Rows) -> None:
    time_s = float(str(rows[2]["step_time_s"]))
    sizes = [
        {**rows[2], "id": str(size), "global_batch": 64 * size, "step_time_s": time_s * size}
        for size in range(1, 7)
    ]
    found = calibrate(written(tmp_path, sizes))
    (link,) = found.calibration.constants
    assert link.name is ConstantName.INTRA_LINK_RATIO
    whys = {one.name: one.why for one in found.held}
    assert whys[f"{ACCELERATOR} bf16 sustained_fraction"] == "the steps cannot separate it from the others"
    assert whys[f"{ACCELERATOR} inter_link_ratio"] == "the steps hardly depend on it"  # eight of one node


@pytest.mark.long
def test_the_shipped_example_is_found_again_as_its_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--measured", str(EXAMPLE), "--json", "--quiet"]) == OK
    found = json.loads(capsys.readouterr().out)["calibration"]
    assert found["error_left_out_fraction"] < 0.03
    assert found["error_before_fraction"] > 0.1
    values = {one["name"]: one["value"] for one in found["constants"]}
    for name, truth in TRUE_CONSTANTS.items():
        assert values[name.value] == pytest.approx(truth, rel=0.1)


def test_the_rows_that_the_page_shows_are_those_of_the_shipped_example() -> None:
    page = (EXAMPLE.parents[2] / "docs" / "calibrate.md").read_text(encoding="utf-8")
    shown = [
        line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(("| id |", "| run-"))
    ]
    with EXAMPLE.open(encoding="utf-8") as file:
        shipped = {row["id"]: row for row in csv.DictReader(file)}
    head, *rows = shown
    assert len(rows) == 2
    for row in rows:
        assert dict(zip(head, row, strict=True)) == {name: shipped[row[0]][name] for name in head}


def test_steps_that_are_as_published_move_nothing_far(tmp_path: Path, rows: Rows) -> None:
    some = rows[::2]
    read = [row for row in read_measured(written(tmp_path, some)) if not isinstance(row, Unmodelled)]
    simulated = compare(read)
    as_published = [
        {**row, "step_time_s": found.simulated_s} for row, found in zip(some, simulated, strict=True)
    ]
    found = calibrate(written(tmp_path, as_published)).calibration
    for one in found.constants:
        assert one.value == pytest.approx(one.published, rel=1e-3)
    assert found.error_left_out_fraction < 1e-3


def test_the_file_of_a_calibration_reads_back_the_same(answer: CalibrationAnswer, file: Path) -> None:
    assert load_calibration(file) == answer.calibration
    assert answer.calibration.date == "2026-05-01"
    with pytest.raises(InputError, match="never overwritten"):
        write_calibration(answer.calibration, file)


def test_a_file_that_cannot_be_written_leaves_no_half_of_it(
    answer: CalibrationAnswer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writes_half(path: Path, text: str, **_: str) -> None:
        path.write_bytes(text[: len(text) // 2].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", writes_half)
    with pytest.raises(InputError, match=r"cluster\.yaml.*No space left"):
        write_calibration(answer.calibration, tmp_path / "cluster.yaml")
    assert not list(tmp_path.iterdir())


def test_a_file_lies_in_a_folder_that_exists(answer: CalibrationAnswer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no/cluster\.yaml: must lie in a folder that exists"):
        write_calibration(answer.calibration, tmp_path / "no" / "cluster.yaml")


def test_a_job_is_no_calibration() -> None:
    with pytest.raises(InputError, match="must be a calibration file: what `capplan calibrate"):
        load_calibration(Path(__file__).parents[3] / "examples" / "bloom-176b.yaml")


def refuses(folder: Path, rows: Rows, match: str, accelerator_name: str | None = None) -> None:
    with pytest.raises(InputError, match=match):
        calibrate(written(folder, rows), accelerator=accelerator_name)


def test_too_few_rows_are_refused_with_the_way_out(tmp_path: Path, rows: Rows) -> None:
    refuses(tmp_path, rows[:2], r"at least 3 distinct configurations .* usable: 2 of h100-sxm5-80gb")
    assert calibrate(written(tmp_path, rows[:3])).calibration.num_configurations == 3


def test_rows_of_another_accelerator_are_refused(tmp_path: Path, rows: Rows) -> None:
    refuses(
        tmp_path,
        rows,
        r"usable: none \(16 x measured on h100-sxm5-80gb, not on a100",
        accelerator_name="A100-80GB",
    )


def test_constants_are_those_of_what_some_row_has(tmp_path: Path, rows: Rows) -> None:
    mixed = [
        rows[0],
        {**rows[1], "framework": "NeMo"},  # hides sums of tensor parallelism
        {**rows[2], "framework": "Megatron-LM 2022"},
        {**rows[3], "precision": "fp16"},  # at the rate of bf16
        {**rows[4], "gpu": "A100-80GB", "step_time_s": 4.0},
        {**rows[5], "gpu": "H200", "precision": "fp8", "step_time_s": 2.0},
    ]
    read = [row for row in read_measured(written(tmp_path, mixed)) if not isinstance(row, Unmodelled)]
    assert [one.words for one in unknowns_of(read)] == [
        "a100-sxm4-80gb bf16 sustained_fraction",
        "a100-sxm4-80gb memory_fraction",
        "a100-sxm4-80gb intra_link_ratio",
        "a100-sxm4-80gb inter_link_ratio",
        "h100-sxm5-80gb bf16 sustained_fraction",
        "h100-sxm5-80gb memory_fraction",
        "h100-sxm5-80gb intra_link_ratio",
        "h100-sxm5-80gb inter_link_ratio",
        "h200-sxm-141gb fp8 sustained_fraction",
        "h200-sxm-141gb memory_fraction",
        "h200-sxm-141gb intra_link_ratio",
        "h200-sxm-141gb inter_link_ratio",
        "host_launch_s",
        "early_host_launch_s",
        "hidden_tensor_fraction",
    ]


def test_published_constants_are_of_the_number_format() -> None:
    chip, constants = accelerator("h200-sxm-141gb"), training_constants()
    row = {"accelerator": chip.id, "kernel_launch": "", "overlaps_tensor_comm": "false"}
    in_16_bits, in_8_bits = (unknowns_of([{**row, "precision": name}])[0] for name in ("bf16", "fp8"))
    assert in_16_bits.published == constants.sustained([chip], [Precision.BF16])[0]
    assert in_8_bits.published == constants.sustained([chip], [Precision.FP8])[0] != in_16_bits.published


def test_a_fitted_constant_is_inside_its_range() -> None:
    unknown = Unknown(name=ConstantName.HIDDEN_TENSOR_FRACTION, published=0.5)
    assert unknown.fitted(1.0, 0.12345).value == 0.95
    assert unknown.fitted(1e-9, 0.12345).value == 0.05
    assert unknown.fitted(0.6, 0.12345).log_deviation == 0.123
    # Links may be faster than the published efficiency of their kind.
    link = Unknown(name=ConstantName.INTRA_LINK_RATIO, accelerator=ACCELERATOR, published=1.0)
    assert link.fitted(1.2, 0.0).value == 1.2


def test_rows_without_a_time_are_refused(tmp_path: Path, rows: Rows) -> None:
    refuses(tmp_path, [{**row, "step_time_s": ""} for row in rows], "16 x no step time")


def test_measurements_that_contradict_each_other_are_refused_by_name(tmp_path: Path, rows: Rows) -> None:
    again = {**rows[0], "id": "again", "step_time_s": 1.51 * float(str(rows[0]["step_time_s"]))}
    refuses(tmp_path, [*rows[:4], again], r"again and run-01 .*contradict each other")


@pytest.mark.parametrize(("ratio", "is_told"), [(1.14, False), (1.16, True), (1.49, True)])
def test_measurements_that_differ_by_as_much_as_no_repeat_does_are_told(
    tmp_path: Path, rows: Rows, ratio: float, is_told: bool
) -> None:
    again = {**rows[0], "id": "again", "step_time_s": ratio * float(str(rows[0]["step_time_s"]))}
    warnings = usable_rows(written(tmp_path, [*rows[:8], again]), None).warnings
    told = f"again and run-01 are measurements of the same configuration and differ by {ratio - 1.0:.1%}."
    assert warnings == ((told.replace("%", " %"),) if is_told else ())


def test_the_first_five_contradictions_are_told(tmp_path: Path, rows: Rows) -> None:
    slower = [
        {**row, "id": f"again-{row['id']}", "step_time_s": 2 * float(str(row["step_time_s"]))} for row in rows
    ]
    with pytest.raises(InputError) as refused:
        usable_rows(written(tmp_path, [*rows[:6], *slower[:6]]), None)
    pairs = [f"again-run-0{number} and run-0{number}" for number in range(1, 6)]
    assert [problem.path for problem in refused.value.problems] == pairs


def test_a_configuration_that_was_measured_twice_takes_the_mean(tmp_path: Path, rows: Rows) -> None:
    first_s = float(str(rows[0]["step_time_s"]))
    again = {**rows[0], "id": "again", "step_time_s": 1.1 * first_s}
    steps = usable_rows(written(tmp_path, [*rows[:3], again]), None).steps
    assert steps.measured_s[0] == pytest.approx(1.05 * first_s)


def test_averages_of_production_runs_are_without_the_stragglers_of_the_fleet(
    tmp_path: Path, rows: Rows
) -> None:
    of_a_run = [{**row, "metric_kind": "whole-run average"} for row in rows[:3]]
    steady, whole = (
        usable_rows(written(tmp_path, some), None).steps.measured_s for some in (rows[:3], of_a_run)
    )
    slowdowns = [fleet_slowdown(int(str(row["n_gpus"]))) for row in rows[:3]]
    assert min(slowdowns) > 1.05
    assert steady / whole == pytest.approx(slowdowns)


@pytest.mark.parametrize(("count", "num_notes"), [(7, 1), (8, 0)])
def test_fewer_than_eight_configurations_are_told(
    tmp_path: Path, rows: Rows, count: int, num_notes: int
) -> None:
    again = {**rows[0], "id": "again"}  # measured twice, which is still one
    notes = usable_rows(written(tmp_path, [*rows[:count], again]), None).warnings
    assert [f"has only {count} configurations" in note for note in notes] == [True] * num_notes


@pytest.mark.parametrize(
    ("others", "more"),
    [
        (("A100-80GB", "A100-40GB", "H200", "B200", "MI300X"), ""),
        (("A100-80GB", "A100-40GB", "H200", "B200", "MI300X", "V100"), "; 1 more reason"),
        (("A100-80GB", "A100-40GB", "H200", "B200", "MI300X", "V100", "GH200"), "; 2 more reasons"),
    ],
)
def test_the_commonest_five_reasons_are_named(
    tmp_path: Path, rows: Rows, others: Sequence[str], more: str
) -> None:
    of_others = [{**rows[8], "gpu": name, "step_time_s": 40} for name in (*others, "H200")]
    (note,) = usable_rows(written(tmp_path, [*rows[:8], *of_others]), ACCELERATOR).warnings
    first = (
        f"Rows that are not used: {len(of_others)} (2 x measured on h200-sxm-141gb, not on {ACCELERATOR}; "
    )
    assert note.startswith(first)
    assert note.count("measured on") == 5
    assert note.endswith(f", not on {ACCELERATOR}{more}).")


def test_a_column_that_looks_like_one_that_is_read_is_told(tmp_path: Path, rows: Rows) -> None:
    wide = [{**row, "atention": "", "hostname": "a"} for row in rows[:8]]
    (note,) = usable_rows(written(tmp_path, wide), None).warnings
    assert note == "The column 'atention' is not read; did you mean attention?"


def test_a_misspelt_column_is_told_where_it_leaves_too_few_rows(tmp_path: Path, rows: Rows) -> None:
    renamed = [{name.replace("step_time_s", "step_time"): cell for name, cell in row.items()} for row in rows]
    rule = "no step time.*; the column 'step_time' is not read; did you mean step_time_s?"
    with pytest.raises(InputError, match=rule):
        usable_rows(written(tmp_path, renamed), None)


def test_measurements_that_differ_little_are_one_configuration_with_a_warning(
    tmp_path: Path, rows: Rows
) -> None:
    again = {**rows[0], "id": "again", "step_time_s": 1.2 * float(str(rows[0]["step_time_s"]))}
    found = calibrate(written(tmp_path, [*rows[:6], again]))
    assert (found.calibration.num_rows, found.calibration.num_configurations) == (7, 6)
    assert any("again and run-01" in note and "20.0 %" in note for note in found.warnings)
    assert any("only 6 configurations" in note for note in found.warnings)


@pytest.mark.long
def test_a_row_that_the_others_do_not_explain_is_named(tmp_path: Path, rows: Rows) -> None:
    odd = {**rows[2], "step_time_s": 3.0 * float(str(rows[2]["step_time_s"]))}
    found = calibrate(written(tmp_path, [odd if row is rows[2] else row for row in rows]))
    assert any("do not explain run-03 (-6" in note for note in found.warnings)
    # Soft L1 damps it: the clocks stay within a tenth of the truth.
    (clocks,) = [one for one in found.calibration.constants if one.name is ConstantName.SUSTAINED_FRACTION]
    assert clocks.value == pytest.approx(TRUE_CONSTANTS[ConstantName.SUSTAINED_FRACTION], rel=0.1)


def test_a_row_that_is_off_by_less_than_a_fifth_is_not_named(tmp_path: Path, rows: Rows) -> None:
    odd = {**rows[2], "step_time_s": 1.15 * float(str(rows[2]["step_time_s"]))}
    found = calibrate(written(tmp_path, [odd if row is rows[2] else row for row in rows]))
    errors = [abs(row.error_left_out_fraction) for row in found.rows]
    assert errors[2] > 5 * sorted(errors)[len(errors) // 2]  # far more than the others
    assert found.warnings == ()


def test_frameworks_that_differ_as_no_constant_explains_are_named(tmp_path: Path, rows: Rows) -> None:
    mixed = [{**row, "framework": ("Megatron-LM", "DeepSpeed")[at % 2]} for at, row in enumerate(rows)]
    read = [row for row in read_measured(written(tmp_path, mixed)) if not isinstance(row, Unmodelled)]
    simulated_s = [found.simulated_s for found in compare(read)]
    for slower, is_named in ((1.0, False), (1.3, True)):
        times_s = [time_s * (slower if at % 2 else 1.0) for at, time_s in enumerate(simulated_s)]
        timed = [{**row, "step_time_s": time_s} for row, time_s in zip(mixed, times_s, strict=True)]
        found = calibrate(written(tmp_path, timed))
        assert any("left out of the fit: DeepSpeed -" in note for note in found.warnings) is is_named


def near(rows: Rows, num_sizes: int) -> list[dict[str, object]]:
    """Four layouts on 8 and 16 accelerators, which are fast to fit, each with several batch sizes."""
    return [
        {**row, "id": f"{row['id']}-{size}", "global_batch": size * int(str(row["global_batch"]))}
        for size in range(1, num_sizes + 1)
        for row in rows[:4]
    ]


def as_published(folder: Path, rows: Rows, times: Sequence[float]) -> CalibrationAnswer:
    """The answer for steps that take as long as published constants say, times a factor for each."""
    read = [row for row in read_measured(written(folder, rows)) if not isinstance(row, Unmodelled)]
    timed = [
        {**row, "step_time_s": found.simulated_s * factor}
        for row, found, factor in zip(rows, compare(read), times, strict=True)
    ]
    return calibrate(written(folder, timed))


@pytest.mark.parametrize(
    ("framework", "times", "is_named"),
    [
        # Errors of 5 % around means that differ by 16 %: four standard errors.
        (
            "DeepSpeed",
            (1.05, 1 / 1.05, 1.05, 1 / 1.05, 1.16 * 1.05, 1.16 / 1.05, 1.16 * 1.05, 1.16 / 1.05),
            True,
        ),
        # Errors of a third around means that differ by less than three standard errors.
        ("DeepSpeed", (1.3, 1 / 1.3, 1.3, 1 / 1.3, 1.3, 1.5, 1 / 1.3, 1.3), False),
        # The difference is certain, and less than that of two releases.
        ("DeepSpeed", (1, 1, 1, 1, 1.035, 1.035, 1.035, 1.035), False),
        # Rows that do not say their framework are of none.
        ("", (1, 1, 1, 1, 1.3, 1.3, 1.3, 1.3), False),
    ],
)
def test_a_difference_of_frameworks_has_to_be_sure_and_more_than_that_of_releases(
    tmp_path: Path, rows: Rows, framework: str, times: Sequence[float], is_named: bool
) -> None:
    names = ["Megatron-LM"] * 4 + [framework] * 4
    mixed = [{**row, "framework": name} for row, name in zip(near(rows, 2), names, strict=True)]
    warnings = as_published(tmp_path, mixed, times).warnings
    assert any("No constant of the cluster explains" in note for note in warnings) is is_named


def test_steps_that_scatter_are_not_helped_leave_constants_unsure_and_name_no_row(
    tmp_path: Path, rows: Rows
) -> None:
    some = near(rows, 2)
    same, scattered = (
        as_published(tmp_path, some, times) for times in ((1.0,) * 8, (1.3, 1 / 1.3, 1.3, 1 / 1.3) * 2)
    )
    errors = scattered.calibration
    # Constants follow the rows that are there: without them it is worse, but not twice as bad.
    assert errors.error_before_fraction < errors.error_left_out_fraction < 2 * errors.error_before_fraction
    (note,) = scattered.warnings
    assert note.startswith("The calibration does not help: mean error")
    assert min(abs(row.error_left_out_fraction) for row in scattered.rows) > 0.2  # all are far off
    for sure, unsure in zip(same.calibration.constants, errors.constants, strict=True):
        assert unsure.log_deviation > 2.0 * sure.log_deviation


def test_the_worst_five_rows_are_named_worst_first(tmp_path: Path, rows: Rows) -> None:
    odd = {1: 2.0, 4: 2.4, 7: 3.0, 10: 2.8, 13: 2.6, 18: 3.2}
    found = as_published(tmp_path, near(rows, 5), [odd.get(at, 1.0) for at in range(20)])
    (note,) = (note for note in found.warnings if note.startswith("The other rows do not explain"))
    named = re.findall(r"run-\S+ \((-\d+) %\)", note)
    assert len(named) == 5
    assert named == sorted(named, key=int)
    assert " and 1 more: check layout" in note


def test_errors_are_those_of_the_rows(answer: CalibrationAnswer) -> None:
    found = answer.calibration
    for name in ("error_before_fraction", "error_after_fraction", "error_left_out_fraction"):
        of_rows = [abs(getattr(row, name)) for row in answer.rows]
        assert getattr(found, name) == pytest.approx(sum(of_rows) / len(of_rows), rel=1e-4)
    (residuals,) = found.residuals
    assert residuals.mean_absolute_error_fraction == pytest.approx(found.error_left_out_fraction, rel=1e-3)


def test_every_row_is_told_by_its_id(answer: CalibrationAnswer, rows: Rows) -> None:
    assert [row.id for row in answer.rows] == [row["id"] for row in rows]


def test_steps_that_are_too_fast_for_a_plausible_clock_say_so(tmp_path: Path, rows: Rows) -> None:
    warnings = as_published(tmp_path, near(rows, 1), (1 / 1.2,) * 4).warnings
    told = f"{ACCELERATOR} bf16 sustained_fraction is at the highest plausible value"
    assert any(note.startswith(told) for note in warnings)


def test_steps_without_a_date_are_of_the_day_on_which_their_file_was_written(
    tmp_path: Path, rows: Rows
) -> None:
    file = written(tmp_path, rows[:3])
    os.utime(file, (1.6e9, 1.6e9))  # seconds since 1970
    assert calibrate(file).calibration.date == "2020-09-13"


def test_a_table_is_named_by_its_file_however_long_the_name_is(tmp_path: Path, rows: Rows) -> None:
    file = written(tmp_path, rows[:3]).rename(tmp_path / f"{'x' * 240}.csv")
    assert calibrate(file).calibration.source == "x" * 200


def test_errors_that_most_steps_stay_within_are_shown_as_ratios(answer: CalibrationAnswer) -> None:
    wide = [
        one.model_copy(update={"interval_log_half_width": math.log(1.5)})
        for one in answer.calibration.residuals
    ]
    calibration = answer.calibration.model_copy(update={"residuals": tuple(wide)})
    text = io.StringIO()
    show_calibration(answer.model_copy(update={"calibration": calibration}), Console(file=text, width=120))
    (line,) = (line for line in text.getvalue().splitlines() if "80 % of errors within" in line)
    assert line.rstrip().endswith(" 50.0 %")


def test_two_configurations_of_a_framework_are_too_few_to_name_it(tmp_path: Path, rows: Rows) -> None:
    mixed = [{**row, "framework": "DeepSpeed" if at < 2 else "Megatron-LM"} for at, row in enumerate(rows)]
    read = [row for row in read_measured(written(tmp_path, mixed)) if not isinstance(row, Unmodelled)]
    timed = [
        {**row, "step_time_s": found.simulated_s * (1.3 if at < 2 else 1.0)}
        for at, (row, found) in enumerate(zip(mixed, compare(read), strict=True))
    ]
    warnings = calibrate(written(tmp_path, timed)).warnings
    assert not any("left out of the fit: DeepSpeed" in note for note in warnings)


def test_rows_that_are_not_used_are_counted_with_the_reason(tmp_path: Path, rows: Rows) -> None:
    without = {**rows[8], "step_time_s": ""}
    found = calibrate(written(tmp_path, [*rows[:8], without]))
    assert "Rows that are not used: 1 (1 x no step time)." in found.warnings


def test_a_second_accelerator_with_too_few_rows_is_left_out_and_said(tmp_path: Path, rows: Rows) -> None:
    slower = 4.0 * float(str(rows[0]["step_time_s"]))  # an A100 has less than a third of the peak of an H100
    other = {**rows[0], "id": "other", "gpu": "A100-80GB", "step_time_s": slower}
    found = calibrate(written(tmp_path, [*rows[:8], other]))
    assert found.calibration.accelerators == (ACCELERATOR,)
    told = "a100-sxm4-80gb is not calibrated: it has 1 configuration and needs at least 3."
    assert told in found.warnings
    assert (found.calibration.num_rows, found.calibration.num_left_out) == (8, 1)


def test_accelerators_that_are_fitted_together_share_the_constants_of_software(
    tmp_path: Path, rows: Rows
) -> None:
    others = [
        {
            **row,
            "id": f"a100-{row['id']}",
            "gpu": "A100-80GB",
            "step_time_s": 4.0 * float(str(row["step_time_s"])),
        }
        for row in rows[:3]
    ]
    found = calibrate(written(tmp_path, [*rows[:3], *others]))
    told = (
        "The rows cover 2 accelerators (a100-sxm4-80gb, h100-sxm5-80gb): each gets its own hardware constants"
    )
    assert any(note.startswith(told) for note in found.warnings)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"schema_version": 2}, "schema_version = 2: must be 1"),
        ({"source_sha256": "x"}, "source_sha256"),
        ({"nonsense": 1}, "nonsense = 1: unknown field; known: schema_version, source"),
        ({"constants": [{"name": "warp"}]}, r"constants\[0\].name = 'warp'"),
        ({"error_after_fraction": -1}, "error_after_fraction"),
        ({"idle_power_w": math.nan}, "idle_power_w = nan: must be a finite number"),
    ],
)
def test_a_broken_file_is_one_error_with_its_field(
    tmp_path: Path, answer: CalibrationAnswer, change: dict[str, object], rule: str
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({**answer.calibration.model_dump(mode="json"), **change}))
    with pytest.raises(InputError, match=rule):
        load_calibration(path)


@pytest.mark.parametrize(
    ("part", "name", "value", "rule"),
    [
        ("constants", "value", 1e-6, r"constants\[0\]: sustained_fraction \(1e-06\) must be from 0.001 to 1"),
        ("constants", "log_deviation", 1e300, r"constants\[0\].log_deviation = 1e\+300: must be at most 50"),
        (
            "residuals",
            "mean_absolute_error_fraction",
            1e308,
            r"residuals\[0\].mean_absolute_error_fraction = 1e\+308: must be at most 5e\+21",
        ),
        (
            "residuals",
            "bias_fraction",
            -1e308,
            r"residuals\[0\].bias_fraction = -1e\+308: must be at least -1",
        ),
        (
            "residuals",
            "interval_log_half_width",
            800.0,
            r"residuals\[0\].interval_log_half_width = 800: must be",
        ),
    ],
)
def test_a_figure_that_no_cluster_has_is_refused_where_it_stands(
    tmp_path: Path, answer: CalibrationAnswer, part: str, name: str, value: float, rule: str
) -> None:
    values = answer.calibration.model_dump(mode="json")
    values[part][0][name] = value
    path = tmp_path / "impossible.json"
    path.write_text(json.dumps(values))
    with pytest.raises(InputError, match=rule):
        load_calibration(path)


def test_a_constant_named_twice_is_refused(answer: CalibrationAnswer) -> None:
    values = answer.calibration.model_dump()
    values["constants"] = [*values["constants"], values["constants"][0]]
    with pytest.raises(ValueError, match=r"sustained_fraction .* twice"):
        Calibration.model_validate(values)


def test_a_slower_cluster_takes_longer_steps_and_is_another_study(answer: CalibrationAnswer) -> None:
    job = job_with(H100_RENTED)
    calibrated = job_with(H100_RENTED, calibration=answer.calibration)
    plans = plans_with({"tensor_parallel": 2, "num_gpus": 16})
    slower, published = (simulate(one, plans).steps.step_time_s[0] for one in (calibrated, job))
    assert slower > 1.1 * published
    one, other = Identity.of(calibrated, 0), Identity.of(job, 0)
    assert (one.simulation, one.job) != (other.simulation, other.job)
    assert one.simulation != other.simulation


def test_intervals_come_from_the_errors_of_the_calibration(answer: CalibrationAnswer) -> None:
    job = job_with(H100_RENTED, calibration=answer.calibration)
    plans = plans_with({"tensor_parallel": 2, "num_gpus": 16})
    (residuals,) = answer.calibration.residuals
    error = step_error_of(job, plans, 0)
    assert (error.shared_log_deviation, error.own_log_deviation) == (
        residuals.shared_log_deviation,
        residuals.own_log_deviation,
    )
    accuracy = accuracy_of(job, plans, 0)
    assert accuracy.mean_absolute_error_fraction == residuals.mean_absolute_error_fraction
    assert accuracy.compared_with == "runs of the calibration (steps.csv)"
    ends = {
        (found.low_fraction, found.high_fraction) for found in step_intervals(job, recommended()).values()
    }
    (interval,) = ends
    half_width = residuals.interval_log_half_width
    assert interval == pytest.approx((math.exp(-half_width), math.exp(half_width)))


@pytest.mark.long
def test_measured_rows_are_validated_with_their_own_intervals(
    tmp_path: Path, rows: Rows, answer: CalibrationAnswer
) -> None:
    read = read_measured(written(tmp_path, rows))
    entries = [one for one in entries_of(read, answer.calibration) if isinstance(one, Modelled)]
    (residuals,) = answer.calibration.residuals
    for entry in entries:
        half = math.log(entry.interval.high_s / entry.comparison.expected_s)
        assert half == pytest.approx(residuals.interval_log_half_width)
    assert 12 <= sum(entry.is_inside for entry in entries) <= 16


def test_the_half_width_is_the_order_statistic_of_the_errors(rows: Rows, tmp_path: Path) -> None:
    read = [row for row in read_measured(written(tmp_path, rows)) if not isinstance(row, Unmodelled)][:9]
    errors = np.array([0.01, -0.02, 0.03, -0.04, 0.05, -0.06, 0.07, -0.08, 0.09])
    (found,) = residuals_of(read, errors)
    assert found.interval_log_half_width == 0.08  # ceil(0.8 * 10) = 8 of nine sizes
    mean, spread = errors.mean(), errors.std(ddof=1)
    assert found.own_log_deviation == pytest.approx(spread, rel=1e-3)
    assert found.shared_log_deviation == pytest.approx(math.hypot(mean, spread / 3.0), rel=1e-3)


def test_a_new_error_is_below_the_largest_of_five_with_the_wanted_probability(
    rows: Rows, tmp_path: Path
) -> None:
    read = [row for row in read_measured(written(tmp_path, rows)) if not isinstance(row, Unmodelled)][:5]
    (found,) = residuals_of(read, np.array([0.05, -0.06, 0.07, -0.08, 0.09]))
    assert found.interval_log_half_width == 0.09  # 5 of 5 + 1 are more than 0.8, and 4 are not


def test_the_same_recipe_in_two_releases_differs_by_a_fortieth_in_the_median() -> None:
    # docs/validation.md; the difference of two steps has twice the variance of one.
    assert NormalDist(0.0, math.sqrt(2.0) * REPEAT_DEVIATION).inv_cdf(0.75) == pytest.approx(0.025, rel=1e-3)


def test_the_error_of_a_single_configuration_counts_as_what_steps_share_and_as_their_own(
    rows: Rows, tmp_path: Path
) -> None:
    read = [row for row in read_measured(written(tmp_path, rows)) if not isinstance(row, Unmodelled)][:1]
    (found,) = residuals_of(read, np.array([-0.2]))
    assert found.own_log_deviation == 0.2
    assert found.shared_log_deviation == pytest.approx(0.2 * math.sqrt(2.0), rel=1e-3)
    # 8 of 10 normal deviates of both are within 1.28 deviations.
    within = NormalDist(0.0, 0.2 * math.sqrt(3.0)).inv_cdf(0.9)
    assert found.interval_log_half_width == pytest.approx(within, rel=1e-3)


def test_steps_that_fit_by_chance_are_no_surer_than_a_step_that_is_repeated(
    rows: Rows, tmp_path: Path
) -> None:
    read = [row for row in read_measured(written(tmp_path, rows)) if not isinstance(row, Unmodelled)][:9]
    (found,) = residuals_of(read, np.zeros(9))
    within = NormalDist(0.0, REPEAT_DEVIATION).inv_cdf(0.9)
    assert found.interval_log_half_width == pytest.approx(within, rel=1e-3)
    assert found.own_log_deviation == pytest.approx(REPEAT_DEVIATION, rel=1e-3)


def test_errors_of_networks_with_experts_are_apart(rows: Rows, tmp_path: Path) -> None:
    read = [row for row in read_measured(written(tmp_path, rows)) if not isinstance(row, Unmodelled)][:2]
    dense, sparse = {**read[0], "num_experts": ""}, {**read[1], "num_experts": "8"}
    found = residuals_of([sparse, dense], np.log([1.1, 0.8]))
    assert [one.has_experts for one in found] == [False, True]
    assert [one.bias_fraction for one in found] == pytest.approx([-0.2, 0.1])


def test_a_calibration_of_nothing_on_offer_is_refused_and_one_of_a_part_is_said(
    answer: CalibrationAnswer, tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="is of h100-sxm5-80gb, and the job offers a100-sxm4-80gb"):
        job_with(A100_RENTED, calibration=answer.calibration)
    job = document_with(H100_RENTED, A100_RENTED)
    (tmp_path / "job.json").write_text(json.dumps(job))
    plan = "offer=1,tp=2,dp=8,mbs=1"
    asked = [
        "simulate",
        str(tmp_path / "job.json"),
        "--plan",
        plan,
        "--calibration",
        str(file),
        "--no-sensitivities",
    ]
    assert main([*asked, "--json", "--quiet"]) == OK
    told = " ".join(json.loads(capsys.readouterr().out)["warnings"])
    assert "Constants are calibrated: 3 from 16 configurations in steps.csv (2026-05-01" in told
    assert parse_job({**job, "calibration": file.name}, folder=tmp_path).calibration == answer.calibration
    assert (
        main(["goodput", "--job", str(tmp_path / "job.json"), "--plan", plan, "--calibration", str(file)])
        == OK
    )
    assert "Constants are calibrated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "hold"),
    [
        ((ConstantName.MEMORY_FRACTION,), "published constants"),
        (
            (ConstantName.MEMORY_FRACTION, ConstantName.HOST_LAUNCH_S),
            "published hardware constants and its software constants",
        ),
    ],
)
def test_an_accelerator_that_was_not_measured_takes_the_host_and_software_of_the_others(
    names: Sequence[ConstantName], hold: str
) -> None:
    calibration = calibration_with(
        CalibratedConstant(
            name=name,
            accelerator=None if name in SOFTWARE else ACCELERATOR,
            value=2e-5 if name in SOFTWARE else 0.8,
            published=1.0,
            log_deviation=0.0,
        )
        for name in names
    )
    job = job_with(H100_RENTED, A100_RENTED, A100_RENTED, calibration=calibration)
    errors = {
        "num_configurations": 1234,
        "error_before_fraction": 0.1,
        "error_left_out_fraction": 0.02,
    }
    told = calibration_text_of(calibration.model_copy(update=errors))
    assert told == (
        f"{len(names)} from 1,234 kernels in made up (2026-05-01, 000000000000); mean error 10.0 % with published constants, "
        "2.0 % on kernels left out of the fit"
    )
    _, note = calibration_notes(job)
    assert note == f"The calibration does not cover a100-sxm4-80gb: {hold} are used there."
    assert len(calibration_notes(job_with(H100_RENTED, calibration=calibration))) == 1


def test_a_sweep_takes_a_calibration_and_says_so(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = {
        "job": document_with(
            search={"micro_batch_sizes": [1], "tensor_parallel": [2], "pipeline_parallel": [1]}
        ),
        "num_gpus": [16],
        "checkpoint_schemes": ["async"],
    }
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(sweep))

    def step_s(*options: str) -> float:
        assert main(["sweep", str(path), "--json", "--quiet", *options]) == OK
        return float(json.loads(capsys.readouterr().out)["rows"][0]["step_time_s"])

    assert step_s("--calibration", str(file)) > 1.1 * step_s()
    assert main(["sweep", str(path), "--quiet", "--calibration", str(file)]) == OK
    assert "With the constants of" in capsys.readouterr().out


def test_validation_says_where_the_constants_were_fitted_on_the_very_rows(
    tmp_path: Path, rows: Rows, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["validate", "--quiet", "--calibration", str(file), "--measured"]
    assert main([*asked, str(written(tmp_path, rows))]) == OK
    assert "fitted to these same rows" in " ".join(capsys.readouterr().out.split())
    assert main([*asked, str(written(tmp_path, rows[:2]))]) == OK
    assert "fitted to these" not in " ".join(capsys.readouterr().out.split())


def test_validation_names_accelerators_that_the_calibration_does_not_cover(
    tmp_path: Path, rows: Rows, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {**rows[2], "id": "other", "gpu": "a100-sxm4-80gb", "step_time_s": "13"}
    asked = ["validate", "--quiet", "--calibration", str(file), "--measured"]
    assert main([*asked, str(written(tmp_path, [*rows, other]))]) == OK
    told = " ".join(capsys.readouterr().out.split())
    assert "; published ones hold for a100-sxm4-80gb" in told
    assert main([*asked, str(written(tmp_path, rows))]) == OK
    assert "published ones hold" not in " ".join(capsys.readouterr().out.split())


def test_a_missing_calibration_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[3] / "examples" / "bloom-176b.yaml"
    absent = str(tmp_path / "no.yaml")
    assert (
        main(["simulate", str(example), "--plan", "tp=4,pp=12,dp=8", "--calibration", absent]) == BROKEN_INPUT
    )
    assert "cannot be read" in capsys.readouterr().err
    assert main(["validate", "--measured", str(EXAMPLE), "--calibration", str(EXAMPLE)]) == BROKEN_INPUT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "exactly one of"),
        (["--device", "--measured", "x.csv"], "exactly one of"),
        (["--measured", "x.csv", "--output", "out.txt"], "must end in .yaml"),
        (["--measured", "x.csv", "--output", "out.csv"], "must end in .yaml"),
        (["--measured", "x.csv"], "cannot be read"),
        (["--kernels", "x.csv"], "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *arguments]) == BROKEN_INPUT
    assert message in capsys.readouterr().err


def test_a_goodput_of_numbers_takes_no_calibration(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["goodput", "--mtbf-s", "10980", "--calibration", str(file)]) == BROKEN_INPUT
    assert "--calibration needs --job" in capsys.readouterr().err


def test_the_text_of_a_file_says_what_it_is(answer: CalibrationAnswer) -> None:
    text = calibration_text(answer.calibration)
    assert text.startswith("# Constants of a cluster")
    assert "schema_version: 1" in text
    assert "null" not in text  # what does not apply is left out
