"""What do you type to see the schema of a file or an answer? `capplan schema` with its name."""

from __future__ import annotations

from textwrap import fill

import click

from planner.cli.terminal.help import examples

SCHEMA_NAMES = (
    "job",
    "network",
    "answer",
    "simulate",
    "simulate-deep",
    "launch",
    "timeline",
    "trace-simulate",
    "trace-hop",
    "trace-play",
    "compare",
    "balance",
    "goodput",
    "explain",
    "purchase",
    "sweep",
    "validate",
    "validate-row",
    "calibrate",
    "catalog",
    "study-status",
    "study-front",
    "study-list",
    "study-export",
    "study-merge",
    "study-sync",
    "report",
    "ui",
    "init",
    "opendc-failures",
)
"""The same as `planner.schemas.NAMES`, which is too slow to import for `--help`."""
_WIDTH = 76
"""Width of a paragraph of help, in columns."""


@click.command(
    short_help="Print the JSON Schema of job or network files, or of what a command prints with --json.",
    epilog="\n\n".join(
        [
            fill(
                f"\b\nNames: {', '.join(SCHEMA_NAMES)}",
                _WIDTH,
                break_on_hyphens=False,
                replace_whitespace=False,
            ),
            examples("capplan schema job > job.schema.json", "capplan schema answer"),
        ]
    ),
)
@click.argument("name", type=click.Choice(SCHEMA_NAMES), metavar="NAME")
def schema(*, name: str) -> None:
    """Print a JSON Schema: of job files (job), network files (network), what recommend prints with --json (answer), ...

    Editors complete and check a job file whose first line names its schema, as `capplan init` writes it.
    """
    from planner.cli.terminal.output import write
    from planner.schemas import schema_text

    write(schema_text(name))
