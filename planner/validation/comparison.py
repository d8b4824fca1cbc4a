"""How far are simulated steps from measured ones, how certain is each, and does the simulator pick the faster design?

An error is the simulated over the measured value, less one. Rows that share a `config_key` are one configuration measured
several times: their mean times are compared, so that eight releases of one configuration do not count eight times.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.calibration.steps import batches_of
from planner.measured.fitting_choices import FAR, with_room
from planner.measured.row_reasons import reason_against
from planner.measured.rows import Unmodelled
from planner.measured.runs import (
    OUT_OF_MEMORY,
    Comparison,
    Row,
    compare,
    is_untold,
    job_cells,
    known_reason,
    plan_of,
)
from planner.measured.untold_layouts import SLOWER_LOG_RATIO, has_told_layout, with_fastest_layouts
from planner.validation.host_uncertainty import host_log_ratios
from planner.validation.interval import (
    Interval,
    calibrated_interval,
    development_residuals,
    interval_of,
)
from planner.validation.open_choices import open_log_ratios
from simulator.domain.calibration import Calibration
from simulator.table import Floats

MIN_RANKED = 4
"""Smallest number of configurations in a group for which a rank correlation is computed."""
LEAST_STEADY_FRACTION = 0.77
"""Share of a whole run's time that is spent in steady steps; averages over a run also include stops, evaluations and saves.
It is 0.77 for OLMo 3 32B and 0.86 for Llama 3.1 405B (26.4 of 30.84 million hours, arXiv 2407.21783)."""
UNKNOWN_SOFTWARE_LOG_RATIOS = (-0.11, 0.32)
"""ln(step with the habits of its framework / step with those of an unknown one): 10th and 90th percentile over the published
configurations (`python -m benchmarks.untold_choices`)."""


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """A measured row, its simulation, and the interval in which the measurement is expected."""

    comparison: Comparison
    interval: Interval

    @property
    def is_inside(self) -> bool:
        """Whether the measured time lies in the interval."""
        return self.interval.holds(self.comparison.measured_s)


Entry = Modelled | Unmodelled


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Rows that measure the same configuration."""

    rows: tuple[Comparison, ...]

    @property
    def measured_s(self) -> float:
        """Mean measured step."""
        return float(np.mean([row.measured_s for row in self.rows]))

    @property
    def expected_s(self) -> float:
        """Mean simulated step."""
        return float(np.mean([row.expected_s for row in self.rows]))

    @property
    def error_fraction(self) -> float:
        """Error of the mean simulated step against the mean measured one."""
        return self.expected_s / self.measured_s - 1.0

    @property
    def token_rates(self) -> tuple[float, float]:
        """Measured and simulated tokens per second."""
        tokens = float(np.mean([row.tokens_per_step for row in self.rows]))
        return tokens / self.measured_s, tokens / self.expected_s


@dataclass(frozen=True, kw_only=True)
class Score:
    """Errors of some configurations, as fractions of the measured values."""

    group: str
    num_rows: int
    num_configurations: int
    mean_absolute_error_fraction: float
    """Mean absolute percentage error (MAPE), as a fraction."""
    median_error_fraction: float
    """Median of the signed errors."""
    bias_fraction: float
    """Mean of the signed errors."""
    inside_interval_fraction: float
    """Share of the rows whose measured time lies in their interval."""
    worst_error_fraction: float
    worst_row: str
    worst_reason: str | None
    """Possible cause of the worst row's error, from its notes or assumptions; `None` if they say nothing."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Designs measured for the same job, and the one that the simulator would pick."""

    group: str
    """The job."""
    source: str
    num_designs: int
    rank_correlation: float | None
    """Spearman's rank correlation of measured and simulated tokens per second; `None` for few or equal designs."""
    regret_fraction: float
    """Measured slow-down of the design simulated as fastest, relative to the design measured as fastest."""
    picked_row: str
    best_row: str


@dataclass(frozen=True, kw_only=True)
class MemoryVerdicts:
    """Which runs fit, in reality and in simulation."""

    num_ran_and_fit: int
    num_ran_but_simulated_too_large: int
    """Runs whose recomputation is known or taken from elsewhere, but that do not fit in simulation."""
    num_ran_but_far_too_large: int
    """Such runs that need over 5 % more memory than there is, which is more than the uncertainty of simulated memory."""
    num_ran_and_recompute_not_given: int
    """Runs that do not fit without recomputation, which is only assumed because they do not state it; no verdict."""
    num_ran_but_refused_as_plan: int
    """Runs that would be refused as plans, since a plan also needs room for the allocator's fragmentation."""
    num_out_of_memory_and_too_large: int
    num_out_of_memory_but_simulated_to_fit: int
    too_large_rows: tuple[str, ...]
    """Ids of the runs counted in `num_ran_but_simulated_too_large`."""


