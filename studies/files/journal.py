"""Where does a simulated design go before it reaches MLflow or an answer? To the end of the study's journal, durably.

A journal is one SQLite file with a write-ahead log. It holds the facts of the study and every batch of simulated designs in
the order of their requests, with a seal that shows whether it is complete. Writing a batch is atomic, whatever kills the
process or the machine. No batch is ever changed or removed, so resuming means reading back what was written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self, final

import numpy as np

from constraints.evaluation import Evaluation, judge
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.errors import StudyError
from simulator.simulate import Outcomes
from studies.designs.payload import Parts, encode, from_bytes
from studies.designs.plan_keys import Keys, plan_keys
from studies.designs.reduction import Reduction, is_reduction, read_reduction
from studies.files.drafts import draft_of, put_in_place, remove_left_drafts
from studies.files.journal_file import (
    BEGIN_AGAIN,
    FORMAT,
    GO_ON,
    TABLES,
    connected,
    failures,
    there_already,
    transaction,
)
from studies.files.seal import (
    Seal,
    batch_checksum,
    facts_checksum,
    read_seal,
    sealed_batch,
    sealed_facts,
    whole_seal,
    write_seal,
)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Designs that were simulated together: all of them, or their front and counts."""

    number: int
    """Position in the journal, from 0."""
    stage: str
    """The stage of the search that asked for them."""
    elapsed_s: float
    """Seconds that the study had been running, over all its starts, when they were written."""
    plans: PlanTable
    """The designs that were kept."""
    outcomes: Outcomes
    """The outcomes of the designs that were kept."""
    parts: Parts
    """The bytes in which all of this was stored."""

    @property
    def is_reduced(self) -> bool:
        """Whether only the front and counts were kept."""
        return is_reduction(self.parts)

    def found(self, job: Job) -> Evaluation | Reduction:
        """Returns the scored designs; a reduction is valid only under the job for which it was made."""
        if self.is_reduced:
            return read_reduction(job, self.parts)
        return judge(job, self.plans, self.outcomes)


