"""What do you type to play a traced step on many accelerators? `capplan trace simulate` with a trace.

Only click is imported here; everything heavier waits until the command runs, as in `planner.cli`.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import click

from planner.cli_help import examples
from planner.cli_options import json_option, progress_options
from planner.cli_trace_answer import tell
from planner.cli_trace_files import convert, export
from planner.cli_trace_options import division_options, network_options
from planner.cli_trace_plan import export_plan
from planner.cli_trace_play import play


def _speeds(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[int, float]:
    """Returns `RANK=FACTOR` pairs as numbers."""
    found = {}
    for value in values:
        pair = re.fullmatch(r"(\d{1,6})=(\d{1,4}(?:\.\d{1,12})?|\.\d{1,12})", value, re.ASCII)
        if pair is None or float(pair[2]) == 0.0:
            rule = "must be an accelerator and its speed over that of the trace, such as 3=0.8"
            raise click.BadParameter(f"{value!r} {rule}")
        found[int(pair[1])] = float(pair[2])
    return found


@click.group(
    short_help="Play operator traces of one accelerator on many.",
    epilog=examples(
        "capplan trace simulate vgg13 --gpus 64 --parallel ddp",
        "capplan trace export vgg13 --gpus 64 --parallel ddp --output astra",
        "capplan trace convert profile.json graph.json --batch-size 512 --output step-trace.json",
    ),
)
def trace() -> None:
    """Operator traces: one step measured on one accelerator, played on many, operator by operator, flow by flow."""


@trace.command(
    short_help="Play a traced step on many accelerators.",
    epilog=examples(
        "capplan trace simulate vgg13 --gpus 64 --parallel ddp",
        "capplan trace simulate vgg13 --gpus 32 --parallel ddp=4,tp=2,pp=4 --network nodes",
        "capplan trace simulate vgg13 --gpus 8 --speed 3=0.8 --output step.json",
        "capplan trace simulate vgg13 --gpus 8 --parallel tp --rules triosim --json",
    ),
)
@division_options
@network_options
@click.option(
    "--speed",
    "speeds",
    multiple=True,
    callback=_speeds,
    metavar="RANK=FACTOR",
    help="An accelerator slower or faster than that of the trace; may be repeated.",
)
@click.option(
    "--traced-on", metavar="NAME", help="Accelerator of the trace, as in capplan catalog; with --on."
)
@click.option("--on", "other", metavar="NAME", help="Accelerator that the step is asked for.")
@click.option(
    "--times",
    type=click.Choice(("proportional", "fitted")),
    default="proportional",
    show_default=True,
    help="Operators with another batch: in proportion, or by lines fitted to those of the trace.",
)
@click.option(
    "--rules",
    type=click.Choice(("capplan", "triosim")),
    default="capplan",
    show_default=True,
    help="triosim: as TrioSim's published code, for comparison.",
)
@click.option(
    "--output",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE.json",
    help="Also write every operator and message, for ui.perfetto.dev or chrome://tracing.",
)
@json_option
@progress_options
def simulate(
    *,
    path: Path,
    gpus: int,
    parallel: str,
    batch_size: int | None,
    trace_batch_size: int | None,
    microbatches: int | None,
    order: str,
    network: str,
    bandwidth: float,
    latency: float,
    gpus_per_node: int,
    card_bandwidth: float,
    speeds: dict[int, float],
    traced_on: str | None,
    other: str | None,
    times: str,
    rules: str,
    file: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Play the step in TRACE, measured on one accelerator, on many, and say what holds it up.

    TRACE is a folder of TrioSim's tracer (trace.csv and tensor.csv) or a trace of capplan's; docs/deep.md says what is
    assumed.

    Exit codes: 0 an answer; 2 broken input, such as a trace that contradicts itself.
    """
    from planner.cli import _check_installation
    from planner.cli_output import quiet_libraries, working

    _check_installation()
    from planner.timeline_file import check_timeline_file
    from planner.trace_request import NetworkKind, Rules, Times, TraceRequest
    from planner.trace_simulation import simulate_trace
    from planner.trace_view import show_trace
    from simulator.deep.parallelism import PipelineOrder

    if file is not None:
        check_timeline_file(file, "--output")
    request = TraceRequest(
        path=path,
        num_gpus=gpus,
        parallel=parallel,
        batch_size=batch_size,
        trace_batch_size=trace_batch_size,
        num_microbatches=microbatches,
        order=PipelineOrder(order),
        network=NetworkKind(network),
        bandwidth_bytes_per_s=bandwidth,
        latency_s=latency,
        gpus_per_node=gpus_per_node,
        card_bytes_per_s=card_bandwidth,
        speeds=speeds,
        rules=Rules(rules),
        times=Times(times),
        traced_on=traced_on,
        on=other,
    )
    with quiet_libraries(), working("playing the step", is_shown=not quiet):
        run = simulate_trace(request)
    about = {"trace": run.answer.trace, "parallel": parallel}
    tell(run, run.answer, partial(show_trace, run.answer), about=about, file=file, as_json=as_json)


for command in (play, export, export_plan, convert):
    trace.add_command(command)
