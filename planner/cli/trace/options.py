"""Which arguments do the commands of operator traces share? The trace, how it is divided among accelerators, the network.

A command receives its shared arguments as one value, which makes the request to the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from planner.cli.options.gathered import Command, Option, gathered, with_options
from planner.cli.options.given import refuse_unread_of_network
from planner.cli.options.network import NETWORK_OPTIONS, Network

if TYPE_CHECKING:
    from planner.trace.request import TraceRequest

MOST_GPUS = 65_536
"""The same as `simulator.deep.traces.parallelism.MOST_GPUS`, which is too slow to import for `--help`."""


@dataclass(frozen=True, kw_only=True)
class Division:
    """A trace, and how it is divided: the values of `division_options`."""

    path: Path
    gpus: int
    parallel: str
    batch_size: int | None
    trace_batch_size: int | None
    microbatches: int | None
    order: str
    interleaved: int

    def request(self) -> TraceRequest:
        """Returns the request, on the default network."""
        from planner.trace.request import TraceRequest
        from simulator.deep.traces.parallelism import PipelineOrder

        return TraceRequest(
            path=self.path,
            num_gpus=self.gpus,
            parallel=self.parallel,
            batch_size=self.batch_size,
            trace_batch_size=self.trace_batch_size,
            num_microbatches=self.microbatches,
            order=PipelineOrder(self.order),
            num_chunks=self.interleaved,
        )


_OPTIONS = (
    click.argument("path", type=click.Path(path_type=Path), metavar="TRACE"),
    click.option(
        "--gpus",
        type=click.IntRange(1, MOST_GPUS),
        required=True,
        metavar="N",
        help="Total number of accelerators.",
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
        help="Samples per replica; default: those of the trace.",
    ),
    click.option(
        "--trace-batch-size",
        type=click.IntRange(1, 10**9),
        metavar="N",
        help="Samples of the trace, if it does not contain them; default: 128.",
    ),
    click.option(
        "--microbatches",
        type=click.IntRange(1, 4096),
        metavar="N",
        help="Equal parts of a batch, in whole samples; default: the number of stages.",
    ),
    click.option(
        "--order",
        type=click.Choice(("1f1b", "gpipe")),
        default="1f1b",
        show_default=True,
        help="Order of micro-batches in a stage, if there are several.",
    ),
    click.option(
        "--interleaved",
        type=click.IntRange(1, MOST_GPUS),
        default=1,
        show_default=True,
        metavar="CHUNKS",
        help="Runs of layers on each stage, in turn; above 1 the order is Megatron-LM's interleaved 1F1B.",
    ),
)


_CHAKRA_OUTPUT = (
    click.option(
        "--format",
        "form",
        type=click.Choice(("et", "json")),
        default="et",
        show_default=True,
        help="et: protobuf, which ASTRA-sim reads; json: its JSON form.",
    ),
    click.option(
        "--output",
        "folder",
        type=click.Path(path_type=Path),
        required=True,
        metavar="DIR",
        help="Folder for the files; it is created.",
    ),
)
played_output_option = click.option(
    "--output",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Also write every operator and message, for ui.perfetto.dev or chrome://tracing.",
)


chakra_output_options = with_options(*_CHAKRA_OUTPUT)
"""Adds the format and the folder of Chakra traces to a command, which receives them as `form` and `folder`."""


def trace_file_option(*names: str) -> Option:
    """Returns the option, under these names, for the trace that a command writes; the command receives it as `file`."""
    return click.option(
        *names,
        "file",
        type=click.Path(path_type=Path),
        required=True,
        metavar="FILE.json",
        help="The trace to write; an older trace is replaced, other files are not.",
    )


def network_options(command: Command) -> Command:
    """Adds the options on the network to a command, which receives them as `network`."""

    @wraps(command)
    def checked(*, network: Network, **given: object) -> object:
        refuse_unread_of_network(network.network)
        return command(network=network, **given)

    return gathered(NETWORK_OPTIONS, "network", Network)(cast(Command, checked))


division_options = gathered(_OPTIONS, "division", Division)
"""Adds the trace and how it is divided to a command, which receives them as `division`."""
