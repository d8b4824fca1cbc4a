"""Do the pictures of a front show its designs, the same bytes every time, and nothing where there is no front?"""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from planner import Recommendation, recommend
from planner.front_figure import front_figures
from tests.studies.study_jobs import small_job

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def answer() -> Recommendation:
    return recommend(
        small_job(tensor_parallel=[1], pipeline_parallel=[1], context_parallel=[1]), tracking=False
    )


def test_equal_fronts_give_equal_files_that_stand_alone(answer: Recommendation) -> None:
    figures = front_figures(answer)
    assert list(figures) == ["front.svg", "front-parallel.svg"]
    assert figures == front_figures(answer)
    for content in figures.values():
        root = ET.fromstring(content)  # noqa: S314 (our own file)
        assert root.tag == f"{SVG}svg"
        links = [value for node in root.iter() for name, value in node.items() if name.endswith("href")]
        assert all(link.startswith("#") for link in links)


def test_every_design_has_a_mark_in_each_panel_and_a_line(answer: Recommendation) -> None:
    figures = {name: ET.fromstring(content) for name, content in front_figures(answer).items()}  # noqa: S314
    dots = [
        group
        for group in figures["front.svg"].iter(f"{SVG}g")
        if str(group.get("id")).startswith("PathCollection")
    ]
    # Six pairs of four figures, in each the front and the ring of the recommended design.
    assert len(dots) == 6 * 2
    # A mark that is drawn once is no copy of a defined one, hence none of the ring.
    copies = sorted(len(list(group.iter(f"{SVG}use"))) for group in dots)
    assert copies == [0] * 6 + [len(answer.front)] * 6
    texts = "".join(figures["front.svg"].itertext())
    for axis in ("time to train, days", "cost, USD", "energy, kWh", "carbon, kg CO2e"):
        assert axis in texts


def test_without_a_front_there_is_nothing_to_draw(answer: Recommendation) -> None:
    assert front_figures(answer.model_copy(update={"front": ()})) == {}
