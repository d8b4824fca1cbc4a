"""Do error messages use the caller's names: arguments for Python callers, options at a terminal?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner import load_job, recommend, simulate_plan
from planner.cli.commands import main
from planner.cli.options.names import OTHERWISE_TYPED, message_of
from simulator.argument_names import Argument, Words
from simulator.errors import InputError, Problem, TrackingError
from tests.planner.simulated import BLOOM
from tests.simulator.deep.traces import write_small

MEMORY = "sqlite:///:memory:"
NOBODY = "http://127.0.0.1:9"


def test_a_store_is_named_by_its_argument_and_by_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError) as caught:
        recommend(load_job(BLOOM), tracking_uri=MEMORY)
    assert [problem.path for problem in caught.value.problems] == ["tracking_uri"]
    assert main(["recommend", str(BLOOM), "--tracking-uri", MEMORY]) == 2
    assert f"--tracking-uri = {MEMORY}: is a store in memory" in capsys.readouterr().err


def test_a_server_that_is_away_is_named_by_its_argument_and_by_its_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(TrackingError) as caught:
        recommend(load_job(BLOOM), tracking_uri=NOBODY)
    assert f"{NOBODY} (tracking_uri): " in str(caught.value)
    assert str(caught.value).endswith("tracking=False answers without MLflow.")
    assert "--" not in str(caught.value)
    assert main(["recommend", str(BLOOM), "--tracking-uri", NOBODY]) == 1
    told = capsys.readouterr().err
    assert f"{NOBODY} (--tracking-uri): " in told
    assert "--no-tracking answers without MLflow." in told


def test_an_override_is_named_by_its_place_and_by_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    fine, broken = "site=us-iowa", "limits.budget_usd"
    with pytest.raises(InputError) as caught:
        load_job(BLOOM, [fine, broken])
    assert [problem.path for problem in caught.value.problems] == ["overrides[1]"]
    assert main(["recommend", str(BLOOM), "--set", fine, "--set", broken]) == 2
    assert "--set = 'limits.budget_usd': must be a path" in capsys.readouterr().err


def test_fields_of_a_file_keep_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        f"{Path(BLOOM).read_text(encoding='utf-8')}\noutput: x\noverrides: []\n", encoding="utf-8"
    )
    assert main(["recommend", str(file), "--no-tracking"]) == 2
    told = capsys.readouterr().err
    assert "\n  output = 'x': unknown field" in told
    assert "\n  overrides = []: unknown field" in told
    assert "--" not in told


def test_a_plan_that_was_typed_is_named_by_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"^plan: 1 problem\n  tp = 'x': must be a whole number"):
        simulate_plan(load_job(BLOOM), {"tp": "x"})
    assert main(["simulate", str(BLOOM), "--plan", "tp=x"]) == 2
    assert "--plan: 1 problem\n  tp = 'x': must be a whole number" in capsys.readouterr().err


def test_advice_to_give_an_argument_names_its_option() -> None:
    refused = InputError(
        [Problem(path="device", value="ACME 9000", rule=Words("say ", Argument("accelerator", "NAME")))]
    )
    assert str(refused).endswith("device = ACME 9000: say accelerator=NAME")
    assert message_of(refused).endswith("device = ACME 9000: say --accelerator NAME")


TRACE = ("trace", "simulate", "{small}", "--gpus", "8")
HOP = (*TRACE, "--parallel", "hop")
TRIOSIM = (*TRACE, "--rules", "triosim")
TRIOSIM_LACKS = "is nothing that --rules triosim covers: leave one of them out"
HOP_LACKS = "is nothing that workers of --parallel hop have: leave it out"
H100 = "h100-sxm5-80gb"
PLAN = ("{bloom}", "--plan", "tp=8,pp=4,dp=4")

REFUSALS: tuple[tuple[tuple[str, ...], str], ...] = (
    ((*TRACE, "--parallel", "ddp=3"), "--parallel = ddp=3: the degrees multiply to 3, and --gpus is 8"),
    ((*TRACE, "--order", "gpipe"), "leave it out, or give --microbatches"),
    ((*TRACE, "--hop", "gap=3"), "--hop = gap=3: is read with --parallel hop only"),
    ((*TRACE, "--on", H100), f"--on = {H100}: needs --traced-on, and the other way round"),
    ((*TRACE, "--traced-on", H100, "--on", "x9"), "--on = x9: is not among the catalogue's accelerators"),
    ((*TRACE, "--traced-on", "x9", "--on", H100), "--traced-on = x9: is not among the catalogue's"),
    ((*TRACE, "--speed", "9=0.5"), "--speed = 9: must be an accelerator, 0 to 7"),
    (
        (*TRACE, "--offload", "host=1e9"),
        "--offload memory: must be given: bytes of each accelerator; or name one with --on NAME",
    ),
    ((*TRACE, "--offload", "x=3"), "--offload = x=3: must begin with a key"),
    (
        (*TRACE, "--parallel", "fsdp", "--offload", "memory=9e9,host=1e9"),
        "--parallel = fsdp: must be left out",
    ),
    ((*TRACE, "--interleaved", "2"), "--interleaved = 2: must be 1 without a pipeline"),
    ((*TRACE, "--slow-link", "x=0.5"), "--slow-link = x: is no link of network 'ring'"),
    ((*TRACE, "--network", "nodes", "--gpus-per-node", "3"), "--gpus = 8: must be a multiple of 3"),
    ((*TRACE, "--output", "{file}"), "--output = {file}: exists and is no timeline of capplan"),
    ((*TRIOSIM, "--speed", "1=0.5"), f"--speed: {TRIOSIM_LACKS}"),
    ((*TRIOSIM, "--slow-link", "x=0.5"), f"--slow-link: {TRIOSIM_LACKS}"),
    ((*TRIOSIM, "--interleaved", "2"), f"--interleaved: {TRIOSIM_LACKS}"),
    ((*TRIOSIM, "--network", "switch"), f"--network: {TRIOSIM_LACKS}"),
    ((*TRIOSIM, "--on", H100), f"--on: {TRIOSIM_LACKS}"),
    ((*HOP, "--microbatches", "2"), f"--microbatches: {HOP_LACKS}"),
    ((*HOP, "--rules", "triosim"), f"--rules: {HOP_LACKS}"),
    ((*HOP, "--hop", "gap=0"), "--hop gap = 0: must be a whole number"),
    (
        (*HOP, "--hop", "gap=3,skip=3"),
        "--hop skip = 3: must be at least 1 and below --hop gap (3), beyond which",
    ),
    ((*HOP, "--hop", "graph={pairs}"), "--hop graph[0] = [0, 0]: joins a worker to itself"),
    (
        ("trace", "export", "{small}", "--gpus", "4", "--output", "{file}"),
        "--output = {file}: cannot be a folder, since {file} is a file",
    ),
    (
        ("trace", "capture", "none.py", "--batch-size", "3", "--output", "{new}"),
        "SCRIPT = none.py: is no file",
    ),
    (
        ("trace", "export-plan", "{bloom}", "--plan", "tp", "--output", "{new}"),
        "--plan = 'tp': must be key=value",
    ),
    (("explain", "{bloom}", "--plan", "pp=999,dp=8", "--balance"), "--plan: 1 problem"),
    (("explain", "no-rule"), "CONSTRAINT = 'no-rule': is no constraint"),
    (("simulate", *PLAN, "--timeline", "{file}"), "--timeline = {file}: exists and is no timeline"),
    (("simulate", *PLAN, "--set", "x"), "--set = 'x': must be a path"),
    (("compare", "{bloom}", "{bloom}", "--html", "{file}"), "--html = {file}: exists and is no comparison"),
    (
        ("recommend", "{bloom}", "--output", "{file}"),
        "--output = {file}: cannot be a folder, since {file} is a file",
    ),
    (
        ("opendc", "export", *PLAN, "--start", "9999-12-01", "--output", "{new}"),
        "--start = 9999-12-01: must be earlier",
    ),
    (
        ("opendc", "export", *PLAN, "--output", "{file}"),
        "--output = {file}: cannot be a folder, since {file} is a file",
    ),
    (("study", "list", "--store", "{file}"), "name another folder with --store, there already or not"),
    (("report", "{folder}"), "FOLDER = {folder}: holds no answer of `capplan recommend --output`"),
    (
        ("calibrate", "--measured", "examples/calibration/steps.csv", "--accelerator", "x9"),
        "--accelerator = x9: is not",
    ),
    (
        ("ui", "--tracking-uri", "sqlite:///{new}"),
        "--tracking-uri = sqlite:///{new}: there is no such store yet",
    ),
)
"""What is typed, and what is read then."""
IN_PYTHON = re.compile(
    rf"(?<![\w.\]])(?:{'|'.join(name for name in OTHERWISE_TYPED if '_' in name)}|tracking_uri|traced_on|\w+_s)(?!\w)"
)
"""Names of arguments that no word is like."""


@pytest.mark.parametrize(("arguments", "told"), REFUSALS)
def test_refusals_name_what_was_typed(
    arguments: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "pairs.json").write_text("[[0, 0]]")
    places = {
        "bloom": BLOOM,
        "small": write_small(tmp_path / "small"),
        "file": tmp_path / "mine",
        "folder": tmp_path,
        "new": tmp_path / "new",
        "pairs": tmp_path / "pairs.json",
    }
    assert main([each.format(**places) for each in arguments]) in {1, 2}
    err = capsys.readouterr().err
    assert told.format(**places) in err
    assert not IN_PYTHON.search(err.replace(str(tmp_path), "").partition("known: ")[0])
