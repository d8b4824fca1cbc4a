"""How long does a collective take with nothing else on the network? Estimated without playing it, or played.

Both give a seconds without bytes and b seconds for each byte, so that a buffer of S bytes takes a + b S. Where the network has
a ramp, c sqrt(S) is added, which is always estimated.

The estimate adds up the steps of a schedule on the paths of their messages: each step takes its longest latency, plus the
time for which its messages keep the busiest link busy. That is exact for a step whose messages begin together and each meet
the same number of others on their busiest link. It is too low where a message meets different others at different times, and
too high where accelerators need not wait for each other.

Direct messages to near accelerators are over before those to far ones have passed their latency, so that they take less than
latency and bytes together. Where the two are equal the difference is largest; they are played there, too, and the line is bent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

import numpy as np

from simulator.deep.collectives.collective_forms import Algorithm, Form
from simulator.deep.collectives.collective_steps import Step
from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Paths, Router
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.table import Floats, Integers

MANY_BYTES = 2.0**30
"""Size of a buffer for which latency no longer matters."""
EMPTY_AND_MANY = (0.0, 1.0)
"""Shares of it that are played."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """Time of a collective as a function of the size of its buffer."""

    fixed_s: float
    seconds_per_byte: float
    seconds_per_root_byte: float = 0.0
    """What ramps add, per square root of the bytes."""
    bend_bytes: float = MANY_BYTES / 2.0
    """Size at which the line is bent."""
    bend_s: float = 0.0
    """By how much the time is shorter there."""

    def at(self, num_bytes: float) -> float:
        """Returns the seconds for a buffer."""
        ramp_s = self.seconds_per_root_byte * sqrt(num_bytes)
        bent_s = np.interp(num_bytes, (0.0, self.bend_bytes, MANY_BYTES), (0.0, self.bend_s, 0.0))
        return self.fixed_s + self.seconds_per_byte * num_bytes + ramp_s - float(bent_s)


def estimated(form: Form, shaped: Integers, collectives: Collectives) -> Line:
    """Estimates the time of groups, in the shape that the form wants, step by step."""
    fixed_s = seconds_per_byte = seconds_per_root_byte = 0.0
    topology = collectives.router.topology
    ways, steps = _routed(form.steps(shaped), collectives.router)
    latency_s, ramp_root = ways.sums(topology.latency_s), ways.largest(topology.ramp_root)
    for step, taken in steps:
        flows = np.repeat(np.bincount(taken, minlength=len(ways)), np.diff(ways.offsets))
        busy = np.bincount(ways.links, weights=flows, minlength=topology.num_links)
        fixed_s += step.count * float(collectives.step_s + latency_s[taken].max())
        seconds_per_byte += step.count * step.share * float((busy / topology.bandwidth_bytes_per_s).max())
        if collectives.has_ramp:
            seconds_per_root_byte += _ramp(step, float(ramp_root[taken].max()))
    return Line(
        fixed_s=fixed_s, seconds_per_byte=seconds_per_byte, seconds_per_root_byte=seconds_per_root_byte
    )


def _ramp(step: Step, ramp_root: float) -> float:
    """What a ramp adds to a step, per square root of the bytes."""
    return step.count * ramp_root * sqrt(step.share * step.at_once / step.in_a_row)


def _routed(steps: Iterable[Step], router: Router) -> tuple[Paths, list[tuple[Step, Integers]]]:
    """The distinct paths of all messages of a collective, and which of them the messages of each step take."""
    every_step = list(steps)
    ends = [_ends(step) for step in every_step]
    source, target = (np.concatenate(each) for each in zip(*ends, strict=True))
    ways, taken = router.ways_between(source, target)
    bounds = np.cumsum([len(source) for source, _ in ends])[:-1]
    return ways, list(zip(every_step, np.split(taken, bounds), strict=True))


def _ends(step: Step) -> tuple[Integers, Integers]:
    """Sources and targets of the messages of a step."""
    source, target = (
        np.concatenate([ends.ravel() for ends in each]) for each in zip(*step.patterns, strict=True)
    )
    return source, target


def played(form: Form, shaped: Integers, collectives: Collectives) -> Line:
    """Returns the time of groups, in the shape that the form wants, from playing an empty and a large buffer.

    Of direct messages also one between the two.
    """
    is_ring = form.algorithm is Algorithm.RING
    fixed_s, long_s = (_ring_s if is_ring else _whole_s)(form, shaped, collectives)
    line = Line(
        fixed_s=float(fixed_s),
        seconds_per_byte=float(long_s - fixed_s) / MANY_BYTES,
        seconds_per_root_byte=estimated(form, shaped, collectives).seconds_per_root_byte,
    )
    return _bent(line, form, shaped, collectives) if form.algorithm is Algorithm.DIRECT else line


def _bent(line: Line, form: Form, shaped: Integers, collectives: Collectives) -> Line:
    """Returns the line bent to what is played where latency and bytes take equally long."""
    num_bytes = line.fixed_s / line.seconds_per_byte
    if not 0.0 < num_bytes < MANY_BYTES:
        return line
    (between_s,) = _whole_s(form, shaped, collectives, [num_bytes / MANY_BYTES])
    return replace(line, bend_bytes=num_bytes, bend_s=max(0.0, 2.0 * line.fixed_s - float(between_s)))


def _ring_s(form: Form, groups: Integers, collectives: Collectives) -> Floats:
    """How long rings take, `(2,)`, if every step takes as long as the second one."""
    num_steps = form.num_passes * (groups.shape[-1] - 1)
    one_s, two_s = (
        _played_s(collectives, partial(_add_steps, groups=groups, num_steps=count)) for count in (1, 2)
    )
    return np.asarray(one_s + (num_steps - 1) * (two_s - one_s))


def _add_steps(collectives: Collectives, *, groups: Integers, num_steps: int) -> Integers:
    return collectives.ring_steps(groups, MANY_BYTES, num_steps, np.full(groups.shape, NONE), "ring")


def _whole_s(
    form: Form, shaped: Integers, collectives: Collectives, shares: Sequence[float] = EMPTY_AND_MANY
) -> Floats:
    """How long a collective takes with each share of many bytes."""
    ready = np.full(shaped.shape, NONE)
    return _played_s(collectives, lambda alone: form.add(alone, shaped, MANY_BYTES, ready), shares)


def _played_s(
    collectives: Collectives, add: Callable[[Collectives], object], shares: Sequence[float] = EMPTY_AND_MANY
) -> Floats:
    """How long the added tasks take with each share of their bytes."""
    router, builder = collectives.router, TaskGraphBuilder()
    add(replace(collectives, graph=builder, has_ramp=False))
    graph, paths = builder.build(), router.table()
    graphs = (replace(graph, num_bytes=share * graph.num_bytes) for share in shares)
    return np.array([play(each, router.topology, paths).makespan_s for each in graphs])
