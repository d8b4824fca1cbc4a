"""Which layers of a published `config.json` see compressed tokens, and how large is that attention? DeepSeek-V4.

A file names the kind of every layer (`layer_types`), or gives the tokens for each compressed one of every layer, 0 where a
layer has a window alone (`compress_ratios`). Entries behind the last layer, which are of modules of multi-token prediction or
of a larger model, are left out, as transformers does. Neither list means what transformers takes then: two layers with
heavily compressed tokens, and then these and chosen ones in turn (`DeepseekV4Config`). Shared experts are as wide as routed
ones each.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.domain.compressed_attention import LayerKind
from simulator.huggingface.experts import Experts
from simulator.huggingface.family import Counts, Family
from simulator.huggingface.reader import LAYER_KEYS, ConfigReader

_KINDS: Mapping[str, LayerKind] = {
    "sliding_attention": "window",
    "compressed_sparse_attention": "chosen",
    "heavily_compressed_attention": "heavy",
}
"""Names of layers in `layer_types` and `compress_rates`."""
_RATIOS: Mapping[LayerKind, int] = {"chosen": 4, "heavy": 128}
"""Tokens for each compressed one where a file does not say (`DeepseekV4Config`)."""
_RATIO_KEYS: Mapping[LayerKind, str] = {"chosen": "compress_rate_csa", "heavy": "compress_rate_hca"}
"""Keys of older files for these, which `DeepseekV4Config` reads in the place of `compress_rates`."""
_ROTARY_FRACTION = 0.125
"""Values of a head with a rotary position, over all of them, where a file does not say (`DeepseekV4Config`: 64 of 512)."""
_LEADING_HEAVY = 2
"""Leading layers that see all heavily compressed tokens, where a file names no layer."""


def _compressed_attention(reader: ConfigReader) -> Counts:
    """Returns the fields of `CompressedAttention`; reports layers of any other kind."""
    ratios = _ratios(reader)
    kinds = _layer_kinds(reader, ratios)
    return {
        "query_rank": reader.whole("q_lora_rank"),
        "rope_head_dim": _rope_head_dim(reader),
        "window_tokens": reader.whole("sliding_window"),
        "output_groups": reader.whole("o_groups"),
        "output_rank": reader.whole("o_lora_rank"),
        "num_chosen_layers": kinds.count("chosen"),
        "num_heavy_layers": kinds.count("heavy"),
        "chosen_ratio": ratios["chosen"],
        "heavy_ratio": ratios["heavy"],
        "chosen_tokens": reader.whole("index_topk"),
        "indexer_heads": reader.whole("index_n_heads"),
        "indexer_head_dim": reader.whole("index_head_dim"),
    }


def _rope_head_dim(reader: ConfigReader) -> int:
    """Part of a head with a rotary position, in values or as a fraction; an eighth where the file does not say."""
    if reader.has("qk_rope_head_dim"):
        return reader.whole("qk_rope_head_dim")
    fraction = reader.config.get("partial_rotary_factor", _ROTARY_FRACTION)
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0.0 < fraction <= 1.0:
        reader.report("partial_rotary_factor", "must be a number above 0, and at most 1")
        return 1
    return int(fraction * reader.whole("head_dim"))


def _hyper_connections(reader: ConfigReader) -> Counts:
    """Returns the fields of `HyperConnections`."""
    return {
        "num_streams": reader.whole("hc_mult"),
        "sinkhorn_iterations": reader.whole("hc_sinkhorn_iters"),
    }


def _compressed_experts(reader: ConfigReader) -> Experts:
    """Returns the fields of `MixtureOfExperts`: all layers have experts, of the first ones chosen by a table of tokens."""
    width = reader.whole("moe_intermediate_size")
    return {
        "num_experts": reader.whole("n_routed_experts"),
        "experts_per_token": reader.whole("num_experts_per_tok"),
        "expert_ffn_hidden_size": width,
        "shared_ffn_hidden_size": width * reader.whole("n_shared_experts"),
    }


def _expert_width(reader: ConfigReader) -> int:
    """Returns the feed-forward size of an expert, since no layer has any other."""
    return reader.whole("moe_intermediate_size")


def _one_key(_: ConfigReader) -> int:
    """Returns 1: all heads share a key."""
    return 1


def _ratios(reader: ConfigReader) -> dict[LayerKind, int]:
    """Returns the tokens for each compressed one, by kind of layer."""
    found: dict[LayerKind, int] = dict(_RATIOS)
    if reader.has("compress_rates"):
        rates = reader.part("compress_rates")
        for name, kind in _KINDS.items():
            if kind in found and rates.has(name):
                found[kind] = rates.whole(name)
    for kind, key in _RATIO_KEYS.items():
        if reader.has(key):
            found[kind] = reader.whole(key)
    return found


def _layer_kinds(reader: ConfigReader, ratios: Mapping[LayerKind, int]) -> list[LayerKind]:
    num_layers = reader.whole(*LAYER_KEYS)
    if reader.has("layer_types"):
        names = reader.config["layer_types"]
        named = [_KINDS.get(str(name)) for name in names[:num_layers]] if isinstance(names, list) else []
        return _known(reader, "layer_types", named, num_layers, f"must name each layer: {', '.join(_KINDS)}")
    if reader.has("compress_ratios"):
        by_ratio: dict[int, LayerKind] = {0: "window", **{ratio: kind for kind, ratio in ratios.items()}}
        each = reader.config["compress_ratios"]
        of_layers = each[:num_layers] if isinstance(each, list) else []
        found = [by_ratio.get(ratio) if isinstance(ratio, int) else None for ratio in of_layers]
        rule = f"must give each layer one of {', '.join(map(str, sorted(by_ratio)))}"
        return _known(reader, "compress_ratios", found, num_layers, rule)
    behind: list[LayerKind] = ["chosen" if place % 2 else "heavy" for place in range(num_layers)]
    leading: list[LayerKind] = ["heavy"] * _LEADING_HEAVY
    return [*leading, *behind][:num_layers]


def _known(
    reader: ConfigReader, key: str, found: list[LayerKind | None], num_layers: int, rule: str
) -> list[LayerKind]:
    """Returns the kinds of all layers; reports a list that has others, or not as many."""
    known = [kind for kind in found if kind is not None]
    if len(known) != len(found) or len(found) != num_layers:
        reader.report(key, f"{rule}, {num_layers} in all")
        return []
    return known


DEEPSEEK_V4 = Family(
    num_kv_heads=_one_key,
    ffn_hidden_size=_expert_width,
    experts=_compressed_experts,
    compressed_attention=_compressed_attention,
    hyper_connections=_hyper_connections,
)
"""Conventions of the files of DeepSeek-V4."""
