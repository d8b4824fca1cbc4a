"""Does a step take what pipeline theory, ring volumes and memory passes say, and do its parts add up?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator import catalog
from simulator.domain.hardware import Precision
from simulator.domain.job import Job
from simulator.domain.plan import Plan, Recompute
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.machine.network import all_reduce_s, point_to_point_s
from simulator.machine.rank import Rank
from simulator.replicas.replica_sync import ReplicaGroup, tied_gradient_s
from simulator.step.step import NUM_OPTIMIZER_KERNELS, STEP_PARTS, StepTable, simulate_step
from simulator.traffic.stage_sends import send_s
from tests.simulator.builders import (
    changed,
    gpt,
    job_of,
    memory_of,
    plan_of,
    step_of,
    table_of,
    training,
    with_fabric_rate,
)

EVEN = training(
    gpt(num_layers=32, hidden_size=4096, num_heads=32, vocabulary_size=8),
    sequence_length=2048,
    global_batch_size=32,
)
"""A model whose stages all take the same time: embedding and output layer are next to nothing."""


def steps_of(job: Job, *plans: Plan) -> StepTable:
    table = table_of(*plans)
    return simulate_step(Rank.of(job, table), split_layers(job.workload.model, table))


def untied(workload: Workload) -> Workload:
    return workload.model_copy(
        update={"model": workload.model.model_copy(update={"has_tied_embeddings": False})}
    )


DESIGNS = {
    "llama-3.1-8b": (plan_of(data=64, zero=3), plan_of(tensor=2, pipeline=4, data=8, zero=2), plan_of()),
    "llama-3.1-405b": (
        plan_of(tensor=8, pipeline=16, virtual=8, data=4),
        plan_of(tensor=16, pipeline=8, context=2, data=2, recompute=Recompute.FULL),
    ),
    "bloom-176b": (plan_of(tensor=4, pipeline=12, data=8, micro_batch=2, recompute=Recompute.FULL, zero=0),),
    "mixtral-8x7b": (
        plan_of(tensor=2, pipeline=4, expert=8, data=8),
        plan_of(tensor=4, expert=8, data=16, recompute=Recompute.SELECTIVE),
    ),
    "deepseek-v3": (plan_of(pipeline=9, expert=64, data=64), plan_of(tensor=2, expert=16, data=64, zero=3)),
    "nemotron-3-super-120b-a12b": (
        plan_of(tensor=2, pipeline=4, expert=8, data=16),
        plan_of(context=4, expert=64, data=32, zero=3, recompute=Recompute.FULL),
    ),
    "kimi-linear-48b-a3b": (plan_of(tensor=4, pipeline=3, expert=8, data=8, recompute=Recompute.SELECTIVE),),
}


def test_ranks_update_what_they_hold_whole() -> None:
    # Products down to latents (1536 of queries, 512 and 64 of keys), and the router of the one layer with experts.
    shape = catalog.model("deepseek-v3").model_copy(update={"num_layers": 4})
    plans = [plan_of(tensor=t, expert=8, data=8 // t, zero=0) for t in (1, 8)]
    workload = training(shape, global_batch_size=8).model_copy(update={"divides_gradients": False})
    one_s, eight_s = steps_of(job_of(workload), *plans).optimizer_s
    routed = 256 * shape.expert_parameters
    whole = 4 * 7168 * (1536 + 512 + 64) + 7168 * 256
    split = shape.num_parameters - routed - whole
    assert eight_s / one_s == pytest.approx(
        (split / 8 + whole + routed / 8) / (split + whole + routed / 8),
        rel=0.005,  # and launches
    )


@pytest.mark.parametrize("name", DESIGNS)
def test_parts_sum_to_the_step_for_the_average_accelerator(name: str) -> None:
    steps = steps_of(job_of(training(name, global_batch_size=1024)), *DESIGNS[name])
    total = np.sum([getattr(steps, part) for part in STEP_PARTS], axis=0)
    assert total == pytest.approx(steps.step_time_s, rel=1e-12)
    assert all((getattr(steps, part) >= 0).all() for part in STEP_PARTS)


def test_one_accelerator_only_computes() -> None:
    steps = steps_of(job_of(training(global_batch_size=4)), plan_of())
    assert steps.step_time_s == pytest.approx(steps.compute_s + steps.optimizer_s)


class TestPipeline:
    @pytest.mark.parametrize("p", [2, 4, 8])
    @pytest.mark.parametrize("v", [1, 2, 4])
    def test_even_stages_have_the_bubble_of_theory(self, p: int, v: int) -> None:
        steps = steps_of(job_of(EVEN), plan_of(pipeline=p, virtual=v))
        # (p - 1)/(v m) of the work (arXiv 2104.04473, section 2.2); sends take the rest, about 1 %.
        work_s = steps.compute_s[0]
        assert steps.pipeline_bubble_s[0] / work_s == pytest.approx((p - 1) / (v * 32), rel=0.15)

    def test_without_micro_batches_to_overlap_stages_take_turns(self) -> None:
        workload = EVEN.model_copy(update={"global_batch_size": 1})
        one, four = (steps_of(job_of(workload), plan_of(pipeline=p)) for p in (1, 4))
        sent_and_waited = four.pipeline_send_s + four.pipeline_bubble_s + four.compute_s
        assert sent_and_waited[0] == pytest.approx(one.compute_s[0], rel=0.02)  # sends on top

    def test_the_output_layer_makes_other_stages_wait(self) -> None:
        large_vocabulary = EVEN.model.model_copy(update={"vocabulary_size": 256_000})
        workload = EVEN.model_copy(update={"model": large_vocabulary})
        even, uneven = (steps_of(job_of(each), plan_of(pipeline=8)) for each in (EVEN, workload))
        assert uneven.pipeline_bubble_s[0] > 1.5 * even.pipeline_bubble_s[0]

    def test_a_schedule_that_does_not_exist_is_nan(self) -> None:
        workload = EVEN.model_copy(update={"global_batch_size": 6})
        assert np.isnan(steps_of(job_of(workload), plan_of(pipeline=4, virtual=2)).step_time_s)

    def test_sends_cross_as_many_borders_as_there_are_between_the_link_domains(self) -> None:
        # Eight stages of two ranks on two nodes of eight: one of seven sends leaves its node.
        rank = Rank.of(job_of(EVEN), table_of(plan_of(tensor=2, pipeline=8)))
        near_s, far_s = (
            point_to_point_s(num_bytes=2.0 * 2048 * 4096 / 2, is_same_domain=is_near, links=rank.links)[0]
            for is_near in (True, False)
        )
        assert send_s(rank) == pytest.approx((6 * near_s + far_s) / 7)

    @pytest.mark.parametrize(
        ("plan", "num_far", "num_sends"),
        [
            (plan_of(tensor=4, pipeline=2), 0, 1),
            (plan_of(tensor=8, pipeline=4), 3, 3),
            (plan_of(data=4), 0, 1),
            # Nodes end at ranks 8 and 16: inside the second stage, and the third.
            (plan_of(tensor=2, data=3, pipeline=4), 3, 3),
            # Inside stages of ranks 6 to 8 and 15 to 17; 24 ends the last one.
            (plan_of(data=3, pipeline=8), 4, 7),
            (plan_of(tensor=4, data=3, pipeline=2), 1, 1),
        ],
    )
    def test_sends_inside_and_between_nodes(self, plan: Plan, num_far: int, num_sends: int) -> None:
        workload = EVEN.model_copy(update={"global_batch_size": 24})
        rank = Rank.of(job_of(workload), table_of(plan))
        num_bytes = 2.0 * 2048 * 4096 / plan.tensor_parallel
        near_s, far_s = (
            point_to_point_s(num_bytes=num_bytes, is_same_domain=is_near, links=rank.links)[0]
            for is_near in (True, False)
        )
        mean_s = (num_far * far_s + (num_sends - num_far) * near_s) / num_sends
        assert send_s(rank) == pytest.approx(mean_s if plan.pipeline_parallel > 1 else 0.0)


def test_an_optimizer_step_takes_as_long_as_the_bytes_that_it_moves() -> None:
    def optimizer_s(step_bytes: float | None) -> float:
        steps = steps_of(job_of(changed(EVEN, step_bytes=step_bytes)), plan_of())
        return float(steps.optimizer_s[0])

    # 46 bytes: the gradient for its norm, for clipping there and back, and for Adam; 12 bytes of states there and back; the
    # master once more and the 16-bit weight. And 8: the whole gradient for another norm, and back to zero.
    assert optimizer_s(54.0) == optimizer_s(None)
    slope_s = optimizer_s(82.0) - optimizer_s(34.0)
    assert slope_s == pytest.approx(optimizer_s(130.0) - optimizer_s(82.0))
    assert optimizer_s(82.0) / optimizer_s(34.0) == pytest.approx(82 / 34, rel=0.02)  # 50 launches beside it


class TestReplicas:
    def test_groups_are_those_of_megatron(self) -> None:
        # t = 2, c = 2, d = 8, e = 4 on nodes of eight.
        table = table_of(plan_of(tensor=2, context=2, data=8, expert=4))
        rank = Rank.of(job_of(training("mixtral-8x7b")), table)
        shared, routed = ReplicaGroup.of_shared(rank), ReplicaGroup.of_routed(rank)
        assert (shared.size[0, 0], shared.members_per_domain[0, 0]) == (16, 4)  # d c ranks, every second one
        assert (routed.size[0, 0], routed.members_per_domain[0, 0]) == (
            8,
            2,
        )  # d c t / e ranks, every fourth one

    def test_exposed_gradients_are_at_least_their_ring_volume(self) -> None:
        workload = training("llama-3.1-8b", global_batch_size=8).model_copy(
            update={"overlaps_gradient_sync": False}
        )
        steps = steps_of(job_of(workload), plan_of(data=8, zero=0))
        # All-reduce of 8.03e9 fp32 gradients over NVLink: 2 x 7/8 of the bytes at 450 GB/s at best.
        assert steps.gradient_sync_s[0] > 2 * 7 / 8 * 8.03e9 * 4 / 450e9

    def test_overlap_hides_most_of_the_gradients(self) -> None:
        workload = training("llama-3.1-8b", global_batch_size=64)
        behind = steps_of(job_of(workload), plan_of(data=8))
        after = steps_of(
            job_of(workload.model_copy(update={"overlaps_gradient_sync": False})), plan_of(data=8)
        )
        assert behind.gradient_sync_s[0] < 0.5 * after.gradient_sync_s[0]
        assert behind.step_time_s < after.step_time_s

    def test_weights_that_come_before_the_step_show_in_full(self) -> None:
        workload = training("llama-3.1-8b", global_batch_size=64)
        behind, ahead, after = (
            steps_of(job_of(workload.model_copy(update=update)), plan_of(data=8)).step_time_s[0]
            for update in ({}, {"overlaps_parameter_gather": False}, {"overlaps_gradient_sync": False})
        )
        # An all-gather of 8.03e9 weights in 16 bits over NVLink: 7/8 of the bytes at 450 GB/s at best.
        assert ahead - behind > 0.8 * 7 / 8 * 8.03e9 * 2 / 450e9
        assert behind < ahead < after

    def test_weights_do_not_hide_where_gradients_show(self) -> None:
        with pytest.raises(ValidationError, match="overlaps_parameter_gather needs overlaps_gradient_sync"):
            Workload.model_validate(
                {**dict(training()), "overlaps_parameter_gather": True, "overlaps_gradient_sync": False}
            )

    def test_16_bit_gradients_are_half_as_long_on_the_wire(self) -> None:
        workload = training("llama-3.1-8b", global_batch_size=8).model_copy(
            update={"overlaps_gradient_sync": False}
        )
        wide, narrow = (
            steps_of(job_of(workload.model_copy(update={"sync_bytes": size})), plan_of(data=8, zero=0))
            for size in (4, 2)
        )
        assert wide.gradient_sync_s[0] / narrow.gradient_sync_s[0] == pytest.approx(
            2, rel=0.02
        )  # and latency

    @pytest.mark.parametrize("zero", [2, 3])
    def test_sharded_gradients_and_weights_travel_in_every_micro_batch(self, zero: int) -> None:
        few, many = (
            steps_of(job_of(training(global_batch_size=batch)), plan_of(data=8, zero=zero))
            for batch in (64, 128)
        )
        assert many.shard_comm_s == pytest.approx(2 * few.shard_comm_s)
        assert few.shard_comm_s > 0

    def test_zero_3_gathers_embedding_and_output_layer_too(self) -> None:
        # With next to no computation to hide behind, traffic is proportional to the weights.
        shapes = [gpt(num_layers=8, vocabulary_size=vocabulary) for vocabulary in (8, 256_000)]
        slow = with_fabric_rate(1e9)
        small, large = (
            steps_of(
                job_of(training(shape, sequence_length=64), slow), plan_of(data=64, zero=3)
            ).shard_comm_s[0]
            for shape in shapes
        )
        # Gathered twice in 16 bits and reduced in 32, but the output layer is still whole when its backward pass begins.
        moved_bytes = [8 * shape.num_parameters - 2 * shape.output_parameters for shape in shapes]
        assert large / small == pytest.approx(moved_bytes[1] / moved_bytes[0], rel=0.05)

    def test_one_replica_has_nothing_to_exchange(self) -> None:
        for zero in range(4):
            steps = steps_of(job_of(EVEN), plan_of(tensor=2, pipeline=4, zero=zero))
            assert (steps.gradient_sync_s[0], steps.shard_comm_s[0]) == (0, 0)


class TestTiedEmbeddings:
    BLOOM = training("bloom-176b", sequence_length=2048, global_batch_size=2048)

    def test_first_and_last_stage_sum_their_gradients(self) -> None:
        plan = plan_of(tensor=4, pipeline=12, data=8)
        rank = Rank.of(job_of(self.BLOOM), table_of(plan))
        # The quarter of 3,596,615,680 fp32 gradients between two accelerators in different nodes.
        expected_s = all_reduce_s(
            num_bytes=3_596_615_680 / 4 * 4.0, group_size=2.0, members_per_domain=1.0, links=rank.links
        )
        assert tied_gradient_s(rank) == pytest.approx(expected_s)
        tied, own = (
            steps_of(job_of(each), plan).gradient_sync_s[0] for each in (self.BLOOM, untied(self.BLOOM))
        )
        assert tied - own == pytest.approx(expected_s[0], rel=0.1)  # both last stages reduce an output layer

    @pytest.mark.parametrize("pipeline", [1, 2])
    def test_untied_embeddings_and_single_stages_need_no_sum(self, pipeline: int) -> None:
        workload = self.BLOOM if pipeline == 1 else untied(self.BLOOM)
        rank = Rank.of(job_of(workload), table_of(plan_of(tensor=8, pipeline=pipeline)))
        assert tied_gradient_s(rank) == 0


class TestOptimizer:
    def test_it_moves_its_bytes_of_the_fullest_stage_and_those_of_whole_gradients(self) -> None:
        job = job_of(training("llama-3.1-8b", global_batch_size=8))
        steps = steps_of(job, *(plan_of(data=8, zero=zero) for zero in range(4)))
        # Read the gradient for its norm, clip it, update 12 bytes of states, write the 16-bit weight: not of fp32 shards.
        update, without_copy = 46 * 8_030_261_248, 40 * 8_030_261_248
        # Set it to zero, read it to find NaN, divide it by 8.
        whole = (4 + 4 + 8) * 8_030_261_248
        moved = np.array([update + whole, update / 8 + whole, update / 8, without_copy / 8])
        expected_s = moved / self.bandwidth(job) + self.launches_s(job)
        assert steps.optimizer_s == pytest.approx(expected_s, rel=1e-3)  # norms

    def bandwidth(self, job: Job) -> float:
        return 3.35e12 * float(Rank.of(job, table_of(plan_of())).kernels.memory_fraction[0])

    def launches_s(self, job: Job) -> float:
        return NUM_OPTIMIZER_KERNELS * float(Rank.of(job, table_of(plan_of())).kernels.launch_s[0])

    @pytest.mark.parametrize("zero", [1, 2, 3])
    def test_weights_of_layers_are_cast_once_per_step_where_they_are_whole(self, zero: int) -> None:
        workload = training("llama-3.1-8b", global_batch_size=32)
        rank = Rank.of(job_of(workload), table_of(plan_of(tensor=2, precision=Precision.FP8)))
        plans = [
            plan_of(tensor=2, data=8, zero=zero, precision=each) for each in (Precision.BF16, Precision.FP8)
        ]
        wide, narrow = steps_of(job_of(workload), *plans).optimizer_s
        layers = 8_030_261_248 - 2 * 128_256 * 4096 - 4096
        bandwidth = 3.35e12 * rank.kernels.memory_fraction[0]
        expected_s = rank.cast_bytes[0] * layers / 2 / bandwidth if zero < 3 else 0.0
        assert narrow - wide == pytest.approx(expected_s, rel=1e-2, abs=1e-12)

    def test_a_given_step_has_its_zeros_among_its_bytes(self) -> None:
        job = job_of(training("llama-3.1-8b").model_copy(update={"step_bytes": 82.0}))
        expected_s = 82 * 8_030_261_248 / self.bandwidth(job) + self.launches_s(job)
        assert steps_of(job, plan_of(zero=0)).optimizer_s[0] == pytest.approx(expected_s, rel=1e-3)

    def test_experts_are_updated_by_their_own_replicas(self) -> None:
        job = job_of(training("mixtral-8x7b", global_batch_size=64))
        optimizer_s = steps_of(job, plan_of(tensor=2, expert=4, data=16, zero=2)).optimizer_s[0]
        routed = 32 * 8 * 3 * 4096 * 14_336
        shared = 46_702_792_704 - routed
        # 1/2 of the shared weights over 16 replicas, 1/4 of the routed ones over 16 x 2 / 4 = 8.
        least_s = 46 * (shared / 2 / 16 + routed / 4 / 8) / 3.35e12
        assert least_s < optimizer_s < 1.5 * least_s

    def test_stages_share_it_out(self) -> None:
        one, four = (steps_of(job_of(EVEN), plan_of(pipeline=p, zero=0)).optimizer_s[0] for p in (1, 4))
        assert four == pytest.approx(one / 4, rel=0.01)  # launches remain


@given(
    tensor=st.sampled_from([1, 2, 8]),
    pipeline=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([1, 4, 16]),
    zero=st.integers(0, 3),
    factor=st.floats(1.0, 20.0),
)
def test_a_faster_fabric_never_makes_a_step_longer(
    tensor: int, pipeline: int, data: int, zero: int, factor: float
) -> None:
    plan = plan_of(tensor=tensor, pipeline=pipeline, data=data, zero=zero)
    slow, fast = (
        steps_of(job_of(training(global_batch_size=64), with_fabric_rate(rate)), plan).step_time_s[0]
        for rate in (100e9, 100e9 * factor)
    )
    assert fast <= slow * (1 + 1e-12)


@given(
    pipeline=st.integers(1, 8),
    virtual=st.integers(1, 4),
    tensor=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([1, 2, 8]),
    micro_batch=st.sampled_from([1, 2]),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(Recompute),
)
def test_parts_sum_to_the_step_of_any_layout(
    pipeline: int, virtual: int, tensor: int, data: int, micro_batch: int, zero: int, recompute: Recompute
) -> None:
    workload = training(gpt(has_tied_embeddings=True), global_batch_size=840 * 16)
    assume(virtual == 1 or pipeline > 1)
    assume(pipeline * virtual <= 24)
    assume(workload.global_batch_size // (data * micro_batch) % pipeline == 0)
    plan = plan_of(
        tensor=tensor,
        pipeline=pipeline,
        virtual=virtual,
        data=data,
        micro_batch=micro_batch,
        zero=zero,
        recompute=recompute,
    )
    steps = steps_of(job_of(workload), plan)
    assert sum(getattr(steps, part)[0] for part in STEP_PARTS) == pytest.approx(
        steps.step_time_s[0], rel=1e-9
    )


def test_latent_attention_has_heads_of_its_own_whatever_else_a_shape_says_of_them() -> None:
    model, plan = catalog.model("deepseek-v3"), plan_of(tensor=4, pipeline=8, expert=16, data=16)
    figures = []
    for head_dim, num_kv_heads in ((192, 128), (56, 128), (1, 1)):
        workload = training(changed(model, head_dim=head_dim, num_kv_heads=num_kv_heads))
        memory = memory_of(workload, plan)
        figures.append((float(step_of(workload, plan).step_time_s[0]), float(memory.peak_bytes[0])))
    assert figures[1:] == figures[:1] * 2
