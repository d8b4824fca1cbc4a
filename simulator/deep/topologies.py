"""Which networks are usual? Builders by name.

Bandwidths are those of one direction of a cable, in bytes per second; latencies those of a cable with the switch behind
it. Accelerators forward nothing unless the network has no switches (ring, torus).
"""

from __future__ import annotations

import numpy as np

from simulator.deep.topology import Topology, TopologyBuilder


def ring(num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> Topology:
    """Returns accelerators in a circle; each forwards to its neighbours."""
    builder = TopologyBuilder("ring")
    ranks = builder.add_ranks(num_ranks, forward=True)
    if num_ranks > 1:
        last = 1 if num_ranks == 2 else num_ranks
        builder.connect(ranks[:last], np.roll(ranks, -1)[:last], bandwidth_bytes_per_s, latency_s)
    return builder.build()


def switch(num_ranks: int, bandwidth_bytes_per_s: float, latency_s: float) -> Topology:
    """Returns accelerators around one switch without limits of its own, such as an NVSwitch plane."""
    builder = TopologyBuilder("switch")
    ranks = builder.add_ranks(num_ranks)
    builder.connect(ranks, builder.add("switch"), bandwidth_bytes_per_s, latency_s)
    return builder.build()
