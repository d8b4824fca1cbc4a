"""Which designs of a batch does each core or worker simulate? Parts with about equal work and no common layouts.

Designs of one layout share its step. A batch that is cut arbitrarily has most layouts in every part: 8,192 random designs with
1,255 layouts of GPT-3 would be cut into halves with 1,232 and 1,237 layouts, each of which takes as long as the whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable, distinct_layouts
from simulator.layout.micro_batches import num_micro_batches

LAYOUT_WORK = 6_000
"""Cost of a layout beyond its forwards and backwards, in units of these: some 25 of 61 microseconds (docs/studies.md)."""
DESIGN_WORK = 1_000
"""Cost of a design beyond its layout."""

Rows = NDArray[np.intp]


def equal_parts(job: Job, plans: PlanTable, num_parts: int) -> list[Rows]:
    """Returns the rows of each part, ascending; fewer parts than requested if there are fewer layouts.

    Args:
        job: the job.
        plans: the designs, `(n,)`.
        num_parts: at least 1.
    """
    first, inverse = distinct_layouts(plans)
    layouts = plans.take(first)
    shape = (layouts.pipeline_parallel, layouts.virtual_pipeline, num_micro_batches(job.workload, layouts))
    work = 2 * np.prod(shape, axis=0) + LAYOUT_WORK + DESIGN_WORK * np.bincount(inverse)
    # What has one shape shares the order of its operations.
    order = np.lexsort((layouts.interleaved_group_size, layouts.pipeline_schedule, *shape))
    before = np.cumsum(work[order]) - work[order]
    part = np.empty(len(order), dtype=np.int64)
    part[order] = before * num_parts // max(1, work.sum())
    rows = [np.flatnonzero(part[inverse] == number) for number in range(num_parts)]
    return [some for some in rows if len(some)]
