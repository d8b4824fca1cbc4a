"""Which layers of a published `config.json` have a limited attention window?

`sliding_window`, or Llama 4's `attention_chunk_size`, gives its length; `layer_types` or the family decides in which layers.
"""

from __future__ import annotations

from simulator.huggingface.reader import LAYER_KEYS, ConfigReader

Window = dict[str, int | None]
"""Fields of `SlidingWindow`, not yet validated."""


def window_everywhere(reader: ConfigReader) -> Window | None:
    """Mistral: a window in every layer."""
    return _window(reader)


def alternating_window(reader: ConfigReader) -> Window | None:
    """Gemma 2 and gpt-oss: every other layer sees everything."""
    return _window(reader, full_every=2)


def gemma_3_window(reader: ConfigReader) -> Window | None:
    """Gemma 3: every sixth layer sees everything."""
    return _window(reader, full_every=6)


def cohere_2_window(reader: ConfigReader) -> Window | None:
    """Command R7B, Command A and OLMo 3: every fourth layer sees everything."""
    return _window(reader, full_every=4)


def qwen_window(reader: ConfigReader) -> Window | None:
    """Qwen: a window in the layers from `max_window_layers` on, and only if the file enables it."""
    return _late_window(reader) if reader.truth("use_sliding_window", default=False) else None


def dots_window(reader: ConfigReader) -> Window | None:
    """dots.llm1: the same, whenever the file has a window."""
    return _late_window(reader) if reader.has("sliding_window") else None


def _late_window(reader: ConfigReader) -> Window | None:
    first = reader.whole("max_window_layers", default=0)
    if first >= reader.whole(*LAYER_KEYS):
        return None
    if first:
        reader.report("max_window_layers", "must be 0, or all layers: a part of them cannot be described")
    return _window(reader)


def llama_4_chunks(reader: ConfigReader) -> Window | None:
    """Llama 4: chunks of tokens that do not see each other, except in every fourth layer."""
    if not reader.has("attention_chunk_size"):
        return None
    every = reader.whole("no_rope_layer_interval", default=4)
    window: Window = {
        "window_tokens": reader.whole("attention_chunk_size"),
        "full_every": every,
        "is_chunked": True,
    }
    return _with_layer_types(reader, window, "chunked_attention")


def _with_layer_types(reader: ConfigReader, window: Window, windowed: str) -> Window | None:
    """Uses `layer_types`, if the file has it, to find the layers that see everything: the last of every n."""
    types = reader.config.get("layer_types")
    if types is None:
        return window
    names = list(types) if isinstance(types, list) else []
    full = [place for place, name in enumerate(names, start=1) if name == "full_attention"]
    every = full[0] if full else None
    periodic = list(range(every, len(names) + 1, every)) if every else []
    if full != periodic or len(full) + names.count(windowed) != reader.whole(*LAYER_KEYS):
        reader.report(
            "layer_types", f"must name every layer {windowed} but the last of each so many, full_attention"
        )
    return None if every == 1 else {**window, "full_every": every}


def _window(reader: ConfigReader, *, full_every: int | None = None) -> Window | None:
    """A window from the file's `sliding_window`; the file, or else the family, decides which layers see everything."""
    if not reader.has("sliding_window") or not reader.truth("use_sliding_window", default=True):
        return None
    if reader.has("sliding_window_pattern"):
        full_every = reader.whole("sliding_window_pattern")
    return _with_layer_types(
        reader,
        {"window_tokens": reader.whole("sliding_window"), "full_every": full_every},
        "sliding_attention",
    )
