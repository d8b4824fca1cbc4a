"""What is a cluster with one rate of its hardware higher?"""

from __future__ import annotations

from simulator.domain.hardware import Accelerator
from simulator.domain.offer import Offer


def with_flops(chip: Accelerator, factor: float) -> Accelerator:
    names = ("bf16_flop_per_s", "fp8_flop_per_s", "measured_bf16_flop_per_s")
    return chip.model_copy(update={name: factor * value for name in names if (value := getattr(chip, name))})


def with_rate_of_chip(offer: Offer, name: str, factor: float) -> Offer:
    chip = offer.accelerator
    return offer.model_copy(
        update={"accelerator": chip.model_copy(update={name: factor * getattr(chip, name)})}
    )


def with_rate_of_node(offer: Offer, name: str, factor: float) -> Offer:
    return offer.model_copy(
        update={"node": offer.node.model_copy(update={name: factor * getattr(offer.node, name)})}
    )


def improved(offer: Offer, name: str, factor: float) -> Offer:
    """Returns the offer with one rate so many times as high, or a link domain of as many nodes."""
    match name:
        case "flop_per_s":
            return offer.model_copy(update={"accelerator": with_flops(offer.accelerator, factor)})
        case "memory_bytes_per_s" | "scale_up_bytes_per_s":
            return with_rate_of_chip(offer, name, factor)
        case "link_domain_size":
            return with_rate_of_node(offer, name, max(1, round(factor)))
        case _:
            return with_rate_of_node(offer, name, factor)
