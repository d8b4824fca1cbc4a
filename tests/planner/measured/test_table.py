"""Are tables read as spreadsheets of every country save them, and is what cannot be read refused with its cause?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.measured.cells.file import read_cells, unread_columns
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row
from simulator.errors import InputError
from studies.progress import Progress

HEAD = "id,model,gpu,n_gpus,seq_len,global_batch,tp,pp,notes,step_time_s,tokens_per_s_per_gpu"
ROW = "a,llama-3.1-8b,H100,8,4096,128,1,1,some words,7.173,"
TABLE = f"{HEAD}\n{ROW}\n"
QUOTED = "".join(";".join(f'"{cell}"' for cell in line.split(",")) + "\n" for line in TABLE.splitlines())
EUROPEAN = TABLE.replace("7.173", "7|173").replace(",", ";").replace("|", ",")


def rows_of(folder: Path, content: str | bytes) -> list[Row | Unmodelled]:
    path = folder / "rows.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_measured(path)


@pytest.mark.parametrize(
    "content",
    [
        TABLE,
        TABLE.replace("\n", "\r\n"),
        TABLE.replace("\n", "\r"),
        "\ufeff" + TABLE,
        TABLE.encode("utf-16"),
        TABLE.replace(",", "\t"),
        TABLE.replace(",", "\t").encode("utf-16"),
        TABLE.replace(",", ";"),
        EUROPEAN,
        QUOTED,
        "\ufeff" + EUROPEAN.replace("\n", "\r\n"),
        "sep=;\n" + EUROPEAN,
        "sep=,\r\n" + TABLE,
        TABLE.replace(",", ", ").replace("some words", '"some, words"'),
        TABLE.replace("some words", '"some\nwords"'),
        f"{HEAD},,\n{ROW},,\n",
        f"{HEAD}\n{ROW},,,\n",
    ],
)
def test_tables_of_spreadsheets_are_read(tmp_path: Path, content: str | bytes) -> None:
    (row,) = rows_of(tmp_path, content)
    assert not isinstance(row, Unmodelled), row
    assert (row["num_gpus"], row["step_time_s"]) == ("8", "7.173")


@pytest.mark.parametrize(
    ("written", "time_s"), [("7,17", "7.17"), ("1.234,5", "1234.5"), ("1234,5 s", "1234.5"), ("7.5", "7.5")]
)
def test_semicolons_go_with_decimal_commas(tmp_path: Path, written: str, time_s: str) -> None:
    (row,) = rows_of(tmp_path, EUROPEAN.replace("7,173", written))
    assert not isinstance(row, Unmodelled), row
    assert (row["step_time_s"], row["remarks"]) == (time_s, "")


def test_whole_numbers_keep_their_separators(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, EUROPEAN.replace(";4096;", ";4,096;"))
    assert not isinstance(row, Unmodelled), row
    assert row["sequence_length"] == "4096"


@pytest.mark.parametrize(
    ("written", "batch"), [("4.096", "4096"), ("4.194.304 tokens", "1024"), ("4.194M tokens", "1024")]
)
def test_points_separate_the_thousands_of_counts_where_commas_are_decimal(
    tmp_path: Path, written: str, batch: str
) -> None:
    (row,) = rows_of(tmp_path, EUROPEAN.replace(";128;", f";{written};"))
    assert not isinstance(row, Unmodelled), row
    assert row["global_batch_size"] == batch
    assert row["remarks"].startswith(f"global_batch = {written!r}: taken as {batch}")


def test_points_of_counts_are_refused_where_points_are_decimal(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, TABLE.replace(",128,", ",4.096,"))
    assert isinstance(row, Unmodelled)
    assert row.reason == "global_batch = '4.096': must be a whole number, or empty"


@pytest.mark.parametrize(
    ("content", "time_s"), [(EUROPEAN, "7.173"), (TABLE.replace("7.173", '"7,173"'), "7173")]
)
def test_a_comma_that_may_be_either_is_remarked(tmp_path: Path, content: str, time_s: str) -> None:
    (row,) = rows_of(tmp_path, content)
    assert not isinstance(row, Unmodelled), row
    assert row["remarks"] == f"step_time_s = '7,173': taken as {time_s}"


def test_a_decimal_comma_between_commas_is_refused_with_its_cause(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, TABLE.replace("7.173", '"7,17"'))
    assert isinstance(row, Unmodelled)
    assert row.reason.startswith("step_time_s = '7,17': must have a decimal point")


@pytest.mark.parametrize(
    ("row", "way_out"), [(ROW[:-1], "leave none out"), (f"{ROW}4,5", "quote text that holds what separates")]
)
def test_rows_with_other_numbers_of_cells_say_what_to_do(tmp_path: Path, row: str, way_out: str) -> None:
    (found,) = rows_of(tmp_path, f"{HEAD}\n{row}\n")
    assert isinstance(found, Unmodelled)
    assert way_out in found.reason


def test_lines_of_empty_cells_are_no_rows(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, f"{HEAD}\n,,,,,,,,,,\n{ROW}\n\n")
    assert not isinstance(row, Unmodelled), row


@pytest.mark.parametrize(
    ("column", "least"),
    [
        *((name, 1) for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "vocab")),
        *((name, 1) for name in ("seq_len", "global_batch", "micro_batch", "n_gpus", "gpus_per_node")),
        *((name, 1) for name in ("tp", "pp", "dp")),
        ("mlp_matrices", 2),
    ],
)
def test_a_count_of_what_every_run_has_is_at_least_one_and_that_of_matrices_two(
    tmp_path: Path, column: str, least: int
) -> None:
    cells = {"id": "a", "model": "llama-3.1-8b", "gpu": "H100", "n_gpus": 8, "seq_len": 4096}
    cells |= {"global_batch": 128, "step_time_s": 7.173, column: least - 1}
    (row,) = rows_of(tmp_path, f"{','.join(cells)}\n{','.join(map(str, cells.values()))}\n")
    assert isinstance(row, Unmodelled)
    assert row.reason == f"{column} = '{least - 1}': must be at least {least}, or empty"


def test_control_characters_are_blanks(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(TABLE.replace("some words", "some\x0bwords"), encoding="utf-8")
    (cells,) = read_cells(path)
    assert cells.text["notes"] == "some words"


def test_columns_without_a_name_are_not_told_as_unread(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{HEAD},,remark\n{ROW},,\n", encoding="utf-8")
    assert set(unread_columns(path)) == {"remark"}


def test_speeds_have_thousands_so_that_their_commas_are_sure(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, TABLE.replace("7.173,", ',"11,234"'))
    assert not isinstance(row, Unmodelled), row
    assert row["remarks"] == ""


def test_a_run_without_room_may_tell_the_peak_at_which_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"{HEAD},peak_mem_gib_per_gpu\n{ROW},79.1\n".replace("7.173", "OOM"), encoding="utf-8")
    (cells,) = read_cells(path)
    assert (cells.text["metric_kind"], cells.has_time, cells.problems) == ("out of memory", False, ())
    assert cells.numbers["peak_mem_gib_per_gpu"] == 79.1


def test_the_batch_of_a_row_counts_before_one_that_is_assumed(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(TABLE.replace("7.173,", ",1000"), encoding="utf-8")
    (cells,) = read_cells(path)
    assert cells.step_time_of_rate_s(7) == 128 * 4096 / (1000 * 8)


def test_other_separators_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="separated by commas, semicolons or tabs"):
        rows_of(tmp_path, TABLE.replace(",", "|"))


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("sep=;\n", "has no head"),
        ("sep=;\n \n", "has no head"),
        ("sep=,", "has no head"),
        ('sep="\r\n' + TABLE, "row 1 lacks"),
    ],
)
def test_a_line_that_names_the_separator_needs_a_head_behind_it(
    tmp_path: Path, content: str, match: str
) -> None:
    with pytest.raises(InputError, match=match):
        rows_of(tmp_path, content)


def test_reading_many_rows_reports_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.measured.rows.ROWS_AT_ONCE", 2)
    path = tmp_path / "rows.csv"
    path.write_text(f"{HEAD}\n" + f"{ROW}\n" * 5, encoding="utf-8")
    told: list[Progress] = []
    assert len(read_measured(path, told.append)) == 5
    assert {(each.stage, each.num_total) for each in told} == {("reading measured runs", 5)}
    assert [each.num_done for each in told] == [0, 2, 4]
