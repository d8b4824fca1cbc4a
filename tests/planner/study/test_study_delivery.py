"""Does MLflow get every design of a study once, whatever becomes of the store or the study?"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from constraints.evaluation import judge
from planner.recommended.recommendation import MlflowRecord, Recommendation
from planner.recommended.study_facts import ANSWER, DELIVERED_TO
from planner.study.durable import StudyAnswer, resume_study, run_study_of
from planner.study.reports import front_of, state_of, status_of
from planner.tracking.content import WORKLOAD_FIELDS, asked_params, finish, result_metrics
from planner.tracking.delivery import deliver
from planner.tracking.sending import Sending, Target
from simulator.domain.checkpointing import Checkpointing
from simulator.domain.limits import Limits
from simulator.domain.offer import Estimate
from simulator.domain.reliability import RELIABILITY_PRESETS
from simulator.domain.search_options import Search
from simulator.errors import TrackingError
from simulator.table import Booleans
from studies.files import design_parts
from studies.files.design_log import read_designs
from studies.files.identity import Keep, job_hash, study_label
from studies.files.journal import Journal
from studies.files.store import StudyStore
from studies.progress import RECORDING_IN_MLFLOW, Progress
from studies.tracking.design_table import run_name
from studies.tracking.recording import Ending, Recording
from studies.tracking.store_address import asked_store
from studies.tracking.tracker import StudyTracker
from tests.planner.calibrations import calibration_with
from tests.planner.hand_made import infeasible, recommended
from tests.planner.studies_run import EVALUATIONS, NOW, exhaustive_job, job_of, made, run, stop_after
from tests.support import job_with

pytestmark = pytest.mark.usefixtures("pictures_drawn_once")


def test_an_answer_ends_its_run_with_what_is_recommended_and_what_is_tied() -> None:
    endings: list[Ending] = []

    class Noted(Recording):
        def __init__(self) -> None:
            """Records nothing."""

        def finish(self, ending: Ending, *_: object, **__: object) -> None:
            endings.append(ending)

    for answer in (recommended(), infeasible()):
        finish(Noted(), answer, [], [])
    found, none = endings
    assert (found.status, found.recommended_id, found.tied_ids) == ("FINISHED", 7, (8,))
    assert (none.status, none.recommended_id, none.tied_ids, none.tags) == ("FINISHED", None, (), {})


def test_sync_delivers_what_it_can_and_names_every_study_that_it_cannot(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli.commands import main

    stopped = made(tmp_path, num_batches=1, seed=2).path.stem
    ended = run(tmp_path, job=job_of().model_copy(update={"limits": Limits(budget_usd=1.0)})).path.stem
    names = [stopped, "nobody", ended]
    command = ["study", "sync", *names, "--store", str(tmp_path), "--tracking-uri", uri]
    assert main([*command, "--verbose"]) == 1
    told = capsys.readouterr()
    assert f"s] delivering {ended}\n" in told.err
    assert told.out == f"{ended}: delivered\n"
    assert f"{stopped}: study {stopped} has not ended" in told.err
    assert "nobody: study 'nobody': there is no such study" in told.err


def test_a_study_reports_that_its_end_is_sent_to_mlflow(tmp_path: Path, uri: str) -> None:
    told: list[Progress] = []
    path = made(tmp_path, num_batches=1).path
    resume_study(path, target=Target(tracking_uri=uri), progress=told.append)
    recording = Progress(stage=RECORDING_IN_MLFLOW, num_done=0, num_total=None)
    assert [moment for moment in told if moment.stage == RECORDING_IN_MLFLOW] == [recording]
    assert told[-1] == recording
    told.clear()
    resume_study(path, progress=told.append)
    assert told == []  # it has ended, and nothing is sent without a target


def test_the_state_of_a_stopped_study_says_whether_mlflow_was_sent_its_designs(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli.commands import main

    path = made(tmp_path, num_batches=1).path
    asked = ["study", "status", path.stem, "--store", str(tmp_path)]
    assert main(asked) == 0
    assert "in MLflow    not tracked; `capplan study resume" in capsys.readouterr().out
    resume_study(path, target=Target(tracking_uri=uri), should_stop=stop_after(1))
    assert main(asked) == 0
    assert "in MLflow    not completely; `capplan study resume" in capsys.readouterr().out
    assert (status_of(path).state, status_of(path).is_tracked) == ("stopped", True)


EXAMPLE = str(Path(__file__).parents[3] / "examples" / "bloom-176b.yaml")
COMMANDS = [
    ["recommend", EXAMPLE],
    ["study", "run", EXAMPLE],
    ["study", "resume", "any"],
    ["study", "sync"],
    ["ui"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_address_of_no_kind_of_store_is_refused_before_anything_is_done(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli.commands import main

    monkeypatch.chdir(tmp_path)
    assert main([*command, "--tracking-uri", "postgres://me:secret@db/runs"]) == 2
    told = capsys.readouterr().err
    assert "--tracking-uri = postgres://me:***@db/runs: MLflow has no store postgres; must be a path" in told
    assert "sqlite, postgresql, mysql, mssql, http, https, databricks" in told
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "localhost:5000")  # http:// was forgotten
    assert main(command) == 2
    assert "MLFLOW_TRACKING_URI = localhost:5000: MLflow has no store localhost" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "address",
    ["sqlite:///x.db", "postgresql+psycopg://u:p@h/d", "databricks", "databricks://me", "file:/x", "runs"],
)
def test_addresses_of_the_kinds_that_mlflow_has_are_taken(address: str) -> None:
    assert asked_store(address) == address


def test_the_help_of_a_run_says_when_mlflow_gets_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    from planner.cli.commands import main

    assert main(["study", "run", "--help"]) == 0
    assert "The study is delivered to MLflow while it runs" in " ".join(capsys.readouterr().out.split())


def test_sync_of_everything_names_damaged_studies_and_those_that_have_not_ended(
    tmp_path: Path, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli.commands import main

    stopped = made(tmp_path, num_batches=1, seed=2).path.stem
    (tmp_path / "text.study").write_text("hello")
    asked = ["study", "sync", "--store", str(tmp_path), "--tracking-uri", uri]
    assert main(asked) == 1
    told = capsys.readouterr()
    assert "text: study" in told.err
    assert "damaged" in told.err
    assert (
        f"{stopped}: skipped, because it was stopped; `capplan study resume {stopped} --store {tmp_path}`"
        in told.err
    )
    (tmp_path / "text.study").unlink()
    assert main([*asked, "--json"]) == 0  # what has not ended is no failure
    (synced,) = json.loads(capsys.readouterr().out)["studies"]
    assert (synced["study"], synced["state"]) == (stopped, "skipped")
    assert main(["study", "status", stopped, "--store", str(tmp_path)]) == 0
    told_status = " ".join(capsys.readouterr().out.split())
    assert f"`capplan study resume {stopped} --store {tmp_path}` continues and delivers it" in told_status
    assert "study sync" not in told_status


def test_studies_with_other_prices_or_failures_have_other_parameters_and_other_names() -> None:
    one = job_of()
    dear = one.offers[0].model_copy(update={"rent_usd_per_gpu_hour": Estimate(low=3.0, mid=4.0, high=6.0)})
    other = one.model_copy(
        update={
            "offers": (dear, *one.offers[1:]),
            "reliability": RELIABILITY_PRESETS["harsh"],
            "calibration": calibration_with([]),
            "checkpointing": Checkpointing(interval_s=600.0),
            "workload": one.workload.model_copy(update={"copies_shared_heads": True}),
        }
    )
    told = [asked_params(job, 1) for job in (one, other)]
    differing = {name: told[1][name] for name in told[1] if told[1][name] != told[0].get(name)}
    assert differing == {
        "offer_0_rent_usd_per_gpu_hour": "4 (3 to 6)",
        "reliability": "harsh",
        "reliability_failures_per_1000_node_days": "23.7",
        "calibration": "made up (2026-05-01, 000000000000)",
        "checkpointing_interval_s": "600",
        "workload_copies_shared_heads": "yes",
    }
    assert study_label(one).split()[0] == study_label(other).split()[0]
    assert study_label(one) != study_label(other)


@pytest.mark.parametrize(
    ("section", "field", "value", "told"),
    [
        ("storage", "capacity_power_w", 5e3, "5000"),
        ("ownership", "lifetime_years", 5.5, "5.5"),
        ("operation", "power_ramp_s", 7.0, "7"),
        ("carbon_scope", "network", True, "yes"),
        ("checkpointing", "delta_fraction", 0.5, "0.5"),
        ("workload", "optimizer_bytes", 8.0, "8"),
    ],
)
def test_mlflow_shows_what_a_job_sets_in_any_section(
    section: str, field: str, value: object, told: str
) -> None:
    params = asked_params(job_with(**{section: {field: value}}), 1)
    assert not params.keys() & {
        f"workload_{name}" for name in WORKLOAD_FIELDS
    }  # those have names of their own
    usual = asked_params(job_with(), 1)
    assert {name: text for name, text in params.items() if usual.get(name) != text} == {
        f"{section}_{field}": told
    }


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


@pytest.mark.long
def test_status_and_mlflow_say_the_same_of_the_front(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.designs.archive.SAME_WITHIN_FRACTION", 0.05)
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
    study = made(tmp_path)
    assert deliver(study.path, tracking_uri=uri).is_new
    assert not deliver(study.path, tracking_uri=uri).is_new
    parents, tags = runs_of(uri)
    assert len(parents) == 1
    assert len(tags) == study.answer.num_evaluated
    recommended = [name for name, tag in tags.items() if tag["recommended"] == "1"]
    assert study.answer.recommendation is not None
    assert recommended == [named(study.answer.recommendation.design_id)]
    assert state_of(study.path).delivered_to == (f"{uri} capplan",)


@pytest.mark.long
def test_a_study_whose_store_was_removed_is_delivered_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.cli.commands import main

    uri = f"sqlite:///{tmp_path}/removed.db"
    study = _delivered_to_a_removed_store(tmp_path, uri)
    assert main(["study", "sync", "--store", str(tmp_path), "--tracking-uri", uri]) == 0
    assert capsys.readouterr().out == f"{study.path.stem}: delivered\n"
    parents, tags = runs_of(uri)
    assert [parent.info.status for parent in parents] == ["FINISHED"]
    assert len(tags) == study.answer.num_evaluated
    assert state_of(study.path).delivered_to == (f"{uri} capplan",)


def _delivered_to_a_removed_store(folder: Path, uri: str) -> StudyAnswer:
    """A study that was delivered to a store that is gone; MLflow would keep one open that this process had removed."""
    study = made(folder)
    with Journal.open(study.path) as journal:
        journal.note({DELIVERED_TO: Target(tracking_uri=uri).place})
    return study


@pytest.mark.long
def test_resuming_a_study_whose_run_was_deleted_restores_it_with_every_design_once(
    tmp_path: Path, uri: str
) -> None:
    study, target = made(tmp_path), Target(tracking_uri=uri)
    first = deliver(study.path, tracking_uri=uri).record
    assert first is not None
    client = MlflowClient(tracking_uri=uri)
    client.delete_run(first.run_id)
    (lost, *_) = client.search_runs(["1"], "tags.recommended = '1'")
    client.delete_run(lost.info.run_id)
    again = resume_study(study.path, target=target).answer.mlflow
    assert again is not None
    (parent,), tags = runs_of(uri)
    assert (parent.info.run_id, parent.info.status) == (again.run_id, "FINISHED")
    assert len(tags) == study.answer.num_evaluated
    assert state_of(study.path).delivered_to == (target.place,)
    assert resume_study(study.path, target=target).answer.mlflow is None


def test_a_study_that_the_store_has_is_not_sent_and_nothing_changes(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = made(tmp_path)
    deliver(study.path, tracking_uri=uri)
    files = (tmp_path / "mlflow.db", study.path)
    before = [file.read_bytes() for file in files]
    monkeypatch.setattr("planner.tracking.delivery.sending", None)
    assert not deliver(study.path, tracking_uri=uri).is_new
    assert [file.read_bytes() for file in files] == before


def test_a_store_that_is_away_is_one_error_and_the_journal_still_knows_of_the_delivery(
    tmp_path: Path, uri: str
) -> None:
    study = made(tmp_path)
    deliver(study.path, tracking_uri=uri)
    (tmp_path / "mlflow.db").write_bytes(b"nothing that SQLite knows" * 100)
    with pytest.raises(TrackingError, match=r"MLflow store sqlite:.*file is not a database"):
        deliver(study.path, tracking_uri=uri)
    assert (
        "file is not a database" in resume_study(study.path, target=Target(tracking_uri=uri)).tracking_failure
    )
    assert state_of(study.path).delivered_to == (f"{uri} capplan",)


def test_a_study_that_a_store_has_lost_counts_as_delivered_only_once_it_is_there_again(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = _delivered_to_a_removed_store(tmp_path, uri)
    monkeypatch.setattr(Sending, "finish", _fail)
    with pytest.raises(TrackingError, match="gone"):
        deliver(study.path, tracking_uri=uri)
    assert state_of(study.path).delivered_to == ()


def _fail(study: Sending, answer: Recommendation) -> MlflowRecord:
    raise TrackingError("MLflow store x: gone")


@pytest.mark.long
def test_studies_of_one_job_that_keep_all_and_fronts_are_two_in_their_folder_and_in_mlflow(
    tmp_path: Path, uri: str
) -> None:
    every, fronts = (made(tmp_path, job=exhaustive_job(), keep=keep) for keep in KEEPS)
    assert every.path.parent == fronts.path.parent
    assert every.answer.model_dump_json() == fronts.answer.model_dump_json()
    client = MlflowClient(tracking_uri=uri)
    num_kept: dict[str, int] = {}
    for study in (fronts, every):
        record = deliver(study.path, tracking_uri=uri).record
        assert record is not None
        tags = client.get_run(record.run_id).data.tags
        folder = tmp_path / record.run_id
        folder.mkdir()
        parts = read_designs(client.download_artifacts(record.run_id, "designs", str(folder)))
        num_kept[tags["keep"]] = len(parts["design_id"])
        assert tags["study"] == study.path.stem
    assert list(num_kept) == ["front", "all"]
    assert 0 < num_kept["front"] < num_kept["all"] == every.answer.num_evaluated
    assert len(client.search_runs(["1"], "tags.study_hash != ''")) == 2


KEEPS: tuple[Keep, ...] = ("all", "front")


@pytest.mark.long
def test_a_delivery_that_breaks_off_is_completed_by_the_next_one(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = made(tmp_path)
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


@pytest.mark.long
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
    assert study.answer.best is not None
    best, data = study.answer.best, run.data
    assert run.info.run_name == study_label(job_of())
    assert data.tags["job_hash"] == job_hash(job_of())
    assert data.tags["recommended_accelerator"] == best.accelerator
    assert data.tags["recommended_layout"].endswith(f"DP{best.plan.data_parallel}")
    assert data.metrics["recommended_num_gpus"] == best.plan.num_gpus
    assert run.inputs is not None
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
    study = made(tmp_path)
    deliver(study.path, tracking_uri=uri)
    client = MlflowClient(tracking_uri=uri)

    def found(condition: str) -> set[str]:
        return {str(run.info.run_name) for run in client.search_runs(["1"], condition, max_results=5000)}

    values, names = objectives_of_feasible_designs(study.path)
    one, other = values[:, None, :], values[None, :, :]
    beats: Booleans = np.all(one <= other, axis=2) & np.any(one < other, axis=2)
    not_beaten = set(names[~beats.any(axis=0)])
    assert found("tags.front = '1'") == found("tags.rank = '1'") == on_front(study.answer)
    assert (
        found("tags.near_front = '1'") == found("tags.rank = 'near'") == not_beaten - on_front(study.answer)
    )
    is_left = beats.any(axis=0)
    for rank in (2, 3):
        is_next = is_left & ~beats[is_left].any(axis=0)
        assert found(f"tags.rank = '{rank}'") == set(names[is_next]) != set()
        is_left &= ~is_next
    assert study.answer.uncertainty is not None
    tied = {named(number) for number in study.answer.uncertainty.tied_designs}
    assert found("tags.tied = '1'") == tied
    infeasible = study.answer.num_evaluated - study.answer.num_feasible
    assert len(found("tags.rank = 'none'")) == len(found("tags.feasible = '0'")) == infeasible


def named(number: int) -> str:
    """Name of a design's run, by which its study is told from others of the same job name."""
    return run_name(number, study_label(job_of()))


