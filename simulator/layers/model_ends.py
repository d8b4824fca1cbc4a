"""How long do the ends of the model take? The embedding look-up, the output layer, and the loss of one micro-batch.

PyTorch creates the gradient of an embedding anew in every micro-batch: it zeroes all rows, however few the tokens are, and adds
the incoming gradient of each token (`embedding_dense_backward`). No product accumulates it into the sum over micro-batches, so
a kernel does (`main_grad.add_` of Megatron's `DistributedDataParallel`), unless separate kernels accumulate all gradients
(`simulator.replicas.gradient_copies`) or they are reduced (ZeRO-3). With rows of h values, T tokens, and W weights of the
embedding on one rank:

    forward     4 T h                               a row is read and written, and with n streams of the residual
                + 2 (n + 1) T h                     copied to each; backward their gradients are added up
    backward    2 W + 6 T h                         cleared; the gradient of a token read, that of its row read and written
                + 10 W, or 6 W with 16-bit sums     read, and added to the sum

A module of multi-token prediction also looks tokens up. Where a stage has several look-ups, their gradients are added in 16
bits, 6 W each, before the total is added to the sum.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.domain.plan import has_split_ends
from simulator.domain.workload import Workload
from simulator.layers.connection_costs import contraction_s, expansion_s
from simulator.layers.input_gradients import beside_products_s, entered_in_output
from simulator.layers.moved_operators import SUM_PASSES
from simulator.layers.part_times import PartTimes
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.layout.model_states import FULL_GRADIENT_BYTES
from simulator.machine.compute import ACCUMULATE_BYTES, NARROW_ACCUMULATE_BYTES
from simulator.machine.rank import Rank
from simulator.table import Floats
from simulator.traffic.layer_collectives import Directions, entering_s, leaving_s

LOOK_UP_PASSES = 2.0
"""A read of a row, and a write."""
ROW_GRADIENT_PASSES = 3.0
"""The gradient of a token is read, that of its row is read and written."""
LOSS_BYTES_PER_LOGIT = 16.0, 16.0
"""Softmax cross entropy, forward and backward: four passes over fp32 logits each."""
SEPARATE_LOSS_BYTES_PER_LOGIT = 42.0, 14.0
"""The same without fusion: cast, maximum, difference, exponential, sum and quotient as kernels of their own, then the
product with the incoming gradient and a cast (Megatron-LM 2.x, `cross_entropy.py`)."""
MEASURED_LOSS_BYTES_PER_LOGIT = 46.0, 14.0
"""The same for a fused loss whose logits are also evaluated for metrics. Forward cast to 32 bits 6, loss 4, loss by kind of
data 4, maximum twice and its place 12, difference 8, exponential 8, sum 4; backward in place 8, cast 6 (InternEvo:
`NaiveAMPModel`, `FlashGPTLMLoss`, `AccPerplex`, `LossWithTypeId`)."""


def embedding(rank: Rank) -> PartTimes:
    """Returns the times of the input embedding: a look-up forward, the gradient of all rows backward.

    Each tensor-parallel rank holds a share of the vocabulary, so the rows that they find are summed. A frozen embedding has no
    backward pass.
    """
    forward_comm_s, backward_comm_s = embedding_collectives_s(rank)
    trained, copied_s = 1.0 if rank.workload.lora is None else 0.0, expansion_s(rank)
    none_s = np.zeros(len(rank.plans))
    return PartTimes(
        forward_compute_s=_look_up_s(rank) + copied_s[0],
        backward_compute_s=trained * (_embedding_gradient_s(rank, np.ones(len(rank.plans))) + copied_s[1]),
        forward_tensor_comm_s=forward_comm_s,
        backward_tensor_comm_s=backward_comm_s,
        forward_expert_comm_s=none_s,
        backward_expert_comm_s=none_s,
        forward_hidden_s=none_s,
        backward_hidden_s=none_s,
    )


def embedding_collectives_s(rank: Rank) -> Directions:
    """Returns the exposed collectives of the input embedding, forward and backward, `(n,)` each."""
    forward_s, backward_s = leaving_s(rank)
    return forward_s, backward_s if rank.workload.lora is None else np.zeros_like(backward_s)


def look_up_of_module(rank: Rank) -> PartTimes:
    """Returns the times of the look-up in a module of multi-token prediction, the mean over all modules.

    Only one look-up per stage is added to the sum; where the embedding is on the same stage, it is that of the embedding.
    """
    ends, number = has_split_ends(rank.plans), rank.workload.model.num_mtp_layers
    to_sum = ends / max(number, 1)
    trained = 1.0 if rank.workload.lora is None else 0.0
    return replace(
        embedding(rank),
        forward_compute_s=_look_up_s(rank),
        backward_compute_s=trained * _embedding_gradient_s(rank, to_sum),
    )


def _look_up_s(rank: Rank) -> Floats:
    return rank.memory_bound_s(LOOK_UP_PASSES * rank.hidden_bytes, 1.0)


def _embedding_gradient_s(rank: Rank, to_sum: Floats) -> Floats:
    """Zeroes and fills a gradient of all rows; this share of it is added to the sum, the rest to another gradient."""
    workload, t = rank.workload, rank.plans.tensor_parallel
    sum_bytes = (
        ACCUMULATE_BYTES if workload.gradient_bytes >= FULL_GRADIENT_BYTES else NARROW_ACCUMULATE_BYTES
    )
    added = to_sum * rank.adds_in_product
    added_bytes = added * (ACTIVATION_BYTES + sum_bytes) + (1.0 - to_sum) * SUM_PASSES * ACTIVATION_BYTES
    weights = workload.model.embedding_parameters / t
    return rank.memory_bound_s(
        ROW_GRADIENT_PASSES * rank.hidden_bytes + (ACTIVATION_BYTES + added_bytes) * weights,
        2.0 + added + (1.0 - to_sum),
    )


def output_layer(rank: Rank) -> PartTimes:
    """Returns the times of the output layer and the loss; tensor parallelism splits the vocabulary.

    With multi-token prediction, the logits of each module are computed as well, one after another. Several streams of the
    residual become one in front of each.
    """
    t = rank.plans.tensor_parallel
    h = np.full(len(t), float(rank.workload.model.hidden_size))
    vocabulary = rank.workload.model.vocabulary_size / t
    forward_s, backward_s = rank.in_16_bits.gemm_s(rank.tokens, vocabulary, h)
    slowdown = rank.unaligned_slowdown
    forward_s, backward_s = forward_s * slowdown, backward_s * slowdown
    of_loss_s, loss_backward_s = loss_s(rank)
    forward_comm_s, backward_comm_s = output_collectives_s(rank)
    number, one_stream_s = rank.workload.model.num_predicted_tokens, contraction_s(rank)
    return PartTimes(
        forward_compute_s=number * (forward_s * rank.compute_slowdown + of_loss_s + one_stream_s[0]),
        backward_compute_s=number * (backward_s * rank.compute_slowdown + loss_backward_s + one_stream_s[1]),
        forward_tensor_comm_s=forward_comm_s,
        backward_tensor_comm_s=backward_comm_s,
        forward_expert_comm_s=np.zeros_like(h),
        backward_expert_comm_s=np.zeros_like(h),
        forward_hidden_s=np.zeros_like(h),
        backward_hidden_s=np.zeros_like(h),
    )


def loss_s(rank: Rank) -> Directions:
    """Returns the time of the loss of one predicted token, forward and backward, `(n,)` each."""
    vocabulary = rank.workload.model.vocabulary_size / rank.plans.tensor_parallel
    forward_s, backward_s = (
        rank.memory_bound_s(num_bytes * rank.tokens * vocabulary, 4.0)
        for num_bytes in _loss_bytes_per_logit(rank.workload)
    )
    return forward_s, backward_s


def output_collectives_s(rank: Rank) -> Directions:
    """Returns the exposed collectives of the output layer for all logits, forward and backward, `(n,)` each."""
    number, (forward_s, backward_s) = rank.workload.model.num_predicted_tokens, entering_s(rank)
    shown_s = beside_products_s(rank, backward_s, [entered_in_output(rank)], "output layer")
    return number * forward_s, number * shown_s


def _loss_bytes_per_logit(workload: Workload) -> tuple[float, float]:
    """Bytes that the loss moves per logit, forward and backward."""
    if workload.measures_accuracy:
        return MEASURED_LOSS_BYTES_PER_LOGIT
    is_early = workload.kernel_launch in ("eager-2022", "blocking-2022")
    return SEPARATE_LOSS_BYTES_PER_LOGIT if is_early else LOSS_BYTES_PER_LOGIT
