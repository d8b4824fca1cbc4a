"""What does an indexer add to a model, and how far does attention to chosen tokens look?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator import catalog
from simulator.domain.attention_span import SlidingWindow, layer_spans
from simulator.domain.documents import Documents
from simulator.domain.model import ModelShape
from simulator.domain.workload import Workload
from tests.simulator.builders import changed, training
from tests.simulator.hybrids import NEMOTRON_H
from tests.simulator.sparse import DEEPSEEK_V3_2, DENSE, INDEXER, SMALL, with_indexer


def validated(model: ModelShape) -> ModelShape:
    return ModelShape.model_validate(model.model_dump())


class TestWeights:
    def test_products_and_the_norm_of_the_key_are_added_to_every_layer(self) -> None:
        """Queries from 1,536 values, the key and weights of 64 heads from 7,168; a norm with weights and biases."""
        of_one = 1536 * 64 * 128 + 7168 * (128 + 64) + 2 * 128
        plain = catalog.model("deepseek-v3")
        assert DEEPSEEK_V3_2.num_parameters - plain.num_parameters == 61 * of_one
        for name in ("dense_layer_whole_parameters", "expert_layer_whole_parameters"):
            assert getattr(DEEPSEEK_V3_2, name) - getattr(plain, name) == of_one

    def test_norms_take_part_in_no_product(self) -> None:
        plain = catalog.model("deepseek-v3")
        of_products = 1536 * 64 * 128 + 7168 * (128 + 64)
        assert DEEPSEEK_V3_2.num_matrix_parameters - plain.num_matrix_parameters == 61 * of_products

    def test_queries_come_from_the_residual_stream_where_they_have_no_latent(self) -> None:
        assert INDEXER.matrix_parameters(7168, 0) == 7168 * (64 * 128 + 128 + 64)

    @pytest.mark.parametrize(
        ("step", "leading", "layers", "number"),
        [
            (1, 0, 61, 61),
            (4, 3, 78, 21),  # GLM-5.2: 0, 1, 2, 6, 10, ..., 74
            (4, 0, 8, 2),  # the first one, and the fifth
            (4, 1, 8, 2),
            (4, 3, 2, 2),
            (3, 10, 10, 10),
        ],
    )
    def test_layers_share_an_indexer_as_in_megatron_core(
        self, step: int, leading: int, layers: int, number: int
    ) -> None:
        indexer = changed(INDEXER, layer_step=step, num_leading_layers=leading)
        assert indexer.num_among(layers) == number
        first = max(leading, 1)
        own = [layer for layer in range(1, layers + 1) if max(layer - first, 0) % step == 0]
        assert len(own) == number
        assert indexer.most_chunks(layers) == (number if number < layers else None)

    def test_weights_of_a_shared_indexer_are_the_mean_over_the_layers(self) -> None:
        shared = with_indexer(SMALL, changed(INDEXER, layer_step=2, num_leading_layers=4))
        assert shared.indexer_share == 6 / 8
        added = shared.num_parameters - DENSE.num_parameters
        of_one = INDEXER.matrix_parameters(DENSE.hidden_size, 768) + INDEXER.norm_parameters
        assert added == 6 * of_one

    def test_other_models_have_none(self) -> None:
        assert DENSE.indexer_share == 0.0
        assert catalog.model("llama-3.1-8b").indexer is None


class TestSpans:
    @given(st.integers(1, 400), st.integers(1, 300))
    def test_a_token_sees_no_more_than_are_chosen(self, length: int, chosen: int) -> None:
        model = with_indexer(DENSE, changed(INDEXER, chosen_tokens=chosen))
        seen = np.minimum(np.arange(1, length + 1), chosen).mean()
        shape = model.sequence_shape(length, None)
        assert shape.mean_span == pytest.approx(2.0 * seen, abs=1.0 + 1e-9)

    def test_kernels_compute_no_more_than_what_is_chosen(self) -> None:
        (span,) = layer_spans(SMALL.sequence_shape(8192, None))
        assert span.kernel_tokens == span.tokens == 1024 * (2 * 8192 - 1024) / 8192

    def test_the_indexer_sees_all_tokens_that_may_be_seen(self) -> None:
        assert SMALL.visible_shape(8192, None).mean_span == 8192.0
        packed = Documents(lengths_tokens=(2048,))
        assert SMALL.visible_shape(8192, packed).mean_span == 2048.0

    def test_flops_are_those_of_chosen_pairs_and_of_all_scores(self) -> None:
        """8 layers, 16 heads of the indexer with 128 values; scores of all pairs forward, gradients of chosen ones backward.

        Weights of the indexer count forward and for their own gradients.
        """
        length, span = 8192, 1024 * (2 * 8192 - 1024) / 8192
        weights = 4.0 * (SMALL.num_matrix_parameters - DENSE.num_matrix_parameters)
        attention = 3.0 * 8 * SMALL.num_heads * (192 + 128) * (span - length)
        scores = 8 * 2.0 * 16 * 128 * (length / 2 + 2 * span / 2)
        added = SMALL.model_flop_per_token(length) - DENSE.model_flop_per_token(length)
        assert added == pytest.approx(weights + attention + scores)


class TestRules:
    @pytest.mark.parametrize(
        ("change", "rule"),
        [
            ({"sliding_window": SlidingWindow(window_tokens=64)}, "excludes sliding_window"),
            ({"parallel_block": "one_norm"}, "excludes parallel_block"),
            ({"linear_attention": NEMOTRON_H.linear_attention}, "excludes linear_attention"),
        ],
    )
    def test_what_else_shortens_or_replaces_attention_is_refused(
        self, change: dict[str, object], rule: str
    ) -> None:
        with pytest.raises(ValidationError, match=rf"latent_attention.indexer {rule}; leave one of them out"):
            validated(changed(SMALL, **change))

    def test_no_more_layers_lead_than_there_are(self) -> None:
        broken = with_indexer(SMALL, changed(INDEXER, num_leading_layers=9))
        with pytest.raises(
            ValidationError, match=r"num_leading_layers \(9\) must not exceed num_layers \(8\)"
        ):
            validated(broken)

    @pytest.mark.parametrize(
        ("choice", "needed"),
        [
            ({"attention": "eager"}, "flash"),
            ({"attention": "flash-2"}, "flash"),
            ({"context_exchange": "ring"}, "all_gather"),
            ({"selective_recompute": "every_other_product"}, "attention"),
        ],
    )
    def test_what_its_kernels_do_not_have_is_refused(self, choice: dict[str, object], needed: str) -> None:
        (name, value), *_ = choice.items()
        rule = rf"{name} \({value}\) excludes latent_attention.indexer, .*; set {name}: {needed}"
        with pytest.raises(ValidationError, match=rule):
            Workload.model_validate({**dict(training(SMALL)), **choice})
        assert Workload.model_validate({**dict(training(DENSE)), **choice})

    def test_keys_are_made_for_every_head_whatever_their_number_is_said_to_be(self) -> None:
        assert training(changed(DENSE, num_kv_heads=4)).attended_kv_heads == DENSE.num_heads

    def test_keys_of_other_ranks_are_gathered(self) -> None:
        assert training(SMALL).chosen_exchange == "all_gather"
        assert training(DENSE).chosen_exchange == "ring"
        given = Workload.model_validate({**dict(training(SMALL)), "context_exchange": "all_gather"})
        assert given.chosen_exchange == "all_gather"
