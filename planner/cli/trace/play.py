"""What do you type to replay Chakra traces? `capplan trace play` with their folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from planner.cli.options.network import Network
from planner.cli.options.shared import json_option, progress_options
from planner.cli.terminal.help import examples
from planner.cli.trace.answer import tell_played
from planner.cli.trace.options import network_options, played_output_option


@click.command(
    short_help="Replay the Chakra traces of several accelerators on a network.",
    epilog=examples(
        "capplan trace play astra --network switch",
        "capplan trace play astra --network nodes --output step.json",
    ),
)
@click.argument("folder", type=click.Path(path_type=Path), metavar="FOLDER")
@network_options
@played_output_option
@json_option
@progress_options
def play(
    *,
    folder: Path,
    network: Network,
    file: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Replay the Chakra execution traces in FOLDER, and report the bottlenecks.

    FOLDER has NAME.RANK.et (protobuf) or .json for every accelerator, and NAME.groups.json with the groups of their
    collectives, as capplan trace export and generators for ASTRA-sim write them.

    Exit codes: 0 an answer; 2 broken input, such as collectives that do not fit together.
    """
    from planner.cli.options.names import PLAYED_TRACES, options_named
    from planner.cli.terminal.output import quiet_libraries, working_deep
    from planner.timeline.file import check_timeline_file
    from planner.trace.play import play_traces
    from planner.trace.request import TraceRequest
    from planner.trace.view import show_played

    if file is not None:
        check_timeline_file(file, "--output")
    request = network.under(TraceRequest(path=folder, num_gpus=1))
    with (
        quiet_libraries(),
        working_deep("playing the traces", is_shown=not quiet),
        options_named(PLAYED_TRACES),
    ):
        run = play_traces(request, is_drawn=file is not None)
    about = {"traces": run.answer.traces}
    tell_played(run, run.answer, partial(show_played, run.answer), about=about, file=file, as_json=as_json)
