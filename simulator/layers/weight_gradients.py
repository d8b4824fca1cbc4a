"""How much of a backward pass does no other stage wait for? The products that compute the gradients of weights.

Zero-bubble schedules compute them later than the gradients of the inputs (Qi et al., arXiv 2401.10241). The previous stage has
to wait for everything else in a backward pass: attention, memory-bound operators, recomputation, collectives.
"""

from __future__ import annotations

import numpy as np

from simulator.layers.layer_costs import kernels_of_experts, latent_products, routed_tokens
from simulator.layers.linear_costs import weight_gradients_s
from simulator.machine.products import ONE_PRODUCT, Batch
from simulator.machine.rank import Rank
from simulator.table import Floats, total


def dense_layer_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the weight-gradient products of a layer with an ordinary feed-forward block, `(n,)`."""
    width = rank.workload.model.ffn_hidden_size / rank.plans.tensor_parallel
    products_s = [weight_gradients_s(rank), _ffn_s(rank, rank.tokens, width)]
    return total(products_s) * rank.compute_slowdown


def expert_layer_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the weight-gradient products of a layer with routed experts: router, grouped and shared experts, `(n,)`."""
    model, t = rank.workload.model, rank.plans.tensor_parallel
    experts = model.experts
    assert experts is not None
    num_local = experts.num_experts / rank.plans.expert_parallel
    width = experts.expert_ffn_hidden_size / rank.workload.expert_tensor_parallel
    hidden = np.full(len(t), float(model.hidden_size))
    batch, repeats = kernels_of_experts(rank, num_local)
    products_s = [
        weight_gradients_s(rank),
        repeats
        * _ffn_s(
            rank,
            routed_tokens(rank) / num_local,
            np.full_like(hidden, width),
            batch,
            input_size=model.expert_input_size,
        ),
        rank.in_16_bits.weight_gradient_s(rank.tokens / t, np.full_like(hidden, experts.num_experts), hidden),
    ]
    products_s += [rank.weight_gradient_s(*product) for product in latent_products(rank)]
    if experts.shared_ffn_hidden_size:
        products_s.append(_ffn_s(rank, rank.tokens, experts.shared_ffn_hidden_size / t))
    return total(products_s) * rank.compute_slowdown


def output_layer_weight_gradients_s(rank: Rank) -> Floats:
    """Returns the weight-gradient products of the output layer, one for each predicted token, `(n,)`."""
    model, t = rank.workload.model, rank.plans.tensor_parallel
    hidden = np.full(len(t), float(model.hidden_size))
    product_s = rank.in_16_bits.weight_gradient_s(rank.tokens, model.vocabulary_size / t, hidden)
    return model.num_predicted_tokens * product_s * rank.unaligned_slowdown * rank.compute_slowdown


def _ffn_s(
    rank: Rank,
    tokens: Floats,
    width: Floats,
    batch: Batch = ONE_PRODUCT,
    *,
    input_size: int | None = None,
) -> Floats:
    hidden = np.full(len(rank.plans), float(input_size or rank.workload.model.hidden_size))
    num_inputs = rank.workload.model.num_ffn_matrices - 1
    inputs_s = rank.weight_gradient_s(tokens, num_inputs * width, hidden, batch)
    return inputs_s + rank.weight_gradient_s(tokens, hidden, width, batch)
