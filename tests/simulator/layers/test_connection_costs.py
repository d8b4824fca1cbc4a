"""How long do hyper-connections take, what do they keep, and what do stages send? Counts of kernels by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.domain.hyper_connections import HyperConnections
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layers.connection_costs import (
    connections_again_s,
    connections_s,
    contraction_s,
    expansion_s,
    num_connection_kernels,
)
from simulator.layers.host_time import host_waits_s
from simulator.layers.layer_costs import dense_layer, expert_layer
from simulator.layers.model_ends import embedding, output_layer
from simulator.layers.token_prediction import projection, projection_operators
from simulator.machine.rank import Rank
from simulator.memory.layer_activations import LayerActivations, layer_input_bytes
from simulator.step.step_reach import MEASURED_REACH, beyond_measured, reach_of
from simulator.traffic.stage_sends import send_s, sent_bytes
from tests.simulator.builders import changed, job_of, memory_of, plan_of, rank_of, step_of, table_of, training
from tests.simulator.compressed import FLASH
from tests.simulator.streams import FOUR_STREAMS, LATENT_STREAMS, MIXED_STREAMS, PLAIN, STREAMS, with_streams

H = 2048
T = 8192
COEFFICIENTS = 6.0 * 24 + 4.0 * 16 + 4.0
"""Bytes kept of 24 coefficients in 32 and 16 bits, a matrix of 4 x 4 before its iterations, and a norm."""


def workload_of(model: ModelShape = STREAMS, **choices: object) -> Workload:
    workload = training(model, sequence_length=T, global_batch_size=64)
    return changed(workload, **{"kernel_launch": "graph", **choices})


def rank_with(model: ModelShape = STREAMS, plan: Plan | None = None, **choices: object) -> Rank:
    return rank_of(workload_of(model, **choices), plan or plan_of())


class TestTimes:
    def test_four_streams_are_moved_as_counted_in_the_kernels(self) -> None:
        """Forward 4 + 5 + 9 values of h, backward 9 + 9 + 9 + 8 + 16; twice in a layer. Sinkhorn: 20 iterations of 16."""
        rank = rank_with()
        forward = 2 * (2 * H * (4 + 5 + 9) + 12.8 * 20 * 16)
        backward = 2 * (2 * H * (9 + 9 + 9 + 8 + 16) + 16 * 20 * 20)
        for found_s, num_bytes, kernels in zip(
            connections_s(rank), (forward, backward), (14.0, 20.0), strict=True
        ):
            assert found_s == pytest.approx(rank.memory_bound_s(np.array([T * num_bytes]), kernels))

    @pytest.mark.parametrize(("tokens", "published_s"), [(8192, 100.6e-6), (32_768, 391.3e-6)])
    def test_the_backward_sum_takes_as_long_as_that_of_transformer_engine(
        self, tokens: int, published_s: float
    ) -> None:
        """Triton on B200, h = 4096, n = 4 (pull request 2790): 604.1 and 2416.4 MB, the 2 n + 1 values of h counted here."""
        model = changed(STREAMS, hidden_size=4096)
        rank = rank_of(workload_of(model), plan_of(), accelerator="b200-sxm-180gb")
        num_bytes = 2.0 * 4096 * (2 * 4 + 1) * tokens
        assert num_bytes == pytest.approx({8192: 604.1e6, 32_768: 2416.4e6}[tokens], rel=1e-3)
        assert float(rank.memory_bound_s(np.array([num_bytes]), 1.0)[0]) == pytest.approx(
            published_s, rel=0.06
        )

    def test_a_layer_takes_longer_by_its_connections_less_the_additions_to_its_residual(self) -> None:
        """Forward 2 x 3 values of h are not added, backward as many gradients; two launches less."""
        plain, streams = rank_with(PLAIN), rank_with()
        sums = 2.0 * 3.0 * 2.0 * H * T
        for way, times in enumerate(connections_s(streams)):
            name = ("forward_compute_s", "backward_compute_s")[way]
            longer_s = getattr(dense_layer(streams), name) - getattr(dense_layer(plain), name)
            launches = 2.0 * (1.0, 2.0)[way]
            saved_s = plain.memory_bound_s(np.array([sums]), 100.0 + launches) - plain.memory_bound_s(
                np.zeros(1), 100.0
            )
            assert longer_s == pytest.approx(times - saved_s, rel=1e-6)

    @pytest.mark.parametrize("tensor", [2, 8])
    def test_ranks_that_split_the_sequence_have_a_share_each(self, tensor: int) -> None:
        whole, split = (connections_s(rank_with(plan=plan_of(tensor=degree))) for degree in (1, tensor))
        copied = connections_s(rank_with(plan=plan_of(tensor=tensor), has_sequence_parallel=False))
        for way in (0, 1):
            assert split[way][0] < 1.1 * whole[way][0] / tensor + 1e-4
            assert copied[way] == pytest.approx(whole[way])

    @pytest.mark.parametrize("more", [{"num_streams": 8}, {"sinkhorn_iterations": 40}])
    def test_more_streams_and_more_iterations_take_longer(self, more: dict[str, int]) -> None:
        base = connections_s(rank_with())
        larger = connections_s(rank_with(with_streams(PLAIN, changed(FOUR_STREAMS, **more))))
        assert all(larger[way][0] > base[way][0] for way in (0, 1))

    @pytest.mark.parametrize("model", [PLAIN, changed(MIXED_STREAMS, hyper_connections=None)])
    def test_one_stream_takes_nothing(self, model: ModelShape) -> None:
        rank = rank_with(model)
        for found in (connections_s(rank), expansion_s(rank), contraction_s(rank)):
            assert float(found[0][0]) == float(found[1][0]) == 0.0
        assert num_connection_kernels(rank) == (0.0, 0.0)

    def test_a_slow_host_launches_their_kernels(self) -> None:
        waits = [
            host_waits_s(rank, np.zeros(1), np.zeros(1))
            for rank in (
                rank_with(PLAIN, kernel_launch="eager"),
                rank_with(kernel_launch="eager"),
            )
        ]
        launch_s = rank_with(kernel_launch="eager").training.launch_s
        assert waits[1][0] - waits[0][0] == pytest.approx(launch_s * (14 - 2))
        assert waits[1][1] - waits[0][1] == pytest.approx(launch_s * (20 - 4))

    def test_the_ends_of_the_model_copy_and_add_up_the_streams(self) -> None:
        plain, streams = rank_with(PLAIN), rank_with()
        copied_s = streams.memory_bound_s(np.array([2.0 * H * T * 5]), 1.0)
        assert embedding(streams).forward_compute_s - embedding(plain).forward_compute_s == pytest.approx(
            copied_s
        )
        summed_s = streams.memory_bound_s(np.array([2.0 * H * T * 9]), 2.0)
        longer_s = output_layer(streams).forward_compute_s - output_layer(plain).forward_compute_s
        assert longer_s == pytest.approx(summed_s)

    def test_every_logit_of_multi_token_prediction_has_a_stream_of_its_own(self) -> None:
        one, three = (rank_with(changed(STREAMS, num_mtp_layers=number)) for number in (0, 2))
        plain = rank_with(changed(PLAIN, num_mtp_layers=2))
        longer_s = output_layer(three).backward_compute_s - output_layer(plain).backward_compute_s
        assert longer_s == pytest.approx(3 * contraction_s(one)[1])

    def test_a_module_multiplies_every_stream(self) -> None:
        """Two products h -> h, of the embedding once and of four streams, where there was one 2 h -> h."""
        plain, streams = (rank_with(changed(model, num_mtp_layers=1)) for model in (PLAIN, STREAMS))
        name = "multi-token projection"
        ratio = projection_operators(streams)[name][0] / projection_operators(plain)[name][0]
        assert float(ratio[0]) == pytest.approx(2.5, rel=0.05)

    def test_ranks_gather_every_stream_in_front_of_a_module_and_behind_it(self) -> None:
        model, plain = changed(STREAMS, num_mtp_layers=1), changed(PLAIN, num_mtp_layers=1)
        found_s, one_s = (
            projection(rank_with(each, plan_of(tensor=8))).forward_tensor_comm_s for each in (model, plain)
        )
        assert found_s > 2.0 * one_s


class TestSends:
    @pytest.mark.parametrize("tensor", [1, 4])
    def test_stages_send_all_streams(self, tensor: int) -> None:
        plan = plan_of(tensor=tensor, pipeline=4)
        plain, streams = rank_with(PLAIN, plan), rank_with(plan=plan)
        assert float(sent_bytes(streams)[0]) == 2.0 * T * 4 * H / tensor
        assert 2.0 < float(send_s(streams)[0] / send_s(plain)[0]) <= 4.0

    def test_a_step_with_more_streams_is_longer(self) -> None:
        steps = [
            float(step_of(workload_of(model), plan_of(pipeline=4, data=2)).step_time_s[0])
            for model in (PLAIN, with_streams(PLAIN, HyperConnections(num_streams=2)), STREAMS)
        ]
        assert steps == sorted(steps)


class TestMemory:
    @pytest.mark.parametrize("tensor", [1, 4])
    def test_streams_and_outputs_of_blocks_are_kept(self, tensor: int) -> None:
        plans = table_of(plan_of(tensor=tensor))
        found, plain = (
            LayerActivations.of(workload_of(model), plans, is_expert=False) for model in (STREAMS, PLAIN)
        )
        added = 2 * (2.0 * 5 * H + COEFFICIENTS) / tensor
        assert found.kept - plain.kept == pytest.approx(T * added)

    def test_the_gradient_of_the_residual_has_all_streams_and_three_wait_to_be_added(self) -> None:
        plans = table_of(plan_of())
        found = LayerActivations.of(workload_of(), plans, is_expert=False)
        residual = 2.0 * 4 * H * T
        assert float(found.at_work[0]) == pytest.approx(4 * residual)

    @pytest.mark.parametrize(("layers", "groups"), [(1, 1), (4, 4), (None, 8), (100, 8)])
    def test_recomputation_keeps_the_streams_of_the_first_layer_of_a_group(
        self, layers: int | None, groups: int
    ) -> None:
        """8 layers on one stage; inputs of norms are computed again as well, two in each layer."""
        plans = table_of(plan_of(recompute=Recompute.SELECTIVE))
        choices: dict[str, Any] = {"recompute_modules": ("mhc",), "mhc_recompute_layers": layers}
        whole = LayerActivations.of(workload_of(), table_of(plan_of()), is_expert=False)
        again = LayerActivations.of(workload_of(**choices), plans, is_expert=False)
        freed = T * (2.0 * (2 - 1 / groups) * 4 * H + 2 * 2.0 * H)
        assert whole.kept - again.kept == pytest.approx(freed)
        assert again.at_work - whole.at_work == pytest.approx(groups * freed)

    @pytest.mark.parametrize("is_expert", [False, True])
    def test_norms_that_stand_alone_are_computed_again_with_the_streams_and_only_once(
        self, is_expert: bool
    ) -> None:
        """Megatron Core hands them to the group of layers, whether or not they are named as a module of their own."""
        plans = table_of(plan_of(recompute=Recompute.SELECTIVE))
        of_norms, of_streams, both = (
            LayerActivations.of(
                workload_of(FLASH if is_expert else LATENT_STREAMS, recompute_modules=modules),
                plans,
                is_expert=is_expert,
            )
            for modules in (("layernorm",), ("mhc",), ("mhc", "layernorm"))
        )
        assert both.kept == pytest.approx(of_streams.kept)
        assert both.at_work == pytest.approx(of_streams.at_work)
        assert of_streams.kept < of_norms.kept

    def test_what_is_repeated_is_two_sums_and_all_outputs_but_the_last_of_a_group(self) -> None:
        for layers, last in ((1, 1.0), (4, 0.25)):
            rank = rank_with(recompute_modules=("mhc",), mhc_recompute_layers=layers)
            num_bytes = 2.0 * H * T * (2 * 5 + (2 - last) * 9)
            assert connections_again_s(rank) == pytest.approx(rank.memory_bound_s(np.array([num_bytes]), 4.0))

    def test_recomputation_takes_that_much_longer(self) -> None:
        plan = plan_of(recompute=Recompute.SELECTIVE)
        once = expert_layer(rank_with(MIXED_STREAMS, plan, recompute_modules=("layernorm",)))
        rank = rank_with(MIXED_STREAMS, plan, recompute_modules=("mhc",))
        longer_s = expert_layer(rank).backward_compute_s - once.backward_compute_s
        assert longer_s == pytest.approx(connections_again_s(rank), rel=1e-6)

    def test_full_recomputation_keeps_all_streams_of_a_layers_input(self) -> None:
        plans = table_of(plan_of(recompute=Recompute.FULL))
        assert float(layer_input_bytes(workload_of(), plans)[0]) == 2.0 * 4 * H * T
        kept = LayerActivations.of(workload_of(), plans, is_expert=False).kept
        assert float(kept[0]) == 2.0 * 4 * H * T

    def test_the_last_stage_keeps_the_streams_that_become_one(self) -> None:
        found, plain = (memory_of(workload_of(model), plan_of()) for model in (STREAMS, PLAIN))
        assert found.logits_bytes - plain.logits_bytes == pytest.approx(2.0 * 4 * H * T)

    @pytest.mark.parametrize("frees", [False, True])
    def test_a_stage_keeps_the_streams_that_it_received(self, frees: bool) -> None:
        found = memory_of(workload_of(frees_stage_inputs=frees), plan_of(pipeline=4))
        assert found.activations_bytes == memory_of(workload_of(), plan_of(pipeline=4)).activations_bytes


def test_no_measured_step_has_hyper_connections() -> None:
    job, plans = job_of(workload_of()), table_of(plan_of())
    assert beyond_measured(reach_of(job, plans, 0)) == ("hyper-connections",)
    assert not MEASURED_REACH.has_streams
