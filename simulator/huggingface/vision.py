"""Which vision encoder does the `config.json` of a multimodal model describe? Hugging Face's names become ours.

Towers and projectors are those of `transformers` and of Megatron-Bridge, read in August 2026. Norms in projectors and around
the layers, class tokens and the bias of the product of patches count as other weights. Megatron-Bridge runs some towers as
modules of Hugging Face, whole on every tensor-parallel rank, and others as its own, divided among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulator.huggingface.reader import Config, ConfigReader

VISION_KEY = "vision_config"
"""Key of the vision encoder in the file of a multimodal model."""
COLOURS = 3
"""Values of a pixel."""
INTERN_MERGED = 4
"""Patches of a token of InternVL."""
MOON_MERGE = 2
"""Patches of a token along each edge in Kimi's encoder, where the file does not say."""

Fields = dict[str, object]
"""Fields of `VisionEncoder`, not yet validated."""


def counted(reader: ConfigReader, key: str, default: int | None = None) -> int:
    """Returns the number under a key, which must be at least 1."""
    number = reader.whole(key, default=default)
    if number < 1:
        reader.report(key, "must be at least 1")
    return max(number, 1)


@dataclass(frozen=True, kw_only=True)
class MultimodalFile:
    """A `config.json` with a vision encoder."""

    whole: ConfigReader
    vision: ConfigReader
    """Its part about the encoder."""
    language_size: int
    """Width of the language model."""

    @property
    def hidden(self) -> int:
        """Width of the encoder by its usual name."""
        return counted(self.vision, "hidden_size")


def vision_from_config(config: Config, language_size: int, path: str) -> tuple[Fields, ConfigReader]:
    """Returns the fields of the encoder that a file describes, and the reader with its problems; none after a problem.

    Args:
        config: The parsed file, with its `vision_config`.
        language_size: Width of the language model.
        path: Location of the configuration, for the paths of problems.
    """
    whole = ConfigReader(config, path)
    read = READERS.get(whole.model_type)
    if read is None:
        known = ", ".join(READERS)
        whole.report(
            "model_type", f"must be one whose {VISION_KEY} is known: {known}; or write model.vision out"
        )
        return {}, whole
    vision = whole.part(VISION_KEY)
    return read(MultimodalFile(whole=whole, vision=vision, language_size=language_size)), whole


def _tower(
    reader: ConfigReader,
    *,
    layers: str = "num_hidden_layers",
    heads: str = "num_attention_heads",
    prefix: str = "",
) -> Fields:
    """The layers of an encoder by their usual names, which may begin with a prefix."""
    layers, heads = f"{prefix}{layers}", f"{prefix}{heads}"
    hidden, number = counted(reader, f"{prefix}hidden_size"), counted(reader, heads)
    if not reader.problems and hidden % number:
        reader.report(heads, f"must divide {prefix}hidden_size ({hidden})")
    return {
        "num_layers": counted(reader, layers),
        "hidden_size": hidden,
        "num_heads": number,
        "head_dim": hidden // number,
        "ffn_hidden_size": counted(reader, f"{prefix}intermediate_size"),
    }


def _patch(reader: ConfigReader, *, frames: int = 1) -> int:
    return COLOURS * frames * counted(reader, "patch_size") ** 2


