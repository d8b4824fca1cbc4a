"""Where is the search to look? The layouts that may keep every limit, and what kept the others out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from constraints.bounds import BoundTable, bound, kept_by_bounds
from constraints.lattice import cross_run_knobs, enumerate_layouts, num_run_knobs
from constraints.limits import with_limits
from simulator.job import Job
from simulator.plan import PlanTable
from simulator.table import Booleans, Integers


@dataclass(frozen=True, kw_only=True)
class Space:
    """The valid layouts of a job, pruned by bounds."""

    job: Job
    all_layouts: PlanTable
    """Every valid layout, kept or not."""
    bounds: BoundTable
    """Bounds of `all_layouts`."""
    num_run_knobs: Integers
    """Designs of each of `all_layouts`."""
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
        return int(self.num_run_knobs[self.is_kept].sum())

    def designs(self) -> PlanTable:
        """Returns all designs that are left, one row each."""
        return cross_run_knobs(self.job, self.layouts)

    def under(self, limits: Mapping[str, float]) -> Space:
        """Returns the same layouts under these limits and no others."""
        return _pruned(with_limits(self.job, limits), self.all_layouts, self.bounds, self.num_run_knobs)


def pruned_space(job: Job) -> Space:
    """Returns the layouts of a job that may keep every limit."""
    layouts = enumerate_layouts(job)
    return _pruned(job, layouts, bound(job, layouts), num_run_knobs(job, layouts))


def _pruned(job: Job, layouts: PlanTable, bounds: BoundTable, num_designs: Integers) -> Space:
    remaining = np.ones(len(layouts), dtype=np.bool_)
    num_pruned = {}
    for name, kept in kept_by_bounds(job, bounds).items():
        if num_broken := int(num_designs[remaining & ~kept].sum()):
            num_pruned[name] = num_broken
        remaining &= kept
    return Space(
        job=job,
        all_layouts=layouts,
        bounds=bounds,
        num_run_knobs=num_designs,
        is_kept=remaining,
        num_pruned=num_pruned,
    )
