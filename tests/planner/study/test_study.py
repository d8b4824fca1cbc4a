"""Does a study survive what happens to it? Kills, stops, other versions, other limits."""

from __future__ import annotations

import errno
import signal
import sqlite3
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from constraints.evaluation import evaluate
from constraints.limits import ExcessTable
from constraints.space import pruned_space
from objectives.scores import ScoreTable
from planner.cli.terminal.output import rendered
from planner.recommended.study_facts import ANSWER
from planner.study.durable import StudyAnswer, resume_study, run_study_of
from planner.study.export import export_designs
from planner.study.merge import JUDGES, merge_studies
from planner.study.reports import front_of, list_studies, state_of, status_of
from planner.study.view import show_list, show_status
from planner.tracking.sending import Target
from simulator.domain.limits import Limits
from simulator.domain.plan import CheckpointScheme, Recompute, Schedule
from simulator.domain.search_options import Algorithm, Search
from simulator.errors import InputError, StudyError
from studies.files import identity
from studies.files.design_log import read_designs
from studies.files.journal import Journal
from studies.files.store import StudyStore, only_runner
from tests.planner.studies_run import EVALUATIONS, NOW, job_of, keys_of, made, run, stop_after

ROOT = Path(__file__).parents[3]
RESUME_UNTIL_KILLED = """
import os, signal, sys
from pathlib import Path
from planner.study.durable import resume_study
import planner.explain.infeasible, pymoo.algorithms.moo.nsga2, optuna

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_REAL, float(line))
        resume_study(Path(sys.argv[1]))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Resumes a study in a process of its own for as many seconds as each line says."""


