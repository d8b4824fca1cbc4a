"""Within which interval is a measurement expected? An 80 % interval from the errors on runs of other sources.

All runs of a source (one publisher with its software, cluster and habits) share its errors. Rows of a prediction's own source
would make it look too certain, so they are left out. Of the remaining residuals |ln(measured / simulated)|, every source has
the same weight, however many rows it has. Residuals of the same architecture and number format together have as much weight
again as all. The half width of the interval is the size that four of five residuals stay below, and is widened:

- by the degree to which the simulator's constants were fitted to the very rows, and further where the fit saw nothing of their
  source; more upwards than downwards, since what a simulator leaves out only lengthens a step;
- where something was never measured: a part that no other source has, or only one; software that nobody else ran on the
  architecture; an architecture whose constants are those of another one; anything beyond the reach of all measured steps
  (`planner.measured.reach`);
- by what a row leaves open and by the speed of its host's kernel launches: the change that another choice or host would make is
  an independent error, on the side to which it would change the step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from planner.measured.frameworks.families import software_family
from planner.measured.reach import reach_of_row
from planner.measured.runs import Comparison, Row, network_of, read_rows
from simulator import catalog
from simulator.accuracy.step_error import (
    ANY,
    UNMEASURED_RATIO,
    UNSEEN_RATIOS,
    Sides,
    architecture_ratio,
    less_sure,
)
from simulator.domain.calibration import Calibration
from simulator.domain.hardware import Precision
from simulator.shipped import shipped_rows
from simulator.step.step_reach import Reach
from simulator.table import Floats

Kind = tuple[str, str, str]
"""Architecture, number format, and `dense` or `experts`."""

FILE = "data/residuals.csv"
"""Residuals of the shipped configurations, row by row."""
INSIDE_FRACTION = 0.8
"""Expected share of measurements inside the interval; half of the others lie on either side."""
NEW_SOURCE_RATIOS = Sides(below=1.0, above=2.5)
"""The same for a row of a source that is not among the shipped ones, whatever its software. Nine of ten errors on either side
lie below it when each source is left out in turn and counts the same (the same script). If one further source has to fit, too,
slightly fewer do on the upper side."""
FEWEST_SOURCES = 2
"""Smallest number of sources of an architecture in a number format at which one can be left out; with fewer, nothing shows
its uncertainty."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where a measured step time is expected in four of five cases."""

    low_s: float
    high_s: float

    def holds(self, step_time_s: float) -> bool:
        """Returns whether a measured time lies in the interval."""
        return self.low_s <= step_time_s <= self.high_s


@dataclass(frozen=True, kw_only=True)
class Residual:
    """How much slower than simulated one shipped configuration was."""

    group: str
    """Its source."""
    row_id: str
    config_key: str
    accelerator: str
    family: str
    """Architecture of the accelerator."""
    precision: str
    network: str
    """`dense` or `experts`."""
    log_ratio: float
    """ln(measured / simulated)."""
    reach: Reach
    software: str = ""
    """Its software family (`planner.measured.frameworks.families`); empty if unknown."""


@cache
def development_residuals() -> tuple[Residual, ...]:
    """Returns the residuals of the shipped configurations, as recorded by `python -m benchmarks.validate_steps`."""
    log_ratios = {line["row_id"]: float(line["log_ratio"]) for line in shipped_rows(FILE, "planner")}
    rows = [row for row in read_rows() if not row["left_out_because"]]
    return tuple(_residual(row, log_ratios[row["row_id"]]) for row in rows)


def residual_of(comparison: Comparison) -> Residual:
    """Returns the residual of a timed row."""
    return _residual(comparison.row, -math.log1p(comparison.error_fraction))


def _residual(row: Row, log_ratio: float) -> Residual:
    family, precision, network = kind_of(row)
    return Residual(
        group=row["group"],
        row_id=row["row_id"],
        config_key=row["config_key"],
        accelerator=row["accelerator"],
        family=family,
        precision=precision,
        network=network,
        log_ratio=log_ratio,
        reach=reach_of_row(row),
        software=software_of(row),
    )


def kind_of(row: Row) -> Kind:
    """Returns the kind of step by which errors are kept."""
    family = catalog.accelerator(row["accelerator"]).family
    return family, row["precision"], network_of(row)


def interval_of(
    comparison: Comparison, residuals: Sequence[Residual], unsure_log_ratios: Floats | None = None
) -> Interval:
    """Returns the interval of a row from the residuals of other sources.

    Args:
        comparison: the row and its simulation.
        residuals: those of the shipped configurations.
        unsure_log_ratios: logarithms of what else the step could be over what it is, as in `half_widths`; if omitted, none.
    """
    unsure = np.zeros(0) if unsure_log_ratios is None else unsure_log_ratios
    low, high = half_widths(half_widths_of(comparison.row, comparison.kind, residuals), unsure)
    return Interval(
        low_s=comparison.expected_s * math.exp(-low), high_s=comparison.expected_s * math.exp(high)
    )


def half_widths(of_residuals: Sides, unsure_log_ratios: Floats) -> Sides:
    """Returns how far below and above a step its interval reaches, as logarithms of time.

    Args:
        of_residuals: the same from the residuals alone.
        unsure_log_ratios: ln(possible step / step), `(k,)`, for choices that a row leaves open
            (`planner.validation.open_choices`) and for other hosts (`planner.validation.host_uncertainty`). Each is independent
            of the residuals and of the others, so they add in quadrature.
    """
    shorter, longer = np.minimum(0.0, unsure_log_ratios), np.maximum(0.0, unsure_log_ratios)
    return Sides(
        below=math.hypot(of_residuals.below, *shorter), above=math.hypot(of_residuals.above, *longer)
    )


