"""Is the cooling of a site known? A power usage effectiveness that nobody gives is the mean of a survey.

A job consists of figures, not of their origins: a value that it gives is told, too, where it is that of the survey.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from simulator import catalog
from simulator.catalog import Confidence, Figure, Kind
from simulator.domain.hardware import Site

_QUANTITY = "power_usage_effectiveness"


def cooling_notes(sites: Iterable[Site]) -> Iterator[str]:
    """Yields a note for the sites whose power usage effectiveness is the catalogue's estimate, by value and source."""
    found: dict[tuple[float, str], set[str]] = {}
    for site in sites:
        if estimate := _estimate(site):
            source = estimate.source.partition(": ")[2] or estimate.source
            found.setdefault((site.power_usage_effectiveness, source), set()).add(site.region)
    for (value, source), regions in found.items():
        yield (
            f"The power usage effectiveness of {', '.join(sorted(regions))}, {value:g}, is the catalogue's estimate "
            f"({source}): give the site's power_usage_effectiveness where another is known."
        )


def _estimate(site: Site) -> Figure | None:
    """The catalogue's figure, if it is the site's and an estimate."""
    if site.region not in catalog.names(Kind.SITES):
        return None
    for figure in catalog.figures(Kind.SITES, site.region):
        if figure.quantity == _QUANTITY and figure.confidence is Confidence.ESTIMATE:
            is_same = math.isclose(float(figure.value), site.power_usage_effectiveness, rel_tol=1e-9)
            return figure if is_same else None
    return None
