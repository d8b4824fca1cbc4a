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
        # C B^T, x and the gate in; the output in front of the gate and behind it out
        scan = 4 * pairs + 2 * v + 2 * k + 8 * heads + 2 * states + 2 * v + 2 * 2 * v
        forward, backward, small, num_small = scan_kernels(linear_of(NEMOTRON_H))
        assert [kernel.num_bytes for kernel in forward] == [
            conv,
            dt,
            states_of_chunk,
            passed,
            products,
            scan,
            4 * v,
        ]
        state_flop, in_chunk = 2 * v * 128, 128 * v
        flop = [0, 0, state_flop, 0, 2 * 128 * k, state_flop + in_chunk, 0]
        assert [kernel.flop for kernel in forward] == flop
        again = conv + dt + products + states_of_chunk + (4 + 4) * states
        before_scan = (2 + 2 + 2) * v + (4 * 2 + 2 * 2) * v  # of the norm; of the gate, which reads x, too
        of_states = 2 * (v + k) + 4 * states + (4 + 4 + 2 + 2) * states
        of_values = 6 * v + 2 * k + 4 * pairs + 2 * states
        of_keys = 2 * (2 * v + 6 * k + 2 * states) + 2 * (4 + 4) * k  # and their sums over parts, of one part
        of_pairs = 2 * (4 * v + 4 * pairs) + (4 + 4) * pairs + 2 * (8 * k + 4 * pairs)
        told = again + before_scan + of_states + of_values + of_keys + of_pairs + 6 * convolved
        assert sum(kernel.num_bytes for kernel in backward) == told
        assert (len(forward), len(backward)) == (7, 20)
        assert num_small * small.num_bytes < 0.03 * told

    def test_the_gated_delta_rule_copies_what_its_kernels_read(self) -> None:
        """Qwen3-Next: 4,096 values, 2,048 keys copied to 4,096, 32 heads, chunks of 64, states of 4,096 x 128 / 64 a token."""
        v, k, wide, heads, states = 4096, 2048, 4096, 32, 8192
        triangle, decays = 2 * heads * 64, 4 * heads
        forward, backward, *_ = scan_kernels(linear_of(QWEN_3_NEXT))
        assert [kernel.num_bytes for kernel in forward] == [
            4 * (v + 2 * k),
            4 * 2 * k,
            4 * 2 * k,
            (2 + 2) * (k + wide) + 2 * 4 * v,
            (2 + 4 + 2 + 2) * heads,
            2 * decays,
            triangle,
            2 * wide + triangle + decays,
            4 * wide + 4 * v + triangle + decays,
            4 * wide + 4 * v + 2 * states,
            4 * wide + 4 * v + 2 * states + decays,
            4 * v,
            6 * v,
        ]
        gated = (6 + 4) * v + 6 * v
        again = 4 * (wide + v) + triangle + decays + 4 * (wide + v) + 2 * states
        of_chunk = 4 * (wide + v) + 6 * (wide + v) + 2 * states + decays
        of_keys = (4 + 6) * wide + 6 * v + 4 * states + 2 * decays
        of_triangle = 6 * (wide + v) + triangle + 2 * decays
        of_copies = 6 * wide + 2 * decays + 4 * (k + wide) + (4 + 4 + 4) * k
        of_convolution = (4 + 4 + 8) * (v + 2 * k) + 4 * (v + 2 * k + v)
        told = gated + again + of_chunk + of_keys + of_triangle + of_copies + of_convolution
        assert sum(kernel.num_bytes for kernel in backward) == told

    def test_kimi_delta_attention_works_in_32_bits_on_the_way_back(self) -> None:
        """Kimi Linear: 4,096 values and keys, a decay for each key, 32 heads, chunks of 64."""
        v = k = 4096
        heads, states = 32, 8192
        triangle, decays = 2 * heads * 64, 4 * k
        forward, backward, *_ = scan_kernels(linear_of(KIMI_LINEAR))
        # A cleared; of 16 blocks each the diagonals, those of A in 32 bits; these read, and ten and six blocks written
        in_chunk = (
            2 * (4 * k + decays) + triangle + (4 / 16 + 2 * 4 / 16 + 2 * 4 / 16 + 10 / 16 + 6 / 16) * triangle
        )
        assert sum(kernel.num_bytes for kernel in forward) == (
            4 * 3 * k
            + 8 * k
            + (2 + 4) * k
            + in_chunk
            + (2 + 2 + 2) * k + 4 * v + triangle + decays
            + 4 * k + 4 * v + 2 * states
            + 2 * v
            + 2 * k + decays + 2 * states + triangle + 4 * v
            + 6 * v
        )  # fmt: skip
        again = (2 + 4) * k + (4 + 6) * k + 4 * v + triangle + decays + 4 * k + 4 * v + 2 * states
        of_output = 10 * v + 6 * v + triangle + 2 * triangle + 6 * k + 6 * v + 2 * states
        of_keys = 4 * k + 8 * k + 10 * v + triangle + 2 * triangle + 4 * states + 2 * decays
        of_chunks = 4 * k + 8 * k + 8 * k + 4 * triangle + 3 * decays
        of_decays = 2 * decays + (2 + 4 + 4) * k + (4 + 2) * k + 2 * k
        of_inputs = 2 * (2 + 4 + 2) * k + (4 + 8) * 3 * k
        told = again + of_output + of_keys + of_chunks + of_decays + of_inputs
        assert sum(kernel.num_bytes for kernel in backward) == told

    def test_delta_rules_multiply_chunks_and_states_as_their_kernels_do(self) -> None:
        """Qwen3-Next: 32 heads of 128 values and keys, chunks of 64."""
        heads, width, chunk = 32, 128, 64
        state, pair = 2 * heads * width * width, 2 * heads * chunk * width
        forward, backward, *_ = scan_kernels(linear_of(QWEN_3_NEXT))
        # K K^T; W and U; the state read and written; the state read, Q K^T, and its product with the values
        assert sum(kernel.flop for kernel in forward) == pair + 2 * pair + 2 * state + state + 2 * pair
        # W and U, states, again; dV; the states' gradients; those of q, k, w; those through W and U
        assert sum(kernel.flop for kernel in backward) == (
            2 * pair + 2 * state + 2 * pair + 3 * state + 3 * state + 3 * pair + 4 * pair + pair
        )

    @pytest.mark.parametrize(
        ("name", "copied"), [("mamba", (26_752, 18_560)), ("delta", (4096, 12_352)), ("kimi", (0, 0))]
    )
    def test_several_sequences_are_put_in_order(self, name: str, copied: tuple[int, int]) -> None:
        """What enters and leaves a block is copied where kernels order tokens by sequence: not in Flash Linear Attention's."""
        workload = workload_of(HYBRIDS[name])
        two, one = (rank_of(workload, plan_of(tensor=2, micro_batch=number)) for number in (2, 1))
        double = rank_of(changed(workload, sequence_length=16_384), plan_of(tensor=2))
        for taken_s, plain_s, width in zip(scan_s(two), scan_s(double), copied, strict=True):
            moved_s = 2.0 * 8192 * 4.0 * width / 2 / (0.8122 * 3.35e12) + (2.676e-6 if width else 0.0)
            added_s = float(taken_s[0] - plain_s[0])
            assert added_s == pytest.approx(HYBRIDS[name].linear_share * moved_s, rel=1e-6, abs=1e-12)
        assert float(scan_s(two)[0][0]) > float(scan_s(one)[0][0])

    def test_ranks_beyond_the_heads_of_keys_have_copies_of_them(self) -> None:
        """Nemotron-H has 8 groups: 8 ranks that split heads have one each, 16 ranks too."""
        linear = linear_of(NEMOTRON_H)
        assert linear.key_heads_over(np.array([4, 8, 16])).tolist() == [8.0, 8.0, 16.0]
        alike = changed(linear, num_key_heads=16)
        assert scan_kernels(linear, 16.0) == scan_kernels(alike)
        workload = workload_of(NEMOTRON_H)
        few, many = (rank_of(workload, plan_of(tensor=8, context=c)) for c in (1, 2))
        launches_s = (7 + (5 + 2 + 2)) * float(many.kernels.launch_s[0])
        of_few_s = float(scan_s(few)[0][0]) - 7 * float(few.kernels.launch_s[0])
        copies_s = (8192 / 2 / 8) * 4.0 * (3 * (18_560 + 2 * 1024) + 2 * 8192) / (0.8122 * 3.35e12)
        rest_s = float(scan_s(many)[0][0]) - launches_s - copies_s
        assert rest_s > 1.05 * of_few_s / 2.0

    def test_hosts_launch_the_kernels_of_either_direction(self) -> None:
        rank = rank_of(workload_of(NEMOTRON_H), plan_of())
        assert num_scan_kernels(rank) == (7.0, 20.0)
        slow = rank_of(changed(workload_of(NEMOTRON_H), kernel_launch="blocking-2022"), plan_of())
        blocking_s = float(slow.training.blocking_launch_s)
        # 6 around each of 52 blocks in 24 layers, 2 products in each, a core in 4
        plain = (6 + 2) * 52 / 24 + 4 / 24
        for way, number in (("forward", plain + 7), ("backward", 2 * plain + 20)):
            name = f"{way}_compute_s"
            added_s = getattr(dense_layer(slow), name)[0] - getattr(dense_layer(rank), name)[0]
            assert added_s == pytest.approx(number * blocking_s, rel=1e-9)

    @pytest.mark.parametrize("name", HYBRIDS)
    def test_it_takes_as_long_a_token_in_sequences_of_any_length(self, name: str) -> None:
        def per_token(tokens: int) -> float:
            workload = training(HYBRIDS[name], sequence_length=tokens, global_batch_size=64)
            rank = rank_of(workload, plan_of())
            launches_s = num_scan_kernels(rank)[0] * float(rank.kernels.launch_s[0])
            return (float(scan_s(rank)[0][0]) - launches_s) / tokens

        assert per_token(262_144) == pytest.approx(per_token(4096), rel=ROUNDING)

    @pytest.mark.parametrize("name", HYBRIDS)
    def test_long_sequences_take_attention_longer(self, name: str) -> None:
        model = HYBRIDS[name]
        rank = rank_of(training(model, sequence_length=65_536, global_batch_size=64), plan_of())
        assert float(attention_core_s(rank)[0][0]) > 3.0 * float(scan_s(rank)[0][0]) / model.linear_share

    def test_kernels_are_never_faster_than_memory_or_products_allow(self) -> None:
        rank = rank_of(workload_of(NEMOTRON_H), plan_of())
        forward, backward, *_ = scan_kernels(linear_of(NEMOTRON_H))
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
        entering, leaving = linear_bytes(rank)
        assert float(leaving[0]) == 2.0 * tokens * linear.value_width / 2
        assert (
            sum(float(each[0]) for each in entering)
            == 2.0 * tokens * (linear.entering_width + linear.raised_width) / 2
        )
        assert len(entering) == (5 if linear.kind == "mamba-2" else 1)

    def test_keys_are_copied_before_they_are_exchanged_among_more_ranks(self) -> None:
        rank = rank_of(workload_of(NEMOTRON_H), plan_of(tensor=4, context=8))
        values, _, keys, queries, steps = (float(each[0]) / (2.0 * 1024) for each in linear_bytes(rank)[0])
        assert (values, keys, queries, steps) == (8192 / 4, 32 * 128 / 4, 32 * 128 / 4, 128 / 4)

    def test_it_does_not_depend_on_how_attention_exchanges(self) -> None:
        def added_s(exchange: str) -> float:
            times = [
                dense_layer(rank_of(workload_of(small_hybrid(0, 8), context_exchange=exchange), plan))
                for plan in (plan_of(context=4), plan_of())
            ]
            return float(times[0].forward_tensor_comm_s[0] - times[1].forward_tensor_comm_s[0])

        assert added_s("ring") == added_s("all_gather") == added_s("all_to_all") > 0.0


