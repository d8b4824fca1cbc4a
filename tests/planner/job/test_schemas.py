"""Do the JSON Schemas match the files that people write and the output of commands?"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from planner.cli import commands as cli
from planner.cli.schema import SCHEMA_NAMES
from planner.input.schema import FORMS, known_fields
from planner.input.yaml_text import read_document
from planner.job.file import parse_job
from planner.job.schema_file import job_file_schema
from planner.schemas import ANSWERS, NAMES, schema_text
from simulator.errors import InputError
from tests.json_schema import problems
from tests.simulator.deep.traces import write_small
from tests.support import H100_RENTED, cases_of

pytestmark = pytest.mark.usefixtures("pictures_drawn_once", "rows_simulated_once")

ROOT = Path(__file__).parents[3]
EXAMPLES = [*(ROOT / "examples").glob("*.yaml"), *(ROOT / "examples" / "perfsim").glob("*.yaml")]
JOBS = sorted(path for path in EXAMPLES if path.stem != "fleet")  # jobs, not fleets
BLOOM = str(ROOT / "examples" / "bloom-176b.yaml")
STEPS = str(ROOT / "examples" / "calibration" / "steps.csv")
PLAN = "tp=4,pp=12,dp=8,mbs=2,recompute=full"

Document = dict[str, object]


def schema_of(name: str) -> Document:
    found: Document = json.loads(schema_text(name))
    return found


JOB_SCHEMA = schema_of("job")


def broken(document: object) -> list[str]:
    return list(problems(document, JOB_SCHEMA, JOB_SCHEMA))


WORKLOAD: Document = {
    "model": "llama-3.1-8b",
    "tokens": 5e10,
    "sequence_length": 8192,
    "global_batch_size": 64,
}


def changed(**fields: object) -> Document:
    return {"workload": dict(WORKLOAD), "offers": [dict(H100_RENTED)], "site": "us-iowa", **fields}


class TestJobFiles:
    @pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
    def test_every_example_keeps_the_schema(self, path: Path) -> None:
        assert broken(read_document(path)) == []

    @pytest.mark.parametrize(
        "fields",
        [
            {"reliability": "mature"},
            {"reliability": {"preset": "typical", "stragglers": "shared"}},
            {"limits": None, "storage": {"write_bytes_per_s": 1e11}},
            {"site": {"region": "sweden", "power_usage_effectiveness": 1.1}},
            {"site": {"region": "sweden", "grid_profile": {"mean": 0.05, "daily_amplitude": 0.02}}},
            {"what_if": {"sites": ["sweden", {"region": "france"}], "power_caps": [0.8]}},
            {"preference": {"cost": 2.0}},
            {"fabric": "infiniband-ndr"},
            {"workload": {**WORKLOAD, "model": {"name": "llama-3.1-8b", "num_layers": 16}}},
            {
                "workload": {
                    **WORKLOAD,
                    "model": {"name": "deepseek-v3.2", "latent_attention": {"indexer": None}},
                }
            },
            {"workload": {**WORKLOAD, "model": {"name": "deepseek-v3.2", "experts": {"num_experts": 64}}}},
            {
                "workload": {
                    **WORKLOAD,
                    "model": {"name": "deepseek-v4-flash", "compressed_attention": {"chosen_tokens": 256}},
                }
            },
            {
                "offers": [
                    {"accelerator": "h100-sxm5-80gb", "num_gpus": 64, "rent_usd_per_gpu_hour": "on_demand"}
                ]
            },
            {"offers": [{"accelerator": "h100-sxm5-80gb", "num_gpus": 64, "purchase_usd_per_node": 3e5}]},
        ],
        ids=str,
    )
    def test_short_and_long_forms_keep_the_schema_and_can_be_read(self, fields: Document) -> None:
        document = changed(**fields)
        parse_job(document)
        assert broken(document) == []

    @pytest.mark.parametrize(
        ("fields", "place"),
        [
            ({"limts": {}}, ".limts is unknown"),
            ({"limits": {"budget_usd": -1}}, ".limits"),
            ({"objectives": ["speed"]}, ".objectives[0]"),
            ({"offers": []}, ".offers"),
            ({"offers": [{"num_gpus": 8}]}, ".accelerator is missing"),
            ({"workload": {"model": "llama-9", "tokens": 1e12, "sequence_length": 8192}}, ".workload.model"),
            ({"workload": {**WORKLOAD, "model": {"name": "mine", "num_layers": 16}}}, ".workload.model"),
            ({"reliability": "perfect"}, ".reliability"),
            ({"site": 7}, ".site"),
        ],
        ids=str,
    )
    def test_what_cannot_be_read_breaks_the_schema_at_its_place(self, fields: Document, place: str) -> None:
        document = changed(**fields)
        with pytest.raises(InputError):
            parse_job(document)
        assert any(place in problem for problem in broken(document))

    def test_required_are_the_fields_without_a_default(self) -> None:
        assert JOB_SCHEMA["required"] == ["workload", "offers", "site"]

    def test_every_field_and_every_short_form_is_in_the_schema_with_its_meaning(self) -> None:
        definitions = cast(dict[str, Document], JOB_SCHEMA["$defs"])
        for form in FORMS:
            definition = JOB_SCHEMA if form.model.__name__ == "Job" else definitions[form.model.__name__]
            properties = cast(dict[str, Document], definition["properties"])
            assert set(properties) == set(known_fields(form.model))
            assert f"Written as: {form.written}." in str(properties[form.field]["description"])


def outputs(folder: Path) -> dict[str, list[str]]:
    """A command for each schema; the studies are those of a small job."""
    sweep = folder / "sweep.yaml"
    sweep.write_text(SWEEP, encoding="utf-8")
    (folder / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    store = ["--store", str(folder)]
    side = f"{BLOOM}@{PLAN}"
    trace = str(write_small(folder / "trace"))
    assert cli.main(["trace", "export", trace, "--gpus", "2", "--output", str(folder / "astra")]) == 0
    opendc = folder / "opendc"
    if not opendc.exists():
        assert cli.main(["opendc", "export", BLOOM, "--plan", PLAN, "--output", str(opendc), "--quiet"]) == 0
    return {
        "answer": ["recommend", str(folder / "job.yaml"), "--no-tracking", "--quiet"],
        "simulate": ["simulate", BLOOM, "--plan", PLAN],
        "simulate-deep": ["simulate", BLOOM, "--plan", PLAN, "--depth", "deep"],
        "launch": ["launch", BLOOM, "--plan", PLAN],
        "timeline": ["timeline", BLOOM, "--plan", PLAN],
        "trace-simulate": ["trace", "simulate", trace, "--gpus", "4"],
        "trace-hop": ["trace", "simulate", trace, "--gpus", "4", "--parallel", "hop", "--hop", "backups=1"],
        "trace-play": ["trace", "play", str(folder / "astra")],
        "compare": ["compare", side, f"{BLOOM}@tp=8,pp=6,dp=8,mbs=2,recompute=full"],
        "balance": ["explain", BLOOM, "--plan", PLAN, "--balance"],
        "goodput": ["goodput", "--mtbf-s", "10980", "--stall-s", "5", "--replications", "20"],
        "explain": ["explain", BLOOM, "--plan", PLAN],
        "purchase": ["purchase", str(folder / "fleet.yaml"), "--effort", "1"],
        "sweep": ["sweep", str(sweep)],
        "validate": ["validate"],
        "validate-row": ["validate", "--measured", STEPS, "--row", "run-01"],
        "calibrate": ["calibrate", "--measured", STEPS, "--quiet"],
        "catalog": ["catalog", "accelerators"],
        "study-status": ["study", "status", *store, "small"],
        "study-front": ["study", "front", *store, "small"],
        "study-list": ["study", "list", *store],
        "study-export": ["study", "export", *store, "small", str(folder / "designs.parquet")],
        "study-merge": ["study", "merge", *store, "small", "other", "--into", "both"],
        "init": ["init", str(folder / "first.yaml"), "--yes", "--force"],
        "opendc-failures": ["opendc", "failures", str(opendc / "failures.parquet"), "--nodes", "48"],
        "study-sync": ["study", "sync", *store, "small", "--tracking-uri", f"sqlite:///{folder}/mlflow.db"],
    }


JOB = """\
workload: {model: llama-3.1-8b, tokens: 5e10, sequence_length: 8192, global_batch_size: 64}
offers: [{accelerator: h100-sxm5-80gb, num_gpus: {min: 16, max: 32}, rent_usd_per_gpu_hour: 2.5}]
site: us-iowa
search: {micro_batch_sizes: [1], num_refinements: 0}
"""
FLEET = """\
horizon_days: 100
site: us-iowa
offers:
  - accelerator: h100-sxm5-80gb
    buy: {usd_per_node: 1e3, max_nodes: 8, first_delivery_day: 20, delivery_every_days: 20}
    reserve: {usd_per_gpu_hour: 1.0, max_nodes: 4, term_days: 30, start_every_days: 10}
    rent: {usd_per_gpu_hour: 3.0, max_nodes: 8}
