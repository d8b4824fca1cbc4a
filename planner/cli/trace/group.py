"""What do you type to work with operator traces? `capplan trace` and its commands."""

from __future__ import annotations

import click

from planner.cli.terminal.help import examples
from planner.cli.trace.capture import capture
from planner.cli.trace.files import convert, export
from planner.cli.trace.plan import export_plan
from planner.cli.trace.play import play
from planner.cli.trace.simulate import simulate


@click.group(
    short_help="Replay operator traces of one accelerator on many.",
    epilog=examples(
        "capplan trace capture train.py --batch-size 32 --output step-trace.json",
        "capplan trace simulate step-trace.json --gpus 64 --parallel ddp",
        "capplan trace export step-trace.json --gpus 64 --parallel ddp --output astra",
    ),
)
def trace() -> None:
    """Replay operator traces: one step measured on one accelerator, on many, operator by operator and flow by flow."""


for command in (simulate, play, export, export_plan, convert, capture):
    trace.add_command(command)
