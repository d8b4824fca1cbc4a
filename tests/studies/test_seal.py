"""Does a study's file show that something in it was changed, taken away or put in? Whatever it is, and wherever."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from constraints.space import pruned_space
from simulator.errors import StudyError
from simulator.simulate import simulate
from studies.files.journal import Journal
from studies.files.seal import batch_checksum
from tests.studies.study_jobs import small_job

NUM_BATCHES = 4
DESIGNS_PER_BATCH = 5
PAGE_BYTES = 4096
NUM_FLIPS = 300
Reading = tuple[dict[str, str], int, float, list[tuple[str, float, bytes, bytes]]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a study that was written to its end."""
    job = small_job(tensor_parallel=[1, 2], pipeline_parallel=[1], context_parallel=[1])
    plans = pruned_space(job).designs().take(slice(0, NUM_BATCHES * DESIGNS_PER_BATCH))
    outcomes = simulate(job, plans)
    path = tmp_path_factory.mktemp("whole") / "some.study"
    with Journal.create(path, {"job": "a job of 250000.0 dollars", "seed": "1"}) as journal:
        for number in range(NUM_BATCHES):
            rows = slice(number * DESIGNS_PER_BATCH, (number + 1) * DESIGNS_PER_BATCH)
            journal.append(number, "test", float(number), plans.take(rows), outcomes.take(rows))
        journal.note({"answer": "some answer"})
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, whole: bytes) -> Path:
    file = tmp_path / "some.study"
    file.write_bytes(whole)
    return file


def change(path: Path, statement: str, *values: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def reading_of(path: Path) -> Reading:
    """All that a journal gives back."""
    with Journal.read(path) as journal:
        batches = [
            (
                batch.stage,
                batch.elapsed_s,
                batch.plans.num_gpus.tobytes(),
                batch.outcomes.run.wall_time_s.tobytes(),
            )
            for batch in journal.batches()
        ]
        return journal.facts, journal.num_designs, journal.elapsed_s, batches


def front_of(path: Path) -> object:
    with Journal.read(path) as journal:
        return list(journal.batches())


def state_of(path: Path) -> object:
    with Journal.read(path) as journal:
        return journal.num_designs


def check_of(path: Path) -> None:
    """What is looked at of a study that has ended: the seals of all batches, none of which is decoded."""
    with Journal.read(path) as journal:
        journal.check()


def facts_of(path: Path) -> object:
    with Journal.read(path) as journal:
        return journal.facts


def test_bytes_that_change_within_a_fact_are_noticed(path: Path, whole: bytes) -> None:
    assert whole.count(b"250000.0") == 1
    path.write_bytes(whole.replace(b"250000.0", b"7950.000"))
    with pytest.raises(StudyError, match=r"some\.study: what it says of its job, seed or answer is damaged"):
        facts_of(path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM facts WHERE name = 'answer'",
        "INSERT INTO facts VALUES ('keep', 'front')",
        "UPDATE facts SET name = 'response' WHERE name = 'answer'",
        "UPDATE facts SET value = 2 WHERE name = 'seed'",
        "UPDATE seal SET facts = x'00'",
        "DELETE FROM seal",
    ],
)
def test_facts_that_come_go_or_change_are_noticed_and_never_sealed_anew(path: Path, statement: str) -> None:
    change(path, statement)
    with pytest.raises(StudyError, match="damaged"):
        facts_of(path)
    with Journal.open(path) as journal, pytest.raises(StudyError, match="damaged"):
        journal.note({"status": "recommended"})


@pytest.mark.parametrize("look", [front_of, state_of])
@pytest.mark.parametrize("missing", [(0, 0), (2, 2), (3, 3), (1, 3), (0, 3)])
def test_batches_that_are_missing_are_noticed_wherever_they_stood(
    path: Path, missing: tuple[int, int], look: Callable[[Path], object]
) -> None:
    change(path, "DELETE FROM batches WHERE number BETWEEN ? AND ?", *missing)
    with pytest.raises(StudyError, match=r"batch \d is missing|it holds \d of 4 batches"):
        look(path)


