"""How long does a module of multi-token prediction take? A look-up, norms and a projection, followed by a layer.

Module k of D predicts the token k + 1 places ahead from the output of the previous module, or of the model itself for k = 1
(DeepSeek-V3, arXiv 2412.19437, section 2.2, equations 21 to 25; Megatron Core, `multi_token_prediction.py`):

    x(k) = W(k) [norm(embedding of token i + k), norm(h(k - 1))]        W(k): 2 h -> h
    h(k) = norm(layer(x(k)))                                             a layer of the kind of the model's last one
    loss(k) = cross entropy of the output layer of h(k)                  embedding and output layer are those of the model

Tensor-parallel ranks split the columns of W. They gather its input as for any block, and also its output, because the layer
after it starts from whole values (`gather_from_tensor_model_parallel_region`):

                  in front of W                       behind it
                  forward         backward            forward       backward
    plain         -               all-reduce, 2 h     all-gather    -
    sequence      all-gather, 2h  reduce-scatter, 2h  all-gather    all-gather

As in any block, the sum overlaps with the product for the gradient of W, and the input is gathered again meanwhile
(`simulator.layers.input_gradients`). Projection and layer are one part of the model. The output layer computes the logits of
all modules one after another (`process_mtp_loss`). Full recomputation repeats the layer with projection and norms, but under
the method `block` it leaves modules out (Megatron Core warns of this).

With n streams of the residual, W is two products h -> h, one for the embedding and one for each stream. Their sums are the
streams of the layer, and one stream is made of them in front of the final norm (DeepSeek-V4, `MTPBlock`). Both are priced as
one product of (n + 1) T tokens.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.layers.host_time import BACKWARD_RATIO
from simulator.layers.input_gradients import Entered, beside_products_s, entered_by, gathered_again_s
from simulator.layers.layer_costs import dense_layer, expert_layer
from simulator.layers.model_ends import embedding_collectives_s, look_up_of_module
from simulator.layers.moved_operators import norm_backward_bytes, norm_bytes
from simulator.layers.part_times import PartTimes
from simulator.layers.weight_gradients import (
    dense_layer_weight_gradients_s,
    expert_layer_weight_gradients_s,
)
from simulator.layout.kept_inputs import ACTIVATION_BYTES
from simulator.machine.network import all_gather_s
from simulator.machine.products import ENTERING
from simulator.machine.rank import Rank
from simulator.memory.predicted_tokens import (
    NUM_INPUTS,
    entering_values,
    plans_of_modules,
    repeats_projection,
)
from simulator.table import Floats, total
from simulator.traffic.layer_collectives import Directions

NUM_NORMS = 3.0
"""Norms of a module in addition to its layer's: of the embedding, of the incoming hidden state, and of the output."""
COPIED_VALUES = NUM_INPUTS + 2.0
"""Values of the residual stream that are copied for concatenation: inputs of the projection, and the hidden states of model and
module for the output layer."""
NUM_COPIES = 2.0
SHIFTED_BYTES = 4.0 * 24.0
"""Bytes to shift tokens, positions, labels and their mask, 8 bytes each: read, written one place further on, and summed."""
NUM_SHIFT_KERNELS = 4.0 * 3.0
"""Each is shifted, its last value is set to 0, and the sum is taken (`roll_tensor`)."""
SHIFTS, JOINT, PROJECTION = "shifted tokens", "norms of multi-token prediction", "multi-token projection"
"""Names of operators."""


def module(rank: Rank) -> PartTimes:
    """Returns the times of a module with its layer, without its logits."""
    joined, layer = projection(rank), _layer(rank)
    return PartTimes(**{name: getattr(joined, name) + getattr(layer, name) for name in PartTimes.names()})


def projection(rank: Rank) -> PartTimes:
    """Returns the times of look-up, norms and projection; recomputation leaves out the look-up."""
    found, again = look_up_of_module(rank), repeats_projection(rank.workload, rank.plans)
    operators, comm_s = projection_operators(rank), projection_collectives_s(rank)
    backward_comm_s = beside_products_s(rank, comm_s[1], [entered_in_projection(rank)], "projection")
    again_s = operators[JOINT][0] + operators[PROJECTION][0]
    forward_s, backward_s = (total(way) for way in zip(*operators.values(), strict=True))
    return replace(
        found,
        forward_compute_s=found.forward_compute_s + forward_s,
        backward_compute_s=found.backward_compute_s + backward_s + again * again_s,
        forward_tensor_comm_s=found.forward_tensor_comm_s + comm_s[0],
        backward_tensor_comm_s=found.backward_tensor_comm_s + backward_comm_s + again * comm_s[0],
    )


