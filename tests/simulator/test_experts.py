"""Do tokens reach their experts in the time, and as often, as theory and measured exchanges say?"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fit_dispatch import RATES, Rate
from simulator.hardware import Precision
from simulator.job import Workload
from simulator.layer_collectives import expert_exchange_s, num_reached
from simulator.layer_costs import expert_layer
from simulator.model import MixtureOfExperts
from simulator.network import all_to_all_s, forwarded_exchange_s
from simulator.plan import Plan
from simulator.rank import Rank
from simulator.table import Floats
from tests.simulator.builders import job_of, plan_of, rented, table_of, training

NOTHING = np.zeros(1)


def rank_of(plan: Plan, workload: Workload, accelerator: str = "h100-sxm5-80gb") -> Rank:
    return Rank.of(job_of(workload, rented(accelerator)), table_of(plan))


def exchange_s(plan: Plan, workload: Workload, accelerator: str = "h100-sxm5-80gb") -> float:
    """Dispatch and combine of one direction, hidden by nothing."""
    return float(expert_exchange_s(rank_of(plan, workload, accelerator), NOTHING, NOTHING)[0][0])


def changed(workload: Workload, **changes: object) -> Workload:
    return workload.model_copy(update=changes)


def routing(num_experts: int, experts_per_token: int) -> MixtureOfExperts:
    return MixtureOfExperts(
        num_experts=num_experts, experts_per_token=experts_per_token, expert_ffn_hidden_size=1
    )


def reached(experts: MixtureOfExperts, parts: float) -> float:
    return float(num_reached(experts, np.array([float(parts)]))[0])


class TestReach:
    @pytest.mark.parametrize(("num_experts", "k", "parts"), [(4, 2, 2), (6, 3, 2), (6, 3, 3), (8, 4, 4)])
    def test_it_is_the_mean_over_all_choices_of_experts(self, num_experts: int, k: int, parts: int) -> None:
        in_each = num_experts // parts
        choices = list(combinations(range(num_experts), k))
        mean = sum(len({expert // in_each for expert in choice}) for choice in choices) / len(choices)
        assert reached(routing(num_experts, k), parts) == pytest.approx(mean)

    def test_one_expert_is_in_one_part_and_all_experts_are_in_all(self) -> None:
        assert reached(routing(64, 1), 8.0) == pytest.approx(1.0)
        assert reached(routing(64, 64), 8.0) == pytest.approx(8.0)
        assert reached(routing(64, 6), 1.0) == pytest.approx(1.0)

    @given(k=st.integers(1, 16), parts=st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0, 64.0]))
    def test_no_token_reaches_more_parts_than_there_are_or_than_it_has_experts(
        self, k: int, parts: float
    ) -> None:
        found = reached(routing(64, k), parts)
        assert 1.0 - 1e-9 <= found <= min(parts, k) + 1e-9


class TestExchange:
    def test_plain_dispatch_and_combine_are_two_all_to_alls_of_all_copies(self) -> None:
        rank = rank_of(plan_of(tensor=2, expert=8, data=4), training("mixtral-8x7b", sequence_length=4096))
        # A tensor-parallel rank sends its half of the tokens to two experts each.
        sent_bytes = 2.0 * 4096 / 2 * 2 * 4096
        expected_s = 2 * all_to_all_s(
            num_bytes=sent_bytes, group_size=8.0, members_per_domain=8.0, links=rank.links
        )
        layer = expert_layer(rank)
        assert layer.forward_expert_comm_s == layer.backward_expert_comm_s == pytest.approx(expected_s)

    @pytest.mark.parametrize("dispatch", ["all_to_all", "deduplicated"])
    def test_experts_across_nodes_cost_more(self, dispatch: str) -> None:
        workload = changed(training("deepseek-v2", sequence_length=4096), expert_dispatch=dispatch)
        near, far = (exchange_s(plan_of(expert=e, data=32), workload) for e in (8, 32))
        assert far > 2 * near

    def test_one_copy_to_each_node_instead_of_one_to_each_expert_saves_most_of_the_fabric(self) -> None:
        # DeepSeek-V3 on 64 H100: 8 experts are on 5.3 of 8 nodes in the mean, so that 4.6 copies leave the node, not 7.
        plain = training("deepseek-v3", sequence_length=4096)
        plan = plan_of(expert=64, data=64)
        ratio = exchange_s(plan, changed(plain, expert_dispatch="deduplicated")) / exchange_s(plan, plain)
        assert ratio == pytest.approx(4.6 / 7, rel=0.15)

    def test_a_rack_is_one_domain(self) -> None:
        workload = changed(training("deepseek-v3", sequence_length=4096), expert_dispatch="deduplicated")
        plan = plan_of(expert=64, data=64)
        # 900 GB/s inside NVL72 against 50 GB/s through the fabric.
        assert exchange_s(plan, workload) > 4 * exchange_s(plan, workload, "gb200")

    @pytest.mark.parametrize("rate", RATES, ids=lambda rate: f"{rate.platform}-{rate.num_ranks}")
    def test_it_takes_as_long_as_hybrid_ep_was_measured(self, rate: Rate) -> None:
        # The two constants were fitted on these nine points; a platform predicted from the others is within 15 %.
        assert rate.predicted_s() == pytest.approx(rate.measured_s, rel=0.10)

    def test_the_overlap_hides_half_of_it_behind_enough_computation(self) -> None:
        plain = training("qwen3-30b-a3b", sequence_length=4096)
        plan = plan_of(expert=16, data=16)
        rank = rank_of(plan, changed(plain, overlaps_expert_exchange=True))
        full_s, endless = exchange_s(plan, plain), np.full(1, 1e3)
        # Megatron-Bridge, Qwen3-30B-A3B on 16 H100: 41.25 s without the overlap, 31.31 s with it; 3,072 passes of a layer.
        saved_s = (41.25 - 31.31) / (48 * 64 * 2)
        hidden_s = full_s - expert_exchange_s(rank, endless, endless)[0][0]
        assert hidden_s == pytest.approx(saved_s, rel=0.10)
        assert expert_exchange_s(rank, NOTHING, NOTHING)[0][0] == pytest.approx(full_s)

    def test_one_rank_exchanges_nothing(self) -> None:
        workload = training("mixtral-8x7b")
        for dispatch in ("all_to_all", "deduplicated"):
            assert exchange_s(plan_of(data=8), changed(workload, expert_dispatch=dispatch)) == 0.0

    @given(near=st.floats(0, 1e9), far=st.floats(0, 1e9))
    def test_forwarding_takes_no_less_than_either_way_and_no_more_than_both(
        self, near: float, far: float
    ) -> None:
        links = rank_of(plan_of(expert=16, data=16), training("mixtral-8x7b")).links

        def time_s(near_bytes: float, far_bytes: float) -> Floats:
            return forwarded_exchange_s(
                near_bytes=near_bytes,
                far_bytes=far_bytes,
                group_size=16.0,
                members_per_domain=8.0,
                links=links,
            )

        both, alone = time_s(near, far), (time_s(near, 0.0), time_s(0.0, far))
        latency = time_s(0.0, 0.0)
        assert np.maximum(*alone) <= both * (1 + 1e-12)
        assert both - latency <= (sum(alone) - 2 * latency) * (1 + 1e-9) + 1e-15


class TestLoad:
    def test_the_most_loaded_rank_is_waited_for(self) -> None:
        even = training("mixtral-8x7b", sequence_length=8192)
        plan = plan_of(expert=8, data=8)
        balanced, skewed = (
            expert_layer(rank_of(plan, workload)) for workload in (even, changed(even, expert_imbalance=2.0))
        )
        # Experts are most of this layer; attention, norms and start-up times do not grow.
        for name in ("forward_compute_s", "backward_compute_s", "forward_expert_comm_s"):
            assert 1.5 < (getattr(skewed, name) / getattr(balanced, name))[0] < 2.0

    def test_a_capacity_drops_what_is_beyond_it(self) -> None:
        workload = training("mixtral-8x7b")
        assert workload.expert_load == 1.0
        assert changed(workload, expert_imbalance=1.7).expert_load == 1.7
        assert changed(workload, expert_imbalance=1.7, expert_capacity_factor=1.25).expert_load == 1.25
        assert changed(workload, expert_capacity_factor=1.25).expert_load == 1.0

    def test_sorting_a_token_for_each_of_its_experts_takes_memory_bandwidth(self) -> None:
        # Qwen3-30B-A3B, 8 of 128 experts on 16 ranks, of which copies reach 6.6: 2 (6.6 + 8) passes over h, and 6 x 8 + 2
        # where each copy is sorted by destination too; at 81 % of 3.35 TB/s.
        plain = training("qwen3-30b-a3b", sequence_length=4096)
        plan = plan_of(expert=16, data=16)
        sorted_once, sorted_twice = (
            expert_layer(rank_of(plan, changed(plain, expert_dispatch=dispatch))).forward_compute_s[0]
            for dispatch in ("deduplicated", "all_to_all")
        )
        more_bytes = ((6 * 8 + 2) - 2 * (6.6 + 8)) * 2 * 4096 * 2048
        assert sorted_twice - sorted_once == pytest.approx(more_bytes / (3.35e12 * 0.8122), rel=0.02)

    def test_casts_of_many_small_experts_cost_their_launches(self) -> None:
        workload = training("qwen3-30b-a3b", sequence_length=4096)
        few, many = (
            expert_layer(rank_of(plan_of(expert=e, data=16, precision=Precision.FP8), workload))
            for e in (16, 2)
        )
        # 64 experts on a rank instead of 8: two casts of three kernels each, 2.7 us.
        assert (many.forward_compute_s - few.forward_compute_s)[0] > 56 * 6 * 2.676e-6 / 2
