"""Where does a simulated design go before anybody else sees it? To the end of the study's journal, for good.

A journal is one SQLite file with a write-ahead log: what the study is, and every batch of simulated designs in the order
in which it was asked for, with a checksum. A batch is there whole or not at all, whatever kills the process or the
machine. No batch is ever changed or taken away, so that resuming is reading back what was written.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, final

import numpy as np

from constraints.evaluation import Evaluation, judge
from simulator.errors import StudyError
from simulator.job import Job
from simulator.plan import PlanTable
from simulator.simulate import Outcomes
from studies.payload import Parts, encode, from_bytes
from studies.plan_keys import Keys, plan_keys
from studies.reduction import Reduction, is_reduction, read_reduction

FORMAT = "capplan study 1"
"""What the file says it is; another number means another layout."""
BUSY_TIMEOUT_S = 20.0
"""How long to wait for another process that reads or writes the file."""
_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE batches (
    number INTEGER PRIMARY KEY, stage TEXT NOT NULL, num_designs INTEGER NOT NULL, elapsed_s REAL NOT NULL,
    keys BLOB NOT NULL, payload BLOB NOT NULL, checksum BLOB NOT NULL
);
"""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Designs that were simulated together: all of them, or their front and counts."""

    number: int
    """Place in the journal, from 0."""
    stage: str
    """What asked for them."""
    elapsed_s: float
    """Seconds that the study had been running, over all its starts, when they were written."""
    plans: PlanTable
    """The designs that were kept."""
    outcomes: Outcomes
    """What became of them."""
    parts: Parts
    """The bytes in which all of this was written."""

    @property
    def is_reduced(self) -> bool:
        """Whether only the front and counts were kept."""
        return is_reduction(self.parts)

    def found(self, job: Job) -> Evaluation | Reduction:
        """Returns what the designs are worth; a reduction only under the job that it was made under."""
        if self.is_reduced:
            return read_reduction(job, self.parts)
        return judge(job, self.plans, self.outcomes)


@final
class Journal:
    """The file of one study; a context manager. Reading is possible while another process writes."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Takes over an open file; `create`, `open` and `read` open one."""
        self.path = path
        self._connection = connection

    @classmethod
    def create(cls, path: Path, facts: Mapping[str, str]) -> Self:
        """Makes the file of a new study, whole or not at all; raises as `draft` does."""
        with cls.draft(path, facts):
            pass
        return cls.open(path)

    @classmethod
    @contextmanager
    def draft(cls, path: Path, facts: Mapping[str, str]) -> Iterator[Self]:
        """Inside it a new study is written beside its place, where it stands afterwards; an error leaves nothing.

        Raises:
            StudyError: there is one already, or the folder cannot be written to.
        """
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with _failures(path):
            if path.exists():
                raise _there_already(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.unlink(missing_ok=True)
        try:
            with _failures(path):
                connection = sqlite3.connect(draft, isolation_level=None)
            with cls(path, connection) as journal:
                with _failures(path):
                    connection.executescript(f"BEGIN;{_TABLES}")
                    rows = {"format": FORMAT, **facts}.items()
                    connection.executemany("INSERT INTO facts VALUES (?, ?)", rows)
                    connection.execute("COMMIT")
                yield journal
            with _failures(path):
                try:
                    path.hardlink_to(draft)
                except FileExistsError:  # somebody was quicker
                    raise _there_already(path) from None
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens a study to go on with it.

        Raises:
            StudyError: there is none, it is not a study, or it cannot be written to.
        """
        connection = _connected(path, is_for_writing=True)
        with _failures(path):
            connection.execute("PRAGMA journal_mode = wal")
            connection.execute(
                "PRAGMA synchronous = full"
            )  # 0.1 ms a batch here, and power cuts lose nothing
            connection.execute("BEGIN IMMEDIATE")  # fails now where nothing can be written
            connection.execute("ROLLBACK")
        return cls(path, connection)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Opens a study to look at it; raises as `open` does, but needs no right to write."""
        return cls(path, _connected(path, is_for_writing=False))

    @property
    def facts(self) -> dict[str, str]:
        """What the study is and has come to, by name."""
        with _failures(self.path):
            return dict(self._connection.execute("SELECT name, value FROM facts"))

    def note(self, facts: Mapping[str, str]) -> None:
        """Adds facts, all or none; one that is known gets its new value."""
        with _failures(self.path), self._transaction():
            self._connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", list(facts.items()))

    def append(self, number: int, stage: str, elapsed_s: float, plans: PlanTable, outcomes: Outcomes) -> None:
        """Writes a batch; when this returns, it survives a crash.

        Raises:
            StudyError: the file cannot be written, or has a batch of that number from another process.
        """
        self._insert(number, stage, elapsed_s, len(plans), plan_keys(plans), encode(plans, outcomes))

    def append_reduction(self, number: int, stage: str, elapsed_s: float, reduction: Reduction) -> None:
        """Writes what is kept of a batch; see `append`."""
        keys = plan_keys(reduction.front.plans)
        self._insert(number, stage, elapsed_s, reduction.num_evaluated, keys, reduction.to_bytes())

    def batches(self, first: int = 0) -> Iterator[Batch]:
        """Yields the batches from a number on, one in memory at a time.

        Raises:
            StudyError: a batch is damaged, or not of this version.
        """
        while (batch := self.batch(first)) is not None:
            yield batch
            first += 1

    def batch(self, number: int) -> Batch | None:
        """Returns one batch; `None` behind the last one. Raises as `batches` does."""
        query = "SELECT stage, elapsed_s, keys, payload, checksum FROM batches WHERE number = ?"
        with _failures(self.path):
            row = self._connection.execute(query, (number,)).fetchone()
        if row is None:
            return None
        stage, elapsed_s, keys, payload, checksum = row
        if checksum != _checksum(number, stage, elapsed_s, keys, payload):
            raise StudyError(
                f"study {self.path}: batch {number} is damaged (its checksum differs); batches before it can be "
                "exported; run the job as a new study to simulate the rest again"
            )
        try:
            parts = from_bytes(payload)
            plans, outcomes = parts.plans(), parts.outcomes()
        except ValueError as error:
            raise StudyError(f"study {self.path}: batch {number}: {error}") from error
        return Batch(
            number=number, stage=stage, elapsed_s=elapsed_s, plans=plans, outcomes=outcomes, parts=parts
        )

    def design_keys(self) -> Iterator[tuple[int, Keys]]:
        """Yields number and design keys `(n,)` of every batch, without reading the designs."""
        with _failures(self.path):
            for number, keys in self._connection.execute("SELECT number, keys FROM batches ORDER BY number"):
                yield number, np.frombuffer(keys, dtype=np.uint64)

    @property
    def num_batches(self) -> int:
        """Batches that were written."""
        return self._count("SELECT count(*) FROM batches")

    @property
    def elapsed_s(self) -> float:
        """Seconds that the study had been running when the last batch was written."""
        with _failures(self.path):
            query = "SELECT coalesce(max(elapsed_s), 0.0) FROM batches"
            return float(self._connection.execute(query).fetchone()[0])

    @property
    def num_designs(self) -> int:
        """Designs that were simulated for the batches that were written."""
        return self._count("SELECT coalesce(sum(num_designs), 0) FROM batches")

    def close(self) -> None:
        """Ends the use of the file; a second call does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _count(self, query: str) -> int:
        with _failures(self.path):
            return int(self._connection.execute(query).fetchone()[0])

    def _insert(
        self, number: int, stage: str, elapsed_s: float, num_designs: int, keys: Keys, payload: bytes
    ) -> None:
        key_bytes = keys.tobytes()
        checksum = _checksum(number, stage, elapsed_s, key_bytes, payload)
        row = (number, stage, num_designs, elapsed_s, key_bytes, payload, checksum)
        with _failures(self.path), self._transaction():
            self._connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _there_already(path: Path) -> StudyError:
    return StudyError(f"study {path} is there already and is never overwritten")


def _connected(path: Path, *, is_for_writing: bool) -> sqlite3.Connection:
    """Opens the file of a study and looks whether it is one."""
    if not path.is_file():
        raise StudyError(f"there is no study {path}")
    with _failures(path):
        try:
            # Also readers may write: only so can the last one to close the file take its log files away.
            connection = _checked(path, "mode=rw")
        except sqlite3.OperationalError:
            if is_for_writing:
                raise
            # Where no log file can be made beside it, nobody else can be writing either.
            return _checked(path, "mode=ro&immutable=1")
        if not is_for_writing:
            connection.execute("PRAGMA query_only = on")
        return connection


def _checked(path: Path, options: str) -> sqlite3.Connection:
    uri = f"{path.resolve().as_uri()}?{options}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S)
    try:
        found = connection.execute("SELECT value FROM facts WHERE name = 'format'").fetchone()
    except BaseException:
        connection.close()
        raise
    if found == (FORMAT,):
        return connection
    connection.close()
    raise StudyError(f"{path} holds a study of another version: {found} instead of {FORMAT!r}")


@contextmanager
def _failures(path: Path) -> Iterator[None]:
    """Inside it whatever SQLite or the file system refuses is a StudyError that says what stays."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise StudyError(f"study {path} is being run by another process: let only one go on") from error
    except (sqlite3.Error, OSError) as error:
        if _is_damage(error):
            raise StudyError(
                f"study {path}: the file is damaged, cut short, or no study ({error}): take it from a backup, or move it "
                "away and run the job as a new study"
            ) from error
        raise StudyError(
            f"study {path}: {error}; what was written before is kept: see that there is space and the right to "
            "write, then resume"
        ) from error


def _is_damage(error: Exception) -> bool:
    """Whether a file is not what SQLite has written; an empty one lacks even the tables."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    is_damaged = code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return is_damaged or code == sqlite3.SQLITE_IOERR_SHORT_READ or "no such table" in str(error)


def _checksum(number: int, stage: str, elapsed_s: float, keys: bytes, payload: bytes) -> bytes:
    digest = hashlib.blake2b(f"{number} {stage} {elapsed_s!r} ".encode(), digest_size=16)
    digest.update(keys)
    digest.update(payload)
    return digest.digest()
