"""How many ranks share a layer's set of experts, how many hold or shard the same part, and how loaded is each?

Expert-parallel ranks (e) hold different experts; expert-tensor-parallel ranks (t_e) hold parts of the same experts. The ranks
that share a set are consecutive, those with parts of the same expert first (Megatron Core).
"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import PlanTable, shard_group
from simulator.domain.workload import Workload
from simulator.table import Booleans, Floats, Integers


def expert_parts(workload: Workload) -> int:
    """Returns the number of ranks that share each expert, t_e; 1 if the model has none."""
    return workload.expert_tensor_parallel if workload.model.experts else 1


def expert_ranks(workload: Workload, plans: PlanTable) -> Integers:
    """Returns the number of ranks that together hold one set of routed experts, e t_e, `(n,)`."""
    return plans.expert_parallel * expert_parts(workload)


def expert_replicas(workload: Workload, plans: PlanTable) -> Integers:
    """Returns the number of ranks that hold the same part of a set of routed experts, D c t / (e t_e), `(n,)`."""
    ranks = plans.data_parallel * plans.context_parallel * plans.tensor_parallel
    return ranks // expert_ranks(workload, plans)


def routed_shard_group(workload: Workload, plans: PlanTable) -> Floats:
    """Returns how many ranks shard one copy of such a part, `(n,)`: z t / (e t_e), or 1 if a set spans several groups."""
    ranks = shard_group(plans) * plans.tensor_parallel / expert_ranks(workload, plans)
    return np.where(plans.shard_ranks > 0, np.maximum(1.0, np.floor(ranks)), ranks)


def is_without_replicas(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether no two ranks hold the same weights, routed experts included, `(n,)`."""
    is_alone = plans.data_parallel * plans.context_parallel == 1
    if workload.model.experts is None:
        return np.asarray(is_alone)
    return np.asarray(is_alone & (expert_replicas(workload, plans) <= 1))


def shares_nothing(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether every rank is the sole owner of all its weights, `(n,)`, so that ZeRO has nothing to shard."""
    is_alone = shard_group(plans) == 1
    if workload.model.experts is None:
        return np.asarray(is_alone)
    return np.asarray(is_alone & (routed_shard_group(workload, plans) <= 1.0))


def expert_load(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the tokens that the most loaded rank computes over the average, `(n,)`: at most e, if it gets all of them."""
    most = min(workload.expert_imbalance, workload.expert_capacity_factor or workload.expert_imbalance)
    return np.minimum(most, plans.expert_parallel)
