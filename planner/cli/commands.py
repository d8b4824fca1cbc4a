"""What do you type? The command line: arguments in, text or JSON on stdout, progress and errors on stderr, an exit code.

    0    a recommendation          2    broken input               1    the study or its record failed
    3    proven: no design fits    130  interrupted by Ctrl-C       141  nobody reads the output any more

Only click is imported here; everything heavier waits until a command needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner import __version__
from planner.cli.calibrate import calibrate
from planner.cli.compare import compare
from planner.cli.completion import completion
from planner.cli.explain import explain
from planner.cli.goodput import goodput
from planner.cli.help import CODES, Sections, examples
from planner.cli.init import init
from planner.cli.opendc import opendc
from planner.cli.options import (
    Tracking,
    job_argument,
    json_option,
    progress_options,
    seed_option,
    set_option,
    tracking_options,
)
from planner.cli.output import WIDTH, progress, quiet_libraries, rendered, write
from planner.cli.purchase import purchase
from planner.cli.report import report
from planner.cli.schema import schema
from planner.cli.simulate import simulate
from planner.cli.study import study
from planner.cli.sweep import sweep
from planner.cli.timeline import timeline
from planner.cli.trace import trace
from planner.cli.ui import ui
from planner.cli.validate import validate
from simulator.errors import CapplanError, InputError

if TYPE_CHECKING:
    from planner.output import FrontFormat
    from planner.recommendation import Recommendation
    from planner.typed_command import TypedCommand

OK, FAILED, BROKEN_INPUT, INFEASIBLE, INTERRUPTED = 0, 1, 2, 3, 130
EXIT_CODES = {"recommended": OK, "infeasible": INFEASIBLE, "interrupted": INTERRUPTED}

FRONT_FORMATS = ("csv", "parquet")

CATALOG_KINDS = ("accelerators", "nodes", "fabrics", "models", "sites", "rents", "factors")
"""The members of `simulator.catalog.Kind`, which is too heavy to be imported for `--help`."""
ROOMS = ("planner", "studies", "constraints", "objectives", "simulator")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    try:
        code = commands.main(arguments, prog_name="capplan", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InputError as error:
        return _fail(str(error), BROKEN_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return _fail(f"interrupted; {_kept(arguments)}", INTERRUPTED)
    except (CapplanError, OSError) as error:
        return _fail(str(error), FAILED)
    return code if isinstance(code, int) else OK


@click.group(
    cls=Sections,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
    epilog=CODES,
)
@click.version_option(__version__, prog_name="capplan", message="%(prog)s %(version)s")
def commands() -> None:
    """Which cluster to take for a training run, and how to lay the run out on it."""
    _check_installation()


@commands.command(
    short_help="Recommend a cluster and a layout for a training run.",
    epilog=examples(
        "capplan recommend job.yaml",
        "capplan recommend job.yaml --set limits.budget_usd=4e6 --set site=sweden",
        "capplan recommend job.yaml --json --no-tracking > answer.json",
        "capplan recommend job.yaml --output answer --format parquet",
    ),
)
@job_argument
@set_option
@seed_option("The same job, version and seed give the same answer.")
@json_option
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write the answer, the front, all evaluated designs and a report into a new folder.",
)
@click.option(
    "--format",
    "front_format",
    type=click.Choice(FRONT_FORMATS),
    help="How --output writes the front; csv if not given.",
)
@tracking_options("Leave MLflow out.")
@progress_options
def recommend(
    *,
    job: str,
    overrides: tuple[str, ...],
    seed: int,
    as_json: bool,
    output: Path | None,
    front_format: FrontFormat | None,
    tracking: Tracking,
    quiet: bool,
) -> int:
    """Recommend a cluster and a layout for the training run that JOB.yaml describes.

    Exit codes: 0 a recommendation; 3 proven that no design keeps the limits; 2 broken input; 130 interrupted
    (Ctrl-C once: the best so far; twice: nothing); 1 anything else.
    """
    if front_format and output is None:
        raise click.UsageError("--format says how --output writes the front: give --output DIR, too")
    if tracking.tracking_uri and tracking.no_tracking:
        raise click.UsageError("--tracking-uri and --no-tracking contradict each other: give one of them")
    from planner import load_job
    from planner import recommend as answer_to
    from planner.cli.interrupt import stop_on_interrupt

    with quiet_libraries(), stop_on_interrupt() as should_stop, progress(is_shown=not quiet) as report:
        answer = answer_to(
            load_job(job, overrides),
            seed=seed,
            tracking=not tracking.no_tracking,
            tracking_uri=tracking.tracking_uri,
            experiment=tracking.experiment,
            output=output,
            front_format=front_format or "csv",
            progress=report,
            should_stop=should_stop,
        )
    _print_answer(answer, output, as_json=as_json)
    return EXIT_CODES[answer.status]


def _names_of_kind(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the entries that a half-typed name may mean, for completion by the shell."""
    from simulator.catalog import Kind, names

    kind = context.params.get("kind")
    return [name for name in names(Kind(kind)) if name.startswith(incomplete)] if kind else []


