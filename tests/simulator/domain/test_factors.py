"""Are the defaults of footprints and prices those that the catalogue shows with their sources?"""

from __future__ import annotations

import re

import pytest

from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.embodied import ACT_YIELD, BOARD_KGCO2E, HBM_KGCO2E_PER_BYTE, PROCESSES, Dies
from simulator.domain.hardware import Fabric, Storage
from simulator.domain.ownership import Ownership
from simulator.units import SQUARE_CENTIMETRE


def factor(name: str, quantity: str) -> float:
    (figure,) = [f for f in catalog.figures(Kind.FACTORS, name) if f.quantity == quantity]
    return float(figure.si_value)


@pytest.mark.parametrize(
    ("name", "quantity", "default"),
    [
        ("fab", "yield", ACT_YIELD),
        ("fab", "grid_carbon", Dies.model_fields["fab_kgco2e_per_kwh"].default),
        ("stacked-memory", "embodied_carbon", HBM_KGCO2E_PER_BYTE),
        ("board", "embodied_carbon", BOARD_KGCO2E),
        ("switch", "embodied_carbon", Fabric().embodied_switch_kgco2e),
        ("flash", "embodied_carbon", Storage().embodied_kgco2e_per_byte),
        ("flash", "price", Storage().usd_per_byte),
        ("building", "embodied_carbon", Ownership().building_kgco2e_per_gpu),
        ("facility", "price", Ownership().facility_usd_per_w),
        ("nodes", "loss_of_value", Ownership().economic_loss_per_year),
        ("failure", "replaced_accelerators", Ownership().replaced_gpus_per_node_failure),
    ],
)
def test_a_default_is_the_factor_of_the_catalogue(name: str, quantity: str, default: float) -> None:
    assert factor(name, quantity) == pytest.approx(default, rel=1e-12)


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_is_counted_with_the_factors_of_the_catalogue(process: str) -> None:
    name = f"logic-{process}"
    per_m2 = 0.583 * factor(name, "fab_energy") + factor(name, "fab_materials")
    per_m2 += (
        factor(name, "fab_gases_95") + factor(name, "fab_gases_99")
    ) / 2  # 97 % lie between 95 and 99 %
    dies = Dies.model_validate({"logic_m2": SQUARE_CENTIMETRE, "process": process})
    assert dies.kgco2e_per_m2 == pytest.approx(per_m2 / 0.875)


def test_every_factor_is_compared_with_what_uses_it() -> None:
    processes = {f"logic-{process}" for process in PROCESSES}
    others = {"fab", "stacked-memory", "board", "switch", "flash", "building", "facility", "nodes", "failure"}
    assert set(catalog.names(Kind.FACTORS)) == processes | others


ROUNDED_UP = {"4 nm": "5nm", "6 nm": "7nm", "12 nm": "14nm", "16 nm": "20nm"}
"""Processes between those that are tabulated."""


def derived_chips() -> list[str]:
    """Accelerators whose footprint nobody published: their note says that it is counted from logic and memory."""
    return [
        name
        for name in catalog.names(Kind.ACCELERATORS)
        for figure in catalog.figures(Kind.ACCELERATORS, name)
        if figure.quantity == "embodied_carbon" and figure.source.startswith("DERIVED: logic")
    ]


def test_footprints_that_are_derived_follow_the_rule() -> None:
    compared = 0
    for name in derived_chips():
        known = {figure.quantity: figure for figure in catalog.figures(Kind.ACCELERATORS, name)}
        if "process" not in known or "logic_area" not in known:
            continue
        process, derivation = str(known["process"].value), known["embodied_carbon"].source
        # What was made, which is more than drivers report of it.
        made = re.search(r"(\d+) GB at", derivation)
        others = re.search(r"IO dies ([\d.]+) kg", derivation)
        assert made, name
        dies = Dies.model_validate(
            {
                "logic_m2": known["logic_area"].si_value,
                "process": ROUNDED_UP.get(process, process.replace(" ", "")),
                "memory_bytes": float(made[1]) * 1e9,
            }
        )
        expected_kg = dies.embodied_kgco2e + (float(others[1]) if others else 0.0)
        # The catalogue's logic figures were rounded, and count a package.
        assert catalog.accelerator(name).embodied_kgco2e == pytest.approx(expected_kg, rel=0.02), name
        compared += 1
    assert compared >= 5
