"""How many micro-batches does a replica process per step, and how many tokens of one does a rank have?"""

from __future__ import annotations

from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.table import Floats, Integers


def micro_batch_tokens(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the tokens of one micro-batch on one context-parallel rank, `(n,)`; in a vision encoder patches of its images."""
    if workload.images and workload.is_vision_encoder:
        per_sequence = workload.images.per_sequence * workload.images.imbalance
        return plans.micro_batch_size * (per_sequence * workload.sequence_length) / plans.context_parallel
    return plans.micro_batch_size * workload.sequence_length / plans.context_parallel


def num_micro_batches(workload: Workload, plans: PlanTable) -> Integers:
    """Returns the number of micro-batches of one replica in one step, `(n,)`."""
    return workload.global_batch_size // (plans.data_parallel * plans.micro_batch_size)