def entries_of(rows: Iterable[Row | Unmodelled], calibration: Calibration | None = None) -> list[Entry]:
    """Returns every row in order, with its simulation and interval or with the reason why there is none.

    With a calibration, its constants are used. Its errors give the intervals of those kinds of steps that it covers, except
    for runs whose layout is not stated.
    """
    checked = [_checked(row) for row in with_fastest_layouts(list(rows), calibration)]
    modelled = [row for row in checked if not isinstance(row, Unmodelled)]
    comparisons = with_room(compare(modelled, calibration), calibration)
    known = zip(comparisons, unsure_log_ratios(comparisons, calibration), strict=True)
    residuals = development_residuals()
    entries: list[Entry] = []
    for row in checked:
        if isinstance(row, Unmodelled):
            entries.append(row)
            continue
        comparison, unsure_ratios = next(known)
        if math.isfinite(comparison.simulated_s):
            own = calibrated_interval(comparison, calibration) if has_told_layout(comparison.row) else None
            interval = own or interval_of(comparison, residuals, unsure_ratios)
            entries.append(Modelled(comparison=comparison, interval=interval))
        else:
            entries.append(_unmodelled(row, "the layout has no schedule"))
    return entries


def job_order(rows: Sequence[Row | Unmodelled]) -> list[int]:
    """Returns the positions of all rows, those of one job side by side: priced together, they cost little more than one."""
    cells = [(row.possible or ({},))[0] if isinstance(row, Unmodelled) else row for row in rows]
    keys = [sorted(job_cells(row)) for row in cells]
    return sorted(range(len(rows)), key=keys.__getitem__)


def unsure_log_ratios(
    comparisons: Sequence[Comparison], calibration: Calibration | None = None
) -> list[Floats]:
    """Returns, row by row, ln(possible step / step) for open choices, host, stops, layout and software."""
    choices_left = open_log_ratios(comparisons, calibration)
    known_s = np.array([row.simulated_s for row in comparisons])
    hosts = host_log_ratios(batches_of([row.row for row in comparisons]), known_s, calibration=calibration)
    stops = [[-math.log(LEAST_STEADY_FRACTION)] if row.is_production else [] for row in comparisons]
    layouts = [[] if has_told_layout(row.row) else [SLOWER_LOG_RATIO] for row in comparisons]
    software = [
        UNKNOWN_SOFTWARE_LOG_RATIOS if _is_of_unknown_software(row.row) else [] for row in comparisons
    ]
    return [
        np.concatenate(ratios) for ratios in zip(choices_left, hosts, stops, layouts, software, strict=True)
    ]


def _is_of_unknown_software(row: Row) -> bool:
    return is_untold(row, "framework") and not row.get("software")


def _checked(row: Row | Unmodelled) -> Row | Unmodelled:
    if isinstance(row, Unmodelled):
        return row
    left_out = row["left_out_because"]
    reason = left_out if left_out not in ("", OUT_OF_MEMORY) else reason_against(row)
    return _unmodelled(row, reason) if reason else row


def _unmodelled(row: Row, reason: str) -> Unmodelled:
    return Unmodelled(row_id=row["row_id"], group=row["group"], reason=reason, step_time_s=row["step_time_s"])


def timed(entries: Iterable[Entry]) -> list[Modelled]:
    """Returns the modelled rows with a measured step time."""
    return [entry for entry in entries if isinstance(entry, Modelled) and entry.comparison.is_timed]


def scores(entries: Sequence[Modelled], name: Callable[[Comparison], str]) -> list[Score]:
    """Returns the errors of every group of timed rows, sorted by group name."""
    groups: dict[str, list[Modelled]] = defaultdict(list)
    for entry in entries:
        groups[name(entry.comparison)].append(entry)
    return [_score(group, members) for group, members in sorted(groups.items())]


def _score(group: str, members: Sequence[Modelled]) -> Score:
    found = configurations([member.comparison for member in members])
    errors = np.array([configuration.error_fraction for configuration in found])
    worst = max((member.comparison for member in members), key=lambda row: abs(row.error_fraction))
    return Score(
        group=group,
        num_rows=len(members),
        num_configurations=len(found),
        mean_absolute_error_fraction=float(np.abs(errors).mean()),
        median_error_fraction=float(np.median(errors)),
        bias_fraction=float(errors.mean()),
        inside_interval_fraction=float(np.mean([member.is_inside for member in members])),
        worst_error_fraction=worst.error_fraction,
        worst_row=worst.row["row_id"],
        worst_reason=known_reason(worst.row),
    )


