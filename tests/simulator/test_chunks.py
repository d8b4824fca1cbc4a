"""Do layers and weights stand where Megatron-LM puts them?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simulator import catalog
from simulator.chunks import can_split_layers, chunk_weights, split_layers
from tests.simulator.builders import gpt, plan_of, table_of


@pytest.mark.parametrize(
    ("name", "pipeline", "virtual", "layers"),
    [
        ("bloom-176b", 12, 1, [5, *[6] * 10, 5]),  # arXiv 2211.05100
        ("llama-3.1-405b", 16, 1, [7, *[8] * 14, 7]),  # arXiv 2407.21783, section 3.3.2
        ("llama-3.1-405b", 16, 8, [0, *[1] * 126, 0]),  # the same: only embedding, only output layer
        ("gpt3-175b", 8, 1, [12] * 8),
        ("gpt3-175b", 8, 6, [2] * 48),  # MLPerf's layout
    ],
)
def test_published_models_are_cut_as_published(
    name: str, pipeline: int, virtual: int, layers: list[int]
) -> None:
    chunks = split_layers(catalog.model(name), table_of(plan_of(pipeline=pipeline, virtual=virtual)))
    assert chunks.num_layers.tolist() == [layers]


@given(layers=st.integers(1, 200), pipeline=st.integers(1, 32), virtual=st.integers(1, 8))
def test_every_layer_stands_on_one_chunk(layers: int, pipeline: int, virtual: int) -> None:
    assume(can_split_layers(layers, np.array([pipeline * virtual]))[0])
    plans = table_of(plan_of(pipeline=pipeline, virtual=virtual))
    chunks = split_layers(gpt(num_layers=layers), plans)
    assert chunks.num_layers.sum() == layers
    assert chunks.num_layers.min() >= 0
    assert np.ptp(chunks.num_layers) <= 1


@pytest.mark.parametrize(
    ("layers", "fits"),
    [(126, {1, 2, 3, 4, 6, 7, 8, 9, 14, 16, 18, 21, 32, 42, 63, 64, 126, 128}), (1, {1, 3})],
)
def test_layers_fit_divisors_of_their_number_and_of_two_more(layers: int, fits: set[int]) -> None:
    counts = np.arange(1, 300)
    assert set(counts[can_split_layers(layers, counts)].tolist()) == fits


def test_designs_of_different_width_share_a_table() -> None:
    plans = table_of(plan_of(pipeline=2), plan_of(pipeline=4, virtual=2), plan_of())
    chunks = split_layers(gpt(num_layers=8), plans)
    assert chunks.num_layers.tolist() == [[4, 4, *[0] * 6], [1] * 8, [8, *[0] * 7]]
    assert chunks.is_last.argmax(axis=1).tolist() == [1, 7, 0]
    assert chunks.is_first[:, 0].all()


def test_chunks_go_round_the_stages() -> None:
    chunks = split_layers(gpt(num_layers=6), table_of(plan_of(pipeline=4, virtual=2)))
    # Layers 0 1 1 1 1 1 1 0 on stages 0 1 2 3 0 1 2 3.
    on_stage = [chunks.on_stage(chunks.num_layers, np.array([stage]))[0] for stage in range(4)]
    assert on_stage == [1, 2, 2, 1]


def test_dense_layers_of_a_mixture_of_experts_come_first() -> None:
    model = catalog.model("deepseek-v3").model_copy(update={"num_layers": 62})
    chunks = split_layers(model, table_of(plan_of(pipeline=31)))
    assert chunks.num_dense_layers[0, :3].tolist() == [2, 1, 0]
    assert chunks.num_expert_layers.sum() == 59


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite", "bloom-7b1"])
def test_one_rank_holds_the_whole_model(name: str) -> None:
    plans, model = table_of(plan_of()), catalog.model(name)
    weights = chunk_weights(model, plans, split_layers(model, plans))
    assert weights.shared.sum() + weights.routed.sum() == model.num_parameters


def test_stages_hold_the_whole_model_together_whatever_else_splits_it() -> None:
    plans, model = table_of(plan_of(tensor=2, pipeline=4, expert=8, data=4)), catalog.model("mixtral-8x7b")
    weights = chunk_weights(model, plans, split_layers(model, plans))
    assert weights.routed.sum() == 32 * 8 * 3 * 4096 * 14_336  # experts of three matrices (arXiv 2401.04088)
    assert weights.shared.sum() + weights.routed.sum() == model.num_parameters


def test_the_last_stage_has_a_copy_of_a_tied_embedding() -> None:
    model = gpt(has_tied_embeddings=True)
    totals = []
    for pipeline in (1, 2):
        plans = table_of(plan_of(pipeline=pipeline))
        totals.append(chunk_weights(model, plans, split_layers(model, plans)).shared.sum())
    assert totals[0] == model.num_parameters
    assert totals[1] - totals[0] == 51_200 * 2048
