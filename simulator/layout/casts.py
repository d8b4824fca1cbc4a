"""What do 8-bit and 4-bit products require of their inputs? The size of a value with its scale, and the passes of a cast.

An input is used by rows and by columns, and most recipes need a copy for each (Transformer Engine). Scales take one byte per 16
values of NVFP4 and per 32 of MXFP8, and 4 bytes per 128 values where blocks are scaled in software.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.domain.choices import CastRecipe
from simulator.domain.hardware import Accelerator, Precision
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.table import Booleans, Floats

PRODUCT_BYTES: Mapping[Precision, float] = {
    Precision.FP16: 2.0,
    Precision.BF16: 2.0,
    Precision.FP8: 1.0,
    Precision.FP4: 0.5 + 1.0 / 16.0,
}
"""Bytes of a value that a product reads; the scales of 8 bits are negligible here."""
_PRODUCT_BYTES_BY_CODE = np.array([PRODUCT_BYTES[precision] for precision in Precision])
SCALE_BYTES: Mapping[CastRecipe, float] = {
    "tensorwise": 0.0,
    "delayed": 0.0,
    "blockwise": 4.0 / 128.0,
    "mxfp8": 1.0 / 32.0,
}
"""Scale bytes per value in 8 bits."""
SIXTEEN_BIT_BYTES = 2.0
SCALED_BY_TENSOR: tuple[CastRecipe, ...] = ("tensorwise", "delayed")
"""Recipes whose copy by columns can be made from the copy by rows."""
NUM_LAYOUTS = 2.0
"""Copies that a cast writes: by rows and by columns."""
FAMILIES_WITH_ANY_LAYOUT = ("blackwell",)
"""Architectures whose 8-bit products read either layout, so that values scaled by tensor need one copy
(`nvte_is_non_tn_fp8_gemm_supported` of Transformer Engine); block scales differ by layout."""
NUM_READS: Mapping[CastRecipe, float] = {
    "tensorwise": 2.0,
    "delayed": 1.0,
    "blockwise": 1.0,
    "mxfp8": 1.0,
}
"""Reads of a tensor by its cast: one to find the largest value if the scale covers the whole tensor, and one to write both
layouts, which kernels do from one tile in shared memory (Transformer Engine 2, `quantize_transpose_vector_blockwise.cu` and
`quantize_mxfp8.cuh`)."""
NUM_READS_IN_4_BITS = 2.0
"""The same for NVFP4, whose tensors also have a scale; one kernel writes both layouts, one of them transformed
(`row_cast_col_hadamard_transform_cast_fusion.cu`)."""
NUM_CAST_KERNELS: Mapping[CastRecipe, float] = {
    "tensorwise": 4.0,
    "delayed": 1.0,
    "blockwise": 1.0,
    "mxfp8": 1.0,
}
"""Kernels that cast a tensor to both layouts: zero, largest value, scale and cast where the scale comes from the tensor itself
(Transformer Engine 2, `quantizer.cpp` and `current_scaling.cu`)."""
TENSORS_PER_KERNEL = 64.0
"""Tensors with delayed scales that one kernel casts together (Transformer Engine, `multi_cast_transpose.cu`)."""
LARGEST_BYTES = 4.0
"""The largest value of a tensor, in 32 bits."""
TRANSPOSE_PASSES = 2.0
"""A read of the copy by rows and a write of the copy by columns."""
BLOCKWISE_SLOWDOWN = 1.28
"""Slowdown of 8-bit products with block scales in software: 1.1 to 1.5 on H100 (aiconfigurator-core 0.12), geometric mean."""
FAMILIES_WITH_BLOCK_SCALES = ("blackwell", "cdna4", "trainium3")
"""Architectures whose matrix units apply a scale to each block."""


def computes_in(workload: Workload, accelerator: Accelerator, precision: Precision) -> bool:
    """Returns whether an accelerator computes products in a number format, with the recipe of the workload."""
    has_scales = accelerator.kernel_family in FAMILIES_WITH_BLOCK_SCALES
    can_scale = has_scales or precision is not Precision.FP8 or workload.fp8_recipe != "mxfp8"
    return can_scale and accelerator.peak_flop_per_s(precision) is not None


def product_bytes(plans: PlanTable) -> Floats:
    """Returns the bytes of an input of a product, `(n,)`."""
    return _PRODUCT_BYTES_BY_CODE[plans.precision]


def is_cast(plans: PlanTable) -> Booleans:
    """Returns whether inputs of products have to be cast, `(n,)`."""
    return np.asarray(product_bytes(plans) < SIXTEEN_BIT_BYTES)


def num_cast_kernels(workload: Workload, plans: PlanTable, num_tensors: Floats) -> Floats:
    """Returns the kernels that cast this number of tensors, each with its own scales, `(n,)`; 4-bit scaling is tensor-wise."""
    is_8_bit = plans.precision == Precision.FP8.code
    each = np.where(is_8_bit, NUM_CAST_KERNELS[workload.fp8_recipe], NUM_CAST_KERNELS["tensorwise"])
    return np.asarray(each * num_cast_calls(workload, plans, num_tensors))


def num_cast_calls(workload: Workload, plans: PlanTable, num_tensors: Floats) -> Floats:
    """Returns the host calls that cast this number of tensors, `(n,)`; each launches all kernels of one tensor, or of many."""
    is_together = (plans.precision == Precision.FP8.code) & (workload.fp8_recipe == "delayed")
    calls = np.where(is_together, np.ceil(num_tensors / TENSORS_PER_KERNEL), num_tensors)
    return np.where(is_cast(plans), calls, 0.0)


def cast_ratio(recipe: CastRecipe, precision: Precision, family: str) -> float:
    """Returns the bytes moved by a cast, reads included, over those of tensor-wise scaling in 8 bits to two layouts.

    Args:
        recipe: how inputs in 8 bits are scaled.
        precision: 8 or 4 bits.
        family: architecture of the accelerator.
    """
    reference = _moved_bytes(NUM_READS["tensorwise"], NUM_LAYOUTS * PRODUCT_BYTES[Precision.FP8])
    if precision is Precision.FP4:
        return _moved_bytes(NUM_READS_IN_4_BITS, NUM_LAYOUTS * PRODUCT_BYTES[Precision.FP4]) / reference
    has_one = recipe in SCALED_BY_TENSOR and family in FAMILIES_WITH_ANY_LAYOUT
    written = (1.0 if has_one else NUM_LAYOUTS) * (PRODUCT_BYTES[Precision.FP8] + SCALE_BYTES[recipe])
    return _moved_bytes(NUM_READS[recipe], written) / reference


def sums_largest(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether ranks that gather a tensor find its largest value together before the cast, `(n,)`.

    These scales cover the whole tensor, as those of NVFP4 also do (Transformer Engine, `set_quantizer_amax_reduction_group`).
    """
    is_4_bit = plans.precision == Precision.FP4.code
    return np.asarray(is_cast(plans) & (is_4_bit | (workload.fp8_recipe == "tensorwise")))


