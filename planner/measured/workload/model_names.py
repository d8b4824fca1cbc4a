"""Which catalogue model does `Llama3.1-405B` or `DeepSeek-V3 (proxy 12L)` mean, and what else does such a name say?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache

from planner.measured.cells.told import CannotModelError
from planner.measured.workload.hybrids import counts_all_blocks, cut_down
from simulator import catalog
from simulator.catalog import Kind
from simulator.domain.choices import QueryKeyNorm
from simulator.domain.model import ModelShape
from simulator.domain.vision import VisionEncoder
from simulator.units import GIGA, TERA

_HEAD_NORMS: Mapping[str, QueryKeyNorm] = {
    r"qwen-?3(?!\.|-?next)": "per_head",
    r"gemma-?3(?!n)": "per_head",
    r"glm-?4\.[5-7](?!v|.*(?:air|flash))": "per_head",
    r"olmo-?[23]": "all_heads",
    r"llama-?4(?!.*(?:maverick|128e))": "unweighted",
}
_PUBLISHERS = re.compile(
    r"(?:(?:nvidia|meta(?:-llama)?|deepseek-?ai|moonshot(?:-?ai)?|mistral-?ai|alibaba|google|facebook|eleuther-?ai|bigscience"
    r"|tii(?:uae)?|databricks|open-?ai|allen-?ai|ai2|xai(?:-org)?)-(?!v?\d))+"
)
_ALSO_CALLED: tuple[tuple[str, str], ...] = (
    (r"llama3(?:\.?[13])?(?=(8|70|405)b)", "llama3.1"),
    (r"llama1?(?=(7|13)b)", "llama2"),
    (r"qwen2(?=(7|72)b)", "qwen2.5"),
    (r"gpt(?=175b)", "gpt3"),
    (r"gpt3$", "gpt3175b"),
    (r"gpt2(?=1\.5b|15b)", "gpt2xl"),
    (r"(?:dsv3|deepseekr1(?!distill)|deepseek3?(?=671b))", "deepseekv3"),
    (r"(?:dsv4|deepseekv?4)(?=flash|pro)", "deepseekv4"),
    (r"(?:dsv4|deepseekv?4)(?=284b)", "deepseekv4flash"),
    (r"(?:dsv4|deepseekv?4)(?=1\.6t)", "deepseekv4pro"),
    (r"qwen3235b(?!a)", "qwen3235ba22b"),
    (r"qwen330b(?!a)", "qwen330ba3b"),
    (r"qwen3moe235b(?:a22b)?", "qwen3235ba22b"),
    (r"qwen3moe30b(?:a3b)?", "qwen330ba3b"),
    (r"llama1(?=\d+b)", "llama"),
    (r"qwen3(?:coder)?next(?:80b)?(?:a3b)?(?![\d.]+b)", "qwen3next80ba3b"),
    (r"qwen3vl235b(?!a)", "qwen3vl235ba22b"),
    (r"qwen3vl30b(?!a)", "qwen3vl30ba3b"),
    (r"qwen3\.[56]35b(?:a3b|(?!a))", "qwen3.535ba3b"),
    (r"qwen3\.827b", "qwen3.527b"),
    (r"granite4(?=h(?:small|tiny))", "granite4.0"),
    (r"kimilinear(?:48b)?(?:a3b)?(?![\d.]+b)", "kimilinear48ba3b"),
    (r"nemotron3nano(?:30b)?(?:a3b)?(?![\d.]+b)", "nemotron3nano30ba3b"),
    (r"nemotron3super(?:120b)?(?:a12b)?(?![\d.]+b)", "nemotron3super120ba12b"),
    (r"nemotron3ultra(?:550b)?(?:a55b)?(?![\d.]+b)", "nemotron3ultra550ba55b"),
    (r"neox20b|gptneox$", "gptneox20b"),
    (r"nemotron(?=(15|340)b)", "nemotron4"),
    (r"dbrx(?!132b)", "dbrx132b"),
    (r"grok(?=314b)", "grok1"),
    (r"llama4(?:17bx?)?16e(?!\d)", "llama4scout"),
    (r"llama4(?:17bx?)?128e", "llama4maverick"),
    (r"bloom$", "bloom176b"),
    (r"palm$", "palm540b"),
    (r"mtnlg$|megatronturing(nlg)?(530b)?$", "mtnlg530b"),
)
"""Other names of models of the catalogue, and of those with the same layers, by how they read without hyphens."""
_IN_TORCHTITAN: Mapping[str, str] = {"deepseekv316b": "deepseek-v2-lite"}
"""What torchtitan calls models that are published under other names (`16B` in `models/deepseek_v3/__init__.py`)."""
_TYING = (
    r"gpt-?[23]?\b|gpt-?[\d.]+[bt]|gpt3|megatron|mt-nlg|bloom|mpt|opt|gemma|falcon|smollm"
    r"|qwen-?2(?:\.5)?-?(?:[a-z]+-)*(?:0\.5|1\.5|3)b|qwen-?3-?(?:[a-z]+-)*(?:0\.6|1\.7|4)b"
)
"""Families, and small ones of Qwen, whose output layer is their embedding (`tie_word_embeddings`)."""
_GATED = re.compile(r"gemma|qwen|olmo|(mi|mini|code|dev)stral|mixtral|llama|smollm", re.IGNORECASE)
_PLAIN = re.compile(r"nemotron|minitron|apertus", re.IGNORECASE)
"""Families whose feed-forward networks all have a gate, or none, whatever their width: SmolLM, Llama-3.2-1B and Gemma-2-9B are
4 h wide with one, Nemotron-Mini 3 h and Apertus 5.25 h without."""
_EVERY_OTHER = re.compile(r"maverick|llama[-_ ]?4\b.*128e", re.IGNORECASE)
"""Models with dense layers between those with experts (`interleave_moe_layer_step` of Llama 4)."""
_SIZE = re.compile(r"(?<![a-z\d.])(\d+(?:\.\d+)?)-?([bt])(?![a-z\d])")
_UNITS = {"b": GIGA, "t": TERA}
_FIRST_YEARS = (
    (
        r"llama-?[34]|qwen-?[23]|gemma|dbrx|grok|olmo|deepseek-?v[23]|kimi|gpt-?oss|nemotron|phi-?[34]|glm-?[45]",
        2024,
    ),
    (
        r"llama|mistral|mixtral|mpt|falcon|qwen|internlm|baichuan|yi-|skywork|starcoder|deepseek|phi-?[12]",
        2023,
    ),
)
"""Years before which no network of a family was published, latest first, as far as habits of software tell them apart."""
SAME_SIZE = 0.25
"""Fraction by which the parameters in a name differ at most from the model's: Llama-3.2-1B has 1.24 billion."""
_LAYERS = re.compile(r"\b(\d{1,3})[- ]?(?:layers?|l)\b", re.IGNORECASE)


