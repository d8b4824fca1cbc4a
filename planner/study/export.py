"""How are the designs of a study exported to a table for other programs? From its journal, as a whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from planner.input.arguments import refused
from planner.json_forms import StudyExport
from planner.recommended.study_facts import job_of, keep_of
from simulator.errors import StudyError, system_reason
from studies.files.design_log import DesignLog
from studies.files.journal import Journal
from studies.tracking.design_table import no_designs, study_columns

EXPORT_SUFFIXES: Final = (".parquet", ".csv")


def export_designs(path: Path, file: Path) -> StudyExport:
    """Writes all designs that a study has kept into a table, as a whole or not at all, and returns their number.

    Raises:
        InputError: the file already exists, its suffix is not one of `EXPORT_SUFFIXES`, or its folder is missing.
        StudyError: the study cannot be read to its end, or the file cannot be written.
    """
    _check_target(file)
    with Journal.read(path) as journal, _drafts(file) as folder:
        table = folder / "designs.parquet"
        with DesignLog(table, title=str(file)) as log:
            job = job_of(journal.facts)
            for columns in chain([no_designs(job)], study_columns(job, journal)):
                log.append(columns)
        if file.suffix == ".csv":
            table = _as_csv(table, file)
        try:
            table.replace(file)
        except OSError as error:
            raise _not_written(file, error) from error
        return StudyExport(
            study=path.stem,
            file=str(file),
            num_designs=log.num_designs,
            num_simulated=journal.num_designs,
            keep=keep_of(journal.facts),
        )


def _check_target(file: Path) -> None:
    if file.suffix not in EXPORT_SUFFIXES:
        raise refused("file", str(file), f"the suffix must be one of {', '.join(EXPORT_SUFFIXES)}")
    if file.exists():
        raise refused("file", str(file), "is there already and is never overwritten: choose another file")
    if not file.parent.is_dir():
        raise refused("file", str(file), f"the folder {file.parent} does not exist: make it first")


@contextmanager
def _drafts(file: Path) -> Iterator[Path]:
    """A temporary folder next to a file, for incomplete output; it is always removed afterwards."""
    try:
        folder = tempfile.TemporaryDirectory(
            dir=file.parent, prefix=f".{file.name}.", ignore_cleanup_errors=True
        )
    except OSError as error:
        raise _not_written(file, error) from error
    with folder as name:
        yield Path(name)


def _as_csv(table: Path, file: Path) -> Path:
    """Writes a Parquet file as CSV next to it and returns the CSV file; errors name the requested file."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    text = table.with_suffix(".csv")
    try:
        with pq.ParquetFile(table) as source, pyarrow.csv.CSVWriter(text, source.schema_arrow) as writer:
            for batch in source.iter_batches():
                writer.write_batch(batch)
    except OSError as error:
        raise _not_written(file, error) from error
    return text


def _not_written(file: Path, error: OSError) -> StudyError:
    return StudyError(f"{file} cannot be written: {system_reason(error)}")
