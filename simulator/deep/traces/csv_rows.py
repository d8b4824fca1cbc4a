"""How is a table from another tool read? Row by row, with each row's line number, reporting all problems at once."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from simulator.deep.traces.trace_text import MOST_PROBLEMS, broken, problems_of, read_text, shown
from simulator.errors import InputError, Problem

MOST_CELL_CHARACTERS = 10_000_000
"""Longest cell; lists in cells may be long, since an optimizer reads all tensors."""

Row = Mapping[str, str]
"""Cells by column."""
_Record = TypeVar("_Record")


@dataclass(frozen=True, kw_only=True)
class CsvFile:
    """Rows of one file, and the line number of each."""

    path: Path
    rows: list[Row]
    lines: list[int]

    def place(self, row: int) -> str:
        """Returns the place of a row, such as `trace.csv, line 5`."""
        return f"{self.path.name}, line {self.lines[row]}"

    def records(self, read: Callable[[Row], _Record]) -> list[_Record]:
        """Reads every row; raises one `InputError` with the problems of the first rows that have any."""
        found, problems = [], []
        for number, row in enumerate(self.rows):
            try:
                found.append(read(row))
            except ValidationError as error:
                problems += problems_of(error, self.place(number))
            except BrokenCellError as error:
                problems.append(
                    Problem(
                        path=f"{self.place(number)}.{error.column}", value=shown(error.value), rule=error.rule
                    )
                )
            if len(problems) >= MOST_PROBLEMS:
                break
        if problems:
            raise InputError(problems, source=str(self.path))
        return found


class BrokenCellError(ValueError):
    """A cell that cannot be read: its column, its text, and the rule that it breaks."""

    def __init__(self, column: str, value: str, rule: str) -> None:
        super().__init__(rule)
        self.column, self.value, self.rule = column, value, rule


def read_csv(path: Path, columns: Sequence[str]) -> CsvFile:
    """Returns the rows of a file that has a header.

    Args:
        path: path of the file.
        columns: columns that it must have; others are kept, too.

    Raises:
        InputError: the file cannot be read or lacks a column, or a row has too few or too many cells.
    """
    before = csv.field_size_limit(MOST_CELL_CHARACTERS)
    try:
        return _read(path, columns)
    finally:
        csv.field_size_limit(before)


def _read(path: Path, columns: Sequence[str]) -> CsvFile:
    reader = csv.reader(read_text(path).splitlines(), skipinitialspace=True, strict=True)
    rows: list[Row] = []
    lines: list[int] = []
    try:
        heading = next(reader, [])
        missing = [column for column in columns if column not in heading]
        if missing:
            raise broken(path, "line 1", ",".join(heading), f"lacks the columns {', '.join(missing)}")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(heading):
                rule = f"has {len(cells)} cells where the heading has {len(heading)}: is the file cut off?"
                raise broken(path, f"line {reader.line_num}", ",".join(cells), rule)
            rows.append(dict(zip(heading, cells, strict=True)))
            lines.append(reader.line_num)
    except csv.Error as error:
        raise broken(path, f"line {reader.line_num}", "", f"is no CSV: {error}") from error
    if not rows:
        raise broken(path, "", "", "has no rows below its heading")
    return CsvFile(path=path, rows=rows, lines=lines)