def projection_operators(rank: Rank) -> dict[str, Directions]:
    """Returns the operators by name, without the look-up, with the slowdown of a power cap."""
    forward_s, backward_s = rank.gemm_s(*_shape(rank), ENTERING)
    return {
        SHIFTS: _shifts_s(rank),
        JOINT: _moved_s(rank),
        PROJECTION: (forward_s * rank.compute_slowdown, backward_s * rank.compute_slowdown),
    }


def module_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the part of a module that zero-bubble schedules compute later, `(n,)`."""
    has_experts = rank.workload.model.has_expert_modules
    of_layer = expert_layer_weight_gradients_s if has_experts else dense_layer_weight_gradients_s
    return projection_weight_gradients_s(rank) + of_layer(rank)


def projection_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the gradients of the weights of the projection and of the embedding, `(n,)`."""
    product_s = rank.weight_gradient_s(*_shape(rank), ENTERING) * rank.compute_slowdown
    return product_s + look_up_of_module(rank).backward_compute_s


def projection_traffic_s(rank: Rank) -> Directions:
    """Returns the collectives of look-up and projection, forward and backward; recomputation included, `(n,)`."""
    comm_s, again = projection_collectives_s(rank), repeats_projection(rank.workload, rank.plans)
    found, gathered_s = embedding_collectives_s(rank), gathered_again_s(rank, [entered_in_projection(rank)])
    return found[0] + comm_s[0], found[1] + comm_s[1] + gathered_s + again * comm_s[0]


def projection_collectives_s(rank: Rank) -> Directions:
    """Returns the collectives around the projection, forward and backward, `(n,)` each."""
    gathered_s, sum_s = all_gather_s(num_bytes=streams_bytes(rank), **rank.tensor_group), _sum_s(rank)
    if not rank.workload.has_sequence_parallel:
        return gathered_s, sum_s
    inputs = entering_values(rank.workload.model) * rank.block_gather_bytes[0]
    return (
        rank.largest_s + all_gather_s(num_bytes=inputs, **rank.tensor_group) + gathered_s,
        sum_s + gathered_s,
    )


def entered_in_projection(rank: Rank) -> Entered:
    """Returns the projection with the traffic that overlaps its backward products."""
    is_split = rank.workload.has_sequence_parallel
    inputs = entering_values(rank.workload.model) * rank.block_gather_bytes[0] if is_split else None
    return entered_by(rank, _shape(rank), sum_s=_sum_s(rank), gathered_bytes=inputs)


def _sum_s(rank: Rank) -> Floats:
    """Sum of the gradients of both inputs of the projection."""
    return rank.input_gradient_sum_s(entering_values(rank.workload.model) * rank.hidden_bytes)


def streams_bytes(rank: Rank) -> Floats:
    """Returns the bytes of the residual of a micro-batch in all of its streams, `(n,)`."""
    return (entering_values(rank.workload.model) - 1.0) * rank.hidden_bytes


def _layer(rank: Rank) -> PartTimes:
    rank = replace(rank, plans=plans_of_modules(rank.workload, rank.plans))
    return expert_layer(rank) if rank.workload.model.has_expert_modules else dense_layer(rank)


def _shape(rank: Rank) -> tuple[Floats, Floats, Floats]:
    model = rank.workload.model
    hidden = np.full(len(rank.plans), float(model.hidden_size))
    if model.hyper_connections:
        return entering_values(model) * rank.tokens, hidden / rank.plans.tensor_parallel, hidden
    return rank.tokens, hidden / rank.plans.tensor_parallel, NUM_INPUTS * hidden


def _moved_s(rank: Rank) -> Directions:
    """Norms and copies; the output that tensor-parallel ranks gather arrives by rank and is copied into order."""
    hidden, num_streams = rank.workload.model.hidden_size, entering_values(rank.workload.model) - 1.0
    num_norms = NUM_NORMS - 1.0 + num_streams
    values = COPIED_VALUES
    if rank.workload.model.hyper_connections:
        # Both products are added up, instead of their inputs copied into one.
        values = num_streams + 0.5 + COPIED_VALUES - NUM_INPUTS
    copied = 2.0 * ACTIVATION_BYTES * values * rank.split_tokens * hidden
    is_split = (rank.plans.tensor_parallel > 1).astype(np.float64)
    ordered = is_split * 2.0 * streams_bytes(rank)
    return (
        rank.memory_bound_s(
            num_norms * norm_bytes(rank) + copied + ordered, NUM_NORMS + NUM_COPIES + is_split
        ),
        rank.memory_bound_s(
            num_norms * norm_backward_bytes(rank) + copied, BACKWARD_RATIO * NUM_NORMS + NUM_COPIES
        ),
    )


def _shifts_s(rank: Rank) -> Directions:
    """Shifts of tokens and labels by one place, forward; context-parallel ranks send just one token for it."""
    return rank.memory_bound_s(SHIFTED_BYTES * rank.tokens, NUM_SHIFT_KERNELS), np.zeros(len(rank.plans))
