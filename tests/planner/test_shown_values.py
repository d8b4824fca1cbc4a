"""What do Python and notebooks show for an answer at the end of a cell? An outline, not a hundred kilobytes."""

from __future__ import annotations

from pathlib import Path

from planner import load_fleet, load_job, simulate_plan
from planner.calibration.answer import CalibrationAnswer, Held, RowFit
from planner.purchase.plan import Acquisition, PurchasePlan
from simulator.domain.calibration import CalibratedConstant, ConstantName
from tests.planner.calibrations import calibration_with
from tests.planner.hand_made import design, recommended
from tests.planner.simulated import BLOOM

LONGEST = 2_000
"""Characters that one can take in at a glance."""


def test_an_answer_shows_its_outline() -> None:
    answer = recommended().model_copy(update={"front": (design(),) * 50})
    for shown in (repr(answer), str(answer)):
        assert len(shown) < LONGEST
        assert "status='recommended'" in shown
        assert "num_gpus=1024" in shown
        assert "num_front=50" in shown


def test_a_simulated_plan_shows_what_it_comes_to_and_breaks() -> None:
    found = simulate_plan(load_job(BLOOM), {"tp": 4, "pp": 12, "dp": 8, "mbs": 2}, with_sensitivities=False)
    assert len(repr(found)) < LONGEST
    assert f"cost_usd={found.design.cost_usd}" in repr(found) if found.design else False
    assert "is_feasible=" in repr(found)


def test_a_job_and_a_fleet_show_what_they_ask_for() -> None:
    job = load_job(BLOOM)
    assert len(repr(job)) < LONGEST
    assert "model='BLOOM 176B'" in repr(job)
    assert "'a100-sxm4-80gb'" in repr(job)
    fleet = load_fleet(Path(BLOOM).with_name("fleet.yaml"))
    many = fleet.model_copy(update={"jobs": fleet.jobs * 12})
    assert len(repr(many)) < LONGEST
    assert f"num_jobs={len(many.jobs)}" in repr(many)


def test_a_plan_of_purchases_shows_what_it_costs() -> None:
    plan = PurchasePlan.model_construct(
        fleet="labs",
        status="optimal",
        cost_usd=3e6,
        bound_usd=3e6,
        capital_usd=2e6,
        carbon_kgco2e=1e5,
        acquisitions=(Acquisition.model_construct(),) * 500,
        runs=(),
        conflict=(),
    )
    assert len(repr(plan)) < LONGEST
    assert "cost_usd=3000000.0" in repr(plan)
    assert "num_acquisitions=500" in repr(plan)


def test_a_calibration_shows_its_errors_and_what_stays_published() -> None:
    name = ConstantName.HOST_LAUNCH_S
    fitted = calibration_with([CalibratedConstant(name=name, value=1e-5, published=8e-6, log_deviation=0.1)])
    answer = CalibrationAnswer(
        calibration=fitted,
        held=(Held(name="memory_fraction", value=0.9, why="one accelerator alone"),),
        rows=(RowFit.model_construct(),) * 500,
    )
    assert len(repr(answer)) < LONGEST
    assert "num_constants=1" in repr(answer)
    assert "held=['memory_fraction']" in repr(answer)
    assert "num_rows=500" in repr(answer)


def test_what_is_not_shown_is_still_compared_and_kept() -> None:
    assert design() != design().model_copy(update={"peak_power_w": 0.0})
    assert type(design()).model_validate_json(design().model_dump_json()) == design()
