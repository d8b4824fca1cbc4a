"""In which number format does a measured run compute its products, and how are their inputs scaled? From one cell."""

from __future__ import annotations

import re

from planner.measured.cells.told import CannotModelError, Told
from planner.measured.cells.words import NOTHING_SAID, affirmed, first_affirmed
from simulator import catalog
from simulator.domain.hardware import Precision

_INTEGERS = re.compile(r"\bint-?8|\baqt\b")
_FORMATS = (
    ("fp4", "fp4"),
    (rf"{_INTEGERS.pattern}|fp8|float8|e4m3|e5m2|hybrid8|ms-?amp", "fp8"),
    ("bf16|bfloat16", "bf16"),
    (r"fp16|float16|half|\b16-mixed|\bo[12]\b", "fp16"),
)
"""Number formats by what their names contain, narrowest first: beside a narrow one, a wide one is that of the other products,
and 32 bits are those of sums and of master weights."""
_NARROW = r"(?:fp8|float8|mxfp8|int8|8[- ]?bit)"
_MOVED = (
    r"(?:comm\w*|dispatch\w*|gradients?|grads?|wire|moments?"
    r"|optim\w*(?: states?)?|kv[- ]?cache|all-?to-?all|a2a|all-?reduce)"
)
_NOT_COMPUTED = re.compile(rf"{_NARROW}[- ]+{_MOVED}|\b{_MOVED}\s*(?:in|at|:|=)\s*{_NARROW}", re.IGNORECASE)
"""Numbers of 8 bits that are sent or kept, not multiplied."""
_GATHERED = re.compile(
    rf"{_NARROW}[-_ ]+(?:(?:param\w*?|weights?)[-_ ])?(?:all[-_ ]?)?gathers?\b", re.IGNORECASE
)
"""Weights that are gathered in 8 bits, which those of 8-bit products are simulated to be (`gathers_cast_weights`)."""
_SOME_PRODUCTS = re.compile(
    rf"{_NARROW}\w*[- (]+(?:(?:for|in|the|routed|only)[- ]+)*(?:experts?|grouped[- ]gemms?|moe|mlps?|ffn|attention)\b",
    re.IGNORECASE,
)
_SOME_LAYERS = re.compile(
    r"\b(?:first|last|final|some|few)\b[^;]{0,40}?(?:bf16|fp16|16[- ]?bit|fp8|high(?:er)? precision)"
    r"|\b(?:bf16|fp16|16[- ]?bit|(?:mx)?fp8)\b[^;]{0,20}?\b(?:first|last|final|(?:some|few)\b[^;]{0,20}?layers?)\b",
    re.IGNORECASE,
)
"""Layers that a run in a narrow format keeps in a wider one."""
_OPEN = re.compile(
    r"(?:automatic |native |torch )?(?:mixed(?:[- ]precision)?|amp)(?: training)?|nf-?4|int-?4|4[- ]?bits?",
    re.IGNORECASE,
)
"""Words that leave open which format of 16 bits it is; frozen weights of 4 bits are multiplied in one."""
_RECIPES = (
    (r"mx-?(?:fp8|float8)|fp8\W{0,3}mx\b|\b1x32\b", "mxfp8"),
    (r"block|\bblk\b|tile|fine-?grained|deepseek|\b(?:1|128)x128\b|sub-?channel|fp8\W{0,3}sc\b", "blockwise"),
    (r"delayed|fp8\W{0,3}ds\b", "delayed"),
    (r"(tensor|row)-?wise|per-?(tensor|row)|current|fp8\W{0,3}cs\b", "tensorwise"),
)
"""Scalings by the words that mean them, Megatron-Bridge's `cs`, `ds`, `mx` and `sc` (sub-channel) included."""


def precision_of(told: Told, accelerator: str) -> str:
    """Returns the number format of a row; that of 16 bits which the accelerator has where the row leaves it open.

    Raises:
        CannotModelError: the simulator has no constants for it.
    """
    written = told.text("precision")
    if written.lower() in NOTHING_SAID or _OPEN.fullmatch(written):
        written = told.default("precision", _usual(accelerator))
    for meaning in _remarks_on(written):
        told.remark("precision", meaning)
    if scales_rows(written):
        told.assumed.append("fp8_recipe")
    if found := number_format(written):
        return found
    raise CannotModelError(f"precision {written}: only fp16, bf16, fp8 and nvfp4 are modelled")


def _usual(accelerator: str) -> str:
    has_bf16 = catalog.accelerator(accelerator).peak_flop_per_s(Precision.BF16) is not None
    return (Precision.BF16 if has_bf16 else Precision.FP16).value


def number_format(written: str) -> str:
    """Returns a `simulator.domain.hardware.Precision`; empty where the simulator has no constants for what is written."""
    return first_affirmed(_FORMATS, _computed(written)) or ""


def _computed(written: str) -> str:
    """Returns what a cell says of products, where it says anything of them."""
    text = written.lower()
    rest = _GATHERED.sub("", _NOT_COMPUTED.sub("", text))
    return rest if first_affirmed(_FORMATS, rest) else text


def _remarks_on(written: str) -> list[str]:
    """Returns what is simulated in another way than a cell says."""
    remarks, products = [], number_format(written)
    if scales_rows(written):
        remarks.append("scales of rows are simulated as scales of whole tensors")
    if affirmed("mxfp4", written):
        remarks.append("blocks of 32 are simulated as those of NVFP4")
    if products == "fp8" and affirmed(_INTEGERS, _computed(written)):
        remarks.append("8-bit integers are simulated as 8-bit floating point")
    if _leaves_moved_out(written, products):
        remarks.append(f"8 bits of what is sent or kept are not read here; products in {products}")
    elif products == "fp8" and affirmed(_SOME_PRODUCTS, written):
        remarks.append("all products of layers are simulated in 8 bits, not some of them alone")
    if products in ("fp4", "fp8") and affirmed(_SOME_LAYERS, written):
        remarks.append("all layers are simulated in the narrow format, also those that keep a wider one")
    elif products == "fp4" and affirmed("fp8|float8", _computed(written)):
        remarks.append("all products of layers are simulated in 4 bits, not some of them alone")
    return remarks


def _leaves_moved_out(written: str, products: str) -> bool:
    """Returns whether a cell says that something is sent or kept in 8 bits which is simulated otherwise."""
    if _computed(written) == written.lower():
        return False
    return bool(affirmed(_NOT_COMPUTED, written) or (products != "fp8" and affirmed(_GATHERED, written)))


def fp8_recipe(written: str) -> str:
    """Returns how inputs of 8-bit products are scaled, a `simulator.domain.choices.CastRecipe`; empty where nothing is said."""
    return first_affirmed(_RECIPES, re.sub(r"[_\s]+", "-", written.lower())) or ""


def scales_rows(written: str) -> bool:
    """Returns whether every row has a scale of its own, which is simulated as one scale for the tensor."""
    return bool(affirmed(r"row[-_ ]?wise|per[-_ ]?row", written))
