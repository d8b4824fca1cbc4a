"""Do 8-bit recipes and 4-bit products cost the passes, peaks and memory that their formats have?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from constraints.layout import LAYOUT_RULES, layout_excess
from simulator import catalog
from simulator.accuracy.step_error import step_error
from simulator.domain.choices import CastRecipe
from simulator.domain.hardware import Precision
from simulator.domain.lora import ATTENTION_PRODUCTS, Lora
from simulator.domain.workload import Workload
from simulator.layers.adapter_costs import adapters_s
from simulator.layers.attention_costs import attention_core_s
from simulator.layers.layer_costs import dense_layer, feed_forward_operators
from simulator.layers.model_ends import output_layer
from simulator.layers.weight_gradients import output_layer_weight_gradients_s
from simulator.layout.casts import cast_ratio, gathered_bytes, gathered_cast_shares, num_cast_kernels
from simulator.machine.compute import kernel_constants, kernels_of
from simulator.machine.network import all_gather_s, all_reduce_s
from simulator.machine.products import (
    ENTERING,
    INTO_ATTENTION,
    INTO_FEED_FORWARD,
    LEAVING,
    ONE_PRODUCT,
    Batch,
)
from simulator.machine.rank import Rank
from simulator.simulate import simulate
from simulator.table import Floats
from simulator.traffic.layer_collectives import layer_s
from tests.simulator.builders import (
    A100,
    H100,
    changed,
    job_of,
    memory_of,
    plan_of,
    rented,
    table_of,
    training,
)

LARGE = training("llama-3.1-405b", sequence_length=8192)
RECIPES: tuple[CastRecipe, ...] = ("tensorwise", "delayed", "blockwise", "mxfp8")


def scaled(recipe: CastRecipe, *, keeps_cast_weights: bool = False) -> Workload:
    return LARGE.model_copy(update={"fp8_recipe": recipe, "keeps_cast_weights": keeps_cast_weights})


def forward_s(workload: Workload, precision: Precision, accelerator: str) -> float:
    rank = Rank.of(job_of(workload, rented(accelerator)), table_of(plan_of(tensor=8, precision=precision)))
    return float(dense_layer(rank).forward_compute_s[0])


def num_launches(workload: Workload, precision: Precision) -> Floats:
    """Launches on the accelerator in a pass through a layer, forward and backward."""
    rank = Rank.of(job_of(workload, rented("b200-sxm-180gb")), table_of(plan_of(precision=precision)))
    launch_s = rank.kernels.launch_s
    free = replace(rank, kernels=replace(rank.kernels, launch_s=np.zeros_like(launch_s)))
    paid, unpaid = (dense_layer(each) for each in (rank, free))
    forward_s = paid.forward_compute_s - unpaid.forward_compute_s
    backward_s = paid.backward_compute_s - unpaid.backward_compute_s
    return np.concatenate([forward_s, backward_s]) / launch_s


class TestRecipes:
    # By hand, bytes of a value: reads of 2 and writes of the layouts with their scales, over the 6 of tensor-wise scaling to
    # both; Blackwell's products read the one that is there.
    @pytest.mark.parametrize(
        ("recipe", "on_hopper", "on_blackwell"),
        [
            ("tensorwise", 2 + 2 + 1 + 1, 2 + 2 + 1),
            ("delayed", 2 + 1 + 1, 2 + 1),
            ("blockwise", 2 + 2 * (1 + 4 / 128), 2 + 2 * (1 + 4 / 128)),
            ("mxfp8", 2 + 2 * (1 + 1 / 32), 2 + 2 * (1 + 1 / 32)),
        ],
    )
    def test_casts_move_the_bytes_of_their_passes(
        self, recipe: CastRecipe, on_hopper: float, on_blackwell: float
    ) -> None:
        moved = [6 * cast_ratio(recipe, Precision.FP8, family) for family in ("hopper", "blackwell")]
        assert moved == pytest.approx([on_hopper, on_blackwell])
        assert 6 * cast_ratio(recipe, Precision.FP4, "blackwell") == pytest.approx(2 + 2 + 2 * 9 / 16)

    # The same on ranks, over the bytes that inference moves and what training moves beyond it.
    @pytest.mark.parametrize(
        ("accelerator", "precision", "recipe", "moved"),
        [
            (H100, Precision.FP8, "tensorwise", 6),
            (H100, Precision.FP8, "blockwise", 2 + 2 * (1 + 4 / 128)),
            ("gb200", Precision.FP8, "tensorwise", 5),
            ("gb200", Precision.FP8, "mxfp8", 2 + 2 * (1 + 1 / 32)),
            ("gb200", Precision.FP4, "tensorwise", 2 + 2 + 2 * 9 / 16),
            ("gb200", Precision.BF16, "tensorwise", 0),
        ],
    )
    def test_ranks_move_them(
        self, accelerator: str, precision: Precision, recipe: CastRecipe, moved: float
    ) -> None:
        chip = catalog.accelerator(accelerator)
        known = kernel_constants([kernels_of(chip)], [precision.value]).cast_bytes_per_element
        rank = Rank.of(job_of(scaled(recipe), rented(accelerator)), table_of(plan_of(precision=precision)))
        assert rank.cast_bytes == pytest.approx(known * rank.training.cast_ratio * moved / 6)

    # By hand, bytes of a value where each of 8 ranks casts its own tokens to one layout, to both of blocks, and rows by tensor
    # are transposed once they are there: a read and a write of a byte (Transformer Engine, `_all_gather_fp8`).
    @pytest.mark.parametrize(
        ("accelerator", "recipe", "own", "transposed"),
        [
            (H100, "tensorwise", 2 + 2 + 1, 2),
            (H100, "delayed", 2 + 1, 2),
            (H100, "blockwise", 2 + 2 * (1 + 4 / 128), 0),
            ("gb200", "tensorwise", 2 + 2 + 1, 0),
            ("gb200", "delayed", 2 + 1, 0),
            ("gb200", "mxfp8", 2 + 2 * (1 + 1 / 32), 0),
        ],
    )
    def test_ranks_cast_their_own_tokens_of_what_they_gather(
        self, accelerator: str, recipe: CastRecipe, own: float, transposed: float
    ) -> None:
        rank = Rank.of(
            job_of(scaled(recipe), rented(accelerator)),
            table_of(plan_of(tensor=8, data=2, precision=Precision.FP8)),
        )
        family = catalog.accelerator(accelerator).family
        # Seconds of a byte; what a cast moves for all tokens is what it says beside 6 bytes for tensor-wise scaling.
        byte_s = rank.cast_bytes / (6 * cast_ratio(recipe, Precision.FP8, family))
        byte_s = rank.memory_bound_s(byte_s, 0.0)
        m, n, k = (np.array([size]) for size in (8192.0, 1280.0, 16384.0))
        whole, entering, leaving = (rank.gemm_s(m, n, k, batch) for batch in (ONE_PRODUCT, ENTERING, LEAVING))
        all_tokens = 6 * cast_ratio(recipe, Precision.FP8, family)
        transpose_launch_s = rank.kernels.launch_s * (transposed > 0)
        assert whole[0] - entering[0] == pytest.approx(m * k * (all_tokens - own / 8) * byte_s)
        assert entering[1] - whole[1] == pytest.approx(m * k * transposed * byte_s + transpose_launch_s)
        assert leaving[0] == pytest.approx(whole[0], rel=1e-12)
        assert whole[1] - leaving[1] == pytest.approx(
            m * n * (all_tokens - own / 8 - transposed) * byte_s - transpose_launch_s
        )

    @pytest.mark.parametrize(
        "changes",
        [{"gathers_cast_inputs": False}, {"has_sequence_parallel": False}],
    )
    def test_without_such_gathers_every_rank_casts_all_tokens(self, changes: dict[str, bool]) -> None:
        workload = scaled("tensorwise").model_copy(update=changes)
        rank = Rank.of(job_of(workload), table_of(plan_of(tensor=8, precision=Precision.FP8)))
        shape = (np.array([8192.0]), np.array([1280.0]), np.array([16384.0]))
        for batch in (ENTERING, LEAVING):
            assert rank.gemm_s(*shape, batch) == rank.gemm_s(*shape)

    # Adapters read what enters their product in 16 bits, all of which is cast then; frozen weights need no columns.
    @pytest.mark.parametrize(
        ("recipe", "accelerator", "rows", "both"),
        [
            ("tensorwise", "h100-sxm5-80gb", 4 + 1, 4 + 2),
            ("tensorwise", "b200-sxm-180gb", 4 + 1, 4 + 1),
            ("mxfp8", "b200-sxm-180gb", 2 + 33 / 32, 2 + 2 * 33 / 32),
        ],
    )
    def test_beside_frozen_weights_rows_alone_are_cast(
        self, recipe: CastRecipe, accelerator: str, rows: float, both: float
    ) -> None:
        plan = plan_of(tensor=8, precision=Precision.FP8)
        frozen = scaled(recipe).model_copy(update={"lora": Lora(rank=8, targets=ATTENTION_PRODUCTS)})
        rank = Rank.of(job_of(frozen, rented(accelerator)), table_of(plan))
        m, n, k = (np.array([each]) for each in (8192.0, 1280.0, 16384.0))
        launches_s = rank.memory_bound_s(0.0 * m, rank.kernels_per_cast)
        byte_s = rank.memory_bound_s(rank.cast_bytes / both, 0.0)
        product_s = rank.gemm_s(m, n, k, Batch(num_casts=0.0))[0] - byte_s * m * k * rows
        cast_s = {
            batch: rank.gemm_s(m, n, k, batch)[0] - product_s - launches_s
            for batch in (ONE_PRODUCT, INTO_ATTENTION, INTO_FEED_FORWARD, LEAVING)
        }
        whole_s = byte_s * m * k * rows
        assert cast_s[ONE_PRODUCT] == cast_s[INTO_ATTENTION] == cast_s[LEAVING] == pytest.approx(whole_s)
        assert cast_s[INTO_FEED_FORWARD] == pytest.approx(whole_s / 8)
        leaving_s = rank.gemm_s(m, n, k, ONE_PRODUCT)[1] - rank.gemm_s(m, n, k, LEAVING)[1]
        assert leaving_s == pytest.approx(byte_s * m * n * rows * 7 / 8)

    def test_only_products_with_an_adapter_gather_their_input_in_sixteen_bits(self) -> None:
        plan = plan_of(tensor=8, precision=Precision.FP8)
        frozen = scaled("mxfp8").model_copy(update={"lora": Lora(rank=8, targets=ATTENTION_PRODUCTS)})
        rank = Rank.of(job_of(frozen, rented("b200-sxm-180gb")), table_of(plan))
        gathered_s = all_gather_s(num_bytes=rank.hidden_bytes * 33 / 64, **rank.tensor_group)
        assert layer_s(rank, is_expert=False)[0] == pytest.approx(3 * rank.hidden_gather_s + gathered_s)

    def test_four_bits_are_cast_to_both_layouts_ahead_of_a_gather(self) -> None:
        assert gathered_cast_shares("tensorwise", Precision.FP4, "blackwell") == (1.0, 0.0)

    # Scales of a whole tensor need its largest value, of which each rank knows that of its tokens.
    @pytest.mark.parametrize(
        ("recipe", "precision", "num_sums"),
        [
            ("tensorwise", Precision.FP8, 2),
            ("delayed", Precision.FP8, 0),
            ("mxfp8", Precision.FP8, 0),
            ("mxfp8", Precision.FP4, 2),
            ("tensorwise", Precision.BF16, 0),
        ],
    )
    def test_ranks_find_the_largest_value_together(
        self, recipe: CastRecipe, precision: Precision, num_sums: int
    ) -> None:
        job = job_of(scaled(recipe), rented("b200-sxm-180gb"))
        rank = Rank.of(job, table_of(plan_of(tensor=8, precision=precision)))
        two_blocks_s = layer_s(rank, is_expert=False)
        gathered_s = rank.block_gather_s
        sum_s = all_reduce_s(num_bytes=4.0, **rank.tensor_group)
        for way, num_bytes_s in enumerate(gathered_s):
            expected_s = 2 * (num_bytes_s + rank.hidden_gather_s) + num_sums * sum_s
            assert two_blocks_s[way] == pytest.approx(expected_s)

    @pytest.mark.parametrize("attention", ["unfused", "eager", "flash"])
    @pytest.mark.parametrize("precision", [Precision.FP8, Precision.FP4])
    def test_attention_has_the_products_of_sixteen_bits(self, attention: str, precision: Precision) -> None:
        workload = LARGE.model_copy(update={"attention": attention})
        job = job_of(workload, rented("b200-sxm-180gb"))
        narrow, wide = (
            attention_core_s(Rank.of(job, table_of(plan_of(tensor=8, precision=each))))
            for each in (precision, Precision.BF16)
        )
        assert narrow == wide

    # For 65 experts: one kernel casts 64 of those with delayed scales.
    @pytest.mark.parametrize(
        ("recipe", "num_kernels"),
        [("tensorwise", 4 * 65), ("delayed", 2), ("blockwise", 65), ("mxfp8", 65)],
    )
    def test_casts_of_experts_take_so_many_kernels(self, recipe: CastRecipe, num_kernels: int) -> None:
        plans = table_of(*(plan_of(precision=of) for of in (Precision.FP8, Precision.FP4, Precision.BF16)))
        assert num_cast_kernels(scaled(recipe), plans, np.full(3, 65.0)).tolist() == [num_kernels, 4 * 65, 0]

    # Four products of a layer, each with a cast of its input forward and of the gradient of its output backward.
    @pytest.mark.parametrize(("recipe", "num_kernels"), [("tensorwise", 4 * 4), ("delayed", 4), ("mxfp8", 4)])
    def test_each_product_launches_the_kernels_of_its_casts(
        self, recipe: CastRecipe, num_kernels: int
    ) -> None:
        sixteen, eight = (num_launches(scaled(recipe), of) for of in (Precision.BF16, Precision.FP8))
        assert eight - sixteen == pytest.approx([num_kernels, num_kernels], rel=1e-6)

    def test_delayed_scaling_is_the_fastest_and_blocks_in_software_the_slowest_on_hopper(self) -> None:
        delayed, tensorwise, blockwise = (
            forward_s(scaled(recipe), Precision.FP8, H100)
            for recipe in ("delayed", "tensorwise", "blockwise")
        )
        assert delayed < tensorwise < blockwise
        # Products alone are 1.1 to 1.5 times as long (aiconfigurator-core 0.12, H100).
        assert blockwise / tensorwise < 1.5

    # Blocks of 128 with scales of 4 bytes move what blocks of 32 with scales of one do.
    def test_blackwell_scales_blocks_in_hardware(self) -> None:
        blockwise, mxfp8 = (
            forward_s(scaled(recipe), Precision.FP8, "b200-sxm-180gb") for recipe in ("blockwise", "mxfp8")
        )
        assert blockwise == pytest.approx(mxfp8, rel=1e-9)

    @pytest.mark.parametrize("recipe", RECIPES)
    def test_sixteen_bits_know_no_recipe(self, recipe: CastRecipe) -> None:
        assert forward_s(scaled(recipe), Precision.BF16, H100) == forward_s(LARGE, Precision.BF16, H100)

    @pytest.mark.parametrize(
        ("accelerator", "is_broken"), [(H100, True), ("gb200", False), ("mi355x", False)]
    )
    def test_mxfp8_needs_hardware_that_scales_blocks(self, accelerator: str, *, is_broken: bool) -> None:
        job = job_of(scaled("mxfp8"), rented(accelerator))
        excess = layout_excess(job, table_of(plan_of(tensor=4, data=8, precision=Precision.FP8)))[0]
        broken = {rule.name for rule, far in zip(LAYOUT_RULES, excess, strict=True) if far}
        assert ("number_format" in broken) == is_broken


class TestSixteenBits:
    # Megatron Core makes the layers of a transformer of Transformer Engine's modules, and all others of plain ones.
    @pytest.mark.parametrize("precision", [Precision.FP8, Precision.FP4])
    def test_output_layers_routers_and_adapters_take_as_long_in_any_format(
        self, precision: Precision
    ) -> None:
        workload = training("mixtral-8x7b")
        plans = table_of(*(plan_of(tensor=2, precision=each) for each in (precision, Precision.BF16)))
        rank = Rank.of(job_of(workload, rented("gb200")), plans)
        products = feed_forward_operators(rank, is_expert=True)
        lora = Lora(rank=16, targets=ATTENTION_PRODUCTS)
        adapters = adapters_s(Rank.of(job_of(changed(workload, lora=lora), rented("gb200")), plans))
        assert min(seconds[0] for seconds in adapters) > 0.0
        for seconds in (
            *output_layer(rank).columns().values(),
            output_layer_weight_gradients_s(rank),
            *products["router"],
            *adapters,
        ):
            assert seconds[0] == seconds[1]
        assert all(seconds[0] < seconds[1] for seconds in products["routed experts"])


class TestGathers:
    # By hand, bytes of a value: blocks by columns are gathered beside those by rows, or later where a product hides them.
    @pytest.mark.parametrize(
        ("recipe", "choices", "forward", "backward"),
        [
            ("tensorwise", {}, [1, 9 / 16, 2], [1, 2 * 9 / 16, 2]),
            ("mxfp8", {}, [33 / 32, 9 / 16, 2], [2 * 33 / 32, 2 * 9 / 16, 2]),
            ("blockwise", {"overlaps_tensor_comm": True}, [33 / 32, 9 / 16, 2], [33 / 32, 9 / 16, 2]),
            (
                "mxfp8",
                {"lora": Lora(rank=16, targets=ATTENTION_PRODUCTS)},
                [33 / 32, 9 / 16, 2],
                [33 / 32, 9 / 16, 2],
            ),
        ],
    )
    def test_tensor_parallel_ranks_gather_what_products_read(
        self, recipe: CastRecipe, choices: dict[str, object], forward: list[float], backward: list[float]
    ) -> None:
        formats = (Precision.FP8, Precision.FP4, Precision.BF16)
        plans = table_of(*(plan_of(tensor=8, precision=precision) for precision in formats))
        found = gathered_bytes(scaled(recipe).model_copy(update=choices), plans)
        assert [list(each) for each in found] == [forward, backward]


class TestCopies:
    # Both layouts: 2 bytes a weight, with a scale for each 32 values of MXFP8, or 9/16 of a byte in NVFP4.
    @pytest.mark.parametrize(
        ("recipe", "precision", "bytes_per_weight"),
        [
            ("tensorwise", Precision.FP8, 2),
            ("mxfp8", Precision.FP8, 2 + 2 / 32),
            ("tensorwise", Precision.FP4, 2 * 9 / 16),
            ("tensorwise", Precision.BF16, 0),
        ],
    )
    def test_weights_of_layers_have_two_more_layouts(
        self, recipe: CastRecipe, precision: Precision, bytes_per_weight: float
    ) -> None:
        plan = plan_of(tensor=8, data=8, precision=precision)
        none, kept = (
            memory_of(scaled(recipe, keeps_cast_weights=keeps), plan).weights_bytes[0]
            for keeps in (False, True)
        )
        weights = LARGE.model.num_layers * LARGE.model.dense_layer_parameters / 8
        assert kept - none == pytest.approx(bytes_per_weight * weights)

    def test_fully_sharded_weights_are_cast_when_they_are_gathered(self) -> None:
        plan = plan_of(data=64, zero=3, precision=Precision.FP8)
        none, kept = (
            memory_of(scaled("tensorwise", keeps_cast_weights=keeps), plan) for keeps in (False, True)
        )
        assert kept.weights_bytes == none.weights_bytes


class TestFourBits:
    # NVIDIA's data sheets, dense: B200 9 PFLOP/s, GB200 10, GB300 15; AMD's: MI355X 10.1.
    @pytest.mark.parametrize(
        ("accelerator", "peak"),
        [("b200-sxm-180gb", 9e15), ("gb200", 1e16), ("gb300", 1.5e16), ("mi355x", 1.01e16)],
    )
    def test_the_catalogue_has_peaks_where_chips_have_the_format(self, accelerator: str, peak: float) -> None:
        assert catalog.accelerator(accelerator).peak_flop_per_s(Precision.FP4) == peak

    @pytest.mark.parametrize("accelerator", [H100, A100, "mi300x"])
    def test_older_chips_do_not_have_it(self, accelerator: str) -> None:
        assert catalog.accelerator(accelerator).peak_flop_per_s(Precision.FP4) is None
        excess = layout_excess(
            job_of(LARGE, rented(accelerator)), table_of(plan_of(precision=Precision.FP4))
        )[0]
        assert excess[[rule.name for rule in LAYOUT_RULES].index("number_format")] > 0

    def test_where_no_products_were_measured_what_is_lost_to_tiles_takes_as_long_as_in_8_bits(self) -> None:
        fp8, fp4 = (kernel_constants(["cdna4"], [name]) for name in ("fp8", "fp4"))
        assert fp4.gemm_peak_fraction == fp8.gemm_peak_fraction
        assert fp4.gemm_fill_elements / 9e15 == pytest.approx(fp8.gemm_fill_elements / 4.5e15)
        assert fp4.gemm_ramp_depth / 9e15 == pytest.approx(fp8.gemm_ramp_depth / 4.5e15)

    def test_a_step_is_faster_than_in_8_bits_but_not_twice_as_fast(self) -> None:
        job = job_of(LARGE, rented("gb200"))
        plans = [plan_of(tensor=4, pipeline=8, data=4, precision=p) for p in (Precision.FP8, Precision.FP4)]
        fp8, fp4 = simulate(job, table_of(*plans)).steps.step_time_s
        assert 1.1 < fp8 / fp4 < 2

    def test_inputs_of_products_take_nine_sixteenths_of_a_byte(self) -> None:
        eight, four = (
            memory_of(LARGE, plan_of(tensor=8, data=8, precision=p)).activations_bytes[0]
            for p in (Precision.FP8, Precision.FP4)
        )
        # Inputs of products: 2 x 16384 after the norms and the activation's output; that of attention is there in 16 bits.
        values = 8192 * LARGE.model.num_layers * (2 * 16384 + 53248) / 8
        assert eight - four == pytest.approx((1 - 9 / 16) * values)

    @pytest.mark.parametrize("has_experts", [False, True])
    def test_it_is_twice_as_unsure_as_8_bits(self, *, has_experts: bool) -> None:
        fp8, fp4 = (
            step_error("blackwell", name, has_experts=has_experts, is_beyond_measured=name == "fp4")
            for name in ("fp8", "fp4")
        )
        assert fp4.shared_log_deviation == 2 * fp8.shared_log_deviation
        assert fp4.own_log_deviation == 2 * fp8.own_log_deviation

    @pytest.mark.parametrize("precision", ["bf16", "fp4"])
    def test_adapters_are_twice_as_unsure_as_full_training_and_no_more_in_4_bits(
        self, precision: str
    ) -> None:
        known = step_error("blackwell", "fp8" if precision == "fp4" else precision)
        assert step_error("blackwell", precision, is_beyond_measured=True) == known.times(2.0)


def test_recipes_change_nothing_of_the_memory_but_copies() -> None:
    plan = plan_of(tensor=8, data=8, precision=Precision.FP8)
    peaks = {recipe: float(memory_of(scaled(recipe), plan).peak_bytes[0]) for recipe in RECIPES}
    assert len(set(peaks.values())) == 2
    # That of attention's output, which others have told Transformer Engine not to make.
    assert peaks["delayed"] == max(peaks.values())
