"""How much longer are passes because weights are gathered and gradients reduced, layer by layer, in every micro-batch?

A rank has one queue of collectives: gathers and reductions of a group share a communicator, which runs them one after the other
in the order in which they were issued, whatever streams they came from (NCCL; PyTorch pull request 186335 for FSDP2). With the
parts 1 to n of a pass in their order, x their times, g their gathers and r their reductions, that order is

    forward     g(1), g(2), ... g(n)                            g(i + 1) is issued when part i begins
    backward    g(1), g(2), r(1), g(3), r(2), ... r(n)          likewise, r(i) when it ends

Part i + 1 begins when part i and what is queued beside it are done, so both directions are sums over parts:

    forward     g(1) + sum of beside(x(i), g(i + 1))
    backward    first + sum of beside(x(i), r(i - 1) + g(i + 1)) + r(n)
    beside(x, t) = max(x + s min(x, t) + sum of w'/x min(x, b t), t + b w)     s = CORE_SHARE, the cores that traffic takes

The sum of w'/x min(x, b t) and the term b w run over network cards and scale-up links. w is the time for which the part's own
collectives are on a link, w' what the part waits for of it, b the share of t for which the queue is on the link, and b w the
time by which the collectives hold up the queue (`simulator.step.beside_shards`). A sum leaves out whatever does not exist.

`first` is the gather of the part that ends the model or the chunk. Without a pipeline it is 0, since that part is still whole.
In a pipeline it is queued when the last part of the previous pass of the stage begins. A forward pass hides it, but a backward
pass makes it wait for the reductions, so that all of it shows. Stages that come to a message later than to the gather, as on
the way up to the first stage, show none of it (`simulator.step.first_gathers`).

Schedules that compute gradients of weights in passes of their own have neither ZeRO-2 nor ZeRO-3.

Under ZeRO-2 interleaved stages reduce the gradients of a group of micro-batches at once. No pass waits for these reductions:
they are in the queue of their stage (`simulator.pipeline.kernel`), where they meet the collectives of passes for as long as
they last. Passes of both directions lend them cores and links.

Without prefetch, part i + 1 of a backward pass waits for its gather, which waits for r(i), so neither is hidden. Nor are
reductions on the stream of the computation (`overlaps_gradient_sync` false).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled, inner
from simulator.domain.plan import PlanTable
from simulator.machine.rank import Rank
from simulator.replicas.replica_sync import ReplicaTraffic
from simulator.step.beside_shards import (
    BUSY,
    BUSY_CARDS,
    BUSY_SCALE_UP,
    CARRIED_CARDS,
    CARRIED_SCALE_UP,
    COVER,
    WAITED_CARDS,
    WAITED_SCALE_UP,
    parts_beside_s,
)
from simulator.step.first_gathers import keeps_last_weights, shares_behind, shown_first_s
from simulator.step.link_waits import OnLink
from simulator.step.model_parts import ModelParts
from simulator.step.parts import Part
from simulator.table import Booleans, Floats, Integers
from simulator.traffic.layer_collectives import CORE_SHARE, Directions

ShownShards = tuple[Floats, Floats, Floats]
"""Forward, backward, and the reductions of groups beside passes, which hold up the update, if anything, all as means of a
micro-batch, `(n, C)` each."""


def shards_s(
    rank: Rank, parts: ModelParts, traffic: ReplicaTraffic | None, cards: OnLink | None
) -> ShownShards:
    """Returns the exposed gathers and reductions of ZeRO-2 and ZeRO-3 in every chunk and micro-batch.

    Args:
        rank: the rank.
        parts: the parts of its model.
        traffic: that of every part, `(n, k)`; `None` where no design has a ZeRO stage of 2 or 3.
        cards: the collectives of parts on the cards where shards are there, too; `None`: there are none.
    """
    forward_s, backward_s, groups_s, first_s = (np.zeros_like(parts.counts[Part.OUTPUT]) for _ in range(4))
    shown_s = forward_s, backward_s, groups_s
    if traffic is None:
        return shown_s
    prefetch, counts = rank.workload.weight_prefetch, np.stack(list(parts.counts.values()))
    is_again = (rank.plans.zero_stage[:, None] == 3) & parts.are_passed_backward(rank)
    gathered_back_s = np.where(is_again, traffic.forward_s, 0.0)
    reduced_s = traffic.backward_s - gathered_back_s
    if not rank.workload.overlaps_gradient_sync:  # they are on the stream of the computation
        backward_s += np.einsum("knc,nk->nc", counts, reduced_s)
        reduced_s = np.zeros_like(reduced_s)
    _add_shown(
        shown_s,
        counts,
        parts_beside_s(rank, parts, (traffic.forward_s, gathered_back_s + reduced_s), cards),
        (traffic.forward_s, gathered_back_s, reduced_s),
        (prefetch in ("both", "forward"), prefetch in ("both", "backward")),
        (first_s, shares_behind(rank, groups_s.shape[1])),
        reduces_in_every_pass(rank.plans),
    )
    if prefetch in ("both", "backward"):
        first_s = shown_first_s(rank, first_s)
    backward_s += np.where(keeps_last_weights(rank.plans)[:, None], 0.0, first_s)
    return shown_s


def reduces_in_every_pass(plans: PlanTable) -> Booleans:
    """Returns whether every pass reduces its gradients, `(n,)`; ZeRO-2 in pipelines keeps them for other micro-batches."""
    return np.asarray((plans.zero_stage == 3) | (plans.pipeline_parallel == 1))


class _Passes(NamedTuple):
    """What passes of one design have in k parts, in the order of the model."""

    ahead_s: Floats
    """Shape (8, k): forward, see `simulator.step.beside_shards.parts_beside_s`."""
    back_s: Floats
    """The same backward."""
    gather_s: Floats
    """Shape (k,): gathers forward."""
    gather_back_s: Floats
    """Shape (k,): gathers backward."""
    reduce_s: Floats
    """Shape (k,): reductions."""
    prefetches: tuple[bool, bool]
    """Whether gathers are prefetched, forward and backward."""
    reduces_always: bool
    """Whether every backward pass reduces its gradients."""


@compiled
def _add_shown(
    shown_s: ShownShards,
    counts: Floats,
    besides_s: Directions,
    traffic_s: tuple[Floats, Floats, Floats],
    prefetches: tuple[bool, bool],
    firsts: tuple[Floats, Floats],
    reduces_always: Booleans,
) -> None:
    """Adds the exposed gathers forward, gathers backward and reductions `(n, k)` to passes `(n, C)`.

    Counts of parts, in the order of the model, are `(k, n, C)`. `firsts` are the exposed first gathers of backward passes, to
    be filled, and the share of them that follow a backward pass, `(n, C)` each. `reduces_always` says whether gradients are
    reduced in every micro-batch.
    """
    forward_s, backward_s, groups_s = shown_s
    firsts_s, shares_behind = firsts
    gathers_s, gathers_back_s, reductions_s = traffic_s
    for row in range(forward_s.shape[0]):
        if not (np.any(gathers_s[row] > 0.0) or np.any(reductions_s[row] > 0.0)):
            continue
        passes = _Passes(
            besides_s[0][:, :, row],
            besides_s[1][:, :, row],
            gathers_s[row],
            gathers_back_s[row],
            reductions_s[row],
            prefetches,
            reduces_always[row],
        )
        ahead_s = back_s = group_s = first_s = 0.0
        for chunk in range(forward_s.shape[1]):
            behind = shares_behind[row, chunk]
            # Most chunks of a model are like the one before them.
            if chunk == 0 or behind != shares_behind[row, chunk - 1] or not _is_alike(counts, row, chunk):
                ahead_s, back_s, group_s, first_s = _of_chunk_s(passes, counts[:, row, chunk], behind)
            forward_s[row, chunk] += ahead_s
            backward_s[row, chunk] += back_s
            groups_s[row, chunk] += group_s
            firsts_s[row, chunk] = first_s


@inner
def _of_chunk_s(passes: _Passes, number: Floats, behind: float) -> tuple[float, float, float, float]:
    """Returns what is added to passes of a chunk: forward, backward, to the queue of its stage, and by the first gather back.

    Args:
        passes: what all chunks have in common.
        number: parts of the chunk by kind, `(k,)`.
        behind: share of its backward passes that follow a backward pass.
    """
    first, last = _ends(number)
    if last < 0:
        return 0.0, 0.0, 0.0, 0.0
    order, none = np.arange(len(number)), np.zeros(len(number))
    prefetches, prefetches_back = passes.prefetches
    ahead_s = _pass_s(
        order, number, passes.ahead_s, passes.gather_s, none, prefetches, passes.gather_s[first]
    )
    first_s = passes.gather_back_s[last]
    if prefetches_back:
        first_s = behind * first_s + (1.0 - behind) * _shown_s(passes.ahead_s[:, last], first_s)
    if passes.reduces_always:
        back_s = _pass_s(
            order[::-1], number, passes.back_s, passes.gather_back_s, passes.reduce_s, prefetches_back, 0.0
        )
        return ahead_s, back_s, 0.0, first_s
    # Only the update waits for what a group leaves, and forward passes are beside it, too.
    both_s = _together_s(number, passes.back_s, passes.ahead_s)
    group_s = np.sum(number * passes.reduce_s)
    held_up_s = _held_up_s(both_s, group_s)
    return ahead_s, held_up_s, _among_passes_s(both_s, group_s, held_up_s), first_s


@inner
def _together_s(number: Floats, one_s: Floats, other_s: Floats) -> Floats:
    """Returns what the parts of both passes of a chunk have together, `(8,)`; shards are on links as beside the mean of one."""
    both_s: Floats = np.sum(number * (one_s + other_s), axis=1)
    for share in (BUSY_CARDS, BUSY_SCALE_UP, BUSY):
        both_s[share] = np.sum(number * one_s[share]) / np.sum(number)
    return both_s


@inner
def _is_alike(counts: Floats, row: int, chunk: int) -> bool:
    """Returns whether a chunk has as many parts of every kind as the one before it."""
    num_unlike = 0
    for kind in range(len(counts)):
        num_unlike += counts[kind, row, chunk] != counts[kind, row, chunk - 1]
    return num_unlike == 0


@inner
def _ends(number: Floats) -> tuple[int, int]:
    """Returns the first and the last kind of part of a chunk, -1 where it has none."""
    first = last = -1
    for kind in range(len(number)):
        if number[kind] > 0.0:
            last = kind
            first = kind if first < 0 else first
    return first, last


@inner
def _pass_s(
    order: Integers,
    number: Floats,
    beside_s: Floats,
    gather_s: Floats,
    reduce_s: Floats,
    prefetches: bool,
    first_s: float,
) -> float:
    """Returns the exposed traffic of one pass of a chunk that has parts, with what its first gather adds."""
    total_s, before_s = first_s, 0.0
    previous = -1  # the last part so far, whose traffic beside it waits for what follows
    for kind in order:
        if number[kind] <= 0.0:
            continue
        if previous >= 0:
            total_s += _until_gathered_s(beside_s[:, previous], before_s, gather_s[kind], prefetches)
            before_s = reduce_s[previous]
        if number[kind] > 1.0:
            total_s += _until_gathered_s(beside_s[:, kind], before_s, gather_s[kind], prefetches)
            before_s = reduce_s[kind]
            once_s = _until_gathered_s(beside_s[:, kind], before_s, gather_s[kind], prefetches)
            total_s += (number[kind] - 2.0) * once_s
        previous = kind
    waits = not prefetches and gather_s[previous] > 0.0
    last_s = before_s if waits else _shown_s(beside_s[:, previous], before_s)
    return float(total_s + last_s + reduce_s[previous])


@inner
def _until_gathered_s(beside_s: Floats, before_s: float, gather_s: float, prefetches: bool) -> float:
    """Returns how much longer a part is until the next one has its weights, with a reduction `before_s` in the queue."""
    if prefetches or gather_s == 0.0:
        return _shown_s(beside_s, before_s + gather_s)
    return before_s + gather_s


@inner
def _shown_s(beside_s: Floats, traffic_s: float) -> float:
    """Returns how much longer a part is with traffic beside it, given its row values by `COVER` and so on, `(8,)`.

    With free links this is `simulator.traffic.layer_collectives.exposed_s`, compiled.
    """
    cover_s = beside_s[COVER]
    if cover_s <= 0.0:
        return float(traffic_s)
    return float(max(_held_up_s(beside_s, traffic_s), traffic_s + _waits_s(beside_s, traffic_s) - cover_s))


@inner
def _held_up_s(beside_s: Floats, traffic_s: float) -> float:
    """Returns how much longer a part computes with traffic beside it; it has cover."""
    cover_s = beside_s[COVER]
    held_up_s = CORE_SHARE * min(cover_s, traffic_s)
    for waited, busy in ((WAITED_CARDS, BUSY_CARDS), (WAITED_SCALE_UP, BUSY_SCALE_UP)):
        held_up_s += beside_s[waited] / cover_s * min(cover_s, beside_s[busy] * traffic_s)
    return float(held_up_s)


@inner
def _waits_s(beside_s: Floats, traffic_s: float) -> float:
    """Returns how long traffic beside a whole part waits for the part's own collectives."""
    on_cards_s = beside_s[BUSY_CARDS] * beside_s[CARRIED_CARDS]
    on_scale_up_s = beside_s[BUSY_SCALE_UP] * beside_s[CARRIED_SCALE_UP]
    free_s = (beside_s[BUSY] - beside_s[BUSY_SCALE_UP]) * traffic_s
    return float(max(on_cards_s, on_scale_up_s - free_s))


@inner
def _among_passes_s(beside_s: Floats, traffic_s: float, held_up_s: float) -> float:
    """Returns how long traffic takes that no pass waits for: it meets the collectives of the passes for as long as it lasts."""
    if traffic_s <= 0.0:
        return 0.0
    waits_s, whole_s = _waits_s(beside_s, traffic_s), beside_s[COVER] + held_up_s
    # It lasts for t / (1 - waits / whole), and no longer than beside all of the passes.
    return float(traffic_s + waits_s * min(1.0, traffic_s / max(traffic_s, whole_s - waits_s)))
