"""Is a figure written with the unit that its name says?"""

from __future__ import annotations

import pytest

from objectives.metrics import MetricTable
from planner.recommended.design_words import merits
from planner.text.figure_units import change_text, figure_text
from tests.planner.hand_made import design

DAY_T = 86_400e3
"""One tonne for a day, in kg s."""


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("time_to_train_days", 31.4, "31.4 days"),
        ("metrics.carbon_delay_kgco2e_s", 3_900 * DAY_T, "3,900 t CO2e x days (tCDP)"),
        ("metrics.usd_per_million_tokens", 0.0959, "$0.0959"),
        ("metrics.usd_per_effective_pflop_hour", 6.71, "$6.71"),
        ("metrics.kwh_per_million_tokens", 0.0528, "0.0528 kWh"),
        ("metrics.gco2e_per_exaflop", 320.0, "320 g CO2e"),
        ("metrics.carbon_delay_kgco2e_s", 0.0981 * 86_400, "0.0981 kg CO2e x days (tCDP)"),
        ("metrics.water_l", 2.51e6, "2,510 m3"),
        ("metrics.water_l", 75.8, "75.8 l"),
        ("step_seconds.compute_s", 1.57, "1.57 s"),
        ("power_ramp_w_per_s", 250e3, "250 kW/s"),
        ("storage_bytes_per_s", 5.0, "5.00"),
        ("num_gpus", 1_024.0, "1,024"),
    ],
)
def test_a_figure_has_its_unit(name: str, value: float, text: str) -> None:
    assert figure_text(name, value) == text
    assert change_text(name, -value) == f"-{text}"


def test_every_figure_of_merit_has_a_unit() -> None:
    assert all(figure_text(name, 7.0) != "7.00" for name in MetricTable.names())


def test_a_plan_and_a_comparison_tell_figures_of_merit_alike() -> None:
    shown, found = " ".join(" ".join(row) for row in merits(design())), design().metrics
    names = ("usd_per_million_tokens", "usd_per_effective_pflop_hour", "kwh_per_million_tokens")
    for name in (*names, "gco2e_per_exaflop", "carbon_delay_kgco2e_s"):
        assert (value := found[name]) is not None
        assert figure_text(f"metrics.{name}", value) in shown
