"""How are constants fitted to measured times, and written into a file with the error of each on unseen points?"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from planner.calibration.fitting import HOLD_OUT_EVERY, OUTLIER_SCALE
from simulator.table import Floats

POSITIVE = (1e-300, 1e300)
"""Bounds of a constant that only has to be positive."""


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
    """Returns the fitted constants, all positive, and the error of the held-out points (every fifth) in words.

    Args:
        log_errors: returns log(predicted / measured) of all points for given constants.
        start: constants to fit, with initial guesses.
        bounds: lowest and highest value of constants with bounds.
    """
    from scipy.optimize import least_squares

    limits = [(bounds or {}).get(name, POSITIVE) for name in start]
    low, high = np.log(limits).T

    def named(logs: Floats) -> dict[str, float]:
        return dict(zip(start, np.exp(logs).tolist(), strict=True))

    def errors_of_part(logs: Floats, *, is_held_out: bool) -> Floats:
        errors = log_errors(named(logs))
        chosen = (np.arange(len(errors)) % HOLD_OUT_EVERY == 0) == is_held_out
        return np.asarray(errors[chosen])

    def fitted_errors(logs: Floats) -> Floats:
        return errors_of_part(logs, is_held_out=False)

    found = least_squares(
        fitted_errors,
        np.log(list(start.values())),
        bounds=(low, high),
        loss="soft_l1",
        f_scale=OUTLIER_SCALE,
    )
    return named(found.x), describe(errors_of_part(found.x, is_held_out=True), "held out")


def describe(log_errors: Floats, what: str) -> str:
    """Returns mean and median absolute error and median bias, in percent."""
    absolute = np.abs(np.expm1(log_errors))
    return (
        f"{what}: mean {absolute.mean():.1%}, median {np.median(absolute):.1%}, "
        f"bias {np.median(np.expm1(log_errors)):+.1%}, n={len(log_errors)}"
    )


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
