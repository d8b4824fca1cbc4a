"""Which link limits a flow, and which flows cross a link? Flows in bundles: over one link, and held by one link.

A max-min fair flow is as fast as one full link on its path allows. That link is its holder, and all flows that a link holds
have the same rate, its level. The bandwidth left for the flows that a link holds depends on the levels of few other links,
however many flows there are. `simulator.deep.playing.ripple` follows a change from level to level along the bundles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import inlined_uncounted, inner_uncounted
from simulator.deep.playing.tasks import NONE
from simulator.table import Booleans, Floats, Integers

NUM_USED, FREE = 0, 1


class Bundles(NamedTuple):
    """Flows by the links that they cross and the link that holds them.

    Places are positions in `path_links`. Lists are doubly linked: bundles over a link, bundles held by a link, places in a
    bundle. Link l, one past the last, stands for the holder of flows that have none yet.
    """

    path_offsets: Integers
    path_links: Integers
    path_of: Integers
    """Path of each place."""
    flows: Integers
    """`(p,)` number of flows of each path that the bundles count."""
    holder: Integers
    """`(p,)` link that holds the flows of each path; `NONE` for a path that is in no bundle."""
    level: Floats
    """`(l + 1,)` bytes/s of a flow that the link holds; `inf` if it holds none, and for the last entry."""
    is_built: Booleans
    """`(l,)` whether all flows over a link are in bundles."""
    over: Integers
    """`(l,)` first bundle over each link."""
    held: Integers
    """`(l + 1,)` first bundle held by each link."""
    link: Integers
    """Of each bundle: the link that its flows cross."""
    by: Integers
    """The link that holds them."""
    num_flows: Integers
    """Number of flows in each bundle."""
    first_place: Integers
    next_over: Integers
    previous_over: Integers
    next_held: Integers
    previous_held: Integers
    bundle: Integers
    """Of each place: the bundle that it is in."""
    next_place: Integers
    previous_place: Integers
    found: Integers
    """`(l,)` scratch: the bundle over each link that is held by the link of `find`."""
    sizes: Integers
    """`(2,)` number of bundles ever used, and the first of the freed ones, which `next_over` links."""


def new_bundles(path_offsets: Integers, path_links: Integers, path_of: Integers, num_links: int) -> Bundles:
    """Returns empty bundles; arrays of zeros take no memory until something is written there."""
    num_paths = len(path_offsets) - 1

    def per_place() -> Integers:
        return np.zeros(len(path_links), np.int64)

    return Bundles(
        path_offsets=path_offsets,
        path_links=path_links,
        path_of=path_of,
        flows=np.zeros(num_paths, np.int64),
        holder=np.full(num_paths, NONE),
        level=np.full(num_links + 1, np.inf),
        is_built=np.ones(num_links, np.bool_),
        over=np.full(num_links, NONE),
        held=np.full(num_links + 1, NONE),
        link=per_place(),
        by=per_place(),
        num_flows=per_place(),
        first_place=per_place(),
        next_over=per_place(),
        previous_over=per_place(),
        next_held=per_place(),
        previous_held=per_place(),
        bundle=per_place(),
        next_place=per_place(),
        previous_place=per_place(),
        found=np.full(num_links, NONE),
        sizes=np.array([0, NONE]),
    )


@inner_uncounted
def find(all_of: Bundles, holder: int) -> None:
    """Records the bundles that a link holds, so that `attach` finds them; `forget` has to follow."""
    bundle = all_of.held[holder]
    while bundle != NONE:
        all_of.found[all_of.link[bundle]] = bundle
        bundle = all_of.next_held[bundle]


@inner_uncounted
def forget(all_of: Bundles, holder: int) -> None:
    """Clears what `find` recorded and `attach` added."""
    bundle = all_of.held[holder]
    while bundle != NONE:
        all_of.found[all_of.link[bundle]] = NONE
        bundle = all_of.next_held[bundle]


@inner_uncounted
def attach(all_of: Bundles, path: int, holder: int, num_flows: int) -> None:
    """Puts the flows of a path into the bundles of a holder, which `find` has recorded."""
    all_of.holder[path] = holder
    all_of.flows[path] = num_flows
    for place in range(all_of.path_offsets[path], all_of.path_offsets[path + 1]):
        link = all_of.path_links[place]
        bundle = all_of.found[link]
        if bundle == NONE:
            bundle = _new_bundle(all_of, link, holder)
            all_of.found[link] = bundle
        all_of.bundle[place] = bundle
        _join(all_of.first_place, all_of.next_place, all_of.previous_place, bundle, place)
        all_of.num_flows[bundle] += num_flows


@inner_uncounted
def detach(all_of: Bundles, path: int) -> None:
    """Takes the flows of a path out of their bundles; bundles that become empty are freed."""
    for place in range(all_of.path_offsets[path], all_of.path_offsets[path + 1]):
        bundle = all_of.bundle[place]
        _leave(all_of.first_place, all_of.next_place, all_of.previous_place, bundle, place)
        all_of.num_flows[bundle] -= all_of.flows[path]
        if all_of.first_place[bundle] == NONE:
            _drop_bundle(all_of, bundle)
    all_of.holder[path] = NONE
    all_of.flows[path] = 0


@inner_uncounted
def recount(all_of: Bundles, path: int, num_flows: int) -> None:
    """Changes the number of flows of a path that stays in its bundles."""
    for place in range(all_of.path_offsets[path], all_of.path_offsets[path + 1]):
        all_of.num_flows[all_of.bundle[place]] += num_flows - all_of.flows[path]
    all_of.flows[path] = num_flows


@inner_uncounted
def _new_bundle(all_of: Bundles, link: int, holder: int) -> int:
    bundle = all_of.sizes[FREE]
    if bundle == NONE:
        bundle = all_of.sizes[NUM_USED]
        all_of.sizes[NUM_USED] += 1
    else:
        all_of.sizes[FREE] = all_of.next_over[bundle]
    all_of.link[bundle], all_of.by[bundle] = link, holder
    all_of.num_flows[bundle], all_of.first_place[bundle] = 0, NONE
    _join(all_of.over, all_of.next_over, all_of.previous_over, link, bundle)
    _join(all_of.held, all_of.next_held, all_of.previous_held, holder, bundle)
    return int(bundle)


@inner_uncounted
def _drop_bundle(all_of: Bundles, bundle: int) -> None:
    _leave(all_of.over, all_of.next_over, all_of.previous_over, all_of.link[bundle], bundle)
    _leave(all_of.held, all_of.next_held, all_of.previous_held, all_of.by[bundle], bundle)
    all_of.next_over[bundle] = all_of.sizes[FREE]
    all_of.sizes[FREE] = bundle


@inlined_uncounted
def _join(first: Integers, behind: Integers, before: Integers, owner: int, item: int) -> None:
    """Inserts an item at the front of the list of an owner."""
    next_item = first[owner]
    behind[item], before[item] = next_item, NONE
    if next_item != NONE:
        before[next_item] = item
    first[owner] = item


@inlined_uncounted
def _leave(first: Integers, behind: Integers, before: Integers, owner: int, item: int) -> None:
    """Removes an item from the list of its owner."""
    next_item, previous_item = behind[item], before[item]
    if previous_item == NONE:
        first[owner] = next_item
    else:
        behind[previous_item] = next_item
    if next_item != NONE:
        before[next_item] = previous_item
