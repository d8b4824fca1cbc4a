"""Does decentralised training take the time that follows from its rules, and who waits for whom?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.deep.networks.topologies import fully_connected, switch
from simulator.deep.networks.topology import Topology, TopologyBuilder
from simulator.deep.playing.play import play
from simulator.deep.traced_steps.hop import HopResult, HopRules, hop_result, hop_step
from simulator.deep.traced_steps.hop_graphs import HopGraph, checked_graph, hop_graph
from simulator.errors import InputError
from simulator.table import Floats, Integers

SLOW = 4.4
"""Seconds of the slow worker; the others take one."""
WORKERS = 8


def direct(num_workers: int, latency_s: float = 0.0) -> Topology:
    """A cable from each to each on which a byte takes no time that counts."""
    return fully_connected(num_workers, 1e15, latency_s)


def trained(
    compute_s: Floats,
    edges: Integers,
    rules: HopRules,
    *,
    topology: Topology | None = None,
    num_bytes: float = 1.0,
) -> HopResult:
    network = topology or direct(compute_s.shape[1])
    step = hop_step(compute_s, num_bytes, edges, network, rules)
    return hop_result(step, play(step.graph, network, step.paths))


def one_slow(rules: HopRules) -> HopResult:
    compute_s = np.ones((40, WORKERS))
    compute_s[:, 0] = SLOW
    return trained(compute_s, hop_graph(HopGraph.RING, WORKERS), rules)


def distances() -> Integers:
    """Of the workers of a ring from the slow one."""
    workers = np.arange(WORKERS)
    return np.minimum(workers, WORKERS - workers)


class TestGraphs:
    def test_edges_of_each_graph(self) -> None:
        # Neighbours of a worker: 2 on a ring, one more opposite, one more in the other ring, all.
        for kind, degree in zip(HopGraph, (2, 3, 4, 15), strict=True):
            edges = hop_graph(kind, 16)
            assert np.bincount(edges[:, 0]).tolist() == [degree] * 16
            assert {tuple(edge) for edge in edges.tolist()} == {(b, a) for a, b in edges.tolist()}
        assert [3, 11] in hop_graph(HopGraph.RING_BASED, 16).tolist()
        assert [3, 11] in hop_graph(HopGraph.DOUBLE_RING, 16).tolist()
        assert [3, 7] in hop_graph(HopGraph.DOUBLE_RING, 16).tolist()

    def test_each_graph_has_a_smallest_one(self) -> None:
        for kind, size in zip(HopGraph, (2, 2, 4, 2), strict=True):
            assert np.unique(hop_graph(kind, size)).tolist() == list(range(size))
            with pytest.raises(InputError, match=f"needs|workers|{kind.value}"):
                hop_graph(kind, size - 1)

    @pytest.mark.parametrize(
        ("kind", "size", "rule"),
        [
            (HopGraph.RING, 1, "at least 2 workers"),
            (HopGraph.RING_BASED, 5, "an even number"),
            (HopGraph.DOUBLE_RING, 6, "in fours"),
        ],
    )
    def test_numbers_that_make_no_graph_are_refused(self, kind: HopGraph, size: int, rule: str) -> None:
        with pytest.raises(InputError, match=rule):
            hop_graph(kind, size)

    @pytest.mark.parametrize(
        ("pairs", "rule"),
        [
            ([[0, 3], [1, 0]], "must be two workers, 0 to 2"),
            ([[0, 0], [1, 2]], "joins a worker to itself"),
            ([[0, 1], [1, 0], [0, 1]], "names a pair twice"),
            ([[0, 1], [1, 2]], "worker 2: sends to nobody"),
            ([[0, 1], [2, 1], [1, 0]], "worker 2: hears from nobody"),
        ],
    )
    def test_broken_graphs_are_refused(self, pairs: list[list[int]], rule: str) -> None:
        with pytest.raises(InputError, match=rule):
            checked_graph(pairs, 3)

    def test_a_given_graph_may_lead_one_way(self) -> None:
        # Around a circle of three that sends one way only: everybody waits for the one before it.
        compute_s = np.array([[1.0, 1.0, 5.0]] * 2)
        result = trained(compute_s, checked_graph([[2, 0], [0, 1], [1, 2]], 3), HopRules())
        assert result.entered_s[-1].tolist() == pytest.approx([5.0, 2.0, 10.0])


class TestClosedForms:
    def test_equal_workers_take_the_longer_of_computing_and_sending(self) -> None:
        # Every pair has a cable of its own: an update of 300 bytes takes 0.5 + 3 s.
        network = fully_connected(WORKERS, 100.0, 0.5)
        for compute_s, iteration_s in ((1.0, 3.5), (5.0, 5.0)):
            times = np.full((10, WORKERS), compute_s)
            edges = hop_graph(HopGraph.COMPLETE, WORKERS)
            result = trained(times, edges, HopRules(), topology=network, num_bytes=300.0)
            assert result.entered_s == pytest.approx(np.outer(np.arange(11), [iteration_s] * WORKERS))
            assert result.for_updates_s == pytest.approx(10 * (iteration_s - compute_s))
            assert result.largest_gap == 0

    def test_updates_share_the_cable_of_their_sender(self) -> None:
        # Each of four workers sends three updates of 100 bytes through one cable of 100 bytes a second.
        network = switch(4, 100.0, 0.0)
        edges = hop_graph(HopGraph.COMPLETE, 4)
        result = trained(np.ones((5, 4)), edges, HopRules(), topology=network, num_bytes=100.0)
        assert result.iterations_per_s == pytest.approx(1 / 3)

    def test_everybody_ends_up_as_slow_as_the_slowest(self) -> None:
        # A worker at distance h is h iterations ahead, one for each update on the way.
        result = one_slow(HopRules(max_gap=10))
        iteration = np.arange(41)[:, None]
        expected = np.maximum(iteration, (iteration - distances()) * SLOW)
        assert result.entered_s == pytest.approx(expected)
        assert result.largest_gap == 1
        assert result.waited_for_s[1, 0] == pytest.approx(39 * SLOW - 40)
        assert result.for_updates_s[1] == pytest.approx(39 * SLOW - 40)

    def test_bounded_staleness_lets_neighbours_be_so_many_iterations_further_ahead(self) -> None:
        result = one_slow(HopRules(max_gap=10, staleness=3))
        iteration = np.arange(41)[:, None]
        expected = np.maximum(iteration, (iteration - 4 * distances()) * SLOW)
        assert result.entered_s == pytest.approx(expected)
        assert result.largest_gap == 4

    def test_with_a_backup_worker_nobody_waits_for_the_slow_one_until_tokens_run_out(self) -> None:
        result = one_slow(HopRules(max_gap=10, num_backups=1))
        iteration = np.arange(41)[:, None]
        expected = np.maximum(iteration, (iteration - 10 * distances()) * SLOW)
        assert result.entered_s == pytest.approx(expected)
        assert result.largest_gap == 10
        assert result.for_updates_s == pytest.approx(0.0)
        assert result.for_tokens_s[1] == pytest.approx(30 * SLOW - 40)
        assert result.waited_for_s[1].tolist() == pytest.approx([30 * SLOW - 40] + [0.0] * 7)

    def test_a_slow_worker_that_skips_keeps_nobody_waiting(self) -> None:
        result = one_slow(HopRules(max_gap=10, num_backups=1, skip_behind=2))
        assert result.entered_s[:, 1:] == pytest.approx(np.outer(np.arange(41), np.ones(WORKERS - 1)))
        # When it is through with one, the others have entered as many as seconds have passed; it goes on one above
        # the last that is two behind. Of the last two iterations nobody can be two ahead.
        computed, now_s, following = [], 0.0, 0
        while following < 40:
            computed.append(following)
            now_s += SLOW
            following = max(following + 1, min(38, math.floor(now_s) - 1))
        assert np.flatnonzero(~result.is_skipped[:, 0]).tolist() == computed
        assert not result.is_skipped[:, 1:].any()

    def test_triosim_sends_each_update_once_for_each_neighbour(self) -> None:
        # TrioSim (commit 3fb3c06), case 5, VGG-13 on 8 accelerators: 24.563 ms, which is three times what it takes to send
        # all parameters to each of three neighbours over a cable of 65 GB/s: its loop over those that a worker hears
        # from sends to all that it sends to, every time.
        edges = hop_graph(HopGraph.RING_BASED, 8)
        builder = TopologyBuilder("ring-based")
        ranks = builder.add_ranks(8)
        builder.connect(ranks[edges[:, 0]], ranks[edges[:, 1]], 65e9, 0.0, both_ways=False)
        parameters_bytes = 532_191_392.0
        result = trained(
            np.zeros((1, 8)), edges, HopRules(), topology=builder.build(), num_bytes=parameters_bytes
        )
        assert 3 * result.entered_s[-1] == pytest.approx(24.563e-3, rel=2e-5)


class TestRules:
    @pytest.mark.parametrize(
        ("rules", "text"),
        [
            (HopRules(max_gap=0), "max_gap = 0: must be at least 1"),
            (HopRules(num_backups=2), "num_backups = 2: must be below 2"),
            (HopRules(staleness=-1), "staleness = -1: must be 0 or above"),
            (
                HopRules(max_gap=3, skip_behind=3),
                r"skip_behind = 3: must be at least 1 and below max_gap \(3\)",
            ),
        ],
    )
    def test_rules_that_make_no_sense_are_refused(self, rules: HopRules, text: str) -> None:
        with pytest.raises(InputError, match=text):
            trained(np.ones((2, 4)), hop_graph(HopGraph.RING, 4), rules)

    @given(
        st.integers(0, 2**32 - 1),
        st.sampled_from(list(HopGraph)),
        st.integers(1, 4),
        st.integers(0, 1),
        st.integers(0, 3),
    )
    def test_iterations_begin_when_the_rules_say_so(
        self, seed: int, kind: HopGraph, max_gap: int, num_backups: int, staleness: int
    ) -> None:
        compute_s = np.random.default_rng(seed).uniform(0.5, 5.0, (12, 8))
        edges, latency_s = hop_graph(kind, 8), 0.7
        rules = HopRules(max_gap=max_gap, num_backups=num_backups, staleness=staleness)
        result = trained(compute_s, edges, rules, topology=direct(8, latency_s))
        entered_s = np.zeros((13, 8))
        for iteration in range(12):
            for worker in range(8):
                neighbours = edges[edges[:, 1] == worker, 0]
                over_s = entered_s[iteration, worker] + compute_s[iteration, worker]
                if iteration >= staleness:
                    came_s = np.sort(entered_s[iteration - staleness, neighbours] + latency_s)
                    over_s = max(over_s, came_s[len(neighbours) - num_backups - 1])
                if iteration + 1 >= max_gap:
                    receivers = edges[edges[:, 0] == worker, 1]
                    over_s = max(over_s, entered_s[iteration + 1 - max_gap, receivers].max())
                entered_s[iteration + 1, worker] = over_s
        assert result.entered_s == pytest.approx(entered_s, rel=1e-9)
        waited = result.for_updates_s + result.for_tokens_s
        assert result.waited_for_s.sum(axis=1) == pytest.approx(waited, abs=1e-9)
        assert entered_s[-1] == pytest.approx(compute_s.sum(axis=0) + waited, rel=1e-9)

    @given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(0, 1))
    def test_nobody_skips_what_others_are_not_past(self, seed: int, max_gap: int, num_backups: int) -> None:
        compute_s = np.random.default_rng(seed).uniform(0.5, 8.0, (20, 6))
        edges, behind = hop_graph(HopGraph.RING, 6), max_gap - 1
        rules = HopRules(max_gap=max_gap, num_backups=num_backups, skip_behind=behind)
        result = trained(compute_s, edges, rules)
        assert result.largest_gap <= max_gap
        for iteration, worker in np.argwhere(result.is_skipped).tolist():
            ahead = result.entered_s[iteration + behind, edges[edges[:, 0] == worker, 1]]
            assert (ahead <= result.entered_s[iteration, worker]).all()
        computed_s = np.where(result.is_skipped, 0.0, compute_s).sum(axis=0)
        waited_s = result.for_updates_s + result.for_tokens_s
        assert result.entered_s[-1] == pytest.approx(computed_s + waited_s, rel=1e-9)
