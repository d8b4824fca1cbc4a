"""By which convention, and for which year, is the grid of a site counted? Life cycle or combustion are not the same thing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import combinations

from simulator import catalog
from simulator.catalog import Figure, Kind
from simulator.domain.hardware import Site
from simulator.record import Record

CONVENTIONS = {
    "lifecycle": "life cycle",
    "combustion": "combustion",
    "operational": "operation alone",
    "CO2 only": "CO2 alone",
}
"""What the sources of the catalogue say they count, by a word of theirs."""
NATIONAL_SOURCES = ("OWID", "French grid")
"""Words of sources whose figures are means of whole countries; the others of the catalogue are of parts of one."""
NATIONAL_REGIONS = ("us-egrid-avg", "china-national")
"""Entries that are means of whole countries though their source has parts, too."""
_MEAN_OF = "mean of "
YEARS_APART = 2
"""Grids change by less than their conventions differ for about so long."""


class GridConvention(Record):
    """How the greenhouse gases of a grid were counted."""

    region: str
    counts: str
    """What is in the greenhouse gases: `life cycle`, `combustion`, or whose figure it is."""
    year: int | None
    """Which year they are of; null where nobody says."""
    area: str = ""
    """Of what they are the mean: `national mean`, `mean of united-states` where a site has its country's figure, `grid of a
    region`; empty where nobody says."""
    kgco2e_per_kwh: float
    """Location-based; the mean of a year where the site has hours."""
    source: str
    """The catalogue's source; `the job` where the figure is its own."""

    @property
    def words(self) -> str:
        """The convention and its year: `combustion, 2020`."""
        return f"{self.counts}, {self.year}" if self.year else self.counts

    @property
    def words_with_area(self) -> str:
        """The convention, its year, and the area that it is the mean of: `life cycle, 2025, mean of united-states`."""
        return f"{self.words}, {self.area}" if self.area else self.words


def grid_convention(site: Site) -> GridConvention:
    """Returns the convention of a site's grid: the catalogue's where the figure is the catalogue's, else the job's own."""
    known = _figure(site.region)
    mean = site.grid_profile.mean if site.grid_profile else site.grid_kgco2e_per_kwh
    if known is None or not math.isclose(float(known.value), site.grid_kgco2e_per_kwh, rel_tol=1e-9):
        return GridConvention(
            region=site.region,
            counts="the job's own figure",
            year=None,
            kgco2e_per_kwh=mean,
            source="the job",
        )
    sign = next((sign for sign in CONVENTIONS if sign in known.source), None)
    return GridConvention(
        region=site.region,
        counts=CONVENTIONS[sign] if sign else known.source.partition(": ")[2],
        year=int(known.date[:4]) if known.date else None,
        area=_area(site.region, known.source) if sign else "",
        kgco2e_per_kwh=mean,
        source=known.source,
    )


def _area(region: str, source: str) -> str:
    if borrowed := re.search(r": as ([\w-]+),", source):
        return f"{_MEAN_OF}{borrowed[1]}"
    is_national = region in NATIONAL_REGIONS or any(word in source for word in NATIONAL_SOURCES)
    return "national mean" if is_national else "grid of a region"


def _figure(region: str) -> Figure | None:
    if region not in catalog.names(Kind.SITES):
        return None
    found = (each for each in catalog.figures(Kind.SITES, region) if each.quantity == "grid_carbon")
    return next(found, None)


def grid_notes(sites: Iterable[Site]) -> Iterator[str]:
    """Yields notes on comparing the grids of sites."""
    places = list(sites)
    yield from unlike_grids(places)
    yield from _same_means(map(grid_convention, places))


def unlike_grids(sites: Iterable[Site]) -> Iterator[str]:
    """Yields a note if compared grids follow different conventions, or distant years."""
    found = list({(each.region, each.words): each for each in map(grid_convention, sites)}.values())
    if any(_differ(one, other) for one, other in combinations(found, 2)):
        words: dict[str, list[str]] = {}
        for each in found:
            words.setdefault(each.region, []).append(each.words_with_area)
        told = "; ".join(f"{region}: {', and '.join(each)}" for region, each in words.items())
        yield (
            f"The grid intensities follow different conventions or distant years ({told}). Life-cycle and combustion-only "
            "figures differ by 5 to 15 %, national means and grids of regions by up to several times, market-based and "
            "location-based figures by much more; give all sites grid_kgco2e_per_kwh of one kind."
        )


def _same_means(found: Iterable[GridConvention]) -> Iterator[str]:
    """Yields a note for each country whose mean is used for several of its regions."""
    places: dict[str, set[str]] = {}
    for each in found:
        if each.area.startswith(_MEAN_OF):
            places.setdefault(each.area.removeprefix(_MEAN_OF), set()).add(each.region)
    for country, regions in places.items():
        if len(regions) > 1:
            yield f"The grids of {' and '.join(sorted(regions))} cannot be distinguished: each is the mean of {country}."


def _differ(one: GridConvention, other: GridConvention) -> bool:
    years = (one.year, other.year)
    is_far = None not in years and abs((one.year or 0) - (other.year or 0)) > YEARS_APART
    return one.counts != other.counts or is_far
