"""Does the journal give back what was written, whatever happens to its file?"""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from constraints.evaluation import evaluate
from constraints.space import pruned_space
from simulator.domain.plan import PlanTable
from simulator.errors import StudyError
from simulator.simulate import Outcomes, simulate
from studies.designs.payload import encode, from_bytes
from studies.designs.plan_keys import Keys, are_same, plan_keys
from studies.evaluation.evaluator import JournaledSimulation
from studies.files import journal as journal_module
from studies.files import known_designs
from studies.files.drafts import draft_of
from studies.files.journal import Journal
from studies.files.known_designs import KnownDesigns
from tests.studies.study_jobs import small_job

ROOT = Path(__file__).parents[2]
JOB = small_job(tensor_parallel=[1, 2], pipeline_parallel=[1], context_parallel=[1])


@pytest.fixture(scope="module")
def plans() -> PlanTable:
    return pruned_space(JOB).designs().take(slice(0, 60))


@pytest.fixture(scope="module")
def outcomes(plans: PlanTable) -> Outcomes:
    return simulate(JOB, plans)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.study"


def written(path: Path, plans: PlanTable, outcomes: Outcomes) -> None:
    with Journal.create(path, {"job": "x"}) as journal:
        for number in range(3):
            rows = slice(20 * number, 20 * number + 20)
            journal.append(number, "test", float(number), plans.take(rows), outcomes.take(rows))


def test_what_is_read_is_what_was_written_to_the_last_bit(
    path: Path, plans: PlanTable, outcomes: Outcomes
) -> None:
    written(path, plans, outcomes)
    with Journal.read(path) as journal:
        batches = list(journal.batches())
        assert journal.num_designs == 60
        assert journal.elapsed_s == 2.0
    assert [batch.number for batch in batches] == [0, 1, 2]
    assert are_same(PlanTable.concatenate([batch.plans for batch in batches]), plans).all()
    found = Outcomes.concatenate([batch.outcomes for batch in batches]).columns()
    for name, column in outcomes.columns().items():
        assert found[name].tobytes() == column.tobytes(), name
        assert found[name].dtype == column.dtype


def test_designs_of_other_studies_are_found_with_their_own_outcomes(
    tmp_path: Path, plans: PlanTable, outcomes: Outcomes
) -> None:
    first, second = tmp_path / "first.study", tmp_path / "second.study"
    written(first, plans, outcomes)
    other = pruned_space(JOB).designs().take(slice(60, 120))
    written(second, other, simulate(JOB, other))
    known = KnownDesigns([first, second])
    assert len(known) == 120
    # Designs of all batches of both, in any order, among some that nobody has tried.
    asked = pruned_space(JOB).designs().take(np.random.default_rng(1).permutation(150))
    rows, found = known.find(asked)
    assert len(rows) == 120
    assert found is not None
    expected = simulate(JOB, asked.take(rows)).columns()
    for name, column in found.columns().items():
        np.testing.assert_array_equal(column, expected[name])
    assert np.isin(plan_keys(asked.take(rows)), plan_keys(PlanTable.concatenate([plans, other]))).all()


@pytest.mark.parametrize("num_others", [0, 40])
def test_designs_that_other_studies_have_stay_in_the_order_in_which_they_were_asked_for(
    tmp_path: Path, plans: PlanTable, outcomes: Outcomes, num_others: int
) -> None:
    written(tmp_path / "first.study", plans, outcomes)
    known = KnownDesigns([tmp_path / "first.study"])
    designs = pruned_space(JOB).designs()
    asked = designs.take(np.random.default_rng(2).permutation(60 + num_others))
    with (
        Journal.create(tmp_path / "second.study", {}) as journal,
        JournaledSimulation(JOB, journal, known) as evaluator,
    ):
        found = evaluator.evaluate(asked, "test")
        assert (evaluator.num_reused, evaluator.num_simulated) == (60, num_others)
    np.testing.assert_array_equal(found.objectives(JOB), evaluate(JOB, asked).objectives(JOB))


