"""What does it cost to wait for gathered weights, and what does it spare?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.domain.choices import WeightPrefetch
from simulator.domain.workload import Workload
from simulator.layers.model_ends import embedding, output_layer
from simulator.machine.network import all_gather_s, reduce_scatter_s
from tests.simulator.builders import gpt, memory_of, plan_of, rank_of, step_of, training

MODEL = gpt(num_layers=8, hidden_size=4096, num_heads=32, vocabulary_size=1024)
WAYS: tuple[WeightPrefetch, ...] = ("both", "forward", "backward", "none")


def prefetching(way: WeightPrefetch) -> Workload:
    return training(MODEL, global_batch_size=64).model_copy(update={"weight_prefetch": way})


def test_a_pass_without_prefetch_waits_for_every_gather() -> None:
    plan = plan_of(data=8, zero=3)
    rank = rank_of(prefetching("none"), plan)
    both, forward, none = (
        step_of(prefetching(way), plan).shard_comm_s[0] for way in ("both", "forward", "none")
    )
    parts = [MODEL.embedding_parameters, *8 * [MODEL.dense_layer_parameters], MODEL.output_parameters]
    first_s, *others_s = (
        float(
            all_gather_s(num_bytes=2.0 * weights, group_size=8.0, members_per_domain=8.0, links=rank.links)[0]
        )
        for weights in parts
    )
    # Eight micro-batches; of hidden traffic 0.15 shows, the share of the cores that it takes (Calculon, arXiv 2311.02076).
    # The embedding is all that hides the first layer of a forward pass. The output layer is still whole when its backward
    # pass begins, and is all that hides the last layer.
    ends_s = float(embedding(rank).forward_s[0]), float(output_layer(rank).backward_s[0])
    layer_s, (shown_s, shown_back_s) = others_s[0], (beside_s(end_s, others_s[0]) for end_s in ends_s)
    assert none - forward == pytest.approx(8 * (layer_s - shown_s + 0.85 * sum(others_s[1:])))
    # Behind each gather that is waited for backward is the reduction of the part before; the embedding's shows in any case.
    reduced_s = [
        float(
            reduce_scatter_s(
                num_bytes=rank.workload.wire_bytes * weights,
                group_size=8.0,
                members_per_domain=8.0,
                links=rank.links,
            )[0]
        )
        for weights in parts[1:]
    ]
    hidden_s = reduced_s[0] - beside_s(float(embedding(rank).backward_s[0]), reduced_s[0])
    hidden_s += 0.85 * sum(reduced_s[1:])
    assert forward - both == pytest.approx(
        8 * (layer_s - shown_back_s + 0.85 * (first_s + 7 * layer_s) + hidden_s)
    )


def beside_s(part_s: float, traffic_s: float) -> float:
    return max(0.15 * min(part_s, traffic_s), traffic_s - part_s)


def test_without_prefetch_one_layer_less_is_whole() -> None:
    plan = plan_of(data=8, zero=3)
    both, forward, backward, none = (memory_of(prefetching(way), plan).workspace_bytes[0] for way in WAYS)
    assert both - none == pytest.approx(2 * MODEL.dense_layer_parameters)
    assert (forward, backward) == (none, both)


@given(
    zero=st.integers(0, 3),
    pipeline=st.sampled_from([1, 2]),
    data=st.sampled_from([8, 16, 64]),
    shards=st.sampled_from([None, 4]),
)
def test_prefetching_less_is_never_faster_and_never_larger(
    zero: int, pipeline: int, data: int, shards: int | None
) -> None:
    plan = plan_of(pipeline=pipeline, data=data, zero=zero, shards=shards if zero else None)
    both, forward, backward, none = (step_of(prefetching(way), plan).step_time_s[0] for way in WAYS)
    assert both <= min(forward, backward) * (1 + 1e-12)
    assert max(forward, backward) <= none * (1 + 1e-12)
    assert memory_of(prefetching("none"), plan).peak_bytes <= memory_of(prefetching("both"), plan).peak_bytes
    if zero < 3:
        assert both == none
