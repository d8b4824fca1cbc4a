"""Is a number that was written with a unit told as the field takes it, and never in a unit that the field has not?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner import InputError, load_job, simulate_plan
from planner.input.number_text import way_out
from planner.input.plan_input import read_plan

BLOOM = Path(__file__).parents[3] / "examples" / "bloom-176b.yaml"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("limits.power_w=100MW", "must be a number; write 1e8"),
        ("limits.power_w=1.5 kW", "must be a number; write 1500"),
        ("limits.power_w=2e-4 TW", "must be a number; write 2e8"),
        ("limits.carbon_kgco2e=30t", "must be a number; write 30000"),
        ("limits.carbon_kgco2e=2kt", "must be a number; write 2e6"),
        ("limits.deadline_days=130d", "must be a number; write 130"),
        ("limits.deadline_days=1 week", "must be a number; write 7"),
        ("limits.deadline_days=6 weeks", "must be a number; write 42"),
        ("limits.deadline_days=36h", "must be a number; write 1.5"),
        ("checkpointing.interval_s=10min", "must be a number; write 600"),
        ("reliability.restart.detect_s=2m", "must be a number; write 120"),
        ("storage.write_bytes_per_s=400Gbit/s", "must be a number; write 5e10"),
        ("storage.write_bytes_per_s_per_node=2 GB/s", "must be a number; write 2e9"),
        ("storage.write_bytes_per_s=400Gbps", "must be a number; write 5e10"),
        ("storage.write_bytes_per_s=400 Gb/s", "must be a number; write 5e10"),
        ("storage.capacity_bytes=2PB", "must be a number; write 2e15"),
        ("storage.capacity_bytes=2 KiB", "must be a number; write 2048"),
        ("storage.capacity_bytes=2 MiB", "must be a number; write 2.097152e6"),
        ("storage.capacity_bytes=2 TiB", "must be a number; write 2.199023e12"),
        ("site.grid_kgco2e_per_kwh=57g", "must be a number; write 0.057"),
        ("site.grid_kgco2e_per_kwh=57 g/kWh", "must be a number; write 0.057"),
        ("site.grid_kgco2e_per_kwh=0.4 kg/kWh", "must be a number; write 0.4"),
        ("search.memory_headroom_fraction=10%", "must be a number; write 0.1"),
        ("limits.deadline_probability=95%", "must be a number; write 0.95"),
        ("site.power_usage_effectiveness=120%", "must be a number; write 1.2"),
        ("workload.sequence_length=128k", "must be a whole number; write 131072"),
        ("limits.budget_usd=2.5M", "must be a number; write 2.5e6"),
        # Other units than the field's, and rates, whose name ends with the unit of what they are counted by.
        ("limits.power_w=30kg", "must be a number"),
        ("reliability.failures_per_1000_node_days=3d", "must be a number"),
        ("ownership.facility_usd_per_w=10kW", "must be a number"),
    ],
)
def test_a_number_with_a_unit_is_told_without_it(override: str, told: str) -> None:
    field, _, value = override.partition("=")
    with pytest.raises(InputError) as refused:
        load_job(BLOOM, [f"{field}='{value}'"])
    (problem,) = refused.value.problems
    assert (problem.path, problem.rule) == (field, told)


@pytest.mark.parametrize(
    ("grid", "hint"), [("57", "; 57 g/kWh are 0.057"), ("412.7", "; 412.7 g/kWh are 0.4127"), ("5e4", "")]
)
@pytest.mark.parametrize("field", ["grid_kgco2e_per_kwh", "market_kgco2e_per_kwh"])
def test_a_grid_in_grams_is_told_in_kilograms(field: str, grid: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        load_job(BLOOM, [f"site.{field}={grid}"])
    (problem,) = refused.value.problems
    assert problem.rule == f"must be at most 2{hint}"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("cap=70%", "cap = '70%': must be a number; write 0.7"),
        ("checkpoint_interval_s=30min", "checkpoint_interval_s = '30min': must be a number; write 1800"),
        ("tp=8k", "tp = '8k': must be a whole number; write 8000"),
        ("cap=500 W", "cap = '500 W': must be a number"),
    ],
)
def test_plans_are_told_the_same(written: str, told: str) -> None:
    with pytest.raises(InputError, match=rf"{re.escape(told)}$"):
        simulate_plan(load_job(BLOOM), read_plan(f"pp=12,dp=8,{written}"))


def test_numbers_and_fields_without_a_unit_need_no_other_way() -> None:
    assert way_out(5, "power_w") == ""
    assert way_out("5 W", "num_gpus") == ""
    assert way_out("1.2.3 W", "power_w") == ""


@pytest.mark.parametrize("date", ["2027-03-01", "01.03.2027", "3/1/2027"])
def test_where_days_are_counted_a_date_is_told_to_be_none(date: str) -> None:
    assert way_out(date, "deadline_day") == " of days from the start of the horizon, not a date"
    assert way_out(date, "deadline_days") == " of days from the start of the run to its end, not a date"
    assert way_out(date, "queue_limit_days") == " of days, not a date"
    assert way_out(date, "failures_per_1000_node_days") == way_out(date, "budget_usd") == ""
    assert "date" not in way_out("30", "deadline_day")


def test_entries_of_a_list_have_its_unit() -> None:
    with pytest.raises(InputError) as refused:
        load_job(BLOOM, ["search.power_caps=[1, '80%']", "objectives=[cost]"])
    (problem,) = refused.value.problems
    assert (problem.path, problem.rule) == ("search.power_caps[1]", "must be a number; write 0.8")
