"""How many weights and operations does DeepSeek-V4's attention have, and what does a token see? Counts, published totals."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import catalog
from simulator.domain.compressed_attention import LayerKind
from simulator.domain.documents import Documents
from simulator.domain.lora import Lora
from simulator.domain.model import ModelShape
from tests.simulator.builders import changed, gpt, training
from tests.simulator.compressed import DENSE, FLASH, FLASH_ATTENTION, of_one_kind

LENGTH = 8192


def seen_by_hand(length: int, *, window: int, ratio: int, chosen: int | None) -> tuple[float, float]:
    """Means over the places of a sequence: tokens in the window, and compressed ones of whole groups before."""
    place = np.arange(length)
    groups = (place + 1) // ratio
    seen = groups if chosen is None else np.minimum(groups, chosen)
    return float(np.minimum(place + 1, window).mean()), float(seen.mean())


class TestWeights:
    @pytest.mark.parametrize(
        ("name", "total", "active"),
        [("deepseek-v4-flash", 284e9, 13e9), ("deepseek-v4-pro", 1.6e12, 49e9)],
    )
    def test_they_are_those_that_deepseek_publishes(self, name: str, total: float, active: float) -> None:
        """Without modules of multi-token prediction, and without the embedding, which is looked up."""
        model = catalog.model(name)
        assert model.num_parameters == pytest.approx(total, rel=0.02)
        looked_up = model.vocabulary_size * model.hidden_size
        assert model.num_active_parameters - looked_up == pytest.approx(active, rel=0.025)

    def test_every_kind_of_layer_has_its_own(self) -> None:
        """Shapes of the checkpoint of DeepSeek-V4-Flash, as transformers' modules have them."""
        shared = 4096 * 1024 + 1024 * 32_768 + 4096 * 512 + 8 * 4096 * 1024 + 8192 * 4096
        norms = 1024 + 512 + 64  # of queries, of the key, and the sinks
        heavy = 2 * 4096 * 512 + 128 * 512 + 512
        keys = 2 * 4096 * 1024 + 4 * 1024 + 512
        indexer = 1024 * 8192 + 4096 * 64 + 2 * 4096 * 256 + 4 * 256 + 128
        kinds = {
            shared + norms: of_one_kind(FLASH),
            shared + norms + heavy: of_one_kind(FLASH, heavy=True),
            shared + norms + keys + indexer: of_one_kind(FLASH, chosen=True),
        }
        for expected, model in kinds.items():
            assert model.mixing_parameters == expected
        mean = (2 * shared + 20 * (shared + heavy) + 21 * (shared + keys + indexer)) / 43 + norms
        assert FLASH.mixing_parameters == pytest.approx(mean)

    def test_products_are_within_five_percent_of_maxtext(self) -> None:
        """`test_deepseek4_284b_flops` of MaxText (pull request 4410), which allows 5 % as well."""
        h, a, d, q, v = 4096, 64, 512, 1024, 129_280
        attention = h * q + q * a * d + h * d + a * d * 1024 + 8 * 1024 * h
        k = 4
        streams = 2 * (k * h + 2 * (k * h * k + 1 + k) + k * h * k * k + 1 + k * k)
        experts = h * 256 + 7 * 3 * h * 2048
        chosen = h * 2 * d + q * 64 * 128 + h * 64 + h * 2 * 128
        active = v * h + 43 * (attention + streams + experts) + 20 * h * d + 21 * chosen
        assert FLASH.num_matrix_parameters == pytest.approx(active, rel=0.05)


