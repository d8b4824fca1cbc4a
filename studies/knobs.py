"""How does a design become a row of small integers that crossover and mutation can work on?

One ordinal column per knob: an index into the sorted values that occur in the space. Data parallelism is no knob of its
own but follows from the number of accelerators, so neighbouring indices are neighbouring designs. Where the numbers do
not divide, the layout is invalid, and by how much is a constraint that the search can follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from constraints.layout import layout_excess
from constraints.space import Space
from simulator.interruptions import sufficient_spare_nodes
from simulator.job import Job
from simulator.plan import PlanTable
from simulator.table import Floats, Integers

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
RUN_KNOBS = ("checkpoint_scheme", "with_spares")
"""Knobs that the job lists."""


NO_COLUMN = ("power_cap_fraction", "with_spares")
"""Knobs that are no whole-number column of a plan."""


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """The values of every knob in rising order."""

    job: Job
    values: dict[str, NDArray[np.generic]]

    @classmethod
    def of(cls, space: Space) -> Self:
        """Returns the knobs of a space."""
        job = space.job
        values: dict[str, NDArray[np.generic]] = {
            name: np.unique(getattr(space.layouts, name)) for name in LAYOUT_KNOBS
        }
        values["checkpoint_scheme"] = np.array([scheme.code for scheme in job.search.checkpoint_schemes])
        values["with_spares"] = np.array(job.search.with_spares, dtype=np.int64)
        return cls(job=job, values=values)

    @property
    def largest(self) -> Integers:
        """Largest index of each knob, `(k,)`."""
        return np.array([len(values) - 1 for values in self.values.values()], dtype=np.int64)

    def encode(self, layouts: PlanTable, random: np.random.Generator) -> Integers:
        """Returns layouts as indices `(n, k)`, with run knobs drawn at random."""
        columns = [np.searchsorted(self.values[name], getattr(layouts, name)) for name in LAYOUT_KNOBS]
        drawn = [random.integers(0, len(self.values[name]), len(layouts)) for name in RUN_KNOBS]
        return np.column_stack([*columns, *drawn]).astype(np.int64)

    def encode_designs(self, plans: PlanTable) -> Integers:
        """Returns designs of the space as indices `(n, k)`, run knobs included."""
        columns = [np.searchsorted(self.values[name], getattr(plans, name)) for name in LAYOUT_KNOBS]
        schemes = self.values["checkpoint_scheme"].tolist()
        columns.append(
            np.array([schemes.index(code) for code in plans.checkpoint_scheme.tolist()], dtype=np.int64)
        )
        with_spares = self.values["with_spares"].tolist()
        has_spares = (plans.num_spare_nodes > 0).tolist()
        # Where no spare is needed, taking as many as needed and taking none are the same design.
        columns.append(np.array([with_spares.index(has) if has in with_spares else 0 for has in has_spares]))
        return np.column_stack(columns).astype(np.int64)

    def decode(self, indices: Integers) -> PlanTable:
        """Returns the designs `(n,)` of index rows; data parallelism is rounded down where it is not whole."""
        chosen = {name: values[indices[:, k]] for k, (name, values) in enumerate(self.values.items())}
        counts = {name: column.astype(np.int64) for name, column in chosen.items() if name not in NO_COLUMN}
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

    def excess(self, plans: PlanTable) -> Floats:
        """Returns how far decoded designs are from a valid layout, `(n,)`; 0 is valid."""
        split = plans.tensor_parallel * plans.pipeline_parallel * plans.context_parallel
        undivided = np.abs(plans.num_gpus / (split * plans.data_parallel) - 1.0)
        return np.asarray(undivided + layout_excess(self.job, plans).sum(axis=1))
