"""How long do blocks with linear attention take, and what do they keep? Counts by hand, and means of layers of either kind."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.hardware import Precision
from simulator.domain.linear_attention import LinearAttention
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layers.attention_costs import attention_core_s
from simulator.layers.host_time import num_forward_kernels
from simulator.layers.input_gradients import entered_in_attention
from simulator.layers.layer_costs import dense_layer
from simulator.layers.linear_costs import linear_products, num_scan_kernels, projections_s, scan_s
from simulator.layers.linear_kernels import scan_kernels
from simulator.layers.weight_gradients import dense_layer_weight_gradients_s
from simulator.layout.chunks import chunk_weights, split_layers
from simulator.memory.layer_activations import LayerActivations
from simulator.memory.linear_widths import kept_width, working_width
from simulator.step.step_reach import MEASURED_REACH, beyond_measured, reach_of
from simulator.traffic.linear_exchange import linear_bytes
from tests.simulator.builders import (
    changed,
    gpt,
    job_of,
    memory_of,
    plan_of,
    rank_of,
    step_of,
    table_of,
    training,
)
from tests.simulator.hybrids import HYBRIDS, KIMI_LINEAR, NEMOTRON_H, QWEN_3_NEXT, small_hybrid

ROUNDING = 1e-9
PLANS = {
    "one rank": plan_of(),
    "tensor": plan_of(tensor=4),
    "context": plan_of(tensor=2, context=2),
    "8 bits": plan_of(tensor=2, precision=Precision.FP8),
}


def linear_of(model: ModelShape) -> LinearAttention:
    assert model.linear_attention is not None
    return model.linear_attention


def workload_of(model: ModelShape, **choices: object) -> Workload:
    workload = training(model, sequence_length=8192, global_batch_size=64)
    return changed(workload, kernel_launch="graph", **choices)


class TestScan:
    def test_mamba_2_reads_and_writes_what_its_kernels_do(self) -> None:
        """Nemotron-H 8B: 8,192 values, 1,024 keys, 128 heads, chunks of 128, states of 8,192 x 128 / 128 a token."""
        v, k, heads, states, pairs = 8192, 1024, 128, 8192, 8 * 128
        convolved = v + 2 * k
        conv, dt, states_of_chunk, passed, products = (
            4 * convolved,
            2 * heads + 8 * heads,
            2 * v + 2 * k + 8 * heads + 4 * states,
            6 * states,
            4 * k + 4 * pairs,
        )
        scan = 4 * pairs + 2 * v + 2 * k + 8 * heads + 2 * states + 2 * v
        forward, backward = scan_kernels(linear_of(NEMOTRON_H))
        assert [kernel.num_bytes for kernel in forward] == [
            conv,
            dt,
            states_of_chunk,
            passed,
            products,
            scan,
            6 * v,
        ]
        state_flop, in_chunk = 2 * v * 128, 128 * v
        flop = [0, 0, state_flop, 0, 2 * 128 * k, state_flop + in_chunk, 0]
        assert [kernel.flop for kernel in forward] == flop
        again = conv + dt + products + states_of_chunk + passed
        of_keys = 2 * (2 * v + 6 * k + 2 * states)
        of_pairs = 2 * (4 * v + 4 * pairs) + 2 * (8 * k + 4 * pairs)
        rest = 10 * v + 2 * (v + k + states) + 8 * states + 6 * v + 2 * k + 4 * pairs + 2 * states
        told = again + of_keys + of_pairs + rest + 6 * convolved
        assert sum(kernel.num_bytes for kernel in backward) == told

    def test_delta_rules_multiply_chunks_and_states_as_their_kernels_do(self) -> None:
        """Qwen3-Next: 32 heads of 128 values and keys, chunks of 64."""
        heads, width, chunk = 32, 128, 64
        state, pair = 2 * heads * width * width, 2 * heads * chunk * width
        forward, backward = scan_kernels(linear_of(QWEN_3_NEXT))
        # K K^T; W and U; the state read and written; the state read, Q K^T, and its product with the values
        assert sum(kernel.flop for kernel in forward) == pair + 2 * pair + 2 * state + state + 2 * pair
        # W and U, states, again; dV; the states' gradients; those of q, k, w; those through W and U
        assert sum(kernel.flop for kernel in backward) == (
            2 * pair + 2 * state + 2 * pair + 3 * state + 3 * state + 3 * pair + 4 * pair + pair
        )

    def test_a_decay_for_each_value_of_a_key_is_read_wherever_a_decay_is(self) -> None:
        kimi = linear_of(KIMI_LINEAR)
        alike = changed(kimi, kind="gated-delta-net")
        more = 4.0 * (32 * 128 - 32)
        for slow, fast, number in zip(scan_kernels(kimi), scan_kernels(alike), (4.5, 8.0), strict=True):
            added = sum(each.num_bytes for each in slow) - sum(each.num_bytes for each in fast)
            assert added == pytest.approx(number * more)

    @pytest.mark.parametrize("name", HYBRIDS)
    def test_it_takes_as_long_a_token_in_sequences_of_any_length(self, name: str) -> None:
        def per_token(tokens: int) -> float:
            workload = training(HYBRIDS[name], sequence_length=tokens, global_batch_size=64)
            rank = rank_of(workload, plan_of())
            launches_s = num_scan_kernels(rank) * float(rank.kernels.launch_s[0])
            return (float(scan_s(rank)[0][0]) - launches_s) / tokens

        assert per_token(262_144) == pytest.approx(per_token(4096), rel=ROUNDING)

    @pytest.mark.parametrize("name", HYBRIDS)
    def test_long_sequences_take_attention_longer(self, name: str) -> None:
        model = HYBRIDS[name]
        rank = rank_of(training(model, sequence_length=65_536, global_batch_size=64), plan_of())
        assert float(attention_core_s(rank)[0][0]) > 3.0 * float(scan_s(rank)[0][0]) / model.linear_share

    def test_kernels_are_never_faster_than_memory_or_products_allow(self) -> None:
        rank = rank_of(workload_of(NEMOTRON_H), plan_of())
        forward, backward = scan_kernels(linear_of(NEMOTRON_H))
        memory, peak = float(rank.offers.memory_bytes_per_s[0]), float(rank.offers.peak_flop_per_s[0, 0])
        for kernels, took_s in zip((forward, backward), scan_s(rank), strict=True):
            least_s = sum(max(each.num_bytes / memory, each.flop / peak) for each in kernels)
            assert float(took_s[0]) > 8192 * NEMOTRON_H.linear_share * least_s

    def test_chunks_may_be_longer(self) -> None:
        linear = linear_of(NEMOTRON_H)
        longer = changed(linear, chunk_tokens=256)
        fewer, more = (sum(each.num_bytes for each in scan_kernels(one).forward) for one in (longer, linear))
        assert fewer < more
        assert linear.chunk_length == 128


class TestMeans:
    """A layer of a hybrid is the mean of layers of either kind, where nothing depends on the longer of two times."""

    @pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
    @pytest.mark.parametrize("recompute", Recompute)
    def test_half_of_the_layers_of_either_kind(self, plan: Plan, recompute: Recompute) -> None:
        plan = changed(plan, recompute=recompute)
        choices = {"overlaps_input_gradients": False}
        half, linear, attention = (
            dense_layer(rank_of(workload_of(model, **choices), plan))
            for model in (small_hybrid(4, 4), small_hybrid(0, 8), gpt(num_layers=8))
        )
        for name in ("forward_compute_s", "backward_compute_s", "forward_s", "backward_s"):
            mean_s = (getattr(linear, name)[0] + getattr(attention, name)[0]) / 2.0
            assert getattr(half, name)[0] == pytest.approx(mean_s, rel=ROUNDING), name

    @pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
    def test_sums_beside_products_are_means_too(self, plan: Plan) -> None:
        half, linear, attention = (
            dense_layer(rank_of(workload_of(model), plan)).backward_s[0]
            for model in (small_hybrid(4, 4), small_hybrid(0, 8), gpt(num_layers=8))
        )
        assert half == pytest.approx((linear + attention) / 2.0, rel=ROUNDING)

    def test_each_further_block_adds_as_much(self) -> None:
        """Nemotron-H: 28 blocks that mix tokens among 24 feed-forward blocks."""
        linear = linear_of(NEMOTRON_H)

        def forward_s(num_blocks: int) -> float:
            model = changed(NEMOTRON_H, linear_attention=changed(linear, num_blocks=num_blocks))
            times = dense_layer(rank_of(workload_of(model), plan_of(tensor=4)))
            return 24.0 * float(times.forward_s[0])

        assert forward_s(30) - forward_s(29) == pytest.approx(forward_s(25) - forward_s(24), rel=1e-6)
        assert forward_s(25) > forward_s(24)

    def test_it_keeps_the_mean_and_works_with_the_most(self) -> None:
        def activations(model: ModelShape) -> LayerActivations:
            return LayerActivations.of(workload_of(model), table_of(plan_of()), is_expert=False)

        half, linear, attention = (
            activations(model) for model in (small_hybrid(4, 4), small_hybrid(0, 8), gpt(num_layers=8))
        )
        assert half.kept[0] == pytest.approx((linear.kept[0] + attention.kept[0]) / 2.0, rel=ROUNDING)
        assert half.at_work[0] == pytest.approx(max(linear.at_work[0], attention.at_work[0]), rel=ROUNDING)

    def test_weights_of_chunks_add_up_to_those_of_the_model(self) -> None:
        plans = table_of(plan_of(pipeline=4))
        chunks = split_layers(NEMOTRON_H, plans)
        weights = chunk_weights(NEMOTRON_H, plans, chunks)
        assert float(weights.shared.sum()) == pytest.approx(NEMOTRON_H.num_parameters, rel=1e-12)

    @pytest.mark.parametrize("name", HYBRIDS)
    def test_late_weight_gradients_are_those_of_the_products(self, name: str) -> None:
        model = changed(HYBRIDS[name], experts=None)
        rank = rank_of(workload_of(model), plan_of())
        linear_s = sum(float(rank.weight_gradient_s(*product)[0]) for product in linear_products(rank))
        one_more = changed(linear_of(model), num_blocks=linear_of(model).num_blocks + model.num_layers)
        more = rank_of(workload_of(changed(model, linear_attention=one_more)), plan_of())
        added_s = dense_layer_weight_gradients_s(more)[0] - dense_layer_weight_gradients_s(rank)[0]
        assert added_s == pytest.approx(linear_s, rel=1e-6)


class TestProducts:
    def test_tensor_parallel_ranks_split_all_but_products_to_a_low_rank(self) -> None:
        whole, split = (rank_of(workload_of(KIMI_LINEAR), plan_of(tensor=t)) for t in (1, 4))
        sizes = [
            (float(one[1][0] * one[2][0]), float(each[1][0] * each[2][0]))
            for one, each in zip(linear_products(whole), linear_products(split), strict=True)
        ]
        assert [one / each for one, each in sizes] == [4.0, 1.0, 4.0, 4.0]
        assert sum(one for one, _ in sizes) == linear_of(KIMI_LINEAR).matrix_parameters(2304)

    def test_a_gate_of_the_core_widens_the_product_in_front_of_it(self) -> None:
        plain, gated = (rank_of(workload_of(changed(gpt(), has_output_gate=on)), plan_of()) for on in (0, 1))
        before, behind = (
            (projections_s(rank)[0][0][0], projections_s(rank)[1][0][0]) for rank in (plain, gated)
        )
        assert behind[0] > before[0]
        assert behind[1] == before[1]
        assert num_forward_kernels(gated) == num_forward_kernels(plain) + 1.0

    def test_linear_attention_is_entered_through_one_product(self) -> None:
        rank = rank_of(workload_of(QWEN_3_NEXT), plan_of(tensor=2))
        shares = [each.share for each in entered_in_attention(rank, is_expert=True)]
        assert shares == [0.75, 0.25]


class TestExchange:
    @pytest.mark.parametrize("name", HYBRIDS)
    def test_ranks_exchange_everything_that_enters_and_leaves_for_heads(self, name: str) -> None:
        rank = rank_of(workload_of(HYBRIDS[name]), plan_of(tensor=2, context=4))
        linear, tokens = linear_of(HYBRIDS[name]), 8192 / 4
        entering, leaving = (float(each[0]) for each in linear_bytes(rank))
        assert leaving == 2.0 * tokens * linear.value_width / 2
        assert entering == 2.0 * tokens * (linear.entering_width + linear.raised_width) / 2

    def test_it_does_not_depend_on_how_attention_exchanges(self) -> None:
        def added_s(exchange: str) -> float:
            times = [
                dense_layer(rank_of(workload_of(small_hybrid(0, 8), context_exchange=exchange), plan))
                for plan in (plan_of(context=4), plan_of())
            ]
            return float(times[0].forward_tensor_comm_s[0] - times[1].forward_tensor_comm_s[0])

        assert added_s("ring") == added_s("all_gather") == added_s("all_to_all") > 0.0


class TestKept:
    def test_mamba_2_keeps_what_enters_and_what_its_scan_returns(self) -> None:
        inner, groups, state, heads = 8192, 8, 128, 128
        entering = 2 * inner + 2 * groups * state + heads
        assert kept_width(linear_of(NEMOTRON_H)) == 2 * (entering + inner)

    def test_the_delta_rule_keeps_its_inputs_and_the_triangle_of_each_chunk(self) -> None:
        keys, values, wide, heads = 16 * 128, 32 * 128, 32 * 128, 32
        entering = 2 * keys + 2 * values + 2 * heads
        in_16_bits = (
            entering + (2 * keys + values) + 2 * keys + 2 * wide + values + 64 * heads + values + heads
        )
        assert kept_width(linear_of(QWEN_3_NEXT)) == 2 * in_16_bits + 4 * heads

    @pytest.mark.parametrize("name", HYBRIDS)
    def test_the_backward_pass_works_with_more_than_the_gradient_of_what_enters(self, name: str) -> None:
        linear = linear_of(HYBRIDS[name])
        assert working_width(linear) > 2 * linear.entering_width

    @pytest.mark.parametrize("name", HYBRIDS)
    def test_memory_falls_with_tensor_parallelism(self, name: str) -> None:
        workload = workload_of(HYBRIDS[name])
        plans = [plan_of(tensor=t) for t in (1, 2, 4, 8)]
        total = memory_of(workload, *plans).peak_bytes
        assert np.all(np.diff(total) < 0.0)


class TestSteps:
    @pytest.mark.parametrize("name", HYBRIDS)
    def test_mfu_is_below_one(self, name: str) -> None:
        workload = workload_of(HYBRIDS[name])
        experts = 8 if HYBRIDS[name].experts else 1
        step = step_of(workload, plan_of(expert=experts, data=64))
        flop = workload.tokens_per_step * workload.model_flop_per_token
        assert 0.05 < flop / (64 * 989.4e12 * float(step.step_time_s[0])) < 0.7

    def test_linear_attention_pays_at_long_sequences_only(self) -> None:
        def ratio(tokens: int) -> float:
            linear, attention = (
                float(
                    step_of(
                        training(model, sequence_length=tokens, global_batch_size=8), plan_of(data=8)
                    ).step_time_s[0]
                )
                for model in (small_hybrid(1, 7), gpt(num_layers=8))
            )
            return linear / attention

        assert ratio(131_072) < 0.5 < ratio(2048)

    def test_no_measured_step_has_any(self) -> None:
        job = job_of(workload_of(NEMOTRON_H))
        reach = reach_of(job, table_of(plan_of()), 0)
        assert not reach.is_within([MEASURED_REACH])
        assert beyond_measured(reach) == ("linear attention",)
