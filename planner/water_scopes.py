"""Which water of a site is counted: that of its cooling, that of its power stations, or both?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from simulator.domain.hardware import Site


def water_scope(site: Site) -> str:
    """Returns which water of a site is counted, and which is not known."""
    match site.water_onsite_l_per_kwh is not None, site.water_offsite_l_per_kwh is not None:
        case True, True:
            return "on site and at power stations"
        case True, False:
            return "on site only; power stations unknown"
        case False, True:
            return "power stations only; on-site use unknown"
        case _:
            return ""


def water_notes(sites: Iterable[Site]) -> Iterator[str]:
    """Yields a note if compared sites count different parts of their water; those that count none have no figure."""
    places: dict[str, set[str]] = {}
    for site in sites:
        if scope := water_scope(site):
            places.setdefault(scope.partition(";")[0], set()).add(site.region)
    if len(places) > 1:
        told = "; ".join(f"{', '.join(sorted(regions))}: {scope}" for scope, regions in places.items())
        yield (
            f"Water is not the same quantity at these sites ({told}): compare it only where they all give "
            "water_onsite_l_per_kwh and water_offsite_l_per_kwh."
        )
