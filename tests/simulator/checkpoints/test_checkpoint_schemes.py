"""Does every scheme cost what its equations say, written out by hand for one plan?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.checkpoints.schemes import (
    DEFAULTS,
    SCHEMES,
    CheckpointTable,
    IntervalReason,
    chosen_interval_s,
)
from simulator.checkpoints.sizes import Designs, Saves
from simulator.domain.checkpointing import Checkpointing, SavePolicy
from simulator.domain.plan import CheckpointScheme
from simulator.machine.offer_table import OfferTable
from simulator.run.columns import BackPressure
from tests.simulator import checkpoint_jobs as jobs
from tests.simulator.builders import job_of, plan_of, table_of, training
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


class TestEveryScheme:
    def test_there_is_a_function_for_each(self) -> None:
        assert set(SCHEMES) == set(CheckpointScheme)

    @pytest.mark.parametrize("scheme", CheckpointScheme)
    @pytest.mark.parametrize("zero", [0, 1, 3])
    def test_its_columns_are_figures(self, scheme: CheckpointScheme, zero: int) -> None:
        costs = costs_on_64(JOB, scheme, zero=zero)
        unbounded = {"live_lag_s"} | ({"minimum_interval_s"} if scheme is CheckpointScheme.NONE else set())
        for name, column in costs.columns().items():
            if name == "live_restart_s" and np.isnan(column[0]):
                continue
            assert column[0] >= 0, name
            assert np.isfinite(column[0]) or name in unbounded, name

    @pytest.mark.parametrize("scheme", jobs.SCHEMES)
    def test_saves_are_worth_having(self, scheme: CheckpointScheme) -> None:
        costs = costs_on_64(JOB, scheme)
        assert costs.minimum_interval_s >= STEP_S
        assert costs.durable_commit_s >= costs.commit_s
        assert costs.fast_load_s <= costs.durable_load_s
        assert min(value(costs, name) for name in ("bytes_per_save", "storage_bytes", "durable_load_s")) > 0
        assert (np.array([*survivals(costs)]) <= 1).all()
        assert sorted(survivals(costs), reverse=True) == [*survivals(costs)]
        assert reason(costs) is not IntervalReason.NEVER

    @pytest.mark.parametrize("scheme", CheckpointScheme)
    def test_an_unknown_step_leaves_no_wrong_figures(self, scheme: CheckpointScheme) -> None:
        costs = costs_on_64(JOB, scheme, step_s=float("nan"))
        assert np.isnan(costs.minimum_interval_s) or scheme is CheckpointScheme.NONE
        assert min(costs.slots[0], costs.durable_every[0]) >= 1

    @pytest.mark.parametrize("name", DEFAULTS)
    def test_a_default_is_that_of_a_column(self, name: str) -> None:
        assert name in CheckpointTable.names()

    def test_schemes_fill_columns_of_the_table_only(self) -> None:
        designs, ones = table_of(plan_of(data=64)), np.ones(1)
        rows = Designs.of(JOB, designs, OfferTable.from_job(JOB), ones, ones / 10, slice(None))
        for scheme, costs in SCHEMES.items():
            assert costs(Saves.of(JOB, rows)).keys() <= set(CheckpointTable.names()), scheme

    @pytest.mark.parametrize(
        ("optimizer_bytes", "asked", "saved"),
        [
            (12.0, None, 14),  # 16-bit weight, fp32 master weight and two fp32 moments
            (10.0, None, 12),  # of the master only the bits that the 16-bit weight lacks
            (6.0, None, 8),  # the same, and two 16-bit moments
            (6.0, 14.0, 14),
        ],
    )
    def test_a_save_has_the_weight_and_what_the_optimizer_keeps_of_it_unless_the_job_says_otherwise(
        self, optimizer_bytes: float, asked: float | None, saved: int
    ) -> None:
        workload = JOB.workload.model_copy(update={"optimizer_bytes": optimizer_bytes})
        job = JOB.model_copy(update={"workload": workload})
        for scheme in (CheckpointScheme.ASYNC, CheckpointScheme.GRADIENT_REPLICA):
            costs = costs_on_64(saving(job, bytes_per_parameter=asked), scheme)
            assert costs.bytes_per_save == pytest.approx(saved * WEIGHTS)

    @pytest.mark.parametrize("scheme", jobs.SCHEMES)
    def test_the_file_system_holds_the_kept_saves_and_the_differences_between_them(
        self, scheme: CheckpointScheme
    ) -> None:
        options = {"base_every": 4, "delta_fraction": 0.25}
        one, three = (costs_on_64(saving(JOB, kept_saves=n, **options), scheme) for n in (1, 3))
        assert one.storage_bytes == pytest.approx(TOTAL)
        # Three differences of a quarter each follow a full save.
        with_differences = 1.75 if scheme is CheckpointScheme.DIFFERENTIAL else 1.0
        assert three.storage_bytes == pytest.approx((1 + 2 * with_differences) * TOTAL)

    @pytest.mark.parametrize(
        "scheme", [each for each in jobs.SCHEMES if each is not CheckpointScheme.GRADIENT_ASSISTED]
    )
    def test_a_save_takes_the_energy_of_moving_what_it_sends(self, scheme: CheckpointScheme) -> None:
        costs = costs_on_64(saving(JOB, persist_every=5, transfer_j_per_byte=2e-9), scheme)
        assert costs.save_energy_j == pytest.approx(2e-9 * costs.network_bytes_per_save)

    @given(scheme=st.sampled_from(jobs.SCHEMES), factor=st.floats(1.01, 8.0), zero=st.integers(0, 3))
    def test_more_bytes_never_cost_less(self, scheme: CheckpointScheme, factor: float, zero: int) -> None:
        # A fixed number of servers: with more bytes more of them would be taken, which load faster.
        small, large = (
            costs_on_64(saving(JOB, bytes_per_parameter=b, num_servers=4), scheme, zero=zero, step_s=3.0)
            for b in (12.0, 12.0 * factor)
        )
        assert_no_less(large, small)

    @given(
        scheme=st.sampled_from(jobs.SCHEMES),
        rate=st.sampled_from(["storage", "node_storage", "network", "host_copy", "nvme", "servers"]),
        factor=st.floats(1.01, 20.0),
        step_s=st.floats(0.05, 50.0),
    )
    def test_faster_links_never_cost_more(
        self, scheme: CheckpointScheme, rate: str, factor: float, step_s: float
    ) -> None:
        def costs(times: float) -> CheckpointTable:
            job = with_storage(
                saving(
                    JOB,
                    num_servers=4,
                    nvme_write_bytes_per_s=8e9 * (times if rate == "nvme" else 1),
                    nvme_read_bytes_per_s=8e9 * (times if rate == "nvme" else 1),
                    server_network_bytes_per_s=12.5e9 * (times if rate == "servers" else 1),
                ),
                write_bytes_per_s=20e9 * (times if rate == "storage" else 1),
                read_bytes_per_s=20e9 * (times if rate == "storage" else 1),
                write_bytes_per_s_per_node=2e9 * (times if rate == "node_storage" else 1),
                read_bytes_per_s_per_node=2e9 * (times if rate == "node_storage" else 1),
            )
            job = with_node(
                job,
                network_bytes_per_s=400e9 * (times if rate == "network" else 1),
                host_copy_bytes_per_s=50e9 * (times if rate == "host_copy" else 1),
            )
            return costs_on_64(job, scheme, step_s=step_s, optimizer_s=step_s / 20)

        assert_no_less(costs(1.0), costs(factor))


TIMES = (
    "stall_s",
    "commit_s",
    "minimum_interval_s",
    "durable_commit_s",
    "fast_load_s",
    "durable_load_s",
    "missing_capacity_s",
)


def assert_no_less(large: CheckpointTable, small: CheckpointTable) -> None:
    for name in TIMES:
        # Rounding, also of the part of a copy that does not hide.
        assert value(large, name) >= value(small, name) * (1 - 1e-12) - 1e-9, name


class TestFiles:
    def test_nothing_is_saved_and_nothing_survives_without_a_scheme(self) -> None:
        costs = costs_on_64(JOB, CheckpointScheme.NONE)
        assert survivals(costs) == (0, 0, 0)
        assert reason(costs) is IntervalReason.NEVER

    @pytest.mark.parametrize("zero", [0, 1, 3])
    def test_one_writer_a_replica_takes_as_many_times_longer_as_there_are_replicas(self, zero: int) -> None:
        # The eight tensor-parallel ranks of one node write what 64 ranks of eight nodes hold.
        costs = costs_on_64(JOB, CheckpointScheme.SYNC, zero=zero)
        assert costs.stall_s - 0.6 == pytest.approx(8 * (COPY_S + STORE_S))
        assert costs.durable_load_s == pytest.approx(8 * STORE_S)
        assert costs.bytes_per_save == TOTAL

    @pytest.mark.parametrize(
        ("tensor", "pipeline", "num_writers"), [(8, 1, 8), (2, 4, 2), (1, 8, 1), (4, 1, 4)]
    )
    def test_the_writers_of_a_replica_sit_on_the_nodes_of_their_stages(
        self, tensor: int, pipeline: int, num_writers: int
    ) -> None:
        # Stages are t c D ranks apart (Megatron Core): 64 accelerators of each on eight nodes of their own, the first t write.
        plan = plan_of(
            tensor=tensor, pipeline=pipeline, data=64 // tensor, scheme=CheckpointScheme.SYNC, zero=0
        )
        costs = costs_of(JOB, plan)
        written = TOTAL / (tensor * pipeline)
        assert costs.host_memory_bytes == pytest.approx(num_writers * written)
        assert costs.stall_s - 0.6 == pytest.approx(written / 50e9 + num_writers * written / 2e9)

    @pytest.mark.parametrize(("pipeline", "data"), [(4, 2), (2, 1)])
    def test_stages_within_a_node_write_from_there(self, pipeline: int, data: int) -> None:
        # All stages are on one node of eight, or on a part of it, and their writers share it.
        costs = costs_of(JOB, plan_of(pipeline=pipeline, data=data, scheme=CheckpointScheme.SYNC, zero=0))
        assert costs.host_memory_bytes == pytest.approx(TOTAL)

    @pytest.mark.parametrize("scheme", [CheckpointScheme.SYNC, CheckpointScheme.SYNC_SHARDED])
    def test_every_set_of_experts_is_written_by_the_ranks_that_hold_it(
        self, scheme: CheckpointScheme
    ) -> None:
        # Mixtral 8x7B (arXiv 2401.04088): 8 experts of three matrices of 4,096 x 14,336 in each of 32 layers.
        job = job_of(training("mixtral-8x7b"))
        routed, weights = 32 * 8 * 3 * 4096 * 14336, job.workload.model.num_parameters
        costs = costs_of(job, plan_of(data=64, expert=8, zero=0, scheme=scheme))
        first = 14 * (weights - routed + routed / 8)
        node = 14 * weights
        assert costs.host_memory_bytes == pytest.approx(node)
        assert costs.stall_s - 0.6 == pytest.approx(first / 50e9 + node / 2e9)

    def test_without_deduplication_experts_are_written_once_for_each_set(self) -> None:
        job = saving(job_of(training("mixtral-8x7b")), is_deduplicated=False)
        routed, weights = 32 * 8 * 3 * 4096 * 14336, job.workload.model.num_parameters
        costs = costs_of(job, plan_of(data=64, expert=8, zero=0))
        assert costs.bytes_per_save == pytest.approx(14 * (64 * (weights - routed) + 8 * routed))

    def test_without_deduplication_shard_groups_write_their_states_and_sets_of_experts_theirs(self) -> None:
        # 16 groups of four ranks share the states of all other weights, while a set of experts takes eight ranks.
        job = saving(job_of(training("mixtral-8x7b")), is_deduplicated=False)
        routed, weights = 32 * 8 * 3 * 4096 * 14336, job.workload.model.num_parameters
        costs = costs_of(job, plan_of(data=64, expert=8, zero=1, shards=4))
        others = weights - routed
        assert costs.bytes_per_save == pytest.approx(
            2 * (64 * others + 8 * routed) + 12 * (16 * others + 8 * routed)
        )

    def test_a_save_of_less_than_the_weights_is_repeated_as_a_whole(self) -> None:
        job = saving(JOB, is_deduplicated=False, bytes_per_parameter=1.0)
        assert costs_on_64(job, CheckpointScheme.SYNC_SHARDED).bytes_per_save == pytest.approx(8 * WEIGHTS)

    def test_a_fault_of_a_process_finds_the_state_in_host_memory(self) -> None:
        # DLRover keeps it in shared memory; a lost node goes back to the file system.
        costs = costs_on_64(JOB, CheckpointScheme.ASYNC)
        assert survivals(costs) == (1, 0, 0)
        assert costs.fast_load_s == pytest.approx(COPY_S)

    def test_slots_let_saves_follow_each_other_faster_and_take_memory(self) -> None:
        # PCcheck: P / slots.
        one, four = (costs_on_64(saving(JOB, slots=n), CheckpointScheme.ASYNC) for n in (1, 4))
        assert one.minimum_interval_s == pytest.approx(STORE_S)
        assert four.minimum_interval_s == pytest.approx(STORE_S / 4)
        assert (one.slots[0], four.slots[0]) == (1, 4)
        assert (reason(one), reason(four)) == (IntervalReason.COMMIT_TIME,) * 2
        assert four.host_memory_bytes == pytest.approx(5 * NODE)
        many = costs_on_64(saving(JOB, slots=100), CheckpointScheme.ASYNC)
        assert (many.minimum_interval_s[0], reason(many)) == (STEP_S, IntervalReason.STEP_TIME)

    def test_a_lazy_copy_hides_behind_the_passes_of_a_step(self) -> None:
        long, short = (
            costs_on_64(JOB, CheckpointScheme.ASYNC_LAZY, step_s=step_s, optimizer_s=0.1)
            for step_s in (10.0, 0.5)
        )
        assert long.stall_s == 0
        assert short.stall_s == pytest.approx(0.6 + COPY_S - 0.4)
        # What hides delays the commit.
        assert long.commit_s == pytest.approx(0.6 + COPY_S + STORE_S)
        assert short.commit_s == pytest.approx(0.4 + STORE_S)

    def test_a_lazy_copy_needs_no_memory_beyond_that_of_its_slots(self) -> None:
        lazy, background = (
            costs_on_64(saving(JOB, slots=4), scheme).host_memory_bytes
            for scheme in (CheckpointScheme.ASYNC_LAZY, CheckpointScheme.ASYNC)
        )
        assert lazy == pytest.approx(4 * NODE)
        assert background - lazy == pytest.approx(NODE)

    def test_differences_cost_their_share(self) -> None:
        # A quarter of the bytes in three of four saves: (1 + 3/4)/4 = 0.4375; 1.5 differences wait on average.
        job = saving(JOB, base_every=4, delta_fraction=0.25)
        costs = costs_on_64(job, CheckpointScheme.DIFFERENTIAL)
        assert costs.bytes_per_save == pytest.approx(0.4375 * TOTAL)
        assert costs.stall_s == pytest.approx(0.6 + 0.4375 * COPY_S)
        assert costs.commit_s == pytest.approx(0.4375 * STORE_S)
        assert costs.durable_load_s == pytest.approx(1.375 * STORE_S + 0.375 * NODE / 150e9)
        # One full save with three differences, and the next full one.
        assert costs.storage_bytes == pytest.approx(2.75 * TOTAL)

    def test_differences_as_large_as_the_state_save_nothing(self) -> None:
        # LLM optimizers change every weight: q = 1 is async with another load.
        full = costs_on_64(saving(JOB, delta_fraction=1), CheckpointScheme.DIFFERENTIAL)
        background = costs_on_64(JOB, CheckpointScheme.ASYNC)
        for name in ("stall_s", "commit_s", "bytes_per_save", "minimum_interval_s"):
            assert getattr(full, name) == pytest.approx(getattr(background, name)), name

    @pytest.mark.parametrize(
        ("zero", "factor"), [(0, 8.0), (1, (14 + 7 * 2) / 14), (2, (14 + 7 * 2) / 14), (3, 1.0)]
    )
    def test_without_deduplication_replicas_repeat_what_zero_does_not_split(
        self, zero: int, factor: float
    ) -> None:
        costs = costs_on_64(saving(JOB, is_deduplicated=False), CheckpointScheme.SYNC_SHARDED, zero=zero)
        assert costs.bytes_per_save == pytest.approx(factor * TOTAL)
        assert costs.stall_s - 0.6 == pytest.approx(factor * (COPY_S + STORE_S))


class TestLevels:
    def test_local_drives_go_with_their_node(self) -> None:
        costs = costs_on_64(JOB, CheckpointScheme.LOCAL_NVME)
        assert survivals(costs) == (1, 0, 0)
        assert costs.commit_s == pytest.approx(NODE / 8e9)
        assert costs.fast_load_s == pytest.approx(NODE / 8e9)
        assert costs.durable_commit_s == pytest.approx(NODE / 8e9 + STORE_S)
        assert costs.durable_every == 100

    def test_the_file_system_takes_as_many_saves_as_it_can_write(self) -> None:
        # Drives have a save after 15.4 s, the file system after 77 s.
        costs = costs_on_64(saving(JOB, persist_every=2), CheckpointScheme.LOCAL_NVME)
        assert costs.minimum_interval_s == pytest.approx(15.43, rel=1e-3)
        assert costs.durable_every == 2
        assert costs.network_bytes_per_save == pytest.approx(TOTAL / 2)
        assert costs.saves_per_durable(np.array([16.0, 30.0, 40.0, 3600.0])).tolist() == [5, 3, 2, 2]

    def test_saves_are_apart_by_their_stall_too_and_written_from_its_begin(self) -> None:
        costs = costs_on_64(saving(JOB, persist_every=1), CheckpointScheme.LOCAL_NVME)
        stalled = replace(costs, stall_s=np.array([10.0]), durable_commit_s=np.array([50.0]))
        # 60 s under way: every second save after 30 s each, every third after 29 s.
        assert stalled.saves_per_durable(np.array([20.0, 19.0])).tolist() == [2, 3]

    def test_copies_that_exceed_the_idle_network_stop_training(self) -> None:
        # 15.4 GB over 50 GB/s, half of a step of 0.2 s idle.
        costs = costs_on_64(JOB, CheckpointScheme.IN_MEMORY_PEER, step_s=0.2)
        assert costs.stall_s == pytest.approx(0.04 + GPU / 50e9 - 0.1)
        roomy = costs_on_64(JOB, CheckpointScheme.IN_MEMORY_PEER)
        assert roomy.stall_s == pytest.approx(0.04)  # ByteRobust
        # Training is taxed while bytes move: over PCIe, and over half of the network.
        moved_s = GPU / JOB.offers[0].node.host_copy_bytes_per_s + GPU / 25e9
        assert roomy.commit_s == STEP_S
        # Memory has room for one save under way, so the next one waits for it.
        assert costs.minimum_interval_s == costs.commit_s == pytest.approx(moved_s)
        assert roomy.tax_fraction * roomy.commit_s == pytest.approx(0.03 * moved_s)
        assert roomy.network_bytes_per_save == pytest.approx(TOTAL * 1.01)

    def test_what_peers_do_not_hold_yet_is_not_on_a_fast_file_system_either(self) -> None:
        fast = with_storage(JOB, write_bytes_per_s=1e13, read_bytes_per_s=1e13)
        costs = costs_on_64(fast, CheckpointScheme.IN_MEMORY_PEER)
        assert costs.durable_commit_s == costs.commit_s == STEP_S

    def test_peers_outlast_a_node_and_a_rack_by_their_placement(self) -> None:
        # Two of eight nodes in pairs: 4 of 28 ways to lose two lose a pair; on a ring 8 of 28.
        for placement, domain in (("group", 1 - 4 / 28), ("ring", 1 - 8 / 28), ("cross_domain", 1.0)):
            job = in_racks_of(saving(JOB, peer_placement=placement), 2)
            for scheme in (CheckpointScheme.IN_MEMORY_PEER, CheckpointScheme.TIERED):
                assert survivals(costs_on_64(job, scheme)) == pytest.approx((1, 1, domain))

    def test_tiers_write_their_own_shard_and_those_of_their_peers(self) -> None:
        costs = costs_on_64(JOB, CheckpointScheme.TIERED)
        assert costs.commit_s == pytest.approx(2 * NODE / 8e9)
        assert costs.fast_load_s == pytest.approx(NODE / 8e9)
        # From the drives it goes on to the file system, as with drives alone.
        drives = costs_on_64(JOB, CheckpointScheme.LOCAL_NVME)
        assert costs.durable_commit_s - costs.commit_s == pytest.approx(drives.durable_commit_s - NODE / 8e9)
        slow_network = with_node(JOB, network_bytes_per_s=8e9)  # 1 GB/s for each accelerator
        costs = costs_on_64(slow_network, CheckpointScheme.TIERED)
        assert costs.commit_s == pytest.approx(GPU / 0.5e9)
        assert costs.fast_load_s == pytest.approx(NODE / 8e9)  # 15.4 s either way
        slower_network = with_node(JOB, network_bytes_per_s=4e9)
        costs = costs_on_64(slower_network, CheckpointScheme.TIERED)
        assert costs.commit_s == pytest.approx(GPU / 0.25e9)  # half of the network is idle
        assert costs.fast_load_s == pytest.approx(GPU / 0.5e9)


class TestChosenInterval:
    PLANS = table_of(plan_of(data=8), plan_of(data=8).model_copy(update={"checkpoint_interval_s": 77.0}))
    STEPS_S = np.array([2.0, 3.0])

    def test_nothing_is_chosen_unless_said(self) -> None:
        np.testing.assert_array_equal(chosen_interval_s(JOB, self.PLANS, self.STEPS_S), [np.nan, 77])

    @pytest.mark.parametrize(
        ("option", "expected"), [({"interval_s": 60}, 60), ({"interval_steps": 50}, 100)]
    )
    def test_the_job_says_it_for_plans_that_do_not(self, option: dict[str, int], expected: float) -> None:
        chosen_s = chosen_interval_s(saving(JOB, **option), self.PLANS, self.STEPS_S)
        np.testing.assert_array_equal(chosen_s, [expected, 77])

    def test_seconds_and_steps_together_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"give interval_s \(60\) or interval_steps \(5\), not both"):
            Checkpointing(interval_s=60, interval_steps=5)


def test_policies_have_the_codes_of_the_event_loop() -> None:
    assert {policy.name: policy.code for policy in SavePolicy} == {
        policy.name: policy.value for policy in BackPressure
    }
