"""What hides input-gradient sums where tensor-parallel ranks enter a block, and what is gathered again for that?

The first product of a block has two products backward. Megatron computes the gradient of its input first, then overlaps the
collective that sums this gradient with the product for the gradient of its weights
(`LinearWithGradAccumulationAndAsyncCommunication` of Megatron Core's `tensor_parallel/layers.py`; `_Linear` of Transformer
Engine). With sequence parallelism no rank keeps the whole input. It is gathered again, overlapped with the input-gradient
product, in the forward format (Transformer Engine: 8 or 4 bits where it was cast):

    gather       all-gather, 2 T h bytes in 16 bits      exposed(gather, product for the gradient of the input)
    sum          reduce-scatter, else all-reduce         exposed(sum, product for the gradient of the weights)

In latent attention these are the up-projections of queries and of keys and values, with their latents in the place of h
(Megatron Core, `multi_latent_attention.py`); the rotary key enters no product, so the sum of its gradient is exposed. Nothing
is hidden where weights are frozen, where weight gradients are computed later (`simulator.domain.plan.splits_backward`), or
where the traffic of shared experts has its own stream. Traffic in pieces (`overlaps_tensor_comm`) is hidden as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.domain.lora import AdaptedProduct
from simulator.domain.plan import splits_backward
from simulator.layers.attention_costs import attention_products, up_products
from simulator.layers.linear_costs import linear_products
from simulator.machine.network import all_gather_s
from simulator.machine.products import Product
from simulator.machine.rank import Rank
from simulator.table import Booleans, Floats, total
from simulator.traffic.latent_exchange import latent_bytes
from simulator.traffic.layer_collectives import entered_products, entering_s, exposed_s, num_entered


@dataclass(frozen=True, kw_only=True)
class Entered:
    """A product that tensor-parallel ranks enter, in the backward pass, with the traffic that overlaps its two products."""

    rank: Rank
    """Ranks of the designs, as the product sees them."""
    product: Product
    sum_s: Floats
    """Time to sum the gradient of the input, `(n,)`."""
    gathered_bytes: Floats
    """Bytes of the input that are gathered again, `(n,)`; 0 without sequence parallelism."""
    gather_s: Floats
    """Time of that gather, `(n,)`."""
    factor: Floats | float = 1.0
    """Factor on the times of both products: a slowdown, or a share of the product."""
    share: float = 1.0
    """Such products in a layer, each with traffic of its own: the mean over the layers of a hybrid."""

    @property
    def products_s(self) -> tuple[Floats, Floats]:
        """The products for the gradients of input and weights, `(n,)` each, with the slowdown of a power cap."""
        factor = self.share * self.factor * self.rank.compute_slowdown
        return (
            self.rank.input_gradient_s(*self.product) * factor,
            self.rank.weight_gradient_s(*self.product) * factor,
        )

    def added_s(self, products_s: tuple[Floats, Floats]) -> Floats:
        """Returns the exposed part of the gather less the hidden part of the sum, over both products, `(n,)`."""
        input_gradient_s, weight_gradient_s = products_s
        sum_s = self.share * self.sum_s
        hidden_s = sum_s - exposed_s(sum_s, weight_gradient_s)
        return np.asarray(exposed_s(self.share * self.gather_s, input_gradient_s) - hidden_s)


def sums_beside_product(rank: Rank) -> Booleans:
    """Returns whether sums of input gradients overlap with a product, `(n,)`."""
    workload, plans = rank.workload, rank.plans
    in_pieces = workload.overlaps_tensor_comm and workload.has_sequence_parallel
    is_any = workload.overlaps_input_gradients and workload.lora is None and not in_pieces
    return np.asarray(is_any & (plans.tensor_parallel > 1) & ~splits_backward(plans))


def beside_products_s(rank: Rank, traffic_s: Floats, entered: list[Entered], place: str) -> Floats:
    """Returns the exposed collectives of a backward pass whose sums overlap with products where possible, `(n,)`.

    Args:
        rank: Ranks of the designs.
        traffic_s: The collectives one after another, sums among them, `(n,)`.
        entered: The products that may hide the sums.
        place: The part of the model that they are in.
    """
    is_beside = sums_beside_product(rank)
    if not np.any(is_beside):
        return traffic_s
    products_s = rank.of_kernels((place, "entered"), lambda: [each.products_s for each in entered])
    added_s = [each.added_s(of_each_s) for each, of_each_s in zip(entered, products_s, strict=True)]
    return traffic_s + is_beside * total([np.zeros(len(rank.plans)), *added_s])


def gathered_again_s(rank: Rank, entered: list[Entered]) -> Floats:
    """Returns the time to gather inputs of products again, hidden or not, `(n,)`."""
    return sums_beside_product(rank) * total(
        [np.zeros(len(rank.plans)), *(each.share * each.gather_s for each in entered)]
    )


def entered_in_layer(rank: Rank, *, is_expert: bool) -> list[Entered]:
    """Returns the products that the ranks enter in a layer: those into attention, then the one outside the routed experts."""
    first = [names[0] for names in entered_products(rank, is_expert=is_expert)]
    has_latents = rank.workload.model.latent_attention is not None
    is_entered = has_latents or AdaptedProduct.QKV in first
    attention = entered_in_attention(rank, is_expert=is_expert) if is_entered else []
    is_entered_again = AdaptedProduct.FC1 in first
    return attention + (entered_in_feed_forward(rank, is_expert=is_expert) if is_entered_again else [])


def entered_in_attention(rank: Rank, *, is_expert: bool) -> list[Entered]:
    """Returns the products into attention: queries, keys and values, or both up-projections from latents.

    Where one norm feeds both blocks, a single sum covers all products that read it; it overlaps with those of attention. In a
    hybrid, the product into linear attention comes first.
    """
    model, attention = rank.workload.model, _entered_in_attention(rank, is_expert=is_expert)
    if model.linear_attention is None:
        return attention
    linear = replace(_of_block(rank, linear_products(rank)[0], 1.0), share=model.linear_share)
    return [linear, *(replace(each, share=model.attention_share) for each in attention)]


def _entered_in_attention(rank: Rank, *, is_expert: bool) -> list[Entered]:
    if rank.workload.model.latent_attention is None:
        product, number = attention_products(rank)[0], _num_head_sums(rank, is_expert=is_expert)
        return [_of_block(rank, product, share) for share in _head_shares(rank, product, number)]
    gathered, summed = latent_bytes(rank)
    return [
        entered_by(rank, product, sum_s=rank.input_gradient_sum_s(sum_bytes), gathered_bytes=gathered_bytes)
        for product, sum_bytes, gathered_bytes in zip(
            up_products(rank), summed, gathered or (None, None), strict=False
        )
    ]


def entered_in_feed_forward(rank: Rank, *, is_expert: bool) -> list[Entered]:
    """Returns the product into a feed-forward block; none if all are routed experts, or shared ones have a stream."""
    model, t = rank.workload.model, rank.plans.tensor_parallel
    width = model.ffn_hidden_size
    if is_expert and model.experts:
        width = 0 if rank.workload.overlaps_shared_experts else model.experts.shared_ffn_hidden_size
    if not width:
        return []
    number = num_entered(rank.workload, (AdaptedProduct.FC1,))
    columns = (model.num_ffn_matrices - 1) * width / t
    product = rank.tokens, columns, np.full(len(t), float(model.hidden_size))
    return number * [_of_block(rank, product, 1.0 / number)]


def entered_in_output(rank: Rank) -> Entered:
    """Returns the product of the output layer, in 16 bits."""
    model = rank.workload.model
    words = model.vocabulary_size / rank.plans.tensor_parallel
    product = rank.tokens, words, np.full(len(words), float(model.hidden_size))
    has_gather = float(rank.workload.has_sequence_parallel)
    return Entered(
        rank=rank.in_16_bits,
        product=product,
        sum_s=entering_s(rank)[1],
        gathered_bytes=has_gather * rank.hidden_bytes,
        gather_s=has_gather * rank.hidden_gather_s,
        factor=rank.unaligned_slowdown,
    )


def entered_by(rank: Rank, product: Product, *, sum_s: Floats, gathered_bytes: Floats | None) -> Entered:
    """Returns a product that has an input of its own size.

    Args:
        rank: Ranks of the designs.
        product: The product.
        sum_s: Time to sum the gradient of its input, `(n,)`.
        gathered_bytes: What is gathered of the input, `(n,)`; `None` without sequence parallelism.
    """
    nothing = np.zeros(len(rank.plans))
    if gathered_bytes is None:
        return Entered(rank=rank, product=product, sum_s=sum_s, gathered_bytes=nothing, gather_s=nothing)
    gather_s = all_gather_s(num_bytes=gathered_bytes, **rank.tensor_group)
    return Entered(rank=rank, product=product, sum_s=sum_s, gathered_bytes=gathered_bytes, gather_s=gather_s)


def _num_head_sums(rank: Rank, *, is_expert: bool) -> int:
    """Returns the number of sums for the gradient of the input of queries, keys and values."""
    every = entered_products(rank, is_expert=is_expert)
    return next(num_entered(rank.workload, names) for names in every if AdaptedProduct.QKV in names)


def _head_shares(rank: Rank, product: Product, number: int) -> list[Floats | float]:
    """Shares of queries with their gate, keys and values in their product where each has a sum of its own; else the whole."""
    if number == 1:
        return [1.0]
    model, (_, columns, _) = rank.workload.model, product
    width = model.attention_dims[0] * model.num_heads + model.gate_width
    queries = width / rank.plans.tensor_parallel / columns
    return [queries, *2 * [(1.0 - queries) / 2.0]]


def _of_block(rank: Rank, product: Product, share: Floats | float) -> Entered:
    """So much of a product that the residual stream enters; products that are apart are priced as one."""
    has_gather = float(rank.workload.has_sequence_parallel)
    return Entered(
        rank=rank,
        product=product,
        sum_s=entering_s(rank)[1],
        gathered_bytes=has_gather * rank.block_gather_bytes[0],
        gather_s=has_gather * rank.block_gather_s[0],
        factor=share,
    )
