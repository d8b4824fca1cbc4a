"""How is a process killed at a random moment, or at the very moment when it writes? As a child that announces its writes.

Moments are counted in transactions, since seconds mean little on a shared machine. Every kill is a SIGKILL from outside, so the
process has no chance to clean up.
"""

from __future__ import annotations

import functools
import os
import select
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DONE = 0
MANY = 4096
"""Announcements that are read at once where nobody counts them."""
WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
"""Sizes in SQLite's write-ahead log (https://sqlite.org/fileformat2.html, section 4.1)."""


@dataclass(frozen=True, kw_only=True)
class Blow:
    """When a process is killed."""

    num_transactions: int
    """Transactions that it has begun to write into SQLite files by then."""
    later_s: float
    """Seconds after it began to write the last of them, or after the start of the process if there are none."""


def in_child(work: Callable[[], object], blow: Blow | None = None) -> bool:
    """Runs work in a process of its own and returns whether it finished before it was killed.

    Raises:
        SystemExit: the work itself failed.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reads)
            _announce_transactions(writes)
            work()
            code = DONE
        finally:
            os._exit(code)
    os.close(writes)
    if blow is not None and _has_come(blow, reads):
        os.kill(child, signal.SIGKILL)
    os.close(reads)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if status != DONE:
        raise SystemExit(f"a study failed by itself (status {status}): see the traceback above")
    return True


def has_half_a_batch(path: Path) -> bool:
    """Whether the log beside an SQLite file ends in pages of a transaction that was never completed."""
    log = path.with_name(f"{path.name}-wal")
    content = log.read_bytes() if log.exists() else b""
    if len(content) < WAL_HEADER_BYTES:
        return False
    page_bytes, salts = int.from_bytes(content[8:12]), content[16:24]
    is_complete = True
    for start in range(WAL_HEADER_BYTES, len(content), FRAME_HEADER_BYTES + page_bytes):
        header = content[start : start + FRAME_HEADER_BYTES]
        if header[8:16] != salts:  # left from before the log was last begun anew
            break
        is_whole = len(content) >= start + FRAME_HEADER_BYTES + page_bytes
        # Only the last page of a transaction says how many there are.
        is_complete = is_whole and header[4:8] != bytes(4)
    return not is_complete


def _announce_transactions(pipe: int) -> None:
    """Writes a byte to a pipe whenever this process is about to write a transaction into an SQLite file."""

    class Announcing(sqlite3.Connection):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[arg-type]
            self.set_trace_callback(lambda text: os.write(pipe, b".") if text == "COMMIT" else None)

    sqlite3.connect = functools.partial(sqlite3.connect, factory=Announcing)  # type: ignore[assignment]


def _has_come(blow: Blow, reads: int) -> bool:
    """Waits for the moment; false if the process, and with it its end of the pipe, was gone before."""
    for _ in range(blow.num_transactions):
        if not os.read(reads, 1):
            return False
    moment_s = time.monotonic() + blow.later_s
    while (left_s := moment_s - time.monotonic()) > 0.0:
        if select.select([reads], [], [], left_s)[0] and not os.read(reads, MANY):
            return False
    return True
