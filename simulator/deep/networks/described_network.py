"""Which usual networks can a file describe? By their sizes and cables, as `simulator.deep.networks.topologies` builds them.

Bandwidths are those of one direction of a cable; latencies are those of a cable together with the switch behind it.
"""

from __future__ import annotations

from math import comb, prod
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from simulator.deep.networks import topologies
from simulator.deep.networks.topology import Topology
from simulator.deep.traces.parallelism import MOST_GPUS
from simulator.record import Record
from simulator.table import Integers

MOST_FULL = 1_024
"""Most accelerators with a cable or circuit between every two: half a million cables."""
MOST_CABLES = 1_000_000
MOST_DIMENSIONS = 6
Rate = Annotated[float, Field(ge=1, le=1e15)]
Latency = Annotated[float, Field(ge=0, le=1e3)]
Count = Annotated[int, Field(ge=1, le=MOST_GPUS)]
Ramp = Annotated[float, Field(ge=0, le=1e3)]


class Described(Record):
    """What networks have in common."""

    @property
    def _size(self) -> int:
        """Accelerators."""
        raise NotImplementedError

    @property
    def _num_cables(self) -> int:
        """Number of cables, of kinds that may have too many of them although they have few accelerators."""
        return 0

    @model_validator(mode="after")
    def _is_not_too_large(self) -> Self:
        if self._size > MOST_GPUS:
            raise ValueError(f"has {self._size:,} accelerators, at most {MOST_GPUS:,} can be played")
        if self._num_cables > MOST_CABLES:
            raise ValueError(f"has {self._num_cables:,} cables, at most {MOST_CABLES:,} can be played")
        return self


class _Simple(Described):
    num_gpus: Count
    """Number of accelerators."""
    bandwidth_bytes_per_s: Rate
    """Bandwidth of a cable or circuit."""
    latency_s: Latency
    """Latency of a cable."""
    ramp_s: Ramp = 0.0
    """What small collectives lose: those that keep a cable busy for x seconds take 2 sqrt(ramp_s x) longer; 0: nothing."""

    @property
    def _size(self) -> int:
        return self.num_gpus


class RingNetwork(_Simple):
    """Accelerators in a ring."""

    kind: Literal["ring"]

    def build(self) -> Topology:
        """Returns the network."""
        made = topologies.ring(self.num_gpus, self.bandwidth_bytes_per_s, self.latency_s)
        return made.with_ramp(self.ramp_s)


class SwitchNetwork(_Simple):
    """Accelerators around one switch."""

    kind: Literal["switch"]

    def build(self) -> Topology:
        """Returns the network."""
        made = topologies.switch(self.num_gpus, self.bandwidth_bytes_per_s, self.latency_s)
        return made.with_ramp(self.ramp_s)


class FullNetwork(_Simple):
    """A cable between every two accelerators."""

    kind: Literal["full"]
    num_gpus: int = Field(ge=1, le=MOST_FULL)
    """Number of accelerators."""

    def build(self) -> Topology:
        """Returns the network."""
        made = topologies.fully_connected(self.num_gpus, self.bandwidth_bytes_per_s, self.latency_s)
        return made.with_ramp(self.ramp_s)


class PhotonicNetwork(_Simple):
    """Circuits between any two accelerators, a few at a time."""

    kind: Literal["photonic"]
    num_gpus: int = Field(ge=1, le=MOST_FULL)
    """Number of accelerators."""
    num_ports: int = Field(default=8, ge=1, le=4096)
    """Most circuits of an accelerator at one time."""
    set_up_s: float = Field(default=0.02, ge=0, le=1e6)
    """Time from the request for a circuit until it is up."""

    def build(self) -> Topology:
        """Returns the network."""
        made = topologies.photonic(
            self.num_gpus,
            self.bandwidth_bytes_per_s,
            self.latency_s,
            num_ports=self.num_ports,
            set_up_s=self.set_up_s,
        )
        return made.with_ramp(self.ramp_s)


class GridNetwork(Described):
    """A grid of any number of dimensions: rows are closed to rings (torus) or open (mesh)."""

    kind: Literal["torus", "mesh"]
    shape: tuple[Count, ...] = Field(min_length=1, max_length=MOST_DIMENSIONS)
    """Number of accelerators in each dimension; consecutive ones are neighbours in the last dimension."""
    bandwidth_bytes_per_s: Rate
    """Bandwidth of a cable."""
    latency_s: Latency
    """Latency of a cable."""
    ramp_s: Ramp = 0.0
    """What small collectives lose: those that keep a cable busy for x seconds take 2 sqrt(ramp_s x) longer; 0: nothing."""

    @property
    def _size(self) -> int:
        return prod(self.shape)

    def build(self) -> Topology:
        """Returns the network."""
        build = topologies.torus if self.kind == "torus" else topologies.mesh
        made = build(self.shape, self.bandwidth_bytes_per_s, self.latency_s)
        return made.with_ramp(self.ramp_s)


