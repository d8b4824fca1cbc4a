"""What does an accelerator-hour cost? A range from the most recent public prices.

Prices of one accelerator differ by a factor of ten within a month, the largest uncertainty of any cost: the range matters more
than its middle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from simulator.catalog.files import PRICE_LIST, Figure, is_own
from simulator.catalog.lookup import Kind, figures, require_known
from simulator.domain.offer import Estimate
from simulator.errors import CatalogError, Problem

COMMITTED = ("reserved_1y", "reserved_3y")
PLANNED = ("on_demand", *COMMITTED)
"""Prices that a training run can rely on; spot capacity can be interrupted, and analysts' models are not offers."""
WINDOW_YEARS = 2.0
"""Prices older than this, counted from the newest of the accelerator, are left out."""
FEW_VENDORS = 3
"""With fewer vendors than this, the spread between them is meaningless."""
COMMITMENT_DISCOUNT_FRACTION = 0.56
"""Three years' commitment against on-demand: 64 % at AWS, 56 % at Google, 49 % at Azure; the middle one.
Source: key DISCOUNTS of `docs/catalog-sources.md`."""

SPREAD_OF_ONE = "one price, with the spread of all rents of this accelerator"
Quotes = Mapping[tuple[str, str], Figure]
"""Newest price by vendor and kind of price."""


CONTRACTS: Mapping[str, tuple[str, ...]] = {
    "planned": PLANNED,
    "on_demand": ("on_demand",),
    "reserved_1y": ("reserved_1y",),
    "reserved_3y": ("reserved_3y",),
    "spot": ("spot",),
}
"""Kinds of prices by contract name; `planned` is the default of a job."""


def rent(
    accelerator_name: str, *, contract: str = "planned", path: str = "accelerator"
) -> tuple[Estimate, str]:
    """Returns the rent of an accelerator in USD per GPU-hour, and its source.

    With three or more vendors, `low`, `mid` and `high` are the 5th, 50th and 95th percentile over the cheapest price of each
    vendor, commitments included. With fewer, `mid` and `high` are the median and highest on-demand price, and `low` is the
    lowest commitment, or the lowest price less the usual discount. A user's own price list has no discounts that it does not
    name: a single price is `low`, `mid` and `high`. For one kind of contract they are the lowest, the median and the highest
    price; a single spot price has no spread of its own and changes by the hour, so it gets the spread of all rents of the
    accelerator.

    Args:
        accelerator_name: its name in the catalogue.
        contract: which prices count, a name among `CONTRACTS`.
        path: where the name was given, for messages.

    Raises:
        CatalogError: The accelerator is unknown, or no rent of it is.
    """
    require_known(Kind.ACCELERATORS, accelerator_name, path)
    quotes = _newest_quotes(_prices(accelerator_name, contract, path))
    vendors = {vendor for vendor, _ in quotes}
    if contract == "spot" and len(quotes) == 1:
        low, mid, high = _range_of_one(quotes, accelerator_name, path)
        return _estimate(low, mid, high), f"{_source_text(quotes)}; {SPREAD_OF_ONE}"
    if contract != "planned":
        low, mid, high = _range_of_contract(quotes)
    else:
        discount = 0.0 if is_own(PRICE_LIST, accelerator_name) else COMMITMENT_DISCOUNT_FRACTION
        is_broad = len(vendors) >= FEW_VENDORS
        low, mid, high = _range_of_vendors(quotes) if is_broad else _range_of_few(quotes, discount)
    return _estimate(low, mid, high), _source_text(quotes)


def vendor_rents(accelerator_name: str) -> dict[str, float]:
    """Returns the newest on-demand price of each vendor, USD per GPU-hour; raises as `rent` does if no rent is known."""
    quotes = _newest_quotes(_prices(accelerator_name, "planned", "accelerator"))
    return {vendor: _usd(quote) for (vendor, quantity), quote in quotes.items() if quantity == "on_demand"}


def _estimate(low: float, mid: float, high: float) -> Estimate:
    return Estimate(low=round(low, 2), mid=round(mid, 2), high=round(high, 2))