@final
class Journal:
    """The file of one study; a context manager. Reading is possible while another process writes."""

    def __init__(self, path: Path, connection: sqlite3.Connection, way_out: str = GO_ON) -> None:
        """Takes over a file opened by `create`, `open` or `read`. Messages of write errors end with `way_out`."""
        self.path = path
        self._way_out = way_out
        self._connection = connection

    @classmethod
    def create(cls, path: Path, facts: Mapping[str, str]) -> Self:
        """Creates the file of a new study atomically; raises as `draft` does."""
        with cls.draft(path, facts):
            pass
        return cls.open(path)

    @classmethod
    @contextmanager
    def draft(cls, path: Path, facts: Mapping[str, str]) -> Iterator[Self]:
        """Writes a new study as a draft and puts it in place when the context ends; an error leaves nothing behind.

        Raises:
            StudyError: there is one already, or the folder cannot be written to.
        """
        draft = draft_of(path)
        with failures(path, BEGIN_AGAIN):
            if path.exists():
                raise there_already(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_left_drafts(path)
        try:
            with failures(path, BEGIN_AGAIN):
                connection = sqlite3.connect(draft, isolation_level=None)
            with cls(path, connection, BEGIN_AGAIN) as journal:
                with failures(path, BEGIN_AGAIN):
                    connection.executescript(f"BEGIN;{TABLES}")
                    written = {"format": FORMAT, **facts}
                    connection.executemany("INSERT INTO facts VALUES (?, ?)", written.items())
                    write_seal(connection, Seal(facts=facts_checksum(written)))
                    connection.execute("COMMIT")
                yield journal
            with failures(path, BEGIN_AGAIN):
                try:
                    put_in_place(draft, path)
                except FileExistsError:  # another process was faster
                    raise there_already(path) from None
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens a study to continue it.

        Raises:
            StudyError: there is none, it is not a study, or it cannot be written to.
        """
        connection = connected(path, is_for_writing=True)
        with failures(path):
            connection.execute("PRAGMA journal_mode = wal")
            # 0.1 ms a batch here, and power cuts lose nothing.
            connection.execute("PRAGMA synchronous = full")
            connection.execute("BEGIN IMMEDIATE")  # fails now where nothing can be written
            connection.execute("ROLLBACK")
        return cls(path, connection)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Opens a study for reading; raises as `open` does, but needs no write permission."""
        return cls(path, connected(path, is_for_writing=False))

    @property
    def facts(self) -> dict[str, str]:
        """Facts on the study and its result by name; raises `StudyError` if they are damaged."""
        with failures(self.path, self._way_out):
            return sealed_facts(self._connection, self.path)

    def note(self, facts: Mapping[str, str]) -> None:
        """Adds or replaces facts, all or none; raises if the existing ones are damaged."""
        with failures(self.path, self._way_out), transaction(self._connection):
            checksum = facts_checksum({**sealed_facts(self._connection, self.path), **facts})
            self._connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", list(facts.items()))
            write_seal(self._connection, replace(read_seal(self._connection, self.path), facts=checksum))

    def append(self, number: int, stage: str, elapsed_s: float, plans: PlanTable, outcomes: Outcomes) -> None:
        """Writes a batch; when this returns, it survives a crash.

        Raises:
            StudyError: the file cannot be written, or already has a batch with that number from another process.
        """
        self._insert(number, stage, elapsed_s, len(plans), plan_keys(plans), encode(plans, outcomes))

    def append_reduction(self, number: int, stage: str, elapsed_s: float, reduction: Reduction) -> None:
        """Writes what is kept of a batch; see `append`."""
        keys = plan_keys(reduction.front.plans)
        self._insert(number, stage, elapsed_s, reduction.num_evaluated, keys, reduction.to_bytes())

    def batches(self, first: int = 0) -> Iterator[Batch]:
        """Yields the batches from a number on, one in memory at a time.

        Raises:
            StudyError: a batch is missing, damaged, or not of this version.
        """
        while (batch := self.batch(first)) is not None:
            yield batch
            first += 1

    def batch(self, number: int) -> Batch | None:
        """Returns one batch; `None` after the last one. Raises as `batches` does."""
        with failures(self.path, self._way_out):
            written = sealed_batch(self._connection, self.path, number)
        if written is None:
            return None
        stage, elapsed_s, payload = written
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
        with failures(self.path, self._way_out):
            for number, keys in self._connection.execute("SELECT number, keys FROM batches ORDER BY number"):
                yield number, np.frombuffer(keys, dtype=np.uint64)

    def check(self) -> None:
        """Raises `StudyError` if a batch is missing or damaged; takes a microsecond per design, because none is decoded."""
        with failures(self.path, self._way_out):
            for number in range(self._whole().num_batches):
                sealed_batch(self._connection, self.path, number)

    @property
    def num_batches(self) -> int:
        """Number of batches written; raises `StudyError` if some are missing, as the next two do."""
        return self._whole().num_batches

    @property
    def elapsed_s(self) -> float:
        """Seconds that the study had been running when the last batch was written."""
        return self._whole().elapsed_s

    @property
    def num_designs(self) -> int:
        """Designs that were simulated for the batches that were written."""
        return self._whole().num_designs

    def close(self) -> None:
        """Closes the file; a second call does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _whole(self) -> Seal:
        with failures(self.path, self._way_out):
            return whole_seal(self._connection, self.path)

    def _insert(
        self, number: int, stage: str, elapsed_s: float, num_designs: int, keys: Keys, payload: bytes
    ) -> None:
        head = (number, stage, num_designs, float(elapsed_s))
        key_bytes = keys.tobytes()
        with failures(self.path, self._way_out), transaction(self._connection):
            seal = read_seal(self._connection, self.path)
            if number != seal.num_batches:
                raise StudyError(f"study {self.path} is being run by another process: let only one go on")
            checksum = batch_checksum(seal.last_batch, head, key_bytes, payload)
            row = (*head, checksum, key_bytes, payload)
            self._connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            write_seal(self._connection, seal.with_batch(num_designs, head[-1], checksum))
