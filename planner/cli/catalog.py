"""What do you type to look up the catalogue? `capplan catalog` with a kind and a name."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options.completed import names_of
from planner.cli.terminal.help import examples

KINDS = ("accelerators", "nodes", "fabrics", "models", "sites", "frameworks", "rents", "factors")
"""The members of `simulator.catalog.Kind`, which is too slow to import for `--help`."""


def _names_of_kind(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Returns the entries that a half-typed name may mean, for shell completion."""
    kind = context.params.get("kind")
    return names_of(kind)(context, parameter, incomplete) if kind else []


@click.command(
    short_help="Show the catalogue of hardware, models, sites and prices.",
    epilog=examples(
        "capplan catalog",
        "capplan catalog accelerators",
        "capplan catalog accelerators h100-sxm5-80gb",
        "capplan catalog rents h100-sxm5-80gb --with prices.csv",
    ),
)
@click.argument("kind", type=click.Choice(KINDS), required=False, metavar="[KIND]")
@click.argument("name", required=False, shell_complete=_names_of_kind)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--with",
    "own",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own price list or region file, which overrides the catalogue; may be repeated.",
)
def catalog(*, kind: str | None, name: str | None, as_json: bool, own: tuple[Path, ...]) -> None:
    """List the kinds (accelerators, rents, ...), the entries of a KIND, or every figure of the entry NAME with its source."""
    from planner.cli.terminal.output import UNWRAPPED, rendered, write
    from planner.views import catalog_view
    from simulator.catalog import Kind, overlaid, read_own_figures

    chosen = Kind(kind) if kind else None
    with overlaid(read_own_figures(own)):
        if as_json:
            write(catalog_view.as_json(chosen, name))
            return
        shown = rendered(lambda console: catalog_view.show(chosen, name, console), piped_width=UNWRAPPED)
        write(shown)
