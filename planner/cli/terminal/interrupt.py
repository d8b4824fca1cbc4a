"""How do Ctrl-C and signals end a command? They interrupt it; a search stops at the first one and keeps what was found.

Signals of a scheduler that ends the job, and of a terminal that is closed, do as Ctrl-C does. One that is ignored from
the start, as `nohup` lets a closed terminal be, stays so.
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
"""Signals of schedulers and terminals; they exist on POSIX."""
_STDERR = 2
_NOTICE = b"\nStopping; what was evaluated will be shown. Ctrl-C again ends at once.\n"


@contextmanager
def signals_interrupt(*, afterwards: signal.Handlers = signal.SIG_DFL) -> Iterator[None]:
    """Has signals that would kill the process without a word raise `KeyboardInterrupt` meanwhile, as Ctrl-C does.

    Outside the main thread, where Python handles no signals, nothing is changed.

    Args:
        afterwards: what these signals do in the end; left out: what they did before.
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
        # A signal may come while stderr is being written, and Python's own streams do not allow that. Of a terminal that
        # is closed, nothing can be written to.
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
