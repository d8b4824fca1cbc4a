"""How long do the evaluations of a run take? They are forward passes on the training accelerators.

A step computes a forward pass and a backward pass of twice its arithmetic, so evaluating a batch takes a third of both: a
fourth where the backward pass recomputes the whole forward pass, about half where weights are frozen and have no gradients. The
optimizer and gradient synchronisation are not involved.
"""

from __future__ import annotations

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.recomputed_layers import recomputed_fraction
from simulator.layout.trained_weights import trained_flop_per_token
from simulator.step.step import StepTable
from simulator.table import Floats

PASSES_OF_A_STEP = 3.0
"""Arithmetic of a step over that of a forward pass, where all weights are trained and nothing is recomputed."""


def evaluation_time_s(job: Job, plans: PlanTable, steps: StepTable) -> Floats:
    """Returns the time of all evaluations of a run, `(n,)`, without stragglers and failures."""
    workload = job.workload
    passes_s = steps.step_time_s - steps.optimizer_s - steps.gradient_sync_s
    trained = PASSES_OF_A_STEP * (trained_flop_per_token(workload) / workload.model_flop_per_token)
    forward_share = 1.0 / (trained + recomputed_fraction(workload, plans))
    return _num_evaluated_batches(workload) * forward_share * passes_s


def _num_evaluated_batches(workload: Workload) -> float:
    """Number of sequences in all evaluations of a run, in global batches."""
    if workload.evaluation_every_steps is None:
        return 0.0
    num_evaluations = workload.num_steps / workload.evaluation_every_steps
    return num_evaluations * workload.evaluation_sequences / workload.global_batch_size
