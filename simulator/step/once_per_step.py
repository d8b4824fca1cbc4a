"""What does a rank do with all of its weights once per step, however many ranks share the optimizer's states?

As long as gradients are whole on a rank, it sets their buffer to zero, reads it once for a norm that finds NaN, and divides it
by the number of replicas ahead of the reduction (Megatron Core, `start_grad_sync` of `param_and_grad_buffer.py`: norm and
division on the stream of the computation). Frameworks that reduce separate buckets copy the gradients there and back
(`bucket_copy_bytes`; InternEvo, `TensorBucket.flatten` and `unflatten_and_copy`: 8 bytes in 16 bits). While weights are whole,
the rank also casts those whose products are in 8 or 4 bits. If the bytes of a step are given (`step_bytes`), as for DeepSpeed
in fp16, they include zeros, norm and division.
"""

from __future__ import annotations

import numpy as np

from simulator.domain.hardware import Precision
from simulator.layout.casts import is_cast
from simulator.layout.chunks import Chunks
from simulator.layout.model_states import has_whole_gradients
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.replicas.cast_weights import once_per_step_cast_bytes
from simulator.table import Floats, Integers


def once_per_step_bytes(
    rank: Rank, chunks: Chunks, stages: Integers, weights: StepWeights, trained: Floats
) -> Floats:
    """Returns the bytes that all of this moves on a rank of stages `(s, n)`.

    Args:
        rank: the rank.
        chunks: its chunks.
        stages: stages, `(s, n)`.
        weights: weights of the chunks, `(n, C)`.
        trained: the trained ones of these stages on the rank, whole, `(s, n)`.
    """
    passed = _whole_gradient_bytes(rank) * trained
    if not np.any(is_cast(rank.plans)):
        return passed
    return passed + chunks.on_stage(once_per_step_cast_bytes(rank, weights.together), stages)


def _whole_gradient_bytes(rank: Rank) -> Floats:
    """Bytes that zeroing, norm, division and buckets move for a gradient that is whole on a rank, `(n,)`.

    Loss scaling finds NaN itself (Megatron, `arguments.py`).
    """
    workload, plans = rank.workload, rank.plans
    is_whole, is_counted = has_whole_gradients(workload, plans), workload.step_bytes is None
    has_replicas = plans.data_parallel * plans.context_parallel > 1
    is_checked = workload.checks_gradients & (plans.precision != Precision.FP16.code)
    is_divided = workload.divides_gradients & has_replicas
    passed = is_counted * workload.gradient_bytes * (1.0 + is_checked + 2.0 * is_divided)
    return np.asarray(is_whole * (passed + has_replicas * workload.bucket_copy_bytes))
