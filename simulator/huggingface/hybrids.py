"""Which blocks of a hybrid model keep a state? Families whose `config.json` has Mamba-2 or linear attention beside attention.

Every layer of these files has one block that mixes tokens and a feed-forward block, except in Nemotron-H, where a layer is one
block of any kind. Layers have the names of transformers, now (`linear_attention`, `full_attention`) and formerly (`mamba`,
`attention`). How the two kinds of blocks follow one another is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from simulator.huggingface.experts import (
    Experts,
    granite_hybrid_experts,
    kimi_linear_experts,
    nemotron_h_experts,
    qwen_experts,
)
from simulator.huggingface.family import (
    Blocks,
    Counts,
    Family,
    all_heads,
    deepseek_attention,
    grouped_heads,
    head_norm,
    intermediate,
    wide_norm,
)
from simulator.huggingface.reader import LAYER_KEYS, ConfigReader

_PATTERN, _LIST = "hybrid_override_pattern", "layers_block_type"
_LINEAR, _FULL, _DENSE, _ROUTED = "linear_attention", "full_attention", "mlp", "moe"
_LETTERS: Mapping[str, str] = {"M": _LINEAR, "*": _FULL, "-": _DENSE, "E": _ROUTED}
"""Names of Nemotron-H's blocks by their letter in the pattern (`NemotronHConfig`)."""
_FORMER_NAMES: Mapping[str, str] = {"mamba": _LINEAR, "attention": _FULL}
"""Today's names of layers by the former ones (transformers: `remap_legacy_layer_types`)."""
_USUAL_INTERVAL = 4
"""Of how many layers one attends if the file of a Qwen does not say (`Qwen3NextConfig`, `Qwen3_5TextConfig`)."""
_USUAL_EXPANSION = 2
"""Inner width of Mamba-2 over hidden size where a file does not state it (`GraniteMoeHybridConfig`, `BambaConfig`)."""


def _nemotron_layers(reader: ConfigReader) -> list[str]:
    """Returns the blocks in their order; reports a pattern that contradicts the rest of the file."""
    keys = [key for key in (_PATTERN, _LIST) if reader.has(key)]
    if not keys:
        reader.report(_PATTERN, f"is missing (or {_LIST}); a config.json of {reader.model_type} has it")
        return []
    found = [_named_blocks(reader, key) for key in keys]
    if not all(found):
        return []
    if found[0] != found[-1]:
        reader.report(_LIST, f"must name the same blocks as {_PATTERN}")
    num_blocks = len(found[0])
    if reader.has(LAYER_KEYS[0]) and reader.whole(LAYER_KEYS[0]) != num_blocks:
        reader.report(LAYER_KEYS[0], f"must be {num_blocks}, the number of blocks in {keys[0]}")
    if not {_DENSE, _ROUTED} & {*found[0]} or _LINEAR not in found[0]:
        reader.report(keys[0], "must have blocks of Mamba-2 (M) and feed-forward blocks (- or E)")
    return found[0]


def _named_blocks(reader: ConfigReader, key: str) -> list[str]:
    """Returns the names of blocks from a text of letters or a list of names."""
    written = reader.config[key]
    names = [str(name) for name in written] if isinstance(written, list | str) else []
    known = (
        _LETTERS
        if isinstance(written, str)
        else {**{name: name for name in _LETTERS.values()}, **_FORMER_NAMES}
    )
    if not names or any(name not in known for name in names):
        reader.report(key, f"must consist of {', '.join(known)}")
        return []
    return [known[name] for name in names]


def _nemotron_num_layers(reader: ConfigReader) -> int:
    layers = _nemotron_layers(reader)
    return layers.count(_DENSE) + layers.count(_ROUTED)


def _dense_ffn(reader: ConfigReader) -> int:
    """Nemotron 3 and Qwen3.5: without dense blocks, a file need not state their width, and the shape has that of an expert."""
    return reader.whole("intermediate_size", "moe_intermediate_size")


def _nemotron_experts(reader: ConfigReader) -> Experts | None:
    layers = [name for name in _nemotron_layers(reader) if name in (_DENSE, _ROUTED)]
    if _ROUTED not in layers:
        return None
    leading = layers.index(_ROUTED)
    if _DENSE in layers[leading:]:
        key = _PATTERN if reader.has(_PATTERN) else _LIST
        reader.report(key, "must have dense feed-forward blocks only ahead of all with experts, if any")
    return nemotron_h_experts(reader, num_dense_layers=leading)


