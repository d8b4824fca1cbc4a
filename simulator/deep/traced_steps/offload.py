"""Which activations leave an accelerator whose memory is too small, when, and when do they come back?

Operators run in the order of the trace. Before an operator that would not fit, activations leave that it does not touch:
first those that are not needed for the longest time (Belady's rule, IBM Systems Journal 1966), and of two the larger one,
until the operator fits. Each activation is copied out from the end of the last operator that touched it, and the operator that
needs its room waits for the copy. It comes back before the next operator that touches it, beginning with the first operator
during which there is room for it; activations that are needed first go first. Copies in one direction run one after another
and overlap with computation. A tensor goes to the first tier that has room for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from simulator.deep.networks.routing import Router
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.deep.traced_steps.memory import Lifetimes
from simulator.deep.traced_steps.memory_tiers import MemoryTier, TieredNetwork
from simulator.errors import InputError, Problem
from simulator.table import Floats, Integers

ROUNDING = 1e-9
"""Memory counts as exceeded only beyond this share, since sums of bytes that are added and subtracted have rounding errors."""
OUT, BACK = "offload", "fetch"
"""Labels of copies."""


@dataclass(frozen=True, kw_only=True)
class Offload:
    """A limited memory, and where to put what it does not hold."""

    capacity_bytes: float
    """Memory of each accelerator."""
    tiers: tuple[MemoryTier, ...]
    """The first one is preferred."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """One activation that leaves and comes back."""

    storage: int
    """Position in `Lifetimes`."""
    num_bytes: float
    tier: int
    """Where it goes."""
    out_after: int
    """Operator at whose end it may leave; -1: at once."""
    out_by: int
    """Operator that needs its room."""
    back_after: int
    """Operator at whose end there is room for it again."""
    back_by: int
    """Operator that needs it."""


@dataclass(frozen=True, kw_only=True)
class OffloadPlan:
    """What leaves and comes back."""

    moves: tuple[Move, ...]
    """In the order of `back_by`."""
    live_bytes: Floats
    """`(n,)` bytes in use while each operator runs, including the room of tensors that are leaving or coming back."""
    tier_peak_bytes: tuple[float, ...]
    """Most bytes that one accelerator has on each tier at one time."""


def plan_offload(needed: Lifetimes, offload: Offload, num_gpus: int) -> OffloadPlan:
    """Returns what has to leave so that every operator fits.

    Args:
        needed: when storages are needed.
        offload: the memory, and where data can go that does not fit.
        num_gpus: number of accelerators, which all do the same; they share a pool.

    Raises:
        InputError: an operator does not fit even alone with what never leaves, or the tiers are full.
    """
    capacity_bytes, tiers = offload.capacity_bytes * (1.0 + ROUNDING), offload.tiers
    staying = needed.staying_bytes
    if staying.max(initial=0.0) > capacity_bytes:
        raise _too_small(int(np.argmax(staying)), float(staying.max()), offload.capacity_bytes)
    pending = _evictions(needed, capacity_bytes)
    live = needed.live_bytes.copy()
    for move in pending:
        live[move.out_by : move.back_by] -= move.num_bytes
    coming = []
    for move in sorted(pending, key=lambda move: (move.back_by, move.storage)):
        back_after = _earliest(live, move, capacity_bytes)
        live[back_after + 1 : move.back_by] += move.num_bytes
        coming.append(replace(move, back_after=back_after))
    rooms = [tier.room_bytes(num_gpus) for tier in tiers]
    used = np.zeros((len(tiers), needed.num_operators))
    placed = []
    for move in sorted(coming, key=lambda move: (move.out_after, move.storage)):
        away = slice(max(0, move.out_after), move.back_by + 1)
        tier = _tier(used[:, away], move.num_bytes, rooms, needed.names[move.storage])
        used[tier, away] += move.num_bytes
        placed.append(replace(move, tier=tier))
    return OffloadPlan(
        moves=tuple(sorted(placed, key=lambda move: (move.back_by, move.storage))),
        live_bytes=live,
        tier_peak_bytes=tuple(used.max(axis=1, initial=0.0).tolist()),
    )


def _evictions(needed: Lifetimes, capacity_bytes: float) -> list[Move]:
    """Goes through the operators and evicts what is not needed for the longest time; it returns at the last moment."""
    born, dying = _by_operator(needed.first, needed), _by_operator(needed.last, needed)
    touched: list[list[int]] = [[] for _ in range(needed.num_operators)]
    for storage, operators in enumerate(needed.touches):
        for operator in operators.tolist():
            touched[operator].append(storage)
    here: set[int] = set()
    away: dict[int, Move] = {}
    moves: list[Move] = []
    held = 0.0
    for operator in range(needed.num_operators):
        returning = [storage for storage in touched[operator] if storage in away]
        for storage in [*born[operator], *returning]:
            held += float(needed.num_bytes[storage])
            here.add(storage)
        moves += [away.pop(storage) for storage in returning]
        busy = set(touched[operator])
        while held > capacity_bytes:
            victim = _victim(needed, here - busy, operator)
            away[victim] = _leaving(needed, victim, operator)
            here.discard(victim)
            held -= float(needed.num_bytes[victim])
        for storage in dying[operator]:
            here.discard(storage)
            held -= float(needed.num_bytes[storage])
    return moves


def _by_operator(operators: Integers, needed: Lifetimes) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(needed.num_operators)]
    for storage, operator in enumerate(operators.tolist()):
        found[operator].append(storage)
    return found


def _next_use(needed: Lifetimes, storage: int, operator: int) -> int:
    uses = needed.touches[storage]
    return int(uses[np.searchsorted(uses, operator)])


def _victim(needed: Lifetimes, storages: set[int], operator: int) -> int:
    """The one that may move and is not needed for the longest time; of equal ones the larger, then the first."""
    return min(
        (storage for storage in storages if needed.can_move[storage]),
        key=lambda storage: (-_next_use(needed, storage, operator), -needed.num_bytes[storage], storage),
    )


def _leaving(needed: Lifetimes, storage: int, operator: int) -> Move:
    uses = needed.touches[storage]
    position = int(np.searchsorted(uses, operator))
    return Move(
        storage=storage,
        num_bytes=float(needed.num_bytes[storage]),
        tier=0,
        out_after=int(uses[position - 1]) if position else -1,
        out_by=operator,
        back_after=int(uses[position]) - 1,
        back_by=int(uses[position]),
    )


def _earliest(live: Floats, move: Move, capacity_bytes: float) -> int:
    """The operator from whose end on there is lasting room again; not before the one that needs its room has ended."""
    back_after = move.back_by - 1
    while back_after > move.out_by and live[back_after] + move.num_bytes <= capacity_bytes:
        back_after -= 1
    return back_after


def _tier(used: Floats, num_bytes: float, rooms: list[float], name: str) -> int:
    for tier, room in enumerate(rooms):
        if used[tier].max(initial=0.0) + num_bytes <= room:
            return tier
    rule = f"has no room for {num_bytes:,.0f} bytes of tensor {name!r}: give a tier more, or another tier"
    raise InputError([Problem(path="tiers", value="", rule=rule)])


def _too_small(operator: int, needs_bytes: float, capacity_bytes: float) -> InputError:
    most = f"operator {operator} needs most, what it touches and all that never leaves"
    rule = f"must be at least {math.ceil(needs_bytes):,}: {most}"
    return InputError([Problem(path="capacity_bytes", value=f"{capacity_bytes:,.0f}", rule=rule)])


def add_moves(
    graph: TaskGraphBuilder,
    router: Router,
    network: TieredNetwork,
    plan: OffloadPlan,
    tasks: Mapping[int, Integers],
) -> None:
    """Adds the copies of a plan to the graph of a step, on every accelerator.

    Args:
        graph: the graph, which has the tasks of all operators.
        router: router of the network with its tiers.
        network: where the tiers are.
        plan: what leaves and comes back.
        tasks: tasks of each operator, `(r,)`, by its number; accelerator i has the i-th one.
    """
    ranks = np.arange(len(tasks[0]))
    nothing = np.full(len(ranks), NONE)
    out: dict[int, Integers] = {}
    before = nothing
    for number, move in sorted(enumerate(plan.moves), key=lambda pair: (pair[1].out_after, pair[0])):
        path = router.paths(ranks, network.memory[move.tier, ranks])
        begin = tasks[move.out_after] if move.out_after >= 0 else nothing
        before = out[number] = _copy(graph, router, OUT, path, move.num_bytes, begin, before)
        graph.add_edges(before, tasks[move.out_by])
    before = nothing
    for number, move in enumerate(plan.moves):
        path = router.paths(network.memory[move.tier, ranks], ranks)
        leaving = [out[other] for other, late in enumerate(plan.moves) if late.out_by == move.back_after + 1]
        has_room = graph.add("has room", after=[tasks[move.back_after], out[number], *leaving])
        before = _copy(graph, router, BACK, path, move.num_bytes, has_room, before)
        graph.add_edges(before, tasks[move.back_by])


def _copy(
    graph: TaskGraphBuilder,
    router: Router,
    label: str,
    path: Integers,
    num_bytes: float,
    begin: Integers,
    before: Integers,
) -> Integers:
    latency_s = router.latency_s(path)
    return graph.add(label, duration_s=latency_s, num_bytes=num_bytes, path=path, after=[begin, before])
