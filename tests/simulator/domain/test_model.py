"""Are parameters and FLOPs those of the published models and formulas?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simulator import catalog
from simulator.domain.blocks import LatentAttention, MixtureOfExperts
from simulator.domain.model import ModelShape
from tests.simulator.builders import gpt


@pytest.mark.parametrize(
    ("name", "num_parameters"),
    [
        # Sums over the tensors of the published checkpoints.
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
    ],
)
def test_parameters_are_exactly_those_of_published_checkpoints_without_biases(
    name: str, num_parameters: int
) -> None:
    assert catalog.model(name).num_parameters == num_parameters


def test_bloom_lacks_only_its_biases() -> None:
    bloom = catalog.model("bloom-176b")
    # The model card: 176,247,271,424 parameters, 3,596,615,680 of them in the embedding.
    assert bloom.embedding_parameters == 3_596_615_680
    h, num_layers = 14_336, 70
    biases = num_layers * (3 * h + h + 4 * h + h) + num_layers * 2 * h + 2 * h + h  # and the embedding's norm
    assert bloom.num_parameters + biases == 176_247_271_424


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("mixtral-8x7b", 46.7e9, 12.9e9),  # arXiv 2401.04088
        ("deepseek-v3", 671e9, 37e9),  # arXiv 2412.19437
        ("deepseek-v2", 236e9, 21e9),  # arXiv 2405.04434
        ("qwen3-235b-a22b", 235e9, 22e9),  # arXiv 2505.09388
    ],
)
def test_experts_make_the_published_total_and_active_parameters(
    name: str, total: float, active: float
) -> None:
    model = catalog.model(name)
    assert model.num_parameters == pytest.approx(total, rel=0.01)  # printed with two or three digits
    assert model.num_active_parameters == pytest.approx(active, rel=0.03)


def test_latent_attention_has_the_matrices_of_deepseek_v3() -> None:
    # Shapes of q_a, q_b, kv_a, kv_b and o_proj in the published checkpoint.
    matrices = [(1536, 7168), (24576, 1536), (576, 7168), (32768, 512), (7168, 16384)]
    assert catalog.model("deepseek-v3").attention_parameters == sum(
        rows * columns for rows, columns in matrices
    )


@pytest.mark.parametrize(("layers", "hidden", "heads"), [(24, 2304, 24), (96, 12288, 96), (128, 25600, 160)])
def test_parameters_follow_megatrons_formula(layers: int, hidden: int, heads: int) -> None:
    model = gpt(num_layers=layers, hidden_size=hidden, num_heads=heads)
    # arXiv 2104.04473, equation 2: P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)); the 13 are biases and norms.
    published = 12 * layers * hidden**2 * (1 + 51_200 / (12 * layers * hidden))
    tied = model.num_parameters - 51_200 * hidden
    assert tied == pytest.approx(published, rel=13 / (12 * hidden))


@pytest.mark.parametrize(("layers", "hidden", "heads"), [(24, 2304, 24), (96, 12288, 96)])
def test_flop_with_full_recomputation_follow_megatrons_formula(layers: int, hidden: int, heads: int) -> None:
    model, s, v = gpt(num_layers=layers, hidden_size=hidden, num_heads=heads), 2048, 51_200
    # arXiv 2104.04473, equation 3: F = 96 B s l h^2 (1 + s/(6 h) + V/(16 l h)); layers run forward twice.
    published = 96 * layers * hidden**2 * (1 + s / (6 * hidden) + v / (16 * layers * hidden))
    logits = 6 * hidden * v
    hidden_by_mask = 6 * layers * hidden * s  # which the formula counts
    layer_flop = model.model_flop_per_token(s) + hidden_by_mask - logits
    assert layer_flop * 4 / 3 + logits == pytest.approx(published, rel=1e-12)


def test_llama_3_needs_the_published_flop() -> None:
    flop = 15.6e12 * catalog.model("llama-3.1-405b").model_flop_per_token(8192)
    # arXiv 2407.21783: 3.8e25, which is 6 N T; attention adds 4 %, the embedding's look-up takes 0.5 % away.
    assert flop == pytest.approx(3.8e25, rel=0.05)


def test_attention_to_the_tokens_before_grows_with_the_sequence() -> None:
    short, long = (gpt().model_flop_per_token(tokens) for tokens in (4096, 8192))
    assert long - short == 6 * 24 * 2048 * 4096  # 12 L h for each token seen, half of a sequence in the mean


def test_a_tied_output_layer_computes_as_much_as_one_with_weights_of_its_own() -> None:
    own, tied = gpt(), gpt(has_tied_embeddings=True)
    assert own.model_flop_per_token(2048) == tied.model_flop_per_token(2048)
    assert own.num_parameters - tied.num_parameters == 51_200 * 2048


def test_an_expert_model_whose_tokens_meet_all_experts_is_as_large_as_it_is_active() -> None:
    experts = MixtureOfExperts(num_experts=4, experts_per_token=4, expert_ffn_hidden_size=1024)
    model = gpt().model_copy(update={"experts": experts})
    assert model.num_active_parameters == model.num_parameters
    assert model.num_expert_layers == 24


@given(
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([64, 128, 256]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "one_norm", "two_norms"]),
    st.sampled_from([None, "per_head", "all_heads", "unweighted"]),
)
def test_parameters_are_the_sum_over_the_tensors(
    num_kv_heads: int, head_dim: int, is_gated: bool, is_tied: bool, block: str | None, norm: str | None
) -> None:
    fields = {
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "is_gated": is_gated,
        "has_tied_embeddings": is_tied,
        "parallel_block": block,
        "qk_norm": norm,
    }
    model = ModelShape.model_validate(gpt().model_dump() | fields)
    h, width = 2048, 16 * head_dim
    tensors = [(width, h), (num_kv_heads * head_dim, h), (num_kv_heads * head_dim, h), (h, width)]
    tensors += [(8192, h)] * (2 if is_gated else 1) + [(h, 8192)]
    tensors += [(h, 1)] * (1 if block == "one_norm" else 2)
    norms = {"per_head": [head_dim, head_dim], "all_heads": [width, num_kv_heads * head_dim]}
    tensors += [(weights, 1) for weights in norms.get(norm or "", [])]
    ends = [(51_200, h), (h, 1)] + ([] if is_tied else [(51_200, h)])
    assert model.num_parameters == sum(a * b for a, b in tensors) * 24 + sum(a * b for a, b in ends)


@given(
    st.integers(0, 2048), st.integers(1, 1024), st.integers(1, 128), st.integers(1, 256), st.integers(1, 256)
)
def test_latent_attention_is_the_sum_over_its_tensors(
    query_rank: int, key_value_rank: int, rope: int, nope: int, value: int
) -> None:
    latent = LatentAttention(
        query_rank=query_rank,
        key_value_rank=key_value_rank,
        rope_head_dim=rope,
        nope_head_dim=nope,
        value_head_dim=value,
    )
    model = gpt().model_copy(update={"latent_attention": latent})
    h, heads = 2048, 16
    queries = (
        [(query_rank, h), (heads * (nope + rope), query_rank)] if query_rank else [(heads * (nope + rope), h)]
    )
    others = [(key_value_rank + rope, h), (heads * (nope + value), key_value_rank), (h, heads * value)]
    assert model.attention_parameters == sum(a * b for a, b in queries + others)


def test_leading_dense_layers_are_counted_apart() -> None:
    model = catalog.model("deepseek-v3")
    assert (model.num_dense_layers, model.num_expert_layers) == (3, 58)  # arXiv 2412.19437, section 4.2


def changed(**fields: int) -> ModelShape:
    return ModelShape.model_validate(gpt().model_dump() | fields)


def test_key_value_heads_that_do_not_divide_the_heads_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"num_kv_heads \(5\) must divide num_heads \(16\)"):
        changed(num_kv_heads=5)


def test_more_dense_layers_than_layers_are_refused() -> None:
    experts = MixtureOfExperts(
        num_experts=4, experts_per_token=2, expert_ffn_hidden_size=64, num_dense_layers=25
    )
    with pytest.raises(ValidationError, match=r"qk_norm \(per_head\) excludes latent_attention"):
        ModelShape.model_validate(catalog.model("deepseek-v3").model_dump() | {"qk_norm": "per_head"})
    with pytest.raises(ValidationError, match=r"num_dense_layers \(25\) must not exceed num_layers \(24\)"):
        ModelShape.model_validate(gpt().model_dump() | {"experts": experts.model_dump()})


def whole_numbers() -> list[tuple[str, str, bool]]:
    """Every whole number of a model and its parts: the part, the field, and whether it has an upper limit."""
    schema = ModelShape.model_json_schema()
    parts = {"ModelShape": schema, **schema["$defs"]}
    return [
        (part, name, "maximum" in form)
        for part, fields in parts.items()
        for name, field in fields.get("properties", {}).items()
        for form in field.get("anyOf", [field])
        if form.get("type") == "integer"
    ]


def test_every_whole_number_of_a_model_has_an_upper_limit() -> None:
    assert len(whole_numbers()) > 40
    assert [(part, name) for part, name, is_limited in whole_numbers() if not is_limited] == []


@pytest.mark.parametrize("name", catalog.names(catalog.Kind.MODELS))
def test_models_of_the_catalogue_are_far_below_the_limits(name: str) -> None:
    larger = catalog.model(name).model_dump()
    for part in (larger, larger["experts"] or {}, larger["latent_attention"] or {}):
        for field in ("hidden_size", "ffn_hidden_size", "expert_ffn_hidden_size", "query_rank"):
            part.update({field: 4 * part[field]} if part.get(field) else {})
    ModelShape.model_validate(larger)


def test_routing_to_more_experts_than_there_are_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"experts_per_token \(5\) must not exceed num_experts \(4\)"):
        MixtureOfExperts(num_experts=4, experts_per_token=5, expert_ffn_hidden_size=64)
