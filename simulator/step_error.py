"""How far may a simulated step be off, and how much of that do all designs on the same accelerators share?

ln(true / simulated) of a design is the sum of two independent normal parts: one that every design of a job on the same
kind of accelerator shares (its kernels, software and fabric), and one of the layout's own. `python -m
benchmarks.step_error` estimates both from the published steps of docs/validation.md and writes `data/step_error.csv`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

FILE = "data/step_error.csv"
UNMEASURED_RATIO = 2.0
"""How much less sure steps in a format without any measurement are than in 8 bits, whose constants they take; estimate."""
ANY = "any"
"""Architecture and number format of the line for what was never compared."""


@dataclass(frozen=True, kw_only=True)
class StepError:
    """Standard deviations of ln(true / simulated) step time."""

    shared_log_deviation: float
    """Part that designs on the same accelerators share."""
    own_log_deviation: float
    """Part of each layout."""


def step_error(family: str, precision: str, *, has_experts: bool = False) -> StepError:
    """Returns how sure steps are on an architecture in a number format; what was never compared is less sure.

    Args:
        family: Architecture of the accelerator (`Accelerator.family`).
        precision: Number format (`Precision.value`).
        has_experts: Whether the model is a mixture of experts.
    """
    if precision == "fp4":
        known = step_error(family, "fp8", has_experts=has_experts)
        return StepError(
            shared_log_deviation=UNMEASURED_RATIO * known.shared_log_deviation,
            own_log_deviation=UNMEASURED_RATIO * known.own_log_deviation,
        )
    network, table = "experts" if has_experts else "dense", _estimated()
    return table.get((family, precision, network)) or table[ANY, ANY, network]


@cache
def _estimated() -> Mapping[tuple[str, str, str], StepError]:
    """Returns the shipped figures by architecture, format and kind of network; the file is read once."""
    text = resources.files("simulator").joinpath(FILE).read_text(encoding="utf-8")
    return {
        (row["family"], row["precision"], row["network"]): StepError(
            shared_log_deviation=float(row["shared_log_deviation"]),
            own_log_deviation=float(row["own_log_deviation"]),
        )
        for row in csv.DictReader(text.splitlines())
    }
