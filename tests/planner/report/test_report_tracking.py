"""Do a study, its folder and MLflow contain the figures of the report?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from planner.answer.recommend import recommend
from planner.cli.commands import main
from planner.recommended.recommendation import Design, Recommendation
from planner.report.data import Report
from planner.report.files import write_pictures
from planner.study.export import export_designs
from studies.files.design_log import read_designs
from studies.files.store import StudyStore
from tests.planner.report_pages import Page
from tests.planner.report_studies import NOON, drawn, job


def test_a_study_and_its_folder_give_the_same_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.study.durable import run_study_of

    store = StudyStore(tmp_path / "store")
    path = run_study_of(job(), seed=1, store=store, clock=lambda: NOON).path
    target = tmp_path / "record.json"
    options = ["--store", str(store.folder), "--format", "json", "--output", str(target)]
    assert main(["report", path.stem, *options]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    written = Report.model_validate_json(target.read_text())
    assert written.figures == drawn().report.figures
    assert written.designs == drawn().report.designs
    assert export_designs(path, tmp_path / "all.parquet").num_designs == written.designs.num_designs


NOT_IN_THE_ANSWER = {"hypervolume", "designs_per_s"}
"""What MLflow shows of a search beside its answer."""


@pytest.mark.long
def test_mlflow_holds_the_same_figures_as_page_and_json(tmp_path: Path, uri: str) -> None:
    answer = recommend(job(), seed=1, tracking_uri=uri, output=tmp_path / "out", clock=lambda: NOON)
    client = MlflowClient(tracking_uri=uri)
    run = client.get_run(answer.mlflow_run_id)
    metrics = run.data.metrics
    assert {name: metrics[name] for name in metrics.keys() - NOT_IN_THE_ANSWER} == study_metrics(answer)
    check_design_runs(client, run, answer, read_designs(tmp_path / "out" / "designs.parquet"))
    logged = Page(Path(client.download_artifacts(run.info.run_id, "report.html", str(tmp_path))).read_text())
    assert Report.model_validate_json(logged.record()).figures == drawn().report.figures
    pictures = Path(client.download_artifacts(run.info.run_id, "figures", str(tmp_path)))
    drawn_again = write_pictures(drawn(), tmp_path / "again", "png")
    assert {path.name for path in pictures.iterdir()} == {path.name for path in drawn_again}
    assert all((pictures / path.name).read_bytes() == path.read_bytes() for path in drawn_again)
    written = Page((tmp_path / "out" / "report.html").read_text())
    assert json.loads(written.record())["answer"] == json.loads(answer.model_dump_json())


@pytest.mark.usefixtures("pictures_drawn_once")
@pytest.mark.parametrize("with_report", [True, False])
def test_mlflow_holds_page_and_pictures_of_an_answer_that_has_no_folder(uri: str, with_report: bool) -> None:
    answer = recommend(job(), seed=1, tracking_uri=uri, with_report=with_report)
    client = MlflowClient(tracking_uri=uri)
    files = {file.path for file in client.list_artifacts(answer.mlflow_run_id)}
    always = {"designs", "front.csv", "job.json", "recommendation.json"}
    assert files == (always | {"figures", "report.html"} if with_report else always)


@pytest.mark.long
def test_mlflow_shows_the_front_of_the_answer_where_other_designs_nearly_equal_it(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.designs.archive.SAME_WITHIN_FRACTION", 0.05)
    answer = recommend(job(), seed=1, tracking_uri=uri, output=tmp_path / "out", clock=lambda: NOON)
    run = MlflowClient(tracking_uri=uri).get_run(answer.mlflow_run_id)
    num_not_dominated = run.data.metrics["num_not_dominated"]
    assert len(answer.front) < num_not_dominated == len(drawn().report.answer.front)
    assert run.data.metrics["num_front"] == len(answer.front)
    shown = Report.model_validate_json(Page((tmp_path / "out" / "report.html").read_text()).record())
    assert {design.design_id for design in shown.answer.front} == {
        design.design_id for design in answer.front
    }
    table = read_designs(tmp_path / "out" / "designs.parquet")
    check_design_runs(MlflowClient(tracking_uri=uri), run, answer, table)


def study_metrics(answer: Recommendation) -> dict[str, float]:
    """All metrics of a study's run that its answer knows."""
    best, front = answer.recommendation, answer.front
    assert best is not None
    fields = (
        "time_to_train_days",
        "cost_usd",
        "energy_kwh",
        "carbon_kgco2e",
        "mfu_fraction",
        "goodput_fraction",
    )
    return {
        "num_evaluated": answer.num_evaluated,
        "num_feasible": answer.num_feasible,
        "feasible_fraction": answer.num_feasible / answer.num_evaluated,
        "num_front": len(front),
        "num_not_dominated": len(front),  # none of this study nearly equals another one
        "best_time_to_train_s": pytest.approx(min(design.time_to_train_days for design in front) * 86_400.0),
        "best_cost_usd": min(design.cost_usd for design in front),
        "best_carbon_kgco2e": min(design.carbon_kgco2e for design in front),
        **{f"recommended_{name}": getattr(best, name) for name in fields},
        "recommended_num_gpus": best.plan.num_gpus,
    }


def check_design_runs(
    client: MlflowClient, study: Run, answer: Recommendation, table: dict[str, np.ndarray]
) -> None:
    """Every metric of every design is that of the design table, and on the front that of the answer."""
    of_study = f"tags.mlflow.parentRunId = '{study.info.run_id}'"
    runs = client.search_runs([study.info.experiment_id], of_study, max_results=1_000)
    assert len(runs) == len(table["design_id"]) == answer.num_evaluated
    excess = np.sum([column for name, column in table.items() if name.startswith("excess_")], axis=0)
    figures = {**table, "excess": excess}
    label = f"{answer.job} {study.data.tags['job_hash'][:6]}"
    assert study.info.run_name == label
    rows = {f"design {number} of {label}": row for row, number in enumerate(table["design_id"].tolist())}
    front = {f"design {design.design_id} of {label}": design for design in answer.front}
    for run in runs:
        name, metrics = run.info.run_name, run.data.metrics
        assert metrics == {metric: figures[metric][rows[name]] for metric in metrics}
        assert (run.data.tags["front"] == "1") == (name in front)
        if name in front:
            held = {metric: value_of(front[name], metric) for metric in metrics.keys() - {"excess"}}
            assert held == {metric: metrics[metric] for metric in held}


def value_of(design: Design, metric: str) -> float:
    """A figure of the answer, which knows one interval: the one in use."""
    value = getattr(design, metric.removeprefix("used_"))
    assert isinstance(value, float | int)
    return value