def half_widths_of(row: Row, kind: Kind, residuals: Sequence[Residual]) -> Sides:
    """Returns how far below and above its step the residuals place a row, as logarithms of time; `kind` as in `Comparison`.

    Constants of another architecture may be too slow as well as too fast, so both sides then reach equally far.
    """
    others = _of_other_sources(row, residuals)
    is_shipped = len(others) < len(residuals)
    seen_ratios = UNSEEN_RATIOS if is_shipped else NEW_SOURCE_RATIOS
    reach_ratio = UNMEASURED_RATIO if _is_beyond(row, others or residuals) else 1.0
    sides = seen_ratios.times(reach_ratio * half_width_of_others(row, kind, residuals))
    return Sides(below=sides.above, above=sides.above) if _is_new_architecture(kind[0], others) else sides


def half_width_of_others(row: Row, kind: Kind, residuals: Sequence[Residual]) -> float:
    """Returns the half width before `half_widths_of` stretches it, equal on both sides.

    What is partly new has at least the width of all related residuals. An architecture that no other source measured has more.
    """
    family, precision, network = kind
    others = _of_other_sources(row, residuals) or list(residuals)
    related = [residual for residual in others if residual.network == network] or others
    half_width = log_half_width(related, family, precision)
    dense = [residual for residual in others if residual.network == "dense"]
    if network == "experts" and dense:  # experts have all parts of a dense model, and more
        half_width = max(half_width, log_half_width(dense, family, precision))
    is_new_accelerator = all(residual.accelerator != row["accelerator"] for residual in related)
    is_partly_new = (
        is_new_accelerator or _is_new_software(software_of(row), family, others) or _is_beyond(row, others)
    )
    if is_partly_new or not has_sources(residuals, family, precision):
        half_width = max(half_width, log_half_width(related, ANY, ANY))
    if _is_new_architecture(family, others):
        measured = {(residual.family, residual.precision) for residual in related}
        least = max(log_half_width(related, *kind) for kind in measured)
        of_kernels = log_half_width(dense, ANY, ANY) if network == "experts" and dense else half_width
        half_width = max(less_sure(half_width, of_kernels, architecture_ratio(family)), least)
    return half_width


def _is_new_architecture(family: str, residuals: Iterable[Residual]) -> bool:
    return all(residual.family != family for residual in residuals)


def software_of(row: Row) -> str:
    """Returns the software family of a row, by its framework or by the name of its source; empty if unknown."""
    return row.get("software") or software_family(row["group"])


def has_sources(residuals: Sequence[Residual], family: str, precision: str) -> bool:
    """Returns whether several sources measured an architecture in a number format."""
    alike = {r.group for r in residuals if (r.family, r.precision) == (family, precision)}
    return len(alike) >= FEWEST_SOURCES


def _is_beyond(row: Row, residuals: Iterable[Residual]) -> bool:
    return not reach_of_row(row).is_within(residual.reach for residual in residuals)


def _is_new_software(software: str, family: str, residuals: Sequence[Residual]) -> bool:
    """Returns whether the software of a row is known and nobody else ran it on the architecture."""
    return bool(software) and all((r.software, r.family) != (software, family) for r in residuals)


def calibrated_interval(comparison: Comparison, calibration: Calibration | None) -> Interval | None:
    """Returns the interval of a row from the errors of its cluster's calibration; `None` if that has none for its kind."""
    if calibration is None:
        return None
    row = comparison.row
    precision, has_experts = Precision(row["precision"]), bool(row["num_experts"])
    known = calibration.residuals_of(row["accelerator"], precision, has_experts=has_experts)
    if known is None:
        return None
    factor = math.exp(known.interval_log_half_width)
    return Interval(low_s=comparison.expected_s / factor, high_s=comparison.expected_s * factor)


def log_half_width(residuals: Sequence[Residual], family: str, precision: str) -> float:
    """Returns the size that four of five residuals stay below, for a step on an architecture in a number format."""
    weights = _weights(residuals, family, precision)
    sizes = np.abs([residual.log_ratio for residual in residuals])
    # One more than n must fit: conformal quantile.
    share = min(1.0, INSIDE_FRACTION * (1.0 + 1.0 / len(residuals)))
    return weighted_quantile(sizes, weights, share)


def _of_other_sources(row: Row, residuals: Sequence[Residual]) -> list[Residual]:
    """Returns the residuals of all sources but the row's own."""
    own = {residual.group for residual in residuals if _is_of_one_source(row, residual)}
    return [residual for residual in residuals if residual.group not in own]


def _is_of_one_source(row: Row, residual: Residual) -> bool:
    return (
        residual.group == row["group"]
        or residual.row_id == row["row_id"]
        or residual.config_key == row["config_key"]
    )


def _weights(residuals: Sequence[Residual], family: str, precision: str) -> Floats:
    """Returns the weight of each residual: every source has one in total, and similar residuals together have as much again."""
    is_alike = [(residual.family, residual.precision) == (family, precision) for residual in residuals]
    rows = Counter(residual.group for residual in residuals)
    rows_alike = Counter(residual.group for residual, alike in zip(residuals, is_alike, strict=True) if alike)
    share = len(rows) / max(1, len(rows_alike))
    return np.array(
        [
            1.0 / rows[residual.group] + (share / rows_alike[residual.group] if alike else 0.0)
            for residual, alike in zip(residuals, is_alike, strict=True)
        ]
    )


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """Returns the smallest of the values `(n,)` at which their weights `(n,)` add up to a share of the total."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    position = int(np.searchsorted(reached, share * reached[-1]))
    return float(values[order][min(position, len(values) - 1)])