def _nemotron_blocks(reader: ConfigReader) -> Blocks:
    layers = _nemotron_layers(reader)
    reader.whole("head_dim", "attention_head_dim")  # must be there: hidden_size over heads is another width
    return {
        "kind": "mamba-2",
        **_mixers(layers.count(_LINEAR), layers.count(_FULL)),
        "num_heads": reader.whole("mamba_num_heads"),
        "head_dim": reader.whole("mamba_head_dim"),
        "num_key_heads": reader.whole("n_groups", "mamba_n_groups", "mamba_num_groups"),
        "key_head_dim": reader.whole("ssm_state_size", "mamba_state_dim"),
        "convolution_width": reader.whole("conv_kernel", "mamba_d_conv"),
        "chunk_tokens": reader.whole("chunk_size", "mamba_chunk_size"),
    }


def _qwen_blocks(reader: ConfigReader) -> Blocks | None:
    """Qwen3-Next and Qwen3.5: every fourth layer attends, or those that the file names; attention always has a gate."""
    reader.require("attn_output_gate", expected=True, meaning="attention without a gate for its output")
    reader.whole("head_dim")  # must be there: hidden_size over heads is another width
    every = reader.whole("full_attention_interval", default=_USUAL_INTERVAL)
    if not every:
        reader.report("full_attention_interval", "must be at least 1")
    num_layers = reader.whole(*LAYER_KEYS)
    num_full = num_layers // max(every, 1)
    return _gated_delta_net(reader, _counted(reader) or _mixers(num_layers - num_full, num_full))


def _olmo_blocks(reader: ConfigReader) -> Blocks | None:
    """OLMo Hybrid: the file names the layers."""
    if not reader.has("layer_types"):
        reader.report("layer_types", f"is missing; a config.json of {reader.model_type} has it")
    return _gated_delta_net(reader, _counted(reader) or _mixers(0, 0))


def _gated_delta_net(reader: ConfigReader, mixers: Counts) -> Blocks | None:
    if not mixers["num_blocks"]:
        return None
    return {
        "kind": "gated-delta-net",
        **mixers,
        "num_heads": reader.whole("linear_num_value_heads"),
        "head_dim": reader.whole("linear_value_head_dim"),
        "num_key_heads": reader.whole("linear_num_key_heads"),
        "key_head_dim": reader.whole("linear_key_head_dim"),
        "convolution_width": reader.whole("linear_conv_kernel_dim"),
    }


def _kimi_blocks(reader: ConfigReader) -> Blocks:
    """Kimi Linear: two lists of layers, counted from 1; what Kimi K3 adds to it is refused."""
    reader.require(
        "mla_use_output_gate", expected=False, meaning="latent attention with a gate for its output"
    )
    reader.require("attn_res_block_size", 0, "attention over the results of earlier blocks")
    part = reader.part("linear_attn_config")
    if not isinstance(reader.config.get("linear_attn_config"), Mapping):
        return {}
    part.require("use_full_rank_gate", expected=False, meaning="decays and gates of full rank")
    num_layers = reader.whole(*LAYER_KEYS)
    named = {key: _places(part, key) for key in ("kda_layers", "full_attn_layers")}
    both = sorted(place for places in named.values() for place in places)
    if len(both) != num_layers or both != list(range(1, len(both) + 1)):
        rule = f"must, with full_attn_layers, name each of the {num_layers} layers of {LAYER_KEYS[0]} once, the first as 1"
        part.report("kda_layers", rule)
    num_heads, head_dim = part.whole("num_heads"), part.whole("head_dim")
    return {
        "kind": "kimi-delta",
        **_mixers(len(named["kda_layers"]), len(named["full_attn_layers"])),
        "num_heads": num_heads,
        "head_dim": head_dim,
        "num_key_heads": num_heads,
        "key_head_dim": head_dim,
        "convolution_width": part.whole("short_conv_kernel_size"),
    }


def _granite_blocks(reader: ConfigReader) -> Blocks | None:
    """Granite 4: layers without a name are of Mamba-2; without any of these, the model is a transformer."""
    mixers = _counted(reader) or _mixers(reader.whole(*LAYER_KEYS), 0)
    return _mamba_2(reader, mixers) if mixers["num_blocks"] else None


def _granite_ffn(reader: ConfigReader) -> int:
    """The shared expert stands alone in a model without routed ones."""
    has_experts = bool(reader.whole("num_local_experts"))
    return reader.whole("intermediate_size" if has_experts else "shared_intermediate_size")


def _bamba_blocks(reader: ConfigReader) -> Blocks:
    """Bamba: the file lists the layers that attend, counted from 0."""
    num_layers = reader.whole(*LAYER_KEYS)
    places = _places(reader, "attn_layer_indices") if reader.has("attn_layer_indices") else []
    if len({*places}) != len(places) or any(place >= num_layers for place in places):
        reader.report("attn_layer_indices", f"must name layers below {num_layers}, each once")
    return _mamba_2(reader, _mixers(max(num_layers - len(places), 0), len(places)))


