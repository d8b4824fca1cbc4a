"""Does an answer say how much of a rent is for days after the run?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from planner import simulate_plan
from planner.notes.commitment_note import commitment_notes
from planner.text import human
from tests.support import H100_BOUGHT, H100_RENTED, job_with

PLAN = {"num_gpus": 16, "dp": 16, "zero": 3}


def told(offer: Mapping[str, object]) -> tuple[list[str], float, float]:
    """The notes, the days of the run and its rent."""
    job = job_with(offer)
    found = simulate_plan(job, PLAN, with_sensitivities=False)
    design = found.design
    assert design is not None
    notes = commitment_notes(job, design)
    assert set(notes) <= set(found.warnings)
    return notes, design.time_to_train_days, design.cost_parts_usd["rent_usd"]


def test_days_after_the_run_that_are_paid_for_are_told_with_their_rent() -> None:
    _, days, alone_usd = told(H100_RENTED)
    (note,), _, rent_usd = told({**H100_RENTED, "commitment_days": 4 * days})
    assert rent_usd == pytest.approx(4 * alone_usd)
    assert note.startswith("The rent is paid for ")
    assert "(offers[0].commitment_days)" in note
    # Three of four days are after the run.
    assert f": {human.dollars(3 * alone_usd)} of its cost is for days after it" in note


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_run_that_takes_the_committed_days_has_none_after_it(share: float) -> None:
    _, days, _ = told(H100_RENTED)
    assert told({**H100_RENTED, "commitment_days": share * days})[0] == []


def test_bought_nodes_have_no_rent() -> None:
    assert told(H100_BOUGHT)[0] == []
