"""In which passes do ranks gather sharded weights?"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.table import Booleans


def gathers_in_passes(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether weights are gathered at least in every forward pass, `(n,)`: under ZeRO-3, and as `regathers` says."""
    return np.asarray((plans.zero_stage == 3) | regathers(workload, plans))


def regathers(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether ZeRO-2 gathers weights in every forward pass, `(n,)`.

    FSDP frees gathered weights after a backward pass even if it keeps them after a forward pass (`reshard_after_backward` of
    FSDP2, `_should_free_in_backward` of its first version), except in PyTorch's pipelines.
    """
    is_alone = (plans.zero_stage == 2) & (plans.pipeline_parallel == 1)
    return np.asarray(is_alone & workload.regathers_weights)
