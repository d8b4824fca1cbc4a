"""What would happen if these plans were run? The whole simulator behind one function.

    plans -> step and memory of every layout -> saves -> run with failures -> energy and power

The time of a step depends on the layout alone, so designs that differ only in how they save, how many spares they keep or when
they checkpoint share one simulated step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.checkpoints.schemes import CheckpointTable, checkpoint_costs
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable, distinct_layouts
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import trained_flop_per_token
from simulator.machine.offer_table import OfferTable
from simulator.machine.power import PowerTable, power_levels
from simulator.machine.rank import Rank
from simulator.memory.peak import MemoryTable, peak_memory
from simulator.run.energy import EnergyTable, run_energy
from simulator.run.events import RunReplications, simulate_runs
from simulator.run.stragglers import expected_straggler_slowdown
from simulator.run.wall_time import RunTable, expected_run, replication_columns
from simulator.step.step import StepTable, simulate_step
from simulator.table import Floats, Table, TableGroup, row_blocks
from simulator.threads import num_parts, on_threads
from simulator.work_parts import equal_parts

LAYOUTS_PER_BLOCK = 4096
"""Layouts that are simulated together: enough to amortise NumPy's cost per call, few enough to stay in the cache."""
LEAST_DESIGNS_PER_THREAD = 2_048
"""With fewer designs, threads mostly wait for each other; then only pipelines are shared (`simulator.pipeline.schedule`)."""


@dataclass(frozen=True, kw_only=True)
class SummaryTable(Table):
    """Figures derived from the parts, `(n,)`."""

    mfu_fraction: Floats
    """Model FLOPs utilisation of a step: model FLOPs (causal attention, no recomputation) over the dense peak of the plan's
    number format."""
    peak_memory_bytes: Floats
    """Memory needed by the most loaded accelerator."""
    memory_capacity_bytes: Floats
    """Memory that each accelerator has."""
    mean_power_w: Floats
    """Energy over wall time; NaN for a run that never ends."""


@dataclass(frozen=True, kw_only=True)
class Outcomes(TableGroup):
    """What happened to `n` designs, by topic; every part has one row per design."""

    steps: StepTable
    memory: MemoryTable
    checkpoints: CheckpointTable
    run: RunTable
    energy: EnergyTable
    power: PowerTable
    summary: SummaryTable

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """All columns of all parts in one mapping."""
        return {
            name: column for part in self.parts() for name, column in getattr(self, part).columns().items()
        }


def simulate(job: Job, plans: PlanTable) -> Outcomes:
    """Returns what happens to each plan of a job.

    Args:
        job: the job; supplies everything that is not a decision.
        plans: `(n,)` designs with valid layouts (`constraints.layout`); a layout without a schedule yields NaN.

    Large batches are shared among as many threads as Numba may use; the results do not depend on the number of threads.
    """
    num_threads = num_parts(len(plans), LEAST_DESIGNS_PER_THREAD)
    parts = equal_parts(job, plans, num_threads) if num_threads > 1 else []
    if len(parts) < 2:
        return _simulate(job, plans)
    outcomes = on_threads(lambda rows: _simulate(job, plans.take(rows)), parts)
    return Outcomes.concatenate(outcomes).take(np.argsort(np.concatenate(parts)))


def _simulate(job: Job, plans: PlanTable) -> Outcomes:
    steps, memory = steps_and_memory(job, plans)
    return outcomes_of(job, plans, steps, memory)


def outcomes_of(job: Job, plans: PlanTable, steps: StepTable, memory: MemoryTable) -> Outcomes:
    """Returns what happens to plans whose steps and memory are known, `(n,)` each; see `simulate`."""
    offers = OfferTable.from_job(job).take(plans.offer)
    slowdown = expected_straggler_slowdown(job, plans, steps)
    # Saves are paced by actual iterations, including stragglers.
    checkpoints = checkpoint_costs(job, plans, offers, steps.step_time_s * slowdown, steps.optimizer_s)
    run = expected_run(job, plans, steps, checkpoints, slowdown)
    energy = run_energy(job, plans, offers, steps, run, checkpoints)
    summary = SummaryTable(
        mfu_fraction=_mfu_fraction(job, plans, offers, steps),
        peak_memory_bytes=memory.peak_bytes,
        memory_capacity_bytes=offers.memory_bytes,
        mean_power_w=np.where(run.makes_progress, energy.total_j, np.nan) / run.wall_time_s,
    )
    return Outcomes(
        steps=steps,
        memory=memory,
        checkpoints=checkpoints,
        run=run,
        energy=energy,
        power=power_levels(job, plans, offers, checkpoints.extra_power_w),
        summary=summary,
    )


def replicate(
    job: Job, plans: PlanTable, outcomes: Outcomes, *, num_replications: int, seed: int
) -> RunReplications:
    """Plays the runs of some designs event by event, `num_replications` times each.

    Args:
        job: the job.
        plans: `(n,)` designs.
        outcomes: what `simulate` returned for them.
        num_replications: R; the results are `(n, R)`.
        seed: of the failures and stragglers; replication r meets the same ones in every design.
    """
    columns = replication_columns(
        job, plans, outcomes.steps, outcomes.checkpoints, num_replications=num_replications, seed=seed
    )
    return simulate_runs(**columns, num_replications=num_replications, seed=seed)


def layout_memory(job: Job, plans: PlanTable) -> MemoryTable:
    """Returns the memory of each plan without simulating it."""
    return peak_memory(
        job.workload, plans, split_layers(job.workload.model, plans, job.workload.stage_layers)
    )


def steps_and_memory(job: Job, plans: PlanTable) -> tuple[StepTable, MemoryTable]:
    """Returns step and memory of each plan; plans that share a layout share their simulation."""
    first, inverse = distinct_layouts(plans)
    layouts = plans.take(first)
    # Layouts of similar width share a block, because a block is as wide as its widest layout.
    order = np.argsort(layouts.pipeline_parallel * layouts.virtual_pipeline, kind="stable")
    blocks = [
        _price_layouts(job, layouts.take(order[rows])) for rows in row_blocks(len(order), LAYOUTS_PER_BLOCK)
    ]
    position = np.empty(len(order), dtype=np.intp)
    position[order] = np.arange(len(order))
    rows = position[inverse]
    steps, memory = zip(*blocks, strict=True)
    return StepTable.concatenate(steps).take(rows), MemoryTable.concatenate(memory).take(rows)


def _price_layouts(job: Job, layouts: PlanTable) -> tuple[StepTable, MemoryTable]:
    chunks = split_layers(job.workload.model, layouts, job.workload.stage_layers)
    return simulate_step(Rank.of(job, layouts), chunks), peak_memory(job.workload, layouts, chunks)


def _mfu_fraction(job: Job, plans: PlanTable, offers: OfferTable, steps: StepTable) -> Floats:
    flop = trained_flop_per_token(job.workload) * job.workload.tokens_per_step
    return np.asarray(flop / (steps.step_time_s * plans.num_gpus) / offers.peak_of(plans.precision))