def _mamba_2(reader: ConfigReader, mixers: Counts) -> Blocks:
    """Granite 4 and Bamba; the width of a head follows from the other sizes."""
    num_heads = reader.whole("mamba_n_heads")
    inner = reader.whole("mamba_expand", default=_USUAL_EXPANSION) * reader.whole("hidden_size")
    head_dim = inner // max(num_heads, 1)
    if not num_heads or inner % num_heads:
        reader.report("mamba_n_heads", f"must divide mamba_expand x hidden_size ({inner})")
    elif reader.config.get("mamba_d_head") != "auto":
        reader.require("mamba_d_head", head_dim, "heads that do not add up to mamba_expand x hidden_size")
    return {
        "kind": "mamba-2",
        **mixers,
        "num_heads": num_heads,
        "head_dim": head_dim,
        "num_key_heads": reader.whole("mamba_n_groups"),
        "key_head_dim": reader.whole("mamba_d_state"),
        "convolution_width": reader.whole("mamba_d_conv"),
        "chunk_tokens": reader.whole("mamba_chunk_size"),
    }


def _counted(reader: ConfigReader) -> Counts | None:
    """Returns how many layers `layer_types` names of either kind; `None` if the file has no such list."""
    if not reader.has("layer_types"):
        return None
    written, num_layers = reader.config["layer_types"], reader.whole(*LAYER_KEYS)
    names = [str(name) for name in written] if isinstance(written, list) else []
    today = [_FORMER_NAMES.get(name, name) for name in names]
    num_linear, num_full = today.count(_LINEAR), today.count(_FULL)
    if not num_linear + num_full == len(names) == num_layers:
        rule = f"must name each of the {num_layers} layers of {LAYER_KEYS[0]} {_LINEAR} or {_FULL}"
        reader.report("layer_types", rule)
    return _mixers(num_linear, num_full)


def _places(reader: ConfigReader, key: str) -> list[int]:
    """Returns a list of layers by their place; after a problem, an empty one."""
    written = reader.config.get(key)
    places = (
        [place for place in written if type(place) is int and place >= 0] if isinstance(written, list) else []
    )
    if not isinstance(written, list) or len(places) != len(written):
        reader.report(key, "must be a list of whole numbers of at least 0")
        return []
    return places


def _mixers(num_linear: int, num_full: int) -> Counts:
    return {"num_blocks": num_linear, "num_attention_blocks": num_full}


_GROUPED = Family(num_kv_heads=grouped_heads, ffn_hidden_size=intermediate)
_QWEN = replace(_GROUPED, linear_attention=_qwen_blocks, has_output_gate=True, qk_norm=head_norm)

HYBRIDS: Mapping[str, Family] = {
    "nemotron_h": Family(
        is_gated=False,
        num_layers=_nemotron_num_layers,
        num_kv_heads=grouped_heads,
        ffn_hidden_size=_dense_ffn,
        experts=_nemotron_experts,
        linear_attention=_nemotron_blocks,
    ),
    "qwen3_next": replace(_QWEN, experts=qwen_experts),
    "qwen3_5_text": _QWEN,
    "qwen3_5_moe_text": replace(_QWEN, ffn_hidden_size=_dense_ffn, experts=qwen_experts),
    "kimi_linear": Family(
        num_kv_heads=all_heads,
        ffn_hidden_size=intermediate,
        experts=kimi_linear_experts,
        latent_attention=deepseek_attention,
        linear_attention=_kimi_blocks,
    ),
    "granitemoehybrid": replace(
        _GROUPED,
        ffn_hidden_size=_granite_ffn,
        experts=granite_hybrid_experts,
        linear_attention=_granite_blocks,
    ),
    "bamba": replace(_GROUPED, linear_attention=_bamba_blocks),
    "olmo_hybrid": replace(_GROUPED, linear_attention=_olmo_blocks, qk_norm=wide_norm),
}
"""Families of hybrid models by `model_type`, in reading order."""

OTHER_HYBRIDS: Mapping[str, str] = {
    "falcon_h1": "attention and Mamba-2 side by side in every layer",
    "jamba": "blocks of Mamba-1",
    "zamba2": "blocks of attention that share their weights",
    "lfm2": "short convolutions in the place of attention",
    "lfm2_moe": "short convolutions in the place of attention",
    "minimax": "lightning attention",
    "minimax_text_01": "lightning attention",
}
"""What cannot be described in the hybrids of other families, by `model_type`."""
