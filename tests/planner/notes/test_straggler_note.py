"""Does an answer doubt the stragglers of published jobs where it is smaller than all of them, and only there?"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from planner import simulate_plan
from planner.notes.straggler_note import straggler_notes
from tests.simulator.builders import plan_of
from tests.support import job_with

SMALL: Mapping[str, object] = {"tp": 2, "dp": 16, "recompute": "full"}


def told(plan: Mapping[str, object] = SMALL, **sections: object) -> list[str]:
    found = simulate_plan(job_with(**sections), plan, with_sensitivities=False)
    assert found.design is not None
    return [note for note in found.warnings if note.startswith("Stragglers")]


def test_a_job_smaller_than_all_published_ones_has_a_note_with_the_share_that_it_is_charged() -> None:
    found = simulate_plan(job_with(), SMALL, with_sensitivities=False)
    assert found.design is not None
    charged = found.design.iteration_time_s / found.design.step_time_s - 1.0
    (note,) = told()
    assert note == (
        f"Stragglers lengthen the steps by {100 * charged:.1f} %, the mean of published jobs of at least 128 "
        "accelerators (docs/model/stragglers.md), probably too much for 32: reliability.straggler_log_mean=null "
        "leaves them out."
    )


def test_a_single_accelerator_waits_for_no_straggler() -> None:
    for num_gpus, doubt in ((1, ", but a single one waits for none:"), (2, ", probably too much for 2:")):
        (note,) = straggler_notes(job_with(), plan_of(data=num_gpus))
        assert doubt in note


@pytest.mark.parametrize(
    "reliability",
    [
        {"preset": "typical", "straggler_log_mean": None},
        {"preset": "typical", "straggler_log_mean": -4.0},
        {"preset": "typical", "stragglers": "dedicated"},
    ],
    ids=["none", "own", "causes"],
)
def test_stragglers_that_the_job_gives_have_no_note(reliability: Mapping[str, object]) -> None:
    assert told(reliability=reliability) == []


def test_a_job_of_the_size_of_published_ones_has_no_note() -> None:
    (note,) = told({**SMALL, "dp": 32})
    assert "too much for 64" in note
    assert told({**SMALL, "dp": 64}) == []
