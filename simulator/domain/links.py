"""What is a network made of? The constants of its two levels: links inside a domain, and the fabric between domains.

Constants per link were fitted to measured collectives by `benchmarks/fit_links.py`; `simulator/data/link_efficiency.csv` says
on what, and how well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np

from simulator.shipped import shipped_rows
from simulator.table import Floats, Table

SCALE_UP_LINKS = {"ampere": "nvlink3", "hopper": "nvlink4", "blackwell": "nvlink5", "rubin": "nvlink5"}
"""Link class by architecture; NVLink 6, which nobody measured, has the constants of NVLink 5."""
OTHER_SCALE_UP = "other-scale-up"
"""Link class of all other architectures, few of which are measured."""
MESHES = frozenset({"cdna3", "cdna4", "gaudi"})
"""Architectures where each of eight accelerators has a link, or a bundle of links, to every other one."""
OTHER_FABRIC = "ethernet"
INFINIBAND = "infiniband"


@dataclass(frozen=True, kw_only=True)
class LinkConstants(Table):
    """The two levels of the network under each design; each column is `(n,)`.

    Fractions are shares of the nominal bandwidth that a long transfer reaches.
    """

    intra_bytes_per_s: Floats
    """Scale-up bandwidth of one accelerator, per direction."""
    intra_latency_s: Floats
    """Start-up of a collective or transfer."""
    intra_hop_s: Floats
    """Time of each further step inside a domain."""
    intra_ramp_s: Floats
    """Chunk cost in the root term of a collective."""
    all_reduce_fraction: Floats
    """All-reduce in a group of eight; close to 1 or above if the switches reduce, which halves the volume."""
    gather_fraction: Floats
    """All-gather and reduce-scatter in a group of eight."""
    all_to_all_fraction: Floats
    """All-to-all in a group of eight."""
    point_to_point_fraction: Floats
    """One sender, one receiver."""
    group_exponent: Floats
    """Growth of the fractions with the group, up to eight: smaller groups keep fewer links busy."""
    unlinked_members: Floats
    """Members of a group to which a member has no link of its own: 1 in a mesh, itself; 0 behind switches, which connect all
    links to any member, and where several links join two members, as in a torus."""
    gpus_per_domain: Floats
    """Accelerators that reach each other over the scale-up link."""
    inter_bytes_per_s_per_gpu: Floats
    """One accelerator's share of its node's network cards, per direction."""
    inter_latency_s: Floats
    """Time of each step through the fabric."""
    inter_member_s: Floats
    """Time of each further member of a domain in a ring or tree through the fabric."""
    inter_fraction: Floats
    """Collectives through the fabric."""
    inter_point_to_point_fraction: Floats
    """One sender, one receiver in another domain."""
    gpus_per_node: Floats
    """Accelerators of a domain in one node, which share its network cards."""
    gpus_per_card: Floats
    """Accelerators that share one network card; 1 if each has its own."""
    shared_card_fraction: Floats
    """Share of a card that a ring with several, but not all, members of a node gets where accelerators share cards: it passes
    through one card, which sibling rings may also have chosen."""
    scale_up_fraction: Floats
    """Share of the scale-up links that a collective gets: 1 unless other traffic is on them. `intra_bytes_per_s` includes it. A
    group inside one domain takes as much longer over cards, so that it chooses the way that it takes alone."""

    @property
    def fabric_bytes_per_s(self) -> Floats:
        """Bandwidth of an accelerator through the fabric in collectives, `(n,)`."""
        return self.inter_bytes_per_s_per_gpu * self.inter_fraction

    @property
    def has_free_cards(self) -> bool:
        """Whether no byte takes time on a network card, as in `on_scale_up_alone`."""
        return bool(np.isinf(self.inter_bytes_per_s_per_gpu[:1]).any())

    @property
    def near_send_bytes_per_s(self) -> Floats:
        """Bandwidth from one sender to one receiver in its domain, `(n,)`."""
        return self.intra_bytes_per_s * self.point_to_point_fraction

    @property
    def far_send_bytes_per_s(self) -> Floats:
        """The same to a receiver in another domain."""
        return self.inter_bytes_per_s_per_gpu * self.inter_point_to_point_fraction

    def without_latency(self) -> Self:
        """Returns a network on which only bytes take time."""
        nothing = np.zeros(len(self))
        return replace(
            self,
            intra_latency_s=nothing,
            intra_hop_s=nothing,
            intra_ramp_s=nothing,
            inter_latency_s=nothing,
            inter_member_s=nothing,
        )

    def on_cards_alone(self) -> Self:
        """Returns a network on which only bytes on network cards take time."""
        return replace(self.without_latency(), intra_bytes_per_s=np.full_like(self.intra_bytes_per_s, np.inf))

    def on_scale_up_alone(self) -> Self:
        """Returns a network on which only bytes on scale-up links take time; collectives keep their way."""
        free = np.full_like(self.inter_bytes_per_s_per_gpu, np.inf)
        return replace(self.without_latency(), inter_bytes_per_s_per_gpu=free)


def link_constants(
    families: Sequence[str],
    fabrics: Sequence[str],
    *,
    intra_bytes_per_s: Floats | float,
    inter_bytes_per_s_per_gpu: Floats | float,
    gpus_per_domain: Floats | float,
    gpus_per_node: Floats | float | None = None,
    gpus_per_card: Floats | float = 1.0,
    shared_card_fraction: Floats | float = 1.0,
) -> LinkConstants:
    """Returns the constants of `(n,)` clusters.

    Args:
        families: Accelerator architectures, such as `hopper`; they decide the scale-up link.
        fabrics: Kinds of fabric, such as `infiniband-ndr`; all that is not InfiniBand counts as Ethernet.
        intra_bytes_per_s: Scale-up bandwidth of one accelerator, per direction.
        inter_bytes_per_s_per_gpu: Network bandwidth of a node over its accelerators, per direction.
        gpus_per_domain: Accelerators in one scale-up domain.
        gpus_per_node: As in `LinkConstants`; left out: all of a domain.
        gpus_per_card: As in `LinkConstants`.
        shared_card_fraction: As in `LinkConstants`.
    """
    table = _fitted_constants()
    records = [
        {**table[scale_up_link(family)], **table[fabric_link(fabric)]}
        for family, fabric in zip(families, fabrics, strict=True)
    ]
    is_mesh = [family in MESHES for family in families]
    given = {
        name: np.broadcast_to(np.asarray(value, dtype=float), (len(records),))
        for name, value in {
            "intra_bytes_per_s": intra_bytes_per_s,
            "inter_bytes_per_s_per_gpu": inter_bytes_per_s_per_gpu,
            "unlinked_members": is_mesh,
            "gpus_per_domain": gpus_per_domain,
            "gpus_per_node": gpus_per_domain if gpus_per_node is None else gpus_per_node,
            "gpus_per_card": gpus_per_card,
            "shared_card_fraction": shared_card_fraction,
            "scale_up_fraction": 1.0,
        }.items()
    }
    fitted = {
        name: np.array([record[name] for record in records])
        for name in LinkConstants.names()
        if name not in given
    }
    return LinkConstants(**fitted, **given)


def scale_up_link(family: str) -> str:
    """Returns the link class of an accelerator architecture."""
    return SCALE_UP_LINKS.get(family, OTHER_SCALE_UP)


def fabric_link(kind: str) -> str:
    """Returns the link class of a kind of fabric."""
    return INFINIBAND if kind.startswith(INFINIBAND) else OTHER_FABRIC


@cache
def _fitted_constants() -> Mapping[str, Mapping[str, float]]:
    """Returns the shipped constants by link; the file is read once."""
    table: dict[str, dict[str, float]] = {}
    for row in shipped_rows("data/link_efficiency.csv"):
        table.setdefault(row["link"], {})[row["constant"]] = float(row["value"])
    return table
