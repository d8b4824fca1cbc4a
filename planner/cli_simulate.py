"""What do you type to simulate one plan? `capplan simulate` with a job and the decisions.

Only click is imported here; everything heavier waits until the command runs, as in `planner.cli`.
"""

from __future__ import annotations

import click

LARGEST_SEED = 2**32 - 1


@click.command(short_help="Simulate one plan in full and say what it breaks.")
@click.argument("job", type=click.Path(), metavar="JOB.yaml")
@click.option(
    "--plan",
    required=True,
    metavar="KEY=VALUE,...|FILE",
    help="The decisions, such as accelerator=h100-sxm5-80gb,tp=8,pp=4,dp=16,mbs=2, or a file of them.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Replace a value of the job, such as limits.budget_usd=4e6; may be repeated.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=0,
    show_default=True,
    help="The same job, plan, version and seed give the same answer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the answer as one JSON object.")
def simulate(*, job: str, plan: str, overrides: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Simulate one plan for the training run that JOB.yaml describes.

    Keys are the fields of a plan (docs/simulate.md), with the short forms tp, pp, vpp, cp, ep, dp and mbs. What is
    left out has its default; num_gpus follows from the degrees, or dp from num_gpus.

    Exit codes: 0 an answer, also for a plan that breaks limits or cannot be run (is_feasible is false then); 2 broken
    input, such as an unknown key.
    """
    from planner.cli import _check_installation, _quiet_libraries, _rendered, _write

    _check_installation()
    from planner.job_file import load_job
    from planner.one_design import simulate_plan
    from planner.one_design_view import show_simulated
    from planner.plan_input import read_plan

    with _quiet_libraries():
        answer = simulate_plan(load_job(job, overrides), read_plan(plan), seed)
    if as_json:
        _write(answer.model_dump_json(indent=2) + "\n")
    else:
        _write(_rendered(lambda console: show_simulated(answer, console)))
