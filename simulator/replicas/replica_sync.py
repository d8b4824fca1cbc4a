"""What do the replicas of a rank exchange? Gradients and weights, once per step or in every micro-batch.

Ranks are numbered as in Megatron-LM: tensor, context, data, pipeline. Weights that every token meets have d c
replicas, t ranks apart; those of routed experts have d c t / (e t_e), e t_e ranks apart.

    ZeRO stage   per step                                        per micro-batch
    0            all-reduce of gradients                         -
    1            reduce-scatter of gradients, gather of weights  -
    2            gather of weights (`regathers_weights`: in      reduce-scatter of gradients, in pipelines only
                 every forward pass); in pipelines the last      after each group but the last one
                 reduce-scatter of gradients
    3            -                                               reduce-scatter of gradients, gather of weights forward
                                                                 and backward

Below stage `scatters_gradients_from`, ZeRO-1 and ZeRO-2 all-reduce gradients over all replicas instead of scattering them:
InternEvo (`reduce_tensor` without a rank), Colossal-AI under ZeRO-1 (`_run_reduction`), and DeepSpeed under both
(`allreduce_and_scatter`, where each rank keeps its share; `buffered_allreduce_fallback` of its BF16 optimizer).

A group is a run of micro-batches over which gradients stay whole (`model_states.reduced_fraction`); the gradients of the last
group are reduced after its last backward pass, as under ZeRO-1.

Under hybrid sharding (HSDP; Zhao et al., arXiv 2304.11277, section 3.2.2) all of this runs inside groups of z neighbouring
ranks, each of which has a whole copy. Once per step the copies, t z ranks apart, sum their gradient shards by an all-reduce of
1/z of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from simulator.domain.links import LinkConstants
from simulator.domain.plan import has_split_ends, shard_group
from simulator.layout.chunks import ChunkWeights, split_layers
from simulator.layout.expert_ranks import expert_ranks, expert_replicas, routed_shard_group
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.model_states import reduced_fraction
from simulator.layout.owned_matrices import deals_tensors
from simulator.layout.trained_weights import StepWeights
from simulator.layout.weight_gathers import gathers_in_passes, regathers
from simulator.machine.network import all_gather_s, all_reduce_s, gather_busy_s, reduce_scatter_s
from simulator.machine.rank import Rank, members_in_domain, once_per_rank
from simulator.replicas.cast_weights import gathered_weight_bytes
from simulator.replicas.shard_streams import stream_copies_s
from simulator.table import Booleans, Floats, Integers


@dataclass(frozen=True, kw_only=True)
class ReplicaGroup:
    """Ranks that exchange parts of the same weights; every column is `(n, 1)`, as weights are `(n, k)` with k parts."""

    size: Floats
    """Number of ranks."""
    members_per_domain: Floats
    """Number of ranks in one link domain."""
    links: LinkConstants
    """The links that they communicate over."""
    wire_bytes: float
    """Bytes of one gradient on the wire."""

    @classmethod
    def of_shared(cls, rank: Rank) -> Self:
        """Returns the ranks that share one copy of the weights that every token uses."""
        return cls._of(rank, rank.plans.tensor_parallel, shard_group(rank.plans))

    @classmethod
    def of_routed(cls, rank: Rank) -> Self:
        """Returns the ranks that share one copy of the weights of routed experts."""
        workload, plans = rank.workload, rank.plans
        return cls._of(
            rank, expert_ranks(workload, plans), routed_shard_group(workload, plans).astype(np.int64)
        )

    @classmethod
    def of_shared_copies(cls, rank: Rank) -> Self:
        """Returns the ranks with the same share of the weights that every token uses, one of each copy."""
        plans, ranks = rank.plans, shard_group(rank.plans)
        num_copies = plans.data_parallel * plans.context_parallel // ranks
        return cls._of(rank, plans.tensor_parallel * ranks, num_copies)

    @classmethod
    def of_routed_copies(cls, rank: Rank) -> Self:
        """Returns the ranks with the same share of the weights of routed experts, one of each copy."""
        workload, plans = rank.workload, rank.plans
        ranks = routed_shard_group(workload, plans).astype(np.int64)
        return cls._of(rank, expert_ranks(workload, plans) * ranks, expert_replicas(workload, plans) // ranks)

    @classmethod
    def of_all_shared(cls, rank: Rank) -> Self:
        """Returns all ranks that hold the same weights of those that every token uses, sharded or not."""
        plans = rank.plans
        return cls._of(rank, plans.tensor_parallel, plans.data_parallel * plans.context_parallel)

    @classmethod
    def of_all_routed(cls, rank: Rank) -> Self:
        """Returns all ranks that hold the same weights of routed experts, sharded or not."""
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
        """Returns the time until every rank has the sum of the gradients of weights `(n, k)`."""
        return self._passed_s(all_reduce_s, weights * self.wire_bytes)

    def reduce_scatter_s(self, weights: Floats) -> Floats:
        """Returns the time until every rank has its share of the sum."""
        return self._passed_s(reduce_scatter_s, weights * self.wire_bytes)

    def all_gather_s(self, num_bytes: Floats) -> Floats:
        """Returns the time until every rank has all weights of this size, `(n, k)`."""
        return self._passed_s(all_gather_s, num_bytes)

    def gather_busy_s(self, num_bytes: Floats) -> tuple[Floats, Floats]:
        """Returns how long such a gather occupies a member's cards and its scale-up link."""
        return gather_busy_s(
            num_bytes=num_bytes,
            group_size=self.size,
            members_per_domain=self.members_per_domain,
            links=self.links,
        )

    def _passed_s(self, collective: Callable[..., Floats], num_bytes: Floats) -> Floats:
        """Time of a collective over the group; zero if there is nothing to exchange."""
        passed_s = collective(
            num_bytes=num_bytes,
            group_size=self.size,
            members_per_domain=self.members_per_domain,
            links=self.links,
        )
        return np.where(num_bytes > 0.0, passed_s, 0.0)


