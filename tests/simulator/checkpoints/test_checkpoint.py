"""Does every scheme cost what its paper measured or derives?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.checkpoints.schemes import CheckpointTable
from simulator.domain.job import Job
from simulator.domain.plan import CheckpointScheme
from tests.simulator.builders import A100, job_of, plan_of, rented, training
from tests.simulator.checkpoint_jobs import STEP_S, costs_of, with_storage


def by_scheme(job: Job) -> dict[CheckpointScheme, CheckpointTable]:
    """All schemes on 64 replicas."""
    return {scheme: costs_of(job, plan_of(data=64, scheme=scheme)) for scheme in CheckpointScheme}


JOB = job_of(training("llama-3.1-70b"))
FIRST_FIVE = (
    CheckpointScheme.NONE,
    CheckpointScheme.SYNC_SHARDED,
    CheckpointScheme.ASYNC,
    CheckpointScheme.IN_MEMORY_PEER,
    CheckpointScheme.GRADIENT_ASSISTED,
)


class TestPublishedSaves:
    def test_bloom_writes_its_2_3_tebibytes_in_40_seconds(self) -> None:
        # 384 A100: "2.3 T" on disk, 40 s a save, 61.6 GB/s together (chronicles of the BLOOM training).
        job = with_storage(job_of(training("bloom-176b"), rented(A100)), write_bytes_per_s=61.6e9)
        costs = costs_of(job, plan_of(tensor=4, pipeline=12, data=8, scheme=CheckpointScheme.SYNC_SHARDED))
        assert costs.bytes_per_save / 2**40 == pytest.approx(2.3, abs=0.06)  # printed with one decimal
        assert costs.stall_s == pytest.approx(40, rel=0.05)  # fixed part and copy are 0.9 s

    def test_405b_on_8960_gpus_stalls_saves_and_loads_as_bytecheckpoint_measured(self) -> None:
        # arXiv 2407.20143: stall 0.59 s; save 51.06 s and load 129.49 s, which is 111 and 44 GB/s.
        job = with_storage(job_of(training("llama-3.1-405b")), write_bytes_per_s=111e9, read_bytes_per_s=44e9)
        costs = costs_of(job, plan_of(tensor=8, pipeline=16, data=70))
        assert costs.stall_s == pytest.approx(0.59, rel=0.1)
        assert costs.commit_s == pytest.approx(51.06, rel=0.01)
        assert costs.durable_load_s == pytest.approx(129.49, rel=0.01)

    def test_70b_on_1856_gpus_stalls_for_less_than_a_second(self) -> None:
        # PyTorch DCP: 0.78 s, of which the copy of 0.53 GB per GPU is some 10 ms.
        costs = costs_of(JOB, plan_of(tensor=8, data=232))
        assert costs.bytes_per_save / 1856 == pytest.approx(0.53e9, rel=0.01)
        assert costs.stall_s == pytest.approx(0.78, rel=0.25)

    @pytest.mark.parametrize(("num_gpus", "copy_s"), [(64, 0.306), (512, 0.038)])
    def test_copies_to_host_memory_take_the_bytes_of_a_gpu_at_its_rate(
        self, num_gpus: int, copy_s: float
    ) -> None:
        # 14 bytes x 70e9 weights over 50 GB/s for each GPU.
        costs = costs_of(JOB, plan_of(data=num_gpus))
        assert costs.stall_s - 0.6 == pytest.approx(copy_s, rel=0.02)  # 70.55 instead of 70 billion


class TestSchemes:
    def test_a_blocking_save_stops_for_copy_and_write(self) -> None:
        sync, background = (
            by_scheme(JOB)[scheme] for scheme in (CheckpointScheme.SYNC_SHARDED, CheckpointScheme.ASYNC)
        )
        assert sync.stall_s == pytest.approx(background.stall_s + background.commit_s)
        assert (sync.commit_s[0], sync.tax_fraction[0]) == (0, 0)
        assert sync.durable_load_s == background.durable_load_s

    def test_the_slower_of_node_and_storage_sets_the_pace(self) -> None:
        saved_bytes = 14 * 70_553_706_496
        for nodes_rate, storage_rate in ((2e9, 1e12), (1e12, 5e9)):
            job = with_storage(JOB, write_bytes_per_s_per_node=nodes_rate, write_bytes_per_s=storage_rate)
            commit_s = costs_of(job, plan_of(data=64)).commit_s
            assert commit_s == pytest.approx(saved_bytes / min(8 * nodes_rate, storage_rate))

    def test_a_save_to_peers_commits_within_a_step_where_the_network_is_free(self) -> None:
        quick = costs_of(JOB, plan_of(data=64, scheme=CheckpointScheme.IN_MEMORY_PEER))
        assert quick.commit_s == STEP_S
        # A second copy of 15.4 GB over half of 50 GB/s, behind the copy to the host at 50 GB/s.
        gpu_bytes = 14 * 70_553_706_496 / 64
        slow = costs_of(JOB, plan_of(data=64, scheme=CheckpointScheme.IN_MEMORY_PEER), step_s=0.1)
        assert slow.commit_s == pytest.approx(gpu_bytes / 50e9 + gpu_bytes / 25e9)
        assert slow.fast_load_s == pytest.approx(gpu_bytes / 50e9)

    def test_nothing_is_saved_without_a_scheme(self) -> None:
        none = by_scheme(JOB)[CheckpointScheme.NONE]
        assert none.minimum_interval_s == np.inf
        assert [
            getattr(none, name)[0] for name in ("stall_s", "commit_s", "durable_load_s", "bytes_per_save")
        ] == [0] * 4

    def test_host_memory_holds_the_saves_under_way(self) -> None:
        costs = by_scheme(JOB)
        node_bytes = 14 * 70_553_706_496 / 8
        copies = {scheme: costs[scheme].host_memory_bytes[0] / node_bytes for scheme in FIRST_FIVE}
        assert copies == {
            CheckpointScheme.NONE: 0,
            CheckpointScheme.SYNC_SHARDED: pytest.approx(1),
            CheckpointScheme.ASYNC: pytest.approx(2),
            CheckpointScheme.IN_MEMORY_PEER: pytest.approx(
                4
            ),  # 2 m B_n with m = 2 copies (Gemini, SOSP 2023)
            CheckpointScheme.GRADIENT_ASSISTED: pytest.approx(2 + 2 / 14),
        }

    def test_saves_do_not_come_faster_than_they_commit_or_than_steps(self) -> None:
        for scheme, costs in by_scheme(JOB).items():
            assert costs.minimum_interval_s >= costs.commit_s
            assert costs.minimum_interval_s >= STEP_S, scheme

    @pytest.mark.parametrize(("zero", "writers"), [(0, 8), (1, 64)])
    def test_one_replica_writes_unless_the_optimizer_is_sharded(self, zero: int, writers: int) -> None:
        # t = 8, c = 2, d = 4: without sharding the eight ranks of one replica write everything.
        costs = costs_of(JOB, plan_of(tensor=8, context=2, data=4, zero=zero))
        assert costs.bytes_per_save == 14 * 70_553_706_496
        assert costs.stall_s - 0.6 == pytest.approx(14 * 70_553_706_496 / writers / 50e9)

    def test_a_batch_takes_the_column_of_each_plan(self) -> None:
        plans = [plan_of(data=64, scheme=scheme) for scheme in CheckpointScheme]
        together, alone = costs_of(JOB, *plans), [costs_of(JOB, plan) for plan in plans]
        assert together.columns().keys() == CheckpointTable.concatenate(alone).columns().keys()
        for name in CheckpointTable.names():
            # To the last bit, and NaN where there is no live replica.
            np.testing.assert_array_equal(
                getattr(together, name), getattr(CheckpointTable.concatenate(alone), name)
            )


class TestGradientAssistance:
    """GoCkpt, arXiv 2511.07035: K = 7 steps, 14 bytes of state and 2 of gradient per weight."""

    def test_it_hides_the_copy_behind_long_steps(self) -> None:
        costs = costs_of(JOB, plan_of(data=64, scheme=CheckpointScheme.GRADIENT_ASSISTED))
        assert costs.stall_s == pytest.approx(0.6)  # nothing but the fixed part

    def test_without_steps_to_hide_behind_it_moves_43_percent_more(self) -> None:
        # T_S + T_G (K - 1)/2 = T_S (1 + 2/14 x 3).
        copy_s = 14 * 70_553_706_496 / 64 / 50e9
        costs = costs_of(
            JOB, plan_of(data=64, scheme=CheckpointScheme.GRADIENT_ASSISTED), step_s=1e-9, optimizer_s=0.0
        )
        assert costs.stall_s - 0.6 == pytest.approx(copy_s * (1 + 3 / 7), rel=1e-6)

    def test_a_window_of_seven_steps_lies_between_saves(self) -> None:
        costs = costs_of(JOB, plan_of(data=64, scheme=CheckpointScheme.GRADIENT_ASSISTED), step_s=100.0)
        assert costs.minimum_interval_s == 700


@given(step_s=st.floats(0.01, 100), optimizer_share=st.floats(0, 0.5), num_gpus=st.sampled_from([8, 64, 512]))
def test_schemes_rank_as_their_papers_say(step_s: float, optimizer_share: float, num_gpus: int) -> None:
    stalls = [
        costs_of(
            JOB, plan_of(data=num_gpus, scheme=scheme), step_s=step_s, optimizer_s=optimizer_share * step_s
        ).stall_s[0]
        for scheme in (
            CheckpointScheme.NONE,
            CheckpointScheme.IN_MEMORY_PEER,
            CheckpointScheme.ASYNC,
            CheckpointScheme.SYNC_SHARDED,
        )
    ]
    assert stalls == sorted(stalls)
