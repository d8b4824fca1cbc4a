"""Are numbers refused whose products are not finite, and do all others give finite figures?"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from planner import parse_job, simulate_plan
from planner.input.magnitude import LEAST, MOST, out_of_reach
from simulator.errors import InputError
from tests.planner.job_documents import DOCUMENT

PLAN = {"dp": 64, "zero_stage": 2}


def test_the_third_power_of_every_figure_is_a_float_with_full_precision() -> None:
    assert math.isfinite(MOST**3)
    assert LEAST**3 > 2.2250738585072014e-308  # the smallest normal 64-bit float (IEEE 754)


def test_only_numbers_beyond_the_ends_are_told_each_with_its_place() -> None:
    value = {
        "fine": [0.0, MOST, -MOST, LEAST, -LEAST, 10**40, "1e308", True, None],
        "far": (1.1e30, -1e31, 9e-31, -1e-40),
    }
    assert list(out_of_reach(value)) == [
        (("far", 0), 1.1e30, "must be at most 1e+30"),
        (("far", 1), -1e31, "must be at least -1e+30"),
        (("far", 2), 9e-31, "must be at least 1e-30, or 0"),
        (("far", 3), -1e-40, "must be at most -1e-30, or 0"),
    ]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("storage.capacity_power_w=1e308", "storage.capacity_power_w = 1e+308: must be at most 1e+30"),
        ("limits.budget_usd=1e-308", "limits.budget_usd = 1e-308: must be at least 1e-30, or 0"),
        ("operation.power_ramp_s=1e-308", "operation.power_ramp_s = 1e-308: must be at least 1e-30, or 0"),
        ("ownership.utilization_fraction=1e-308", "must be at least 1e-30, or 0"),
        (
            "site={region: us-iowa, power_usage_effectiveness: 1e308}",
            "must be at most 5",
        ),  # the narrower rule
    ],
)
def test_a_job_with_such_a_number_is_refused(override: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_job(DOCUMENT, overrides=[override])
    (problem,) = caught.value.problems
    assert told in str(problem)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "override",
    [
        "storage.capacity_power_w=1e30",
        "limits.budget_usd=1e30",
        "limits.budget_usd=1e-30",
        "limits.carbon_kgco2e=1e-30",
        "operation.power_ramp_s=1e-30",
        "ownership.utilization_fraction=1e-30",
        "reliability={preset: typical, failures_per_1000_node_days: 1e-30}",
    ],
)
def test_the_largest_and_the_least_numbers_give_finite_figures(override: str) -> None:
    design = simulate_plan(parse_job(DOCUMENT, overrides=[override]), PLAN).design
    assert design is not None
    assert all(
        map(math.isfinite, (design.cost_usd, design.energy_kwh, design.carbon_kgco2e, design.peak_power_w))
    )


def test_a_price_list_whose_name_has_a_null_character_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: .*null"):
        parse_job({**DOCUMENT, "catalog": "prices\0.csv"}, folder=tmp_path)
