"""In which number format does a measured run compute its products, and how are their inputs scaled? From one cell."""

from __future__ import annotations

import re

from planner.measured_words import affirmed, first_affirmed

_WITHOUT_CONSTANTS = re.compile("mxfp4|int8")
_FORMATS = (
    ("fp4", "fp4"),
    ("fp8|float8|e4m3|e5m2|hybrid8", "fp8"),
    ("bf16|bfloat16", "bf16"),
    ("fp16|float16|half", "fp16"),
)
"""Number formats by what their names contain, narrowest first: beside a narrow one, a wide one is that of the other products,
and 32 bits are those of sums and of master weights."""
_RECIPES = (
    ("mx-?fp8|fp8-?mx", "mxfp8"),
    (r"block|sub-?channel|fp8-?sc\b", "blockwise"),
    (r"delayed|fp8-?ds\b", "delayed"),
    (r"(tensor|row)-?wise|per-?(tensor|row)|current|fp8-?cs\b", "tensorwise"),
)
"""Scalings by the words that mean them, Megatron-Bridge's `cs`, `ds`, `mx` and `sc` (sub-channel) included."""


def number_format(written: str) -> str:
    """Returns a `simulator.hardware.Precision`; empty where the simulator has no constants for what is written."""
    text = written.lower()
    if affirmed(_WITHOUT_CONSTANTS, text):
        return ""
    return first_affirmed(_FORMATS, text) or ""


def fp8_recipe(written: str) -> str:
    """Returns how inputs of 8-bit products are scaled, a `simulator.model.CastRecipe`; empty where nothing is said."""
    return first_affirmed(_RECIPES, re.sub(r"[_\s]+", "-", written.lower())) or ""


def scales_rows(written: str) -> bool:
    """Returns whether every row has a scale of its own, which is simulated as one scale for the tensor."""
    return bool(affirmed(r"row[-_ ]?wise|per[-_ ]?row", written))
