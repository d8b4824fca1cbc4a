from __future__ import annotations

import numpy as np

from constraints.bounds import kept_by_bounds
from constraints.evaluation import evaluate
from constraints.lattice import cross_run_knobs, num_run_knobs
from constraints.limits import LIMIT_NAMES
from constraints.space import pruned_space
from simulator.table import Floats
from studies.designs.plan_keys import plan_keys
from tests.support import A100_RENTED, H100_RENTED, job_with

JOB = job_with(H100_RENTED, A100_RENTED)


def middle(values: Floats) -> float:
    return float(np.median(values))


def test_without_limits_only_memory_prunes() -> None:
    space = pruned_space(JOB)
    broken = space.all_layouts.take(~space.bounds.fits_memory)
    assert len(broken) > 0
    assert space.num_pruned == {"memory": len(cross_run_knobs(JOB, broken))}
    np.testing.assert_array_equal(
        plan_keys(space.layouts), plan_keys(space.all_layouts.take(space.bounds.fits_memory))
    )


def test_every_design_is_either_kept_or_counted_once_under_the_first_limit_that_its_bound_breaks() -> None:
    free = pruned_space(JOB)
    limits = {name: middle(getattr(free.bounds, name)) for name in LIMIT_NAMES}
    space = free.under(limits)
    num_designs = len(cross_run_knobs(JOB, free.all_layouts))
    assert sum(space.num_pruned.values()) + space.num_designs == num_designs
    fits = free.bounds.fits_memory
    dear = (free.bounds.budget_usd > limits["budget_usd"]) & fits
    assert space.num_pruned["budget_usd"] == num_run_knobs(JOB, free.all_layouts)[dear].sum()
    kept = np.all(list(kept_by_bounds(space.job, space.bounds).values()), axis=0)
    np.testing.assert_array_equal(plan_keys(space.layouts), plan_keys(space.all_layouts.take(kept)))


def test_designs_are_the_kept_layouts_with_all_run_knobs() -> None:
    space = pruned_space(JOB)
    designs = space.designs()
    assert len(designs) == space.num_designs == num_run_knobs(JOB, space.layouts).sum()
    assert (evaluate(JOB, designs.take(slice(0, None, 50))).excess.memory == 0.0).all()


def test_a_space_under_other_limits_is_that_of_the_job_with_these_limits() -> None:
    budget = middle(pruned_space(JOB).bounds.budget_usd)
    limited = job_with(H100_RENTED, A100_RENTED, limits={"budget_usd": budget})
    expected, found = pruned_space(limited), pruned_space(JOB).under({"budget_usd": budget})
    np.testing.assert_array_equal(plan_keys(found.layouts), plan_keys(expected.layouts))
    assert found.num_pruned == expected.num_pruned
    assert found.job.limits == limited.limits


def test_dropping_a_power_limit_keeps_the_designs_under_power_caps() -> None:
    limited = pruned_space(job_with(limits={"power_w": 1e9}))
    free = limited.under({})
    assert len(free.all_layouts) == len(limited.all_layouts)
    assert set(free.layouts.power_cap_fraction.tolist()) == {1.0, 0.8, 0.6}
    assert free.job.power_caps == limited.job.power_caps


def test_a_job_that_no_layout_fits_has_an_empty_space() -> None:
    # 64 stages of 64 accelerators each, of which there are 64.
    space = pruned_space(job_with(search={"tensor_parallel": [64], "pipeline_parallel": [64]}))
    assert len(space.all_layouts) == len(space.bounds) == 0
    assert len(space.layouts) == len(space.kept_bounds) == len(space.designs()) == 0
    assert list(space.design_batches(10)) == []
