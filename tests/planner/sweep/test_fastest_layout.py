"""Is the fastest layout of a size the one found by simulating all layouts, one size at a time or several at once?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from constraints.lattice import cross_run_knobs, enumerate_layouts
from constraints.limits import usable_memory_bytes
from planner import load_job
from planner.sweep.fastest_layout import FIRST_DESIGNS, fastest_layout, fastest_of_sizes
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.simulate import simulate

EXAMPLES = Path(__file__).parents[3] / "examples"
SIZES = (64, 256, 512)


@pytest.fixture(scope="module")
def job() -> Job:
    """One offer, with limits that no design of these sizes keeps."""
    return load_job(EXAMPLES / "llama-3.1-70b.yaml", ["limits.deadline_days=1", "search.zero_stages=[1]"])


def alone(job: Job, offer: int) -> Job:
    return job.model_copy(update={"offers": (job.offers[offer],)})


def least_step_s(job: Job, num_gpus: int) -> float:
    """The shortest step of all layouts of a size that fit the memory, each of them simulated."""
    sized = job.model_copy(update={"limits": Limits()})
    designs = cross_run_knobs(sized, enumerate_layouts(sized))
    designs = designs.take(designs.num_gpus == num_gpus)
    assert len(designs) > FIRST_DESIGNS
    outcomes = simulate(sized, designs)
    fits = outcomes.memory.peak_bytes <= usable_memory_bytes(sized)[designs.offer]
    return float(np.nanmin(np.where(fits, outcomes.steps.step_time_s, np.nan)))


def test_no_layout_of_any_size_has_a_shorter_step(job: Job) -> None:
    own = alone(job, 0)
    found = fastest_of_sizes(own, SIZES)
    assert list(found) == list(SIZES)
    for size, run in found.items():
        assert run.plans.num_gpus.tolist() == [size]
        assert run.is_feasible.all()
        assert run.outcomes.steps.step_time_s[0] == least_step_s(own, size)


def test_a_size_comes_to_the_same_alone_and_among_others(job: Job) -> None:
    own = alone(job, 1)
    together = fastest_of_sizes(own, SIZES)
    for size in SIZES:
        (run,) = fastest_of_sizes(own, [size]).values()
        assert run.plans.plan(0) == together[size].plans.plan(0)
        assert run.scores.cost_usd[0] == together[size].scores.cost_usd[0]


def test_a_size_without_a_layout_that_fits_is_left_out(job: Job) -> None:
    """Eight of 80 GB cannot hold 70 billion parameters with their optimizer, 16 bytes each; 60 are no whole nodes of eight."""
    assert set(fastest_of_sizes(alone(job, 0), [8, 60, 64])) == {64}
    assert fastest_of_sizes(alone(job, 0), [8]) == {}


def test_of_several_offers_the_fastest_is_taken(job: Job) -> None:
    fastest = fastest_layout(job)
    assert fastest is not None
    steps_s = []
    for offer in range(len(job.offers)):
        own = fastest_layout(alone(job, offer))
        assert own is not None
        steps_s.append(float(simulate(alone(job, offer), own).steps.step_time_s[0]))
    assert float(simulate(job, fastest).steps.step_time_s[0]) == min(steps_s)
    assert fastest.offer[0] == int(np.argmin(steps_s))


def test_power_is_not_capped_more_than_it_has_to_be(job: Job) -> None:
    caps = job.search.model_copy(update={"power_caps": (0.6, 0.8)})
    fastest = fastest_layout(alone(job.model_copy(update={"search": caps}), 0))
    assert fastest is not None
    assert fastest.power_cap_fraction.tolist() == [0.8]


def test_the_fastest_layout_has_spares_whatever_the_search_tries(job: Job) -> None:
    bare = job.search.model_copy(update={"with_spares": (False,)})
    fastest = fastest_layout(alone(job.model_copy(update={"search": bare}), 0))
    assert fastest is not None
    assert fastest.num_spare_nodes[0] > 0


def test_what_fits_the_hosts_fits_the_accelerators_too(job: Job) -> None:
    both, own = (fastest_layout(alone(job, 0), fits_hosts=fits_hosts) for fits_hosts in (True, False))
    assert both is not None
    assert own is not None
    assert both.plan(0) == own.plan(0)


def test_each_offer_has_its_own_memory(job: Job) -> None:
    slow, fast = alone(job, 1).offers[0], alone(job, 0).offers[0]
    half_bytes = fast.accelerator.memory_bytes / 2
    small = fast.model_copy(
        update={"accelerator": fast.accelerator.model_copy(update={"memory_bytes": half_bytes})}
    )
    fastest = fastest_layout(job.model_copy(update={"offers": (slow, small)}))
    assert fastest is not None
    assert fastest.offer.tolist() == [1]
    memory = simulate(job.model_copy(update={"offers": (slow, small)}), fastest).memory
    assert memory.peak_bytes[0] <= half_bytes
