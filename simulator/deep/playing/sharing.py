"""How much of the network does each flow get? Max-min fair shares, by progressive filling.

All flows grow at the same rate until a link is full; the flows on it keep their rate, and the others grow on
(Bertsekas and Gallager, Data Networks, section 6.5.2). Flows on the same path get the same rate, so paths are filled, each
with the number of its flows. A change of flows affects only those that share a link with them, directly or through others.
Where that part of the network is small, or much of it has changed, it is filled anew. Where few flows of many have changed,
the change is followed from link to link (`simulator.deep.playing.ripple`), and most flows are left as they are.

`equal_split` gives a flow its share of the fullest link, without handing on what others cannot use (TrioSim's rule).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import compiled_uncounted, inner_uncounted
from simulator.deep.networks.heap import pop, push
from simulator.deep.playing.bundles import attach, detach, find, forget, new_bundles
from simulator.deep.playing.ripple import Change, left_over, new_ripple, spread
from simulator.deep.playing.tasks import NONE
from simulator.table import Booleans, Floats, Integers

FULL_FRACTION = 1e-9
"""A link with less than this share of its bandwidth left is full."""
SAME_FRACTION = 1e-12
"""Shares that differ by less are the same, but for rounding."""
NUM_ROUNDS = 4
"""Number of rounds over all links before the rest is sorted."""
SMALL_FACTOR = 8
"""A part of the network is small if its paths cross at most this many times the links of the changed paths."""
FILLED, BUILT, SPREAD = 0, 1, 2
"""How a part is shared out: filled anew, filled with bundles built for the next change, or only as far as a change reaches."""


class Sharing(NamedTuple):
    """The state of a network whose flows share links; the kernels write into its arrays."""

    path_offsets: Integers
    path_links: Integers
    link_offsets: Integers
    """`(l + 1,)` where the paths over a link begin in `link_paths`."""
    link_paths: Integers
    bandwidth_bytes_per_s: Floats
    num_flows: Integers
    """`(p,)` flows on each path now."""
    shared_flows: Integers
    """`(p,)` number of flows for which the rates hold."""
    rate_bytes_per_s: Floats
    """`(p,)` rate of each flow of a path."""
    link_flows: Integers
    """`(l,)` flows over each link."""
    is_full: Booleans
    """`(l,)`."""
    left_bytes_per_s: Floats
    """`(l,)` scratch: bandwidth left of a link while it is filled."""
    left_flows: Integers
    """`(l,)` scratch: flows that still grow."""
    seen_link: Booleans
    seen_path: Booleans
    links: Integers
    """Scratch: the links of the part that is being filled."""
    paths: Integers
    """The paths of that part that have flows."""
    share: Floats
    """`(l,)` scratch: heap of shares, with the links that have them."""
    shared_link: Integers
    level: Floats
    """`(l + 1,)` of the bundles, see `simulator.deep.playing.bundles`."""


def new_sharing(
    path_offsets: Integers, path_links: Integers, bandwidth_bytes_per_s: Floats
) -> tuple[Sharing, Change]:
    """Returns a network without flows, and the state that follows changes of its flows from link to link."""
    num_paths, num_links = len(path_offsets) - 1, len(bandwidth_bytes_per_s)
    path_of = np.repeat(np.arange(num_paths), np.diff(path_offsets))
    order = np.argsort(path_links, kind="stable")
    counts = np.bincount(path_links, minlength=num_links)
    num_flows, link_flows = np.zeros(num_paths, np.int64), np.zeros(num_links, np.int64)
    links, paths = np.zeros(num_links, np.int64), np.zeros(num_paths, np.int64)
    change = Change(
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        num_flows=num_flows,
        link_flows=link_flows,
        links=links,
        paths=paths,
        bundles=new_bundles(path_offsets, path_links, path_of, num_links),
        ripple=new_ripple(num_links, num_paths, len(path_links)),
    )
    net = Sharing(
        path_offsets=path_offsets,
        path_links=path_links,
        link_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        link_paths=path_of[order],
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        num_flows=num_flows,
        shared_flows=np.zeros(num_paths, np.int64),
        rate_bytes_per_s=np.zeros(num_paths),
        link_flows=link_flows,
        is_full=np.zeros(num_links, np.bool_),
        left_bytes_per_s=np.zeros(num_links),
        left_flows=np.zeros(num_links, np.int64),
        seen_link=np.zeros(num_links, np.bool_),
        seen_path=np.zeros(num_paths, np.bool_),
        links=links,
        paths=paths,
        share=np.zeros(num_links),
        shared_link=np.zeros(num_links, np.int64),
        level=change.bundles.level,
    )
    return net, change


@compiled_uncounted
def follow(net: Sharing, change: Change, changed: Integers, is_max_min: bool) -> int:
    """Shares out a network after the flows of some paths have changed; returns how it was done."""
    num_links, num_paths, how = reach(net, change, changed, len(changed), is_max_min)
    share_out(net, change, num_links, num_paths, how, is_max_min)
    return int(how)


@inner_uncounted
def reach(
    net: Sharing, change: Change, changed: Integers, num_changed: int, is_max_min: bool
) -> tuple[int, int, int]:
    """Finds what a change on `changed` paths affects: `net.links` and `net.paths` with flows; `share_out` follows.

    Returns:
        The number of links and of paths, and how they are shared out.
    """
    places, is_built = 0, True
    for position in range(num_changed):
        path = changed[position]
        places += net.path_offsets[path + 1] - net.path_offsets[path]
        for place in range(net.path_offsets[path], net.path_offsets[path + 1]):
            is_built &= change.bundles.is_built[net.path_links[place]]
    most_places = SMALL_FACTOR * places if is_max_min else len(net.path_links)
    num_links, num_paths = touch(net, changed, num_changed, is_max_min, most_places)
    how = FILLED
    if num_links == NONE and is_built:
        num_links, num_paths = spread(change, changed, num_changed)
        how = SPREAD
    elif num_links == NONE:
        num_links, num_paths = touch(net, changed, num_changed, is_max_min, len(net.path_links))
        how = BUILT
    for position in range(num_changed):
        path = changed[position]
        net.shared_flows[path] = net.num_flows[path]
        if how != SPREAD and net.num_flows[path] == 0:
            leave_bundles(change, path)
    return num_links, num_paths, how


@inner_uncounted
def share_out(
    net: Sharing, change: Change, num_links: int, num_paths: int, how: int, is_max_min: bool
) -> None:
    """Gives the flows that `reach` found their rates."""
    if how == SPREAD:
        _take_levels(net, change, num_links, num_paths)
        return
    for position in range(num_paths):
        leave_bundles(change, net.paths[position])
    for position in range(num_links):
        link = net.links[position]
        change.bundles.level[link] = np.inf
        change.bundles.is_built[link] = net.link_flows[link] == 0
    if is_max_min:
        _fill_up(net, num_links, num_paths)
    else:
        _split(net, num_links, num_paths)
    if how == BUILT:
        _build(net, change, num_links)


@inner_uncounted
def leave_bundles(change: Change, path: int) -> None:
    """Takes the flows of a path out of their bundles, if they are in any."""
    if change.bundles.holder[path] != NONE:
        detach(change.bundles, path)


@inner_uncounted
def _build(net: Sharing, change: Change, num_links: int) -> None:
    """Puts flows that have just been shared out into bundles, by the first link that holds them."""
    bundles = change.bundles
    for position in range(num_links):
        link = net.links[position]
        bundles.is_built[link] = True
        if np.isinf(bundles.level[link]):
            continue
        find(bundles, link)
        for place in range(net.link_offsets[link], net.link_offsets[link + 1]):
            path = net.link_paths[place]
            is_held = net.num_flows[path] > 0 and net.rate_bytes_per_s[path] == bundles.level[link]
            if is_held and bundles.holder[path] == NONE:
                attach(bundles, path, link, net.num_flows[path])
        forget(bundles, link)
    for position in range(num_links):
        left_over(change, net.links[position])


@inner_uncounted
def _take_levels(net: Sharing, change: Change, num_links: int, num_paths: int) -> None:
    """Gives flows the levels of the links that hold them."""
    bundles = change.bundles
    for position in range(num_paths):
        path = net.paths[position]
        net.rate_bytes_per_s[path] = bundles.level[bundles.holder[path]]
    for position in range(num_links):
        link = net.links[position]
        left = left_over(change, link)
        net.is_full[link] = (
            net.link_flows[link] > 0 and left <= FULL_FRACTION * net.bandwidth_bytes_per_s[link]
        )


@inner_uncounted
def touch(
    net: Sharing, changed: Integers, num_changed: int, is_max_min: bool, most_places: int
) -> tuple[int, int]:
    """Finds the part of the network that contains the `changed` paths: `net.links` and `net.paths` with flows.

    Returns:
        Their numbers, or `NONE` if the paths cross more than `most_places` links, counted once per path.
    """
    num_links, num_paths, done, places = 0, 0, 0, 0
    for position in range(num_changed):
        path = changed[position]
        net.seen_path[path] = True
        if net.num_flows[path] > 0:
            net.paths[num_paths] = path
            num_paths += 1
        num_links = _add_links(net, path, num_links)
    while done < num_links and places <= most_places:
        link = net.links[done]
        done += 1
        for place in range(net.link_offsets[link], net.link_offsets[link + 1]):
            path = net.link_paths[place]
            if net.num_flows[path] > 0 and not net.seen_path[path] and places <= most_places:
                net.seen_path[path] = True
                net.paths[num_paths] = path
                num_paths += 1
                places += net.path_offsets[path + 1] - net.path_offsets[path]
                if is_max_min:
                    num_links = _add_links(net, path, num_links)
    for position in range(num_links):
        net.seen_link[net.links[position]] = False
    for position in range(num_paths):
        net.seen_path[net.paths[position]] = False
    for position in range(num_changed):
        net.seen_path[changed[position]] = False
    return (num_links, num_paths) if places <= most_places else (NONE, NONE)


@inner_uncounted
def _split(net: Sharing, num_links: int, num_paths: int) -> None:
    """Gives every flow the lowest of its equal shares of its links."""
    for position in range(num_paths):
        path = net.paths[position]
        rate = np.inf
        for place in range(net.path_offsets[path], net.path_offsets[path + 1]):
            link = net.path_links[place]
            rate = min(rate, net.bandwidth_bytes_per_s[link] / net.link_flows[link])
        net.rate_bytes_per_s[path] = rate
    for position in range(num_links):
        link = net.links[position]
        net.is_full[link] = net.link_flows[link] > 0


@inner_uncounted
def _add_links(net: Sharing, path: int, num_links: int) -> int:
    for place in range(net.path_offsets[path], net.path_offsets[path + 1]):
        link = net.path_links[place]
        if not net.seen_link[link]:
            net.seen_link[link] = True
            net.links[num_links] = link
            num_links += 1
    return num_links


@inner_uncounted
def _fill_up(net: Sharing, num_links: int, num_paths: int) -> None:
    """Progressive filling: the links with the lowest share per flow settle their flows, then the next ones.

    Networks are regular, so many links have the lowest share at once, and a few rounds over all links do most of the work.
    The rest is taken link by link from a heap.
    """
    for position in range(num_links):
        link = net.links[position]
        net.left_bytes_per_s[link] = net.bandwidth_bytes_per_s[link]
        net.left_flows[link] = net.link_flows[link]
    for position in range(num_paths):
        net.rate_bytes_per_s[net.paths[position]] = np.inf
    is_filled = False
    for _ in range(NUM_ROUNDS):
        is_filled = is_filled or not _fill_round(net, num_links)
    if not is_filled:
        _fill_from_heap(net, num_links)
    for position in range(num_links):
        link = net.links[position]
        left = net.left_bytes_per_s[link]
        net.is_full[link] = (
            net.link_flows[link] > 0 and left <= FULL_FRACTION * net.bandwidth_bytes_per_s[link]
        )


@inner_uncounted
def _fill_round(net: Sharing, num_links: int) -> bool:
    """Settles all links that have the lowest share; returns whether there was one."""
    least = np.inf
    for position in range(num_links):
        link = net.links[position]
        if net.left_flows[link] > 0:
            least = min(least, _share(net, link))
    if np.isinf(least):
        return False
    for position in range(num_links):
        link = net.links[position]
        if net.left_flows[link] > 0 and _share(net, link) <= least * (1.0 + SAME_FRACTION):
            _settle(net, link, least)
    return True


@inner_uncounted
def _fill_from_heap(net: Sharing, num_links: int) -> None:
    """Fills the rest, the link with the lowest share first; shares only grow, so outdated ones are too small."""
    size = 0
    for position in range(num_links):
        link = net.links[position]
        if net.left_flows[link] > 0:
            size = push(net.share, net.shared_link, size, _share(net, link), link)
    while size > 0:
        share, link = net.share[0], net.shared_link[0]
        size = pop(net.share, net.shared_link, size)
        if net.left_flows[link] == 0:
            continue
        current = _share(net, link)
        if current > share * (1.0 + SAME_FRACTION):
            size = push(net.share, net.shared_link, size, current, link)
        else:
            _settle(net, link, current)


@inner_uncounted
def _settle(net: Sharing, link: int, rate: float) -> None:
    """Gives the flows of a full link their final rate."""
    net.level[link] = rate
    for place in range(net.link_offsets[link], net.link_offsets[link + 1]):
        path = net.link_paths[place]
        if net.num_flows[path] > 0 and np.isinf(net.rate_bytes_per_s[path]):
            net.rate_bytes_per_s[path] = rate
            _take_from_links(net, path, rate)


@inner_uncounted
def _share(net: Sharing, link: int) -> float:
    return float(max(0.0, net.left_bytes_per_s[link]) / net.left_flows[link])


@inner_uncounted
def _take_from_links(net: Sharing, path: int, rate: float) -> None:
    flows = net.num_flows[path]
    for place in range(net.path_offsets[path], net.path_offsets[path + 1]):
        link = net.path_links[place]
        net.left_bytes_per_s[link] -= rate * flows
        net.left_flows[link] -= flows
