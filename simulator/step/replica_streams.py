"""How long does the traffic of the replicas once per step take next to passes that are on the same links?

Where the replicas are in several link domains, these links are network cards. Where all of them are in one domain, it is the
scale-up link of each rank, on which all collectives of its passes are, too. In a mesh only keys and values that go round meet
them, on one link of each rank (`simulator.step.beside_shards`). The equations are in `simulator.step.card_time` and
`simulator.step.lent_cores`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, cast

import numpy as np

from simulator.domain.plan import splits_backward
from simulator.machine.rank import Rank
from simulator.pipeline.schedule import PipelineColumns
from simulator.step.beside_shards import scale_up_collectives
from simulator.step.card_time import (
    beside_own_traffic_s,
    has_collectives,
    replicas_leave_domain,
    with_last_send_s,
)
from simulator.step.gradient_buckets import Buckets
from simulator.step.lent_cores import CardWaits, lent_to_replicas_s, replicas_core_share
from simulator.step.link_waits import OnLink
from simulator.step.model_parts import ModelParts
from simulator.table import Booleans, Floats, Integers
from simulator.traffic.layer_collectives import Directions
from simulator.traffic.stage_sends import send_card_s


@dataclass(frozen=True, kw_only=True)
class ReplicaStreams:
    """The traffic of the replicas once per step, and the passes next to it, `(n, C)`."""

    once_s: Directions
    """Gradients and weights, before anything hides them."""
    passes_s: Directions
    """Forward and backward passes."""
    buckets: Buckets
    shards_s: Floats | None
    """Gathers and reductions behind backward passes on links that copies of hybrid sharding use, too; `None`: none."""
    covers_s: Floats
    """Backward passes of layers without shards."""
    shown_s: Floats
    """Shards that show in backward passes."""

    def take(self, rows: Integers) -> Self:
        """Returns the streams of the chosen designs."""
        return type(self)(
            once_s=(self.once_s[0][rows], self.once_s[1][rows]),
            passes_s=(self.passes_s[0][rows], self.passes_s[1][rows]),
            buckets=Buckets(self.buckets.gradients[rows], self.buckets.parameters[rows]),
            shards_s=None if self.shards_s is None else self.shards_s[rows],
            covers_s=self.covers_s[rows],
            shown_s=self.shown_s[rows],
        )

    def beside_s(self, rank: Rank, own_s: Directions | None) -> Directions:
        """Returns gradients and weights including their waits for collectives of the passes next to them, w, `(n, C)` a way."""
        gradient_s, parameter_s = self.once_s
        if not rank.workload.overlaps_gradient_sync:
            return gradient_s, parameter_s
        gradient_s = with_last_send_s(gradient_s, replicas_leave_domain(rank) * send_card_s(rank))
        forward_s, backward_s = own_s or (None, None)
        if self.shards_s is not None:
            backward_s = self.shards_s if backward_s is None else backward_s + self.shards_s
        if forward_s is not None:
            parameter_s = beside_own_traffic_s(
                parameter_s, self.passes_s[0], forward_s, self.buckets.parameters
            )
        if backward_s is not None:
            # Zero-bubble schedules reduce gradients beside products alone.
            backward_s = ~splits_backward(rank.plans)[:, None] * backward_s
            gradient_s = beside_own_traffic_s(
                gradient_s, self.passes_s[1], backward_s, self.buckets.gradients
            )
        return gradient_s, parameter_s

    def waits(self, waited_s: Directions | None) -> CardWaits | None:
        """Returns what passes wait for of their own traffic, w', `(n, C)` a way, and of shards next to copies."""
        if waited_s is None and self.shards_s is None:
            return None
        gradient_s, parameter_s = self.once_s
        forward_s, backward_s = waited_s or (np.zeros_like(gradient_s), np.zeros_like(gradient_s))
        shards_s = self._waiting_shards_s()
        return CardWaits(
            forward_s=forward_s,
            backward_s=backward_s if shards_s is None else backward_s + shards_s,
            parameter_gather_s=parameter_s,
            gradient_sync_s=gradient_s,
            idle_s=None if shards_s is None else (shards_s > 0.0) * self.shown_s,
        )

    def _waiting_shards_s(self) -> Floats | None:
        """What backward passes wait for of shards that share links with copies: all that their layers do not hide.

        The first chunk delays none: the step ends with its copies, which wait for its shards.
        """
        if self.shards_s is None:
            return None
        waits_s = np.clip(2.0 * self.shards_s - self.covers_s, 0.0, self.shards_s)
        return np.asarray((np.arange(waits_s.shape[1]) > 0) * waits_s)


def meet_near_replicas(
    rank: Rank, parts: ModelParts, streams: ReplicaStreams, pipeline: PipelineColumns, lent_s: Floats
) -> None:
    """Lets the traffic of replicas in one link domain meet the collectives of passes, in the designs that have both.

    Args:
        rank: the rank.
        parts: the parts of its model.
        streams: the traffic of the replicas.
        pipeline: in which gradients and weights of these designs are set.
        lent_s: what passes lend, `(n,)`, in which that of these designs is set.
    """
    is_near = _are_near(rank) & has_collectives(rank)
    if not (rank.workload.overlaps_gradient_sync and is_near.any()):
        return
    rows = np.flatnonzero(is_near)
    near, parts, streams = rank.take(rows), parts.take(rows), streams.take(rows)
    own = scale_up_collectives(near, parts, OnLink.none(parts, len(rows)), is_near[rows])
    gradient_s, parameter_s = streams.beside_s(near, parts.both_ways(own.carried_s))
    some = cast(PipelineColumns, {name: np.asarray(pipeline[name])[rows] for name in _LENT_FROM})
    some["chunk_forward_s"], some["chunk_backward_s"] = streams.passes_s
    some["gradient_sync_s"], some["parameter_gather_s"] = gradient_s, parameter_s
    some["num_overlap_buckets"], some["num_gather_buckets"] = streams.buckets
    np.asarray(pipeline["gradient_sync_s"])[rows] = gradient_s
    np.asarray(pipeline["parameter_gather_s"])[rows] = parameter_s
    lent_s[rows] = lent_to_replicas_s(
        some,
        splits_backward(near.plans),
        replicas_core_share(near),
        streams.waits(parts.both_ways(own.waited_s)),
    )


_LENT_FROM: tuple[
    Literal[
        "num_stages", "num_chunks_per_stage", "num_micro_batches", "group_size", "chunk_weight_gradient_s"
    ],
    ...,
] = ("num_stages", "num_chunks_per_stage", "num_micro_batches", "group_size", "chunk_weight_gradient_s")
"""What `lent_to_replicas_s` reads of pipelines besides their streams."""


def replicas_share_scale_up(rank: Rank) -> Booleans:
    """Returns which designs have several replicas, all in one link domain that is no mesh, `(n,)`."""
    return np.asarray(_are_near(rank) & (rank.links.unlinked_members == 0.0))


def _are_near(rank: Rank) -> Booleans:
    """Whether several replicas are all in one link domain."""
    plans = rank.plans
    return (plans.data_parallel * plans.context_parallel > 1) & ~replicas_leave_domain(rank)
