from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constraints.bounds import BoundTable, bound, kept_by_bounds
from constraints.evaluation import Evaluation, evaluate
from constraints.lattice import cross_run_knobs, enumerate_layouts, num_run_knobs
from constraints.limits import LIMIT_NAMES, limited_quantities, with_limits
from constraints.space import Block, Space, pruned_space
from constraints.step_bound import bound_step
from objectives.scores import score
from simulator import catalog
from simulator.domain.hardware import Precision
from simulator.domain.hourly import HourlyProfile
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme, PlanTable, Schedule, runs_in_pairs, splits_backward
from simulator.layout.expert_ranks import shares_nothing
from simulator.simulate import simulate
from simulator.table import Floats
from simulator.units import DAY, HOUR
from studies.designs.plan_keys import plan_keys
from tests.simulator.compressed import DENSE as COMPRESSED
from tests.simulator.sparse import with_indexer
from tests.simulator.streams import with_streams
from tests.support import A100_RENTED, H100_BOUGHT, H100_RENTED, job_with

NUM_LAYOUTS = 250
"""Layouts of a job that are drawn; with all schemes and spares about ten times as many designs."""
WIDE = {"min": 16, "max": 256}
KNOBS: Mapping[str, object] = {
    "checkpoint_schemes": list(CheckpointScheme),
    "with_spares": [True, False],
    "zero_stages": [0, 1, 2, 3],
    "power_caps": [1.0, 0.8, 0.6],
}
JOBS: Mapping[str, Job] = {
    "dense, rented": job_with(
        {**H100_RENTED, "num_gpus": WIDE}, {**A100_RENTED, "num_gpus": WIDE}, search=KNOBS
    ),
    "dense, bought, spares for all": job_with(
        {**H100_BOUGHT, "num_gpus": WIDE},
        search={**KNOBS, "with_spares": [True]},
        reliability="harsh",
        storage={"capacity_power_w": 5e3},
    ),
    "all schedules": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        search={"pipeline_schedules": list(Schedule), "recompute": ["none"], "zero_stages": [1]},
    ),
    "exchange hidden by schedules": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={"model": "mixtral-8x7b", "global_batch_size": 96, "overlaps_expert_exchange": True},
        search={
            "pipeline_schedules": list(Schedule),
            "virtual_pipeline": [1, 2],
            "recompute": ["none"],
            "zero_stages": [1],
        },
    ),
    "old kernels, no overlap": job_with(
        {**A100_RENTED, "num_gpus": WIDE},
        workload={
            "model": "gpt-neox-20b",
            "sequence_length": 2048,
            "global_batch_size": 256,
            "attention": "unfused",
            "has_sequence_parallel": False,
            "overlaps_gradient_sync": False,
        },
        search=KNOBS,
    ),
    "experts, bought": job_with(
        {**H100_BOUGHT, "num_gpus": WIDE},
        workload={"model": "mixtral-8x7b", "global_batch_size": 96},
        search={**KNOBS, "memory_headroom_fraction": 0.3},
    ),
    "latent attention, eight bits": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={"model": "deepseek-v2-lite", "precisions": ["bf16", "fp8"]},
        search=KNOBS,
    ),
    "hybrid, experts that read a latent": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={
            "model": "nemotron-3-super-120b-a12b",
            "precisions": ["bf16", "fp8"],
            "global_batch_size": 96,
            "context_exchange": "all_to_all",
        },
        search=KNOBS,
    ),
    "hybrid with gates, long sequences": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={"model": "qwen3.5-35b-a3b", "sequence_length": 65_536, "global_batch_size": 16},
        search=KNOBS,
    ),
    "chosen tokens, long sequences": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={
            "model": with_indexer(catalog.model("deepseek-v2-lite")).model_dump(
                mode="json", exclude_none=True
            ),
            "precisions": ["bf16", "fp8"],
            "sequence_length": 32_768,
            "global_batch_size": 64,
        },
        search=KNOBS,
    ),
    "compressed tokens behind several streams": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={
            "model": with_streams(COMPRESSED).model_dump(mode="json", exclude_none=True),
            "precisions": ["bf16", "fp8"],
            "sequence_length": 32_768,
            "global_batch_size": 64,
            "recompute_modules": ["mla_up_proj", "mhc"],
        },
        search=KNOBS,
    ),
    "images": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={
            "model": "qwen3-vl-8b",
            "global_batch_size": 96,
            "images": {"tokens_per_image": 196, "per_sequence": 4},
        },
        search=KNOBS,
    ),
    "images of a frozen encoder, all schedules": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={
            "model": "qwen2.5-vl-7b",
            "images": {"tokens_per_image": 256, "per_sequence": 2.5, "trains_encoder": False},
        },
        search={"pipeline_schedules": list(Schedule), "recompute": ["none"], "zero_stages": [1]},
    ),
    "matrices updated by Muon": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={
            "model": "mixtral-8x7b",
            "global_batch_size": 768,
            "muon": {"tensor_mode": "distributed"},
        },
        search=KNOBS,
    ),
    "limits to be kept surely": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        search=KNOBS,
        limits={
            "deadline_days": 1e6,
            "budget_usd": 1e12,
            "deadline_probability": 0.5,
            "budget_probability": 0.95,
        },
    ),
    "causes of stragglers": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        search=KNOBS,
        reliability={"preset": "harsh", "stragglers": "shared", "planned_stops_per_1000_node_days": 1.0},
        limits={"deadline_days": 1e6, "deadline_probability": 0.9},
    ),
    "hourly grid and tariff, weather, demand charge, value that decays": job_with(
        {**H100_BOUGHT, "num_gpus": WIDE},
        {**H100_RENTED, "num_gpus": WIDE, "commitment_days": 3.0, "interruptions_per_1000_node_days": 5.0},
        site={
            "region": "here",
            "power_usage_effectiveness": 1.2,
            "cooling_fixed_fraction": 0.5,
            "climate": {
                "mean_celsius": 15,
                "daily_amplitude_celsius": 8,
                "free_cooling_below_celsius": 18,
                "overhead_per_celsius": 0.01,
            },
            "grid_profile": HourlyProfile(per_hour=(0.1, 0.9, 0.3, 0.0, 0.7) * 24),
            "electricity_profile": HourlyProfile(per_hour=(0.5,) * 40 + (0.01,) * 32),
            "demand_usd_per_w_month": 0.01,
        },
        ownership={"depreciation": "economic", "age_years": 1.5, "staff_usd_per_year": 1e6},
        operation={"power_floor_fraction": 0.3},
        carbon_scope={"network": True, "storage": True, "building": True},
        storage={"capacity_bytes": 1e15},
        workload={"evaluation_every_steps": 50, "evaluation_sequences": 128},
        search=KNOBS,
    ),
    "long sequences, no stragglers": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={"sequence_length": 65_536, "global_batch_size": 16},
        search=KNOBS,
        reliability={"preset": "mature", "straggler_log_mean": None},
    ),
    "windows and packed documents": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={
            "model": "mistral-7b",
            "sequence_length": 65_536,
            "global_batch_size": 16,
            "documents": {"mean_tokens": 3000.0, "filled_fraction": 0.9},
            "context_exchange": "all_to_all",
        },
        search=KNOBS,
    ),
    "parts of experts, hidden behind shared ones": job_with(
        {**H100_RENTED, "num_gpus": WIDE},
        workload={
            "model": "deepseek-v2-lite",
            "precisions": ["bf16", "fp8"],
            "expert_tensor_parallel": 2,
            "expert_dispatch": "deduplicated",
            "dispatches_in_8_bits": True,
            "gathers_routing_maps": True,
            "overlaps_shared_experts": True,
            "expert_products": "separate",
            "context_exchange": "hybrid",
        },
        search=KNOBS,
    ),
}


