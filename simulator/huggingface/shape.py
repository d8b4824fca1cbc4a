"""Which model shape does a published `config.json` describe? Hugging Face's names become ours.

Biases other than those of experts, and norms after blocks, are left out: they are less than 0.2 % of the weights. What a
`ModelShape` cannot express (sparse layers in between dense ones, unknown families) is refused, not approximated.

Multi-token prediction in a file is mentioned in the `source` of the shape but not adopted: whether it is trained is a choice of
each training run (Megatron Core: `mtp_num_layers`), and most fine-tuning leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pydantic import ValidationError

from simulator.domain.choices import ParallelBlock, QueryKeyNorm
from simulator.domain.model import ModelShape
from simulator.domain.vision import VisionEncoder
from simulator.errors import InputError, Problem
from simulator.huggingface.compressed import DEEPSEEK_V4
from simulator.huggingface.experts import (
    dbrx_experts,
    deepseek_experts,
    ernie_experts,
    gpt_oss_experts,
    llama_4_experts,
    local_experts,
    qwen_experts,
)
from simulator.huggingface.family import (
    Family,
    all_heads,
    deepseek_attention,
    grouped_heads,
    head_norm,
    intermediate,
    wide_norm,
)
from simulator.huggingface.hybrids import HYBRIDS, OTHER_HYBRIDS
from simulator.huggingface.indexers import layered_experts, token_indexer
from simulator.huggingface.reader import LAYER_KEYS, Config, ConfigReader
from simulator.huggingface.vision import READERS as MULTIMODAL
from simulator.huggingface.vision import VISION_KEY, vision_from_config
from simulator.huggingface.windows import (
    alternating_window,
    cohere_2_window,
    dots_window,
    gemma_3_window,
    llama_4_chunks,
    qwen_window,
    window_everywhere,
)

HIDDEN_KEYS = ("hidden_size", "n_embd", "n_embed", "d_model")
HEAD_KEYS = ("num_attention_heads", "n_head", "n_heads")
HEAD_DIM_KEYS = ("head_dim", "kv_channels", "attention_head_dim")
MODULE_KEYS = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")
"""Keys for the modules of multi-token prediction published with the weights (DeepSeek-V3, GLM-4.5, ERNIE 4.5 and MiMo;
MiniMax-M2; Qwen3.5)."""
OPT_POSITION_OFFSET = 2
"""OPT's position table has two rows before the first position."""
LANGUAGE_KEY = "text_config"
"""Key of the language model in the file of a multimodal model."""
_SHARED_KEYS = ("tie_word_embeddings",)
"""Keys of the language model that may appear next to `text_config`."""
_LEFT_OUT: Mapping[str, Config] = {
    "gemma3_text": {
        "head_dim": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262_208,
    }
}
"""Keys that published files of a family omit where they equal the defaults of transformers (`Gemma3TextConfig`)."""
_WORDS: Mapping[str, str] = {
    "Input should be": "must be",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}
"""Words of pydantic, and ours."""
DEFAULT_FFN_RATIO = 4
"""Feed-forward size over hidden size in families whose files do not state it."""


def shape_from_config(config: Config, name: str, path: str = "", *, has_vision: bool = False) -> ModelShape:
    """Returns the shape that a `config.json` of a known family describes.

    Args:
        config: The parsed file; of a multimodal model, only its language model is read, and its vision encoder if asked for.
        name: Name of the model in reports.
        path: Location of the configuration, for the paths of problems.
        has_vision: Whether to read a vision encoder, too, if the file has one.

    Raises:
        InputError: The `model_type` is unknown, or keys are missing or unusable; the error lists all of them.
    """
    language = language_part(config)
    if has_vision and VISION_KEY in config:
        return _with_vision(shape_from_config(config, name, path), config, path)
    if language is not config:
        return shape_from_config(language, name, f"{path}.{LANGUAGE_KEY}" if path else LANGUAGE_KEY)
    reader = ConfigReader({**_LEFT_OUT.get(str(config.get("model_type")), {}), **config}, path)
    family = FAMILIES.get(reader.model_type)
    if family is None:
        reader.report("model_type", _unknown_rule(reader.model_type))
        raise InputError(reader.problems)
    numbers = _numbers(reader, family)
    if reader.problems:
        raise InputError(reader.problems)
    try:
        source = f"config.json ({reader.model_type}{_told_modules(reader)})"
        named = {
            "name": name,
            "source": source,
            "is_gated": family.is_gated,
            "has_output_gate": family.has_output_gate,
        }
        return ModelShape.model_validate({**named, **numbers})
    except ValidationError as error:
        raise InputError(_problems(error, path)) from error


