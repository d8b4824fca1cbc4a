"""Which part of a step's error do all designs of a job share? Estimated from the residuals of published steps.

    python -m benchmarks.step_error           prints the lines of simulator/data/step_error.csv
    python -m benchmarks.step_error --write   writes the file
    python -m benchmarks.step_error --software    prints how much more certain software is that others ran on an architecture

The width of the error of a kind of step follows from its 80 % interval in `planner.validation.interval`. Its division follows
from a one-way analysis of variance with random groups (Searle, Casella, McCulloch: Variance Components, 1992, chapter 3). Like
the designs of one job, a group is what one publisher measured of one model on one accelerator in one number format; layouts,
sizes and sequence lengths differ within it.

A kind with only one source is taken to be no more certain than all kinds together: nothing shows how far off another source
would be.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.unseen_sources import error_of_model
from benchmarks.validate_held_out import (
    errors_without_sources,
    labelled_steps,
    unsure_ratios_without_sources,
)
from planner.measured.runs import Comparison, Row, compare, read_rows
from planner.validation.interval import (
    INSIDE_FRACTION,
    NEW_SOURCE_RATIOS,
    Residual,
    development_residuals,
    has_sources,
    log_half_width,
    residual_of,
    software_of,
    weighted_quantile,
)
from simulator import catalog
from simulator.accuracy.step_error import ANY, Z_80
from simulator.table import Floats

FILE = Path(__file__).parent.parent / "simulator" / "data" / "step_error.csv"
HEADING = "family,precision,network,shared_log_deviation,own_log_deviation,num_rows,accelerators"
JOB = ("group", "model", "num_layers", "accelerator", "precision")
"""Columns that the designs of one job have in common."""
FEWEST_ROWS = 10
"""A kind with fewer rows is taken to be no surer than all kinds together."""


def variance_parts(groups: Sequence[Floats]) -> tuple[float, float]:
    """Returns the variance between groups and the one within them, by the method of moments; the first at least 0."""
    sizes = np.array([len(group) for group in groups])
    means = np.array([group.mean() for group in groups])
    mean = np.average(means, weights=sizes)
    num_rows, num_groups = int(sizes.sum()), len(groups)
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (num_rows - num_groups)
    between = float((sizes * (means - mean) ** 2).sum()) / (num_groups - 1)
    effective_size = (num_rows - float((sizes**2).sum()) / num_rows) / (num_groups - 1)
    return max(0.0, (between - within) / effective_size), within


def log_ratios_by_job(comparisons: Iterable[Comparison]) -> list[Floats]:
    """Returns ln(measured / simulated) of every configuration, one array for each job."""
    jobs: dict[tuple[str, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for comparison in comparisons:
        row = comparison.row
        ratios = jobs[tuple(row[column] for column in JOB)][row["config_key"]]
        ratios.append(residual_of(comparison).log_ratio)
    return [np.array([np.mean(ratios) for ratios in job.values()]) for job in jobs.values()]


def lines() -> list[str]:
    """Returns the lines of the shipped file."""
    comparisons = compare([row for row in read_rows() if not row["left_out_because"]])
    shared, own = variance_parts(log_ratios_by_job(comparisons))
    residuals = [residual_of(comparison) for comparison in comparisons]
    kinds = sorted({(r.family, r.precision, r.network) for r in residuals})
    kinds += [(ANY, ANY, network) for network in sorted({r.network for r in residuals})]
    return [
        HEADING,
        *(
            f"{_line(kind, residuals, shared / (shared + own))},{_accelerators(kind, comparisons)}"
            for kind in kinds
        ),
    ]


def _line(kind: tuple[str, str, str], residuals: Sequence[Residual], shared_fraction: float) -> str:
    family, precision, network = kind
    related = [residual for residual in residuals if residual.network == network]
    num_rows = sum(family == ANY or (r.family, r.precision) == (family, precision) for r in related)
    half_width = log_half_width(related, family, precision)
    if num_rows < FEWEST_ROWS or not (family == ANY or has_sources(related, family, precision)):
        half_width = max(half_width, log_half_width(related, ANY, ANY))
    deviation = half_width / Z_80
    parts = (math.sqrt(shared_fraction) * deviation, math.sqrt(1.0 - shared_fraction) * deviation)
    return f"{family},{precision},{network},{parts[0]:.4f},{parts[1]:.4f},{num_rows}"


def _accelerators(kind: tuple[str, str, str], comparisons: Sequence[Comparison]) -> str:
    """Returns the accelerators of a kind, of all kinds of network for the line that stands for all."""
    alike = [c for c in comparisons if (kind[0] == ANY and kind[2] == c.kind[2]) or c.kind == kind]
    return " ".join(sorted({c.row["accelerator"] for c in alike}))


@dataclass(frozen=True, kw_only=True)
class _HeldOutStep:
    """A step of dense models, simulated with constants that are fitted without its source."""

    row: Row
    software: str
    family: str
    error: float
    """ln(measured / simulated) beyond what its host and open choices may change, as independent errors add."""


def software_lines() -> list[str]:
    """Returns how far errors exceed half widths that know nothing of the software on the architecture, pair by pair.

    Half widths are those of all measured steps together, or of the architecture and format with other software, where that
    is more. The last line has all pairs, which count the same.
    """
    residuals = [residual for residual in development_residuals() if residual.network == "dense"]
    pairs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for step in _held_out_steps():
        pair = (step.software, step.family)
        others = [r for r in residuals if (r.software, r.family) != pair and r.group != step.row["group"]]
        if step.software and any(residual.family == step.family for residual in others):
            widths = [log_half_width(others, *k) for k in ((step.family, step.row["precision"]), (ANY, ANY))]
            ratio = NEW_SOURCE_RATIOS.above if step.error > 0.0 else NEW_SOURCE_RATIOS.below
            pairs[pair].append(abs(step.error) / (ratio * max(widths)))
    ratios = np.concatenate([np.array(found) for found in pairs.values()])
    weights = np.concatenate([np.full(len(found), 1.0 / len(found)) for found in pairs.values()])
    return [
        *(
            f"{software} on {family}: {np.quantile(found, INSIDE_FRACTION):.2f}, n={len(found)}"
            for (software, family), found in sorted(pairs.items())
        ),
        f"all pairs: {weighted_quantile(ratios, weights, INSIDE_FRACTION):.2f}",
    ]


def _held_out_steps() -> list[_HeldOutStep]:
    steps, sources, _ = labelled_steps()
    shipped = {row["row_id"] for row in read_rows()}
    errors, unsure = errors_without_sources(steps, sources), unsure_ratios_without_sources(steps, sources)
    return [
        _HeldOutStep(
            row=row,
            software=software_of(row),
            family=catalog.accelerator(row["accelerator"]).family,
            error=error_of_model(error, ratios),
        )
        for row, error, ratios in zip(steps.rows, errors, unsure, strict=True)
        if row["row_id"] in shipped and not row["num_experts"]
    ]


def main() -> None:
    """Prints the lines, or writes the file."""
    parser = argparse.ArgumentParser(description="Estimate how the error of simulated steps divides.")
    parser.add_argument("--write", action="store_true", help="write the shipped file instead of printing it")
    parser.add_argument(
        "--software", action="store_true", help="print the errors of software left out instead"
    )
    given = parser.parse_args()
    text = "\n".join(software_lines() if given.software else lines()) + "\n"
    if given.write:
        FILE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
