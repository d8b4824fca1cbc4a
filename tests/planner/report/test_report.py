"""Does a report say what the answer says? The record, its figures, the page, pictures and the command."""

from __future__ import annotations

import base64
import errno
import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constraints.evaluation import Evaluation, evaluate
from planner.answer.recommend import recommend
from planner.cli.commands import main
from planner.job.file import load_job
from planner.notes.cautions import cautions_on_answer
from planner.recommended.design_words import configuration, merits, powers
from planner.report.build import DrawnReport
from planner.report.data import DesignCounts, Figure, Quantity, Report
from planner.report.designs import EXCESS_NAMES, METRICS, design_counts, packed
from planner.report.files import write_page, write_pictures
from planner.report.html import tag
from planner.report.inputs import inputs
from planner.report.page import page
from planner.report.sources import report_of_folder
from planner.report.units import log_ticks, size_ticks, text, tick_text, ticks
from planner.uncertain.uncertain_inputs import levers
from simulator.domain.limits import Limits
from simulator.domain.plan import PlanTable
from simulator.errors import InputError, StudyError
from studies.files.design_log import read_designs
from studies.files.store import StudyStore
from studies.progress import Progress
from tests.planner.report_pages import Page, best_of
from tests.planner.report_studies import NOON, answered, drawn, job, large
from tests.support import H100_RENTED, job_with, plans_with

ADDRESS = re.compile(r"""(?:https?:|src\s*=\s*["'](?!data:)|@import|[^a-z]url\()""", re.IGNORECASE)
"""How a page asks for something outside of itself."""


def value_at(report: dict[str, object], place: str) -> object:
    """The number at a path such as `figures.cost.bars.0.parts.1.value`; figures are found by name."""
    figures = report["figures"]
    assert isinstance(figures, list)
    found: object = report | {"figures": {each["name"]: each for each in figures}}
    for step in place.split("."):
        if isinstance(found, list):
            found = found[int(step)]
        else:
            assert isinstance(found, dict)
            found = found[step]
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
        num_drawn_broken = int(np.count_nonzero(thin.broken))
        assert (len(thin) - num_drawn_broken, num_drawn_broken) == expected
        assert design_counts(cloud, thin).model_dump() == {
            "num_designs": few.num_simulated,
            "num_feasible": round(1_000 * share),
            "num_broken": 1_000 - round(1_000 * share),
            "num_feasible_drawn": expected[0],
            "num_broken_drawn": expected[1],
        }


def test_the_note_of_the_picture_counts_the_designs_of_each_kind_on_the_page() -> None:
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
        "On this page: 50,000 of 150,000 feasible designs and 40,000 of 59,000 designs that violate a limit; "
        "1,000 designs whose run never ends are not shown."
    )
    assert any(told in each for each in texts)
    assert "violates a limit" in texts
    none = counts.model_copy(update={"num_broken": 0, "num_broken_drawn": 0})
    plain = Page(page(replace(drawn(), report=report.model_copy(update={"designs": none})))).texts
    assert "violates a limit" not in plain


@pytest.mark.short(1)
@pytest.mark.parametrize("kind", ["svg", "png"])
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
        assert "95\N{NO-BREAK SPACE}% of runs end within".encode() in files["finish"]


def test_pictures_that_find_no_space_leave_older_ones_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "front.png").write_bytes(b"older")

    def saved(figure: Figure, _cloud: object, path: Path) -> None:
        if figure.name == "cost":
            raise OSError(errno.ENOSPC, "No space left on device")
        path.write_bytes(b"newer")

    monkeypatch.setattr("planner.report.files.save_picture", saved)
    for folder in (tmp_path, tmp_path / "new"):
        with pytest.raises(InputError, match="cannot be written: No space left on device"):
            write_pictures(drawn(), folder, "png", ["front", "cost"])
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("front.png", b"older")]
    write_pictures(drawn(), tmp_path, "png", ["front"])
    assert (tmp_path / "front.png").read_bytes() == b"newer"


@pytest.mark.long
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
    assert "No design meets all limits." in found.texts
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
    groups = {group.title: group.rows for group in inputs(asked, ())}
    said = {row.name: (row.confidence, row.source) for row in groups["The job"]}
    assert said["objectives"] == ("job", "job file")
    assert said["reliability.failures_per_1000_node_days"] == (
        "preset",
        "preset `frontier`, whether or not the job file repeats it",
    )
    assert said["reliability.straggler_log_mean"][0] == "default"
    assert said["input_factors.failure_rate.low"] == ("job", "job file")
    factors = [who for name, (who, _) in said.items() if name.startswith("input_factors.")]
    assert len(factors) > 10
    assert factors.count("default") == len(factors) - 1
    assert "Ranges of uncertain inputs" not in groups
    grid = next(lever.input for lever in levers(asked, plans_with({"num_gpus": 64})) if lever.name == "grid")
    (row,) = inputs(asked, [grid])[0].rows
    assert (row.name, row.value) == (
        "site.grid_kgco2e_per_kwh",
        "0.294 kgCO2e/kWh (0.25 kgCO2e/kWh to 0.338 kgCO2e/kWh)",
    )
    assert (row.confidence, row.source) == ("range", grid.why)


