"""Does the traffic stay the same when accelerators are moved to the places of others?

It does if each flow then takes the path of another one, over links of the same bandwidth, latency and ramp. A move is an array
`(n,)`: the place to which each accelerator goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simulator.deep.collectives.patterns import Pattern
from simulator.deep.networks.routing import Paths, Router
from simulator.table import Integers


@dataclass(frozen=True, kw_only=True)
class Flows:
    """What accelerators send in k patterns, on a network of n of them and l links."""

    targets: Integers
    """`(k, n)` receiver of each accelerator; itself if it sends nothing."""
    router: Router

    @staticmethod
    def of(patterns: Sequence[Pattern], router: Router) -> Flows:
        """Returns the flows of patterns."""
        targets = np.tile(np.arange(router.topology.num_ranks), (len(patterns), 1))
        for row, (source, target) in zip(targets, patterns, strict=True):
            row[source] = target
        return Flows(targets=targets, router=router)

    def is_kept(self, moved: Integers) -> bool:
        """Returns whether moved senders send to moved receivers, over links of the same kind, with links mapped one to one."""
        if not (self.targets[:, moved] == moved[self.targets]).all():
            return False
        ways, paths = self._found
        num_links = np.diff(paths.offsets)[ways]
        if not (num_links[:, moved] == num_links).all():
            return False
        links, there, net = self._links, self._moved_links(moved), self.router.topology
        is_same = (
            (self._image(moved)[links] == there)
            & (net.bandwidth_bytes_per_s[links] == net.bandwidth_bytes_per_s[there])
            & (net.latency_s[links] == net.latency_s[there])
            & (net.ramp_s[links] == net.ramp_s[there])
        )
        return bool(is_same.all())

    def least_of_orbits(self, least: Integers, moved: Integers) -> Integers:
        """Returns the minimum of `least`, `(l,)`, over the links that each link is moved to, by repeated moves."""
        image = self._image(moved)
        for _ in range(len(moved).bit_length()):  # after k rounds: over all moves below 2^k
            least = np.minimum(least, least[image])
            image = image[image]
        return least

    def _image(self, moved: Integers) -> Integers:
        """The link to which each link is moved, `(l,)`; unused links stay."""
        image = np.arange(self.router.topology.num_links)
        image[self._links] = self._moved_links(moved)
        return image

    @cached_property
    def _found(self) -> tuple[Integers, Paths]:
        """`(k, n)` numbers of paths, where a path to oneself has no links; and all paths."""
        ways = np.full(self.targets.shape, self.router.add_path([]))
        is_sent = self.targets != np.arange(self.targets.shape[1])
        ways[is_sent] = self.router.paths(np.nonzero(is_sent)[1], self.targets[is_sent])
        return ways, self.router.table()

    @cached_property
    def _links(self) -> Integers:
        ways, paths = self._found
        return paths.links_along(ways)

    def _moved_links(self, moved: Integers) -> Integers:
        ways, paths = self._found
        return paths.links_along(ways[:, moved])
