"""Is every evaluated design in the file, unchanged, whatever happens to the study?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import StudyError
from studies.files.design_log import MIN_ROW_GROUP_ROWS, DesignLog, read_designs, table_of


def batch(start: int, num: int) -> dict[str, np.ndarray]:
    serial = np.arange(start, start + num)
    return {
        "num_gpus": 8 * serial,
        "cost_usd": serial / 7.0,
        "is_feasible": serial % 2 == 0,
        "checkpoint": np.array([f"scheme-{number % 3}" for number in serial], dtype=np.str_),
    }


def assert_same(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(actual) == list(expected)
    for name, values in expected.items():
        assert actual[name].dtype.kind == values.dtype.kind
        np.testing.assert_array_equal(actual[name], values)


@pytest.mark.parametrize(
    "batch_sizes", [[5], [MIN_ROW_GROUP_ROWS], [1, 0, MIN_ROW_GROUP_ROWS - 2, 1, 9000, 3]]
)
def test_what_was_appended_is_read_back_in_order(tmp_path: Path, batch_sizes: list[int]) -> None:
    path = tmp_path / "new folder" / "designs.parquet"
    starts = np.cumsum([0, *batch_sizes])
    with DesignLog(path) as log:
        for start, size in zip(starts, batch_sizes, strict=False):
            log.append(batch(int(start), size))
        assert log.num_designs == sum(batch_sizes)
    assert_same(read_designs(path), batch(0, sum(batch_sizes)))


@given(
    numbers=st.lists(st.floats(width=64), min_size=1, max_size=20),
    texts=st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1, max_size=20
    ),
)
def test_every_float_and_text_survives(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float], texts: list[str]
) -> None:
    # NumPy's fixed-width text cannot end in NUL, which is why NUL is left out above.
    path = tmp_path_factory.mktemp("log") / "designs.parquet"
    num = min(len(numbers), len(texts))
    columns = {"number": np.array(numbers[:num]), "text": np.array(texts[:num], dtype=np.str_)}
    with DesignLog(path) as log:
        log.append(columns)
    assert_same(read_designs(path), columns)


def test_small_batches_share_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "designs.parquet"
    with DesignLog(path) as log:
        for start in range(0, 10_000, 100):
            log.append(batch(start, 100))
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [
        4000,
        4000,
        2000,
    ]
    assert metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_an_interrupted_study_leaves_a_complete_file(
    tmp_path: Path, interruption: type[BaseException]
) -> None:
    path = tmp_path / "designs.parquet"
    with pytest.raises(interruption), DesignLog(path) as log:
        log.append(batch(0, 1500))
        log.append(batch(1500, 20))
        raise interruption
    assert_same(read_designs(path), batch(0, 1520))
    assert [entry.name for entry in tmp_path.iterdir()] == ["designs.parquet"]


def test_a_file_under_its_own_name_is_always_complete(tmp_path: Path) -> None:
    path = tmp_path / "designs.parquet"
    log = DesignLog(path)
    log.append(batch(0, 1500))
    assert not path.exists()
    log.close()
    log.close()
    assert_same(read_designs(path), batch(0, 1500))


def test_a_study_without_designs_leaves_an_empty_log(tmp_path: Path) -> None:
    path = tmp_path / "designs.parquet"
    with DesignLog(path):
        pass
    assert read_designs(path) == {}


def test_same_designs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with DesignLog(tmp_path / name) as log:
            for start in range(0, 3000, 300):
                log.append(batch(start, 300))
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_widths_within_a_kind_may_differ_between_batches(tmp_path: Path) -> None:
    path = tmp_path / "designs.parquet"
    with DesignLog(path) as log:
        log.append({"num_gpus": np.array([1], dtype=np.int32), "name": np.array(["a"], dtype=object)})
        log.append({"num_gpus": np.array([2], dtype=np.uint8), "name": np.array(["bcd"])})
    assert_same(read_designs(path), {"num_gpus": np.array([1, 2]), "name": np.array(["a", "bcd"])})


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"num_gpus": np.array([1.5])}, "num_gpus: double.*num_gpus: int64"),
        ({"gpus": np.array([1])}, "gpus: int64.*num_gpus: int64"),
        ({"num_gpus": np.array([1]), "more": np.array([1, 2])}, "of one length"),
        ({"num_gpus": np.array([[1]])}, "one-dimensional"),
        ({"num_gpus": np.array([1j])}, "'num_gpus' has dtype complex128"),
        ({"num_gpus": np.array([None])}, "'num_gpus' holds None"),
        ({"num_gpus": np.array(["a", 1], dtype=object)}, "'num_gpus' holds a value that is not str"),
        ({"num_gpus": np.array([2**63], dtype=np.uint64)}, "'num_gpus' holds a value .* too large"),
    ],
)
def test_an_unfitting_batch_is_refused_and_leaves_the_log_as_it_was(
    tmp_path: Path, columns: dict[str, np.ndarray], rule: str
) -> None:
    path = tmp_path / "designs.parquet"
    with DesignLog(path) as log:
        log.append({"num_gpus": np.array([8])})
        with pytest.raises(StudyError, match=rule):
            log.append(columns)
    assert_same(read_designs(path), {"num_gpus": np.array([8])})


def test_a_log_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "designs.parquet"
    with DesignLog(path) as log:
        log.append(batch(0, 3))
    with pytest.raises(StudyError, match="never overwritten"):
        DesignLog(path)
    with pytest.raises(StudyError, match="is closed"):
        log.append(batch(3, 3))
    assert_same(read_designs(path), batch(0, 3))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StudyError, match=r"file/designs\.parquet cannot be kept there"):
        DesignLog(tmp_path / "file" / "designs.parquet")


@pytest.mark.parametrize("content", [None, b"not Parquet"])
def test_an_unreadable_log_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "designs.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StudyError, match=r"designs\.parquet cannot be read"):
        read_designs(path)


def test_importing_the_room_does_not_import_the_heavy_libraries() -> None:
    program = (
        "import studies.files.design_log, studies.tracking.bulk_runs, studies.tracking.tracker, sys; "
        "print(sorted({'mlflow', 'pyarrow', 'sqlalchemy', 'pandas'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def test_a_full_disk_is_told_in_the_words_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object, **__: object) -> None:
        # As pyarrow words it.
        raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter.write_table", no_space)
    log = DesignLog(tmp_path / "designs.parquet", title="designs.parquet")
    log.append(batch(0, 3))
    with pytest.raises(StudyError, match=r"^designs\.parquet cannot be written: No space left on device$"):
        log.close()


@pytest.mark.parametrize("num_written", [0, 1])
def test_what_a_full_disk_cut_off_gets_no_name_and_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_written: int
) -> None:
    write_table, left = pq.ParquetWriter.write_table, num_written

    def until_full(self: pq.ParquetWriter, *arguments: object) -> None:
        nonlocal left
        left -= 1
        if left == -1:  # once: space may be free again, but what was not written is still missing
            raise OSError(28, "No space left on device")
        write_table(self, *arguments)

    def study() -> None:
        with DesignLog(tmp_path / "designs.parquet") as log:
            for first in range(0, 5 * MIN_ROW_GROUP_ROWS, MIN_ROW_GROUP_ROWS):
                log.append(batch(first, MIN_ROW_GROUP_ROWS))

    monkeypatch.setattr(pq.ParquetWriter, "write_table", until_full)
    with pytest.raises(StudyError, match="No space left on device"):
        study()
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_get_its_name_is_told_and_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refused)
    log = DesignLog(tmp_path / "designs.parquet", title="designs.parquet")
    log.append(batch(0, 3))
    with pytest.raises(StudyError, match=r"^designs\.parquet cannot be completed: Permission denied$"):
        log.close()
    assert list(tmp_path.iterdir()) == []


def test_columns_that_a_table_lacks_are_left_out(tmp_path: Path) -> None:
    with DesignLog(tmp_path / "designs.parquet") as log:
        log.append(batch(0, 4))
    table = table_of(tmp_path / "designs.parquet", ["cost_usd", "unknown"])
    assert {name: table[name].to_pylist() for name in table.column_names} == {
        "cost_usd": batch(0, 4)["cost_usd"].tolist()
    }


def test_the_parts_of_a_table_are_read_together(tmp_path: Path) -> None:
    for number, start in enumerate((0, 3)):
        with DesignLog(tmp_path / f"part-{number:05d}.parquet") as log:
            log.append(batch(start, 3))
    assert_same(read_designs(tmp_path), batch(0, 6))


def test_a_folder_without_parts_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="cannot be read"):
        read_designs(tmp_path)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "designs.parquet"
    with DesignLog(path) as log:
        log.append({"cost_usd": np.linspace(1e6, 2e6, 5_000), "num_gpus": np.arange(5_000)})
    whole = path.read_bytes()
    for place in np.linspace(100, len(whole) - 1_500, 40).astype(int).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(StudyError, match="cannot be read"):
            read_designs(path)