def test_designs_of_one_key_are_told_apart_by_what_they_decide(
    path: Path, plans: PlanTable, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def colliding(designs: PlanTable) -> Keys:
        return np.zeros(len(designs), dtype=np.uint64)

    for module in (journal_module, known_designs):
        monkeypatch.setattr(module, "plan_keys", colliding)
    written(path, plans, outcomes)
    rows, found = KnownDesigns([path]).find(plans)
    assert rows.tolist() == [0]  # the first one of the key, and no other one with its outcomes
    assert found is not None
    assert found.run.wall_time_s.tolist() == outcomes.run.wall_time_s[:1].tolist()


def test_a_study_that_is_gone_since_its_keys_were_read_knows_nothing(
    path: Path, plans: PlanTable, outcomes: Outcomes
) -> None:
    written(path, plans, outcomes)
    known = KnownDesigns([path])
    path.unlink()
    rows, found = known.find(plans)
    assert (len(rows), found) == (0, None)


def test_a_draft_that_a_process_of_this_number_left_does_not_block_a_new_study(path: Path) -> None:
    draft_of(path).write_text("left behind")
    Journal.create(path, {}).close()
    assert path.is_file()


def test_a_draft_is_found_again_on_a_machine_whose_name_has_signs_of_patterns(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="gpu[1].lan"))
    left = draft_of(path).with_suffix(f".{2**31 - 1}")  # of a process that is gone
    left.write_text("left behind")
    Journal.create(path, {}).close()
    assert not left.exists()