@dataclass(frozen=True, kw_only=True)
class _Groups:
    """All ranks that exchange parts of the same weights."""

    rank: Rank
    is_routed: bool
    """Whether these are the weights of routed experts."""

    @cached_property
    def shards(self) -> ReplicaGroup:
        """Ranks that share one copy."""
        return ReplicaGroup.of_routed(self.rank) if self.is_routed else ReplicaGroup.of_shared(self.rank)

    @property
    def copies(self) -> ReplicaGroup:
        """Ranks that hold the same share, one of each copy."""
        of = ReplicaGroup.of_routed_copies if self.is_routed else ReplicaGroup.of_shared_copies
        return of(self.rank)

    @property
    def every(self) -> ReplicaGroup:
        """All ranks that hold the same weights, sharded or not."""
        of = ReplicaGroup.of_all_routed if self.is_routed else ReplicaGroup.of_all_shared
        return of(self.rank)

    def reductions_s(self, weights: Floats, is_scattered: Booleans) -> Floats:
        """Returns the time to reduce gradients to their owners, or to all ranks if they are not scattered."""
        scatter_s = self.shards.reduce_scatter_s(weights)
        if is_scattered.all():
            return scatter_s
        return np.where(is_scattered, scatter_s, self.every.all_reduce_s(weights))


