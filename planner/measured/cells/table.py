"""How are the rows and cells of a file of measurements separated? By commas, semicolons or tabs, as spreadsheets save them."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import refusal

_SEPARATORS = (",", ";", "\t")
_SEPARATOR_LINE = re.compile(r"sep=([,;|\t])\r?\n?", re.IGNORECASE)
"""First line by which Excel is told what separates cells."""
_CONTROL = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters other than tabs and line ends. They are read as blanks: terminals obey them, and YAML refuses them."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """The cells of a file, before anybody asks what they mean."""

    records: list[list[str]]
    """Rows of cells; the first is the head. Cells that are empty behind the last column are left out."""
    has_decimal_commas: bool
    """Whether commas are decimal marks, as where semicolons separate cells."""


def read_table(path: Path, columns: Collection[str]) -> Table:
    """Returns the cells of a file.

    Args:
        path: of the file.
        columns: names that a head may have; cells are separated by what separates most of them.

    Raises:
        InputError: it cannot be read, or is no table of text.
    """
    text = _text(path)
    told = _SEPARATOR_LINE.match(text)
    if told and not text[told.end() :].strip():
        raise refusal(path, "has no head: give a CSV file with a head")
    text = text[told.end() :] if told else text
    separator = told[1] if told else _separator(text.partition("\n")[0], columns)
    records = _records(text, separator, path)
    width = len(records[0])
    return Table(
        records=[record[:width] if not any(record[width:]) else record for record in records],
        has_decimal_commas=separator == ";",
    )


def _separator(head: str, columns: Collection[str]) -> str:
    """Returns what separates most names of columns in a head; commas if there is none."""

    def names(separator: str) -> int:
        return sum(name.strip(' "\r').lower() in columns for name in head.split(separator))

    return max(_SEPARATORS, key=names)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise refusal(path, f"cannot be read: {error.strerror or error}") from None
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise refusal(
            path, f"is not a text file in UTF-8 (byte {error.start + 1}); save it as CSV in UTF-8"
        ) from None
    if "\0" in text:
        raise refusal(path, "is not a text file: it holds a NUL character")
    if not text.strip():
        raise refusal(path, "is empty: give a CSV file with a head")
    return _CONTROL.sub(" ", text)


def _records(text: str, separator: str, path: Path) -> list[list[str]]:
    file = io.StringIO(text, newline="")
    try:
        return list(csv.reader(file, delimiter=separator, skipinitialspace=separator != "\t", strict=True))
    except csv.Error as error:
        raise refusal(
            path, f"is not a CSV file: {error}; quotation marks come in pairs, and twice inside quoted text"
        ) from None
