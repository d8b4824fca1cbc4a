"""What do you type to see how answers differ, and why? `capplan compare` with studies, answers, jobs and plans."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli.options.shared import json_option, progress_options, seed_option, store_option
from planner.cli.terminal.help import examples


@click.command(
    short_help="Compare studies, answers or plans, and explain the differences.",
    epilog=examples(
        "capplan compare job.yaml cheaper.yaml",
        "capplan compare job.yaml@tp=8,pp=4,dp=16 job.yaml@tp=4,pp=8,dp=16 --html page.html",
        "capplan compare llama-70b-1a2b3c4d answer/ --json",
    ),
)
@click.argument("sides", nargs=-1, required=True, metavar="A B [C...]")
@seed_option("Seed of the search for jobs given without a plan.")
@store_option
@click.option(
    "--html",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Also write an HTML page with every figure; it opens offline.",
)
@json_option
@progress_options
def compare(
    *, sides: tuple[str, ...], seed: int, folder: Path, file: Path | None, as_json: bool, quiet: bool
) -> None:
    """Compare A with B and others: inputs, designs, figures, and the cause of each difference.

    A side is a study (its name, the start of its hash, or its file), the folder of an answer (--output of capplan
    recommend), a job with a plan (JOB.yaml@tp=8,pp=4,dp=16 or JOB.yaml@plan.yaml), or a job, whose recommendation is
    searched first. Each difference of a figure is split into: each input of B alone under the design of A, the
    interaction of all inputs, and the different design.

    Exit codes: 0 an answer; 2 broken input; 1 a study that cannot be read; 130 interrupted.
    """
    from planner.cli.terminal.output import progress, quiet_libraries, tell
    from planner.compare.page import check_page_file, comparison_page
    from planner.compare.side_by_side import compare as compare_sides
    from planner.compare.sides import read_side
    from planner.compare.view import show_comparison
    from planner.input.own_files import replacing
    from studies.files.store import StudyStore

    if len(sides) < 2:
        raise click.UsageError("give two or more of: study, folder of an answer, JOB.yaml@PLAN, JOB.yaml")
    if file is not None:
        check_page_file(file)
    with quiet_libraries(), progress(is_shown=not quiet) as report:
        store = StudyStore(folder)
        found = compare_sides([read_side(side, store, seed=seed, progress=report) for side in sides])
    tell(found, lambda console: show_comparison(found, console), as_json=as_json)
    if file is not None:
        with replacing(file, "--html") as draft:
            draft.write_text(comparison_page(found), encoding="utf-8")
        click.echo(f"Page: {file}", err=True)
