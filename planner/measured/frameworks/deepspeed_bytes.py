"""What do DeepSpeed's optimizers and buckets move and keep, according to its source code?"""

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
BUCKET_WEIGHTS = 5e8
"""`reduce_bucket_size` of DeepSpeed's defaults; its pipelines have `MEMORY_OPT_ALLREDUCE_SIZE` of as many."""
BUCKET_COPIES = 12
"""Bytes for each 16-bit gradient ahead of a reduction: copy into the bucket 4 (`contiguous_gradients`, on by default), division
4 (`average_tensor`), flattening 4 (`allreduce_bucket` in `runtime/zero/stage_1_and_2.py`); with `overlap_comm` all but the copy
are on a stream beside the computation, whose memory they share."""
BF16_BUCKET_COPIES = 32
"""The same of sums in 32 bits that are reduced in 16: flattening 8, cast 6, division 4, cast 6, copy back 8 (`allreduce_bucket`
and `allreduce_and_copy` in `runtime/engine.py`, which `_bf16_reduce_grads` calls)."""
ADDED_GRADIENT = 6
"""`AccumulateGrad` of PyTorch in 16 bits: two reads and a write."""
BF16_ADDED_GRADIENT = 26
"""16-bit gradients are set to zero 2 (`clear_lp_grads`), added to 6, cast 6 and added to the sums 12 (`_update_hp_grad` in
`runtime/bf16_optimizer.py`) in every micro-batch."""
LIVE_WEIGHTS = 1e9
"""`stage3_max_live_parameters` of DeepSpeed's defaults; its hooks gather and release module by module."""
BF16_GRADIENT = 6
"""DeepSpeed's `BF16_Optimizer` keeps 16-bit gradients beside the sums in 32 bits."""
SHARDED_GRADIENT = 2
"""That optimizer is of ZeRO-1 alone (`_do_optimizer_sanity_check` in `runtime/engine.py`). From ZeRO-2 on gradients are in the
format of the model unless `grad_accum_dtype` says otherwise (`get_data_types`)."""
