"""Is memory what the papers' formulas give, and is the most loaded stage found?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator import catalog
from simulator.domain.plan import TO_AND_FRO, Plan, Recompute, Schedule
from simulator.domain.workload import Workload
from simulator.layout.chunks import can_cut, split_layers
from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.model_states import reduced_fraction
from simulator.memory.activations import in_flight_chunks
from simulator.memory.peak import (
    MemoryTable,
    memory_by_stage,
    memory_of_stage,
    peak_memory,
)
from simulator.pipeline.schedule import pipeline_timeline, play_pipelines
from tests.simulator.builders import changed, gpt, memory_of, plan_of, table_of, training


def bytes_by_stage(workload: Workload, plan: Plan) -> list[float]:
    """Memory of one rank of every stage."""
    table = table_of(plan)
    chunks = split_layers(workload.model, table)
    return [
        float(memory_of_stage(workload, table, chunks, np.array([stage])).peak_bytes[0])
        for stage in range(plan.pipeline_parallel)
    ]


def states_bytes(memory: MemoryTable) -> float:
    return float((memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes)[0])


class TestStates:
    @pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
    def test_zero_stages_need_the_published_bytes(self, stage: int, gigabytes: float) -> None:
        # Rajbhandari et al., arXiv 1910.02054, figure 1: 7.5 billion weights on 64 GPUs, 16-bit gradients.
        workload = training("megatron-7.5b", global_batch_size=64).model_copy(update={"gradient_bytes": 2})
        scale = 7.5e9 / workload.model.num_parameters
        memory = memory_of(workload, plan_of(data=64, zero=stage))
        assert states_bytes(memory) * scale / 1e9 == pytest.approx(
            gigabytes, abs=0.05
        )  # one decimal is printed

    @pytest.mark.parametrize(("d", "c"), [(1, 1), (8, 1), (4, 2)])
    def test_a_distributed_optimizer_needs_6_and_12_over_dc_bytes_per_weight(self, d: int, c: int) -> None:
        # Megatron-LM's table: 18 bytes without, 6 + 12/(d c) with it, for fp32 gradients.
        workload = training(global_batch_size=d)
        weights = workload.model.num_parameters
        memory = memory_of(workload, plan_of(data=d, context=c))
        assert states_bytes(memory) == pytest.approx(weights * (6 + 12 / (d * c)))

    def test_experts_are_shared_out_over_their_own_replicas(self) -> None:
        workload = training("mixtral-8x7b", global_batch_size=16)
        model = workload.model
        routed = 32 * 8 * model.expert_parameters
        memory = memory_of(workload, plan_of(tensor=2, expert=4, data=16, zero=1))
        # 16 replicas of a half of the shared weights, with routers of 8 x h whole; 16 x 2 / 4 = 8 replicas of a quarter of
        # the routed ones.
        router = 32 * 8 * model.hidden_size
        optimizer = 12 * ((model.num_parameters - routed + router) / 2 / 16 + routed / 4 / 8)
        assert memory.optimizer_bytes == pytest.approx(optimizer)

    def test_products_down_to_latents_and_routers_are_whole_on_every_rank(self) -> None:
        # Megatron Core: `parallel_mode` `duplicated` of `linear_q_down_proj` and `linear_kv_down_proj`; `TopKRouter`.
        shape = catalog.model("deepseek-v3").model_copy(update={"num_layers": 4})
        one, eight = (
            memory_of(training(shape, global_batch_size=8), plan_of(tensor=t, expert=8, data=8 // t, zero=0))
            for t in (1, 8)
        )
        routed = 256 * shape.expert_parameters
        whole = 4 * 7168 * (1536 + 512 + 64) + 7168 * 256
        split = shape.num_parameters - routed - whole
        assert one.weights_bytes == pytest.approx(2 * (split + whole + routed / 8))
        assert eight.weights_bytes == pytest.approx(2 * (split / 8 + whole + routed / 8))

    @pytest.mark.parametrize("gradient_bytes", [2, 4])
    def test_fully_sharded_states_are_16_bytes_of_a_weight(self, gradient_bytes: int) -> None:
        # fp32 weight, gradient and two moments (FSDP), or 2 + 2 + 12 (Rajbhandari et al., arXiv 1910.02054).
        workload = training(global_batch_size=8).model_copy(update={"gradient_bytes": gradient_bytes})
        memory = memory_of(workload, plan_of(data=8, zero=3))
        assert states_bytes(memory) == pytest.approx(2 * workload.model.num_parameters)
        assert memory.weights_bytes == memory.gradients_bytes

    def test_fully_sharded_weights_need_room_for_the_layers_at_work(self) -> None:
        model = gpt(vocabulary_size=8)
        one, three = (
            memory_of(training(model, global_batch_size=8), plan_of(data=8, zero=z)) for z in (1, 3)
        )
        # A layer of 12 h^2 and two norms: its gradient in 16 bits at either stage; gathered with the next one and
        # reduced in 32 bits at stage 3 only.
        layer = 12 * 2048**2 + 2 * 2048
        gathered = (three.workspace_bytes - one.workspace_bytes)[0]
        assert gathered == pytest.approx((2 * 2 + 4) * layer + 2 * 8 * 2048)

    @pytest.mark.parametrize(
        ("formats", "bytes_of_a_layer"),
        [
            # DeepSpeed computes with what it keeps; FSDP casts 32 bits of two layers; FSDP2 copies gradients, too.
            ({"gradient_bytes": 2}, 0),
            ({"gradient_bytes": 4}, 2 * 2),
            ({"gradient_bytes": 2, "sharded_copies": "fsdp-2"}, 2 * 2 + 2),
        ],
    )
    def test_a_rank_that_shares_no_weights_gathers_none(
        self, formats: dict[str, object], bytes_of_a_layer: int
    ) -> None:
        model = gpt(vocabulary_size=8)
        alone = training(model, global_batch_size=8).model_copy(update=formats)
        two, three = (memory_of(alone, plan_of(zero=z)) for z in (2, 3))
        layer, output = 12 * 2048**2 + 2 * 2048, 8 * 2048
        gathered = (three.workspace_bytes - two.workspace_bytes)[0]
        assert gathered == pytest.approx(bytes_of_a_layer * layer + 2 * output * (bytes_of_a_layer > 0))

    def test_an_optimizer_of_16_bit_gradients_makes_copies_in_32_bits(self) -> None:
        workload = training(global_batch_size=8)
        weights = workload.model.num_parameters
        narrow = workload.model_copy(update={"gradient_bytes": 2})
        assert memory_of(workload, plan_of(data=8)).update_bytes == 0
        assert memory_of(narrow, plan_of(data=8)).update_bytes == pytest.approx(4 * weights / 8)
        assert memory_of(narrow, plan_of(data=8, zero=0)).update_bytes == pytest.approx(4 * weights)

    @pytest.mark.parametrize(("given", "bytes_per_weight"), [(0.0, 0), (6.0, 6)])
    def test_copies_of_gradients_are_those_that_are_given(self, given: float, bytes_per_weight: int) -> None:
        narrow = training(global_batch_size=8).model_copy(update={"gradient_bytes": 2, "update_bytes": given})
        found = memory_of(narrow, plan_of(data=8)).update_bytes
        assert found == pytest.approx(bytes_per_weight * narrow.model.num_parameters / 8)

    @pytest.mark.parametrize("optimizer_bytes", [6.0, 10.0])
    def test_smaller_states_of_the_optimizer_are_that_much_smaller(self, optimizer_bytes: float) -> None:
        workload = training(global_batch_size=8)
        smaller = workload.model_copy(update={"optimizer_bytes": optimizer_bytes})
        spared = states_bytes(memory_of(workload, plan_of(data=8))) - states_bytes(
            memory_of(smaller, plan_of(data=8))
        )
        assert spared == pytest.approx((12 - optimizer_bytes) * workload.model.num_parameters / 8)

    @pytest.mark.parametrize(
        ("ffn_hidden_size", "num_kv_heads", "widest"),
        # The block's; queries, keys and values of all 16 heads; and with keys and values of 4 heads, 1 + 2/4 times h.
        [(8192, 16, 8192), (2048, 16, 3 * 2048), (2048, 4, 1.5 * 2048)],
    )
    def test_gathering_product_by_product_holds_few_weights_beside_the_largest_product(
        self, ffn_hidden_size: int, num_kv_heads: int, widest: float
    ) -> None:
        widths = {"ffn_hidden_size": ffn_hidden_size, "num_kv_heads": num_kv_heads}
        model = gpt(vocabulary_size=8).model_copy(update=widths)
        sharded = training(model, global_batch_size=8).model_copy(update={"most_gathered_weights": 1000.0})
        one, three = (memory_of(sharded, plan_of(data=8, zero=z)) for z in (1, 3))
        # The largest product is gathered, with a gradient; without sharding the layer has gradients.
        layer = 2048 * (2 * 2048 + 2 * num_kv_heads * 128 + 2 * ffn_hidden_size + 2)
        more = (three.workspace_bytes - one.workspace_bytes)[0]
        assert more == pytest.approx(2 * (1000 + 2 * widest * 2048) - 2 * (layer + 8 * 2048))

    def test_buffers_of_the_synchronisation_are_counted(self) -> None:
        workload = training(global_batch_size=8)
        buffered = workload.model_copy(update={"sync_buffer_bytes": 2e9})
        more = (memory_of(buffered, plan_of(data=8)).allocated_bytes)[0]
        assert more - memory_of(workload, plan_of(data=8)).allocated_bytes[0] == pytest.approx(2e9)

    @pytest.mark.parametrize("logit_bytes", [2, 6, 12])
    def test_logits_stand_on_the_last_stage(self, logit_bytes: int) -> None:
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=8)
        memory = memory_of(
            workload.model_copy(update={"logit_bytes": logit_bytes}),
            plan_of(tensor=4, data=8, recompute=Recompute.FULL),
        )
        # Fused, they are fewest when gradients of h before the norm and behind it, gathered and given, are there with them.
        whole = {2: 2 * 2 * 4096}.get(logit_bytes, 0)
        kept = 2 * 2 * 4096 / 4  # inputs of the final norm and of the output layer
        assert memory.logits_bytes == pytest.approx(8192 * (logit_bytes * 128_256 / 4 + whole + kept))

    @pytest.mark.parametrize(
        ("schedule", "waiting"),
        # GPipe has the loss of every micro-batch before the first backward pass; ZB-H1 has as many gradients of logits as
        # there are stages when it comes to weights.
        [(Schedule.ONE_F_ONE_B, 0), (Schedule.GPIPE, 15 * 4), (Schedule.ZB_H1, 3 * 2)],
    )
    def test_losses_wait_where_backward_passes_do(self, schedule: Schedule, waiting: int) -> None:
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=16)
        last = memory_by_stage(workload, plan_of(pipeline=4, schedule=schedule)).logits_bytes[-1]
        num_more = {Schedule.ONE_F_ONE_B: 0, Schedule.GPIPE: 15, Schedule.ZB_H1: 3}[schedule]
        inputs = (1 + num_more) * 2 * 2 * 4096
        assert last == pytest.approx(8192 * ((6 + waiting) * 128_256 + inputs))

    @pytest.mark.parametrize("group_size", [4, 6, 8, 10, 12, 16])
    def test_losses_of_a_smaller_last_group_wait_while_the_order_has_their_forward_passes_ahead(
        self, group_size: int
    ) -> None:
        workload = training("llama-3.1-8b", sequence_length=8192, global_batch_size=16)
        plan = plan_of(pipeline=4, virtual=2, group_size=group_size)
        ones, nothing = np.ones((1, 8)), np.zeros((1, 8))
        played = pipeline_timeline(
            num_stages=[4],
            num_chunks_per_stage=[2],
            num_micro_batches=[16],
            group_size=[group_size],
            chunk_forward_s=ones,
            chunk_backward_s=2.0 * ones,
            send_s=[0.0],
            send_blocks_sender=[False],
            gradient_sync_s=nothing,
            parameter_gather_s=nothing,
            num_overlap_buckets=[0],
        )
        is_last = played.chunk == 7
        most = int(np.cumsum(np.where(played.is_backward[is_last], -1, 1)).max())
        assert most == {6: 3, 10: 5, 12: 4}.get(group_size, 1)
        last = memory_by_stage(workload, plan).logits_bytes[-1]
        assert last == pytest.approx(8192 * ((6 + 4 * (most - 1)) * 128_256 + most * 2 * 2 * 4096))

    @pytest.mark.parametrize(("recompute", "kept_per_value"), [(Recompute.FULL, 2), (Recompute.NONE, 32)])
    def test_the_gradient_of_the_embedding_counts_where_it_is_more_than_layers(
        self, recompute: Recompute, kept_per_value: int
    ) -> None:
        # 256,000 rows of 2048 in 16 bits come when a micro-batch has let go of what six layers kept of it.
        workload = training(gpt(vocabulary_size=256_000), sequence_length=1024, global_batch_size=64)
        first, second = memory_by_stage(
            workload, plan_of(pipeline=4, data=8, recompute=recompute)
        ).workspace_bytes[:2]
        weights = 2 * (12 * 2048**2 + 2 * 2048)
        assert first == pytest.approx(weights + 2 * 256_000 * 2048 - 6 * kept_per_value * 1024 * 2048)
        assert second < first

    def test_gradients_of_a_layer_are_gone_by_then_unless_products_add_them_up_in_32_bits(self) -> None:
        workload = training(gpt(vocabulary_size=256_000), sequence_length=1024, global_batch_size=64)
        plan = plan_of(pipeline=4, data=8, recompute=Recompute.FULL)
        in_16_bits = workload.model_copy(update={"gradient_bytes": 2})
        wide, narrow = (memory_by_stage(each, plan).workspace_bytes[0] for each in (workload, in_16_bits))
        assert wide - narrow == pytest.approx(2 * (12 * 2048**2 + 2 * 2048))

    def test_no_other_stage_has_logits(self) -> None:
        stages = memory_by_stage(training(), plan_of(tensor=2, pipeline=4, data=8))
        assert (stages.logits_bytes > 0.0).tolist() == [False, False, False, True]


class TestPeaks:
    def test_live_tensors_are_less_than_the_allocator_holds_and_that_less_than_the_device(self) -> None:
        memory = memory_of(training(), plan_of(tensor=2, pipeline=4, data=8), plan_of(data=64, zero=3))
        assert np.all(memory.allocated_bytes < memory.peak_of("reserved"))
        assert np.all(memory.peak_of("reserved") < memory.peak_bytes)
        # SimuMax: reserved = allocated / 0.94; aiconfigurator: 3.9 GB of context, libraries and communicators.
        assert memory.peak_of("reserved") == pytest.approx(memory.allocated_bytes / 0.94)
        assert memory.peak_bytes - memory.peak_of("reserved") == pytest.approx(3.9e9)

    def test_a_full_device_makes_the_allocator_give_back_what_it_wastes(self) -> None:
        memory = memory_of(training(), plan_of(tensor=2, data=8))
        assert memory.needed_bytes == pytest.approx(memory.allocated_bytes + 3.9e9)
        assert memory.peak_on(memory.peak_bytes + 1.0) == memory.peak_bytes
        between = (memory.needed_bytes + memory.peak_bytes) / 2.0
        assert memory.peak_on(between) == between
        assert memory.peak_on(memory.needed_bytes / 2.0) == memory.needed_bytes

    def test_fully_sharded_weights_in_32_bits_and_adam_take_16_bytes_a_weight(self) -> None:
        # llm-foundry's benchmark asks for 16 bytes a weight (`run_check_capacity`), mixed precision or not.
        workload = training().model_copy(update={"sync_bytes": 2})
        memory = memory_of(workload, plan_of(data=64, zero=3))
        assert states_bytes(memory) == pytest.approx(16.0 * workload.model.num_parameters / 64)

    def test_a_gathered_layer_reduces_its_gradients_in_the_format_of_the_wire(self) -> None:
        wide, narrow = (
            memory_of(training().model_copy(update={"sync_bytes": sync}), plan_of(data=64, zero=3))
            for sync in (4, 2)
        )
        layer = training().model.dense_layer_parameters
        assert wide.workspace_bytes - narrow.workspace_bytes == pytest.approx(2.0 * layer)

    @pytest.mark.parametrize("sequence", [256, 8192])
    def test_gradients_of_a_single_micro_batch_come_as_its_activations_go(self, sequence: int) -> None:
        # FSDP2: the gradients of all layers outweigh what short sequences keep, and not what long ones do.
        plan = plan_of(data=8, zero=3, recompute=Recompute.FULL)

        def memory(num_micro_batches: int, **changes: object) -> MemoryTable:
            workload = training(global_batch_size=8 * num_micro_batches, sequence_length=sequence)
            return memory_of(changed(workload, **changes), plan)

        late, kept = (memory(number, sharded_copies="fsdp-2") for number in (1, 2))
        passes = late.activations_bytes + late.logits_bytes + late.workspace_bytes
        behind = late.late_gradients_bytes + late.workspace_bytes
        assert (behind > passes) == (sequence == 256)
        states = late.weights_bytes + late.optimizer_bytes
        assert late.allocated_bytes == pytest.approx(states + max(passes, behind))
        assert kept.allocated_bytes == pytest.approx(states + late.late_gradients_bytes + passes)
        assert late.late_gradients_bytes == kept.gradients_bytes == memory(1).gradients_bytes

    @pytest.mark.parametrize(("update", "peak"), [(1.0, 35.0 + 12.0), (40.0, 35.0 + 4.0 + 40.0)])
    def test_copies_for_the_update_are_made_when_activations_and_workspace_are_gone(
        self, update: float, peak: float
    ) -> None:
        used = {
            "weights": 10.0,
            "gradients": 5.0,
            "optimizer": 20.0,
            "late_gradients": 4.0,
            "activations": 7.0,
            "logits": 3.0,
            "workspace": 2.0,
            "update": update,
        }
        columns = {
            name: np.array([used.get(name.removesuffix("_bytes"), 0.0)]) for name in MemoryTable.names()
        }
        assert MemoryTable(**columns).allocated_bytes == peak

    def test_each_kind_of_published_peak_has_its_sum(self) -> None:
        memory = memory_of(training(), plan_of(tensor=2, data=8))
        assert memory.peak_of("allocated") == memory.allocated_bytes
        assert memory.peak_of("reserved") == memory.peak_bytes - memory.framework_bytes
        assert memory.peak_of("device") == memory.peak_bytes


class TestStages:
    @pytest.mark.parametrize(("virtual", "num_sequences"), [(1, 16), (1, 3), (2, 16), (4, 16)])
    @pytest.mark.parametrize("stages", [1, 2, 4, 8])
    def test_activations_in_flight_are_those_of_the_played_pipeline(
        self, stages: int, virtual: int, num_sequences: int
    ) -> None:
        # With fewer micro-batches than stages there are no more to be held (llm-analysis holds as many as stages).
        workload = training(gpt(num_layers=32), global_batch_size=num_sequences)
        table = table_of(plan_of(pipeline=stages, virtual=virtual if stages > 1 else 1))
        num_chunks = int(table.pipeline_parallel[0] * table.virtual_pipeline[0])
        ones, zeros = np.ones((1, num_chunks)), np.zeros((1, num_chunks))
        played = play_pipelines(
            num_stages=table.pipeline_parallel,
            num_chunks_per_stage=table.virtual_pipeline,
            num_micro_batches=num_micro_batches(workload, table),
            chunk_forward_s=ones,
            chunk_backward_s=2 * ones,
            send_s=np.zeros(1),
            send_blocks_sender=np.zeros(1, dtype=np.bool_),
            gradient_sync_s=zeros,
            parameter_gather_s=zeros,
            num_overlap_buckets=np.zeros(1, dtype=np.int64),
        )
        counted = [in_flight_chunks(workload, table, np.array([stage]))[0] for stage in range(stages)]
        assert counted == played.peak_in_flight[0].tolist()

    @pytest.mark.parametrize(
        ("schedule", "virtual"),
        [(Schedule.GPIPE, 1), (Schedule.ZB_H1, 1), (Schedule.ZB_V, 2), (Schedule.DUAL_PIPE_V, 2)],
    )
    @pytest.mark.parametrize("stages", [2, 4, 8])
    @pytest.mark.parametrize("num_sequences", [1, 5, 8, 16])
    def test_the_same_under_other_schedules(
        self, schedule: Schedule, virtual: int, stages: int, num_sequences: int
    ) -> None:
        if schedule is Schedule.DUAL_PIPE_V:
            num_sequences = max(num_sequences, 2 * stages)
        workload = training(gpt(num_layers=32), global_batch_size=num_sequences)
        table = table_of(plan_of(pipeline=stages, virtual=virtual, schedule=schedule))
        nothing = np.zeros((1, stages * virtual))
        played = play_pipelines(
            schedule=table.pipeline_schedule,
            num_stages=table.pipeline_parallel,
            num_chunks_per_stage=table.virtual_pipeline,
            num_micro_batches=num_micro_batches(workload, table),
            chunk_forward_s=nothing + 1.0,
            chunk_backward_s=nothing + 2.0,
            chunk_weight_gradient_s=nothing + 1.0,
            send_s=np.zeros(1),
            send_blocks_sender=np.zeros(1, dtype=np.bool_),
            gradient_sync_s=nothing,
            parameter_gather_s=nothing,
            num_overlap_buckets=np.zeros(1, dtype=np.int64),
        )
        counted = [in_flight_chunks(workload, table, np.array([stage]))[0] for stage in range(stages)]
        assert counted == played.peak_in_flight[0].tolist()

    @pytest.mark.parametrize("schedule", TO_AND_FRO)
    def test_to_and_fro_the_first_stage_has_both_ends_of_the_model(self, schedule: Schedule) -> None:
        plan = plan_of(pipeline=4, virtual=2, schedule=schedule)
        chunks = split_layers(gpt(num_layers=32), table_of(plan))
        assert chunks.stages.tolist() == [[0, 1, 2, 3, 3, 2, 1, 0]]
        assert chunks.on_stage(chunks.is_first | chunks.is_last, np.array([0]))[0] == 2

    @pytest.mark.parametrize(("p", "v"), [(4, 2), (8, 6), (16, 8)])
    def test_interleaving_holds_the_published_share_more(self, p: int, v: int) -> None:
        # Korthikanti et al., arXiv 2205.05198, section 4.2.3: L s b h (1 + (p - 1)/(p v)) on the first stage.
        workload = training(gpt(num_layers=p * v), global_batch_size=4 * p)
        table = table_of(plan_of(pipeline=p, virtual=v))
        in_flight = in_flight_chunks(workload, table, np.array([0]))[0]
        assert in_flight / (p * v) == pytest.approx(1 + (p - 1) / (p * v))

    @pytest.mark.parametrize(
        ("name", "plan"),
        [
            ("bloom-176b", plan_of(tensor=4, pipeline=12, data=8, recompute=Recompute.FULL)),
            ("llama-3.1-405b", plan_of(tensor=8, pipeline=16, data=4)),
            ("llama-3.1-405b", plan_of(tensor=8, pipeline=16, virtual=8, data=4)),
            ("llama-3.1-8b", plan_of(pipeline=4, data=8, recompute=Recompute.FULL)),
            ("deepseek-v2-lite", plan_of(pipeline=9, expert=8, data=8)),
            ("deepseek-v3", plan_of(tensor=2, pipeline=9, expert=16, data=16, recompute=Recompute.FULL)),
            ("deepseek-v3", plan_of(pipeline=16, expert=64, data=128)),
            ("deepseek-v3", plan_of(pipeline=40, expert=8, data=8, zero=3)),
            ("gpt3-175b", plan_of(tensor=8, pipeline=8, virtual=6, data=2, recompute=Recompute.SELECTIVE)),
            ("nemotron-3-super-120b-a12b", plan_of(tensor=2, pipeline=5, virtual=2, expert=8, data=8)),
            ("qwen3-next-80b-a3b", plan_of(pipeline=7, expert=16, data=16, recompute=Recompute.FULL)),
        ],
    )
    def test_no_other_stage_needs_more_than_the_one_that_is_reported(self, name: str, plan: Plan) -> None:
        workload = training(name, global_batch_size=1024)
        assert memory_of(workload, plan).peak_bytes[0] == max(bytes_by_stage(workload, plan))

    @given(
        layers=st.integers(1, 70),
        dense=st.integers(0, 20),
        pipeline=st.integers(1, 40),
        virtual=st.integers(1, 4),
        data=st.sampled_from([1, 8]),
        micro_batch=st.sampled_from([1, 64]),
        zero=st.integers(0, 3),
        recompute=st.sampled_from(Recompute),
    )
    def test_it_is_the_maximum_over_all_stages_however_the_layers_are_cut(
        self,
        layers: int,
        dense: int,
        pipeline: int,
        virtual: int,
        data: int,
        micro_batch: int,
        zero: int,
        recompute: Recompute,
    ) -> None:
        assume(can_cut(gpt(num_layers=layers), None, np.array([pipeline * virtual]))[0])
        plan = plan_of(
            pipeline=pipeline,
            virtual=virtual,
            data=data,
            micro_batch=micro_batch,
            zero=zero,
            recompute=recompute,
        )
        shape = catalog.model("deepseek-v2-lite")
        assert shape.experts is not None
        experts = shape.experts.model_copy(update={"num_dense_layers": min(dense, layers)})
        for model in (
            gpt(num_layers=layers),
            shape.model_copy(update={"num_layers": layers, "experts": experts}),
        ):
            workload = training(model, global_batch_size=1024)
            assert memory_of(workload, plan).peak_bytes[0] == max(bytes_by_stage(workload, plan))

    def test_components_sum_to_the_peak(self) -> None:
        memory = memory_of(training(), plan_of(tensor=2, pipeline=4, data=8), plan_of(data=64, zero=3))
        total = sum(np.asarray(column, dtype=np.float64) for column in memory.columns().values())
        assert memory.peak_bytes == pytest.approx(total, rel=1e-12)


@given(
    name=st.sampled_from(["llama-3.1-8b", "deepseek-v2-lite", "nemotron-3-nano-30b-a3b"]),
    degrees=st.fixed_dictionaries(
        {
            "tensor": st.sampled_from([1, 2, 4]),
            "pipeline": st.sampled_from([1, 2, 4]),
            "context": st.sampled_from([1, 2, 4]),
            "expert": st.sampled_from([1, 2, 4]),
            "data": st.sampled_from([1, 2, 8]),
        }
    ),
    zero=st.integers(0, 3),
    recompute=st.sampled_from(Recompute),
    formats=st.fixed_dictionaries(
        {
            "gradient_bytes": st.sampled_from([2, 4]),
            "optimizer_bytes": st.sampled_from([6.0, 10.0, 12.0]),
            "update_bytes": st.sampled_from([None, 0.0, 6.0]),
            "most_gathered_weights": st.sampled_from([None, 1e8, 1e9]),
            "keeps_stage_outputs": st.booleans(),
            "frees_stage_inputs": st.booleans(),
        }
    ),
)
def test_splitting_further_and_keeping_less_never_need_more(
    name: str,
    degrees: dict[str, int],
    zero: int,
    recompute: Recompute,
    formats: dict[str, float | None],
) -> None:
    workload = training(name, global_batch_size=64).model_copy(update=formats)
    replicas = degrees["data"] * degrees["context"]
    has_experts = workload.model.experts is not None
    assume(degrees["expert"] == 1 or (has_experts and degrees["expert"] <= replicas * degrees["tensor"]))

    def peak(*, doubled: str = "", z: int = zero, kept: Recompute = recompute, micro_batch: int = 1) -> float:
        split = {each: degree * (2 if each == doubled else 1) for each, degree in degrees.items()}
        plan = plan_of(
            tensor=split["tensor"],
            pipeline=split["pipeline"],
            context=split["context"],
            expert=split["expert"],
            data=split["data"],
            zero=z,
            recompute=kept,
            micro_batch=micro_batch,
        )
        return float(memory_of(workload, plan).peak_bytes[0])

    assert peak(doubled="tensor") < peak()
    # From no pipeline to one ZeRO-2 begins to keep gradients whole between micro-batches (docs/model/memory.md).
    if zero != 2 or degrees["pipeline"] > 1:
        assert peak(doubled="pipeline") < peak()
    assert peak(doubled="context") < peak()
    assert peak(doubled="data") <= peak()
    if has_experts and 2 * degrees["expert"] <= replicas * degrees["tensor"]:
        # ZeRO-3 splits experts over all ranks anyway; what it gathers of them may be bounded.
        assert peak(doubled="expert") < peak() or (zero == 3 and peak(doubled="expert") == peak())
    assert peak(kept=Recompute.FULL) <= peak() <= peak(kept=Recompute.NONE)
    assert peak() < peak(micro_batch=2)
    # In groups of two ZeRO-3 gathers more than it saves; ranks with the same experts are groups of their own.
    of_experts = replicas * degrees["tensor"] / degrees["expert"] if has_experts else replicas
    if 0 < zero < 3 or (zero == 3 and 2 not in (replicas, of_experts)):
        assert peak(z=zero) <= peak(z=zero - 1)


@given(expert=st.sampled_from([1, 2, 4, 8]))
def test_spreading_experts_over_more_ranks_needs_less(expert: int) -> None:
    workload = training("deepseek-v2-lite", global_batch_size=64)
    few, many = (memory_of(workload, plan_of(data=16, expert=e)).peak_bytes[0] for e in (expert, 2 * expert))
    assert many < few


def test_published_models_fit_the_accelerators_that_trained_them() -> None:
    bloom = training("bloom-176b", sequence_length=2048, global_batch_size=2048).model_copy(
        update={"attention": "unfused", "has_sequence_parallel": False}
    )
    plan = plan_of(tensor=4, pipeline=12, data=8, micro_batch=2, recompute=Recompute.FULL)
    capacity_bytes = catalog.accelerator("a100-sxm4-80gb").memory_bytes
    assert memory_of(bloom, plan).peak_bytes[0] < capacity_bytes
    # Without recomputation the scores of 11 micro-batches in 6 layers take 77 GB, everything else as much again.
    unrecomputed = plan.model_copy(update={"recompute": Recompute.NONE})
    assert memory_of(bloom, unrecomputed).peak_bytes[0] > 1.5 * capacity_bytes


class TestGradientsOfZero2InAPipeline:
    """Whole while the backward passes of one chunk follow each other, split between the replicas otherwise."""

    @pytest.mark.parametrize(
        ("p", "v", "group_size", "fraction"),
        [
            (1, 1, None, 1.0),
            (4, 1, None, 1 / 8),
            (4, 2, None, 1 / 4),
            (2, 4, None, 1 / 2),
            (2, 4, 4, 1 / 4),
            (2, 4, 3, 3 / 8),
            (4, 2, 8, 1 / 8),
        ],
    )
    def test_they_are_reduced_after_each_group_of_backward_passes(
        self, p: int, v: int, group_size: int | None, fraction: float
    ) -> None:
        plans = table_of(plan_of(pipeline=p, virtual=v, data=8, zero=2, group_size=group_size))
        # 64 sequences over 8 replicas: 8 micro-batches, which come in groups of p or as given when chunks are interleaved.
        assert reduced_fraction(training(global_batch_size=64), plans) == pytest.approx(fraction)

    @pytest.mark.parametrize(("v", "whole_share"), [(1, 1.0), (2, 1.0), (6, 1 / 3 + 1 / 8)])
    def test_two_chunks_are_whole_at_a_time(self, v: int, whole_share: float) -> None:
        model = training(gpt(), global_batch_size=64)  # 24 layers
        zero_1, zero_2 = (
            memory_of(model, plan_of(pipeline=4, virtual=v, data=8, zero=zero)).gradients_bytes[0]
            for zero in (1, 2)
        )
        assert zero_2 == pytest.approx(whole_share * zero_1, rel=1e-9)


def test_stages_of_one_table_need_what_each_needs_alone() -> None:
    workload = training("llama-3.1-8b")
    plans = table_of(plan_of(pipeline=4, data=8), plan_of(tensor=2, pipeline=2, zero=3, data=8))
    chunks = split_layers(workload.model, plans)
    stages = np.array([[0, 0], [1, 1], [3, 1]])
    together = memory_of_stage(workload, plans, chunks, stages).peak_bytes
    alone = [memory_of_stage(workload, plans, chunks, stage).peak_bytes for stage in stages]
    assert together.tolist() == np.array(alone).tolist()
    assert peak_memory(workload, plans, chunks).peak_bytes.tolist() == together.max(axis=0).tolist()
