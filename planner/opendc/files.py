"""Which columns do OpenDC's Parquet files have? Their names, types and units, and how they are written and read.

Taken from atlarge-research/opendc, commit 691036deb (July 2026): a workload is a folder with tasks.parquet and
fragments.parquet; carbon and failure traces are one file each; a power source is an output of a simulation. Times are
whole milliseconds, processors MHz, memory KB, carbon g/kWh and g.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from simulator.errors import InputError, Problem
from simulator.table import Floats

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = (
    ("id", "int32", False),
    ("name", "string", True),
    ("submission_time", "timestamp[ms, tz=UTC]", False),
    ("duration", "int64", False),
    ("cpu_count", "int32", False),
    ("cpu_capacity", "double", False),
    ("mem_capacity", "int64", False),
    ("gpu_count", "int32", True),
    ("gpu_capacity", "double", True),
    ("parents", "list<int32>", True),
    ("children", "list<int32>", True),
    ("deferrable", "bool", True),
    ("deadline", "int64", True),
)
"""Name, type, and whether it may be missing: the third version of OpenDC's schema of tasks."""
FRAGMENTS = (
    ("id", "int32", False),
    ("duration", "int64", False),
    ("cpu_usage", "double", False),
    ("gpu_usage", "double", True),
)
CARBON = (("timestamp", "timestamp[ms]", False), ("carbon_intensity", "double", False))
FAILURES = (
    ("failure_interval", "int64", False),
    ("failure_duration", "int64", False),
    ("failure_intensity", "double", False),
)
POWER_SOURCE = (
    ("timestamp", "int64", False),
    ("timestamp_absolute", "int64", False),
    ("source_name", "string", False),
    ("cluster_name", "string", False),
    ("power_draw", "float", False),
    ("energy_usage", "float", False),
    ("carbon_intensity", "float", False),
    ("carbon_emission", "float", False),
)
"""Watts, joules since the row before, g/kWh, g since the row before."""

Form = tuple[tuple[str, str, bool], ...]
Columns = Mapping[str, object]
"""Arrays of NumPy or Arrow, of one length, by name."""
_MOST_BYTES = 50_000_000


def schema_of(form: Form) -> pa.Schema:
    """Returns the Arrow schema of a file."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "float": pa.float32(),
        "bool": pa.bool_(),
        "string": pa.string(),
        "list<int32>": pa.list_(pa.field("element", pa.int32())),
        "timestamp[ms]": pa.timestamp("ms"),
        "timestamp[ms, tz=UTC]": pa.timestamp("ms", tz="UTC"),
    }
    return pa.schema([pa.field(name, types[kind], nullable=nullable) for name, kind, nullable in form])


def write_parquet(file: Path, form: Form, parts: Iterable[Columns]) -> None:
    """Writes a file part by part, one row group each.

    Args:
        file: an older one is replaced.
        form: its columns.
        parts: columns by name, all of one length.

    Raises:
        OSError: the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = schema_of(form)
    with pq.ParquetWriter(file, schema) as writer:
        for part in parts:
            columns = [pa.array(part[field.name], type=field.type) for field in schema]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def read_numbers(file: Path, form: Form) -> dict[str, Floats]:
    """Returns the columns of a file of numbers, `(n,)` each.

    Raises:
        InputError: the file cannot be read, is too large, lacks a column, or has one that holds no numbers or has gaps.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if file.stat().st_size > _MOST_BYTES:
            raise broken("", "", "is larger than 50 MB", str(file))
        with file.open("rb") as opened, pq.ParquetFile(opened) as source:
            table = source.read()
        return {name: _numbers(table, name, str(file)) for name, *_ in form}
    except OSError as error:
        reason = (
            f"cannot be read: {error.strerror}" if error.strerror else "is no Parquet file, or is broken off"
        )
        raise broken("", "", reason, str(file)) from error
    except (pa.ArrowException, ValueError, OverflowError) as error:  # broken names of columns are no text
        raise broken("", "", "is no Parquet file, or is broken off", str(file)) from error


def _numbers(table: pa.Table, name: str, source: str) -> Floats:
    import pyarrow as pa

    if table.column_names.count(name) != 1:
        known = ", ".join(table.column_names)[:200]
        raise broken(name, "", f"must be a column, once; the file has {known or 'none'}", source)
    column = table.column(name)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise broken(name, str(column.type), "must hold numbers", source)
    if column.null_count:
        first = int(np.flatnonzero(column.is_null().to_numpy())[0]) + 1
        rule = f"must have a value in every row; {column.null_count} of {len(column)} have none"
        raise broken(f"row {first}, {name}", "", rule, source)
    return np.asarray(column.to_numpy(), dtype=np.float64)


def broken(path: str, value: str, rule: str, source: str = "") -> InputError:
    """Returns the error of one broken rule."""
    return InputError([Problem(path=path, value=value, rule=rule)], source)
