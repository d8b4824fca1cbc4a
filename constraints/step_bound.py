"""How short can a step be at best? Every layer is priced, but the pipeline is not simulated.

What is left out can only make a step longer: sends between stages, traffic between replicas and of ZeRO, the optimizer,
and all waiting except a stage's wait for its first activation and after its last gradient. For dense models this amounts
to 3 to 6 % of a step on the median layout (tests/constraints/test_bounds.py), in a hundredth of the time of a simulation.

The time of a layer does not depend on the numbers of stages and replicas, and the number of layers on a stage depends on
little else. So both are computed once for all layouts that share them, and each layout only adds them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import compiled
from simulator.domain.job import Job
from simulator.domain.plan import LAYOUT_COLUMNS, PlanTable, splits_backward
from simulator.layers.part_times import PartTimes
from simulator.layout.chunks import split_layers
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.model_states import adds_in_products
from simulator.machine.rank import Rank
from simulator.row_sums import sum_columns
from simulator.simulate import LAYOUTS_PER_BLOCK
from simulator.step.model_parts import part_times
from simulator.step.parts import Part, counts_of_parts
from simulator.table import Booleans, Floats, Integers, Table, first_of_equals, row_blocks, total

OTHER_COLUMNS = (
    "pipeline_parallel",
    "virtual_pipeline",
    "pipeline_schedule",
    "interleaved_group_size",
    "data_parallel",
    "shard_ranks",
)
"""Columns on which the times of the parts of a model do not depend: the numbers of stages and replicas. They do depend on
the schedule, which decides what hides the all-to-all of experts and the reductions of input gradients."""
CUT_COLUMNS = (
    "pipeline_parallel",
    "virtual_pipeline",
    "pipeline_schedule",
    "recompute",
    "recompute_num_layers",
)
"""Columns that determine how many layers of which kind a chunk has."""


@dataclass(frozen=True, kw_only=True)
class StepBoundTable(Table):
    """Lower bounds on the times of a step, seconds `(n,)`."""

    step_time_s: Floats
    """No simulated step is shorter."""
    compute_s: Floats
    """Computation of the average accelerator; exact except for copies and casts of weights that passes gather."""
    communication_s: Floats
    """Exposed collectives of tensor, context and expert parallelism of the average accelerator; exact except under
    `dual_pipe_v`, where every pass is assumed to be one of a pair."""


def bound_step(job: Job, layouts: PlanTable) -> StepBoundTable:
    """Returns the bounds of layouts with a schedule, `(n,)`.

    The only effect of ZeRO that is priced here is whether products add to whole gradients (`Rank.weight_gradient_s`).
    """
    cut_layouts, cut = _distinct(layouts, CUT_COLUMNS)
    kinds, cuts = _cuts(job, cut_layouts)
    sharded = replace(layouts, zero_stage=_priced_stage(job, layouts))
    priced_layouts, priced = _distinct(sharded, _part_columns(job))
    times = _part_times(job, priced_layouts, kinds).take(priced)
    pipelines = _Pipelines(
        num_stages=layouts.pipeline_parallel,
        num_micro_batches=num_micro_batches(job.workload, layouts),
        splits_backward=splits_backward(layouts),
    )
    num_each = cuts.counts.sum(axis=1)[cut]
    per_gpu = pipelines.num_micro_batches / pipelines.num_stages
    return StepBoundTable(
        step_time_s=_least_pipelines_s(times.pass_s, cuts, cut, pipelines),
        compute_s=sum_columns(times.compute_s * num_each) * per_gpu,
        communication_s=sum_columns(times.communication_s * num_each) * per_gpu,
    )


def _priced_stage(job: Job, layouts: PlanTable) -> Integers:
    """One representative ZeRO stage, `(n,)`, for all that agree on whether products add to gradients."""
    adding = 0 if job.workload.added_gradient_bytes is None else 2
    return np.where(adds_in_products(job.workload, layouts), adding, 3)


def _part_columns(job: Job) -> list[str]:
    """Columns on which the times of the parts of a model depend; where replicas differ, all wait for the slowest one."""
    columns = [name for name in LAYOUT_COLUMNS if name not in OTHER_COLUMNS]
    if job.workload.model.num_mtp_layers:
        # Look-ups of modules are with the embedding, or on another stage.
        columns += ["pipeline_parallel", "pipeline_schedule"]
    elif job.workload.overlaps_expert_exchange or job.workload.overlaps_input_gradients:
        columns.append("pipeline_schedule")
    if "mhc" in job.workload.modules_again:  # of all layers of a chunk together
        columns += [name for name in ("pipeline_parallel", "virtual_pipeline") if name not in columns]
    return [*columns, "data_parallel"] if job.workload.sequence_shape.has_unlike_replicas else columns


def _distinct(layouts: PlanTable, names: Sequence[str]) -> tuple[PlanTable, NDArray[np.intp]]:
    """One representative of all layouts that are equal in some columns, and for each layout the row of its representative."""
    first, inverse = first_of_equals([getattr(layouts, name) for name in names])
    return layouts.take(first), inverse


class _Cuts(NamedTuple):
    """How chunks consist of the parts of a model: k parts, C chunks."""

    counts: Floats
    """`(n, C, k)` how often each chunk has each part; 0 in chunks that do not exist."""
    stages: Integers
    """`(n, C)` the stage of each chunk."""


class _Pipelines(NamedTuple):
    """Shapes of pipelines, `(n,)`."""

    num_stages: Integers
    num_micro_batches: Integers
    splits_backward: Booleans


@dataclass(frozen=True, kw_only=True)
class _PartTimes(Table):
    """Seconds of one micro-batch in each part of the model, forward and backward, `(n, k)`."""

    pass_s: Floats
    compute_s: Floats
    communication_s: Floats


def _cuts(job: Job, layouts: PlanTable) -> tuple[tuple[Part, ...], _Cuts]:
    """The kinds of parts of the model, and how often every chunk has them."""
    chunks = split_layers(job.workload.model, layouts, job.workload.stage_layers)
    counts = counts_of_parts(job.workload, layouts, chunks)
    return tuple(counts), _Cuts(counts=np.stack(list(counts.values()), axis=2), stages=chunks.stages)


def _part_times(job: Job, layouts: PlanTable, kinds: Sequence[Part]) -> _PartTimes:
    """The times of the parts of layouts, computed in batches that fit the cache."""
    ranks = [Rank.of(job, layouts.take(rows)) for rows in row_blocks(len(layouts), LAYOUTS_PER_BLOCK)]
    return _PartTimes.concatenate([_columns_of([part_times(rank, kind) for kind in kinds]) for rank in ranks])


def _columns_of(parts: Sequence[PartTimes]) -> _PartTimes:
    exposed = [f"{way}_{kind}_comm_s" for way in ("forward", "backward") for kind in ("tensor", "expert")]
    return _PartTimes(
        pass_s=np.column_stack([part.least_s for part in parts]),
        compute_s=np.column_stack([part.forward_compute_s + part.backward_compute_s for part in parts]),
        communication_s=np.column_stack(
            [total(getattr(part, name) for name in exposed) - part.hidden_s for part in parts]
        ),
    )


@compiled
def _least_pipelines_s(part_s: Floats, cuts: _Cuts, cut: Integers, pipelines: _Pipelines) -> Floats:
    """Lower bounds on pipeline times, `(n,)`, from the `(n, k)` forward and backward times of parts for one micro-batch.

    Stage r cannot begin before the first micro-batch has passed the chunks before chunk r. It then works m times on each of
    its own chunks. After its last backward, that of chunk r, the gradient still has to pass back through those same chunks.
    With delayed weight gradients the stage may be busy meanwhile.
    """
    num_rows, num_chunks = len(part_s), cuts.counts.shape[1]
    least_s, busy_s, before_s = np.zeros(num_rows), np.empty(num_chunks), np.empty(num_chunks)
    for row in range(num_rows):
        number, passed_s = cut[row], 0.0
        busy_s[:] = 0.0
        for chunk in range(num_chunks):
            chunk_s = 0.0
            for part in range(part_s.shape[1]):
                chunk_s += part_s[row, part] * cuts.counts[number, chunk, part]
            before_s[chunk] = 0.0 if pipelines.splits_backward[row] else passed_s
            passed_s += chunk_s
            busy_s[cuts.stages[number, chunk]] += chunk_s
        for stage in range(pipelines.num_stages[row]):
            stage_s = busy_s[stage] * pipelines.num_micro_batches[row] + before_s[stage]
            least_s[row] = max(least_s[row], stage_s)
    return least_s
