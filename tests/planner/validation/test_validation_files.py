"""Is a broken list of measured runs explained, and no row dropped without a word?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cli.commands import main
from planner.cli.terminal.exit_codes import BROKEN_INPUT, OK
from planner.measured.rows import Unmodelled, read_measured
from planner.validation.comparison import (
    entries_of,
    job_order,
)
from simulator.errors import InputError
from tests.planner.measured_rows import KORTHIKANTI_22B, LLAMA_8B, written


class TestFiles:
    @pytest.mark.parametrize(
        ("content", "rule"),
        [
            (b"", "is empty"),
            (b"\x7fELF\x80\xff", "is not a text file in UTF-8"),
            (b"gpu\x00", "holds a NUL character"),
            (b"a,b\n1,2\n", "row 1 lacks the column gpu, n_gpus, seq_len, global_batch or micro_batch"),
            (
                b"Model,GPU type,# GPUs,Seq Length,GBS\n",
                "Rename 'GPU type' to gpu, '# GPUs' to n_gpus, 'Seq Length' to seq_len, 'GBS' to global_batch.",
            ),
            (b"model,gpu,n_gpus,seq_len,global_batch\n", "has a head but no row"),
            (b"gpu,gpu\n", "names the column gpu twice"),
            (b"GPU,gpu\n", "names the column gpu twice"),
            (b"x,x,gpu\n", "row 1 lacks the column n_gpus"),
            (b'model,gpu,n_gpus,seq_len,global_batch\n"x,H100,8,1,1\n', "is not a CSV file"),
        ],
    )
    def test_a_broken_file_is_refused_with_its_rule(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, rule: str
    ) -> None:
        path = tmp_path / "broken.csv"
        path.write_bytes(content)
        assert main(["validate", "--measured", str(path)]) == BROKEN_INPUT
        shown = capsys.readouterr()
        assert shown.out == ""
        assert rule in shown.err
        assert "Traceback" not in shown.err

    def test_a_missing_file_and_a_folder_are_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for path in (tmp_path / "missing.csv", tmp_path):
            assert main(["validate", "--measured", str(path)]) == BROKEN_INPUT
            assert "cannot be read" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("cells", "reason"),
        [
            ({"n_gpus": "eight"}, "n_gpus = 'eight': must be a number"),
            ({"seq_len": "-1"}, "seq_len = '-1': must be at least 1"),
            ({"dense_layers": "first 3"}, "dense_layers = 'first 3': must be a number"),
            ({"global_batch": "1024-2048"}, "global_batch = '1024-2048': must be a number"),
            ({"tp": "0"}, "tp = '0': must be at least 1"),
            ({"global_batch": "inf"}, "global_batch = 'inf': must be a finite number"),
            ({"step_time_s": "-2"}, "step_time_s = '-2': must be greater than 0"),
            ({"layers": "20.5", "tp": "x"}, "must be a whole number, or empty; tp = 'x'"),
        ],
    )
    def test_a_broken_cell_leaves_out_its_row_and_no_other(
        self, tmp_path: Path, cells: dict[str, str], reason: str
    ) -> None:
        broken, whole = read_measured(
            written(tmp_path, {**LLAMA_8B, "tp": 1, **cells}, {**LLAMA_8B, "tp": 1})
        )
        assert isinstance(broken, Unmodelled)
        assert reason in broken.reason
        assert not isinstance(whole, Unmodelled)

    def test_a_row_with_too_few_cells_is_left_out_with_its_number(self, tmp_path: Path) -> None:
        path = tmp_path / "short.csv"
        path.write_text("model,gpu,n_gpus,seq_len,global_batch\nllama-3.1-8b,H100,8\n", encoding="utf-8")
        (row,) = read_measured(path)
        assert isinstance(row, Unmodelled)
        assert row.reason.startswith("row 2 has 3 cells, but the head has 5")

    def test_json_says_why_a_broken_row_is_left_out(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = written(tmp_path, {**LLAMA_8B, "layers": "many"})
        assert main(["validate", "--measured", str(path), "--json"]) == OK
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert row["predicted_step_time_s"] is None
        assert row["reason"] == "layers = 'many': must be a number, or empty"

    def test_json_has_the_same_fields_for_rows_that_are_left_out(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = written(tmp_path, {**LLAMA_8B, "layers": "many"}, LLAMA_8B)
        assert main(["validate", "--measured", str(path), "--json"]) == OK
        broken, whole = json.loads(capsys.readouterr().out)["rows"]
        assert list(broken) == list(whole)

    def test_columns_may_be_written_in_capitals(self, tmp_path: Path) -> None:
        path = written(tmp_path, LLAMA_8B)
        head, rest = path.read_text(encoding="utf-8").split("\n", 1)
        (small,) = read_measured(path)
        path.write_text(f"{head.upper()}\n{rest}", encoding="utf-8")
        assert read_measured(path) == [small]

    @given(
        st.dictionaries(
            st.sampled_from(sorted({*KORTHIKANTI_22B, "experts", "topk", "ep"})), st.text(max_size=12)
        )
    )
    def test_any_text_in_cells_is_read_or_explained(
        self, tmp_path_factory: pytest.TempPathFactory, cells: dict[str, str]
    ) -> None:
        path = written(tmp_path_factory.mktemp("fuzz"), {**KORTHIKANTI_22B, **cells})
        try:
            entries = entries_of(read_measured(path))
        except InputError as error:
            assert "NUL character" in str(error)  # noqa: PT017 (either outcome is right)
            return
        assert len(entries) == 1


def test_rows_of_one_job_are_priced_side_by_side_wherever_they_stand(tmp_path: Path) -> None:
    eight, sixteen = {**LLAMA_8B, "tp": 1}, {**LLAMA_8B, "tp": 2}
    unmodelled = {**LLAMA_8B, "n_gpus": "eight"}
    rows = read_measured(written(tmp_path, eight, KORTHIKANTI_22B, unmodelled, sixteen))
    order = job_order(rows)
    assert sorted(order) == [0, 1, 2, 3]
    assert abs(order.index(0) - order.index(3)) == 1
