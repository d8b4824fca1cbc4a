"""What hides the sums of input gradients where tensor-parallel ranks enter a block, and what is gathered again for it?

The first product of a block has two products backward. Megatron computes the gradient of its input first, and lets the
collective that sums it up travel beside the product for the gradient of its weights, one kernel behind the other
(`LinearWithGradAccumulationAndAsyncCommunication` of Megatron Core's `tensor_parallel/layers.py`; `_Linear` of Transformer
Engine). With sequence parallelism no rank has kept the whole input, which is gathered once more beside the former:

    gather       all-gather of 2 T h bytes               exposed(gather, product for the gradient of the input)
    sum          reduce-scatter, else all-reduce         exposed(sum, product for the gradient of the weights)

Nothing hides where weights are frozen, where weight gradients are computed later (`simulator.plan.splits_backward`), and where
the traffic of shared experts has a stream of its own. What runs in pieces (`overlaps_tensor_comm`) is hidden as a whole.
"""

from __future__ import annotations

import numpy as np

from simulator.attention_costs import attention_products
from simulator.layer_collectives import block_entering_s, entered_products, entering_s, exposed_s
from simulator.lora import AdaptedProduct
from simulator.plan import splits_backward
from simulator.rank import Rank
from simulator.table import Booleans, Floats, total

Product = tuple[Floats, Floats, Floats]
"""Tokens, output and inner size of a product on one rank, `(n,)` each."""


def sums_beside_product(rank: Rank) -> Booleans:
    """Returns whether sums of input gradients travel beside a product, `(n,)`."""
    workload, plans = rank.workload, rank.plans
    in_pieces = workload.overlaps_tensor_comm and workload.has_sequence_parallel
    is_any = workload.overlaps_input_gradients and workload.lora is None and not in_pieces
    return np.asarray(is_any & (plans.tensor_parallel > 1) & ~splits_backward(plans))


def first_products(rank: Rank, *, is_expert: bool) -> dict[AdaptedProduct, Product]:
    """Returns the products of a layer beside which sums travel: of attention without latents, of what is no routed expert."""
    model, t = rank.workload.model, rank.plans.tensor_parallel
    found = {} if model.latent_attention else {AdaptedProduct.QKV: attention_products(rank)[0]}
    width = model.ffn_hidden_size
    if is_expert and model.experts:
        width = 0 if rank.workload.overlaps_shared_experts else model.experts.shared_ffn_hidden_size
    if width:
        columns = (model.num_ffn_matrices - 1) * width / t
        found[AdaptedProduct.FC1] = (rank.tokens, columns, np.full(len(t), float(model.hidden_size)))
    return found


def gathered_again_s(rank: Rank) -> Floats:
    """Returns how long the input of one product is gathered once more, whatever hides it, `(n,)`."""
    return sums_beside_product(rank) * rank.workload.has_sequence_parallel * rank.hidden_gather_s


def num_gathered_again(rank: Rank, *, is_expert: bool) -> int:
    """Returns of how many blocks of a layer the input is gathered once more, where any is."""
    return len(_entered(rank, is_expert=is_expert))


def layer_change_s(rank: Rank, *, is_expert: bool) -> Floats:
    """Returns how much longer the exposed collectives of a layer are backward than its sums; mostly below 0, `(n,)`."""
    products = first_products(rank, is_expert=is_expert)
    changes_s = (
        change_s(rank, block_entering_s(rank, names)[1], *both_products_s(rank, products[names[0]]))
        for names in _entered(rank, is_expert=is_expert)
    )
    return total([np.zeros(len(rank.plans)), *changes_s])


def output_change_s(rank: Rank) -> Floats:
    """Returns the same of the output layer, `(n,)`."""
    return change_s(rank, entering_s(rank)[1], *output_products_s(rank))


def output_products_s(rank: Rank) -> tuple[Floats, Floats]:
    """Returns both products of the output layer backward, which have 16 bits, `(n,)` each."""
    model = rank.workload.model
    words = model.vocabulary_size / rank.plans.tensor_parallel
    product = rank.tokens, words, np.full(len(words), float(model.hidden_size))
    input_s, weight_s = both_products_s(rank.in_16_bits, product)
    return rank.unaligned_slowdown * input_s, rank.unaligned_slowdown * weight_s


def both_products_s(rank: Rank, product: Product) -> tuple[Floats, Floats]:
    """Returns the products for the gradients of input and weights, `(n,)` each, behind the slowdown of a power cap."""
    return (
        rank.input_gradient_s(*product) * rank.compute_slowdown,
        rank.weight_gradient_s(*product) * rank.compute_slowdown,
    )


def change_s(rank: Rank, sum_s: Floats, input_gradient_s: Floats, weight_gradient_s: Floats) -> Floats:
    """Returns how much longer what shows is than a sum that nothing hides, `(n,)`."""
    shown_s = exposed_s(sum_s, weight_gradient_s)
    if rank.workload.has_sequence_parallel:
        shown_s = shown_s + exposed_s(rank.hidden_gather_s, input_gradient_s)
    return sums_beside_product(rank) * (shown_s - sum_s)


def _entered(rank: Rank, *, is_expert: bool) -> list[tuple[AdaptedProduct, ...]]:
    """The blocks of a layer whose first product, the first named one, is among them."""
    products = first_products(rank, is_expert=is_expert)
    return [names for names in entered_products(rank, is_expert=is_expert) if names[0] in products]
