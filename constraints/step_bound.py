"""How short can a step be at best? Every layer is priced, but the pipeline is not played.

What is left out only makes a step longer: sends between stages, traffic between replicas and of ZeRO, the optimizer,
and all waiting but that of one stage for the first activation and after its last gradient. For dense models that is 3 to
6 % of a step on the median layout (tests/constraints/test_bounds.py), for a twentieth of the time that playing takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.activations import num_micro_batches
from simulator.chunks import Chunks, split_layers
from simulator.job import Job
from simulator.layer_costs import (
    PartTimes,
    dense_layer,
    embedding,
    expert_layer,
    kept_layer_times,
    output_layer,
)
from simulator.plan import PlanTable, distinct_layouts, splits_backward
from simulator.rank import Rank
from simulator.recomputed_layers import KeptLayers
from simulator.table import Floats, Integers, Table


@dataclass(frozen=True, kw_only=True)
class StepBoundTable(Table):
    """Least values of a step, seconds `(n,)`."""

    step_time_s: Floats
    """No simulated step is shorter."""
    compute_s: Floats
    """Computation of the average accelerator; exact."""
    communication_s: Floats
    """Exposed collectives of tensor, context and expert parallelism of the average accelerator; exact."""


def bound_step(job: Job, layouts: PlanTable) -> StepBoundTable:
    """Returns the bounds of layouts with a schedule, `(n,)`.

    Of what ZeRO shards only whole gradients are priced here (`Rank.weight_gradient_s`); stages 1 and 2 share their bounds.
    """
    first, inverse = distinct_layouts(replace(layouts, zero_stage=np.maximum(layouts.zero_stage, 2)))
    return _bound_distinct(job, layouts.take(first)).take(inverse)


def _bound_distinct(job: Job, layouts: PlanTable) -> StepBoundTable:
    chunks = split_layers(job.workload.model, layouts, job.workload.stage_layers)
    parts = list(_parts(Rank.of(job, layouts), chunks))
    num_micro = num_micro_batches(job.workload, layouts)
    passes_s = _sum_over(parts, "forward_s", "backward_s")
    per_gpu = num_micro / layouts.pipeline_parallel
    compute = ("forward_compute_s", "backward_compute_s")
    exposed = [f"{way}_{kind}_comm_s" for way in ("forward", "backward") for kind in ("tensor", "expert")]
    return StepBoundTable(
        step_time_s=_least_pipeline_s(passes_s, chunks, layouts, num_micro),
        compute_s=_sum_over(parts, *compute).sum(axis=1) * per_gpu,
        communication_s=_sum_over(parts, *exposed).sum(axis=1) * per_gpu,
    )


def _least_pipeline_s(chunk_s: Floats, chunks: Chunks, layouts: PlanTable, num_micro: Integers) -> Floats:
    """Least time of a pipeline whose chunks take `(n, C)` for forward and backward of one micro-batch, `(n,)`.

    Stage r cannot begin before the first micro-batch has passed the chunks before chunk r, works m times on each of its
    own, and after its last backward, that of chunk r, the gradient still has to pass the same chunks. Where weight
    gradients come later, the stage may be at work meanwhile.
    """
    busy_s = _per_stage(chunk_s, chunks) * num_micro[:, None]
    before_s = np.where(splits_backward(layouts)[:, None], 0.0, np.cumsum(chunk_s, axis=1) - chunk_s)
    stage = np.arange(busy_s.shape[1])
    is_stage = stage < layouts.pipeline_parallel[:, None]
    return np.asarray(np.max(busy_s + before_s[:, stage], axis=1, where=is_stage, initial=0.0))


def _per_stage(chunk_s: Floats, chunks: Chunks) -> Floats:
    """Sums chunk values `(n, C)` over the chunks of each stage, `(n, P)` with P the largest number of stages."""
    num_rows = len(chunk_s)
    width = int(chunks.num_stages.max(initial=1))
    place = np.arange(num_rows)[:, None] * width + chunks.stages
    sums = np.bincount(place.ravel(), weights=chunk_s.ravel(), minlength=num_rows * width)
    return np.asarray(sums, dtype=np.float64).reshape(num_rows, width)


def _parts(rank: Rank, chunks: Chunks) -> Iterator[tuple[PartTimes, Floats]]:
    """Yields the parts of the model, and how often each chunk has them, `(n, C)`."""
    kept = KeptLayers.of(rank.workload, rank.plans, chunks)
    counts = [chunks.num_dense_layers, chunks.num_expert_layers]
    if kept:
        kept_counts = [kept.dense, kept.expert]
        yield from zip(kept_layer_times(rank), kept_counts, strict=False)
        counts = [all_ - own for all_, own in zip(counts, kept_counts, strict=True)]
    yield dense_layer(rank), counts[0]
    yield embedding(rank), chunks.is_first.astype(np.float64)
    yield output_layer(rank), chunks.is_last.astype(np.float64)
    if rank.workload.model.experts:
        yield expert_layer(rank), counts[1]


def _sum_over(parts: Sequence[tuple[PartTimes, Floats]], *names: str) -> Floats:
    """Sum of some times over the parts of every chunk, `(n, C)`."""
    times = [(np.sum([getattr(part, name) for name in names], axis=0), count) for part, count in parts]
    return np.asarray(np.sum([time[:, None] * count for time, count in times], axis=0))
