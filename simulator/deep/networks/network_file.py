"""What does a network file say? The network of a step at the deep depth, which of its links are slow, and how paths are chosen.

`planner.deep.network_file` reads one; `examples/networks` has one of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from simulator.deep.networks.described_cables import CableNetwork
from simulator.deep.networks.described_network import (
    Described,
    DragonflyNetwork,
    FatTreeNetwork,
    FullNetwork,
    GridNetwork,
    NodesNetwork,
    PhotonicNetwork,
    RingNetwork,
    SwitchNetwork,
)
from simulator.deep.networks.slow_links import slowed
from simulator.deep.networks.topology import Topology
from simulator.record import Record

AnyNetwork = Annotated[
    RingNetwork
    | SwitchNetwork
    | FullNetwork
    | PhotonicNetwork
    | GridNetwork
    | FatTreeNetwork
    | NodesNetwork
    | DragonflyNetwork
    | CableNetwork,
    Field(discriminator="kind"),
]


KINDS: Mapping[str, type[Described]] = {
    "ring": RingNetwork,
    "switch": SwitchNetwork,
    "full": FullNetwork,
    "photonic": PhotonicNetwork,
    "torus": GridNetwork,
    "mesh": GridNetwork,
    "fat-tree": FatTreeNetwork,
    "nodes": NodesNetwork,
    "dragonfly": DragonflyNetwork,
    "cables": CableNetwork,
}
"""What `kind` names."""


class NetworkFile(Record):
    """The network of a step at the deep depth."""

    name: str = Field(default="network", min_length=1, max_length=100)
    """Name in the answer; default: the name of the file."""
    network: AnyNetwork
    """Kind, size and cables."""
    slow_links: dict[str, Annotated[float, Field(ge=1e-12, le=1)]] = Field(default={}, max_length=10_000)
    """Share of their bandwidth that slow links keep, such as `{"card:3": 0.5, "leaf:0-spine:1": 0.25}`."""
    ecmp_salt: int = Field(default=0, ge=0, lt=2**31)
    """Salt of the switches' hash that chooses among paths of equal cost; another number gives another random choice."""

    @property
    def without_slow_links(self) -> NetworkFile:
        """The same network with nothing slow."""
        return self.model_copy(update={"slow_links": {}})

    def build(self) -> Topology:
        """Returns the network; raises `InputError` if a slow link does not exist."""
        made = slowed(self.network.build(), self.slow_links)
        return made.named(self.name, salt=self.ecmp_salt)
