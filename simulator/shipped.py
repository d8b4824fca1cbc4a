"""What do the tables say that are shipped with the code? Their rows, as text by column."""

from __future__ import annotations

import csv
from importlib import resources


def shipped_rows(file: str, room: str = "simulator") -> list[dict[str, str]]:
    """Returns the rows of a CSV file that lies beside the modules of a room.

    Args:
        file: its path from there, such as `data/accuracy.csv`.
        room: package that it belongs to.
    """
    text = resources.files(room).joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
