"""Do published `config.json` files of models with an indexer give their shapes, and otherwise one sentence?"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator import catalog
from simulator.domain.token_indexer import TokenIndexer
from simulator.errors import InputError
from simulator.huggingface.shape import shape_from_config
from tests.simulator.published_indexers import DEEPSEEK_V3_2, GLM_5, GLM_5_2

Config = dict[str, Any]
SHARING_KEYS = ("indexer_types", "index_topk_freq", "index_skip_topk_offset")


def indexer_of(config: Config) -> TokenIndexer:
    found = shape_from_config(config, "a model").indexer
    assert found
    return found


def without(config: Config, *keys: str) -> Config:
    return {key: value for key, value in config.items() if key not in keys}


@pytest.mark.parametrize(
    ("config", "name"),
    [(DEEPSEEK_V3_2, "deepseek-v3.2"), (GLM_5, "glm-5"), (GLM_5_2, "glm-5.2")],
)
def test_a_config_gives_the_indexer_that_the_catalogue_has(config: Config, name: str) -> None:
    known = catalog.model(name)
    assert shape_from_config(config, known.name).model_copy(update={"source": known.source}) == known


@pytest.mark.parametrize("left", SHARING_KEYS[:2])
def test_layers_with_an_indexer_are_told_by_a_list_or_by_their_distance(left: str) -> None:
    gone = SHARING_KEYS[:1] if left == "index_topk_freq" else SHARING_KEYS[1:]
    assert indexer_of(without(GLM_5_2, *gone)) == indexer_of(GLM_5_2)


def test_a_pattern_of_letters_says_the_same_as_a_list() -> None:
    letters = "".join("F" if name == "full" else "S" for name in GLM_5_2["indexer_types"])
    config = without(GLM_5_2, *SHARING_KEYS) | {"index_topk_pattern": letters}
    assert indexer_of(config) == indexer_of(GLM_5_2)


def test_leading_layers_are_two_where_a_file_has_a_distance_alone() -> None:
    config = without(GLM_5_2, "indexer_types", "index_skip_topk_offset")
    assert indexer_of(config).num_leading_layers == 2  # `GlmMoeDsaConfig`


def test_a_distance_of_0_is_one_of_1() -> None:
    """`GlmMoeDsaConfig.__post_init__` of transformers 5.24: `max(index_topk_freq, 1)`."""
    config = without(GLM_5_2, "indexer_types")
    zero, one = (indexer_of(config | {"index_topk_freq": step}) for step in (0, 1))
    assert zero == one
    assert (zero.layer_step, zero.num_leading_layers) == (1, 0)


@pytest.mark.parametrize("names", [["full"] * 78, None])
def test_a_file_without_sharing_has_an_indexer_in_every_layer(names: list[str] | None) -> None:
    indexer = indexer_of(GLM_5 | {"indexer_types": names, "index_skip_topk_offset": 3})
    assert (indexer.layer_step, indexer.num_leading_layers) == (1, 0)


def test_a_cut_list_may_end_before_the_next_indexer() -> None:
    config = without(GLM_5_2, *SHARING_KEYS[1:], "mlp_layer_types") | {"num_hidden_layers": 5}
    indexer = indexer_of(config | {"indexer_types": ["full"] * 3 + ["shared"] * 2})
    assert [indexer.num_among(layers) for layers in range(1, 6)] == [1, 2, 3, 3, 3]


@given(step=st.integers(2, 9), leading=st.integers(1, 9), num_layers=st.integers(10, 30))
def test_a_list_is_read_as_the_layers_that_it_names(step: int, leading: int, num_layers: int) -> None:
    written = TokenIndexer(
        num_heads=32, head_dim=128, chosen_tokens=2048, layer_step=step, num_leading_layers=leading
    )
    counts = [written.num_among(layers) for layers in range(num_layers + 1)]
    names = ["full" if after > before else "shared" for before, after in pairwise(counts)]
    found = indexer_of(GLM_5 | {"num_hidden_layers": num_layers, "indexer_types": names})
    assert [found.num_among(layers) for layers in range(num_layers + 1)] == counts


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            DEEPSEEK_V3_2 | {"index_topk": None},
            "index_topk: is missing; a config.json of deepseek_v32 has it",
        ),
        (GLM_5 | {"index_n_heads": 0}, "latent_attention.indexer.num_heads = 0: must be greater than 0"),
        (
            GLM_5_2 | {"index_topk_freq": 3},
            r"indexer_types = .*: must have indexers in the layers of index_topk_freq \(3\) and index_skip_topk_offset \(3\)$",
        ),
        (
            GLM_5_2 | {"index_topk_freq": 1},
            r"indexer_types = .*: must have indexers in the layers of index_topk_freq \(1\)",
        ),
        (
            without(GLM_5_2, *SHARING_KEYS[1:])
            | {"indexer_types": ["full", "shared", "full", "shared", "shared", "full"] * 13},
            "indexer_types = .*: must have indexers in leading layers and every n-th one$",
        ),
        (
            without(GLM_5_2, *SHARING_KEYS[1:]) | {"indexer_types": ["shared", "full"] * 39},
            "indexer_types = .*: must begin with a layer that has an indexer$",
        ),
        (
            GLM_5_2 | {"indexer_types": ["full"] * 77},
            "indexer_types = .*: must name each of the 78 layers: full, F, shared, S$",
        ),
        (
            without(GLM_5_2, "mlp_layer_types") | {"num_hidden_layers": 10**30},
            "indexer_types = .*: must name each of the 10{30} layers",
        ),
        (GLM_5 | {"indexer_types": "full"}, "indexer_types = 'full': must name each of the 78 layers"),
        (GLM_5 | {"index_topk_pattern": 4}, "index_topk_pattern = 4: must name each of the 78 layers"),
        (
            without(GLM_5_2, "indexer_types") | {"index_skip_topk_offset": 0},
            r"index_skip_topk_offset = 0: must be at least 1 beside index_topk_freq \(4\)",
        ),
        (
            without(GLM_5_2, "indexer_types") | {"index_skip_topk_offset": 79},
            r"num_leading_layers \(79\) must not exceed num_layers \(78\)",
        ),
        (
            GLM_5_2 | {"mlp_layer_types": ["sparse"] * 78},
            r"mlp_layer_types = .*: must name the first 3 layers \(first_k_dense_replace\) dense, and the others sparse$",
        ),
        (
            GLM_5 | {"layer_types": ["full_attention"] * 78},
            "layer_types = .*: must name each of the 78 layers: deepseek_sparse_attention$",
        ),
    ],
)
def test_what_a_shape_cannot_express_is_refused_in_a_sentence(config: Config, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        shape_from_config(config, "broken")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("model_type", ["deepseek_v41", "glm5_next_text"])
def test_other_models_with_an_indexer_stay_unknown(model_type: str) -> None:
    with pytest.raises(InputError, match="must be one of the known families"):
        shape_from_config(GLM_5 | {"model_type": model_type}, "strange")