@dataclass(frozen=True, kw_only=True)
class ReplicaTraffic:
    """Seconds of traffic for weights `(n, k)`, before any overlap."""

    gradient_s: Floats
    """Gradients once per step."""
    parameter_s: Floats
    """Weights once per step."""
    forward_s: Floats
    """In the forward pass of every micro-batch."""
    backward_s: Floats
    """In the backward pass of every micro-batch; the mean if only the last ones of each group reduce."""

    @classmethod
    def of(cls, rank: Rank, weights: StepWeights) -> Self:
        """Returns the traffic of weights under the layout and ZeRO stage of each design."""
        traffic = cls._of_trained(rank, weights.exchanged).regathered(regathers(rank.workload, rank.plans))
        if weights.frozen is not None:
            traffic += cls._of_frozen(rank, weights.frozen)
        return traffic if rank.workload.sharded_copies == "none" else traffic.with_copies(rank, weights)

    def with_copies(self, rank: Rank, weights: StepWeights) -> Self:
        """Returns this traffic including the copies and casts on the communication streams."""
        ahead_s, behind_s = stream_copies_s(rank, weights)
        again_s = np.where(rank.plans.zero_stage[:, None] == 3, ahead_s, 0.0)
        return replace(
            self,
            forward_s=self.forward_s + ahead_s,
            backward_s=self.backward_s + again_s + behind_s,
        )

    @classmethod
    def _of_frozen(cls, rank: Rank, weights: ChunkWeights) -> Self:
        """Frozen weights are only gathered: in every pass under ZeRO-3, and forward where ZeRO-2 gathers the others again."""
        plans = rank.plans
        shared_bytes, routed_bytes = gathered_weight_bytes(rank.workload, plans, weights)
        gather_s = ReplicaGroup.of_shared(rank).all_gather_s(shared_bytes)
        if rank.workload.model.experts:
            gather_s = gather_s + ReplicaGroup.of_routed(rank).all_gather_s(routed_bytes)
        gathers = gathers_in_passes(rank.workload, plans)[:, None], plans.zero_stage[:, None] == 3
        forward_s, backward_s = (np.where(has_any, gather_s, 0.0) for has_any in gathers)
        none_s = np.zeros_like(gather_s)
        return cls(gradient_s=none_s, parameter_s=none_s, forward_s=forward_s, backward_s=backward_s)

    @classmethod
    def _of_trained(cls, rank: Rank, weights: ChunkWeights) -> Self:
        shared = weights.shared_on_rank(rank.plans)
        shared_bytes, routed_bytes = gathered_weight_bytes(rank.workload, rank.plans, weights)
        traffic = cls._in(rank, _Groups(rank=rank, is_routed=False), shared, shared_bytes)
        if rank.workload.model.experts is None:
            return traffic
        routed = weights.routed_on_rank(rank.workload, rank.plans)
        return traffic + cls._in(rank, _Groups(rank=rank, is_routed=True), routed, routed_bytes)

    @classmethod
    def _in(cls, rank: Rank, groups: _Groups, weights: Floats, gathered_bytes: Floats) -> Self:
        zero_stage, is_scattered = rank.plans.zero_stage[:, None], scatters_gradients(rank)[:, None]
        scatter_s = groups.reductions_s(weights, is_scattered)
        gather_s = groups.shards.all_gather_s(gathered_bytes)
        in_passes, at_end = reductions_of_step(rank)
        again_s = np.where(zero_stage == 3, gather_s, 0.0)
        gradient_s = at_end * scatter_s
        if not zero_stage.all():
            gradient_s = np.where(zero_stage == 0, groups.shards.all_reduce_s(weights), gradient_s)
        traffic = cls(
            gradient_s=gradient_s,
            parameter_s=np.where((zero_stage == 1) | (zero_stage == 2), gather_s, 0.0),
            forward_s=again_s,
            backward_s=in_passes * scatter_s + again_s,
        )
        if not rank.plans.shard_ranks.any():
            return traffic
        is_between = is_scattered & (zero_stage > 0)
        return traffic + cls._between(groups.copies, is_between, weights / groups.shards.size)

    def regathered(self, is_again: Booleans) -> Self:
        """Returns traffic in which, for some designs `(n,)`, the gather once per step becomes one in every forward pass."""
        if not is_again.any():
            return self
        return replace(
            self,
            parameter_s=np.where(is_again[:, None], 0.0, self.parameter_s),
            forward_s=np.where(is_again[:, None], self.parameter_s, self.forward_s),
        )

    def passed_backward(self, is_passed: Booleans) -> Self:
        """Returns traffic in which only some of the weights, `(k,)`, have any in backward passes."""
        if is_passed.all():
            return self
        return replace(self, backward_s=np.where(is_passed, self.backward_s, 0.0))

    @classmethod
    def _between(cls, copies: ReplicaGroup, is_between: Booleans, weights: Floats) -> Self:
        """Traffic between the copies of hybrid sharding, for a rank's share of the weights."""
        none_s = np.zeros_like(weights)
        gradient_s = np.where(is_between, copies.all_reduce_s(weights), 0.0)
        return cls(gradient_s=gradient_s, parameter_s=none_s, forward_s=none_s, backward_s=none_s)

    def __add__(self, other: Self) -> Self:
        return type(self)(
            gradient_s=self.gradient_s + other.gradient_s,
            parameter_s=self.parameter_s + other.parameter_s,
            forward_s=self.forward_s + other.forward_s,
            backward_s=self.backward_s + other.backward_s,
        )


