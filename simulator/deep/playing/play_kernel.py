"""How does a task graph run? Compiled: task after task, flow after flow, on one clock.

There are three kinds of events: a duration ends, the first flow of a path has moved all its bytes, a circuit is up. All events
of one moment are handled before the network is shared out anew, and it is shared out only where the number of flows has
changed. Flows of a path have the same rate, so each path counts the bytes that a flow on it would have moved so far (`moved`):
a flow that enters at count m leaves at m + its bytes, whatever the rates were in between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled_uncounted, inlined_uncounted, inner_uncounted
from simulator.deep.networks.heap import first_key, merged, set_keys, take_due
from simulator.deep.playing.circuit_kernel import CircuitState, circuit_of, leave, may_go, next_up, next_up_s
from simulator.deep.playing.ripple import Change
from simulator.deep.playing.sharing import Sharing, leave_bundles, reach, share_out
from simulator.deep.playing.tasks import NONE
from simulator.deep.playing.timers import Timers, next_timer, next_timer_s, set_timer
from simulator.table import Booleans, Floats, Integers

SAME_TIME_FRACTION = 1e-12
"""Events whose times differ by less, relative to the clock, happen at the same moment."""


class Tasks(NamedTuple):
    """A task graph as the kernel reads it; see `tasks.TaskGraph`."""

    duration_s: Floats
    num_bytes: Floats
    path: Integers
    resource: Integers
    offsets: Integers
    successors: Integers
    unless: Integers


class State(NamedTuple):
    """What the kernel writes."""

    now_s: Floats
    """`(1,)` the clock."""
    ready_s: Floats
    """`(n,)` when the last predecessor ended."""
    start_s: Floats
    """`(n,)` when the task got its resource and its circuit."""
    end_s: Floats
    """`(n,)`; NaN for a task that was never reached."""
    waits_for: Integers
    """`(n,)` number of predecessors that have not ended."""
    work: Integers
    """`(n,)` ring of the tasks that can start now, in the order in which they became ready."""
    sizes: Integers
    """`(3,)` first position of the ring, number of tasks in it, number of changed paths."""
    timers: Timers
    """Durations that run."""
    is_busy: Booleans
    """`(r,)` whether a resource is at work."""
    has_resource: Booleans
    """`(n,)` whether the previous task handed its resource to this one."""
    first_waiting: Integers
    """`(r,)` first task that waits for a resource."""
    last_waiting: Integers
    next_waiting: Integers
    """`(n,)` the task that waits behind each."""
    moved_bytes: Floats
    """`(p,)` bytes that a flow on each path would have moved since the path was last idle."""
    moved_until_s: Floats
    """`(p,)` when `moved_bytes` was last updated."""
    leaves_at_bytes: Floats
    """`(n,)` value of its path's `moved_bytes` at which a flow is done."""
    root: Integers
    """`(p,)` the flow of each path that finishes first: root of a skew heap."""
    left: Integers
    right: Integers
    is_changed: Booleans
    """`(p,)` whether the number of flows may have changed since the network was shared out."""
    changed: Integers
    """`(p,)` scratch: the changed paths."""
    kept: Integers
    """`(p,)` scratch: changed paths on which as many flows came as went."""
    path_end_s: Floats
    """`(2 p,)` when the first flow of each path is done: a tournament, see `heap.first_key`."""
    new_end_s: Floats
    """`(p,)` scratch: the same, before it is in the tournament."""
    due: Integers
    """`(p,)` scratch: paths whose first flow is done."""
    since_s: Floats
    """`(l,)` when the flows of a link last changed."""
    used_flows: Integers
    """`(l,)` number of flows since then."""
    used_s: Floats
    """`(l,)` how long there was a flow on each link."""
    full_s: Floats
    """`(l,)` how long each link was full."""


FIRST, WORK, CHANGED = 0, 1, 2


