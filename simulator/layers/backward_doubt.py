"""How much does a step rest on a backward kernel for chosen tokens that only Blackwell has at a published speed?"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.layers.layer_costs import dense_layer, expert_layer
from simulator.machine.attention_kernels import (
    CHOSEN_BACKWARD_FRACTION,
    CHOSEN_BACKWARD_FRACTION_OF_BLACKWELL,
    with_backward_ratio,
)
from simulator.machine.rank import Rank


def doubtful_log_ratio(job: Job, plans: PlanTable, row: int) -> float:
    """Returns by how much layers of one design would be shorter if that kernel were as fast as on Blackwell, as a logarithm.

    It is 0 on Blackwell, and for other attention.
    """
    is_known = job.offers[int(plans.offer[row])].accelerator.kernel_family == "blackwell"
    if not job.workload.model.chooses_tokens or is_known:
        return 0.0
    rank = Rank.of(job, plans.take(np.array([row])))
    ratio = CHOSEN_BACKWARD_FRACTION_OF_BLACKWELL / CHOSEN_BACKWARD_FRACTION
    faster = replace(rank, kernels=with_backward_ratio(rank.kernels, ratio))
    return math.log(_layer_s(rank) / _layer_s(faster))


def _layer_s(rank: Rank) -> float:
    layer = expert_layer(rank) if rank.workload.model.experts else dense_layer(rank)
    return float((layer.forward_s + layer.backward_s)[0])
