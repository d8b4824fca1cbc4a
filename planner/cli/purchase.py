"""What do you type to plan purchases for several jobs? `capplan purchase` with a fleet of jobs and offers."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options.finite_range import FiniteRange
from planner.cli.options.shared import json_option, progress_options, seed_option
from planner.cli.terminal.exit_codes import FAILED, INFEASIBLE
from planner.cli.terminal.help import examples


@click.command(
    short_help="Choose what to buy, reserve and rent for several jobs.",
    epilog=examples(
        "capplan purchase examples/fleet.yaml",
        "capplan purchase examples/fleet.yaml --set limits.capital_usd=2e6",
        "capplan purchase examples/fleet.yaml --effort 60 --json",
    ),
)
@click.argument("fleet", type=click.Path(path_type=Path), metavar="FLEET.yaml")
@seed_option("The same fleet, version, seed and effort give the same plan.")
@click.option(
    "--effort",
    type=FiniteRange(min=0.1, max=86_400.0),
    metavar="SECONDS",
    help="Deterministic seconds of the solver for the plan; default: 20.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Replace a value of the fleet, such as limits.capital_usd=4e6; may be repeated.",
)
@json_option
@progress_options
def purchase(
    *, fleet: Path, seed: int, effort: float | None, overrides: tuple[str, ...], as_json: bool, quiet: bool
) -> int:
    """Choose what to buy, reserve and rent for the jobs of FLEET.yaml, and schedule the jobs on it.

    The plan minimizes cost within the horizon, subject to all deadlines, deliveries, site power and available capital; the
    answer says whether the optimum is proven. docs/purchase.md lists the fields; examples/fleet.yaml is an example.

    Exit codes: 0 a plan; 3 proven that there is none; 2 broken input; 1 none found with this effort.
    """
    from planner.cli.terminal.output import quiet_libraries, tell, working
    from planner.purchase.answer import EFFORT, plan_purchase
    from planner.purchase.fleet import load_fleet
    from planner.purchase.view import show_purchase

    with quiet_libraries(), working("planning the purchases", is_shown=not quiet):
        asked = load_fleet(fleet, overrides)
        plan = plan_purchase(
            asked, seed=seed, folder=fleet.parent, effort=EFFORT if effort is None else effort
        )
    tell(plan, lambda console: show_purchase(plan, console), as_json=as_json)
    return {"infeasible": INFEASIBLE, "unknown": FAILED}.get(plan.status, 0)
