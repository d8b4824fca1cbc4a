"""How wide are the gradients in a layer, and what does it keep if every other product does? Bytes per token on one rank."""

from __future__ import annotations

import numpy as np

from simulator.domain.lora import AdaptedProduct
from simulator.domain.plan import PlanTable
from simulator.domain.workload import Workload
from simulator.layout.expert_ranks import expert_load
from simulator.layout.kept_inputs import ACTIVATION_BYTES, input_bytes, keeps_input, sequence_split
from simulator.memory.connection_widths import summed_gradients_width
from simulator.table import Floats


def selected_width(workload: Workload, plans: PlanTable, *, is_expert: bool) -> Floats:
    """Returns the width kept where every other product keeps its output: queries, values, the core's output, one wide tensor.

    These are the first, third and fifth product of a layer; with a gate also the seventh, the block's output.
    """
    model, experts = workload.model, workload.model.experts
    qk_dim, value_dim = model.attention_dims
    attention: float = model.num_heads * (qk_dim + value_dim) + model.num_key_heads * value_dim
    if linear := model.linear_attention:
        attention = model.attention_share * attention + model.linear_share * linear.entering_width
    output = model.hidden_size if model.is_gated else 0
    block: Floats | float = float(model.ffn_hidden_size + output)
    if is_expert and experts:
        output = model.expert_input_size if model.is_gated else 0
        width = experts.expert_ffn_hidden_size + workload.expert_tensor_parallel * output
        routed = expert_load(workload, plans) * experts.experts_per_token * width
        block = routed + experts.shared_ffn_hidden_size
    residual = model.stream_width / sequence_split(workload, plans)
    return np.asarray(ACTIVATION_BYTES * (residual + (attention + block) / plans.tensor_parallel))


def gradient_widths(workload: Workload, plans: PlanTable, *, is_expert: bool) -> tuple[Floats, Floats]:
    """Returns the width of gradients alive at once: of the residual, and the most that the block or its beginning adds."""
    residual, widest = _gradient_widths(workload, plans, is_expert=is_expert)
    return residual, np.maximum(widest, summed_gradients_width(workload, plans))


def _gradient_widths(workload: Workload, plans: PlanTable, *, is_expert: bool) -> tuple[Floats, Floats]:
    """The residual, in all of its streams, and the most that the block adds.

    The block adds the gradient of its widest tensor. With sequence parallelism it is what is gathered for the products: at the
    last product the gradient of its output; at the first one its input together with an input gradient still to be scattered,
    when what the block kept is already free.
    """
    model, t = workload.model, plans.tensor_parallel
    num_inputs = model.num_ffn_matrices - 1
    residual = ACTIVATION_BYTES * np.asarray(model.stream_width / sequence_split(workload, plans))
    if is_expert and model.experts:
        copies = expert_load(workload, plans) * model.experts.experts_per_token
        width = workload.expert_tensor_parallel * model.expert_input_size
        width += num_inputs * model.experts.expert_ffn_hidden_size
        return residual, np.asarray(ACTIVATION_BYTES * copies * width / t)
    wide, whole = model.ffn_hidden_size / t, float(model.hidden_size)
    widest = ACTIVATION_BYTES * num_inputs * wide
    if not workload.has_sequence_parallel:
        return residual, widest
    product = input_bytes(workload, plans)
    last = ACTIVATION_BYTES * (whole + wide)
    first = (ACTIVATION_BYTES + keeps_input(workload, AdaptedProduct.FC1) * product) * whole
    first -= keeps_input(workload, AdaptedProduct.FC2) * product * wide
    return residual, np.where(t > 1, np.maximum(widest, np.maximum(last, first)), widest)