@commands.command(
    short_help="Show what is known about hardware, models, sites and prices.",
    epilog=examples(
        "capplan catalog",
        "capplan catalog accelerators",
        "capplan catalog accelerators h100-sxm5-80gb",
        "capplan catalog rents h100-sxm5-80gb --with prices.csv",
    ),
)
@click.argument("kind", type=click.Choice(CATALOG_KINDS), required=False)
@click.argument("name", required=False, shell_complete=_names_of_kind)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--with",
    "own",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Own price list or region file over the catalogue; may be repeated.",
)
def catalog(*, kind: str | None, name: str | None, as_json: bool, own: tuple[Path, ...]) -> None:
    """List the kinds, the entries of a KIND, or every figure of the entry NAME with its source."""
    from planner import catalog_view
    from simulator.catalog import Kind, overlaid, read_own_figures

    chosen = Kind(kind) if kind else None
    with overlaid(read_own_figures(own)):
        if as_json:
            write(catalog_view.as_json(chosen, name))
            return
        write(rendered(lambda console: catalog_view.show(chosen, name, console)))


for command in (
    calibrate,
    compare,
    completion,
    explain,
    goodput,
    init,
    opendc,
    purchase,
    report,
    schema,
    simulate,
    study,
    sweep,
    timeline,
    trace,
    ui,
    validate,
):
    commands.add_command(command)


def _print_answer(answer: Recommendation, output: Path | None, *, as_json: bool) -> None:
    from planner.output import answer_json
    from planner.render import show

    if as_json:
        write(answer_json(answer))
        return
    files = sorted(path for path in output.iterdir() if path.is_file()) if output else []
    write(rendered(lambda console: show(answer, console, command=_typed_command(), files=files)))


def _typed_command() -> TypedCommand:
    """Returns the command as it was typed, less how its answer was to be shown."""
    from planner.typed_command import TypedCommand

    given = click.get_current_context().params
    options = [f"--tracking-uri {shlex.quote(given['tracking_uri'])}"] if given["tracking_uri"] else []
    options += (
        [f"--experiment {shlex.quote(given['experiment'])}"] if given["experiment"] != "capplan" else []
    )
    options += ["--no-tracking"] if given["no_tracking"] else []
    return TypedCommand(
        job=given["job"], overrides=given["overrides"], seed=given["seed"], options=tuple(options)
    )


def _check_installation() -> None:
    """Raises where another distribution has put a package of the same name before one of ours."""
    ours = Path(__file__).resolve().parents[2]
    for room in ROOMS:
        spec = find_spec(room)
        place = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if place != ours:
            raise CapplanError(
                f"package {room} is taken from {place}, not from {ours}: another distribution has a package of that "
                "name; install capplan into an environment of its own"
            )


def _kept(arguments: Sequence[str] | None) -> str:
    """Says what an interrupt that ends at once leaves behind."""
    given = sys.argv[1:] if arguments is None else arguments
    is_study = list(given[:1]) == ["study"]
    return "capplan study resume goes on with what was simulated" if is_study else "nothing is kept"


def _fail(message: str, code: int) -> int:
    click.echo(f"Error: {message}", err=True)
    return code
