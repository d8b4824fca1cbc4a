"""How does a command write? The answer to stdout; progress and messages to stderr.

A terminal gets colours and a progress line that is redrawn; a pipe gets plain text. NO_COLOR turns colours off.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli.terminal.exit_codes import NO_READER

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.record import Record
    from studies.progress import Progress, Report

WIDTH = 100
"""Width of text for a file or a pipe, in columns."""
UNWRAPPED = 10_000
"""Width for tables whose rows are to stay whole in a file or a pipe, where other programs read them line by line."""
WIDEST_TERMINAL = 120
"""Most columns that are used of a terminal; longer lines are hard to read."""
VERBOSE = "capplan.verbose"
"""Key in a command's context that says whether --verbose was typed."""


def tell(answer: Record, show: Callable[[Console], None], *, as_json: bool) -> None:
    """Prints an answer to stdout: as one JSON object, or with `show` for a person."""
    write(answer.model_dump_json(indent=2) + "\n" if as_json else rendered(show))


def tell_timeline(file: Path, holds: str = "") -> None:
    """Reports on stderr where a timeline was written, what it holds, and what opens it."""
    way = "open it in ui.perfetto.dev or chrome://tracing"
    click.echo(f"Timeline: {file} ({f'{holds}; {way}' if holds else way})", err=True)


def tell_violations(broken: Iterable[str], plan: str = "The plan") -> None:
    """Reports on stderr which limits of the job a written plan violates, beginning with what the plan is called."""
    for sentence in broken:
        click.echo(f"{plan} violates a limit: {sentence}", err=True)


def rendered(show: Callable[[Console], None], *, piped_width: int = WIDTH) -> str:
    """Returns what `show` writes: in colour if stdout is a terminal, otherwise so wide and without trailing blanks."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    console.width = min(console.width, WIDEST_TERMINAL) if console.is_terminal else piped_width
    with _to_stdout(), console.capture() as capture:  # writes nothing to stdout, but flushes it
        show(console)
    text = capture.get()
    return text if console.is_terminal else "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def write(text: str) -> None:
    """Writes to stdout; characters that its encoding lacks become question marks instead of an error."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        with _to_stdout():
            _write_all(text.encode(encoding, "replace"), encoding)
    except BrokenPipeError:
        # The reader, such as `head`, has gone. The rest of the buffer is discarded, without an error message at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(NO_READER) from None


def _write_all(content: bytes, encoding: str) -> None:
    """Writes to stdout to the end; unbuffered (PYTHONUNBUFFERED), Python itself drops what a signal or a full disk cuts off."""
    sys.stdout.flush()
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:  # text in memory, of a program that calls `main`
        sys.stdout.write(content.decode(encoding))
        return
    while content:
        num_written = stream.write(content)
        if num_written is None:  # the reader of a pipe that does not block has not kept up
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        content = content[num_written:]
    sys.stdout.flush()


@contextlib.contextmanager
def _to_stdout() -> Iterator[None]:
    """Names stdout in the error if it cannot be written to; a reader that has gone is handled elsewhere."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        from simulator.errors import StudyError, system_reason

        raise StudyError(f"the answer cannot be written to stdout: {system_reason(error)}") from error


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keeps stdout for the answer, and hides warnings meant for programmers unless --verbose is given."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        if not (sys.warnoptions or _is_verbose()):
            warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def progress(*, is_shown: bool) -> Iterator[Report]:
    """Yields a progress callback: a redrawn line on a terminal, permanent lines with --verbose, otherwise nothing."""
    if _is_verbose():
        yield _Log().report
    elif is_shown and sys.stderr.isatty():
        from planner.cli.terminal.progress_line import progress_line

        with progress_line() as report:
            yield report
    else:
        from studies.progress import ignore

        yield ignore


def working_deep(what: str, *, is_shown: bool) -> contextlib.AbstractContextManager[None]:
    """As `working`, of work at the deep depth, whose code is compiled when it is first played."""
    told = f"{what}; the first time after an installation takes a minute more"
    return working(told, is_shown=is_shown)


@contextlib.contextmanager
def working(what: str, *, is_shown: bool) -> Iterator[None]:
    """Shows that work of unknown length is under way, in the manner of `progress`."""
    from studies.progress import Progress

    with progress(is_shown=is_shown) as report:
        report(Progress(stage=what, num_done=0, num_total=None))
        yield


def _is_verbose() -> bool:
    """Returns whether --verbose was given to the running command."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(VERBOSE))


class _Log:
    """Writes one line to stderr for every stage, with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._stage = ""

    def report(self, moment: Progress) -> None:
        if moment.stage != self._stage:
            self._stage = moment.stage
            of = f" of {moment.num_total:,}" if moment.num_total else ""
            count = f" ({moment.num_done:,}{of})" if moment.num_done or of else ""
            elapsed_s = time.monotonic() - self._began
            click.echo(f"[{elapsed_s:7.1f} s] {moment.stage}{count}", err=True)
