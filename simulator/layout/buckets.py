"""How many weights has a bucket, the piece in which replicas reduce gradients, at least?"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.table import Floats

BUCKET_WEIGHTS = 4e7
"""Least weights of a bucket."""
BUCKET_WEIGHTS_PER_REPLICA = 1e6
"""Least weights of a bucket for each replica, so that messages of a ring do not shrink to nothing (Megatron Core,
`DistributedDataParallel`)."""


def least_bucket_weights(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the least weights of a bucket, `(n,)`: as given, or as in Megatron Core."""
    if workload.bucket_weights:
        return np.full(len(plans), float(workload.bucket_weights))
    num_replicas = plans.data_parallel * plans.context_parallel
    return np.asarray(np.maximum(BUCKET_WEIGHTS, BUCKET_WEIGHTS_PER_REPLICA * num_replicas))
