"""Does a step on many accelerators take what can be worked out by hand from the step on one?"""

from __future__ import annotations

import numpy as np
import pytest

from simulator.deep.networks.topologies import ring, switch
from simulator.deep.playing.play import play
from simulator.deep.playing.tasks import NONE
from simulator.deep.traced_steps.division import boundary_bytes, buckets, stages, with_batch
from simulator.deep.traced_steps.extrapolate import Extrapolation, extrapolate
from simulator.deep.traces.parallelism import (
    GradientSync,
    Parallelism,
    PipelineOrder,
    interleaved_order,
    stage_order,
)
from simulator.deep.traces.trace import Category, OperatorTrace, Phase
from simulator.deep.traces.trace_build import OperatorRecord, TensorRecord, build_trace
from simulator.errors import InputError
from simulator.units import MIB
from tests.simulator.deep.traces import even, measured

BANDWIDTH = 1e6
"""So slow that the 1,632 bytes of the small trace's gradients take milliseconds."""
FORWARD, BACKWARD, OPTIMIZER = 3.15e-3, 5.15e-3, 0.5e-3
PARAMETER_BYTES = 1632.0


def makespan_s(made: Extrapolation) -> float:
    return play(made.graph, made.topology, made.paths).makespan_s


def on_ring(trace: OperatorTrace, parallelism: Parallelism, bandwidth: float = BANDWIDTH) -> float:
    return makespan_s(extrapolate(trace, parallelism, ring(parallelism.num_gpus, bandwidth, 0.0)))


class TestDataParallel:
    def test_one_accelerator_takes_what_was_measured(self, small: OperatorTrace) -> None:
        assert on_ring(small, Parallelism()) == pytest.approx(FORWARD + BACKWARD + OPTIMIZER)

    def test_gradients_at_the_end_are_added_to_the_step(self, small: OperatorTrace) -> None:
        summed = 2 * 3 / 4 * PARAMETER_BYTES / BANDWIDTH
        parallelism = Parallelism(data_parallel=4, sync=GradientSync.AT_THE_END)
        assert on_ring(small, parallelism) == pytest.approx(FORWARD + BACKWARD + summed + OPTIMIZER)

    def test_buckets_are_sent_while_the_backward_pass_runs(self, small: OperatorTrace) -> None:
        # Weight 2 (1,024 bytes) alone at 7.2 ms; bias 2 and weight 1 (576) at 8.3 ms, when it is done; bias 1 (32).
        parallelism = Parallelism(data_parallel=4, first_bucket_bytes=1000.0, bucket_bytes=100.0)
        first = 7.2e-3 + 1.5 * 1024 / BANDWIDTH
        assert first > FORWARD + BACKWARD
        expected = first + 1.5 * (576 + 32) / BANDWIDTH + OPTIMIZER
        assert on_ring(small, parallelism) == pytest.approx(expected)

    def test_what_is_sent_in_time_costs_nothing(self, small: OperatorTrace) -> None:
        parallelism = Parallelism(data_parallel=4, first_bucket_bytes=1000.0)
        last = 1.5 * (PARAMETER_BYTES - 1024) / (2 * BANDWIDTH)
        assert on_ring(small, parallelism, 2 * BANDWIDTH) == pytest.approx(
            FORWARD + BACKWARD + last + OPTIMIZER
        )

    def test_a_slow_accelerator_holds_up_all(self, small: OperatorTrace) -> None:
        made = extrapolate(
            small,
            Parallelism(data_parallel=4, sync=GradientSync.AT_THE_END),
            ring(4, BANDWIDTH, 0.0),
            speed=np.array([1.0, 0.5, 1.0, 1.0]),
        )
        ends = play(made.graph, made.topology, made.paths).end_s
        # The others have waited for its part until the last step of the ring, and then do the optimizer at full speed.
        summed = 1.5 * PARAMETER_BYTES / BANDWIDTH
        assert ends.max() == pytest.approx(2 * (FORWARD + BACKWARD) + summed + 2 * OPTIMIZER)

    def test_buckets_of_vgg13(self) -> None:
        # Last layer first, weight and bias: 4,096,000 + 1,000; 16,777,216 + 4,096; 102,760,448 + 4,096; convolutions of
        # 2,359,296 + 512, ... A bucket is closed by the parameter that fills it: 1 MiB, then 25 MiB (6,553,600 numbers).
        trace = measured("vgg13")
        found = buckets(trace.parameters, trace.tensors.num_bytes, trace.gradient_ready, MIB, 25 * MIB)
        assert [bucket.num_bytes / 4 for bucket in found] == [
            4_096_000,
            1_000 + 16_777_216,
            4_096 + 102_760_448,
            4_096 + 2 * (2_359_296 + 512) + 2_359_296,
            133_047_848 - 4_096_000 - 16_777_216 - 1_000 - 102_764_544 - 4_096 - 3 * 2_359_296 - 2 * 512,
        ]
        assert found[0].ready == trace.gradient_ready[trace.parameters[0]]


