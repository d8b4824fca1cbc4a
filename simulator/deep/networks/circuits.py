"""Which links exist only while a circuit is set up? Circuit-switched networks, such as photonic ones.

A circuit joins two vertices in both directions and takes one port of each for as long as it is up. It is set up when the
first message needs it, which takes `set_up_s`. It stays up until another circuit needs its ports and nothing travels on it:
of a vertex's idle circuits, the least recently used one is torn down. `simulator.deep.playing.circuit_kernel` plays circuits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.errors import InputError, Problem
from simulator.table import Floats, Integers

NONE = -1
"""A link that is always there."""
MOST_PORTS = 4_096
"""Most ports of one vertex."""


@dataclass(frozen=True, kw_only=True)
class Circuits:
    """The c circuits of a network with v vertices and l links; none is up at first."""

    of_link: Integers
    """`(l,)` circuit that a link needs, or `NONE`."""
    ends: Integers
    """`(c, 2)` the vertices that each circuit joins."""
    num_ports: Integers
    """`(v,)` number of circuits that a vertex can have at one time."""
    set_up_s: float
    """Time from the request for a circuit until it is up."""

    def __len__(self) -> int:
        return len(self.ends)

    def of_path(self, offsets: Integers, links: Integers, vertex_names: tuple[str, ...]) -> Integers:
        """Returns the circuit that each of p paths needs, or `NONE`, `(p,)`.

        Raises:
            InputError: a path needs two; a message that held one and waited for the other could wait forever.
        """
        found = np.full(len(offsets) - 1, NONE, dtype=np.int64)
        path_of = np.repeat(np.arange(len(found)), np.diff(offsets))
        needs = self.of_link[links] != NONE
        found[path_of[needs]] = self.of_link[links[needs]]
        crossed = np.bincount(path_of[needs], minlength=len(found))
        for path in np.flatnonzero(crossed > 1)[:1].tolist():
            names = " - ".join(vertex_names[vertex] for vertex in self.ends[found[path]].tolist())
            rule = f"a message would need {crossed[path]} circuits at once, {names} among them: join its ends by one"
            raise InputError([Problem(path="circuits", value="", rule=rule)])
        return found


def circuits_of_links(
    source: Integers, target: Integers, is_circuit: Integers, *, num_ports: Integers, set_up_s: float
) -> Circuits:
    """Returns circuits for chosen links, the two directions of a pair of vertices together.

    Args:
        source: `(l,)` vertex at which each link begins.
        target: `(l,)` vertex at which it ends.
        is_circuit: numbers of the links that need a circuit.
        num_ports: `(v,)` circuits that a vertex can have at one time.
        set_up_s: from asking for a circuit until it is up.

    Raises:
        InputError: an end of a circuit has no port, or too many, or the time is negative or not finite.
    """
    pairs = np.sort(np.stack([source[is_circuit], target[is_circuit]], axis=1), axis=1)
    ends, circuit = np.unique(pairs, axis=0, return_inverse=True)
    ports = num_ports[ends]
    problems = []
    if len(ends) and not 1 <= ports.min() <= ports.max() <= MOST_PORTS:
        wrong = int(ports.min() if ports.min() < 1 else ports.max())
        rule = f"must be between 1 and {MOST_PORTS:,} where circuits end"
        problems.append(Problem(path="num_ports", value=str(wrong), rule=rule))
    if not 0.0 <= set_up_s < np.inf:
        problems.append(Problem(path="set_up_s", value=str(set_up_s), rule="must be 0 or above, and finite"))
    if problems:
        raise InputError(problems)
    of_link = np.full(len(source), NONE, dtype=np.int64)
    of_link[is_circuit] = circuit.ravel()
    return Circuits(of_link=of_link, ends=ends, num_ports=num_ports, set_up_s=set_up_s)


@dataclass(frozen=True, kw_only=True)
class CircuitUse:
    """How c circuits were used while n tasks were played."""

    num_set_ups: Integers
    """`(c,)` how often each was set up."""
    waited_s: Floats
    """`(c,)` how long messages waited for each, for a free port and for the set-up, summed over all messages."""


def circuit_use(of_path: Integers, path: Integers, waited_s: Floats, num_set_ups: Integers) -> CircuitUse:
    """Returns the use of circuits from the waits of tasks.

    Args:
        of_path: `(p,)` circuit of each path.
        path: `(n,)` path of each task, or `NONE`.
        waited_s: `(n,)` how long each task waited for its circuit.
        num_set_ups: `(c,)`.
    """
    is_flow = path != NONE
    circuit = of_path[path[is_flow]]
    needs = circuit != NONE
    waited = np.bincount(circuit[needs], weights=waited_s[is_flow][needs], minlength=len(num_set_ups))
    return CircuitUse(num_set_ups=num_set_ups, waited_s=np.asarray(waited, dtype=np.float64))