def known_shape(
    name: str, num_layers: int | None, hidden_size: int | None, num_heads: int | None
) -> ModelShape | None:
    """Returns the catalogue's shape of a model if its name starts alike and the sizes that are given do not differ.

    A publisher before the name is no part of it.

    Fewer layers are no other model: measured models are often cut down. Another number of parameters in the name is one:
    `DeepSeek-V3 20B`. Layers of a hybrid may count all of its blocks. Sizes that are `None` are not given.
    """
    names = _spelt_alike(name), _IN_TORCHTITAN.get(_plain(_bare(name)))
    shapes = (catalog.model(known) for known in names if known)
    return next(
        (shape for shape in shapes if _is_same(shape, name, num_layers, hidden_size, num_heads)), None
    )


def _is_same(
    shape: ModelShape, name: str, num_layers: int | None, hidden_size: int | None, num_heads: int | None
) -> bool:
    """Returns whether the sizes that are given, also in the name, are those of a model, but perhaps for fewer layers."""
    if hidden_size not in (None, shape.hidden_size) or num_heads not in (None, shape.num_heads):
        return False
    layers = None if counts_all_blocks(shape, num_layers) else num_layers
    is_larger = layers is not None and layers > shape.num_layers
    return not is_larger and _may_have_size(shape, layers, name)