@compiled_uncounted
def run(
    tasks: Tasks, net: Sharing, change: Change, circuits: CircuitState, state: State, is_max_min: bool
) -> int:
    """Plays all tasks; returns how many ended."""
    num_ended = 0
    for task in range(len(tasks.duration_s)):
        if state.waits_for[task] == 0:
            _add_work(state, task)
    while True:
        num_ended += _do_work(tasks, net, circuits, state)
        if state.sizes[CHANGED] > 0:
            _share_out(net, change, state, is_max_min)
        now_s = min(next_timer_s(state.timers), first_key(state.path_end_s), next_up_s(circuits))
        if np.isinf(now_s):
            break
        state.now_s[0] = now_s
        until_s = now_s * (1.0 + SAME_TIME_FRACTION)
        while next_timer_s(state.timers) <= until_s:
            task = next_timer(state.timers)
            num_ended += _duration_over(tasks, net, circuits, state, task)
        for position in range(take_due(state.path_end_s, until_s, state.due)):
            num_ended += _flows_done(tasks, net, circuits, state, state.due[position])
        while next_up_s(circuits) <= until_s:
            num_ended += _circuit_up(tasks, net, circuits, state, next_up(circuits))
    return num_ended


@inlined_uncounted
def _add_work(state: State, task: int) -> None:
    place = state.sizes[FIRST] + state.sizes[WORK]
    state.work[place if place < len(state.work) else place - len(state.work)] = task
    state.sizes[WORK] += 1


@inner_uncounted
def _do_work(tasks: Tasks, net: Sharing, circuits: CircuitState, state: State) -> int:
    """Starts all tasks that are ready, or lets them queue; returns how many ended at once."""
    num_ended = 0
    while state.sizes[WORK] > 0:
        task = state.work[state.sizes[FIRST]]
        state.sizes[FIRST] = (state.sizes[FIRST] + 1) % len(state.work)
        state.sizes[WORK] -= 1
        resource = tasks.resource[task]
        if not state.has_resource[task]:
            state.ready_s[task] = state.now_s[0]
            if resource != NONE:
                if state.is_busy[resource]:
                    _queue(state, resource, task)
                    continue
                state.is_busy[resource] = True
        num_ended += _begin(tasks, net, circuits, state, task)
    return num_ended


@inner_uncounted
def _queue(state: State, resource: int, task: int) -> None:
    state.next_waiting[task] = NONE
    if state.first_waiting[resource] == NONE:
        state.first_waiting[resource] = task
    else:
        state.next_waiting[state.last_waiting[resource]] = task
    state.last_waiting[resource] = task


@inlined_uncounted
def _begin(tasks: Tasks, net: Sharing, circuits: CircuitState, state: State, task: int) -> int:
    """Starts a task on its resource, or lets it wait for its circuit; returns 1 if it ended at once."""
    state.start_s[task] = state.now_s[0]
    if _is_superfluous(tasks, state, task):
        _end(tasks, state, task)
        return 1
    circuit = circuit_of(circuits, tasks.path[task])
    if circuit != NONE and not may_go(circuits, circuit, task, state.now_s[0]):
        return 0
    return _go(tasks, net, circuits, state, task)


@inlined_uncounted
def _is_superfluous(tasks: Tasks, state: State, task: int) -> bool:
    """Whether the task that makes this one superfluous has ended."""
    if len(tasks.unless) == 0 or tasks.unless[task] == NONE:
        return False
    return not np.isnan(state.end_s[tasks.unless[task]])


@inner_uncounted
def _circuit_up(tasks: Tasks, net: Sharing, circuits: CircuitState, state: State, first: int) -> int:
    """Starts the flows that waited for a circuit, beginning with `first`; returns how many ended at once."""
    num_ended, task = 0, first
    while task != NONE:
        behind = circuits.next_flow[task]
        circuits.waited_s[task] = state.now_s[0] - state.start_s[task]
        state.start_s[task] = state.now_s[0]
        num_ended += _go(tasks, net, circuits, state, task)
        task = behind
    return num_ended


