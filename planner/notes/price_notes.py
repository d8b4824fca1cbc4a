"""Are the prices of a job what they seem? Rents of unlike vendors are compared, or one is far from everything that is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from planner.text import human
from simulator import catalog
from simulator.domain.job import Job
from simulator.domain.offer import Estimate, Offer
from simulator.errors import CatalogError

FAR_FACTOR = 3.0
"""How far outside the figures of the catalogue a price is told. A node of eight at the price of one GPU is farther."""
UNLIKE_FRACTION = 0.25
"""Change of the ratio of two rents, from the catalogue's middle to one vendor, from which on it is told."""
MOST_VENDORS = 3
"""Vendors in one note."""


def price_notes(job: Job) -> Iterator[str]:
    """Yields warnings about the prices on offer."""
    yield from dict.fromkeys(note for offer in job.offers for note in _far_off(offer))
    yield from _rents_of_catalog(job)


def far_rent(accelerator: str, usd_per_gpu_hour: float) -> Iterator[str]:
    """Yields a note if a rent of the user is far outside the catalogue's range for this accelerator."""
    known = _catalog_rent(accelerator)
    if known and not known[0].low / FAR_FACTOR <= usd_per_gpu_hour <= known[0].high * FAR_FACTOR:
        low, high = known[0].low, known[0].high
        yield (
            f"The rent of {accelerator}, {usd_per_gpu_hour:.3g} USD per GPU-hour, is far outside the catalogue's {low:.3g} to "
            f"{high:.3g}: is it the price of one GPU for one hour?"
        )


def far_node_price(node: str, usd: float) -> Iterator[str]:
    """Yields a note if a price of the user for a node is far from the catalogue's."""
    known = catalog.node(node).purchase_usd if node in catalog.names(catalog.Kind.NODES) else None
    if known and not known / FAR_FACTOR <= usd <= known * FAR_FACTOR:
        yield (
            f"The price of a node {node}, {human.digits(usd)} USD, is far from the catalogue's {known:,.0f}: is it that of a "
            "whole node?"
        )


def _far_off(offer: Offer) -> Iterator[str]:
    if offer.price_source != "user":
        return
    if offer.rent_usd_per_gpu_hour is not None:
        yield from far_rent(offer.accelerator.id, offer.rent_usd_per_gpu_hour.mid)
    if offer.purchase_usd_per_node is not None:
        yield from far_node_price(offer.node.id, offer.purchase_usd_per_node.mid)


def _rents_of_catalog(job: Job) -> Iterator[str]:
    """A note if rents are the catalogue's: where only one is, its range, else whether vendors differ in their ratio."""
    rents = {offer.accelerator.id: rent for offer in job.offers if (rent := _rent_of_catalog(offer))}
    if len(rents) > 1:
        yield from _unlike_vendors({name: rent.mid for name, rent in rents.items()})
    for name, rent in rents.items() if len(rents) == 1 else ():
        yield (
            f"The rent of {name}, {rent.mid:.3g} USD per GPU-hour ({rent.low:.3g} to {rent.high:.3g}), comes from the "
            "catalogue: set rent_usd_per_gpu_hour to your quote."
        )


def _unlike_vendors(middle: Mapping[str, float]) -> Iterator[str]:
    """A note if the price ratio of accelerators at one vendor differs from that of their middle prices."""
    quotes = {name: catalog.vendor_rents(name) for name in middle}
    common = [
        vendor for vendor in next(iter(quotes.values())) if all(vendor in each for each in quotes.values())
    ]
    at = {vendor: [each[vendor] for each in quotes.values()] for vendor in common}
    unlike = {vendor: prices for vendor, prices in at.items() if _are_unlike(prices, list(middle.values()))}
    if common and not unlike:
        return
    told = f"{_prices(middle.values())} USD per GPU-hour at the middle, {_at_vendors(unlike)}"
    yield (
        f"The rents of {', '.join(middle)} come from the catalogue, and their ratio differs by vendor: {told}. Which one is "
        "cheapest depends on the vendor: set rent_usd_per_gpu_hour to your quotes."
    )


def _at_vendors(prices: Mapping[str, Sequence[float]]) -> str:
    if not prices:
        return "and no vendor has a price for all of them"
    return "; ".join(f"{_prices(found)} at {vendor}" for vendor, found in list(prices.items())[:MOST_VENDORS])


def _prices(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def _are_unlike(prices: Sequence[float], middle: Sequence[float]) -> bool:
    """Whether the price ratio of any two accelerators differs by more than `UNLIKE_FRACTION`."""
    shares = [price / mid for price, mid in zip(prices, middle, strict=True)]
    return max(shares) > (1.0 + UNLIKE_FRACTION) * min(shares)


def _rent_of_catalog(offer: Offer) -> Estimate | None:
    """The rent of an offer, if it comes from the catalogue and not from a contract or a user's list."""
    known = _catalog_rent(offer.accelerator.id)
    is_from_catalog = known is not None and (offer.rent_usd_per_gpu_hour, offer.price_source) == known
    return offer.rent_usd_per_gpu_hour if is_from_catalog else None


def _catalog_rent(accelerator: str) -> tuple[Estimate, str] | None:
    try:
        return catalog.rent(accelerator)
    except CatalogError:
        return None
