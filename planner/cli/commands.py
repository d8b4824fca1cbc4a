"""What is the command line? Arguments in; text or JSON on stdout, progress and errors on stderr, and an exit code.

0    a recommendation          2    broken input               1    the study or its record failed
3    proven: no design fits    130  interrupted                 141  the reader of the output has gone
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from traceback import walk_tb

import click

from planner import __version__
from planner.cli.calibrate import calibrate
from planner.cli.catalog import catalog
from planner.cli.compare import compare
from planner.cli.completion import completion
from planner.cli.explain import explain
from planner.cli.goodput import goodput
from planner.cli.init import init
from planner.cli.launch import launch
from planner.cli.opendc import opendc
from planner.cli.options.names import message_of
from planner.cli.purchase import purchase
from planner.cli.recommend import recommend
from planner.cli.report import report
from planner.cli.schema import schema
from planner.cli.simulate import simulate
from planner.cli.study.group import study
from planner.cli.sweep import sweep
from planner.cli.terminal.exit_codes import BROKEN_INPUT, FAILED, INTERRUPTED, OK
from planner.cli.terminal.help import CODES, Sections
from planner.cli.terminal.interrupt import signals_interrupt
from planner.cli.terminal.numba_settings import check_numba_settings
from planner.cli.terminal.output import WIDTH
from planner.cli.timeline import timeline
from planner.cli.trace.group import trace
from planner.cli.ui import ui
from planner.cli.validate import validate
from simulator.errors import CapplanError, InputError, NoSpaceError, system_reason

MOST_SHOWN = 200
"""Most characters that an error shows of a text that cannot be written."""
_NO_MEMORY = "there is not enough memory: raise the limit of the shell (ulimit -v) or of the container, or search fewer designs"
_WITHOUT_MEMORY = re.compile(
    "failed to map segment|annot allocate memory|can't allocate lock|can't start new thread"
)
"""What errors say that come of too little memory while libraries are loaded or threads are started."""
ROOMS = ("planner", "studies", "constraints", "objectives", "simulator")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    _open_closed_streams()
    with signals_interrupt():
        try:
            code = commands.main(arguments, prog_name="capplan", standalone_mode=False)
        except click.ClickException as error:
            error.show()
            return error.exit_code
        except InputError as error:
            return _fail(message_of(error), FAILED if isinstance(error, NoSpaceError) else BROKEN_INPUT)
        except (click.Abort, KeyboardInterrupt):
            return _interrupted(arguments)
        except UnicodeEncodeError as error:
            return _fail(_not_encoded(error), FAILED)
        except MemoryError:
            return _fail(_NO_MEMORY, FAILED)
        except (ImportError, RuntimeError) as error:
            if not _WITHOUT_MEMORY.search(str(error)):
                raise
            return _fail(_NO_MEMORY, FAILED)
        except (CapplanError, OSError) as error:
            # click cannot report the interrupt on a terminal that has been closed.
            is_interrupted = isinstance(error.__context__, KeyboardInterrupt)
            return _interrupted(arguments) if is_interrupted else _fail(_told(error), FAILED)
        return code if isinstance(code, int) else OK


@click.group(
    cls=Sections,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
    epilog=CODES,
)
@click.version_option(__version__, prog_name="capplan", message="%(prog)s %(version)s")
def commands() -> None:
    """Plan the cluster for a training run, and the layout of the run on it."""
    _check_installation()
    check_numba_settings(os.environ)


for command in (
    calibrate,
    catalog,
    compare,
    completion,
    explain,
    goodput,
    init,
    launch,
    opendc,
    purchase,
    recommend,
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


def _check_installation() -> None:
    """Raises if a package of another distribution shadows one of ours of the same name."""
    ours = Path(__file__).resolve().parents[2]
    for room in ROOMS:
        spec = find_spec(room)
        place = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if place != ours:
            raise CapplanError(
                f"package {room} is taken from {place}, not from {ours}: another distribution has a package of that "
                "name; install capplan into an environment of its own"
            )


def _open_closed_streams() -> None:
    """Opens os.devnull in place of streams that were closed before Python started (`>&-`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  (open until the end)


def _interrupted(arguments: Sequence[str] | None) -> int:
    """Reports what remains after an interrupt that ends the command at once."""
    room, command, *_ = [*(sys.argv[1:] if arguments is None else arguments), "", ""]
    kept = "nothing is kept"
    if room == "study":
        resumes = "capplan study resume goes on with what was simulated"
        begun = f"{resumes}, if the study had begun"
        kept = {"run": begun, "resume": resumes}.get(command, "studies keep what they hold")
    return _fail(f"interrupted; {kept}", INTERRUPTED)


def _told(error: CapplanError | OSError) -> str:
    """Says what failed; names stdout if click could not write help, because the system's error does not."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    if isinstance(error, OSError) and frame.f_code is click.echo.__code__:
        return f"stdout cannot be written to: {system_reason(error)}"
    return message_of(error)


def _not_encoded(error: UnicodeEncodeError) -> str:
    """Says which text cannot be written, such as a file name in a locale limited to ASCII."""
    text = ascii(error.object if len(error.object) <= MOST_SHOWN else f"{error.object[:MOST_SHOWN]}...")
    way_out = "with PYTHONUTF8=1, in a UTF-8 locale (LC_ALL=C.UTF-8), or with names in ASCII it can"
    return f"{text} cannot be written in this locale, whose names are in {sys.getfilesystemencoding()}; {way_out}"


def _fail(message: str, code: int) -> int:
    """Reports why the command failed, if stderr can be written to, and returns the exit code."""
    with suppress(OSError):
        click.echo(f"Error: {message}", err=True)
    return code