def _with_vision(shape: ModelShape, config: Config, path: str) -> ModelShape:
    """Returns a language model with the vision encoder of its file."""
    fields, reader = vision_from_config(config, shape.hidden_size, path)
    if reader.problems:
        raise InputError(reader.problems)
    try:
        return shape.model_copy(update={"vision": VisionEncoder.model_validate(fields)})
    except ValidationError as error:
        raise InputError(_problems(error, f"{path}.{VISION_KEY}" if path else VISION_KEY)) from error


def _unknown_rule(model_type: str) -> str:
    if what := OTHER_HYBRIDS.get(model_type):
        return f"has {what}, which cannot be described; hybrids that can be: {', '.join(HYBRIDS)}"
    return f"must be one of the known families: {', '.join(FAMILIES)}"


def _told_modules(reader: ConfigReader) -> str:
    """Mentions modules of multi-token prediction, which are trained only if a job asks for them."""
    key = next((key for key in MODULE_KEYS if reader.config.get(key)), None)
    return "" if key is None else f"; {key} {reader.config[key]}, trained only as num_mtp_layers says"


def language_part(config: Config) -> Config:
    """Returns the part of a `config.json` that describes the language model: all of it, or its `text_config`."""
    inner, model_type = config.get(LANGUAGE_KEY), str(config.get("model_type"))
    is_text = model_type in FAMILIES and model_type not in MULTIMODAL
    if is_text or not isinstance(inner, Mapping):
        return config
    shared = {key: config[key] for key in _SHARED_KEYS if key in config}
    return {**shared, **inner}


def _numbers(reader: ConfigReader, family: Family) -> dict[str, object]:
    """Returns the numeric fields of a `ModelShape`; problems are collected in the reader."""
    hidden, heads = reader.whole(*HIDDEN_KEYS), reader.whole(*HEAD_KEYS)
    kv_heads, ffn = family.num_kv_heads(reader), family.ffn_hidden_size(reader)
    latent = family.latent_attention(reader) if family.latent_attention else None
    indexer = family.indexer(reader) if family.indexer else None
    head_dim = (
        latent["rope_head_dim"] + latent["nope_head_dim"] if latent else _head_dim(reader, hidden, heads)
    )
    return {
        "num_layers": family.num_layers(reader) if family.num_layers else reader.whole(*LAYER_KEYS),
        "hidden_size": hidden,
        "num_heads": heads,
        "num_kv_heads": heads if kv_heads is None else kv_heads,
        "head_dim": head_dim,
        "ffn_hidden_size": DEFAULT_FFN_RATIO * hidden if ffn is None else ffn,
        "vocabulary_size": reader.whole("vocab_size"),
        "has_tied_embeddings": reader.truth("tie_word_embeddings", default=family.is_tied),
        "num_learned_positions": family.num_positions(reader) if family.num_positions else 0,
        "experts": family.experts(reader) if family.experts else None,
        "latent_attention": {**latent, "indexer": indexer} if latent else None,
        "linear_attention": family.linear_attention(reader) if family.linear_attention else None,
        "compressed_attention": family.compressed_attention(reader) if family.compressed_attention else None,
        "hyper_connections": family.hyper_connections(reader) if family.hyper_connections else None,
        "sliding_window": family.sliding_window(reader) if family.sliding_window else None,
        "parallel_block": family.parallel_block(reader) if family.parallel_block else None,
        "qk_norm": family.qk_norm(reader) if family.qk_norm else None,
    }


