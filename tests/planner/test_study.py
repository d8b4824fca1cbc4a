"""Does a study survive what happens to it? Kills, stops, other versions, stores that are away; merging and delivery."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from constraints.evaluation import judge
from planner.delivery import deliver
from planner.durable import StudyAnswer, resume_study, run_study_of
from planner.mlflow_content import asked_params, result_metrics
from planner.recommendation import MlflowRecord, Recommendation
from planner.sending import Sending, Target
from planner.study_facts import ANSWER, DELIVERED_TO
from planner.study_merge import merge_studies
from planner.study_reports import export_designs, front_of, list_studies, state_of, status_of
from simulator.errors import StudyError, TrackingError
from simulator.job import Job
from simulator.limits import Limits
from simulator.search_options import Search
from studies import design_parts, identity
from studies.design_log import read_designs
from studies.journal import Journal
from studies.progress import Progress, Stop, never_stop
from studies.store import StudyStore, only_runner
from studies.tracking import StudyTracker
from tests.studies.study_jobs import small_job

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EVALUATIONS = 120


def job_of(**search: object) -> Job:
    """A search of about a dozen batches, refinement included."""
    settings = {
        "algorithm": "nsga2",
        "max_evaluations": EVALUATIONS,
        "population_size": 12,
        "num_refinements": 2,
        "tensor_parallel": [1, 2],
        **search,
    }
    return small_job(**settings)


def run(
    folder: Path, *, seed: int = 1, job: Job | None = None, should_stop: Stop = never_stop
) -> StudyAnswer:
    store = StudyStore(folder)
    return run_study_of(job or job_of(), seed=seed, store=store, should_stop=should_stop, clock=lambda: NOW)


def stop_after(num_batches: int) -> Stop:
    """Returns what lets a search do so many batches."""
    left: Iterator[bool] = iter([False] * num_batches)
    return lambda: next(left, True)


def keys_of(path: Path) -> np.ndarray:
    with Journal.read(path) as journal:
        return np.concatenate([np.zeros(0, dtype=np.uint64), *(keys for _, keys in journal.design_keys())])


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


@pytest.mark.parametrize("num_batches", [0, 1, 5])
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
    for _ in range(3):
        before = keys_of(path)
        code = (
            "import signal\nfrom pathlib import Path\nfrom planner.durable import resume_study\n"
            "import planner.infeasible, pymoo.algorithms.moo.nsga2, optuna\n"
            f"signal.setitimer(signal.ITIMER_REAL, {draw.uniform(0.2, 1.5)!r})\nresume_study(Path({str(path)!r}))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
        assert done.returncode in (-signal.SIGALRM, 0), done.stderr.decode()
        np.testing.assert_array_equal(keys_of(path)[: len(before)], before)
    assert_equal(resume_study(path), whole)


def test_a_running_study_can_be_looked_at_but_not_run_twice(tmp_path: Path) -> None:
    path = run(tmp_path, should_stop=stop_after(2)).path
    with only_runner(path):
        assert state_of(path).state == "running"
        assert status_of(path).num_designs == len(keys_of(path)) > 0
        with pytest.raises(StudyError, match="is being run by another process"):
            resume_study(path)
    assert state_of(path).state == "stopped"


def test_the_same_job_and_seed_are_the_same_study(tmp_path: Path) -> None:
    path = run(tmp_path, should_stop=stop_after(1)).path
    with pytest.raises(StudyError, match=rf"is there already.*capplan study resume {path.stem}"):
        run(tmp_path)
    assert run(tmp_path, seed=2, should_stop=stop_after(1)).path != path


def test_other_code_does_not_go_on_with_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run(tmp_path, should_stop=stop_after(1)).path
    monkeypatch.setattr(identity, "code_hash", lambda *_: "0" * 16)
    with pytest.raises(StudyError, match="was begun by other code"):
        resume_study(path)


def test_a_study_under_other_limits_simulates_nothing_again(tmp_path: Path, whole: StudyAnswer) -> None:
    job = job_of(algorithm="exhaustive", num_refinements=0, tensor_parallel=[1], pipeline_parallel=[1])
    first = run(tmp_path, job=job)
    tight = job.model_copy(update={"limits": Limits(budget_usd=1e9)})
    second = run(tmp_path, job=tight)
    assert second.counts.num_simulated == 0
    assert second.counts.num_reused == first.counts.num_simulated > 0
    fronts = [[design.model_dump() for design in study.answer.front] for study in (first, second)]
    assert fronts[0] == fronts[1]
    longer = job.model_copy(update={"workload": job.workload.model_copy(update={"tokens": 3e11})})
    assert run(tmp_path, job=longer).counts.num_reused == 0


def test_a_search_that_takes_over_some_designs_finds_what_it_would_have_found(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    other = run(tmp_path, seed=2)
    mixed = run(tmp_path, seed=1)
    assert 0 < mixed.counts.num_reused < mixed.answer.num_evaluated
    assert other.answer.num_evaluated == other.counts.num_simulated
    assert_equal(mixed, whole)


def test_a_proof_that_no_design_fits_is_an_answer_too(tmp_path: Path) -> None:
    job = job_of().model_copy(update={"limits": Limits(budget_usd=1.0)})
    found = run(tmp_path, job=job)
    assert found.answer.status == state_of(found.path).state == "infeasible"
    assert resume_study(found.path).answer.infeasibility == found.answer.infeasibility


def test_the_reports_agree_with_the_answer(whole: StudyAnswer) -> None:
    status = status_of(whole.path)
    assert status.state == "recommended"
    assert status.num_designs == whole.answer.num_evaluated
    assert status.num_feasible == whole.answer.num_feasible
    assert sum(status.stages.values()) == status.num_designs
    assert status.created_at == NOW.isoformat()
    assert front_of(whole.path).front == whole.answer.front
    assert [study.name for study in list_studies(StudyStore(whole.path.parent))] == [whole.path.stem]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_an_export_holds_every_design(whole: StudyAnswer, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"designs.{suffix}"
    assert export_designs(whole.path, file) == whole.answer.num_evaluated
    if suffix == "parquet":
        assert read_designs(file)["design_id"].tolist() == list(range(whole.answer.num_evaluated))
    else:
        assert len(file.read_text(encoding="utf-8").splitlines()) == whole.answer.num_evaluated + 1
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    with pytest.raises(StudyError, match="never overwritten"):
        export_designs(whole.path, file)
    with pytest.raises(StudyError, match=r"suffix must be one of \.parquet, \.csv"):
        export_designs(whole.path, tmp_path / "designs.xlsx")


def test_a_file_that_is_no_study_does_not_hide_the_others(tmp_path: Path) -> None:
    study = run(tmp_path, should_stop=stop_after(0))
    (tmp_path / "broken.study").write_bytes(b"nothing that SQLite knows" * 100)
    states = {state.name: state.state for state in list_studies(StudyStore(tmp_path))}
    assert states == {"broken": "damaged", study.path.stem: "stopped"}
    assert resume_study(study.path).counts.num_reused == 0


def test_merged_studies_hold_each_design_once_and_the_front_of_all(tmp_path: Path) -> None:
    first, second = run(tmp_path, seed=1), run(tmp_path, seed=2)
    target = StudyStore(tmp_path).path_named("both")
    num_designs = merge_studies([first.path, second.path], target, NOW)
    union = np.union1d(keys_of(first.path), keys_of(second.path))
    np.testing.assert_array_equal(np.sort(keys_of(target)), union)
    assert num_designs == len(union) < len(keys_of(first.path)) + len(keys_of(second.path))
    merged = front_of(target)
    assert merged.study.state == "merged"
    assert merged.study.merged_from == (first.path.stem, second.path.stem)
    best = min(design.cost_usd for study in (first, second) for design in study.answer.front)
    assert min(design.cost_usd for design in merged.front) == best
    with pytest.raises(StudyError, match="was merged from"):
        resume_study(target)
    with pytest.raises(StudyError, match="deliver these"):
        deliver(target, tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")


def test_a_merge_that_fails_leaves_nothing_where_the_new_study_was_to_be(tmp_path: Path) -> None:
    first, second = (run(tmp_path, seed=seed, should_stop=stop_after(2)).path for seed in (1, 2))
    with sqlite3.connect(second) as database:
        database.execute("UPDATE batches SET checksum = x'00' WHERE number = 1")
    database.close()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StudyError, match="batch 1 is damaged"):
        merge_studies([first, second], tmp_path / "both.study", NOW)
    assert sorted(tmp_path.iterdir()) == before


def test_a_study_is_called_by_its_hash_or_the_start_of_it(tmp_path: Path) -> None:
    path = run(tmp_path, should_stop=stop_after(0)).path
    with Journal.read(path) as journal:
        whole_hash = journal.facts["study_hash"]
    store = StudyStore(tmp_path)
    for length in (4, 7, 8, 9, len(whole_hash)):
        assert store.find(whole_hash[:length]) == path
    for name in (whole_hash[:3], f"{whole_hash}0", ""):
        with pytest.raises(StudyError, match="there is no such study"):
            store.find(name)


@pytest.mark.parametrize("num_bytes", [0, 50, 5000])
def test_a_file_that_was_cut_short_is_called_damaged_and_not_a_lack_of_space(
    tmp_path: Path, num_bytes: int
) -> None:
    path = run(tmp_path, should_stop=stop_after(2)).path
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(StudyError, match="damaged, cut short, or no study") as raised:
        status_of(path)
    assert "space" not in str(raised.value)


def test_sync_delivers_what_it_can_and_names_every_study_that_it_cannot(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli import main

    stopped = run(tmp_path, should_stop=stop_after(1), seed=2).path.stem
    ended = run(tmp_path, job=job_of().model_copy(update={"limits": Limits(budget_usd=1.0)})).path.stem
    names = [stopped, "nobody", ended]
    assert main(["study", "sync", *names, "--store", str(tmp_path), "--tracking-uri", uri]) == 1
    told = capsys.readouterr()
    assert told.out == f"{ended}: delivered\n"
    assert f"{stopped}: study {stopped} has not ended" in told.err
    assert "nobody: study 'nobody': there is no such study" in told.err


def test_sync_of_everything_names_damaged_studies_and_those_that_have_not_ended(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli import main

    stopped = run(tmp_path, should_stop=stop_after(1), seed=2).path.stem
    (tmp_path / "text.study").write_text("hello")
    asked = ["study", "sync", "--store", str(tmp_path), "--tracking-uri", uri]
    assert main(asked) == 1
    told = capsys.readouterr()
    assert "text: study" in told.err
    assert "damaged" in told.err
    assert f"{stopped}: skipped, since it was stopped; `capplan study resume {stopped}`" in told.err
    (tmp_path / "text.study").unlink()
    assert main([*asked, "--json"]) == 0  # what has not ended is no failure
    (synced,) = json.loads(capsys.readouterr().out)["studies"]
    assert (synced["study"], synced["state"]) == (stopped, "skipped")
    assert main(["study", "status", stopped, "--store", str(tmp_path)]) == 0
    told_status = " ".join(capsys.readouterr().out.split())
    assert f"`capplan study resume {stopped}` goes on and delivers it" in told_status
    assert "sync" not in told_status


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


def test_mlflow_shows_every_setting_of_the_search_as_a_parameter() -> None:
    job = job_of(checkpoint_schemes=["async"])
    params = asked_params(job, 1)
    assert {name for name in params if name.startswith("search_")} == {
        *(f"search_{name}" for name in Search.model_fields),
        "search_generation_size",
    }
    assert (params["search_algorithm"], params["search_max_evaluations"]) == ("nsga2", str(EVALUATIONS))
    assert (params["search_population_size"], params["search_tensor_parallel"]) == ("12", "1, 2")
    assert (params["search_max_seconds"], params["search_checkpoint_schemes"]) == ("default", "async")


def test_studies_of_other_limits_do_not_add_up(tmp_path: Path, whole: StudyAnswer) -> None:
    other = run(tmp_path, job=job_of().model_copy(update={"limits": Limits(budget_usd=1e9)}))
    with pytest.raises(StudyError, match="differ in limits: merge studies of one job"):
        merge_studies([whole.path, other.path], tmp_path / "both.study", NOW)
    with pytest.raises(StudyError, match="at least two different studies"):
        merge_studies([whole.path, whole.path], tmp_path / "both.study", NOW)


def runs_of(uri: str) -> tuple[list[Run], dict[str, dict[str, str]]]:
    """The studies in a store, and the tags of the designs' runs by name."""
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("capplan")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], max_results=5000)
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    tags = {str(run.info.run_name): dict(run.data.tags) for run in children}
    assert len(tags) == len(children), "a design has two runs"
    return [run for run in runs if run not in children], tags


