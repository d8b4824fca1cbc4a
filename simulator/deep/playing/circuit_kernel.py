"""Who gets a port next? Circuits set up, used and torn down, compiled, on the clock of `simulator.deep.playing.play_kernel`.

A message whose circuit is up goes at once. Otherwise it waits in the queue of its circuit. The circuit is set up when both
ends have a port that is free or belongs to an idle circuit. Circuits that find no port wait in the queues of both ends.
Whenever a circuit becomes idle, the queues of its ends are served from the oldest request on before anything else happens, so
that a stream of messages cannot keep a port for itself. All set-ups take the same time, so they end in the order in which they
begin. A message holds one circuit and waits for no other, so nobody waits forever.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import inlined_uncounted, inner_uncounted
from simulator.deep.networks.circuits import NONE, Circuits
from simulator.table import Floats, Integers

DOWN, WAITING, STARTING, UP = 0, 1, 2, 3
FIRST, STARTED, CLOCK = 0, 1, 2


class CircuitState(NamedTuple):
    """Circuits while a graph is played; without any, all arrays are empty."""

    of_path: Integers
    """`(p,)` circuit that a path needs, or `NONE`; empty without circuits."""
    ends: Integers
    """`(c, 2)`."""
    set_up_s: float
    first_port: Integers
    """`(v + 1,)` where the ports of a vertex begin in `port_circuit`."""
    port_circuit: Integers
    """The circuit on each port, or `NONE`."""
    status: Integers
    """`(c,)` `DOWN`, `WAITING` for ports, `STARTING` or `UP`."""
    num_flows: Integers
    """`(c,)` number of messages that use a circuit or wait for it."""
    last_used: Integers
    """`(c,)` serial of the last use, for the least recently used one."""
    asked: Integers
    """`(c,)` serial of the request for ports."""
    num_set_ups: Integers
    """`(c,)`."""
    starting: Integers
    """`(c,)` ring of the circuits that are being set up."""
    ready_s: Floats
    """`(c,)` when a circuit that is being set up will be up."""
    numbers: Integers
    """`(3,)` first position of that ring, number of circuits in it, last serial."""
    first_circuit: Integers
    """`(v,)` first circuit that waits for a port of a vertex."""
    last_circuit: Integers
    next_circuit: Integers
    """`(c, 2)` the circuit behind each, in the queue of either end."""
    previous_circuit: Integers
    first_flow: Integers
    """`(c,)` first message that waits for a circuit."""
    last_flow: Integers
    next_flow: Integers
    """`(n,)` the message that waits behind each."""
    waited_s: Floats
    """`(n,)` how long each message waited."""


def new_circuit_state(circuits: Circuits | None, of_path: Integers, num_tasks: int) -> CircuitState:
    """Returns circuits, none of which is up."""
    count, vertices = (len(circuits), len(circuits.num_ports)) if circuits else (0, 0)
    tasks = num_tasks if circuits else 0
    ports = circuits.num_ports if circuits else np.empty(0, np.int64)
    first_port = np.concatenate([[0], np.cumsum(ports)]).astype(np.int64)

    def none(*shape: int) -> Integers:
        return np.full(shape, NONE, dtype=np.int64)

    def zeros(*shape: int) -> Integers:
        return np.zeros(shape, dtype=np.int64)

    return CircuitState(
        of_path=of_path,
        ends=circuits.ends if circuits else none(0, 2),
        set_up_s=circuits.set_up_s if circuits else 0.0,
        first_port=first_port,
        port_circuit=none(int(first_port[-1])),
        status=zeros(count),
        num_flows=zeros(count),
        last_used=zeros(count),
        asked=zeros(count),
        num_set_ups=zeros(count),
        starting=none(count),
        ready_s=np.zeros(count),
        numbers=zeros(3),
        first_circuit=none(vertices),
        last_circuit=none(vertices),
        next_circuit=none(count, 2),
        previous_circuit=none(count, 2),
        first_flow=none(count),
        last_flow=none(count),
        next_flow=none(tasks),
        waited_s=np.zeros(tasks),
    )


@inlined_uncounted
def circuit_of(state: CircuitState, path: int) -> int:
    """The circuit that a path needs, or `NONE`."""
    if path == NONE or len(state.of_path) == 0:
        return NONE
    return int(state.of_path[path])


@inner_uncounted
def may_go(state: CircuitState, circuit: int, task: int, now_s: float) -> bool:
    """Whether a message can go at once; if not, it waits, and the circuit is set up as soon as there are ports."""
    state.num_flows[circuit] += 1
    if state.status[circuit] == UP:
        return True
    if state.first_flow[circuit] == NONE:
        state.first_flow[circuit] = task
    else:
        state.next_flow[state.last_flow[circuit]] = task
    state.last_flow[circuit] = task
    state.next_flow[task] = NONE
    if state.status[circuit] == DOWN and not _set_up(state, circuit, now_s):
        _wait(state, circuit)
    return False


@inner_uncounted
def leave(state: CircuitState, circuit: int, now_s: float) -> None:
    """Ends the use of a circuit by one message; if it was the last, hands the circuit's ports on."""
    state.num_flows[circuit] -= 1
    state.last_used[circuit] = _serial(state)
    if state.num_flows[circuit] == 0:
        _serve(state, state.ends[circuit, 0], state.ends[circuit, 1], now_s)


