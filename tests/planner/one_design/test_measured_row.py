"""Does the answer to one measured row say how it was read, and where its simulated step goes?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.cli.commands import main
from planner.cli.terminal.exit_codes import BROKEN_INPUT, OK
from planner.cli.terminal.output import rendered
from planner.job.file import load_job
from planner.job.row_job import write_row_job
from planner.measured.rows import Unmodelled, place_of, read_measured, read_measured_row
from planner.measured.runs import compare
from planner.one_design.measured_row import MeasuredRow, measured_row, step_of
from planner.validation.comparison import Modelled
from planner.validation.interval import Interval
from planner.views.measured_row_view import show_measured_row
from simulator.domain.calibration import CalibratedConstant, ConstantName
from simulator.errors import InputError
from tests.planner.calibrations import calibration_with
from tests.planner.measured_rows import KORTHIKANTI_22B, LLAMA_8B, LLAMA_405B, simulated_row, written


def entry_for(folder: Path, cells: dict[str, object]) -> Modelled:
    (comparison,) = compare([simulated_row(folder, cells)])
    return Modelled(comparison=comparison, interval=Interval(low_s=1.0, high_s=2.0))


def simulated_s(file: Path, row_id: str) -> float:
    row = read_measured_row(file, row_id)
    assert not isinstance(row, Unmodelled)
    (comparison,) = compare([row])
    return comparison.expected_s


def shown(entry: Modelled | Unmodelled) -> str:
    answer = measured_row(entry)
    return rendered(
        lambda console: show_measured_row(entry, answer, console, step=step_of(answer), file=None)
    )


class TestAnswer:
    def test_parts_of_the_step_add_up_to_the_prediction_of_the_row(self, tmp_path: Path) -> None:
        entry = entry_for(tmp_path, {**KORTHIKANTI_22B})
        answer = measured_row(entry)
        assert answer.simulated is not None
        assert answer.simulated.design is not None
        predicted_s = answer.row["predicted_step_time_s"]
        assert sum(answer.simulated.design.step_seconds.values()) == pytest.approx(predicted_s)
        assert sum(answer.simulated.design.memory_bytes.values()) == pytest.approx(
            entry.comparison.planned_memory_bytes
        )

    def test_constants_of_other_accelerators_do_not_hold_for_a_row(self, tmp_path: Path) -> None:
        entry = entry_for(tmp_path, {**KORTHIKANTI_22B})
        launches = CalibratedConstant(
            name=ConstantName.EARLY_HOST_LAUNCH_S, value=1e-3, published=4e-5, log_deviation=0.1
        )
        links = launches.model_copy(
            update={"name": ConstantName.INTRA_LINK_RATIO, "accelerator": "mi300x", "value": 0.1}
        )
        of_others = calibration_with([launches, links])
        assert measured_row(entry, of_others) == measured_row(entry)
        (with_others,) = compare([entry.comparison.row], of_others)
        assert with_others == entry.comparison

    def test_cells_say_what_the_row_leaves_open(self, tmp_path: Path) -> None:
        told = measured_row(entry_for(tmp_path, {**LLAMA_8B, "recompute": "full", "micro_batch": 1}))
        silent = measured_row(entry_for(tmp_path, {**LLAMA_8B, "micro_batch": 1}))
        cells = [
            {cell.field: (cell.value, cell.is_assumed) for cell in each.cells} for each in (told, silent)
        ]
        assert cells[0]["recompute"] == ("full", False)
        assert cells[1]["recompute"][1]
        assert cells[0]["num_layers"] == ("32", False)
        assert "step_time_s" not in cells[0]

    def test_a_row_that_is_not_modelled_has_its_reason_alone(self) -> None:
        reason = "state spaces are not simulated"
        answer = measured_row(Unmodelled(row_id="x", group="g", reason=reason, step_time_s="2"))
        assert answer.row["reason"] == reason
        assert answer.row["measured_step_time_s"] == 2.0
        assert (answer.simulated, answer.job, answer.cells) == (None, None, ())


class TestView:
    def test_a_measured_time_outside_the_interval_is_said_to_be_outside(self, tmp_path: Path) -> None:
        inside, outside = (
            shown(entry_for(tmp_path, {**KORTHIKANTI_22B, "step_time_s": time_s})) for time_s in (1.5, 2.5)
        )
        assert "80 % interval of the step time: 1.00 s to 2.00 s; the measured one is inside." in inside
        assert "80 % interval of the step time: 1.00 s to 2.00 s; the measured one is outside." in outside
        assert "One step by stage" in inside

    def test_production_rows_name_the_stragglers_and_rows_without_a_time_that_nothing_was_measured(
        self, tmp_path: Path
    ) -> None:
        text = shown(entry_for(tmp_path, {**LLAMA_405B, "micro_batch": 1, "n_gpus": 128 * 16, "dp": 16}))
        assert "not measured" in text
        assert "with the stragglers of a usual fleet" in text
        assert "the measured one" not in text

    def test_runs_that_ran_out_of_memory_say_so_and_what_a_plan_would_need(self, tmp_path: Path) -> None:
        failed = entry_for(tmp_path, {**LLAMA_8B, "micro_batch": 4, "metric_kind": "out-of-memory"})
        assert "The measured run ran out of memory." in shown(failed)
        ran = entry_for(tmp_path, {**KORTHIKANTI_22B})
        assert "ran out of memory" not in shown(ran)
        needed = ran.comparison.planned_memory_bytes / 2**30
        assert f"judged by {needed:.1f} GiB of 80.0 GiB" in shown(ran)
        assert f"Memory of the fullest GPU: {needed:.1f} of 80.0 GiB" in shown(ran)

    def test_reasons_and_remarks_are_shown(self, tmp_path: Path) -> None:
        text = shown(Unmodelled(row_id="x", group="g", reason="lacks a layout", step_time_s=""))
        assert text == "Not modelled: x of g\n  lacks a layout\n"
        noted = shown(entry_for(tmp_path, {**LLAMA_8B, "micro_batch": 1, "notes": "quiet [machine]"}))
        assert "Remarks and notes" in noted
        assert "quiet [machine]" in noted


class TestNames:
    def test_a_row_is_found_by_its_id_and_misspelt_ones_get_the_nearest(self, tmp_path: Path) -> None:
        file = written(tmp_path, LLAMA_8B, {**KORTHIKANTI_22B, "n_gpus": "eight"}, {**LLAMA_8B, "id": ""})
        rows = read_measured(file)
        for row, row_id in zip(rows, ("a", "kort-0001", "row 4"), strict=True):
            assert read_measured_row(file, row_id) == row
        with pytest.raises(InputError, match="row = 'kort-001': is no row of the file; nearest: kort-0001"):
            read_measured_row(file, "kort-001")

    def test_of_rows_that_share_an_id_each_has_its_place(self, tmp_path: Path) -> None:
        file = written(tmp_path, LLAMA_8B, {**LLAMA_8B, "n_gpus": "eight"})
        first, second = read_measured(file)
        assert read_measured_row(file, "a (row 2)") == first
        assert read_measured_row(file, "a (row 3)") == second

    def test_of_many_rows_without_a_similar_one_only_some_are_named(self) -> None:
        with pytest.raises(InputError, match=r"known: 0, 1, 2, 3, 4, 5, \.\.\. \(5,000\)$"):
            place_of("kort-0001", [str(number) for number in range(5000)])


class TestControlCharacters:
    def test_what_a_terminal_would_obey_is_read_as_blanks(self, tmp_path: Path) -> None:
        cells = {**LLAMA_8B, "id": "\x1b[31mred\x07\x9b", "micro_batch": 1, "notes": "a \x1b[2J\x85 b"}
        entry = entry_for(tmp_path, cells)
        row = entry.comparison.row
        assert (row["row_id"], row["notes"]) == ("[31mred", "a [2J b")
        assert all(character.isprintable() or character == "\n" for character in shown(entry))
        write_row_job(row, tmp_path / "row.yaml")
        assert load_job(tmp_path / "row.yaml").workload.sequence_length == 8192


class TestCommand:
    def test_one_row_as_json_with_a_job_that_simulate_reads(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        measured, file = written(tmp_path, KORTHIKANTI_22B, LLAMA_8B), tmp_path / "row.yaml"
        asked = ["validate", "--measured", str(measured), "--row", "kort-0001", "--write-job", str(file)]
        assert main([*asked, "--json", "--quiet"]) == OK
        answer = MeasuredRow.model_validate(json.loads(capsys.readouterr().out))
        assert answer.row["id"] == "kort-0001"
        plan = file.read_text(encoding="utf-8").partition("--plan ")[2].split()[0]
        assert main(["simulate", str(file), "--plan", plan, "--json", "--no-sensitivities"]) == OK
        design = json.loads(capsys.readouterr().out)["design"]
        assert design["step_time_s"] == answer.row["predicted_step_time_s"]

    def test_a_row_that_is_not_modelled_leaves_no_job_and_says_so(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        measured, file = written(tmp_path, {**LLAMA_8B, "n_gpus": "eight"}), tmp_path / "row.yaml"
        asked = ["validate", "--measured", str(measured), "--row", "a", "--write-job", str(file)]
        assert main([*asked, "--quiet"]) == OK
        told = capsys.readouterr()
        assert told.out.startswith("Not modelled: a of")
        assert told.err == "No job file: the row is not modelled.\n"
        assert not file.exists()

    def test_a_run_that_uses_its_last_node_in_part_is_shown_without_a_job(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cells = {**LLAMA_8B, "n_gpus": 12, "gpus_per_node": 8, "dp": 12, "micro_batch": 1, "global_batch": 24}
        measured, file = written(tmp_path, cells), tmp_path / "row.yaml"
        asked = ["validate", "--measured", str(measured), "--row", "a", "--quiet"]
        assert main([*asked, "--write-job", str(file), "--json"]) == OK
        told = capsys.readouterr()
        assert told.err == "No job file: the last node is used in part, which offers of a job cannot be.\n"
        assert not file.exists()
        answer = MeasuredRow.model_validate(json.loads(told.out))
        assert (answer.job, answer.simulated) == (None, None)
        assert answer.row["predicted_step_time_s"] == simulated_s(measured, "a")
        assert ("num_gpus", "12") in {(cell.field, cell.value) for cell in answer.cells}
        assert main(asked) == OK
        text = capsys.readouterr().out
        assert "Not shown: the last node is used in part" in text
        assert "the parts below" not in text

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (["--row", "b"], "--row = 'b': is no row of the file; known: a"),
            (["--write-job", "x.yaml"], "--write-job writes the job of one row: name it with --row."),
            (
                ["--row", "a", "--write-job", "nowhere/x.yaml"],
                "--write-job = nowhere/x.yaml: the folder nowhere does not exist: make it first",
            ),
        ],
    )
    def test_wrong_options_get_one_message(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
    ) -> None:
        measured = written(tmp_path, LLAMA_8B)
        assert main(["validate", "--measured", str(measured), *options]) == BROKEN_INPUT
        shown = capsys.readouterr()
        assert shown.out == ""
        assert told in " ".join(shown.err.split())