class TestBatch:
    def test_a_new_batch_scales_the_work_and_not_the_weights(self, small: OperatorTrace) -> None:
        made = extrapolate(
            small,
            Parallelism(data_parallel=4, sync=GradientSync.AT_THE_END),
            ring(4, BANDWIDTH, 0.0),
            batch_size=48,
        )
        summed = 1.5 * PARAMETER_BYTES / BANDWIDTH
        assert makespan_s(made) == pytest.approx(3 * (FORWARD + BACKWARD) + summed + OPTIMIZER)

    def test_tensors_keep_their_size_unless_they_are_activations(self, small: OperatorTrace) -> None:
        larger = with_batch(small, 32)
        ratio = larger.tensors.num_bytes / np.maximum(small.tensors.num_bytes, 1.0)
        is_activation = small.tensors.is_a(Category.ACTIVATION) & (small.tensors.num_bytes > 0)
        assert (ratio[is_activation] == 2.0).all()
        assert (ratio[~small.tensors.is_a(Category.ACTIVATION)] == 1.0).all()

    def test_what_touches_only_parameters_takes_as_long_with_any_batch(self) -> None:
        tensors = [
            TensorRecord(id="w", num_bytes=8.0, category=Category.PARAMETER),
            TensorRecord(id="w in 16 bits", num_bytes=4.0, category=Category.PARAMETER),
            *(TensorRecord(id=name, num_bytes=8.0) for name in "xy"),
        ]
        cast = OperatorRecord(
            name="cast", phase=Phase.FORWARD, duration_s=1.0, inputs=("w",), outputs=("w in 16 bits",)
        )
        linear = OperatorRecord(
            name="linear", phase=Phase.FORWARD, duration_s=1.0, inputs=("x", "w in 16 bits"), outputs=("y",)
        )
        trace = build_trace("cast", 16, tensors, [cast, linear])
        assert with_batch(trace, 48).duration_s.tolist() == [1.0, 3.0]


class TestTensorParallel:
    def test_what_is_split_takes_a_part_and_is_gathered(self, small: OperatorTrace) -> None:
        # Gathered: 512 and 1,024 bytes in one step of a half each; added up: the gradient of the 512 in two steps of a
        # half. The first layer reads what the step is fed, which needs no gradient.
        compute = (FORWARD + BACKWARD) - 8.0e-3 / 2
        traffic = ((512 + 1024) / 2 + 512) / BANDWIDTH
        assert on_ring(small, Parallelism(tensor_parallel=2)) == pytest.approx(
            compute + traffic + OPTIMIZER / 2
        )

    def test_gradients_of_parts_are_added_up_over_replicas(self, small: OperatorTrace) -> None:
        both = Parallelism(tensor_parallel=2, data_parallel=2, sync=GradientSync.AT_THE_END)
        made = extrapolate(small, both, switch(4, BANDWIDTH, 0.0))
        alone = on_ring(small, Parallelism(tensor_parallel=2))
        assert makespan_s(made) == pytest.approx(alone + PARAMETER_BYTES / 2 / BANDWIDTH)


