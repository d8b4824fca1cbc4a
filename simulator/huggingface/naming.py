"""What is the model of a `config.json` called? It is named after its file or folder if informative, else by its own keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from simulator.huggingface.reader import Config

_LONGEST_NAME = 100
"""Longest name that `ModelShape.name` accepts."""
NAME_KEY = "_name_or_path"
"""Key in which transformers records the origin of a model: a repository or a folder."""
_CACHED = "models--"
"""Prefix of folders in Hugging Face's cache, where a model is below `snapshots` and a hash."""
_SAYS_NOTHING = re.compile(
    r"|\W+|[0-9a-f]{7,64}|hf|hugging_?face|transformers|pytorch|safetensors|snapshots|original|main|latest|final"
    r"|(config|model|weight|checkpoint|ckpt|output)s?|(checkpoint|ckpt|step|epoch)[-_]?\d+",
    re.IGNORECASE,
)
"""Names of files and folders that carry no information."""


def model_name(config: Config, file: PurePath) -> str:
    """Returns a name for reports.

    Args:
        config: the parsed file.
        file: its path as the user wrote it.
    """
    return next(filter(_is_telling, _names(config, file)), "config.json")


def _names(config: Config, file: PurePath) -> Iterator[str]:
    """Yields candidate names, the most reliable first."""
    near, *far = [file.stem, *reversed(file.parent.parts)]
    yield near
    yield from far[:1]
    yield from (part.rpartition("--")[2] for part in far if part.startswith(_CACHED))
    yield from reversed(PurePath(str(config.get(NAME_KEY) or "")).parts)
    yield from far[1:]
    yield str(config.get("model_type") or "")


def _is_telling(name: str) -> bool:
    return not _SAYS_NOTHING.fullmatch(name) and name.isprintable() and len(name) <= _LONGEST_NAME
