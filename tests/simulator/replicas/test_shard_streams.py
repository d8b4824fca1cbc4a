"""What FSDP2 copies and casts on its streams of collectives, against counts by hand of `_fsdp_collectives.py`."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.deep.plans.plan_step import parts_and_shape
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.hardware import Precision
from simulator.domain.model import ModelShape
from simulator.domain.plan import Plan
from simulator.domain.workload import Workload
from simulator.layout.chunks import ChunkWeights, split_layers
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.replicas.replica_sync import ReplicaTraffic
from simulator.replicas.shard_streams import stream_copies_s
from simulator.step.model_parts import ModelParts
from simulator.step.parts import Part
from simulator.step.step import simulate_step
from tests.simulator.builders import gpt, job_of, plan_of, table_of, training

MODEL = gpt(num_layers=8, hidden_size=4096, num_heads=32, vocabulary_size=1024)
EXPERTS = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_ffn_hidden_size=4096)
MIXTURE = MODEL.model_copy(update={"experts": EXPERTS})
FSDP_2 = training(MODEL, global_batch_size=64).model_copy(update={"sharded_copies": "fsdp-2"})


def copies_of(
    plan: Plan, shared: float, routed: float = 0.0, workload: Workload = FSDP_2
) -> tuple[float, float]:
    """Bytes moved with a gather and with a reduction of weights, launches left out."""
    rank = Rank.of(job_of(workload), table_of(plan))
    columns = ChunkWeights(shared=np.array([[shared]]), routed=np.array([[routed]]))
    copies = stream_copies_s(rank, StepWeights(trained=columns))
    rate = 3.35e12 * float(rank.kernels.memory_fraction[0])
    launch_s = float(rank.kernels.launch_s[0])
    ahead, behind = (float(each[0, 0]) for each in copies)
    kinds = 1 + (routed > 0.0)
    return (ahead - 2 * kinds * launch_s) * rate, (behind - kinds * launch_s) * rate


# Sixteen micro-batches: cast 4 + 2, copy 2 + 2; sum 4 + 4 + 4 in fifteen of them. Gradients on the wire in 16 bits are cast.
@pytest.mark.parametrize(("sync_bytes", "cast"), [(4, 0), (2, 2 + 4)])
@pytest.mark.parametrize("zero", [2, 3])
def test_a_share_is_cast_copied_and_added_up(zero: int, sync_bytes: int, cast: float) -> None:
    workload = FSDP_2.model_copy(update={"sync_bytes": sync_bytes, "regathers_weights": True})
    ahead, behind = copies_of(plan_of(tensor=2, data=4, zero=zero), 8e9, workload=workload)
    assert ahead == pytest.approx((4 + 2 + 2 + 2) * 8e9 / 2 / 4)
    assert behind == pytest.approx((cast + 12 * 15 / 16) * 8e9 / 2 / 4)


def test_weights_of_experts_are_shared_by_fewer_ranks() -> None:
    workload = training(MIXTURE, global_batch_size=64).model_copy(update={"sharded_copies": "fsdp-2"})
    ahead, behind = copies_of(plan_of(expert=4, data=8, zero=3), 8e9, 16e9, workload)
    share = 8e9 / 8 + 16e9 / 4 / 2
    assert ahead == pytest.approx(10 * share)
    assert behind == pytest.approx(12 * 7 / 8 * share)


def test_weights_of_experts_that_one_rank_owns_alone_are_not_copied() -> None:
    workload = training(MIXTURE, global_batch_size=64).model_copy(update={"sharded_copies": "fsdp-2"})
    plan = plan_of(expert=8, data=8, zero=3)
    rank = Rank.of(job_of(workload), table_of(plan))
    few, many = (
        stream_copies_s(
            rank,
            StepWeights(trained=ChunkWeights(shared=np.full((1, 1), 8e9), routed=np.full((1, 1), routed))),
        )
        for routed in (0.0, 16e9)
    )
    assert few == many


def test_gradients_of_sixteen_bits_are_added_up_in_them() -> None:
    workload = FSDP_2.model_copy(update={"gradient_bytes": 2})
    ahead, behind = copies_of(plan_of(data=4, zero=3), 8e9, workload=workload)
    assert ahead == pytest.approx(8 * 2e9)
    assert behind == pytest.approx(6 * 15 / 16 * 2e9)


@pytest.mark.parametrize(("precision", "per_weight"), [(Precision.BF16, 10), (Precision.FP8, 2)])
def test_shares_that_are_cast_to_8_bits_ahead_are_cast_to_16_in_other_formats(
    precision: Precision, per_weight: int
) -> None:
    # Copied with one byte a weight in and out, without the cast; see `simulator.replicas.cast_weights`.
    workload = FSDP_2.model_copy(update={"gathers_cast_weights": True})
    ahead, _ = copies_of(plan_of(data=4, zero=3, precision=precision), 8e9, workload=workload)
    assert ahead == pytest.approx(per_weight * 8e9 / 4)


def test_an_embedding_is_never_cast_to_8_bits() -> None:
    workload = FSDP_2.model_copy(update={"gathers_cast_weights": True})
    rank = Rank.of(job_of(workload), table_of(plan_of(data=4, zero=3, precision=Precision.FP8)))
    weights = ChunkWeights(shared=np.array([[8e9]]), routed=np.array([[0.0]]), never_cast=np.array([[8e9]]))
    ahead_s = float(stream_copies_s(rank, StepWeights(trained=weights))[0][0, 0])
    rate = 3.35e12 * float(rank.kernels.memory_fraction[0])
    assert ahead_s == pytest.approx(10 * 8e9 / 4 / rate, rel=0.01)


@pytest.mark.parametrize(
    "plan", [plan_of(zero=3), plan_of(data=8, zero=1), plan_of(pipeline=2, data=4, zero=2)]
)
def test_there_are_none_where_passes_share_nothing(plan: Plan) -> None:
    rank = Rank.of(job_of(FSDP_2), table_of(plan))
    columns = ChunkWeights(shared=np.array([[8e9]]), routed=np.array([[0.0]]))
    assert not any(each.any() for each in stream_copies_s(rank, StepWeights(trained=columns)))


def step_s(plan: Plan, **changes: object) -> float:
    workload = FSDP_2.model_copy(update=changes)
    rank = Rank.of(job_of(workload), table_of(plan))
    return float(simulate_step(rank, split_layers(workload.model, rank.plans)).step_time_s[0])


def test_they_show_where_traffic_does() -> None:
    plan = plan_of(data=8, zero=3)
    rank = Rank.of(job_of(FSDP_2), table_of(plan))
    columns = ChunkWeights(shared=np.array([[float(MODEL.num_parameters)]]), routed=np.array([[0.0]]))
    ahead_s, behind_s = (each[0, 0] for each in stream_copies_s(rank, StepWeights(trained=columns)))
    hidden_s, shown_s = (
        step_s(plan, sharded_copies="fsdp-2", weight_prefetch=way)
        - step_s(plan, sharded_copies="none", weight_prefetch=way)
        for way in ("both", "none")
    )
    # Gathers that nothing hides are longer by their copies in both passes of the eight micro-batches.
    assert shown_s - hidden_s > 0.6 * 8 * 2 * ahead_s
    assert shown_s - hidden_s < 1.1 * 8 * (2 * ahead_s + behind_s)


@pytest.mark.parametrize("model", [MODEL, MIXTURE])
def test_the_deep_depth_takes_as_long(model: ModelShape) -> None:
    workload = training(model, global_batch_size=64).model_copy(update={"sharded_copies": "fsdp-2"})
    plan = plan_of(tensor=2, data=4, zero=3)
    deep, _ = parts_and_shape(job_of(workload), plan)
    parts = ModelParts.of(deep.rank, deep.chunks)
    traffic = ReplicaTraffic.of(deep.rank, parts.weights)
    kind = Part.DENSE if model is MODEL else Part.EXPERT
    place = parts.kinds.index(kind)
    gathered_s = sum(each.alone_s for each in deep.part_gathers(kind))
    reduced_s = sum(each.alone_s for each in deep.part_reductions(kind))
    assert gathered_s == pytest.approx(float(traffic.forward_s[0, place]))
    assert gathered_s + reduced_s == pytest.approx(float(traffic.backward_s[0, place]))
