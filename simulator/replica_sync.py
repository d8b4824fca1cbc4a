"""What do the replicas of a rank exchange? Gradients and weights, once per step or in every micro-batch.

Ranks are numbered as in Megatron-LM: tensor, context, data, pipeline. Weights that every token meets have d c
replicas, t ranks apart; those of routed experts have d c t / e, e ranks apart.

    ZeRO stage   per step                                        per micro-batch
    0            all-reduce of gradients                         -
    1            reduce-scatter of gradients, gather of weights  -
    2            gather of weights                               reduce-scatter of gradients, in pipelines only
                                                                 after each group (`memory.reduced_fraction`)
    3            -                                               reduce-scatter of gradients, gather of weights forward
                                                                 and backward
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from simulator.chunks import ChunkWeights
from simulator.expert_ranks import expert_ranks, expert_replicas
from simulator.layer_collectives import members_in_domain
from simulator.memory import WEIGHT_BYTES, reduced_fraction
from simulator.network import LinkConstants, all_gather_s, all_reduce_s, reduce_scatter_s
from simulator.plan import has_split_ends
from simulator.rank import Rank
from simulator.table import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class ReplicaGroup:
    """Ranks that hold the same weights; every column is `(n, 1)`, as weights are `(n, k)` with k parts of a model."""

    size: Floats
    """Ranks."""
    members_per_domain: Floats
    """Ranks in one link domain."""
    links: LinkConstants
    """What they talk over."""
    wire_bytes: float
    """Bytes of one gradient on the wire."""

    @classmethod
    def of_shared(cls, rank: Rank) -> Self:
        """Returns the replicas of the weights that every token meets."""
        return cls._of(
            rank, rank.plans.tensor_parallel, rank.plans.data_parallel * rank.plans.context_parallel
        )

    @classmethod
    def of_routed(cls, rank: Rank) -> Self:
        """Returns the replicas of the weights of routed experts."""
        workload, plans = rank.workload, rank.plans
        return cls._of(rank, expert_ranks(workload, plans), expert_replicas(workload, plans))

    @classmethod
    def _of(cls, rank: Rank, stride: Integers, size: Integers) -> Self:
        columns: dict[str, Floats] = {
            name: getattr(rank.links, name)[:, None] for name in LinkConstants.names()
        }
        return cls(
            size=size[:, None].astype(np.float64),
            members_per_domain=members_in_domain(rank, stride, size)[:, None],
            links=LinkConstants(**columns),
            wire_bytes=float(rank.workload.wire_bytes),
        )

    def all_reduce_s(self, weights: Floats) -> Floats:
        """Returns how long the gradients of weights `(n, k)` take until every rank has their sum."""
        return all_reduce_s(
            num_bytes=weights * self.wire_bytes,
            group_size=self.size,
            members_per_domain=self.members_per_domain,
            links=self.links,
        )

    def reduce_scatter_s(self, weights: Floats) -> Floats:
        """Returns how long they take until every rank has its share of the sum."""
        return reduce_scatter_s(
            num_bytes=weights * self.wire_bytes,
            group_size=self.size,
            members_per_domain=self.members_per_domain,
            links=self.links,
        )

    def all_gather_s(self, weights: Floats) -> Floats:
        """Returns how long the weights take until every rank has all of them."""
        return all_gather_s(
            num_bytes=weights * WEIGHT_BYTES,
            group_size=self.size,
            members_per_domain=self.members_per_domain,
            links=self.links,
        )


@dataclass(frozen=True, kw_only=True)
class ReplicaTraffic:
    """Seconds of traffic for weights `(n, k)`, before anything hides it."""

    gradient_s: Floats
    """Gradients once per step."""
    parameter_s: Floats
    """Weights once per step."""
    forward_s: Floats
    """In the forward pass of every micro-batch."""
    backward_s: Floats
    """In the backward pass of every micro-batch; the mean where not every one reduces."""

    @classmethod
    def of(cls, rank: Rank, weights: ChunkWeights) -> Self:
        """Returns the traffic of weights under the layout and ZeRO stage of each design."""
        plans, zero_stage = rank.plans, rank.plans.zero_stage[:, None]
        shared = weights.shared / plans.tensor_parallel[:, None]
        reduced = np.where(
            plans.zero_stage == 2, reduced_fraction(rank.workload, plans), plans.zero_stage == 3
        )
        traffic = cls._in(ReplicaGroup.of_shared(rank), zero_stage, shared, reduced[:, None])
        if rank.workload.model.experts is None:
            return traffic
        routed = weights.routed / expert_ranks(rank.workload, plans)[:, None]
        return traffic + cls._in(ReplicaGroup.of_routed(rank), zero_stage, routed, reduced[:, None])

    @classmethod
    def _in(cls, group: ReplicaGroup, zero_stage: Integers, weights: Floats, reduced: Floats) -> Self:
        scatter_s, gather_s = group.reduce_scatter_s(weights), group.all_gather_s(weights)
        once_s = [group.all_reduce_s(weights), scatter_s]
        again_s = np.where(zero_stage == 3, gather_s, 0.0)
        return cls(
            gradient_s=np.select([zero_stage == 0, zero_stage == 1], once_s, 0.0),
            parameter_s=np.where((zero_stage == 1) | (zero_stage == 2), gather_s, 0.0),
            forward_s=again_s,
            backward_s=reduced * scatter_s + again_s,
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(
            gradient_s=self.gradient_s + other.gradient_s,
            parameter_s=self.parameter_s + other.parameter_s,
            forward_s=self.forward_s + other.forward_s,
            backward_s=self.backward_s + other.backward_s,
        )


def tied_gradient_s(rank: Rank) -> Floats:
    """Returns the all-reduce of the tied embedding's gradient between first and last stage, `(n,)`.

    It follows the reduction between the replicas and hides behind nothing (Megatron-LM, `finalize_model_grads`;
    DeepSpeed, `_exec_reduce_tied_grads`). From ZeRO-2 on each replica has only its share of the gradient.
    """
    plans = rank.plans
    replicas = plans.data_parallel * plans.context_parallel
    shares = plans.tensor_parallel * np.where(plans.zero_stage >= 2, replicas, 1)
    is_one_domain = plans.num_gpus <= rank.offers.link_domain_size
    reduced_s = all_reduce_s(
        num_bytes=rank.workload.model.tied_parameters * rank.workload.wire_bytes / shares,
        group_size=2.0,
        members_per_domain=np.where(is_one_domain, 2.0, 1.0),
        links=rank.links,
    )
    has_copy = rank.workload.model.has_tied_embeddings & has_split_ends(plans)
    return np.where(has_copy, reduced_s, 0.0)
