"""Which products does a kernel compute, what is cast with them, and what comes from other ranks?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from simulator.domain.lora import AdaptedProduct
from simulator.table import Floats


class Gathered(Enum):
    """What of a product comes from all tensor-parallel ranks, which cast their own tokens of it."""

    NOTHING = auto()
    INPUT = auto()
    """What enters a block, forward."""
    GRADIENT = auto()
    """The gradient of what leaves a block, backward."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Equal products that share waves of tiles, and the kernels that they are."""

    num_gemms: Floats | float = 1.0
    num_kernels: Floats | float = 1.0
    num_casts: float = 1.0
    """Tensors whose casts to 8 or 4 bits are launched with them in each direction, the input or its gradient."""
    gathered: Gathered = Gathered.NOTHING
    """What tensor-parallel ranks gather of the product with sequence parallelism."""
    name: AdaptedProduct | None = None
    """Which of the products that may have an adapter it is; `None`: none of them."""


ONE_PRODUCT = Batch()
ENTERING, LEAVING = Batch(gathered=Gathered.INPUT), Batch(gathered=Gathered.GRADIENT)
"""The first and the last product of a block that tensor-parallel ranks share out."""
INTO_ATTENTION = Batch(gathered=Gathered.INPUT, name=AdaptedProduct.QKV)
INTO_FEED_FORWARD = Batch(gathered=Gathered.INPUT, name=AdaptedProduct.FC1)
"""The first products of both blocks of a layer."""
