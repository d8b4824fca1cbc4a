"""Which models do tests use whose layers share what an indexer chooses? Small ones of any order of layers."""

from __future__ import annotations

from simulator.domain.model import ModelShape
from tests.simulator.builders import changed
from tests.simulator.sparse import INDEXER, SMALL, with_indexer


def sharing(num_layers: int, *, step: int, leading: int) -> ModelShape:
    """Returns a model with an indexer in its leading layers and, behind them, in one of so many."""
    indexer = changed(INDEXER, layer_step=step, num_leading_layers=leading)
    return changed(with_indexer(SMALL, indexer), num_layers=num_layers)
