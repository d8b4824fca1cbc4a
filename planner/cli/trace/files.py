"""What do you type to import and export traces? `capplan trace convert` and `capplan trace export`."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options.shared import progress_options
from planner.cli.terminal.help import examples
from planner.cli.trace.answer import size_words, tell_chakra
from planner.cli.trace.options import Division, chakra_output_options, division_options, trace_file_option


@click.command(
    short_help="Write a traced step on many accelerators as Chakra traces, for ASTRA-sim.",
    epilog=examples(
        "capplan trace export step-trace.json --gpus 64 --parallel ddp --output astra",
        "capplan trace export step-trace.json --gpus 8 --parallel tp=4,pp=2 --format json --output astra",
    ),
)
@division_options
@chakra_output_options
@progress_options
def export(
    *,
    division: Division,
    form: str,
    folder: Path,
    quiet: bool,
) -> None:
    """Write the step in TRACE, spread over many accelerators, as Chakra execution traces.

    Writes one file per accelerator, step.RANK.et, with its operators and collectives, and the groups of the collectives in
    step.groups.json. Collectives are not split: the other simulator chooses their algorithms. Older files of these names
    are replaced; a folder with traces of more accelerators, or in the other format, is refused.

    Exit codes: 0 the files are written; 2 broken input.
    """
    from planner.cli.options.names import TRACE_FIELDS, options_named
    from planner.cli.terminal.output import quiet_libraries, working
    from planner.trace.export import export_trace

    with quiet_libraries(), working("writing the traces", is_shown=not quiet), options_named(TRACE_FIELDS):
        num_nodes = export_trace(division.request(), folder, suffix=f".{form}")
    tell_chakra(folder / f"step.0.{form}", division.gpus, num_nodes)


@click.command(
    short_help="Make a trace from a profile and an execution trace of PyTorch.",
    epilog=examples(
        "capplan trace convert profile.json graph.json --batch-size 512 --output step-trace.json"
    ),
)
@click.argument("profile", type=click.Path(path_type=Path), metavar="PROFILE.json")
@click.argument("graph", type=click.Path(path_type=Path), metavar="GRAPH.json")
@click.option(
    "--batch-size", type=click.IntRange(1, 10**9), required=True, metavar="N", help="Samples of the step."
)
@trace_file_option("--output")
@progress_options
def convert(*, profile: Path, graph: Path, batch_size: int, file: Path, quiet: bool) -> None:
    """Make a trace from what torch.profiler (PROFILE) and ExecutionTraceObserver (GRAPH) wrote of the same step.

    Both may be gzipped. Times are those of the kernels, without traffic between accelerators. Of a profile of several
    steps, the last one is used.

    Exit codes: 0 the trace is written; 2 broken input.
    """
    from planner.cli.terminal.output import quiet_libraries, working
    from planner.trace.export import convert_profile

    with quiet_libraries(), working("reading the profile", is_shown=not quiet):
        made = convert_profile(profile, graph, file, batch_size=batch_size)
    click.echo(f"{file}: {size_words(made)}", err=True)
