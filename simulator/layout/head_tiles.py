"""How many heads do kernels compute for a rank that attends to chosen tokens? Whole tiles of them."""

from __future__ import annotations

import numpy as np

from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable
from simulator.table import Floats

TILE_HEADS = 64
"""Heads of a tile (FlashMLA on Hopper; on Blackwell 64 or 128; `_get_head_padding` of Megatron Core)."""


def tiled_heads(model: ModelShape, plans: PlanTable) -> Floats:
    """Returns the heads of a rank, rounded up to whole tiles, `(n,)`."""
    return np.asarray(TILE_HEADS * np.ceil(model.num_heads / plans.tensor_parallel / TILE_HEADS))