class TestPipeline:
    def test_stages_take_equal_time(self) -> None:
        assert stages(even(6, 1e-3, 2e-3), 3).tolist() == [0, 0, 1, 1, 2, 2]

    def test_stages_are_cut_by_time_and_not_by_count(self) -> None:
        trace = measured("vgg13")
        cut = stages(trace, 4)
        seconds = np.bincount(cut[trace.layer[:70]], weights=trace.duration_s[:70])
        layers = np.bincount(trace.layer[:70], weights=trace.duration_s[:70])
        best = min(
            max(part.sum() for part in np.split(layers, [one, two, three]))
            for one in range(1, 11)
            for two in range(one + 1, 12)
            for three in range(two + 1, 13)
        )
        assert seconds.max() == pytest.approx(best)

    def test_activations_go_forward_and_gradients_come_back(self, small: OperatorTrace) -> None:
        # Weight 1 and its bias are 544 of 1,632 bytes; the first stage ends last.
        expected = FORWARD + BACKWARD + 2 * 512 / BANDWIDTH + OPTIMIZER * 544 / PARAMETER_BYTES
        assert on_ring(small, Parallelism(pipeline_parallel=2)) == pytest.approx(expected)

    def test_what_is_read_two_stages_later_crosses_two_boundaries(self) -> None:
        names = ("a", "b", "c")
        weights = [TensorRecord(id=f"w{name}", num_bytes=1.0, category=Category.PARAMETER) for name in names]
        tensors = [*weights, *(TensorRecord(id=name, num_bytes=10.0) for name in ("x", *names))]
        reads = (("x", "wa"), ("a", "wb"), ("a", "b", "wc"))
        operators = [
            OperatorRecord(name=name, phase=Phase.FORWARD, duration_s=1.0, inputs=read, outputs=(name,))
            for name, read in zip(names, reads, strict=True)
        ]
        trace = build_trace("residual", 1, tensors, operators)
        assert boundary_bytes(trace, np.arange(3)).tolist() == [10.0, 20.0]

    @pytest.mark.parametrize("order", PipelineOrder)
    @pytest.mark.parametrize(
        ("num_stages", "num_microbatches"), [(1, 3), (2, 1), (2, 4), (4, 4), (4, 9), (8, 3)]
    )
    def test_the_bubble_is_one_stage_less(
        self, order: PipelineOrder, num_stages: int, num_microbatches: int
    ) -> None:
        # (m + p - 1) (f + b), for one micro-batch on one stage (Huang et al. 2019).
        parallelism = Parallelism(
            pipeline_parallel=num_stages, num_microbatches=num_microbatches, order=order
        )
        took_s = on_ring(even(8, 1e-3, 2e-3), parallelism, 1e15)
        part = 3e-3 * 8 / num_stages / num_microbatches
        assert took_s == pytest.approx((num_microbatches + num_stages - 1) * part, rel=1e-6)

    @pytest.mark.parametrize(
        ("num_stages", "num_chunks", "num_microbatches"),
        [(2, 2, 2), (2, 2, 8), (2, 4, 4), (4, 2, 4), (4, 2, 12), (4, 4, 8)],
    )
    def test_an_interleaved_pipeline_has_a_smaller_bubble(
        self, num_stages: int, num_chunks: int, num_microbatches: int
    ) -> None:
        # (m + (p - 1) / v) (f + b), for one micro-batch on one stage (Narayanan et al. 2021, section 2.2).
        interleaved = Parallelism(
            pipeline_parallel=num_stages, num_chunks=num_chunks, num_microbatches=num_microbatches
        )
        took_s = on_ring(even(16, 1e-3, 2e-3), interleaved, 1e15)
        part = 3e-3 * 16 / num_stages / num_microbatches
        assert took_s == pytest.approx((num_microbatches + (num_stages - 1) / num_chunks) * part, rel=1e-6)

    def test_every_chunk_of_every_replica_works_once(self) -> None:
        interleaved = Parallelism(
            data_parallel=2, tensor_parallel=2, pipeline_parallel=2, num_chunks=4, num_microbatches=4
        )
        graph = extrapolate(even(8, 1e-3, 2e-3), interleaved, switch(8, 1e9, 1e-6)).graph
        assert graph.duration_s[graph.resource != NONE].sum() == pytest.approx(2 * 24e-3)
        reduced = graph.num_bytes[graph.label == graph.labels.index("all-reduce")].sum()
        # Gradients of weights over two replicas, of 8 x 100 bytes; and backward what the parts of seven layers share.
        assert reduced == pytest.approx(2 * 8 * 100.0 + 2 * 7 * 8.0 * 2)

    def test_interleaving_sends_more(self) -> None:
        # Each of the 2 x 4 - 1 boundaries between chunks is crossed by 8 bytes forward and 8 backward.
        interleaved = Parallelism(pipeline_parallel=2, num_chunks=4, num_microbatches=4)
        made = extrapolate(even(8, 1e-3, 2e-3), interleaved, ring(2, 1e9, 0.0))
        sent = made.graph.num_bytes[made.graph.label == made.graph.labels.index("send")]
        assert sent.sum() == pytest.approx(7 * 2 * 8.0)
        assert made.stage_of_layer.tolist() == [0, 1] * 4

    @pytest.mark.parametrize("num_microbatches", [1, 2, 7])
    @pytest.mark.parametrize("order", PipelineOrder)
    def test_every_stage_does_every_pass_once(self, order: PipelineOrder, num_microbatches: int) -> None:
        for stage in range(4):
            turns = stage_order(order, stage, 4, num_microbatches)
            assert sorted(turns) == [
                (is_forward, number) for is_forward in (False, True) for number in range(num_microbatches)
            ]

    def test_interleaved_stages_run_ahead_as_far_as_in_megatron(self) -> None:
        # Megatron-LM's schedules.py: 2 (p - stage - 1) + (v - 1) p passes to warm up, then a forward before each backward.
        for stage, num_warm_up in enumerate((6 + 4, 4 + 4, 2 + 4, 0 + 4)):
            order = interleaved_order(stage, 4, 2, 8)
            directions = [is_forward for is_forward, _, _ in order]
            num_pairs = 16 - num_warm_up
            assert directions == [True] * num_warm_up + [True, False] * num_pairs + [False] * num_warm_up
            assert sorted(order) == [
                (is_forward, chunk, number)
                for is_forward in (False, True)
                for chunk in range(2)
                for number in range(8)
            ]

    def test_few_micro_batches_are_held_at_a_time(self) -> None:
        def most_held(order: PipelineOrder, stage: int) -> int:
            steps = [1 if is_forward else -1 for is_forward, _ in stage_order(order, stage, 4, 16)]
            return int(np.cumsum(steps).max())

        assert [most_held(PipelineOrder.ONE_F_ONE_B, stage) for stage in range(4)] == [4, 3, 2, 1]
        assert most_held(PipelineOrder.GPIPE, 0) == 16


