"""How is a file of fitted constants written, with the error of each on unseen points?"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from planner.calibration.fitting import describe
from planner.calibration.fitting import fit as fit_held_out
from simulator.table import Floats


@dataclass(frozen=True, kw_only=True)
class Line:
    """What every row of a shipped file says of one constant."""

    constant: str
    value: float
    unit: str
    fitted_on: str
    error: str
    source: str


def fit(
    log_errors: Callable[[dict[str, float]], Floats],
    start: Mapping[str, float],
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> tuple[dict[str, float], str]:
    """Returns the fitted constants, and their error on the held-out points in words; arguments as for the fit itself."""
    values, held_out = fit_held_out(log_errors, start, bounds)
    return values, describe(held_out, "held out")


def write_lines(path: Path, lines: Sequence[Line]) -> None:
    """Writes one row per line, the fields in the order of a subclass's own first, and prints them."""
    rows = [asdict(line) for line in lines]
    keys = [name for name in rows[0] if name not in Line.__dataclass_fields__]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=[*keys, *Line.__dataclass_fields__], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        of_what = " ".join(str(row[key]) for key in keys)
        print(f"{of_what:16} {row['constant']:30} {row['value']:12.6g}  {row['error']}")