def scatters_gradients(rank: Rank) -> Booleans:
    """Returns whether gradients are reduced to their owners alone, `(n,)`; under ZeRO-0 every rank is an owner."""
    if rank.workload.muon:
        return ~_deals_tensors(rank)
    zero_stage = rank.plans.zero_stage
    return np.asarray((zero_stage == 0) | (zero_stage >= rank.workload.scatters_gradients_from))


@once_per_rank
def _deals_tensors(rank: Rank) -> Booleans:
    """Whether whole tensors are dealt to the replicas, `(n,)`."""
    workload, plans = rank.workload, rank.plans
    return deals_tensors(workload, plans, split_layers(workload.model, plans, workload.stage_layers))


def reductions_of_step(rank: Rank) -> tuple[Floats, Floats]:
    """Returns the number of gradient scatters in every backward pass, and after the last one, `(n, 1)`.

    Under ZeRO-2 in a pipeline of m micro-batches there are m f reductions, f being `model_states.reduced_fraction`: the last
    follows the last backward pass, which leaves f - 1/m a micro-batch.
    """
    workload, plans = rank.workload, rank.plans
    is_grouped = (plans.zero_stage == 2) & (plans.pipeline_parallel > 1)
    groups = reduced_fraction(workload, plans) - 1.0 / num_micro_batches(workload, plans)
    in_passes = np.where(is_grouped, groups, (plans.zero_stage >= 2).astype(np.float64))
    at_end = (is_grouped | (plans.zero_stage == 1)).astype(np.float64)
    return in_passes[:, None], at_end[:, None]


def tied_gradient_bytes(rank: Rank) -> Floats:
    """Returns the gradient of a copied embedding on a rank, `(n,)`: from ZeRO-2 on only the rank's share."""
    plans = rank.plans
    shares = plans.tensor_parallel * np.where(plans.zero_stage >= 2, shard_group(plans), 1)
    return np.asarray(rank.workload.model.copied_parameters * rank.workload.wire_bytes / shares)


def tied_gradient_s(rank: Rank) -> Floats:
    """Returns the all-reduce of the gradient of an embedding that first and last stage both hold, `(n,)`.

    The embedding is tied, or also used for multi-token prediction. The all-reduce follows the reduction between the replicas
    and is fully exposed (Megatron-LM, `finalize_model_grads`; DeepSpeed, `_exec_reduce_tied_grads`).
    """
    plans = rank.plans
    is_trained = rank.workload.lora is None
    has_copy = (rank.workload.model.copied_parameters > 0 and is_trained) & has_split_ends(plans)
    if not has_copy.any():
        return np.zeros(len(plans))
    is_one_domain = plans.num_gpus <= rank.offers.link_domain_size
    reduced_s = all_reduce_s(
        num_bytes=tied_gradient_bytes(rank),
        group_size=2.0,
        members_per_domain=np.where(is_one_domain, 2.0, 1.0),
        links=rank.links,
    )
    return np.where(has_copy, reduced_s, 0.0)