@inlined_uncounted
def next_up_s(state: CircuitState) -> float:
    """When the next circuit is up; `inf` if none is being set up."""
    if state.numbers[STARTED] == 0:
        return np.inf
    return float(state.ready_s[state.starting[state.numbers[FIRST]]])


@inner_uncounted
def next_up(state: CircuitState) -> int:
    """Takes the circuit that is up next; returns the first message that waits for it, see `next_flow`."""
    circuit = state.starting[state.numbers[FIRST]]
    state.numbers[FIRST] = (state.numbers[FIRST] + 1) % len(state.starting)
    state.numbers[STARTED] -= 1
    state.status[circuit] = UP
    task = state.first_flow[circuit]
    state.first_flow[circuit] = NONE
    return int(task)


@inner_uncounted
def _serial(state: CircuitState) -> int:
    state.numbers[CLOCK] += 1
    return int(state.numbers[CLOCK])


@inner_uncounted
def _set_up(state: CircuitState, circuit: int, now_s: float) -> bool:
    """Begins to set up a circuit if both ends have a port for it, and tears down the idle circuits on these ports."""
    one, other = _port(state, state.ends[circuit, 0]), _port(state, state.ends[circuit, 1])
    if min(one, other) == NONE:
        return False
    _tear_down(state, state.port_circuit[one])
    _tear_down(state, state.port_circuit[other])
    state.port_circuit[one] = circuit
    state.port_circuit[other] = circuit
    state.status[circuit] = STARTING
    state.num_set_ups[circuit] += 1
    state.ready_s[circuit] = now_s + state.set_up_s
    place = state.numbers[FIRST] + state.numbers[STARTED]
    state.starting[place % len(state.starting)] = circuit
    state.numbers[STARTED] += 1
    return True


@inner_uncounted
def _port(state: CircuitState, vertex: int) -> int:
    """A free port of a vertex, or that of its longest-idle circuit, or `NONE`."""
    found = NONE
    for port in range(state.first_port[vertex], state.first_port[vertex + 1]):
        circuit = state.port_circuit[port]
        if circuit == NONE:
            return port
        if state.num_flows[circuit] == 0 and (
            found == NONE or state.last_used[circuit] < state.last_used[state.port_circuit[found]]
        ):
            found = port
    return found


@inner_uncounted
def _tear_down(state: CircuitState, circuit: int) -> None:
    """Frees both ports of a circuit."""
    if circuit == NONE:
        return
    state.status[circuit] = DOWN
    for side in range(2):
        vertex = state.ends[circuit, side]
        for port in range(state.first_port[vertex], state.first_port[vertex + 1]):
            if state.port_circuit[port] == circuit:
                state.port_circuit[port] = NONE


@inner_uncounted
def _wait(state: CircuitState, circuit: int) -> None:
    """Puts a circuit at the end of both ends' queues."""
    state.status[circuit] = WAITING
    state.asked[circuit] = _serial(state)
    for side in range(2):
        vertex = state.ends[circuit, side]
        last = state.last_circuit[vertex]
        state.previous_circuit[circuit, side] = last
        state.next_circuit[circuit, side] = NONE
        if last == NONE:
            state.first_circuit[vertex] = circuit
        else:
            state.next_circuit[last, _side(state, last, vertex)] = circuit
        state.last_circuit[vertex] = circuit


@inner_uncounted
def _stop_waiting(state: CircuitState, circuit: int) -> None:
    """Takes a circuit out of both queues."""
    for side in range(2):
        vertex = state.ends[circuit, side]
        before, behind = state.previous_circuit[circuit, side], state.next_circuit[circuit, side]
        if before == NONE:
            state.first_circuit[vertex] = behind
        else:
            state.next_circuit[before, _side(state, before, vertex)] = behind
        if behind == NONE:
            state.last_circuit[vertex] = before
        else:
            state.previous_circuit[behind, _side(state, behind, vertex)] = before


@inner_uncounted
def _side(state: CircuitState, circuit: int, vertex: int) -> int:
    return 0 if state.ends[circuit, 0] == vertex else 1


@inner_uncounted
def _serve(state: CircuitState, one: int, other: int, now_s: float) -> None:
    """Sets up circuits that wait for a port of two vertices, the oldest request first, as long as there are ports."""
    first, second = state.first_circuit[one], state.first_circuit[other]
    while max(first, second) != NONE:
        is_first = second == NONE or (first != NONE and state.asked[first] < state.asked[second])
        circuit, vertex = (first, one) if is_first else (second, other)
        behind = state.next_circuit[circuit, _side(state, circuit, vertex)]
        if _port(state, vertex) == NONE:
            behind = NONE
        elif _set_up(state, circuit, now_s):
            _stop_waiting(state, circuit)
        if is_first:
            first = behind
        else:
            second = behind
