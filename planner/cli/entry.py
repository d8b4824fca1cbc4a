"""Where does `capplan` begin and end? It imports little, so that an interrupt while the rest is imported has its code, too."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from planner.cli.terminal.exit_codes import INTERRUPTED
from planner.cli.terminal.interrupt import signals_interrupt

_STDERR = 2


def main() -> int:
    """Runs the command line and returns its exit code, which no signal changes any more while Python ends."""
    with signals_interrupt(afterwards=signal.SIG_IGN):
        return _code()


def _code() -> int:
    try:
        from planner.cli.commands import main as run
    except KeyboardInterrupt:
        with suppress(OSError):  # of a terminal that is closed
            os.write(_STDERR, b"Error: interrupted; nothing is kept\n")
        return INTERRUPTED
    return run()