@cache
def sample(name: str) -> tuple[PlanTable, BoundTable]:
    """Layouts drawn from the lattice of a job, with their bounds."""
    layouts = enumerate_layouts(JOBS[name])
    rows = np.random.default_rng(20_240_607).choice(len(layouts), NUM_LAYOUTS, replace=False)
    layouts = layouts.take(rows)
    return layouts, bound(JOBS[name], layouts)


@cache
def designs(name: str) -> tuple[Evaluation, np.ndarray]:
    """Every design of the drawn layouts, simulated, and the row of its layout."""
    layouts, _ = sample(name)
    result = evaluate(JOBS[name], cross_run_knobs(JOBS[name], layouts))
    return result, np.repeat(np.arange(len(layouts)), num_run_knobs(JOBS[name], layouts))


@cache
def quantities(name: str) -> dict[str, Floats]:
    """What the limits of a job bound, of all its designs."""
    result, _ = designs(name)
    return limited_quantities(JOBS[name], result.plans, result.scores, result.outcomes)


def test_the_least_main_memory_is_that_of_the_least_demanding_scheme() -> None:
    job = job_with(
        {**H100_RENTED, "num_gpus": {"min": 8, "max": 64}},  # a single node has no peer
        workload={"optimizer_offload_fraction": 0.5},
        search={"checkpoint_schemes": ["in_memory_peer", "tiered", "gradient_assisted"]},
    )
    # Nodes so small that no scheme fits: the excess tells what is needed.
    node = job.offers[0].node.model_copy(update={"host_memory_bytes": 1e9})
    job = job.model_copy(update={"offers": (job.offers[0].model_copy(update={"node": node}),)})
    layouts = enumerate_layouts(job)
    layout = np.repeat(np.arange(len(layouts)), num_run_knobs(job, layouts))
    excess = evaluate(job, cross_run_knobs(job, layouts)).excess.host_memory
    least = np.full(len(layouts), np.inf)
    np.minimum.at(least, layout, excess)
    assert least.min() > 0
    found = bound(job, layouts)
    np.testing.assert_allclose(found.host_memory_fraction, 1.0 + least, rtol=1e-12)
    assert not kept_by_bounds(job, found)["host_memory"].any()


