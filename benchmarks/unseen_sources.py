"""How much further off are steps of a source that no constant was fitted on, if every source counts the same?

    python -m benchmarks.unseen_sources

Errors are computed with constants fitted without the source, or with the shipped ones if these were not fitted on it. What the
row's host and open choices may change is subtracted, and the rest is divided by the half width from residuals of other sources.
Measurements shorter and longer than simulated are separate. Rows that are known to have run other software than they state are
left out (`docs/validation.md`). The line before the last gives the ratios below which nine of ten errors on either side lie if
there is one further source, whose errors may be larger than all others': `NEW_SOURCE_RATIOS`. The last line gives the shares of
shipped steps on either side of their intervals, with `UNSEEN_RATIOS`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.validate_further import FURTHER_FILE
from benchmarks.validate_held_out import (
    errors_without_sources,
    labelled_steps,
    sides_of,
    unsure_ratios_without_sources,
)
from planner.measured.rows import Unmodelled, read_measured
from planner.measured.runs import Row, compare, read_rows
from planner.validation.comparison import unsure_log_ratios
from planner.validation.interval import (
    INSIDE_FRACTION,
    development_residuals,
    half_width_of_others,
    kind_of,
    residual_of,
    weighted_quantile,
)
from simulator.accuracy.step_error import Sides
from simulator.table import Floats

UNSEEN = ("Narayanan et al.", "Llama 3 405B")
"""Beginnings of the names of sources with dense steps that no constant was fitted on."""
OF_OTHER_SOFTWARE = frozenset({"nemo-0111", "nemo-0112", "nemo-0113", "nemo-0114", "nemo-0115"})
"""GPT-3 175B of NeMo 23.08, whose times are a year older; beside DeepSpeed's ZeRO-3 of 2021, which waited for each gather."""
SIDE_FRACTION = (1.0 + INSIDE_FRACTION) / 2.0
"""Share of errors that lie below either end of an interval."""


def ratios_by_source() -> Mapping[str, Floats]:
    """Returns the error over the half width of every dense step, `(n,)`, positive where it took longer, source by source."""
    found: dict[str, list[float]] = defaultdict(list)
    for source, row, error, unsure_ratios in (*_seen(), *_unseen()):
        if not _has_other_software(row):
            own = error_of_model(error, unsure_ratios)
            found[source].append(own / half_width_of_others(row, kind_of(row), development_residuals()))
    return {source: np.array(ratios) for source, ratios in sorted(found.items())}


def error_of_model(error: float, unsure_ratios: Floats) -> float:
    """Returns ln(measured / simulated) beyond what the row leaves unsure on that side, as independent errors add.

    Args:
        error: ln(simulated / measured).
        unsure_ratios: ln(step as it could be / step), `(k,)`.
    """
    towards = np.maximum(0.0, -math.copysign(1.0, error) * unsure_ratios)
    return -math.copysign(math.sqrt(max(0.0, error**2 - float((towards**2).sum()))), error)


def ratios_of_one_more(ratios: Sequence[Floats]) -> Sides:
    """Returns the ratios under which nine of ten errors of one more source lie, with whatever that has among the largest."""
    weights = np.concatenate([np.full(len(found), 1.0 / len(found)) for found in ratios])
    share = min(1.0, SIDE_FRACTION * (1.0 + 1.0 / len(ratios)))
    errors = np.concatenate(list(ratios))
    below, above = (weighted_quantile(side * errors, weights, share) for side in (-1.0, 1.0))
    return Sides(below=below, above=above)


def _has_other_software(row: Row) -> bool:
    is_early_zero_3 = row["group"].startswith("Narayanan") and row["zero_stage"] == "3"
    return is_early_zero_3 or row["row_id"] in OF_OTHER_SOFTWARE


def _seen() -> Iterator[tuple[str, Row, float, Floats]]:
    steps, sources, _ = labelled_steps()
    errors, unsure = errors_without_sources(steps, sources), unsure_ratios_without_sources(steps, sources)
    for source, row, error, ratios in zip(sources, steps.rows, errors, unsure, strict=True):
        yield str(source), row, float(error), ratios


def _unseen() -> Iterator[tuple[str, Row, float, Floats]]:
    rows = [row for row in read_measured(FURTHER_FILE) if not isinstance(row, Unmodelled)]
    rows += [row for row in read_rows() if not row["left_out_because"]]
    comparisons = compare([row for row in rows if row["group"].startswith(UNSEEN)])
    for known, ratios in zip(comparisons, unsure_log_ratios(comparisons), strict=True):
        source = next(name for name in UNSEEN if known.row["group"].startswith(name))
        yield source, known.row, -residual_of(known).log_ratio, ratios


def _shares_outside() -> Sides:
    """Returns the shares of steps of shipped training runs that are shorter and longer than their intervals."""
    steps, sources, _ = labelled_steps()
    errors, unsure = errors_without_sources(steps, sources), unsure_ratios_without_sources(steps, sources)
    below, above = sides_of(steps, unsure)
    is_run = ~np.char.startswith(sources, "vTrain")
    return Sides(below=float((errors > below)[is_run].mean()), above=float((-errors > above)[is_run].mean()))


def main() -> None:
    """Prints the ratios under which nine of ten errors on either side lie, source by source and of one more."""
    found = ratios_by_source()
    for source, ratios in found.items():
        below, above = (np.quantile(side * ratios, SIDE_FRACTION) for side in (-1.0, 1.0))
        print(f"{source}: {below:.2f} below, {above:.2f} above, n={len(ratios)}")
    ratio, share = ratios_of_one_more(list(found.values())), _shares_outside()
    print(f"one more of {len(found)}: {ratio.below:.2f} below, {ratio.above:.2f} above")
    print(f"shipped steps outside: {share.below:.1%} below, {share.above:.1%} above")


if __name__ == "__main__":
    main()
