"""Do shard groups with a copy each need the memory, the traffic and the saves that follow from their size?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.plan import CheckpointScheme, Plan
from simulator.domain.workload import Workload
from simulator.machine.rank import Rank
from simulator.replicas.replica_sync import ReplicaGroup
from simulator.simulate import simulate
from tests.simulator.builders import gpt, job_of, memory_of, plan_of, step_of, table_of, training
from tests.simulator.checkpoint_jobs import STEP_S, costs_of, saving

MODEL = gpt(num_layers=8, hidden_size=4096, num_heads=32, vocabulary_size=1024)
WORKLOAD = training(MODEL, global_batch_size=512)
LATE = WORKLOAD.model_copy(update={"overlaps_gradient_sync": False})
"""Nothing hides the traffic of a step."""


def states_bytes(plan: Plan, workload: Workload = WORKLOAD) -> float:
    memory = memory_of(workload, plan)
    return float((memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes)[0])


class TestMemory:
    @pytest.mark.parametrize("ranks", [1, 2, 8, 64])
    def test_fully_sharded_states_are_16_bytes_of_a_weight_over_the_ranks_of_a_group(
        self, ranks: int
    ) -> None:
        # Rajbhandari et al., arXiv 1910.02054: 16 bytes of a weight in all, 32-bit gradients being their sum.
        wanted = 16 * MODEL.num_parameters / ranks
        assert states_bytes(plan_of(data=64, zero=3, shards=ranks)) == pytest.approx(wanted)

    def test_context_parallel_ranks_belong_to_a_group(self) -> None:
        group, whole = (
            states_bytes(plan_of(context=2, data=d, zero=3, shards=shards))
            for d, shards in ((32, 8), (4, None))
        )
        assert group == whole

    # With 16 ranks in a group, 8 expert-parallel ranks leave 2 ranks to share an expert; with 4, nobody shares one.
    @pytest.mark.parametrize(("ranks", "sharing"), [(16, 2), (8, 1), (4, 1)])
    def test_experts_are_shared_by_the_ranks_of_a_group_that_hold_the_same(
        self, ranks: int, sharing: int
    ) -> None:
        workload = training("mixtral-8x7b", global_batch_size=512)
        model = workload.model
        assert model.experts is not None
        routed = model.num_layers * model.experts.num_experts * model.expert_parameters
        found = states_bytes(plan_of(expert=8, data=64, zero=3, shards=ranks), workload)
        wanted = 16 * ((model.num_parameters - routed) / ranks + routed / 8 / sharing)
        assert found == pytest.approx(wanted)


class TestTraffic:
    @pytest.mark.parametrize("zero", [1, 2, 3])
    def test_one_group_of_all_is_no_hybrid(self, zero: int) -> None:
        plans = table_of(plan_of(data=64, zero=zero, shards=64), plan_of(data=64, zero=zero))
        outcomes = simulate(job_of(), plans)
        for name, column in outcomes.columns().items():
            np.testing.assert_array_equal(column[0], column[1], err_msg=name)

    def test_groups_of_one_synchronise_as_plain_replicas_do(self) -> None:
        alone, plain = (
            step_of(LATE, plan) for plan in (plan_of(data=64, zero=1, shards=1), plan_of(data=64, zero=0))
        )
        assert alone.gradient_sync_s == pytest.approx(plain.gradient_sync_s)

    @pytest.mark.parametrize("zero", [2, 3])
    def test_groups_of_a_node_exchange_weights_over_nvlink_in_every_micro_batch(self, zero: int) -> None:
        hybrid, node, whole = (
            step_of(WORKLOAD, plan_of(data=d, micro_batch=8, zero=zero, shards=shards)).shard_comm_s[0] / m
            for d, shards, m in ((64, 8, 1), (8, None, 8), (64, None, 1))
        )
        assert hybrid == pytest.approx(node)
        assert hybrid < whole

    def test_copies_sum_a_share_of_the_gradients_over_their_own_network_cards(self) -> None:
        # Zhao et al., arXiv 2304.11277, section 3.2.2: 2 M (W - G) / (G W) bytes leave each rank, W ranks, G a group.
        hybrid, node = (
            step_of(LATE, plan_of(data=d, micro_batch=8, zero=3, shards=shards)).gradient_sync_s[0]
            for d, shards in ((64, 8), (8, None))
        )
        rank = Rank.of(job_of(LATE), table_of(plan_of(data=64, zero=3, shards=8)))
        rate = float((rank.links.inter_bytes_per_s_per_gpu * rank.links.inter_fraction)[0])
        far_bytes = 2 * 4 * MODEL.num_parameters * (64 - 8) / (8 * 64)
        assert node == 0
        assert hybrid == pytest.approx(far_bytes / rate, rel=0.05)  # start-up and latency

    def test_groups_and_copies_multiply_to_all_replicas(self) -> None:
        workload = training("mixtral-8x7b", global_batch_size=512)
        rank = Rank.of(job_of(workload), table_of(plan_of(tensor=2, expert=8, data=32, zero=3, shards=8)))
        shared = ReplicaGroup.of_shared(rank), ReplicaGroup.of_shared_copies(rank)
        routed = ReplicaGroup.of_routed(rank), ReplicaGroup.of_routed_copies(rank)
        assert [group.size.item() for group in (*shared, *routed)] == [8, 4, 2, 4]
        # A node of eight holds four neighbours of stride 2; experts' shares are 8 apart, copies 16.
        assert [group.members_per_domain.item() for group in (*shared, *routed)] == [4, 1, 1, 1]


@given(
    data=st.sampled_from([16, 32, 64]),
    tensor=st.sampled_from([1, 2]),
    zero=st.sampled_from([1, 2, 3]),
)
def test_larger_groups_never_hold_more_states_and_never_update_slower(
    data: int, tensor: int, zero: int
) -> None:
    plans = [plan_of(tensor=tensor, data=data, zero=zero, shards=s) for s in (1, 2, 4, 8, 16)]
    states = [states_bytes(plan) for plan in plans]
    updates_s = [step_of(WORKLOAD, plan).optimizer_s[0] for plan in plans]
    assert states == sorted(states, reverse=True)
    assert updates_s == sorted(updates_s, reverse=True)


class TestSaves:
    JOB = job_of(training("llama-3.1-70b"))
    TOTAL = 14 * 70_553_706_496
    LIVE = (CheckpointScheme.JUST_IN_TIME, CheckpointScheme.REPLICA_FT)

    @pytest.mark.parametrize("scheme", LIVE)
    def test_another_group_stands_in_for_one_that_fails(self, scheme: CheckpointScheme) -> None:
        costs = costs_of(self.JOB, plan_of(tensor=8, data=8, zero=3, shards=4, scheme=scheme))
        assert costs.live_lag_s == STEP_S / 2
        # Two groups of 32 ranks: either outlasts the loss of a node and of a rack of four. The other group is itself away
        # after 6.5 x 8 failures in 1000 days, for an hour each: 0.2 % of the time.
        survivals = [costs.process_survival[0], costs.node_survival[0], costs.domain_survival[0]]
        assert survivals == pytest.approx([1, 1, 1], abs=0.003)

    def test_of_two_groups_one_is_half_of_the_capacity(self) -> None:
        job = saving(self.JOB, replica_recovery_s=100)
        plan = plan_of(tensor=8, data=8, zero=3, shards=4, scheme=CheckpointScheme.REPLICA_FT)
        assert costs_of(job, plan).missing_capacity_s == pytest.approx(50)

    def test_one_group_writes_what_all_groups_hold(self) -> None:
        plan = plan_of(tensor=8, data=8, zero=3, shards=4, scheme=CheckpointScheme.SYNC_SHARDED)
        # 32 ranks on four nodes, 2 GB/s each.
        assert costs_of(self.JOB, plan).stall_s == pytest.approx(
            self.JOB.checkpointing.fixed_stall_s + self.TOTAL / 32 / 50e9 + self.TOTAL / 4 / 2e9
        )

    # 14 bytes a weight in each of two groups; ranks of a group repeat 2-byte weights up to ZeRO-2.
    @pytest.mark.parametrize(("zero", "bytes_per_weight"), [(1, 2 * (14 + 3 * 2)), (3, 2 * 14)])
    def test_without_deduplication_every_group_writes_its_copy(
        self, zero: int, bytes_per_weight: int
    ) -> None:
        job = saving(self.JOB, is_deduplicated=False)
        plan = plan_of(tensor=8, data=8, zero=zero, shards=4, scheme=CheckpointScheme.SYNC_SHARDED)
        written = self.TOTAL / 14 * bytes_per_weight
        assert costs_of(job, plan).stall_s == pytest.approx(
            job.checkpointing.fixed_stall_s + written / 64 / 50e9 + written / 8 / 2e9
        )
