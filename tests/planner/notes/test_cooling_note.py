"""Does an answer say where its power usage effectiveness is an estimate, and only there?"""

from __future__ import annotations

from planner import simulate_plan
from planner.notes.cooling_note import cooling_notes
from simulator import catalog
from simulator.domain.hardware import Site
from tests.support import job_with

PLAN = {"tp": 2, "dp": 16, "recompute": "full"}
SURVEY = "default, sites of 20 MW and more in the survey of the Uptime Institute"
"""What the catalogue's sites.csv says of sites whose operator publishes none."""


def told(site: object) -> list[str]:
    found = simulate_plan(job_with(site=site), PLAN, with_sensitivities=False)
    return [note for note in found.warnings if "power usage effectiveness" in note]


def test_an_answer_names_an_estimated_effectiveness_with_its_value_and_source() -> None:
    (note,) = told("us-iowa")
    assert note == (
        f"The power usage effectiveness of us-iowa, 1.44, is the catalogue's estimate ({SURVEY}): give "
        "the site's power_usage_effectiveness where another is known."
    )


def test_an_effectiveness_that_the_job_gives_has_no_note() -> None:
    assert told({"region": "us-iowa", "power_usage_effectiveness": 1.2}) == []


def test_what_is_said_of_an_estimate_is_true_of_one_that_the_job_gives_itself() -> None:
    (note,) = told({"region": "us-iowa", "power_usage_effectiveness": 1.44})
    assert "is the catalogue's estimate (" in note
    assert note.endswith("where another is known.")


def test_an_effectiveness_that_its_operator_publishes_has_no_note() -> None:
    published = [
        figure
        for figure in catalog.figures(catalog.Kind.SITES, "aws-ap-northeast-1")
        if "power" in figure.quantity
    ]
    assert {figure.confidence.value for figure in published} == {"verified"}
    assert told("aws-ap-northeast-1") == []


def test_a_hall_of_ones_own_has_no_note() -> None:
    own = Site(
        region="my hall", grid_kgco2e_per_kwh=0.1, electricity_usd_per_kwh=0.2, power_usage_effectiveness=1.44
    )
    assert [*cooling_notes([own])] == []


def test_sites_with_the_same_estimate_share_a_note() -> None:
    regions = ("us-iowa", "sweden", "austria", "brazil", "belgium", "us-iowa")
    (note,) = cooling_notes(map(catalog.site, regions))
    told = "austria, belgium, brazil, sweden, us-iowa"
    assert note.startswith(f"The power usage effectiveness of {told}, 1.44, ")
