"""Are the matrices of a model all of its weights but those that are no matrices of layers?"""

from __future__ import annotations

import pytest

from simulator import catalog
from simulator.catalog.files import model_document
from simulator.domain.hyper_connections import HyperConnections
from simulator.domain.model import ModelShape
from simulator.layout.matrices import (
    Split,
    dense_matrices,
    end_matrix,
    module_matrices,
    num_expert_vectors,
    num_layer_vectors,
    num_matrix_weights,
    routed_matrices,
    shared_matrices,
)
from tests.simulator.builders import changed, gpt
from tests.simulator.hybrids import KIMI_LINEAR, NEMOTRON_H, QWEN_3_NEXT


def others(model: ModelShape) -> float:
    """Weights of a model that are no matrices of its layers: ends, norms, biases, and what states and convolutions have."""
    ends = (
        model.embedding_parameters + model.output_parameters - model.hidden_size
    )  # its norm is among the norms
    num_blocks = model.num_layers + model.num_mtp_layers
    num_expert = model.num_expert_layers + model.has_expert_modules * model.num_mtp_layers
    found = float(ends + model.norm_parameters)
    if model.experts:
        found += num_expert * model.experts.num_experts * model.expert_bias_parameters
    if linear := model.linear_attention:
        entering = linear.entering_width * model.hidden_size if linear.kind == "mamba-2" else 0
        found += num_blocks * model.linear_share * (linear.other_parameters() + entering)
    if hyper := model.hyper_connections:  # biases and factors; products that make coefficients are matrices
        found += num_blocks * model.num_blocks_in_turn * hyper.other_parameters
        found += model.num_mtp_layers * model.contraction_parameters
    if model.compressed_attention:
        found += num_blocks * model.compressed_attention.other_parameters(model)
    if model.indexer:
        found += num_blocks * model.indexer_share * model.indexer.norm_parameters
    return found


@pytest.mark.parametrize("name", list(model_document()))
def test_matrices_and_the_rest_are_all_weights(name: str) -> None:
    model = catalog.model(name)
    assert num_matrix_weights(model) + others(model) == pytest.approx(model.num_parameters, abs=1.0)


def test_a_module_has_a_projection_and_a_layer() -> None:
    model = catalog.model("deepseek-v3")
    with_module = changed(model, num_mtp_layers=1)
    assert module_matrices(model) == ()
    (projection,) = module_matrices(with_module)
    assert projection.num_weights == 2 * 7168**2
    assert projection.split is Split.ROWS
    of_layer = sum(
        each.per_layer * each.num_weights for each in (*shared_matrices(model), *routed_matrices(model))
    )
    assert num_matrix_weights(with_module) - num_matrix_weights(model) == of_layer + 2 * 7168**2


def test_queries_keys_and_values_are_one_matrix_of_three_pieces() -> None:
    out, first, into, out_of = dense_matrices(catalog.model("llama-3.1-70b"))
    assert (first.pieces, first.columns, first.split) == ((8192.0, 1024.0, 1024.0), 8192.0, Split.ROWS)
    assert (out.rows, out.columns, out.split) == (8192.0, 8192.0, Split.COLUMNS)
    assert (into.pieces, into.split) == ((2.0 * 28672,), Split.ROWS)  # both inputs of a gated block
    assert (out_of.columns, out_of.split) == (28672.0, Split.COLUMNS)


def test_a_gate_of_attention_is_a_piece_of_its_own() -> None:
    gated = changed(gpt(), has_output_gate=True)
    assert len(dense_matrices(gated)[1].pieces) == 4
    assert dense_matrices(gated)[1].rows == dense_matrices(gpt())[1].rows + gpt().gate_width + 2048


def test_latents_routers_and_indexers_are_whole_on_every_rank() -> None:
    model = catalog.model("deepseek-v3.2")
    whole = [each for each in shared_matrices(model) if each.split is Split.NONE]
    weights = sum(each.per_layer * each.num_weights for each in whole)
    norms = model.indexer_share * model.indexer.norm_parameters if model.indexer else 0
    assert weights + norms == pytest.approx(model.expert_layer_whole_parameters)


def test_mamba_leaves_its_first_product_to_adam() -> None:
    linear = NEMOTRON_H.linear_attention
    assert linear is not None
    rows = {each.rows for each in dense_matrices(NEMOTRON_H)}
    assert linear.entering_width not in rows
    assert any(each.columns == linear.value_width for each in dense_matrices(NEMOTRON_H))


