"""How does decentralised training cope with slow workers? Iterations in the manner of Hop, as tasks and flows.

    step = hop_step(compute_s, num_bytes, hop_graph(HopGraph.RING, 8), topology, HopRules(num_backups=1))
    result = hop_result(step, play(step.graph, topology, step.paths))

Hop (Luo, Lin, Zhuo and Qian, ASPLOS 2019) has no parameter server and no all-reduce. In iteration k a worker sends its
parameters to the update queues of its out-neighbours, computes gradients meanwhile, waits for the updates of its
in-neighbours, averages, and goes on. i and j are neighbours, n_i is the number of in-neighbours of i:

    updates     iteration k of i is over when i has computed and n_i - b updates have arrived, each of iteration k - s or
                later; b is the number of backup workers, s the bounded staleness
    tokens      i enters k when each of its out-neighbours has entered k - g; g is the largest gap
    skipping    i does not compute k and sends nothing for it when all its out-neighbours have entered k + d; nobody waits
                for an update that is not sent

Updates are flows that share the network. Tokens, and the notice that an update will not come, take no time. Updates that
are too late are sent all the same. Updates of one size on one path arrive in the order in which they were sent, so that the
first of iteration k - s or later is that of k - s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.argument_names import Argument, Words
from simulator.deep.networks.routing import Paths, Router
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import Played
from simulator.deep.playing.tasks import NONE, TaskGraph, TaskGraphBuilder
from simulator.errors import check_rules
from simulator.table import Booleans, Floats, Integers

MOST_GAP = 1_000_000


@dataclass(frozen=True, kw_only=True)
class HopRules:
    """How long workers wait for each other."""

    max_gap: int = 5
    """g: most iterations that a worker may be ahead of one that it sends to."""
    num_backups: int = 0
    """b: number of updates of an iteration that a worker need not wait for."""
    staleness: int = 0
    """s: most iterations that an update may be old."""
    skip_behind: int | None = None
    """d: a worker skips iterations when it is this far behind all that it sends to; None: it never does."""

    def check(self, edges: Integers) -> None:
        """Raises `InputError` with all rules that are broken on a graph, `(e, 2)`."""
        least = int(np.bincount(edges[:, 1]).min()) if len(edges) else 0
        skip = self.max_gap - 1 if self.skip_behind is None else self.skip_behind
        rules = {
            "max_gap": (self.max_gap, 1 <= self.max_gap <= MOST_GAP, "must be at least 1"),
            "num_backups": (
                self.num_backups,
                0 <= self.num_backups < max(1, least),
                f"must be below {least}, the fewest neighbours that a worker hears from",
            ),
            "staleness": (self.staleness, 0 <= self.staleness < MOST_GAP, "must be 0 or above"),
            "skip_behind": (
                skip,
                self.skip_behind is None or 1 <= skip < self.max_gap,
                Words(
                    "must be at least 1 and below ",
                    Argument("max_gap"),
                    f" ({self.max_gap}), beyond which nobody is ahead",
                ),
            ),
        }
        check_rules(rules)


@dataclass(frozen=True, kw_only=True)
class HopStep:
    """K iterations of w workers over e edges, ready to be played; resource i of the graph is worker i."""

    graph: TaskGraph
    paths: Paths
    rules: HopRules
    edges: Integers
    """`(e, 2)` sender and receiver."""
    enter: Integers
    """`(K + 1, w)` tasks at whose end a worker enters an iteration; the last row: when it is done."""
    compute: Integers
    """`(K, w)`."""
    sent: Integers
    """`(K, e)` tasks at whose end an update has arrived."""
    received: Integers
    """`(K, w)` tasks at whose end enough updates have arrived."""
    applied: Integers
    """`(K, w)` tasks at whose end an iteration is over."""


@dataclass(frozen=True, kw_only=True)
class HopResult:
    """How K iterations of w workers went."""

    entered_s: Floats
    """`(K + 1, w)` when each worker entered each iteration; the last row: when it was done."""
    is_skipped: Booleans
    """`(K, w)`."""
    for_updates_s: Floats
    """`(w,)` time spent waiting for updates after computing."""
    for_tokens_s: Floats
    """`(w,)` time spent waiting for tokens after an iteration was over."""
    waited_for_s: Floats
    """`(w, w)` how long the first worker waited for the second, for its updates and tokens together."""
    largest_gap: int
    """Most iterations that a worker was ahead of one that it sends to or hears from."""

    @property
    def iterations_per_s(self) -> Floats:
        """`(w,)` iterations of each worker, skipped ones included, divided by the time until it was done."""
        last_s = self.entered_s[-1]
        return np.where(last_s > 0.0, len(self.is_skipped) / np.where(last_s > 0.0, last_s, 1.0), 0.0)


def hop_step(
    compute_s: Floats, num_bytes: float, edges: Integers, topology: Topology, rules: HopRules
) -> HopStep:
    """Returns iterations of decentralised training.

    Args:
        compute_s: `(K, w)` how long each worker computes in each iteration.
        num_bytes: size of an update: the parameters.
        edges: `(e, 2)` sender and receiver, see `simulator.deep.traced_steps.hop_graphs`.
        topology: the network; worker i is accelerator i.
        rules: how long workers wait for each other.

    Raises:
        InputError: a rule is broken, or the network does not connect two neighbours.
    """
    rules.check(edges)
    num_iterations, num_workers = compute_s.shape
    builder, router = TaskGraphBuilder(), Router(topology)
    streams = builder.add_resources(num_workers)
    source, target = edges.T
    builder.require_room((len(edges) + 6 * num_workers) * num_iterations)
    enter = _joins(builder, "enter", num_iterations + 1, num_workers)
    behind = _all_ahead(builder, enter, edges, rules.skip_behind)
    path = router.paths(source, target)
    sent = builder.add(
        "update",
        duration_s=router.latency_s(path),
        num_bytes=num_bytes,
        path=np.broadcast_to(path, (num_iterations, len(edges))),
        after=[enter[:-1, source]],
        unless=behind[:, source],
    ).reshape(num_iterations, len(edges))
    compute = builder.add(
        "compute", duration_s=compute_s, resource=streams, after=[enter[:-1]], unless=behind
    ).reshape(compute_s.shape)
    received = _joins(builder, "updates", num_iterations, num_workers)
    usable = num_iterations - rules.staleness
    if usable > 0:
        builder.add_edges(sent[:usable], received[rules.staleness :, target])
        builder.let_miss(received[rules.staleness :], rules.num_backups)
    applied = builder.add("apply", after=[compute, received]).reshape(compute_s.shape)
    builder.add_edges(applied, enter[1:])
    if rules.max_gap <= num_iterations:
        builder.add_edges(enter[: -rules.max_gap, target], enter[rules.max_gap :, source])
    return HopStep(
        graph=builder.build(),
        paths=router.table(),
        rules=rules,
        edges=edges,
        enter=enter,
        compute=compute,
        sent=sent,
        received=received,
        applied=applied,
    )


def _joins(builder: TaskGraphBuilder, label: str, num_rows: int, num_workers: int) -> Integers:
    shape = (num_rows, num_workers)
    return builder.add(label, after=[np.full(shape, NONE)]).reshape(shape)


def _all_ahead(
    builder: TaskGraphBuilder, enter: Integers, edges: Integers, skip_behind: int | None
) -> Integers:
    """Tasks `(K, w)` at whose end all that a worker sends to are `skip_behind` ahead of it, or `NONE`."""
    num_iterations, num_workers = len(enter) - 1, enter.shape[1]
    found = np.full((num_iterations, num_workers), NONE)
    if skip_behind is not None and skip_behind < num_iterations:
        found[:-skip_behind] = _joins(builder, "ahead", num_iterations - skip_behind, num_workers)
        source, target = edges.T
        builder.add_edges(enter[skip_behind:-1, target], found[:-skip_behind, source])
    return found


def hop_result(step: HopStep, played: Played) -> HopResult:
    """Returns what workers did and whom they waited for."""
    end_s = played.end_s
    entered_s, applied_s = end_s[step.enter], end_s[step.applied]
    computed_s, received_s = end_s[step.compute], end_s[step.received]
    updates_s, tokens_s = np.maximum(0.0, received_s - computed_s), entered_s[1:] - applied_s
    return HopResult(
        entered_s=entered_s,
        is_skipped=(computed_s == played.start_s[step.compute]) & (step.graph.duration_s[step.compute] > 0.0),
        for_updates_s=updates_s.sum(axis=0),
        for_tokens_s=tokens_s.sum(axis=0),
        waited_for_s=_waited_for(step, end_s[step.sent], received_s, entered_s, updates_s, tokens_s),
        largest_gap=_largest_gap(entered_s, step.edges),
    )


def _waited_for(
    step: HopStep,
    sent_s: Floats,
    received_s: Floats,
    entered_s: Floats,
    updates_s: Floats,
    tokens_s: Floats,
) -> Floats:
    """Charges each wait to the first neighbour whose update or token ended it, `(w, w)`."""
    size, old, gap = entered_s.shape[1], step.rules.staleness, step.rules.max_gap
    waited = np.zeros((size, size))
    open_s, gate_s = updates_s.copy(), tokens_s.copy()
    for edge, (source, target) in enumerate(step.edges.tolist()):
        came = sent_s[: len(sent_s) - old, edge] == received_s[old:, target]
        waited[target, source] += (open_s[old:, target] * came).sum()
        open_s[old:, target][came] = 0.0
        if gap <= len(tokens_s):
            opened = entered_s[:-gap, target] == entered_s[gap:, source]
            waited[source, target] += (gate_s[gap - 1 :, source] * opened).sum()
            gate_s[gap - 1 :, source][opened] = 0.0
    return waited


def _largest_gap(entered_s: Floats, edges: Integers) -> int:
    """Most iterations that one of two neighbours was ahead of the other when it entered an iteration."""
    last, largest = len(entered_s) - 1, 0
    for one, other in np.concatenate([edges, edges[:, ::-1]]).tolist():
        reached = np.searchsorted(entered_s[:, other], entered_s[:, one], side="right") - 1
        largest = max(largest, int((np.arange(last + 1) - reached).max()))
    return largest
