"""What does `--offload` ask for, and what is reported? A memory limit, and where the activations go that exceed it.

memory                          of each accelerator; default: that of the accelerator --on
host, pool                      bandwidth of each accelerator's link to them
pool-shared                     bandwidth of the pool for all accelerators together
host-memory, pool-memory        their capacities: host-memory per accelerator, pool-memory for all together
host-latency, pool-latency      of a copy
"""

from __future__ import annotations

import math

from planner.input.pair_text import Pairs, read_pairs
from planner.trace.request import TraceRequest
from simulator import catalog
from simulator.argument_names import Argument, Words
from simulator.deep.traced_steps.extrapolate import Extrapolation
from simulator.deep.traced_steps.memory import Lifetimes
from simulator.deep.traced_steps.memory_tiers import MemoryTier
from simulator.deep.traced_steps.offload import Offload
from simulator.record import Record

KEYS = (
    "memory",
    "host",
    "host-memory",
    "host-latency",
    "pool",
    "pool-shared",
    "pool-memory",
    "pool-latency",
)
_MOST = 1e15


class OffloadedTensor(Record):
    """An activation that leaves the accelerators and comes back; operators are given by their number in the trace."""

    tensor: str
    num_bytes: float
    tier: str
    leaves_after: int | None
    """The operator that touched it last; None: it is present from the beginning, and leaves at once."""
    makes_room_for: int
    """The operator that needs its room, and waits until it has left."""
    returns_after: int
    """The operator after which there is room for it again."""
    needed_by: int
    """The operator that waits for its return."""


class TierUse(Record):
    """How a memory outside the accelerators is used."""

    tier: str
    peak_bytes: float
    """Most bytes that one accelerator has there at one time."""


class MemoryUse(Record):
    """How a step runs in a limited memory."""

    capacity_bytes: float
    """Memory of each accelerator."""
    peak_bytes: float
    """Most bytes that an accelerator holds at one time."""
    unlimited_step_s: float
    """Length of the step if everything fitted."""
    moved_bytes: float
    """Bytes that leave each accelerator in a step, and come back."""
    tiers: tuple[TierUse, ...]
    tensors: tuple[OffloadedTensor, ...]
    """The offloaded tensors, in the order in which they come back."""


def offload_asked(request: TraceRequest) -> Offload | None:
    """Returns what `--offload` says; `None` if it was not given.

    Raises:
        InputError: a value cannot be read, or one that others need is missing.
    """
    if not request.offload:
        return None
    pairs = read_pairs(Argument("offload"), request.offload, KEYS)
    tiers = tuple(_tier(pairs, name) for name in ("host", "pool") if name in pairs.values)
    if not tiers:
        raise pairs.broken("host", "must be given, or pool: the bandwidth of the link over which copies go")
    for key in pairs.values:
        name = key.partition("-")[0]
        if name in ("host", "pool") and name not in pairs.values:
            raise pairs.broken(key, f"needs {name}=..., the bandwidth of its link")
    return Offload(capacity_bytes=_capacity_bytes(pairs, request), tiers=tiers)


def _capacity_bytes(pairs: Pairs, request: TraceRequest) -> float:
    if "memory" not in pairs.values:
        if request.on is None:
            way_out = ("must be given: bytes of each accelerator; or name one with ", Argument("on", "NAME"))
            raise pairs.broken("memory", Words(*way_out))
        return catalog.accelerator(request.on, path=Argument("on")).memory_bytes
    return pairs.number("memory", 0.0, least=0.0, most=_MOST)


def _tier(pairs: Pairs, name: str) -> MemoryTier:
    shared = None
    if name == "pool":
        if "pool-shared" not in pairs.values:
            raise pairs.broken("pool-shared", "must be given: what all accelerators together can move")
        shared = pairs.number("pool-shared", 0.0, least=1.0, most=_MOST)
    return MemoryTier(
        name=name,
        bandwidth_bytes_per_s=pairs.number(name, 0.0, least=1.0, most=_MOST),
        capacity_bytes=pairs.number(f"{name}-memory", math.inf, least=0.0, most=_MOST),
        latency_s=pairs.number(f"{name}-latency", 0.0, least=0.0, most=1e3),
        shared_bytes_per_s=shared,
    )


def memory_use(
    offload: Offload, made: Extrapolation, needed: Lifetimes, unlimited_step_s: float
) -> MemoryUse | None:
    """Returns what leaves and comes back; `None` if no offload was asked for.

    Args:
        offload: the offload that was asked for.
        made: the step with its copies.
        needed: storages of the trace.
        unlimited_step_s: length of the step if everything fitted.
    """
    plan = made.offload
    if plan is None:
        return None
    names = [tier.name for tier in offload.tiers]
    return MemoryUse(
        capacity_bytes=offload.capacity_bytes,
        peak_bytes=float(plan.live_bytes.max(initial=0.0)),
        unlimited_step_s=unlimited_step_s,
        moved_bytes=sum(move.num_bytes for move in plan.moves),
        tiers=tuple(
            TierUse(tier=name, peak_bytes=peak)
            for name, peak in zip(names, plan.tier_peak_bytes, strict=True)
        ),
        tensors=tuple(
            OffloadedTensor(
                tensor=needed.names[move.storage],
                num_bytes=move.num_bytes,
                tier=names[move.tier],
                leaves_after=None if move.out_after < 0 else move.out_after,
                makes_room_for=move.out_by,
                returns_after=move.back_after,
                needed_by=move.back_by,
            )
            for move in plan.moves
        ),
    )