def test_decays_and_gates_are_raised_from_latents_that_are_whole() -> None:
    linear = KIMI_LINEAR.linear_attention
    assert linear is not None
    low = [each for each in dense_matrices(KIMI_LINEAR) if linear.low_rank in (each.rows, each.columns)]
    assert sorted(each.split.name for each in low) == ["NONE", "NONE", "ROWS", "ROWS"]


def test_experts_are_one_matrix_each() -> None:
    model = catalog.model("mixtral-8x7b")
    assert [each.per_layer for each in routed_matrices(model)] == [8.0, 8.0]
    assert (
        routed_matrices(catalog.model("llama-3.1-8b")) == shared_matrices(catalog.model("llama-3.1-8b")) == ()
    )


def test_an_end_has_a_row_for_every_word() -> None:
    assert end_matrix(gpt()).num_weights == 51_200 * 2048


def test_coefficients_of_streams_are_made_by_matrices() -> None:
    """Two blocks of a layer, each with (n² + 2 n) x n h weights (Megatron Core, `mapping_proj` of `hyper_connection.py`)."""
    last = shared_matrices(catalog.model("deepseek-v4-flash"))[-1]
    assert (last.rows, last.columns, last.split, last.per_layer) == (24.0, 4 * 4096.0, Split.NONE, 2.0)
    assert dense_matrices(catalog.model("deepseek-v4-flash"))[-1] == last


def test_an_indexer_is_registered_ahead_of_what_it_chooses_for() -> None:
    first, *_ = shared_matrices(catalog.model("deepseek-v3.2"))
    assert (first.rows, first.columns) == (64 * 128.0, 1536.0)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("llama-3.1-8b", 2.0),  # two norms
        ("qwen3-30b-a3b", 4.0),  # and those of queries and keys
        ("deepseek-v3", 4.0),  # and those of latents
        ("deepseek-v3.2", 6.0),  # and weight and bias of that of the indexer's key
    ],
)
def test_vectors_of_a_layer(name: str, number: float) -> None:
    assert num_layer_vectors(catalog.model(name)) == pytest.approx(number)


def test_vectors_of_streams_and_of_linear_attention() -> None:
    flash = catalog.model("deepseek-v4-flash")
    without = changed(flash, hyper_connections=None)
    # Three factors and the biases, of two blocks.
    assert num_layer_vectors(flash) - num_layer_vectors(without) == pytest.approx(2 * 4)
    # Convolution and its bias, A, D, the bias of dt, a norm; without D and the first bias; three convolutions instead of one.
    for model, number in ((NEMOTRON_H, 6), (QWEN_3_NEXT, 4), (KIMI_LINEAR, 6)):
        expected = model.num_layer_norms + number * model.linear_share
        of_attention = {"per_head": 2, None: int(model.latent_attention is not None)}[model.qk_norm]
        assert num_layer_vectors(model) == pytest.approx(expected + model.attention_share * of_attention)


def test_vectors_of_attention_to_compressed_tokens() -> None:
    """Two norms and sinks; two compressors in a layer that chooses, one in a heavy one, each with a norm and positions."""
    flash = changed(catalog.model("deepseek-v4-flash"), hyper_connections=None)
    compressed = flash.compressed_attention
    assert compressed is not None
    of_compressors = 4 * compressed.num_chosen_layers + 2 * compressed.num_heavy_layers
    assert num_layer_vectors(flash) == pytest.approx(2 + 3 + of_compressors / flash.num_layers)


def test_experts_with_biases_have_two_vectors_each() -> None:
    assert num_expert_vectors(catalog.model("gpt-oss-120b")) == 2 * 128
    assert num_expert_vectors(catalog.model("mixtral-8x7b")) == num_expert_vectors(gpt()) == 0


def test_a_module_with_hyper_connections_has_two_projections() -> None:
    streams = HyperConnections(num_streams=4, sinkhorn_iterations=20)
    model = changed(gpt(), num_mtp_layers=1, hyper_connections=streams)
    embedded, hidden = module_matrices(model)
    assert embedded == hidden
    assert (embedded.rows, embedded.columns, embedded.split) == (2048.0, 2048.0, Split.ROWS)
