"""How long do the evaluations of a run take? They are forward passes on the training accelerators.

Evaluating a batch takes the forward share of the passes of a step (`simulator.layout.forward_share`). The optimizer and
gradient synchronisation are not involved.
"""

from __future__ import annotations

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.forward_share import forward_share
from simulator.step.step import StepTable
from simulator.table import Floats


def evaluation_time_s(job: Job, plans: PlanTable, steps: StepTable) -> Floats:
    """Returns the time of all evaluations of a run, `(n,)`, without stragglers and failures."""
    passes_s = steps.step_time_s - steps.optimizer_s - steps.gradient_sync_s
    return _num_evaluated_batches(job.workload) * forward_share(job.workload, plans) * passes_s


def _num_evaluated_batches(workload: Workload) -> float:
    """Number of sequences in all evaluations of a run, in global batches."""
    if workload.evaluation_every_steps is None:
        return 0.0
    num_evaluations = workload.num_steps / workload.evaluation_every_steps
    return num_evaluations * workload.evaluation_sequences / workload.global_batch_size
