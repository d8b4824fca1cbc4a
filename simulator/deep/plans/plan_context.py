"""What do context-parallel ranks exchange, around the attention core or hidden behind it? Times are those of the fast depth."""

from __future__ import annotations

import numpy as np

from simulator.deep.plans.plan_collectives import Collective, Group, Operation, all_to_all, circle, ring
from simulator.deep.plans.plan_items import Items, beside, moves, repeated, stretched
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.context_exchange import (
    gradient_rounds,
    head_ranks_of,
    heads_bytes,
    keys_and_values_bytes,
    passed_back,
    passed_on,
)
from simulator.traffic.linear_exchange import linear_bytes

CONTEXT = "context traffic"
"""Its name in sentences."""


def context_core(rank: Rank, core: Items, way: int) -> Items:
    """Returns the core and what context-parallel ranks exchange, forward (0) or backward (1), for the only design of `rank`.

    Args:
        rank: ranks of the design.
        core: the attention cores of a layer; in a hybrid a mean, of which one whole core hides one exchange.
        way: forward or backward.
    """
    share = rank.workload.model.attention_share
    if share in (0.0, 1.0):
        return _one_core(rank, core, way) if share else ()
    return repeated(_one_core(rank, repeated(core, 1.0 / share), way), share)


def linear_scan(rank: Rank, scan: Items, way: int) -> Items:
    """Returns the scan of linear attention between its exchanges of heads, forward (0) or backward (1); nothing without it."""
    tensor, degree = (int(each[0]) for each in (rank.plans.tensor_parallel, rank.plans.context_parallel))
    share = rank.workload.model.linear_share
    if degree == 1 or not share:
        return scan
    ranks = Group.of(rank, tensor, degree)
    sizes_before, size_behind = linear_bytes(rank)
    *each_before, behind = (
        moves(all_to_all("linear all-to-all", float(size[0]), ranks, rank.links).scaled(share))
        for size in (*sizes_before, size_behind)
    )
    before = [item for items in each_before for item in items]
    return (*before, *scan, *behind) if way == 0 else (*behind, *scan, *before)


def _one_core(rank: Rank, core: Items, way: int) -> Items:
    degree, tensor = int(rank.plans.context_parallel[0]), int(rank.plans.tensor_parallel[0])
    if degree == 1:
        return core
    exchanged = int(head_ranks_of(rank)[0])
    around = Group.of(rank, tensor * exchanged, degree // exchanged)
    if rank.workload.chosen_exchange in ("all_gather", "gathered_ring"):
        return _gathered(rank, core, way, around)
    core = _ring(rank, core, way, around)
    if exchanged == 1:
        return core
    heads = Group.of(rank, tensor, exchanged)
    before, behind = (
        moves(all_to_all("context all-to-all", float(size[0]), heads, rank.links))
        for size in heads_bytes(rank)
    )
    return (*before, *core, *behind) if way == 0 else (*behind, *core, *before)


def _gathered(rank: Rank, core: Items, way: int, around: Group) -> Items:
    num_bytes = float(keys_and_values_bytes(rank)[0])
    gather, scatter = (
        ring(f"context {operation.value}", operation, num_bytes, around, rank.links)
        for operation in (Operation.ALL_GATHER, Operation.REDUCE_SCATTER)
    )
    if rank.workload.chosen_exchange == "gathered_ring":
        return _gathered_ring(rank, core, way, gather, around)
    if way == 0:
        return (*moves(gather), *core)
    return (*(() if rank.workload.model.indexer else moves(gather)), *core, *moves(scatter))


def _gathered_ring(rank: Rank, core: Items, way: int, gather: Collective, around: Group) -> Items:
    """The gather overlaps with the first kernel; gradients are passed on during the next ones, except for the last round."""
    rounds = _circle("context gradients", gradient_rounds(rank), rank, around)
    if rank.workload.has_fused_operators:
        return (*moves(gather), *core, *moves(*(() if way == 0 else (rounds,))))
    share = 1.0 / around.size
    first = _behind(gather, core, share)
    if way == 0:
        return (*first, *stretched(core, 1.0 - share))
    return (*first, *_behind(rounds.scaled(1.0 - share), core, 1.0 - share), *moves(rounds.scaled(share)))


def _ring(rank: Rank, core: Items, way: int, around: Group) -> Items:
    """Forward traffic is hidden behind all steps but the last; backward, the first hides only keys, the last only gradients."""
    if around.size == 1:
        return core
    step = 1.0 / around.size
    if way == 0:
        sent = _circle("context ring", passed_on(rank), rank, around)
        return (*_behind(sent, core, 1.0 - step), *stretched(core, step))
    outer, between = (_circle("context ring", each, rank, around) for each in passed_back(rank))
    end = _behind(outer.scaled(0.5), core, step)
    return (*end, *_behind(between, core, 1.0 - 2.0 * step), *end)


def _circle(label: str, passed: tuple[Floats, Floats], rank: Rank, around: Group) -> Collective:
    num_bytes, num_steps = (float(np.asarray(each)[0]) for each in passed)
    return circle(label, num_bytes, num_steps, around, rank.links)


def _behind(sent: Collective, core: Items, share: float) -> Items:
    """A share of the core, with traffic hidden behind it."""
    return beside((sent,), stretched(core, share), lent_to=CONTEXT) if share > 0.0 else ()
