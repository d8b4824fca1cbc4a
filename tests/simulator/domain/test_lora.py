"""Do adapters train as many weights, and do frozen ones save what gradients and optimizer states would take?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator.domain.hardware import Precision
from simulator.domain.lora import ATTENTION_PRODUCTS, FEED_FORWARD_PRODUCTS, AdaptedProduct, Lora
from simulator.domain.plan import CheckpointScheme, Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layers.adapter_costs import adapters_s
from simulator.layers.layer_costs import dense_layer
from simulator.layers.model_ends import embedding, output_layer
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import num_trained_parameters, trained_flop_per_token
from simulator.machine.rank import Rank
from simulator.memory.layer_activations import kept_per_layer
from simulator.simulate import simulate
from simulator.step.step import STEP_PARTS, StepTable, simulate_step
from simulator.traffic.adapter_exchange import adapter_exchange_s, adapter_traffic
from tests.simulator.builders import changed, job_of, memory_of, plan_of, rank_of, step_of, table_of, training
from tests.simulator.checkpoint_jobs import costs_of

FULL = training("llama-2-70b", global_batch_size=64)
ATTENTION = Lora(rank=16, targets=ATTENTION_PRODUCTS)
TINY = Lora(rank=1, targets=(AdaptedProduct.QKV,))


def adapted(workload: Workload = FULL, lora: Lora = ATTENTION) -> Workload:
    return Workload.model_validate(workload.model_dump() | {"lora": lora.model_dump()})


class TestWeights:
    def test_llama_2_70b_has_44_million_in_adapters_of_its_attention(self) -> None:
        # MLPerf's fine-tuning: rank 16 beside 8192 x 10240 (64 + 16 heads of 128) and 8192 x 8192, in 80 layers.
        assert num_trained_parameters(adapted()) == 80 * 16 * (8192 + 10240 + 8192 + 8192) == 44_564_480

    def test_the_feed_forward_block_has_adapters_with_its_gate(self) -> None:
        block = Lora(rank=8, targets=(AdaptedProduct.FC1, AdaptedProduct.FC2))
        assert num_trained_parameters(adapted(lora=block)) == 80 * 8 * ((8192 + 2 * 28672) + (28672 + 8192))

    def test_without_adapters_all_weights_are_trained(self) -> None:
        assert num_trained_parameters(FULL) == FULL.model.num_parameters

    @pytest.mark.parametrize(
        ("model", "lora", "reason"),
        [
            (
                "mixtral-8x7b",
                Lora(rank=8),
                "not modelled for routed experts; name linear_qkv and linear_proj",
            ),
            ("deepseek-v3", ATTENTION, "not for latent attention"),
            ("llama-2-70b", Lora(rank=8, targets=(AdaptedProduct.QKV,) * 2), "twice"),
        ],
    )
    def test_what_is_not_modelled_is_refused(self, model: str, lora: Lora, reason: str) -> None:
        with pytest.raises(ValidationError, match=reason):
            adapted(training(model), lora)


class TestMemory:
    @pytest.mark.parametrize(("zero", "shared"), [(1, 1), (3, 8)])
    def test_frozen_weights_have_two_bytes_and_no_gradients(self, zero: int, shared: int) -> None:
        memory = memory_of(adapted(), plan_of(data=8, zero=zero))
        few = 44_564_480
        # Trained weights under ZeRO-3 are their own 32-bit masters.
        own = 4 * few / 8 if zero == 3 else 2 * few
        assert memory.weights_bytes == pytest.approx(2 * FULL.model.num_parameters / shared + own)
        assert memory.gradients_bytes == pytest.approx(4 * few / shared)
        assert memory.optimizer_bytes == pytest.approx((8 if zero == 3 else 12) * few / 8)

    def test_products_without_an_adapter_need_not_keep_their_input(self) -> None:
        plan, every = plan_of(data=8), Lora(rank=16)
        full, all_, some = (
            memory_of(workload, plan).activations_bytes[0]
            for workload in (FULL, adapted(lora=every), adapted(lora=TINY))
        )
        tokens, layers = 4096, 80
        assert all_ - full == pytest.approx(2 * tokens * layers * 4 * 16)
        # Frozen: the normed input of the feed-forward block (8192) and the output of its activation (28672).
        assert full - some == pytest.approx(2 * tokens * layers * (8192 + 28672 - 1))

    def test_a_router_keeps_its_input_although_it_is_frozen(self) -> None:
        # `RouterGatingLinearFunction` of Megatron Core saves it whether or not there is a gradient of the router's weights.
        mixture, dense = training("mixtral-8x7b"), training("llama-3.1-8b")
        kept = [
            kept_per_layer(workload, table_of(plan_of(data=8))) for workload in map(adapted, (mixture, dense))
        ]
        (of_dense, of_experts), (same, _) = kept
        assert of_dense == same
        # Two experts of 14,336 columns: both outputs of the first product, no inputs of frozen ones.
        routed = 2 * 4096 * (2 * 2 * 14_336 + 4096)
        assert of_experts - of_dense == pytest.approx(routed - 2 * 4096 * 2 * 14_336)

    @pytest.mark.parametrize("recipe", ["tensorwise", "delayed", "blockwise"])
    def test_what_only_adapters_need_again_is_kept_once_and_in_16_bits(self, recipe: str) -> None:
        every = adapted(FULL.model_copy(update={"fp8_recipe": recipe}), Lora(rank=16))
        eight, sixteen = (
            memory_of(every, plan_of(data=8, precision=each)) for each in (Precision.FP8, Precision.BF16)
        )
        assert eight == sixteen

    def test_70_billion_weights_fit_a_node_of_h100_as_in_mlperf(self) -> None:
        # MLPerf Training v4.0 fine-tuned it on eight H100 of 80 GB; all states are 18 bytes a weight.
        plan = plan_of(tensor=4, context=2, recompute=Recompute.FULL)
        workload = adapted(training("llama-2-70b", sequence_length=8192, global_batch_size=8))
        assert memory_of(workload, plan).peak_bytes < 80e9
        assert memory_of(FULL, plan).peak_bytes > 2 * 80e9


class TestTime:
    def test_gradients_of_frozen_weights_are_not_computed(self) -> None:
        plan = plan_of(tensor=8)
        full, few = (dense_layer(rank_of(workload, plan)) for workload in (FULL, adapted(lora=TINY)))
        spared_s = (full.backward_compute_s - few.backward_compute_s)[0]
        # A third of the products' 6 FLOPs a weight, at a speed between half and all of the H100's 989e12 a second.
        flop = 2 * 4096 * FULL.model.dense_layer_parameters / 8
        assert flop / 989e12 < spared_s < 2 * flop / 989e12

    def test_a_step_takes_between_two_thirds_and_three_quarters(self) -> None:
        # NVIDIA counts 2/3 of the operations of full fine-tuning; attention and norms are as long as ever.
        plan = plan_of(tensor=8, pipeline=4, data=2)
        full, few = (step_of(workload, plan).compute_s[0] for workload in (FULL, adapted()))
        assert 2 / 3 < few / full < 0.78

    def test_a_frozen_embedding_has_no_backward_pass_and_an_output_layer_half_of_one(self) -> None:
        plan = plan_of(tensor=8)
        assert embedding(rank_of(adapted(), plan)).backward_s == 0
        full, few = (
            output_layer(rank_of(workload, plan)).backward_compute_s for workload in (FULL, adapted())
        )
        assert few < 0.7 * full

    def test_operations_count_two_thirds(self) -> None:
        attention = 6 * 80 * 64 * 256 * 4096 / 2
        full, few = (trained_flop_per_token(workload) - attention for workload in (FULL, adapted()))
        assert few == pytest.approx(full * 2 / 3)

    def test_only_adapters_are_synchronised_and_updated(self) -> None:
        late = FULL.model_copy(update={"overlaps_gradient_sync": False})
        full, few = (step_of(workload, plan_of(tensor=8, data=16)) for workload in (late, adapted(late)))
        assert few.gradient_sync_s < 0.01 * full.gradient_sync_s  # 0.06 % of the weights, and latency
        assert few.optimizer_s < 0.1 * full.optimizer_s  # launches

    def test_fully_sharded_weights_are_gathered_and_not_reduced(self) -> None:
        slow = {"host_copy_bytes_per_s": 50e9, "network_bytes_per_s": 1e9}
        full, few = (self._far_step(workload, slow).shard_comm_s[0] for workload in (FULL, adapted()))
        # Two gathers of 2 bytes a weight, and once reduced gradients of 4.
        assert few / full == pytest.approx(4 / 8, rel=0.05)

    def test_results_of_adapters_beside_split_inputs_are_gathered(self) -> None:
        # `ParallelLinearAdapter` of Megatron-Bridge: B by columns with `gather_output`; backward the scatter is a gather.
        (gathered, summed), (back_gathered, back_summed) = self._traffic(Lora(rank=16))
        tokens, hidden, small = 4096, 8192, 2 * 4096 * 16
        assert gathered == [small, small, 2 * tokens * hidden, 2 * tokens * hidden]
        assert (summed, back_summed) == ([small, small], 4 * [small])
        assert back_gathered == 2 * [2 * tokens * hidden]

    def test_gradients_of_what_enters_a_block_are_summed_for_adapters_too_without_sequence_parallelism(
        self,
    ) -> None:
        (gathered, _), (back_gathered, back_summed) = self._traffic(
            Lora(rank=16), has_sequence_parallel=False
        )
        small, whole = 2 * 4096 * 16, 2 * 4096 * 8192
        assert gathered == [small, small, whole, whole]
        assert (back_gathered, back_summed) == ([], [*4 * [small], whole, whole])

    @staticmethod
    def _traffic(lora: Lora, **changes: object) -> list[tuple[list[float], list[float]]]:
        rank = rank_of(adapted(FULL.model_copy(update=changes), lora), plan_of(tensor=8))
        return [
            ([float(each[0]) for each in way.gathered], [float(each[0]) for each in way.summed])
            for way in adapter_traffic(rank, tuple(AdaptedProduct))
        ]

    def test_all_to_alls_send_a_share_of_that(self) -> None:
        lora = ATTENTION.model_copy(update={"exchanges_by_all_to_all": True})
        rank = rank_of(adapted(lora=lora), plan_of(tensor=8))
        for way in adapter_traffic(rank, tuple(AdaptedProduct)):
            assert [float(each[0]) for each in way.exchanged] == [2 * 4096 * 8192 / 8]
            assert all(each[0] == 2 * 4096 * 16 for each in (*way.gathered, *way.summed))

    def test_one_rank_exchanges_nothing(self) -> None:
        rank = rank_of(adapted(), plan_of())
        assert [each[0] for each in adapter_exchange_s(rank, tuple(AdaptedProduct))] == [0.0, 0.0]
        exchanging = ATTENTION.model_copy(update={"exchanges_by_all_to_all": True})
        assert adapters_s(rank_of(adapted(lora=exchanging), plan_of())) == adapters_s(rank)

    def test_results_of_adapters_are_scaled_and_added(self) -> None:
        # A rank of one: what is left are passes over the input and the output. Forward one of each product, 2 to scale and 3 to
        # add results. Backward two of each product, 2 to scale gradients of the output and 3 to add those of the input.
        rank = rank_of(adapted(FULL, Lora(rank=1, targets=(AdaptedProduct.FC1,))), plan_of())
        forward_s, backward_s = adapters_s(rank)
        tokens, inner, output = 4096, 8192, 2 * 28672
        value_s = 2 * tokens / (3.35e12 * rank.kernels.memory_fraction[0])
        assert forward_s[0] == pytest.approx(value_s * (inner + 6 * output), rel=0.05)
        assert backward_s[0] == pytest.approx(value_s * (5 * inner + 4 * output), rel=0.05)

    def test_a_layer_takes_longer_by_its_adapters(self) -> None:
        graph = FULL.model_copy(update={"kernel_launch": "graph"})
        ranks = [
            rank_of(adapted(graph, Lora(rank=64, targets=targets)), plan_of())
            for targets in (ATTENTION_PRODUCTS, (*ATTENTION_PRODUCTS, *FEED_FORWARD_PRODUCTS))
        ]
        few, all_ = map(dense_layer, ranks)
        few_s, all_s = map(adapters_s, ranks)
        assert all_.forward_s - few.forward_s == pytest.approx(all_s[0] - few_s[0])
        assert all_.backward_s - few.backward_s == pytest.approx(all_s[1] - few_s[1])

    def test_computing_a_block_again_does_so_with_its_adapters(self) -> None:
        modules = FULL.model_copy(update={"recompute_modules": ("mlp",), "kernel_launch": "graph"})
        block = Lora(rank=64, targets=FEED_FORWARD_PRODUCTS)
        again, once = (
            dense_layer(rank_of(adapted(modules, block), plan_of(tensor=8, recompute=each)))
            for each in (Recompute.SELECTIVE, Recompute.NONE)
        )
        without, bare = (
            dense_layer(rank_of(adapted(modules, TINY), plan_of(tensor=8, recompute=each)))
            for each in (Recompute.SELECTIVE, Recompute.NONE)
        )
        rank = rank_of(adapted(modules, block), plan_of(tensor=8))
        more_s = again.backward_compute_s - once.backward_compute_s
        plain_s = without.backward_compute_s - bare.backward_compute_s
        assert more_s - plain_s == pytest.approx(adapters_s(rank)[0])
        traffic_s = again.backward_tensor_comm_s - once.backward_tensor_comm_s
        plain_s = without.backward_tensor_comm_s - bare.backward_tensor_comm_s
        assert traffic_s - plain_s == pytest.approx(adapter_exchange_s(rank, FEED_FORWARD_PRODUCTS)[0])

    @staticmethod
    def _far_step(workload: Workload, node: dict[str, float]) -> StepTable:
        job, table = job_of(workload), table_of(plan_of(data=64, zero=3))
        offer = job.offers[0]
        slow = offer.model_copy(update={"node": offer.node.model_copy(update=node)})
        rank = Rank.of(job.model_copy(update={"offers": (slow,)}), table)
        return simulate_step(rank, split_layers(workload.model, table))


@given(
    rank=st.sampled_from([1, 8, 64]),
    targets=st.lists(st.sampled_from(AdaptedProduct), min_size=1, unique=True),
    plan=st.sampled_from(
        [
            plan_of(tensor=8, pipeline=2, data=4),
            plan_of(data=64, zero=3, recompute=Recompute.FULL),
            plan_of(tensor=2, context=2, data=16, zero=2),
        ]
    ),
)
def test_adapters_never_need_more_than_full_fine_tuning(
    rank: int, targets: list[AdaptedProduct], plan: Plan
) -> None:
    lora = Lora(rank=rank, targets=tuple(targets))
    few, full = (simulate(job_of(workload), table_of(plan)) for workload in (adapted(lora=lora), FULL))
    assert few.memory.peak_bytes < full.memory.peak_bytes
    # What tensor-parallel ranks exchange for adapters may take longer than gradients of weights would.
    assert few.steps.compute_s < full.steps.compute_s
    parts = sum(getattr(few.steps, name)[0] for name in STEP_PARTS)
    assert parts == pytest.approx(few.steps.step_time_s[0])


def test_larger_adapters_take_longer() -> None:
    steps_s = [
        step_of(adapted(lora=Lora(rank=rank)), plan_of(tensor=8)).step_time_s[0] for rank in (1, 64, 1024)
    ]
    assert np.all(np.diff(steps_s) > 0)


def test_saves_hold_the_adapters() -> None:
    plan = plan_of(tensor=8, data=8, scheme=CheckpointScheme.SYNC_SHARDED)
    assert costs_of(job_of(adapted()), plan).bytes_per_save == 14 * 44_564_480


def test_a_module_of_multi_token_prediction_has_adapters_like_any_layer() -> None:
    adapted = changed(training(), lora=Lora(rank=16))  # 32 layers
    with_module = changed(adapted, model=changed(adapted.model, num_mtp_layers=1))
    assert num_trained_parameters(with_module) * 32 == num_trained_parameters(adapted) * 33
