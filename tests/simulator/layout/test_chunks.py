"""Do layers and weights stand where Megatron-LM puts them?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator import catalog
from simulator.domain.blocks import MixtureOfExperts
from simulator.domain.choices import StageLayers
from simulator.domain.model import ModelShape
from simulator.domain.plan import Schedule
from simulator.domain.workload import Workload
from simulator.layout.chunks import can_cut, can_split_evenly, chunk_weights, cuts_evenly, split_layers
from simulator.memory.peak import peak_memory
from tests.simulator.builders import changed, gpt, plan_of, table_of, training
from tests.simulator.vision import TOWER, with_tower


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


@given(layers=st.integers(1, 130), pipeline=st.integers(1, 32), virtual=st.integers(1, 8))
def test_every_layer_stands_on_one_chunk(layers: int, pipeline: int, virtual: int) -> None:
    plans, model = table_of(plan_of(pipeline=pipeline, virtual=virtual)), gpt(num_layers=layers)
    assume(can_cut(model, None, plans.pipeline_parallel * plans.virtual_pipeline)[0])
    chunks = split_layers(model, plans)
    assert chunks.num_layers.sum() == layers
    assert chunks.num_layers.min() >= 0
    assert np.ptp(chunks.num_layers) <= 1


@pytest.mark.parametrize(
    ("layers", "fits"),
    [(126, {1, 2, 3, 4, 6, 7, 8, 9, 14, 16, 18, 21, 32, 42, 63, 64, 126, 128}), (1, {1, 3})],
)
def test_layers_fit_divisors_of_their_number_and_of_two_more(layers: int, fits: set[int]) -> None:
    counts = np.arange(1, 300)
    assert set(counts[can_split_evenly(layers, counts)].tolist()) == fits
    assert set(counts[cuts_evenly(gpt(num_layers=layers), None, counts)].tolist()) == fits
    assert set(counts[can_cut(gpt(num_layers=layers), None, counts)].tolist()) == {
        *range(1, layers + 1),
        layers + 2,
    }


def test_layers_with_experts_stand_between_dense_ones() -> None:
    experts = MixtureOfExperts(num_experts=8, experts_per_token=1, expert_ffn_hidden_size=4096, layer_step=2)
    model = gpt(num_layers=10).model_copy(update={"experts": experts})
    chunks = split_layers(model, table_of(plan_of(pipeline=4)))
    # Layers 1 to 10 are cut into 2, 3, 3 and 2; those with even numbers have experts.
    assert chunks.num_expert_layers.tolist() == [[1, 1, 2, 1]]
    assert chunks.num_dense_layers.tolist() == [[1, 2, 1, 1]]
    assert (model.num_expert_layers, model.num_dense_layers) == (5, 5)
    leading = experts.model_copy(update={"num_dense_layers": 3})
    behind = split_layers(model.model_copy(update={"experts": leading}), table_of(plan_of(pipeline=4)))
    assert behind.num_expert_layers.tolist() == [[0, 1, 2, 1]]


@pytest.mark.parametrize(
    ("layers", "pipeline", "virtual", "cut"),
    [
        (9, 4, 1, [2, 2, 3, 2]),  # one layer over: not on the final stage, and as late as it can be
        (10, 4, 1, [2, 3, 3, 2]),  # the rule of two less, as for BLOOM
        (11, 4, 1, [2, 3, 3, 3]),  # three over: the final stage takes the third, the first never any
        (7, 5, 1, [1, 1, 2, 2, 1]),
        (5, 2, 1, [2, 3]),
        (61, 8, 1, [7, 7, 8, 8, 8, 8, 8, 7]),
        (61, 16, 1, [3, 3, *[4] * 13, 3]),
        (61, 16, 2, [1, 1, *[2] * 29, 1]),
        (40, 8, 3, [*[1] * 7, *[2] * 16, 1]),
    ],
)
def test_layers_that_remain_stand_on_the_last_chunks_but_the_final_one(
    layers: int, pipeline: int, virtual: int, cut: list[int]
) -> None:
    chunks = split_layers(gpt(num_layers=layers), table_of(plan_of(pipeline=pipeline, virtual=virtual)))
    assert chunks.num_layers.tolist() == [cut]


@given(layers=st.integers(2, 130), data=st.data())
def test_no_stage_but_the_final_one_is_lighter_than_an_earlier_one(layers: int, data: st.DataObject) -> None:
    pipeline = data.draw(st.integers(2, layers))
    cut = split_layers(gpt(num_layers=layers), table_of(plan_of(pipeline=pipeline))).num_layers[0]
    assert (np.diff(cut[:-1]) >= 0).all()
    assert cut[0] == layers // pipeline
    assert cut[-1] == cut[0] or (cut[1:] == cut[-1]).all()


def mixture(num_layers: int, num_dense_layers: int) -> ModelShape:
    """DeepSeek-V2 Lite with other numbers of layers."""
    model = catalog.model("deepseek-v2-lite")
    assert model.experts is not None
    experts = model.experts.model_copy(update={"num_dense_layers": num_dense_layers})
    return model.model_copy(update={"num_layers": num_layers, "experts": experts})


@given(
    layers=st.integers(1, 70),
    dense=st.integers(0, 70),
    pipeline=st.integers(1, 24),
    virtual=st.integers(1, 5),
    turns_back=st.booleans(),
    stage_layers=st.sampled_from([None, "balanced"]),
)
def test_every_stage_is_like_one_of_the_unlike_ones_that_is_not_behind_it(
    layers: int, dense: int, pipeline: int, virtual: int, turns_back: bool, stage_layers: StageLayers
) -> None:
    schedule = Schedule.ZB_V if turns_back and pipeline > 1 and virtual == 2 else Schedule.ONE_F_ONE_B
    # With a wider design in the same table, so that there are empty columns.
    plans = table_of(plan_of(pipeline=pipeline, virtual=virtual, schedule=schedule), plan_of(pipeline=layers))
    assume(can_cut(gpt(num_layers=layers), None, plans.pipeline_parallel * plans.virtual_pipeline)[0])
    chunks = split_layers(mixture(layers, min(dense, layers)), plans, stage_layers)

    def contents(stage: int) -> tuple[float, ...]:
        columns = (chunks.num_dense_layers, chunks.num_expert_layers, chunks.is_first, chunks.is_last)
        return tuple(chunks.on_stage(column, np.array([stage, 0]))[0] for column in columns)

    chosen = [int(stages[0]) for stages in chunks.unlike_stages()]
    for stage in range(pipeline):
        assert contents(stage) in [contents(other) for other in chosen if other <= stage]


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


@pytest.mark.parametrize("schedule", [Schedule.ZB_V, Schedule.DUAL_PIPE_V])
def test_chunks_of_a_v_go_there_and_back_and_both_ends_stand_on_the_first_stage(schedule: Schedule) -> None:
    # ZB-V (arXiv 2405.10980, figure 2): the last stage has two neighbouring chunks, the first one input and output.
    model = gpt(num_layers=8, has_tied_embeddings=True)
    there_and_back = plan_of(pipeline=4, virtual=2, schedule=schedule)
    plans = table_of(there_and_back, plan_of(pipeline=2, virtual=4), plan_of(pipeline=4))
    chunks = split_layers(model, plans)
    assert chunks.stages[0].tolist() == [0, 1, 2, 3, 3, 2, 1, 0]
    assert chunks.stages[1].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    # One copy of a tied embedding does for both ends of a V.
    in_v, round_and_round, plain = chunk_weights(model, plans, chunks).shared.sum(axis=1)
    assert in_v == model.num_parameters
    assert round_and_round == plain == model.num_parameters + 51_200 * 2048


def test_the_last_stage_looks_up_tokens_of_multi_token_prediction_in_a_copy() -> None:
    model = gpt(num_layers=8).model_copy(update={"num_mtp_layers": 1})
    alone, split = (
        chunk_weights(model, plans, split_layers(model, plans)).shared.sum()
        for plans in (table_of(plan_of()), table_of(plan_of(pipeline=4)))
    )
    assert alone == model.num_parameters
    assert split - alone == 51_200 * 2048


def test_an_end_that_is_no_more_than_a_share_has_a_layer_beside_it() -> None:
    # Input one, three layers, a module and the logits of both three: seven on two stages, of which four go to the last.
    model = gpt(num_layers=3).model_copy(update={"num_mtp_layers": 1})
    assert split_layers(model, table_of(plan_of(pipeline=2)), "balanced").num_layers.tolist() == [[2, 1]]


def test_several_stages_of_each_design_are_summed_up_at_once() -> None:
    chunks = split_layers(gpt(num_layers=6), table_of(plan_of(pipeline=4, virtual=2), plan_of(pipeline=2)))
    # As above, and three layers on each of two stages; there is no stage 9.
    stages = np.array([[0, 1], [1, 0], [9, 9]])
    assert chunks.on_stage(chunks.num_layers, stages).tolist() == [[1, 3], [2, 3], [0, 0]]


def test_dense_layers_of_a_mixture_of_experts_come_first() -> None:
    chunks = split_layers(catalog.model("deepseek-v3"), table_of(plan_of(pipeline=31)))
    # 61 layers, 3 of them dense (arXiv 2412.19437, section 4.2): one on the first stage, then two on each.
    assert chunks.num_dense_layers[0, :3].tolist() == [1, 2, 0]
    assert chunks.num_expert_layers.sum() == 58


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


@pytest.mark.parametrize(
    ("layers", "pipeline", "virtual", "cut"),
    [
        # Megatron Core counts embedding and loss as a layer each: (126 + 2) / 16 on every stage.
        (126, 16, 1, [7, *[8] * 14, 7]),
        (62, 4, 2, [7, *[8] * 6, 7]),
        (96, 8, 1, [11, 12, 12, 12, 12, 13, 13, 11]),  # 98 = 8 x 12 + 2; left to itself, 12 on every stage
        (4, 6, 1, [0, 1, 1, 1, 1, 0]),
        (61, 4, 2, [6, 8, 8, 8, 8, 8, 8, 7]),
        (7, 1, 1, [7]),
    ],
)
def test_balanced_stages_count_embedding_and_output_layer(
    layers: int, pipeline: int, virtual: int, cut: list[int]
) -> None:
    model, plans = gpt(num_layers=layers), table_of(plan_of(pipeline=pipeline, virtual=virtual))
    assert can_cut(model, "balanced", plans.pipeline_parallel * plans.virtual_pipeline)[0]
    assert split_layers(model, plans, "balanced").num_layers.tolist() == [cut]


def test_balanced_chunks_are_even_where_they_divide_layers_and_ends() -> None:
    counts, model = np.arange(1, 17), gpt(num_layers=13)
    assert counts[cuts_evenly(model, "balanced", counts)].tolist() == [1, 3, 5, 13, 15]  # 13 and 13 + 2
    # A module and its logits stand alone, and 14 are two on each of the other seven chunks.
    predicting = model.model_copy(update={"num_mtp_layers": 1})
    assert cuts_evenly(predicting, "balanced", counts)[7]
    assert not cuts_evenly(model, "balanced", counts)[7]


@pytest.mark.parametrize(
    ("layers", "counts", "pipeline", "virtual", "modules", "cut"),
    [
        # 94 + 10 + 2 = 8 x 13 + 2
        (94, 10, 8, 1, 0, [2, 13, 13, 13, 13, 14, 14, 12]),
        (94, 0, 8, 1, 0, [11, 12, 12, 12, 12, 12, 12, 11]),
        (38, 4, 2, 2, 0, [6, 11, 11, 10]),
        # An encoder that counts for more than its share has a chunk to itself.
        (12, 20, 4, 1, 0, [0, 4, 5, 3]),
        (46, 40, 8, 1, 0, [0, 6, 7, 7, 7, 7, 7, 5]),
        # So do two modules with their logits, where the encoder leaves less for each chunk.
        (8, 9, 5, 1, 2, [0, 2, 3, 3, 0]),
        (7, 3, 1, 1, 0, [7]),
    ],
)
def test_balanced_stages_count_a_vision_encoder_as_the_model_says(
    layers: int, counts: int, pipeline: int, virtual: int, modules: int, cut: list[int]
) -> None:
    model = with_tower(gpt(num_layers=layers), changed(TOWER, counts_as_layers=counts))
    model = changed(model, num_mtp_layers=modules)
    plans = table_of(plan_of(pipeline=pipeline, virtual=virtual))
    assert split_layers(model, plans, "balanced").num_layers.tolist() == [cut]
    assert split_layers(model, plans).num_layers.sum() == layers


@given(
    layers=st.integers(1, 130),
    counts=st.integers(0, 150),
    pipeline=st.integers(1, 32),
    virtual=st.integers(1, 4),
    modules=st.integers(0, 4),
)
def test_balanced_stages_have_all_layers_and_none_has_fewer_than_none(
    layers: int, counts: int, pipeline: int, virtual: int, modules: int
) -> None:
    plans = table_of(plan_of(pipeline=pipeline, virtual=virtual))
    model = with_tower(gpt(num_layers=layers), changed(TOWER, counts_as_layers=counts))
    model = changed(model, num_mtp_layers=modules)
    assume(can_cut(model, "balanced", plans.pipeline_parallel * plans.virtual_pipeline)[0])
    cut = split_layers(model, plans, "balanced").num_layers
    assert cut.sum() == layers
    assert cut.min() >= 0
    inner = cut[0, 1:-1]
    assert not len(inner) or np.ptp(inner) <= 1


def test_balanced_chunks_may_be_as_many_as_layers_and_ends() -> None:
    counts = np.arange(1, 9)
    assert counts[can_cut(gpt(num_layers=4), "balanced", counts)].tolist() == [1, 2, 3, 4, 5, 6]


def test_every_stage_of_a_list_may_be_the_only_one_of_its_kind() -> None:
    listed = (2, 5, 3, 4, 2, 1, 2)
    chunks = split_layers(gpt(num_layers=19), table_of(plan_of(pipeline=7)), listed)
    found = {int(chunks.on_stage(chunks.num_layers, stage)[0]) for stage in chunks.unlike_stages()}
    assert found == set(listed)


def test_listed_layers_stand_where_they_are_listed() -> None:
    model, listed = gpt(num_layers=10), (1, 5, 3, 1)
    plans = table_of(plan_of(pipeline=4), plan_of(pipeline=2, virtual=2))
    chunks = split_layers(model, plans, listed)
    assert chunks.num_layers.tolist() == [list(listed)] * 2
    assert chunks.on_stage(chunks.num_layers, np.array([1, 1])).tolist() == [5, 6]
    assert can_cut(model, listed, np.array([1, 2, 4, 8])).tolist() == [False, False, True, False]


def test_the_fullest_stage_of_a_list_needs_the_most_memory_wherever_it_is() -> None:
    job = training(gpt(num_layers=10), global_batch_size=64)
    plans = table_of(plan_of(pipeline=5))
    weights = [
        peak_memory(job, plans, split_layers(job.model, plans, listed)).weights_bytes[0]
        for listed in ((2, 2, 2, 2, 2), (1, 1, 1, 6, 1))
    ]
    layer_bytes = 2.0 * gpt(num_layers=10).dense_layer_parameters
    embedding_bytes = 2.0 * gpt(num_layers=10).embedding_parameters
    # The last stage of the even cut has the output layer, which is as large as the embedding.
    assert weights == pytest.approx([2 * layer_bytes + embedding_bytes, 6 * layer_bytes])


def test_a_list_that_loses_layers_is_refused() -> None:
    with pytest.raises(
        ValidationError, match=r"stage_layers add up to 9 and must add up to num_layers \(10\)"
    ):
        Workload(
            model=gpt(num_layers=10),
            tokens=1e9,
            sequence_length=128,
            global_batch_size=8,
            stage_layers=(4, 5),
        )
