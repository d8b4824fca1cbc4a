"""How much longer is a step because the traffic of the replicas takes cores and links from the passes that it overlaps?

The gradients behind the last backward of a chunk, and the weights ahead of its first forward (`simulator.pipeline.schedule`),
move in separate kernels whose blocks share no multiprocessor with others (NCCL issue 689). Let s be the share of the cores that
they occupy, g the members of a group on a node, x a pass, and y its traffic in K pieces, all but one of which overlap with the
pass:

    s           = CORE_SHARE min(1, 4 g/16) where the group leaves its link domain, CORE_SHARE where it does not

    lent(x, y)  = s min(x, y (K - 1)/K) + w'/x min(x, y (K - 1)/K)
    shown(x, y) = max(0, lent(x, y) - max(0, y - x) (K - 1)/K - (y - alone)/K)    where the stage waits for the traffic anyway
    step        + shown(x, y) of the first chunk, forward and backward + lent(x, y) of the other chunks, backward

The last backwards of a micro-batch follow each other from chunk to chunk, each delayed by what the one before lends, and the
first chunk is the last of them. Other chunks gather their weights while their stage waits for its first activation. Under
zero-bubble schedules no stage waits for the weight gradients x of another one: v max shown(x, y), with v chunks on a stage.

Traffic of interleaved stages that is beside N passes of another chunk (`simulator.step.next_chunks`) overlaps with them whole:

    step        + sum of shown(N x, y) for gradients, a mean over stages, all of which lend at the same time
                + sum of shown(N x, y) for weights of the first stage; others wait for their first activation meanwhile

w' is what a pass waits for on links while the traffic is there, too (`simulator.step.replica_streams`). It is 0 next to weight
gradients. In the term with w', y is how long the traffic takes alone; elsewhere it includes what the traffic itself waits
(`simulator.step.card_time`), as the pipeline does for the piece that has no pass beside it and takes as long as alone.

A pass that outlasts its computation by o, because copies to main memory do, lends max(0, lent(x, y) - o).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from simulator.machine.rank import Rank
from simulator.pipeline.schedule import PipelineColumns
from simulator.row_sums import sum_columns
from simulator.step.card_time import replicas_leave_domain
from simulator.step.next_chunks import PassesBeside
from simulator.table import Booleans, Floats, Integers
from simulator.traffic.layer_collectives import CORE_SHARE, Directions

ALL_CHANNELS, CHANNELS_OF_CARD = 16.0, 4.0
"""Channels of a collective that uses eight network cards or the links inside a node, and those for a single card (NCCL 2.x,
`src/graph/connect.cc`, from compute capability 9.0 on; 2 before, so that older parts lend a little less)."""


def replicas_core_share(rank: Rank) -> Floats:
    """Returns the share of the cores that the traffic of the replicas occupies, s, `(n,)`.

    Under hybrid sharding and ZeRO-3 only its copies exchange anything once per step, `shard_ranks` replicas apart.
    """
    plans = rank.plans
    is_of_copies = (plans.zero_stage == 3) & (plans.shard_ranks > 0)
    ranks_apart = plans.tensor_parallel * np.where(is_of_copies, plans.shard_ranks, 1)
    on_node = np.maximum(rank.offers.gpus_per_node // ranks_apart, 1)
    of_all = np.minimum(1.0, CHANNELS_OF_CARD * on_node / ALL_CHANNELS)
    return CORE_SHARE * np.where(replicas_leave_domain(rank), of_all, 1.0)


@dataclass(frozen=True, kw_only=True)
class LinkWaits:
    """What passes wait for on links that traffic of the replicas uses at the same time, `(n, C)`."""

    forward_s: Floats
    """w' of the first forward of every chunk."""
    backward_s: Floats
    parameter_gather_s: Floats
    """y alone, beside forward passes."""
    gradient_sync_s: Floats
    """y alone, beside backward passes."""
    idle_s: Floats | None = None
    """The part of backward passes in which they only wait for shards of their own, and lend no cores; `None`: 0."""


@dataclass(frozen=True, kw_only=True)
class _Beside:
    """Passes that overlap with traffic, `(n, C)`."""

    pass_s: Floats
    """x."""
    traffic_s: Floats
    """y."""
    beside: Floats
    """Share of the traffic that overlaps with the pass."""
    core_share: Floats
    """s, `(n, 1)`."""
    waited_s: Floats | None = None
    """w'; `None`: 0."""
    alone_s: Floats | None = None
    """y alone; `None`: y."""
    idle_s: Floats | None = None
    """The part of x in which nothing is computed; `None`: 0."""
    copies_s: Floats | None = None
    """o; `None`: 0."""

    def of_first(self) -> Self:
        """Returns the first chunk alone, `(n, 1)`."""
        return replace(
            self, **{name: column[:, :1] for name, column in vars(self).items() if column is not None}
        )

    def of_others(self) -> Self:
        """Returns the same traffic beside passes of another chunk of the stage, with which all of it overlaps."""
        return replace(self, beside=np.ones(1))

    def lent_s(self, num_passes: Floats | Integers | float = 1.0) -> Floats:
        """Returns how much longer passes are when the traffic overlaps with this many of each, one after the other."""
        whole_s = num_passes * self.pass_s
        lent_s = self.core_share * np.minimum(whole_s, self.beside * self.traffic_s)
        if self.idle_s is not None:
            lent_s *= 1.0 - self.idle_s / np.maximum(self.pass_s, np.finfo(np.float64).tiny)
        if self.waited_s is not None and self.alone_s is not None:
            per_s = np.divide(
                self.waited_s, self.pass_s, out=np.zeros_like(self.pass_s), where=self.pass_s > 0.0
            )
            lent_s += per_s * np.minimum(whole_s, self.beside * self.alone_s)
        if self.copies_s is not None:
            lent_s = np.maximum(0.0, lent_s - num_passes * self.copies_s)
        return np.asarray(lent_s)

    def shown_s(self, num_passes: Floats | Integers | float = 1.0) -> Floats:
        """Returns the part of it that shows where the stage waits for the traffic anyway."""
        waits_s = np.maximum(0.0, self.traffic_s - num_passes * self.pass_s)
        shown_s = self.lent_s(num_passes) - self.beside * waits_s
        if self.alone_s is not None:
            shown_s -= (1.0 - self.beside) * (self.traffic_s - self.alone_s)
        return np.asarray(np.maximum(0.0, shown_s))


