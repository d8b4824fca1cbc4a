"""How good are the estimates and choices of collective algorithms at the deep depth, and what is a wider choice worth?

    python -m benchmarks.deep_choice            prints the tables of docs/deep.md
    python -m benchmarks.deep_choice --page     writes them into that page

Collectives are drawn at random: operation, size, groups and network. Each is played with every algorithm that suits its groups,
with nothing else on the network, and compared with the estimate and the choice. The same seed gives the same cases.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.sheets import markdown_row
from docs.markdown import replaced
from simulator.deep.collectives.chosen_collectives import CANDIDATES, ChosenCollectives
from simulator.deep.collectives.collective_forms import Algorithm, Form, Operation
from simulator.deep.collectives.collective_times import estimated
from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import (
    cluster,
    degraded,
    dragonfly,
    fat_tree,
    mesh,
    ring,
    switch,
    torus,
)
from simulator.deep.networks.topology import Topology
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.table import Floats, Integers

PAGE = Path(__file__).parents[1] / "docs" / "deep.md"
SEED, NUM_CASES = 1, 1_500
SIZES = (16, 24)
"""Numbers of accelerators in a network."""
LARGE_BYTES = 1e7
EXACT_FRACTION = 1e-3
"""Times whose relative difference is smaller count as equal."""
LATE_FACTOR = 1.1
"""A choice that takes longer than the fastest by more than this factor is bad; one that is faster by this factor is a gain."""
MARK = "deep-choice"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A collective by every algorithm that suits it."""

    num_bytes: float
    estimated_s: Mapping[Algorithm, float]
    played_s: Mapping[Algorithm, float]
    chosen: Mapping[Algorithm, Algorithm]
    """By `auto` and by `nccl`."""

    def fastest_s(self, algorithms: Sequence[Algorithm]) -> float:
        """Returns the time of the fastest of some algorithms."""
        return min(self.played_s[each] for each in algorithms if each in self.played_s)


def drawn(num_cases: int) -> Iterator[Case]:
    """Yields random collectives."""
    random = np.random.default_rng(SEED)
    for _ in range(num_cases):
        topology = _network(random)
        operation = tuple(Operation)[int(random.integers(len(Operation)))]
        yield _case(topology, operation, 10 ** random.uniform(3, 9), _groups(random, topology.num_ranks))


