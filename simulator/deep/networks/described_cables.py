"""How is a network described that has no name of its own? Cable by cable.

Accelerators are called `gpu:0` and up, switches by their kind: `leaf:2` is the third of the kind `leaf`.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.deep.networks.described_network import MOST_CABLES, Count, Described, Latency, Ramp, Rate
from simulator.deep.networks.slow_links import ends_of, vertex_of
from simulator.deep.networks.topology import Topology, TopologyBuilder
from simulator.deep.traces.parallelism import MOST_GPUS
from simulator.record import Record

MOST_TOLD = 10
"""Most invalid cables that an error names."""


class Cable(Record):
    """A cable between two ends."""

    ends: str = Field(max_length=100)
    """`gpu:0-leaf:0`: both directions; `gpu:0>leaf:0`: only from the first to the second, so that directions can differ."""
    bandwidth_bytes_per_s: Rate
    """Bandwidth in each direction."""
    latency_s: Latency
    """Time until the first byte has crossed it."""
    ramp_s: Ramp = 0.0
    """What small collectives lose: those that keep it busy for x seconds take 2 sqrt(ramp_s x) longer; 0: nothing."""


class CableNetwork(Described):
    """Any network, cable by cable."""

    kind: Literal["cables"]
    num_gpus: Count
    """Number of accelerators: `gpu:0` and up."""
    switches: dict[Annotated[str, Field(pattern="^[a-z][a-z_]{0,30}$")], Count] = Field(
        default={}, max_length=20
    )
    """Number of switches of each kind, from the accelerators outwards, such as `{leaf: 4, spine: 2}`."""
    cables: tuple[Cable, ...] = Field(min_length=1, max_length=MOST_CABLES)
    gpus_forward: bool = False
    """Whether flows between other accelerators may pass through one."""
    gpus_per_node: Count = 1
    """Number of consecutive accelerators that form a node, for hierarchical collectives; 1: no nodes."""

    @property
    def _size(self) -> int:
        return self.num_gpus

    @property
    def _num_cables(self) -> int:
        return len(self.cables)

    @model_validator(mode="after")
    def _ends_are_there(self) -> Self:
        if "gpu" in self.switches:
            raise ValueError("switches: gpu is what accelerators are called")
        if sum(self.switches.values()) > MOST_GPUS:
            raise ValueError(f"switches: there must be at most {MOST_GPUS:,} in all")
        names = frozenset(self._builder().names)
        broken = [
            f"cables[{number}].ends ({cable.ends}) {rule}"
            for number, cable in enumerate(self.cables)
            if (rule := _broken_rule(cable.ends, names))
        ]
        if broken:
            more = f"; and {len(broken) - MOST_TOLD:,} more" if len(broken) > MOST_TOLD else ""
            raise ValueError("; ".join(broken[:MOST_TOLD]) + more)
        return self

    def build(self) -> Topology:
        """Returns the network."""
        builder = self._builder()
        vertex = {name: number for number, name in enumerate(builder.names)}
        for cable in self.cables:
            ends = ends_of(cable.ends)
            assert ends is not None, "checked with the others"
            one, other, is_both = ends
            builder.connect(
                vertex[vertex_of(one)],
                vertex[vertex_of(other)],
                cable.bandwidth_bytes_per_s,
                cable.latency_s,
                both_ways=is_both,
            )
        made = builder.build(ranks_per_node=self.gpus_per_node)
        num_links = [2 if "-" in cable.ends else 1 for cable in self.cables]
        return made.with_ramp(np.repeat([cable.ramp_s for cable in self.cables], num_links))

    def _builder(self) -> TopologyBuilder:
        builder = TopologyBuilder("cables")
        builder.add_ranks(self.num_gpus, forward=self.gpus_forward)
        for kind, count in self.switches.items():
            builder.add(kind, count)
        return builder


def _broken_rule(text: str, names: frozenset[str]) -> str:
    """What is wrong with the ends of a cable; empty if they are valid."""
    if (ends := ends_of(text)) is None:
        return "must be two ends, such as gpu:0-leaf:0 or gpu:0>leaf:0"
    vertices = [vertex_of(end) for end in ends[:2]]
    if missing := [end for end in ends[:2] if vertex_of(end) not in names]:
        return f"leads nowhere: there is no {missing[0]}"
    return "must be two different ends" if vertices[0] == vertices[1] else ""
