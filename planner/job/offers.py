"""What does an offer consist of? Accelerator, node, network and price, given in the job or taken from the catalogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from planner.input.problems import Findings
from planner.input.schema import Location
from planner.job.short_forms import Entry, Fields, entry, found, lengthen
from planner.job.sites import resolved_site
from simulator import catalog
from simulator.catalog.rents import CONTRACTS
from simulator.domain.hardware import Accelerator
from simulator.domain.offer import Estimate
from simulator.errors import CatalogError

COMMITTED_DAYS: Mapping[str, float] = {"reserved_1y": 365.0, "reserved_3y": 3 * 365.0}
"""Commitment, in days, of the catalogue's reserved prices."""
_NO_PRICE = Estimate(low=0.0, mid=0.0, high=0.0)
"""Stands in for a price that was not found, so that the rest of the offer is still checked."""


RANGES = (
    "num_gpus",
    "rent_usd_per_gpu_hour",
    "purchase_usd_per_node",
    "other_rent_usd_per_gpu_hour",
    "other_purchase_usd_per_node",
)
"""Range fields for which a single number may stand."""


def resolved_offer(
    given: Fields, job_fabric: object, location: Location, folder: Path, findings: Findings
) -> Fields:
    """Returns the fields of an `Offer`: accelerator, node, fabric, site and price looked up, ranges written out."""
    offer = {**given}
    contract = offer.get("rent_usd_per_gpu_hour")
    if isinstance(contract, str) and contract in CONTRACTS and contract != "planned":
        offer = _under_contract(offer, contract, location, findings)
    for field in RANGES:
        lengthen(offer, field, location, findings)
    if "site" in offer:
        offer["site"] = resolved_site(offer, location, folder, findings)
    accelerator = offer.get("accelerator")
    if accelerator is not None:
        offer["accelerator"] = entry(accelerator, catalog.accelerator, (*location, "accelerator"), findings)
    name = accelerator if isinstance(accelerator, str) else _own_id(accelerator)
    offer["node"] = entry(offer.get("node"), catalog.node, (*location, "node"), findings)
    if "node" not in given:
        offer["node"] = _usual(catalog.default_node, name, (*location, "node"), findings)
    offer["fabric"] = entry(offer.get("fabric"), catalog.fabric, (*location, "fabric"), findings)
    if "fabric" not in given:
        offer["fabric"] = _common_fabric(job_fabric, name, location, findings)
    return _priced(offer, name, location, findings)


def _own_id(accelerator: object) -> str | None:
    """Returns the id of an accelerator that is written out, if it is text."""
    match accelerator:
        case Accelerator(id=name) | {"id": str(name)}:
            return name
        case _:
            return None


def _is_known(name: str | None) -> bool:
    return name in catalog.names(catalog.Kind.ACCELERATORS)


def _usual(
    find: Callable[[str], Entry], name: str | None, location: Location, findings: Findings
) -> Entry | None:
    """Returns the catalogue's entry for an accelerator; a job with its own accelerator must give the entry itself."""
    if name is not None and _is_known(name):
        return found(find, name, location, findings)
    if name is None or findings.is_hidden((*location[:-1], "accelerator")):
        findings.hide(location)
    else:
        findings.add(location, None, "is missing: the catalogue knows none for an accelerator of your own")
    return None


def _common_fabric(fabric: object, name: str | None, location: Location, findings: Findings) -> object:
    """Returns the job's fabric if it has one, else the usual fabric of the accelerator."""
    here = (*location, "fabric")
    if fabric is not None:
        findings.rename(here, ("fabric",))
        return fabric
    if findings.is_hidden(("fabric",)):
        findings.hide(here)
        return None
    return _usual(catalog.default_fabric, name, here, findings)


def _priced(offer: Fields, name: str | None, location: Location, findings: Findings) -> Fields:
    """Returns an offer with the source of its price; an offer without a price gets the catalogue's rent."""
    has_price = any(
        offer.get(field) is not None or findings.is_hidden((*location, field))
        for field in ("rent_usd_per_gpu_hour", "purchase_usd_per_node")
    )
    if name is None or not _is_known(name):
        return offer
    if has_price:
        return _compared(offer, name)
    rent, source = _NO_PRICE, ""
    try:
        rent, source = catalog.rent(name)
    except CatalogError:
        rule = f"is missing, and the catalogue knows no rent of {name}: give it, or purchase_usd_per_node"
        findings.add((*location, "rent_usd_per_gpu_hour"), None, rule)
    return {**offer, "rent_usd_per_gpu_hour": rent, "price_source": offer.get("price_source", source)}


def _under_contract(offer: Fields, contract: str, location: Location, findings: Findings) -> Fields:
    """Returns an offer with the catalogue's rent under one kind of contract; spot prices imply interruptions."""
    here = (*location, "rent_usd_per_gpu_hour")
    if contract == "spot" and offer.get("interruptions_per_1000_node_days") is None:
        findings.add(here, contract, "needs interruptions_per_1000_node_days: how often nodes are taken back")
    committed, least = offer.get("commitment_days"), COMMITTED_DAYS.get(contract, 0.0)
    if committed is not None and _days(committed) != least and not 0.0 < least <= _days(committed):
        rule = f"must be {least:g} or more" if least else "must be left out"
        findings.add(
            (*location, "commitment_days"), committed, f"{rule} under rent_usd_per_gpu_hour: {contract}"
        )
    known, name = None, offer.get("accelerator")
    if isinstance(name, str) and not _is_known(name):
        findings.hide(here)  # what is told of the accelerator is enough
    else:
        wanted = _own_id(name) or str(name)
        known = found(lambda kind: catalog.rent(wanted, contract=kind), contract, here, findings)
    rent, source = known or (_NO_PRICE, "")
    return {**offer, "rent_usd_per_gpu_hour": rent, "price_source": offer.get("price_source", source)}


def _days(value: object) -> float:
    """Returns a number of days given as a number or as text; the rules of its type report anything else."""
    try:
        return float(str(value))
    except ValueError:
        return math.inf


def _compared(offer: Fields, name: str) -> Fields:
    """Returns a bought offer with the catalogue's rent for comparison, if there is one."""
    if offer.get("purchase_usd_per_node") is None or offer.get("other_rent_usd_per_gpu_hour") is not None:
        return offer
    try:
        rent, _ = catalog.rent(name)
    except CatalogError:
        return offer
    return {**offer, "other_rent_usd_per_gpu_hour": rent}
