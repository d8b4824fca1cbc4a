"""Do refusals name what was given: arguments to Python callers, options to somebody at a terminal?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner import load_job, recommend
from planner.cli.commands import main
from planner.cli.options.names import message_of
from simulator.errors import InputError, Problem, TrackingError
from tests.planner.simulated import BLOOM

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


def test_a_plan_that_was_typed_is_named_by_its_option() -> None:
    refused = InputError([Problem(path="tp", value="x", rule="must be a whole number")], "plan")
    assert message_of(refused) == "--plan: 1 problem\n  tp = x: must be a whole number"


def test_rules_that_name_arguments_name_options_at_a_terminal() -> None:
    rule = "is not known by this name; say what it is with accelerator=NAME"
    refused = InputError([Problem(path="device", value="ACME 9000", rule=rule)])
    assert message_of(refused).endswith(
        "device = ACME 9000: is not known by this name; say what it is with --accelerator NAME"
    )
