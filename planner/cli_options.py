"""Which arguments do several commands have in common? A job file, values that replace its own, and a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

LARGEST_SEED = 2**32 - 1

Command = TypeVar("Command", bound=Callable[..., Any])

job_argument = click.argument("job", type=click.Path(), metavar="JOB.yaml")
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Replace a value of the job, such as limits.budget_usd=4e6; may be repeated.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as one JSON object.")


def seed_option(meaning: str) -> Callable[[Command], Command]:
    """Returns the option of a seed with what the same seed promises."""
    return click.option(
        "--seed", type=click.IntRange(0, LARGEST_SEED), default=0, show_default=True, help=meaning
    )
