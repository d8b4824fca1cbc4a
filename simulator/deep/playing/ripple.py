"""How far does a change of few flows reach? Max-min fair shares, from level to level of the affected links.

A flow that ends leaves room on the link that held it. The other flows held by this link get faster, and take bandwidth from
others on the links behind it. Most changes die away after few links (bottleneck structures: Ros-Giralt et al., ACM SIGMETRICS
2021). Links are visited in the order of their levels, as in progressive filling (`simulator.deep.playing.sharing`), which
gives the same result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.compiled import inner_uncounted
from simulator.deep.networks.heap import first_item, first_key, set_key
from simulator.deep.playing.bundles import Bundles, attach, detach, find, forget, recount
from simulator.deep.playing.tasks import NONE
from simulator.table import Booleans, Floats, Integers

SAME_FRACTION = 1e-12
"""Levels that differ by less are the same, but for rounding."""
NUM_LINKS, NUM_PATHS = 0, 1


class Ripple(NamedTuple):
    """How far a change has spread."""

    due: Floats
    """A tournament of links, see `heap.first_key`: lower bounds of the levels that have yet to be found."""
    is_reached: Booleans
    """`(l,)` whether a link is among those that the change has reached."""
    is_settled: Booleans
    """`(l + 1,)` whether its level is found."""
    is_rising: Booleans
    """`(l + 1,)` whether its level will rise by an amount that is not known yet."""
    is_new: Booleans
    """`(l,)` whether its level has changed."""
    is_listed: Booleans
    """`(p,)` whether a path is among those that the change has reached."""
    moved: Integers
    """Scratch: paths that move to another holder, once for each time that they cross its link."""
    crossed: Integers
    """`(l,)` scratch: the bundles of one holder."""
    left: Floats
    """`(l,)` bytes/s left for the flows that a link holds, as far as known: a lower bound of the final value."""
    free: Integers
    """`(l,)` number of flows that share `left`."""
    sizes: Integers
    """`(2,)` number of links and of paths reached."""


def new_ripple(num_links: int, num_paths: int, num_places: int) -> Ripple:
    """Returns the state before any change; a path has a place for each time that it crosses a link."""
    return Ripple(
        due=np.full(2 << max(0, num_links - 1).bit_length(), np.inf),
        is_reached=np.zeros(num_links, np.bool_),
        is_settled=np.zeros(num_links + 1, np.bool_),
        is_rising=np.zeros(num_links + 1, np.bool_),
        is_new=np.zeros(num_links, np.bool_),
        is_listed=np.zeros(num_paths, np.bool_),
        moved=np.zeros(num_places, np.int64),
        crossed=np.zeros(num_links, np.int64),
        left=np.zeros(num_links),
        free=np.zeros(num_links, np.int64),
        sizes=np.zeros(2, np.int64),
    )


class Change(NamedTuple):
    """Flows that have come or gone, and the links and paths that this affects."""

    bandwidth_bytes_per_s: Floats
    num_flows: Integers
    """`(p,)` flows on each path now."""
    link_flows: Integers
    """`(l,)` flows over each link now."""
    links: Integers
    """`(l,)` links reached."""
    paths: Integers
    """`(p,)` paths with flows reached."""
    bundles: Bundles
    ripple: Ripple


@inner_uncounted
def spread(change: Change, changed: Integers, num_changed: int) -> tuple[int, int]:
    """Finds the new levels after a change on some paths, all of whose links are built.

    Returns:
        The number of links and of paths with flows that it has reached; they are in `change.links` and `change.paths`.
    """
    ripple, level = change.ripple, change.bundles.level
    ripple.sizes[:] = 0
    _take_in(change, changed, num_changed)
    while not np.isinf(first_key(ripple.due)):
        key, link = first_key(ripple.due), first_item(ripple.due)
        found = _level(change, link)
        if found <= key * (1.0 + SAME_FRACTION):
            set_key(ripple.due, link, np.inf)
            _settle(change, link, found)
        elif np.isinf(found):  # it holds nothing
            set_key(ripple.due, link, np.inf)
            level[link] = np.inf
        else:
            if found > level[link] * (1.0 + SAME_FRACTION) and not ripple.is_rising[link]:
                ripple.is_rising[link] = True
                _reach_held(change, link)
            set_key(ripple.due, link, found)
    return _close(change)


@inner_uncounted
def _take_in(change: Change, changed: Integers, num_changed: int) -> None:
    """Updates the bundles, and reaches all links of the paths that have changed."""
    bundles, nobody = change.bundles, len(change.link_flows)
    for position in range(num_changed):
        path = changed[position]
        flows = change.num_flows[path]
        if flows > 0:
            _list(change, path)
        if bundles.holder[path] == NONE:
            attach(bundles, path, nobody, flows)
        elif flows == 0:
            detach(bundles, path)
        else:
            recount(bundles, path, flows)
    forget(bundles, nobody)
    for position in range(num_changed):
        path = changed[position]
        for place in range(bundles.path_offsets[path], bundles.path_offsets[path + 1]):
            link = bundles.path_links[place]
            if not change.ripple.is_reached[link]:
                _reach(change, link, _level(change, link))


@inner_uncounted
def _level(change: Change, link: int) -> float:
    """What each flow that a link holds would get: its share of what is left by flows that others hold to lower rates."""
    bundles, ripple = change.bundles, change.ripple
    free = change.link_flows[link]
    level = np.inf if free == 0 else change.bandwidth_bytes_per_s[link] / free
    left, last_free = change.bandwidth_bytes_per_s[link], free + 1
    while 0 < free < last_free:  # each round finds more flows that are held to lower rates
        last_free = free
        free, left = change.link_flows[link], change.bandwidth_bytes_per_s[link]
        bundle = bundles.over[link]
        while bundle != NONE:
            by = bundles.by[bundle]
            is_less = ripple.is_settled[by] or (bundles.level[by] < level and not ripple.is_rising[by])
            if is_less and by != link:
                free -= bundles.num_flows[bundle]
                left -= bundles.num_flows[bundle] * bundles.level[by]
            bundle = bundles.next_over[bundle]
        level = np.inf if free == 0 else max(0.0, left) / free
    ripple.left[link], ripple.free[link] = left, free
    return float(level)


@inner_uncounted
def _reach(change: Change, link: int, key: float) -> None:
    """Adds a link to those whose level has to be found, with no larger key than before."""
    _note(change, link)
    due = change.ripple.due
    key = min(key, change.bundles.level[link])
    if not change.ripple.is_settled[link] and key < due[len(due) // 2 + link]:
        set_key(due, link, key)


@inner_uncounted
def _note(change: Change, link: int) -> None:
    """Adds a link to those that were reached."""
    ripple = change.ripple
    if not ripple.is_reached[link]:
        ripple.is_reached[link] = True
        change.links[ripple.sizes[NUM_LINKS]] = link
        ripple.sizes[NUM_LINKS] += 1


@inner_uncounted
def _list(change: Change, path: int) -> None:
    """Adds a path to those that were reached."""
    ripple = change.ripple
    if not ripple.is_listed[path]:
        ripple.is_listed[path] = True
        change.paths[ripple.sizes[NUM_PATHS]] = path
        ripple.sizes[NUM_PATHS] += 1


@inner_uncounted
def _reach_held(change: Change, holder: int) -> None:
    """Reaches all links that flows of a holder cross, before these flows get faster.

    Links that are settled had the holder's level, and hold the flows to it.
    """
    bundles, ripple, num_crossed = change.bundles, change.ripple, 0
    bundle = bundles.held[holder]
    while bundle != NONE:
        ripple.crossed[num_crossed] = bundle
        num_crossed += 1
        bundle = bundles.next_held[bundle]
    for position in range(num_crossed):
        link = bundles.link[ripple.crossed[position]]
        if link != holder and not ripple.is_settled[link]:
            _reach(change, link, _level_without(change, link, ripple.crossed[position]))
    for position in range(num_crossed):
        link = bundles.link[ripple.crossed[position]]
        if ripple.is_settled[link]:
            _take_over(change, link, bundles.level[link])


@inner_uncounted
def _level_without(change: Change, link: int, bundle: int) -> float:
    """A lower bound of what each flow that a link holds would get if it also held those of one more bundle."""
    bundles, ripple = change.bundles, change.ripple
    was, flows = bundles.level[bundles.by[bundle]], bundles.num_flows[bundle]
    free, left = ripple.free[link], ripple.left[link]
    if free == 0 or was * free < left:  # else they are among them, or held to more
        ripple.free[link], ripple.left[link] = free + flows, left + flows * was
    return float(max(0.0, ripple.left[link]) / ripple.free[link])


@inner_uncounted
def _settle(change: Change, link: int, level: float) -> None:
    """Gives a link its level, and takes over the flows that other links would let be faster."""
    bundles, ripple = change.bundles, change.ripple
    ripple.is_settled[link] = True
    _take_over(change, link, level)
    was = bundles.level[link]
    if abs(level - was) <= SAME_FRACTION * level:
        return
    bundles.level[link] = level
    ripple.is_new[link] = True
    if level < was:
        bundle = bundles.held[link]
        while bundle != NONE:
            _reach(change, bundles.link[bundle], np.inf)  # which can only rise
            bundle = bundles.next_held[bundle]


@inner_uncounted
def _take_over(change: Change, link: int, level: float) -> None:
    bundles, ripple, num_moved = change.bundles, change.ripple, 0
    bundle = bundles.over[link]
    while bundle != NONE:
        by = bundles.by[bundle]
        is_more = ripple.is_rising[by] or bundles.level[by] > level * (1.0 + SAME_FRACTION)
        if by != link and is_more and not ripple.is_settled[by]:
            place = bundles.first_place[bundle]
            while place != NONE:
                ripple.moved[num_moved] = bundles.path_of[place]
                num_moved += 1
                place = bundles.next_place[place]
        bundle = bundles.next_over[bundle]
    if num_moved == 0:
        return
    find(bundles, link)
    for position in range(num_moved):
        path = ripple.moved[position]
        if bundles.holder[path] == link:
            continue  # it crosses the link twice
        _list(change, path)
        flows = bundles.flows[path]
        detach(bundles, path)
        attach(bundles, path, link, flows)
        for place in range(bundles.path_offsets[path], bundles.path_offsets[path + 1]):
            _reach(change, bundles.path_links[place], np.inf)  # which can only rise
    forget(bundles, link)


@inner_uncounted
def _close(change: Change) -> tuple[int, int]:
    """Lists the paths whose rates have changed, and resets what was reached; returns the number of links and of paths."""
    ripple = change.ripple
    num_links = ripple.sizes[NUM_LINKS]
    for position in range(num_links):
        link = change.links[position]
        if ripple.is_new[link]:
            _list_held(change, link)
        ripple.is_reached[link] = ripple.is_settled[link] = False
        ripple.is_rising[link] = ripple.is_new[link] = False
    num_paths = ripple.sizes[NUM_PATHS]
    for position in range(num_paths):
        ripple.is_listed[change.paths[position]] = False
    return int(num_links), int(num_paths)


@inner_uncounted
def _list_held(change: Change, link: int) -> None:
    """Lists the paths whose flows a link holds."""
    bundles = change.bundles
    bundle = bundles.over[link]
    while bundle != NONE and bundles.by[bundle] != link:
        bundle = bundles.next_over[bundle]
    place = bundles.first_place[bundle] if bundle != NONE else NONE
    while place != NONE:
        _list(change, bundles.path_of[place])
        place = bundles.next_place[place]


@inner_uncounted
def left_over(change: Change, link: int) -> float:
    """Recomputes what others leave to the flows that a link holds; returns the bytes/s that these leave in turn."""
    bundles, ripple = change.bundles, change.ripple
    left, free = change.bandwidth_bytes_per_s[link], 0
    bundle = bundles.over[link]
    while bundle != NONE:
        by, flows = bundles.by[bundle], bundles.num_flows[bundle]
        if by == link:
            free = flows
        else:
            left -= flows * bundles.level[by]
        bundle = bundles.next_over[bundle]
    ripple.left[link], ripple.free[link] = left, free
    return float(left - free * bundles.level[link] if free > 0 else left)