def model_rows(*overrides: str) -> dict[str, tuple[str, str]]:
    asked = load_job("examples/llama-3.1-70b.yaml", ["workload.model=qwen3-vl-8b", *overrides])
    (rows,) = [group.rows for group in inputs(asked, ()) if group.title.startswith("Model")]
    return {row.name: (row.value, row.confidence) for row in rows}


def test_figures_of_an_encoder_are_shown_where_there_are_images() -> None:
    images = "workload.images={tokens_per_image: 256, per_sequence: 2}"
    seen, text = model_rows(images), model_rows()
    assert seen["vision num layers"][0] == "27"
    assert "vision parameters" in seen
    assert not [name for name in text if "vision" in name]
    # Of the catalogue, all of them; weights of the encoder would be among those of the whole model.
    assert set(seen) - set(text) == {name for name in seen if "vision" in name} | {"num parameters"}
    changed = model_rows(images, "workload.model.vision.num_layers=20")
    assert changed["vision.num_layers"] == ("20", "job")
    assert changed["vision.hidden_size"][0] == "1,152"


def test_inputs_say_what_comes_from_the_framework() -> None:
    asked = load_job(
        "examples/llama-3.1-70b.yaml",
        ["workload.framework=fsdp2", "workload.logit_bytes=2", "objectives=[cost]"],
    )
    groups = {group.title: group.rows for group in inputs(asked, ())}
    said = {row.name: (row.confidence, row.source) for row in groups["The job"]}
    habit = ("preset", "framework `fsdp2`, whether or not the job file repeats it")
    assert said["workload.sharded_copies"] == said["search.zero_stages"] == habit
    assert said["workload.framework"] == said["workload.logit_bytes"] == ("job", "job file")
    assert said["workload.has_fused_operators"][0] == "default"  # compiled, as by default


def test_the_source_of_a_price_is_none_of_the_other_fields_of_its_offer() -> None:
    asked = load_job("examples/bloom-176b.yaml")
    groups = {group.title: group.rows for group in inputs(asked, ())}
    rows = {row.name: row for row in groups["The job"]}
    assert rows["offers[0].purchase_usd_per_node"].source == asked.offers[0].price_source
    assert rows["offers[0].num_gpus.max"].source == rows["offers[0].price_source"].source == "job file"
    assert rows["workload.has_sequence_parallel"].value == "no"
    assert rows["carbon_scope.hosts"].value == "yes"
    # What the catalogue describes has groups of its own.
    assert not [
        name for name in rows if name.startswith(("workload.model.", "offers[0].accelerator", "site."))
    ]


def test_an_accelerator_of_the_catalogue_that_a_job_changes_is_told_as_that_of_the_job() -> None:
    asked = load_job("examples/bloom-176b.yaml")
    (offer,) = asked.offers
    changed = offer.accelerator.model_copy(update={"idle_power_w": 60.0})
    own = asked.model_copy(update={"offers": (offer.model_copy(update={"accelerator": changed}),)})
    title = f"Accelerator {offer.accelerator.id}"
    said = [
        {row.source for group in inputs(each, ()) if group.title == title for row in group.rows}
        for each in (asked, own)
    ]
    differs = "job file (differs from the catalogue's entry)"
    assert differs not in said[0]
    assert said[1] == {differs}


def test_hardware_and_sites_of_one_name_that_differ_are_told_apart_by_their_offers() -> None:
    thin = {**H100_RENTED, "fabric": {"kind": "infiniband-ndr", "oversubscription": 4}}
    green = {**H100_RENTED, "site": {"region": "us-iowa", "grid_kgco2e_per_kwh": 0.05}}
    groups = {group.title: group for group in inputs(job_with(thin, green, H100_RENTED, site="us-iowa"), ())}
    assert {title for title in groups if title.startswith(("Node", "Network", "Site"))} == {
        "Node dgx-h100",
        "Network infiniband-ndr of offers[0]",
        "Network infiniband-ndr of offers[1], offers[2]",
        "Site us-iowa of offers[0], offers[2]",
        "Site us-iowa of offers[1]",
    }
    values = {row.name: row.value for row in groups["Network infiniband-ndr of offers[0]"].rows}
    assert values["oversubscription"] == "4"


