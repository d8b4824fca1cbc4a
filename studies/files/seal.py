"""Is the file of a study intact and complete? Checksums of its facts and batches, and a seal that counts them.

The checksum of a batch covers the checksum of the previous batch. The seal is one row that holds the last of them; it is
renewed with every batch and fact in the same transaction. So changed bytes and missing, swapped or truncated batches show.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Self

from studies.files.journal_file import damaged

_NUM_COLUMNS = 6
"""Columns of the table `seal`: the fields and their checksum."""
_NUM_BYTES = 16
"""Bytes of a checksum: enough against accidents."""
_FACTS = "SELECT facts.name, facts.value, seal.facts FROM facts, seal"
_WHOLE = """
SELECT seal.*, count(number), coalesce(max(number), -1) + 1, coalesce(sum(batches.num_designs), 0),
    coalesce(max(batches.elapsed_s), 0.0)
FROM seal LEFT JOIN batches
"""
_BATCH = """
SELECT seal.*, coalesce(before.checksum, x''), this.number, this.stage, this.num_designs, this.elapsed_s, this.checksum,
    this.keys, this.payload
FROM seal LEFT JOIN batches AS this ON this.number = :number LEFT JOIN batches AS before ON before.number = :number - 1
"""


@dataclass(frozen=True, kw_only=True)
class Seal:
    """What an intact file contains; the fields are the columns of its table, except for the seal's own checksum."""

    facts: bytes
    """Checksum of all facts."""
    num_batches: int = 0
    """Number of batches written."""
    num_designs: int = 0
    """Number of designs simulated for the batches."""
    elapsed_s: float = 0.0
    """Seconds that the study had been running when the last batch was written."""
    last_batch: bytes = b""
    """Checksum of the last batch, which covers the checksums of all batches before it; empty if there is none."""

    def row(self) -> tuple[object, ...]:
        """Returns the row of the table."""
        values = astuple(self)
        return (*values, _digest(repr(values).encode()))

    def with_batch(self, num_designs: int, elapsed_s: float, checksum: bytes) -> Self:
        """Returns the seal after one more batch."""
        return replace(
            self,
            num_batches=self.num_batches + 1,
            num_designs=self.num_designs + num_designs,
            elapsed_s=max(self.elapsed_s, elapsed_s),
            last_batch=checksum,
        )


def read_seal(connection: sqlite3.Connection, path: Path) -> Seal:
    """Returns the seal of a file; raises `StudyError` if it is damaged."""
    return _seal_in(connection.execute("SELECT * FROM seal").fetchone() or (), path)


def write_seal(connection: sqlite3.Connection, seal: Seal) -> None:
    """Replaces the seal, in the same transaction as what it seals."""
    connection.execute("DELETE FROM seal")
    connection.execute("INSERT INTO seal VALUES (?, ?, ?, ?, ?, ?)", seal.row())


def sealed_facts(connection: sqlite3.Connection, path: Path) -> dict[str, str]:
    """Returns the facts of a file; raises `StudyError` if they are not those that were written."""
    rows = connection.execute(_FACTS).fetchall()
    facts = {name: value for name, value, _ in rows}
    if {checksum for *_, checksum in rows} != {facts_checksum(facts)}:
        raise damaged(path, "what it says of its job, seed or answer is damaged (the checksum differs)")
    return facts


def whole_seal(connection: sqlite3.Connection, path: Path) -> Seal:
    """Returns the seal of a file after checking the number of batches; raises `StudyError` if some are missing."""
    row = connection.execute(_WHOLE).fetchone()
    seal = _seal_in(row[:_NUM_COLUMNS], path)
    count, end, num_designs, elapsed_s = row[_NUM_COLUMNS:]
    if count < seal.num_batches:
        raise damaged(path, f"the file is damaged: it holds {count} of {seal.num_batches} batches")
    if (count, end, num_designs, elapsed_s) != (end, seal.num_batches, seal.num_designs, seal.elapsed_s):
        raise damaged(path, "the file is damaged: its batches are not those that were written")
    return seal


def sealed_batch(connection: sqlite3.Connection, path: Path, number: int) -> tuple[str, float, bytes] | None:
    """Returns stage, seconds and payload of a batch; `None` after the last one.

    Raises:
        StudyError: the batch is not what was written, or is missing.
    """
    row = connection.execute(_BATCH, {"number": number}).fetchone() or ()
    seal = _seal_in(row[:_NUM_COLUMNS], path)
    if number >= seal.num_batches:
        return None
    before, *head, checksum, keys, payload = row[_NUM_COLUMNS:]
    if head[0] is None:
        raise damaged(path, f"batch {number} is missing, so that the file is damaged")
    is_readable = isinstance(keys, bytes) and isinstance(payload, bytes) and isinstance(before, bytes)
    is_last = number == seal.num_batches - 1
    if (
        not is_readable
        or checksum != batch_checksum(before, (head[0], head[1], head[2], head[3]), keys, payload)
        or (is_last and checksum != seal.last_batch)
    ):
        raise damaged(path, f"batch {number} is damaged (its checksum differs)")
    return head[1], head[3], payload


def facts_checksum(facts: Mapping[str, str]) -> bytes:
    """Returns the checksum of facts, independent of their order."""
    texts = [str(text) for fact in sorted(facts.items(), key=str) for text in fact]
    return _digest("".join(f"{len(text)} {text}" for text in texts).encode())


def batch_checksum(previous: bytes, head: tuple[int, str, int, float], keys: bytes, payload: bytes) -> bytes:
    """Returns the checksum of a batch.

    Args:
        previous: checksum of the previous batch; empty for the first one.
        head: number, stage, number of simulated designs, and seconds that the study had been running.
        keys: keys of the designs that were kept.
        payload: the designs and their outcomes.
    """
    return _digest(previous, repr(head).encode(), keys, payload)


def _seal_in(row: Sequence[Any], path: Path) -> Seal:
    """The seal in a row of its table; raises `StudyError` if the row is not what was written."""
    *values, checksum = row or (None,)
    if checksum != _digest(repr(tuple(values)).encode()):
        raise damaged(path, "its seal is damaged")
    facts, num_batches, num_designs, elapsed_s, last_batch = values
    return Seal(
        facts=facts,
        num_batches=num_batches,
        num_designs=num_designs,
        elapsed_s=elapsed_s,
        last_batch=last_batch,
    )


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_NUM_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
