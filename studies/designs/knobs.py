"""How does a design become a row of small integers that crossover and mutation can work on?

There is one ordinal column per knob: an index into the sorted values that occur in the space. Data parallelism is not a knob
but follows from the number of accelerators, so neighbouring indices are neighbouring designs. Where the numbers do not
divide, the layout is invalid, and the distance from a valid one is a constraint that guides the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from constraints.layout import layout_excess
from constraints.scheme_rules import can_save_by
from constraints.space import Space
from simulator.compiled import compiled
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.run.spare_nodes import sufficient_spare_nodes
from simulator.table import Booleans, Floats, Integers
from studies.designs.admission import DesignCodes

LAYOUT_KNOBS = (
    "offer",
    "num_gpus",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "pipeline_schedule",
    "context_parallel",
    "expert_parallel",
    "micro_batch_size",
    "recompute",
    "zero_stage",
    "precision",
    "power_cap_fraction",
)
"""Knobs whose values are those that occur among the layouts of the space."""
OPTIONAL_KNOBS = ("recompute_num_layers", "shard_ranks", "interleaved_group_size")
"""Knobs of layouts that are used only if the space has several values of them."""
RUN_KNOBS = ("checkpoint_scheme", "with_spares")
"""Knobs that the job lists."""

OUT_OF_BOUNDS = 1e-3
"""Rejection value of a valid layout whose bounds break a limit: smaller than that of any invalid layout."""
NO_COLUMN = ("power_cap_fraction", "with_spares")
"""Knobs that are not integer columns of a plan."""


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """The values of every knob in ascending order."""

    job: Job
    values: dict[str, NDArray[np.generic]]
    fixed: dict[str, int]
    """The value of every optional knob that is not used."""
    codes: Integers
    """One number for each layout of the space, ascending, `(n,)`."""
    rows: NDArray[np.intp]
    """Rows of these layouts in the table of the space."""
    layouts: PlanTable
    """The layouts of the space, in the order of the space."""

    @classmethod
    def of(cls, space: Space) -> Self:
        """Returns the knobs of a space."""
        job = space.job
        values: dict[str, NDArray[np.generic]] = {
            name: _distinct(getattr(space.layouts, name)) for name in (*LAYOUT_KNOBS, *OPTIONAL_KNOBS)
        }
        fixed = {name: values.pop(name) for name in OPTIONAL_KNOBS if len(values[name]) <= 1}
        values["checkpoint_scheme"] = np.array([scheme.code for scheme in job.search.checkpoint_schemes])
        values["with_spares"] = np.array(job.search.with_spares, dtype=np.int64)
        codes = _codes(_layout_indices(values, space.layouts), _of_layouts(values))
        rows = np.argsort(codes, kind="stable")
        return cls(
            job=job,
            values=values,
            fixed={name: int(value.sum()) for name, value in fixed.items()},  # 0 in a space without layouts
            codes=codes[rows],
            rows=rows,
            layouts=space.layouts,
        )

    @property
    def num_layout_knobs(self) -> int:
        """Knobs before those of the run."""
        return len(self.values) - len(RUN_KNOBS)

    @property
    def largest(self) -> Integers:
        """Largest index of each knob, `(k,)`."""
        return np.array([len(values) - 1 for values in self.values.values()], dtype=np.int64)

    def encode(self, plans: PlanTable) -> Integers:
        """Returns designs of the space as indices `(n, k)`, including run knobs."""
        order = np.argsort(self.values["checkpoint_scheme"])
        schemes = order[np.searchsorted(self.values["checkpoint_scheme"][order], plans.checkpoint_scheme)]
        # Where no spare is needed, the designs with and without spares are the same.
        has_spares = self.values["with_spares"] == (plans.num_spare_nodes > 0)[:, None]
        columns = [_layout_indices(self.values, plans), schemes, has_spares.argmax(axis=1)]
        return np.column_stack(columns).astype(np.int64)

    def layout_rows(self, plans: PlanTable) -> NDArray[np.intp]:
        """Returns the rows of the layouts of designs in the table of the space, `(n,)`; all of them are there."""
        codes = _codes(_layout_indices(self.values, plans), _of_layouts(self.values))
        return np.asarray(self.rows[np.searchsorted(self.codes, codes)])

    def decode(self, indices: Integers) -> PlanTable:
        """Returns the designs `(n,)` of index rows; data parallelism is rounded down where it is not an integer."""
        chosen = {name: values[indices[:, k]] for k, (name, values) in enumerate(self.values.items())}
        counts = {name: column.astype(np.int64) for name, column in chosen.items() if name not in NO_COLUMN}
        counts |= {name: np.full(len(indices), value) for name, value in self.fixed.items()}
        split = counts["tensor_parallel"] * counts["pipeline_parallel"] * counts["context_parallel"]
        plans = PlanTable(
            **counts,
            power_cap_fraction=chosen["power_cap_fraction"].astype(np.float64),
            data_parallel=np.maximum(1, counts["num_gpus"] // split),
            num_spare_nodes=np.zeros(len(indices), dtype=np.int64),
            checkpoint_interval_s=np.full(len(indices), np.nan),
        )
        spares = chosen["with_spares"].astype(np.int64) * sufficient_spare_nodes(self.job, plans)
        return replace(plans, num_spare_nodes=spares)

    def no_designs(self) -> PlanTable:
        """Returns a table of designs without rows."""
        return self.decode(np.zeros((0, len(self.values)), dtype=np.int64))

    def excess(self, plans: PlanTable) -> Floats:
        """Returns how far decoded designs are from a valid layout, `(n,)`; 0 is valid."""
        split = plans.tensor_parallel * plans.pipeline_parallel * plans.context_parallel
        undivided = np.abs(plans.num_gpus / (split * plans.data_parallel) - 1.0)
        return np.asarray(undivided + layout_excess(self.job, plans).sum(axis=1))

    def design_codes(self, indices: Integers) -> Integers:
        """Returns index rows `(n, k)` as one number each, `(n,)`."""
        return _codes(indices, self.values.values())

    def designs(self, indices: Integers) -> tuple[Integers, PlanTable]:
        """Returns the index rows among `(n, k)` that are designs of the space, and the designs."""
        place, is_known = self._places(indices)
        is_design = is_known & self._can_save[self.rows[place], indices[:, self.num_layout_knobs]]
        indices, place = indices[is_design], place[is_design]
        schemes, with_spares = indices[:, self.num_layout_knobs], indices[:, self.num_layout_knobs + 1]
        rows = self.rows[place]
        plans = replace(
            self.layouts.take(rows),
            checkpoint_scheme=self.values["checkpoint_scheme"][schemes].astype(np.int64),
            num_spare_nodes=self.values["with_spares"][with_spares].astype(np.int64) * self._spares[rows],
        )
        return indices, plans

    def rejection(self, indices: Integers, plans: PlanTable) -> Floats:
        """Returns how far index rows are from a design of the space, `(n,)`; 0 for designs of the space.

        Invalid layouts get their distance from a valid one; layouts whose bounds break a limit get `OUT_OF_BOUNDS`.
        """
        _, is_known = self._places(indices)
        return np.where(is_known, 0.0, OUT_OF_BOUNDS) + self.excess(plans)

    @cached_property
    def design_digits(self) -> DesignCodes:
        """The designs of the space as `studies.designs.admission` looks them up."""
        return DesignCodes(
            layouts=self.codes,
            worths=self._worths,
            can_save=self._can_save[self.rows],
            run_sizes=self.largest[self.num_layout_knobs :] + 1,
        )

    def _places(self, indices: Integers) -> tuple[NDArray[np.intp], Booleans]:
        """Positions in `codes` of the layouts of index rows, or of the next ones, and whether they exist, `(n,)` each."""
        codes = _codes(indices, _of_layouts(self.values))
        place = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return place, np.asarray(self.codes[place] == codes)

    @cached_property
    def _worths(self) -> Integers:
        """Place value of each layout knob in the code of a layout, `(num_layout_knobs,)`."""
        sizes = np.array([len(each) for each in _of_layouts(self.values)], dtype=np.int64)
        return np.append(np.cumprod(sizes[:0:-1])[::-1], 1)

    @cached_property
    def _can_save(self) -> Booleans:
        """Which layouts of the space can save by which schemes of the job, `(n, s)`."""
        return can_save_by(self.job, self.layouts, self.job.search.checkpoint_schemes)

    @cached_property
    def _spares(self) -> Integers:
        """Spare nodes that suffice for each layout of the space, `(n,)`."""
        return sufficient_spare_nodes(self.job, self.layouts)


def _distinct(column: NDArray[np.generic]) -> NDArray[np.generic]:
    """The values of a column in ascending order; counts and codes are small numbers that need no sorting."""
    if column.dtype.kind != "i":
        return np.unique(column)
    return np.flatnonzero(np.bincount(column.astype(np.intp, copy=False)))


def _layout_indices(values: Mapping[str, NDArray[np.generic]], layouts: PlanTable) -> Integers:
    """Indices of the layout knobs of layouts in the space, `(n, k)`, without run knobs."""
    names = [name for name in values if name not in RUN_KNOBS]
    columns = [np.searchsorted(values[name], getattr(layouts, name)) for name in names]
    return np.column_stack(columns).astype(np.int64)


def _of_layouts(values: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    """Values of the knobs of layouts."""
    return [each for name, each in values.items() if name not in RUN_KNOBS]


def _codes(indices: Integers, values: Iterable[NDArray[np.generic]]) -> Integers:
    """Index rows `(n, k)` as one mixed-radix number each; the radix of each digit is the number of values of its knob."""
    return _joined_digits(indices, np.array([len(each) for each in values], dtype=np.int64))


@compiled
def _joined_digits(digits: Integers, sizes: Integers) -> Integers:
    """The first digits of each row `(n, k)` as one mixed-radix number, `(n,)`; one digit for each of `sizes`."""
    numbers = np.zeros(len(digits), dtype=np.int64)
    for row in range(len(digits)):
        for place in range(len(sizes)):
            numbers[row] = numbers[row] * sizes[place] + digits[row, place]
    return numbers
