"""How long does an interrupted run wait for replacement nodes? The pool of spares in the compiled event loop.

Nodes return after a fixed repair time, first failed first: a ring holds their return times. If no spare is left, a node comes
on loan from a queue, and the next repaired node is given back for it. So the nodes in repair are those that failed within the
last repair time, as with infinitely many servers (M/G/inf). Once all nodes that can be lent are, only a repair ends a wait.
"""

from __future__ import annotations

from simulator.compiled import compiled_uncounted, inlined
from simulator.run.columns import FOREVER_S, MAX_NODES_IN_REPAIR
from simulator.run.state import FloatArray, RunDesign, RunState


@compiled_uncounted
def replacement_wait_s(
    design: RunDesign, num_nodes: float, now_s: float, state: RunState, returns_s: FloatArray
) -> float:
    """Sends nodes to repair; returns the time until others replace them.

    Repaired nodes first replace those that are already missing in this recovery.
    """
    if num_nodes == 0.0:
        return 0.0
    if design.num_spares >= FOREVER_S:
        return design.spare_wait_s
    while state.num_in_repair > 0 and returns_s[state.oldest_repair] <= now_s:
        _take_back(state)
    num_missing = int(min(num_nodes, num_nodes - state.spares_left))
    for _ in range(int(num_nodes)):
        _send_to_repair(now_s + design.repair_s, state, returns_s)
    if num_missing <= 0:
        return design.spare_wait_s
    num_before = int(state.num_awaited) + num_missing
    back_s = _until_back_s(design, num_before, now_s, state, returns_s)
    if back_s < design.queue_wait_s:
        state.num_awaited = num_before
        return back_s
    num_not_lent = int(min(num_before, -state.spares_left - design.max_loans))
    if num_not_lent <= 0:
        return design.queue_wait_s
    state.num_awaited = max(state.num_awaited, num_not_lent)
    return max(design.queue_wait_s, _until_back_s(design, num_not_lent, now_s, state, returns_s))


@inlined
def _until_back_s(
    design: RunDesign, num_nodes: int, now_s: float, state: RunState, returns_s: FloatArray
) -> float:
    """Time until this many nodes are repaired and brought in."""
    last = (state.oldest_repair + min(num_nodes, state.num_in_repair) - 1) % MAX_NODES_IN_REPAIR
    found_s: float = returns_s[last] - now_s + design.spare_wait_s
    return found_s


@inlined
def _take_back(state: RunState) -> None:
    state.oldest_repair = (state.oldest_repair + 1) % MAX_NODES_IN_REPAIR
    state.num_in_repair -= 1
    state.spares_left += 1.0
    state.num_awaited = max(0.0, state.num_awaited - 1.0)


@inlined
def _send_to_repair(return_s: float, state: RunState, returns_s: FloatArray) -> None:
    if state.num_in_repair == MAX_NODES_IN_REPAIR:
        _take_back(state)
    returns_s[(state.oldest_repair + state.num_in_repair) % MAX_NODES_IN_REPAIR] = return_s
    state.num_in_repair += 1
    state.spares_left -= 1.0
