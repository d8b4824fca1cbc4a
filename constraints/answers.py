"""Which designs may an answer contain? The listed ones, and those that refinement tries between them.

A search lists layouts with no spare nodes and with enough of them, under some power caps. Refinement
(`studies.searchers.refine`) goes further: to any number of spares up to enough, to caps in small steps between the lowest
and the highest, and to checkpoint intervals other than the one that loses least. A proof that no design meets a limit, or
that none has less of a quantity, has to cover all of these.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from constraints.lattice import cross_run_knobs
from constraints.limits import set_limits
from constraints.space import Space, pruned_space
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, PlanTable
from simulator.run.interval import longest_interval_s
from simulator.table import Booleans, Floats, Integers

CAP_STEP = 0.05
"""Power caps are set in steps of about this share of the TDP."""
INTERVAL_FACTOR = 4.0
"""Checkpoint intervals lie between the one that loses least divided by this and multiplied by this."""
NUM_INTERVALS = 49
"""Intervals that a proof tries in that range. Near the best one the loss is flat: between two neighbouring intervals it
changes by less than a thousandth of itself."""
NEVER_HELPED_BY_CAPS = ("deadline_days", "num_gpus")
"""Limited quantities that a lower power cap never reduces: accelerators that draw less are never faster."""


def is_refined(job: Job) -> bool:
    """Returns whether the search refines what it finds."""
    return job.search.num_refinements > 0


def has_other_intervals(job: Job) -> bool:
    """Returns whether refinement tries other checkpoint intervals; an interval given by the job stays."""
    return is_refined(job) and not job.checkpointing.is_interval_given


def stepped_caps(job: Job) -> Floats:
    """Returns the power caps that refinement tries in addition to those listed: steps between the lowest and the highest."""
    allowed = job.search.power_caps or (job.lowest_power_cap, 1.0)
    low, high = min(allowed), max(allowed)
    num_steps = max(1, round((high - low) / CAP_STEP))
    return np.unique(np.round(np.linspace(low, high, num_steps + 1), 4))


def caps_of_answers(job: Job, wanted: Collection[str] = ()) -> tuple[float, ...]:
    """Returns every power cap that a design of an answer may have, highest first.

    Only the listed caps, if refinement tries no others, or if a lower cap neither helps to meet a limit of the job nor
    reduces a wanted quantity.

    Args:
        job: the question.
        wanted: names of limits, set or not, whose quantities should be small.
    """
    if not is_refined(job) or not _caps_can_help(job, {*set_limits(job), *wanted}):
        return job.power_caps
    return tuple(sorted({*job.power_caps, *stepped_caps(job).tolist()}, reverse=True))


def _caps_can_help(job: Job, quantities: Collection[str]) -> bool:
    """Returns whether capping power below the highest cap can reduce any of some limited quantities.

    Rent follows from time alone, so a cap can save money only if accelerators are for sale.
    """
    is_rented = all(offer.rent_usd_per_gpu_hour is not None for offer in job.offers)
    never = (*NEVER_HELPED_BY_CAPS, "budget_usd") if is_rented else NEVER_HELPED_BY_CAPS
    return any(name not in never for name in quantities)


def space_of_answers(space: Space, wanted: Collection[str] = ()) -> Space:
    """Returns the space under every cap that a design of an answer may have; the same space if there are no further caps.

    Args:
        space: the layouts of a job.
        wanted: names of limits, set or not, whose quantities should be small.
    """
    caps = caps_of_answers(space.job, wanted)
    if caps == space.job.power_caps:
        return space
    search = space.job.search.model_copy(update={"power_caps": caps})
    return pruned_space(space.job.model_copy(update={"search": search}))


def has_any_number_of_spares(job: Job) -> bool:
    """Returns whether refinement tries every number of spare nodes between none and enough."""
    return is_refined(job) and len(job.search.with_spares) > 1


def designs_of_answers(job: Job, layouts: PlanTable) -> PlanTable:
    """Returns each layout with every checkpoint scheme and every number of spare nodes that an answer may have.

    The listed designs come first, then those with fewer spares than enough.
    """
    listed = cross_run_knobs(job, layouts)
    return PlanTable.concatenate([listed, with_fewer_spares(listed.take(has_fewer_spares(job, listed)))])


def has_fewer_spares(job: Job, listed: PlanTable) -> Booleans:
    """Returns which listed designs an answer may also contain with fewer spare nodes, but at least one, `(n,)`."""
    return np.asarray(has_any_number_of_spares(job) & (listed.num_spare_nodes > 1))


def without_spares(job: Job, rows: Integers) -> Integers:
    """Returns the rows of the listed designs that equal those at `rows` but have no spare node, where both are listed."""
    return np.asarray(rows + (1 if job.search.with_spares[0] else -1))


def with_fewer_spares(plans: PlanTable) -> PlanTable:
    """Returns each design with every number of spare nodes between 0 and its own, design by design."""
    num_between = np.maximum(0, plans.num_spare_nodes - 1)
    rows = np.repeat(np.arange(len(plans)), num_between)
    first_of_design = np.repeat(np.cumsum(num_between) - num_between, num_between)
    return replace(plans.take(rows), num_spare_nodes=1 + np.arange(len(rows)) - first_of_design)


def longest_tried_s(job: Job, best_s: Floats, stall_s: Floats) -> Floats:
    """Returns the longest interval that refinement tries, `(n,)`, where saves stop the run so long and this one is best."""
    longest_s = np.maximum(best_s, longest_interval_s(job.checkpointing, stall_s))
    return np.minimum(best_s * INTERVAL_FACTOR, longest_s)


def with_other_intervals(job: Job, plans: PlanTable, used_s: Floats, stall_s: Floats) -> PlanTable:
    """Returns the designs that save checkpoints, each with `NUM_INTERVALS` intervals around the one that it used.

    No interval exceeds the longest one that is chosen, unless the one that was used does.

    Args:
        job: the job.
        plans: `(n,)` designs.
        used_s: their intervals, `(n,)`.
        stall_s: how long a save stops each run, `(n,)`.
    """
    saves = plans.checkpoint_scheme != CheckpointScheme.NONE.code
    factors = INTERVAL_FACTOR ** np.linspace(-1.0, 1.0, NUM_INTERVALS)
    longest_s = longest_tried_s(job, used_s[saves], stall_s[saves])
    intervals_s = np.minimum(used_s[saves, None] * factors, longest_s[:, None]).ravel()
    return replace(
        plans.take(np.repeat(np.flatnonzero(saves), NUM_INTERVALS)), checkpoint_interval_s=intervals_s
    )