@inlined_uncounted
def _go(tasks: Tasks, net: Sharing, circuits: CircuitState, state: State, task: int) -> int:
    """Starts the duration of a task; returns 1 if it ended at once."""
    if tasks.duration_s[task] > 0.0:
        set_timer(state.timers, task, state.now_s[0] + tasks.duration_s[task])
        return 0
    return _duration_over(tasks, net, circuits, state, task)


@inlined_uncounted
def _duration_over(tasks: Tasks, net: Sharing, circuits: CircuitState, state: State, task: int) -> int:
    """Ends a task whose duration is over, or starts its flow; returns 1 if it ended."""
    path = tasks.path[task]
    if path == NONE or tasks.num_bytes[task] == 0.0 or net.path_offsets[path] == net.path_offsets[path + 1]:
        _leave(tasks, circuits, state, task)
        _end(tasks, state, task)
        return 1
    _count_moved(net, state, path)
    if net.num_flows[path] == 0:
        state.moved_bytes[path] = 0.0
    state.leaves_at_bytes[task] = state.moved_bytes[path] + tasks.num_bytes[task]
    state.left[task], state.right[task] = NONE, NONE
    state.root[path] = merged(state.leaves_at_bytes, state.left, state.right, state.root[path], task)
    _change_flows(net, state, path, 1)
    return 0


@inlined_uncounted
def _leave(tasks: Tasks, circuits: CircuitState, state: State, task: int) -> None:
    """Hands the circuit of a finished task to those that have waited longest."""
    circuit = circuit_of(circuits, tasks.path[task])
    if circuit != NONE:
        leave(circuits, circuit, state.now_s[0])


@inlined_uncounted
def _end(tasks: Tasks, state: State, task: int) -> None:
    """Ends a task: its resource goes to the task that has waited longest, and its successors may become ready."""
    state.end_s[task] = state.now_s[0]
    resource = tasks.resource[task]
    if resource != NONE:
        waiting = state.first_waiting[resource]
        state.is_busy[resource] = waiting != NONE
        if waiting != NONE:
            state.first_waiting[resource] = state.next_waiting[waiting]
            state.has_resource[waiting] = True
            _add_work(state, waiting)
    for place in range(tasks.offsets[task], tasks.offsets[task + 1]):
        successor = tasks.successors[place]
        state.waits_for[successor] -= 1
        if state.waits_for[successor] == 0:
            _add_work(state, successor)


@inlined_uncounted
def _flows_done(tasks: Tasks, net: Sharing, circuits: CircuitState, state: State, path: int) -> int:
    """Ends the first flow of a path and those that are done with it; returns how many."""
    _count_moved(net, state, path)
    first = state.root[path]
    state.moved_bytes[path] = max(state.moved_bytes[path], state.leaves_at_bytes[first])
    limit = state.moved_bytes[path] * (1.0 + SAME_TIME_FRACTION)
    num_done = 0
    while state.root[path] != NONE and state.leaves_at_bytes[state.root[path]] <= limit:
        flow = state.root[path]
        state.root[path] = merged(
            state.leaves_at_bytes, state.left, state.right, state.left[flow], state.right[flow]
        )
        _change_flows(net, state, path, -1)
        _leave(tasks, circuits, state, flow)
        _end(tasks, state, flow)
        num_done += 1
    return num_done


@inlined_uncounted
def _count_moved(net: Sharing, state: State, path: int) -> None:
    """Updates a path's count of moved bytes to the present."""
    if state.root[path] != NONE:
        elapsed_s = state.now_s[0] - state.moved_until_s[path]
        state.moved_bytes[path] += net.rate_bytes_per_s[path] * elapsed_s
    state.moved_until_s[path] = state.now_s[0]


@inlined_uncounted
def _change_flows(net: Sharing, state: State, path: int, by: int) -> None:
    net.num_flows[path] += by
    for place in range(net.path_offsets[path], net.path_offsets[path + 1]):
        net.link_flows[net.path_links[place]] += by
    if not state.is_changed[path]:
        state.is_changed[path] = True
        state.changed[state.sizes[CHANGED]] = path
        state.sizes[CHANGED] += 1


