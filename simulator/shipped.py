"""What do the tables shipped with the code contain? Their rows, as text by column."""

from __future__ import annotations

import csv
from importlib import resources


def shipped_rows(file: str, room: str = "simulator") -> list[dict[str, str]]:
    """Returns the rows of a CSV file that is shipped in a package.

    Args:
        file: its path inside the package, such as `data/accuracy.csv`.
        room: the package.
    """
    text = resources.files(room).joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
