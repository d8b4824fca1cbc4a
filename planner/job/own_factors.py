"""How do a user's own factors enter a job? They replace the defaults, which are the catalogue's factors.

Values that the job gives itself take precedence. Values that are already records, as Python callers may pass them, are left
unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.job.short_forms import Fields
from simulator.catalog.files import Entries
from simulator.domain.embodied import PROCESSES
from simulator.domain.ownership import Depreciation

FACTOR_FIELDS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("flash", "price"): ("storage", "usd_per_byte"),
    ("flash", "power"): ("storage", "power_w_per_byte"),
    ("flash", "embodied_carbon"): ("storage", "embodied_kgco2e_per_byte"),
    ("building", "embodied_carbon"): ("ownership", "building_kgco2e_per_gpu"),
    ("facility", "price"): ("ownership", "facility_usd_per_w"),
    ("nodes", "loss_of_value"): ("ownership", "economic_loss_per_year"),
    ("failure", "replaced_accelerators"): ("ownership", "replaced_gpus_per_node_failure"),
    ("switch", "embodied_carbon"): ("fabric", "embodied_switch_kgco2e"),
    ("fab", "grid_carbon"): ("dies", "fab_kgco2e_per_kwh"),
    ("fab", "yield"): ("dies", "yield_fraction"),
    ("stacked-memory", "embodied_carbon"): ("dies", "memory_kgco2e_per_byte"),
    ("board", "embodied_carbon"): ("dies", "board_kgco2e"),
}
"""For each factor, the part of a job and the field whose default it is."""
PROCESS_FIELDS: Mapping[str, str] = {
    "fab_energy": "energy_kwh",
    "fab_gases_95": "gases_95_kgco2e",
    "fab_gases_99": "gases_99_kgco2e",
    "fab_materials": "materials_kgco2e",
}
"""Fields of a process, per square centimetre, by the quantity of the factor."""


def with_own_factors(job: Fields, factors: Entries) -> Fields:
    """Returns the fields of a job with a user's own factors in place of the defaults.

    Args:
        job: the job's fields, with names resolved.
        factors: the user's own factors, by entry.
    """
    if not factors:
        return job
    ownership, terms = job.get("ownership", {}), _figures(factors, "ownership")
    if not (isinstance(ownership, dict) and ownership.get("depreciation") == Depreciation.ECONOMIC):
        # A market value that declines over time would contradict straight-line depreciation.
        terms.pop("economic_loss_per_year", None)
    filled = {
        **job,
        "storage": _filled(job.get("storage", {}), _figures(factors, "storage")),
        "ownership": _filled(ownership, terms),
    }
    if isinstance(offers := job.get("offers"), list):
        filled["offers"] = [_offer(offer, factors) for offer in offers]
    return filled


def _offer(offer: object, factors: Entries) -> object:
    if not isinstance(offer, dict):
        return offer
    chip = offer.get("accelerator")
    if isinstance(chip, dict) and isinstance(dies := chip.get("dies"), dict):
        figures = {**_figures(factors, "dies"), **_process(dies.get("process"), factors)}
        offer = {**offer, "accelerator": {**chip, "dies": _filled(dies, figures)}}
    return {**offer, "fabric": _filled(offer.get("fabric"), _figures(factors, "fabric"))}


def _filled(value: object, figures: Fields) -> object:
    return {**figures, **value} if isinstance(value, dict) else value


def _figures(factors: Entries, part: str) -> Fields:
    """Returns the fields of a part of a job for which the user has factors."""
    found = {
        FACTOR_FIELDS[name, figure.quantity]: figure.si_value
        for name, figures in factors.items()
        for figure in figures
        if (name, figure.quantity) in FACTOR_FIELDS
    }
    return {field: value for (owner, field), value in found.items() if owner == part}


def _process(process: object, factors: Entries) -> Fields:
    """Returns the figures of a process, with the user's own replacing those of the catalogue."""
    own = {PROCESS_FIELDS[figure.quantity]: figure.value for figure in factors.get(f"logic-{process}", ())}
    if not own:
        return {}
    shipped = {str(name): figures for name, figures in PROCESSES.items()}[str(process)]
    return {"process_figures": {**shipped.model_dump(), **own}}