@inner_uncounted
def _share_out(net: Sharing, change: Change, state: State, is_max_min: bool) -> None:
    """Gives every flow its rate, and every path its next event.

    If as many flows came as went, the rates stay, and only the path's own event is new.
    """
    num_kept, num_dirty = 0, 0
    for position in range(state.sizes[CHANGED]):
        path = state.changed[position]
        state.is_changed[path] = False
        if net.num_flows[path] == net.shared_flows[path]:
            state.kept[num_kept] = path
            num_kept += 1
        elif _is_alone(net, path):
            _fill_alone(net, change, state, path)
            state.kept[num_kept] = path
            num_kept += 1
        else:
            state.changed[num_dirty] = path
            num_dirty += 1
    state.sizes[CHANGED] = 0
    num_paths = _refilled(net, change, state, num_dirty, is_max_min) if num_dirty > 0 else 0
    for position in range(num_kept):
        path = state.kept[position]
        if net.num_flows[path] > 0 and not state.is_changed[path]:
            net.paths[num_paths] = path
            num_paths += 1
    for position in range(num_paths):
        path = net.paths[position]
        state.is_changed[path] = False
        left_bytes = state.leaves_at_bytes[state.root[path]] - state.moved_bytes[path]
        state.new_end_s[path] = state.now_s[0] + max(0.0, left_bytes) / net.rate_bytes_per_s[path]
    set_keys(state.path_end_s, net.paths, num_paths, state.new_end_s)


@inlined_uncounted
def _is_alone(net: Sharing, path: int) -> bool:
    """Whether no other path has flows on the links of this one."""
    for place in range(net.path_offsets[path], net.path_offsets[path + 1]):
        if net.link_flows[net.path_links[place]] != net.num_flows[path]:
            return False
    return True


@inlined_uncounted
def _fill_alone(net: Sharing, change: Change, state: State, path: int) -> None:
    """Gives the flows of a path that shares no link the bandwidth of its narrowest link."""
    _count_moved(net, state, path)
    leave_bundles(change, path)
    flows = net.num_flows[path]
    narrowest = np.inf
    for place in range(net.path_offsets[path], net.path_offsets[path + 1]):
        narrowest = min(narrowest, net.bandwidth_bytes_per_s[net.path_links[place]])
    for place in range(net.path_offsets[path], net.path_offsets[path + 1]):
        link = net.path_links[place]
        _close_link(net, state, link)
        state.used_flows[link], state.since_s[link] = flows, state.now_s[0]
        net.is_full[link] = flows > 0 and net.bandwidth_bytes_per_s[link] == narrowest
        change.bundles.is_built[link] = flows == 0
        change.bundles.level[link] = np.inf
    net.rate_bytes_per_s[path] = narrowest / max(1, flows)
    net.shared_flows[path] = flows


@inner_uncounted
def _refilled(net: Sharing, change: Change, state: State, num_dirty: int, is_max_min: bool) -> int:
    """Shares out the part of the network in which the number of flows has changed; returns how many paths it has."""
    num_links, num_paths, how = reach(net, change, state.changed, num_dirty, is_max_min)
    for position in range(num_paths):
        _count_moved(net, state, net.paths[position])
        state.is_changed[net.paths[position]] = True
    for position in range(num_links):
        _close_link(net, state, net.links[position])
    share_out(net, change, num_links, num_paths, how, is_max_min)
    for position in range(num_links):
        link = net.links[position]
        state.used_flows[link] = net.link_flows[link]
        state.since_s[link] = state.now_s[0]
    return num_paths


@inlined_uncounted
def _close_link(net: Sharing, state: State, link: int) -> None:
    """Adds the time since the last change of a link to the counters of the state that it was in."""
    elapsed_s = state.now_s[0] - state.since_s[link]
    if state.used_flows[link] > 0:
        state.used_s[link] += elapsed_s
        if net.is_full[link]:
            state.full_s[link] += elapsed_s