def gathered_cast_shares(recipe: CastRecipe, precision: Precision, family: str) -> tuple[float, float]:
    """Returns the bytes of a cast before a tensor-parallel gather, over `cast_ratio`: for own values, and for all of them.

    For values scaled by tensor only rows travel; they are transposed on arrival unless products read either layout. For blocks
    both layouts travel (Transformer Engine, `_all_gather_fp8` of `distributed.py`).
    """
    if precision is Precision.FP4 or recipe not in SCALED_BY_TENSOR:
        return 1.0, 0.0
    x, has_one = PRODUCT_BYTES[Precision.FP8], family in FAMILIES_WITH_ANY_LAYOUT
    whole = _moved_bytes(NUM_READS[recipe], (1.0 if has_one else NUM_LAYOUTS) * x)
    return _moved_bytes(NUM_READS[recipe], x) / whole, 0.0 if has_one else TRANSPOSE_PASSES * x / whole


def one_layout_shares(recipe: CastRecipe, precision: Precision, family: str) -> tuple[float, float]:
    """Returns the bytes of a cast to rows alone over `cast_ratio`, and those that turn the rows of weights into columns.

    Weights are scaled by tensor or by square blocks, so rows can be turned into columns (`_create_transpose` of Transformer
    Engine). Products that read either layout need only one. Blocks of MXFP8 cannot be turned, so columns are gathered as well
    (`fp8_need_transpose_data` of Megatron-FSDP).
    """
    if precision is Precision.FP4:
        num_reads, x, needs_one = NUM_READS_IN_4_BITS, PRODUCT_BYTES[precision], False
    else:
        num_reads, x = NUM_READS[recipe], PRODUCT_BYTES[precision] + SCALE_BYTES[recipe]
        needs_one = recipe in SCALED_BY_TENSOR and family in FAMILIES_WITH_ANY_LAYOUT
    is_turned = not needs_one and (precision is Precision.FP4 or recipe != "mxfp8")
    whole = _moved_bytes(num_reads, (1.0 if needs_one else NUM_LAYOUTS) * x)
    return _moved_bytes(num_reads, x) / whole, TRANSPOSE_PASSES * x / whole if is_turned else 0.0


