"""Can a fleet have accelerators of the user's own catalogue, and jobs that were calibrated on some of its offers?"""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.purchase.fleet import Fleet
from planner.purchase.notes import notes_of
from planner.purchase.ways import jobs_of
from simulator.domain.calibration import CalibratedConstant, Calibration, ConstantName
from simulator.errors import InputError
from tests.planner.own_hardware import H100, OWN, own_catalog

A100 = "a100-sxm4-80gb"
RENT = {"usd_per_gpu_hour": 2.0, "max_nodes": 4}
WORKLOAD = {"model": "llama-3.1-8b", "tokens": 1e11, "sequence_length": 8192, "global_batch_size": 64}


def fleet_of(*offers: dict[str, object], job: dict[str, object] | None = None, **more: object) -> Fleet:
    jobs = [{"name": "first", "deadline_day": 90, "job": {"workload": WORKLOAD, **(job or {})}}]
    return Fleet.model_validate({"site": "us-iowa", "offers": offers, "jobs": jobs} | more)


def calibration_of(accelerator: str) -> Calibration:
    constant = CalibratedConstant(
        name=ConstantName.INTER_LINK_RATIO,
        accelerator=accelerator,
        value=0.5,
        published=1.0,
        log_deviation=0.1,
    )
    return Calibration(
        source="steps.csv",
        source_sha256="0" * 64,
        date="2026-11-30",
        num_rows=9,
        num_configurations=8,
        error_before_fraction=0.2,
        error_after_fraction=0.01,
        error_left_out_fraction=0.02,
        constants=(constant,),
    )


def test_a_fleet_offers_an_accelerator_that_the_catalogue_of_its_jobs_adds(tmp_path: Path) -> None:
    buy = {"usd_per_node": 2e3, "max_nodes": 4}
    fleet = fleet_of(
        {"accelerator": OWN, "buy": buy, "rent": RENT}, job={"catalog": str(own_catalog(tmp_path))}
    )
    jobs = jobs_of(fleet, tmp_path)
    assert jobs[0][0].offers[0].node.id == "our-node"
    assert notes_of(fleet, tmp_path, jobs) == ()  # of the node's price, the shipped catalogue knows nothing


def test_prices_in_another_unit_are_still_told_of_the_usual_node() -> None:
    fleet = fleet_of({"accelerator": H100, "buy": {"usd_per_node": 2e3, "max_nodes": 4}})
    (note,) = notes_of(fleet, Path(), jobs_of(fleet, Path()))
    assert note.startswith("The price of a node dgx-h100, 2,000 USD, is far from")


def test_a_calibration_of_one_offer_leaves_the_others_with_published_constants() -> None:
    calibration = calibration_of(H100).model_dump(mode="json", exclude_none=True)
    fleet = fleet_of(
        {"accelerator": A100, "rent": RENT},
        {"accelerator": H100, "rent": RENT},
        job={"calibration": calibration},
    )
    jobs = jobs_of(fleet, Path())
    assert {job.calibration for of_offer in jobs for job in of_offer} == {calibration_of(H100)}
    calibrated, uncovered = notes_of(fleet, Path(), jobs)
    assert calibrated.startswith("Constants are calibrated: 1 from 8 kernels in steps.csv (2026-11-30")
    assert uncovered == f"The calibration does not cover {A100}: published constants are used there."


def test_a_calibration_of_no_offer_of_the_fleet_is_refused() -> None:
    calibration = calibration_of(H100).model_dump(mode="json", exclude_none=True)
    fleet = fleet_of({"accelerator": A100, "rent": RENT}, job={"calibration": calibration})
    rule = rf"jobs\[0\].job.calibration = steps.csv: is of {H100}, and the job offers {A100}"
    with pytest.raises(InputError, match=rule):
        jobs_of(fleet, Path())


def test_a_calibration_of_one_job_is_told_with_its_name() -> None:
    calibration = calibration_of(H100).model_dump(mode="json", exclude_none=True)
    job = {"workload": WORKLOAD}
    jobs = [
        {"name": "ours", "deadline_day": 90, "job": {**job, "calibration": calibration}},
        {"name": "plain", "deadline_day": 90, "job": job},
    ]
    fleet = fleet_of({"accelerator": H100, "rent": RENT}, jobs=jobs)
    (note,) = notes_of(fleet, Path(), jobs_of(fleet, Path()))
    assert note.startswith("ours: Constants are calibrated")