OTHER_SEARCH: dict[str, object] = {
    "algorithm": Algorithm.RANDOM,
    "exhaustive_up_to": 7,
    "max_evaluations": 77,
    "max_seconds": 7.0,
    "stagnation_evaluations": 77,
    "least_gain_fraction": 0.5,
    "population_size": 77,
    "num_restarts": 7,
    "num_refinements": 7,
    "memory_headroom_fraction": 0.9999,
    "tensor_parallel": (8,),
    "pipeline_parallel": (7,),
    "virtual_pipeline": (7,),
    "pipeline_schedules": (Schedule.ZB_H1,),
    "interleaved_group_sizes": (77,),
    "context_parallel": (7,),
    "expert_parallel": (7,),
    "micro_batch_sizes": (7,),
    "recompute": (Recompute.NONE,),
    "recompute_num_layers": (7,),
    "zero_stages": (0,),
    "hybrid_sharding": (True,),
    "checkpoint_schemes": (CheckpointScheme.NONE,),
    "with_spares": (False,),
    "power_caps": (0.7,),
}
"""Values that no field of a search has in `job_of`."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StudyAnswer:
    """A study that was never stopped."""
    return run(tmp_path_factory.mktemp("whole"))


def assert_equal(found: StudyAnswer, expected: StudyAnswer) -> None:
    assert found.answer.model_dump_json() == expected.answer.model_dump_json()
    np.testing.assert_array_equal(keys_of(found.path), keys_of(expected.path))


def test_every_design_is_in_the_journal_once(whole: StudyAnswer) -> None:
    keys = keys_of(whole.path)
    assert len(keys) == whole.answer.num_evaluated == whole.counts.num_simulated
    assert len(np.unique(keys)) == len(keys)


@pytest.mark.short(1)
@pytest.mark.parametrize("num_batches", [1, 0, 5])
def test_a_stopped_study_goes_on_as_if_it_had_never_stopped(
    tmp_path: Path, whole: StudyAnswer, num_batches: int
) -> None:
    stopped = run(tmp_path, should_stop=stop_after(num_batches))
    assert stopped.answer.status == "interrupted"
    assert state_of(stopped.path).state == "stopped"
    num_written = len(keys_of(stopped.path))
    resumed = resume_study(stopped.path)
    assert resumed.counts.num_read_back == num_written
    assert resumed.counts.num_simulated == whole.answer.num_evaluated - num_written
    assert_equal(resumed, whole)


@pytest.mark.parametrize("num_batches", [1, 4])
def test_a_study_that_is_stopped_in_the_middle_of_a_proof_goes_on_with_it(
    tmp_path: Path, num_batches: int
) -> None:
    impossible = job_of().model_copy(update={"limits": Limits(deadline_days=1.0)})
    whole = run(tmp_path / "whole", job=impossible)
    assert whole.answer.status == "infeasible"
    stopped = run(tmp_path / "stopped", job=impossible, should_stop=stop_after(num_batches))
    assert stopped.answer.status == "interrupted"
    assert_equal(resume_study(stopped.path), whole)


def test_a_study_that_has_its_answer_gives_it_again(whole: StudyAnswer) -> None:
    again = resume_study(whole.path)
    assert again.counts.num_simulated == 0
    assert_equal(again, whole)


def test_a_study_killed_at_random_moments_loses_no_design_and_repeats_none(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    # The alarm ends the process at once, wherever it is, like SIGKILL; `python -m benchmarks.crash` kills 200 times.
    path = StudyStore(tmp_path).create(job_of(), 1, NOW)
    draw = np.random.default_rng(7)
    # One process has imported everything; each of those that it forks is one that runs the study.
    with subprocess.Popen(
        [sys.executable, "-c", RESUME_UNTIL_KILLED, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for _ in range(3):
            before = keys_of(path)
            print(draw.uniform(0.2, 1.5), file=running.stdin, flush=True)
            assert int(running.stdout.readline()) in (-signal.SIGALRM, 0)
            np.testing.assert_array_equal(keys_of(path)[: len(before)], before)
        running.stdin.close()
    assert_equal(resume_study(path), whole)


def test_a_running_study_can_be_looked_at_but_not_run_twice(tmp_path: Path) -> None:
    path = made(tmp_path, num_batches=2).path
    with only_runner(path):
        assert state_of(path).state == "running"
        assert status_of(path).num_designs == len(keys_of(path)) > 0
        with pytest.raises(StudyError, match="is being run by another process"):
            resume_study(path)
    assert state_of(path).state == "stopped"


def test_the_same_job_and_seed_are_the_same_study(tmp_path: Path) -> None:
    path = made(tmp_path, num_batches=1).path
    with pytest.raises(
        StudyError, match=rf"is there already.*capplan study resume {path.stem} --store {tmp_path}`"
    ):
        run(tmp_path)
    assert run(tmp_path, seed=2, should_stop=stop_after(1)).path != path


def test_other_code_does_not_go_on_with_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path, num_batches=1).path
    monkeypatch.setattr(identity, "code_hash", lambda *_: "0" * 16)
    with pytest.raises(StudyError, match="was started by other code"):
        resume_study(path)


def test_a_study_under_other_limits_simulates_nothing_again(tmp_path: Path) -> None:
    job = job_of(algorithm="exhaustive", num_refinements=0, tensor_parallel=[1], pipeline_parallel=[1])
    first = made(tmp_path, job=job)
    assert any("search.max_evaluations" in note for note in first.answer.warnings)
    tight = job.model_copy(update={"limits": Limits(budget_usd=1e9)})
    second = run(tmp_path, job=tight)
    assert second.counts.num_simulated == 0
    assert second.counts.num_reused == first.counts.num_simulated > 0
    fronts = [[design.model_dump() for design in study.answer.front] for study in (first, second)]
    assert fronts[0] == fronts[1]
    longer = job.model_copy(update={"workload": job.workload.model_copy(update={"tokens": 3e11})})
    assert run(tmp_path, job=longer).counts.num_reused == 0


@pytest.mark.long
def test_a_search_that_takes_over_some_designs_finds_what_it_would_have_found(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    other = made(tmp_path, seed=2)
    mixed = run(tmp_path, seed=1)
    assert 0 < mixed.counts.num_reused < mixed.answer.num_evaluated
    assert other.answer.num_evaluated == other.counts.num_simulated
    assert_equal(mixed, whole)


def test_a_proof_that_no_design_fits_is_an_answer_too(tmp_path: Path) -> None:
    job = job_of().model_copy(update={"limits": Limits(budget_usd=1.0)})
    found = run(tmp_path, job=job)
    assert found.answer.status == state_of(found.path).state == "infeasible"
    assert resume_study(found.path).answer.infeasibility == found.answer.infeasibility
    assert export_designs(found.path, tmp_path / "designs.csv").num_designs == 0
    assert (tmp_path / "designs.csv").read_text().startswith('"design_id","stage","accelerator"')


def test_the_reports_agree_with_the_answer(whole: StudyAnswer) -> None:
    status = status_of(whole.path)
    assert status.state == "recommended"
    assert status.num_designs == whole.answer.num_evaluated
    assert status.num_feasible == whole.answer.num_feasible
    assert sum(status.stages.values()) == status.num_designs
    assert status.created_at == NOW.isoformat()
    assert front_of(whole.path).front == whole.answer.front
    assert [study.name for study in list_studies(StudyStore(whole.path.parent))] == [whole.path.stem]


def test_status_and_list_say_when_a_study_was_begun_and_in_which_time(whole: StudyAnswer) -> None:
    told = rendered(lambda console: show_status(status_of(whole.path), console, whole.path.stem))
    assert "  started      2026-01-02 03:04 UTC\n" in told
    assert " can be run\n" in told
    limited = status_of(whole.path).model_copy(update={"has_limits": True})
    told = rendered(lambda console: show_status(limited, console, whole.path.stem))
    assert " meet all limits\n" in told
    folder = whole.path.parent
    listed = rendered(lambda console: show_list(list_studies(StudyStore(folder)), folder, console))
    heading, row = listed.splitlines()
    assert heading.split("  ")[-1].strip() == "started (UTC)"
    assert row.endswith("2026-01-02 03:04")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_an_export_holds_every_design(whole: StudyAnswer, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"designs.{suffix}"
    assert export_designs(whole.path, file).num_designs == whole.answer.num_evaluated
    if suffix == "parquet":
        assert read_designs(file)["design_id"].tolist() == list(range(whole.answer.num_evaluated))
    else:
        assert len(file.read_text(encoding="utf-8").splitlines()) == whole.answer.num_evaluated + 1
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    with pytest.raises(InputError, match="never overwritten"):
        export_designs(whole.path, file)
    with pytest.raises(InputError, match=r"suffix must be one of \.parquet, \.csv"):
        export_designs(whole.path, tmp_path / "designs.xlsx")


@pytest.mark.parametrize(
    ("suffix", "writer"),
    [
        ("parquet", "pyarrow.parquet.ParquetWriter.write_table"),
        ("csv", "pyarrow.parquet.ParquetWriter.write_table"),
        ("csv", "pyarrow.csv.CSVWriter.write_batch"),
        ("parquet", "tempfile.TemporaryDirectory.__init__"),
    ],
)
def test_an_export_onto_a_full_disk_names_the_file_and_leaves_nothing(
    whole: StudyAnswer, tmp_path: Path, suffix: str, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / f"designs.{suffix}"
    module, kind, method = writer.rsplit(".", 2)
    stand_in = type(kind, (getattr(import_module(module), kind),), {method: no_space})
    monkeypatch.setattr(f"{module}.{kind}", stand_in)
    with pytest.raises(StudyError, match="No space left on device") as raised:
        export_designs(whole.path, file)
    assert str(raised.value).startswith(f"{file} cannot be written: ")
    assert "partial" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_an_export_of_a_damaged_study_leaves_nothing_and_one_into_a_missing_folder_makes_none(
    tmp_path: Path,
) -> None:
    path = made(tmp_path, num_batches=3).path
    with pytest.raises(InputError, match=r"the folder .*missing does not exist: make it first"):
        export_designs(path, tmp_path / "missing" / "designs.csv")
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM batches WHERE number = 1")
    database.close()
    for suffix in ("csv", "parquet"):
        with pytest.raises(StudyError, match="batch 1 is missing"):
            export_designs(path, tmp_path / f"designs.{suffix}")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("search", "why"),
    [
        ({"algorithm": "nsga2"}, "search.algorithm is nsga2: set it to exhaustive"),
        ({"algorithm": "auto", "exhaustive_up_to": 10}, r"designs, more than search.exhaustive_up_to \(10\)"),
    ],
)
def test_keeping_fronts_of_a_search_that_is_not_exhaustive_is_refused(
    tmp_path: Path, search: dict[str, object], why: str
) -> None:
    store = StudyStore(tmp_path)
    with pytest.raises(StudyError, match=why):
        run_study_of(job_of(**search), store=store, keep="front")
    assert store.paths() == []


def test_studies_of_other_limits_do_not_add_up(tmp_path: Path, whole: StudyAnswer) -> None:
    other = run(tmp_path, job=job_of().model_copy(update={"limits": Limits(budget_usd=1e9)}))
    with pytest.raises(StudyError, match="differ in limits: merge studies of one job"):
        merge_studies([whole.path, other.path], tmp_path / "both.study", NOW)
    for paths in ([whole.path], [whole.path, whole.path], [whole.path, other.path, whole.path]):
        with pytest.raises(InputError, match="merging needs two studies or more, each named once"):
            merge_studies(paths, tmp_path / "both.study", NOW)


def test_studies_that_leave_other_shares_of_memory_free_do_not_add_up(tmp_path: Path) -> None:
    names = {share: job_of(memory_headroom_fraction=share) for share in (0.0, 0.25)}
    paths = [made(tmp_path, job=job, num_batches=0).path for job in names.values()]
    for (own, other), asked in (((0, 0.25), paths), ((0.25, 0), paths[::-1])):
        why = rf"differ in search.memory_headroom_fraction \({own} and {other}\): merge studies of one job"
        with pytest.raises(StudyError, match=why):
            merge_studies(asked, tmp_path / "both.study", NOW)


@pytest.mark.parametrize("name", Search.model_fields)
def test_no_field_of_a_search_in_which_merged_studies_may_differ_changes_how_a_design_is_judged(
    name: str,
) -> None:
    job = job_of()
    plans = pruned_space(job).layouts.take(slice(0, 20))
    changed = job.model_copy(update={"search": job.search.model_copy(update={name: OTHER_SEARCH[name]})})
    assert getattr(changed.search, name) != getattr(job.search, name)
    own, other = evaluate(job, plans), evaluate(changed, plans)
    is_same = [
        np.array_equal(
            getattr(getattr(own, part), column), getattr(getattr(other, part), column), equal_nan=True
        )
        for part, table in (("scores", ScoreTable), ("excess", ExcessTable))
        for column in table.names()
    ]
    assert all(is_same) == (name not in JUDGES)


def test_resuming_an_answered_study_without_its_store_gives_the_answer_and_the_reason(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    (tmp_path / "mlflow.db").mkdir()
    resumed = resume_study(whole.path, target=Target(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db"))
    assert "mlflow.db" in resumed.tracking_failure
    assert_equal(resumed, whole)


def test_designs_that_a_search_no_longer_asks_for_are_an_error_not_a_mixture(tmp_path: Path) -> None:
    path = made(tmp_path, num_batches=2).path
    with Journal.open(path) as journal:
        other = job_of(max_evaluations=2 * EVALUATIONS)
        its = identity.Identity.of(other, 1)
        journal.note({"job": other.model_dump_json(), "job_hash": its.job, "study_hash": its.study})
    with pytest.raises(StudyError, match="now asks for other designs in batch 0"):
        resume_study(path)
    with Journal.read(path) as journal:
        assert ANSWER not in journal.facts
