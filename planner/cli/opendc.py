"""What do you type to exchange runs and traces with OpenDC? `capplan opendc export` and `capplan opendc failures`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.options.finite_range import FiniteRange
from planner.cli.options.shared import (
    PlannedJob,
    json_option,
    planned_job_options,
    progress_options,
    replay_option,
    seed_option,
)
from planner.cli.terminal.help import examples

if TYPE_CHECKING:
    from planner.opendc.failures import TracedFailures

LAST_REPLAY = 999_999


@click.group(
    short_help="Exchange runs and traces with the OpenDC simulator.",
    epilog=examples(
        "capplan opendc export job.yaml --plan tp=8,dp=8 --output experiment",
        "capplan opendc failures failures.parquet --nodes 128",
    ),
)
def opendc() -> None:
    """Exchange runs and traces with OpenDC, a simulator of whole data centres.

    Its carbon traces need no command: a job's site takes them as its grid_profile.
    """


@opendc.command(
    short_help="Write one run of a plan as an OpenDC experiment.",
    epilog=examples(
        "capplan opendc export job.yaml --plan tp=8,dp=8 --output experiment",
        "capplan opendc export job.yaml --plan plan.yaml --replay 3 --every 3600 --output experiment",
    ),
)
@planned_job_options
@seed_option("The same job, plan, version and seed give the same run.")
@replay_option(LAST_REPLAY)
@click.option(
    "--every",
    "period_s",
    type=FiniteRange(min=1.0, max=86_400.0),
    metavar="SECONDS",
    help="Length of the fragments, which have their mean power; otherwise one for each event of the run.",
)
@click.option(
    "--start",
    type=click.DateTime(("%Y-%m-%d", "%Y-%m-%dT%H:%M")),
    default="2026-01-01",
    show_default=True,
    help="When the run begins, in UTC.",
)
@click.option(
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="New folder of the files.",
)
@progress_options
def export(
    *,
    planned: PlannedJob,
    seed: int,
    replay: int,
    period_s: float | None,
    start: datetime,
    folder: Path,
    quiet: bool,
) -> None:
    """Write one run of a plan as an OpenDC experiment: workload, topology, power, carbon and failures.

    docs/how-to/opendc.md describes each file. A folder that already holds an experiment is refused.

    Exit codes: 0 the files are written, even if the plan violates limits, which is reported; 2 broken input, or a plan
    that cannot be run.
    """
    from planner.cli.terminal.output import quiet_libraries, tell_violations, working
    from planner.explain.runnable_plan import checked_plan
    from planner.opendc.export import export_opendc
    from planner.text import human

    with quiet_libraries(), working("writing the experiment", is_shown=not quiet):
        asked, chosen = planned.read()
        checked, broken = checked_plan(asked, chosen)
        written = export_opendc(
            asked, checked, folder, start=start, seed=seed, replication=replay, period_s=period_s
        )
    tasks, fragments = (
        human.counted(written.num_tasks, "task"),
        human.counted(written.num_fragments, "fragment"),
    )
    click.echo(
        f"{folder / 'experiment.json'}: {tasks} with {fragments}, {written.energy_kwh:,.0f} kWh", err=True
    )
    tell_violations(broken)


@opendc.command(
    short_help="Convert an OpenDC failure trace into a job's reliability.",
    epilog=examples(
        "capplan opendc failures failures.parquet --nodes 128",
        "capplan opendc failures failures.parquet --nodes 128 --json",
    ),
)
@click.argument("file", type=click.Path(path_type=Path), metavar="TRACE.parquet")
@click.option(
    "--nodes",
    "num_nodes",
    type=click.IntRange(1, 1_000_000),
    required=True,
    metavar="N",
    help="Nodes of the cluster that fails so; a job takes all of them.",
)
@click.option(
    "--gpus-per-node", type=click.IntRange(1, 1024), default=8, show_default=True, help="Accelerators of one."
)
@json_option
def failures(*, file: Path, num_nodes: int, gpus_per_node: int, as_json: bool) -> None:
    """Convert a failure trace (interval, duration and intensity of each failure) into lines for a job file.

    Exit codes: 0 an answer; 2 broken input.
    """
    from planner.cli.terminal.output import quiet_libraries, write
    from planner.opendc.failures import read_failures

    with quiet_libraries():
        traced = read_failures(file, num_nodes=num_nodes, gpus_per_node=gpus_per_node)
    write(traced.model_dump_json(indent=2) + "\n" if as_json else _as_yaml(traced))


def _as_yaml(traced: TracedFailures) -> str:
    days = f"{traced.span_days:,.1f} days"
    lines = [
        f"# {traced.num_stops:,} of {traced.num_rows:,} failures in {days} hit a node of {traced.num_nodes:,}",
        "reliability:",
        *(f"  {name}: {value:.6g}" for name, value in traced.fields().items()),
    ]
    return "\n".join(lines) + "\n"
