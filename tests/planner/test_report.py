"""Does a report say what the answer says? The record, its figures, the page, pictures, MLflow and the command."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from constraints.evaluation import evaluate
from planner import human
from planner.answer import recommend
from planner.cli import main
from planner.job_file import load_job
from planner.reasons import cautions
from planner.recommendation import Design, Recommendation
from planner.report_breakdowns import OBJECTIVE_FIELDS
from planner.report_build import DrawnReport
from planner.report_data import DesignCounts, LinesFigure, RangesFigure, Report
from planner.report_designs import EXCESS_NAMES, METRICS, design_counts, packed
from planner.report_files import write_page, write_pictures
from planner.report_flips import flips
from planner.report_html import tag
from planner.report_inputs import inputs
from planner.report_page import page
from planner.report_sources import report_of_folder
from planner.report_units import log_ticks, size_ticks, text, tick_text, ticks
from planner.study_reports import export_designs
from planner.sweep import Sweep, run_sweep
from planner.uncertainty import accuracy_of
from simulator.accuracy import Accuracy, step_time_error
from simulator.errors import InputError, StudyError
from simulator.job import Estimate, GpuRange, Job, Objective
from simulator.limits import Limits
from simulator.plan import PlanTable
from studies.design_log import read_designs
from studies.progress import Progress
from studies.store import StudyStore
from tests.planner.report_studies import NOON, answered, drawn, job, large

ADDRESS = re.compile(r"""(?:https?:|src\s*=\s*["'](?!data:)|@import|[^a-z]url\()""", re.IGNORECASE)
"""How a page asks for something outside of itself."""


class Page(HTMLParser):
    """What a browser would find in a page: numbers with their places, scripts by id, tags, and texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.numbers: list[tuple[str, str, str]] = []
        self.scripts: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: dict[str, str | None] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = dict(attrs) | {"tag": tag}
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        name = self._open.get("id")
        if self._open.get("tag") == "data":
            place, value = self._open["data-path"], self._open["value"]
            assert place is not None
            assert value is not None
            self.numbers.append((place, value, data))
            self._open = {}
        elif self._open.get("tag") == "script" and name:
            self.scripts[name] = self.scripts.get(name, "") + data

    def record(self) -> str:
        """The record in the page."""
        return gzip.decompress(base64.b64decode(self.scripts["report-data"])).decode()


def best_of(report: Report) -> Design:
    assert report.answer.recommendation is not None
    return report.answer.recommendation


def figure(name: str) -> object:
    return {each.name: each for each in drawn().report.figures}[name]


def value_at(report: dict[str, object], place: str) -> object:
    """The number at a path such as `figures.cost.bars.0.parts.1.value`; figures are found by name."""
    figures = report["figures"]
    assert isinstance(figures, list)
    found: object = report | {"figures": {each["name"]: each for each in figures}}
    for step in place.split("."):
        found = found[int(step)] if isinstance(found, list) else found[step]  # type: ignore[index]
    return found


def test_every_number_of_the_page_is_the_number_of_the_record() -> None:
    found = Page(page(drawn()))
    record = json.loads(drawn().report.model_dump_json())
    assert len(found.numbers) > 300
    for place, value, _ in found.numbers:
        expected = value_at(record, place)
        assert (float(value) if value else None) == expected, place


def test_the_record_in_the_page_holds_the_answer_as_the_json_has_it() -> None:
    embedded = json.loads(Page(page(drawn())).record())
    assert embedded["answer"] == json.loads((answered() / "recommendation.json").read_text())
    assert embedded["job"] == json.loads((answered() / "job.json").read_text())


def test_the_page_that_recommend_writes_is_that_of_the_command_report(tmp_path: Path) -> None:
    assert main(["report", str(answered()), "--output", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_bytes() == (answered() / "report.html").read_bytes()


def test_rent_flips_the_choice_where_the_product_of_objectives_or_the_budget_says() -> None:
    """The compromise has the least product of objectives, and rent is all of the cost: both points are closed forms."""
    report = drawn().report
    best, job_ = best_of(report), report.job
    fields = [OBJECTIVE_FIELDS[objective][0] for objective in job_.objectives]

    def product(design: Design) -> float:
        return float(math.prod(getattr(design, field) for field in fields))

    others = [design for design in report.answer.front if design.plan.offer != best.plan.offer]
    assert others
    assert job_.limits.budget_usd is not None
    expected = min(
        job_.limits.budget_usd / best.cost_usd, min(product(design) for design in others) / product(best)
    )
    ranges = figure("flips")
    assert isinstance(ranges, RangesFigure)
    rent = next(each for each in ranges.ranges if each.label == f"rent of {best.accelerator}")
    assert rent.at_high is not None
    (mark,) = rent.marks
    # The stretch from the middle to the high end is halved ten times.
    assert mark.value == pytest.approx(expected - 1.0, abs=rent.at_high / 2**10)
    assert mark.value >= expected - 1.0
    assert ("since the recommended one breaks budget" in rent.note) == (
        expected == job_.limits.budget_usd / best.cost_usd
    )


def test_nothing_flips_where_one_design_is_best_in_everything() -> None:
    report = drawn().report
    best = best_of(report)
    alone = report.answer.model_copy(update={"front": (best,)})
    own = report.job.offers[best.plan.offer]
    size = GpuRange(min=best.plan.num_gpus, max=best.plan.num_gpus)
    assert best.plan.offer == 0
    offers = (own.model_copy(update={"num_gpus": size}),)
    unlimited = report.job.model_copy(update={"limits": Limits(), "offers": offers})
    found = flips_of(unlimited, alone)
    assert all(not each.marks for each in found.ranges)
    assert found.title == "No input that changes alone changes the recommendation"
    # The cluster is rented, so that what an owner pays moves nothing.
    assert not {"building", "maintenance", "cost of capital"} & {each.label for each in found.ranges}


def test_one_input_at_a_time_and_all_of_them_together_are_told_apart() -> None:
    report = drawn().report
    unsure = report.answer.input_uncertainty
    assert unsure is not None
    ranges = figure("flips")
    assert isinstance(ranges, RangesFigure)
    error = report.errors[best_of(report).design_id]
    assert f"by {human.percent(error)}, their mean error" in ranges.note
    told = f"{human.percent(unsure.recommended_fraction)} of {unsure.num_draws:,} draws recommend the same design"
    assert told in ranges.note
    without = report.answer.model_copy(update={"input_uncertainty": None})
    assert "draws" not in flips_of(report.job, without).note


def flips_of(job_: Job, answer: Recommendation) -> RangesFigure:
    assert answer.recommendation is not None
    return flips(job_, answer, answer.recommendation, accuracy_of_best(job_, answer.recommendation))


def accuracy_of_best(job_: Job, best: Design) -> Accuracy:
    return accuracy_of(job_, evaluate(job_, PlanTable.from_plans([best.plan])))


def rented(job_: Job, *, h100: float, a100: float) -> Job:
    """The job with one quote for each accelerator, for cost alone and without limits."""
    prices = [Estimate(low=price, mid=price, high=price) for price in (h100, a100)]
    offers = tuple(
        offer.model_copy(update={"rent_usd_per_gpu_hour": price})
        for offer, price in zip(job_.offers, prices, strict=True)
    )
    return job_.model_copy(update={"offers": offers, "objectives": (Objective.COST,), "limits": Limits()})


def test_a_quote_is_searched_beyond_itself_for_offers_that_are_not_on_the_front() -> None:
    """Rent is all of the cost: the other offer wins when the ratio of rents is the ratio of the hours of both."""
    cheap = recommend(rented(job(), h100=1.0, a100=0.9), seed=1, tracking=False, with_report=False)
    best = best_of_answer(cheap)
    assert {design.accelerator for design in cheap.front} == {best.accelerator} == {"h100-sxm5-80gb"}
    found = flips_of(rented(job(), h100=1.0, a100=0.9), cheap)
    own, other = (
        next(each for each in found.ranges if each.label == f"rent of {name}")
        for name in ("h100-sxm5-80gb", "a100-sxm4-80gb")
    )
    (mark,), (beyond,) = own.marks, other.marks
    assert mark.value > 0 > beyond.value
    # A quote has no range; it is shown as far as it was tried, from a quarter to four times.
    assert (own.low_text, own.high_text) == ("0.25 USD/GPU-hour", "4 USD/GPU-hour")
    assert [(each.at_low, each.at_high) for each in (own, other)] == [(-0.75, 3.0)] * 2
    # What leaves the ratio of both rents at the flip the same: 1 + mark = 1 / (1 + beyond), to the halvings.
    assert (1.0 + mark.value) * (1.0 + beyond.value) == pytest.approx(1.0, abs=0.02)
    assert "a100-sxm4-80gb" in own.note
    assert "beside the front" in own.note


def best_of_answer(answer: Recommendation) -> Design:
    assert answer.recommendation is not None
    return answer.recommendation


def test_scaling_is_what_a_sweep_or_the_study_finds_and_falls_with_every_size() -> None:
    lines = figure("scaling")
    assert isinstance(lines, LinesFigure)
    report = drawn().report
    best = best_of(report)
    own = lines.lines[0]
    assert own.label == best.accelerator
    assert all(later < earlier for earlier, later in pairwise(own.y))
    search = report.job.search.model_copy(update={"zero_stages": (best.plan.zero_stage,)})
    one = report.job.model_copy(update={"offers": (report.job.offers[best.plan.offer],), "search": search})
    size = int(own.x[1])
    sweep = Sweep.model_validate(
        {"job": one.model_dump(mode="json"), "num_gpus": [size], "checkpoint_schemes": ["async"]}
    )
    (point,) = run_sweep(sweep)
    assert point.result is not None
    table = read_designs(answered() / "designs.parquet")
    fits = (
        (table["excess_memory"] <= 0) & (table["excess_host_memory"] <= 0) & (table["excess_progress"] <= 0)
    )
    rows = fits & (table["accelerator"] == best.accelerator) & (table["num_gpus"] == size)
    fastest = min(table["time_to_train_days"][rows].min(), point.result.scores.time_to_train_s[0] / 86_400.0)
    assert own.y[1] == pytest.approx(fastest, rel=1e-9)


def test_the_cheapest_size_is_that_of_the_cheapest_design_of_the_front() -> None:
    """Cost is an objective, so that the cheapest design of all is on the front; and the table has the least of each size."""
    lines, report = figure("scaling-cost"), drawn().report
    assert isinstance(lines, LinesFigure)
    cheapest = min(report.answer.front, key=lambda design: design.cost_usd)
    words = f"{cheapest.plan.num_gpus} {cheapest.accelerator} cost least, {text(cheapest.cost_usd, 'usd')}"
    assert lines.title == words
    table = read_designs(answered() / "designs.parquet")
    for line in lines.lines:
        for size, cost_usd in zip(line.x, line.y, strict=True):
            rows = table["is_feasible"] & (table["num_gpus"] == size) & (table["accelerator"] == line.label)
            assert cost_usd == pytest.approx(table["cost_usd"][rows].min(), rel=0.001)
    for design in report.answer.front:
        for line in lines.lines:
            if line.label == design.accelerator and design.plan.num_gpus in line.x:
                assert line.y[line.x.index(design.plan.num_gpus)] <= design.cost_usd


def test_no_design_of_the_front_is_faster_than_the_curve_of_times() -> None:
    lines = figure("scaling")
    assert isinstance(lines, LinesFigure)
    curves = {line.label: dict(zip(line.x, line.y, strict=True)) for line in lines.lines}
    shown = [
        (design.time_to_train_days, curves[design.accelerator].get(design.plan.num_gpus))
        for design in drawn().report.answer.front
        if design.accelerator in curves
    ]
    assert sum(days is not None for _, days in shown) > 2
    assert all(days is None or days <= own for own, days in shown)


def test_the_mark_of_scaling_is_the_first_size_whose_double_is_less_than_half_as_useful() -> None:
    lines = figure("scaling")
    assert isinstance(lines, LinesFigure)
    for line in lines.lines:
        pairs = list(zip(pairwise(line.x), pairwise(line.y), strict=True))
        pays = [
            days / fewer >= 2.0 ** (0.5 * math.log2(more / size)) for (size, more), (days, fewer) in pairs
        ]
        if line.mark is not None:
            assert all(pays[: line.x.index(line.mark.value)])
            assert not all(pays) or line.mark.value == line.x[-1]
        else:
            assert all(pays)


def unpacked(cloud_page: DrawnReport) -> dict[str, np.ndarray]:
    """The columns in a page, read as its script does: little-endian, the lowest bytes of all numbers first."""
    layout_text, data = packed(cloud_page.cloud)
    layout, raw = json.loads(layout_text), gzip.decompress(base64.b64decode(data))
    columns, start, rows = {}, 0, layout["rows"]
    for entry in layout["columns"]:
        width = int(entry["type"][1])
        planes = np.frombuffer(raw[start : start + rows * width], dtype=np.uint8).reshape(width, rows)
        columns[entry["name"]] = np.ascontiguousarray(planes.T).view(f"<{entry['type']}")[:, 0]
        start += rows * width
    assert start == len(raw)
    return columns


def test_the_designs_in_the_page_are_those_of_the_design_table_to_five_digits() -> None:
    table, columns = read_designs(answered() / "designs.parquet"), unpacked(drawn())
    ends = np.isfinite(table["time_to_train_days"])
    np.testing.assert_array_equal(columns["design_id"], table["design_id"][ends])
    for name in METRICS:
        np.testing.assert_allclose(columns[name], table[name][ends], rtol=1e-5)
    np.testing.assert_array_equal(columns["broken"] == 0, table["is_feasible"][ends])
    budget = columns["broken"] & (1 << EXCESS_NAMES.index("budget_usd")) > 0
    np.testing.assert_array_equal(budget, table["cost_usd"][ends] > 2.4e4)


def test_too_many_designs_are_thinned_so_that_both_kinds_are_still_drawn() -> None:
    few = drawn().cloud
    num_broken = int(np.count_nonzero(few.broken))
    # Nine feasible designs to one that breaks a limit, as in large studies, and the other way round.
    for share, most, expected in ((0.9, 400, (300, 100)), (0.1, 400, (100, 300)), (0.5, 400, (200, 200))):
        assert 0 < num_broken < len(few)
        rows = np.arange(1_000) % 10 < round(10 * share)
        cloud = few.take(np.where(rows, np.flatnonzero(few.broken == 0)[0], np.flatnonzero(few.broken)[0]))
        thin = cloud.thinned(most)
        assert (np.count_nonzero(thin.broken == 0), np.count_nonzero(thin.broken)) == expected
        assert design_counts(cloud, thin).model_dump() == {
            "num_designs": few.num_simulated,
            "num_feasible": round(1_000 * share),
            "num_broken": 1_000 - round(1_000 * share),
            "num_feasible_drawn": expected[0],
            "num_broken_drawn": expected[1],
        }


def test_the_note_of_the_picture_counts_the_drawn_designs_of_each_kind() -> None:
    report = drawn().report
    counts = DesignCounts(
        num_designs=210_000,
        num_feasible=150_000,
        num_broken=59_000,
        num_feasible_drawn=50_000,
        num_broken_drawn=40_000,
    )
    texts = Page(page(replace(drawn(), report=report.model_copy(update={"designs": counts})))).texts
    told = (
        "Drawn: 50,000 of 150,000 feasible designs and 40,000 of 59,000 designs that break a limit; "
        "1,000 whose run never ends are not."
    )
    assert any(told in each for each in texts)
    assert "breaks a limit" in texts
    none = counts.model_copy(update={"num_broken": 0, "num_broken_drawn": 0})
    plain = Page(page(replace(drawn(), report=report.model_copy(update={"designs": none})))).texts
    assert "breaks a limit" not in plain


def test_a_study_and_its_folder_give_the_same_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from planner.durable import run_study_of

    store = StudyStore(tmp_path / "store")
    path = run_study_of(job(), seed=1, store=store, clock=lambda: NOON).path
    target = tmp_path / "record.json"
    options = ["--store", str(store.folder), "--format", "json", "--output", str(target)]
    assert main(["report", path.stem, *options]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    written = Report.model_validate_json(target.read_text())
    assert written.figures == drawn().report.figures
    assert written.designs == drawn().report.designs
    assert export_designs(path, tmp_path / "all.parquet") == written.designs.num_designs


NOT_IN_THE_ANSWER = {"hypervolume", "designs_per_s"}
"""What MLflow shows of a search beside its answer."""


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


def test_mlflow_shows_the_front_of_the_answer_where_other_designs_nearly_equal_it(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.archive.SAME_WITHIN_FRACTION", 0.05)
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
    }


def check_design_runs(
    client: MlflowClient, study: Run, answer: Recommendation, table: dict[str, np.ndarray]
) -> None:
    """Every metric of every design is that of the design table, and on the front that of the answer."""
    of_study = f"tags.mlflow.parentRunId = '{study.info.run_id}'"
    runs = client.search_runs([study.info.experiment_id], of_study, max_results=1_000)
    assert len(runs) == len(table["design_id"]) == answer.num_evaluated
    table["excess"] = sum(column for name, column in table.items() if name.startswith("excess_"))
    rows = {f"design {number}": row for row, number in enumerate(table["design_id"].tolist())}
    front = {f"design {design.design_id}": design for design in answer.front}
    for run in runs:
        name, metrics = run.info.run_name, run.data.metrics
        assert metrics == {metric: table[metric][rows[name]] for metric in metrics}
        assert (run.data.tags["front"] == "1") == (name in front)
        if name in front:
            held = {metric: getattr(front[name], metric) for metric in metrics.keys() - {"excess"}}
            assert held == {metric: metrics[metric] for metric in held}


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_every_figure_becomes_a_picture(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(answered()), "--format", kind, "--output", str(tmp_path / "figures")]) == 0
    files = {path.stem: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert set(files) == {each.name for each in drawn().report.figures}
    assert len(capsys.readouterr().out.splitlines()) == len(files)
    if kind == "png":
        assert all(content.startswith(b"\x89PNG") for content in files.values())
    else:
        assert b"19 of 20 runs end within" in files["finish"]


def test_a_picture_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    for kind in ("png", "svg"):
        first, second = (
            write_pictures(drawn(), tmp_path / folder, kind, ["flips"])[0].read_bytes()
            for folder in ("one", "two")
        )
        assert first == second


def test_the_page_asks_for_nothing_outside_of_itself() -> None:
    html = page(drawn())
    found = Page(html)
    for name in ("report-data", "design-layout", "design-columns"):
        html = html.replace(found.scripts[name], "")
    assert not ADDRESS.findall(html)
    policy = next(
        attributes
        for _, attributes in found.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert str(policy["content"]).startswith("default-src 'none'")


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", '" onload="alert(1)', "</script><b>&amp;", "$title ${x}"]
)
def test_text_of_a_user_is_shown_and_never_run(name: str) -> None:
    report = drawn().report
    answer = report.answer.model_copy(update={"job": name, "why": (name,)})
    shown = replace(
        drawn(),
        report=report.model_copy(
            update={"answer": answer, "job": report.job.model_copy(update={"name": name})}
        ),
    )
    plain, found = Page(page(drawn())), Page(page(shown))
    assert sum(entry[0] == "script" for entry in found.tags) == sum(
        entry[0] == "script" for entry in plain.tags
    )
    assert not [attributes for _, attributes in found.tags if "onload" in attributes]
    assert name in found.texts
    assert Report.model_validate_json(found.record()).answer.why == (name,)


def test_an_impossible_job_has_a_page_that_says_why(tmp_path: Path) -> None:
    tight = job().model_copy(update={"limits": Limits(budget_usd=10.0)})
    answer = recommend(tight, seed=1, tracking=False, output=tmp_path / "none", clock=lambda: NOON)
    assert answer.infeasibility is not None
    html = (tmp_path / "none" / "report.html").read_text()
    found = Page(html)
    assert "No design keeps all limits." in found.texts
    assert all(reason in found.texts for reason in answer.infeasibility.reasons)
    assert 'id="scatter"' not in html


def test_tables_have_captions_and_headings_and_figures_have_names() -> None:
    found = Page(page(drawn()))
    count = {
        name: sum(entry[0] == name for entry in found.tags)
        for name in ("table", "caption", "thead", "figure", "h1")
    }
    assert count["table"] == count["caption"] == count["thead"]
    assert count["h1"] == 1
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for entry, attributes in found.tags:
        if entry in ("figure", "section"):
            assert attributes["aria-labelledby"] in ids


def test_every_input_has_a_source_and_a_confidence() -> None:
    groups = {group.title: group.rows for group in drawn().report.inputs}
    rows = [row for group in groups.values() for row in group]
    assert all(row.source and row.confidence and row.value for row in rows)
    assert {row.confidence for row in groups["Accelerator h100-sxm5-80gb"]} <= {
        "verified",
        "partial",
        "estimate",
    }
    asked = {row.name: (row.value, row.confidence) for row in groups["The job"]}
    assert asked["limits.budget_usd"][0] == "24,000"
    assert asked["ownership.lifetime_years"] == ("5", "default")


def test_inputs_say_who_has_said_them(tmp_path: Path) -> None:
    """Figures of a preset, defaults made by a factory, and what differs from both."""
    text_of_job = """
workload: {model: llama-3.1-8b, tokens: 2.0e+11, sequence_length: 8192, global_batch_size: 128}
offers: [{accelerator: h100-sxm5-80gb, num_gpus: 64, rent_usd_per_gpu_hour: 2.4}]
site: us-iowa
objectives: [cost, carbon]
reliability: {preset: frontier, weibull_shape: 0.75}
input_factors: {failure_rate: {low: 0.25, high: 2.0}}
"""
    (tmp_path / "job.yaml").write_text(text_of_job)
    asked = load_job(tmp_path / "job.yaml")
    groups = {group.title: group.rows for group in inputs(asked, 0, step_time_error("hopper", "bf16"))}
    said = {row.name: (row.confidence, row.source) for row in groups["The job"]}
    assert said["objectives"] == ("job", "job file")
    assert said["reliability.failures_per_1000_node_days"] == (
        "preset",
        "preset `frontier`, whether the job file repeats it or not",
    )
    assert said["reliability.straggler_log_mean"][0] == "default"
    assert said["input_factors.failure_rate.low"] == ("job", "job file")
    factors = [who for name, (who, _) in said.items() if name.startswith("input_factors.")]
    assert len(factors) > 10
    assert factors.count("default") == len(factors) - 1
    (rent,) = [row for row in groups["Ranges of what is not known exactly"] if "rent" in row.name]
    assert (rent.value, rent.confidence) == ("2.4 USD/GPU-hour (no range given)", "job")


def test_a_recommended_design_that_hardly_fits_is_named_before_all_others() -> None:
    best, chosen = (
        best_of(drawn().report),
        evaluate(job(), PlanTable.from_plans([best_of(drawn().report).plan])),
    )
    for used, begins in (
        (
            0.97,
            f"Design {best.design_id}, the recommended one, would fill 97.0 % of the memory. 1 of 1 designs",
        ),
        (0.5, "1 of 1 designs on the front would fill more than 95% of the memory"),
    ):
        summary = chosen.outcomes.summary
        full = replace(summary, peak_memory_bytes=0.97 * summary.memory_capacity_bytes)
        front = replace(chosen, outcomes=replace(chosen.outcomes, summary=full))
        shown = best.model_copy(update={"peak_memory_bytes": used * best.memory_capacity_bytes})
        assert cautions(job(), front, None, shown)[0].startswith(begins)
    assert not any("fill" in note for note in cautions(job(), chosen, None, best))


def test_the_command_of_the_page_gives_the_same_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = json.loads(Page(page(drawn())).record())
    (tmp_path / "job.json").write_text(json.dumps(embedded["job"]))
    monkeypatch.chdir(tmp_path)
    words = embedded["reproduction"]["command"].split()
    assert words[0] == "capplan"
    assert main([*words[1:], "--no-tracking", "--output", "again"]) == 0
    again = json.loads((tmp_path / "again" / "recommendation.json").read_text())
    assert again | {"created_at": ""} == embedded["answer"] | {"created_at": ""}


def test_a_report_replaces_a_report_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    write_page(drawn(), target)
    write_page(drawn(), target)
    target.write_text("mine")
    with pytest.raises(InputError, match="is no report of capplan: choose another name"):
        write_page(drawn(), target)
    assert target.read_text() == "mine"
    with pytest.raises(InputError, match="does not exist: make it first"):
        write_page(drawn(), tmp_path / "missing" / "page.html")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_what_cannot_be_reported_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = StudyStore(tmp_path)
    path = store.create(job(), 1, NOON)
    for words, code, told in (
        ([path.stem, "--store", str(tmp_path)], 1, "has not ended: resume it, then report it"),
        (["nothing", "--store", str(tmp_path)], 1, "there is no such study"),
        ([str(tmp_path)], 2, "holds no answer of `capplan recommend --output`"),
        ([str(answered()), "--figure", "cost"], 2, "--figure goes with --format png or svg"),
        (
            [str(answered()), "--format", "png", "--figure", "cots", "--output", str(tmp_path)],
            2,
            "there are: front, cost",
        ),
    ):
        assert main(["report", *words]) == code
        assert told in capsys.readouterr().err


def test_a_damaged_table_is_an_error_with_its_name(tmp_path: Path) -> None:
    from planner.report_designs import cloud_of_table

    (tmp_path / "designs.parquet").write_bytes(b"no table")
    with pytest.raises(StudyError, match=r"designs\.parquet is not a table of designs of this version"):
        cloud_of_table(tmp_path / "designs.parquet")


def test_axes_have_round_numbers_in_the_unit_that_is_shown() -> None:
    assert ticks(0.0, 2.1e6, "usd") == [0.0, 1e6, 2e6]
    assert [tick_text(value, "s") for value in ticks(0.0, 12 * 86_400.0, "s")] == ["0", "5 days", "10 days"]
    assert [tick_text(value, "bytes") for value in ticks(0.0, 80 * 2.0**30, "bytes")] == [
        "0",
        "20 GiB",
        "40 GiB",
        "60 GiB",
        "80 GiB",
    ]
    assert ticks(3.0, 3.0, "usd") == [3.0]
    assert log_ticks(1.0, 100.0) == [1.0, 10.0, 100.0]
    assert log_ticks(2.0, 9.0) == [2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0]
    assert log_ticks(3.24, 3.66) == pytest.approx([3.4, 3.6])
    assert log_ticks(32_180.0, 34_800.0) == [33_000.0, 34_000.0]
    assert size_ticks(60.0, 550.0) == [64.0, 128.0, 256.0, 512.0]
    assert size_ticks(90.0, 130.0) == [90.0, 100.0, 110.0, 120.0, 130.0]
    assert text(None, "days") == "never ends"


def test_elements_escape_what_they_hold() -> None:
    assert tag("a", "<&>", title='"', hidden=True, href=None, data_x=1) == (
        '<a title="&quot;" hidden data-x="1">&lt;&amp;&gt;</a>'
    )


def test_whoever_waits_is_told_every_part_of_the_report() -> None:
    told: list[Progress] = []
    report_of_folder(answered(), told.append)
    assert [moment.num_done for moment in told] == list(range(len(told)))
    assert {moment.num_total for moment in told} == {len(told)}
    assert told[3].stage == "report: what would change it"


def test_a_search_that_was_stopped_says_so_in_its_page() -> None:
    report = drawn().report
    stopped = report.answer.model_copy(update={"status": "interrupted"})
    found = Page(page(drawn().answering(stopped)))
    (verdict,) = [
        told for told in found.texts if told.startswith("The search was stopped; the best until then is ")
    ]
    assert f"{best_of(report).plan.num_gpus} x {best_of(report).accelerator}" in verdict


def test_a_page_of_a_hundred_thousand_designs_and_a_thousand_on_the_front_stays_below_five_megabytes() -> (
    None
):
    assert len(page(large(100_000, 1_000)).encode()) < 5e6


def test_a_report_of_an_older_version_may_be_replaced(tmp_path: Path) -> None:
    target = write_page(drawn(), tmp_path / "page.html")
    text_of_older = target.read_text().replace("capplan report 3", "capplan report 2")
    target.write_text(text_of_older)
    write_page(drawn(), target)
    assert "capplan report 3" in target.read_text()[:2_000]


def without(text: str, *names: str) -> str:
    """JSON that lacks some fields."""
    return json.dumps({name: value for name, value in json.loads(text).items() if name not in names})


@pytest.mark.parametrize(
    ("file", "field"), [("recommendation.json", "num_feasible"), ("job.json", "workload")]
)
def test_a_folder_of_another_version_is_one_clear_error(
    file: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = tmp_path / "older"
    shutil.copytree(answered(), older)
    (older / file).write_text(without((older / file).read_text(), field))
    assert main(["report", str(older), "--output", str(tmp_path / "page.html")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("holds no answer of this version of capplan: answer the job anew") == 1
    assert not (tmp_path / "page.html").exists()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from planner.durable import run_study_of

    store = StudyStore(tmp_path_factory.mktemp("store"))
    return run_study_of(job(), seed=1, store=store, clock=lambda: NOON).path


@pytest.mark.parametrize(
    ("fact", "field", "commands"),
    [
        ("answer", "num_feasible", (["report"], ["study", "resume"], ["study", "sync"])),
        ("job", "workload", (["report"], ["study", "status"], ["study", "front"], ["study", "sync"])),
    ],
)
def test_a_study_of_another_version_is_one_clear_error(
    fact: str,
    field: str,
    commands: tuple[list[str], ...],
    study: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    older = tmp_path / study.name
    shutil.copy(study, older)
    with closing(sqlite3.connect(older)) as connection, connection:
        ((written,),) = connection.execute("SELECT value FROM facts WHERE name = ?", (fact,))
        new = without(written, field)
        connection.execute("UPDATE facts SET value = ? WHERE name = ?", (new, fact))
    rule = f"the {fact} of this study was written by another version of capplan ({field}: Field required)"
    for words in commands:
        assert main([*words, older.stem, "--store", str(tmp_path)]) == 1
        assert capsys.readouterr().err.count(rule) == 1, words


def test_fields_that_an_older_answer_lacks_and_that_have_a_default_are_filled_in(tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(answered(), older)
    file = older / "recommendation.json"
    file.write_text(without(file.read_text(), "what_if", "best_of_each", "warnings"))
    assert report_of_folder(older).report.figures == drawn().report.figures
