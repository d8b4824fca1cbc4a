"""Which experts does a published `config.json` describe? Hugging Face's names become fields of `MixtureOfExperts`.

Layers without experts may come first, or in between at equal distances; other orders are refused.
"""

from __future__ import annotations

from simulator.huggingface.reader import LAYER_KEYS, ConfigReader

Experts = dict[str, int]
"""Fields of `MixtureOfExperts`, not yet validated."""


def local_experts(reader: ConfigReader) -> Experts:
    """Mixtral, Grok and others: every layer routes; the file's feed-forward size is that of an expert."""
    return _experts(
        reader,
        num_experts=reader.whole("num_local_experts", "num_experts"),
        ffn=reader.whole("intermediate_size"),
    )


def gpt_oss_experts(reader: ConfigReader) -> Experts:
    """gpt-oss: every layer routes; the file's feed-forward size is that of an expert, and experts have biases."""
    return {**local_experts(reader), "has_biases": True}


def llama_4_experts(reader: ConfigReader) -> Experts:
    """Llama 4: every layer routes (Scout), or every second one (Maverick), with a shared expert of the same size."""
    ffn, step = reader.whole("intermediate_size"), reader.whole("interleave_moe_layer_step", default=1)
    num_experts = reader.whole("num_local_experts")
    if reader.has("moe_layers") and step:
        every = list(range(step - 1, reader.whole(*LAYER_KEYS), step))
        reader.require(
            "moe_layers", every, "experts in other layers than every so many (interleave_moe_layer_step)"
        )
    return _experts(reader, num_experts=num_experts, ffn=ffn, shared_ffn=ffn, layer_step=step)


def dbrx_experts(reader: ConfigReader) -> Experts:
    """DBRX: every layer routes; the fields for experts are in a separate mapping."""
    part = reader.part("ffn_config")
    return {
        "num_experts": part.whole("moe_num_experts"),
        "experts_per_token": part.whole("moe_top_k"),
        "expert_ffn_hidden_size": part.whole("ffn_hidden_size"),
    }


def ernie_experts(reader: ConfigReader) -> Experts:
    """ERNIE 4.5: every n-th layer routes, from a given layer up to the last."""
    if reader.config.get("moe_layer_end_index") not in (None, -1):
        reader.require(
            "moe_layer_end_index", reader.whole(*LAYER_KEYS) - 1, "dense layers behind those with experts"
        )
    ffn = reader.whole("moe_intermediate_size")
    return {
        "num_experts": reader.whole("moe_num_experts"),
        "experts_per_token": reader.whole("moe_k"),
        "expert_ffn_hidden_size": ffn,
        "shared_ffn_hidden_size": ffn * reader.whole("moe_num_shared_experts", default=0),
        "num_dense_layers": reader.whole("moe_layer_start_index", default=0),
        "layer_step": reader.whole("moe_layer_interval", default=1),
    }


def qwen_experts(reader: ConfigReader) -> Experts:
    """Qwen: leading layers, or all except every n-th, have none; one shared expert has a size of its own."""
    dense = reader.config.get("mlp_only_layers") or []
    leading = len(dense) if isinstance(dense, list) else 0
    if dense != list(range(leading)):
        reader.report("mlp_only_layers", "must be the leading layers 0, 1, ...; others cannot be described")
    return _experts(
        reader,
        num_experts=reader.whole("num_experts"),
        ffn=reader.whole("moe_intermediate_size"),
        shared_ffn=reader.whole("shared_expert_intermediate_size", default=0),
        num_dense_layers=leading,
        layer_step=reader.whole("decoder_sparse_step", default=1),
    )


def deepseek_experts(reader: ConfigReader) -> Experts:
    """DeepSeek, Kimi, GLM-4.5 and dots.llm1: some leading layers have none; shared experts are as large as routed ones."""
    reader.require("moe_layer_freq", 1, "dense layers behind those with experts")
    ffn = reader.whole("moe_intermediate_size")
    experts = _experts(
        reader,
        num_experts=reader.whole("n_routed_experts"),
        ffn=ffn,
        shared_ffn=ffn * reader.whole("n_shared_experts", default=0),
        num_dense_layers=reader.whole("first_k_dense_replace", default=0),
    )
    if reader.config.get("topk_method") == "greedy":
        return experts
    return {**experts, **_groups(reader, "n_group")}


def nemotron_h_experts(reader: ConfigReader, *, num_dense_layers: int) -> Experts:
    """Nemotron 3: the shared expert has a width of its own; experts of Super and Ultra read a latent of the tokens."""
    reader.require("n_shared_experts", 1, "another number of shared experts beside their width")
    experts = _experts(
        reader,
        num_experts=reader.whole("n_routed_experts"),
        ffn=reader.whole("moe_intermediate_size"),
        shared_ffn=reader.whole("moe_shared_expert_intermediate_size"),
        num_dense_layers=num_dense_layers,
    )
    return {
        **experts,
        "latent_size": reader.whole("moe_latent_size", default=0),
        **_groups(reader, "n_group"),
    }


def kimi_linear_experts(reader: ConfigReader) -> Experts:
    """Kimi Linear: as DeepSeek, by other names; experts on a latent of the tokens (Kimi K3) are refused."""
    reader.require("moe_layer_freq", 1, "dense layers behind those with experts")
    reader.require(
        "routed_expert_hidden_size",
        reader.whole("hidden_size"),
        "experts on a latent of another size than hidden_size",
    )
    ffn = reader.whole("moe_intermediate_size")
    return {
        "num_experts": reader.whole("num_experts"),
        "experts_per_token": reader.whole("num_experts_per_token"),
        "expert_ffn_hidden_size": ffn,
        "shared_ffn_hidden_size": ffn * reader.whole("num_shared_experts", default=0),
        "num_dense_layers": reader.whole("first_k_dense_replace", default=0),
        **_groups(reader, "num_expert_group"),
    }


def granite_hybrid_experts(reader: ConfigReader) -> Experts | None:
    """Granite 4: every layer routes, beside a shared expert; 0 experts are none."""
    num_experts = reader.whole("num_local_experts")
    if not num_experts:
        return None
    return _experts(
        reader,
        num_experts=num_experts,
        ffn=reader.whole("intermediate_size"),
        shared_ffn=reader.whole("shared_intermediate_size"),
    )


def _groups(reader: ConfigReader, key: str) -> Experts:
    """Groups of experts, and how many of them serve a token; all if the file does not say."""
    num_groups = reader.whole(key, default=1)
    return {
        "num_groups": num_groups,
        "groups_per_token": reader.whole("topk_group", default=num_groups),
    }


def _experts(
    reader: ConfigReader,
    *,
    num_experts: int,
    ffn: int,
    shared_ffn: int = 0,
    num_dense_layers: int = 0,
    layer_step: int = 1,
) -> Experts:
    return {
        "num_experts": num_experts,
        "experts_per_token": reader.whole("num_experts_per_tok", "experts_per_token"),
        "expert_ffn_hidden_size": ffn,
        "shared_ffn_hidden_size": shared_ffn,
        "num_dense_layers": num_dense_layers,
        "layer_step": layer_step,
    }
