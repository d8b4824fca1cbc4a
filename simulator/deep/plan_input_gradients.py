"""Where do sums of input gradients travel backward? Beside the products that `simulator.input_gradients` names."""

from __future__ import annotations

from simulator.deep.plan_collectives import Collective
from simulator.deep.plan_items import Items, Work, beside, work
from simulator.deep.tensor_ends import TensorEnds
from simulator.input_gradients import both_products_s, first_products, sums_beside_product
from simulator.lora import AdaptedProduct
from simulator.rank import Rank
from simulator.table import Floats

TENSOR = "tensor traffic"
"""How sentences call the traffic between tensor-parallel ranks."""


def beside_block(
    rank: Rank,
    items: Items,
    label: str,
    name: AdaptedProduct,
    summed: tuple[Collective, ...],
    *,
    is_expert: bool,
) -> Items:
    """Returns the backward pass of a block of a layer with the sum of the gradients of its input, beside it or behind it.

    Args:
        rank: A rank of the only design.
        items: The pass without the sum.
        label: Of the operators among which the first product of the block is.
        name: Its name.
        summed: The sum.
        is_expert: Whether the layer has routed experts.
    """
    product = first_products(rank, is_expert=is_expert).get(name)
    if product is None:
        return (*items, *summed)
    return beside_product(rank, items, label, both_products_s(rank, product), summed)


def beside_product(
    rank: Rank, items: Items, label: str, both_s: tuple[Floats, Floats], summed: tuple[Collective, ...]
) -> Items:
    """Returns operators of which those called `label` end with two products, with the sum beside them, or behind all.

    Args:
        rank: A rank of the only design.
        items: The operators.
        label: Of those.
        both_s: Both products, for the gradients of an input and of weights, `(1,)` each.
        summed: What sums the gradient of the input up.
    """
    if not sums_beside_product(rank)[0]:
        return (*items, *summed)
    place, whole = next(
        (number, item) for number, item in enumerate(items) if isinstance(item, Work) and item.label == label
    )
    input_s, weight_s = (float(each[0]) for each in both_s)
    pieces = (
        *work(label, whole.duration_s - input_s - weight_s),
        *beside(TensorEnds.again(rank), work(label, input_s), lent_to=TENSOR),
        *beside(summed, work(label, weight_s), lent_to=TENSOR),
    )
    return (*items[:place], *pieces, *items[place + 1 :])