class TestHybrids:
    @pytest.mark.parametrize("order", PipelineOrder)
    @pytest.mark.parametrize(
        ("replicas", "parts", "num_stages"), [(2, 2, 2), (1, 4, 2), (3, 1, 4), (2, 3, 1)]
    )
    def test_work_and_traffic_are_conserved(
        self, order: PipelineOrder, replicas: int, parts: int, num_stages: int
    ) -> None:
        trace = even(8, 1e-3, 2e-3)
        parallelism = Parallelism(
            data_parallel=replicas,
            tensor_parallel=parts,
            pipeline_parallel=num_stages,
            num_microbatches=4,
            order=order,
        )
        made = extrapolate(trace, parallelism, switch(parallelism.num_gpus, 1e9, 1e-6))
        graph = made.graph
        # Every replica does the whole batch: what is split adds up again.
        assert graph.duration_s[graph.resource != NONE].sum() == pytest.approx(24e-3 * replicas)
        moved = {
            name: graph.num_bytes[graph.label == number].sum() for number, name in enumerate(graph.labels)
        }
        ring_bytes = 2 * (replicas - 1) * 8 * 100.0  # for all parts and stages together
        backward = 2 * (parts - 1) * 7 * 8.0 * replicas
        assert moved.get("all-reduce", 0.0) == pytest.approx(ring_bytes + backward)
        assert moved.get("all-gather", 0.0) == pytest.approx((parts - 1) * 8 * 8.0 * replicas)
        assert moved.get("send", 0.0) == pytest.approx(2 * (num_stages - 1) * 8.0 * replicas * parts)


