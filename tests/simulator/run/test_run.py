"""Does a run fail, restart and finish as fleets report?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.checkpointing import PeerPlacement
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.limits import Limits
from simulator.domain.plan import CheckpointScheme, Plan, Recompute
from simulator.domain.reliability import RELIABILITY_PRESETS, Reliability, Restart
from simulator.domain.straggler_causes import Stragglers
from simulator.machine.training import training_constants
from simulator.run.interruptions import interruptions, mean_time_between_failures_s
from simulator.run.spare_nodes import node_losses_within, sufficient_spare_nodes
from simulator.run.stragglers import (
    draw_straggler_slowdowns,
    excess_share,
    expected_straggler_slowdown,
    least_slowdown,
)
from simulator.run.wall_time import BADPUT, PARTS, RunTable, first_start_s
from simulator.simulate import Outcomes, replicate, simulate
from simulator.units import DAY, HOUR
from tests.simulator.builders import changed, job_of, plan_of, rented, table_of, training


def with_reliability(job: Job, **fields: object) -> Job:
    reliability = Reliability.model_validate(job.reliability.model_dump() | fields)
    return job.model_copy(update={"reliability": reliability})


def run_of(job: Job, plan: Plan) -> RunTable:
    return simulate(job, table_of(plan)).run


def poisson_tail(least: int, mean: float) -> float:
    """P(X >= least) summed by hand."""
    return 1.0 - sum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(least))


class TestFailures:
    @pytest.mark.parametrize(
        ("preset", "hours"),
        [
            ("typical", 1.803),  # arXiv 2410.21680 projects 1.8 h at 16,384 GPUs
            ("mature", 5.008),
            ("frontier", 3.09),  # 419 interruptions in 54 days (arXiv 2407.21783)
        ],
    )
    def test_16384_gpus_fail_as_often_as_published(self, preset: str, hours: float) -> None:
        mtbf_s = mean_time_between_failures_s(job_of(reliability=preset), table_of(plan_of(data=16_384)))
        assert mtbf_s / HOUR == pytest.approx(hours, rel=1e-3)

    @pytest.mark.parametrize(("num_gpus", "hours"), [(131_072, 0.225), (1024, 28.8)])
    def test_they_fail_in_proportion_to_the_nodes(self, num_gpus: int, hours: float) -> None:
        mtbf_s = mean_time_between_failures_s(job_of(), table_of(plan_of(data=num_gpus)))
        assert mtbf_s / HOUR == pytest.approx(hours, rel=2e-3)

    def test_a_long_run_has_a_failure_per_mean_up_time(self) -> None:
        run = run_of(job_of(training(num_steps=1_000_000)), plan_of(data=512))
        up_s = run.wall_time_s - run.way_back_s - run.initialization_s
        assert run.num_failures == pytest.approx(up_s / run.mtbf_s)


ENDLESS = training(num_steps=10**9)
"""On as many accelerators as there are here it takes longer than any repair."""


class TestSpares:
    @pytest.mark.parametrize(
        ("nodes", "rate", "repair_days", "spares"),
        [(256, 6.5, 1, 5), (256, 6.5, 3, 11), (2048, 6.5, 3, 55), (2048, 6.5, 7, 116), (2048, 2.34, 3, 24)],
    )
    def test_99_percent_of_failures_find_one_more_than_the_99th_percentile_in_repair(
        self, nodes: int, rate: float, repair_days: float, spares: int
    ) -> None:
        # Smallest x with Poisson(x; nodes x rate x days) >= 0.99, of which none is left for the next failure.
        job = with_reliability(
            job_of(ENDLESS),
            failures_per_1000_node_days=rate,
            repair_days=repair_days,
            process_fault_fraction=0.0,
        )
        assert sufficient_spare_nodes(job, table_of(plan_of(data=8 * nodes))) == spares + 1

    @given(nodes=st.integers(1, 2000), preset=st.sampled_from(["mature", "typical", "harsh"]))
    def test_sufficient_spares_leave_one_failure_in_a_hundred_without(self, nodes: int, preset: str) -> None:
        job, plan = job_of(ENDLESS, reliability=preset), plan_of(data=8 * nodes)
        spares = int(sufficient_spare_nodes(job, table_of(plan))[0])
        in_repair = float(node_losses_within(job, table_of(plan), 3.0 * DAY)[0])
        assert in_repair == pytest.approx(nodes * job.reliability.failures_per_1000_node_days / 1000 * 3 / 2)
        assert poisson_tail(spares, in_repair) <= 0.01 < poisson_tail(spares - 1, in_repair)

    @staticmethod
    def job_of_hours(hours: float, num_gpus: int, **reliability: object) -> Job:
        """A job that takes so many hours on H100 at 10 % of the dense peak of their data sheet, 989.4 TFLOP/s."""
        workload = training()
        flop_per_token = workload.model.model_flop_per_token(workload.sequence_length)
        tokens = hours * HOUR * num_gpus * 0.1 * 989.4e12 / flop_per_token
        return with_reliability(job_of(workload.model_copy(update={"tokens": tokens})), **reliability)

    def test_no_node_is_longer_in_repair_than_the_run_lasts(self) -> None:
        # 64 nodes x 23.7 failures per 1000 node-days x a day x half: 0.7584 on average; P(X <= 3) = 0.993 and
        # P(X <= 2) = 0.956, so that the fourth spare is the first that 99 of 100 failures find.
        job = self.job_of_hours(
            24.0, 512, failures_per_1000_node_days=23.7, repair_days=10_000, process_fault_fraction=0.5
        )
        assert poisson_tail(4, 0.7584) < 0.01 < poisson_tail(3, 0.7584)
        plans = table_of(plan_of(data=512))
        assert sufficient_spare_nodes(job, plans) == 4
        # A run that is known to take a third of the time loses a third of the nodes: 0.2528, P(X <= 1) = 0.973.
        assert poisson_tail(3, 0.2528) < 0.01 < poisson_tail(2, 0.2528)
        assert sufficient_spare_nodes(job, plans, np.array([8.0 * HOUR])) == 3

    def test_runs_that_use_little_of_the_peak_find_enough_spares(self) -> None:
        # A mixture of experts at 12 % of the peak, on nodes whose repair takes longer than the run.
        job = with_reliability(
            job_of(changed(training("deepseek-v3", global_batch_size=2048), tokens=2e12)), repair_days=60
        )
        plans = table_of(plan_of(pipeline=16, expert=32, data=64, recompute=Recompute.FULL))
        run_s = simulate(job, plans).run.calm_s
        mfu = job.workload.tokens * job.workload.model_flop_per_token / (1024 * 989.4e12 * run_s[0])
        assert 0.1 < mfu < 0.2
        assert sufficient_spare_nodes(job, plans) >= sufficient_spare_nodes(job, plans, run_s) > 0

    def test_runs_that_end_before_a_node_fails_need_no_spare(self) -> None:
        # Eight nodes in two hours: 8 x 6.5 / 1000 x 2/24 x half = 0.0022 failures; in ten hours 0.0108, above 1 %.
        plans = table_of(plan_of(data=64))
        for repair_days in (0.01, 3, 10_000):
            short, long = (self.job_of_hours(hours, 64, repair_days=repair_days) for hours in (2.0, 10.0))
            assert sufficient_spare_nodes(short, plans) == 0
            assert sufficient_spare_nodes(long, plans) >= 1

    @pytest.mark.parametrize("domain_rate", [0.5, 10.0, 100.0])
    @pytest.mark.parametrize("num_gpus", [16, 64, 512])
    def test_spares_stand_by_for_whole_domains(self, domain_rate: float, num_gpus: int) -> None:
        # Racks of four nodes fail at once. By drawing: at most one loss in a hundred finds fewer spares than it takes, and one
        # spare less is too few. 400,000 draws know 1 % to 0.016 %.
        job = with_reliability(job_of(ENDLESS), domain_failures_per_1000_domain_days=domain_rate)
        nodes, size = num_gpus // 8, min(4, num_gpus // 8)
        node_losses, domain_losses = nodes * 6.5 / 2, -(-nodes // 4) * domain_rate  # in 1000 days
        draw = np.random.default_rng(1)
        alone, together = (
            draw.poisson(node_losses * 0.003, 400_000),
            draw.poisson(domain_losses * 0.003, 400_000),
        )
        in_repair = alone + size * together

        def without(spares: int) -> float:
            for_node, for_domain = (np.mean(in_repair + taken > spares) for taken in (1, size))
            return float(
                (node_losses * for_node + domain_losses * for_domain) / (node_losses + domain_losses)
            )

        spares = int(sufficient_spare_nodes(job, table_of(plan_of(data=num_gpus)))[0])
        assert without(spares) <= 0.0105
        assert without(spares - 1) > 0.0095

    def test_where_no_node_ever_fails_no_spare_is_taken(self) -> None:
        job = with_reliability(job_of(ENDLESS), process_fault_fraction=1.0)
        assert sufficient_spare_nodes(job, table_of(plan_of(data=16_384))) == 0

    def test_a_number_format_that_is_missing_does_not_make_spares_endless(self) -> None:
        job = with_reliability(job_of(ENDLESS, rented("a100-sxm4-80gb")), repair_days=3)
        eight, sixteen = (
            sufficient_spare_nodes(job, table_of(plan_of(data=2048, precision=precision)))
            for precision in (Precision.FP8, Precision.BF16)
        )
        assert eight == sixteen

    def test_a_short_run_waits_no_longer_for_spares_than_it_lasts(self) -> None:
        # In the steady state 4,160 of 64 nodes were in repair; in some hours not one is to be expected.
        job = self.job_of_hours(2.0, 512, repair_days=10_000, process_fault_fraction=0.0)
        outcomes = simulate(job, table_of(plan_of(data=512, spares=10)))
        per_failure_s = (outcomes.run.restart_s + outcomes.run.replacement_wait_s) / outcomes.run.num_failures
        assert per_failure_s[0] == pytest.approx(300 + 60, rel=1e-3)


class TestRestarts:
    def restart_s(self, job: Job, plan: Plan) -> float:
        run = run_of(job, plan)
        return float(((run.restart_s + run.replacement_wait_s) / run.num_failures)[0])

    def test_a_process_fault_needs_no_other_node(self) -> None:
        job = with_reliability(job_of(), process_fault_fraction=1.0)
        # Detect 60, diagnose 60, initialise 120, warm up 60.
        assert self.restart_s(job, plan_of(data=64)) == pytest.approx(300)

    def test_a_node_fault_waits_two_hours_without_a_spare_and_a_minute_with_one(self) -> None:
        job = with_reliability(job_of(), process_fault_fraction=0.0)
        # Now and then a repaired node is back before the two hours are over.
        assert self.restart_s(job, plan_of(data=64)) == pytest.approx(300 + 7200, rel=0.01)
        assert self.restart_s(job, plan_of(data=64, spares=50)) == pytest.approx(300 + 60)

    def test_half_of_the_faults_take_half_of_the_wait(self) -> None:
        assert self.restart_s(job_of(), plan_of(data=64)) == pytest.approx(300 + 0.5 * 7200, rel=0.01)

    def test_an_announced_stop_loses_no_work(self) -> None:
        # 0.42 per 1000 node-days: Llama 3 405B, 47 planned interruptions in 54 days on 2,048 nodes (arXiv 2407.21783).
        job = with_reliability(
            job_of(training(num_steps=300_000, global_batch_size=2048)),
            failures_per_1000_node_days=1e-6,
            planned_stops_per_1000_node_days=0.425,
        )
        run = run_of(job, plan_of(data=2048))
        worked_s = run.productive_s + run.straggler_s
        assert run.num_planned_stops == pytest.approx(256 * 0.425 / 1000 * worked_s / DAY, rel=0.01)
        assert run.lost_work_s == pytest.approx(0, abs=1)
        # Take the node out 600, initialise 120, warm up 60.
        assert run.restart_s / run.num_planned_stops == pytest.approx(780, rel=1e-3)

    def test_a_queue_ends_jobs_of_any_size_as_often(self) -> None:
        job = with_reliability(
            job_of(training(num_steps=300_000, global_batch_size=2048)),
            failures_per_1000_node_days=1e-6,
            queue_limit_days=0.5,
            restart=Restart(planned_stop_s=7200.0),
        )
        for replicas in (512, 2048):
            run = run_of(job, plan_of(data=replicas))
            worked_s = run.productive_s + run.straggler_s
            assert run.num_planned_stops == pytest.approx(worked_s / (0.5 * DAY), rel=0.01)
            assert run.lost_work_s == pytest.approx(0, abs=1)
            # Wait in the queue 7,200, initialise 120, warm up 60.
            assert run.restart_s / run.num_planned_stops == pytest.approx(7380, rel=1e-3)

    def test_the_ends_of_jobs_and_maintenance_add_up(self) -> None:
        counts = [
            run_of(
                with_reliability(job_of(), planned_stops_per_1000_node_days=planned, queue_limit_days=limit),
                plan_of(data=64),
            ).num_planned_stops
            for planned, limit in ((0.5, None), (0.0, 2.0), (0.5, 2.0))
        ]
        assert counts[2] == pytest.approx(counts[0] + counts[1], rel=0.01)
        assert min(counts) > 0.0

    def test_saves_that_are_lost_with_the_node_go_back_to_the_file_system(self) -> None:
        job, plan = job_of(), plan_of(data=64, scheme=CheckpointScheme.ASYNC)
        faults = {
            share: simulate(with_reliability(job, process_fault_fraction=share), table_of(plan))
            for share in (0.0, 1.0)
        }
        for share, outcomes in faults.items():
            saves, run = outcomes.checkpoints, outcomes.run
            load_s = saves.fast_load_s if share else saves.durable_load_s
            assert run.checkpoint_restore_s / run.num_failures == pytest.approx(load_s)

    def test_a_rack_that_fails_takes_copies_on_its_nodes_along(self) -> None:
        job = with_reliability(
            job_of(training(num_steps=300_000)),
            failures_per_1000_node_days=1e-6,
            domain_failures_per_1000_domain_days=50.0,
            nodes_per_domain=8,
        )
        plan = plan_of(data=512, scheme=CheckpointScheme.IN_MEMORY_PEER, spares=30)
        apart = job.model_copy(
            update={
                "checkpointing": job.checkpointing.model_copy(
                    update={"peer_placement": PeerPlacement.CROSS_DOMAIN}
                )
            }
        )
        together_s, apart_s = (float(run_of(each, plan).lost_work_s[0]) for each in (job, apart))
        assert together_s > 2.0 * apart_s

    def test_domains_fail_beside_their_nodes(self) -> None:
        job = with_reliability(
            job_of(),
            failures_per_1000_node_days=4.0,
            domain_failures_per_1000_domain_days=8.0,
            nodes_per_domain=4,
            process_fault_fraction=0.25,
        )
        plans = table_of(plan_of(data=128))  # 16 nodes in 4 domains: 0.064 + 0.032 a day
        stops = interruptions(job, plans, simulate(job, plans).checkpoints)
        assert stops.mean_up_time_s == pytest.approx(DAY / 0.096)
        assert stops.share[0] == pytest.approx([1 / 6, 1 / 2, 1 / 3, 0])
        assert stops.nodes[0].tolist() == [0, 1, 4, 0]
        assert node_losses_within(job, plans, DAY) == pytest.approx(0.048 + 4 * 0.032)

    def test_a_rack_holds_nodes_as_they_are(self) -> None:
        # 144 GB200 in nodes of four are two racks of NVL72, whose 18 nodes fail together.
        job = with_reliability(
            job_of(training(), rented("gb200")),
            failures_per_1000_node_days=1e-6,
            domain_failures_per_1000_domain_days=8.0,
            nodes_per_domain=18,
        )
        plans = table_of(plan_of(data=144))
        stops = interruptions(job, plans, simulate(job, plans).checkpoints)
        assert stops.mean_up_time_s == pytest.approx(DAY / 0.016, rel=1e-5)
        assert node_losses_within(job, plans, DAY) == pytest.approx(36 * 0.008, rel=1e-5)

    def test_replicas_that_go_on_wait_for_no_node(self) -> None:
        job, plan = job_of(training(num_steps=300_000)), plan_of(tensor=8, data=8, zero=0)
        live, background = (
            run_of(job, plan.model_copy(update={"checkpoint_scheme": scheme}))
            for scheme in (CheckpointScheme.REPLICA_FT, CheckpointScheme.ASYNC)
        )
        assert live.replacement_wait_s == 0
        # Ten seconds for the quorum; half a step lost.
        assert live.restart_s / live.num_failures == pytest.approx(10)
        assert live.lost_work_s < 0.02 * background.lost_work_s
        # (300 + 0.5 x 7200 + the copy) / 8 of the job is missing.
        assert live.reduced_capacity_s / live.num_failures == pytest.approx(3900 / 8, rel=0.01)

    def test_the_first_start_detects_and_replaces_nothing(self) -> None:
        assert first_start_s(job_of()) == 180


class TestStragglers:
    def test_the_prior_has_the_published_moments(self) -> None:
        # arXiv 2505.05713, 3,079 jobs: 42.5 % slower than 1.1, waste of 21.3 % at p90, 45.0 % at p99, 10.4 % in all.
        typical = RELIABILITY_PRESETS["typical"]
        assert typical.straggler_log_mean is not None
        normal = np.random.default_rng(1).standard_normal(400_000)
        slowdown = 1 + np.exp(typical.straggler_log_mean + typical.straggler_log_deviation * normal)
        waste = 1 - 1 / slowdown
        assert np.mean(slowdown > 1.1) == pytest.approx(0.425, rel=0.02)
        assert np.quantile(waste, [0.9, 0.99]) == pytest.approx([0.213, 0.450], rel=0.08)
        assert np.mean(waste) == pytest.approx(0.104, rel=0.03)
        assert np.mean(slowdown) == pytest.approx(typical.straggler_slowdown, rel=0.003)

    def test_the_mean_slowdown_is_that_of_a_shifted_lognormal(self) -> None:
        assert RELIABILITY_PRESETS["typical"].straggler_slowdown == 1 + math.exp(-2.5 + 1.0 / 2)
        assert Reliability(failures_per_1000_node_days=1, straggler_log_mean=None).straggler_slowdown == 1

    def test_stragglers_stretch_productive_time(self) -> None:
        # The mean of the prior, 1 + e^-2, is that of steps of equal accelerators; those simulated wait for the slowest of
        # 64, sqrt(2 ln 64) = 2.884 deviations slower than the mean.
        slowest = 1.0 + training_constants().accelerator_spread_fraction * 2.884
        run = run_of(job_of(), plan_of(data=64))
        assert run.straggler_s == pytest.approx(
            run.productive_s * ((1 + math.exp(-2.0)) / slowest - 1), rel=1e-3
        )

    def test_the_share_that_a_step_already_has_is_that_of_all_accelerators_whatever_they_do(self) -> None:
        plans = table_of(plan_of(data=64), plan_of(tensor=8, data=8), plan_of(data=8))
        alone, shared, few = excess_share(job_of(), plans)
        assert shared == alone < few

    def test_a_step_that_waits_for_more_than_all_stragglers_is_not_faster_for_it(self) -> None:
        no_excess = with_reliability(job_of(), straggler_log_mean=-20.0, straggler_log_deviation=0.0)
        assert run_of(no_excess, plan_of(data=64)).straggler_s == 0.0

    @pytest.mark.parametrize("limit", [None, "deadline", "budget"])
    def test_the_least_slowdown_is_the_mean_or_the_median_where_a_quantile_is_limited(
        self, limit: str | None
    ) -> None:
        limits = Limits(deadline_days=9.0, budget_usd=1e9)
        if limit is not None:
            limits = limits.model_copy(update={f"{limit}_probability": 0.9})
        job, plans = job_of().model_copy(update={"limits": limits}), table_of(plan_of(data=64))
        median, mean = math.exp(-2.5), math.exp(-2.5 + 1.0 / 2)
        excess = (least_slowdown(job, plans) - 1.0) / excess_share(job, plans)
        assert excess == pytest.approx(mean if limit is None else median)

    def test_episodes_of_a_run_are_as_many_as_its_length_brings(self) -> None:
        # Of four times as many, the share of the run varies half as much.
        episodes = Stragglers(episodes_per_node_day=1.0, episode_factor=1.3, episode_s=60.0)
        deviations = []
        for num_steps in (250_000, 1_000_000):
            job = with_reliability(job_of(training(num_steps=num_steps)), stragglers=episodes)
            plans = table_of(plan_of(data=64))
            steps = simulate(job, plans).steps
            drawn = draw_straggler_slowdowns(job, plans, steps, num_replications=4000, seed=1)
            deviations.append(drawn.std())
        assert deviations[1] / deviations[0] == pytest.approx(0.5, rel=0.1)  # about four standard errors

    def test_a_measured_spread_of_ranks_includes_that_of_their_accelerators(self) -> None:
        # 512 replicas: the slowest of them is later by about 3 deviations, of which a step already waits for sqrt(2 ln N).
        spread = training_constants().accelerator_spread_fraction
        plans = table_of(plan_of(data=512))
        slowdowns = []
        for deviation in (0.0, spread, 2.0 * spread, 3.0 * spread):
            job = with_reliability(job_of(), stragglers=Stragglers(rank_log_deviation=deviation))
            slowdowns.append(float(expected_straggler_slowdown(job, plans, simulate(job, plans).steps)[0]))
            drawn = draw_straggler_slowdowns(
                job, plans, simulate(job, plans).steps, num_replications=4000, seed=1
            )
            assert drawn.mean() == pytest.approx(slowdowns[-1], abs=0.001)
        assert slowdowns[0] == slowdowns[1] == 1.0
        assert 1.0 < slowdowns[2] < 1.0 + 4.0 * spread
        assert slowdowns[3] - 1.0 == pytest.approx(2.0 * (slowdowns[2] - 1.0), rel=0.05)

    def test_a_slow_host_slows_as_many_ranks_as_the_nodes_of_its_own_offer_have(self) -> None:
        hosts = with_reliability(
            job_of(), stragglers=Stragglers(slow_host_fraction=0.01, slow_host_factor=1.5)
        )
        (eight,) = hosts.offers
        four = eight.model_copy(update={"node": eight.node.model_copy(update={"num_accelerators": 4})})
        both, alone = (hosts.model_copy(update={"offers": offers}) for offers in ((eight, four), (four,)))
        first, second = (table_of(plan_of(data=8).model_copy(update={"offer": offer})) for offer in range(2))
        steps = simulate(alone, first).steps
        expected = expected_straggler_slowdown(alone, first, steps)
        assert expected_straggler_slowdown(both, second, steps) == expected
        assert expected_straggler_slowdown(both, first, steps) < expected, "one node may be slow, not two"

    def test_restarts_that_fail_have_the_mean_of_those_that_replays_draw(self) -> None:
        # Begun anew, a long restart may be a short one. Were all as long as their mean, they would take 4.4 % more here.
        job = with_reliability(
            job_of(),
            failures_per_1000_node_days=3000.0,
            process_fault_fraction=1.0,
            fails_during_restart=True,
        )
        plans = table_of(plan_of(data=256))
        outcomes = simulate(job, plans)
        replays = replicate(job, plans, outcomes, num_replications=2000, seed=1)
        per_failure_s = replays.restart_s.sum() / replays.num_failures.sum()
        found = outcomes.run.restart_s / outcomes.run.num_failures
        assert found == pytest.approx(per_failure_s, rel=0.015)


class TestLedger:
    @pytest.mark.parametrize("scheme", CheckpointScheme)
    def test_parts_sum_to_the_wall_time(self, scheme: CheckpointScheme) -> None:
        run = run_of(job_of(training(num_steps=100_000)), plan_of(data=256, scheme=scheme, spares=2))
        parts_s = np.sum([getattr(run, part) for part in PARTS], axis=0)
        assert run.wall_time_s == pytest.approx(parts_s, rel=1e-12)
        assert run.goodput_fraction == pytest.approx(run.productive_s / run.wall_time_s)

    def test_every_part_but_the_productive_one_has_a_name_of_badput(self) -> None:
        assert set(PARTS) == {"productive_s", *BADPUT}
        assert {name for name in RunTable.names() if name.endswith("_s")} == {
            *PARTS,
            "wall_time_s",
            "mtbf_s",
            "checkpoint_interval_s",
            "calm_s",
            "near_mean_s",
            "far_mean_s",
        }

    def test_productive_time_is_that_of_all_steps(self) -> None:
        outcomes = simulate(job_of(training(num_steps=12_345)), table_of(plan_of(data=64)))
        assert outcomes.run.productive_s == pytest.approx(12_345 * outcomes.steps.step_time_s)

    def test_a_run_that_never_fails_only_works_and_saves(self) -> None:
        job = with_reliability(job_of(), failures_per_1000_node_days=1e-12, straggler_log_mean=None)
        run = run_of(job, plan_of(data=8, scheme=CheckpointScheme.NONE))
        assert run.wall_time_s == pytest.approx(run.productive_s + 180)

    def test_llama_3_keeps_nine_tenths_of_its_time(self) -> None:
        # arXiv 2407.21783: above 90 % at 16,384 GPUs with quick, automatic restarts; stragglers are in its step times.
        job = with_reliability(
            job_of(
                training("llama-3.1-405b", sequence_length=8192, global_batch_size=2048, num_steps=900_000)
            ),
            failures_per_1000_node_days=3.79,
            straggler_log_mean=None,
        )
        run = run_of(job, plan_of(tensor=8, pipeline=16, virtual=8, data=128, spares=60))
        assert 0.90 < run.goodput_fraction[0] < 0.97

    def test_saves_have_the_interval_of_young_where_they_are_cheap(self) -> None:
        outcomes = simulate(
            job_of(training(num_steps=100_000)),
            table_of(plan_of(data=64, scheme=CheckpointScheme.SYNC_SHARDED)),
        )
        # sqrt(2 s M), good to a percent as long as the stall is far below the mean up-time.
        young_s = np.sqrt(2 * outcomes.checkpoints.stall_s * outcomes.run.mtbf_s)
        assert outcomes.run.checkpoint_interval_s == pytest.approx(young_s, rel=0.01)

    def test_a_given_interval_is_kept_unless_saves_take_longer(self) -> None:
        job = job_of(training("llama-3.1-70b", num_steps=10_000))
        plan = plan_of(tensor=8, data=8)
        long, short = (plan.model_copy(update={"checkpoint_interval_s": value}) for value in (3600.0, 1.0))
        assert run_of(job, long).checkpoint_interval_s == 3600
        outcomes = simulate(job, table_of(short))
        assert outcomes.run.checkpoint_interval_s == outcomes.checkpoints.minimum_interval_s

    def test_the_chosen_interval_is_the_best(self) -> None:
        job, plan = job_of(training(num_steps=200_000)), plan_of(data=512)
        best = run_of(job, plan)
        for factor in (0.5, 0.8, 1.25, 2.0):
            interval_s = float(best.checkpoint_interval_s[0]) * factor
            other = run_of(job, plan.model_copy(update={"checkpoint_interval_s": interval_s}))
            assert other.wall_time_s >= best.wall_time_s


def wall_s(job: Job, plan: Plan) -> float:
    return float(run_of(job, plan).wall_time_s[0])


@given(
    rate=st.floats(0.1, 100.0),
    factor=st.floats(1.0, 5.0),
    num_gpus=st.sampled_from([8, 64, 512]),
    scheme=st.sampled_from([scheme for scheme in CheckpointScheme if scheme is not CheckpointScheme.NONE]),
)
def test_more_failures_and_slower_restarts_never_shorten_a_run(
    rate: float, factor: float, num_gpus: int, scheme: CheckpointScheme
) -> None:
    plan = plan_of(data=num_gpus, scheme=scheme, spares=1)
    job = with_reliability(job_of(), failures_per_1000_node_days=rate)
    base_s = wall_s(job, plan)
    # Doubled back from where saves are spread evenly: good to half a percent (`simulator.run.renewal`).
    slack = 0.995
    assert wall_s(with_reliability(job, failures_per_1000_node_days=rate * factor), plan) >= base_s * slack
    slower = {**job.reliability.restart.model_dump(), "detect_s": 60.0 * factor}
    assert wall_s(with_reliability(job, restart=slower), plan) >= base_s
    assert wall_s(job, plan.model_copy(update={"num_spare_nodes": 20})) <= base_s


class TestReplications:
    JOB = job_of(training(num_steps=30_000))
    PLANS = table_of(plan_of(data=64), plan_of(data=64, scheme=CheckpointScheme.SYNC_SHARDED))

    def outcomes(self, job: Job) -> Outcomes:
        return simulate(job, self.PLANS)

    def test_their_mean_is_the_expected_run(self) -> None:
        job = with_reliability(self.JOB, straggler_log_mean=None, failures_per_1000_node_days=200.0)
        outcomes = self.outcomes(job)
        played = replicate(job, self.PLANS, outcomes, num_replications=2000, seed=3)
        expected_s = outcomes.run.wall_time_s - outcomes.run.initialization_s
        error_s = played.wall_s.std(axis=1) / math.sqrt(2000)
        assert (np.abs(played.wall_s.mean(axis=1) - expected_s) < 4 * error_s).all()

    def test_stragglers_differ_between_replications_and_not_between_designs(self) -> None:
        job = with_reliability(self.JOB, failures_per_1000_node_days=1e-9)
        outcomes = self.outcomes(job)
        played = replicate(job, self.PLANS, outcomes, num_replications=500, seed=3)
        slowdowns = played.productive_s / outcomes.run.productive_s[:, None]
        assert slowdowns[0] == pytest.approx(slowdowns[1])
        assert len(np.unique(slowdowns[0])) == 500
        assert slowdowns[0].mean() == pytest.approx(
            (1 + math.exp(-2.0)) / 1.0328, rel=0.03
        )  # standard error 0.8 %

    def test_the_same_seed_gives_the_same_runs(self) -> None:
        outcomes = self.outcomes(self.JOB)
        first, second, other = (
            replicate(self.JOB, self.PLANS, outcomes, num_replications=20, seed=seed).wall_s
            for seed in (1, 1, 2)
        )
        assert (first == second).all()
        assert (first != other).any()


def test_a_node_of_four_fails_half_as_often_as_one_of_eight() -> None:
    # The published rates are per node of eight; rates follow the accelerators, not the boxes.
    job = job_of()
    four, eight = (mean_time_between_failures_s(job, table_of(plan_of(data=num))) for num in (4, 8))
    assert four == 2 * eight
    assert eight == pytest.approx(1000 * DAY / 6.5)
