"""Do tokens reach their experts in the time, and as often, as theory and measured exchanges say?"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from benchmarks.fit_dispatch import RATES, Rate
from simulator import catalog
from simulator.activations import stage_activations
from simulator.expert_exchange import expert_exchange_s, num_reached
from simulator.expert_ranks import expert_load
from simulator.hardware import Precision
from simulator.job import Workload
from simulator.layer_costs import PartTimes, expert_layer
from simulator.memory import memory_by_stage
from simulator.model import MixtureOfExperts
from simulator.network import all_gather_s, all_to_all_s, forwarded_exchange_s
from simulator.plan import Plan, Recompute
from simulator.rank import Rank
from simulator.simulate import simulate
from simulator.table import Floats
from simulator.weight_gradients import expert_layer_weight_gradients_s
from tests.simulator.builders import job_of, plan_of, rented, table_of, training

NOTHING = np.zeros(1)


def rank_of(plan: Plan, workload: Workload, accelerator: str = "h100-sxm5-80gb") -> Rank:
    return Rank.of(job_of(workload, rented(accelerator)), table_of(plan))


def exchange_s(plan: Plan, workload: Workload, accelerator: str = "h100-sxm5-80gb") -> float:
    """Dispatch and combine of one direction, hidden by nothing."""
    return float(
        expert_exchange_s(rank_of(plan, workload, accelerator), NOTHING, NOTHING, (NOTHING, NOTHING))[0][0]
    )


def changed(workload: Workload, **changes: object) -> Workload:
    return workload.model_copy(update=changes)


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
        # 8 of 256 experts on 64 H100 are on 5.3 of 8 nodes in the mean, so that 4.6 copies leave the node, not 7.
        plain = training("deepseek-v3", sequence_length=4096)
        anywhere = plain.model.model_copy(update={"experts": routing(256, 8)})
        plain = changed(plain, model=anywhere)
        plan = plan_of(expert=64, data=64)
        ratio = exchange_s(plan, changed(plain, expert_dispatch="deduplicated")) / exchange_s(plan, plain)
        assert ratio == pytest.approx(4.6 / 7, rel=0.15)

    def test_routing_to_few_nodes_saves_more_of_it(self) -> None:
        limited = changed(training("deepseek-v3", sequence_length=4096), expert_dispatch="deduplicated")
        anywhere = limited.model.model_copy(update={"experts": routing(256, 8)})
        plan = plan_of(expert=64, data=64)
        ratio = exchange_s(plan, limited) / exchange_s(plan, changed(limited, model=anywhere))
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
                links=rank_of(plan, workload).links,
            )[0]
            for num_bytes in (1 + 4 / 128, 2)
        )
        assert exchange_s(plan, workload) == pytest.approx(expected_s)

    def test_products_in_16_bits_need_what_they_compute_with(self) -> None:
        plain = training("mixtral-8x7b", sequence_length=4096)
        plan = plan_of(expert=8, data=8)
        assert exchange_s(plan, changed(plain, dispatches_in_8_bits=True)) == exchange_s(plan, plain)

    def test_shared_experts_hide_what_they_last(self) -> None:
        plain = training("deepseek-v3", sequence_length=4096)
        plan = plan_of(expert=64, data=64)
        rank = rank_of(plan, changed(plain, overlaps_shared_experts=True))
        full_s = exchange_s(plan, plain)
        for cover_s, shown_s in ((0.0, full_s), (full_s / 2, full_s * 0.575), (1e3, full_s * 0.15)):
            covers = (np.full(1, cover_s), np.full(1, cover_s))
            # What is longer than the cover, and 0.15 of the rest for the cores that it takes.
            assert expert_exchange_s(rank, NOTHING, NOTHING, covers)[0] == pytest.approx(shown_s)

    def test_a_layer_without_shared_experts_hides_nothing_behind_them(self) -> None:
        plain = training("mixtral-8x7b", sequence_length=4096)
        plan = plan_of(expert=8, data=8)
        alone, beside = (
            expert_layer(rank_of(plan, workload))
            for workload in (plain, changed(plain, overlaps_shared_experts=True))
        )
        assert beside.forward_expert_comm_s == alone.forward_expert_comm_s

    def test_two_ways_to_hide_the_exchange_exclude_each_other(self) -> None:
        fields = training("deepseek-v3").model_dump()
        with pytest.raises(ValidationError, match="overlaps_shared_experts and overlaps_expert_exchange"):
            Workload.model_validate(
                fields | {"overlaps_shared_experts": True, "overlaps_expert_exchange": True}
            )

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
        hidden_s = full_s - expert_exchange_s(rank, endless, endless, (NOTHING, NOTHING))[0][0]
        assert hidden_s == pytest.approx(saved_s, rel=0.10)
        assert expert_exchange_s(rank, NOTHING, NOTHING, (NOTHING, NOTHING))[0][0] == pytest.approx(full_s)

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


class TestPartsOfExperts:
    """Four ranks with experts of their own, each shared by two, against eight ranks with experts of their own."""

    WHOLE = plan_of(expert=8, data=8)
    PARTS = plan_of(expert=4, data=8)

    def workloads(self) -> tuple[Workload, Workload]:
        whole = training("mixtral-8x7b", sequence_length=4096)
        return whole, changed(whole, expert_tensor_parallel=2)

    def test_a_rank_holds_as_many_weights(self) -> None:
        whole, parts = self.workloads()
        ours, theirs = (
            memory_by_stage(workload, plan) for workload, plan in ((parts, self.PARTS), (whole, self.WHOLE))
        )
        for name in ("weights_bytes", "gradients_bytes", "optimizer_bytes"):
            assert getattr(ours, name)[0] == getattr(theirs, name)[0]

    def test_a_rank_computes_as_many_operations_on_narrower_experts(self) -> None:
        whole, parts = self.workloads()
        ours, theirs = (
            expert_layer(rank_of(plan, workload)).forward_compute_s[0]
            for workload, plan in ((parts, self.PARTS), (whole, self.WHOLE))
        )
        # 4 x 4096 tokens of two experts each on half of 14,336 columns, in two products instead of one, and twice as many
        # tokens to sort: 4 x 2 more passes over h.
        sorted_s = 8 * 2 * 4096 * 4096 / (3.35e12 * 0.8122)
        assert ours - theirs == pytest.approx(sorted_s, rel=0.2)

    def test_tokens_are_gathered_from_the_ranks_that_share_an_expert(self) -> None:
        _, parts = self.workloads()
        rank = rank_of(self.PARTS, parts)
        gathered = {"num_bytes": 2 * 2.0 * 4096 * 2 * 4096, "group_size": 2.0, "members_per_domain": 2.0}
        exchanged_s = 2 * all_to_all_s(
            num_bytes=2.0 * 4096 * 2 * 4096, group_size=4.0, members_per_domain=4.0, links=rank.links
        )
        copies_s = 2 * all_gather_s(**gathered, links=rank.links)
        assert exchange_s(self.PARTS, parts) == pytest.approx((exchanged_s + copies_s)[0])

    def test_every_rank_keeps_a_copy_of_what_is_gathered(self) -> None:
        whole, parts = self.workloads()
        none, one = np.zeros(1), np.ones(1)
        ours, theirs = (
            stage_activations(
                workload,
                table_of(plan),
                stage=np.zeros(1, dtype=np.int64),
                dense_layers=none,
                expert_layers=one,
            )
            for workload, plan in ((parts, self.PARTS), (whole, self.WHOLE))
        )
        # Two copies of a token of 4,096 values in 16 bits, of one rank more.
        assert ours.kept_bytes - theirs.kept_bytes == pytest.approx(4096 * 2 * 4096 * 2)

    def test_ranks_beyond_the_link_domain_are_reached_through_the_fabric(self) -> None:
        whole = training("mixtral-8x7b", sequence_length=4096)
        parts = changed(whole, expert_tensor_parallel=8)
        # Eight ranks of each expert fill a node, so that experts are all in other nodes.
        assert exchange_s(plan_of(expert=8, data=64), parts) > 4 * exchange_s(
            plan_of(expert=8, data=64), whole
        )

    def test_a_step_of_every_kind_can_be_played(self) -> None:
        _, parts = self.workloads()
        table = table_of(
            *(
                plan_of(tensor=t, expert=4, data=8, pipeline=2, recompute=recompute, zero=zero)
                for t in (1, 2)
                for recompute in Recompute
                for zero in (0, 1, 2, 3)
            )
        )
        outcomes = simulate(job_of(parts), table)
        assert np.isfinite(outcomes.steps.step_time_s).all()
        assert (outcomes.summary.mfu_fraction < 1.0).all()


class TestProducts:
    """Qwen3-30B-A3B on 16 H100: eight experts of a rank, 4,096 tokens each."""

    def layers(self, precision: Precision) -> tuple[PartTimes, PartTimes]:
        plain = changed(training("qwen3-30b-a3b", sequence_length=4096), expert_dispatch="deduplicated")
        plan = plan_of(expert=16, data=16, precision=precision)
        grouped, separate = (
            expert_layer(rank_of(plan, changed(plain, expert_products=products)))
            for products in ("grouped", "separate")
        )
        return grouped, separate

    def test_one_after_the_other_each_loses_its_last_wave_of_tiles(self) -> None:
        grouped, separate = self.layers(Precision.BF16)
        rank = rank_of(plan_of(expert=16, data=16), training("qwen3-30b-a3b", sequence_length=4096))
        # 2 fill (K + ramp) operations are lost seven times more in products of depth 2,048 and 768, and seven launches.
        constants = rank.kernels
        lost = 2 * constants.gemm_fill_elements * (2048 + 768 + 2 * constants.gemm_ramp_depth)
        lost_s = lost / (rank.sustained_flop_per_s * constants.gemm_peak_fraction)
        longer_s = separate.forward_compute_s - grouped.forward_compute_s
        # Where memory counts for something beside computation the loss is a little less.
        assert longer_s == pytest.approx(7 * (lost_s + 2 * constants.launch_s), rel=0.1)
        assert separate.forward_expert_comm_s == grouped.forward_expert_comm_s

    def test_in_eight_bits_tokens_are_copied_there_and_back_to_fill_up_rows(self) -> None:
        in_16, in_8 = (self.layers(precision) for precision in (Precision.BF16, Precision.FP8))
        copied_s = (
            4 * 2 * 4096 * 8 * 2048 / (3.35e12 * 0.8122)
        )  # four passes over 8 copies of 4,096 tokens, 16 bits
        assert in_8[1].forward_compute_s - in_8[0].forward_compute_s > copied_s
        assert (in_16[1].forward_compute_s - in_16[0].forward_compute_s)[0] < copied_s

    def test_a_single_expert_is_a_product_of_its_own_anyway(self) -> None:
        plain = training("mixtral-8x7b", sequence_length=4096)
        plan = plan_of(expert=8, data=8)
        grouped, separate = (
            expert_layer(rank_of(plan, changed(plain, expert_products=products)))
            for products in ("grouped", "separate")
        )
        assert list(grouped.forward_s) == list(separate.forward_s)
        assert list(grouped.backward_s) == list(separate.backward_s)

    def test_weight_gradients_are_as_many_products(self) -> None:
        plain = training("qwen3-30b-a3b", sequence_length=4096)
        plan = plan_of(expert=16, data=16)
        grouped_s, separate_s = (
            expert_layer_weight_gradients_s(rank_of(plan, changed(plain, expert_products=products)))
            for products in ("grouped", "separate")
        )
        assert separate_s > grouped_s


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_groups": 3}, r"num_groups \(3\) must divide num_experts \(8\)"),
        (
            {"num_groups": 2, "groups_per_token": 3},
            r"groups_per_token \(3\) must not exceed num_groups \(2\)",
        ),
        ({"num_groups": 8, "groups_per_token": 1}, r"experts_per_token \(2\) must not exceed the 1 experts"),
    ],
)
def test_groups_that_cannot_be_are_refused(fields: dict[str, int], message: str) -> None:
    mixture = {"num_experts": 8, "experts_per_token": 2, "expert_ffn_hidden_size": 1}
    with pytest.raises(ValidationError, match=message):
        MixtureOfExperts.model_validate(mixture | fields)


def load_of(expert: int = 8, **fields: float) -> float:
    """Load of the busiest of some ranks that share eight experts."""
    workload = changed(training("mixtral-8x7b"), **fields)
    return float(expert_load(workload, table_of(plan_of(expert=expert, data=8)))[0])


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
        assert load_of() == 1.0
        assert load_of(expert_imbalance=1.7) == 1.7
        assert load_of(expert_imbalance=1.7, expert_capacity_factor=1.25) == 1.25
        assert load_of(expert_capacity_factor=1.25) == 1.0

    def test_a_rank_that_has_all_experts_takes_no_more_than_all_tokens(self) -> None:
        assert load_of(1, expert_imbalance=4.0) == 1.0
        assert load_of(2, expert_imbalance=4.0) == 2.0

    @pytest.mark.parametrize(
        ("field", "value", "rule"),
        [
            (
                "expert_imbalance",
                4.5,
                r"expert_imbalance \(4.5\) must not exceed 4, num_experts over experts_per",
            ),
            ("expert_imbalance", 1e308, "must not exceed 4"),
            ("expert_capacity_factor", 0.99, "greater than or equal to 1"),
        ],
    )
    def test_routing_that_cannot_be_is_refused(self, field: str, value: float, rule: str) -> None:
        workload = training("mixtral-8x7b")
        with pytest.raises(ValidationError, match=rule):
            Workload.model_validate(workload.model_dump() | {field: value})

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
