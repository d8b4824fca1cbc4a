"""Is the table of other systems complete, and does everything exist that it names?"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest

from objectives.metrics import MetricTable
from planner.one_design.simulated_design import SimulatedDesign
from planner.recommended.recommendation import Design, Recommendation
from simulator.domain.job import Job
from simulator.record import Record

PAGE = Path(__file__).parents[3] / "docs" / "cost-energy-carbon.md"
SURVEYED = {
    "EETCO": "yyny",
    "Baidu": "yynn",
    "Moonwalk": "yynn",
    "GreenChip": "nnyy",
    "MLCO2": "nnny",
    "experiment-impact-tracker": "nnny",
    "ACT": "nnyy",
    "imec.netzero": "ynyy",
    "Carbon Explorer": "nnyy",
    "Luccioni et al.": "nnyy",
    "TTM-CAS, Ning et al.": "ynnn",
    "Chiplet Cloud": "yynn",
    "CodeCarbon": "nnny",
    "GreenSKU": "nnyy",
    "LLMCarbon": "nnyy",
    "OpenCarbonEval": "nnyy",
    "SCARIF": "nnyy",
    "CATCH": "yynn",
    "CATransformers": "nnyy",
    "CORDOBA": "nnyy",
    "GreenScale": "nnyy",
}
"""Systems of the survey's Table VII with its columns: capital and operating cost, embodied and operational carbon."""


def rows() -> list[list[str]]:
    table = PAGE.read_text(encoding="utf-8").partition("| system | cap |")[2].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def field_types(annotation: object) -> list[type[Record]]:
    """The records that a field may hold."""
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return [annotation]
    return [found for part in get_args(annotation) for found in field_types(part)]


def is_field_of(model: type[Record], path: str) -> bool:
    first, _, rest = path.partition(".")
    field = model.model_fields.get(first.removesuffix("[]"))
    if field is None:
        return False
    return not rest or any(is_field_of(inner, rest) for inner in field_types(field.annotation))


def exists(name: str) -> bool:
    if name.startswith(("objectives.", "simulator.", "planner.")):
        return find_spec(name) is not None
    answers = {
        *Design.model_fields,
        *SimulatedDesign.model_fields,
        *Recommendation.model_fields,
        *MetricTable.names(),
    }
    return name in answers or is_field_of(Job, name)


def test_every_system_of_the_survey_is_listed_with_what_it_models() -> None:
    found = {cells[0].partition(" (")[0]: "".join(cell[0] for cell in cells[1:5]) for cells in rows()}
    assert {system: found.get(system) for system in SURVEYED} == SURVEYED
    assert found["capplan"] == "yyyy"


@pytest.mark.parametrize("cells", rows(), ids=lambda cells: cells[0])
def test_what_the_table_names_exists_and_the_rest_is_called_out_of_scope(cells: list[str]) -> None:
    names = re.findall(r"`([^`]+)`", cells[-1])
    assert names or cells[-1].startswith("out of scope: ")
    assert [name for name in names if not exists(name)] == []


def test_a_name_that_nothing_has_is_found_out() -> None:
    assert exists("offers[].accelerator.dies")
    assert not exists("offers[].accelerator.atoms")
    assert not exists("start_within_hours")
    assert not exists("objectives.nothing")
