"""What do you type to see which form files and answers have? `capplan schema` with the name of one.

Only click is imported here; the types wait until the command runs, as in `planner.cli.commands`.
"""

from __future__ import annotations

import click

from planner.cli.help import examples

SCHEMA_NAMES = (
    "job",
    "network",
    "answer",
    "simulate",
    "simulate-deep",
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
"""`planner.schemas.NAMES`, which is too heavy to be imported for `--help`."""


@click.command(
    short_help="Print the JSON Schema of job or network files, or of what a command prints with --json.",
    epilog=examples("capplan schema job > job.schema.json", "capplan schema answer"),
)
@click.argument("name", type=click.Choice(SCHEMA_NAMES))
def schema(*, name: str) -> None:
    r"""Print a JSON Schema: of job files (job), network files (network), what recommend prints with --json (answer), ...

    An editor completes and checks a job file whose first line names the schema, as `capplan init` writes it:

    \b
      # yaml-language-server: $schema=job.schema.json
    """
    from planner.cli.output import write
    from planner.schemas import schema_text

    write(schema_text(name))
