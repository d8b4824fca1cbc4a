"""Does everything exist that the page of other systems names, and does no row leave its question open?"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from planner.cli import commands

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "systems.md"
NAMED = [
    "TrioSim",
    "ASTRA-sim",
    "Chakra",
    "STG",
    "SimAI",
    "OpenDC",
    "Kavier",
    "vTrain",
    "DistSim",
    "Proteus",
    "Echo",
    "Lumos",
    "PRISM",
    "Phantora",
    "Multiverse",
    "ATLAHS",
    "LogGOPSim",
    "Vidur",
    "NeuSight",
    "Habitat",
    "Paleo",
    "Calculon",
    "SimuMax",
    "AMPeD",
    "MAD-Max",
    "DistIR",
    "FlexFlow",
    "Galvatron",
    "Sailor",
    "Metis",
    "MoFa",
]
"""Simulators and planners that the page must not lose."""


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in table if row[0] != "system"]


ROWS = rows()


def is_there(name: str) -> bool:
    """Whether a file, or a command of the command line with its subcommands, exists."""
    if not name.startswith("capplan "):
        return (ROOT / name).is_file()
    command: click.Command | None = commands
    for word in name.split()[1:]:
        if not isinstance(command, click.Group):
            return False
        command = command.commands.get(word)
    return command is not None


def test_every_system_has_a_row_of_five_cells() -> None:
    assert {len(row) for row in ROWS} == {5}
    first_cells = " ".join(row[0] for row in ROWS)
    assert [name for name in NAMED if name not in first_cells] == []
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_shows_something_that_exists_or_says_that_it_is_missing(row: list[str]) -> None:
    _, does, here, shown_by, missing = row
    assert does
    names = re.findall(r"`([^`]+)`", shown_by)
    assert [name for name in names if not is_there(name)] == []
    if not names:
        assert (here, shown_by) == ("-", "-")
        assert missing.startswith(("missing: ", "out of scope: "))


def test_names_that_do_not_exist_are_found() -> None:
    assert is_there("capplan trace simulate")
    assert not any(
        is_there(name) for name in ("capplan trace nothing", "capplan simulate it", "tests/none.py")
    )
