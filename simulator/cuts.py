"""How would a plan's step time and memory change if its layers were cut differently? Many cuts of one plan as a batch.

A cut lists the layers of every pipeline chunk in model order, like `workload.stage_layers`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import Plan, PlanTable
from simulator.layout.chunks import chunks_of
from simulator.layout.micro_batches import num_micro_batches
from simulator.machine.rank import Rank
from simulator.memory.peak import memory_of_stage, peak_memory
from simulator.simulate import LAYOUTS_PER_BLOCK
from simulator.step.step import simulate_step, step_parts
from simulator.table import Floats, Integers, Table, row_blocks


@dataclass(frozen=True, kw_only=True)
class CutTable(Table):
    """Cuts of one plan's layers, with the resulting step time and memory."""

    layers: Integers
    """`(n, C)` layers in each chunk."""
    step_time_s: Floats
    """`(n,)` one optimizer step."""
    peak_memory_bytes: Floats
    """`(n,)` memory of the fullest stage."""


@dataclass(frozen=True, kw_only=True)
class StageFigures(Table):
    """The stages of one plan, `(p,)`."""

    num_layers: Integers
    """Layers in all chunks of a stage."""
    micro_batch_s: Floats
    """Forward and backward pass of one micro-batch, including exposed collectives."""
    memory_bytes: Floats
    """Memory of one rank of the stage."""


def simulate_cuts(job: Job, plan: Plan, layers: Integers) -> CutTable:
    """Returns the outcome of cuts, `(n, C)`, each as if the workload's `stage_layers` listed it.

    Args:
        job: the job; its own `stage_layers` are ignored.
        plan: a plan with C chunks that obeys all other layout rules.
        layers: layers of every chunk; each row adds up to those of the model.
    """
    blocks = row_blocks(len(layers), LAYOUTS_PER_BLOCK)
    return CutTable.concatenate([_simulated(job, plan, layers[rows]) for rows in blocks])


def _simulated(job: Job, plan: Plan, layers: Integers) -> CutTable:
    plans = _repeated(plan, len(layers))
    chunks = chunks_of(job.workload.model, plans, layers)
    return CutTable(
        layers=layers,
        step_time_s=simulate_step(Rank.of(job, plans), chunks).step_time_s,
        peak_memory_bytes=peak_memory(job.workload, plans, chunks).peak_bytes,
    )


def stage_figures(job: Job, plan: Plan, layers: Integers) -> StageFigures:
    """Returns the time and memory of every stage under one cut, `(C,)`."""
    num_stages = plan.pipeline_parallel
    plans = _repeated(plan, num_stages)
    chunks = chunks_of(job.workload.model, plans, np.tile(layers, (num_stages, 1)))
    pipeline = step_parts(Rank.of(job, plans), chunks).pipeline
    passes_s = np.asarray(pipeline["chunk_forward_s"]) + np.asarray(pipeline["chunk_backward_s"])
    stages = chunks.stages[0]
    return StageFigures(
        num_layers=np.bincount(stages, weights=layers, minlength=num_stages).astype(np.int64),
        micro_batch_s=np.array([passes_s[0, stages == stage].sum() for stage in range(num_stages)]),
        memory_bytes=memory_of_stage(job.workload, plans, chunks, np.arange(num_stages)).peak_bytes,
    )


def micro_batches_of(job: Job, plan: Plan) -> int:
    """Returns the number of micro-batches of one replica in one step."""
    return int(num_micro_batches(job.workload, _repeated(plan, 1))[0])


def _repeated(plan: Plan, count: int) -> PlanTable:
    return PlanTable.from_plans([plan]).take(np.zeros(count, dtype=np.intp))
