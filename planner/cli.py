"""What do you type? The command line: arguments in, text or JSON on stdout, progress and errors on stderr, an exit code.

    0    a recommendation          2    broken input               1    the study or its record failed
    3    proven: no design fits    130  interrupted by Ctrl-C       141  nobody reads the output any more

Only click is imported here; everything heavier waits until a command needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner import __version__, cli_goodput, cli_report, cli_simulate, cli_study, cli_sweep, cli_validate
from planner.cli_options import job_argument, json_option, seed_option, set_option
from simulator.errors import CapplanError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from planner.output import FrontFormat
    from planner.recommendation import Recommendation
    from studies.progress import Report

OK, FAILED, BROKEN_INPUT, INFEASIBLE, INTERRUPTED, NO_READER = 0, 1, 2, 3, 130, 141
EXIT_CODES = {"recommended": OK, "infeasible": INFEASIBLE, "interrupted": INTERRUPTED}

WIDTH = 100
"""Columns of text that goes to a file or a pipe."""
WIDEST_TERMINAL = 120
"""Longer lines are hard to read."""

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
        return _fail("interrupted", INTERRUPTED)
    except (CapplanError, OSError) as error:
        return _fail(str(error), FAILED)
    return code if isinstance(code, int) else OK


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH})
@click.version_option(__version__, prog_name="capplan", message="%(prog)s %(version)s")
def commands() -> None:
    """Which cluster to take for a training run, and how to lay the run out on it."""


@commands.command(short_help="Recommend a cluster and a layout for a training run.")
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
@click.option(
    "--tracking-uri",
    metavar="URI",
    help="MLflow store; otherwise MLFLOW_TRACKING_URI, otherwise capplan-studies/mlflow.db.",
)
@click.option("--experiment", default="capplan", show_default=True, help="MLflow experiment of the study.")
@click.option("--no-tracking", is_flag=True, help="Leave MLflow out.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def recommend(
    *,
    job: str,
    overrides: tuple[str, ...],
    seed: int,
    as_json: bool,
    output: Path | None,
    front_format: FrontFormat | None,
    tracking_uri: str | None,
    experiment: str,
    no_tracking: bool,
    quiet: bool,
) -> int:
    """Recommend a cluster and a layout for the training run that JOB.yaml describes.

    Exit codes: 0 a recommendation; 3 proven that no design keeps the limits; 2 broken input; 130 interrupted
    (Ctrl-C once: the best so far; twice: nothing); 1 anything else.
    """
    if front_format and output is None:
        raise click.UsageError("--format says how --output writes the front: give --output DIR, too")
    if tracking_uri and no_tracking:
        raise click.UsageError("--tracking-uri and --no-tracking contradict each other: give one of them")
    _check_installation()
    from planner import load_job
    from planner import recommend as answer_to
    from planner.interrupt import stop_on_interrupt

    with _quiet_libraries(), stop_on_interrupt() as should_stop, _progress(is_shown=not quiet) as report:
        answer = answer_to(
            load_job(job, overrides),
            seed=seed,
            tracking=not no_tracking,
            tracking_uri=tracking_uri,
            experiment=experiment,
            output=output,
            front_format=front_format or "csv",
            progress=report,
            should_stop=should_stop,
        )
    _print_answer(answer, output, as_json=as_json)
    return EXIT_CODES[answer.status]


@commands.command(short_help="Show what is known about hardware, models, sites and prices.")
@click.argument("kind", type=click.Choice(CATALOG_KINDS), required=False)
@click.argument("name", required=False)
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
    _check_installation()
    from planner import catalog_view
    from simulator.catalog import Kind, overlaid, read_own_figures

    chosen = Kind(kind) if kind else None
    with overlaid(read_own_figures(own)):
        if as_json:
            _write(catalog_view.as_json(chosen, name))
            return
        _write(_rendered(lambda console: catalog_view.show(chosen, name, console)))


for command in (
    cli_goodput.goodput,
    cli_report.report,
    cli_simulate.simulate,
    cli_study.study,
    cli_sweep.sweep,
    cli_validate.validate,
):
    commands.add_command(command)


def _print_answer(answer: Recommendation, output: Path | None, *, as_json: bool) -> None:
    from planner.output import answer_json
    from planner.render import show

    if as_json:
        _write(answer_json(answer))
        return
    files = sorted(path for path in output.iterdir() if path.is_file()) if output else []
    _write(_rendered(lambda console: show(answer, console, command=_typed_command(), files=files)))


def _typed_command() -> str:
    """Returns the command as it was typed, less how its answer was to be shown."""
    context = click.get_current_context()
    given = context.params
    parts = ["capplan", "recommend", shlex.quote(given["job"])]
    parts += [f"--set {shlex.quote(override)}" for override in given["overrides"]]
    if given["seed"]:
        parts.append(f"--seed {given['seed']}")
    if given["tracking_uri"]:
        parts.append(f"--tracking-uri {shlex.quote(given['tracking_uri'])}")
    if given["experiment"] != "capplan":
        parts.append(f"--experiment {shlex.quote(given['experiment'])}")
    return " ".join([*parts, *(["--no-tracking"] if given["no_tracking"] else [])])


def _rendered(show: Callable[[Console], None]) -> str:
    """Returns what is shown, in colour where stdout is a terminal, without blanks at the ends of lines elsewhere."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    console.width = min(console.width, WIDEST_TERMINAL) if console.is_terminal else WIDTH
    with console.capture() as capture:
        show(console)
    text = capture.get()
    return text if console.is_terminal else "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _write(text: str) -> None:
    """Writes to stdout; what its encoding lacks becomes a question mark instead of an error."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has gone. What is still in the buffer goes nowhere, without a complaint at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(NO_READER) from None


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Keeps stdout for the answer, and warnings meant for programmers from a user's eyes (`python -W` shows them)."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _progress(*, is_shown: bool) -> Iterator[Report]:
    """Yields what the search reports to: a line on stderr that renews itself, nothing where that is no terminal."""
    from studies.progress import ignore

    if not (is_shown and sys.stderr.isatty()):
        yield ignore
        return
    from planner.progress_line import progress_line

    with progress_line() as report:
        yield report


def _check_installation() -> None:
    """Raises where another distribution has put a package of the same name before one of ours."""
    ours = Path(__file__).resolve().parent.parent
    for room in ROOMS:
        spec = find_spec(room)
        place = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if place != ours:
            raise CapplanError(
                f"package {room} is taken from {place}, not from {ours}: another distribution has a package of that "
                "name; install capplan into an environment of its own"
            )


def _fail(message: str, code: int) -> int:
    click.echo(f"Error: {message}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
