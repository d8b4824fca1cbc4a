"""How many weights do hyper-connections have, and what do they exclude? Counts of DeepSeek-V4-Flash by hand."""

from __future__ import annotations

import pytest

from simulator.domain.hyper_connections import HyperConnections
from simulator.domain.lora import Lora
from simulator.domain.model import ModelShape
from tests.simulator.builders import changed, training
from tests.simulator.streams import FOUR_STREAMS, LATENT_STREAMS, MIXED_STREAMS, PLAIN, STREAMS


def test_the_coefficients_are_those_of_the_published_checkpoint() -> None:
    """`hc_attn_fn` of DeepSeek-V4-Flash: (24, 16384), with 24 biases and 3 factors; `hc_head_fn`: (4, 16384), 4 and 1."""
    assert FOUR_STREAMS.num_coefficients == 24
    assert FOUR_STREAMS.matrix_parameters(4096) == 24 * 16_384
    assert FOUR_STREAMS.other_parameters == 24 + 3
    assert FOUR_STREAMS.output_matrix_parameters(4096) == 4 * 16_384
    assert FOUR_STREAMS.other_output_parameters == 4 + 1


@pytest.mark.parametrize("num_modules", [0, 2])
@pytest.mark.parametrize("streams", [2, 4])
def test_both_blocks_of_every_layer_and_the_end_of_the_model_have_their_own(
    num_modules: int, streams: int
) -> None:
    plain = changed(PLAIN, num_mtp_layers=num_modules)
    hyper = changed(plain, hyper_connections=HyperConnections(num_streams=streams))
    h, n = PLAIN.hidden_size, streams
    of_block, of_end = (n * n + 2 * n) * n * h + n * n + 2 * n + 3, n * n * h + n + 1
    added = 2 * (8 + num_modules) * of_block + (1 + num_modules) * of_end
    assert hyper.num_parameters - plain.num_parameters == added


def test_biases_take_part_in_no_product_and_modules_multiply_every_stream() -> None:
    plain = changed(PLAIN, num_mtp_layers=1)
    hyper = changed(STREAMS, num_mtp_layers=1)
    h = PLAIN.hidden_size
    products = 2 * 9 * 24 * 4 * h + 2 * 4 * 4 * h
    added = products + 3 * h * h
    assert hyper.num_matrix_parameters - plain.num_matrix_parameters == added
    flop = hyper.model_flop_per_token(4096) - plain.model_flop_per_token(4096)
    assert flop == pytest.approx(6 * added)


@pytest.mark.parametrize("model", [STREAMS, MIXED_STREAMS, LATENT_STREAMS])
def test_every_tensor_parallel_rank_has_the_coefficients_whole(model: ModelShape) -> None:
    one = changed(model, hyper_connections=None)
    assert model.connection_parameters == 2 * (24 * 4 * model.hidden_size + 27)
    assert (
        model.dense_layer_whole_parameters - one.dense_layer_whole_parameters == model.connection_parameters
    )
    assert model.stream_width == 4 * one.stream_width == 4 * model.hidden_size


def test_blocks_that_read_the_same_input_are_refused() -> None:
    with pytest.raises(ValueError, match="hyper_connections excludes parallel_block"):
        ModelShape.model_validate({**STREAMS.model_dump(), "parallel_block": "one_norm"})


@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        ({"checkpoints_norms": True}, "checkpoints_norms excludes hyper_connections"),
        ({"recompute_modules": ("mhc", "mlp")}, "mhc excludes mlp"),
        (
            {"recompute_modules": ("mhc",), "activation_offload_fraction": 0.5},
            r"activation_offload_fraction \(0.5\) excludes recompute_modules mhc",
        ),
        ({"lora": Lora(rank=16)}, "lora is modelled for a residual of one stream"),
    ],
)
def test_what_excludes_hyper_connections_is_told(choices: dict[str, object], rule: str) -> None:
    workload = training(STREAMS)
    with pytest.raises(ValueError, match=rule):
        type(workload).model_validate({**dict(workload), **choices})


def test_their_recomputation_needs_them() -> None:
    workload = training(PLAIN)
    with pytest.raises(ValueError, match="recompute_modules mhc needs hyper_connections"):
        type(workload).model_validate({**dict(workload), "recompute_modules": ("mhc",)})