class TestSharded:
    """Eight equal layers of 100 bytes: to gather or to scatter one over n replicas takes (n - 1) / n x 100 bytes."""

    LAYERS, REPLICAS = 8, 4

    def step_s(self, forward_s: float, backward_s: float, part_s: float) -> float:
        """With layers that take so long to gather."""
        sharded = Parallelism(data_parallel=self.REPLICAS, sync=GradientSync.SHARDED)
        trace = even(self.LAYERS, forward_s, backward_s)
        return on_ring(trace, sharded, (self.REPLICAS - 1) / self.REPLICAS * 100.0 / part_s)

    def test_what_is_gathered_in_time_shows_at_the_ends_only(self) -> None:
        # The first gathering and the last scattering have nothing to hide behind; gathering and scattering share links.
        assert self.step_s(1.0, 2.0, 0.5) == pytest.approx(0.5 + 8 * 1.0 + 8 * 2.0 + 0.5)

    def test_a_slow_network_holds_up_the_forward_pass(self) -> None:
        # Gatherings one after another, the last layer's computing behind them; backward there is time for both.
        assert self.step_s(1.0, 10.0, 3.0) == pytest.approx(8 * 3.0 + 1.0 + 8 * 10.0 + 3.0)

    def test_without_computing_only_traffic_is_left(self) -> None:
        # Eight gathered forward, seven backward, eight scattered: the links are never idle.
        assert self.step_s(0.0, 0.0, 1.0) == pytest.approx(8 + 7 + 8)

    def test_the_optimizer_has_a_part_of_the_weights(self, small: OperatorTrace) -> None:
        sharded = Parallelism(data_parallel=4, sync=GradientSync.SHARDED)
        assert on_ring(small, sharded, 1e15) == pytest.approx(FORWARD + BACKWARD + OPTIMIZER / 4)

    def test_only_gradients_are_scattered(self, small: OperatorTrace) -> None:
        sharded = Parallelism(data_parallel=2, sync=GradientSync.SHARDED)
        graph = extrapolate(small, sharded, ring(2, BANDWIDTH, 0.0)).graph
        is_scattered = graph.label == graph.labels.index("reduce-scatter")
        # Around a ring of two, each passes on half of 16 x 17, then of 8 x 17 numbers of four bytes.
        assert graph.num_bytes[is_scattered].tolist() == [2 * 16 * 17] * 2 + [2 * 8 * 17] * 2

    def test_one_replica_has_nothing_to_gather(self, small: OperatorTrace) -> None:
        assert on_ring(small, Parallelism(sync=GradientSync.SHARDED)) == pytest.approx(8.8e-3)

    def test_weights_travel_twice_and_gradients_half_as_far_as_in_an_all_reduce(self) -> None:
        sharded = Parallelism(data_parallel=4, sync=GradientSync.SHARDED)
        graph = extrapolate(even(8, 1e-3, 2e-3), sharded, ring(4, 1e9, 0.0)).graph
        moved = {
            name: graph.num_bytes[graph.label == number].sum() for number, name in enumerate(graph.labels)
        }
        assert moved["all-gather"] == pytest.approx((8 + 7) * 3 * 100.0)
        assert moved["reduce-scatter"] == pytest.approx(8 * 3 * 100.0)

    def test_parts_of_operators_are_sharded_too(self) -> None:
        hybrid = Parallelism(
            data_parallel=2,
            tensor_parallel=2,
            pipeline_parallel=2,
            num_microbatches=4,
            sync=GradientSync.SHARDED,
        )
        graph = extrapolate(even(8, 1e-3, 2e-3), hybrid, switch(8, 1e15, 0.0)).graph
        scattered = graph.num_bytes[graph.label == graph.labels.index("reduce-scatter")].sum()
        # Of each micro-batch; rings of two, each for a half of the weights, move that half once.
        assert scattered == pytest.approx(4 * 8 * 2 * 50.0)
        assert graph.duration_s[graph.resource != NONE].sum() == pytest.approx(24e-3 * 2)