class FatTreeNetwork(_Simple):
    """A folded Clos network of two levels: `leaf` and `spine`."""

    kind: Literal["fat-tree"]
    gpus_per_leaf: Count
    """Number of accelerators on each leaf."""
    num_spines: Count
    """Number of switches above the leaves, each joined to every leaf."""
    oversubscription: float = Field(default=1.0, ge=1.0, le=1e3)
    """Ratio of a full leaf's bandwidth from below to its bandwidth to the spines, of which each has an equal share."""

    @property
    def _num_cables(self) -> int:
        return self.num_gpus + -(-self.num_gpus // self.gpus_per_leaf) * self.num_spines

    def build(self) -> Topology:
        """Returns the network."""
        made = topologies.fat_tree(
            self.num_gpus,
            self.bandwidth_bytes_per_s,
            self.latency_s,
            ranks_per_leaf=self.gpus_per_leaf,
            num_spines=self.num_spines,
            oversubscription=self.oversubscription,
        )
        return made.with_ramp(self.ramp_s)


class NodesNetwork(Described):
    """Nodes with an `nvswitch` inside and `card`s, on rails or under one `leaf` each; leaves meet at `spine`s."""

    kind: Literal["nodes"]
    num_nodes: Count
    gpus_per_node: Count
    """Number of accelerators of each node."""
    scale_up_bytes_per_s: Rate
    """Bandwidth of an accelerator to the switch of its node."""
    scale_up_latency_s: Latency
    """Latency of the cable between an accelerator and the switch of its node."""
    card_bytes_per_s: Rate
    """Bandwidth of a network card, and of the bus between it and its accelerators."""
    fabric_latency_s: Latency
    """Latency of a cable of the fabric, from card to leaf or from leaf to spine; the bus to a card has none."""
    cards_per_node: Count | None = None
    """Number of network cards: at most as many as accelerators, or a multiple of them. An accelerator that has several spreads
    its traffic over all of them, and `card:3` is all cards of accelerator 3. Default: one for each accelerator."""
    is_rail_optimized: bool = True
    """Whether card i of every node connects to leaf i; else all cards of a node share a leaf."""
    num_spines: Count = 1
    """Number of switches above the leaves, each joined to every leaf; together they carry all that the cards of a leaf do."""
    scale_up_ramp_s: Ramp = 0.0
    """What small collectives lose inside nodes: those that keep a cable busy for x seconds take 2 sqrt(ramp x) longer; 0:
    nothing."""
    fabric_ramp_s: Ramp = 0.0
    """What small collectives lose through cards, as `scale_up_ramp_s` inside nodes."""

    @field_validator("cards_per_node")
    @classmethod
    def _is_shared_evenly(cls, cards: int | None, info: ValidationInfo) -> int | None:
        """Refuses more cards than accelerators if they cannot be divided equally among these."""
        gpus = info.data.get("gpus_per_node")
        if cards is not None and gpus is not None and cards > gpus and cards % gpus:
            nearest = f"{cards // gpus * gpus}, {-(-cards // gpus) * gpus}"
            raise ValueError(
                f"{cards} must be at most gpus_per_node ({gpus}) or a multiple of it, so that accelerators have equally many; "
                f"nearest: {nearest}"
            )
        return cards

    @property
    def gpu_card_bytes_per_s(self) -> float:
        """Bandwidth of all cards of an accelerator together, or of the one that it shares with others."""
        return self.card_bytes_per_s * topologies.card_bundles(self.cards_per_node, self.gpus_per_node)[1]

    @property
    def _size(self) -> int:
        return self.num_nodes * self.gpus_per_node

    @property
    def _num_cables(self) -> int:
        cards, _ = topologies.card_bundles(self.cards_per_node, self.gpus_per_node)
        num_leaves = cards if self.is_rail_optimized else self.num_nodes
        return 2 * self._size + self.num_nodes * cards + num_leaves * self.num_spines

    @property
    def _switches(self) -> Integers:
        """Vertices of the switches inside nodes, which follow the accelerators."""
        return self._size + np.arange(self.num_nodes)

    def build(self) -> Topology:
        """Returns the network."""
        made = topologies.cluster(
            self.num_nodes,
            self.gpus_per_node,
            scale_up_bytes_per_s=self.scale_up_bytes_per_s,
            scale_up_latency_s=self.scale_up_latency_s,
            card_bytes_per_s=self.card_bytes_per_s,
            fabric_latency_s=self.fabric_latency_s,
            cards_per_node=self.cards_per_node,
            is_rail_optimized=self.is_rail_optimized,
            num_spines=self.num_spines,
        )
        is_inside = np.isin(made.source, self._switches) | np.isin(made.target, self._switches)
        return made.with_ramp(np.where(is_inside, self.scale_up_ramp_s, self.fabric_ramp_s))


class DragonflyNetwork(Described):
    """Groups of `switch`es that are all joined to each other, with one cable between every two groups."""

    kind: Literal["dragonfly"]
    num_groups: Count
    switches_per_group: Count
    gpus_per_switch: Count
    gpu_bytes_per_s: Rate
    """Bandwidth of an accelerator's cable."""
    local_bytes_per_s: Rate
    """Bandwidth of a cable inside a group."""
    global_bytes_per_s: Rate
    """Bandwidth of a cable between groups; that from group g to group h ends at switch h modulo `switches_per_group` of g."""
    latency_s: Latency
    """Latency of each cable."""
    ramp_s: Ramp = 0.0
    """What small collectives lose: those that keep a cable busy for x seconds take 2 sqrt(ramp_s x) longer; 0: nothing."""

    @property
    def _size(self) -> int:
        return self.num_groups * self.switches_per_group * self.gpus_per_switch

    @property
    def _num_cables(self) -> int:
        return self._size + self.num_groups * comb(self.switches_per_group, 2) + comb(self.num_groups, 2)

    def build(self) -> Topology:
        """Returns the network."""
        made = topologies.dragonfly(
            self.num_groups,
            self.switches_per_group,
            self.gpus_per_switch,
            rank_bytes_per_s=self.gpu_bytes_per_s,
            local_bytes_per_s=self.local_bytes_per_s,
            global_bytes_per_s=self.global_bytes_per_s,
            latency_s=self.latency_s,
        )
        return made.with_ramp(self.ramp_s)
