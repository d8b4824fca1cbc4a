"""Do experts hold, compute and wait for as much as their parts, their products and their load say?"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from pydantic import ValidationError

from simulator.deep.plans.plan_expert_traffic import expert_traffic
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.hardware import Precision
from simulator.domain.lora import ATTENTION_PRODUCTS, Lora
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layers.layer_costs import (
    expert_layer,
    feed_forward_operators,
    kernels_of_experts,
)
from simulator.layers.part_times import PartTimes
from simulator.layers.token_sorting import sorted_bytes
from simulator.layers.weight_gradients import expert_layer_weight_gradients_s
from simulator.layout.expert_ranks import expert_load
from simulator.machine.compute import gemm_time_s
from simulator.machine.network import all_gather_s, all_to_all_s, forwarded_exchange_s
from simulator.machine.training import training_constants
from simulator.memory.activations import activations_of_layers
from simulator.memory.peak import memory_by_stage
from simulator.simulate import simulate
from simulator.traffic.expert_exchange import RATE_IN_TRAINING
from simulator.units import TERA
from tests.simulator.builders import changed, job_of, plan_of, rank_of, table_of, training
from tests.simulator.expert_jobs import exchange_s


class TestPartsOfExperts:
    """Four ranks with experts of their own, each shared by two, against eight ranks with experts of their own."""

    WHOLE = plan_of(expert=8, data=8)
    PARTS = plan_of(expert=4, data=8)
    ASTRIDE = plan_of(expert=2, data=32)
    """Sixteen ranks share each expert, and fill two nodes."""

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
            expert_layer(rank_of(workload, plan)).forward_compute_s[0]
            for workload, plan in ((parts, self.PARTS), (whole, self.WHOLE))
        )
        # 4 x 4096 tokens of two experts each on half of 14,336 columns, in two products instead of one. Two experts of a
        # rank need their tokens sorted, one does not: 4 x 2 passes over h, twice.
        sorted_s = 16 * 2 * 4096 * 4096 / (3.35e12 * 0.8122)
        assert ours - theirs == pytest.approx(sorted_s, rel=0.1)

    def test_tokens_are_gathered_from_the_ranks_that_share_an_expert(self) -> None:
        _, parts = self.workloads()
        rank = rank_of(parts, self.PARTS)
        gathered = {"num_bytes": 2 * 2.0 * 4096 * 2 * 4096, "group_size": 2.0, "members_per_domain": 2.0}
        exchanged_s = 2 * all_to_all_s(
            num_bytes=2.0 * 4096 * 2 * 4096, group_size=4.0, members_per_domain=4.0, links=rank.links
        )
        copies_s = 2 * all_gather_s(**gathered, links=rank.links)
        assert exchange_s(parts, self.PARTS) == pytest.approx((exchanged_s + copies_s)[0] / RATE_IN_TRAINING)

    @pytest.mark.parametrize(("plan", "shares"), [(PARTS, 2), (plan_of(expert=8, data=16), 2), (ASTRIDE, 16)])
    def test_deduplicated_tokens_go_to_all_ranks_that_share_an_expert(self, plan: Plan, shares: int) -> None:
        # Counted over all pairs of 8 experts, of which e sets follow each other on t_e ranks each, eight ranks a node.
        e = plan.expert_parallel
        ranks, nodes = shares * e, -(-shares * e // 8)
        homes = [{rank for rank in range(ranks) if rank // shares == expert * e // 8} for expert in range(8)]
        reached = [one | other for one, other in combinations(homes, 2)]
        arriving, far = (
            float(np.mean([len({rank // size for rank in each}) for each in reached]))
            for size in (1, ranks // nodes)
        )
        parts = changed(self.workloads()[0], expert_dispatch="deduplicated", expert_tensor_parallel=shares)
        rank, token_bytes = rank_of(parts, plan), 2.0 * 4096 * 4096
        dispatch_s = forwarded_exchange_s(
            near_bytes=token_bytes * arriving * (1 - nodes / ranks),
            far_bytes=token_bytes * far * (1 - 1 / nodes),
            group_size=float(ranks),
            members_per_domain=ranks / nodes,
            links=rank.links,
        )
        assert exchange_s(parts, plan) == pytest.approx(2 * dispatch_s[0] / RATE_IN_TRAINING)
        played_s = sum(each.alone_s for ways in expert_traffic(rank, 0) for each in ways)
        assert played_s == pytest.approx(exchange_s(parts, plan))
        # Each is read for its experts there, and written for each of their parts; results come back as they went.
        assert sorted_bytes(rank)[0] == pytest.approx(token_bytes * 2 * (arriving + 2 * shares))

    def test_an_exchange_waits_for_its_last_rank_with_idle_links(self) -> None:
        rank = rank_of(self.workloads()[0], plan_of(expert=8, data=16))
        sent = expert_traffic(rank, 0)[0][0]
        alone_s = all_to_all_s(
            num_bytes=sent.num_bytes, group_size=8.0, members_per_domain=8.0, links=rank.links
        )[0]
        # A fifth of the time in a step are waits (profile of Megatron-Bridge); seven of eight parts leave, at the rate of an
        # all-to-all (`all_to_all_fraction`).
        assert sent.alone_s == pytest.approx(alone_s / 0.8)
        assert sent.num_bytes == pytest.approx(2 * 2.0 * 4096 * 4096)
        assert sent.near_bytes == pytest.approx(7 / 8 * sent.num_bytes / rank.links.all_to_all_fraction[0])

    def test_every_rank_keeps_a_copy_of_what_is_gathered(self) -> None:
        whole, parts = self.workloads()
        none, one = np.zeros(1), np.ones(1)
        ours, theirs = (
            activations_of_layers(
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
        assert exchange_s(parts, plan_of(expert=8, data=64)) > 4 * exchange_s(
            whole, plan_of(expert=8, data=64)
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


def test_a_model_without_experts_has_no_parts_of_them() -> None:
    # One accelerator a stage, fewer than the ranks that would share an expert.
    whole, parts = (
        simulate(job_of(changed(training(), expert_tensor_parallel=shares)), table_of(plan_of(pipeline=8)))
        for shares in (1, 4)
    )
    assert parts.steps.step_time_s == whole.steps.step_time_s
    assert parts.memory.peak_bytes == whole.memory.peak_bytes


class TestProducts:
    """Qwen3-30B-A3B on 16 H100: eight experts of a rank, 4,096 tokens each."""

    def layers(self, precision: Precision) -> tuple[PartTimes, PartTimes]:
        plain = changed(training("qwen3-30b-a3b", sequence_length=4096), expert_dispatch="deduplicated")
        plan = plan_of(expert=16, data=16, precision=precision)
        grouped, separate = (
            expert_layer(rank_of(changed(plain, expert_products=products), plan))
            for products in ("grouped", "separate")
        )
        return grouped, separate

    def test_four_streams_lose_the_last_wave_of_each_four_products(self) -> None:
        grouped, separate = self.layers(Precision.BF16)
        rank = rank_of(training("qwen3-30b-a3b", sequence_length=4096), plan_of(expert=16, data=16))
        # 2 fill (K + ramp) operations are lost twice, not once, in products of depth 2,048 and 768, and seven more launches.
        constants = rank.kernels
        lost = 2 * constants.gemm_fill_elements * (2048 + 768 + 2 * constants.gemm_ramp_depth)
        lost_s = lost / (rank.sustained_flop_per_s * constants.gemm_peak_fraction)
        longer_s = separate.forward_compute_s - grouped.forward_compute_s
        # Where memory counts for something beside computation the loss is a little less.
        assert longer_s == pytest.approx(lost_s + 7 * 2 * constants.launch_s, rel=0.1)
        assert separate.forward_expert_comm_s == grouped.forward_expert_comm_s

    def test_in_eight_bits_tokens_are_copied_there_and_back_to_fill_up_rows(self) -> None:
        in_16, in_8 = (self.layers(precision) for precision in (Precision.BF16, Precision.FP8))
        copied_s = (
            4 * 2 * 4096 * 8 * 2048 / (3.35e12 * 0.8122)
        )  # four passes over 8 copies of 4,096 tokens, 16 bits
        assert in_8[1].forward_compute_s - in_8[0].forward_compute_s > copied_s
        assert (in_16[1].forward_compute_s - in_16[0].forward_compute_s)[0] < copied_s

    def test_rows_that_arrive_filled_up_need_no_copies(self) -> None:
        workload = changed(
            training("qwen3-30b-a3b", sequence_length=4096),
            expert_dispatch="deduplicated",
            expert_products="separate",
        )
        plan = plan_of(expert=16, data=16, precision=Precision.FP8)
        copied, filled = (
            expert_layer(rank_of(changed(workload, fills_expert_rows=fills), plan)) for fills in (False, True)
        )
        passes_s = 4 * 2 * 4096 * 8 * 2048 / (3.35e12 * 0.8122)
        assert copied.forward_s - filled.forward_s == pytest.approx(passes_s)
        assert copied.backward_s - filled.backward_s == pytest.approx(passes_s)

    def test_the_host_launches_products_and_casts_of_every_expert(self) -> None:
        workload = changed(training("qwen3-30b-a3b", sequence_length=4096), expert_products="separate")
        constants = replace(training_constants(), launch_s=1e-3)
        plans = (plan_of(expert=16, data=16, precision=each) for each in (Precision.BF16, Precision.FP8))
        in_16, in_8 = (expert_layer(replace(rank_of(workload, plan), training=constants)) for plan in plans)
        # 17 of any layer and 2 norms of heads, 24 of routing, the router's product, 14 more of eight experts; each of these
        # casts two inputs.
        assert in_16.forward_s == pytest.approx((17 + 2 + 24 + 1 + 14) * 1e-3)
        assert in_16.backward_s == pytest.approx((2 * (17 + 2) + 24 + 2 * (1 + 14)) * 1e-3)
        assert in_8.forward_s - in_16.forward_s == pytest.approx(16e-3)

    @pytest.mark.parametrize(
        ("dispatch", "lora", "num_bytes", "num_kernels"),
        [
            # Product, sum, concatenation; backward product and sum for biases and for weights, and a concatenation.
            ("all_to_all", None, (2 + 6 + 4, 6 + 6 + 4), (2 * 8 + 1, 4 * 8 + 1)),
            (
                "all_to_all",
                Lora(rank=8, targets=ATTENTION_PRODUCTS),
                (2 + 6 + 4, 6 + 4),
                (2 * 8 + 1, 2 * 8 + 1),
            ),
            # In 32 bits, with casts at the ends, and of the gradient of outputs and of biases for each expert.
            ("deduplicated", None, (4 + 10 + 8 + 6, 6 + 6 + 12 + 12 + 4), (2 * 8 + 2, 6 * 8 + 2)),
        ],
    )
    def test_biases_are_added_by_operators_of_their_own(
        self, dispatch: str, lora: Lora | None, num_bytes: tuple[int, int], num_kernels: tuple[int, int]
    ) -> None:
        """`_apply_bias` of Megatron Core's experts: eight of gpt-oss-120b, which return 4 copies of 4,096 tokens."""
        plain = training("gpt-oss-120b", sequence_length=4096)
        biased = changed(plain, expert_products="separate", expert_dispatch=dispatch, lora=lora)
        experts = (
            plain.model.experts.model_copy(update={"has_biases": False}) if plain.model.experts else None
        )
        free = changed(biased, model=plain.model.model_copy(update={"experts": experts}))
        ours, theirs = (rank_of(each, plan_of(expert=16, data=16)) for each in (biased, free))
        values, constants = 4 * 4096 * 2880, ours.kernels
        expected_s = [
            moved * values / (3.35e12 * constants.memory_fraction) + launches * constants.launch_s
            for moved, launches in zip(num_bytes, num_kernels, strict=True)
        ]
        have, lack = expert_layer(ours), expert_layer(theirs)
        assert have.forward_compute_s - lack.forward_compute_s == pytest.approx(expected_s[0])
        assert have.backward_compute_s - lack.backward_compute_s == pytest.approx(expected_s[1])

    def test_a_single_expert_is_a_product_of_its_own_anyway(self) -> None:
        plain = training("mixtral-8x7b", sequence_length=4096)
        plan = plan_of(expert=8, data=8)
        grouped, separate = (
            expert_layer(rank_of(changed(plain, expert_products=products), plan))
            for products in ("grouped", "separate")
        )
        assert list(grouped.forward_s) == list(separate.forward_s)
        assert list(grouped.backward_s) == list(separate.backward_s)

    @pytest.mark.parametrize(
        ("num_experts", "tokens", "measured_flop_per_s"),
        [(8, 4096.0, 627.9 * TERA), (16, 2048.0, 553.9 * TERA)],
    )
    def test_they_take_as_long_as_was_measured(
        self, num_experts: int, tokens: float, measured_flop_per_s: float
    ) -> None:
        """`general_grouped_gemm` of Transformer Engine 2.7 in bf16 on H100, n = 768, k = 2,048 (its pull request 2045)."""
        workload = changed(training("qwen3-30b-a3b", sequence_length=4096), expert_products="separate")
        rank = rank_of(workload, plan_of(expert=16, data=16))
        batch, repeats = kernels_of_experts(rank, np.array([float(num_experts)]))
        took_s = repeats * gemm_time_s(
            m=tokens,
            n=768.0,
            k=2048.0,
            bytes_per_element=2.0,
            peak_flop_per_s=989.4 * TERA,
            memory_bytes_per_s=3.35 * TERA,
            constants=rank.kernels,
            num_gemms=batch.num_gemms,
            num_kernels=batch.num_kernels,
        )
        flop = 2 * num_experts * tokens * 768 * 2048
        # One product after the other is 4 and 7 % slower than measured, and a single kernel 11 and 25 % faster.
        assert flop / took_s == pytest.approx(measured_flop_per_s, rel=0.035)

    def test_weight_gradients_are_as_many_products(self) -> None:
        plain = training("qwen3-30b-a3b", sequence_length=4096)
        plan = plan_of(expert=16, data=16)
        grouped_s, separate_s = (
            expert_layer_weight_gradients_s(rank_of(changed(plain, expert_products=products), plan))
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
            expert_layer(rank_of(workload, plan)) for workload in (even, changed(even, expert_imbalance=2.0))
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
            expert_layer(rank_of(changed(plain, expert_dispatch=dispatch), plan)).forward_compute_s[0]
            for dispatch in ("deduplicated", "all_to_all")
        )
        more_bytes = ((6 * 8 + 2) - 2 * (6.6 + 8)) * 2 * 4096 * 2048
        assert sorted_twice - sorted_once == pytest.approx(more_bytes / (3.35e12 * 0.8122), rel=0.02)

    @pytest.mark.parametrize(("num_ranks", "num_passes"), [(1, 14), (4, 14), (8, 6)])
    def test_copies_for_a_single_expert_of_a_rank_arrive_sorted(
        self, num_ranks: int, num_passes: int
    ) -> None:
        # Mixtral, 2 of 8 experts: 2 x 2 + 2 passes over h around the exchange, 4 x 2 more where a rank has several experts
        # (`if self.num_local_experts > 1` in Megatron Core's dispatcher); and 24 launches.
        workload = training("mixtral-8x7b", sequence_length=4096)
        rank = rank_of(workload, plan_of(expert=num_ranks, data=8))
        sorted_s = feed_forward_operators(rank, is_expert=True)["permutation"][0][0]
        moved_s = num_passes * 2 * 4096 * 4096 / (3.35e12 * 0.8122)
        assert sorted_s == pytest.approx(moved_s + 24 * 2.676e-6, rel=0.001)

    def test_casts_of_many_small_experts_cost_their_launches(self) -> None:
        workload = training("qwen3-30b-a3b", sequence_length=4096)
        few, many = (
            expert_layer(rank_of(workload, plan_of(expert=e, data=16, precision=Precision.FP8)))
            for e in (16, 2)
        )
        # 64 experts on a rank instead of 8: two casts of three kernels each, 2.7 us.
        assert (many.forward_compute_s - few.forward_compute_s)[0] > 56 * 6 * 2.676e-6 / 2
