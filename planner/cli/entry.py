"""Where does `capplan` begin and end? It imports little, so that an interrupt during later imports also exits with its code."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress

from planner.cli.terminal.exit_codes import INTERRUPTED
from planner.cli.terminal.interrupt import signals_interrupt

NEW_OBJECTS = 10_000
"""Objects that are made before Python looks for garbage again. Nearly all that a command makes are parts of libraries, which
stay: with Python's own 700 a command that is recorded in MLflow spends a second on looking."""
_STDERR = 2


def main() -> int:
    """Runs the command line and returns its exit code; signals can no longer change it while Python shuts down."""
    gc.set_threshold(NEW_OBJECTS)
    with signals_interrupt(afterwards=signal.SIG_IGN):
        code = _code()
    # While it shuts down, Python would look through all objects several times more, for a second or two.
    gc.freeze()
    return code


def _code() -> int:
    try:
        from planner.cli.commands import main as run
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal has been closed
            os.write(_STDERR, b"Error: interrupted; nothing is kept\n")
        return INTERRUPTED
    return run()
