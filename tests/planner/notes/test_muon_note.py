"""Do answers say what Muon's update rests on, what pads its buffers, and with which settings it would be faster?"""

from __future__ import annotations

import pytest

from planner.notes.muon_note import muon_notes
from simulator.domain.model import ModelShape
from simulator.domain.muon import Muon
from simulator.domain.plan import Plan
from tests.simulator.builders import changed, gpt, job_of, plan_of, step_of, training

WIDE = gpt(num_layers=16, hidden_size=8192, num_heads=64)
SMALL = gpt(num_layers=16)


def told(plan: Plan, muon: Muon | None = None, model: ModelShape = WIDE) -> list[str]:
    return muon_notes(job_of(changed(training(model, global_batch_size=128), muon=muon)), plan)


def test_adam_has_no_note() -> None:
    assert told(plan_of(data=8)) == []


def test_the_time_of_the_update_is_told_as_not_measured() -> None:
    (note,) = told(plan_of(data=2), Muon())
    step = step_of(changed(training(WIDE, global_batch_size=128), muon=Muon()), plan_of(data=2))
    assert note.startswith("No published step with Muon stands behind the time of its update")
    assert f"{step.optimizer_s[0] * 1e3:.0f} ms" in note or f"{step.optimizer_s[0]:.2f} s" in note


def test_padding_is_told_from_a_tenth_on() -> None:
    packed = Muon(reduction="reduce_scatter")
    padded = [
        any("longer than the weights" in each for each in told(plan_of(data=d), packed, SMALL))
        for d in (1, 64)
    ]
    assert padded == [False, True]
    assert not any("longer" in each for each in told(plan_of(data=64), Muon(reduction="all_reduce"), SMALL))


@pytest.mark.parametrize(
    ("muon", "plan", "better"),
    [
        (Muon(), plan_of(tensor=8, data=2), "tensor_mode=distributed"),
        (Muon(reduction="reduce_scatter"), plan_of(tensor=8, data=128), "reduction=all_reduce"),
        (Muon(reduction="all_reduce"), plan_of(tensor=4, data=8), "reduction=reduce_scatter"),
    ],
)
def test_faster_settings_are_told(muon: Muon, plan: Plan, better: str) -> None:
    (note,) = (each for each in told(plan, muon) if f"workload.muon.{better}" in each)
    name, value = better.split("=")
    workload = changed(training(WIDE, global_batch_size=128), muon=muon)
    other = changed(workload, muon=changed(muon, **{name: value}))
    change = step_of(other, plan).step_time_s[0] / step_of(workload, plan).step_time_s[0] - 1.0
    assert change < -0.01
    assert f"({100 * change:.1f} %)" in note


def test_another_update_and_what_is_fastest_are_not_told() -> None:
    assert not any(
        "blockwise" in each or "tensor_mode" in each
        for each in told(plan_of(tensor=8), Muon(tensor_mode="blockwise"))
    )
    assert not any("tensor_mode" in each for each in told(plan_of(tensor=8), Muon(tensor_mode="distributed")))
