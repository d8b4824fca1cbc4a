"""What are the operators of a layer called, and which of them have weights?"""

from __future__ import annotations

from simulator.layers.layer_costs import INTO_LATENT, OUT_OF_LATENT, ROUTED_EXPERTS
from simulator.layers.recomputed_modules import SHARED_EXPERTS

HOST = "waiting for the host"
EXPERT = "expert traffic"
"""Name of the traffic to experts and back in sentences."""
PROJECTIONS, FEED_FORWARD = "attention projections", "feed-forward products"
"""Names of the operators that contain the first product of a block."""
SCAN = "scan of linear attention"
"""Name of everything between the products of blocks with linear attention."""
INDEXER = "indexer"
"""Name of what chooses the tokens that attention sees, and of its loss."""
CORE = "attention core"
"""Name of the kernel that hides what context-parallel ranks exchange."""
OUTPUT_PRODUCT, ROUTER = "attention output product", "router"
PRODUCTS = (
    PROJECTIONS,
    OUTPUT_PRODUCT,
    FEED_FORWARD,
    ROUTED_EXPERTS,
    ROUTER,
    SHARED_EXPERTS,
    INTO_LATENT,
    OUT_OF_LATENT,
    INDEXER,
)
"""Operators that have weights."""
NORMS, SUM = "norms and residuals", "sum of both blocks"
"""Names of the memory-bound operators of a layer."""
