"""Do flows come to what ASTRA-sim's analytical network says of its HGX-H100 configuration, once they follow its assumptions?

The four results are printed by ASTRA-sim 2 (congestion-aware analytical network, `HGX-H100-validated`) for its 1 MiB
microbenchmarks on 8 accelerators, and stand in PerfSim-Survey-2026, Table 7. Its assumptions, read from its
configuration and found to explain all four to the nanosecond:

- one switch, 400 GiB/s and 936 ns a cable (whole nanoseconds); a switch stores a message before it sends it on;
- the buffer is cut into 4 chunks, of which 2 are under way; the second one waits on the link for the first;
- a step costs 10 ns at its end point, as does the start of a chunk, and a sum 3 x its bytes at 3,350 GiB/s;
- 1 MiB is what each rank contributes to an all-gather, and all the data of a rank elsewhere;
- a ring all-to-all takes n (n-1) / 2 steps.
"""

from __future__ import annotations

from math import floor

import numpy as np
import pytest

from simulator.deep.collectives.schedules import Collectives
from simulator.deep.networks.routing import Router
from simulator.deep.networks.topologies import switch
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE, TaskGraphBuilder
from simulator.table import Integers

SIZE = 8
RANKS = np.arange(SIZE)
BYTES_PER_NS = 400 * 2**30 / 1e9
CABLE_NS, END_POINT_NS = 936, 10
NUM_CHUNKS, NUM_ACTIVE = 4, 2
CHUNK_BYTES = 2**20 / NUM_CHUNKS
NS = 1e-9
PUBLISHED_NS = {"all_reduce": 57_426, "all_gather": 44_058, "reduce_scatter": 28_950, "all_to_all": 114_000}


def transfer_ns(num_bytes: float) -> int:
    return floor(num_bytes / BYTES_PER_NS)


def sum_ns(num_bytes: float) -> int:
    """Two parts read and one written."""
    return floor(3 * num_bytes / (3350 * 2**30 / 1e9))


class Ring:
    """Rings of one message size, by ASTRA-sim's rules."""

    def __init__(self, message_bytes: float) -> None:
        self.message_bytes = float(
            transfer_ns(message_bytes)
        )  # as many bytes as whole nanoseconds, at 1 byte a nanosecond
        self.sum_ns = sum_ns(message_bytes)
        self.topology = switch(SIZE, 1 / NS, CABLE_NS * NS)
        self.router = Router(self.topology)
        self.graph = TaskGraphBuilder()

    def collectives(self, beside_ns: float = 0.0) -> Collectives:
        """What moves the data; storing a message in the switch takes as long as sending it."""
        step_ns = END_POINT_NS + self.message_bytes + beside_ns
        return Collectives(graph=self.graph, router=self.router, step_s=step_ns * NS)

    def chunk(self, operation: str, after: Integers) -> Integers:
        """Adds one chunk."""
        buffer_bytes = SIZE * self.message_bytes
        done = self.graph.add("begins", duration_s=END_POINT_NS * NS, after=[after])
        if operation in ("reduce_scatter", "all_reduce"):
            done = self.collectives(self.sum_ns).ring_reduce_scatter(RANKS, buffer_bytes, done)
        laps = {"reduce_scatter": 0, "all_reduce": 1, "all_gather": 1, "all_to_all": SIZE // 2}[operation]
        for _ in range(laps):
            done = self.collectives().ring_all_gather(RANKS, buffer_bytes, done)
        return done

    def time_ns(self, operation: str) -> float:
        """Plays all chunks, two at a time."""
        ends = []
        for place in range(NUM_ACTIVE):
            waits_s = place * self.message_bytes * NS
            done = self.graph.add("waits", duration_s=waits_s, after=[np.full(SIZE, NONE)])
            for _ in range(NUM_CHUNKS // NUM_ACTIVE):
                done = self.chunk(operation, done)
            ends.append(done)
        return play(self.graph.build(), self.topology, self.router.table()).makespan_s / NS


@pytest.mark.parametrize(("operation", "published_ns"), PUBLISHED_NS.items())
def test_flows_by_its_rules_take_what_it_printed(operation: str, published_ns: int) -> None:
    message = CHUNK_BYTES if operation == "all_gather" else CHUNK_BYTES / SIZE
    assert Ring(message).time_ns(operation) == pytest.approx(published_ns, abs=0.01)


@pytest.mark.parametrize(
    ("method", "num_bytes", "told_ns"),
    [
        ("ring_all_reduce", 2**20, 30_802),
        ("ring_all_gather", 8 * 2**20, 31_458),
        ("ring_reduce_scatter", 2**20, 15_401),
        ("all_to_all", 2**20, 4_166),
    ],
)
def test_our_own_rules_on_that_network_take_what_the_page_says(
    method: str, num_bytes: float, told_ns: int
) -> None:
    # 2 x 936.25 ns and the bytes at 400 GB/s, 14, 7, 7 and 1 times: one message, cut through by the switch.
    topology = switch(SIZE, 400e9, 936.25 * NS)
    graph, router = TaskGraphBuilder(), Router(topology)
    getattr(Collectives(graph=graph, router=router), method)(RANKS, float(num_bytes), np.full(SIZE, NONE))
    assert play(graph.build(), topology, router.table()).makespan_s / NS == pytest.approx(told_ns, abs=1.0)
