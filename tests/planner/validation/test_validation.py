"""Are simulated and measured runs compared fairly, and does the command show it?"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

import planner
from planner.cli.commands import main
from planner.cli.terminal.exit_codes import OK
from planner.measured.cells.file import BYTES_OF_A_WEIGHT, COUNTS, MEANS, QUANTITIES, WORDS, unread_columns
from planner.measured.runs import (
    OUT_OF_MEMORY,
    Comparison,
    known_reason,
)
from planner.validation.comparison import (
    Modelled,
    choices,
    configurations,
    memory_verdicts,
    scores,
)
from planner.validation.interval import Interval
from planner.validation.report import parallelism
from simulator.units import GIB
from tests.planner.measured_rows import LLAMA_8B, compared, shipped, written


def modelled(comparison: Comparison) -> Modelled:
    return Modelled(comparison=comparison, interval=Interval(low_s=0.0, high_s=math.inf))


class TestScores:
    def test_rows_of_one_configuration_are_averaged_first(self) -> None:
        # Measured 1 s and 3 s, mean 2 s, simulated 2 s: no error. Row by row it would be +100 % and -33 %.
        rows = [compared(1.0, 2.0, row_id="x"), compared(3.0, 2.0, row_id="y")]
        (score,) = scores([modelled(row) for row in rows], lambda row: row.row["group"])
        assert (score.num_rows, score.num_configurations) == (2, 1)
        assert score.mean_absolute_error_fraction == pytest.approx(0.0)
        assert score.worst_row == "x"
        assert score.worst_error_fraction == pytest.approx(1.0)

    def test_errors_are_simulated_over_measured_less_one(self) -> None:
        rows = [
            compared(2.0, 1.0, config_key="p"),
            compared(2.0, 2.2, config_key="q"),
            compared(2.0, 2.4, config_key="r"),
        ]
        (score,) = scores([modelled(row) for row in rows], lambda _: "all")
        # Errors -50 %, +10 %, +20 %.
        assert score.mean_absolute_error_fraction == pytest.approx(0.8 / 3)
        assert score.median_error_fraction == pytest.approx(0.1)
        assert score.bias_fraction == pytest.approx(-0.2 / 3)

    def test_regret_is_the_slow_down_of_the_design_that_is_simulated_as_the_fastest(self) -> None:
        fast = compared(10.0, 9.0, row_id="fast", config_key="p", micro_batch_size="4")
        picked = compared(12.0, 8.0, row_id="picked", config_key="q", micro_batch_size="2")
        (choice,) = choices([modelled(fast), modelled(picked)])
        assert (choice.picked_row, choice.best_row) == ("picked", "fast")
        assert choice.regret_fraction == pytest.approx(0.2)
        assert choice.rank_correlation is None

    def test_another_cluster_or_sequence_is_another_job(self) -> None:
        rows = [
            compared(10.0, 9.0),
            compared(10.0, 9.0, sequence_length="4096"),
            compared(10.0, 9.0, model="GPT-23B"),
        ]
        assert choices([modelled(row) for row in rows]) == []

    def test_verdicts_on_memory_count_both_mistakes(self) -> None:
        rows = [
            compared(1.0, 1.0, memory_gib=70.0),
            compared(1.0, 1.0, memory_gib=90.0),
            compared(math.nan, 1.0, memory_gib=90.0, left_out_because=OUT_OF_MEMORY),
            compared(math.nan, 1.0, memory_gib=70.0, left_out_because=OUT_OF_MEMORY),
        ]
        found = memory_verdicts([modelled(row) for row in rows])
        assert found.num_ran_and_fit == found.num_ran_but_simulated_too_large == 1
        assert found.num_out_of_memory_and_too_large == found.num_out_of_memory_but_simulated_to_fit == 1

    def test_a_verdict_is_far_off_beyond_the_error_of_memory(self) -> None:
        # 80 GiB are there: 82 are 2.5 % more, 90 are 12.5 % more.
        rows = [compared(1.0, 1.0, memory_gib=gib, row_id=f"r{gib:.0f}") for gib in (79.0, 82.0, 90.0)]
        found = memory_verdicts([modelled(row) for row in rows])
        assert found.num_ran_but_simulated_too_large == 2
        assert found.num_ran_but_far_too_large == 1
        assert found.too_large_rows == ("r82", "r90")

    def test_a_run_that_does_not_say_what_it_recomputes_is_no_wrong_verdict(self) -> None:
        rows = [
            compared(1.0, 1.0, memory_gib=90.0, assumed="ep recompute", recompute="none"),
            compared(1.0, 1.0, memory_gib=70.0, assumed="recompute", recompute="none"),
        ]
        found = memory_verdicts([modelled(row) for row in rows])
        assert (found.num_ran_and_recompute_not_given, found.num_ran_and_fit) == (1, 1)
        assert found.num_ran_but_simulated_too_large == 0

    def test_recomputation_that_was_taken_from_elsewhere_is_no_excuse(self) -> None:
        row = compared(1.0, 1.0, memory_gib=90.0, assumed="recompute", recompute="selective", row_id="r")
        assert memory_verdicts([modelled(row)]).too_large_rows == ("r",)

    def test_a_production_run_or_a_peak_without_a_step_time_has_run(self) -> None:
        rows = [
            compared(math.nan, 1.0, memory_gib=90.0, row_id="fleet", is_production="true"),
            compared(math.nan, 1.0, memory_gib=90.0, row_id="peak", peak_memory_bytes="7e10"),
            compared(math.nan, 1.0, memory_gib=90.0, row_id="asked"),
        ]
        assert memory_verdicts([modelled(row) for row in rows]).too_large_rows == ("fleet", "peak")

    def test_a_plan_needs_room_for_waste_that_a_run_does_without(self) -> None:
        found = memory_verdicts([modelled(compared(1.0, 1.0, memory_gib=gib)) for gib in (70.0, 78.0)])
        assert (found.num_ran_and_fit, found.num_ran_but_refused_as_plan) == (2, 1)

    def test_configurations_keep_the_order_of_their_first_rows(self) -> None:
        rows = [compared(1.0, 1.0, config_key=key) for key in ("q", "p", "q")]
        assert [len(found.rows) for found in configurations(rows)] == [2, 1]

    def test_kinds_of_parallelism_are_named(self) -> None:
        assert parallelism(compared(1.0, 1.0)) == "TP"
        assert parallelism(compared(1.0, 1.0, tensor_parallel="1", zero_stage="3")) == "ZeRO-3"


class TestCommand:
    def test_json_compares_a_published_peak_with_the_sum_that_was_published(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # The device has 3.9 GB of the framework beside what its allocator holds (aiconfigurator).
        rows = [
            {**LLAMA_8B, "id": notes, "peak_mem_gib_per_gpu": 50.0, "notes": notes}
            for notes in ("peak allocated memory", "peak reserved memory", "by nvidia-smi")
        ]
        assert main(["validate", "--measured", str(written(tmp_path, *rows)), "--json"]) == OK
        found = json.loads(capsys.readouterr().out)["rows"]
        live, held, device = (row["predicted_peak_memory_gib"] for row in found)
        assert [row["memory_kind"] for row in found] == ["allocated", "reserved", "device"]
        assert {row["predicted_device_memory_gib"] for row in found} == {device}
        assert held >= live
        assert device == pytest.approx(held + 3.9e9 / GIB)

    def test_the_worst_row_comes_with_what_is_known_of_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        told = {**LLAMA_8B, "recompute": "none"}
        rows = [
            {**told, "id": "near", "step_time_s": 10.0, "config_key": "a"},
            {
                **told,
                "id": "far",
                "step_time_s": 500.0,
                "config_key": "b",
                "notes": "un-tuned, [host] bound",
            },
        ]
        path = written(tmp_path, {**rows[0], "notes": ""}, rows[1])
        assert main(["validate", "--measured", str(path), "--json"]) == OK
        answer = json.loads(capsys.readouterr().out)
        (score,) = answer["tables"]["source"]
        assert (score["worst_row"], score["worst_reason"]) == ("far", "un-tuned, [host] bound")
        assert answer["capplan_version"] == planner.__version__
        assert main(["validate", "--measured", str(path)]) == OK
        assert "%): un-tuned, [host] bound" in capsys.readouterr().out

    def test_every_step_of_a_small_file_is_shown(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = {**LLAMA_8B, "recompute": "none"}
        path = written(tmp_path, {**told, "id": "[own] 1"}, {**told, "id": "[own] 2", "step_time_s": 500.0})
        assert main(["validate", "--measured", str(path), "--json"]) == OK
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert main(["validate", "--measured", str(path)]) == OK
        steps = capsys.readouterr().out.partition("Step time by row")[2].partition("Step time by source")[0]
        lines = steps.splitlines()
        for row in rows:
            (line,) = (each for each in lines if each.startswith(f"{row['id']} "))
            error = row["predicted_step_time_s"] / row["measured_step_time_s"] - 1.0
            assert f"{error:+.1%}".replace("%", " %") in line
        assert next(each for each in lines if each.startswith("[own] 2 ")).endswith("no")
        monkeypatch.setattr("planner.validation.view.MOST_STEPS", 1)
        assert main(["validate", "--measured", str(path)]) == OK
        assert "Step time by row" not in capsys.readouterr().out

    def test_rows_are_named_beside_the_reason_why_they_are_not_modelled(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        odd = [{**LLAMA_8B, "id": f"[odd] {number}", "n_gpus": 0} for number in range(4)]
        path = written(tmp_path, *odd, {**LLAMA_8B, "id": "own", "precision": "banana"}, LLAMA_8B)
        assert main(["validate", "--measured", str(path)]) == OK
        text = " ".join(capsys.readouterr().out.split())
        assert "at least 1, or empty 4 [odd] 0, [odd] 1, [odd] 2, ..." in text
        assert "only fp16, bf16, fp8 and nvfp4 are modelled 1 own" in text

    def test_where_notes_say_nothing_the_assumptions_are_the_reason(self) -> None:
        assert known_reason(shipped("kort-0001", assumed="ep recompute")) == "assumed: ep, recompute"
        assert known_reason(shipped("kort-0001", assumed="")) is None

    def test_json_has_tables_and_every_row(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = written(
            tmp_path,
            {**LLAMA_8B, "recompute": "none"},
            {**LLAMA_8B, "id": "b", "gpu": "RTX 4090"},
            {**LLAMA_8B, "id": "c", "recompute": "none", "step_time_s": ""},
        )
        assert main(["validate", "--measured", str(path), "--json"]) == OK
        answer = json.loads(capsys.readouterr().out)
        assert (answer["num_rows"], answer["num_modelled"], answer["num_scored"]) == (3, 2, 1)
        first, second, third = answer["rows"]
        assert [row["id"] for row in answer["rows"]] == ["a", "b", "c"]
        assert 0.0 < first["predicted_low_s"] < first["predicted_high_s"]
        assert 0.0 < first["predicted_peak_memory_gib"] < 1000.0
        assert first["memory_kind"] == "device"  # no peak was published
        assert first["predicted_peak_memory_gib"] == first["predicted_device_memory_gib"]
        assert first["fits"] == (first["predicted_device_memory_gib"] <= first["memory_capacity_gib"])
        assert second["memory_kind"] is None
        assert (first["measured_step_time_s"], first["reason"]) == (10.0, None)
        assert second["predicted_step_time_s"] is None
        assert second["reason"].startswith("gpu = RTX 4090")
        assert third["measured_step_time_s"] is None
        assert third["predicted_step_time_s"] == first["predicted_step_time_s"]
        (score,) = answer["tables"]["accelerator"]
        error = first["predicted_step_time_s"] / 10.0 - 1.0
        assert (score["group"], score["bias_fraction"]) == ("h100-sxm5-80gb", pytest.approx(error))

    @pytest.mark.long
    @pytest.mark.usefixtures("rows_simulated_once")
    def test_the_shipped_runs_are_scored_without_a_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["validate"]) == OK
        text = capsys.readouterr().out
        assert "392 rows, 343 of them modelled, 340 with a measured step time" in text
        assert "number of heads not published" in text
        runs = text.partition("Whole runs, predicted cold: GPU-hours")[2]
        assert [run in runs for run in ("BLOOM-176B", "Llama3.1-405B", "MT-NLG-530B", "GPT-3 175B")] == [
            True
        ] * 4
        assert max(len(line) for line in text.splitlines()) <= 100

    def test_a_file_without_times_is_predicted_not_scored(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = written(tmp_path, {**LLAMA_8B, "step_time_s": ""})
        assert main(["validate", "--measured", str(path)]) == OK
        assert "Nothing to score" in capsys.readouterr().out

    def test_columns_that_nothing_reads_are_named_with_what_may_be_meant(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = written(tmp_path, {**LLAMA_8B, "step_time_s": "", "recomputation": "full", "mfu": 41})
        assert main(["validate", "--measured", str(path)]) == OK
        assert (
            "Unknown columns, ignored: 'recomputation' (did you mean recompute?), 'mfu'"
            in capsys.readouterr().out
        )

    def test_short_names_of_frameworks_are_known_as_columns_that_may_be_meant(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cells = {name: value for name, value in LLAMA_8B.items() if name != "global_batch"}
        path = written(tmp_path, {**cells, "step_time_s": "", "micro_batch": 1, "GBS": 128, "mbs": 1})
        assert main(["validate", "--measured", str(path)]) == OK
        # There is a column micro_batch, so that mbs cannot stand for it.
        assert (
            "Unknown columns, ignored: 'GBS' (did you mean global_batch?), 'mbs'\n" in capsys.readouterr().out
        )

    def test_single_jobs_and_runs_are_counted_in_the_singular(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        one = {**LLAMA_8B, "recompute": "none", "micro_batch": 1}
        other = {**one, "id": "b", "micro_batch": 2, "step_time_s": 11.0, "peak_mem_gib_per_gpu": 70}
        assert main(["validate", "--measured", str(written(tmp_path, one, other))]) == OK
        told = " ".join(capsys.readouterr().out.split())
        assert "same job: 1 job, mean regret" in told
        assert re.search(
            r"Of \d runs that fit in memory: simulated to fit: \d; simulated as too large: \d", told
        )

    def test_a_publication_that_dates_the_framework_is_no_unread_column(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = written(tmp_path, {**LLAMA_8B, "step_time_s": "", "source_ref": "arXiv 2402.15627"})
        assert main(["validate", "--measured", str(path)]) == OK
        assert "not read" not in capsys.readouterr().out

    def test_the_documented_columns_are_those_that_are_read(self, tmp_path: Path) -> None:
        page = (Path(__file__).parents[3] / "docs" / "measured-rows.md").read_text(encoding="utf-8")
        table = page.split("## The columns")[1].split("\n\n")[1]
        documented = re.findall(r"`([a-z_]+)`", " ".join(line.split("|")[1] for line in table.splitlines()))
        path = tmp_path / "measured.csv"
        path.write_text(",".join(documented), encoding="utf-8")
        assert not unread_columns(path)
        assert set(documented) == {*WORDS, *COUNTS, *QUANTITIES, *BYTES_OF_A_WEIGHT, *MEANS}

    def test_asking_for_help_loads_nothing_heavy(self) -> None:
        code = "import sys, planner.cli.validate; print(*{name.partition('.')[0] for name in sys.modules})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) & {"numpy", "pydantic", "numba", "scipy", "rich"} == set()
