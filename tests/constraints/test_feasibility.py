from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from constraints.feasibility import (
    conflicting_limits,
    fewest_accelerators,
    least_value,
    minimal_conflict,
)
from simulator.table import Floats

NAMES = ("budget_usd", "deadline_days", "power_w", "carbon_kgco2e")


def is_conflict(needs: Floats, limits: Floats, columns: tuple[int, ...]) -> bool:
    """The definition: no design keeps all of these limits."""
    return not any(all(row[column] <= limits[column] for column in columns) for row in needs)


def minimal_conflicts(needs: Floats, limits: Floats) -> set[tuple[str, ...]]:
    """Every set of limits that is a conflict while no part of it is, by trying all sets."""
    columns = range(needs.shape[1])
    every = [chosen for size in range(1, needs.shape[1] + 1) for chosen in combinations(columns, size)]
    conflicts = [set(chosen) for chosen in every if is_conflict(needs, limits, chosen)]
    minimal = [found for found in conflicts if not any(other < found for other in conflicts)]
    return {tuple(NAMES[column] for column in sorted(found)) for found in minimal}


NEEDS = st.integers(1, 4).flatmap(
    lambda width: arrays(
        np.float64, st.tuples(st.integers(1, 8), st.just(width)), elements=st.integers(1, 6) | st.just(np.inf)
    )
)


@given(needs=NEEDS, data=st.data())
def test_the_conflict_is_one_of_those_that_brute_force_finds(needs: Floats, data: st.DataObject) -> None:
    width = needs.shape[1]
    limits = np.array(
        data.draw(st.lists(st.integers(1, 6), min_size=width, max_size=width)), dtype=np.float64
    )
    found = conflicting_limits(
        {name: needs[:, column] for column, name in enumerate(NAMES[:width])},
        dict(zip(NAMES, limits.tolist(), strict=False)),
    )
    possible = minimal_conflicts(needs, limits)
    assert (found in possible) if possible else (found == ())


def test_a_conflict_is_cut_down_where_the_solver_names_more_than_it_needs() -> None:
    # CP-SAT promises limits that suffice, not the fewest; here it names all that it was asked about.
    def wordy(assumed: tuple[str, ...]) -> tuple[str, ...]:
        return assumed if {"budget_usd", "deadline_days"} <= set(assumed) else ()

    found = minimal_conflict(("power_w", "budget_usd", "deadline_days"), wordy)
    assert found == ("budget_usd", "deadline_days")


def test_a_need_equal_to_its_limit_keeps_it_and_the_next_number_does_not() -> None:
    limit = 1e6
    above = float(np.nextafter(limit, np.inf))
    assert conflicting_limits({"budget_usd": np.array([limit])}, {"budget_usd": limit}) == ()
    assert conflicting_limits({"budget_usd": np.array([above])}, {"budget_usd": limit}) == ("budget_usd",)


def test_two_limits_that_only_clash_together_are_named_together() -> None:
    # Fast is dear, cheap is slow; power is no matter.
    needs = {
        "budget_usd": np.array([9.0, 4.0, 2.0]),
        "deadline_days": np.array([1.0, 5.0, 8.0]),
        "power_w": np.array([1.0, 1.0, 1.0]),
    }
    limits = {"power_w": 2.0, "budget_usd": 3.0, "deadline_days": 4.0}
    assert conflicting_limits(needs, limits) == ("budget_usd", "deadline_days")
    assert conflicting_limits(needs, {**limits, "deadline_days": 8.0}) == ()


@pytest.mark.parametrize("size", [0, 3])
def test_without_limits_there_is_no_conflict(size: int) -> None:
    assert conflicting_limits({}, {}) == ()
    assert conflicting_limits({"power_w": np.zeros(size)}, {}) == ()


def test_without_designs_all_limits_are_in_conflict() -> None:
    nothing = {"power_w": np.zeros(0), "budget_usd": np.zeros(0)}
    assert conflicting_limits(nothing, {"power_w": 1.0, "budget_usd": 1.0}) == ("power_w", "budget_usd")


@pytest.mark.parametrize("seed", range(5))
def test_the_fewest_accelerators_are_those_of_the_smallest_design_that_keeps_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    num_gpus = 8 * random.integers(1, 50, 200)
    needs: dict[str, Floats] = {name: random.random(200) for name in ("deadline_days", "budget_usd")}
    limits = {"deadline_days": 0.3, "budget_usd": 0.4}
    kept = (needs["deadline_days"] <= 0.3) & (needs["budget_usd"] <= 0.4)
    assert fewest_accelerators(num_gpus, needs, limits) == num_gpus[kept].min()
    assert fewest_accelerators(num_gpus, needs, {}) == num_gpus.min()
    assert fewest_accelerators(num_gpus, needs, {"budget_usd": -1.0}) is None
    assert fewest_accelerators(num_gpus[:0], {"budget_usd": np.zeros(0)}, {"budget_usd": 1.0}) is None


@pytest.mark.parametrize("seed", range(5))
def test_a_corner_is_the_least_of_a_quantity_to_the_last_bit(seed: int) -> None:
    random = np.random.default_rng(seed)
    # Values that differ in their last bits only, as CP-SAT's whole numbers could not tell them apart by themselves.
    watts = 1e6 * (1.0 + random.integers(0, 50, 200) * np.finfo(float).eps)
    needs = {"memory": random.uniform(0.0, 2.0, 200), "budget_usd": random.uniform(0.0, 1.0, 200)}
    limits = {"memory": 1.0, "budget_usd": 0.4}
    kept = (needs["memory"] <= 1.0) & (needs["budget_usd"] <= 0.4)
    assert least_value(watts, needs, limits) == watts[kept].min()
    assert least_value(watts, needs, {}) == watts.min()
    assert least_value(watts, needs, {"memory": -1.0}) is None
    # What is needed to the last unit is kept.
    assert least_value(np.array([7.0]), {"memory": np.array([1.0])}, {"memory": 1.0}) == 7.0
