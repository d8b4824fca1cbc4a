"""Is a space that does not fit the memory the same as one that does?"""

from __future__ import annotations

import numpy as np
import pytest

from constraints import bounds, lattice, space
from constraints.bounds import bound
from constraints.lattice import enumerate_layouts, layout_blocks, num_run_knobs
from constraints.space import Space, pruned_space
from simulator.domain.job import Job
from simulator.domain.plan import PlanTable
from simulator.memory.peak import MemoryTable
from simulator.simulate import layout_memory
from studies.designs.plan_keys import are_same
from tests.support import A100_RENTED, H100_RENTED, job_with

JOB = job_with(H100_RENTED, A100_RENTED, limits={"budget_usd": 6_000.0, "power_w": 1e9})
ROWS_PER_BLOCK = 100
"""Rows of the small blocks, of which there are dozens."""


@pytest.fixture(scope="module")
def whole() -> Space:
    """The space of the job in memory."""
    return pruned_space(JOB)


@pytest.fixture
def streamed(whole: Space, monkeypatch: pytest.MonkeyPatch) -> Space:
    """The same with small blocks, none of which stays in memory."""
    assert whole.in_memory is not None
    monkeypatch.setattr(lattice, "ROWS_PER_BLOCK", ROWS_PER_BLOCK)
    monkeypatch.setattr(space, "MOST_IN_MEMORY", 100)
    return pruned_space(JOB)


def assert_same(first: PlanTable, second: PlanTable) -> None:
    assert len(first) == len(second) > 0
    assert are_same(first, second).all()


def test_blocks_list_the_layouts_in_the_order_of_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = enumerate_layouts(JOB)
    monkeypatch.setattr(lattice, "ROWS_PER_BLOCK", ROWS_PER_BLOCK)
    blocks = list(layout_blocks(JOB))
    assert len(blocks) > 5
    assert_same(PlanTable.concatenate(blocks), whole)


@pytest.mark.long
def test_a_streamed_space_has_the_same_designs_and_counts(streamed: Space, whole: Space) -> None:
    assert streamed.in_memory is None
    for name in ("num_layouts", "num_kept", "num_designs", "num_pruned"):
        assert getattr(streamed, name) == getattr(whole, name), name
    assert 0 < whole.num_kept < whole.num_layouts
    assert_same(streamed.layouts, whole.layouts)
    assert_same(streamed.designs(), whole.designs())
    np.testing.assert_array_equal(streamed.kept_bounds.power_w, whole.kept_bounds.power_w)
    assert streamed.under({}).num_kept == whole.under({}).num_kept


def test_bounds_are_those_of_each_layout_under_its_own_power_cap(whole: Space) -> None:
    assert (
        len(np.unique(whole.all_layouts.power_cap_fraction)) == 3
    )  # blocks of later caps take over what caps leave alone
    afresh = bound(JOB, whole.all_layouts)
    for name in whole.bounds.names():
        # Blocks of other widths add the chunks of a layout in another order.
        np.testing.assert_allclose(
            getattr(whole.bounds, name), getattr(afresh, name), rtol=1e-12, err_msg=name
        )
    num_designs = [block.num_designs for block in whole.in_memory or ()]
    np.testing.assert_array_equal(np.concatenate(num_designs), num_run_knobs(JOB, whole.all_layouts))


def test_a_streamed_space_has_the_bounds_by_which_its_blocks_are_kept_and_adds_up_memory_under_one_cap(
    whole: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_rows: list[int] = []

    def counted(job: Job, layouts: PlanTable) -> MemoryTable:
        num_rows.append(len(layouts))
        return layout_memory(job, layouts)

    monkeypatch.setattr(space, "MOST_IN_MEMORY", len(whole.all_layouts) - 1)
    streamed = pruned_space(JOB)
    monkeypatch.setattr(bounds, "layout_memory", counted)
    assert_same(streamed.all_layouts, whole.all_layouts)
    for name, column in streamed.bounds.columns().items():
        np.testing.assert_array_equal(column, getattr(whole.bounds, name), err_msg=name)
    assert streamed.in_memory is None
    num_caps = len(JOB.power_caps)
    assert sum(num_rows) == len(whole.all_layouts) / num_caps, "the same under every cap"


def test_every_design_of_every_block_is_either_kept_or_counted_as_pruned(whole: Space) -> None:
    assert len(whole.kept_bits) == len(JOB.power_caps), "a block for each power cap"
    num_designs = num_run_knobs(JOB, whole.all_layouts).sum()
    assert whole.num_designs + sum(whole.num_pruned.values()) == num_designs


def test_layouts_that_are_kept_stay_in_memory_where_all_layouts_do_not(
    whole: Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert whole.num_kept < whole.num_layouts
    monkeypatch.setattr(space, "MOST_IN_MEMORY", whole.num_kept)
    partly = pruned_space(JOB)
    assert partly.in_memory is None
    assert partly.kept_in_memory is not None
    assert sum(block.num_designs.sum() for block in partly.kept_in_memory) == whole.num_designs
    assert_same(partly.layouts, whole.layouts)


def test_batches_are_the_designs_cut_into_equal_pieces(streamed: Space) -> None:
    batches = list(streamed.design_batches(37))
    assert {len(batch) for batch in batches[:-1]} == {37}
    assert 0 < len(batches[-1]) <= 37
    assert_same(PlanTable.concatenate(batches), streamed.designs())


def test_designs_can_be_taken_by_their_numbers(whole: Space) -> None:
    numbers = np.random.default_rng(0).permutation(whole.num_designs)[:50]
    assert_same(whole.designs_at(numbers), whole.designs().take(numbers))
    assert len(whole.designs_at(numbers[:0])) == 0
