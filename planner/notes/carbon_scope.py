"""What do the carbon figures include? The grid and how it is counted, and which making of hardware and buildings."""

from __future__ import annotations

from planner.grid_conventions import grid_convention
from simulator.domain.job import Job


def scope_text(job: Job) -> str:
    """Returns what the carbon figures include and exclude, in one sentence."""
    scope = job.carbon_scope
    out = f"; excluded: {', '.join(scope.left_out)}" if scope.left_out else ""
    made = f"embodied: {', '.join(scope.counted)}" if scope.counted else "no embodied carbon"
    return f"location-based grid, {_hours_text(job)} ({_conventions_text(job)}); {made}{out}"


def _conventions_text(job: Job) -> str:
    """How the grid carbon was counted, by region if there are several conventions."""
    grids = [grid_convention(job.site_of(offer)) for offer in job.offers]
    found = dict.fromkeys((each.region, each.words) for each in grids)
    if len({words for _, words in found}) == 1:
        return grids[0].words
    return "; ".join(f"{region}: {words}" for region, words in found)


def _hours_text(job: Job) -> str:
    """Whether grid carbon is hourly or an annual mean; if the sites on offer differ, which is which."""
    sites = [job.site_of(offer) for offer in job.offers]
    hourly = dict.fromkeys(site.region for site in sites if site.grid_profile)
    steady = dict.fromkeys(site.region for site in sites if not site.grid_profile)
    if hourly and steady:
        return f"hourly in {', '.join(hourly)} and annual mean in {', '.join(steady)}"
    return "hourly" if hourly else "annual mean"