@dataclass(frozen=True, kw_only=True)
class _Draw:
    """A size and a speed, and the networks of any kind that have them."""

    random: np.random.Generator
    size: int
    rate: float
    """Bytes per second of a link."""
    latency_s: float

    def network(self) -> Topology:
        """A switch, with slow links or without, a ring, torus, mesh, fat tree, dragonfly, or nodes."""
        rows = [self.size // 4, 4]
        kinds: tuple[Callable[[], Topology], ...] = (
            self._switch,
            self._slow_switch,
            lambda: ring(self.size, self.rate, self.latency_s),
            lambda: torus(rows, self.rate, self.latency_s),
            lambda: mesh(rows, self.rate, self.latency_s),
            self._tree,
            self._dragonfly,
            self._nodes,
        )
        return kinds[int(self.random.integers(len(kinds)))]()

    def _switch(self) -> Topology:
        return switch(self.size, self.rate, self.latency_s)

    def _slow_switch(self) -> Topology:
        plain = self._switch()
        slow = self.random.choice(plain.num_links, 3, replace=False)
        return degraded(plain, slow, self.random.uniform(0.1, 0.9))

    def _tree(self) -> Topology:
        return fat_tree(
            self.size,
            self.rate,
            self.latency_s,
            ranks_per_leaf=int(self.random.choice([4, 8])),
            num_spines=int(self.random.choice([1, 2, 4])),
            oversubscription=float(self.random.choice([1, 2, 4])),
        )

    def _dragonfly(self) -> Topology:
        return dragonfly(
            self.size // 4,
            2,
            2,
            rank_bytes_per_s=self.rate,
            local_bytes_per_s=self.rate * self.random.choice([1, 2]),
            global_bytes_per_s=self.rate * self.random.choice([0.5, 1, 2]),
            latency_s=self.latency_s,
        )

    def _nodes(self) -> Topology:
        members = int(self.random.choice([4, 8]))
        return cluster(
            self.size // members,
            members,
            scale_up_bytes_per_s=self.rate * self.random.choice([2, 8]),
            scale_up_latency_s=self.latency_s / self.random.choice([1, 5]),
            card_bytes_per_s=self.rate,
            fabric_latency_s=self.latency_s,
            is_rail_optimized=bool(self.random.integers(2)),
        )


def _network(random: np.random.Generator) -> Topology:
    """A network of any kind, size and speed."""
    rate, latency_s = 10 ** random.uniform(9.5, 11.5), 10 ** random.uniform(-7, -5)
    return _Draw(random=random, size=int(random.choice(SIZES)), rate=rate, latency_s=latency_s).network()


def _groups(random: np.random.Generator, num_ranks: int) -> Integers:
    """One group of any accelerators, one of the first, or as many side by side as there is room for."""
    size = int(random.choice([2, 4, 8, 16, num_ranks, int(random.integers(2, num_ranks + 1))]))
    match int(random.integers(3)):
        case 0:
            return np.sort(random.choice(num_ranks, size, replace=False))[None]
        case 1:
            return np.arange(size)[None]
        case _:
            return np.arange(num_ranks // size * size).reshape(-1, size)


def _case(topology: Topology, operation: Operation, num_bytes: float, groups: Integers) -> Case:
    collectives = Collectives(graph=TaskGraphBuilder(), router=Router(topology))
    estimates, played = dict[Algorithm, float](), dict[Algorithm, float]()
    for algorithm in CANDIDATES[Algorithm.AUTO]:
        form = Form(algorithm=algorithm, operation=operation)
        if form.suits(groups, topology.ranks_per_node):
            shaped = form.shaped(groups, topology.ranks_per_node)
            estimates[algorithm] = estimated(form, shaped, collectives).at(num_bytes)
            played[algorithm] = _played_s(form, shaped, num_bytes, collectives)
    return Case(
        num_bytes=num_bytes,
        estimated_s=estimates,
        played_s=played,
        chosen={
            name: ChosenCollectives(collectives=collectives, algorithm=name).choose(
                operation, groups, num_bytes
            )
            for name in CANDIDATES
        },
    )


def _played_s(form: Form, shaped: Integers, num_bytes: float, collectives: Collectives) -> float:
    graph = TaskGraphBuilder()
    form.add(replace(collectives, graph=graph), shaped, num_bytes, np.full(shaped.shape, NONE))
    router = collectives.router
    return play(graph.build(), router.topology, router.table()).makespan_s


def estimates_table(cases: Sequence[Case]) -> str:
    """Returns how near estimates are to what is played, by algorithm."""
    rows = [
        markdown_row(
            "estimates",
            "cases",
            "the time that is played, to 0.1 %",
            "times it at least",
            "at most",
        ),
        markdown_row(*["---"] * 5),
    ]
    for algorithm in CANDIDATES[Algorithm.AUTO]:
        ratios = np.array(
            [
                each.estimated_s[algorithm] / each.played_s[algorithm]
                for each in cases
                if algorithm in each.played_s
            ]
        )
        exact = np.mean(np.abs(ratios - 1.0) < EXACT_FRACTION)
        figures = f"{len(ratios):,}", f"{exact:.0%}", f"{ratios.min():.2f}", f"{ratios.max():.2f}"
        rows.append(markdown_row(f"`{algorithm.value}`", *figures))
    return "\n".join(rows)


def choices_table(cases: Sequence[Case]) -> str:
    """Returns how much longer what is chosen takes than the fastest."""
    rows = [
        markdown_row("choices", "cases", "more than 10 % slower than the fastest", "at most"),
        markdown_row(*["---"] * 4),
    ]
    for name, algorithms in CANDIDATES.items():
        loss = np.array([each.played_s[each.chosen[name]] / each.fastest_s(algorithms) for each in cases])
        figures = f"{len(loss):,}", f"{(loss > LATE_FACTOR).sum():,}", _times(loss)
        rows.append(markdown_row(f"`{name.value}`", *figures))
    return "\n".join(rows)


def gains_table(cases: Sequence[Case]) -> str:
    """Returns how much faster than all that NCCL has those algorithms are that `auto` alone chooses among."""
    gained = "more than 10 % faster than ring, tree and hierarchical"
    rows = [markdown_row("what NCCL has not", "cases", gained, "at most", "of them from 10 MB on", "at most")]
    rows.append(markdown_row(*["---"] * 6))
    of_nccl = CANDIDATES[Algorithm.NCCL]
    for algorithm in CANDIDATES[Algorithm.AUTO]:
        if algorithm in of_nccl:
            continue
        found = [each for each in cases if algorithm in each.played_s]
        gains = np.array([each.fastest_s(of_nccl) / each.played_s[algorithm] for each in found])
        large = gains[[each.num_bytes >= LARGE_BYTES for each in found]]
        few = f"{(large > LATE_FACTOR).sum():,} of {len(large):,}"
        figures = f"{len(gains):,}", f"{(gains > LATE_FACTOR).sum():,}", _times(gains), few, _times(large)
        rows.append(markdown_row(f"`{algorithm.value}`", *figures))
    return "\n".join(rows)


def _times(factors: Floats) -> str:
    return f"{factors.max():.2f} times"


def main() -> None:
    """Prints the tables, or writes them into the page."""
    parser = argparse.ArgumentParser(description="Compare choices of collectives with what is played.")
    parser.add_argument(
        "--page", action="store_true", help="write the tables into docs/deep.md; print nothing"
    )
    parser.add_argument(
        "--cases", type=int, default=NUM_CASES, help="how many are drawn (default: %(default)s)"
    )
    asked = parser.parse_args()
    cases = list(drawn(asked.cases))
    tables = "\n\n".join((estimates_table(cases), choices_table(cases), gains_table(cases)))
    if not asked.page:
        print(tables)
        return
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), MARK, tables), encoding="utf-8")


if __name__ == "__main__":
    main()
