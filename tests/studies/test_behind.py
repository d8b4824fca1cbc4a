"""Does what goes on beside the search keep its order, and lose no error?"""

import threading
from pathlib import Path

import numpy as np
import pytest

from constraints.space import pruned_space
from simulator.errors import StudyError
from studies.designs.blocks import BlockPart
from studies.designs.plan_keys import plan_keys
from studies.evaluation.evaluator import JournaledSimulation
from studies.files.behind import Behind
from studies.files.journal import Journal
from studies.files.known_designs import KnownDesigns
from studies.searchers.starts import first_designs
from tests.studies.study_jobs import small_job

PATIENCE_S = 30.0


def test_a_task_goes_on_beside_its_owner_and_the_next_one_waits_for_it() -> None:
    done: list[str] = []
    may_end, has_begun = threading.Event(), threading.Event()

    def slow() -> None:
        has_begun.set()
        assert may_end.wait(PATIENCE_S)
        done.append("slow")

    behind = Behind("test")
    behind.begin(slow)
    assert has_begun.wait(PATIENCE_S)
    assert not done
    may_end.set()
    behind.begin(lambda: done.append("next"))
    behind.close()
    assert done == ["slow", "next"]


def test_what_went_wrong_is_told_once_and_nothing_is_begun_after_it() -> None:
    def wrong() -> None:
        raise StudyError("no space")

    done: list[str] = []
    behind = Behind("test")
    behind.begin(wrong)
    with pytest.raises(StudyError, match="no space"):
        behind.begin(lambda: done.append("next"))
    behind.settle()
    assert not done
    behind.begin(wrong)
    with pytest.raises(StudyError, match="no space"):
        behind.close()
    behind.close()


def test_a_batch_is_in_the_journal_once_it_is_settled_and_one_that_cannot_be_is_told(tmp_path: Path) -> None:
    job = small_job()
    plans = first_designs(pruned_space(job), 20, 0, 0)
    path = tmp_path / "some.study"
    with Journal.create(path, {}) as journal:
        with JournaledSimulation(job, journal, KnownDesigns()) as evaluator:
            evaluation = evaluator.evaluate(plans, "test")
            evaluator.settle()
            written = journal.batch(0)
            assert written is not None
            np.testing.assert_array_equal(plan_keys(written.plans), plan_keys(evaluation.plans))
            with Journal.open(path) as other:  # another process, which nobody should let in
                other.append(1, "other", 0.0, plans, written.outcomes)
            evaluator.evaluate(plans, "test")
            with pytest.raises(StudyError, match="run by another process"):
                evaluator.settle()
        assert journal.num_batches == 2


def test_what_was_evaluated_is_written_when_an_error_ends_the_search(tmp_path: Path) -> None:
    job = small_job()
    plans = first_designs(pruned_space(job), 20, 0, 0)
    with Journal.create(tmp_path / "some.study", {}) as journal:
        with (
            pytest.raises(ZeroDivisionError),
            JournaledSimulation(job, journal, KnownDesigns()) as evaluator,
        ):
            evaluator.evaluate(plans, "test")
            raise ZeroDivisionError
        assert journal.num_designs == 20


def test_a_batch_of_another_stage_or_kind_is_not_read_back(tmp_path: Path) -> None:
    job, path = small_job(), tmp_path / "some.study"
    plans = first_designs(pruned_space(job), 20, 0, 0)
    with Journal.create(path, {}) as journal, JournaledSimulation(job, journal, KnownDesigns()) as evaluator:
        evaluator.evaluate(plans, "test")
    with Journal.open(path) as journal, JournaledSimulation(job, journal, KnownDesigns()) as evaluator:
        with pytest.raises(StudyError, match="asks for other designs in batch 0"):
            evaluator.evaluate(plans, "another")
        with pytest.raises(StudyError, match="asks for other designs in batch 0"):
            next(evaluator.reductions(iter([BlockPart(number=0, kept=b"", first=0, last=1)]), "test"))
        evaluator.evaluate(plans, "test")
        assert (evaluator.num_read_back, evaluator.num_simulated) == (20, 0)
