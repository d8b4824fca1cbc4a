"""How do slow tasks run in the background of a search? In one thread, one after another, without losing errors.

Submitting a task waits for the previous one, so at most two are in memory, and raises the error of the previous one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import final


@final
class Behind:
    """Runs one task at a time in the background."""

    def __init__(self, name: str) -> None:
        """Does nothing yet; the thread, which gets this name, starts with the first task."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._task: Future[None] | None = None

    def begin(self, task: Callable[[], None]) -> None:
        """Starts a task when the previous one has ended; if that one failed, raises its error and starts nothing."""
        self.settle()
        self._task = self._thread.submit(task)

    def settle(self) -> None:
        """Waits for the last task and raises its error, once."""
        task, self._task = self._task, None
        if task is not None:
            task.result()

    def close(self) -> None:
        """Settles and ends the thread."""
        try:
            self.settle()
        finally:
            self._thread.shutdown()
