"""Which layout that fits the memory has the shortest step? Of a job and a checkpoint scheme, or of several sizes at once.

Simulated are the layouts of the lowest bounds, until no bound is below the shortest step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from constraints.bounds import MARGIN
from constraints.evaluation import Evaluation, evaluate
from constraints.lattice import cross_run_knobs, enumerate_layouts, layouts_in, no_layouts, rough_blocks
from constraints.limits import usable_memory_bytes
from constraints.step_bound import bound_step
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.offer import GpuRange
from simulator.domain.plan import CheckpointScheme, PlanTable
from simulator.machine.offer_table import OfferTable
from simulator.run.spare_nodes import most_nodes
from simulator.simulate import steps_and_memory
from simulator.table import Floats, Integers

FIRST_DESIGNS: Final = 256
"""Designs of a size that are simulated before the bounds of its others are looked at again, then twice as many each time."""
StepsOf = Callable[[Job, PlanTable], Floats]
"""The step of every design, seconds `(n,)`; endless for those that do not count."""


def fastest_layout(
    job: Job, scheme: CheckpointScheme = CheckpointScheme.ASYNC, *, fits_hosts: bool = False
) -> PlanTable | None:
    """Returns the layout of the shortest step of all, with sufficient spares, one row; `None` where none fits the memory.

    Args:
        job: the job; offers that have too few nodes for their size are left out.
        scheme: how it saves; only layouts that can save so count.
        fits_hosts: whether saves, and what is offloaded, have to fit the main memory, too.
    """
    job = with_fast_knobs(job, scheme)
    designs = cross_run_knobs(job, enumerate_layouts(job))
    designs = designs.take(_nodes(job, designs) <= most_nodes(job)[designs.offer])
    rows = _fastest_rows(
        job,
        designs,
        np.zeros(len(designs), dtype=np.int64),
        _steps_that_fit_hosts_s if fits_hosts else _steps_that_fit_s,
    )
    return designs.take(rows) if len(rows) else None


def fastest_of_sizes(job: Job, sizes: Sequence[int]) -> Mapping[int, Evaluation]:
    """Returns what becomes of the fastest layout of each size, whatever the limits.

    Args:
        job: the job, whose offers count as if they were to be had at these sizes.
        sizes: numbers of accelerators, at least one.

    Returns:
        One row for each size that has a layout which fits the memory, by size.
    """
    job = with_sizes(job.model_copy(update={"limits": Limits()}), sizes)
    fast = with_fast_knobs(job)
    designs = cross_run_knobs(fast, _layouts_of(fast, sizes))
    rows = _fastest_rows(fast, designs, designs.num_gpus, _steps_that_fit_s)
    if len(rows) == 0:
        return {}
    fastest = evaluate(job, designs.take(rows))
    return {size: fastest.take(np.array([row])) for row, size in enumerate(fastest.plans.num_gpus.tolist())}


def with_sizes(job: Job, sizes: Sequence[int]) -> Job:
    """Returns the job with every offer from the smallest to the largest of some numbers of accelerators."""
    reach = GpuRange(min=min(sizes), max=max(sizes))
    offers = tuple(offer.model_copy(update={"num_gpus": reach}) for offer in job.offers)
    return job.model_copy(update={"offers": offers})


def with_fast_knobs(job: Job, scheme: CheckpointScheme = CheckpointScheme.ASYNC) -> Job:
    """Returns the job with the knobs of a run that leave a step as short as it can be."""
    only = {
        "checkpoint_schemes": (scheme,),
        "with_spares": (True,),
        "power_caps": (max(job.power_caps),),  # less power never shortens a step
    }
    return job.model_copy(update={"search": job.search.model_copy(update=only)})


def _nodes(job: Job, designs: PlanTable) -> Floats:
    """Nodes that each design trains on, `(n,)`."""
    return np.asarray(np.ceil(designs.num_gpus / OfferTable.from_job(job).gpus_per_node[designs.offer]))


def _layouts_of(job: Job, sizes: Sequence[int]) -> PlanTable:
    """The layouts of some of the sizes that the offers have."""
    found = [no_layouts(job)]
    for block in rough_blocks(job):
        _, tensor, pipeline, _, context, _, data, _ = block.degrees.T
        is_asked = np.isin(tensor * pipeline * context * data, sizes)
        found.append(layouts_in(job, replace(block, degrees=block.degrees[is_asked])))
    return PlanTable.concatenate(found)


def _fastest_rows(job: Job, designs: PlanTable, group: Integers, steps_of: StepsOf) -> Integers:
    """The row of the shortest step of each group that has one, in the order of the groups' numbers.

    Args:
        job: the job.
        designs: `(n,)`.
        group: the number of each design's group, `(n,)`.
        steps_of: the steps of the designs that count.
    """
    groups, group = np.unique(group, return_inverse=True)
    shortest_s, fastest = np.full(len(groups), np.inf), np.full(len(groups), -1)
    bounds_s = bound_step(job, designs).step_time_s * (1.0 - MARGIN)
    order = np.lexsort((bounds_s, group))
    place = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    turn = np.log2(place // FIRST_DESIGNS + 1).astype(np.int64)
    for number in range(int(turn.max(initial=-1)) + 1):
        rows = order[turn == number]
        rows = rows[bounds_s[rows] <= shortest_s[group[rows]]]
        if len(rows) == 0:
            break
        steps_s = steps_of(job, designs.take(rows))
        for each in np.unique(group[rows]):
            own = np.flatnonzero(group[rows] == each)
            best = own[np.argmin(steps_s[own])]
            if steps_s[best] < shortest_s[each]:
                shortest_s[each], fastest[each] = steps_s[best], rows[best]
    return fastest[fastest >= 0]


def _steps_that_fit_s(job: Job, designs: PlanTable) -> Floats:
    """The step of every design, seconds `(n,)`; endless where it has no schedule or does not fit the memory."""
    steps, memory = steps_and_memory(job, designs)
    fits = memory.peak_bytes <= usable_memory_bytes(job)[designs.offer]
    return np.where(fits & np.isfinite(steps.step_time_s), steps.step_time_s, np.inf)


def _steps_that_fit_hosts_s(job: Job, designs: PlanTable) -> Floats:
    """The same; endless, too, where saves and what is offloaded do not fit the main memory."""
    found = evaluate(job, designs)
    fits = (found.excess.memory == 0.0) & (found.excess.host_memory == 0.0)
    steps_s = found.outcomes.steps.step_time_s
    return np.where(fits & np.isfinite(steps_s), steps_s, np.inf)
