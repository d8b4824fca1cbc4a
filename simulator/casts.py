"""What do products in 8 and 4 bits ask of their inputs? The size of a value with its scale, and the passes of a cast.

An input is cast once for each of its two uses, by rows and by columns (Transformer Engine). Scales take a byte for each 16
values of NVFP4 and 32 of MXFP8, and 4 bytes for each 128 where blocks are scaled in software.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.hardware import Precision
from simulator.job import Workload
from simulator.model import CastRecipe
from simulator.plan import PlanTable
from simulator.table import Booleans, Floats

PRODUCT_BYTES: Mapping[Precision, float] = {
    Precision.FP16: 2.0,
    Precision.BF16: 2.0,
    Precision.FP8: 1.0,
    Precision.FP4: 0.5 + 1.0 / 16.0,
}
"""Bytes of a value that a product reads; the scales of 8 bits are next to nothing."""
_PRODUCT_BYTES_BY_CODE = np.array([PRODUCT_BYTES[precision] for precision in Precision])
SCALE_BYTES: Mapping[CastRecipe, float] = {
    "tensorwise": 0.0,
    "delayed": 0.0,
    "blockwise": 4.0 / 128.0,
    "mxfp8": 1.0 / 32.0,
}
"""Bytes of the scales of a value in 8 bits."""
SIXTEEN_BIT_BYTES = 2.0
NUM_LAYOUTS = 2.0
"""Copies that a cast writes: by rows and by columns."""
BLOCKWISE_SLOWDOWN = 1.28
"""Of 8-bit products with scales of blocks in software: 1.1 to 1.5 on H100 (aiconfigurator-core 0.12), geometric mean."""
FAMILIES_WITH_BLOCK_SCALES = ("blackwell", "cdna4")
"""Architectures whose matrix units take a scale for each block."""


def product_bytes(plans: PlanTable) -> Floats:
    """Returns the bytes of an input of a product, `(n,)`."""
    return _PRODUCT_BYTES_BY_CODE[plans.precision]


def is_cast(plans: PlanTable) -> Booleans:
    """Returns whether inputs of products have to be cast, `(n,)`."""
    return np.asarray(product_bytes(plans) < SIXTEEN_BIT_BYTES)


def cast_ratio(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes that a cast moves over those of tensor-wise scaling in 8 bits, `(n,)`.

    That reads a value for the largest of its tensor, reads it again and writes both layouts. Blocks by rows and by columns
    are not the same, so that each layout takes a read; delayed scales are known before the only one. NVFP4 also scales the
    tensor as a whole (arXiv 2509.25149).
    """
    reference = 2.0 * SIXTEEN_BIT_BYTES + NUM_LAYOUTS * PRODUCT_BYTES[Precision.FP8]
    num_reads = 1.0 if workload.fp8_recipe == "delayed" else 2.0
    fp8 = num_reads * SIXTEEN_BIT_BYTES + NUM_LAYOUTS * (1.0 + SCALE_BYTES[workload.fp8_recipe])
    fp4 = 3.0 * SIXTEEN_BIT_BYTES + NUM_LAYOUTS * PRODUCT_BYTES[Precision.FP4]
    return np.where(plans.precision == Precision.FP4.code, fp4, fp8) / reference


def cast_weight_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes that copies of a weight take, `(n,)`; 0 where there are none."""
    if not workload.keeps_cast_weights:
        return np.zeros(len(plans))
    scales = np.where(plans.precision == Precision.FP8.code, SCALE_BYTES[workload.fp8_recipe], 0.0)
    has_copies = is_cast(plans) & (plans.zero_stage < 3)
    return np.where(has_copies, NUM_LAYOUTS * (product_bytes(plans) + scales), 0.0)
