"""How many heads do kernels compute for a rank that attends to chosen tokens? Whole tiles of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from simulator.domain.model import ModelShape
from simulator.domain.plan import PlanTable
from simulator.table import Floats

TILE_HEADS = 64
"""Heads of a tile (FlashMLA on Hopper; on Blackwell 64 or 128; `_get_head_padding` of Megatron Core)."""


def in_tiles(num_heads: npt.ArrayLike) -> Floats:
    """Returns numbers of heads, rounded up to whole tiles; any shape."""
    return np.asarray(TILE_HEADS * np.ceil(np.asarray(num_heads) / TILE_HEADS))


def tiled_heads(model: ModelShape, plans: PlanTable) -> Floats:
    """Returns the heads of a rank, rounded up to whole tiles, `(n,)`."""
    return in_tiles(model.num_heads / plans.tensor_parallel)
