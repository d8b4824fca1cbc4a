"""Does the model of memory know what fits? Its answers against listing the layouts of every number of accelerators."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from constraints.lattice import enumerate_layouts
from constraints.memory_model import explain_memory, least_memory
from simulator.domain.job import Job
from simulator.machine.offer_table import OfferTable
from simulator.simulate import layout_memory
from simulator.table import Floats
from tests.support import A100_RENTED, H100_RENTED, job_with

SPLITS = {"tensor_parallel": [2, 4, 8], "pipeline_parallel": [1, 2, 4, 5, 8], "micro_batch_sizes": [1, 2]}
LARGEST = 256


def with_range(offer: Mapping[str, object], least: int, most: int) -> dict[str, object]:
    return {**offer, "num_gpus": {"min": least, "max": most}}


def job_of(*ranges: tuple[int, int], model: str = "llama-3.1-70b", **search: object) -> Job:
    """H100 in the first range, A100 with 40 GB in the second."""
    offers = (H100_RENTED, {**A100_RENTED, "accelerator": "a100-sxm4-40gb"})
    chosen = [with_range(offer, *one) for offer, one in zip(offers, ranges, strict=False)]
    return job_with(*chosen, workload={"model": model}, search={**SPLITS, **search})


def shares_of(job: Job) -> tuple[np.ndarray, Floats]:
    """Every layout in the job's ranges: offer and accelerators, and its share of the memory."""
    layouts = enumerate_layouts(job)
    shares = (
        layout_memory(job, layouts).peak_bytes / OfferTable.from_job(job).take(layouts.offer).memory_bytes
    )
    return np.column_stack([layouts.offer, layouts.num_gpus]), shares


def fits(num_gpus: int, offer: int = 0) -> bool:
    """Whether any layout of so many accelerators fits, by listing all of them."""
    numbers, shares = shares_of(job_of((1, LARGEST), (1, LARGEST)))
    return bool((shares[(numbers == [offer, num_gpus]).all(axis=1)] <= 1.0).any())


def test_the_table_has_the_least_that_any_layout_of_a_number_of_accelerators_needs() -> None:
    numbers, shares = shares_of(job_of((1, LARGEST), (1, LARGEST)))
    table = least_memory(job_of((16, 16), (32, 64)))  # the ranges on offer do not matter
    found = {
        (offer, taken): share
        for offer, taken, share in zip(
            table.layouts.offer.tolist(),
            table.layouts.num_gpus.tolist(),
            table.needs.memory_fraction.tolist(),
            strict=True,
        )
        if taken <= LARGEST
    }
    expected: dict[tuple[int, int], float] = {}
    for (offer, taken), share in zip(numbers.tolist(), shares.tolist(), strict=True):
        expected[offer, taken] = min(share, expected.get((offer, taken), np.inf))
    assert len(expected) > 10
    assert found == expected


@pytest.mark.parametrize(
    ("ranges", "conflict"),
    [
        ([(8, 8)], ("gpu_range", "memory")),
        ([(8, 8), (8, 16)], ("gpu_range", "memory")),
        ([(64, 128)], ()),
        ([(8, 8), (64, 128)], ()),
    ],
)
def test_the_rules_at_fault_are_those_that_listing_finds(
    ranges: list[tuple[int, int]], conflict: tuple[str, ...]
) -> None:
    job = job_of(*ranges)
    _, shares = shares_of(job)
    finding = explain_memory(job)
    assert finding.conflict == conflict
    assert bool((shares <= 1.0).any()) == (conflict == ())
    assert (finding.least is None) == (len(shares) == 0)
    if finding.least is not None:
        assert finding.least.needs.memory_fraction.tolist() == [shares.min()]


@pytest.mark.short(1)
@pytest.mark.parametrize("ranges", [[(8, 8)], [(8, 16), (8, 16)], [(200, 250), (8, 8)]])
def test_the_nearest_number_that_fits_is_next_to_the_ranges(ranges: list[tuple[int, int]]) -> None:
    nearest = explain_memory(job_of(*ranges)).nearest
    assert nearest is not None

    def distance(offer: int, taken: int) -> int:
        least, most = ranges[offer]
        return max(0, least - taken, taken - most)

    (offer,), (taken,) = nearest.layouts.offer.tolist(), nearest.layouts.num_gpus.tolist()
    assert nearest.needs.memory_fraction[0] <= 1.0
    assert fits(taken, offer)
    for other in range(len(ranges)):
        for fewer in range(8, LARGEST + 1, 8):
            assert distance(other, fewer) >= distance(offer, taken) or not fits(fewer, other)


def test_splits_that_fit_on_no_number_of_accelerators_leave_memory_alone_at_fault() -> None:
    finding = explain_memory(
        job_of((64, 128), model="llama-3.1-405b", tensor_parallel=[1], pipeline_parallel=[1], zero_stages=[0])
    )
    assert finding.conflict == ("memory",)
    assert finding.nearest is None
    assert finding.least is not None
    assert finding.least.needs.memory_fraction[0] > 1.0


def test_a_range_without_any_layout_is_at_fault_alone() -> None:
    finding = explain_memory(
        job_of((16, 32), tensor_parallel=[8], pipeline_parallel=[5])
    )  # 40, 80 ... accelerators
    assert (finding.conflict, finding.least) == (("gpu_range",), None)
    assert finding.nearest is not None
    assert finding.nearest.layouts.num_gpus.tolist() == [40]


def test_without_any_layout_both_rules_are_broken_and_nothing_is_near() -> None:
    finding = explain_memory(job_of((16, 64), tensor_parallel=[7]))
    assert (finding.conflict, finding.least, finding.nearest) == (("gpu_range",), None, None)