class TestKept:
    def test_mamba_2_keeps_what_enters_and_what_its_scan_returns_on_both_sides_of_the_gate(self) -> None:
        inner, groups, state, heads = 8192, 8, 128, 128
        entering = 2 * inner + 2 * groups * state + heads
        assert kept_width(linear_of(NEMOTRON_H), 8.0) == 2 * (entering + inner + inner)
        assert kept_width(linear_of(NEMOTRON_H), 16.0) == 2 * (entering + inner + inner) + 2 * 2 * 1024

    def test_the_gated_delta_rule_keeps_copies_for_all_heads_and_the_triangle_of_each_chunk(self) -> None:
        keys, values, wide, heads = 16 * 128, 32 * 128, 32 * 128, 32
        entering = 2 * keys + 2 * values + 2 * heads
        # values; the output, its norm, and the gate
        in_16_bits = entering + 2 * keys + 2 * wide + values + 3 * values + 64 * heads + heads
        assert kept_width(linear_of(QWEN_3_NEXT), 16.0) == 2 * in_16_bits + 4 * heads

    def test_kimi_delta_attention_keeps_what_makes_its_decays_instead_of_them(self) -> None:
        width, heads = 32 * 128, 32
        entering, decays, gates = 3 * width + heads, width, width
        made = (
            2 * width + width + width + 2 * 64 * heads + heads
        )  # keys, queries; values; output; triangles; beta
        assert kept_width(linear_of(KIMI_LINEAR), 32.0) == 2 * (entering + decays + gates + made)

    @pytest.mark.parametrize(("precision", "low"), [(Precision.BF16, 2.0), (Precision.FP8, 1.0)])
    def test_inputs_from_a_low_rank_are_whole_on_every_rank(self, precision: Precision, low: float) -> None:
        def kept(tensor: int, head_dim: int) -> float:
            linear = changed(linear_of(KIMI_LINEAR), head_dim=head_dim)
            model = changed(KIMI_LINEAR, linear_attention=linear)
            plans = table_of(plan_of(tensor=tensor, precision=precision))
            return float(LayerActivations.of(workload_of(model), plans, is_expert=False).kept[0])

        # Of an eighth of the values eight ranks keep an eighth of everything but the low rank.
        added = [kept(tensor, 128) - kept(tensor, 64) for tensor in (1, 8)]
        whole = 8192 * 20 / 27 * low * 2 * 64
        assert added[1] - whole == pytest.approx((added[0] - whole) / 8)

    def test_two_products_that_enter_a_block_keep_an_input_each_in_8_bits(self) -> None:
        """Kimi Linear: into queries, keys and values, and down to a low rank; in attention up to queries, down to latents."""

        def kept(model: ModelShape) -> float:
            plans = table_of(plan_of(precision=Precision.FP8))
            return float(LayerActivations.of(workload_of(model), plans, is_expert=False).kept[0])

        linear = changed(linear_of(KIMI_LINEAR), num_attention_blocks=0, num_blocks=27)
        more = [changed(linear, num_blocks=number) for number in (54, 27)]
        (two, one), h = (kept(changed(KIMI_LINEAR, linear_attention=each)) for each in more), 2304
        block = 8192 * (kept_width(linear, 32.0) + 4096 + 2 * 128 + 2 * h)
        assert two - one == pytest.approx(block + 8192 * 2 * h)

    def test_states_and_their_gradients_are_there_twice_as_mamba_2_passes_them_back(self) -> None:
        inner, keys, heads, states, products = 8192, 8 * 128, 128, 8192, 8 * 128
        entering = 2 * inner + 2 * keys + heads
        again = 2 * (inner + 2 * keys) + 4 * products + (4 + 2) * states + (4 + 4 + 4) * heads
        gradients = 2 * entering + 2 * (inner + 2 * keys) + 2 * 2 * inner + (4 + 2) * states
        assert working_width(linear_of(NEMOTRON_H), 8.0) == again + gradients

    def test_delta_rules_work_with_gradients_of_all_that_a_chunk_multiplies(self) -> None:
        width, states, triangle = 4096, 8192, 32 * 64
        again, gates = (
            2 * (3 * width + states),
            2 * 2 * width,
        )  # W, U, values, states; of the output and its gate
        of_delta = 2 * (
            4 * width + 2 * width + states
        )  # of queries, keys twice, W; of values twice; of states
        assert working_width(linear_of(QWEN_3_NEXT), 16.0) == again + gates + of_delta
        more = 2 * 2 * width + 4 * width  # queries and keys with their decays; decays
        of_kimi = 2 * (width + states) + 4 * 2 * (3 * width + triangle)  # the rest twice, in 32 bits
        assert working_width(linear_of(KIMI_LINEAR), 32.0) == again + more + gates + of_kimi

    @pytest.mark.parametrize("name", HYBRIDS)
    def test_the_backward_pass_works_with_more_than_the_gradient_of_what_enters(self, name: str) -> None:
        linear = linear_of(HYBRIDS[name])
        assert working_width(linear, float(linear.num_key_heads)) > 2 * linear.entering_width

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