def configurations(
    rows: Iterable[Comparison], key: Callable[[Comparison], str] = lambda row: row.row["config_key"]
) -> list[Configuration]:
    """Returns the rows by configuration, in the order of their first rows."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [Configuration(rows=tuple(members)) for members in groups.values()]


def choices(entries: Sequence[Modelled]) -> list[Choice]:
    """Returns every job with two or more timed designs: how well they are ordered, and the regret.

    Designs chosen here because their rows do not state them do not count.
    """
    return choices_among([entry.comparison for entry in entries if has_told_layout(entry.comparison.row)])


def choices_among(rows: Iterable[Comparison]) -> list[Choice]:
    """Returns every job with two or more designs among timed rows, which need no intervals."""
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for row in rows:
        groups[_same_job(row)].append(row)
    found = [configurations(members, design) for _, members in sorted(groups.items())]
    return [_choice(designs) for designs in found if len(designs) > 1]


def design(comparison: Comparison) -> str:
    """Returns the layout of a row as one text; rows that share it do not differ in anything that could be chosen."""
    return plan_of(comparison.row).model_dump_json()


def _same_job(comparison: Comparison) -> str:
    """Returns what rows share if their designs were alternatives: source, model, cluster, sequence, format and batch.

    Batches that round to the same power of two count as the same, since layouts need slightly different ones.
    """
    row = comparison.row
    columns = ("group", "model", "num_layers", "num_heads", "accelerator", "num_gpus", "sequence_length")
    batch = round(math.log2(float(row["global_batch_size"])))
    return "|".join(
        [*(row[column] for column in columns), row["precision"], row["is_production"], str(batch)]
    )


def _choice(designs: Sequence[Configuration]) -> Choice:
    measured, simulated = np.array([found.token_rates for found in designs]).T
    picked, best = int(simulated.argmax()), int(measured.argmax())
    row = designs[best].rows[0].row
    is_ranked = len(designs) >= MIN_RANKED and min(np.ptp(measured), np.ptp(simulated)) > 0.0
    return Choice(
        group=f"{row['model']}, {row['num_gpus']} {row['accelerator']}, {row['sequence_length']} tokens, "
        f"{row['precision']}",
        source=row["group"],
        num_designs=len(designs),
        rank_correlation=rank_correlation(measured, simulated) if is_ranked else None,
        regret_fraction=float(measured[best] / measured[picked] - 1.0),
        picked_row=designs[picked].rows[0].row["row_id"],
        best_row=row["row_id"],
    )


def rank_correlation(one: Floats, other: Floats) -> float:
    """Returns Spearman's correlation of two columns `(n,)`: the correlation of their ranks; ties share their mean rank."""

    def ranks(values: Floats) -> Floats:
        below, equal = values[:, None] > values, values[:, None] == values
        return np.asarray(below.sum(axis=1) + (equal.sum(axis=1) - 1) / 2.0)

    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def memory_verdicts(entries: Iterable[Entry]) -> MemoryVerdicts:
    """Returns how many runs fit and how many did not, in reality and in simulation."""
    return verdicts_of([entry.comparison for entry in entries if isinstance(entry, Modelled)])


def verdicts_of(modelled: Sequence[Comparison]) -> MemoryVerdicts:
    """Returns how many of the simulated runs fit and how many did not, in reality and in simulation.

    Runs that keep something other than what is simulated are left out.
    """
    judged = [row for row in modelled if row.has_memory_verdict]
    ran = [row for row in judged if row.ran]
    failed = [row for row in judged if row.ran_out_of_memory]
    too_large = [row for row in ran if row.is_too_large]
    wrong = [row for row in too_large if not row.may_recompute]
    return MemoryVerdicts(
        num_ran_and_fit=len(ran) - len(too_large),
        num_ran_but_simulated_too_large=len(wrong),
        num_ran_but_far_too_large=sum(row.simulated_memory_bytes > FAR * row.capacity_bytes for row in wrong),
        num_ran_and_recompute_not_given=len(too_large) - len(wrong),
        num_ran_but_refused_as_plan=sum(row.planned_memory_bytes > row.capacity_bytes for row in ran),
        num_out_of_memory_and_too_large=sum(row.is_too_large for row in failed),
        num_out_of_memory_but_simulated_to_fit=sum(not row.is_too_large for row in failed),
        too_large_rows=tuple(row.row["row_id"] for row in wrong),
    )
