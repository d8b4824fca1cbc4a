"""Which products does a kernel compute, what is cast with them, and which operands come from other ranks?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from simulator.domain.lora import AdaptedProduct
from simulator.table import Floats


class Gathered(Enum):
    """Which operand of a product is gathered from all tensor-parallel ranks, each of which casts its own tokens."""

    NOTHING = auto()
    INPUT = auto()
    """The input of a block, forward."""
    GRADIENT = auto()
    """The gradient of a block's output, backward."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Equal products that share waves of tiles, and their number of kernels."""

    num_gemms: Floats | float = 1.0
    num_kernels: Floats | float = 1.0
    num_casts: float = 1.0
    """Tensors whose casts to 8 or 4 bits are launched with the products in each direction: inputs or gradients."""
    gathered: Gathered = Gathered.NOTHING
    """Which operand tensor-parallel ranks gather with sequence parallelism."""
    name: AdaptedProduct | None = None
    """Which of the products that may have an adapter it is; `None`: none of these."""


Product = tuple[Floats, Floats, Floats]
"""Tokens, output and inner size of a product on one rank, `(n,)` each."""
ONE_PRODUCT = Batch()
ENTERING, LEAVING = Batch(gathered=Gathered.INPUT), Batch(gathered=Gathered.GRADIENT)
"""The first and the last product of a block that tensor-parallel ranks split."""
INTO_ATTENTION = Batch(gathered=Gathered.INPUT, name=AdaptedProduct.QKV)
INTO_FEED_FORWARD = Batch(gathered=Gathered.INPUT, name=AdaptedProduct.FC1)
"""The first products of both blocks of a layer."""
