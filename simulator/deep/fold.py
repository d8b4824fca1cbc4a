"""Which accelerators of a traced step have to be played? One of those that do the same at the same time.

Replicas, or parts of operators, are alike where turning all of them around by some number changes nothing: each flow then
takes the way of the one that number further on, over links of the same bandwidth and latency, and each accelerator is as
fast as that one. What is turned into each other is played once:

    accelerators    replicas 0 to a - 1 and parts 0 to b - 1 of a stage stand for all, where turns by a and by b change nothing
    flows           rings among them close on themselves
    links           one stands for those that it is turned into; where k flows that are alike cross it, one of them is played
                    and has 1/k of the bandwidth

This is exact, not a model: max-min rates are unique, so that flows that can be turned into each other have the same.
Nothing is folded where turns change something: an accelerator or link is slower than others, stages or parts of operators
lie in one circle of cables with ends, switches choose between ways of equal cost (ECMP), or links need circuits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simulator.deep.parallelism import Parallelism
from simulator.deep.routing import Paths, Router
from simulator.deep.topology import Topology
from simulator.table import Floats, Integers

_REPLICAS, _PARTS = 1, 2
"""Axes of `Parallelism.ranks`."""


@dataclass(frozen=True, kw_only=True)
class Fold:
    """What stands for what."""

    ranks: Integers
    """`(stages, replicas, parts)` all accelerators."""
    num_replicas: int
    """Replicas that are played; replica i stands for i + `num_replicas`, i + 2 `num_replicas` and so on."""
    num_parts: int
    """The same of parts of operators."""
    stand_in: Integers
    """`(l,)` the link that stands for each link."""
    num_alike: Integers
    """`(l,)` links that one stands for, itself among them."""

    @property
    def played(self) -> Integers:
        """Accelerators that are played, `(stages, num_replicas, num_parts)`."""
        return self.ranks[:, : self.num_replicas, : self.num_parts]

    @property
    def num_each(self) -> int:
        """Accelerators that each of them stands for, itself among them."""
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
        """Returns the network that played flows have for themselves: where k that are alike cross a link, 1/k of it."""
        num_crossing = np.maximum(1, self.num_each // self.num_alike)
        return replace(topology, bandwidth_bytes_per_s=topology.bandwidth_bytes_per_s / num_crossing)

    def of_every_link(self, played: Floats) -> Floats:
        """Returns what comes together on each link, bytes or seconds, `(l,)`, given what played flows add up to on each."""
        return played[self.stand_in] * self.num_each / self.num_alike

    def ways(self, paths: Paths) -> Paths:
        """Returns ways over the links that stand for others."""
        return replace(paths, links=self.stand_in[paths.links])


def find_fold(parallelism: Parallelism, topology: Topology, speed: Floats) -> Fold:
    """Returns the least that has to be played of a step whose collectives run around rings.

    Args:
        parallelism: how the step is divided.
        topology: the network.
        speed: `(num_gpus,)` of each accelerator.

    Raises:
        InputError: no way leads from an accelerator to one that it sends to.
    """
    symmetry = _Symmetry(parallelism=parallelism, topology=topology, speed=speed)
    turns = {axis: symmetry.least_turn(axis) for axis in (_REPLICAS, _PARTS)}
    stand_in = np.arange(topology.num_links)
    for axis, turn in turns.items():
        if turn < symmetry.ranks.shape[axis]:
            stand_in = symmetry.flows.least_of_orbits(stand_in, axis, turn)
    return Fold(
        ranks=symmetry.ranks,
        num_replicas=turns[_REPLICAS],
        num_parts=turns[_PARTS],
        stand_in=stand_in,
        num_alike=np.bincount(stand_in, minlength=topology.num_links)[stand_in],
    )


@dataclass(frozen=True, kw_only=True)
class _Symmetry:
    """Tells by how many places replicas or parts of a step can be turned around."""

    parallelism: Parallelism
    topology: Topology
    speed: Floats

    def least_turn(self, axis: int) -> int:
        """Returns the least turn that changes nothing; all replicas or parts, where none smaller does."""
        size = int(self.ranks.shape[axis])
        if self.topology.circuits is not None:
            return size
        return next(turn for turn in range(1, size + 1) if size % turn == 0 and self._is_kept(axis, turn))

    def _is_kept(self, axis: int, turn: int) -> bool:
        if turn == self.ranks.shape[axis]:
            return True
        speed = self.speed[self.ranks]
        if not (np.roll(speed, -turn, axis=axis) == speed).all():
            return False
        # Sends come last: their ways can be long, and do not matter where rings have changed.
        return self._rings.is_kept(axis, turn) and self.flows.is_kept(axis, turn)

    @cached_property
    def ranks(self) -> Integers:
        """`(stages, replicas, parts)`."""
        return self.parallelism.ranks()

    @cached_property
    def flows(self) -> _Flows:
        """All that accelerators send to each other."""
        num_stages = len(self.ranks)
        first, last = np.arange(num_stages - 1), np.arange(1, num_stages)
        if self.parallelism.num_chunks > 1:
            first, last = np.append(first, num_stages - 1), np.append(last, 0)
        one, other = self.ranks[first], self.ranks[last]
        return _Flows.between([*self._neighbours(), (one, other), (other, one)], self.topology)

    @cached_property
    def _rings(self) -> _Flows:
        return _Flows.between(self._neighbours(), self.topology)

    def _neighbours(self) -> list[tuple[Integers, Integers]]:
        turned = [np.roll(self.ranks, -1, axis=axis) for axis in (_REPLICAS, _PARTS)]
        return [(self.ranks, there) for there in turned if (there != self.ranks).any()]


@dataclass(frozen=True, kw_only=True)
class _Flows:
    """What k patterns send, on a network of l links."""

    ways: Integers
    """`(k, replicas, parts)` numbers of ways."""
    paths: Paths
    topology: Topology

    @staticmethod
    def between(pairs: list[tuple[Integers, Integers]], topology: Topology) -> _Flows:
        """Returns flows from sources to targets, pairs of `(k, replicas, parts)`."""
        router = Router(topology)
        ways = [router.paths(source, target).reshape(source.shape) for source, target in pairs]
        return _Flows(ways=np.concatenate(ways), paths=router.table(), topology=topology)

    def is_kept(self, axis: int, turn: int) -> bool:
        """Returns whether a turn takes the links of all ways to links of the same kind, each to one."""
        num_links = np.diff(self.paths.offsets)[self.ways]
        if not (np.roll(num_links, -turn, axis=axis) == num_links).all():
            return False
        links, there, net = self._links(self.ways), self._links(self._turned(axis, turn)), self.topology
        is_same = (
            (self._image(axis, turn)[links] == there)
            & (net.bandwidth_bytes_per_s[links] == net.bandwidth_bytes_per_s[there])
            & (net.latency_s[links] == net.latency_s[there])
            & (net.ramp_s[links] == net.ramp_s[there])
        )
        return bool(is_same.all())

    def least_of_orbits(self, least: Integers, axis: int, turn: int) -> Integers:
        """Returns the least of `least`, `(l,)`, over the links that each is turned into; the turn changes nothing."""
        image = self._image(axis, turn)
        for _ in range(
            (self.ways.shape[axis] // turn).bit_length()
        ):  # after k rounds: over all turns below 2^k
            least = np.minimum(least, least[image])
            image = image[image]
        return least

    def _image(self, axis: int, turn: int) -> Integers:
        """The link that each link is turned into, `(l,)`; one that is not used stays."""
        image = np.arange(self.topology.num_links)
        image[self._links(self.ways)] = self._links(self._turned(axis, turn))
        return image

    def _turned(self, axis: int, turn: int) -> Integers:
        return np.roll(self.ways, -turn, axis=axis)

    def _links(self, ways: Integers) -> Integers:
        """The links of ways, one behind the other."""
        first = self.paths.offsets[:-1][ways.ravel()]
        sizes = self.paths.offsets[1:][ways.ravel()] - first
        begin = np.repeat(first - (np.cumsum(sizes) - sizes), sizes)
        return self.paths.links[begin + np.arange(len(begin))]
