"""How is the file of a journal opened, and what happens if it cannot be read or written? One SQLite file, one kind of error.

Every error of SQLite or the file system becomes a `StudyError` that says whether the file is damaged or only inaccessible.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.errors import OtherVersionError, StudyError

FORMAT = "capplan study 4"
"""Format name stored in the file; another number means another layout."""
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE batches (
    number INTEGER PRIMARY KEY, stage TEXT NOT NULL, num_designs INTEGER NOT NULL, elapsed_s REAL NOT NULL,
    checksum BLOB NOT NULL, keys BLOB NOT NULL, payload BLOB NOT NULL
);
CREATE TABLE seal (
    facts BLOB NOT NULL, num_batches INTEGER NOT NULL, num_designs INTEGER NOT NULL, elapsed_s REAL NOT NULL,
    last_batch BLOB NOT NULL, checksum BLOB NOT NULL
);
"""
"""The layout of this format; checksums come before long columns, so they can be read without them."""
BUSY_TIMEOUT_S = 20.0
"""How long to wait for another process that reads or writes the file."""
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT)
_SIGNS_OF_DAMAGE = ("no such table", "no such column", "Could not decode to UTF-8")
"""Messages of SQLite about damaged files for which it has no error code."""


def connected(path: Path, *, is_for_writing: bool) -> sqlite3.Connection:
    """Opens the file of a study and checks it; raises `StudyError` if it is not a study or is of another version."""
    if not path.is_file():
        other = f"{path} is no file, and so no study" if path.exists() else f"there is no study {path}"
        raise StudyError(other)
    with failures(path):
        try:
            # Readers may write, too: otherwise the last one to close the file could not remove its log files.
            connection = _checked(path, "mode=rw")
        except sqlite3.OperationalError:
            if is_for_writing:
                raise
            # If no log file can be created next to it, no other process can be writing either.
            return _checked(path, "mode=ro&immutable=1")
        if not is_for_writing:
            connection.execute("PRAGMA query_only = on")
        return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """An exclusive transaction: everything inside is written or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


GO_ON = "what was written before is kept: see that there is space and the right to write, then resume"
BEGIN_AGAIN = "nothing of it is there yet: see that there is space and the right to write, then try again"
"""Advice if an existing study cannot be written, and if a new one cannot."""


@contextmanager
def failures(path: Path, way_out: str = GO_ON) -> Iterator[None]:
    """Turns errors of SQLite and the file system into a StudyError that says what is preserved."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if _is_damage(error):
            raise damaged(path, f"the file is damaged, cut short, or no study ({error})") from error
        reason = getattr(error, "strerror", None) or error
        raise StudyError(f"study {path}: {reason}; {way_out}") from error


def damaged(path: Path, what: str) -> StudyError:
    """Returns the error for a file whose content is not what was written."""
    return StudyError(
        f"study {path}: {what}: take it from a backup, or move it away and run the job as a new study"
    )


def there_already(path: Path) -> StudyError:
    """Returns the error for a new study whose path is already taken."""
    return StudyError(f"study {path} is there already and is never overwritten")


def _checked(path: Path, options: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?{options}"
    # Threads take turns: one writes a batch while the next one is simulated.
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False
    )
    try:
        found = connection.execute("SELECT value FROM facts WHERE name = 'format'").fetchone()
    except BaseException:
        connection.close()
        raise
    if found == (FORMAT,):
        return connection
    connection.close()
    form = repr(found[0]) if found else "no version at all"
    raise OtherVersionError(
        f"{path} holds a study of another version: {form} instead of {FORMAT!r}: read it with the version of capplan that "
        "wrote it, or move it away and study the job anew"
    )


def _is_damage(error: Exception) -> bool:
    """Whether an error means that the file is not what SQLite has written; an empty file lacks even the tables."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    is_said = any(sign in str(error) for sign in _SIGNS_OF_DAMAGE)
    return is_said or code & 0xFF in _DAMAGE or code == sqlite3.SQLITE_IOERR_SHORT_READ
