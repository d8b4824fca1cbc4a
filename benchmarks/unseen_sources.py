"""How much further off are steps of a source that no constant has seen, every source counting the same?

    python -m benchmarks.unseen_sources

Errors are those with constants that are fitted without the source, less what the row's host and open choices may change, over
the half width that residuals of other sources have. Of a source that the constants have not seen, they are those with the
shipped ones. The last line has the ratio under which four of five errors lie if there is one source more, whose errors may
be larger than all others': `NEW_SOURCE_RATIO`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.validate_further import FURTHER_FILE
from benchmarks.validate_held_out import (
    errors_without_sources,
    kind_of,
    labelled_steps,
    unsure_ratios_without_sources,
)
from planner.measured_rows import Unmodelled, read_measured
from planner.measured_runs import Row, compare, read_rows
from planner.validation import unsure_log_ratios
from planner.validation_interval import (
    INSIDE_FRACTION,
    development_residuals,
    half_width_of_others,
    residual_of,
    weighted_quantile,
)
from simulator.table import Floats

UNSEEN = ("Narayanan et al.", "Llama 3 405B")
"""Beginnings of the names of sources with dense steps that no constant was fitted on."""


def ratios_by_source() -> Mapping[str, Floats]:
    """Returns the error over the half width of every dense step, `(n,)`, source by source."""
    found: dict[str, list[float]] = defaultdict(list)
    for source, row, error, unsure_ratios in (*_seen(), *_unseen()):
        own = error_of_model(error, unsure_ratios)
        found[source].append(own / half_width_of_others(row, kind_of(row), development_residuals()))
    return {source: np.array(ratios) for source, ratios in sorted(found.items())}


def error_of_model(error: float, unsure_ratios: Floats) -> float:
    """Returns |ln(simulated / measured)| beyond what the row leaves unsure on that side, as independent errors add."""
    towards = np.maximum(0.0, -math.copysign(1.0, error) * unsure_ratios)
    return math.sqrt(max(0.0, error**2 - float((towards**2).sum())))


def ratio_of_one_more(ratios: Sequence[Floats]) -> float:
    """Returns the ratio under which four of five errors of one more source lie, with whatever that has among the largest."""
    weights = np.concatenate([np.full(len(found), 1.0 / len(found)) for found in ratios])
    share = min(1.0, INSIDE_FRACTION * (1.0 + 1.0 / len(ratios)))
    return weighted_quantile(np.concatenate(list(ratios)), weights, share)


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


def main() -> None:
    """Prints the ratio under which four of five errors lie, source by source and of one more."""
    found = ratios_by_source()
    for source, ratios in found.items():
        print(f"{source}: {np.quantile(ratios, INSIDE_FRACTION):.2f}, n={len(ratios)}")
    print(f"one more of {len(found)}: {ratio_of_one_more(list(found.values())):.2f}")


if __name__ == "__main__":
    main()
