"""What do DeepSpeed's optimizers and buckets move and keep, counted in its source?"""

from __future__ import annotations

BUFFERS = 2e9
"""Two 16-bit buckets of 5e8 elements, `reduce_bucket_size` and `allgather_bucket_size` of DeepSpeed's defaults."""
UPDATE = 6
"""DeepSpeed flattens the 16-bit gradients of a rank and casts that copy to fp32 (`flatten(averaged_gradients).to(fp32)` in
`runtime/zero/stage_1_and_2.py`)."""
STEP = 82
"""Bytes for each weight of DeepSpeed's step with loss scaling: check for overflow 10, cast and copy of the gradients 14, norm
4, scale 8, Adam 28, back to 16 bits 6 (`FP16_Optimizer.step` in `runtime/fp16/fused_optimizer.py`), buckets of the all-reduce
12 (`allreduce_bucket` in `runtime/engine.py`)."""
LIVE_WEIGHTS = 1e9
"""`stage3_max_live_parameters` of DeepSpeed's defaults; its hooks gather and release module by module."""
BF16_GRADIENT = 6
"""DeepSpeed's `BF16_Optimizer` keeps 16-bit gradients beside the sums in 32 bits."""