def test_an_offer_has_the_same_bounds_beside_others() -> None:
    # Half the memory and another price: what belongs to the other offer would show.
    small = {**A100_RENTED, "accelerator": "a100-sxm4-40gb"}
    both, first, second = (
        bound(job, enumerate_layouts(job))
        for job in (job_with(H100_RENTED, small), job_with(H100_RENTED), job_with(small))
    )
    together = BoundTable.concatenate([first, second])
    for name, values in both.columns().items():
        expected = np.asarray(getattr(together, name), dtype=np.float64)
        np.testing.assert_allclose(values.astype(np.float64), expected, rtol=1e-12, err_msg=name)


def test_spares_that_every_design_has_take_energy_in_the_bound_too() -> None:
    with_spares, without = (
        bound(job, enumerate_layouts(job)).energy_j
        for job in (job_with(H100_RENTED, search={"with_spares": [has]}) for has in (True, False))
    )
    assert (with_spares > 1.01 * without).all()


@pytest.mark.short(6)
@pytest.mark.parametrize("name", JOBS)
def test_no_simulated_design_is_better_than_the_bound_of_its_layout(name: str) -> None:
    _, bounds = sample(name)
    _, layout = designs(name)
    values = quantities(name)
    assert set(values) == set(LIMIT_NAMES)
    for limit in LIMIT_NAMES:
        assert (values[limit] >= getattr(bounds, limit)[layout]).all(), limit


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=10)
@given(data=st.data())
def test_no_interval_between_saves_beats_the_bound(name: str, data: st.DataObject) -> None:
    _, bounds = sample(name)
    every_design, every_layout = designs(name)
    rows = np.arange(data.draw(st.integers(0, 99)), len(every_layout), 100)
    interval_s = 10.0 ** data.draw(st.floats(0.0, 5.0))
    plans = replace(every_design.plans.take(rows), checkpoint_interval_s=np.full(len(rows), interval_s))
    outcomes = simulate(JOBS[name], plans)
    values = limited_quantities(JOBS[name], plans, score(JOBS[name], plans, outcomes), outcomes)
    for limit in LIMIT_NAMES:
        assert (values[limit] >= getattr(bounds, limit)[every_layout[rows]]).all(), limit


@pytest.mark.parametrize("name", JOBS)
def test_memory_and_accelerators_are_exact(name: str) -> None:
    _, bounds = sample(name)
    result, layout = designs(name)
    np.testing.assert_array_equal(bounds.fits_memory[layout], result.excess.memory == 0.0)
    np.testing.assert_array_equal(bounds.num_gpus[layout], result.plans.num_gpus)


@pytest.mark.parametrize("name", JOBS)
def test_power_is_exact_for_the_design_with_the_fewest_spares(name: str) -> None:
    _, bounds = sample(name)
    result, layout = designs(name)
    least = np.full(len(bounds), np.inf)
    np.minimum.at(least, layout, result.outcomes.power.peak_power_w)
    np.testing.assert_allclose(bounds.power_w, least, rtol=1e-8)