def known_encoder(name: str) -> VisionEncoder | None:
    """Returns the vision encoder of the catalogue's model whose name starts alike; `None` without either."""
    known = _spelt_alike(name)
    return catalog.model(known, has_vision=True).vision if known else None


def _spelt_alike(name: str) -> str | None:
    """Returns the longest name of the catalogue with which another one starts."""
    plain = _usual(_plain(_bare(name)))
    return next((known for spelling, known in _spellings().items() if plain.startswith(spelling)), None)


def _may_have_size(shape: ModelShape, num_layers: int | None, name: str) -> bool:
    """Returns whether a name gives no number of parameters or that of the model, of its active ones or of some layers."""
    sizes = sizes_in_name(name)
    cut = _cut_parameters(shape, num_layers) if num_layers else ()
    known = (shape.num_parameters, shape.num_active_parameters, *cut)
    return not sizes or any(math.isclose(size, one, rel_tol=SAME_SIZE) for size in sizes for one in known)


def _cut_parameters(shape: ModelShape, num_layers: int) -> tuple[int, ...]:
    """Returns the parameters of a model with fewer layers; nothing if it cannot have so many."""
    try:
        return (cut_down(shape, num_layers).num_parameters,)
    except CannotModelError:
        return ()


def sizes_in_name(name: str) -> list[float]:
    """Returns the numbers of parameters that a name gives, as `8x22B` does not."""
    return [float(size) * _UNITS[unit] for size, unit in _SIZE.findall(_bare(name))]


def layers_in_name(name: str) -> int | None:
    """Returns the layers that a name gives a cut model, as in `DeepSeek-V3 (proxy 12L)`."""
    found = _LAYERS.search(name)
    return int(found[1]) if found else None


def expert_layer_step(name: str) -> int:
    """Returns of how many layers one has experts, behind the leading ones without; 2 for Llama 4 Maverick, else 1."""
    return 2 if _EVERY_OTHER.search(name) else 1


def ties_embeddings(name: str) -> bool:
    """Returns whether a model that the catalogue does not know is of a family that ties its embeddings."""
    return bool(re.match(_TYING, _bare(name)))


def gates_blocks(name: str) -> bool | None:
    """Returns whether feed-forward networks of a family have a gate; `None` where its name does not tell."""
    return True if _GATED.search(name) else False if _PLAIN.search(name) else None


def norms_heads(name: str) -> QueryKeyNorm | None:
    """Returns the norms of queries and keys that all models of a family have; `None` where it has none, or not all do."""
    return next((norm for family, norm in _HEAD_NORMS.items() if re.match(family, _bare(name))), None)


def first_year(name: str) -> int | None:
    """Returns the year before which nobody can have trained a network; `None` where its family is older or not known."""
    return next((year for words, year in _FIRST_YEARS if re.match(words, _bare(name))), None)


def _bare(name: str) -> str:
    """Returns a name in lower case without its publisher, its words joined by hyphens."""
    joined = re.sub(r"[\s_]+", "-", re.sub(r"^[^\s/]+/(?=\w)", "", name.lower()))
    return _PUBLISHERS.sub("", joined, count=1) if _PUBLISHERS.match(joined) else joined


def _usual(plain: str) -> str:
    """Returns the name of the catalogue that another stands for."""
    for words, usual in _ALSO_CALLED:
        if found := re.match(words, plain):
            return usual + plain[found.end() :]
    return plain


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


@cache
def _spellings() -> dict[str, str]:
    """Catalogue names by how they read without hyphens, longest first, so that the closest one is found."""
    found = {_plain(name): name for name in catalog.names(Kind.MODELS)}
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))
