"""Who may write here? One process at a time, however the one before ended: a lock ends with its process."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from simulator.errors import StudyError, system_reason

NUM_TRIES: Final = 4
WAIT_S: Final = 0.05
"""How often a lock is tried, and the pause after each time."""


def lock_of(path: Path) -> Path:
    """Returns the file whose lock is that of another file; it stands beside it."""
    return path.with_name(f"{path.name}.lock")


@contextmanager
def held(lock: Path, owner: str, what_others_do: str) -> Iterator[None]:
    """Inside it no other process holds this lock; whatever ends the process, the lock is free again.

    Args:
        lock: file that is locked; it is there only meanwhile.
        owner: what errors call the thing that the lock guards.
        what_others_do: what they say another process does with it, and the way out.

    Raises:
        StudyError: another process holds it, or its folder cannot be written to.
    """
    file = _locked(lock, owner, what_others_do)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(file)


def is_held(lock: Path) -> bool:
    """Whether some process holds this lock now."""
    try:
        file = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _locked(lock: Path, owner: str, what_others_do: str) -> int:
    """Returns a locked file that still stands at its path: who held the lock before has taken the file away."""
    for _ in range(NUM_TRIES):
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StudyError(
                f"{owner}: {lock.parent}: {system_reason(error)}; see that the folder can be written to"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), lock.stat()):
                return file
        except FileNotFoundError:
            pass  # taken away between the two looks
        except BlockingIOError:
            time.sleep(WAIT_S)  # whoever only looks whether it is locked holds it for a moment, too
        os.close(file)
    raise StudyError(f"{owner} {what_others_do}")