def _range_of_vendors(quotes: Quotes) -> tuple[float, float, float]:
    cheapest: dict[str, float] = {}
    for (vendor, _), quote in quotes.items():
        cheapest[vendor] = min(_usd(quote), cheapest.get(vendor, _usd(quote)))
    low, mid, high = np.percentile(list(cheapest.values()), (5.0, 50.0, 95.0))
    return float(low), float(mid), float(high)


def _range_of_few(quotes: Quotes, discount_fraction: float) -> tuple[float, float, float]:
    on_demand = [_usd(quote) for (_, quantity), quote in quotes.items() if quantity not in COMMITTED]
    committed = [_usd(quote) for (_, quantity), quote in quotes.items() if quantity in COMMITTED]
    prices = on_demand or committed
    low = min(committed) if committed else min(prices) * (1.0 - discount_fraction)
    return low, float(np.median(prices)), max(prices)


def _range_of_contract(quotes: Quotes) -> tuple[float, float, float]:
    """Lowest, median and highest price of one kind."""
    prices = [_usd(quote) for quote in quotes.values()]
    return min(prices), float(np.median(prices)), max(prices)


def _range_of_one(quotes: Quotes, accelerator_name: str, path: str) -> tuple[float, float, float]:
    """The only price of a kind, with the spread of all rents of the accelerator."""
    ((_, quote),) = quotes.items()
    usd = _usd(quote)
    try:
        known, _ = rent(accelerator_name, path=path)
    except CatalogError:  # a user's own list may have nothing but this price
        return usd, usd, usd
    return usd * known.low / known.mid, usd, usd * known.high / known.mid


def _prices(accelerator_name: str, contract: str, path: str) -> tuple[Figure, ...]:
    try:
        found = figures(Kind.RENTS, accelerator_name, path=path)
    except CatalogError as error:
        rule = f"{accelerator_name} has no known rent; give rent_usd_per_gpu_hour or purchase_usd_per_node"
        raise CatalogError([Problem(path=path, value="", rule=rule)]) from error
    prices = tuple(figure for figure in found if figure.quantity in CONTRACTS[contract])
    if not prices:
        quantities = {figure.quantity for figure in found}
        # `planned` is what a job without a price of its own has, and nothing that it could name.
        others = (
            kind for kind in CONTRACTS if kind != "planned" and not quantities.isdisjoint(CONTRACTS[kind])
        )
        rule = f"{accelerator_name} has no price of the kind {contract} in the catalogue; give {', '.join(others)} or a number"
        raise CatalogError([Problem(path=path, value="", rule=rule)])
    return prices


def _newest_quotes(prices: Sequence[Figure]) -> Quotes:
    """Returns each vendor's newest price of each kind inside the window, the lowest of several regions."""
    oldest = max(year_of(price.date) for price in prices) - WINDOW_YEARS
    ordered = sorted(prices, key=lambda price: (year_of(price.date), -_usd(price)))
    return {(_vendor(price), price.quantity): price for price in ordered if year_of(price.date) >= oldest}


def _usd(price: Figure) -> float:
    return float(price.value)


def year_of(date: str) -> float:
    """Returns a date, month or year in years; a year alone counts as its middle."""
    year, month = [*date.split("-"), "7"][:2]
    return int(year) + (int(month) - 1) / 12.0


def _vendor(price: Figure) -> str:
    """Returns the vendor: the text before the first comma of the source's note, or of a source without one."""
    return (price.source.partition(": ")[2] or price.source).split(",")[0]


def _source_text(quotes: Quotes) -> str:
    vendors = sorted({vendor for vendor, _ in quotes})
    keys = sorted({quote.source.partition(": ")[0] for quote in quotes.values()})
    dates = sorted((quote.date for quote in quotes.values()), key=lambda date: (year_of(date), date))
    period = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    count = "1 price" if len(quotes) == 1 else f"{len(quotes)} prices"
    return f"{count} of {', '.join(vendors)}; {period}; {', '.join(keys)}"