class TestBroken:
    @pytest.mark.parametrize(
        ("parallelism", "message"),
        [
            (
                Parallelism(pipeline_parallel=3),
                "pipeline_parallel = 3: must be at most 2, the layers of 'small'",
            ),
            (
                Parallelism(pipeline_parallel=2, num_chunks=2, num_microbatches=2),
                "num_chunks = 2: must be at most 1, the layers of 'small' on a stage",
            ),
            (Parallelism(num_chunks=2), "num_chunks = 2: must be 1 without a pipeline"),
            (
                Parallelism(pipeline_parallel=2, num_chunks=2, order=PipelineOrder.GPIPE),
                "num_chunks = 2: must be 1 in the order gpipe",
            ),
            (
                Parallelism(pipeline_parallel=2, num_chunks=2, num_microbatches=3),
                "num_chunks = 2: needs micro-batches in multiples of the 2 stages, not 3",
            ),
            (
                Parallelism(pipeline_parallel=0, num_chunks=2),
                "pipeline_parallel = 0: must be between 1 and 65,536",
            ),
            (Parallelism(num_chunks=0), "num_chunks = 0: must be between 1 and 65,536"),
            (Parallelism(data_parallel=0), "data_parallel = 0: must be between 1 and 65,536"),
            (
                Parallelism(data_parallel=5),
                "num_gpus = 5: must be at most 4, the accelerators of network 'ring'",
            ),
            (
                Parallelism(num_microbatches=17),
                "batch_size = 16: must be at least 17, the number of micro-batches",
            ),
            (Parallelism(bucket_bytes=0.0), r"bucket_bytes = 0\.0: must be above 0"),
            (
                Parallelism(data_parallel=65_536, tensor_parallel=2),
                "num_gpus = 131072: must be at most 65,536",
            ),
        ],
    )
    def test_impossible_divisions_are_refused(
        self, small: OperatorTrace, parallelism: Parallelism, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            extrapolate(small, parallelism, ring(4, BANDWIDTH, 0.0), batch_size=16)

    def test_a_trace_without_operators_that_split_is_refused(self) -> None:
        trace = build_trace(
            "plain", 1, [], [OperatorRecord(name="relu", phase=Phase.FORWARD, duration_s=1.0)]
        )
        with pytest.raises(InputError, match="tensor_parallel = 2: must be 1: no operator of 'plain' can be"):
            extrapolate(trace, Parallelism(tensor_parallel=2), ring(2, BANDWIDTH, 0.0))

    def test_a_forward_pass_alone_is_played(self) -> None:
        trace = build_trace(
            "plain", 1, [], [OperatorRecord(name="relu", phase=Phase.FORWARD, duration_s=1.0)]
        )
        assert on_ring(trace, Parallelism(data_parallel=2)) == 1.0
