"""Which designs may an answer have? Those that are listed, and what refinement tries between them.

A search lists layouts without spare nodes and with enough of them, under some power caps. Refinement
(`studies.searchers.refine`) goes on from there: to any number of spares up to enough, to caps in small steps between the lowest
and the highest, and to other intervals between saves than the one that loses least. Whoever claims that no design keeps a
limit, or that none has less of something, has to try all of these.
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
from simulator.table import Booleans, Floats, Integers

CAP_STEP = 0.05
"""Power caps are set in steps of about this share of the TDP."""
INTERVAL_FACTOR = 4.0
"""Intervals between saves lie between the one that loses least divided and multiplied by this."""
NUM_INTERVALS = 49
"""Intervals that a proof tries in that range. Beside the best one the loss is flat: between two of these it changes by less
than a thousandth of itself."""
NEVER_HELPED_BY_CAPS = ("deadline_days", "num_gpus")
"""Limited quantities that no lower cap makes smaller: accelerators that draw less are never faster."""


def is_refined(job: Job) -> bool:
    """Returns whether the search refines what it finds."""
    return job.search.num_refinements > 0


def has_other_intervals(job: Job) -> bool:
    """Returns whether refinement tries other intervals between saves; one that the job gives stays."""
    return is_refined(job) and not job.checkpointing.is_interval_given


def stepped_caps(job: Job) -> Floats:
    """Returns the power caps that refinement tries beside those listed: steps between the lowest and the highest."""
    allowed = job.search.power_caps or (job.lowest_power_cap, 1.0)
    low, high = min(allowed), max(allowed)
    num_steps = max(1, round((high - low) / CAP_STEP))
    return np.unique(np.round(np.linspace(low, high, num_steps + 1), 4))


def caps_of_answers(job: Job, wanted: Collection[str] = ()) -> tuple[float, ...]:
    """Returns every power cap that a design of an answer may have, highest first.

    Those alone that are listed where refinement tries none, or where a lower one neither helps to keep a limit of the job nor
    makes a quantity smaller that is wanted small.

    Args:
        job: the question.
        wanted: names of limits whose quantities are wanted small, set or not.
    """
    if not is_refined(job) or not _caps_can_help(job, {*set_limits(job), *wanted}):
        return job.power_caps
    return tuple(sorted({*job.power_caps, *stepped_caps(job).tolist()}, reverse=True))


def _caps_can_help(job: Job, quantities: Collection[str]) -> bool:
    """Returns whether capping power below the highest cap can make any of some limited quantities smaller.

    Rent follows from time alone, so it takes accelerators on sale for a cap to save money.
    """
    is_rented = all(offer.rent_usd_per_gpu_hour is not None for offer in job.offers)
    never = (*NEVER_HELPED_BY_CAPS, "budget_usd") if is_rented else NEVER_HELPED_BY_CAPS
    return any(name not in never for name in quantities)


def space_of_answers(space: Space, wanted: Collection[str] = ()) -> Space:
    """Returns the space under every cap that a design of an answer may have; itself where that is no more.

    Args:
        space: the layouts of a job.
        wanted: names of limits whose quantities are wanted small, set or not.
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
    """Returns which listed designs an answer may also have with fewer spare nodes, yet some, `(n,)`."""
    return np.asarray(has_any_number_of_spares(job) & (listed.num_spare_nodes > 1))


def without_spares(job: Job, rows: Integers) -> Integers:
    """Returns the rows of listed designs that differ from those of `rows` in having no spare node, where both are listed."""
    return np.asarray(rows + (1 if job.search.with_spares[0] else -1))


def with_fewer_spares(plans: PlanTable) -> PlanTable:
    """Returns designs with every number of spare nodes between none and theirs, design by design."""
    num_between = np.maximum(0, plans.num_spare_nodes - 1)
    rows = np.repeat(np.arange(len(plans)), num_between)
    first_of_design = np.repeat(np.cumsum(num_between) - num_between, num_between)
    return replace(plans.take(rows), num_spare_nodes=1 + np.arange(len(rows)) - first_of_design)


def with_other_intervals(job: Job, plans: PlanTable, used_s: Floats) -> PlanTable:
    """Returns designs that save, each with `NUM_INTERVALS` intervals around the one that was used, `(n,)`.

    None is longer than the longest that the job lets anybody choose, unless the one that was used is.
    """
    saves = plans.checkpoint_scheme != CheckpointScheme.NONE.code
    factors = INTERVAL_FACTOR ** np.linspace(-1.0, 1.0, NUM_INTERVALS)
    longest_s = np.maximum(used_s[saves, None], job.checkpointing.longest_interval_s)
    intervals_s = np.minimum(used_s[saves, None] * factors, longest_s).ravel()
    return replace(
        plans.take(np.repeat(np.flatnonzero(saves), NUM_INTERVALS)), checkpoint_interval_s=intervals_s
    )