@pytest.mark.short(5)
@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=20)
@given(shares=st.lists(st.none() | st.floats(0.0, 0.6), min_size=len(LIMIT_NAMES), max_size=len(LIMIT_NAMES)))
def test_a_design_that_fits_is_never_pruned(name: str, shares: list[float | None]) -> None:
    layouts, bounds = sample(name)
    result, layout = designs(name)
    values = quantities(name)
    limits = {
        limit: float(np.quantile(values[limit], share, method="inverted_cdf"))  # the value of some design
        for limit, share in zip(LIMIT_NAMES, shares, strict=True)
        if share is not None
    }
    fits = result.excess.is_possible
    for limit, value in limits.items():
        fits &= values[limit] <= value
    job = with_limits(JOBS[name], limits)
    block = Block(layouts=layouts, bounds=bounds, num_designs=num_run_knobs(job, layouts))
    space = replace(tiny_space(name), in_memory=(block,)).under(limits)
    assert np.isin(plan_keys(layouts.take(layout[fits])), plan_keys(space.layouts)).all()


@cache
def tiny_space(name: str) -> Space:
    """The same question with as few layouts as there can be, for tests that bring their own."""
    job = JOBS[name]
    search = job.search.model_copy(update={"pipeline_parallel": (1,), "tensor_parallel": (1,)})
    return pruned_space(job.model_copy(update={"search": search}))


@pytest.mark.parametrize("name", JOBS)
def test_the_bound_of_a_step_is_near_the_step(name: str) -> None:
    # Half of the layouts within 15 %; far off are layouts that mostly wait for sharded weights, which are bad anyway.
    layouts, _ = sample(name)
    ratio = bound_step(JOBS[name], layouts).step_time_s / simulate(JOBS[name], layouts).steps.step_time_s
    assert ratio.max() <= 1.0 + 1e-12
    assert np.median(ratio) > 0.85


@pytest.mark.parametrize("name", JOBS)
def test_computation_and_collectives_of_the_bound_are_those_of_the_step(name: str) -> None:
    layouts, _ = sample(name)
    steps, least = simulate(JOBS[name], layouts).steps, bound_step(JOBS[name], layouts)
    casts = (layouts.precision == Precision.FP8.code) | shares_nothing(JOBS[name].workload, layouts)
    casts_in_passes = (layouts.zero_stage == 3) & casts
    is_exact, compute_s = ~casts_in_passes, steps.compute_s
    np.testing.assert_allclose(least.compute_s[is_exact], compute_s[is_exact], rtol=1e-12)
    assert (least.compute_s[casts_in_passes] <= compute_s[casts_in_passes]).all()
    is_paired, shown_s = runs_in_pairs(layouts), steps.tensor_comm_s + steps.expert_comm_s
    # The bound takes all passes to be one of a pair, and knows no sends beside them.
    is_least = is_paired | (layouts.pipeline_parallel > 1) & (
        (layouts.virtual_pipeline > 1) | splits_backward(layouts)
    )
    np.testing.assert_allclose(least.communication_s[~is_least], shown_s[~is_least], rtol=1e-12)
    assert (least.communication_s[is_least] <= shown_s[is_least] * (1.0 + 1e-12)).all()


def test_a_layout_that_only_computes_takes_no_longer_than_its_bound() -> None:
    # One replica on one stage without tensor parallelism: nothing is sent, so only the optimizer is left out.
    # Under ZeRO-3 so are the casts of its masters.
    search = {"tensor_parallel": [8], "pipeline_parallel": [1], "zero_stages": [1]}
    job = job_with({**H100_RENTED, "num_gpus": 8}, search=search)
    layouts = enumerate_layouts(job)
    steps, least = simulate(job, layouts).steps, bound_step(job, layouts)
    np.testing.assert_allclose(least.step_time_s, steps.step_time_s - steps.optimizer_s, rtol=1e-12)


