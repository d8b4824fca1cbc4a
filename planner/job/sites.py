"""What does a site consist of? The user's own figures, else those of its region; profiles come from files or a few numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from planner.input.magnitude import out_of_reach
from planner.input.problems import Findings, nearest
from planner.input.schema import Location, long_form
from planner.job.short_forms import Fields, found, lengthen
from simulator import catalog
from simulator.domain.hardware import Site
from simulator.domain.hourly import MOST_KGCO2E_PER_KWH, MOST_USD_PER_KWH, HourlyProfile, synthetic_profile
from simulator.domain.traces import GRID_TRACE, PRICE_TRACE, TraceUnit, read_trace
from simulator.errors import InputError

PROFILES: Mapping[str, TraceUnit] = {"grid_profile": GRID_TRACE, "electricity_profile": PRICE_TRACE}
"""Fields that hold profiles, with the unit of their files."""
MEAN_OF: Mapping[str, str] = {
    "grid_profile": "grid_kgco2e_per_kwh",
    "electricity_profile": "electricity_usd_per_kwh",
}
"""The flat figure that each profile replaces."""
PLAUSIBLE: Mapping[str, float] = {
    "grid_profile": MOST_KGCO2E_PER_KWH,
    "electricity_profile": MOST_USD_PER_KWH,
}
"""The largest plausible value of each profile."""
SAME_MEAN_FRACTION = 0.01
"""A flat figure this close to the mean of the profile, relative to it, differs only by rounding and is no contradiction."""
REQUIRED = tuple(name for name, field in Site.model_fields.items() if field.is_required())
_SWINGS = ("mean", "daily_amplitude", "yearly_amplitude")


def resolved_site(owner: Fields, location: Location, folder: Path, findings: Findings) -> object:
    """Returns the site of a job or an offer, completed with all known figures of its region.

    Args:
        owner: the job or the offer, whose `site` may be a region or fields.
        location: path of the owner in the document.
        folder: where relative paths of profiles start.
        findings: collects the problems.
    """
    lengthen(owner, "site", location, findings)
    given = owner.get("site")
    return _written_out(given, (*location, "site"), folder, findings) if isinstance(given, dict) else given


def _written_out(given: Fields, here: Location, folder: Path, findings: Findings) -> Fields:
    """Returns the full fields of the site at a path of the document."""
    site = {**given}
    for field, unit in PROFILES.items():
        if site.get(field) is not None:
            site[field] = _profile(site[field], unit, (*here, field), folder, findings)
            _meet_mean(site, field, here, findings)
    return _with_region(site, here, findings)


def _meet_mean(site: Fields, field: str, here: Location, findings: Findings) -> None:
    """Sets a site's flat figure to the mean of its profile; refuses a given one that differs, as it would have no effect."""
    mean_field, given = MEAN_OF[field], site.get(MEAN_OF[field])
    mean = _mean(site[field], PLAUSIBLE[field])
    if given is None:
        # Of a broken profile, only its own error is told, not that the figure which it replaces is missing.
        site[mean_field] = 0.0 if mean is None else mean
    elif mean is not None and differs(given, mean):
        findings.add((*here, mean_field), given, replaced_by(field, mean))


def _mean(profile: object, most: float) -> float | None:
    """The mean of a profile that keeps the rules of its hours; `None` for any other."""
    try:
        valid = HourlyProfile.model_validate(profile)
    except ValidationError:
        return None
    return valid.mean if max(valid.per_hour) <= most else None


def differs(flat: object, mean: float) -> bool:
    """Whether a flat figure contradicts the mean of the profile that replaces it."""
    return isinstance(flat, (int, float)) and not math.isclose(flat, mean, rel_tol=SAME_MEAN_FRACTION)


def replaced_by(field: str, mean: float) -> str:
    """Returns the rule that a flat figure breaks beside a profile with another mean."""
    return f"is replaced by {field}, whose mean is {mean:.4g}; leave one of the two out"


