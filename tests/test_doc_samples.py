"""Do the generated parts of the pages say what the program says? Rules of job files, defaults, samples of output."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

import planner
from docs import getting_started
from docs.generate import INTRODUCTION, job_file_reference
from docs.job_rules import EXAMPLES, JOB, refusals, rules_section
from planner.input.record_input import parse_record
from planner.input.schema import FORMS
from planner.input.yaml_text import parse_text
from planner.job.file import parse_job
from planner.measured.rows import Unmodelled
from planner.purchase.fleet import Fleet
from planner.validation.report import as_json, report_of
from simulator.domain.options import Factors, InputFactors
from simulator.errors import InputError

OWN_CLUSTER = Path(__file__).parents[1] / "docs" / "how-to" / "own-cluster.md"
BUYING = Path(__file__).parents[1] / "docs" / "how-to" / "buy.md"
MEASURED = Path(__file__).parents[1] / "docs" / "measured-rows.md"
PAGE = job_file_reference()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


def row_of(field: str) -> str:
    (row,) = (row for row in ROWS if row.startswith(f"| `{field}` |"))
    return row


class TestRulesOfJobFiles:
    def test_the_fields_of_most_jobs_are_a_job(self) -> None:
        (sample,) = re.findall(r"```yaml\n(workload:.*?)```", INTRODUCTION, flags=re.DOTALL)
        document = parse_text(sample, source="page")
        assert isinstance(document, dict)
        job = parse_job(document)
        assert job.offers[0].max_nodes == 264
        assert job.reliability.failures_per_1000_node_days == pytest.approx(3.84)

    def test_the_job_of_the_examples_keeps_all_rules(self) -> None:
        assert parse_job(JOB).offers[0].num_gpus.max == 256

    def test_every_example_breaks_one_rule_each_another(self) -> None:
        sentences = [sentence for _, sentence in refusals()]
        assert len(set(sentences)) == len(EXAMPLES)

    def test_an_example_that_breaks_none_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("docs.job_rules.EXAMPLES", (("site=sweden",),))
        with pytest.raises(ValueError, match="breaks no rule"):
            rules_section()

    def test_what_is_written_in_an_example_is_named_in_the_sentence(self) -> None:
        for overrides, sentence in refusals():
            fields = {re.split(r"[.\]]", override.partition("=")[0])[-1] for override in overrides}
            written = {name for name in fields if name in sentence}
            assert written, (overrides, sentence)


def test_a_part_of_a_node_is_told_what_to_write_and_the_page_shows_it() -> None:
    with pytest.raises(
        InputError, match=r"num_gpus = 1: .* nearest: 8; for a part of a node, write out the offer's node"
    ):
        parse_job(JOB, overrides=["offers[0].num_gpus=1"])
    (shown,) = re.findall(r"```yaml\n(.*?)```", OWN_CLUSTER.read_text(encoding="utf-8"), re.DOTALL)
    asked = parse_text(shown, source="page")
    assert isinstance(asked, dict)
    (offer,) = parse_job({**JOB, **asked}).offers
    assert (offer.num_gpus.max, offer.node.num_accelerators, offer.node.link_domain_size) == (1, 1, 1)


class TestDefaultsAndTypes:
    @pytest.mark.parametrize("name", InputFactors.model_fields)
    def test_ranges_of_unsure_inputs_are_told(self, name: str) -> None:
        default = InputFactors.model_fields[name].default
        told = f"`{{low: {default.low:g}, high: {default.high:g}}}`" if default else "not set"
        assert f"fields of [Factors](#factors) | {told} |" in row_of(name)

    def test_no_default_points_to_a_type_without_defaults(self) -> None:
        assert any(field.is_required() for field in Factors.model_fields.values())
        assert not [row for row in ROWS if "[Factors](#factors) | the defaults below" in row]

    def test_types_that_forms_name_are_linked(self) -> None:
        assert any("fields of Site" in form.written for form in FORMS)
        assert re.findall(r"fields of [A-Z]\w+", PAGE) == []

    @pytest.mark.parametrize(
        ("field", "written"),
        [
            ("power_usage_effectiveness", "number, >= 1, <= 5"),
            ("global_batch_size", "whole number, unless global_batch_tokens is given; > 0, <= 100,000,000"),
            ("global_batch_tokens", "number, unless global_batch_size is given"),
            ("tokens", "number, > 0, <= 1e18"),
            ("usd_per_byte", "number, >= 0, <= 1e-7"),
        ],
    )
    def test_bounds_stand_beside_numbers(self, field: str, written: str) -> None:
        assert f"| {written} |" in row_of(field)

    def test_overrides_of_the_introduction_are_taken(self) -> None:
        overrides = re.findall(r"`--set (\S+)`", INTRODUCTION)
        job = parse_job(JOB, overrides=[*overrides, "offers[0].num_gpus.min=8"])
        assert (job.limits.budget_usd, job.offers[0].num_gpus.max) == (4e6, 512)
        assert job.site.power_usage_effectiveness == 1.1
        assert job.workload.model.num_layers == 30
        assert len(overrides) == 6


def test_the_page_of_measured_rows_has_all_fields_of_a_row() -> None:
    entries = [Unmodelled(row_id="a", group="b", reason="c", step_time_s="")]
    rows = as_json(report_of(entries, {}), entries, whole_runs=None)["rows"]
    assert isinstance(rows, list)
    (row,) = rows
    _, _, section = MEASURED.read_text(encoding="utf-8").partition("## What comes out")
    told = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)))
    assert row.keys() - {"id", "source"} <= set(told)


class TestGettingStarted:
    def test_samples_stand_behind_the_commands_that_print_them(self) -> None:
        text = getting_started.GETTING_STARTED.read_text(encoding="utf-8")
        places = [
            text.index(part)
            for part in (
                "capplan study status",
                "<!-- status -->",
                "--set limits.budget_usd=2.2e6",
                "<!-- origins -->",
            )
        ]
        assert all(before < behind for before, behind in pairwise(places))

    def test_names_and_times_of_one_run_are_left_out(self) -> None:
        printed = (
            "Study job-0badcafe is complete: `capplan study resume job-0badcafe` shows its recommendation\n\n"
        )
        printed += "  searched     4.72 s\n  designs      10, 4 meet all limits\n  front        3 designs\n"
        assert getting_started.status_sample(printed) == [
            "Study job-1a2b3c4d is complete: `capplan study resume job-1a2b3c4d` shows its recommendation",
            "",
            "  ...",
            "  designs      10, 4 meet all limits",
            "  front        3 designs",
            "  ...",
        ]


class TestScripts:
    def test_every_function_of_a_command_can_be_imported_from_the_front_door(self) -> None:
        page = (Path(__file__).parents[1] / "docs" / "how-to" / "script.md").read_text(encoding="utf-8")
        rows = [line.split("|")[2] for line in page.splitlines() if line.startswith("| `")]
        called = {name for row in rows for name in re.findall(r"(\w+)\(", row)}
        assert called >= {"recommend", "simulate_plan", "plan_purchase"}
        assert called <= set(planner.__all__)


def test_the_offers_of_the_page_on_buying_are_those_of_a_fleet() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", BUYING.read_text(encoding="utf-8"), re.DOTALL)
    offers = parse_text(shown, source="page")
    assert isinstance(offers, dict)
    one = {"name": "only", "job": {}, "deadline_day": 90}
    fleet = parse_record(Fleet, {**offers, "site": "us-iowa", "horizon_days": 1095, "jobs": [one]})
    assert [offer.interruptions_per_1000_node_days for offer in fleet.offers] == [0, 0, 50, 0]
    assert [bool(offer.reserve) for offer in fleet.offers] == [True, True, False, False]
