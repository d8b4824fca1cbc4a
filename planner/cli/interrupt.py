"""How does Ctrl-C end a search? The first one asks it to stop and keeps what was found, the second one breaks it off.

So do the signals of a scheduler that ends the job and of a terminal that is closed.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from studies.progress import Stop

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a search; all of them exist on POSIX."""
_STDERR = 2
_NOTICE = b"\nStopping; what was evaluated will be shown. Ctrl-C again ends at once.\n"


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """Yields a function that is true after the first Ctrl-C; a second one raises `KeyboardInterrupt`, a third kills.

    Outside the main thread, where Python handles no signals, the function is always false.
    """
    asked = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            for number in STOPPING:
                signal.signal(number, signal.SIG_DFL)
            raise KeyboardInterrupt
        asked.set()
        # A signal may come while stderr is being written, and Python's own streams do not allow that.
        os.write(_STDERR, _NOTICE)

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.signal(number, handle) for number in STOPPING}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
