"""How does something slow go on while the search does? In one thread, one task after another, and no error is lost.

Whoever hands over a task waits for the one before, so that never more than two are in memory, and is told then if that went
wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import final


@final
class Behind:
    """Does one task beside whoever hands it over."""

    def __init__(self, name: str) -> None:
        """Does nothing yet; the thread, which gets the name, starts with the first task."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._task: Future[None] | None = None

    def begin(self, task: Callable[[], None]) -> None:
        """Begins a task when the one before has ended; raises what went wrong with that one, and begins nothing then."""
        self.settle()
        self._task = self._thread.submit(task)

    def settle(self) -> None:
        """Waits for the last task and raises what went wrong with it, once."""
        task, self._task = self._task, None
        if task is not None:
            task.result()

    def close(self) -> None:
        """Settles and ends the thread."""
        try:
            self.settle()
        finally:
            self._thread.shutdown()