def resolved_what_if(given: Fields, folder: Path, findings: Findings) -> Fields:
    """Returns the what-if cases of a job with their sites written out."""
    sites = given.get("sites")
    if not isinstance(sites, list):
        return given
    written = []
    for index, site in enumerate(sites):
        here: Location = ("what_if", "sites", index)
        if isinstance(site, str):
            findings.rename((*here, "region"), here)
        long = long_form("site", site)
        written.append(_written_out(long, here, folder, findings) if isinstance(long, dict) else site)
    return {**given, "sites": written}


def _with_region(given: Fields, location: Location, findings: Findings) -> Fields:
    """Returns a site completed from its region; if the catalogue lacks the region, the job must give all required figures."""
    region = given.get("region")
    missing = [field for field in Site.model_fields if given.get(field) is None]
    if not isinstance(region, str) or not missing:
        return given
    if region not in catalog.names(catalog.Kind.SITES) and not set(missing) & set(REQUIRED):
        return given
    lacking = [name for name in REQUIRED if name in missing]
    if region not in catalog.names(catalog.Kind.SITES) and len(lacking) < len(REQUIRED) - 1:
        rule = f"is not in the catalogue, and a region of your own needs {', '.join(lacking)}, too"
        findings.add((*location, "region"), region, rule)
        for field in missing:
            findings.hide((*location, field))
        return given
    known = found(catalog.site, region, (*location, "region"), findings)
    if known is None:
        for field in missing:
            findings.hide((*location, field))
        return given
    return {**given, **{field: getattr(known, field) for field in missing}}


def _profile(value: object, unit: TraceUnit, location: Location, folder: Path, findings: Findings) -> object:
    """Returns the profile given by a path, a list of numbers, or a mean and its amplitudes."""
    match value:
        case str() if "\0" in value:
            findings.add(location, value, "must be a path, which has no null character")
            return None
        case str() if not value.strip():
            findings.add(location, value, "must be the path of a file")
            return None
        case str():
            return _found_profile(lambda: read_trace(folder / value, unit), value, location, findings)
        case list():
            return _hours(value, location, findings)
        case dict() if value.keys() & set(_SWINGS):
            if not (_are_swings(value, location, findings) and _are_numbers(value, location, findings)):
                return None
            swings = {"mean": 0.0, **{name: float(str(swing)) for name, swing in value.items()}}
            return _found_profile(lambda: synthetic_profile(**swings), str(value), location, findings)
        case _:
            return value


def _hours(values: list[object], location: Location, findings: Findings) -> Fields:
    """Returns a list of hours as a profile; values that are no finite numbers were told where they stand."""
    for hour, value in enumerate(values):
        if value is None and findings.is_hidden((*location, hour)):
            findings.hide((*location, "per_hour", hour))
    return {"per_hour": values}


def _are_swings(given: Fields, location: Location, findings: Findings) -> bool:
    """Whether all fields beside a mean are amplitudes; reports the others."""
    unknown = [name for name in given if name not in _SWINGS]
    for name in unknown:
        findings.add((*location, name), given[name], f"unknown field; {nearest(name, _SWINGS)}")
    return not unknown


def _are_numbers(swings: Fields, location: Location, findings: Findings) -> bool:
    """Whether a mean and its amplitudes are numbers; reports those that are not."""
    wrong = {
        name: value
        for name, value in swings.items()
        if isinstance(value, bool) or not isinstance(value, (int, float))
    }
    for name, value in wrong.items():
        findings.add((*location, name), value, "must be a number, as all of mean and its swings are")
    right = {name: value for name, value in swings.items() if name not in wrong}
    far = list(out_of_reach(right, location))
    for place, value, rule in far:
        findings.add(place, value, rule)
    return not wrong and not far


def _found_profile(
    make: Callable[[], HourlyProfile], shown: str, location: Location, findings: Findings
) -> HourlyProfile | None:
    try:
        return make()
    except InputError as error:
        for problem in error.problems:
            findings.add(location, shown, str(problem))
        return None
