"""Are the ways out of degrees that contradict the number of accelerators those that make the product right?"""

from __future__ import annotations

import re

import pytest
from rich.console import Console

from constraints.limits import with_limits
from planner.explain.answer import explain_plan
from planner.explain.view import WAYS_OUT, show_plan
from planner.one_design.simulated_design import simulate_plan
from tests.support import job_with

JOB = job_with(search={"micro_batch_sizes": [1], "zero_stages": [1], "recompute": ["none", "full"]})


def test_degrees_that_contradict_the_accelerators_have_the_right_ones_as_ways_out() -> None:
    # 2 x 1 x 1 x 8 is 16: twice a degree is 32, and TP 4, PP 2, CP 2 and DP 16 divide heads, layers, tokens and batch.
    explained = explain_plan(JOB, {"tp": 2, "dp": 8, "num_gpus": 32})
    assert [check.constraint for check in explained.checks if check.state == "broken"] == ["degrees"]
    assert [(choice.name, choice.value, choice.plan.num_gpus) for choice in explained.ways_out] == [
        ("tensor_parallel", 4, 32),
        ("pipeline_parallel", 2, 32),
        ("context_parallel", 2, 32),
        ("data_parallel", 16, 32),
        ("num_gpus", 16, 16),
    ]
    for choice in explained.ways_out:
        assert explain_plan(JOB, choice.plan).is_feasible
        told = simulate_plan(JOB, choice.plan, with_sensitivities=False).design
        assert told is not None
        assert choice.time_to_train_days == told.time_to_train_days


def test_a_degree_that_makes_the_product_right_and_breaks_another_constraint_is_no_way_out() -> None:
    # Neither 3 nor 6 divides the 32 heads.
    explained = explain_plan(JOB, {"tp": 3, "dp": 8, "num_gpus": 48})
    assert not explained.ways_out
    limited = with_limits(JOB, {"num_gpus": 16})
    (choice,) = explain_plan(limited, {"tp": 2, "dp": 8, "num_gpus": 32}).ways_out
    assert (choice.name, choice.value) == ("num_gpus", 16)


def test_ways_out_of_degrees_are_told_as_others_and_none_was_tried_by_a_search(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan(explain_plan(JOB, {"tp": 2, "dp": 8, "num_gpus": 32}), Console(width=200))
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(
        rf"{WAYS_OUT} TP 4 \(.*\) PP 2 \(.*\) CP 2 \(.*\) DP 16 \(.*\) accelerators 16 \(", shown
    )
    show_plan(explain_plan(JOB, {"tp": 3, "dp": 8, "num_gpus": 48}), Console(width=200))
    assert f"{WAYS_OUT} None, of single degrees and numbers" in " ".join(capsys.readouterr().out.split())
