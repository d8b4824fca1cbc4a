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
    """What joins the accelerators of a step at the deep depth."""

    name: str = Field(default="network", min_length=1, max_length=100)
    """Name in the answer; a file without one lends its own name."""
    network: AnyNetwork
    """Kind, size and cables."""
    slow_links: dict[str, Annotated[float, Field(ge=1e-12, le=1)]] = Field(default={}, max_length=10_000)
    """Share of the bandwidth that links have left, such as `{"card:3": 0.5, "leaf:0-spine:1": 0.25}`."""
    ecmp_salt: int = Field(default=0, ge=0, lt=2**31)
    """What switches mix into their choice among ways of equal cost: another number is another draw."""

    @property
    def without_slow_links(self) -> NetworkFile:
        """The same network with nothing slow."""
        return self.model_copy(update={"slow_links": {}})

    def build(self) -> Topology:
        """Returns the network; raises `InputError` where a slow link does not exist."""
        made = slowed(self.network.build(), self.slow_links)
        return made.named(self.name, salt=self.ecmp_salt)
