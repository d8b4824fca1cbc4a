"""What is reported about a step played on many accelerators? Its length, where each one's time goes, and hot links."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from simulator.deep.networks.routing import Paths
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import Played
from simulator.deep.playing.tasks import TaskGraph
from simulator.deep.playing.waits import Waits
from simulator.deep.traced_steps.fold import Fold
from simulator.record import Record
from simulator.table import Booleans, Floats

MOST_LINKS = 10
"""Hot links that are listed."""
CIRCUITS = "circuits"
"""What a message waits for that has no circuit yet."""
ALIKE_FRACTION = 1e-3
"""Links whose figures differ by less are alike; a reader sees three digits."""
_COLLECTIVES = frozenset({"all-reduce", "all-gather", "reduce-scatter", "all-to-all"})
SMALLEST_FRACTION = 1e-6
"""A wait below this share of the step is rounding."""


class AcceleratorTime(Record):
    """How one accelerator spends a step; the parts sum to the step."""

    accelerator: int
    """Its number, from 0."""
    busy_s: float
    """Time spent computing."""
    traffic_waits_s: dict[str, float]
    """Time spent waiting for traffic, by its kind: `all-reduce`, `all-gather`, `send`; before it moves, for `circuits`."""
    others_wait_s: float
    """Time spent waiting while others compute what it needs."""
    over_s: float
    """Time after its last operator, and the last arrival behind it, while others are still at work."""
    held_up_others_s: float
    """How long others waited for its computing, summed over all of them."""


class HotLink(Record):
    """A link of the network that accelerators wait for."""

    link: str
    """Its name, such as `gpu 3 -> gpu 4`."""
    num_bytes: float
    """Bytes that cross it in a step."""
    used_fraction: float
    """Share of the step during which it carries traffic."""
    full_fraction: float
    """Share of the step during which its traffic could have used more bandwidth."""
    waited_s: float
    """How long accelerators waited for traffic on it, summed over all of them."""
    num_alike: int = 1
    """How many links of its kind have the same figures within 0.1 %, with itself; those beyond the listed ones count, too."""

    def is_like(self, other: HotLink) -> bool:
        """Returns whether another link is of the same kind and has the same figures within 0.1 %."""
        mine, theirs = (
            np.array([link.num_bytes, link.full_fraction, link.waited_s]) for link in (self, other)
        )
        return bool(_have_alike_figures(mine, theirs)) and _kind(self.link) == _kind(other.link)


class CircuitLink(Record):
    """A pair of accelerators that a circuit joined."""

    circuit: str
    """Its name, such as `gpu 3 - gpu 4`."""
    num_set_ups: int
    waited_s: float
    """How long messages waited for it, summed over all of them."""


class CircuitSummary(Record):
    """What the circuits of a circuit-switched network did in a step."""

    num_circuits: int
    """Number of pairs that were joined at least once."""
    num_set_ups: int
    """How often circuits were set up in total; if more than `num_circuits`, some were torn down in between."""
    waited_s: float
    """How long messages waited for ports and set-ups, summed over all of them."""
    longest: tuple[CircuitLink, ...]
    """The circuits that messages waited for longest, at most 10."""


class PlayedStep(Record):
    """A step on many accelerators."""

    schema_version: int = 1
    """Version of this form; increases when a field is removed or changes its meaning."""
    capplan_version: str
    """Version of capplan that simulated the step."""
    num_gpus: int
    step_s: float
    """From the first operator to the end of all."""
    num_tasks: int
    """Number of operators and messages that were played."""
    accelerators: tuple[AcceleratorTime, ...]
    """All of them, by number."""
    hot_links: tuple[HotLink, ...]
    """The links that are waited for longest, at most 10."""
    circuits: CircuitSummary | None = None
    """What circuits did; None without circuits."""
    lacks_ramp: bool = False
    """Whether collectives of all sizes reach the full bandwidth because no link has a ramp; small ones are then too fast."""


@dataclass(frozen=True, kw_only=True)
class StepRun:
    """A played step, task by task."""

    graph: TaskGraph
    topology: Topology
    paths: Paths
    played: Played

    @property
    def step_s(self) -> float:
        """From the first operator to the end of all."""
        return self.played.makespan_s


def lacks_ramp(graph: TaskGraph, topology: Topology) -> bool:
    """Returns whether a step has collectives but no link has a ramp."""
    return not topology.ramp_s.any() and not _COLLECTIVES.isdisjoint(graph.labels)


def accelerator_times(
    graph: TaskGraph, found: Waits, fold: Fold | None = None
) -> tuple[AcceleratorTime, ...]:
    """Returns what each accelerator did, by number; a folded one did what the accelerator that stands for it did."""
    row_of_rank = range(graph.num_resources) if fold is None else fold.row_of_rank().tolist()
    is_waited = found.for_traffic_s.sum(axis=0) > 0.0
    names = [graph.labels[label] for label in np.flatnonzero(is_waited)]
    waits = found.for_traffic_s[:, is_waited]
    if found.for_circuits_s.any():
        names, waits = [*names, CIRCUITS], np.column_stack([waits, found.for_circuits_s])
    waited = waits.tolist()
    columns = (found.busy_s, found.for_others_s, np.maximum(0.0, found.over_s), found.waited_for_s)
    busy_s, others_s, over_s, held_s = (column.tolist() for column in columns)
    return tuple(
        AcceleratorTime(
            accelerator=rank,
            busy_s=busy_s[row],
            traffic_waits_s=dict(zip(names, waited[row], strict=True)),
            others_wait_s=others_s[row],
            over_s=over_s[row],
            held_up_others_s=held_s[row],
        )
        for rank, row in enumerate(row_of_rank)
    )


def hot_links(
    topology: Topology, paths: Paths, played: Played, path_s: Floats, fold: Fold | None = None
) -> tuple[HotLink, ...]:
    """Returns the links that are waited for longest; a wait for a path counts as one for its fullest link.

    Args:
        topology: the network.
        paths: paths through it.
        played: how its links were used.
        path_s: `(p,)` how long accelerators waited for flows on each path.
        fold: what stands for what; left out: every accelerator and link was played.
    """
    waited_s = np.zeros(topology.num_links)
    for path in np.flatnonzero(path_s > 0.0).tolist():
        links = paths.links_of(path)
        if len(links):
            waited_s[links[np.argmax(played.link_full_s[links])]] += path_s[path]
    num_bytes, used_s, full_s = played.link_bytes, played.link_used_s, played.link_full_s
    if fold is not None:
        num_bytes, waited_s = (fold.of_every_link(total) for total in (num_bytes, waited_s))
        used_s, full_s = used_s[fold.stand_in], full_s[fold.stand_in]
    step_s = max(played.makespan_s, np.finfo(np.float64).tiny)
    hottest = np.argsort(-waited_s, kind="stable")[:MOST_LINKS]
    figures = np.stack([num_bytes, full_s, waited_s])
    return tuple(
        HotLink(
            link=topology.link_name(link),
            num_bytes=float(num_bytes[link]),
            used_fraction=float(used_s[link]) / step_s,
            full_fraction=float(full_s[link]) / step_s,
            waited_s=float(waited_s[link]),
            num_alike=_num_alike(topology, figures, link),
        )
        for link in hottest.tolist()
        if waited_s[link] > SMALLEST_FRACTION * step_s
    )


def _num_alike(topology: Topology, figures: Floats, link: int) -> int:
    """Returns how many links are like one, itself included; the figures of all links are `(f, l)`."""
    alike = np.flatnonzero(_have_alike_figures(figures, figures[:, [link]]))
    kind = _kind(topology.link_name(link))
    return sum(_kind(topology.link_name(other)) == kind for other in alike.tolist())


def _have_alike_figures(figures: Floats, own: Floats) -> Booleans:
    """Returns whether the figures `(f, l)` of links, or `(f,)` of one, are those of another one within 0.1 %."""
    return np.asarray(np.isclose(figures, own, rtol=ALIKE_FRACTION, atol=0.0).all(axis=0))


def _kind(name: str) -> str:
    """Returns the name of a link without its numbers."""
    return re.sub(r"\d+", "", name)


def circuit_summary(topology: Topology, played: Played) -> CircuitSummary | None:
    """Returns what circuits did, if there are any."""
    circuits, use = topology.circuits, played.circuit_use
    if circuits is None or use is None:
        return None
    longest = np.argsort(-use.waited_s, kind="stable")[:MOST_LINKS]
    return CircuitSummary(
        num_circuits=int(np.count_nonzero(use.num_set_ups)),
        num_set_ups=int(use.num_set_ups.sum()),
        waited_s=float(use.waited_s.sum()),
        longest=tuple(
            CircuitLink(
                circuit=" - ".join(topology.vertex_names[end] for end in circuits.ends[number].tolist()),
                num_set_ups=int(use.num_set_ups[number]),
                waited_s=float(use.waited_s[number]),
            )
            for number in longest.tolist()
            if use.num_set_ups[number]
        ),
    )