def _grid(reader: ConfigReader) -> int:
    """Patches of the images that the positions are made for."""
    return (counted(reader, "image_size") // counted(reader, "patch_size")) ** 2


def _qwen_2_5(file: MultimodalFile) -> Fields:
    """Gated blocks with biases and RMS norms, windows in most layers, a merger of four patches."""
    vision = file.vision
    hidden, merged = file.hidden, counted(vision, "spatial_merge_size") ** 2
    edge = counted(vision, "window_size") // counted(vision, "patch_size")
    return {
        **_tower(vision, layers="depth", heads="num_heads"),
        "is_gated": True,
        "patch_values": _patch(vision, frames=counted(vision, "temporal_patch_size")),
        "patches_per_token": merged,
        "projector_sizes": (merged * hidden, merged * hidden),
        "window_patches": edge**2,
        "full_every": _full_every(vision, counted(vision, "depth")),
        "has_norm_biases": False,
        "is_replicated": True,
        "other_parameters": hidden,
    }


def _full_every(vision: ConfigReader, num_layers: int) -> int:
    """Every how many layers one sees whole images; they must be evenly spaced."""
    places = vision.config.get("fullatt_block_indexes")
    if isinstance(places, list) and places and isinstance(places[0], int) and places[0] >= 0:
        step = places[0] + 1
        if places == list(range(step - 1, num_layers, step)):
            return step
    vision.report("fullatt_block_indexes", "must list the last of every n layers: others cannot be described")
    return 1


def _qwen_3(file: MultimodalFile) -> Fields:
    """Qwen3-VL and Qwen3.5: learned positions, and projectors of inner layers where the file lists them."""
    vision = file.vision
    hidden, merged = file.hidden, counted(vision, "spatial_merge_size") ** 2
    inner = [] if not vision.has("deepstack_visual_indexes") else vision.config["deepstack_visual_indexes"]
    if not isinstance(inner, list):
        vision.report("deepstack_visual_indexes", "must be a list of layers")
        inner = []
    return {
        **_tower(vision, layers="depth", heads="num_heads"),
        "patch_values": _patch(vision, frames=counted(vision, "temporal_patch_size")),
        "num_learned_positions": counted(vision, "num_position_embeddings"),
        "patches_per_token": merged,
        "projector_sizes": (merged * hidden, merged * hidden),
        "num_projectors": 1 + len(inner),
        "other_parameters": (3 + 2 * merged * len(inner)) * hidden,
    }


def _gemma_3(file: MultimodalFile) -> Fields:
    """SigLIP; the mean of several patches enters one matrix."""
    vision = file.vision
    hidden, grid = file.hidden, _grid(vision)
    per_image = counted(file.whole, "mm_tokens_per_image")
    if not file.whole.problems and grid % per_image:
        file.whole.report("mm_tokens_per_image", f"must divide the {grid} patches of an image")
    return {
        **_tower(vision),
        "patch_values": _patch(vision),
        "num_learned_positions": grid,
        "patches_per_token": max(1, grid // per_image),
        "projector_sizes": (hidden,),
        "has_projector_biases": False,
        "is_replicated": True,
        "other_parameters": 4 * hidden,
    }


def _llama_4(file: MultimodalFile) -> Fields:
    """Four patches side by side enter an adapter of two products, and its output the projector."""
    vision = file.vision
    hidden, inner = file.hidden, counted(vision, "projector_input_dim")
    ratio = vision.config.get("pixel_shuffle_ratio")
    if not isinstance(ratio, float) or not 0.0 < ratio <= 1.0:
        vision.report("pixel_shuffle_ratio", "must be a share of 1")
        ratio = 1.0
    merged = round(1.0 / ratio**2)
    return {
        **_tower(vision),
        "patch_values": _patch(vision),
        "num_learned_positions": _grid(vision) + 1,
        "patches_per_token": merged,
        "projector_sizes": (merged * hidden, inner, counted(vision, "projector_output_dim")),
        "has_projector_biases": False,
        "other_parameters": 5 * hidden,
    }


def _pixtral(file: MultimodalFile) -> Fields:
    """Mistral 3: gated blocks without biases, a product that merges patches, and two that project them."""
    vision = file.vision
    hidden, merged = file.hidden, counted(file.whole, "spatial_merge_size", default=1) ** 2
    has_biases = file.whole.truth("multimodal_projector_bias", default=False)
    return {
        **_tower(vision),
        "is_gated": True,
        "patch_values": _patch(vision),
        "patches_per_token": merged,
        "projector_sizes": (merged * hidden, hidden, file.language_size),
        "has_biases": False,
        "has_norm_biases": False,
        "has_projector_biases": has_biases,
        "is_replicated": True,
        "other_parameters": 2 * hidden,
    }


def _llava(file: MultimodalFile) -> Fields:
    """CLIP or SigLIP, every patch a token of its own."""
    vision = file.vision
    hidden, grid, kind = file.hidden, _grid(vision), vision.config.get("model_type")
    if kind not in ("clip_vision_model", "siglip_vision_model"):
        vision.report("model_type", "must be clip_vision_model or siglip_vision_model beside a LLaVA")
    is_clip = kind == "clip_vision_model"
    return {
        **_tower(vision),
        "patch_values": _patch(vision),
        "num_learned_positions": grid + is_clip,
        "projector_sizes": (hidden, file.language_size),
        "other_parameters": (5 if is_clip else 3) * hidden,
    }


def _intern(file: MultimodalFile) -> Fields:
    """InternViT with four patches side by side; its layers are scaled, and large ones have norms of queries and keys."""
    vision = file.vision
    hidden, depth = file.hidden, counted(vision, "num_hidden_layers")
    size, patch = (_edge(vision, key) for key in ("image_size", "patch_size"))
    has_qkv = vision.truth("attention_bias", default=False)
    has_norms = vision.truth("use_qk_norm", default=False)
    is_rms = vision.config.get("norm_type") == "rms_norm"
    # The bias of queries, keys and values is that of the products; where it is missing, the others are told apart.
    per_layer = (2 + 2 * has_norms) * hidden
    if not has_qkv:
        per_layer += 2 * hidden + counted(vision, "intermediate_size")
    return {
        **_tower(vision),
        "patch_values": COLOURS * patch**2,
        "num_learned_positions": (size // patch) ** 2 + 1,
        "patches_per_token": INTERN_MERGED,
        "projector_sizes": (INTERN_MERGED * hidden, file.language_size),
        "has_biases": has_qkv,
        "has_norm_biases": not is_rms,
        "is_replicated": True,
        "other_parameters": depth * per_layer + (2 + 2 * INTERN_MERGED) * hidden,
    }


def _edge(vision: ConfigReader, key: str) -> int:
    """A length in pixels, which InternVL's files give for both edges."""
    value = vision.config.get(key)
    if isinstance(value, list) and value and all(each == value[0] for each in value):
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        vision.report(key, "must be a length in pixels, equal for both edges")
        return 1
    return value


def _kimi(file: MultimodalFile) -> Fields:
    """MoonViT: names of its own in Kimi K2.5, the usual ones in Kimi-VL."""
    vision = file.vision
    prefix = "vt_" if vision.has("vt_hidden_size") else ""
    hidden, merged = counted(vision, f"{prefix}hidden_size"), _merged(vision)
    return {
        **_tower(vision, prefix=prefix),
        "patch_values": _patch(vision),
        "num_learned_positions": counted(vision, "init_pos_emb_height")
        * counted(vision, "init_pos_emb_width"),
        "patches_per_token": merged,
        "projector_sizes": (merged * hidden, merged * hidden),
        "is_replicated": True,
        "other_parameters": 5 * hidden,
    }


def _merged(vision: ConfigReader) -> int:
    """Patches of a token of Kimi's encoder: a number along each edge."""
    lengths = vision.config.get("merge_kernel_size", [MOON_MERGE, MOON_MERGE])
    if isinstance(lengths, list) and len(lengths) == 2 and all(type(each) is int for each in lengths):
        high, wide = lengths
        if min(high, wide) > 0:
            return int(high * wide)
    vision.report("merge_kernel_size", "must be a list of two lengths")
    return 1


READERS: Mapping[str, Callable[[MultimodalFile], Fields]] = {
    "qwen2_5_vl": _qwen_2_5,
    "qwen3_vl": _qwen_3,
    "qwen3_vl_moe": _qwen_3,
    "qwen3_5": _qwen_3,
    "qwen3_5_moe": _qwen_3,
    "gemma3": _gemma_3,
    "llama4": _llama_4,
    "mistral3": _pixtral,
    "llava": _llava,
    "internvl": _intern,
    "kimi_vl": _kimi,
    "kimi_k25": _kimi,
}
"""Readers by `model_type` of the whole file."""