def lent_to_replicas_s(
    pipeline: PipelineColumns,
    beside: PassesBeside,
    is_split: Booleans,
    core_share: Floats,
    waits: LinkWaits | None,
    copies_s: Directions | None,
) -> Floats:
    """Returns how much longer the step of each pipeline is, `(n,)`.

    Args:
        pipeline: what is played, and in how many pieces.
        beside: passes of other chunks that traffic of interleaved stages overlaps with.
        is_split: whether weight gradients are computed later than the rest of a backward, `(n,)`.
        core_share: s, `(n,)`.
        waits: for links; `None`: no pass waits for one that the replicas use.
        copies_s: exposed copies to main memory, o, `(n, C)` a way; `None`: none are.
    """
    gradient_s, share = np.asarray(pipeline["gradient_sync_s"]), core_share[:, None]
    num_buckets = _of_chunks(pipeline["num_overlap_buckets"], gradient_s)
    num_gathers = _of_chunks(pipeline.get("num_gather_buckets", num_buckets), gradient_s)
    gather_waits = (waits.forward_s, waits.parameter_gather_s) if waits else (None, None)
    sync_waits = (waits.backward_s, waits.gradient_sync_s) if waits else (None, None)
    forward_copies_s, backward_copies_s = copies_s or (None, None)
    weights = _Beside(
        pass_s=np.asarray(pipeline["chunk_forward_s"]),
        traffic_s=np.asarray(pipeline["parameter_gather_s"]),
        beside=_share_beside(num_gathers),
        core_share=share,
        waited_s=gather_waits[0],
        alone_s=gather_waits[1],
        copies_s=forward_copies_s,
    )
    gradients = _Beside(
        pass_s=np.asarray(pipeline["chunk_backward_s"]),
        traffic_s=gradient_s,
        beside=_share_beside(num_buckets),
        core_share=share,
        waited_s=sync_waits[0],
        alone_s=sync_waits[1],
        idle_s=waits.idle_s if waits else None,
        copies_s=backward_copies_s,
    )
    backward_s = _one_by_one_s(gradients, beside.reductions, np.asarray(pipeline["num_stages"]))
    if is_split.any():
        later_s = np.asarray(pipeline["chunk_weight_gradient_s"])
        at_once_s = np.asarray(pipeline["num_chunks_per_stage"]) * _most_of_later_s(gradients, later_s)
        backward_s = np.where(is_split, at_once_s, backward_s)
    is_of_first = np.arange(gradient_s.shape[1]) % np.asarray(pipeline["num_stages"])[:, None] == 0
    weights_s = weights.of_first().shown_s()[:, 0]
    weights_s += sum_columns(is_of_first * weights.of_others().shown_s(beside.gathers))
    return np.asarray(weights_s + backward_s)


def _one_by_one_s(gradients: _Beside, num_others: Integers, num_stages: Integers) -> Floats:
    """Returns what backwards lend that follow each other from chunk to chunk, and what those of other chunks do, `(n,)`."""
    one_by_one_s = sum_columns(gradients.lent_s()[:, 1:]) + gradients.of_first().shown_s()[:, 0]
    return np.asarray(one_by_one_s + sum_columns(gradients.of_others().shown_s(num_others)) / num_stages)


def _most_of_later_s(gradients: _Beside, later_s: Floats) -> Floats:
    """Returns the most that weight gradients of any chunk show, `(n,)`; they have no collectives that wait."""
    later = replace(gradients, pass_s=later_s, waited_s=None, alone_s=None, copies_s=None)
    return np.asarray(np.max(later.shown_s(), axis=1))


def _of_chunks(num_buckets: npt.ArrayLike, gradient_s: Floats) -> Integers:
    """Returns pieces of every chunk, `(n, C)`."""
    numbers = np.asarray(num_buckets)
    return np.broadcast_to(numbers if numbers.ndim > 1 else numbers[:, None], gradient_s.shape)


def _share_beside(num_buckets: Integers) -> Floats:
    """Returns the share of the traffic that overlaps with its pass: all pieces but one; 0 without overlap."""
    return np.asarray(1.0 - 1.0 / np.maximum(1, num_buckets))