def gathers_cast_weights(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether ranks gather layer weights in 8 bits, after casting them, `(n,)`; blocks of MXFP8 under ZeRO-3 only."""
    is_asked = workload.gathers_cast_weights & (plans.precision == Precision.FP8.code)
    return np.asarray(is_asked & ((plans.zero_stage == 3) | (workload.fp8_recipe != "mxfp8")))


def gathered_weight_value_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes of a layer's weight as it is gathered, `(n,)`."""
    return np.where(gathers_cast_weights(workload, plans), _cast_bytes(workload, plans), SIXTEEN_BIT_BYTES)


def _moved_bytes(num_reads: float, written: float) -> float:
    return num_reads * SIXTEEN_BIT_BYTES + written


def cast_weight_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes that copies of a weight take, `(n,)`; 0 where there are none."""
    if not workload.keeps_cast_weights:
        return np.zeros(len(plans))
    has_copies = is_cast(plans) & (plans.zero_stage < 3)
    return np.where(has_copies, NUM_LAYOUTS * _cast_bytes(workload, plans), 0.0)


def gathered_bytes(workload: Workload, plans: PlanTable) -> tuple[Floats, Floats]:
    """Returns the bytes of a value that tensor-parallel ranks gather in a layer, forward and backward, `(n,)` each.

    The input of a block is gathered by rows. Its gradient is needed by rows and, for the gradient of weights, by columns.
    Blocks by columns cannot be made from those by rows, so both are gathered, unless pieces are gathered alongside products:
    then the columns come later, behind a product. Frozen weights have no gradient (Transformer Engine, `layernorm_linear.py`
    and `linear.py`).
    """
    is_16_bit, one_layout = ~is_cast(plans), _cast_bytes(workload, plans)
    is_frozen = workload.lora is not None
    has_blocks = (plans.precision != Precision.FP8.code) | (workload.fp8_recipe not in SCALED_BY_TENSOR)
    gathers_both = has_blocks & (not (is_frozen or workload.overlaps_tensor_comm))
    return (
        np.where(is_16_bit, SIXTEEN_BIT_BYTES, one_layout),
        np.where(is_16_bit, SIXTEEN_BIT_BYTES, np.where(gathers_both, NUM_LAYOUTS, 1.0) * one_layout),
    )


def _cast_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Bytes of a product's input in one layout, including its scales."""
    scales = np.where(plans.precision == Precision.FP8.code, SCALE_BYTES[workload.fp8_recipe], 0.0)
    return np.asarray(product_bytes(plans) + scales)