def on_front(answer: Recommendation) -> set[str]:
    """Names of the runs of the front's designs."""
    return {named(design.design_id) for design in answer.front}


def objectives_of_feasible_designs(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """What every feasible design of a study is worth `(n, k)`, and the names of their runs `(n,)`."""
    job, first = job_of(), 0
    values, names = [], []
    with Journal.read(path) as journal:
        for batch in journal.batches():
            evaluation = judge(job, batch.plans, batch.outcomes)
            rows = np.flatnonzero(evaluation.is_feasible)
            values.append(evaluation.objectives(job)[rows])
            names += [named(first + row) for row in rows.tolist()]
            first += len(evaluation)
    return np.concatenate(values), np.array(names)


@pytest.mark.long
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
    from planner.cli.commands import main

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
    deliver = shlex.split(told.err.partition("Deliver later: capplan ")[2])
    assert deliver[3:] == [*store, *tracking]
    assert "no answer\nNothing is lost: the study is in " in told.err
    assert main(deliver) == 0
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
    assert main(["study", "export", study["name"], str(table), *store]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert main(["study", "merge", study["name"], "--into", "both", *store]) == 2
    assert "two studies or more" in capsys.readouterr().err
    assert main(["study", "merge", study["name"], "--into", "../both", *store]) == 2
    assert "--into = '../both': must have at most 100 letters" in capsys.readouterr().err
    assert main(["study", "merge", study["name"], "--into", study["name"], *store]) == 2
    assert f"--into = '{study['name']}': is the name of a study in " in capsys.readouterr().err
    assert main(["study", "status", "nobody", *store]) == 1
    assert "there is no such study" in capsys.readouterr().err
    assert main(["study", "status", "job", *store]) == 1
    assert "the beginning of a name needs 4 characters" in capsys.readouterr().err
