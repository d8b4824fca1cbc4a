"""Does capplan read OpenDC's failure and carbon traces correctly?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.fuzz_mutations import mutations
from benchmarks.fuzz_traces import num_refused, opendc_cases
from planner.cli.commands import main
from planner.opendc.failures import TracedFailures, read_failures, weibull_shape
from simulator.domain.traces import PRICE_TRACE, read_trace
from simulator.errors import InputError
from tests.support import job_with


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
            ([(-1, 0, 1.0), (DAY_MS, 0, 1.0)], "row 1, failure_interval = -1: must be milliseconds"),
            ([(DAY_MS, 0, 1.0), (DAY_MS, -5, 1.0)], "row 2, failure_duration = -5"),
            ([(DAY_MS, 0, 1.0), (DAY_MS, 0, 1.5)], r"row 2, failure_intensity = 1.5: must lie in \(0, 1\]"),
            ([(DAY_MS, 0, 0.0), (DAY_MS, 0, 1.0)], "row 1, failure_intensity"),
            ([(DAY_MS, 0, math.nan), (DAY_MS, 0, 1.0)], "row 1, failure_intensity"),
            (
                [(DAY_MS, 0, None), (DAY_MS, 0, 1.0)],
                "row 1, failure_intensity: must have a value in every row; 1 of 2",
            ),
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
        with pytest.raises(InputError, match="cannot be read: No such file"):
            read_failures(tmp_path / "missing.parquet", num_nodes=10)

    def test_a_folder_in_place_of_a_file_is_named_as_such(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="cannot be read: Is a directory"):
            read_failures(tmp_path, num_nodes=10)


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
            (
                {"timestamp": quarters(96)},
                "carbon_intensity: must be a column of a carbon trace, once; the file has timest",
            ),
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
        with pytest.raises(InputError, match="cannot be read as Parquet: it is another kind of file"):
            read_trace(tmp_path / "carbon.parquet")
        (tmp_path / "folder.parquet").mkdir()
        with pytest.raises(InputError, match="cannot be read as Parquet: Is a directory"):
            read_trace(tmp_path / "folder.parquet")

    def test_a_column_that_stands_there_twice_is_refused(self, tmp_path: Path) -> None:
        numbers = pa.array([100.0] * 96)
        names = ["timestamp", "carbon_intensity", "carbon_intensity"]
        file = tmp_path / "carbon.parquet"
        pq.write_table(pa.Table.from_arrays([quarters(96), numbers, numbers], names=names), file)
        with pytest.raises(InputError, match="carbon_intensity: must be a column of a carbon trace, once"):
            read_trace(file)

    def test_a_job_names_the_column_that_its_trace_lacks(self, tmp_path: Path) -> None:
        file = carbon_file(tmp_path, {"timestamp": quarters(96)})
        site = {"region": "netherlands", "grid_profile": str(file)}
        with pytest.raises(InputError, match=r"grid_profile = '\S*: carbon_intensity: must be a column"):
            job_with(site=site)

    def test_prices_are_not_read_from_it(self, tmp_path: Path) -> None:
        file = carbon_file(tmp_path, {"timestamp": quarters(96), "carbon_intensity": pa.array([1.0] * 96)})
        with pytest.raises(InputError, match="holds a grid, not USD/kWh"):
            read_trace(file, PRICE_TRACE)


@pytest.mark.parametrize("kind", [0, 1], ids=["failures", "carbon"])
def test_mutated_files_are_read_or_refused_in_one_message(tmp_path: Path, kind: int) -> None:
    case = list(opendc_cases(tmp_path))[kind]
    assert num_refused(case.read) == 0
    refused = 0
    for changed in mutations(case.path.read_bytes(), 400):
        case.path.write_bytes(changed)
        refused += num_refused(case.read)
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
