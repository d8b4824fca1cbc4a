"""In how many pieces does the traffic of the replicas travel? Megatron Core's buckets tensor by tensor, and parts of ZeRO-2."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan, Schedule
from simulator.domain.workload import Workload
from simulator.layout.chunks import split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.pipeline.schedule import PipelineColumns
from simulator.replicas.replica_sync import ReplicaGroup
from simulator.step.gradient_buckets import Buckets
from simulator.step.model_parts import ModelParts
from simulator.step.step import step_parts
from tests.simulator.builders import changed, gpt, job_of, plan_of, table_of, training

MODEL = gpt(num_layers=16, hidden_size=4096, num_heads=32, vocabulary_size=128_000)
LARGE = 64
"""Micro-batches, so that every pipeline below can be interleaved."""


def rank_of(plan: Plan, workload: Workload | None = None) -> Rank:
    chosen = workload or training(MODEL, global_batch_size=LARGE * plan.data_parallel)
    return Rank.of(job_of(chosen), table_of(plan))


def buckets_of(plan: Plan, workload: Workload | None = None) -> Buckets:
    rank = rank_of(plan, workload)
    chunks = split_layers(MODEL, rank.plans)
    weights = StepWeights.of(rank.workload, rank.plans, chunks)
    return Buckets.of(rank, ModelParts.of(rank, chunks), weights)


def pipeline_of(plan: Plan) -> PipelineColumns:
    rank = rank_of(plan)
    return step_parts(rank, split_layers(MODEL, rank.plans)).pipeline


def megatron_buckets(model: ModelShape, tensor: int, num_layers: int, data: int) -> int:
    """Buckets of a first stage as `_ParamAndGradBuffer` cuts them, tensors from the last to the first.

    Each is closed by the tensor that brings it to max(40 million, 1 million a replica) elements.
    """
    h, least = model.hidden_size, max(40_000_000, 1_000_000 * data)
    layer = [3 * h * h, h * h, 4 * h * h, 4 * h * h]
    tensors = [model.vocabulary_size * h, *num_layers * layer]
    found, held = 0, 0.0
    for weights in reversed(tensors):
        held += weights / tensor
        if held >= least:
            found, held = found + 1, 0.0
    return found + (held > 0.0)


class TestMegatron:
    @pytest.mark.parametrize(("tensor", "data"), [(1, 8), (4, 8), (8, 64), (2, 128)])
    def test_the_embedding_is_the_last_bucket_and_so_the_size_of_a_piece(
        self, tensor: int, data: int
    ) -> None:
        plan = plan_of(tensor=tensor, pipeline=2, data=data)
        found = int(buckets_of(plan).gradients[0, 0])
        embedding = MODEL.vocabulary_size * MODEL.hidden_size / tensor
        weights = embedding + 8 * 12 * MODEL.hidden_size**2 / tensor
        least = max(4e7, 1e6 * data)
        # What is left when all else is reduced is the last bucket: the embedding, or one of the least size.
        assert found == pytest.approx(weights / max(least, embedding), abs=1.01)
        assert found <= megatron_buckets(MODEL, tensor, 8, data) + 1

    def test_context_parallel_ranks_count_as_replicas(self) -> None:
        # Megatron-LM, `get_model`, and Megatron-Bridge, `_ddp_wrap`: 1 million for each of 32 x 8 ranks, above the embedding.
        plan = plan_of(tensor=8, pipeline=2, data=32, context=8)
        weights = (MODEL.vocabulary_size * MODEL.hidden_size + 8 * 12 * MODEL.hidden_size**2) / 8
        assert buckets_of(plan).gradients[0, 0] == np.ceil(weights / 256e6)
        assert np.ceil(weights / 256e6) < np.ceil(weights / 65.5e6)

    def test_only_the_first_chunk_of_the_first_stage_is_cut(self) -> None:
        buckets = buckets_of(plan_of(pipeline=4, data=8))
        assert buckets.gradients[0, 0] > 1
        assert buckets.gradients[0, 1:].tolist() == buckets.parameters[0, 1:].tolist() == [1, 1, 1]

    def test_interleaved_stages_reduce_chunks_whole_and_gather_the_first_in_pieces(self) -> None:
        buckets = buckets_of(plan_of(pipeline=4, virtual=2, data=8))
        assert (buckets.gradients == 1).all()
        assert buckets.parameters[0, 0] > 1

    def test_without_overlap_there_are_no_pieces(self) -> None:
        late = changed(
            training(MODEL, global_batch_size=LARGE),
            overlaps_gradient_sync=False,
            overlaps_parameter_gather=None,
        )
        buckets = buckets_of(plan_of(pipeline=4, data=8), late)
        assert not buckets.gradients.any()
        assert not buckets.parameters.any()

    def test_a_step_waits_for_all_gradients_of_an_interleaved_first_chunk(self) -> None:
        def exposed_s(schedule_chunks: int) -> float:
            pipeline = pipeline_of(plan_of(pipeline=2, virtual=schedule_chunks, data=64))
            return float(np.asarray(pipeline["num_overlap_buckets"])[0, 0])

        assert exposed_s(2) == 1.0 < exposed_s(1)


class TestParts:
    def test_layers_are_pieces_of_their_own(self) -> None:
        buckets = buckets_of(plan_of(pipeline=4, data=8, zero=2))
        assert buckets.gradients[0, 1:].tolist() == [4, 4, 5]
        # 0.52 billion weights of the embedding, which comes last, and 0.2 billion of each of four layers: 2.5 embeddings.
        assert buckets.gradients[0, 0] == 3

    @pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.GPIPE])
    def test_each_layer_of_the_last_reduction_has_a_latency_of_its_own(self, schedule: Schedule) -> None:
        plan = plan_of(tensor=8, pipeline=4, data=32, zero=2, schedule=schedule)
        group = ReplicaGroup.of_shared(rank_of(plan))
        one_s = float(group.reduce_scatter_s(np.array([[MODEL.dense_layer_parameters / 8]]))[0, 0])
        chunk_s = np.asarray(pipeline_of(plan)["gradient_sync_s"])[0, 1]
        whole_s = float(group.reduce_scatter_s(np.array([[4 * MODEL.dense_layer_parameters / 8]]))[0, 0])
        assert chunk_s >= 4 * one_s > whole_s