def test_status_and_mlflow_say_the_same_of_the_front(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.archive.SAME_WITHIN_FRACTION", 0.05)
    study = run(tmp_path)
    deliver(study.path, tracking_uri=uri)
    (parent,), tags = runs_of(uri)
    status = status_of(study.path)
    assert status.hypervolume_fraction == parent.data.metrics["hypervolume"]
    assert status.num_front == parent.data.metrics["num_front"]
    assert status.num_front == sum(tag["front"] == "1" for tag in tags.values())
    assert {name for name, tag in tags.items() if tag["front"] == "1"} == on_front(study.answer)
    assert all((tag["rank"] == "1") == (tag["front"] == "1") for tag in tags.values())
    num_near = sum(tag["near_front"] == tag["feasible"] == "1" for tag in tags.values())
    assert num_near == sum(tag["rank"] == "near" for tag in tags.values()) > 0
    assert status.num_not_dominated == parent.data.metrics["num_not_dominated"] == status.num_front + num_near
    found = front_of(study.path)
    assert found.front == study.answer.front
    assert (found.num_front, found.num_not_dominated) == (status.num_front, status.num_not_dominated)


def test_a_delivery_brings_each_design_once_and_marks_the_recommended_one(tmp_path: Path, uri: str) -> None:
    study = run(tmp_path)
    assert deliver(study.path, tracking_uri=uri).is_new
    assert not deliver(study.path, tracking_uri=uri).is_new
    parents, tags = runs_of(uri)
    assert len(parents) == 1
    assert len(tags) == study.answer.num_evaluated
    recommended = [name for name, tag in tags.items() if tag["recommended"] == "1"]
    assert study.answer.recommendation is not None
    assert recommended == [f"design {study.answer.recommendation.design_id}"]
    assert state_of(study.path).delivered_to == (f"{uri} capplan",)


def test_a_delivery_that_breaks_off_is_completed_by_the_next_one(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = run(tmp_path)
    with monkeypatch.context() as broken:
        # Everything has reached MLflow, but the process ends before the journal knows.
        broken.setattr(Sending, "finish", _finish_and_fail)
        with pytest.raises(TrackingError, match="gone"):
            deliver(study.path, tracking_uri=uri)
    assert state_of(study.path).delivered_to == ()
    deliver(study.path, tracking_uri=uri)
    parents, tags = runs_of(uri)
    assert len(parents) == 1
    assert len(tags) == study.answer.num_evaluated


_FINISH = Sending.finish


def _finish_and_fail(study: Sending, answer: Recommendation) -> MlflowRecord:
    _FINISH(study, answer)
    raise TrackingError("MLflow store x: gone")


def test_resuming_a_study_whose_end_mlflow_has_not_heard_of_delivers_it(tmp_path: Path, uri: str) -> None:
    target = Target(tracking_uri=uri)
    with pytest.MonkeyPatch.context() as killed:
        # As SIGKILL right behind the journalled answer leaves it: the run is open, the journal knows of no delivery.
        killed.setattr(Sending, "finish", _stop_before_the_end)
        study = run_study_of(job_of(), seed=1, store=StudyStore(tmp_path), target=target, clock=lambda: NOW)
    client = MlflowClient(tracking_uri=uri)
    assert [run.info.status for run in client.search_runs(["1"])] == ["RUNNING"]
    with Journal.read(study.path) as journal:
        assert ANSWER in journal.facts
        assert DELIVERED_TO not in journal.facts
    resumed = resume_study(study.path, target=target)
    parents, tags = runs_of(uri)
    assert [client.get_run(parent.info.run_id).info.status for parent in parents] == ["FINISHED"]
    assert len(tags) == study.answer.num_evaluated
    assert resumed.answer.mlflow is not None
    assert state_of(study.path).delivered_to == (target.place,)
    assert resume_study(study.path, target=target).answer.mlflow is None  # nothing was left to deliver


def test_resuming_an_answered_study_without_its_store_gives_the_answer_and_the_reason(
    tmp_path: Path, whole: StudyAnswer
) -> None:
    (tmp_path / "mlflow.db").mkdir()
    resumed = resume_study(whole.path, target=Target(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db"))
    assert "mlflow.db" in resumed.tracking_failure
    assert_equal(resumed, whole)


def _stop_before_the_end(study: Sending, answer: Recommendation) -> None:
    del answer
    study.tracker.leave()


def test_mlflow_is_told_of_a_study_while_it_runs_and_sync_finds_nothing_left_to_do(
    tmp_path: Path, uri: str
) -> None:
    seen: list[int] = []

    def look(progress: Progress) -> None:
        if progress.num_done > EVALUATIONS // 2 and not seen:
            client = MlflowClient(tracking_uri=uri)
            (run,) = client.search_runs(["1"])
            assert run.info.status == "RUNNING"
            seen.append(len(client.list_artifacts(run.info.run_id, "designs")))

    target = Target(tracking_uri=uri)
    with pytest.MonkeyPatch.context() as often:
        often.setattr(design_parts, "DESIGNS_PER_PART", 20)
        store = StudyStore(tmp_path)
        study = run_study_of(job_of(), seed=1, store=store, progress=look, target=target, clock=lambda: NOW)
    assert seen
    assert seen[0] > 0
    assert study.answer.mlflow is not None
    assert not deliver(study.path, tracking_uri=uri).is_new
    _, tags = runs_of(uri)
    assert len(tags) == study.answer.num_evaluated
    client = MlflowClient(tracking_uri=uri)
    run = client.get_run(study.answer.mlflow.run_id)
    assert run.info.status == "FINISHED"
    assert [data.dataset.name for data in run.inputs.dataset_inputs] == [study.answer.job]
    steps = client.get_metric_history(run.info.run_id, "feasible_fraction")
    assert steps[-1].value == study.answer.num_feasible / study.answer.num_evaluated
    assert len(client.get_metric_history(run.info.run_id, "designs_per_s")) == len(steps)
    figures = {file.path for file in client.list_artifacts(run.info.run_id, "figures")}
    assert figures >= {"figures/front.png", "figures/cost.png", "figures/memory.png"}
    parts = read_designs(client.download_artifacts(run.info.run_id, "designs", str(tmp_path)))
    assert sorted(parts["design_id"].tolist()) == list(range(study.answer.num_evaluated))


def test_one_filter_gives_the_front_and_another_one_what_cannot_be_told_from_the_best(
    tmp_path: Path, uri: str
) -> None:
    study = run(tmp_path)
    deliver(study.path, tracking_uri=uri)
    client = MlflowClient(tracking_uri=uri)

    def found(condition: str) -> set[str]:
        return {str(run.info.run_name) for run in client.search_runs(["1"], condition, max_results=5000)}

    values, names = objectives_of_feasible_designs(study.path)
    beats = (values[:, None, :] <= values[None, :, :]).all(axis=2) & (
        values[:, None, :] < values[None, :, :]
    ).any(axis=2)
    not_beaten = set(names[~beats.any(axis=0)])
    assert found("tags.front = '1'") == found("tags.rank = '1'") == on_front(study.answer)
    assert (
        found("tags.near_front = '1'") == found("tags.rank = 'near'") == not_beaten - on_front(study.answer)
    )
    assert len(found("tags.rank = '2'")) > 0
    assert study.answer.uncertainty is not None
    tied = {f"design {number}" for number in study.answer.uncertainty.tied_designs}
    assert found("tags.tied = '1'") == tied
    infeasible = study.answer.num_evaluated - study.answer.num_feasible
    assert len(found("tags.rank = 'none'")) == len(found("tags.feasible = '0'")) == infeasible


def on_front(answer: Recommendation) -> set[str]:
    """Names of the runs of the front's designs."""
    return {f"design {design.design_id}" for design in answer.front}


def objectives_of_feasible_designs(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """What every feasible design of a study is worth `(n, k)`, and the names of their runs `(n,)`."""
    job, first = job_of(), 0
    values, names = [], []
    with Journal.read(path) as journal:
        for batch in journal.batches():
            evaluation = judge(job, batch.plans, batch.outcomes)
            rows = np.flatnonzero(evaluation.is_feasible)
            values.append(evaluation.objectives(job)[rows])
            names += [f"design {first + row}" for row in rows.tolist()]
            first += len(evaluation)
    return np.concatenate(values), np.array(names)


def test_a_study_that_is_sent_again_from_its_middle_has_every_point_once(tmp_path: Path, uri: str) -> None:
    target = Target(tracking_uri=uri)
    stopped = run_study_of(
        job_of(),
        seed=1,
        store=StudyStore(tmp_path),
        should_stop=stop_after(5),
        target=target,
        clock=lambda: NOW,
    )
    client = MlflowClient(tracking_uri=uri)
    (killed,) = client.search_runs(["1"])
    assert killed.info.status == "KILLED"
    resumed = resume_study(stopped.path, target=target)
    assert resumed.answer.mlflow is not None
    assert resumed.answer.mlflow.run_id == killed.info.run_id
    with Journal.read(resumed.path) as journal:
        num_batches = journal.num_batches
    curves = {
        "num_evaluated",
        "num_feasible",
        "feasible_fraction",
        "num_front",
        "num_not_dominated",
        "hypervolume",
        "designs_per_s",
    }
    curves |= {"best_time_to_train_s", "best_cost_usd", "best_carbon_kgco2e"}
    results = set(result_metrics(resumed.answer))
    histories = {
        name: [point.step for point in client.get_metric_history(killed.info.run_id, name)]
        for name in client.get_run(killed.info.run_id).data.metrics
    }
    assert histories.keys() == curves | results
    for name, steps in histories.items():
        assert sorted(steps) == ([num_batches - 1] if name in results else list(range(num_batches))), name


def test_a_store_that_is_away_costs_nothing_but_the_delivery(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli import main

    def refuse(*_: object, **__: object) -> None:
        raise TrackingError("MLflow store http://nowhere: no answer")

    job = tmp_path / "job.json"
    document = {
        "workload": {
            "model": "llama-3.1-8b",
            "tokens": 2e11,
            "sequence_length": 8192,
            "global_batch_size": 128,
        },
        "offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": 64, "rent_usd_per_gpu_hour": 2.6}],
        "site": "us-iowa",
        "search": {"tensor_parallel": [1], "pipeline_parallel": [1], "num_refinements": 0},
    }
    job.write_text(json.dumps(document), encoding="utf-8")
    store = ["--store", str(tmp_path / "store")]
    tracking = ["--tracking-uri", uri]
    with monkeypatch.context() as away:
        away.setattr(StudyTracker, "open", refuse)
        assert main(["study", "run", str(job), *store, *tracking, "--quiet"]) == 0
    told = capsys.readouterr()
    assert "Recommended:" in told.out
    assert "no answer\nDeliver later: capplan study sync job-" in told.err
    assert main(["study", "sync", *store, *tracking]) == 0
    assert ": delivered" in capsys.readouterr().out
    assert main(["study", "list", *store, "--json"]) == 0
    (study,) = json.loads(capsys.readouterr().out)["studies"]
    assert study["state"] == "recommended"
    for command in ("status", "front", "resume"):
        assert (
            main(["study", command, study["name"], *store, *(tracking if command == "resume" else [])]) == 0
        )
        assert study["name"] in capsys.readouterr().out
    table = tmp_path / "designs.parquet"
    assert main(["study", "export", study["name"].rpartition("-")[2], str(table), *store]) == 0
    assert capsys.readouterr().out == f"{study['num_designs']:,} designs in {table}\n"
    assert main(["study", "merge", study["name"], "--into", "both", *store]) == 1
    assert "at least two different studies" in capsys.readouterr().err
    assert main(["study", "merge", study["name"], "--into", "../both", *store]) == 1
    assert "use at most 100 letters" in capsys.readouterr().err
    assert main(["study", "status", "nobody", *store]) == 1
    assert "there is no such study" in capsys.readouterr().err


def test_designs_that_a_search_no_longer_asks_for_are_an_error_not_a_mixture(tmp_path: Path) -> None:
    path = run(tmp_path, should_stop=stop_after(2)).path
    with Journal.open(path) as journal:
        other = job_of(max_evaluations=2 * EVALUATIONS)
        journal.note({"job": other.model_dump_json(), "code_hash": identity.Identity.of(other, 1).code})
    with pytest.raises(StudyError, match="now asks for other designs in batch 0"):
        resume_study(path)
    with Journal.read(path) as journal:
        assert ANSWER not in journal.facts