def test_bounds_of_a_run_that_only_computes_leave_out_nothing_but_the_optimizer() -> None:
    # No failures within the age of the universe, so that no design has spares.
    never = {"preset": "mature", "failures_per_1000_node_days": 1e-12, "straggler_log_mean": None}
    search = {"tensor_parallel": [8], "pipeline_parallel": [1], "zero_stages": [1]}
    job = job_with({**H100_RENTED, "num_gpus": 8}, search=search, reliability=never)
    layouts = enumerate_layouts(job)
    least, outcomes = bound(job, layouts), simulate(job, layouts.saving_by(CheckpointScheme.NONE))
    wall_s = outcomes.run.wall_time_s - job.workload.num_steps * outcomes.steps.optimizer_s
    # Bounds are lowered by 1e-9, so that rounding rejects no layout.
    np.testing.assert_allclose(least.deadline_days * DAY, wall_s, rtol=1e-8)
    energy_j = outcomes.energy.total_j - outcomes.energy.optimizer_j
    np.testing.assert_allclose(least.energy_j, energy_j, rtol=1e-8)
    # Eight accelerators at 2.5 USD an hour.
    np.testing.assert_allclose(least.budget_usd, 8 * 2.5 * wall_s / HOUR, rtol=1e-8)


def test_the_least_time_of_a_run_that_only_computes_includes_its_stragglers() -> None:
    search = {"tensor_parallel": [8], "pipeline_parallel": [1], "zero_stages": [1]}
    never = {"preset": "typical", "failures_per_1000_node_days": 1e-12}
    job = job_with({**H100_RENTED, "num_gpus": 8}, search=search, reliability=never)
    layouts = enumerate_layouts(job)
    outcomes = simulate(job, layouts.saving_by(CheckpointScheme.NONE))
    run = outcomes.run
    slowdown = 1.0 + run.straggler_s / run.productive_s
    assert (slowdown > 1.01).all()
    optimizer_s = job.workload.num_steps * outcomes.steps.optimizer_s * slowdown
    np.testing.assert_allclose(
        bound(job, layouts).deadline_days * DAY, run.wall_time_s - optimizer_s, rtol=1e-8
    )


def test_a_run_that_stands_still_may_be_cheaper_at_a_falling_tariff_than_its_hours_of_work() -> None:
    # Power costs in the first hour alone. Long restarts spread the energy over more hours, so that less of it falls there.
    job = job_with(
        {**H100_BOUGHT, "num_gpus": 16, "purchase_usd_per_node": 1.0},
        site={
            "region": "here",
            "power_usage_effectiveness": 1.2,
            "grid_profile": HourlyProfile(per_hour=(0.3,) * 24),
            "electricity_profile": HourlyProfile(per_hour=(10.0,) + (0.0,) * 2399),
        },
        workload={"tokens": 2e9},
        search={"checkpoint_schemes": ["sync"], "tensor_parallel": [2], "zero_stages": [1]},
        reliability={"preset": "harsh", "failures_per_1000_node_days": 2e3, "restart": {"diagnose_s": 1e5}},
    )
    layouts = enumerate_layouts(job)
    found = evaluate(job, layouts.saving_by(CheckpointScheme.SYNC))
    assert (found.outcomes.run.restart_s > found.outcomes.run.productive_s).all()
    assert (bound(job, layouts).budget_usd <= found.scores.cost_usd).all()


@pytest.mark.parametrize("name", JOBS)
def test_the_bound_of_a_layout_does_not_depend_on_its_neighbours(name: str) -> None:
    layouts, _ = sample(name)
    together = bound_step(JOBS[name], layouts)
    for row in range(0, len(layouts), max(1, len(layouts) // 10)):
        alone = bound_step(JOBS[name], layouts.take(slice(row, row + 1)))
        for column, values in alone.columns().items():
            np.testing.assert_array_equal(values[0], getattr(together, column)[row], err_msg=column)


def test_what_fills_a_memory_to_the_last_byte_fits() -> None:
    job = job_with()
    bounds = bound(job, enumerate_layouts(job).take(slice(0, 3)))
    shares = np.array([1.0, 1.0 + 1e-12, 0.5])
    for memory in ("memory", "host_memory"):
        other = {
            "memory_fraction": np.zeros(3),
            "host_memory_fraction": np.zeros(3),
            f"{memory}_fraction": shares,
        }
        kept = kept_by_bounds(job, replace(bounds, **other))
        assert kept[memory].tolist() == [True, False, True]


def test_bounds_of_no_layouts_are_no_bounds() -> None:
    job = job_with()
    assert len(bound(job, enumerate_layouts(job).take(slice(0)))) == 0
