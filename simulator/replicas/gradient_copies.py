"""How long do separate gradient kernels of a backward pass take, which accumulate gradients or copy them into buckets?

Megatron accumulates the gradient of a weight over micro-batches inside its product, and reduces it in place. Others keep the
product's output, x = 2 bytes. PyTorch accumulates it in a separate kernel (`AccumulateGrad`: two reads and a write of x bytes
each), which the first of m micro-batches does not need. DeepSpeed's BF16 optimizer zeroes a buffer (x), adds the gradient to it
(3 x), casts it (x + 4) and adds it to a sum in 32 bits (12), in every micro-batch. With w the trained weights of a part on one
rank and A = `added_gradient_bytes`,

    ZeRO-0, ZeRO-1    backward + A w (m - 1)/m / (BW μ)      in 16 bits
                      backward + A w / (BW μ)                where sums have 32 bits
    ZeRO-2            backward + C w / (BW μ)                C = `bucket_copy_bytes`; in pipelines of the reductions in passes

plus one launch each; where ranks share nothing, all stages are as ZeRO-0. Up to ZeRO-1 buckets are filled once per step
(`simulator.step.once_per_step`).
"""

from __future__ import annotations

import numpy as np

from simulator.layout.micro_batches import num_micro_batches
from simulator.layout.model_states import FULL_GRADIENT_BYTES, has_whole_gradients
from simulator.layout.trained_weights import StepWeights
from simulator.machine.rank import Rank
from simulator.replicas.replica_sync import reductions_of_step
from simulator.table import Floats


def handles_gradients_apart(rank: Rank) -> bool:
    """Returns whether any backward pass contains such kernels."""
    workload, plans = rank.workload, rank.plans
    if workload.bucket_copy_bytes > 0.0 and bool(np.any(plans.zero_stage == 2)):
        return True
    return workload.added_gradient_bytes is not None and bool(np.any(has_whole_gradients(workload, plans)))


def gradient_copies_s(rank: Rank, weights: StepWeights) -> Floats:
    """Returns the time of these kernels in one backward pass for weights `(1, k)`, `(k, n)`; the mean over micro-batches."""
    trained, plans = weights.trained, rank.plans
    whole = trained.shared_on_rank(plans) + trained.routed_on_rank(rank.workload, plans)
    per_weight = _bytes_of_a_pass(rank)[:, None]
    num_bytes = (per_weight * whole).T
    return rank.memory_bound_s(num_bytes, np.sign(num_bytes))


def _bytes_of_a_pass(rank: Rank) -> Floats:
    """Bytes moved per weight of a rank, `(n,)`."""
    workload, plans = rank.workload, rank.plans
    again = 1.0 - 1.0 / num_micro_batches(workload, plans)
    often = 1.0 if workload.gradient_bytes >= FULL_GRADIENT_BYTES else again
    added = often * (workload.added_gradient_bytes or 0.0)
    has_replicas = plans.data_parallel * plans.context_parallel > 1
    copied = has_replicas * reductions_of_step(rank)[0][:, 0] * workload.bucket_copy_bytes
    reduced = np.where(plans.zero_stage == 2, copied, 0.0)
    return np.where(has_whole_gradients(workload, plans), added, reduced)
