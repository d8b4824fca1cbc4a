"""Do slow-downs by stragglers agree with order statistics, published fleets and each other?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.special import ndtr, ndtri

from simulator.domain.lora import Lora
from simulator.domain.plan import Plan, PlanTable, Recompute, Schedule
from simulator.domain.reliability import Reliability
from simulator.domain.straggler_causes import STRAGGLER_PRESETS, StragglerPreset, StragglerPrior, Stragglers
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.machine.rank import Rank
from simulator.order_statistics import drawn_maximum, expected_maximum, lognormal_factor
from simulator.step.step import StepTable, simulate_step, step_parts
from simulator.stragglers.noise import draw_micro_batches, sequence_quantiles
from simulator.stragglers.pipeline import MicroBatchNoise
from simulator.stragglers.slowdown import (
    StragglerDesigns,
    draw_slowdowns,
    expected_slowdown,
)
from simulator.units import DAY
from tests.simulator.builders import job_of, plan_of, table_of, training
from tests.simulator.straggler_designs import design_of

DEDICATED = STRAGGLER_PRESETS["dedicated"]


def slowdown(model: Stragglers | StragglerPrior, designs: StragglerDesigns) -> float:
    return float(expected_slowdown(model, designs)[0])


@pytest.mark.parametrize("count", [8, 64, 512, 16_384])
@pytest.mark.parametrize("deviation", [0.005, 0.02, 0.05, 0.1])
def test_the_slowest_of_many_lognormal_ranks_is_that_of_the_exact_integral(
    count: int, deviation: float
) -> None:
    # E[max] = integral of x d(Phi(x)^N), the trapezoidal rule on a grid of a thousandth.
    z = np.arange(-10.0, 10.0, 0.001)
    values = np.exp(deviation * z - deviation**2 / 2.0)
    exact = np.diff(ndtr(z) ** count) @ (values[1:] + values[:-1]) / 2.0
    # 0.3 %: published accuracy of Blom's approximation up to a deviation of 0.1.
    assert float(lognormal_factor(deviation, expected_maximum(count))) == pytest.approx(exact, rel=0.003)


def test_one_rank_waits_for_nobody() -> None:
    assert float(expected_maximum(1)) == 0.0
    assert float(lognormal_factor(0.3, expected_maximum(1))) == 1.0


def test_drawn_maxima_have_the_mean_of_the_expected_one() -> None:
    uniforms = (np.arange(100_000) + 0.5) / 100_000
    assert drawn_maximum(512, uniforms).mean() == pytest.approx(float(expected_maximum(512)), abs=0.02)


def test_jitter_of_micro_batches_averages_out_and_slow_ranks_do_not() -> None:
    design = design_of(replicas=16_384, micro_batches=32)
    jitter = slowdown(Stragglers(micro_batch_log_deviation=0.02), design)
    persistent = slowdown(Stragglers(rank_log_deviation=0.02), design)
    # z = 3.956 for 16,384: exp(0.02 z / sqrt(32)) = 1.0141 against exp(0.02 z - 0.0002) = 1.0821.
    assert jitter == pytest.approx(1.0141, abs=0.0008)
    assert persistent == pytest.approx(1.0821, abs=0.0002)


@given(
    replicas=st.integers(1, 2048),
    ranks=st.sampled_from([1, 2, 8, 16]),
    stages=st.integers(1, 16),
    chunks=st.sampled_from([1, 2, 4]),
    groups=st.integers(1, 8),
    slowest=st.floats(1.0, 1.3),
)
def test_without_causes_nothing_is_slower(
    replicas: int, ranks: int, stages: int, chunks: int, groups: int, slowest: float
) -> None:
    design = design_of(
        replicas=replicas,
        ranks=ranks,
        stages=stages,
        chunks=chunks,
        micro_batches=stages * groups,
        slowest=slowest if stages > 1 else 1.0,
    )
    assert slowdown(Stragglers(), design) == pytest.approx(1.0, abs=1e-12)
    drawn = draw_slowdowns(Stragglers(), design, num_replications=5, seed=1, run_s=DAY)
    assert drawn == pytest.approx(1.0, abs=1e-12)


GROWING = {
    "stage_imbalance": (1.0, 1.2, 2.0),
    "rank_log_deviation": (0.0, 0.004, 0.02, 0.1),
    "slow_host_fraction": (0.0, 0.001, 0.01, 0.5),
    "slow_host_factor": (1.0, 1.05, 1.5),
    "micro_batch_log_deviation": (0.0, 0.01, 0.02, 0.1),
    "has_uneven_sequences": (False, True),
    "gc_pause_s": (0.0, 0.1, 1.0),
    "episodes_per_node_day": (0.0, 0.01, 1.0),
    "episode_factor": (1.0, 1.5),
}


@pytest.mark.short(48)
@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("preset", STRAGGLER_PRESETS)
@pytest.mark.parametrize(
    ("stages", "chunks", "micro_batches"), [(1, 1, 8), (4, 1, 4), (8, 1, 32), (8, 2, 16)]
)
def test_more_of_a_cause_never_makes_a_step_faster(
    name: str, preset: StragglerPreset, stages: int, chunks: int, micro_batches: int
) -> None:
    base = STRAGGLER_PRESETS[preset].model_copy(update={"gc_pause_s": 0.05})
    design = design_of(
        replicas=32, ranks=8, stages=stages, chunks=chunks, micro_batches=micro_batches, compute=0.8
    )
    found = [slowdown(base.model_copy(update={name: value}), design) for value in GROWING[name]]
    assert found == sorted(found)
    assert found[0] >= 1.0


@pytest.mark.parametrize("preset", STRAGGLER_PRESETS)
def test_presets_slow_larger_jobs_more_and_none_absurdly(preset: StragglerPreset) -> None:
    designs = [
        design_of(replicas=gpus // 64, ranks=8, stages=8, micro_batches=32, compute=0.85, rest=0.05)
        for gpus in (128, 512, 2048, 16_384)
    ]
    found = [slowdown(STRAGGLER_PRESETS[preset], design) for design in designs]
    assert found == sorted(found)
    # The mean over straggling jobs is 1.28, and 1 % of 3,079 jobs lose 45 % or more (arXiv 2505.05713).
    assert found[0] > 1.005
    assert found[-1] < 1.0 / (1.0 - 0.45) + 0.1


def test_the_ways_of_common_steps_cost_nothing_on_average() -> None:
    design = design_of(replicas=64, stages=4, micro_batches=16)
    assert slowdown(Stragglers(step_log_deviation=0.02), design) == 1.0


def test_a_shared_fleet_meets_the_episodes_of_greyhound() -> None:
    # arXiv 2410.12588: 16 of 27 jobs of at least 512 GPUs met fail-slow episodes, 72 min and +34.59 % on average.
    shared = STRAGGLER_PRESETS["shared"]
    calm = shared.model_copy(update={"episodes_per_node_day": 0.0})
    design = design_of(replicas=64, ranks=8, micro_batches=16)
    drawn, without = (
        draw_slowdowns(model, design, num_replications=20_000, seed=3, run_s=DAY)[0]
        for model in (shared, calm)
    )
    is_affected = drawn > without
    assert is_affected.mean() == pytest.approx(16 / 27, abs=0.012)  # three standard errors
    once = np.isclose(drawn / without - 1.0, 0.3459 * -np.expm1(-72 * 60 / DAY))
    assert once.any()
    assert (drawn[is_affected] >= without[is_affected] * (1 + 0.3459 * 0.048)).all()


@pytest.mark.parametrize("preset", STRAGGLER_PRESETS)
def test_draws_have_the_mean_of_the_expected_slowdown(preset: StragglerPreset) -> None:
    design = design_of(replicas=32, ranks=8, stages=4, micro_batches=16, compute=0.85, rest=0.05)
    model = STRAGGLER_PRESETS[preset]
    drawn = draw_slowdowns(model, design, num_replications=20_000, seed=11, run_s=30 * DAY)
    # Half a point: in a draw, ranks and hosts come together otherwise than their expectations do.
    assert drawn.mean() == pytest.approx(slowdown(model, design), abs=0.005)
    assert drawn.min() >= 1.0


def test_a_run_without_end_has_its_share_of_episodes() -> None:
    shared, design = STRAGGLER_PRESETS["shared"], design_of(replicas=32, ranks=8, micro_batches=16)
    endless, long_run = (
        draw_slowdowns(shared, design, num_replications=10, seed=1, run_s=run_s) for run_s in (np.inf, None)
    )
    assert (endless == long_run).all()


def test_draws_depend_on_the_seed_only_and_designs_share_their_luck() -> None:
    one = design_of(replicas=32, ranks=8, stages=4, micro_batches=16)
    both = StragglerDesigns.concatenate([one, design_of(replicas=64, ranks=8, stages=4, micro_batches=16)])
    alone = draw_slowdowns(DEDICATED, one, num_replications=50, seed=5)
    together = draw_slowdowns(DEDICATED, both, num_replications=50, seed=5)
    assert (alone[0] == together[0]).all()
    assert (alone != draw_slowdowns(DEDICATED, one, num_replications=50, seed=6)).any()
    # Lucky fleets are lucky in both designs.
    assert np.corrcoef(together[0], together[1]).min() > 0.5


def test_a_design_comes_out_the_same_whatever_shares_its_table() -> None:
    model = STRAGGLER_PRESETS["long_context"].model_copy(update={"gc_pause_s": 0.1})
    designs = [
        design_of(replicas=replicas, stages=stages, chunks=chunks, micro_batches=48)
        for replicas in (1, 7, 400)
        for stages, chunks in ((1, 1), (2, 2), (3, 1), (3, 4), (16, 1))
    ]
    together = expected_slowdown(model, StragglerDesigns.concatenate(designs))
    assert together.tolist() == [slowdown(model, design) for design in designs]


def test_the_prior_reproduces_five_statistics_of_a_fleet() -> None:
    """3,079 jobs: arXiv 2505.05713, as printed there; 8 % is how well two parameters can fit them."""
    design = design_of()
    slow = draw_slowdowns(StragglerPrior(), design, num_replications=400_000, seed=2)[0]
    waste = 1.0 - 1.0 / slow
    assert (slow > 1.1).mean() == pytest.approx(0.425, rel=0.08)
    assert np.quantile(waste, 0.90) == pytest.approx(0.213, rel=0.08)
    assert np.quantile(waste, 0.99) == pytest.approx(0.450, rel=0.08)
    assert waste.mean() == pytest.approx(0.104, rel=0.08)
    assert slow[slow > 1.1].mean() == pytest.approx(1.28, rel=0.08)


def test_the_prior_is_that_of_the_fleet_presets() -> None:
    reliability = Reliability(failures_per_1000_node_days=1.0)
    assert slowdown(StragglerPrior(), design_of()) == pytest.approx(reliability.straggler_slowdown, rel=1e-15)


def test_unsynchronized_pauses_of_many_ranks_hit_every_step() -> None:
    model = Stragglers(gc_pause_s=0.5, gc_every_steps=100.0)
    few, many = design_of(replicas=1), design_of(replicas=4096)
    # One rank pauses in every hundredth step, and of 4,096 always one does: 0.5 s of a step of 8 s.
    assert slowdown(model, few) == pytest.approx(1.0 + 0.01 * 0.5 / 8.0)
    assert slowdown(model, many) == pytest.approx(1.0 + 0.5 / 8.0)
    together = model.model_copy(update={"is_gc_synchronized": True})
    assert slowdown(together, many) == pytest.approx(1.0 + 0.01 * 0.5 / 8.0)


def test_any_rank_of_a_stage_pauses_it() -> None:
    model = Stragglers(gc_pause_s=0.5, gc_every_steps=100.0)
    assert slowdown(model, design_of(ranks=8)) == pytest.approx(1.0 + (1 - 0.99**8) * 0.5 / 8.0)


@pytest.mark.parametrize("slowest", [1.0, 1.2])
def test_gpipe_hides_no_pause_of_any_stage(slowest: float) -> None:
    model = Stragglers(gc_pause_s=0.5, gc_every_steps=100.0)
    design = design_of(schedule=Schedule.GPIPE, stages=4, micro_batches=16, slowest=slowest)
    assert slowdown(model, design) == pytest.approx(1.0 + 4 * 0.01 * 0.5 / (4 + 15 * slowest))


def test_a_slow_host_costs_nothing_in_a_stage_that_is_as_much_faster_as_it_is_slow() -> None:
    # Cycles of 0.8 and 1.2 s: half as long again, the first stage takes as long as the last one.
    design = design_of(ranks=8, stages=2, micro_batches=16, slowest=1.2)
    model = Stragglers(slow_host_fraction=0.1, slow_host_factor=1.5)
    assert slowdown(model, design) == pytest.approx(1.0 + 0.1 * 16 * 0.6 / (2 + 15 * 1.2))


def test_stages_do_not_wait_for_uneven_micro_batches_where_a_slow_host_holds_them_up_anyway() -> None:
    host = Stragglers(slow_host_fraction=0.999, slow_host_factor=3.0)
    both = host.model_copy(update={"micro_batch_log_deviation": 0.02})
    design = design_of(ranks=8, stages=4, micro_batches=16)
    assert slowdown(both, design) == pytest.approx(slowdown(host, design), rel=1e-9)


def test_what_waiting_adds_to_the_slowest_replica_shrinks_with_the_fourth_root_of_waiting() -> None:
    gaps, one = np.array([0.0, 0.01, 0.03, 0.1]), np.ones(4)
    noise = MicroBatchNoise(
        num_micro_batches=np.full(4, 16),
        of_last=0.0 * one,
        of_others=0.05 * one,
        wait=0.7 * one,
        slowest=np.tile([1.5, 2.0, 2.5, 3.0], (4, 1)),
        slowest_alone=np.zeros((4, 4)),
    )
    waiting, added = noise.waiting(gaps), noise.slowest_replica(np.full(4, 64), gaps)
    assert (added / added[0]) ** 4 == pytest.approx(waiting / waiting[0])


def test_without_a_pipeline_a_step_waits_for_the_slowest_of_all_ranks_however_they_share_layers() -> None:
    expected = float(lognormal_factor(0.02, expected_maximum(64)))
    for ranks in (1, 8, 64):
        found = slowdown(Stragglers(rank_log_deviation=0.02), design_of(replicas=64 // ranks, ranks=ranks))
        assert found == pytest.approx(expected)


@pytest.mark.parametrize("slowest", [1.0, 1.4])
@pytest.mark.parametrize("chunks", [1, 2])
def test_stages_that_all_wait_for_as_many_ranks_are_all_slower_and_so_is_the_fill(
    chunks: int, slowest: float
) -> None:
    design = design_of(ranks=64, stages=2, chunks=chunks, micro_batches=4, slowest=slowest)
    expected = float(lognormal_factor(0.02, expected_maximum(64)))
    assert slowdown(Stragglers(rank_log_deviation=0.02), design) == pytest.approx(expected)


def test_without_a_pipeline_variances_of_ranks_and_micro_batches_add() -> None:
    # The slowest of as many sums of two normal draws is as far off as a draw with both variances.
    design, ranks = design_of(replicas=64, micro_batches=16), Stragglers(rank_log_deviation=0.005)
    micro_batches = Stragglers(micro_batch_log_deviation=0.02)
    both = Stragglers(rank_log_deviation=0.005, micro_batch_log_deviation=0.02)
    of_ranks, of_micro_batches, of_both = (
        slowdown(each, design) - 1.0 for each in (ranks, micro_batches, both)
    )
    assert of_both == pytest.approx(np.hypot(of_ranks, of_micro_batches))


def test_beside_stages_that_hardly_work_replicas_differ_as_by_the_last_stage_alone() -> None:
    model = Stragglers(micro_batch_log_deviation=0.02)
    alone = design_of(replicas=64, micro_batches=32)
    last = design_of(replicas=64, stages=2, micro_batches=32, slowest=1.98)
    alone_s, last_s = ((slowdown(model, design) - 1.0) * design.step_time_s[0] for design in (alone, last))
    assert last_s == pytest.approx(1.98 * alone_s)


def test_slow_ranks_hide_in_stages_that_are_faster_by_more() -> None:
    # Three of four stages have the slowest rank more often, by 0.3 %, but cycles that are 1.3 % shorter.
    design = design_of(replicas=64, stages=4, micro_batches=16, slowest=1.01)
    longer_s = 16 * 1.01 * (float(lognormal_factor(0.001, expected_maximum(64))) - 1.0)
    found = slowdown(Stragglers(rank_log_deviation=0.001), design)
    assert found - 1.0 == pytest.approx(longer_s / (4 + 15 * 1.01))


def test_two_stages_are_drawn_as_slow_as_one_with_as_many_ranks_where_none_hides() -> None:
    one = design_of(replicas=64, micro_batches=16)
    two = design_of(schedule=Schedule.GPIPE, replicas=32, stages=2, micro_batches=16)
    found = [
        np.quantile(
            (draw_slowdowns(model, design, num_replications=20_000, seed=4)[0] - 1.0) * design.step_time_s,
            [0.1, 0.5, 0.9],
        )
        for model in [Stragglers(rank_log_deviation=0.01)]
        for design in (one, two)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=0.01)  # three standard errors


def test_a_part_of_a_node_is_a_node() -> None:
    assert design_of(replicas=2, gpus_per_node=8).num_nodes == 1
    assert design_of(replicas=24, gpus_per_node=8).num_nodes == 3


def test_traffic_is_not_stretched() -> None:
    model = Stragglers(rank_log_deviation=0.02)
    all_compute, half = (slowdown(model, design_of(replicas=64, compute=share)) for share in (1.0, 0.5))
    assert half - 1.0 == pytest.approx((all_compute - 1.0) / 2.0)


def test_factors_of_micro_batches_have_mean_one() -> None:
    quantiles = sequence_quantiles()
    forward, backward = quantiles.factors((np.arange(100_000) + 0.5) / 100_000)
    assert forward.mean() == pytest.approx(1.0, abs=1e-4)
    assert backward.mean() == pytest.approx(1.0, abs=1e-4)
    model = Stragglers(micro_batch_log_deviation=0.1, has_uneven_sequences=True)
    drawn = draw_micro_batches(model, (200_000,), np.random.default_rng(1))
    assert [values.mean() for values in drawn] == pytest.approx(
        [1.0, 1.0], abs=0.004
    )  # three standard errors
    assert np.corrcoef(*drawn)[0, 1] > 0.98  # 0.993 in the trace


def simulated(*plans: Plan) -> tuple[Workload, PlanTable, StepTable]:
    """Returns Llama 3.1 70B with 256 sequences in a step, and steps of these plans."""
    workload, table = training("llama-3.1-70b", global_batch_size=256), table_of(*plans)
    return (
        workload,
        table,
        simulate_step(Rank.of(job_of(workload), table), split_layers(workload.model, table)),
    )


def test_simulated_steps_bring_what_stragglers_need() -> None:
    workload, plans, steps = simulated(
        plan_of(tensor=8, pipeline=4, data=16), plan_of(tensor=4, context=2, data=16)
    )
    designs = StragglerDesigns.of(workload, plans, steps, 8)
    assert designs.num_ranks.tolist() == [512, 128]
    assert designs.num_micro_batches.tolist() == [16, 16]
    # The last stage computes the logits: 8,192 x 128,256 weights against 20 layers of 856 million.
    assert 1.02 < designs.slowest_cycle_factor[0] < 1.10
    assert designs.slowest_cycle_factor[1] == 1.0
    assert ((designs.compute_fraction > 0.5) & (designs.compute_fraction < 1.0)).all()
    found = expected_slowdown(DEDICATED, designs)
    assert ((found > 1.0) & (found < 1.1)).all()
    # A quarter more compute on the last stage makes it the bottleneck of all micro-batches.
    untuned = expected_slowdown(Stragglers(stage_imbalance=1.25), designs)
    assert 1.10 < untuned[0] < 1.25
    assert untuned[1] == 1.0


@pytest.mark.parametrize(
    "part",
    ["compute_s", "tensor_comm_s", "expert_comm_s", "shard_comm_s", "pipeline_send_s", "host_copy_s"],
)
def test_a_cycle_has_everything_that_a_stage_does_for_a_micro_batch(part: str) -> None:
    workload, plans, steps = simulated(plan_of(tensor=8, pipeline=4, data=16))
    a_second_each = {part: getattr(steps, part) + 16.0}
    short, long = (
        StragglerDesigns.of(workload, plans, each, 8) for each in (steps, replace(steps, **a_second_each))
    )
    assert short.num_micro_batches == 16
    assert long.cycle_s - short.cycle_s == pytest.approx(1.0)
    compute_s = long.compute_fraction * long.cycle_s - short.compute_fraction * short.cycle_s
    assert compute_s == pytest.approx(1.0 if part == "compute_s" else 0.0)


@pytest.mark.parametrize(
    ("schedule", "chunks", "of_slowest"),
    [(Schedule.ONE_F_ONE_B, 1, 15.0), (Schedule.ONE_F_ONE_B, 5, 15.8), (Schedule.ZB_H1, 1, 16.0)],
)
def test_the_slowest_stage_follows_from_the_time_of_the_pipeline(
    schedule: Schedule, chunks: int, of_slowest: float
) -> None:
    plan = plan_of(tensor=8, pipeline=4, virtual=chunks, data=16, schedule=schedule)
    workload, plans, steps = simulated(plan)
    usual = StragglerDesigns.of(workload, plans, steps, 8)

    def slowest(cycles: float) -> float:
        bubble_s = usual.cycle_s * (cycles - 16)
        designs = StragglerDesigns.of(workload, plans, replace(steps, pipeline_bubble_s=bubble_s), 8)
        return float(designs.slowest_cycle_factor[0])

    # Four stages once by chunks, or the forwards of three where backwards are split; the rest is on the slowest one.
    of_all = 3 * float(usual.forward_fraction[0]) if schedule is Schedule.ZB_H1 else 4 / chunks
    assert slowest(of_all + of_slowest * 1.2) == pytest.approx(1.2)
    assert slowest(16.0) == 1.0, "no stage is slower than the slowest one"


def test_the_forward_has_its_share_of_a_cycle_whatever_the_backward_computes() -> None:
    """Shares of the chunks' own times, which traffic and the output layer move by a few points."""
    layouts: tuple[dict[str, Any], ...] = (
        {},
        {"recompute": Recompute.FULL},
        {"recompute": Recompute.FULL, "recompute_num_layers": 10},
    )
    plans = table_of(*(plan_of(tensor=8, pipeline=4, data=4, **layout) for layout in layouts))
    full = training("llama-3.1-70b")
    for workload in (full, full.model_copy(update={"lora": Lora(rank=16)})):
        rank, layers = Rank.of(job_of(workload), plans), split_layers(workload.model, plans)
        pipeline = step_parts(rank, layers).pipeline
        forward_s, backward_s = (
            np.sum(np.asarray(each), axis=1)
            for each in (pipeline["chunk_forward_s"], pipeline["chunk_backward_s"])
        )
        designs = StragglerDesigns.of(workload, plans, simulate_step(rank, layers), 8)
        assert designs.forward_fraction == pytest.approx(forward_s / (forward_s + backward_s), abs=0.05)


@pytest.mark.parametrize(
    ("field", "value"),
    [("stage_imbalance", 0.9), ("rank_log_deviation", -0.1), ("slow_host_fraction", 1.0), ("episode_s", 0.0)],
)
def test_impossible_causes_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match=field):
        Stragglers.model_validate({field: value})


def test_expected_maxima_are_blom_s() -> None:
    assert float(expected_maximum(2048)) == pytest.approx(ndtri((2048 - 0.375) / 2048.25), rel=1e-15)
    assert float(expected_maximum(2048)) == pytest.approx(3.427, abs=0.0005)  # tables of order statistics