def test_drafts_of_processes_of_other_users_stay(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_ours(*_: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "kill", not_ours)
    other = draft_of(path).with_suffix(".1")
    other.write_text("being written")
    Journal.create(path, {}).close()
    assert other.is_file()


def test_infinities_and_missing_numbers_survive() -> None:
    plans = pruned_space(JOB).designs().take(slice(0, 2))
    outcomes = simulate(JOB, plans)
    outcomes.run.wall_time_s[:] = [np.inf, np.nan]
    found = from_bytes(encode(plans, outcomes)).outcomes()
    np.testing.assert_array_equal(found.run.wall_time_s, [np.inf, np.nan])


def test_a_study_is_never_overwritten(path: Path) -> None:
    Journal.create(path, {}).close()
    with pytest.raises(StudyError, match="is there already and is never overwritten"):
        Journal.create(path, {})
    assert list(path.parent.iterdir()) == [path]


class TestNoHardLinks:
    @pytest.fixture(autouse=True)
    def no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(*_: object) -> None:  # as Linux refuses them on exFAT
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(Path, "hardlink_to", refused)

    def test_a_study_begins_without_them(self, path: Path, plans: PlanTable, outcomes: Outcomes) -> None:
        written(path, plans, outcomes)
        with Journal.read(path) as journal:
            assert journal.num_designs == 60
        assert list(path.parent.iterdir()) == [path]

    def test_a_study_that_was_quicker_is_never_overwritten(self, path: Path) -> None:
        with pytest.raises(StudyError, match="is there already"), Journal.draft(path, {"job": "slow"}):
            path.write_bytes(b"quick")
        assert path.read_bytes() == b"quick"
        assert list(path.parent.iterdir()) == [path]

    def test_a_study_that_cannot_be_moved_leaves_nothing(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(Path, "replace", broken)
        with pytest.raises(StudyError, match="Input/output error"):
            Journal.create(path, {})
        assert not list(path.parent.iterdir())


def test_two_processes_cannot_write_the_same_batch(path: Path, plans: PlanTable, outcomes: Outcomes) -> None:
    written(path, plans, outcomes)
    with Journal.open(path) as journal:
        with pytest.raises(StudyError, match="is being run by another process"):
            journal.append(2, "test", 3.0, plans, outcomes)
        assert journal.num_batches == 3


def test_a_damaged_batch_is_found_and_those_before_it_can_be_read(
    path: Path, plans: PlanTable, outcomes: Outcomes
) -> None:
    written(path, plans, outcomes)
    connection = sqlite3.connect(path)
    (payload,) = connection.execute("SELECT payload FROM batches WHERE number = 1").fetchone()
    changed = payload[:500] + bytes([payload[500] ^ 1]) + payload[501:]
    connection.execute("UPDATE batches SET payload = ? WHERE number = 1", (changed,))
    connection.commit()
    connection.close()
    with Journal.read(path) as journal:
        batches = journal.batches()
        assert next(batches).number == 0
        with pytest.raises(StudyError, match="batch 1 is damaged"):
            next(batches)


def test_a_file_that_is_no_study_is_refused(path: Path) -> None:
    path.write_bytes(b"no database at all, but long enough to be looked at as one" * 20)
    with pytest.raises(StudyError, match="file is not a database"):
        Journal.read(path)
    path.unlink()
    sqlite3.connect(path).execute("CREATE TABLE facts (name, value)").connection.close()
    with pytest.raises(StudyError, match="study of another version"):
        Journal.read(path)
    with pytest.raises(StudyError, match=r"there is no study .*missing"):
        Journal.read(path.with_name("missing.study"))


def test_a_folder_that_cannot_be_written_is_one_clear_error() -> None:
    with pytest.raises(StudyError, match=r"some\.study: .*see that there is space and the right to write"):
        Journal.create(Path("/proc/some.study"), {})


def test_a_full_disk_is_one_clear_error_and_what_was_written_stays(
    path: Path, plans: PlanTable, outcomes: Outcomes
) -> None:
    written(path, plans, outcomes)
    # A process may be forbidden to write files beyond a size: to SQLite that is a disk without space.
    code = f"""
import resource
from pathlib import Path
from simulator.errors import StudyError
from studies.files.journal import Journal
journal = Journal.open(Path({str(path)!r}))
batch = journal.batch(0)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
try:
    for number in range(3, 100):
        journal.append(number, "test", 9.0, batch.plans, batch.outcomes)
except StudyError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(journal.num_batches)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    message, num_batches = done.stdout.splitlines()
    assert "what was written before is kept" in message
    with Journal.open(path) as journal:
        assert journal.num_batches == int(num_batches) >= 3
        assert are_same(PlanTable.concatenate([b.plans for b in journal.batches(0)][:3]), plans).all()
        journal.append(journal.num_batches, "test", 9.0, plans, outcomes)


def test_a_study_that_cannot_be_written_can_be_read(path: Path, plans: PlanTable, outcomes: Outcomes) -> None:
    written(path, plans, outcomes)
    with Journal.read(path) as journal, pytest.raises(StudyError, match="readonly database"):
        journal.append(3, "test", 9.0, plans, outcomes)


def test_reading_leaves_no_files_behind(path: Path, plans: PlanTable, outcomes: Outcomes) -> None:
    written(path, plans, outcomes)
    with Journal.read(path) as journal:
        assert journal.num_batches == 3
    assert list(path.parent.iterdir()) == [path]


def test_what_a_killed_process_left_beside_the_file_is_folded_into_it_by_reading(path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from studies.files.journal import Journal
journal = Journal.create(Path({str(path)!r}), {{}})
journal.note({{"status": "half way"}})
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert len(list(path.parent.iterdir())) > 1
    with Journal.read(path) as journal:
        assert journal.facts["status"] == "half way"
    assert list(path.parent.iterdir()) == [path]


def test_keys_tell_designs_apart_and_ignore_the_table_they_are_in() -> None:
    designs = pruned_space(small_job()).designs()
    keys = plan_keys(designs)
    assert len(np.unique(keys)) == len(designs)
    rows = np.array([7, 3, 3])
    np.testing.assert_array_equal(plan_keys(designs.take(rows)), keys[rows])


def test_minus_zero_is_the_decision_zero_and_every_nan_is_one() -> None:
    designs = pruned_space(small_job()).designs().take(slice(0, 1))
    other_nan = np.array([0xFFF8000000000001], dtype=np.uint64).view(np.float64)
    for same, other in ((np.zeros(1), np.array([-0.0])), (np.array([np.nan]), other_nan)):
        first, second = (replace(designs, checkpoint_interval_s=value) for value in (same, other))
        assert plan_keys(first) == plan_keys(second)


def test_outcomes_that_were_read_back_are_worth_the_same(plans: PlanTable) -> None:
    expected = evaluate(JOB, plans)
    found = from_bytes(encode(plans, expected.outcomes)).outcomes()
    np.testing.assert_array_equal(found.summary.mfu_fraction, expected.outcomes.summary.mfu_fraction)
