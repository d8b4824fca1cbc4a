"""Where may the chunks of a pipeline begin if layers share what an indexer chooses? At layers that have one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from simulator.domain.model import ModelShape

Way = tuple[float, tuple[int, ...]]
"""Layers by which the beginnings of chunks are moved, all together, and the beginnings."""


def shares_choices(model: ModelShape) -> bool:
    """Returns whether some layers see what the layer before them saw."""
    return model.indexer is not None and model.indexer_share < 1.0


def cut_at_indexers(model: ModelShape, cut: Sequence[int]) -> tuple[int, ...] | None:
    """Returns the nearest cut whose chunks begin with layers that have an indexer; `None` with more chunks than such layers.

    Args:
        model: whose layers share choices.
        cut: layers of every chunk, in model order; only the first and the last one may be empty.

    Example:
        >>> from simulator.catalog import model
        >>> cut_at_indexers(model("glm-5.2"), [20, 20, 19, 19])
        (18, 20, 20, 20)
    """
    begins, places = [*accumulate(cut)][:-1], _places(model, cut)
    if len(begins) > len(places):
        return None
    _, chosen = _nearest(begins, places)
    return tuple(after - before for before, after in pairwise((0, *chosen, model.num_layers)))


def _places(model: ModelShape, cut: Sequence[int]) -> list[int]:
    """Layers, counted from 0, with which a chunk may begin: the first and the end of all only beside an empty chunk."""
    assert model.indexer is not None
    counts = [model.indexer.num_among(num_layers) for num_layers in range(model.num_layers + 1)]
    first, *later = (layer for layer, (before, after) in enumerate(pairwise(counts)) if after > before)
    return [*([first] if cut[0] == 0 else []), *later, *([model.num_layers] if cut[-1] == 0 else [])]


def _nearest(begins: Iterable[int], places: Sequence[int]) -> Way:
    """Moves beginnings to increasing places, so that they move by the fewest layers.

    For each number of leading places, the best way for the beginnings so far is kept; one more beginning takes the last of
    these places, or an earlier one.
    """
    ways: list[Way] = [(0.0, ())] * (len(places) + 1)
    for begin in begins:
        longer: list[Way] = [(math.inf, ())]
        for (moved, chosen), place in zip(ways[:-1], places, strict=True):
            longer.append(min(longer[-1], (moved + abs(begin - place), (*chosen, place))))
        ways = longer
    return ways[-1]
