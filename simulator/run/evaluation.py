"""How long do the evaluations of a run take? Forward passes over the accelerators that train.

A step computes a forward and a backward pass of twice its arithmetic, so that a batch takes a third of a step. The
optimizer and the gradients of replicas have no part in it.
"""

from __future__ import annotations

from simulator.domain.job import Job
from simulator.domain.workload import Workload
from simulator.step.step import StepTable
from simulator.table import Floats

FORWARD_SHARE = 1.0 / 3.0
"""Arithmetic of a forward pass over that of a step without recomputation."""


def evaluation_time_s(job: Job, steps: StepTable) -> Floats:
    """Returns the time of all evaluations of a run, `(n,)`, without stragglers and failures."""
    passes_s = steps.step_time_s - steps.optimizer_s - steps.gradient_sync_s
    return _num_evaluated_batches(job.workload) * FORWARD_SHARE * passes_s


def _num_evaluated_batches(workload: Workload) -> float:
    """Sequences of all evaluations of a run, in global batches."""
    if workload.evaluation_every_steps is None:
        return 0.0
    num_evaluations = workload.num_steps / workload.evaluation_every_steps
    return num_evaluations * workload.evaluation_sequences / workload.global_batch_size
