"""Where is every evaluated design kept? In one Parquet file, appended batch by batch while the study runs.

The file grows under a temporary name and takes its own name only when it is complete, so whoever finds
`designs.parquet` can read it to the end, also after an error or an interrupt in the middle of the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

import numpy as np
import numpy.typing as npt

from simulator.errors import StudyError, system_reason
from studies.files.behind import Behind

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

Columns = Mapping[str, npt.NDArray[np.generic]]
"""A batch of designs: arrays of one common shape `(n,)` by column name."""

MIN_ROW_GROUP_ROWS = 4_000
"""Smaller batches wait until they fill a row group together: each group costs every column a header,
and a reader a seek."""


@final
class DesignLog:
    """An append-only Parquet file of designs, compressed with zstd; a context manager.

    A background thread compresses and writes, one row group after another, while the study goes on. Its errors are raised
    by the next call.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "designs.parquet"
        >>> with DesignLog(path) as log:
        ...     log.append({"num_gpus": np.array([64, 128]), "is_feasible": np.array([True, False])})
        >>> read_designs(path)["num_gpus"].tolist()
        [64, 128]
    """

    def __init__(self, path: Path | str, *, title: str = "") -> None:
        """Starts a log that will appear at `path`; a missing folder is created.

        Args:
            path: path of the complete file.
            title: its name in errors; by default a design log at its path.

        Raises:
            StudyError: there is already a log (it is never overwritten), or the folder cannot be created.
        """
        self.path = Path(path)
        self._title = title or f"design log {self.path}"
        if self.path.exists():
            raise StudyError(f"{self._title} exists and is never overwritten: choose another path")
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._writer: pq.ParquetWriter | None = None
        self._schema: pa.Schema | None = None
        self._waiting: list[pa.Table] = []
        self._writing = Behind("design-log")
        self._num_designs = 0
        self._is_closed = False
        self._is_broken = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(f"{self._title} cannot be kept there: {system_reason(error)}") from error

    @property
    def num_designs(self) -> int:
        """Designs appended so far."""
        return self._num_designs

    def append(self, columns: Columns) -> None:
        """Adds a batch of designs.

        Args:
            columns: arrays `(n,)` of str, int, float or bool; names, order and kinds as in the first batch.

        Raises:
            StudyError: the log is closed, the columns differ from the first batch's or from each other in
                length, or the file cannot be written.
        """
        if self._is_closed:
            raise StudyError(f"{self._title} is closed: append before close()")
        table = _to_table(columns)
        if self._schema is None:
            self._schema = table.schema
        elif table.schema != self._schema:
            raise StudyError(
                f"{self._title}: a batch has columns ({_described(table.schema)}) but the first one "
                f"had ({_described(self._schema)}); every batch must have the same"
            )
        self._waiting.append(table)
        self._num_designs += table.num_rows
        if sum(waiting.num_rows for waiting in self._waiting) >= MIN_ROW_GROUP_ROWS:
            self._write_waiting()

    def close(self) -> None:
        """Completes the file and gives it its name, or removes it if some of it could not be written.

        A second call does nothing.

        Raises:
            StudyError: the file cannot be written.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._settle()
            if not self._is_broken:
                self._complete()
        finally:
            if self._is_broken:
                self._take_away()

    def _settle(self) -> None:
        try:
            self._write_waiting()
        finally:
            self._writing.close()

    def _complete(self) -> None:
        try:
            if self._writer is not None:
                self._writer.close()
            self._partial.replace(self.path)
        except OSError as error:
            self._is_broken = True
            raise StudyError(f"{self._title} cannot be completed: {system_reason(error)}") from error

    def _take_away(self) -> None:
        with suppress(OSError, ValueError):  # ValueError: Arrow's own
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):
            self._partial.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_waiting(self) -> None:
        """Writes the waiting designs as one row group; if nothing was ever appended, a file without columns."""
        # Dequeued before writing: an interrupt in between may lose these rows but never duplicates them.
        waiting, self._waiting = self._waiting, []
        self._writing.begin(lambda: self._write(waiting))

    def _write(self, tables: list[pa.Table]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if self._writer is None:
                schema = pa.schema([]) if self._schema is None else self._schema
                self._writer = pq.ParquetWriter(
                    self._partial, schema, compression="zstd", write_page_checksum=True
                )
            if tables:
                self._writer.write_table(pa.concat_tables(tables).combine_chunks())
        except OSError as error:
            self._is_broken = True
            raise StudyError(f"{self._title} cannot be written: {system_reason(error)}") from error


def read_designs(path: Path | str) -> dict[str, npt.NDArray[np.generic]]:
    """Reads a design log back, or the parts of one in a folder.

    Returns:
        Arrays `(n,)` by column name, in the order in which the designs were appended.

    Raises:
        StudyError: there is no readable Parquet file at `path`, or in it.
    """
    import pyarrow as pa

    try:
        table = table_of(Path(path))
    except (OSError, pa.ArrowInvalid) as error:
        raise StudyError(f"design log {path} cannot be read: {error}") from error
    return {name: _to_array(table[name]) for name in table.column_names}


def table_of(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns columns of a Parquet file, or of all files of a folder, by default all; those that it lacks are left out.

    The calling thread reads it: `pyarrow.parquet.read_table` waits without end where no further thread can be started.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = []
    for part in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        with part.open("rb") as file, pq.ParquetFile(file, page_checksum_verification=True) as source:
            tables.append(source.read(None if columns is None else list(columns), use_threads=False))
    return pa.concat_tables(tables)


def _to_table(columns: Columns) -> pa.Table:
    import pyarrow as pa

    shapes = {name: np.shape(values) for name, values in columns.items()}
    if any(len(shape) != 1 for shape in shapes.values()) or len(set(shapes.values())) > 1:
        raise StudyError(f"columns of a batch must be one-dimensional and of one length, got shapes {shapes}")
    return pa.table({name: _to_arrow(name, np.asarray(values)) for name, values in columns.items()})


def _to_arrow(name: str, values: npt.NDArray[np.generic]) -> pa.Array:
    """Returns a column in the widest type of its kind, so that all batches agree whatever their widths."""
    import pyarrow as pa

    types = {
        "f": pa.float64(),
        "i": pa.int64(),
        "u": pa.int64(),
        "b": pa.bool_(),
        "U": pa.string(),
        "O": pa.string(),
    }
    if values.dtype.kind not in types:
        raise StudyError(f"column {name!r} has dtype {values.dtype}: must be str, int, float or bool")
    try:
        column = pa.array(values, type=types[values.dtype.kind], from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise StudyError(f"column {name!r} holds a value that is not str, or too large: {error}") from error
    if column.null_count:
        raise StudyError(f"column {name!r} holds None: say it with NaN, an empty text or a second column")
    return column


def _to_array(column: pa.ChunkedArray) -> npt.NDArray[np.generic]:
    import pyarrow as pa

    values: npt.NDArray[np.generic] = column.to_numpy()
    return values.astype(np.str_) if pa.types.is_string(column.type) else values


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
