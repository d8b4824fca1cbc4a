"""Which arguments do the commands of operator traces share? The trace, and how it is divided among accelerators."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

MOST_GPUS = 65_536
"""`simulator.deep.parallelism.MOST_GPUS`, which is too heavy to be imported for `--help`."""

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OPTIONS = (
    click.argument("path", type=click.Path(path_type=Path), metavar="TRACE"),
    click.option(
        "--gpus", type=click.IntRange(1, MOST_GPUS), required=True, metavar="N", help="Accelerators in all."
    ),
    click.option(
        "--parallel",
        default="ddp",
        show_default=True,
        metavar="KIND[=N],...",
        help="ddp, dp (gradients at the end), fsdp (sharded), tp, pp; or degrees such as ddp=4,tp=2,pp=4; or hop "
        "(decentralised).",
    ),
    click.option(
        "--batch-size",
        type=click.IntRange(1, 10**9),
        metavar="N",
        help="Samples of each replica; those of the trace if not given.",
    ),
    click.option(
        "--trace-batch-size",
        type=click.IntRange(1, 10**9),
        metavar="N",
        help="Samples of the trace, where it does not say; 128 if not given.",
    ),
    click.option(
        "--microbatches",
        type=click.IntRange(1, 4096),
        metavar="N",
        help="Parts of a batch; as many as stages if not given.",
    ),
    click.option(
        "--order",
        type=click.Choice(("1f1b", "gpipe")),
        default="1f1b",
        show_default=True,
        help="Order of micro-batches in a stage.",
    ),
)


NETWORKS = ("ring", "switch", "full", "nodes", "photonic")
_ABOVE_ZERO = click.FloatRange(min=0.0, min_open=True, max=1e15)
_NETWORK_OPTIONS = (
    click.option(
        "--network", type=click.Choice(NETWORKS), default="ring", show_default=True, help="What joins them."
    ),
    click.option(
        "--bandwidth",
        type=_ABOVE_ZERO,
        default=65e9,
        show_default="65e9",
        metavar="BYTES/S",
        help="Of a cable or circuit in one direction; in nodes, of an accelerator to its switch.",
    ),
    click.option(
        "--latency",
        type=click.FloatRange(0.0, 1e3),
        default=1e-6,
        show_default="1e-6",
        metavar="S",
        help="Of a cable.",
    ),
    click.option(
        "--gpus-per-node",
        type=click.IntRange(1, 1024),
        default=8,
        show_default=True,
        metavar="N",
        help="In nodes.",
    ),
    click.option(
        "--card-bandwidth",
        type=_ABOVE_ZERO,
        default=50e9,
        show_default="50e9",
        metavar="BYTES/S",
        help="Of the network card that each accelerator of a node has.",
    ),
    click.option(
        "--ports",
        type=click.IntRange(1, 4096),
        default=8,
        show_default=True,
        metavar="N",
        help="In photonic: circuits that an accelerator can have at one time.",
    ),
    click.option(
        "--set-up",
        type=click.FloatRange(0.0, 1e6),
        default=0.02,
        show_default="0.02",
        metavar="S",
        help="In photonic: from asking for a circuit until it is up.",
    ),
)


def network_options(command: _Command) -> _Command:
    """Adds what joins the accelerators to a command."""
    return reduce(lambda found, option: option(found), reversed(_NETWORK_OPTIONS), command)


def division_options(command: _Command) -> _Command:
    """Adds the trace and how it is divided to a command."""
    return reduce(lambda found, option: option(found), reversed(_OPTIONS), command)