def test_hourly_profiles_are_told_in_short() -> None:
    swinging = {"region": "us-iowa", "grid_profile": {"mean": 0.4, "daily_amplitude": 0.2}}
    groups = inputs(job_with(site=swinging, what_if={"sites": [swinging]}), ())
    told = [row.value for group in groups for row in group.rows if row.name.endswith("grid_profile")]
    assert told == ["0.4 (0.2 to 0.6) by the hour"] * 2
    assert max(len(row.value) for group in groups for row in group.rows) < 1000


def test_a_recommended_design_that_hardly_fits_is_named_before_all_others() -> None:
    best, chosen = (
        best_of(drawn().report),
        evaluate(job(), PlanTable.from_plans([best_of(drawn().report).plan])),
    )
    for used, begins in (
        (
            0.97,
            f"The recommended design {best.design_id} would fill 97.0 % of the memory. 1 of 1 design ",
        ),
        (0.5, "1 of 1 design on the front would fill more than 95 % of the memory"),
    ):
        summary = chosen.outcomes.summary
        full = replace(summary, peak_memory_bytes=0.97 * summary.memory_capacity_bytes)
        front = replace(chosen, outcomes=replace(chosen.outcomes, summary=full))
        shown = best.model_copy(update={"peak_memory_bytes": used * best.memory_capacity_bytes})
        told = cautions_on_answer(job(), front, shown, None)[0]
        assert told.startswith(begins)
        assert "test it before you rely on it, or" in told
        two = cautions_on_answer(job(), Evaluation.concatenate([front, front]), shown, None)[0]
        assert "2 of 2 designs" in two
        assert "test them before you rely on them, or" in two
    assert not any("fill" in note for note in cautions_on_answer(job(), chosen, best, None))


def test_runs_of_more_than_a_year_are_noted_where_no_deadline_keeps_them_out() -> None:
    best = best_of(drawn().report)
    found = evaluate(job(), PlanTable.from_plans([best.plan]))
    for days, deadline_days, is_told in ((400.0, None, True), (400.0, 500.0, False), (300.0, None, False)):
        front = replace(found, scores=replace(found.scores, time_to_train_s=np.array([days * 86_400.0])))
        limits = job().limits.model_copy(update={"deadline_days": deadline_days})
        asked = job().model_copy(update={"limits": limits})
        notes = cautions_on_answer(asked, front, best, None)
        assert any("longer than a year" in note for note in notes) == is_told


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


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (
            ["--output", "board.pdf"],
            "--output = board.pdf: ends in .pdf, but would be written as .html: for a PDF, print the page from a browser",
        ),
        (["--output", "board.PNG"], "--output = board.PNG: ends in .png, but would be written as .html"),
        (
            ["--format", "json", "--output", "a.html"],
            "--output = a.html: ends in .html, but would be written as .json",
        ),
    ],
)
def test_a_page_or_record_never_has_the_suffix_of_another_format(
    words: list[str],
    rule: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(answered()), *words]) == 2
    assert rule in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_reported_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = StudyStore(tmp_path)
    path = store.create(job(), 1, NOON)
    for words, code, told in (
        ([path.stem, "--store", str(tmp_path)], 1, "is not complete: resume it first"),
        (["nothing", "--store", str(tmp_path)], 1, "there is no such study"),
        ([str(tmp_path)], 2, "holds no answer of `capplan recommend --output`"),
        ([str(answered()), "--figure", "cost"], 2, "--figure goes with --format png or svg"),
        (
            [str(answered()), "--format", "png", "--figure", "cots", "--output", str(tmp_path)],
            2,
            "available: front, cost",
        ),
    ):
        assert main(["report", *words]) == code
        assert told in capsys.readouterr().err


