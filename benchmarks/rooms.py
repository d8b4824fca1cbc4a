"""In which module is the time of a call spent? A profile that attributes library calls to the calling module."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("simulator", "objectives", "constraints", "studies", "planner")
ELSEWHERE = "elsewhere"

_Function = tuple[str, int, str]
_Stats = dict[_Function, tuple[int, int, float, float, dict[_Function, tuple[int, int, float, float]]]]


def module_shares(call: Callable[[], object], num_calls: int) -> dict[str, float]:
    """Returns the share of the CPU time by module, largest first."""
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    for _ in range(num_calls):
        call()
    profile.disable()
    stats: _Stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    seconds: dict[str, float] = {}
    for function, (_, _, own_s, _, _) in stats.items():
        for module, share in _modules(function, stats, set()).items():
            seconds[module] = seconds.get(module, 0.0) + share * own_s
    total_s = sum(seconds.values())
    return {module: spent / total_s for module, spent in sorted(seconds.items(), key=lambda item: -item[1])}


def room_shares(modules: dict[str, float]) -> dict[str, float]:
    """Returns the share of the CPU time by room."""
    rooms: dict[str, float] = {}
    for module, share in modules.items():
        room = module.partition(".")[0]
        rooms[room] = rooms.get(room, 0.0) + share
    return rooms


def _modules(function: _Function, stats: _Stats, seen: set[_Function]) -> dict[str, float]:
    """For which modules a function works, by share of its time: its own one, else those of its callers."""
    own = _module(function)
    callers = stats[function][4] if function in stats else {}
    spent = {caller: figures[3] for caller, figures in callers.items() if caller not in seen}
    if own or not sum(spent.values()):
        return {own or ELSEWHERE: 1.0}
    shares: dict[str, float] = {}
    for caller, seconds in spent.items():
        for module, share in _modules(caller, stats, seen | {function}).items():
            shares[module] = shares.get(module, 0.0) + share * seconds / sum(spent.values())
    return shares


def _module(function: _Function) -> str:
    """The module of ours that a function stands in; empty for libraries."""
    path = Path(function[0])
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in ROOMS:
        return ""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)
