"""How many bytes does the update move for each weight whose optimizer states a rank holds?

Norm, clipping, Adam and the copy into the compute weights are separate kernels. With g the bytes of the gradient that they read
and o those of the states:

    copy             `gradient_bytes` + 4    gradients of 16 bits into 32, so that g = 4, unless the optimizer makes none
    loss scale       2 g                     undone, in fp16
    norm             g
    clipping         2 g                     whatever the norm is: it stays on the accelerator
    Adam             g + 2 o
    16-bit weight    4 + 2                   from its master; none where passes gather shards of 32 bits, which cast

Megatron Core clips gradients of any norm since April 2026, and only those above the bound before that; PyTorch
(`clip_grad_norm_`) and DeepSpeed (`unscale_and_clip_grads`) clip any. With `fuses_update` there are only norm and Adam, which
also clips gradients and writes the 16-bit weights (apex, `DistributedFusedAdam`).
"""

from __future__ import annotations

import numpy as np

from simulator.domain.hardware import Precision
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.model_states import (
    FULL_GRADIENT_BYTES,
    MASTER_BYTES,
    WEIGHT_BYTES,
    copied_gradient_bytes,
)
from simulator.layout.weight_gathers import gathers_in_passes
from simulator.table import Booleans, Floats


def update_bytes(workload: Workload, plans: PlanTable) -> Floats:
    """Returns the bytes that an update moves per weight that a rank updates, `(n,)`."""
    if workload.step_bytes is not None:
        return np.full(len(plans), workload.step_bytes)
    is_narrow = workload.gradient_bytes < FULL_GRADIENT_BYTES
    has_copy = is_narrow and copied_gradient_bytes(workload) > 0.0
    read = float(workload.gradient_bytes) if is_narrow and not has_copy else FULL_GRADIENT_BYTES
    copied = workload.gradient_bytes + FULL_GRADIENT_BYTES if has_copy else 0.0
    fused = copied + 2.0 * read + 2.0 * workload.optimizer_bytes
    if workload.fuses_update:
        return np.full(len(plans), fused + WEIGHT_BYTES)
    unscaled = np.where(plans.precision == Precision.FP16.code, 2.0 * read, 0.0)
    written = np.where(gathers_masters(workload, plans), 0.0, MASTER_BYTES + WEIGHT_BYTES)
    return np.asarray(fused + 2.0 * read + unscaled + written)


def gathers_masters(workload: Workload, plans: PlanTable) -> Booleans:
    """Returns whether passes gather weights from 32-bit shards, the format of their gradients, `(n,)`."""
    return gathers_in_passes(workload, plans) & (workload.gradient_bytes >= FULL_GRADIENT_BYTES)