def test_a_damaged_table_is_an_error_with_its_name(tmp_path: Path) -> None:
    from planner.report.designs import cloud_of_table

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
    times: tuple[tuple[float, float, Quantity, list[str]], ...] = (
        (16.6 / 24.0, 22.9 / 24.0, "days", ["18 h", "20 h", "22 h"]),
        (0.0, 1.9, "days", ["0", "20 h", "40 h"]),
        (0.0, 2.2, "days", ["0", "1 day", "2 days"]),
        (0.0, 900.0, "days", ["0", "1 year", "2 years"]),
        (0.0, 150.0, "s", ["0", "1 min", "2 min"]),
        (0.0, 1.6, "s", ["0", "500 ms", "1 s", "1.5 s"]),
        (0.0, 2.0, "days", ["0", "0.5 days", "1 day", "1.5 days", "2 days"]),
    )
    for low, high, quantity, shown in times:
        assert [tick_text(value, quantity, high) for value in ticks(low, high, quantity)] == shown
    assert ticks(3.0, 3.0, "usd") == [3.0]
    assert ticks(0.0, 0.1 + 0.2, "fraction", 3) == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert ticks(0.1 + 0.2, 0.9, "fraction", 6) == pytest.approx([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    assert [text(change, "change") for change in (0.0, 0.05, -0.05)] == ["0 %", "+5 %", "-5 %"]
    assert log_ticks(1.0, 100.0) == [1.0, 10.0, 100.0]
    assert log_ticks(1.0005, 99.95) == [1.0, 10.0, 100.0]
    assert log_ticks(9.5, 12.2) == [10.0, 12.0]
    assert log_ticks(2.0, 9.0) == [2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0]
    assert log_ticks(3.24, 3.66) == pytest.approx([3.4, 3.6])
    assert log_ticks(32_180.0, 34_800.0) == [33_000.0, 34_000.0]
    assert log_ticks(1.685e6, 2.456e6) == [1.8e6, 2.0e6, 2.2e6, 2.4e6]
    assert size_ticks(60.0, 550.0) == [64.0, 128.0, 256.0, 512.0]
    assert size_ticks(1.0, 4096.0) == [1.0, 8.0, 64.0, 512.0, 4096.0]
    assert size_ticks(2.1, 3.9) == [3.0]
    assert size_ticks(90.0, 130.0) == [90.0, 100.0, 110.0, 120.0, 130.0]
    assert text(None, "days") == "never ends"


@given(low=st.floats(1e-3, 1e9), ratio=st.floats(1.02, 100.0))
def test_a_logarithmic_axis_has_two_numbers_or_more_within_it(low: float, ratio: float) -> None:
    found = log_ticks(low, low * ratio)
    assert len(found) >= 2
    assert low * 0.99 <= min(found) < max(found) <= low * ratio * 1.01


def test_elements_escape_what_they_hold() -> None:
    assert tag("a", "<&>", title='"', hidden=True, href=None, data_x=1) == (
        '<a title="&quot;" hidden data-x="1">&lt;&amp;&gt;</a>'
    )


def test_whoever_waits_is_told_every_part_of_the_report() -> None:
    told: list[Progress] = []
    report_of_folder(answered(), told.append)
    assert [moment.num_done for moment in told] == list(range(len(told)))
    assert {moment.num_total for moment in told} == {len(told)}
    assert told[3].stage == "report: sensitivity of the recommendation"


def test_a_search_that_was_stopped_says_so_in_its_page() -> None:
    report = drawn().report
    stopped = report.answer.model_copy(update={"status": "interrupted"})
    found = Page(page(drawn().answering(stopped)))
    (verdict,) = [
        told for told in found.texts if told.startswith("The search was stopped; the best design so far is ")
    ]
    assert f"{best_of(report).plan.num_gpus} x {best_of(report).accelerator}" in verdict


def test_a_page_tells_how_to_run_its_design() -> None:
    told = [part for pair in configuration(best_of(drawn().report)) for part in pair]
    texts = Page(page(drawn())).texts
    place = texts.index("How to run it") + 1
    assert texts[place : place + len(told)] == told


def test_a_page_has_every_figure_that_the_answer_has_on_a_terminal() -> None:
    """Whoever approves a cluster asks whether to rent or to own it, and reads the page alone."""
    texts = " ".join(Page(page(drawn())).texts)
    assert "Further figures" in texts
    for name, figure, about in (*powers(best_of(drawn().report)), *merits(best_of(drawn().report))):
        assert f"{name or 'carbon'} {figure}, {about}" in texts
    assert "rent or own" in texts


def test_a_page_says_at_once_that_its_design_may_not_fit() -> None:
    answer, best = drawn().report.answer, best_of(drawn().report)
    full = best.model_copy(update={"peak_memory_bytes": 0.988 * best.memory_capacity_bytes})
    found = Page(page(drawn().answering(answer.model_copy(update={"recommendation": full}))))
    (place,) = [
        number for number, told in enumerate(found.texts) if told.startswith("It may not fit: 98.8 %")
    ]
    assert found.texts[place - 1].startswith("Take ")


def test_a_page_that_doubts_a_design_names_the_heading_that_says_more() -> None:
    answer, best = drawn().report.answer, best_of(drawn().report)
    plan = best.plan.model_copy(update={"zero_stage": 2, "pipeline_parallel": 2, "data_parallel": 2})
    rare = best.model_copy(update={"plan": plan})
    changed = answer.model_copy(update={"recommendation": rare, "warnings": ("a note",)})
    texts = Page(page(drawn().answering(changed))).texts
    (doubt,) = [told for told in texts if told.startswith("Few frameworks can run it")]
    assert doubt[doubt.index("(") + 1 : doubt.index(")")] in texts


def test_a_page_of_a_hundred_thousand_designs_and_a_thousand_on_the_front_stays_below_five_megabytes() -> (
    None
):
    assert len(page(large(100_000, 1_000)).encode()) < 5e6
