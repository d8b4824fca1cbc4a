"""How many micro-batches does a replica process per step, and how many tokens of one does a rank have?"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.table import Floats, Integers


def micro_batch_tokens(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the tokens of one micro-batch on one context-parallel rank, `(n,)`.

    In a vision encoder they are the patches of its images, of one that has any.
    """
    if workload.images and workload.is_vision_encoder:
        images = np.maximum(1.0, plans.micro_batch_size * workload.images.most_per_sequence)
        return np.asarray(images * workload.sequence_length / plans.context_parallel)
    return plans.micro_batch_size * workload.sequence_length / plans.context_parallel


def num_micro_batches(workload: Workload, plans: PlanTable) -> Integers:
    """Returns the number of micro-batches of one replica in one step, `(n,)`."""
    return workload.global_batch_size // (plans.data_parallel * plans.micro_batch_size)