jobs:
  - {name: first, deadline_day: 60, job: job.yaml}
  - {name: second, earliest_start_day: 20, deadline_day: 100, job: job.yaml}
limits: {capital_usd: 1e3}
"""
SWEEP = """\
job: job.yaml
num_gpus: [16, 32]
checkpoint_schemes: [async]
checkpoint_intervals_s: [auto]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    place = tmp_path_factory.mktemp("schemas")
    shutil.copy(empty_store, place / "mlflow.db")
    (place / "job.yaml").write_text(JOB, encoding="utf-8")
    run = ["study", "run", str(place / "job.yaml"), "--store", str(place), "--no-tracking", "--quiet"]
    for name, seed in (("small", "0"), ("other", "1")):
        assert cli.main([*run, "--seed", seed]) == 0
        (study,) = place.glob("job-*.study")
        study.rename(place / f"{name}.study")
    return place


@pytest.fixture(scope="module")
def commands(folder: Path) -> dict[str, list[str]]:
    return outputs(folder)


# What a stage spends a step on has had other names, stages of memory and cuts were counted from 1, `num_front` has counted
# near-equals, and every study had one seed.
VERSIONS = {"simulate": 3, "timeline": 2, "balance": 2, "study-status": 3, "study-front": 3, "study-list": 3}
# These do not end, or write a file; their tests follow.
OTHERWISE = ("ui", "report")
LONG = ("validate", "validate-row", "study-sync")


