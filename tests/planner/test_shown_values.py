"""What do Python and notebooks show of an answer that is typed at the end of a cell? Its outline, not a hundred kilobytes."""

from __future__ import annotations

from planner import load_job, simulate_plan
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


def test_what_is_not_shown_is_still_compared_and_kept() -> None:
    assert design() != design().model_copy(update={"peak_power_w": 0.0})
    assert type(design()).model_validate_json(design().model_dump_json()) == design()
