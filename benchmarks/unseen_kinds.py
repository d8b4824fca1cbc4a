"""How much further off are steps of a kind without measurements? Each kind is left out in turn.

    python -m benchmarks.unseen_kinds --measured training_runs.csv --vtrain FOLDER

The steps of a kind, and the source of each, are left out of the fit of the constants (linearized around the shipped ones) and
of the residuals that give the half widths. Errors are divided by those half widths, and every source counts the same. Next to
them are the errors of the same steps with only their source left out, and those of other steps of these sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.fit_training import prior, weights_of
from benchmarks.hold_out import plane_of
from benchmarks.training_steps import over_measured_steps, sources_of
from planner.calibration.fitting import Plane, damped
from planner.calibration.steps import MeasuredSteps
from planner.measured.runs import Row
from planner.validation.interval import (
    INSIDE_FRACTION,
    development_residuals,
    half_width_of_others,
    kind_of,
    software_of,
    weighted_quantile,
)
from simulator.table import Floats

KINDS: Mapping[str, Callable[[Row], bool]] = {
    "sequences above 8,192": lambda row: int(row["sequence_length"]) > 8192,
    "sequences above 16,384": lambda row: int(row["sequence_length"]) > 16384,
    "context parallelism": lambda row: int(row["context_parallel"]) > 1,
    "tensor parallelism": lambda row: int(row["tensor_parallel"]) > 1,
    "tensor parallelism above 4": lambda row: int(row["tensor_parallel"]) > 4,
    "pipelines": lambda row: int(row["pipeline_parallel"]) > 1,
    "ZeRO-3": lambda row: row["zero_stage"] == "3",
    "8 bits": lambda row: row["precision"] == "fp8",
    "full recomputation": lambda row: row["recompute"] == "full",
    "unfused attention": lambda row: row["attention"] == "unfused",
    "DeepSpeed": lambda row: software_of(row) == "DeepSpeed",
    "PyTorch FSDP": lambda row: software_of(row) == "PyTorch FSDP",
    "Megatron": lambda row: software_of(row) == "Megatron",
}
"""Kinds of steps, and whether one is of it."""
HOST_BOUND = "vTrain single"
"""Source whose accelerators wait for their host, which says nothing of kinds."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Dense steps and how their errors follow from the constants."""

    rows: Sequence[Row]
    sources: NDArray[np.str_]
    plane: Plane

    def ratios(self, chosen: NDArray[np.bool_], left_out: NDArray[np.bool_]) -> list[Floats]:
        """Returns errors over half widths of chosen steps, an array for each source, with that source and more left out."""
        parts = [(name, chosen & (self.sources == name)) for name in np.unique(self.sources[chosen])]
        return [self._ratios(part, left_out | (self.sources == name)) for name, part in parts]

    def _ratios(self, chosen: NDArray[np.bool_], left_out: NDArray[np.bool_]) -> Floats:
        weights = np.where(left_out, 0.0, weights_of(self.sources))
        errors = np.abs(self.plane.predicted(damped(self.plane, weights, prior())))
        unknown = {self.rows[position]["config_key"] for position in np.flatnonzero(left_out).tolist()}
        known = [residual for residual in development_residuals() if residual.config_key not in unknown]
        positions = np.flatnonzero(chosen)
        rows = [self.rows[position] for position in positions.tolist()]
        widths = np.array([half_width_of_others(row, kind_of(row), known) for row in rows])
        return np.asarray(errors[positions] / widths)


def described(measured: Measured, is_of_kind: NDArray[np.bool_]) -> str:
    """Returns the ratios of a kind without it, without its sources alone, and of what else those measured."""
    is_sibling = ~is_of_kind & np.isin(measured.sources, np.unique(measured.sources[is_of_kind]))
    nothing = np.zeros_like(is_of_kind)
    ratios = [
        four_of_five(measured.ratios(chosen, left_out))
        for chosen, left_out in ((is_of_kind, is_of_kind), (is_of_kind, nothing), (is_sibling, nothing))
    ]
    return f"{ratios[0]:.2f}, known {ratios[1]:.2f}, others {ratios[2]:.2f}, n={is_of_kind.sum()}"


def four_of_five(ratios: Sequence[Floats]) -> float:
    """Returns the ratio under which four of five lie, every source counting the same; NaN without any."""
    if not ratios:
        return float("nan")
    weights = np.concatenate([np.full(len(found), 1.0 / len(found)) for found in ratios])
    return weighted_quantile(np.concatenate(ratios), weights, INSIDE_FRACTION)


@over_measured_steps
def main(steps: MeasuredSteps) -> None:
    """Prints the ratios of every kind."""
    sources = sources_of(steps)
    found = Measured(rows=steps.rows, sources=sources, plane=plane_of(steps))
    for name, is_of_kind in KINDS.items():
        chosen = np.array([is_of_kind(row) for row in steps.rows]) & (sources != HOST_BOUND)
        print(f"{name}: {described(found, chosen)}", flush=True)


if __name__ == "__main__":
    main()
