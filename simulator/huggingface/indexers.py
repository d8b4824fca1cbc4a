"""Which layers of a published `config.json` have an indexer, and how large is it? DeepSeek-V3.2 and GLM-5.

Layers without one see what the layer before them saw. A file says which by a distance (`index_topk_freq`) behind leading layers
(`index_skip_topk_offset`), by a letter for each layer (`index_topk_pattern`), or by their names (`indexer_types`); what it has
of these must agree (`GlmMoeDsaConfig` of transformers).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import takewhile

from simulator.huggingface.experts import Experts, deepseek_experts
from simulator.huggingface.family import Counts
from simulator.huggingface.reader import LAYER_KEYS, ConfigReader

_STEP, _LEADING = "index_topk_freq", "index_skip_topk_offset"
_LISTS = "indexer_types", "index_topk_pattern"
_HAS_INDEXER: Mapping[str, bool] = {"full": True, "F": True, "shared": False, "S": False}
"""Whether a layer of that name or letter has an indexer."""
_USUAL_LEADING = 2
"""Leading layers where a file has a distance and does not say (`GlmMoeDsaConfig`)."""
_ATTENTION = "deepseek_sparse_attention"
"""Name of all layers of these families in `layer_types`."""


def token_indexer(reader: ConfigReader) -> Counts:
    """Returns the fields of `TokenIndexer`; reports layers with another attention."""
    _names(reader, "layer_types", (_ATTENTION,))
    step, leading = _sharing(reader)
    return {
        "num_heads": reader.whole("index_n_heads"),
        "head_dim": reader.whole("index_head_dim"),
        "chosen_tokens": reader.whole("index_topk"),
        "layer_step": step,
        "num_leading_layers": leading,
    }


def layered_experts(reader: ConfigReader) -> Experts:
    """As DeepSeek's, where the file may name the layers with experts once more."""
    experts = deepseek_experts(reader)
    names, num_dense = _names(reader, "mlp_layer_types", ("dense", "sparse")), experts["num_dense_layers"]
    if any((name == "dense") != (place < num_dense) for place, name in enumerate(names)):
        rule = f"must name the first {num_dense} layers (first_k_dense_replace) dense, and the others sparse"
        reader.report("mlp_layer_types", rule)
    return experts


def _sharing(reader: ConfigReader) -> tuple[int, int]:
    """Returns of how many layers one has an indexer, and how many leading ones have one each; 1 and 0 where all have one."""
    key = next((key for key in _LISTS if reader.has(key)), _LISTS[0])
    named = [_HAS_INDEXER[name] for name in _names(reader, key, _HAS_INDEXER)]
    if not named:
        return _told(reader)
    if not named[0]:
        reader.report(key, "must begin with a layer that has an indexer")
        return 1, 0
    is_told = reader.has(_STEP)
    step, leading = _told(reader) if is_told else _found(named)
    if named != _layers(len(named), step, leading):
        told = f"the layers of {_STEP} ({step}) and {_LEADING} ({leading})"
        reader.report(
            key, f"must have indexers in {told if is_told else 'leading layers and every n-th one'}"
        )
    return step, leading


def _told(reader: ConfigReader) -> tuple[int, int]:
    """Returns the distance and the leading layers that a file tells; a distance of 0 is one of 1, as in `GlmMoeDsaConfig`."""
    step = max(reader.whole(_STEP, default=1), 1)
    if step == 1:
        return 1, 0
    leading = reader.whole(_LEADING, default=_USUAL_LEADING)
    if not leading:
        rule = f"must be at least 1 beside {_STEP} ({step}): no layer is before the first one"
        reader.report(_LEADING, rule)
    return step, leading


def _names(reader: ConfigReader, key: str, known: Collection[str]) -> list[str]:
    """Returns a known name for each layer, from a list or letters; nothing if the file has none, or after a problem."""
    if not reader.has(key):
        return []
    written, num_layers = reader.config[key], reader.whole(*LAYER_KEYS)
    names = [str(name) for name in written] if isinstance(written, list | str) else []
    if len(names) != num_layers or any(name not in known for name in names):
        reader.report(key, f"must name each of the {num_layers} layers: {', '.join(known)}")
        return []
    return names


def _found(named: list[bool]) -> tuple[int, int]:
    """Returns the distance from the last leading layer to the next one with an indexer, and the number of leading layers."""
    if all(named):
        return 1, 0
    leading = len(list(takewhile(bool, named)))
    shared = len(list(takewhile(lambda has_one: not has_one, named[leading:])))
    return shared + 1, leading


def _layers(num_layers: int, step: int, leading: int) -> list[bool]:
    """Returns whether each layer has an indexer."""
    return [place < leading or (place - leading + 1) % step == 0 for place in range(num_layers)]
