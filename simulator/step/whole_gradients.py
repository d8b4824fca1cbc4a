"""How long do tensor-parallel ranks take to sum the gradients of weights that each of them holds whole?

With sequence parallelism each rank computes gradients of routers and of down-projections to latents from its own tokens only.
Once per step, behind the reduction between the replicas, Megatron Core copies them into one buffer, all-reduces it over the
tensor-parallel ranks and copies the sums back (`_allreduce_non_tensor_model_parallel_grads` of `finalize_model_grads.py`).
Nothing hides that. Norms, which are treated the same way, are negligible. Ranks that run a whole vision encoder each have all
of its gradients, and add them up likewise whatever sequence parallelism does (`average_gradients_across_tp_domain`).
"""

from __future__ import annotations

import numpy as np

from simulator.domain.plan import shard_group
from simulator.layout.chunks import Chunks, ChunkWeights
from simulator.machine.network import all_reduce_s
from simulator.machine.rank import Rank
from simulator.table import Floats

COPY_PASSES = 4.0
"""Reads and writes of the gradients: into one buffer, and back."""
NUM_COPY_KERNELS = 2.0
"""Launches of these copies; copies back need one for each weight, but most are long enough not to wait for launches."""


def whole_gradient_s(rank: Rank, chunks: Chunks, weights: ChunkWeights) -> Floats:
    """Returns the time of these sums on the stage that has most of such weights, `(n,)`.

    Args:
        rank: Ranks of the designs.
        chunks: Their chunks.
        weights: Trained weights of these.
    """
    none_s, whole = np.zeros(len(rank.plans)), summed_weights(rank, weights)
    if not whole.any():
        return none_s
    most = np.max(chunks.on_stage(whole, chunks.unlike_stages()), axis=0)
    num_bytes = summed_bytes(rank, most)
    summed_s = all_reduce_s(num_bytes=num_bytes, **rank.tensor_group) + copies_s(rank, num_bytes)
    return np.where(num_bytes > 0.0, summed_s, none_s)


def summed_weights(rank: Rank, weights: ChunkWeights) -> Floats:
    """Returns the weights of every chunk whose gradients tensor-parallel ranks add up, `(n, C)`."""
    whole = weights.whole if rank.workload.has_sequence_parallel else weights.never_cast_whole
    return np.broadcast_to(whole, weights.shared.shape)


def summed_bytes(rank: Rank, whole: Floats | float) -> Floats:
    """Returns the gradients that a rank sums for a number of whole weights, `(n,)`; from ZeRO-2 on it has a share of them."""
    plans = rank.plans
    shares = np.where(plans.zero_stage >= 2, shard_group(plans), 1)
    is_summed = plans.tensor_parallel > 1
    return np.asarray(is_summed * whole * rank.workload.wire_bytes / shares)


def copies_s(rank: Rank, num_bytes: Floats) -> Floats:
    """Returns the time of copying a number of bytes into one buffer and back, `(n,)`."""
    return rank.memory_bound_s(COPY_PASSES * num_bytes, NUM_COPY_KERNELS)
