"""Does a file describe a value of a given type? Tests with a small type made for them, and with every kind of file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import Field

from planner.calibration.file import load_calibration
from planner.deep.network_file import load_network
from planner.input.record_input import LONGEST_NAME, Filed, name_of, parse_record, read_record
from planner.job.file import load_job
from planner.purchase.fleet import load_fleet
from planner.sweep.grid import load_sweep
from simulator.errors import InputError
from simulator.record import Record


class Wheel(Record):
    num_spokes: int = Field(ge=3)
    """Spokes of a wheel."""
    note: str | None = None


class Bicycle(Filed):
    name: str = Field(default="bicycle", min_length=1, max_length=LONGEST_NAME)
    wheels: tuple[Wheel, ...] = Field(min_length=2)
    """Wheels, front first."""
    sprockets: tuple[int, ...] = (11, 13)


WHEEL = {"num_spokes": 36}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"wheels": [WHEEL]}, ['wheels = [{"num_spokes": 36}]: needs 2 or more entries']),
        ({}, ["wheels: is missing: Wheels, front first"]),
        ({"wheels": 3}, ["wheels = 3: must be a list, such as [a, b]"]),
        ({"wheels": [WHEEL, WHEEL], "sprockets": 12}, ["sprockets = 12: must be a list; write [12]"]),
        (
            {"wheels": [WHEEL, WHEEL], "sprockets": "12, 14"},
            ["sprockets = '12, 14': must be a list, such as [a, b]"],
        ),
        ({"wheels": [WHEEL, {}]}, ["wheels[1].num_spokes: is missing: Spokes of a wheel"]),
        ({"wheels": [WHEEL, 3]}, ["wheels[1] = 3: must be a mapping of fields: num_spokes, note"]),
        (
            {"wheels": [WHEEL, {"num_spoke": 2, "num_spokes": 2}], "saddle": 1},
            [
                "wheels[1].num_spoke = 2: unknown field; nearest: num_spokes",
                "wheels[1].num_spokes = 2: must be at least 3",
                "saddle = 1: unknown field; known: name, wheels, sprockets",
            ],
        ),
        (
            {"wheels": [WHEEL, {**WHEEL, "note": float("nan")}]},
            ["wheels[1].note = nan: must be a finite number"],
        ),
    ],
)
def test_all_problems_are_told_in_the_words_of_the_type(document: dict[str, object], told: list[str]) -> None:
    with pytest.raises(InputError, match=r"here: \d problem") as refusal:
        parse_record(Bicycle, document, source="here")
    assert [str(problem) for problem in refusal.value.problems] == told


def test_a_file_lends_its_name_to_what_has_none(tmp_path: Path) -> None:
    file = tmp_path / "tourer.json"
    file.write_text('{"wheels": [{"num_spokes": 36}, {"num_spokes": 32}]}')
    assert read_record(Bicycle, file, least="wheels").name == "tourer"
    file.write_text('{"name": "own", "wheels": [{"num_spokes": 36}, {"num_spokes": 32}]}')
    assert read_record(Bicycle, file, least="wheels").name == "own"


@pytest.mark.parametrize(
    ("stem", "name"),
    [("x" * 200, "x" * 100), ("job\udcff", "job?")],
    ids=["long", "no text"],
)
def test_a_name_that_a_file_lends_can_be_kept(stem: str, name: str) -> None:
    assert name_of(Path("folder") / f"{stem}.yaml") == name


@pytest.mark.parametrize(
    ("load", "least"),
    [
        (load_job, "workload, offers and site"),
        (load_fleet, "jobs, offers and site"),
        (load_sweep, "job, num_gpus and checkpoint_schemes"),
        (load_network, "network: {kind: ...}"),
        (load_calibration, "what `capplan calibrate --output FILE.yaml` writes"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize(("text", "rule"), [("", "is empty"), ("[1, 2]", "[1, 2] must be a ")])
def test_a_file_without_fields_is_told_what_its_kind_needs(
    load: Callable[[Path], object], least: str, text: str, rule: str, tmp_path: Path
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match="1 problem") as refusal:
        load(file)
    (problem,) = refusal.value.problems
    assert problem.rule.startswith(rule)
    assert problem.rule.endswith(least)


@pytest.mark.parametrize(
    ("load", "example", "told"),
    [
        (load_sweep, "bloom-176b.yaml", "is a job file, which `capplan recommend` takes"),
        (load_fleet, "bloom-176b.yaml", "is a job file, which `capplan recommend` takes"),
        (load_job, "fleet.yaml", "is a fleet, which `capplan purchase` takes"),
        (load_job, "studies/cluster-size-and-checkpointing.yaml", "is a sweep, which `capplan sweep` takes"),
    ],
)
def test_a_file_of_another_command_is_called_by_its_kind(
    load: Callable[[Path], Record], example: str, told: str
) -> None:
    with pytest.raises(InputError) as raised:
        load(Path(__file__).parents[3] / "examples" / example)
    (problem,) = raised.value.problems
    assert told in str(problem)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jobs: []\noffers: []\n", "is a fleet, which `capplan purchase` takes"),
        ("job: job.yaml\nnum_gpus: [8]\n", "is a sweep, which `capplan sweep` takes"),
    ],
)
def test_two_fields_are_enough_to_tell_the_kind_of_a_file(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match="1 problem") as raised:
        load_job(file)
    assert told in str(raised.value)


def test_an_answer_of_capplan_is_told_to_be_none_of_its_inputs(tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    file.write_text('{"schema_version": 1, "capplan_version": "0.1.0", "runs": []}')
    with pytest.raises(
        InputError, match=r"is an answer that capplan printed with --json; what is wanted here"
    ):
        read_record(Bicycle, file, least="wheels")
