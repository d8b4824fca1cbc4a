"""Does the answer say what its carbon and its water count?"""

from __future__ import annotations

import pytest

from planner.compare.side_by_side import compare
from planner.compare.sides import Side
from planner.grid_conventions import grid_convention, grid_notes
from planner.notes.carbon_scope import scope_text
from planner.notes.cautions import cautions_on_plan
from planner.recommended.design_words import merits
from planner.recommended.designs import design_at
from planner.water_scopes import water_notes, water_scope
from simulator.domain.hardware import Site
from simulator.domain.plan import Plan
from tests.planner.compared import HOURLY, case_of, chosen_of
from tests.support import A100_RENTED, H100_RENTED, job_with


def test_the_scope_is_named_with_what_it_leaves_out() -> None:
    assert scope_text(job_with()) == (
        "location-based grid, annual mean (combustion, 2020); embodied: accelerators, hosts, replacements; "
        "excluded: network, storage, building"
    )
    every = dict.fromkeys(("network", "storage", "building"), True)
    flash = {"capacity_bytes": 1e15}
    told = scope_text(job_with(H100_RENTED, carbon_scope=every, storage=flash, site=HOURLY))
    assert "excluded" not in told
    assert "hourly" in told


def test_the_scope_tells_sites_apart_that_are_counted_otherwise() -> None:
    job = job_with(H100_RENTED, {**A100_RENTED, "site": HOURLY}, site="france")
    expected = (
        "location-based grid, hourly in us-iowa and annual mean in france "
        "(france: life cycle, 2024; us-iowa: the job's own figure); embodied"
    )
    assert scope_text(job).startswith(expected)
    # Two halls of one region may have grids of different sources, too.
    own = {"region": "us-iowa", "grid_kgco2e_per_kwh": 0.05}
    halls = job_with(H100_RENTED, {**A100_RENTED, "site": own}, site="us-iowa")
    assert "(us-iowa: combustion, 2020; us-iowa: the job's own figure)" in scope_text(halls)
    # A site of the job at which no offer stands counts nothing.
    elsewhere = job_with({**H100_RENTED, "site": HOURLY}, site="france")
    assert scope_text(elsewhere).startswith("location-based grid, hourly (the job's own figure); embodied")


class TestConventions:
    def test_sites_that_count_their_grids_otherwise_are_a_warning(self) -> None:
        # Virginia's figure is the EPA's of 2020, combustion alone; Norway's is Ember's of 2025, life cycle.
        job = job_with({**H100_RENTED, "site": "us-virginia"}, {**A100_RENTED, "site": "norway"})
        (note,) = (note for note in cautions_on_plan(job) if "conventions" in note)
        assert (
            "(us-virginia: combustion, 2020, grid of a region; norway: life cycle, 2025, national mean)"
            in note
        )
        alike = job_with({**H100_RENTED, "site": "france"}, {**A100_RENTED, "site": "norway"})
        assert not any("conventions" in note for note in cautions_on_plan(alike))
        asked = job_with({**H100_RENTED, "site": "us-virginia"}, what_if={"sites": ["poland"]})
        assert any("poland: life cycle, 2024" in note for note in cautions_on_plan(asked))
        told = "grid by another convention: life cycle, 2024, national mean; water "
        assert case_of(asked, "in poland").note.startswith(told)

    def test_a_figure_of_the_job_is_not_the_catalogues(self) -> None:
        own = job_with(site={"region": "norway", "grid_kgco2e_per_kwh": 0.02}).site
        assert grid_convention(own).words == "the job's own figure"
        assert grid_convention(job_with(site="norway").site).words == "life cycle, 2025"

    def test_sites_with_the_mean_of_their_country_are_told(self) -> None:
        # Both in Oregon: AWS has the mean of the United States, Google its grid region.
        aws, google = (job_with(site=name).site for name in ("aws-us-west-2", "gcp-us-west1"))
        (note,) = grid_notes([aws, google])
        assert "aws-us-west-2: life cycle, 2025, mean of united-states" in note
        assert "gcp-us-west1: operation alone, 2024, grid of a region" in note
        (note,) = grid_notes([aws, job_with(site="aws-us-east-1").site])
        assert note.startswith("The grids of aws-us-east-1 and aws-us-west-2 cannot be distinguished")

    def test_a_region_with_several_conventions_is_named_once(self) -> None:
        own = {"region": "norway", "grid_kgco2e_per_kwh": 0.02}
        (note,) = grid_notes(job_with(site=site).site for site in ("norway", own))
        assert "(norway: life cycle, 2025, national mean, and the job's own figure)" in note

    @pytest.mark.parametrize(
        ("known", "words"),
        [
            ({}, "power stations only; on-site use unknown"),
            ({"water_onsite_l_per_kwh": 0.2}, "on site and at power stations"),
        ],
    )
    def test_water_says_which_part_of_it_is_known(self, known: dict[str, float], words: str) -> None:
        job = job_with(site={"region": "norway", **known})
        design = design_at(job, chosen_of(job), 0, 1)
        assert design.water_scope == words
        assert ("water", words) in [(name, note) for name, _, note in merits(design)]

    def test_water_at_the_site_alone_is_said_too(self) -> None:
        site = Site(
            region="own",
            grid_kgco2e_per_kwh=0.1,
            electricity_usd_per_kwh=0.1,
            power_usage_effectiveness=1.1,
            water_onsite_l_per_kwh=0.2,
        )
        assert water_scope(site) == "on site only; power stations unknown"

    def test_sites_that_count_different_water_are_told(self) -> None:
        names = ("norway", "sweden")
        dry, wet = (job_with(site={"region": name}).site for name in names)
        assert list(water_notes([dry, wet])) == []
        (note,) = water_notes([dry, wet.model_copy(update={"water_onsite_l_per_kwh": 0.2})])
        told = "(norway: power stations only; sweden: on site and at power stations)"
        assert note.startswith(f"Water is not the same quantity at these sites {told}: ")
        # A site of which no water is known has no figure that could be compared.
        unknown = {"water_onsite_l_per_kwh": None, "water_offsite_l_per_kwh": None}
        assert list(water_notes([dry, wet.model_copy(update=unknown)])) == []

    def test_answers_and_comparisons_tell_different_water(self) -> None:
        wet = {"region": "sweden", "water_onsite_l_per_kwh": 0.2}
        offer = {**H100_RENTED, "num_gpus": 64}
        sides = []
        for name, site in (("dry", "norway"), ("wet", wet)):
            job = job_with(offer | {"site": site}, site="norway")
            sides.append(Side(name=name, job=job, plan=Plan(offer=0, num_gpus=64, data_parallel=64)))
        assert any(note.startswith("Water is not") for note in compare(sides).warnings)
        both = job_with(offer | {"site": "norway"}, offer | {"site": wet}, site="norway")
        assert any(note.startswith("Water is not") for note in cautions_on_plan(both))
