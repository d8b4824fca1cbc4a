"""Which accelerators of a traced step have to be played? One of those that do the same at the same time.

Replicas, or parts of operators, are alike if they can take each other's places and nothing changes: every destination in a
collective is still a destination, each flow takes the path of another one over links of the same kind
(`simulator.deep.collectives.moved_flows`), and each accelerator is as fast as the one whose place it takes. Two kinds of moves
are tried:

    turns           all go on by a places. Rings and direct messages allow every turn, hierarchical ones turns by whole nodes.
    swaps           blocks of a, then pairs of blocks, and so on change places. Halving and doubling allows all of them.

Trees allow neither, since each rank has a place of its own. What can take each other's places is played once:

    accelerators    replicas 0 to a - 1 and parts 0 to b - 1 of a stage stand for all that are multiples of a and b away
    flows           collectives among them close on themselves
    links           one stands for those whose places it takes; where k equal flows cross it, one of them is played and has
                    1/k of the bandwidth

This is exact, not an approximation: max-min rates are unique, so flows that can take each other's places have the same rate.
Nothing is folded where moves change something: an accelerator or link is slower than others; groups lie on segments of cables
with ends, as stages or parts of operators do that share one ring; switches choose between paths of equal cost (ECMP), so that
not all flows meet equally many others; or links need circuits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simulator.deep.collectives.moved_flows import Flows
from simulator.deep.collectives.patterns import Pattern
from simulator.deep.networks.routing import Paths, Router
from simulator.deep.networks.topology import Topology
from simulator.deep.traces.parallelism import Parallelism
from simulator.table import Floats, Integers

_REPLICAS, _PARTS = 1, 2
"""Axes of `Parallelism.ranks`."""


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Which accelerators and links stand for which."""

    ranks: Integers
    """`(stages, replicas, parts)` all accelerators."""
    num_replicas: int
    """Number of replicas that are played; replica i stands for i + `num_replicas`, i + 2 `num_replicas` and so on."""
    num_parts: int
    """Number of parts of operators that are played; they stand for others as replicas do."""
    stand_in: Integers
    """`(l,)` the link that stands for each link."""
    num_alike: Integers
    """`(l,)` number of links that each one stands for, itself included."""

    @property
    def played(self) -> Integers:
        """Accelerators that are played, `(stages, num_replicas, num_parts)`."""
        return self.ranks[:, : self.num_replicas, : self.num_parts]

    @property
    def num_each(self) -> int:
        """Number of accelerators that each played one stands for, itself included."""
        return int(self.ranks.size // self.played.size)

    def row_of_rank(self) -> Integers:
        """Returns which of the played accelerators, in the order of `played`, stands for each one, `(num_gpus,)`."""
        rows = np.arange(self.played.size).reshape(self.played.shape)
        _, replicas, parts = self.ranks.shape
        num_turns = (1, replicas // self.num_replicas, parts // self.num_parts)
        found = np.empty(self.ranks.size, dtype=np.int64)
        found[self.ranks.ravel()] = np.tile(rows, num_turns).ravel()
        return found

    def network(self, topology: Topology) -> Topology:
        """Returns the network as played flows see it: where k equal flows cross a link, 1/k of its bandwidth."""
        num_crossing = np.maximum(1, self.num_each // self.num_alike)
        return replace(topology, bandwidth_bytes_per_s=topology.bandwidth_bytes_per_s / num_crossing)

    def of_every_link(self, played: Floats) -> Floats:
        """Returns the bytes or seconds of all flows on each link, `(l,)`, from those of the played flows."""
        return played[self.stand_in] * self.num_each / self.num_alike

    def ways(self, paths: Paths) -> Paths:
        """Returns paths over the links that stand for others."""
        return replace(paths, links=self.stand_in[paths.links])


def find_fold(parallelism: Parallelism, router: Router, speed: Floats, patterns: Sequence[Pattern]) -> Fold:
    """Returns the smallest part of a step that has to be played.

    Args:
        parallelism: how the step is divided.
        router: router of the network.
        speed: `(num_gpus,)` relative speed of each accelerator.
        patterns: who sends to whom in collectives.

    Raises:
        InputError: there is no path from an accelerator to one that it sends to.
    """
    symmetry = _Symmetry(parallelism=parallelism, router=router, speed=speed, patterns=patterns)
    stand_in = np.arange(router.topology.num_links)
    num_played = {}
    for axis in (_REPLICAS, _PARTS):
        num_played[axis], moves = symmetry.least(axis)
        for moved in moves:
            stand_in = symmetry.flows.least_of_orbits(stand_in, moved)
    return Fold(
        ranks=symmetry.ranks,
        num_replicas=num_played[_REPLICAS],
        num_parts=num_played[_PARTS],
        stand_in=stand_in,
        num_alike=np.bincount(stand_in, minlength=len(stand_in))[stand_in],
    )


@dataclass(frozen=True, kw_only=True)
class _Symmetry:
    """Finds which replicas or parts of a step can be moved to the places of others; moves are as in `Flows`."""

    parallelism: Parallelism
    router: Router
    speed: Floats
    patterns: Sequence[Pattern]

    def least(self, axis: int) -> tuple[int, list[Integers]]:
        """Returns how many replicas or parts stand for all, the first ones, and the moves that show it."""
        size = int(self.ranks.shape[axis])
        if self.router.topology.circuits is not None:
            return size, []
        for count in (count for count in range(1, size) if size % count == 0):
            for places in _moves(size, count):
                moves = [self._of_ranks(axis, each) for each in places]
                if all(self._is_kept(moved) for moved in moves):
                    return count, moves
        return size, []

    def _of_ranks(self, axis: int, places: Integers) -> Integers:
        moved = np.arange(self.router.topology.num_ranks)
        moved[self.ranks] = np.take(self.ranks, places, axis=axis)
        return moved

    def _is_kept(self, moved: Integers) -> bool:
        # Sends are checked last: their paths can be long, and they do not matter if collectives have changed already.
        is_as_fast = bool((self.speed[moved[: len(self.speed)]] == self.speed).all())
        return is_as_fast and self._collectives.is_kept(moved) and self.flows.is_kept(moved)

    @cached_property
    def ranks(self) -> Integers:
        """`(stages, replicas, parts)`."""
        return self.parallelism.ranks()

    @cached_property
    def flows(self) -> Flows:
        """All that accelerators send to each other."""
        first, last = self.ranks[:-1], self.ranks[1:]
        sends = [(first, last), (last, first)]
        if self.parallelism.num_chunks > 1:
            sends += [(self.ranks[-1:], self.ranks[:1]), (self.ranks[:1], self.ranks[-1:])]
        return Flows.of([*self.patterns, *sends], self.router)

    @cached_property
    def _collectives(self) -> Flows:
        return Flows.of(self.patterns, self.router)


def _moves(size: int, count: int) -> Iterator[list[Integers]]:
    """Yields sets of moves that together lead from each place to all places a multiple of `count` away.

    First a turn, then the swaps of blocks.
    """
    places = np.arange(size)
    yield [np.roll(places, -count)]
    if size & (size - 1) == 0:
        yield [places ^ (count << level) for level in range((size // count).bit_length() - 1)]
