"""Does the page on carbon reports reproduce what was published of BLOOM, and name figures that answers have?"""

from __future__ import annotations

import re

import pytest

from docs.carbon_report import JOB, PAGE, PLAN, rows
from planner import load_job, simulate_plan

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cells() -> dict[str, list[str]]:
    return {part: figures for part, *figures in rows()}


# arXiv 2211.02001, abstract and section 4: 24.7 t of dynamic consumption, 50.5 t in all, 11.2 t of them embodied.
def test_the_published_parts_add_up_to_the_published_sum(cells: dict[str, list[str]]) -> None:
    assert cells["sum, t CO2e"][0] == "50.5"
    mwh, tonnes = (re.findall(r"[0-9.]+", cells[part][0]) for part in ("energy, MWh", "operation, t CO2e"))
    for energy, emitted in zip(mwh, tonnes, strict=True):  # at 57 g/kWh
        assert float(energy) * 0.057 == pytest.approx(float(emitted), abs=0.05)
    embodied = sum(float(cells[f"making the {part}, t CO2e"][0]) for part in ("servers", "GPUs"))
    assert embodied == pytest.approx(11.2, abs=0.05)


@pytest.mark.parametrize(
    "part", ["energy, MWh", "operation, t CO2e", "making the servers, t CO2e", "making the GPUs, t CO2e"]
)
def test_the_same_inputs_give_the_published_figures(cells: dict[str, list[str]], part: str) -> None:
    published, ours, _ = (float(cell.partition(",")[0]) for cell in cells[part])
    assert ours == pytest.approx(published, rel=5e-3)


def test_the_simulated_parts_are_those_of_the_design_and_its_sum_has_replacements(
    cells: dict[str, list[str]],
) -> None:
    design = simulate_plan(load_job(JOB), PLAN, with_sensitivities=False).design
    assert design is not None
    shown = [float(cells[name][2]) for name in cells if name not in ("energy, MWh", "sum, t CO2e")]
    replaced = design.carbon_parts_kgco2e["embodied_replacements_kgco2e"] / 1e3
    assert replaced > 0.5
    assert float(cells["sum, t CO2e"][2]) == pytest.approx(sum(shown) + replaced, abs=0.1)


def test_the_fields_that_the_page_names_are_those_of_a_design() -> None:
    design = simulate_plan(load_job(JOB), PLAN, with_sensitivities=False).design
    assert design is not None
    table = TEXT.partition("| to state |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)(?:\.(\w+))?`", table))
    elsewhere = {
        ("design", ""),
        ("carbon_scope", ""),
        ("site", "market_kgco2e_per_kwh"),
    }  # of the answer and of the job
    assert elsewhere < named
    for field, part in named - elsewhere:
        value = getattr(design, field)
        assert not part or part in value
