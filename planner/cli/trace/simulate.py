"""What do you type to replay a traced step on many accelerators? `capplan trace simulate` with a trace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.gathered import gathered
from planner.cli.options.given import refuse_unread_of_rules
from planner.cli.options.network import Network
from planner.cli.options.rank_factors import speeds_over
from planner.cli.options.shared import json_option, progress_options
from planner.cli.terminal.help import examples
from planner.cli.trace.answer import tell_played
from planner.cli.trace.options import Division, division_options, network_options, played_output_option

if TYPE_CHECKING:
    from planner.trace.request import TraceRequest

_PLAYING = (
    click.option(
        "--speed",
        "speeds",
        multiple=True,
        callback=speeds_over("that of the trace"),
        metavar="RANK=FACTOR",
        help="Relative speed of an accelerator, such as 3=0.8; may be repeated.",
    ),
    click.option(
        "--traced-on", metavar="NAME", help="Accelerator of the trace, as in capplan catalog; with --on."
    ),
    click.option("--on", "other", metavar="NAME", help="Accelerator to predict the step for."),
    click.option(
        "--times",
        type=click.Choice(("proportional", "fitted")),
        default="proportional",
        show_default=True,
        help="How operator times scale with the batch: in proportion, or by lines fitted to those of the trace.",
    ),
    click.option(
        "--rules",
        type=click.Choice(("capplan", "triosim")),
        default="capplan",
        show_default=True,
        help="triosim: as TrioSim's published code, for comparison.",
    ),
    click.option(
        "--hop",
        default="",
        metavar="KEY=VALUE,...",
        help="With --parallel hop: graph (ring, ring-based, double-ring, complete, FILE.json), iterations, gap, backups, "
        "staleness, skip; slowdown, chance, seed.",
    ),
    click.option(
        "--offload",
        default="",
        metavar="KEY=VALUE,...",
        help="A limited memory (of ddp, dp): memory, host (link, BYTES/S), host-memory, host-latency; pool, pool-shared, "
        "pool-memory, pool-latency.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Playing:
    """The accelerators on which a step is replayed, and the rules: the values of `_PLAYING`."""

    speeds: dict[int, float]
    traced_on: str | None
    other: str | None
    times: str
    rules: str
    hop: str
    offload: str

    def of(self, request: TraceRequest) -> TraceRequest:
        """Returns a request with these settings."""
        from planner.trace.request import Rules, Times

        return replace(
            request,
            speeds=self.speeds,
            rules=Rules(self.rules),
            times=Times(self.times),
            traced_on=self.traced_on,
            on=self.other,
            hop=self.hop,
            offload=self.offload,
        )


@click.command(
    short_help="Replay a traced step on many accelerators.",
    epilog=examples(
        "capplan trace simulate step-trace.json --gpus 64 --parallel ddp",
        "capplan trace simulate step-trace.json --gpus 32 --parallel ddp=4,tp=2,pp=4 --network nodes",
        "capplan trace simulate step-trace.json --gpus 4 --parallel pp --interleaved 2 --microbatches 8",
        "capplan trace simulate step-trace.json --gpus 8 --speed 3=0.8 --output step.json",
        "capplan trace simulate step-trace.json --gpus 16 --parallel fsdp --network photonic --ports 2",
        "capplan trace simulate step-trace.json --gpus 64 --network torus.yaml --collectives hierarchical",
        "capplan trace simulate step-trace.json --gpus 8 --parallel hop --hop graph=ring-based,backups=1",
        "capplan trace simulate step-trace.json --gpus 8 --offload memory=8e9,host=25e9",
        "capplan trace simulate step-trace.json --gpus 8 --parallel tp --rules triosim --json",
    ),
)
@division_options
@network_options
@gathered(_PLAYING, "playing", Playing)
@played_output_option
@json_option
@progress_options
def simulate(
    *, division: Division, network: Network, playing: Playing, file: Path | None, as_json: bool, quiet: bool
) -> None:
    """Replay the step in TRACE, measured on one accelerator, on many, and report the bottlenecks.

    TRACE is a folder of TrioSim's tracer (trace.csv and tensor.csv) or a trace of capplan's; docs/deep.md says what is
    assumed.

    Exit codes: 0 an answer; 2 broken input, such as a trace that contradicts itself.
    """
    refuse_unread_of_rules(playing.rules, division.parallel)
    from planner.cli.options.names import TRACE_FIELDS, options_named
    from planner.cli.terminal.output import quiet_libraries, working_deep
    from planner.timeline.file import check_timeline_file
    from planner.trace.hop_simulation import HopRun, simulate_hop
    from planner.trace.hop_view import show_hop
    from planner.trace.request import HOP
    from planner.trace.simulation import simulate_trace
    from planner.trace.view import show_trace

    if file is not None:
        check_timeline_file(file, "--output")
    request = playing.of(network.under(division.request()))
    play = simulate_hop if division.parallel == HOP else simulate_trace
    with quiet_libraries(), working_deep("playing the step", is_shown=not quiet), options_named(TRACE_FIELDS):
        run = play(request, is_drawn=file is not None)
    show = partial(show_hop, run.answer) if isinstance(run, HopRun) else partial(show_trace, run.answer)
    about = {"trace": run.answer.trace, "parallel": division.parallel}
    tell_played(run, run.answer, show, about=about, file=file, as_json=as_json)