def _head_dim(reader: ConfigReader, hidden: int, heads: int) -> int:
    if any(reader.has(key) for key in HEAD_DIM_KEYS):
        return reader.whole(*HEAD_DIM_KEYS)
    if heads == 0 or hidden % heads:
        reader.report(HEAD_KEYS[0], f"must divide the hidden size ({hidden}); or give head_dim")
        return 1
    return hidden // heads


def _dbrx_heads(reader: ConfigReader) -> int:
    return reader.part("attn_config").whole("kv_n_heads")


def _falcon_heads(reader: ConfigReader) -> int | None:
    if reader.truth("new_decoder_architecture", default=False):
        return reader.whole("num_kv_heads")
    return 1 if reader.truth("multi_query", default=True) else None


def _falcon_block(reader: ConfigReader) -> ParallelBlock | None:
    """The new architecture always has parallel blocks, with two norms unless the file says one."""
    if reader.truth("new_decoder_architecture", default=False):
        return "one_norm" if reader.whole("num_ln_in_parallel_attn", default=2) == 1 else "two_norms"
    return "one_norm" if reader.truth("parallel_attn", default=True) else None


def _neox_block(reader: ConfigReader) -> ParallelBlock | None:
    return "two_norms" if reader.truth("use_parallel_residual", default=True) else None


def _one_norm(_: ConfigReader) -> ParallelBlock:
    return "one_norm"


def _chosen_head_norm(reader: ConfigReader) -> QueryKeyNorm | None:
    """GLM-4.5, where the file decides."""
    return "per_head" if reader.truth("use_qk_norm", default=False) else None


def _llama_4_norm(reader: ConfigReader) -> QueryKeyNorm | None:
    return "unweighted" if reader.truth("use_qk_norm", default=True) else None


def _chosen_wide_norm(reader: ConfigReader) -> QueryKeyNorm | None:
    """Command R+: a row of weights for each head."""
    return "all_heads" if reader.truth("use_qk_norm", default=False) else None


def _opt_ffn(reader: ConfigReader) -> int:
    return reader.whole("ffn_dim")


def _optional_ffn(reader: ConfigReader) -> int | None:
    is_given = reader.has("ffn_hidden_size") or reader.has("n_inner")
    return reader.whole("ffn_hidden_size", "n_inner") if is_given else None


def _gpt2_positions(reader: ConfigReader) -> int:
    return reader.whole("n_positions")


def _opt_positions(reader: ConfigReader) -> int:
    return reader.whole("max_position_embeddings") + OPT_POSITION_OFFSET


def _llama_4_ffn(reader: ConfigReader) -> int | None:
    """Dense layers are wider than experts (`intermediate_size_mlp`)."""
    return reader.whole("intermediate_size_mlp", "intermediate_size")


def _dbrx_ffn(reader: ConfigReader) -> int:
    return reader.part("ffn_config").whole("ffn_hidden_size")


def _problems(error: ValidationError, path: str) -> list[Problem]:
    """Returns what breaks rules of the shape; a rule about several fields names their values itself."""
    prefix = f"{path}." if path else ""
    return [
        Problem(
            path=prefix + ".".join(str(step) for step in detail["loc"]) if detail["loc"] else path,
            value="" if detail["type"] == "value_error" else repr(detail["input"])[:60],
            rule=_in_our_words(detail["msg"].removeprefix("Value error, ")),
        )
        for detail in error.errors(include_url=False)
    ]


def _in_our_words(rule: str) -> str:
    """Returns a rule of pydantic as those of other files are written."""
    for written, meant in _WORDS.items():
        rule = rule.replace(written, meant)
    return rule


