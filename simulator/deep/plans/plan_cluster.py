"""On which network does a plan run? The nodes, cards and switches of an offer, and which of them are slow.

    accelerator -> scale-up switch    one per link domain, with the bandwidth of the accelerator's scale-up link
    accelerator -> accelerator        in a mesh instead: a link to each other member of the domain, of equal shares
    accelerator -> leaf               its network card: its share of the cards of the node
    leaf -> spine                     the cards of the leaf over the oversubscription of the fabric

Rails: the cards i of a group of nodes connect to one leaf. A group is all nodes where a switch has a port for each, else half
as many nodes as a switch has ports. The spine is one vertex, because traffic is spread evenly over the switches there
(adaptive routing). Ranks are numbered as in Megatron-LM: tensor, context, data, pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from simulator.domain.job import Job
from simulator.domain.links import MESHES
from simulator.domain.plan import Plan
from simulator.errors import InputError, Problem
from simulator.record import Choice
from simulator.table import Floats, Integers

_NOTHING: Mapping[int, float] = MappingProxyType({})
FASTEST = 100.0
"""Most times that an accelerator may be faster than the others."""


class LinkKind(Choice):
    """Links that can be slower than they should be."""

    SCALE_UP = "scale-up"
    """From an accelerator to the scale-up switch of its domain, or in a mesh to all others there; both directions."""
    CARD = "card"
    """From an accelerator to the fabric; both directions."""
    LEAF = "leaf"
    """From a leaf to the spine; both directions."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What is slower, or faster, than it should be: relative rates, by the number of the part."""

    speed: Mapping[int, float] = field(default_factory=lambda: _NOTHING)
    """Relative speed of accelerators."""
    scale_up: Mapping[int, float] = field(default_factory=lambda: _NOTHING)
    """Relative bandwidth of accelerators' scale-up links."""
    card: Mapping[int, float] = field(default_factory=lambda: _NOTHING)
    """Relative bandwidth of accelerators' network cards."""
    leaf: Mapping[int, float] = field(default_factory=lambda: _NOTHING)
    """Relative bandwidth of leaves' links to the spine."""


@dataclass(frozen=True, kw_only=True)
class PlanCluster:
    """The network of one plan."""

    num_gpus: int
    num_stages: int
    domain_size: int
    """Number of accelerators that reach each other over the scale-up link."""
    gpus_per_node: int
    nodes_per_leaf: int
    scale_up_bytes_per_s: float
    card_bytes_per_s: float
    oversubscription: float
    faults: Faults
    is_mesh: bool = False
    """Whether every two accelerators of a domain have their own link, instead of one switch for all."""

    @classmethod
    def of(cls, job: Job, plan: Plan, faults: Faults | None = None) -> PlanCluster:
        """Returns the network of a plan.

        Raises:
            InputError: a slow part does not exist, or its relative rate is out of range.
        """
        offer = job.offers[plan.offer]
        node, ports = offer.node, offer.fabric.switch_ports
        num_nodes = -(-plan.num_gpus // node.num_accelerators)
        cluster = cls(
            num_gpus=plan.num_gpus,
            num_stages=plan.pipeline_parallel,
            domain_size=node.link_domain_size,
            gpus_per_node=node.num_accelerators,
            nodes_per_leaf=num_nodes if num_nodes <= ports else max(1, ports // 2),
            scale_up_bytes_per_s=offer.accelerator.scale_up_bytes_per_s,
            card_bytes_per_s=node.network_bytes_per_s_per_accelerator,
            oversubscription=offer.fabric.oversubscription,
            faults=faults or Faults(),
            is_mesh=offer.accelerator.family in MESHES,
        )
        cluster.check_faults()
        return cluster

    @property
    def ranks(self) -> Integers:
        """All accelerators, `(stages, ranks of a stage)`."""
        return np.arange(self.num_gpus).reshape(self.num_stages, -1)

    @property
    def num_shares(self) -> int:
        """Number of links over which an accelerator's scale-up bandwidth is spread; one with a switch."""
        return max(1, self.domain_size - 1) if self.is_mesh else 1

    def domain(self, ranks: Integers) -> Integers:
        """Returns the link domain of accelerators."""
        return np.asarray(ranks // self.domain_size)

    def leaf(self, ranks: Integers) -> Integers:
        """Returns the leaf to which the card of each accelerator connects."""
        node, rail = np.divmod(ranks, self.gpus_per_node)
        return np.asarray(node // self.nodes_per_leaf * self.gpus_per_node + rail)

    @property
    def num_leaves(self) -> int:
        """Number of leaves of all rails."""
        return int(self.leaf(np.arange(self.num_gpus)).max()) + 1

    def uplink_bytes_per_s(self) -> Floats:
        """Returns the bandwidth of each leaf to the spine, `(leaves,)`."""
        cards = np.bincount(self.leaf(np.arange(self.num_gpus)), minlength=self.num_leaves)
        return (
            cards
            * self.card_bytes_per_s
            / self.oversubscription
            * self._factors(self.faults.leaf, len(cards))
        )

    def speed(self) -> Floats:
        """Returns the speed of each accelerator relative to the usual one, `(num_gpus,)`."""
        return self._factors(self.faults.speed, self.num_gpus)

    def scale_up_factor(self) -> Floats:
        """Returns the share of its bandwidth that each scale-up link has, `(num_gpus,)`."""
        return self._factors(self.faults.scale_up, self.num_gpus)

    def card_factor(self) -> Floats:
        """Returns the share of its bandwidth that each network card has, `(num_gpus,)`."""
        return self._factors(self.faults.card, self.num_gpus)

    def leaf_factor(self) -> Floats:
        """Returns the share of its bandwidth to the spine that each accelerator's leaf has, `(num_gpus,)`."""
        return self._factors(self.faults.leaf, self.num_leaves)[self.leaf(np.arange(self.num_gpus))]

    @staticmethod
    def _factors(given: Mapping[int, float], size: int) -> Floats:
        factors = np.ones(size)
        for number, factor in given.items():
            factors[number] = factor
        return factors

    def check_faults(self) -> None:
        """Raises `InputError` if a slow part does not exist, or its relative rate is out of range."""
        problems = []
        for name, given, size, most in (
            ("speed", self.faults.speed, self.num_gpus, FASTEST),
            (LinkKind.SCALE_UP.value, self.faults.scale_up, self.num_gpus, 1.0),
            (LinkKind.CARD.value, self.faults.card, self.num_gpus, 1.0),
            (LinkKind.LEAF.value, self.faults.leaf, self.num_leaves, 1.0),
        ):
            what = "leaf" if name == LinkKind.LEAF.value else "accelerator"
            problems += [
                Problem(
                    path=name,
                    value=str(number),
                    rule=f"must be the number of a{'n' * (what[0] == 'a')} {what}, 0 to {size - 1}",
                )
                for number in given
                if not 0 <= number < size
            ]
            problems += [
                Problem(path=name, value=f"{number}={factor:g}", rule=f"must be above 0 and at most {most:g}")
                for number, factor in given.items()
                if not 0.0 < factor <= most
            ]
        if problems:
            raise InputError(problems, "slow parts")
