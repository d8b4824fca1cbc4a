"""Which model does an answer to `capplan init` mean? One of the catalogue, or the user's own `config.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os.path import relpath
from pathlib import Path

from planner.input.yaml_text import read_document
from simulator import catalog
from simulator.domain.model import ModelShape
from simulator.errors import InputError
from simulator.huggingface.naming import model_name
from simulator.huggingface.shape import language_part, shape_from_config

_SUFFIX = ".json"
_POSITIONS = ("max_position_embeddings", "n_positions")
"""Keys of a `config.json` that give the longest sequence for which a model was made."""


def is_config(text: str) -> bool:
    """Returns whether an answer is a file path: names of the catalogue have neither a slash nor this suffix."""
    return "/" in text or text.lower().endswith(_SUFFIX)


def model_shape(text: str) -> ModelShape:
    """Returns the shape of a model of the catalogue or of a `config.json`.

    Raises:
        ValueError: the file cannot be read, or does not describe a model that capplan knows; gives all reasons.
    """
    if not is_config(text):
        return catalog.model(text)
    if not text.isprintable():
        raise ValueError("must be a path of printable signs only")
    try:
        document = read_document(Path(text))
        if isinstance(document, Mapping):
            return shape_from_config(document, model_name(document, Path(text)))
    except InputError as error:
        raise ValueError("; ".join(str(problem) for problem in error.problems)) from None
    raise ValueError("must be a config.json, which holds one mapping")


def longest_sequence(text: str) -> int | None:
    """Returns the longest sequence, in tokens, for which a model (as for `model_shape`) was made; `None` if unknown."""
    if not is_config(text):
        return catalog.model(text).num_learned_positions or None
    document = read_document(Path(text))
    config = language_part(document) if isinstance(document, Mapping) else {}
    found = [config.get(key) for key in _POSITIONS]
    return next((value for value in found if isinstance(value, int) and value > 0), None)


def model_value(text: str, file: Path) -> str:
    """Returns the model as written in a job file; the path of a configuration is relative to the folder of that file."""
    if not is_config(text):
        return text
    path = Path(text)
    place = path if path.is_absolute() else relpath(path, file.parent)
    return f"{{config: {json.dumps(str(place), ensure_ascii=False)}}}"