@pytest.mark.parametrize(
    ("statement", "look"),
    [
        ("UPDATE batches SET num_designs = 50 WHERE number = 1", front_of),
        ("UPDATE batches SET num_designs = 50 WHERE number = 1", state_of),
        ("UPDATE batches SET elapsed_s = 50 WHERE number = 1", state_of),
        ("UPDATE batches SET stage = 'other' WHERE number = 1", front_of),
        ("UPDATE batches SET keys = CAST(keys AS TEXT) WHERE number = 1", front_of),
        (
            "UPDATE batches SET payload = (SELECT payload FROM batches WHERE number = 2) WHERE number = 1",
            front_of,
        ),
        (
            "UPDATE batches SET payload = (SELECT payload FROM batches WHERE number = 2) WHERE number = 1",
            check_of,
        ),
        ("UPDATE seal SET num_batches = 3, num_designs = 15, elapsed_s = 2", state_of),
        ("INSERT INTO batches SELECT 4, stage, 0, 0, checksum, keys, payload FROM batches LIMIT 1", state_of),
    ],
)
def test_whatever_is_changed_of_a_batch_is_noticed(
    path: Path, statement: str, look: Callable[[Path], object]
) -> None:
    change(path, statement)
    with pytest.raises(StudyError, match="damaged"):
        look(path)


def test_batches_of_another_study_do_not_pass_for_those_of_this_one(path: Path, whole: bytes) -> None:
    other = path.with_name("other.study")
    other.write_bytes(whole)
    change(other, "DELETE FROM batches WHERE number > 0")
    with sqlite3.connect(other) as database:
        database.execute(f"ATTACH '{path}' AS here")
        database.execute("INSERT INTO batches SELECT * FROM here.batches WHERE number > 1")
        database.execute("UPDATE batches SET number = number - 1 WHERE number > 1")
    database.close()
    with pytest.raises(StudyError, match="batch 1 is damaged"):
        front_of(other)


def test_a_last_batch_that_fits_those_before_it_and_is_not_the_sealed_one_is_noticed(
    path: Path, whole: bytes
) -> None:
    with sqlite3.connect(path) as database:
        before, last = database.execute("SELECT * FROM batches ORDER BY number").fetchall()[-2:]
        names = [column[1] for column in database.execute("PRAGMA table_info(batches)")]
        row = {**dict(zip(names, last, strict=True)), "stage": "another"}
        head = (row["number"], row["stage"], row["num_designs"], row["elapsed_s"])
        previous = dict(zip(names, before, strict=True))["checksum"]
        checksum = batch_checksum(previous, head, row["keys"], row["payload"])
        database.execute(
            "UPDATE batches SET stage = ?, checksum = ? WHERE number = ?",
            (row["stage"], checksum, row["number"]),
        )
    database.close()
    with pytest.raises(StudyError, match=f"batch {row['number']} is damaged"):
        front_of(path)


@pytest.mark.long
def test_a_flipped_bit_is_an_error_or_changes_nothing_that_is_read(path: Path, whole: bytes) -> None:
    draw = np.random.default_rng(3)
    expected = reading_of(path)
    num_noticed = 0
    for number in range(NUM_FLIPS):
        place = int(draw.integers(len(whole)))
        if number % 2:  # at the start of a page, where SQLite says what follows
            place = place // PAGE_BYTES * PAGE_BYTES + int(draw.integers(60))
        changed = bytearray(whole)
        changed[place] ^= 1 << int(draw.integers(8))
        path.write_bytes(changed)
        try:
            found = reading_of(path)
        except StudyError:
            num_noticed += 1
        else:
            assert found == expected, place
    assert num_noticed > NUM_FLIPS / 2


def test_a_study_of_the_form_before_is_named_as_such(path: Path) -> None:
    change(path, "UPDATE facts SET value = 'capplan study 1' WHERE name = 'format'")
    with pytest.raises(StudyError, match="another version: 'capplan study 1' instead of 'capplan study 4'"):
        facts_of(path)
