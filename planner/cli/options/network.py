"""What do you type to describe the network between accelerators? Its kind or a network file, slow links, algorithms."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.finite_range import FiniteRange
from planner.cli.options.gathered import Command
from planner.cli.options.given import KINDS
from planner.cli.options.rank_factors import FACTOR, IN_DIGITS

if TYPE_CHECKING:
    from planner.trace.request import TraceRequest

ALGORITHMS = ("auto", "nccl", "ring", "tree", "hierarchical", "halving-doubling", "direct")
"""The values of `simulator.deep.collectives.collective_forms.Algorithm`, which is too slow to import for `--help`."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network between the accelerators: the values of `NETWORK_OPTIONS`."""

    network: str
    bandwidth: float
    latency: float
    ramp: float
    gpus_per_node: int
    card_bandwidth: float
    ports: int
    set_up: float
    slow_links: dict[str, float]
    collectives: str

    def under(self, request: TraceRequest) -> TraceRequest:
        """Returns a request with this network."""
        from planner.trace.request import NetworkKind
        from simulator.deep.collectives.collective_forms import Algorithm

        asked = replace(request, slow_links=self.slow_links, collectives=Algorithm(self.collectives))
        if self.network not in KINDS:
            return replace(asked, network_file=Path(self.network))
        return replace(
            asked,
            network=NetworkKind(self.network),
            bandwidth_bytes_per_s=self.bandwidth,
            latency_s=self.latency,
            ramp_s=self.ramp,
            gpus_per_node=self.gpus_per_node,
            card_bytes_per_s=self.card_bandwidth,
            num_ports=self.ports,
            set_up_s=self.set_up,
        )


def _kind_or_file(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if value in KINDS:
        return value
    from planner.input.yaml_text import FILE_SUFFIXES

    if Path(value).suffix in FILE_SUFFIXES:
        return value
    raise click.BadParameter(f"{value!r} must be {', '.join(KINDS)}, or a network file, such as torus.yaml")


def _slow_links(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, float]:
    """Returns `LINK=SHARE` texts as shares by link."""
    found: dict[str, float] = {}
    for value in values:
        parts = re.fullmatch(rf"([^=]{{1,60}})={FACTOR}", value, re.ASCII)
        if parts is None or not 0.0 < float(parts[2]) <= 1.0:
            rule = (
                "must be a link and the share that is left, such as card:3=0.5 or gpu:3-switch:0=0.5; "
                f"{IN_DIGITS} and at most 1"
            )
            raise click.BadParameter(f"{value!r} {rule}")
        if parts[1] in found:
            raise click.BadParameter(f"{value!r} gives {parts[1]} a second share: give one")
        found[parts[1]] = float(parts[2])
    return found


def slow_link_option(meaning: str) -> Callable[[Command], Command]:
    """Returns the option for links with only a share of their bandwidth; a command receives them as `slow_links`."""
    return click.option(
        "--slow-link",
        "slow_links",
        multiple=True,
        callback=_slow_links,
        metavar="LINK=SHARE",
        help=meaning,
    )


def collectives_option(meaning: str) -> Callable[[Command], Command]:
    """Returns the option that forces one collective algorithm."""
    return click.option(
        "--collectives", type=click.Choice(ALGORITHMS), default="auto", show_default=True, help=meaning
    )


_RATE = FiniteRange(min=1.0, max=1e15)
"""As in network files (`simulator.deep.networks.described_network.Rate`)."""
NETWORK_OPTIONS = (
    click.option(
        "--network",
        callback=_kind_or_file,
        default="ring",
        show_default=True,
        metavar="KIND|FILE",
        help=f"The network: {', '.join(KINDS)}, or a network file (docs/network-file.md).",
    ),
    click.option(
        "--bandwidth",
        type=_RATE,
        default=65e9,
        show_default="65e9",
        metavar="BYTES/S",
        help="Bandwidth of a cable or circuit per direction; in nodes, from an accelerator to its switch.",
    ),
    click.option(
        "--latency",
        type=FiniteRange(0.0, 1e3),
        default=1e-6,
        show_default="1e-6",
        metavar="S",
        help="Latency of a cable.",
    ),
    click.option(
        "--ramp",
        type=FiniteRange(0.0, 1e3),
        default=0.0,
        show_default="0",
        metavar="S",
        help="Loss of small collectives: those that keep a cable busy for x seconds take 2 sqrt(ramp x) longer; 3e-6 "
        "fits NVLink 4. In nodes, inside the node.",
    ),
    click.option(
        "--gpus-per-node",
        type=click.IntRange(1, 1024),
        default=8,
        show_default=True,
        metavar="N",
        help="Accelerators per node (nodes only).",
    ),
    click.option(
        "--card-bandwidth",
        type=_RATE,
        default=50e9,
        show_default="50e9",
        metavar="BYTES/S",
        help="Bandwidth of the network card of each accelerator of a node.",
    ),
    click.option(
        "--ports",
        type=click.IntRange(1, 4096),
        default=8,
        show_default=True,
        metavar="N",
        help="photonic: circuits that an accelerator can have at the same time.",
    ),
    click.option(
        "--set-up",
        type=FiniteRange(0.0, 1e6),
        default=0.02,
        show_default="0.02",
        metavar="S",
        help="photonic: time from requesting a circuit until it is up.",
    ),
    slow_link_option(
        "Remaining bandwidth of a link, such as card:3=0.5, leaf:0=0.5, gpu:3-switch:0=0.5 (both ways), "
        "'gpu:3>switch:0=0.5'; may be repeated."
    ),
    collectives_option(
        "Collective algorithm; auto: the fastest of all below, for each group and size; nccl: of ring, tree and hierarchical."
    ),
)