_LLAMA = Family(num_kv_heads=grouped_heads, ffn_hidden_size=intermediate)
_MISTRAL = replace(_LLAMA, sliding_window=window_everywhere)
_QWEN = replace(_LLAMA, sliding_window=qwen_window)
_GEMMA = replace(_LLAMA, is_tied=True)
_PLAIN = replace(_LLAMA, is_gated=False)
_MIXTRAL = replace(_MISTRAL, experts=local_experts)
_LLAMA_4 = replace(
    _LLAMA,
    ffn_hidden_size=_llama_4_ffn,
    experts=llama_4_experts,
    sliding_window=llama_4_chunks,
    qk_norm=_llama_4_norm,
)
_QWEN_MOE = replace(_QWEN, experts=qwen_experts)
_OLMO = replace(_LLAMA, qk_norm=wide_norm)
_DEEPSEEK_MOE = replace(_LLAMA, experts=deepseek_experts)
_DEEPSEEK = replace(_DEEPSEEK_MOE, num_kv_heads=all_heads, latent_attention=deepseek_attention)
_CHOOSING = replace(_DEEPSEEK, experts=layered_experts, indexer=token_indexer)
_GPT2 = Family(
    num_kv_heads=all_heads,
    ffn_hidden_size=_optional_ffn,
    is_gated=False,
    is_tied=True,
    num_positions=_gpt2_positions,
)
_OPT = replace(_GPT2, ffn_hidden_size=_opt_ffn, num_positions=_opt_positions)
_BLOOM = replace(_GPT2, num_positions=None)
_GPT_J = replace(_BLOOM, is_tied=False, parallel_block=_one_norm)
_COHERE = replace(_GEMMA, parallel_block=_one_norm, qk_norm=_chosen_wide_norm)

FAMILIES: Mapping[str, Family] = {
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "qwen2": _QWEN,
    "qwen2_5_vl": _QWEN,
    "qwen2_5_vl_text": _QWEN,
    "qwen3": replace(_QWEN, qk_norm=head_norm),
    "qwen3_vl_text": replace(_QWEN, qk_norm=head_norm),
    "olmo2": _OLMO,
    "olmo3": replace(_OLMO, sliding_window=cohere_2_window),
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, sliding_window=alternating_window),
    "gemma3_text": replace(_GEMMA, sliding_window=gemma_3_window, qk_norm=head_norm),
    "mixtral": _MIXTRAL,
    "llama4_text": _LLAMA_4,
    "gpt_oss": replace(_MIXTRAL, experts=gpt_oss_experts, sliding_window=alternating_window),
    "grok-1": replace(_MIXTRAL, is_tied=True),
    "phimoe": _MIXTRAL,
    "granitemoe": replace(_LLAMA, experts=local_experts),
    "minimax_m2": replace(_LLAMA, experts=local_experts, qk_norm=wide_norm),
    "olmoe": replace(_OLMO, experts=local_experts),
    "dbrx": Family(num_kv_heads=_dbrx_heads, ffn_hidden_size=_dbrx_ffn, experts=dbrx_experts),
    "qwen2_moe": _QWEN_MOE,
    "qwen3_moe": replace(_QWEN_MOE, qk_norm=head_norm),
    "qwen3_vl_moe_text": replace(_QWEN_MOE, qk_norm=head_norm),
    "deepseek": _DEEPSEEK_MOE,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _CHOOSING,
    "deepseek_v4": DEEPSEEK_V4,
    "kimi_k2": _DEEPSEEK,
    "dots1": replace(_DEEPSEEK_MOE, qk_norm=head_norm, sliding_window=dots_window),
    "ernie4_5_moe": replace(_LLAMA, is_tied=True, experts=ernie_experts),
    "glm4_moe": replace(_DEEPSEEK_MOE, qk_norm=_chosen_head_norm),
    "glm_moe_dsa": _CHOOSING,
    "nemotron": _PLAIN,
    "gpt_neox": replace(_PLAIN, num_kv_heads=all_heads, parallel_block=_neox_block),
    "gptj": _GPT_J,
    "codegen": _GPT_J,
    "phi": replace(_PLAIN, parallel_block=_one_norm),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, sliding_window=cohere_2_window),
    "falcon": replace(_BLOOM, num_kv_heads=_falcon_heads, parallel_block=_falcon_block),
    "bloom": _BLOOM,
    "opt": _OPT,
    "gpt2": _GPT2,
    **HYBRIDS,
}
"""Families by `model_type`, in reading order."""
