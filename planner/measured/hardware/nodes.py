"""Which node and network did a measured run use? From its cells, and from the usual node of its accelerator."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from planner.measured.cells.file import Cells
from planner.measured.cells.told import LONGEST_NAME, CannotModelError, Told
from planner.measured.cells.words import NOTHING_SAID, affirmed
from planner.measured.frameworks.names import is_torchtitan
from planner.measured.hardware.accelerator_names import accelerator_id, link_domain_of, name_among_words
from planner.measured.hardware.dies import counted_accelerator
from planner.measured.hardware.machine_names import machine_of
from planner.measured.hardware.network_names import Network, network_of
from simulator import catalog
from simulator.domain.hardware import Node

_BARE_H100 = re.compile(r"(nvidia )?h100s?( gpus?)?", re.IGNORECASE)
"""Nothing of memory or form. The H100 of torchtitan's own tables have 96 GB of HBM2e and a limit of 500 W, which they say in
prose only."""
LESS_POWERFUL_H100 = "h100-sxm5-96gb"
_NOTED_H100 = re.compile(
    r"\bhbm2e\b|\b96 ?gi?b (?:hbm|h100)|\bh100s? (?:with |of )?96 ?gi?b\b", re.IGNORECASE
)
"""What notes say of it where its name says nothing: `H100 with 96 GB`, `HBM2e`."""
_RACKS = {72: (36, 64)}
"""Accelerators on a smaller scale-up link, by the largest one: racks of half the size, and what clouds rent of a whole one."""
_WIDE_BOARDS = {"volta": 16, "ampere": 16}
"""Accelerators that share NVSwitches in the widest node of an architecture, where that is more than usual: DGX-2, and HGX A100
of two boards (`a2-megagpu-16g`)."""


@dataclass(frozen=True, kw_only=True)
class MeasuredNode:
    """A node as a row describes it."""

    cells: dict[str, object]
    """Fields of an offer and of its `Node`."""
    num_accelerators: int
    link_domain_size: int
    assumed: tuple[str, ...]
    """Columns that say too little, so that the usual node or network is assumed."""
    is_network_understood: bool
    node_remark: str = ""
    """How a node size that the accelerator does not have is interpreted."""
    network_remark: str = ""
    """What is assumed beyond the description of the network, or left out of it."""


def accelerator_of(told: Told) -> str:
    """Returns the catalogue name of a row's accelerators: that of the dies of a card where they are what it counts.

    Raises:
        CapplanError: the catalogue has no such accelerator.
    """
    if told.name("gpu").lower() in NOTHING_SAID:
        raise CannotModelError("gpu is not given")
    name = accelerator_id(told.name("gpu"))
    if name_among_words(told.name("gpu")):
        told.remark("gpu", f"taken as {name}; other words are not read")
    if _BARE_H100.fullmatch(told.name("gpu")):
        if found := affirmed(_NOTED_H100, told.text("notes")):
            told.remark("gpu", f"taken as {LESS_POWERFUL_H100}, as the notes say ({found[0]})")
            return LESS_POWERFUL_H100
        if is_torchtitan(told.framework):
            return told.default("gpu", name)
    return counted_accelerator(told, name)


def node_of(cells: Cells, accelerator: str) -> MeasuredNode:
    """Returns the node of a row.

    Raises:
        InputError: no such link domain exists.
    """
    node, given = catalog.default_node(accelerator), cells.count("gpus_per_node")
    exceeds = given is not None and given > node.num_accelerators and given > _widest_node(node)
    gpus = node.num_accelerators if exceeds or given is None else given
    num_gpus = cells.count("n_gpus") or gpus
    network = network_of(_links_of(cells, accelerator), accelerator, gpus_per_node=gpus)
    named = link_domain_of(cells.text.get("gpu", "")[:LONGEST_NAME])
    usual_domain = given if given in _domains(node) else _usual_domain(node, gpus)
    domain = network.link_domain_size or min(usual_domain, named or usual_domain)
    is_odd = exceeds and given not in (*_domains(node), domain)
    columns = {
        "gpus_per_node": given is not None and not is_odd,
        "interconnect": _is_told(network, num_gpus, domain),
    }
    return MeasuredNode(
        cells={
            "accelerator": accelerator,
            "node": node.id,
            "fabric": network.fabric,
            "num_accelerators": gpus,
            "link_domain_size": domain,
            "network_bytes_per_s": network.node_bytes_per_s
            or node.network_bytes_per_s_per_accelerator * gpus,
            "num_network_cards": network.num_cards,
        },
        num_accelerators=gpus,
        link_domain_size=domain,
        assumed=tuple(column for column, is_told in columns.items() if not is_told),
        is_network_understood=network.is_understood,
        node_remark=_odd_size(node, domain)
        if is_odd
        else _part_of_a_node(num_gpus, None if exceeds else given),
        network_remark="; ".join(
            filter(None, [network.link_remark, network.remark if num_gpus > domain else ""])
        ),
    )


def _links_of(cells: Cells, accelerator: str) -> str:
    """Returns the description of the links: the machine that is named as accelerator tells them where nothing else does."""
    named, written = cells.text.get("gpu", "")[:LONGEST_NAME], cells.text.get("interconnect", "")
    is_told = written.lower() not in NOTHING_SAID
    return written if is_told or machine_of(named, accelerator) is None else named


def _domains(node: Node) -> tuple[int, ...]:
    """Returns how many accelerators share a scale-up link that has more than a node: of a rack, or all; empty of other nodes.

    Numbers between are those of hosts, of slices, or of what is called a node elsewhere, which cut no link.
    """
    largest = node.link_domain_size
    return (*_RACKS.get(largest, ()), largest) if largest > node.num_accelerators else ()


def _widest_node(node: Node) -> float:
    """Returns how many accelerators a node can have at most that share its scale-up link; cards on PCIe are not limited."""
    if catalog.is_pcie_card(node.accelerator):
        return math.inf
    boards = _WIDE_BOARDS.get(catalog.accelerator(node.accelerator).family, 0)
    return max(node.num_accelerators, boards)


def _odd_size(node: Node, domain: int) -> str:
    """Returns for what a number of accelerators is taken that is neither a node nor a link domain."""
    sizes = ", ".join(map(str, _domains(node))) or node.link_domain_size
    return (
        f"is neither a node of {node.accelerator} ({node.num_accelerators}) nor a link domain of it ({sizes}); "
        f"taken as nodes of {node.num_accelerators}, {domain} in a link domain"
    )


def _part_of_a_node(num_gpus: int, given: int | None) -> str:
    """Returns that nodes of the written size do not make up the run; one within a node may leave some of it idle."""
    rest = num_gpus % given if given and num_gpus > given else 0
    return f"does not divide n_gpus ({num_gpus}): the last node is taken to run on {rest}" if rest else ""


def _usual_domain(node: Node, gpus: int) -> int:
    """Returns how many share a scale-up link: a domain of many nodes stays what it is, whatever a host holds of it."""
    is_wide = node.link_domain_size > node.num_accelerators and gpus <= node.num_accelerators
    return node.link_domain_size if is_wide or gpus == node.num_accelerators else gpus


def _is_told(network: Network, num_gpus: int, domain: int) -> bool:
    """Returns whether a description says how fast the links are that the run uses."""
    return network.node_bytes_per_s is not None or (network.names_scale_up and num_gpus <= domain)
