"""Are the parts of a batch whole layouts and equal work, and does it not show on how many threads they were simulated?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numba import get_num_threads, set_num_threads

import simulator.simulate as module
import simulator.threads as threads_module
import simulator.work_parts as parts_module
from constraints.lattice import cross_run_knobs, enumerate_layouts
from simulator.domain.plan import LAYOUT_COLUMNS, PlanTable
from simulator.errors import StudyError
from simulator.simulate import simulate
from simulator.threads import on_threads
from simulator.work_parts import equal_parts
from tests.support import H100_RENTED, job_with

JOB = job_with({**H100_RENTED, "num_gpus": {"min": 8, "max": 64}})


def designs() -> PlanTable:
    """Every design of a small space in an order that has nothing to do with layouts."""
    plans = cross_run_knobs(JOB, enumerate_layouts(JOB))
    return plans.take(np.random.default_rng(2).permutation(len(plans))[:3000])


def layouts_of(plans: PlanTable) -> set[tuple[float, ...]]:
    return set(zip(*(getattr(plans, name).tolist() for name in LAYOUT_COLUMNS), strict=True))


@pytest.mark.parametrize("num_parts", [1, 2, 5])
def test_parts_hold_every_design_once_and_share_no_layout(num_parts: int) -> None:
    plans = designs()
    parts = equal_parts(JOB, plans, num_parts)
    assert len(parts) == num_parts
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(plans)))
    layouts = [layouts_of(plans.take(rows)) for rows in parts]
    assert sum(map(len, layouts)) == len(set.union(*layouts))


def test_layouts_of_one_shape_are_shared_equally() -> None:
    layouts = enumerate_layouts(JOB)
    is_alike = (layouts.pipeline_parallel == 2) & (layouts.virtual_pipeline == 1)
    alike = layouts.take(is_alike & (layouts.data_parallel == 4) & (layouts.micro_batch_size == 1))
    assert len(alike) > 10
    sizes = [len(rows) for rows in equal_parts(JOB, alike, 3)]
    assert max(sizes) - min(sizes) <= 1


def test_where_only_pipelines_take_time_parts_have_equal_numbers_of_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parts_module, "LAYOUT_WORK", 0)
    monkeypatch.setattr(parts_module, "DESIGN_WORK", 0)
    plans = enumerate_layouts(JOB)
    num_micro_batches = JOB.workload.global_batch_size // plans.data_parallel // plans.micro_batch_size
    num_operations = 2 * plans.pipeline_parallel * plans.virtual_pipeline * num_micro_batches
    first, second = (num_operations[rows].sum() for rows in equal_parts(JOB, plans, 2))
    assert abs(first - second) <= 2 * num_operations.max()  # a layout is not cut in two


def test_one_layout_stays_in_one_part() -> None:
    plans = designs().take(np.zeros(50, dtype=np.intp))
    assert [len(rows) for rows in equal_parts(JOB, plans, 4)] == [50]


def test_no_designs_have_no_parts() -> None:
    assert equal_parts(JOB, designs().take(slice(0)), 3) == []


def test_the_number_of_threads_changes_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    plans, num_threads = designs(), get_num_threads()
    shared: list[int] = []

    def watched(function: Callable[[object], object], items: list[object]) -> list[object]:
        shared.append(len(items))
        return on_threads(function, items)

    monkeypatch.setattr(module, "LEAST_DESIGNS_PER_THREAD", 1000)
    monkeypatch.setattr(module, "on_threads", watched)
    monkeypatch.setattr(threads_module, "get_num_threads", lambda: 2)
    together = simulate(JOB, plans)
    monkeypatch.setattr(threads_module, "get_num_threads", lambda: 1)
    try:
        set_num_threads(1)
        alone = simulate(JOB, plans)
    finally:
        set_num_threads(num_threads)
    assert shared == [2]
    for name, column in alone.columns().items():
        assert column.tobytes() == together.columns()[name].tobytes(), name


def test_kernels_on_threads_have_one_thread_each_and_what_is_raised_there_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads_module, "get_num_threads", lambda: 2)
    assert on_threads(lambda number: (number, get_num_threads()), [5, 4, 3]) == [(5, 1), (4, 1), (3, 1)]

    def broken(number: int) -> int:
        raise StudyError(f"part {number}")

    with pytest.raises(StudyError, match="part 1"):
        on_threads(broken, [1, 1])
