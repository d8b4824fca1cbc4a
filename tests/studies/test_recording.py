"""Is every evaluated design written down? The design table and MLflow against what was evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient

from constraints.evaluation import Evaluation, evaluate
from constraints.space import pruned_space
from simulator.domain.job import Job, Objective
from simulator.domain.limits import Limits
from simulator.errors import TrackingError
from studies.designs.archive import Archive
from studies.files.design_log import DesignLog, read_designs
from studies.files.design_parts import DesignParts
from studies.files.identity import study_label
from studies.tracking import recording
from studies.tracking.design_table import Marks, design_runs, ranks, run_name
from studies.tracking.recording import Ending, Recording
from studies.tracking.tracker import StudyTracker
from tests.studies.study_jobs import small_job


@pytest.fixture
def job() -> Job:
    return small_job(tensor_parallel=[1, 2], pipeline_parallel=[1], context_parallel=[1])


@pytest.fixture
def designs(job: Job) -> Evaluation:
    return evaluate(job, pruned_space(job).designs())


def record_all(
    job: Job, designs: Evaluation, folder: Path, uri: str
) -> tuple[Recording, Archive, StudyTracker]:
    archive = Archive(job)
    with (
        StudyTracker.open(experiment="capplan", run_name="small", tracking_uri=uri) as tracker,
        DesignLog(folder / "designs.parquet") as log,
    ):
        record = Recording(job, archive, log, tracker, DesignParts(folder / "parts"))
        for start in range(0, len(designs), 100):
            record.record(designs.take(slice(start, start + 100)), "test")
        record.finish(Ending(status="FINISHED", metrics={"num_evaluated": float(len(designs))}), [])
    return record, archive, tracker


def test_table_and_runs_hold_every_design_once(
    job: Job, designs: Evaluation, tmp_path: Path, uri: str
) -> None:
    record, archive, tracker = record_all(job, designs, tmp_path, uri)
    table = read_designs(tmp_path / "designs.parquet")
    assert table["design_id"].tolist() == list(range(len(designs)))
    np.testing.assert_array_equal(table["is_feasible"], designs.is_feasible)
    np.testing.assert_array_equal(table["cost_usd"], designs.scores.cost_usd)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("capplan")
    assert experiment is not None
    of_study = f"tags.`mlflow.parentRunId` = '{tracker.run_id}'"
    runs = client.search_runs(
        [experiment.experiment_id], of_study, max_results=5000, order_by=["metrics.cost_usd"]
    )
    assert record.num_design_runs == len(runs) == len(designs)
    costs = [run.data.metrics["cost_usd"] for run in runs]
    assert costs == sorted(designs.scores.cost_usd.tolist())
    on_front = [run.info.run_name for run in runs if run.data.tags["front"] == "1"]
    assert sorted(on_front) == sorted(run_name(number, study_label(job)) for number in archive.ids.tolist())


def test_designs_that_are_sent_later_keep_their_rank_among_all(
    job: Job, designs: Evaluation, uri: str
) -> None:
    archive = Archive(job)
    with StudyTracker.open(experiment="capplan", run_name="rest", tracking_uri=uri) as tracker:
        record = Recording(job, archive, None, tracker)
        record.record(designs, "test")
        on_front = {run_name(number, study_label(job)) for number in archive.ids.tolist()}
        record.finish(Ending(status="FINISHED", metrics={}), [], recorded_names=on_front)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_run(tracker.run_id).info.experiment_id
    of_study = f"tags.mlflow.parentRunId = '{tracker.run_id}'"
    runs = client.search_runs([experiment], of_study, max_results=5000)
    told = {run.info.run_name: run.data.tags["rank"] for run in runs}
    every = {run_name(row, study_label(job)): rank for row, rank in enumerate(ranks(job, designs))}
    assert told == {
        name: "near" if rank == "1" else rank for name, rank in every.items() if name not in on_front
    }
    assert "2" in told.values()


def test_the_curve_of_speed_is_in_designs_a_second_since_the_study_began(
    job: Job, designs: Evaluation, uri: str
) -> None:
    now_s = [1_790_000_000.0]
    with StudyTracker.open(
        experiment="capplan", run_name="quick", tracking_uri=uri, clock=lambda: now_s[0]
    ) as tracker:
        record = Recording(job, Archive(job), None, tracker)
        now_s[0] += 4.0
        record.record(designs.take(slice(0, 100)), "test")
    assert MlflowClient(tracking_uri=uri).get_run(tracker.run_id).data.metrics["designs_per_s"] == 25.0


def test_a_study_that_has_evaluated_nothing_says_so(job: Job, uri: str) -> None:
    with StudyTracker.open(experiment="capplan", run_name="none", tracking_uri=uri) as tracker:
        Recording(job, Archive(job), None, tracker).finish(Ending(status="FINISHED", metrics={}), [])
    metrics = MlflowClient(tracking_uri=uri).get_run(tracker.run_id).data.metrics
    assert metrics == dict.fromkeys(("num_evaluated", "num_feasible", "num_front", "num_not_dominated"), 0.0)


def test_designs_that_break_a_limit_or_never_end_have_no_rank(job: Job, designs: Evaluation) -> None:
    bounded = job.model_copy(update={"limits": Limits(budget_usd=float(np.median(designs.scores.cost_usd)))})
    found = evaluate(bounded, designs.plans)
    best = int(np.flatnonzero(found.is_feasible)[np.argmin(found.scores.time_to_train_s[found.is_feasible])])
    time_s = found.scores.time_to_train_s.copy()
    time_s[best] = np.inf
    endless = replace(found, scores=replace(found.scores, time_to_train_s=time_s))
    assert ranks(bounded, found)[best] == "1"
    none = [row for row, rank in enumerate(ranks(bounded, endless)) if rank == "none"]
    assert none == sorted([*np.flatnonzero(~found.is_feasible).tolist(), best])
    assert len(none) > 1


def test_runs_say_which_design_is_recommended_and_which_are_tied(job: Job, designs: Evaluation) -> None:
    marks = Marks(front=frozenset({0, 1, 2}), recommended=1, tied=frozenset({2}))
    tags = design_runs(job, designs, np.arange(len(designs)), marks, ["2"] * len(designs)).tags
    for name, rows in (("front", [0, 1, 2]), ("recommended", [1]), ("tied", [2])):
        assert [row for row, text in enumerate(tags[name]) if text == "1"] == rows


def test_designs_that_equal_one_of_the_front_are_near_it() -> None:
    # With this much time no run misses the deadline, but for the least risk that is ever told.
    risks = {"objectives": (Objective.DEADLINE_RISK,), "limits": Limits(deadline_days=1e4)}
    unhurried = small_job(tensor_parallel=[1], pipeline_parallel=[1], context_parallel=[1]).model_copy(
        update=risks
    )
    equals = evaluate(unhurried, pruned_space(unhurried).designs())
    archive = Archive(unhurried)
    ids = archive.add(equals)
    _, front = archive.distinct_front()
    marks = Marks(front=frozenset(front.tolist()), recommended=None)
    tags = design_runs(unhurried, equals, ids, marks, ranks(unhurried, equals)).tags
    num_feasible = int(equals.is_feasible.sum())
    assert len(front) == tags["front"].count("1") == tags["rank"].count("1") == 1 < num_feasible
    assert tags["near_front"].count("1") == tags["rank"].count("near") == num_feasible - 1


def test_above_the_stated_number_the_front_has_runs_and_the_table_everything(
    job: Job, designs: Evaluation, tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_DESIGN_RUNS", 50)
    record, archive, _ = record_all(job, designs, tmp_path, uri)
    assert record.num_design_runs == len(archive.ids) < len(designs)
    assert len(read_designs(tmp_path / "designs.parquet")["design_id"]) == len(designs)


def test_up_to_the_stated_number_every_design_has_a_run_and_every_batch_is_a_point_of_the_curves(
    job: Job, designs: Evaluation, tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_DESIGN_RUNS", len(designs))
    record, _, tracker = record_all(job, designs, tmp_path, uri)
    assert record.num_design_runs == len(designs)
    curve = MlflowClient(tracking_uri=uri).get_metric_history(tracker.run_id, "num_evaluated")
    so_far = [*range(100, len(designs), 100), len(designs)]
    assert sorted({(point.step, point.value) for point in curve}) == list(enumerate(so_far))


def test_a_store_that_fails_in_the_middle_costs_no_design(
    job: Job, designs: Evaluation, tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TrackingError("MLflow store x: disk full")

    monkeypatch.setattr(StudyTracker, "log_generation", fail)
    monkeypatch.setattr(StudyTracker, "log_artifact", fail)
    record, archive, _ = record_all(job, designs, tmp_path, uri)
    assert "disk full" in record.failure
    assert (
        archive.num_evaluated == len(read_designs(tmp_path / "designs.parquet")["design_id"]) == len(designs)
    )


def test_the_interval_among_the_decisions_of_a_run_is_the_one_that_was_used() -> None:
    # The search leaves the interval open, so that each design gets the one that loses least; `none` never saves.
    job = small_job(
        tensor_parallel=[1], pipeline_parallel=[1], context_parallel=[1], checkpoint_schemes=["async", "none"]
    )
    designs = evaluate(job, pruned_space(job).designs())
    assert np.isnan(designs.plans.checkpoint_interval_s).all()
    nothing = Marks(front=frozenset(), recommended=None)
    runs = design_runs(job, designs, np.arange(len(designs)), nothing, ["1"] * len(designs))
    schemes, intervals = runs.params["checkpoint_scheme"], runs.params["checkpoint_interval_s"]
    used_s = designs.outcomes.run.checkpoint_interval_s
    assert set(schemes) == {"async", "none"}
    for scheme, interval, one_s in zip(schemes, intervals, used_s.tolist(), strict=True):
        assert interval == "never" if scheme == "none" else float(interval) == one_s > 0.0
