"""Do tokens reach their experts in the time, and in as many copies, as theory and measured exchanges say?"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.fit_dispatch import RATES, Rate
from simulator import catalog
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.hardware import Precision
from simulator.domain.plan import PlanTable, Schedule
from simulator.domain.workload import Workload
from simulator.layers.layer_costs import expert_layer
from simulator.machine.network import all_to_all_s, forwarded_exchange_s
from simulator.simulate import simulate
from simulator.table import Floats
from simulator.traffic.expert_exchange import (
    RATE_IN_TRAINING,
    copied_bytes,
    expert_exchange_s,
    hidden_in_pairs_s,
)
from simulator.traffic.expert_reach import num_reached
from tests.simulator.builders import changed, job_of, plan_of, rank_of, training
from tests.simulator.expert_jobs import NOTHING, exchange_s


def routing(
    num_experts: int, experts_per_token: int, *, num_groups: int = 1, groups_per_token: int = 1
) -> MixtureOfExperts:
    return MixtureOfExperts(
        num_experts=num_experts,
        experts_per_token=experts_per_token,
        expert_ffn_hidden_size=1,
        num_groups=num_groups,
        groups_per_token=groups_per_token,
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

    @pytest.mark.parametrize("parts", [1, 2, 4, 8])
    @pytest.mark.parametrize("groups_per_token", [1, 2, 3, 4])
    def test_limited_routing_is_the_mean_over_all_choices_of_groups_and_experts(
        self, parts: int, groups_per_token: int
    ) -> None:
        # Eight experts in four groups, of which a token chooses some, and two experts of those.
        found = [
            len({expert * parts // 8 for expert in choice})
            for groups in combinations(range(4), groups_per_token)
            for choice in combinations([expert for expert in range(8) if expert // 2 in groups], 2)
        ]
        limited = routing(8, 2, num_groups=4, groups_per_token=groups_per_token)
        assert reached(limited, parts) == pytest.approx(sum(found) / len(found))

    @pytest.mark.parametrize("parts", [3, 4, 6, 12])
    @pytest.mark.parametrize("groups_per_token", [1, 2, 3])
    def test_parts_that_lie_astride_groups_share_them(self, parts: int, groups_per_token: int) -> None:
        # Twelve experts: parts of 4, 3, 2 and 1, and four groups of 3 or six of 2.
        for num_groups in (4, 6):
            size = 12 // num_groups
            found = [
                len({expert * parts // 12 for expert in choice})
                for groups in combinations(range(num_groups), groups_per_token)
                for choice in combinations([expert for expert in range(12) if expert // size in groups], 2)
            ]
            limited = routing(12, 2, num_groups=num_groups, groups_per_token=groups_per_token)
            assert reached(limited, parts) == pytest.approx(sum(found) / len(found))

    def test_five_nodes_of_deepseek_v2_share_three_of_its_groups(self) -> None:
        # All draws of 3 of 8 groups, counted: 2.863 of five nodes, 3.662 of ten.
        experts = catalog.model("deepseek-v2").experts
        assert experts
        assert [reached(experts, parts) for parts in (5, 10)] == pytest.approx([2.863, 3.662], abs=0.001)

    def test_tokens_of_deepseek_v3_travel_to_at_most_four_nodes(self) -> None:
        experts = catalog.model("deepseek-v3").experts
        assert experts
        # arXiv 2412.19437, section 2.1.2: at most 4 of 8 nodes; 8 experts drawn from all 256 would be on 5.3.
        assert 3.0 < reached(experts, 8.0) <= 4.0
        assert reached(routing(256, 8), 8.0) == pytest.approx(5.3, abs=0.05)

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
        rank = rank_of(training("mixtral-8x7b", sequence_length=4096), plan_of(tensor=2, expert=8, data=4))
        # A tensor-parallel rank sends its half of the tokens to two experts each.
        sent_bytes = 2.0 * 4096 / 2 * 2 * 4096
        expected_s = 2 * all_to_all_s(
            num_bytes=sent_bytes, group_size=8.0, members_per_domain=8.0, links=rank.links
        )
        expected_s /= RATE_IN_TRAINING
        layer = expert_layer(rank)
        assert layer.forward_expert_comm_s == layer.backward_expert_comm_s == pytest.approx(expected_s)

    @pytest.mark.parametrize("dispatch", ["all_to_all", "deduplicated"])
    def test_experts_across_nodes_cost_more(self, dispatch: str) -> None:
        workload = changed(training("deepseek-v2", sequence_length=4096), expert_dispatch=dispatch)
        near, far = (exchange_s(workload, plan_of(expert=e, data=32)) for e in (8, 32))
        assert far > 2 * near

    def test_one_copy_to_each_node_instead_of_one_to_each_expert_saves_most_of_the_fabric(self) -> None:
        # 8 of 256 experts on 64 H100 are on 5.3 of 8 nodes in the mean, so that 4.6 copies leave the node, not 7.
        plain = training("deepseek-v3", sequence_length=4096)
        anywhere = plain.model.model_copy(update={"experts": routing(256, 8)})
        plain = changed(plain, model=anywhere)
        plan = plan_of(expert=64, data=64)
        ratio = exchange_s(changed(plain, expert_dispatch="deduplicated"), plan) / exchange_s(plain, plan)
        assert ratio == pytest.approx(4.6 / 7, rel=0.15)

    def test_routing_to_few_nodes_saves_more_of_it(self) -> None:
        limited = changed(training("deepseek-v3", sequence_length=4096), expert_dispatch="deduplicated")
        anywhere = limited.model.model_copy(update={"experts": routing(256, 8)})
        plan = plan_of(expert=64, data=64)
        ratio = exchange_s(limited, plan) / exchange_s(changed(limited, model=anywhere), plan)
        # Four groups are reached at most, 3.7 in the mean, instead of 5.3.
        assert ratio == pytest.approx(3.7 / 5.3, rel=0.1)

    def test_eight_bits_are_sent_and_sixteen_come_back(self) -> None:
        workload = changed(training("mixtral-8x7b", sequence_length=4096), dispatches_in_8_bits=True)
        plan = plan_of(expert=8, data=8, precision=Precision.FP8)
        values = 4096 * 2 * 4096
        # DeepSeek-V3, arXiv 2412.19437, section 3.3: a byte a value and an fp32 scale for 128 of them; combine in bf16.
        expected_s = sum(
            all_to_all_s(
                num_bytes=num_bytes * values,
                group_size=8.0,
                members_per_domain=8.0,
                links=rank_of(workload, plan).links,
            )[0]
            for num_bytes in (1 + 4 / 128, 2)
        )
        assert exchange_s(workload, plan) == pytest.approx(expected_s / RATE_IN_TRAINING)

    def test_products_in_16_bits_need_what_they_compute_with(self) -> None:
        plain = training("mixtral-8x7b", sequence_length=4096)
        plan = plan_of(expert=8, data=8)
        assert exchange_s(changed(plain, dispatches_in_8_bits=True), plan) == exchange_s(plain, plan)

    def test_shared_experts_hide_what_they_last(self) -> None:
        plain = training("deepseek-v3", sequence_length=4096)
        plan = plan_of(expert=64, data=64)
        rank = rank_of(changed(plain, overlaps_shared_experts=True), plan)
        full_s = exchange_s(plain, plan)
        for cover_s, shown_s in ((0.0, full_s), (full_s / 2, full_s / 2), (1e3, full_s * 0.15)):
            covers = (np.full(1, cover_s), np.full(1, cover_s))
            # What is longer than the cover, or 0.15 of what it hides for the cores that this takes.
            assert expert_exchange_s(rank, NOTHING, NOTHING, covers)[0] == pytest.approx(shown_s)

    def test_a_layer_without_shared_experts_hides_nothing_behind_them(self) -> None:
        plain = training("mixtral-8x7b", sequence_length=4096)
        plan = plan_of(expert=8, data=8)
        alone, beside = (
            expert_layer(rank_of(workload, plan))
            for workload in (plain, changed(plain, overlaps_shared_experts=True))
        )
        assert beside.forward_expert_comm_s == alone.forward_expert_comm_s

    def test_two_ways_to_hide_the_exchange_exclude_each_other(self) -> None:
        fields = training("deepseek-v3").model_dump()
        with pytest.raises(
            ValidationError, match="overlaps_shared_experts excludes overlaps_expert_exchange"
        ):
            Workload.model_validate(
                fields | {"overlaps_shared_experts": True, "overlaps_expert_exchange": True}
            )

    def test_a_rack_is_one_domain(self) -> None:
        workload = changed(training("deepseek-v3", sequence_length=4096), expert_dispatch="deduplicated")
        plan = plan_of(expert=64, data=64)
        # 900 GB/s inside NVL72 against 50 GB/s through the fabric.
        assert exchange_s(workload, plan) > 4 * exchange_s(workload, plan, "gb200")

    @pytest.mark.parametrize("rate", RATES, ids=lambda rate: f"{rate.platform}-{rate.num_ranks}")
    def test_it_takes_as_long_as_hybrid_ep_was_measured(self, rate: Rate) -> None:
        # The two constants were fitted on these nine points; a platform predicted from the others is within 6 %.
        assert rate.predicted_s() == pytest.approx(rate.measured_s, rel=0.05)

    @pytest.mark.parametrize(
        ("num_ranks", "domains", "from_python", "alone"),
        [(16, 2, 56.96, 68.00), (32, 4, 52.53, 57.46), (64, 8, 47.68, 51.03)],
    )
    def test_what_hybrid_ep_copies_from_python_is_what_sorting_reads_and_writes_in_its_place(
        self, num_ranks: int, domains: int, from_python: float, alone: float
    ) -> None:
        # GB/s of combine on H100, 4,096 tokens of 7,168 values, 8 of 8 experts a rank (`README_Hybrid-EP.md`): without
        # sorting it copies all that has arrived into the buffer of its kernel, which is all but a quarter of the difference.
        experts, token_bytes = routing(8 * num_ranks, 8), 4096 * 7168 * 2
        more_s = token_bytes * reached(experts, domains) * (1 / from_python - 1 / alone) / 1e9
        rank = rank_of(training("qwen3-30b-a3b"), plan_of(expert=8, data=8))
        copied_s = rank.memory_bound_s(np.array([2 * token_bytes * reached(experts, num_ranks)]), 1.0)[0]
        assert more_s / 1.3 < copied_s < more_s

    def test_the_overlap_hides_as_much_as_was_measured_behind_enough_computation(self) -> None:
        plain = training("qwen3-30b-a3b", sequence_length=4096)
        plan = plan_of(expert=16, data=16)
        rank = rank_of(changed(plain, overlaps_expert_exchange=True), plan)
        full_s, endless = exchange_s(plain, plan), np.full(1, 1e3)
        # Megatron-Bridge, Qwen3-30B-A3B on 16 H100: 41.25 s without the overlap, 31.31 s with it; 3,072 passes of a layer.
        saved_s = (41.25 - 31.31) / (48 * 64 * 2)
        hidden_s = full_s - expert_exchange_s(rank, endless, endless, (NOTHING, NOTHING))[0][0]
        assert hidden_s == pytest.approx(saved_s, rel=0.10)
        assert expert_exchange_s(rank, NOTHING, NOTHING, (NOTHING, NOTHING))[0][0] == pytest.approx(full_s)

    @given(speed=st.floats(1.0, 100.0), load=st.floats(0.01, 10.0))
    def test_faster_kernels_lengthen_no_pass_that_hides_it(self, speed: float, load: float) -> None:
        plain = training("qwen3-30b-a3b", sequence_length=4096)
        plan = plan_of(expert=16, data=16)
        rank, full_s = rank_of(changed(plain, overlaps_expert_exchange=True), plan), exchange_s(plain, plan)
        slow = (np.full(1, 0.3 * load * full_s), np.full(1, 0.7 * load * full_s))
        fast = (slow[0] / speed, slow[1] / speed)
        before = expert_exchange_s(rank, *slow, (NOTHING, NOTHING))
        after = expert_exchange_s(rank, *fast, (NOTHING, NOTHING))
        for way in (0, 1):
            assert fast[way] + after[way] <= (slow[way] + before[way]) * (1.0 + 1e-12)

    def test_pairs_hide_it_but_for_the_cores_that_it_takes(self) -> None:
        # DeepSeek-V3, arXiv 2412.19437, section 3.2.1: fully hidden, on 20 of 132 multiprocessors, where there are pairs.
        plain = training("deepseek-v3", sequence_length=4096)
        plan = plan_of(pipeline=2, virtual=2, expert=64, data=64, schedule=Schedule.DUAL_PIPE_V)
        shown, hidden = (
            expert_layer(rank_of(changed(plain, overlaps_expert_exchange=is_hidden), plan))
            for is_hidden in (False, True)
        )
        assert shown.hidden_s[0] == 0.0
        assert hidden.forward_s[0] == shown.forward_s[0]
        longer_s = (hidden.least_s - hidden.forward_compute_s - hidden.backward_compute_s)[0]
        exchanged_s = float((shown.forward_expert_comm_s + shown.backward_expert_comm_s)[0])
        work_s = shown.forward_compute_s[0], shown.backward_compute_s[0]
        expected_s = sum(
            max(20 / 132 * min(exchanged_s / 2, each_s), exchanged_s / 2 - each_s) for each_s in work_s
        )
        assert longer_s == pytest.approx(expected_s, rel=0.02)

    @given(speed=st.floats(1.0, 100.0), load=st.floats(0.01, 10.0))
    def test_faster_kernels_lengthen_no_pass_of_a_pair(self, speed: float, load: float) -> None:
        plan = plan_of(pipeline=2, virtual=2, expert=16, data=16, schedule=Schedule.DUAL_PIPE_V)
        workload = changed(training("qwen3-30b-a3b", sequence_length=4096), overlaps_expert_exchange=True)
        rank, full_s = rank_of(workload, plan), exchange_s(workload, plan)
        slow = np.full(1, 0.3 * load * full_s), np.full(1, 0.7 * load * full_s)
        fast = slow[0] / speed, slow[1] / speed
        before, after = (hidden_in_pairs_s(rank, *passes) for passes in (slow, fast))
        for way in (0, 1):
            assert fast[way] - after[way] <= (slow[way] - before[way]) * (1.0 + 1e-12) + 1e-12

    def test_a_pipeline_hides_it_in_as_many_pairs_as_there_are(self) -> None:
        job = job_of(training("mixtral-8x7b", global_batch_size=256))
        plan = plan_of(pipeline=4, virtual=2, expert=8, data=8, schedule=Schedule.DUAL_PIPE_V)
        hidden = job.model_copy(update={"workload": changed(job.workload, overlaps_expert_exchange=True)})
        shown_s, hidden_s = (
            simulate(each, PlanTable.from_plans([plan])).steps.expert_comm_s[0] for each in (job, hidden)
        )
        # m = 32: of 8 forwards a stage does 2 m - 3 p + r + 1 in pairs, the last stage one less.
        share = sum(64 - 12 + stage + 1 - (stage == 3) for stage in range(4)) / (4 * 64)
        layer = expert_layer(rank_of(hidden.workload, plan))
        ratio = float(layer.hidden_s[0] / (layer.forward_expert_comm_s + layer.backward_expert_comm_s)[0])
        assert hidden_s == pytest.approx(shown_s * (1.0 - share * ratio), rel=1e-9)

    def test_tensor_parallel_ranks_copy_their_own_tokens_to_the_parts_of_experts(self) -> None:
        parts = changed(training("mixtral-8x7b"), expert_tensor_parallel=2, expert_imbalance=1.0)
        # Two experts for each of 4,096 tokens of 4,096 values; two ranks with parts of each get all tokens of both.
        for t in (2, 4):
            assert copied_bytes(rank_of(parts, plan_of(tensor=t))) == 2 * 2 * 2 * 4096 * 4096 / t

    def test_one_rank_exchanges_nothing(self) -> None:
        workload = training("mixtral-8x7b")
        for dispatch in ("all_to_all", "deduplicated"):
            assert exchange_s(changed(workload, expert_dispatch=dispatch), plan_of(data=8)) == 0.0

    @given(near=st.floats(0, 1e9), far=st.floats(0, 1e9))
    def test_forwarding_takes_no_less_than_either_way_and_no_more_than_both(
        self, near: float, far: float
    ) -> None:
        links = rank_of(training("mixtral-8x7b"), plan_of(expert=16, data=16)).links

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
