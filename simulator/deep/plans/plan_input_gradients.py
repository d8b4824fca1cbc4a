"""When are input gradients summed in the backward pass? During the products that `simulator.layers.input_gradients` names."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.deep.plans.plan_collectives import Collective
from simulator.deep.plans.plan_items import Items, Work, beside, work
from simulator.deep.plans.tensor_ends import TensorEnds
from simulator.layers.input_gradients import Entered, sums_beside_product
from simulator.machine.rank import Rank

TENSOR = "tensor traffic"
"""Name of the traffic between tensor-parallel ranks in sentences."""


def with_sums(
    rank: Rank, items: Items, label: str, entered: Sequence[Entered], summed: Sequence[Collective]
) -> Items:
    """Returns operators of a backward pass with the sums of input gradients, which overlap with products where allowed.

    Args:
        rank: A rank of the only design.
        items: The operators.
        label: Label of the operator that contains the products that an input enters.
        entered: These products.
        summed: The sum for each of them, followed by the sums that overlap with none.
    """
    if not (sums_beside_product(rank)[0] and entered):
        return (*items, *summed)
    place, whole = next(
        (number, item) for number, item in enumerate(items) if isinstance(item, Work) and item.label == label
    )
    products_s = [tuple(float(seconds[0]) for seconds in each.products_s) for each in entered]
    pieces: Items = work(label, whole.duration_s - sum(map(sum, products_s)))
    of_each = summed[: len(entered)]
    for each, sum_up, (input_s, weight_s) in zip(entered, of_each, products_s, strict=True):
        pieces = (
            *pieces,
            *beside(_again(rank, each), work(label, input_s), lent_to=TENSOR),
            *beside((sum_up,), work(label, weight_s), lent_to=TENSOR),
        )
    return (*items[:place], *pieces, *items[place + 1 :], *summed[len(entered) :])


def _again(rank: Rank, entered: Entered) -> tuple[Collective, ...]:
    """The gather of a product's input in the backward pass, so often as a layer has the product."""
    gathers = TensorEnds.again(rank, entered.gathered_bytes)
    return gathers if entered.share == 1.0 else tuple(each.scaled(entered.share) for each in gathers)
