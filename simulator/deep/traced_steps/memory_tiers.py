"""Where can an accelerator put what does not fit into its memory? Memory of its host, and pools shared by all accelerators.

A tier is reached over links of its own, one in each direction. With host memory each accelerator has its own links. A pool
(such as memory over CXL, or TrioSim's remote memory) has one for each accelerator, and behind them one that all share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.deep.networks.topology import Topology
from simulator.errors import check_rules
from simulator.table import Integers

NO_LIMIT = float("inf")


@dataclass(frozen=True, kw_only=True)
class MemoryTier:
    """Memory outside the accelerators."""

    name: str
    bandwidth_bytes_per_s: float
    """Bandwidth of each accelerator's link to it, in each direction."""
    capacity_bytes: float = NO_LIMIT
    """Capacity for each accelerator; of a pool, for all of them together."""
    latency_s: float = 0.0
    shared_bytes_per_s: float | None = None
    """Bandwidth of all accelerators together to a pool, and the same from it; None: no pool."""

    @property
    def is_pool(self) -> bool:
        """Whether all accelerators share it."""
        return self.shared_bytes_per_s is not None

    def room_bytes(self, num_gpus: int) -> float:
        """Returns the bytes that each of `num_gpus` equal accelerators may put there."""
        return self.capacity_bytes / num_gpus if self.is_pool else self.capacity_bytes

    def check(self) -> None:
        """Raises `InputError` with all rules that are broken."""
        rules = {
            "bandwidth_bytes_per_s": (
                self.bandwidth_bytes_per_s,
                0.0 < self.bandwidth_bytes_per_s < NO_LIMIT,
                "must be above 0, and finite",
            ),
            "capacity_bytes": (self.capacity_bytes, self.capacity_bytes >= 0.0, "must be 0 or above"),
            "latency_s": (self.latency_s, 0.0 <= self.latency_s < NO_LIMIT, "must be 0 or above, and finite"),
            "shared_bytes_per_s": (
                self.shared_bytes_per_s,
                self.shared_bytes_per_s is None or 0.0 < self.shared_bytes_per_s < NO_LIMIT,
                "must be above 0, and finite",
            ),
        }
        check_rules({f"{self.name}.{field}": rule for field, rule in rules.items()})


@dataclass(frozen=True, kw_only=True)
class TieredNetwork:
    """A network with t tiers of memory, for r accelerators."""

    topology: Topology
    memory: Integers
    """`(t, r)` vertex of each tier to which an accelerator writes, and from which it reads."""


def with_tiers(topology: Topology, tiers: tuple[MemoryTier, ...]) -> TieredNetwork:
    """Returns a network extended by tiers of memory, through which no other traffic passes.

    Raises:
        InputError: a value of a tier is out of range.
    """
    ranks, targets = np.arange(topology.num_ranks), []
    for tier in tiers:
        tier.check()
        bandwidth, latency_s = tier.bandwidth_bytes_per_s, tier.latency_s
        if tier.shared_bytes_per_s is None:
            names = [f"{tier.name} {rank}" for rank in ranks.tolist()]
            topology, memory = _with_vertices(topology, names, forwards=False)
            topology = _with_links(topology, ranks, memory, bandwidth, latency_s)
            topology = _with_links(topology, memory, ranks, bandwidth, latency_s)
        else:
            gates = [f"{tier.name} in", f"{tier.name} out"]
            topology, (pool,) = _with_vertices(topology, [tier.name], forwards=False)
            topology, (gate_in, gate_out) = _with_vertices(topology, gates, forwards=True)
            memory = np.full(len(ranks), pool)
            topology = _with_links(topology, ranks, np.full(len(ranks), gate_in), bandwidth, latency_s)
            topology = _with_links(topology, np.full(len(ranks), gate_out), ranks, bandwidth, latency_s)
            ends = np.array([gate_in, pool]), np.array([pool, gate_out])
            topology = _with_links(topology, *ends, tier.shared_bytes_per_s, 0.0)
        targets.append(memory)
    where = np.array(targets, dtype=np.int64).reshape(len(tiers), len(ranks))
    return TieredNetwork(topology=topology, memory=where)


def _with_vertices(topology: Topology, names: list[str], *, forwards: bool) -> tuple[Topology, Integers]:
    first, circuits = topology.num_vertices, topology.circuits
    if circuits is not None:
        ports = np.concatenate([circuits.num_ports, np.zeros(len(names), dtype=np.int64)])
        circuits = replace(circuits, num_ports=ports)
    more = replace(
        topology,
        vertex_names=(*topology.vertex_names, *names),
        forwards=np.concatenate([topology.forwards, np.full(len(names), forwards)]),
        circuits=circuits,
    )
    return more, np.arange(first, first + len(names))


def _with_links(
    topology: Topology, source: Integers, target: Integers, bandwidth_bytes_per_s: float, latency_s: float
) -> Topology:
    circuits, count = topology.circuits, len(source)
    if circuits is not None:
        circuits = replace(circuits, of_link=np.concatenate([circuits.of_link, np.full(count, -1)]))
    bandwidth = np.full(count, bandwidth_bytes_per_s)
    return replace(
        topology,
        source=np.concatenate([topology.source, source]),
        target=np.concatenate([topology.target, target]),
        bandwidth_bytes_per_s=np.concatenate([topology.bandwidth_bytes_per_s, bandwidth]),
        whole_bytes_per_s=np.concatenate([topology.routed_bytes_per_s, bandwidth]),
        latency_s=np.concatenate([topology.latency_s, np.full(count, latency_s)]),
        ramp_s=np.concatenate([topology.ramp_s, np.zeros(count)]),
        circuits=circuits,
    )
