"""Does what a second copy of gradients or of the state is worth follow from its equations, written out by hand?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.checkpoints.schemes import IntervalReason
from simulator.domain.plan import CheckpointScheme
from tests.simulator.builders import job_of, plan_of, training
from tests.simulator.checkpoint_jobs import (
    COPY_S,
    GPU,
    JOB,
    NODE,
    STEP_S,
    STORE_S,
    TOTAL,
    WEIGHTS,
    costs_of,
    costs_on_64,
    in_racks_of,
    reason,
    saving,
    survivals,
    value,
    with_node,
    with_storage,
)


class TestGradientAssistance:
    @pytest.mark.parametrize(
        ("window", "hidden"), [(1, 1), (2, 13 / 7), (6, 27 / 7), (7, 4), (8, 4), (9, 27 / 7)]
    )
    def test_seven_and_eight_steps_hide_most(self, window: int, hidden: float) -> None:
        # X8, validates: GoCkpt, arXiv 2511.07035: n(K) = K - K (K - 1)/14 passes are saved, 4 at most, at K = 7 and 8.
        job = saving(JOB, gradient_variant="base", window_steps=window, fixed_stall_s=0)
        pass_s = COPY_S / window
        costs = costs_on_64(job, CheckpointScheme.GRADIENT_ASSISTED, step_s=pass_s, optimizer_s=0.0)
        assert window - costs.stall_s[0] / pass_s == pytest.approx(hidden, rel=1e-9)

    def test_the_base_variant_waits_for_its_gradients_even_behind_long_steps(self) -> None:
        costs = costs_on_64(saving(JOB, gradient_variant="base"), CheckpointScheme.GRADIENT_ASSISTED)
        assert costs.stall_s == pytest.approx(0.6 + COPY_S * 2 / 14 * 3)

    def test_gradients_hide_behind_the_update_and_the_forward_that_follow(self) -> None:
        # Half of the gradients follow the first of two steps: 22 ms, of which 2 ms of update and 10 ms of forward hide 12.
        job = saving(JOB, window_steps=2, fixed_stall_s=0)
        costs = costs_on_64(job, CheckpointScheme.GRADIENT_ASSISTED, step_s=0.032, optimizer_s=0.002)
        late_s = COPY_S - 2 * 0.03
        assert costs.stall_s == pytest.approx(late_s + COPY_S * 2 / 14 / 2 - 0.012)

    def test_the_window_or_the_commit_sets_the_interval(self) -> None:
        window = costs_on_64(JOB, CheckpointScheme.GRADIENT_ASSISTED, step_s=100.0)
        commit = costs_on_64(JOB, CheckpointScheme.GRADIENT_ASSISTED, step_s=1.0)
        assert (window.minimum_interval_s[0], reason(window)) == (700, IntervalReason.WINDOW)
        assert commit.minimum_interval_s == pytest.approx(STORE_S + 3 * NODE / 150e9)
        assert reason(commit) is IntervalReason.COMMIT_TIME

    def test_replaying_takes_energy(self) -> None:
        background, assisted = (
            costs_on_64(JOB, scheme).save_energy_j
            for scheme in (CheckpointScheme.ASYNC, CheckpointScheme.GRADIENT_ASSISTED)
        )
        host_w = JOB.offers[0].node.host_power_w
        assert background == pytest.approx(TOTAL * 1.3e-9)
        assert assisted - background == pytest.approx(8 * host_w * 3 * NODE / 150e9)

    def test_the_whole_host_of_a_partly_used_node_takes_energy(self) -> None:
        four_of_eight = plan_of(tensor=4, scheme=CheckpointScheme.GRADIENT_ASSISTED)
        costs = costs_of(saving(JOB, transfer_j_per_byte=0), four_of_eight)
        host_w = JOB.offers[0].node.host_power_w
        assert costs.save_energy_j == pytest.approx(host_w * 3 * TOTAL / 150e9)


class TestGradientReplica:
    def test_servers_keep_up_with_the_steps(self) -> None:
        # FlowCheck: 141 GB of gradients over 12.5 GB/s, 1.13 TB of state over 150 GB/s of memory or 300 GB of it.
        network, memory = 2 * WEIGHTS / 12.5e9, 16 * WEIGHTS / 300e9
        fast, slow = (
            costs_on_64(JOB, CheckpointScheme.GRADIENT_REPLICA, step_s=step_s) for step_s in (1.0, 100.0)
        )
        assert fast.num_servers == np.ceil(network)
        assert slow.num_servers == np.ceil(memory)
        assert fast.extra_power_w == 800 * fast.num_servers
        assert (fast.stall_s[0], fast.tax_fraction[0], fast.minimum_interval_s[0]) == (0, 0, 1.0)
        assert survivals(fast) == (1, 1, 1)

    def test_a_failure_undoes_a_step_and_those_by_which_servers_trail(self) -> None:
        costs = costs_on_64(saving(JOB, server_lag_steps=1.5), CheckpointScheme.GRADIENT_REPLICA)
        assert costs.live_lag_s == 25
        assert costs.minimum_interval_s == 10  # they work on several steps at once
        assert costs.slots == 3

    def test_too_few_servers_hold_training_up(self) -> None:
        job = saving(JOB, num_servers=2)
        costs = costs_on_64(job, CheckpointScheme.GRADIENT_REPLICA, step_s=1.0)
        assert costs.num_servers == 2
        assert costs.stall_s == pytest.approx(2 * WEIGHTS / 12.5e9 / 2 - 1.0)

    def test_state_comes_back_over_the_cards_of_the_servers(self) -> None:
        costs = costs_on_64(saving(JOB, num_servers=4), CheckpointScheme.GRADIENT_REPLICA)
        assert costs.fast_load_s == pytest.approx(TOTAL / 50e9)
        assert costs.network_bytes_per_save == pytest.approx(2 * WEIGHTS + TOTAL / 100)

    def test_state_comes_back_no_faster_than_the_ranks_receive_it(self) -> None:
        slow_network = with_node(JOB, network_bytes_per_s=8e9)  # 1 GB/s for each accelerator
        costs = costs_on_64(saving(slow_network, num_servers=64), CheckpointScheme.GRADIENT_REPLICA)
        assert costs.fast_load_s == pytest.approx(GPU / 1e9)

    @pytest.mark.parametrize(("servers", "rate"), [(4, 8e9), (64, 20e9)])
    def test_servers_write_to_the_file_system_as_fast_as_they_and_it_can(
        self, servers: int, rate: float
    ) -> None:
        store = {"write_bytes_per_s": 20e9, "read_bytes_per_s": 20e9, "write_bytes_per_s_per_node": 2e9}
        job = with_storage(saving(JOB, num_servers=servers), **store)
        costs = costs_on_64(job, CheckpointScheme.GRADIENT_REPLICA)
        assert costs.durable_commit_s - costs.commit_s == pytest.approx(TOTAL / rate)


class TestLiveReplicas:
    LIVE = (CheckpointScheme.JUST_IN_TIME, CheckpointScheme.REPLICA_FT)

    @pytest.mark.parametrize("scheme", LIVE)
    def test_half_a_step_is_lost_where_a_replica_is_left(self, scheme: CheckpointScheme) -> None:
        costs = costs_on_64(JOB, scheme, zero=0)
        assert costs.live_lag_s == STEP_S / 2
        # Eight nodes hold a replica each, four of them are a rack.
        assert survivals(costs) == (1, 1, 1)
        assert survivals(costs_of(JOB, plan_of(data=8, zero=0, scheme=scheme))) == (1, 0, 0)
        rack = in_racks_of(JOB, 8)
        assert survivals(costs_on_64(rack, scheme, zero=0)) == (1, 1, 0)

    @pytest.mark.parametrize("scheme", LIVE)
    @pytest.mark.parametrize(("experts", "survival"), [(4, (1, 1, 1)), (8, (0, 0, 0))])
    def test_a_set_of_experts_that_is_there_once_has_no_replica(
        self, scheme: CheckpointScheme, experts: int, survival: tuple[int, int, int]
    ) -> None:
        # Eight tensor-parallel ranks are replicated eight times, and 64 ranks hold 64 / (e t_e) sets of experts of 8 ranks.
        job = job_of(training("mixtral-8x7b").model_copy(update={"expert_tensor_parallel": 8}))
        plan = plan_of(tensor=8, data=8, expert=experts, zero=0, scheme=scheme)
        # With two sets, one may be missing already when the other fails: 0.2 %.
        assert survivals(costs_of(job, plan)) == pytest.approx(survival, abs=0.01)

    @pytest.mark.parametrize("scheme", LIVE)
    def test_sharded_optimizers_have_no_replica(self, scheme: CheckpointScheme) -> None:
        costs = costs_on_64(JOB, scheme, zero=1)
        assert survivals(costs) == (0, 0, 0)
        assert (costs.live_lag_s[0], np.isnan(costs.live_restart_s[0])) == (np.inf, True)

    @pytest.mark.parametrize("scheme", LIVE)
    def test_saves_in_the_background_go_on(self, scheme: CheckpointScheme) -> None:
        live, background = (costs_on_64(JOB, each, zero=0) for each in (scheme, CheckpointScheme.ASYNC))
        for name in ("stall_s", "commit_s", "minimum_interval_s", "durable_load_s", "host_memory_bytes"):
            assert getattr(live, name) == getattr(background, name), name

    def test_state_is_saved_and_loaded_after_the_failure(self) -> None:
        # Detect 60, diagnose 60, initialise 120, warm up 60; one replica writes and all read.
        costs = costs_on_64(JOB, CheckpointScheme.JUST_IN_TIME, zero=0)
        assert costs.live_restart_s == pytest.approx(300 + 0.6 + 8 * COPY_S + 16 * STORE_S)
        own = costs_on_64(saving(JOB, just_in_time_s=25), CheckpointScheme.JUST_IN_TIME, zero=0)
        assert own.live_restart_s == 325

    def test_the_others_wait_for_a_quorum_and_work_without_the_failed_one(self) -> None:
        # C14, consistency: torchft, 30 groups, 11.3 s a failure = t_q + R / 30, that is 81.2 % at M = 60 s.
        job = saving(JOB, quorum_stall_s=5, replica_recovery_s=189)
        costs = costs_of(job, plan_of(tensor=8, data=30, zero=0, scheme=CheckpointScheme.REPLICA_FT))
        lost_s = value(costs, "live_restart_s") + value(costs, "missing_capacity_s")
        assert lost_s == pytest.approx(11.3)
        assert 1 - lost_s / 60 == pytest.approx(0.812, abs=5e-4)

    # Of 8 nodes 0.078 are in repair on average: 6.5 in 1000 days, half of them for three days.
    @pytest.mark.parametrize(
        ("spares", "replace_s"), [(0, 7200), (1, 60 + 7140 * (1 - math.exp(-0.078))), (9, 60)]
    )
    def test_a_replica_comes_back_by_a_restart_and_a_copy(self, spares: int, replace_s: float) -> None:
        # Half of the faults need another node; 8 ranks of the first replica hold what they send, 123 GB each.
        plan = plan_of(tensor=8, data=8, zero=0, scheme=CheckpointScheme.REPLICA_FT, spares=spares)
        costs = costs_of(JOB, plan)
        assert costs.missing_capacity_s == pytest.approx((300 + replace_s / 2 + TOTAL / 8 / 50e9) / 8)

    def test_nodes_that_are_taken_back_take_replicas_as_failures_do(self) -> None:
        # 6.5 failures and 100 reclaims of a node in 1000 days: all reclaims and half of the failures need another node.
        (offer,) = JOB.offers
        spot = offer.model_copy(update={"interruptions_per_1000_node_days": 100.0})
        job = JOB.model_copy(update={"offers": (spot,)})
        plan = plan_of(tensor=8, data=2, zero=0, scheme=CheckpointScheme.REPLICA_FT)
        costs = costs_of(job, plan)
        recovery_s = 300 + 7200 * 103.25 / 106.5 + TOTAL / 8 / 50e9
        assert costs.missing_capacity_s == pytest.approx(recovery_s / 2)
        is_other_there = math.exp(-2 * 106.5 / (1000 * 86_400) * recovery_s)
        assert costs.process_survival == pytest.approx(is_other_there)
