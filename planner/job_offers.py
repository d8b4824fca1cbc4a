"""What does an offer stand for? Accelerator, node, network and price: its own or the catalogue's."""

from __future__ import annotations

from collections.abc import Callable

from planner.job_schema import Location
from planner.problems import Findings
from planner.short_forms import Entry, Fields, entry, found, lengthen
from simulator import catalog
from simulator.hardware import Accelerator
from simulator.job import Estimate

_NO_PRICE = Estimate(low=0.0, mid=0.0, high=0.0)
"""Stands in for a price that was not found, so that the rest of the offer is still checked."""


def resolved_offer(given: Fields, job_fabric: object, location: Location, findings: Findings) -> Fields:
    """Returns the fields of an `Offer`: accelerator, node, fabric and price found, ranges written out."""
    offer = {**given}
    for field in ("num_gpus", "rent_usd_per_gpu_hour", "purchase_usd_per_node"):
        lengthen(offer, field, location, findings)
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
    """Returns what the catalogue has for an accelerator; an own accelerator must come with its own."""
    if name is not None and _is_known(name):
        return found(find, name, location, findings)
    if name is None or findings.is_hidden((*location[:-1], "accelerator")):
        findings.hide(location)
    else:
        findings.add(location, None, "is missing: the catalogue knows none for an accelerator of your own")
    return None


def _common_fabric(fabric: object, name: str | None, location: Location, findings: Findings) -> object:
    """Returns the job's fabric if there is one, else the usual one of the accelerator."""
    here = (*location, "fabric")
    if fabric is not None:
        findings.rename(here, ("fabric",))
        return fabric
    if findings.is_hidden(("fabric",)):
        findings.hide(here)
        return None
    return _usual(catalog.default_fabric, name, here, findings)


def _priced(offer: Fields, name: str | None, location: Location, findings: Findings) -> Fields:
    """Returns an offer with the catalogue's rent where it has no price, and with the source of its price."""
    has_price = any(
        offer.get(field) is not None or findings.is_hidden((*location, field))
        for field in ("rent_usd_per_gpu_hour", "purchase_usd_per_node")
    )
    if has_price or name is None or not _is_known(name):
        return offer
    here = (*location, "rent_usd_per_gpu_hour")
    rent, source = found(catalog.rent, name, here, findings) or (_NO_PRICE, "")
    return {**offer, "rent_usd_per_gpu_hour": rent, "price_source": offer.get("price_source", source)}
