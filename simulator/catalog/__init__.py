"""What is known about the world's hardware, models and places? Figures by name, each with its source.

    accelerator("h100-sxm5-80gb")            Accelerator, Node, Fabric, ModelShape, Site and Framework by name
    default_node("h100-sxm5-80gb")           what an offer takes when it says no more
    rent("h100-sxm5-80gb")                   USD per GPU-hour as a range, and where it comes from
    names(Kind.MODELS), figures(kind, name)  what there is; every figure with unit, source, date, confidence
    with overlaid(read_own_figures([path])): a user's own price list or region file replaces figures

Files are read at first use. `docs/catalog-sources.md` explains the keys of the sources.
"""

from __future__ import annotations

from simulator.catalog.files import Confidence, Figure, catalog_hash, overlaid
from simulator.catalog.frameworks import Framework, framework
from simulator.catalog.lookup import (
    TEXT_ALONE,
    Kind,
    accelerator,
    default_fabric,
    default_node,
    fabric,
    figures,
    is_pcie_card,
    model,
    names,
    node,
    site,
)
from simulator.catalog.own import read_own_figures
from simulator.catalog.rents import rent, vendor_rents

__all__ = [
    "TEXT_ALONE",
    "Confidence",
    "Figure",
    "Framework",
    "Kind",
    "accelerator",
    "catalog_hash",
    "default_fabric",
    "default_node",
    "fabric",
    "figures",
    "framework",
    "is_pcie_card",
    "model",
    "names",
    "node",
    "overlaid",
    "read_own_figures",
    "rent",
    "site",
    "vendor_rents",
]
