"""Who may write here? One process at a time; a lock ends with its process, however that ends."""

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
"""How often to try a lock, and the pause after each try."""


def lock_of(path: Path) -> Path:
    """Returns the lock file of a file, which is next to it."""
    return path.with_name(f"{path.name}.lock")


@contextmanager
def held(lock: Path, owner: str, what_others_do: str) -> Iterator[None]:
    """Holds a lock exclusively inside the context; whatever ends the process releases it.

    Args:
        lock: the lock file; it exists only while the lock is held.
        owner: name, in errors, of what the lock guards.
        what_others_do: what another process does with it, and the way out, for errors.

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
    """Returns a locked file that is still at its path, since the previous holder has removed its own file."""
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
            pass  # removed between the two checks
        except BlockingIOError:
            time.sleep(WAIT_S)  # a mere check also holds the lock for a moment
        os.close(file)
    raise StudyError(f"{owner} {what_others_do}")
