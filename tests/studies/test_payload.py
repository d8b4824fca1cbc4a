"""Are columns read back as they were written, whatever their length and type?"""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest

from studies.designs.payload import from_bytes


def stream(columns: dict[str, object]) -> bytes:
    table = pa.table(columns)
    target = io.BytesIO()
    with pa.ipc.new_stream(target, table.schema) as writer:
        writer.write_table(table)
    return target.getvalue()


@pytest.mark.parametrize("num_rows", [0, 1, 7, 8, 9, 1000])
def test_columns_are_read_back_to_the_bit(num_rows: int) -> None:
    random = np.random.default_rng(num_rows)
    written = {
        "truth": random.random(num_rows) < 0.5,
        "number": random.integers(-9, 9, num_rows),
        "share": np.where(random.random(num_rows) < 0.1, np.nan, random.random(num_rows)),
    }
    found = from_bytes(stream({f"part.{name}": column for name, column in written.items()})).columns["part"]
    assert found.keys() == written.keys()
    for name, column in written.items():
        assert found[name].dtype == column.dtype
        np.testing.assert_array_equal(found[name], column)


@pytest.mark.parametrize("column", [pa.array(["word"]), pa.array([1, None]), pa.array([True, None])])
def test_columns_that_no_design_has_are_refused(column: pa.Array) -> None:
    with pytest.raises(ValueError, match="is none of designs"):
        from_bytes(stream({"part.name": column}))
