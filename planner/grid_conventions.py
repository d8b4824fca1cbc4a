"""By which convention, and for which year, is the grid of a site counted? Life cycle or combustion are not the same thing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import combinations

from simulator import catalog
from simulator.catalog import Figure, Kind
from simulator.hardware import Site
from simulator.record import Record

CONVENTIONS = {
    "lifecycle": "life cycle",
    "combustion": "combustion",
    "operational": "operation alone",
    "CO2 only": "CO2 alone",
}
"""What the sources of the catalogue say they count, by a word of theirs."""
YEARS_APART = 2
"""Grids change by less than their conventions differ for about so long."""


class GridConvention(Record):
    """How the greenhouse gases of a grid were counted."""

    region: str
    counts: str
    """What is in them: `life cycle`, `combustion`, or whose figure it is."""
    year: int | None
    """Which year they are of; null where nobody says."""

    @property
    def words(self) -> str:
        """The convention and its year: `combustion, 2020`."""
        return f"{self.counts}, {self.year}" if self.year else self.counts


def grid_convention(site: Site) -> GridConvention:
    """Returns the convention of a site's grid: the catalogue's where the figure is the catalogue's, else the job's own."""
    known = _figure(site.region)
    if known is None or not math.isclose(float(known.value), site.grid_kgco2e_per_kwh, rel_tol=1e-9):
        return GridConvention(region=site.region, counts="the job's own figure", year=None)
    counts = next(
        (words for sign, words in CONVENTIONS.items() if sign in known.source),
        known.source.partition(": ")[2],
    )
    return GridConvention(region=site.region, counts=counts, year=int(known.date[:4]) if known.date else None)


def _figure(region: str) -> Figure | None:
    if region not in catalog.names(Kind.SITES):
        return None
    found = (each for each in catalog.figures(Kind.SITES, region) if each.quantity == "grid_carbon")
    return next(found, None)


def unlike_grids(sites: Iterable[Site]) -> Iterator[str]:
    """Yields a note where grids that are compared were counted by unlike conventions, or for years far apart."""
    found = list({site.region: grid_convention(site) for site in sites}.values())
    if not any(_differ(one, other) for one, other in combinations(found, 2)):
        return
    told = "; ".join(f"{each.region}: {each.words}" for each in found)
    yield (
        f"Grids are counted by unlike conventions or for years far apart ({told}). Life cycle and combustion alone "
        "differ by 5 to 15 %, market and location by much more; give all sites grid_kgco2e_per_kwh of one kind."
    )


def _differ(one: GridConvention, other: GridConvention) -> bool:
    years = (one.year, other.year)
    is_far = None not in years and abs((one.year or 0) - (other.year or 0)) > YEARS_APART
    return one.counts != other.counts or is_far
