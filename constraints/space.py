"""Where is the search to look? The layouts that may keep every limit, and what kept the others out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from constraints.bounds import BoundTable, bound, kept_by_bounds
from constraints.lattice import cross_run_knobs, enumerate_layouts, num_run_knobs
from simulator.job import Job
from simulator.plan import PlanTable
from simulator.table import Booleans


@dataclass(frozen=True, kw_only=True)
class Space:
    """The valid layouts of a job, pruned by bounds."""

    job: Job
    all_layouts: PlanTable
    """Every valid layout, kept or not."""
    bounds: BoundTable
    """Bounds of `all_layouts`."""
    is_kept: Booleans
    """Which layouts may keep every limit."""
    num_pruned: dict[str, int]
    """Designs kept out, by the first constraint whose bound they break."""

    @cached_property
    def layouts(self) -> PlanTable:
        """Layouts that may keep every limit."""
        return self.all_layouts.take(self.is_kept)

    @property
    def num_designs(self) -> int:
        """Designs that are left to search."""
        return len(self.layouts) * num_run_knobs(self.job)

    def designs(self) -> PlanTable:
        """Returns all designs that are left, one row each."""
        return cross_run_knobs(self.job, self.layouts)


def pruned_space(job: Job) -> Space:
    """Returns the layouts of a job that may keep every limit."""
    layouts = enumerate_layouts(job)
    bounds = bound(job, layouts)
    remaining = np.ones(len(layouts), dtype=np.bool_)
    num_pruned = {}
    for name, kept in kept_by_bounds(job, bounds).items():
        broken = int((remaining & ~kept).sum()) * num_run_knobs(job)
        if broken:
            num_pruned[name] = broken
        remaining &= kept
    return Space(
        job=job, all_layouts=layouts, bounds=bounds, is_kept=remaining, num_pruned=num_pruned
    )