class TestPairs:
    @pytest.mark.parametrize("length", [512, 4096, 65_536])
    def test_a_token_sees_a_window_and_whole_groups_before_it(self, length: int) -> None:
        """Places of `_get_compress_valid_counts_cached` of Megatron Core; here a group counts as it fills."""
        pairs = FLASH_ATTENTION.pairs(43, length, None)
        for ratio, chosen, found in (
            (4, 512, pairs.chosen),
            (4, None, pairs.visible),
            (128, None, pairs.heavy),
        ):
            window, compressed = seen_by_hand(length, window=128, ratio=ratio, chosen=chosen)
            assert pairs.window == pytest.approx(window, abs=0.6)
            assert found == pytest.approx(compressed, abs=0.6)

    def test_documents_see_themselves_alone(self) -> None:
        packed = FLASH_ATTENTION.pairs(43, LENGTH, Documents(lengths_tokens=(1024,)))
        assert packed == pytest.approx(FLASH_ATTENTION.pairs(43, 1024, None))

    @pytest.mark.parametrize(("kind", "places"), [("window", 128.0), ("chosen", 640.0), ("heavy", 192.0)])
    def test_kernels_have_a_place_for_all_that_is_seen(self, kind: LayerKind, places: float) -> None:
        assert FLASH_ATTENTION.num_places(kind, LENGTH) == places
        assert FLASH_ATTENTION.num_places(kind, 64) <= 128


class TestOperations:
    def test_they_are_those_of_products_pairs_and_scores(self) -> None:
        """Three times 2 x 64 heads x 2 x 512 for a pair, mean over the layers; scores once, and twice for the chosen ones."""
        (window, chosen), (_, heavy) = (
            seen_by_hand(LENGTH, window=128, ratio=ratio, chosen=k) for ratio, k in ((4, 512), (128, None))
        )
        visible = seen_by_hand(LENGTH, window=128, ratio=4, chosen=None)[1]
        attention = 3 * 4 * 64 * 512 * (43 * window + 21 * chosen + 20 * heavy)
        scores = 21 * 2 * 64 * 128 * (visible + 2 * chosen)
        indexers = 21 * (1024 * 8192 + 4096 * 64 + 2 * 4096 * 256)
        expected = 6 * FLASH.num_matrix_parameters - 2 * indexers + attention + scores
        assert FLASH.model_flop_per_token(LENGTH) == pytest.approx(expected, rel=1e-3)

    @pytest.mark.parametrize("longer", [2, 8])
    def test_they_grow_more_slowly_than_the_length(self, longer: int) -> None:
        short, long = (FLASH.model_flop_per_token(n) for n in (LENGTH, longer * LENGTH))
        assert short < long < 1.1 * longer**0.5 * short


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"num_kv_heads": 2}, r"num_kv_heads \(2\) must be 1"),
        ({"qk_norm": "per_head"}, "compressed_attention excludes qk_norm"),
        ({"sliding_window": {"window_tokens": 128}}, "compressed_attention excludes sliding_window"),
        ({"num_layers": 6}, r"\(7 together\) must not exceed num_layers \(6\)"),
        ({"num_heads": 12}, r"output_groups \(8\) must divide num_heads \(12\)"),
        ({"head_dim": 32}, r"rope_head_dim \(64\) must not exceed head_dim \(32\)"),
    ],
)
def test_what_contradicts_it_is_told(fields: dict[str, object], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        ModelShape.model_validate({**DENSE.model_dump(), **fields})


@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        ({"attention": "unfused"}, r"attention \(unfused\) excludes compressed_attention"),
        ({"selective_recompute": "every_other_product"}, "whose core is never computed again"),
        ({"lora": Lora(rank=16)}, "not for compressed_attention"),
    ],
)
def test_what_a_run_cannot_have_beside_it_is_told(choices: dict[str, object], rule: str) -> None:
    workload = training(DENSE)
    with pytest.raises(ValueError, match=rule):
        type(workload).model_validate({**dict(workload), **choices})


def test_its_core_is_never_computed_again() -> None:
    workload = training(DENSE)
    assert workload.recomputes_nothing
    assert not changed(workload, recompute_modules=("core_attn", "mla_up_proj")).recomputes_nothing
    assert not training(gpt()).recomputes_nothing
