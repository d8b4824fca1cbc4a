"""How wide are the keys and values that context-parallel ranks pass on or gather?"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.table import Floats


def key_value_width(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the values of a token's keys and values on one tensor-parallel rank, `(n,)`.

    Heads that attend to chosen tokens share one key, whose first part is also the value; the key of the indexer is beside it.
    """
    model, latent = workload.model, workload.model.latent_attention
    if latent and latent.indexer:
        width = latent.key_width + model.indexer_share * latent.indexer.head_dim
        return np.full(len(plans), float(width))
    heads = np.maximum(1.0, workload.attended_kv_heads / plans.tensor_parallel)
    return np.asarray(heads * sum(model.attention_dims))
