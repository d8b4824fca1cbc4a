"""Are the shares of flows max-min fair? Judged by linear programs that know nothing of progressive filling."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import unwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from simulator.deep.playing.sharing import (
    BUILT,
    FILLED,
    SPREAD,
    Sharing,
    follow,
    new_sharing,
)
from simulator.table import Floats, Integers

TOLERANCE = 1e-6
"""Of the linear programs, relative."""


def columns(paths: list[list[int]]) -> tuple[Integers, Integers]:
    offsets = np.cumsum([0, *(len(path) for path in paths)])
    return offsets.astype(np.int64), np.array([link for path in paths for link in path], dtype=np.int64)


def max_min_rates(
    path_offsets: Integers, path_links: Integers, bandwidth_bytes_per_s: Floats, num_flows: Integers
) -> Floats:
    """The rate `(p,)` of each flow of every path of a network that is filled at once."""
    sharing, change = new_sharing(path_offsets, path_links, bandwidth_bytes_per_s)
    sharing.num_flows[:] = num_flows
    flows = np.repeat(num_flows, np.diff(path_offsets))
    sharing.link_flows[:] = np.bincount(path_links, weights=flows, minlength=len(bandwidth_bytes_per_s))
    is_max_min = True
    follow(sharing, change, np.arange(len(num_flows)), is_max_min)
    return sharing.rate_bytes_per_s


def fair_by_programs(paths: list[list[int]], bandwidth: list[float], num_flows: list[int]) -> Floats:
    """Raises the least rate as far as it goes, fixes the paths that cannot have more, and goes on with the others."""
    fixed: dict[int, float] = {}
    while len(fixed) < len(paths):
        least = best(paths, bandwidth, num_flows, fixed, None, 0.0)
        stuck = {
            path
            for path in range(len(paths))
            if path not in fixed
            and best(paths, bandwidth, num_flows, fixed, path, least) <= least * (1.0 + TOLERANCE)
        }
        assert stuck
        fixed |= dict.fromkeys(stuck, least)
    return np.array([fixed[path] for path in range(len(paths))])


def best(
    paths: list[list[int]],
    bandwidth: list[float],
    num_flows: list[int],
    fixed: dict[int, float],
    wanted: int | None,
    least: float,
) -> float:
    """The largest rate that all free paths can have at once, or that the wanted one can have if all others have `least`."""
    num_paths = len(paths)
    used = np.zeros((len(bandwidth), num_paths + 1))
    for path, links in enumerate(paths):
        for link in links:
            used[link, path] += num_flows[path]
    # The last variable is the rate that is raised.
    at_most = np.eye(num_paths + 1)[-1] - np.eye(num_paths + 1)[:-1]
    raised = [path == wanted or (wanted is None and path not in fixed) for path in range(num_paths)]
    limits = np.vstack([used, at_most[raised]])
    bounds = [
        (fixed[path],) * 2 if path in fixed else (least * (1.0 - 1e-9), None) for path in range(num_paths)
    ]
    found = linprog(
        c=-np.eye(num_paths + 1)[-1],
        A_ub=limits,
        b_ub=np.concatenate([bandwidth, np.zeros(len(limits) - len(bandwidth))]),
        bounds=[*bounds, (0.0, None)],
    )
    assert found.x is not None, found.message
    return float(found.x[-1])


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[list[int]], list[float], list[int]]:
    num_links = draw(st.integers(1, 7))
    bandwidth = draw(st.lists(st.floats(1.0, 100.0), min_size=num_links, max_size=num_links))
    way = st.lists(st.integers(0, num_links - 1), min_size=1, max_size=4, unique=True)
    paths = draw(st.lists(way, min_size=1, max_size=8))
    flows = draw(st.lists(st.integers(1, 3), min_size=len(paths), max_size=len(paths)))
    return paths, bandwidth, flows


@given(networks())
def test_rates_equal_those_of_linear_programs(
    network: tuple[list[list[int]], list[float], list[int]],
) -> None:
    paths, bandwidth, num_flows = network
    rates = max_min_rates(*columns(paths), np.array(bandwidth), np.array(num_flows))
    assert rates == pytest.approx(fair_by_programs(paths, bandwidth, num_flows), rel=1e-4)


@given(st.integers(0, 2**32 - 1))
def test_no_link_is_overloaded_and_every_flow_is_held_by_a_full_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    num_links = int(random.integers(2, 60))
    bandwidth = random.uniform(1.0, 100.0, num_links)
    paths = [
        random.choice(num_links, size=random.integers(1, min(6, num_links)), replace=False).tolist()
        for _ in range(int(random.integers(1, 120)))
    ]
    flows = random.integers(1, 5, len(paths))
    rates = max_min_rates(*columns(paths), bandwidth, flows)
    load = np.zeros(num_links)
    for path, rate, count in zip(paths, rates, flows, strict=True):
        load[path] += rate * count
    assert np.all(load <= bandwidth * (1.0 + 1e-9))
    is_full = load >= bandwidth * (1.0 - 1e-9)
    for path, rate in zip(paths, rates, strict=True):
        # Bertsekas and Gallager, section 6.5.2: on a bottleneck no flow has more than those that it holds.
        assert any(
            is_full[link]
            and all(
                rate >= other * (1.0 - 1e-9) for way, other in zip(paths, rates, strict=True) if link in way
            )
            for link in path
        )


def test_what_one_flow_cannot_use_goes_to_the_others() -> None:
    # Link 0 of 10 carries two flows, one of which is held to 2 by link 1.
    rates = max_min_rates(*columns([[0], [0, 1]]), np.array([10.0, 2.0]), np.array([1, 1]))
    assert rates.tolist() == [8.0, 2.0]


def test_a_path_without_flows_has_no_rate_and_one_without_links_no_limit() -> None:
    rates = max_min_rates(*columns([[0], [], [0]]), np.array([10.0]), np.array([0, 1, 2]))
    assert rates.tolist() == [0.0, np.inf, 5.0]


def changed_in_steps(
    columns_of: tuple[Integers, Integers], bandwidth: Floats, random: np.random.Generator
) -> Iterator[tuple[Sharing, int]]:
    """Lets all paths have flows, then changes few of them at a time; yields the network and how it was shared out."""
    offsets, links = columns_of
    net, change = new_sharing(offsets, links, bandwidth)
    num_paths, is_max_min = len(offsets) - 1, True
    for step in range(40):
        size = num_paths if step == 0 else min(num_paths, int(random.integers(1, 4)))
        changed = random.choice(num_paths, size=size, replace=False).astype(np.int64)
        net.num_flows[changed] = (net.num_flows[changed] + random.integers(1, 3, size)) % 3
        flows = np.repeat(net.num_flows, np.diff(offsets))
        net.link_flows[:] = np.bincount(links, weights=flows, minlength=len(bandwidth))
        yield net, follow(net, change, changed, is_max_min)


@pytest.mark.short(1)
@pytest.mark.parametrize("is_regular", [False, True])
@given(seed=st.integers(0, 2**32 - 1))
def test_what_a_change_reaches_gets_the_rates_of_a_network_filled_anew(seed: int, is_regular: bool) -> None:
    random = np.random.default_rng(seed)
    num_links = int(random.integers(2, 60))
    # Few bandwidths, so that many links are full at the same rate, or all different.
    bandwidth = random.choice([1.0, 2.0, 4.0], num_links) if is_regular else random.uniform(1, 100, num_links)
    paths = [
        random.choice(num_links, size=random.integers(1, min(6, num_links) + 1), replace=False).tolist()
        for _ in range(int(random.integers(1, 200)))
    ]
    ways = columns(paths)
    for net, _ in changed_in_steps(ways, bandwidth, random):
        has_flows = net.num_flows > 0
        anew = max_min_rates(*ways, bandwidth, net.num_flows)
        np.testing.assert_allclose(net.rate_bytes_per_s[has_flows], anew[has_flows], rtol=1e-12)  # rounding
        load = np.zeros(num_links)
        np.add.at(load, ways[1], np.repeat(np.where(has_flows, anew * net.num_flows, 0.0), np.diff(ways[0])))
        assert net.is_full.tolist() == (load >= bandwidth * (1.0 - 1e-9)).tolist()


def test_few_changes_among_many_flows_are_followed_and_not_filled_anew() -> None:
    random = np.random.default_rng(1)
    ways = columns([random.choice(40, size=4, replace=False).tolist() for _ in range(300)])
    hows = [how for _, how in changed_in_steps(ways, random.uniform(1, 100, 40), random)]
    assert hows == [FILLED, BUILT, *[SPREAD] * 38]


def test_flows_that_cross_a_link_many_times_move_to_it_at_once() -> None:
    # The first path has most of the last link, until it has 30 flows: then all share the last link alike.
    num_paths, times = 20, 16
    paths = [[own, *[num_paths] * times] for own in range(num_paths)]
    bandwidth = np.array([100.0, *[1.0] * (num_paths - 1), times * 24.0])
    net, change = new_sharing(*columns(paths), bandwidth)
    hows, is_max_min = [], True
    for changed, num_flows in ((np.arange(num_paths), 1), (np.array([1]), 1), (np.array([0]), 30)):
        net.num_flows[changed] = num_flows
        net.link_flows[:] = [*net.num_flows, times * net.num_flows.sum()]
        hows.append(unwrap(follow)(net, change, changed, is_max_min))  # not compiled: bounds count
    assert hows == [FILLED, BUILT, SPREAD]
    assert net.rate_bytes_per_s == pytest.approx(24.0 / 49.0)


def test_changes_that_are_followed_end_at_the_rates_of_linear_programs() -> None:
    random = np.random.default_rng(2)
    paths = [random.choice(6, size=2, replace=False).tolist() for _ in range(40)]
    bandwidth = random.uniform(1.0, 100.0, 6)
    last, how = list(changed_in_steps(columns(paths), bandwidth, random))[-1]
    assert how == SPREAD
    active = np.flatnonzero(last.num_flows)
    fair = fair_by_programs(
        [paths[path] for path in active], bandwidth.tolist(), last.num_flows[active].tolist()
    )
    assert last.rate_bytes_per_s[active] == pytest.approx(fair, rel=1e-4)
