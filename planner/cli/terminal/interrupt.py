"""How do Ctrl-C and signals end a command? They interrupt it; a search stops at the first one and keeps what it has found.

The signals that a scheduler sends to end a job, and that a closed terminal sends, act like Ctrl-C. A signal that was ignored
from the start, as `nohup` ignores SIGHUP, stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from studies.progress import Stop

_BESIDE_CTRL_C = (signal.SIGTERM, signal.SIGHUP)
"""Signals that schedulers and closed terminals send; POSIX has both."""
_STDERR = 2
_NOTICE = b"\nStopping; what was evaluated will be shown. Ctrl-C again ends at once.\n"


@contextmanager
def signals_interrupt(*, afterwards: signal.Handlers = signal.SIG_DFL) -> Iterator[None]:
    """Context in which signals that would silently kill the process raise `KeyboardInterrupt`, as Ctrl-C does.

    Outside the main thread, where Python handles no signals, nothing changes.

    Args:
        afterwards: handler of these signals after the context; by default the one that they had before. If they are to be
            ignored, so is Ctrl-C.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    killing = [number for number in _BESIDE_CTRL_C if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in killing:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in killing:
            signal.signal(number, afterwards)
        if is_main and afterwards is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """Yields a function that is true after the first Ctrl-C; a second one raises `KeyboardInterrupt`, a third kills.

    Outside the main thread, where Python handles no signals, the function is always false.
    """
    asked = threading.Event()
    heard = [number for number in _BESIDE_CTRL_C if signal.getsignal(number) is not signal.SIG_IGN]
    stopping = (signal.SIGINT, *heard)

    def handle(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            for number in stopping:
                signal.signal(number, signal.SIG_DFL)
            raise KeyboardInterrupt
        asked.set()
        # os.write, because a signal may arrive while stderr is being written, and Python's streams are not reentrant.
        # Writing to a closed terminal fails.
        with suppress(OSError):
            os.write(_STDERR, _NOTICE)

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.signal(number, handle) for number in stopping}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