@pytest.mark.parametrize("name", cases_of([name for name in ANSWERS if name not in OTHERWISE], long=LONG))
def test_what_a_command_prints_keeps_its_schema_and_reads_back(
    name: str, commands: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*commands[name], "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    schema = schema_of(name)
    assert list(problems(printed, schema, schema)) == []
    assert printed["schema_version"] == VERSIONS.get(name, 1)
    again = ANSWERS[name].model_validate(printed).model_dump(mode="json", exclude_none=name == "catalog")
    assert again == printed


def test_the_record_of_a_report_keeps_its_schema_and_reads_back(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    command = ["report", "small", "--store", str(folder), "--format", "json", "--output", str(file)]
    assert cli.main([*command, "--quiet"]) == 0
    written = json.loads(file.read_text(encoding="utf-8"))
    schema = schema_of("report")
    assert list(problems(written, schema, schema)) == []
    assert written["format"] == f"capplan report {written['schema_version']}"
    assert ANSWERS["report"].model_validate(written).model_dump(mode="json") == written


def test_the_addresses_of_the_interface_keep_their_schema(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A server shows itself: its address is printed, and nothing is started or asked.
    monkeypatch.setattr("planner.tracking.page.store_to_show", str)
    monkeypatch.setattr("planner.tracking.page.newest_experiment", lambda _: "7")
    assert cli.main(["ui", "--tracking-uri", "http://127.0.0.1:9", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    schema = schema_of("ui")
    assert list(problems(printed, schema, schema)) == []
    assert printed["schema_version"] == 1


@pytest.mark.parametrize("arguments", [["explain"], ["explain", "memory"]])
def test_constraints_without_a_job_keep_the_schema_of_explain(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    schema = schema_of("explain")
    assert list(problems(printed, schema, schema)) == []
    assert printed["schema_version"] == 1


@pytest.mark.short(8)
@pytest.mark.parametrize("name", NAMES)
def test_the_command_prints_the_schema(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", name]) == 0
    assert capsys.readouterr().out == schema_text(name)


def test_each_form_of_a_field_of_a_job_file_is_listed_once() -> None:
    def choices(part: object) -> Iterator[list[object]]:
        if isinstance(part, dict):
            listed = part.get("anyOf")
            yield from [listed] if isinstance(listed, list) else []
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from choices(inner)

    found = list(choices(job_file_schema()))
    assert found
    assert all(form not in forms[:place] for forms in found for place, form in enumerate(forms))


def test_the_choices_of_the_command_are_the_schemas() -> None:
    assert SCHEMA_NAMES == NAMES


def test_an_unknown_schema_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", "jobs"]) == 2
    assert "'jobs' is not one of 'job', 'network', 'answer'" in capsys.readouterr().err
